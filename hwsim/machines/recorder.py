"""Records trace rows while the timing engine runs: blocks of rows in, with names instead of the kernels' own indices.

It holds one block at a time; what has been recorded is in a RowStore.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import engine
from hwsim._kernels.engine import TICKS_PER_CYCLE
from hwsim.errors import InputError
from hwsim.machines.cost import COST_COLUMNS
from hwsim.machines.tables import KernelTables
from hwsim.machines.trace_rows import ROW_DTYPE, RowStore, TickRows, TraceWindow
from hwsim.program.flat import INSTR_COLUMNS, TILE_COLUMNS
from hwsim.program.ir import Kernel, Program
from hwsim.program.roles import OPCODES

if TYPE_CHECKING:
    from hwsim.devices.device import Device

BLOCK = 1 << 16  # rows
LATEST = 1 << 62  # ticks
_Take = Callable[[NDArray[np.int64]], None]


class TraceRecorder:
    """Records consecutive kernels of one program, at most `limit` rows of `window`.

    Raises InputError for a core on which no kernel runs.
    """

    def __init__(self, program: Program, device: Device, limit: int, window: TraceWindow) -> None:
        self.device, self.room, self.window = device, limit, window
        self.kernels = tuple(kernel.name for kernel in program.kernels)
        self.arrays = tuple(array.name for array in program.arrays)
        self.column_major = [i for i, array in enumerate(program.arrays) if array.order == "columns"]
        self.labels: dict[str, int] = {}
        self.causes: dict[str, int] = {"": 0, "empty": 1, "queue-full": 2, "in-flight": 3}
        self.fills: dict[tuple[int, int], tuple[tuple[str, int], ...]] = {}
        self.store = RowStore(ROW_DTYPE)
        self.base = self.numbers = self.lost = 0
        self.index = -1
        core = window.core
        if core is not None and all(_group(kernel, core) == len(kernel.groups) for kernel in program.kernels):
            most = max((group.first + group.count for kernel in program.kernels for group in kernel.groups), default=0)
            raise InputError(f"trace of core {core}: allowed: 0 to {most - 1}, the cores that the program runs on")

    def begin(self, tables: KernelTables, cost: NDArray[np.int64], late: int) -> tuple[int, _Take, int, int, int]:
        """The next kernel, whose ticks count from `late` on: arguments of engine.Machine.run from `trace` on."""
        self.index += 1
        self.late = late
        kernel, flat = tables.kernel, tables.flat
        self.core = np.array([group.first for group in kernel.groups])
        self.cores = np.array([group.count for group in kernel.groups])
        self.opcode = flat.instr[:, INSTR_COLUMNS.index("opcode")]
        self.label = np.array([self.labels.setdefault(i.label, len(self.labels)) for i in flat.instrs])
        tile = cost[:, COST_COLUMNS.index("gm_tile")]
        self.array = np.full(len(tile), -1)
        self.array[tile >= 0] = flat.tile[tile[tile >= 0], TILE_COLUMNS.index("object")]
        order = list(self.device.engines)
        self.engine = np.array([order.index(name) for name in tables.engines])
        self.moved = {name: cost[:, COST_COLUMNS.index(name)] for name in ("bytes", "macs")}
        semaphores = [self.causes.setdefault(f"semaphore:{s.name}", len(self.causes)) for s in kernel.semaphores]
        self.cause = np.array([*semaphores, *(self.causes[c] for c in ("in-flight", "queue-full", "empty", ""))])
        self._note_fills(tables)
        group = -1 if self.window.core is None else _group(kernel, self.window.core)
        first, last = (_ticks(x) - self.base - late for x in (self.window.first, self.window.last))
        return min(BLOCK, max(self.room, 1)), self._take, group, first, last

    def end(self, outcome: engine.Outcome) -> None:
        """The kernel has ended, at its tick outcome["end"]."""
        self._take(outcome["rows"])
        self.base += outcome["end"]
        self.numbers += outcome["started"]

    def finish(self) -> TickRows:
        """All that was recorded."""
        return TickRows(
            rows=self.store.array(),
            ticks_per_cycle=TICKS_PER_CYCLE,
            kernels=self.kernels,
            engines=tuple(self.device.engines),
            opcodes=OPCODES,
            labels=tuple(self.labels),
            arrays=self.arrays,
            causes=tuple(self.causes),
            complete=not self.lost,
            events=self.store.count + self.lost,
            fills=self.fills,
        )

    def _take(self, raw: NDArray[np.int64]) -> None:
        count = min(len(raw), self.room)
        self.lost += len(raw) - count
        self.room -= count
        if count:
            self.store.append(self._rows(raw[:count]))

    def _rows(self, raw: NDArray[np.int64]) -> NDArray[Any]:
        column = {name: raw[:, i] for i, name in enumerate(engine.ROW_COLUMNS)}
        group, instr = column["group"], column["instr"]
        rows = np.zeros(len(raw), ROW_DTYPE)
        rows["kernel"] = self.index
        rows["core"], rows["cores"] = self.core[group], self.cores[group]
        rows["opcode"], rows["label"], rows["array"] = self.opcode[instr], self.label[instr], self.array[instr]
        rows["engine"] = self.engine[column["engine"]]
        for name in ("instr", "row", "col", "slot"):
            rows[name] = column[name]
        across = np.isin(rows["array"], self.column_major)
        rows["row"][across], rows["col"][across] = column["col"][across], column["row"][across]
        for name in ("issue", "start", "free", "end"):
            rows[name] = column[name] + (self.base + self.late)
        for name, values in self.moved.items():
            rows[name] = values[instr]
        rows["cause"] = self.cause[column["cause"]]
        rows["number"] = column["number"] + self.numbers
        rows["signaller"] = np.where(column["signaller"] >= 0, column["signaller"] + self.numbers, -1)
        return rows

    def _note_fills(self, tables: KernelTables) -> None:
        buffers = {
            number: semaphore.name.removesuffix(".free")
            for number, semaphore in enumerate(tables.kernel.semaphores)
            if semaphore.name.endswith(".free")
        }
        places = [INSTR_COLUMNS.index(name) for name in ("first_wait", "waits", "first_signal", "signals")]
        for instr, row in enumerate(tables.flat.instr.tolist() if buffers else ()):
            first_wait, waits, first_signal, signals = (row[i] for i in places)
            sync = tables.tables["sync"]
            awaited = sync[first_wait : first_wait + waits].tolist()
            signalled = (sync[first_signal : first_signal + signals] * (1, -1)).tolist()
            if fills := tuple((buffers[s], n) for s, n in [*awaited, *signalled] if s in buffers):
                self.fills[self.index, instr] = fills


def _group(kernel: Kernel, core: int) -> int:
    """The group of a kernel that has this core; the number of groups where none has."""
    inside = (i for i, group in enumerate(kernel.groups) if group.first <= core < group.first + group.count)
    return next(inside, len(kernel.groups))


def _ticks(cycles: float) -> int:
    return LATEST if math.isinf(cycles) else min(int(cycles * TICKS_PER_CYCLE), LATEST)
