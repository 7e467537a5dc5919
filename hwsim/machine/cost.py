"""What each instruction of a kernel costs on a device: the device's numbers as integer ticks, bytes and rates.

It knows the device model's formulas. It does not know queues, waiting or sharing: those are the engine's.

Rounding: decimal numbers of a device are taken as written (37.5 is 75/2); durations are rounded up to whole
ticks, rates down. A transfer inside a core takes whole cycles.
"""

from __future__ import annotations

import math
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.engine import RATE_BITS, TICKS_PER_CYCLE
from hwsim.devices import find
from hwsim.devices.model import Device, LinkModel
from hwsim.errors import ProgramError
from hwsim.program.flat import FlatKernel
from hwsim.program.ir import GlobalTile, Instr, LocalTile
from hwsim.program.resolve import Scope, mma_blocks, mma_shape

COST_COLUMNS = ("occupancy", "tail", "flow_bytes", "flow_rate", "gm_tile", "gm_write", "bytes", "macs")
FLOW_BYTES_LIMIT = 1 << 30  # bytes of one instruction of one core: the engine's 64-bit bound
RATE_LIMIT = 1 << 44


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
    return rate_per_tick(exact(bytes_per_second) / (exact(device.clock_mhz) * 1_000_000))


def cost_table(scope: Scope, flat: FlatKernel) -> NDArray[np.int64]:
    """Cost of every instruction of a kernel, repeats included: int64 (instructions, COST_COLUMNS).

    Raises ProgramError, naming the instruction, for one that the device has no engine, link or time for.
    """
    rows = [_cost(scope, i, instr, int(flat.instr[i, 3])) for i, instr in enumerate(flat.instrs)]
    return np.array(rows, np.int64).reshape(len(rows), len(COST_COLUMNS))


def link_names(scope: Scope, flat: FlatKernel) -> list[str | None]:
    """For every instruction the device's name of the link it moves data over, or None."""
    names: list[str | None] = []
    for instr in flat.instrs:
        link = scope.link(instr) if instr.opcode == "copy" else None
        names.append(link[0] if link else None)
    return names


def padded_macs(scope: Scope, flat: FlatKernel) -> NDArray[np.int64]:
    """For every instruction the products its unit forms, padded to whole blocks; 0 for all but mma."""
    found = []
    for instr in flat.instrs:
        model = find(scope.device, instr.unit) if instr.unit else None
        whole = 0 if model is None else math.prod(mma_blocks(instr, model)) * model.m * model.n * model.k
        found.append(instr.repeat * whole)
    return np.array(found, np.int64)


def _cost(scope: Scope, index: int, instr: Instr, first_tile: int) -> tuple[int, ...]:
    device = scope.device
    if instr.opcode == "sync":
        return instr.repeat * ticks(device.engines[instr.engine].sync_cycles), 0, 0, 0, -1, 0, 0, 0
    if instr.opcode == "mma":
        return _mma(scope, index, instr)
    link = scope.link(instr) if instr.opcode == "copy" else None
    if link is not None:
        return _copy(scope, index, instr, link[1], first_tile)
    if scope.is_vector(instr):
        return _vector(scope, index, instr)
    raise ProgramError(
        f"{scope.place(index, instr)}: device {device.name} has no link or vector operation for it "
        f"(from {[scope.memory(t) for t in instr.reads]} to {[scope.memory(t) for t in instr.writes]})"
    )


def _mma(scope: Scope, index: int, instr: Instr) -> tuple[int, ...]:
    model = find(scope.device, instr.unit or "")
    if model is None or model.timing is None:
        raise ProgramError(f"{scope.place(index, instr)}: no timing data for instruction {instr.unit!r}")
    time = model.timing
    m_blocks, n_blocks, k_blocks = mma_blocks(instr, model)
    step = max(m_blocks * n_blocks * exact(time.issue_interval_cycles), Fraction(time.accumulate_latency_cycles))
    m, n, k = mma_shape(instr)
    return (
        instr.repeat * ticks(time.overhead_cycles + k_blocks * step),
        ticks(time.drain_cycles),
        0,
        0,
        -1,
        0,
        0,
        instr.repeat * m * n * k,
    )


def _copy(scope: Scope, index: int, instr: Instr, link: LinkModel, first_tile: int) -> tuple[int, ...]:
    target, source = instr.writes[0], instr.reads[0]
    overhead, tail = instr.repeat * ticks(link.overhead_cycles), ticks(link.startup_cycles)
    tile = target if isinstance(target, GlobalTile) else source
    if isinstance(tile, GlobalTile):
        write = isinstance(target, GlobalTile)
        payload = instr.repeat * scope.bytes(tile)
        moved = instr.repeat * _requests(scope, tile, link.request_bytes)
        if moved >= FLOW_BYTES_LIMIT:
            raise ProgramError(
                f"{scope.place(index, instr)}: moves {moved} bytes; "
                f"one instruction may move less than {FLOW_BYTES_LIMIT}"
            )
        return (
            overhead,
            tail,
            moved,
            rate_per_tick(exact(link.bytes_per_cycle)),
            first_tile + (0 if write else len(instr.writes)),
            int(write),
            payload,
            0,
        )
    size = max(scope.padded_bytes(end) for end in (target, source) if isinstance(end, LocalTile))
    cycles = ceil(-(-size // link.request_bytes) * link.request_bytes / exact(link.bytes_per_cycle))
    return overhead + instr.repeat * ticks(cycles), tail, 0, 0, -1, 0, instr.repeat * size, 0


def _requests(scope: Scope, tile: GlobalTile, request_bytes: int) -> int:
    """Bytes of the whole requests that a tile in global memory takes: rows are apart unless they are whole."""
    row_bytes = -(-tile.cols * scope.bits(tile) // 8)
    if tile.cols == scope.arrays[tile.array].cols:
        return -(-tile.rows * row_bytes // request_bytes) * request_bytes
    return tile.rows * (-(-row_bytes // request_bytes) * request_bytes)


def _vector(scope: Scope, index: int, instr: Instr) -> tuple[int, ...]:
    vector = scope.device.vector
    opcode = instr.opcode
    if vector is None or opcode == "mma" or opcode == "sync" or opcode not in vector.cycles_per_repeat:
        raise ProgramError(f"{scope.place(index, instr)}: the vector unit of {scope.device.name} has no {opcode}")
    target = instr.writes[0]
    widest = max(scope.bits(tile) for tile in (*instr.writes, *instr.reads))
    repeats = -(-target.rows * target.cols * widest // (8 * vector.repeat_bytes))
    cycles = vector.overhead_cycles + repeats * exact(vector.cycles_per_repeat[opcode])
    return instr.repeat * ticks(cycles), 0, 0, 0, -1, 0, 0, 0
