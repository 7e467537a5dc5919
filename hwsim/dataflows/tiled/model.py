"""What a tiled GEMM kernel is: the family's way of moving operands, the blocking of a CTA, the work of one kernel.

Data only; hwsim.dataflows.tiled.kernel turns it into instructions. It knows plans' terms, devices' memories and the
kernels of libraries.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hwsim.gemm.plan import Expression, Piece, Term
from hwsim.libraries import load
from hwsim.program.ir import GlobalArray

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.libraries.model import SplitKModel


@dataclass(frozen=True, slots=True)
class Shape:
    """A CTA tile that a library of the family uses: m x n elements of C and bytes of K per row of a stage.

    warp: m, n of C that one warp owns: operand fragments are read from shared memory n / warp n and m / warp m times.
    accumulators: 2 where the epilogue of a tile runs beside the next tile's main loop (two CTAs of a core, two consumer
    warp groups in turn, or two halves of TMEM). stages: of shared memory; 0: as many as fit, `Family.stages` at most.
    bits: widths of operands that it is for (none: all). max_waves: it is used where the grid fits in so many waves (0:
    any). max_k: most of K that it is used for (0: any). mn_major: whether it is for operands that are MN-major where
    the instruction takes K-major ones (None: for both).
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


@dataclass(frozen=True, slots=True)
class Family:
    """How operands and results travel.

    through_registers: global memory -> registers -> shared memory, else straight to shared memory. store_shared:
    results go through shared memory. persistent: a core's next tile is fetched while the last one is being finished;
    else a CTA begins when the one before has stored its tile. cluster: CTAs of one column that receive B together
    (multicast). library: whose kernels are the candidates where the device names none (hwsim.libraries). wave_threads:
    of a warp (PTX: 32) or wavefront.
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
    wave_threads: int = 32

    def on(self, device: Device) -> Family:
        """The family with the library that the device file names, if it names one."""
        if device.library is None or device.library.name == self.library:
            return self
        return replace(self, library=device.library.name)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Candidate tiles of the matrix unit, operands in shared memory."""
        return _candidates(self.library)["matrix"]

    @property
    def lanes(self) -> tuple[Shape, ...]:
        """Candidate tiles for instructions of the vector engine."""
        return _candidates(self.library)["lanes"]

    @property
    def warps(self) -> tuple[Shape, ...]:
        """Candidate tiles for instructions whose operands can only lie in registers (none: as the others)."""
        return _candidates(self.library)["registers"]

    @property
    def split_k(self) -> SplitKModel:
        """How many slices of K are weighed."""
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
