"""Data model of a tiled GEMM kernel: the family's way of moving operands, the blocking of a CTA, one kernel's
computation.

Data only, without sizes: hwsim.dataflows.tiled.kernel writes the instructions. It knows plans' terms and devices'
memories.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hwsim.gemm.layouts import Order
from hwsim.gemm.plan import Expression, Piece, Term
from hwsim.libraries.model import load
from hwsim.program.quick import quick

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.libraries.model.kernels import SplitKModel

SIDES = ("A", "B")


@dataclass(frozen=True, slots=True)
class Shape:
    """A CTA tile that the family's libraries use: m x n elements of C and bytes of K per row of a stage.

    warp: the warp tile (m, n): operand fragments are read from shared memory n / warp n and m / warp m times.
    accumulators: 2 where the epilogue of a tile overlaps the next tile's main loop (two CTAs per SM, two consumer warp
    groups in ping-pong, or two halves of TMEM). stages: of shared memory; 0: as many as fit, `Family.stages` at most.
    bits: operand widths that it is for (empty: all). max_waves: it is used only where the grid has at most this many
    waves (0: any). max_k: it is used up to this K (0: any). mn_major: whether it is for an instruction that needs
    K-major operands while one of them is MN-major (None: for both). cores: neighbours, one tile each in a column, whose
    matrix units multiply together: each loads its part of the columns of B, and reads the rest from the others
    (cta_group::2).
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


@dataclass(frozen=True, slots=True)
class Family:
    """A GPU family: how its kernels move operands and results.

    through_registers: global memory -> registers -> shared memory, else directly to shared memory. store_shared:
    results go through shared memory. persistent: a core's next tile is loaded while the last one is being finished;
    else a CTA begins when the previous one has stored its tile. cluster: CTAs of one column that receive B together
    (multicast). library: whose kernels are the candidates where the device names none (hwsim.libraries.model). pairs:
    whether its kernels may use cta_group::2. wave_threads: threads per warp (PTX: 32) or wavefront. core_warps: the
    most warps of a core (CUDA's tables of compute capabilities: 64 but for Turing's 32 and Ada's 48; CDNA 2 and 3: 4 x
    8). thread_registers: the most 32-bit registers of a thread (CUDA: 255; CDNA: 512, accumulation registers among
    them). staged: operands wait in shared memory; else each warp loads its own fragments straight from global memory.
    """

    name: str
    registers: str
    shared: str
    through_registers: bool
    store_shared: bool
    persistent: bool
    stages: int
    cluster: int
    library: str
    pairs: bool = False
    wave_threads: int = 32
    core_warps: int = 64
    thread_registers: int = 255
    staged: bool = True

    @property
    def without_staging(self) -> Family:
        """The family's kernels that load fragments straight from global memory and store from registers."""
        return replace(
            self, through_registers=True, store_shared=False, persistent=False, stages=1, cluster=1, staged=False
        )

    def on(self, device: Device) -> Family:
        """The family with the library that the device file names, if it names one."""
        if device.library is None or device.library.name == self.library:
            return self
        return replace(self, library=device.library.name)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Candidate tiles for the matrix unit, operands in shared memory."""
        return _candidates(self.library)["matrix"]

    @property
    def lanes(self) -> tuple[Shape, ...]:
        """Candidate tiles for instructions of the vector engine."""
        return _candidates(self.library)["lanes"]

    @property
    def warps(self) -> tuple[Shape, ...]:
        """Candidate tiles for instructions whose operands can only be in registers (empty: as the others)."""
        return _candidates(self.library)["registers"]

    @property
    def split_k(self) -> SplitKModel:
        """The library's split-K rules."""
        return load(self.library).split_k


@functools.cache
def _candidates(library: str) -> dict[str, tuple[Shape, ...]]:
    """The library's kernels by engine, in the order of its file."""
    found: dict[str, tuple[Shape, ...]] = {"matrix": (), "registers": (), "lanes": ()}
    for group in load(library).kernels.values():
        found[group.engine] += tuple(
            Shape(
                *row.tile,
                row.k_bytes,
                row.warp,
                row.accumulators,
                row.stages or 0,
                group.bits,
                row.max_waves or 0,
                row.max_k or 0,
                row.mn_major,
                row.cta_group,
            )
            for row in group.rows.values()
        )
    return found


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocking of a CTA: elements of C and of K per stage, warp tile, stages in shared memory; other fields as in
    Shape. spilled: rows of each accumulator that lie in local memory between blocks of K.
    """

    m: int
    n: int
    k: int
    warp: tuple[int, int]
    stages: int
    accumulators: int
    cores: int = 1
    spilled: int = 0


@quick
@dataclass(frozen=True, slots=True)
class MatrixRef:
    """A matrix in global memory, without its size: its array's name, element format and storage order."""

    name: str
    format: str
    order: Order = "rows"


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

    order: storage order of all its matrices. rules: how the plan makes each piece.
    """

    order: Order
    pieces: tuple[StoredPiece, ...]
    rules: tuple[Piece, ...] = ()
    raw: MatrixRef | None = None

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
    """The epilogue of a tile: target = cast(alpha * value + beta * C), where C is one of the matrices.

    value None: each term goes to a matrix of its own (`partial`), one block of rows per slice of K. placeholder_ops:
    elementwise operations per element of `words` 32-bit words in place of arithmetic that is not fp32 (timing only;
    value, alpha and beta are then not computed). bias: one more addition. order: which of value and C is the left
    operand of their sum.
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
    """One GEMM kernel: its `terms` accumulate products of pieces of A and B over K.

    unit: the matrix instruction. runs: for each term its promotion interval, None: never promoted. joined: the terms
    are joined by epilogue.value after every run and added to one sum. workspace: of the sums of CTAs that share the K
    of tiles (None: none do).
    """

    name: str
    unit: str
    terms: tuple[Term, ...]
    runs: tuple[int | None, ...]
    a: KernelOperand
    b: KernelOperand
    epilogue: TileEpilogue
    joined: bool = False
    workspace: MatrixRef | None = None

    @property
    def operands(self) -> tuple[KernelOperand, KernelOperand]:
        """A and B, in this order."""
        return self.a, self.b

    @property
    def splits_operands(self) -> bool:
        """Whether the kernel splits its operands itself."""
        return self.a.raw is not None

    @property
    def products(self) -> int:
        """The products of pieces."""
        return sum(len(term.products) for term in self.terms)
