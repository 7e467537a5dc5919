"""Elementwise instructions that split operands into integers: bytes, or slices below an exponent per row or column.

It knows a plan's pieces and tiles; it knows no device, no kernel and no matrix unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.formats import format_of
from hwsim.program.ir import AnyTile, LocalTile

if TYPE_CHECKING:
    from hwsim.dataflows.vector_ops import VectorOps
    from hwsim.gemm.plan import Piece, Plan

BYTE, BYTE_BIAS = 8, 128  # bits; what a low byte is held less, where it is an int8
WORD = "int32"


def byte_temporaries(plan: Plan) -> tuple[str, ...]:
    """The formats of the scratch tiles of `split_bytes`."""
    low = plan.a_pieces[-1]
    return (WORD, WORD) if plan.split == "signed_bytes" or low.format == "int8" else ()


def split_bytes(
    ops: VectorOps, plan: Plan, source: LocalTile, pieces: Mapping[int, LocalTile], temps: Sequence[LocalTile]
) -> None:
    """Emit the split of int16 into (high byte, low byte), as `Plan` says. pieces: by number, both of them."""
    high, low = pieces[0], pieces[1]
    if plan.split == "signed_bytes":
        ops.op("extract", low, source)
        ops.op("cast", temps[0], source)
        ops.op("cast", temps[1], low)
        ops.op("sub", temps[0], temps[0], temps[1])
        ops.op("extract", high, temps[0], scale_exponent=BYTE)
        return
    ops.op("extract", high, source, scale_exponent=BYTE)
    if low.format == "uint8":
        ops.op("extract", low, source)
        return
    bias = replace(temps[1], rows=1, cols=1)
    ops.op("fill", bias, scalar=float(BYTE_BIAS))
    ops.op("cast", temps[0], source)
    ops.op("sub", temps[0], temps[0], bias)
    ops.op("extract", low, temps[0])


def slice_temporaries(plan: Plan, pieces: Sequence[Piece], source: str) -> tuple[str, ...]:
    """The formats of the scratch tiles of `split_slices`. source: the format that the lanes split in."""
    is_whole = format_of(pieces[0].format).is_integer
    return source, source, pieces[0].format if is_whole else WORD


def split_slices(
    ops: VectorOps,
    pieces: Sequence[Piece],
    bits: int,
    source: LocalTile,
    exponents: AnyTile,
    targets: Mapping[int, LocalTile],
    temps: Sequence[LocalTile],
) -> None:
    """Emit the split of `source` into integers of `bits` bits, from the most significant on, as `Plan` says.

    exponents: e of each row or column. targets: where pieces go, by number. temps: two tiles in the format of the lanes
    and one for the digits of a slice. Every step but the last slice's rounding is exact.
    """
    rest, last = source, max(targets)
    if source.format != temps[0].format:
        ops.op("cast", temps[0], source)
        rest = temps[0]
    for i, piece in enumerate(pieces[: last + 1]):
        place = bits * (i + 1)
        ops.op("ldexp", temps[1], rest, exponents, scalar=-1.0, scale_exponent=-place)
        is_whole = format_of(piece.format).is_integer
        digits = targets.get(i, temps[2]) if is_whole else temps[2]
        rounding = "RZ" if i + 1 < len(pieces) else piece.rounding
        ops.op("cast", digits, temps[1], rounding=rounding, overflow="saturate")
        if not is_whole and i in targets:
            ops.op("cast", targets[i], digits)
        if i < last:
            ops.op("ldexp", temps[1], digits, exponents, scalar=1.0, scale_exponent=place)
            ops.op("sub", temps[0], rest, temps[1])
            rest = temps[0]
