"""Values that the matrix unit takes by columns alone: each block is transposed in shared memory, by way of registers.

It knows the buffers of values and their semaphores; it knows no product, no softmax and no core.

Source: FlashAttention-3 with operands of 8 bits (github Dao-AILab/flash-attention 0251105a, transpose_V in
hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp). Sorting bytes within registers takes no time here. The warpgroup that
transposes a block also issues the loads, and the kernel's next loads wait for it; here they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwsim.dataflows.attention.attention_buffers import (
    TRANSPOSED,
    Design,
    Member,
    loaded_values,
    loaded_values_tile,
    room,
    values_tile,
)
from hwsim.gemm.layouts import K_MAJOR
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import Sync


@dataclass(frozen=True, slots=True)
class ValueTranspose:
    """Emits the copies. reads, writes: the engines of copies from shared memory to registers and back."""

    design: Design
    reads: str
    writes: str

    def block(self, s: StreamBuilder, tile: int, members: Sequence[Member], keys: int) -> None:
        """Emit the copies of a block of so many keys, of a tile of which these are the members."""
        there, back, counter = loaded_values(tile), room(members, "V"), f"V.push{tile}"
        source = loaded_values_tile(self.design, tile, counter, keys)
        target = values_tile(self.design, tile, counter, keys)
        step, format = self.design.unit.k, self.design.record.format
        waits: Sequence[Sync] = [there.full]
        free: Sequence[Sync] = back.waits
        for first in range(0, keys, step):
            rows, is_last = min(step, keys - first), first + step >= keys
            into = TRANSPOSED.tile("push", rows, target.cols, format)
            signals = [TRANSPOSED.full, *([there.free] if is_last else [])]
            s.emit(self.reads, "copy", into, [source.part(first, rows)], [*waits, TRANSPOSED.free], signals, label="V")
            s.pushed(TRANSPOSED)
            out = replace(TRANSPOSED.tile("pop", rows, target.cols, format), order=K_MAJOR[1])
            signals = [TRANSPOSED.free, *(back.signals if is_last else [])]
            s.emit(self.writes, "copy", target.part(first, rows), [out], [TRANSPOSED.full, *free], signals, label="V")
            s.popped(TRANSPOSED)
            waits = free = []
        s.advance(counter)
