"""State shared by the parts of one kernel while it is written: its design, its buffers, the sizes, steps of K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.tiled.buffers import KernelBuffers
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiles import WorkTile
from hwsim.dataflows.vector_ops import link_between
from hwsim.program.ir import Affine
from hwsim.program.quick import quick

if TYPE_CHECKING:
    from hwsim.devices.model import LinkModel


@quick
@dataclass(frozen=True, slots=True)
class BlockStep:
    """A step of K within a block: `size` elements from `start`, of a block of `block` elements."""

    start: int
    size: int
    block: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class KernelContext:
    """The kernel being written. sizes: m, n, k of one matrix of the batch; matrices: the batch size."""

    design: KernelDesign
    buffers: KernelBuffers
    sizes: tuple[int, int, int]
    matrices: int
    _engines: dict[tuple[str, str], str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _used: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def registers(self) -> str:
        """Name of the register file."""
        return self.design.family.registers

    @property
    def shared(self) -> str:
        """Name of shared memory."""
        return self.design.family.shared

    def engine(self, source: str, target: str) -> str:
        """Engine of the link between two memories."""
        known = self._engines.get((source, target))
        if known is None:
            known = self._engines[source, target] = link_engine(self.design.device, source, target)
        return known

    def link(self, source: str, target: str) -> LinkModel:
        """The link between two memories, which the device has."""
        link = link_between(self.design.device, source, target)
        assert link is not None
        return link

    def rows_of(self, place: WorkTile, side: int) -> Affine:
        """The first row of the tile's matrix in A (0), B (1) or C (0); matrices of a batch are stored one below
        another.
        """
        return place.batch * (self.sizes[0] if side == 0 else self.sizes[2])

    def used(self, side: int, sweep: int) -> tuple[int, ...]:
        """The pieces of A or B used by the products of a sweep over K, in ascending order."""
        known = self._used.get((side, sweep))
        if known is None:
            known = self._used[side, sweep] = self._pieces(side, sweep)
        return known

    def _pieces(self, side: int, sweep: int) -> tuple[int, ...]:
        numbers = set()
        for term, short in zip(self.design.kernel.terms, self.design.promotes_in_block, strict=True):
            stages = (term.stages if sweep == 0 else ()) if short else term.stages[sweep : sweep + 1]
            numbers |= {pair[side] for stage in stages for pair in stage.products}
        return tuple(sorted(numbers))

    def fragment_reads(self, side: int, place: WorkTile) -> int:
        """How often a fragment is read: by every column of warps (A), by every row of warps (B)."""
        warp = self.design.blocking.warp
        if side == 0:
            return max(1, -(-place.n // warp[1]))
        return max(1, -(-place.m // warp[0]))


def chunks(extent: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, length) of the parts of `size` of an extent, the last one shorter."""
    for start in range(0, extent, size):
        yield start, min(size, extent - start)
