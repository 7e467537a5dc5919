"""A program as the timing machine takes it: what of it does not depend on the clock, made once and kept.

Kept by the identity of the program's kernels and of the device's parts but the clock, as a device at several clocks and
one program timed again and again are the usual case. What is kept is bounded, and never changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hwsim.formats import format_of
from hwsim.machines.cost import COST_COLUMNS, Costs, Free, costs, exact, latency_ticks, ticks, windows
from hwsim.program.flat import FlatKernel, flatten
from hwsim.program.ir import Kernel, Program
from hwsim.program.resolve import Scope

if TYPE_CHECKING:
    from hwsim.devices.device import Device

PROGRAMS = 64  # kept, at most
ROWS = 1 << 17  # instructions of all of them together, at most; some 500 bytes each
_CLOCKS = {"clock_mhz", "sustained_clock_mhz", "power_limit"}


@dataclass(frozen=True, slots=True)
class KernelTables:
    """A kernel as the engine takes it, but for the cost of instructions, which `cost_at` gives for a clock.

    engines: those at work. counts: cores of each group. links: of the device, those that it moves data over.
    sums: int64 (links + 3, instructions); times what each instruction was executed on one core it gives, over all
    cores, the bytes by link, then macs, padded macs, and instructions.
    """

    kernel: Kernel
    scope: Scope
    engines: tuple[str, ...]
    flat: FlatKernel
    costs: Costs
    tables: dict[str, NDArray[np.int64]]
    counts: NDArray[np.int64]
    links: tuple[str, ...]
    sums: NDArray[np.int64]

    def cost_at(self, device: Device) -> NDArray[np.int64]:
        """The cost table at the device's clock."""
        late = 0 if device.l2 is None else latency_ticks(device.l2.latency_ns, device)
        return self.costs.delayed(late)


@dataclass(frozen=True, slots=True)
class ProgramTables:
    """All kernels, and the arrays: rows, elements of a row and bits of an element, as they lie in memory."""

    kernels: tuple[KernelTables, ...]
    arrays: NDArray[np.int64]


def tables_of(program: Program, device: Device, free: Free | None = None) -> ProgramTables:
    """The tables of `program` on `device`. free: of which instructions only the bytes in L2 and HBM count.

    Raises ProgramError for an instruction that the device has no engine, link or time for.
    """
    found = _KEPT.get(program, device)
    if found is None:
        arrays = np.array([(*a.stored, format_of(a.format).bits) for a in program.arrays], np.int64)
        found = ProgramTables(tuple(_tables(kernel, program, device) for kernel in program.kernels), arrays)
        _KEPT.put(program, device, found)
    if free is None:
        return found
    kernels = tuple(replace(one, costs=costs(one.scope, one.flat, free)) for one in found.kernels)
    return replace(found, kernels=kernels)


class _TableCache:
    """The tables that were asked for last, bounded by PROGRAMS and ROWS."""

    def __init__(self) -> None:
        self.lock, self.rows = Lock(), 0
        self.found: OrderedDict[Hashable, tuple[Program, Device, ProgramTables]] = OrderedDict()

    def get(self, program: Program, device: Device) -> ProgramTables | None:
        """The tables of the same kernels and arrays, for the same device at any clock, or None."""
        key = _key(program, device)
        with self.lock:
            entry = self.found.get(key)
            if entry is None:
                return None
            self.found.move_to_end(key)
        return entry[2]

    def put(self, program: Program, device: Device, tables: ProgramTables) -> None:
        """Keep them, with the objects that the key names by identity."""
        key = _key(program, device)
        with self.lock:
            if key in self.found:
                return
            self.found[key] = program, device, tables
            self.rows += _rows(tables)
            while len(self.found) > 1 and (len(self.found) > PROGRAMS or self.rows > ROWS):
                self.rows -= _rows(self.found.popitem(last=False)[1][2])


def _key(program: Program, device: Device) -> Hashable:
    parts = [id(getattr(device, name)) for name in type(device).model_fields if name not in _CLOCKS]
    return id(program.kernels), id(program.arrays), *parts


def _rows(tables: ProgramTables) -> int:
    return sum(len(one.flat.instrs) for one in tables.kernels)


_KEPT = _TableCache()


def _tables(kernel: Kernel, program: Program, device: Device) -> KernelTables:
    named = {instr.engine for instr in kernel.instrs()}
    engines = tuple(name for name in device.engines if name in named) or tuple(device.engines)
    flat = flatten(
        kernel,
        {name: i for i, name in enumerate(engines)},
        {array.name: i for i, array in enumerate(program.arrays)},
        [array.name for array in program.arrays if array.order == "columns"],
    )
    scope = Scope(kernel, program.arrays, device)
    counts = np.array([group.count for group in kernel.groups], np.int64)
    sizes = [sum(int((stream.nodes[:, 0] == 0).sum()) for stream in group) for group in flat.streams]
    found = costs(scope, flat)
    links = tuple(dict.fromkeys(name for name in found.links if name is not None))
    sums = _sums(found, links) * np.repeat(counts, sizes)
    return KernelTables(
        kernel, scope, engines, flat, found, _engine_tables(kernel, flat, device, engines), counts, links, sums
    )


def _sums(found: Costs, links: tuple[str, ...]) -> NDArray[np.int64]:
    moved, macs = (found.table[:, COST_COLUMNS.index(name)] for name in ("bytes", "macs"))
    number = {name: i for i, name in enumerate(links)}
    taken = np.array([-1 if name is None else number[name] for name in found.links], np.int64)
    by_link = (moved * (taken == i) for i in range(len(links)))
    return np.array([*by_link, macs, found.padded_macs, np.ones_like(macs)])


def _engine_tables(
    kernel: Kernel, flat: FlatKernel, device: Device, engines: tuple[str, ...]
) -> dict[str, NDArray[np.int64]]:
    streams = [stream for group in flat.streams for stream in group]
    nodes = [len(stream.nodes) for stream in streams]
    first = np.cumsum([0, *nodes])[:-1]
    derived = [len(stream.derived) for stream in streams]
    first_derived = np.cumsum([0, *derived])[:-1]
    firsts = np.cumsum([0, *(len(group) for group in flat.streams)])
    queued = device.flags is not None and device.flags.queued
    return {
        "instr": flat.instr,
        "tile": flat.tile,
        "affine": flat.affine,
        "term": flat.term,
        "sync": flat.sync,
        "semaphore_initial": flat.semaphore_initial,
        "semaphore_pieces": flat.semaphore_pieces,
        "node": np.concatenate([stream.nodes for stream in streams]) if streams else np.zeros((0, 4), np.int64),
        "derived": np.concatenate([stream.derived for stream in streams]) if streams else np.zeros((0, 4), np.int64),
        "stream": np.array(
            [
                (f, n, len(s.variables), fd, d)
                for f, n, s, fd, d in zip(first, nodes, streams, first_derived, derived, strict=True)
            ],
            np.int64,
        ),
        "group": np.array(
            [(g.first, g.count, firsts[i], len(g.streams)) for i, g in enumerate(kernel.groups)], np.int64
        ),
        "engine": np.array(
            [(m.queue_depth, ticks(exact(m.issue_cycles)), queued) for m in map(device.engines.__getitem__, engines)],
            np.int64,
        ),
        "window": np.array([limit for _, limit in windows(device)], np.int64).reshape(-1, 1),
    }
