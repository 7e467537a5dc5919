"""What the streams of a tiled GEMM kernel have in common: rings and their semaphores, the loops over K.

Semaphores are declared when they are first named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.tiled.layout import SIDES, Layout
from hwsim.dataflows.tiles import Cores, Field, Place, places
from hwsim.errors import UnsupportedError
from hwsim.program.builder import KernelBuilder, Span, StreamBuilder
from hwsim.program.ir import ZERO, Affine, Sync


class Emitter:
    """One kernel that is being written. sizes: m, n, k of one matrix of the batch."""

    def __init__(self, layout: Layout, found: Sequence[Field], batch: int, sizes: tuple[int, int, int]) -> None:
        self.layout, self.fields, self.batch, self.sizes = layout, found, batch, sizes
        self.work, self.finish, self.b = layout.work, layout.work.finish, layout.blocking
        self.rf, self.sh = layout.family.registers, layout.family.shared
        self.builder = KernelBuilder(self.work.name)
        for slot in layout.slots.values():
            self.builder.buffer(slot.name, slot.memory, slot.slots, slot.slot_bytes, slot.spread)
        self.semaphores: dict[str, int] = {}
        device = layout.device
        self.load = link_engine(device, "GM", self.rf if layout.family.through_registers else self.sh)
        self.unit_engine = layout.unit.engine
        self.merged = layout.on_vector
        if self.merged and self.work.in_kernel:
            raise UnsupportedError(f"{self.work.unit} shares its lanes with a split in the kernel; split in a pass")

    def sync(self, name: str, initial: int = 0, count: int = 1) -> Sync:
        if name not in self.semaphores:
            self.semaphores[name] = initial
            self.builder.semaphore(name, initial)
        return Sync(name, count)

    def free(self, name: str, slots: int, count: int = 1) -> Sync:
        return self.sync(f"{name}.free", slots, count)

    def full(self, name: str, count: int = 1) -> Sync:
        return self.sync(f"{name}.full", 0, count)

    def ring_free(self, name: str) -> Sync:
        return self.free(name, self.layout.slots[name].slots)

    def _places(self, s: StreamBuilder, group: Cores) -> Iterator[Place]:
        return places(s, self.fields, group, self.layout.device.cores, self.batch)

    def _runs(self, s: StreamBuilder, k: int) -> Iterator[Span]:
        """Runs of K after which long terms are added up; one over all of K where there are none."""
        if self.layout.long is None:
            yield Span(ZERO, ZERO, k, None, True)
        else:
            yield from s.blocks("run", k, self.layout.long)

    def _row(self, place: Place, extent: int) -> Affine:
        """First row of the place's matrix in an array of `extent` rows a matrix."""
        return place.batch * extent

    def _used(self, side: int, sweep: int) -> list[int]:
        """Pieces of A or B whose products a sweep over K forms."""
        found = set()
        for term, short in zip(self.work.terms, self.layout.short, strict=True):
            stages = (term.stages if sweep == 0 else ()) if short else term.stages[sweep : sweep + 1]
            found |= {pair[side] for stage in stages for pair in stage.products}
        return sorted(found)

    def _op_slots(self, side: int) -> int:
        piece = next(iter(self.layout.sources[side].formats))
        return self.layout.slots[f"{SIDES[side]}{piece}.op"].slots

    def _repeat(self, side: int, place: Place) -> int:
        """How often a fragment is read: by every column of warps (A), by every row of warps (B)."""
        if side == 0:
            return max(1, -(-place.n // self.b.warp[1]))
        return max(1, -(-place.m // self.b.warp[0]))

    def _ring(self, t: int) -> str:
        """The ring that the accumulator of term t is a slot of."""
        return "acc0" if self.layout.turns else f"acc{t}"


def chunks(extent: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, extent, size):
        yield start, min(size, extent - start)
