"""What each instruction of a kernel costs on a device: the device's numbers as integer ticks, bytes and rates.

It knows the device model's formulas. It does not know queues, waiting or sharing: those are the engine's.

Rounding: decimal numbers of a device are taken as written (37.5 is 75/2); durations are rounded up to whole
ticks, rates down. A transfer inside a core takes whole cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.engine import RATE_BITS, TICKS_PER_CYCLE
from hwsim.devices import find
from hwsim.errors import ProgramError
from hwsim.gemm.layouts import K_MAJOR
from hwsim.program.flat import INSTR_COLUMNS, FlatKernel
from hwsim.program.ir import GlobalTile, Instr, LocalTile
from hwsim.program.resolve import Scope, mma_blocks, mma_shape

if TYPE_CHECKING:
    from hwsim.devices.model import Device, LinkModel


class Cost(NamedTuple):
    """One instruction, repeats included, in the units of the engine (kernels_ext/include/hw_engine.h)."""

    occupancy: int = 0  # ticks; of a transfer from or to global memory: before it drains
    tail: int = 0  # ticks from the end of the occupancy to completion
    flow_bytes: int = 0  # that drain from or to global memory
    flow_rate: int = 0
    miss_rate: int = 0  # the same where L2 holds nothing of it
    gm_tile: int = -1
    gm_write: int = 0
    bytes: int = 0  # payload moved
    macs: int = 0
    window: int = -1  # row of `windows`
    window_bytes: int = 0
    multicast: int = 1  # cores that take one transfer from L2 together
    fetch_bytes: int = 1  # pieces of a line that a miss fetches whole


COST_COLUMNS = Cost._fields
_TAIL = COST_COLUMNS.index("tail")
Free = Callable[[Instr, str | None], bool]
FLOW_BYTES_LIMIT = 1 << 30  # bytes of one instruction of one core: the engine's 64-bit bound
RATE_LIMIT = 1 << 44


@lru_cache(maxsize=4096)
def exact(number: float) -> Fraction:
    """A device's number as its decimal notation says it."""
    return Fraction(str(number))


def ticks(cycles: Fraction | int) -> int:
    """Whole ticks that cover `cycles`."""
    return ceil(cycles * TICKS_PER_CYCLE)


def rate_per_tick(bytes_per_cycle: Fraction) -> int:
    """Bytes per tick with RATE_BITS fraction bits, rounded down, at least the least rate there is.

    Raises ProgramError beyond the engine's range (some millions of bytes per cycle).
    """
    rate = int(bytes_per_cycle * (1 << RATE_BITS) / TICKS_PER_CYCLE)
    if rate >= RATE_LIMIT:
        raise ProgramError(f"a rate of {float(bytes_per_cycle):g} bytes per cycle is beyond the timing machine's range")
    return max(rate, 1)


def shared_rate(bytes_per_second: float, device: Device) -> int:
    """A rate of the whole device, per tick of its clock (see `rate_per_tick`)."""
    return _shared_rate(bytes_per_second, device.clock_mhz)


@lru_cache(maxsize=1024)
def _shared_rate(bytes_per_second: float, clock_mhz: float) -> int:
    return rate_per_tick(exact(bytes_per_second) / (exact(clock_mhz) * 1_000_000))


def latency_ticks(latency_ns: float | None, device: Device) -> int:
    """Whole ticks of the core clock that cover a time."""
    return _latency_ticks(latency_ns or 0.0, device.clock_mhz)


@lru_cache(maxsize=1024)
def _latency_ticks(latency_ns: float, clock_mhz: float) -> int:
    return ticks(exact(latency_ns) * exact(clock_mhz) / 1000)


def windows(device: Device) -> list[tuple[str, int]]:
    """Links that limit their bytes in flight, with the limit."""
    return [(name, link.in_flight_bytes) for name, link in device.links.items() if link.in_flight_bytes is not None]


