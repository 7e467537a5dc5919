"""Register spills: rows of accumulators that a thread's registers do not hold live in local memory between blocks of K.

As a compiler does it where a warp tile needs more registers than a thread may have: after the products of a block of K
they are stored to local memory, which is global memory of the thread's own behind L2, and read back before the next
ones. Loads of operands run one block ahead, as loads of one engine come back in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.dataflows.tiled.buffers import Allocation, SpillBarriers
from hwsim.dataflows.tiled.context import BlockStep, KernelContext
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import UnsupportedError
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import CORE, ZERO, GlobalTile, LocalTile, Sync, variable

LOCAL = "local"  # the array of local memory: for each core the spilled rows of its accumulators, one below another


@dataclass(frozen=True, slots=True)
class Spill:
    """Writes the stores and reloads of spilled rows; writes nothing where nothing is spilled."""

    context: KernelContext

    @property
    def is_on(self) -> bool:
        """Whether accumulators are spilled."""
        return self.context.buffers.spill is not None

    def waits(self, step: BlockStep) -> list[Sync]:
        """The wait of a block's first product: the rows are back in registers."""
        spill = self.context.buffers.spill
        return [spill.registers.free] if spill is not None and step.is_first else []

    def signals(self, step: BlockStep) -> list[Sync]:
        """The signal of a block's last product."""
        spill = self.context.buffers.spill
        return [spill.registers.full] if spill is not None and step.is_last else []

    def settle(self, s: StreamBuilder) -> None:
        """Make the release of a tile's accumulators wait until the rows are back for the last time."""
        spill = self.context.buffers.spill
        if spill is not None:
            back = [spill.registers.free]
            s.emit(self.context.design.unit.engine, "sync", waits=back, signals=back)

    def store(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the stores to local memory after the products of a block."""
        spill = self.context.buffers.spill
        if spill is None:
            return
        engine = self.context.engine(self.context.registers, "GM")
        parts = self._parts(place)
        for at, (rows, local) in enumerate(parts):
            waits = [spill.registers.full, spill.memory.free] if at == 0 else []
            signals = [spill.memory.full] if at + 1 == len(parts) else []
            s.emit(engine, "copy", local, [rows], waits, signals, label="spill")

    def reload(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the loads that bring the rows back."""
        spill = self.context.buffers.spill
        if spill is None:
            return
        engine = self.context.engine("GM", self.context.registers)
        parts = self._parts(place)
        for at, (rows, local) in enumerate(parts):
            waits = [spill.memory.full] if at == 0 else []
            signals = [spill.memory.free, spill.registers.free] if at + 1 == len(parts) else []
            s.emit(engine, "copy", rows, [local], waits, signals, label="spill")

    def _parts(self, place: WorkTile) -> list[tuple[LocalTile, GlobalTile]]:
        """For each accumulator its spilled rows, the tile's last ones, and their place in local memory."""
        accumulators, most = self.context.buffers.accumulators, self.context.design.blocking.spilled
        first, rows = variable(CORE) * (len(accumulators) * most), min(most, place.m)
        parts = []
        for t, accumulator in enumerate(accumulators):
            spilled = accumulator.ring.whole(place.m, place.n).part(place.m - rows, rows)
            parts.append((spilled, GlobalTile(LOCAL, first + t * most, ZERO, rows, place.n)))
        return parts


def allocate(space: Allocation) -> SpillBarriers | None:
    """Barriers alone: the rows are the accumulators' own, in registers and in local memory (see `LOCAL`)."""
    if not space.blocking.spilled:
        return None
    return SpillBarriers(space.barrier("spill", 1), space.barrier("local", 1))


def check(design: KernelDesign) -> None:
    """Raise UnsupportedError where accumulators that spill are not what lives in registers for all of K."""
    if not design.blocking.spilled:
        return
    if not design.in_registers:
        raise UnsupportedError(f"spill: the accumulators of {design.unit_name} are in {design.c_memory}")
    if design.kernel.rest_first_of is not None:
        raise UnsupportedError("spill: the rest of K first; kernels that spill take K in order")
    if any(design.promoted):
        raise UnsupportedError("spill: terms that are added outside the unit; sums in the unit alone are spilled")
