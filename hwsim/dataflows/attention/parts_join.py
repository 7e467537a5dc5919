"""The kernel that joins the results of parts of the keys, each times its share of the sum of powers.

It knows rows, parts and registers; it knows no matrix unit and no softmax of scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hwsim.dataflows.attention.attention_buffers import ARGUMENT, POWER
from hwsim.dataflows.tiled.family import Family
from hwsim.dataflows.vector_ops import link_engine
from hwsim.gemm.attention_order import LN2, LOG2E, join_lanes
from hwsim.gemm.attention_record import FusedAttention
from hwsim.program.builder import KernelBuilder, Ring, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import ZERO, Affine, GlobalTile, Kernel, LocalTile, Sync
from hwsim.program.roles import Opcode

if TYPE_CHECKING:
    from hwsim.devices.device import Device

WORD = 4  # bytes of fp32
PART = Ring("part")
FAST_LOG2E = float(np.float32(LOG2E))  # of expf compiled for fast math
NAME = "flash_fwd_splitkv_combine_kernel"


@dataclass(frozen=True, slots=True)
class PartsJoin:
    """Emits the kernel. rows: of all heads."""

    record: FusedAttention
    family: Family
    device: Device
    rows: int

    def kernel(self) -> Kernel:
        """The kernel: tiles of part_rows rows, dealt to the cores in turn."""
        order, builder = self.record.order, KernelBuilder(NAME)
        _, padded = join_lanes(order)
        registers, words = self.family.registers, order.part_rows * WORD
        for name, columns in (("L", padded), ("E", padded), ("W", order.parts), ("top", 1), ("whole", 1)):
            builder.buffer(name, registers, 1, words * columns)
        builder.ring(PART.name, registers, 2, words * self.record.value_width)
        for name in ("sum", "out"):
            builder.buffer(name, registers, 1, words * self.record.value_width)
        for name, initial in (("L.full", 0), ("L.free", 1)):
            builder.semaphore(name, initial)
        for name, initial in (("out.full", 0), ("out.free", 1), (ARGUMENT, 0), (POWER, 0)):
            builder.semaphore(name, initial)
        for share in distribute(self.rows, order.part_rows, self.device.cores):
            loads, lanes = StreamBuilder("loads"), StreamBuilder("join")
            for s, emit in ((loads, self._load), (lanes, self._join)):
                for span in blocks_of_share(s, "rows", share, order.part_rows, self.device.cores):
                    emit(s, span.start, span.size)
            builder.group(share.first, share.count, loads, lanes)
        return builder.finish()

    def _load(self, s: StreamBuilder, row: Affine, rows: int) -> None:
        engine, parts = link_engine(self.device, "GM", self.family.registers), self.record.order.parts
        source = GlobalTile("logarithms", row, ZERO, rows, parts)
        s.emit(engine, "copy", self._tile("L", rows, parts), [source], [Sync("L.free")], [Sync("L.full")], label="L")
        for part in range(parts):
            width = self.record.value_width
            source = GlobalTile("O.parts", row + part * self.rows, ZERO, rows, width)
            target = PART.tile("push", rows, width, "fp32")
            s.emit(engine, "copy", target, [source], [PART.free], [PART.full], label="O")
            s.pushed(PART)

    def _tile(self, name: str, rows: int, cols: int, col: int = 0, width: int = 0) -> LocalTile:
        return LocalTile(name, rows, cols, "fp32", col=col, width=width)

    def _join(self, s: StreamBuilder, row: Affine, rows: int) -> None:
        vector, special = self.device.vector, self.device.special
        assert vector is not None and special is not None  # else refused before
        parts, width = self.record.order.parts, self.record.value_width
        lanes, padded = join_lanes(self.record.order)
        logarithms, top, whole = self._tile("L", rows, parts), self._tile("top", rows, 1), self._tile("whole", rows, 1)
        shares = self._tile("E", rows, parts, width=padded)

        is_fast = not self.record.order.is_guarded  # compiled for fast math

        def exponential(tile: LocalTile, operands: list[LocalTile], signals: list[Sync]) -> None:
            """Emit e^(left - right) into a tile."""
            ready = [Sync(ARGUMENT), *signals]
            s.emit(vector.engine, "sub", tile, operands, signals=[] if is_fast else ready, label="share")
            if is_fast:
                s.emit(vector.engine, "scale", tile, [tile], signals=ready, scalar=FAST_LOG2E, label="share")
            opcode: Opcode = "ex2" if is_fast else "exp"
            s.emit(special.engine, opcode, tile, [tile], [Sync(ARGUMENT)], [Sync(POWER)], label="share")

        s.emit(vector.engine, "fill", top, scalar=-float("inf"), label="largest")
        s.emit(vector.engine, "reduce_largest", top, [logarithms, top], [Sync("L.full")], label="largest")
        s.emit(vector.engine, "or_zero", top, [top], label="largest")
        if parts < padded:
            s.emit(vector.engine, "fill", self._tile("E", rows, padded - parts, parts, padded), label="share")
        exponential(shares, [logarithms, top], [])
        waits = [Sync(POWER)]
        total = self._tile("E", rows, lanes, width=padded)
        for first in range(lanes, padded, lanes):
            other = self._tile("E", rows, lanes, first, padded)
            s.emit(vector.engine, "add", total, [total, other], waits, label="share")
            waits = []
        while lanes > 1:
            lanes //= 2
            halves = [self._tile("E", rows, lanes, first, padded) for first in (0, lanes)]
            s.emit(vector.engine, "add", halves[0], halves, waits, label="share")
            waits = []
        of_shares = self._tile("E", rows, 1, width=padded)
        if is_fast:
            s.emit(vector.engine, "copy", whole, [of_shares], waits, [Sync(ARGUMENT)], label="share")
            s.emit(special.engine, "lg2", whole, [whole], [Sync(ARGUMENT)], [Sync(POWER)], label="share")
            s.emit(vector.engine, "scale", whole, [whole], [Sync(POWER)], scalar=LN2, label="share")
        else:
            s.emit(vector.engine, "log", whole, [of_shares], waits, label="share")
        s.emit(vector.engine, "add", whole, [whole, top], label="share")
        weights = self._tile("W", rows, parts)
        exponential(weights, [logarithms, whole], [Sync("L.free")])
        result = self._tile("sum", rows, width)
        s.emit(vector.engine, "fill", result, label="join")
        for part in range(parts):
            result_of_part = PART.tile("pop", rows, width, "fp32")
            waits = [PART.full, *([Sync(POWER)] if part == 0 else [])]
            operands = {"left": result_of_part, "right": result, "multiplier": self._tile("W", rows, 1, part, parts)}
            s.emit(vector.engine, "fma", result, operands, waits, [PART.free], label="join")
            s.popped(PART)
        out = LocalTile("out", rows, width, self.record.result_format)
        s.emit(vector.engine, "cast", out, [result], [Sync("out.free")], [Sync("out.full")], label="join")
        engine, target = link_engine(self.device, self.family.registers, "GM"), GlobalTile("O", row, ZERO, rows, width)
        s.emit(engine, "copy", target, [out], [Sync("out.full")], [Sync("out.free")], label="O")