class Costs(NamedTuple):
    """Of every instruction of a kernel, at any clock. table: cost, int64 (instructions, COST_COLUMNS), without the
    latency of L2, which is a time and not cycles; far: bool (instructions), which of them complete later by it; links:
    the device's name of the link that it moves data over, or None; padded_macs: the products its unit forms, padded to
    whole blocks."""

    table: NDArray[np.int64]
    far: NDArray[np.bool_]
    links: list[str | None]
    padded_macs: NDArray[np.int64]

    def delayed(self, latency: int) -> NDArray[np.int64]:
        """The table at a clock at which L2 takes `latency` ticks to answer."""
        if not latency:
            return self.table
        table = self.table.copy()
        table[self.far, _TAIL] += latency
        return table


def costs(scope: Scope, flat: FlatKernel, free: Free | None = None) -> Costs:
    """What every instruction of a kernel costs, repeats included; nothing in it depends on the device's clock.

    free: of which instructions only the bytes in L2 and HBM count.
    Raises ProgramError, naming the instruction, for one that the device has no engine, link or time for.
    """
    limits = {name: i for i, (name, _) in enumerate(windows(scope.device))}
    firsts = flat.instr[:, INSTR_COLUMNS.index("first_tile")].tolist()
    known: dict[int, tuple[Cost, str | None, int]] = {}
    rows: list[Cost] = []
    far: list[bool] = []
    links: list[str | None] = []
    padded: list[int] = []
    for i, (instr, first, key) in enumerate(zip(flat.instrs, firsts, flat.kinds, strict=True)):
        if key not in known:
            link = scope.link(instr) if instr.opcode in ("copy", "cast") else None
            found = _cost(scope, i, instr, link, 0, limits)
            known[key] = found, link[0] if link else None, _padded_macs(scope, instr)
        cost, name, macs = known[key]
        if cost.gm_tile >= 0:
            cost = cost._replace(gm_tile=first + cost.gm_tile)
        late = cost.gm_tile >= 0
        if free is not None and free(instr, name):
            cost, late = _without_time(cost), False
        rows.append(cost)
        far.append(late)
        links.append(name)
        padded.append(macs)
    table = np.array(rows, np.int64).reshape(len(rows), len(COST_COLUMNS))
    return Costs(table, np.array(far, np.bool_), links, np.array(padded, np.int64))


def _without_time(cost: Cost) -> Cost:
    rate = RATE_LIMIT - 1 if cost.flow_bytes else 0
    return cost._replace(occupancy=0, tail=0, window=-1, flow_rate=rate, miss_rate=rate)


def _padded_macs(scope: Scope, instr: Instr) -> int:
    model = find(scope.device, instr.unit) if instr.unit else None
    whole = 0 if model is None else math.prod(mma_blocks(instr, model)) * model.rows * model.n * model.k
    return instr.repeat * whole


def _cost(
    scope: Scope,
    index: int,
    instr: Instr,
    link: tuple[str, LinkModel] | None,
    first_tile: int,
    limits: Mapping[str, int],
) -> Cost:
    device = scope.device
    if instr.opcode == "sync":
        return Cost(instr.repeat * ticks(device.engines[instr.engine].sync_cycles))
    if instr.opcode == "mma":
        return _mma(scope, index, instr)
    if link is not None:
        return _copy(scope, index, instr, link[1], first_tile, limits.get(link[0], -1))
    if scope.is_vector(instr):
        return _vector(scope, index, instr)
    raise ProgramError(
        f"{scope.place(index, instr)}: device {device.name} has no link or vector operation for it "
        f"(from {[scope.memory(t) for t in instr.reads]} to {[scope.memory(t) for t in instr.writes]})"
    )


def _mma(scope: Scope, index: int, instr: Instr) -> Cost:
    model = find(scope.device, instr.unit or "")
    if model is None or model.timing is None:
        raise ProgramError(f"{scope.place(index, instr)}: no timing data for instruction {instr.unit!r}")
    time = model.timing
    m_blocks, n_blocks, k_blocks = mma_blocks(instr, model)
    target = instr.writes[0]
    memories = (scope.memory(instr.reads[0]), scope.memory(instr.reads[1]))
    a, b = instr.reads
    needs_transpose = isinstance(a, LocalTile) and isinstance(b, LocalTile) and (a.order, b.order) != K_MAJOR
    interval = model.interval_cycles(memories, (target.rows, target.cols), needs_transpose)
    step = max(m_blocks * n_blocks * interval, Fraction(time.accumulate_latency_cycles))
    return Cost(
        instr.repeat * ticks(time.overhead_cycles + k_blocks * step),
        ticks(time.drain_cycles),
        macs=instr.repeat * math.prod(mma_shape(instr)),
    )


