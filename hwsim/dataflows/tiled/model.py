"""What a tiled GEMM kernel is: the family's way of moving operands, the blocking of a CTA, what one kernel computes.

Data only, free of sizes: hwsim.dataflows.tiled.kernel turns it into instructions. It knows plans' terms and devices'
memories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hwsim.gemm.layouts import Order
from hwsim.gemm.plan import Expression, Piece, Term

SIDES = ("A", "B")


@dataclass(frozen=True, slots=True)
class Shape:
    """A CTA tile that the family's libraries use: m x n elements of C and bytes of K per row of a stage.

    warp: m, n of C that one warp owns: operand fragments are read from shared memory n / warp n and m / warp m times.
    accumulators: 2 where the epilogue of a tile runs beside the next tile's main loop (two CTAs of a core, two consumer
    warp groups in turn, or two halves of TMEM). stages: of shared memory; 0: as many as fit, `Family.stages` at most.
    bits: widths of operands that it is for (none: all). max_waves: it is used only where the grid fits in this many
    waves (0: any). max_k: it is used up to this K (0: any). mn_major: whether it is for an instruction that needs
    K-major operands while one of them is MN-major (None: for both).
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
    max_waves: int = 0
    max_k: int = 0
    mn_major: bool | None = None
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
class MatrixRef:
    """A matrix in global memory, whatever its size: an array of the program by name, its elements, its storage."""

    name: str
    format: str
    order: Order = "rows"


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """A piece of an operand: its number in the plan, its matrix, the format in which the unit takes it."""

    number: int
    matrix: MatrixRef
    format: str


@dataclass(frozen=True, slots=True)
class KernelOperand:
    """A or B of one kernel: the pieces that its products take, or the unsplit matrix (`raw`) that it splits itself.

    order: storage of all its matrices. rules: how the plan makes each piece.
    """

    order: Order
    pieces: tuple[StoredPiece, ...]
    rules: tuple[Piece, ...] = ()
    raw: MatrixRef | None = None

    @property
    def matrices(self) -> tuple[MatrixRef, ...]:
        """What the kernel loads."""
        return (self.raw,) if self.raw is not None else tuple(piece.matrix for piece in self.pieces)

    @property
    def loaded(self) -> tuple[str, ...]:
        """Formats of what it loads, as they lie in shared memory."""
        return (self.raw.format,) if self.raw is not None else tuple(piece.format for piece in self.pieces)

    @property
    def formats(self) -> dict[int, str]:
        """Formats of the pieces as the unit takes them, by number."""
        return {piece.number: piece.format for piece in self.pieces}


@dataclass(frozen=True, slots=True)
class TileEpilogue:
    """What becomes of the terms of a tile: target = cast(alpha * value + beta * C), C one of the matrices.

    value None: each term goes to a matrix of its own (`partial`), one block of rows per slice of K.
    placeholder_ops: elementwise operations per element of `words` 32-bit words in place of arithmetic that is not fp32
    (timing only; value, alpha and beta are then not formed). bias: one more addition. order: which of value and C is
    the left operand of their sum.
    """

    value: Expression | None
    target: MatrixRef
    alpha: float = 1.0
    beta: float = 0.0
    c: MatrixRef | None = None
    bias: bool = False
    partial: tuple[MatrixRef, ...] = ()
    placeholder_ops: int = 0
    words: int = 1
    order: Literal["value", "c"] = "value"


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """One kernel that multiplies: `terms` accumulate products of pieces of A and B over K.

    unit: the matrix instruction. runs: for each term the length of K after which its accumulator is promoted, None:
    never. joined: the terms are joined by epilogue.value after every run and added to one sum.
    """

    name: str
    unit: str
    terms: tuple[Term, ...]
    runs: tuple[int | None, ...]
    a: KernelOperand
    b: KernelOperand
    epilogue: TileEpilogue
    joined: bool = False

    @property
    def operands(self) -> tuple[KernelOperand, KernelOperand]:
        """A and B."""
        return self.a, self.b

    @property
    def splits_operands(self) -> bool:
        """Whether the kernel splits its operands itself."""
        return self.a.raw is not None

    @property
    def products(self) -> int:
        """Products of pieces."""
        return sum(len(term.products) for term in self.terms)
