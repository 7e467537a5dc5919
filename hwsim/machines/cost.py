"""Cost of each instruction of a kernel on a device: the device's numbers as integer ticks, bytes and rates.

The module knows the device model's formulas. Queues, waiting and sharing of bandwidth are the engine's.

Rounding: decimal numbers of a device are taken as written (37.5 is 75/2); durations are rounded up to whole ticks,
rates down. A transfer inside a core takes whole cycles.
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
from hwsim.errors import InputError, ProgramError
from hwsim.gemm.layouts import K_MAJOR
from hwsim.host.multiples import round_up
from hwsim.program.flat import INSTR_COLUMNS, FlatKernel, packed
from hwsim.program.forms import FormCache
from hwsim.program.ir import SPECIAL, GlobalTile, Instr, LocalTile
from hwsim.program.resolve import Scope, mma_blocks, mma_shape

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import LinkModel


class Cost(NamedTuple):
    """The cost of one instruction, repeats included, in the units of the timing engine
    (kernels_ext/include/hw_engine.h).
    """

    occupancy: int = 0  # ticks; of a transfer from or to global memory: before it drains
    tail: int = 0  # ticks from the end of the occupancy to completion
    flow_bytes: int = 0  # that drain from or to global memory
    flow_rate: int = 0
    miss_rate: int = 0  # the same where L2 holds nothing of it
    gm_tile: int = -1  # as `_cost` gives it, counted from the first of the instruction
    gm_write: int = 0
    bytes: int = 0  # payload moved
    macs: int = 0
    window: int = -1  # row of `windows`
    window_bytes: int = 0
    multicast: int = 1  # cores that take one transfer from L2 together
    fetch_bytes: int = 1  # pieces of a line that a miss fetches whole


COST_COLUMNS = Cost._fields
_TAIL, _GM_TILE = COST_COLUMNS.index("tail"), COST_COLUMNS.index("gm_tile")
Free = Callable[[Instr, str | None], bool]
FLOW_BYTES_LIMIT = 1 << 30  # bytes of one instruction of one core: the engine's 64-bit bound
RATE_LIMIT = 1 << 44


@lru_cache(maxsize=4096)
def exact(number: float) -> Fraction:
    """A device's number as the exact fraction of its decimal notation."""
    return Fraction(str(number))


@lru_cache(maxsize=1024)
def ticks_of(cycles: float) -> int:
    """A device's number of cycles in ticks, rounded up."""
    return ticks(exact(cycles))


def ticks(cycles: Fraction | int) -> int:
    """Cycles in ticks, rounded up."""
    return ceil(cycles * TICKS_PER_CYCLE)


def rate_per_tick(bytes_per_cycle: Fraction) -> int:
    """A rate in bytes per tick with RATE_BITS fraction bits, rounded down, but at least the smallest rate.

    Raises ProgramError beyond the engine's range (some millions of bytes per cycle).
    """
    rate = int(bytes_per_cycle * (1 << RATE_BITS) / TICKS_PER_CYCLE)
    if rate >= RATE_LIMIT:
        raise ProgramError(f"a rate of {float(bytes_per_cycle):g} bytes per cycle is beyond the timing machine's range")
    return max(rate, 1)


def shared_rate(bytes_per_second: float, device: Device) -> int:
    """A rate of L2 or HBM, per tick of the device's clock (see `rate_per_tick`)."""
    return _shared_rate(bytes_per_second, device.clock_mhz)


@lru_cache(maxsize=1024)
def _shared_rate(bytes_per_second: float, clock_mhz: float) -> int:
    try:
        return rate_per_tick(exact(bytes_per_second) / (exact(clock_mhz) * 1_000_000))
    except ProgramError as error:
        raise InputError(
            f"clock_mhz = {clock_mhz:g} (MHz): of L2 or HBM, with {bytes_per_second:g} bytes per second, {error}; "
            "give a higher clock (1,000 is 1 GHz)"
        ) from error


def latency_ticks(latency_ns: float | None, device: Device) -> int:
    """A latency in ticks of the core clock, rounded up."""
    return _latency_ticks(latency_ns or 0.0, device.clock_mhz)


@lru_cache(maxsize=1024)
def _latency_ticks(latency_ns: float, clock_mhz: float) -> int:
    return ticks(exact(latency_ns) * exact(clock_mhz) / 1000)


def windows(device: Device) -> list[tuple[str, int]]:
    """Links with a limit on bytes in flight, and the limits."""
    return [(name, link.in_flight_bytes) for name, link in device.links.items() if link.in_flight_bytes is not None]


