"""The order in which a kernel of attention with an online softmax computes: tiles, exponents, sums, parts of the keys.

It is data. It knows no kernel by name, no device and no tensor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

#: How a score s becomes an argument of 2^x, with f = factor * log2(e) and m the largest score of the row so far:
#: "rounded": s f - m f; "fused": the same with s f - (m f) rounded once; "scaled": s * factor, then times log2(e), both
#: rounded, of which the largest is taken and subtracted.
ScoreScaling = Literal["rounded", "fused", "scaled"]
LOG2E, LN2 = 1.4426950408889634, 0.693147182464599609375
JOIN_THREADS = 128  # of a block that joins parts
PTX_NAMES = {"fp16": "f16", "bf16": "bf16", "e4m3": "e4m3"}  # of formats, in the names of instructions


@dataclass(frozen=True, slots=True)
class PolynomialShare:
    """Which powers of a block of keys a polynomial gives, and not the special functions: in the fragments of so many
    columns from number `first` to before number `last`, the last `columns` of each `period`.
    """

    fragment: int
    first: int
    last: int
    period: int
    columns: int

    def of(self, keys: int) -> NDArray[np.bool_]:
        """Whether the polynomial gives a column's power, for the first so many columns of a block."""
        number, column = np.divmod(np.arange(keys), self.fragment)
        is_late = column % self.period >= self.period - self.columns
        result: NDArray[np.bool_] = is_late & (number >= self.first) & (number < self.last)
        return result


@dataclass(frozen=True, slots=True)
class AttentionOrder:
    """kernel: its name. instruction: the matrix instruction, with {0} for the operands' format in PTX's words.

    keys: of a block. descending: the last block of keys comes first. scaling: "rounded", "fused" or "scaled", as of
    ScoreScaling. is_guarded: powers are CUDA's exp2f, which has those below the normal range; else ex2.approx.ftz,
    which gives 0 for them. scales_largest: earlier sums are rescaled by 2^(m f before - m f), not by 2^((m before - m)
    f). adds_blocks: lanes add the powers of a block from zero; the sums so far, rescaled, and these are one fused
    multiply-add. fuses_first: a lane's first power of a block and its sum so far, rescaled, are one fused multiply-add.
    is_log2e_single: f is a product of two numbers of fp32. joins_blocks: each block's product with values begins at
    zero, and the result so far times its rescaling joins it; the last division is in that. warp_keys: keys of a warp,
    whose sum of powers is added for each block; None: four lanes add powers of all blocks, each of two columns of
    eight, and meet at the end. first_partner: the distance of the lanes that add their sums first; the other distance,
    of 1 and 2, follows. is_division_fast: the row is divided by rcp.approx, not by an IEEE division. parts: in how many
    parts the keys are cut, each with sums of its own; they are joined by their logarithms. part_rows: rows of a block
    that joins parts. rows: queries of a tile, whose warps lie row_warps below one another, and key_warps beside one
    another; row_groups: parts of its rows that take turns in the matrix unit. fuses_mask: a mask of one's own and a
    score times its factor are one fused multiply-add, before log2(e); else two roundings. in_step: the warps of a
    core's tiles are issued in turn, and nothing makes them alternate: all multiply, then all have their softmax.
    stages: blocks of keys, and of values, that wait in shared memory. polynomial: of powers that no special function
    gives. lag: a row's largest score stays as it was while the power of a new one is at most 2^lag; 0: never.
    adds_rows: one thread adds a block's powers of a row: every eighth column to a sum of its own, of which the first
    begins at the sum so far, rescaled; pairs that are 2 apart meet, then 4, then 1. swaps_heads: with one query, heads
    that share a head of the key are rows of one tile. offset: powers, and so their sums, are times 2^offset. result:
    the result's format; None: the operands'. evidence: a level of hwsim.datafiles.provenance. source: where the order
    is from.
    """

    kernel: str
    instruction: str
    keys: int
    descending: bool
    scaling: ScoreScaling
    warp_keys: int | None
    first_partner: Literal[1, 2]
    is_division_fast: bool
    evidence: str
    source: str
    is_guarded: bool = True
    scales_largest: bool = False
    adds_blocks: bool = False
    fuses_first: bool = False
    is_log2e_single: bool = False
    joins_blocks: bool = False
    parts: int = 1
    part_rows: int = 1
    rows: int = 128
    row_warps: int = 4
    key_warps: int = 1
    row_groups: int = 1
    in_step: bool = False
    fuses_mask: bool = False
    stages: int = 1
    swaps_heads: bool = False
    polynomial: PolynomialShare | None = None
    lag: float = 0.0
    adds_rows: bool = False
    offset: float = 0.0
    result: str | None = None

    @property
    def has_one_sum(self) -> bool:
        """Whether a row has one sum of powers between blocks, not one for each lane."""
        return self.adds_rows or self.warp_keys is not None

    def instruction_for(self, format: str) -> str:
        """The matrix instruction for operands of a format."""
        return self.instruction.format(PTX_NAMES[format])

    def result_format(self, format: str) -> str:
        """The result's format for operands of a format."""
        return format if self.result is None else self.result

    @property
    def summary(self) -> str:
        """Tiles and blocks in words."""
        parts = f", keys in {self.parts} parts that are joined" if self.parts > 1 else ""
        first = "last" if self.descending else "first"
        return f"tiles of {self.rows} queries, blocks of {self.keys} keys, the {first} block first{parts}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    @property
    def special_functions(self) -> tuple[str, ...]:
        """The special functions of the chip that the kernel takes, by name."""
        return ("ex2", *(("rcp",) if self.is_division_fast else ()), *(("lg2",) if self.parts > 1 else ()))


def power_factor(factor: float, order: AttentionOrder, *, has_mask: bool = False) -> np.float32:
    """The factor of a score in an argument of 2^x: the factor in fp32 times log2(e), rounded. has_mask: with a mask of
    one's own, beside which the factor of the scores may stand already.
    """
    factor = 1.0 if has_mask and order.fuses_mask else factor
    log2e = float(np.float32(LOG2E)) if order.is_log2e_single else LOG2E
    return np.float32(float(np.float32(factor)) * log2e)


def join_lanes(order: AttentionOrder) -> tuple[int, int]:
    """How shares of parts are added: (lanes, parts padded to a power of two). A lane adds every so many parts, and
    lanes meet in halves.
    """
    padded = 1 << (order.parts - 1).bit_length()
    return min(JOIN_THREADS // order.part_rows, padded), padded
