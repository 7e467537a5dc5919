"""Data model of a tiled GEMM kernel: the blocking of a CTA, and one kernel's computation.

Data only, without sizes: hwsim.dataflows.tiled.kernel writes the instructions. It knows plans' terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hwsim.dataflows.tiled.factors import Factors
from hwsim.gemm.layouts import StorageOrder
from hwsim.gemm.plan import Expression, Piece, Term
from hwsim.program.quick import quick

SIDES = ("A", "B")
AddendRole = Literal["previous", "earlier", "c"]


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocking of a CTA: elements of C and of K per stage, warp tile, stages in shared memory; other fields as in
    Shape. spilled: rows of each accumulator that lie in local memory between blocks of K. swapped: the instruction's
    rows are C's columns.
    """

    m: int
    n: int
    k: int
    warp: tuple[int, int]
    stages: int
    accumulators: int
    cores: int = 1
    spilled: int = 0
    swapped: bool = False

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of C."""
        return self.m, self.n


@quick
@dataclass(frozen=True, slots=True)
class MatrixRef:
    """A matrix in global memory, without its size: its array's name, element format and storage order."""

    name: str
    format: str
    order: StorageOrder = "rows"


@quick
@dataclass(frozen=True, slots=True)
class StoredPiece:
    """A piece of an operand: its number in the plan, its matrix, the format in which the unit reads it."""

    number: int
    matrix: MatrixRef
    format: str


@quick
@dataclass(frozen=True, slots=True)
class KernelOperand:
    """A or B of one kernel: the pieces that its products use, or the unsplit matrix (`raw`) that the kernel splits
    itself.

    order: storage order of all its matrices. rules: how the plan makes each piece. element_bits: of a sparse operand,
    as a GlobalArray's. scale: the matrix of scales that the instruction reads beside it; scale_k: elements of K that
    share one.
    """

    order: StorageOrder
    pieces: tuple[StoredPiece, ...]
    rules: tuple[Piece, ...] = ()
    raw: MatrixRef | None = None
    element_bits: int = 0
    scale: MatrixRef | None = None
    scale_k: int = 1

    @property
    def matrices(self) -> tuple[MatrixRef, ...]:
        """The matrices that the kernel loads."""
        return (self.raw,) if self.raw is not None else tuple(piece.matrix for piece in self.pieces)

    @property
    def loaded(self) -> tuple[str, ...]:
        """The formats of what it loads, as in shared memory."""
        return (self.raw.format,) if self.raw is not None else tuple(piece.format for piece in self.pieces)

    @property
    def formats(self) -> dict[int, str]:
        """The formats of the pieces as the unit reads them, by number."""
        return {piece.number: piece.format for piece in self.pieces}


@quick
@dataclass(frozen=True, slots=True)
class TileEpilogue:
    """The epilogue of a tile: target = cast(alpha * (earlier + (value + scale * previous)) + beta * C + bias).

    value None: each term goes to a matrix of its own (`partial`), one block of rows per slice of K. bias: one more
    addition, of this row, where it has a name. fused: the multiplication that is one instruction with the addition of
    C, "alpha" or "beta". join_format: in which the lanes join the terms and `previous`. format: in which they compute
    what follows. previous: the sum that a kernel before this one wrote (None: there is none); scale: a power of two;
    order: which of value and `previous` is the left operand of their sum. extra: what the value contains besides terms:
    arrays of sums of operands, and multiples of K. powers: the arrays of exponents of A's rows and B's columns; the sum
    is multiplied by 2 to the sum of both (None: it is not). factors: of the sum (None: it has none). earlier: the sum
    that kernels of other plans wrote, for tiles that add it (None: for none). fused_shared: `fused` of tiles whose K
    several CTAs share. product_format: alpha * value is rounded to it first ("": it is not). rounding: of the
    conversion to the target's format.
    """

    value: Expression | None
    target: MatrixRef
    alpha: float = 1.0
    beta: float = 0.0
    c: MatrixRef | None = None
    bias: bool = False
    bias_row: str = ""
    fused: Literal["", "alpha", "beta"] = ""
    partial: tuple[MatrixRef, ...] = ()
    join_format: str = "fp32"
    format: str = "fp32"
    previous: MatrixRef | None = None
    scale: float = 1.0
    order: Literal["value", "c"] = "value"
    earlier: MatrixRef | None = None
    fused_shared: Literal["", "alpha", "beta"] = ""
    product_format: str = ""
    rounding: str = "RNE"
    extra: tuple[tuple[Expression, str | float], ...] = ()
    powers: tuple[str, str] | None = None
    factors: Factors | None = None

    def converts(self, accumulator: str) -> bool:
        """Whether the values of accumulators are converted before they are joined. accumulator: their format."""
        return accumulator != self.join_format

    @property
    def of_shared_tile(self) -> TileEpilogue:
        """The epilogue of a tile whose K several CTAs share."""
        return replace(self, fused=self.fused_shared)

    @property
    def addend_roles(self) -> tuple[tuple[AddendRole, MatrixRef], ...]:
        """The matrices of C's size that are added, with what they are, in this order."""
        every: tuple[tuple[AddendRole, MatrixRef | None], ...] = (
            ("previous", self.previous),
            ("earlier", self.earlier),
            ("c", self.c),
        )
        return tuple([(role, matrix) for role, matrix in every if matrix is not None])

    @property
    def addends(self) -> tuple[MatrixRef, ...]:
        """The matrices of C's size that are added, in this order."""
        return tuple([matrix for _, matrix in self.addend_roles])


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """One GEMM kernel: its `terms` accumulate products of pieces of A and B over K.

    unit: the matrix instruction. promotion_intervals: of each term, elements of K (None: never). joined: the terms are
    joined by epilogue.value after every run and added to one sum. workspace: of the sums of CTAs that share the K of
    tiles (None: none do). factors: of the sums of runs of K (None: they have none). rest_first_of: what K has beyond
    whole multiples of this length comes first (None: last).
    """

    name: str
    unit: str
    terms: tuple[Term, ...]
    promotion_intervals: tuple[int | None, ...]
    a: KernelOperand
    b: KernelOperand
    epilogue: TileEpilogue
    joined: bool = False
    workspace: MatrixRef | None = None
    factors: Factors | None = None
    rest_first_of: int | None = None

    @property
    def operands(self) -> tuple[KernelOperand, KernelOperand]:
        """A and B, in this order."""
        return self.a, self.b

    @property
    def interleaves(self) -> set[int]:
        """Lengths of K after which products of an accumulator alternate, where these are not an instruction's."""
        return {stage.interleave for term in self.terms for stage in term.stages if stage.interleave is not None}

    @property
    def splits_operands(self) -> bool:
        """Whether the kernel splits its operands itself."""
        return self.a.raw is not None

    @property
    def products(self) -> int:
        """The products of pieces."""
        return sum(len(term.products) for term in self.terms)