class Costs(NamedTuple):
    """Costs of every instruction of a kernel, at any clock.

    table: costs, int64 (instructions, COST_COLUMNS), without the latency of L2, which is a time and not a number of
    cycles. far: bool (instructions), those that complete later by that latency. links: name of the device's link that
    an instruction moves data over, or None. padded_macs: multiply-accumulates of the unit, with padding to whole
    instructions.
    """

    table: NDArray[np.int64]
    far: NDArray[np.bool_]
    links: list[str | None]
    padded_macs: NDArray[np.int64]

    def delayed(self, latency: int) -> NDArray[np.int64]:
        """The table at a clock at which L2's latency is `latency` ticks."""
        if not latency:
            return self.table
        table = self.table.copy()
        table[self.far, _TAIL] += latency
        return table


Known = tuple[Cost, str | None, int]  # cost, link, padded products
_KNOWN: FormCache[Known] = FormCache()


def costs(scope: Scope, flat: FlatKernel, free: Free | None = None) -> Costs:
    """The costs of all instructions of a kernel, repeats included; nothing in them depends on the device's clock.

    free: predicate for instructions of which only the traffic of L2 and HBM counts. Raises ProgramError, naming the
    instruction, for one that the device has no engine, link or timing for.
    """
    limits = {name: i for i, (name, _) in enumerate(windows(scope.device))}
    forms = _KNOWN.of(scope.device)
    known: list[Known] = []  # by kind
    for i, instr, form in zip(flat.firsts, flat.examples, flat.forms, strict=True):
        entry = forms.get(form)
        if entry is None:
            link = scope.link(instr) if instr.opcode in ("copy", "cast") else None
            cost = _cost(scope, i, instr, link, limits)
            entry = forms[form] = cost, link[0] if link else None, _padded_macs(scope, instr)
        known.append(entry)
    kinds = np.array(flat.kinds, np.int64)
    table = packed([x for cost, _, _ in known for x in cost], len(COST_COLUMNS))[kinds]
    far = table[:, _GM_TILE] >= 0
    table[far, _GM_TILE] += flat.instr[far, INSTR_COLUMNS.index("first_tile")]
    links = [known[kind][1] for kind in flat.kinds]
    if free is not None:
        idle = [
            i for i, (instr, link_name) in enumerate(zip(flat.instrs, links, strict=True)) if free(instr, link_name)
        ]
        _take_no_time(table, idle)
        far[idle] = False
    return Costs(table, far, links, packed([padded for _, _, padded in known], 1)[kinds, 0])


def _take_no_time(table: NDArray[np.int64], rows: list[int]) -> None:
    rates = np.where(table[rows, COST_COLUMNS.index("flow_bytes")] != 0, RATE_LIMIT - 1, 0)
    for name, value in (("occupancy", 0), ("tail", 0), ("window", -1), ("flow_rate", rates), ("miss_rate", rates)):
        table[rows, COST_COLUMNS.index(name)] = value


def _padded_macs(scope: Scope, instr: Instr) -> int:
    model = find(scope.device, instr.unit) if instr.unit else None
    whole = 0 if model is None else math.prod(mma_blocks(instr, model)) * model.rows * model.n * model.k
    return instr.repeat * whole


def _cost(
    scope: Scope,
    index: int,
    instr: Instr,
    link: tuple[str, LinkModel] | None,
    limits: Mapping[str, int],
) -> Cost:
    device = scope.device
    if instr.opcode == "sync":
        return Cost(instr.repeat * ticks(device.engines[instr.engine].sync_cycles))
    if instr.opcode == "mma":
        return _mma(scope, index, instr)
    if link is not None:
        return _copy(scope, index, instr, link[1], limits.get(link[0], -1))
    if instr.opcode in SPECIAL:
        return _special(scope, index, instr)
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
    a, b = instr.operand("a"), instr.operand("b")
    memories, sides = (scope.memory(a), scope.memory(b)), (target.rows, target.cols)
    if instr.swapped:
        memories, sides = memories[::-1], sides[::-1]
    needs_transpose = isinstance(a, LocalTile) and isinstance(b, LocalTile) and (a.order, b.order) != K_MAJOR
    interval = model.interval_cycles(memories, sides, needs_transpose)
    block, latency = m_blocks * n_blocks * interval.numerator, time.accumulate_latency_cycles * interval.denominator
    return Cost(
        instr.repeat * (ticks(time.overhead_cycles) + _covering(k_blocks * max(block, latency), interval.denominator)),
        ticks(time.drain_cycles),
        macs=instr.repeat * math.prod(mma_shape(instr)),
    )


