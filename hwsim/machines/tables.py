"""Programs as integer tables for the timing engine: everything that does not depend on the clock, computed once and
cached.

The cache is keyed by the identity of the program's kernels and of the device without its clock, because one program is
often timed again and again, or at several clocks. It is bounded, and its entries never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hwsim.formats import format_of
from hwsim.machines.cost import COST_COLUMNS, Costs, Free, costs, latency_ticks, ticks_of, windows
from hwsim.program.flat import TILE_GLOBAL, FlatKernel, flattened
from hwsim.program.forms import parts_of
from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import GlobalArray, Kernel, Program
from hwsim.program.rename import has_like_arrays
from hwsim.program.resolve import Scope

if TYPE_CHECKING:
    from hwsim.devices.device import Device

CAUSES = ("empty", "done", "queue-full", "in-flight")  # columns of the account after "busy"; semaphores follow
PROGRAMS = 64  # kept, at most
ROWS = 1 << 17  # instructions of all of them together, at most; some 500 bytes each


@dataclass(frozen=True, slots=True)
class KernelTables:
    """One kernel for the timing engine, without costs that depend on the clock (see `cost_at`).

    engines: those with work. causes: reasons for stalls, as the columns of the account after "busy". counts: number of
    cores per group. links: those of the device that the kernel uses. sums: int64 (links + 3, instructions); its product
    with the numbers of executions on one core gives, for all cores, the bytes by link, then macs, padded macs, and
    instructions.
    """

    kernel: Kernel
    scope: Scope
    engines: tuple[str, ...]
    causes: tuple[str, ...]
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
    """All kernels of a program, and its arrays: rows, elements per row and bits per element, as stored in memory; of a
    view the array that it shows and the bytes of each line of that which it has a part in (else -1, 0).
    """

    kernels: tuple[KernelTables, ...]
    arrays: NDArray[np.int64]


def tables_of(program: Program, device: Device, free: Free | None = None) -> ProgramTables:
    """The tables of `program` on `device`. free: predicate for instructions of which only the traffic of L2 and HBM
    counts.

    Raises ProgramError for an instruction that the device has no engine, link or timing for.
    """
    of = (program.kernels, program.arrays, *parts_of(device))
    tables = _CACHE.get(*of)
    if tables is None:
        arrays = np.array([_array_row(a, program.arrays) for a in program.arrays], np.int64)
        by_kernel: dict[int, KernelTables] = {}  # by id() of the kernel
        for kernel in program.kernels:
            by_kernel[id(kernel)] = _tables(kernel, program, device, by_kernel.get(id(kernel.original)))
        tables = ProgramTables(tuple(by_kernel[id(kernel)] for kernel in program.kernels), arrays)
        _CACHE.put(tables, sum(len(kernel_tables.flat.instr) for kernel_tables in tables.kernels), *of)
    if free is None:
        return tables
    kernels = tuple(
        replace(kernel_tables, costs=costs(kernel_tables.scope, kernel_tables.flat, free))
        for kernel_tables in tables.kernels
    )
    return replace(tables, kernels=kernels)


def with_arrays(kernel: KernelTables, places: Sequence[int], first: int) -> KernelTables:
    """A kernel's tables with other arrays: number first + i in the place of places[i]."""
    tile = kernel.flat.tile.copy()
    is_global, old = tile[:, 0] == TILE_GLOBAL, kernel.flat.tile[:, 1]
    for i, place in enumerate(places):
        tile[is_global & (old == place), 1] = first + i
    return replace(kernel, tables={**kernel.tables, "tile": tile})


def _array_row(array: GlobalArray, arrays: Sequence[GlobalArray]) -> tuple[int, int, int, int, int]:
    bits = format_of(array.format).bits
    if not array.of:
        return (*array.stored, bits, -1, 0)
    shown = next(i for i, other in enumerate(arrays) if other.name == array.of)
    lines = arrays[shown].stored[0]
    return (*array.stored, bits, shown, max(1, -(-array.reads * bits // (8 * lines))))


_CACHE: IdentityCache[ProgramTables] = IdentityCache(PROGRAMS, ROWS)


def _tables(kernel: Kernel, program: Program, device: Device, original: KernelTables | None) -> KernelTables:
    engines, flat = flattened(kernel, program.arrays, device.engines)
    scope = Scope(kernel, program.arrays, device)
    causes = (*CAUSES, *(f"semaphore:{semaphore.name}" for semaphore in kernel.semaphores))
    if original is not None and has_like_arrays(kernel, program.arrays):
        tables = {**original.tables, "tile": flat.tile}
        return replace(original, kernel=kernel, scope=scope, causes=causes, flat=flat, tables=tables)
    counts = np.array([group.count for group in kernel.groups], np.int64)
    all_costs = costs(scope, flat)
    links = tuple(dict.fromkeys(name for name in all_costs.links if name is not None))
    sums = _sums(all_costs, links) * np.repeat(counts, flat.sizes)
    tables = _engine_tables(kernel, flat, device, engines)
    return KernelTables(
        kernel=kernel,
        scope=scope,
        engines=engines,
        causes=causes,
        flat=flat,
        costs=all_costs,
        tables=tables,
        counts=counts,
        links=links,
        sums=sums,
    )


def _sums(all_costs: Costs, links: tuple[str, ...]) -> NDArray[np.int64]:
    moved, macs = (all_costs.table[:, COST_COLUMNS.index(name)] for name in ("bytes", "macs"))
    number = {name: i for i, name in enumerate(links)}
    taken = np.array([-1 if name is None else number[name] for name in all_costs.links], np.int64)
    by_link = (moved * (taken == i) for i in range(len(links)))
    return np.array([*by_link, macs, all_costs.padded_macs, np.ones_like(macs)])


def _engine_tables(
    kernel: Kernel, flat: FlatKernel, device: Device, engines: tuple[str, ...]
) -> dict[str, NDArray[np.int64]]:
    firsts = np.cumsum([0, *(len(group.streams) for group in kernel.groups)])
    queued = device.flags is not None and device.flags.queued
    return {
        **flat.walked,
        "group": np.array(
            [(g.first, g.count, firsts[i], len(g.streams)) for i, g in enumerate(kernel.groups)], np.int64
        ),
        "engine": np.array(
            [(m.queue_depth, ticks_of(m.issue_cycles), queued) for m in map(device.engines.__getitem__, engines)],
            np.int64,
        ),
        "window": np.array([limit for _, limit in windows(device)], np.int64).reshape(-1, 1),
    }
