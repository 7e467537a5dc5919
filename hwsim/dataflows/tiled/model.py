"""What a tiled GEMM kernel is: the family's way of moving operands, the blocking of a CTA, the work of one kernel.

Data only; hwsim.dataflows.tiled.kernel turns it into instructions. It knows plans' terms and devices' memories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hwsim.gemm.plan import Expression, Piece, Term
from hwsim.program.ir import GlobalArray


@dataclass(frozen=True, slots=True)
class Shape:
    """A CTA tile that the family's libraries use: m x n elements of C and bytes of K per row of a stage.

    warp: m, n of C that one warp owns: operand fragments are read from shared memory n / warp n and m / warp m times.
    accumulators: 2 where the epilogue of a tile runs beside the next tile's main loop (two CTAs of a core, two consumer
    warp groups in turn, or two halves of TMEM). stages: of shared memory; 0: as many as fit, `Family.stages` at most.
    bits: widths of operands that it is for (none: all). rounds: most tiles of a core that it is used for (0: any).
    longest: most of K that it is used for (0: any). turned: whether it is for operands that have to be turned (None:
    for both).
    cores: beside each other, one tile each in a column, whose matrix units multiply together: each loads its part of
    the columns of B, and reads the rest from the others (cta_group::2).
    """

    m: int
    n: int
    k_bytes: int
    warp: tuple[int, int] = (64, 64)
    accumulators: int = 1
    stages: int = 0
    bits: tuple[int, ...] = ()
    rounds: int = 0
    longest: int = 0
    turned: bool | None = None
    cores: int = 1


#: Of fp32 products on lanes where nothing else is known: warps of 32 x 64 of C, smaller tiles for small ones.
LANES = (
    Shape(128, 128, 32, (32, 64), accumulators=2),
    Shape(128, 64, 32, (32, 64), accumulators=2),
    Shape(64, 64, 32, (32, 32), accumulators=2),
    Shape(32, 32, 32, (32, 32), accumulators=2),
    Shape(32, 32, 32, (32, 32)),
)


@dataclass(frozen=True, slots=True)
class Family:
    """How operands and results travel.

    through_registers: global memory -> registers -> shared memory, else straight to shared memory. store_shared:
    results go through shared memory. persistent: a core's next tile is fetched while the last one is being finished;
    else a CTA begins when the one before has stored its tile. cluster: CTAs of one column that receive B together
    (multicast). lanes: shapes for instructions of the vector engine; warps: for those of the matrix unit whose operands
    can only lie in registers (none: as the others). wave_threads: of a warp (PTX: 32) or wavefront.
    """

    name: str
    registers: str
    shared: str
    through_registers: bool
    store_shared: bool
    persistent: bool
    stages: int
    cluster: int
    shapes: tuple[Shape, ...]
    lanes: tuple[Shape, ...]
    warps: tuple[Shape, ...] = ()
    wave_threads: int = 32


@dataclass(frozen=True, slots=True)
class Blocking:
    """The tile of a CTA: elements of C and of K per stage, warps, stages in shared memory; the rest as of Shape."""

    m: int
    n: int
    k: int
    warp: tuple[int, int]
    stages: int
    accumulators: int
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Source:
    """One operand of a kernel: the arrays of its pieces, or the unsplit one and how the kernel splits it."""

    arrays: Mapping[int, GlobalArray]  # by piece
    formats: Mapping[int, str]  # of the pieces used, as the unit takes them
    raw: GlobalArray | None = None
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """What becomes of the terms: target = cast(alpha * value + beta * C), C one of the arrays.

    value None: each term goes to an array of its own (`partial`), one block of rows per slice of K.
    stand_ins: elementwise operations per element of `words` 32-bit words that stand for arithmetic that is not fp32
    (then value, alpha and beta are not formed); bias: one more addition.
    """

    value: Expression | None
    target: GlobalArray
    alpha: float = 1.0
    beta: float = 0.0
    c: GlobalArray | None = None
    bias: bool = False
    partial: tuple[GlobalArray, ...] = ()
    stand_ins: int = 0
    words: int = 1
    order: Literal["value", "c"] = "value"  # which of the two is the left operand of their sum


@dataclass(frozen=True, slots=True)
class Work:
    """One GEMM kernel: `terms` accumulate products of pieces of A and B over K; runs[i]: term i's run of K (None: all).

    joined: the terms are joined by finish.value after every run and added to one sum.
    """

    name: str
    unit: str
    terms: tuple[Term, ...]
    runs: tuple[int | None, ...]
    a: Source
    b: Source
    finish: Finish
    joined: bool = False

    @property
    def in_kernel(self) -> bool:
        """Whether the kernel splits its operands itself."""
        return self.a.raw is not None