def _copy(scope: Scope, index: int, instr: Instr, link: LinkModel, window: int) -> Cost:
    target, source = instr.writes[0], instr.operand("source")
    tile = target if isinstance(target, GlobalTile) else source
    overhead, tail = instr.repeat * ticks(link.overhead_cycles), ticks(link.startup_cycles)
    if not isinstance(tile, GlobalTile):
        size = max(scope.padded_bytes(end) for end in (target, source) if isinstance(end, LocalTile))
        moved = round_up(size, link.request_bytes)
        rate = _link_rate(link.bytes_per_cycle, link.conflict_factor or 1)
        occupancy = overhead + instr.repeat * ticks(-(-moved * rate.denominator // rate.numerator))
        return Cost(occupancy, tail, bytes=instr.repeat * size, window=window, window_bytes=instr.repeat * moved)
    moved = instr.repeat * _requests(scope, tile, link.request_bytes)
    if moved >= FLOW_BYTES_LIMIT:
        raise ProgramError(
            f"{scope.place(index, instr)}: moves {moved} bytes; one instruction may move less than {FLOW_BYTES_LIMIT}"
        )
    write = isinstance(target, GlobalTile)
    l2 = scope.device.l2 if write else None
    slower, than = _slower_write(l2.bytes_per_second, l2.write_bytes_per_second) if l2 is not None else (1, 1)
    spread = scope.buffers[target.buffer].spread if isinstance(target, LocalTile) else 1
    link_rate = (link.bytes_per_cycle, link.conflict_factor or 1)
    factor = 1 if write else link.miss_factor or 1
    if link.row_cycles:
        rows = instr.repeat * scope.stored(tile)[0] * exact(link.row_cycles)
        drains = (max(moved * exact(times) / _link_rate(*link_rate), rows) for times in (1, factor))
        hit, miss = (rate_per_tick(moved * Fraction(slower, than) / drain) for drain in drains)
    else:
        hit, miss = _flow_rate(*link_rate, 1, slower, than), _flow_rate(*link_rate, factor, slower, than)
    return Cost(
        occupancy=overhead,
        tail=tail,
        flow_bytes=-(-moved * slower // (than * spread)),
        flow_rate=hit,
        miss_rate=miss,
        gm_tile=0 if write else len(instr.writes),
        gm_write=int(write),
        bytes=instr.repeat * scope.bytes(tile) // spread,
        window=window,
        window_bytes=moved // spread,
        multicast=instr.multicast // spread,
        fetch_bytes=1 if write else link.fetch_bytes or 1,
    )


@lru_cache(maxsize=1024)
def _link_rate(bytes_per_cycle: float, conflict_factor: float) -> Fraction:
    return exact(bytes_per_cycle) / exact(conflict_factor)


@lru_cache(maxsize=1024)
def _flow_rate(bytes_per_cycle: float, conflict_factor: float, times: float, slower: int, than: int) -> int:
    """Bytes per tick of a transfer whose bytes count `times` times on the link and slower / than times in L2."""
    return rate_per_tick(_link_rate(bytes_per_cycle, conflict_factor) * Fraction(slower, than) / exact(times))


@lru_cache(maxsize=1024)
def _slower_write(read: float, write: float | None) -> tuple[int, int]:
    """Times that L2 takes for a write and for a read of the same size, in lowest terms; both share one limit."""
    return (1, 1) if write is None else (exact(read) / exact(write)).as_integer_ratio()


def _covering(numerator: int, denominator: int) -> int:
    """numerator / denominator cycles in ticks, rounded up."""
    return -(-numerator * TICKS_PER_CYCLE // denominator)


def _requests(scope: Scope, tile: GlobalTile, request_bytes: int) -> int:
    """Bytes of the whole memory requests that a tile in global memory needs; lines are separate unless contiguous."""
    lines, length = scope.stored(tile)
    line_bytes = -(-length * scope.bits(tile) // 8)
    if length == scope.arrays[tile.array].stored[1]:
        return round_up(lines * line_bytes, request_bytes)
    return lines * round_up(line_bytes, request_bytes)


def _vector(scope: Scope, index: int, instr: Instr) -> Cost:
    vector = scope.device.vector
    opcodes = scope.timed_as(instr)
    if vector is None or not vector.does(opcodes):
        raise ProgramError(f"{scope.place(index, instr)}: the vector unit of {scope.device.name} has no {instr.opcode}")
    target, tiles = instr.writes[0], (*instr.writes, *instr.reads)
    widest, elements = max(scope.bits(tile) for tile in tiles), max(tile.rows * tile.cols for tile in tiles)
    widens = "cast" in opcodes and scope.bits(target) > scope.bits(instr.operand("source"))
    formats = map(scope.format, tiles)
    occupancy = 0
    for times, bits, cycles in vector.steps_of(instr.opcode, formats, widest, timed_as=opcodes, widens=widens):
        repeats, each = -(-elements * bits // (8 * vector.repeat_bytes)), exact(cycles)
        occupancy += times * (ticks(vector.overhead_cycles) + _covering(repeats * each.numerator, each.denominator))
    return Cost(instr.repeat * occupancy)


def _special(scope: Scope, index: int, instr: Instr) -> Cost:
    unit = scope.device.special
    if unit is None:
        raise ProgramError(f"{scope.place(index, instr)}: {scope.device.name} has no special-function unit")
    elements = instr.writes[0].rows * instr.writes[0].cols
    return Cost(instr.repeat * _covering(elements, unit.results_per_cycle))