def _copy(scope: Scope, index: int, instr: Instr, link: LinkModel, first_tile: int, window: int) -> Cost:
    target, source = instr.writes[0], instr.reads[0]
    rate = exact(link.bytes_per_cycle) / exact(link.conflict_factor or 1)
    tile = target if isinstance(target, GlobalTile) else source
    overhead, tail = instr.repeat * ticks(link.overhead_cycles), ticks(link.startup_cycles)
    if not isinstance(tile, GlobalTile):
        size = max(scope.padded_bytes(end) for end in (target, source) if isinstance(end, LocalTile))
        moved = -(-size // link.request_bytes) * link.request_bytes
        occupancy = overhead + instr.repeat * ticks(ceil(moved / rate))
        return Cost(occupancy, tail, bytes=instr.repeat * size, window=window, window_bytes=instr.repeat * moved)
    moved = instr.repeat * _requests(scope, tile, link.request_bytes)
    if moved >= FLOW_BYTES_LIMIT:
        raise ProgramError(
            f"{scope.place(index, instr)}: moves {moved} bytes; one instruction may move less than {FLOW_BYTES_LIMIT}"
        )
    write = isinstance(target, GlobalTile)
    slower = _slower_write(scope.device) if write else Fraction(1)
    spread = scope.buffers[target.buffer].spread if isinstance(target, LocalTile) else 1
    rows = instr.repeat * scope.stored(tile)[0] * exact(link.row_cycles or 0)
    misses = 1 if write else exact(link.miss_factor or 1)
    hit, miss = (max(moved * times / rate, rows) for times in (1, misses))
    return Cost(
        overhead,
        tail,
        ceil(moved * slower / spread),
        rate_per_tick(moved * slower / hit),
        rate_per_tick(moved * slower / miss),
        first_tile + (0 if write else len(instr.writes)),
        int(write),
        instr.repeat * scope.bytes(tile) // spread,
        window=window,
        window_bytes=moved // spread,
        multicast=instr.multicast // spread,
        fetch_bytes=1 if write else link.fetch_bytes or 1,
    )


def _slower_write(device: Device) -> Fraction:
    """How many times as long as a read of L2 a write of as many bytes takes: both meet one limit."""
    l2 = device.l2
    if l2 is None or l2.write_bytes_per_second is None:
        return Fraction(1)
    return exact(l2.bytes_per_second) / exact(l2.write_bytes_per_second)


def _requests(scope: Scope, tile: GlobalTile, request_bytes: int) -> int:
    """Bytes of the whole requests that a tile in global memory takes: lines are apart unless they are whole."""
    lines, length = scope.stored(tile)
    line_bytes = -(-length * scope.bits(tile) // 8)
    if length == scope.arrays[tile.array].stored[1]:
        return -(-lines * line_bytes // request_bytes) * request_bytes
    return lines * (-(-line_bytes // request_bytes) * request_bytes)


def _vector(scope: Scope, index: int, instr: Instr) -> Cost:
    vector = scope.device.vector
    opcode = instr.opcode
    if vector is None or opcode == "mma" or opcode == "sync" or opcode not in vector.cycles_per_repeat:
        raise ProgramError(f"{scope.place(index, instr)}: the vector unit of {scope.device.name} has no {opcode}")
    target = instr.writes[0]
    widest = max(scope.bits(tile) for tile in (*instr.writes, *instr.reads))
    repeats = -(-target.rows * target.cols * widest // (8 * vector.repeat_bytes))
    widens = opcode == "cast" and scope.bits(target) > scope.bits(instr.reads[0])
    per_repeat = vector.cycles_per_repeat.get("widen" if widens else opcode, vector.cycles_per_repeat[opcode])
    cycles = vector.overhead_cycles + repeats * exact(per_repeat)
    return Cost(instr.repeat * ticks(cycles))
