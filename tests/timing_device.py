"""A small device with round numbers, and short ways to write programs for it."""

import json
from typing import Any

from hwsim.devices.device import Device
from hwsim.program.ir import (
    Affine,
    Buffer,
    CoreGroup,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
    Program,
    Semaphore,
    Stream,
    StreamItem,
    Sync,
)

ZERO = Affine()


def device(**changes: Any) -> Device:
    """Clock 1 MHz, so that bytes per second / 1e6 are bytes per cycle; issue costs 1 cycle; no L2."""
    values: dict[str, Any] = {
        "schema_version": 1,
        "name": "toy",
        "title": "toy",
        "family": "toy",
        "default_format": "fp16",
        "cores": 64,
        "clock_mhz": 1.0,
        "dot_units": {"cube": {"model": "fused", "terms": 16, "fraction_bits": 25, "floor_exponent": -133}},
        "instructions": {
            "mm": {
                "engine": "M",
                "unit": "cube",
                "m": 16,
                "n": 16,
                "k": 16,
                "a": "fp16",
                "b": "fp16",
                "c": "fp32",
                "d": "fp32",
                "largest": 64,
                "memories": ("LA", "LB", "LC"),
                "timing": {
                    "issue_interval_cycles": 1.0,
                    "overhead_cycles": 9,
                    "drain_cycles": 20,
                    "accumulate_latency_cycles": 10,
                },
            }
        },
        "vector": {
            "engine": "V",
            "memory": "UB",
            "repeat_bytes": 256,
            "overhead_cycles": 24,
            "cycles_per_repeat": {"cast": 1.0, "add": 2.0, "fill": 1.0, "copy": 1.0},
        },
        "memories": {name: {"capacity_bytes": 65536, "align_bytes": 32} for name in ("LA", "LB", "LC", "UB", "L1")},
        "hbm": {"capacity_bytes": 1 << 40, "bytes_per_second": 1e9},
        "links": {
            "GM_L1": {"engine": "IN", "from": "GM", "to": "L1", "bytes_per_cycle": 64.0},
            "L1_LA": {
                "engine": "MOVE",
                "from": "L1",
                "to": "LA",
                "bytes_per_cycle": 100.0,
                "startup_cycles": 7,
                "overhead_cycles": 3,
                "request_bytes": 128,
            },
            "UB_GM": {"engine": "OUT", "from": "UB", "to": "GM", "bytes_per_cycle": 64.0},
        },
        "engines": {name: {"queue_depth": 4, "sync_cycles": 10} for name in ("M", "V", "IN", "MOVE", "OUT")},
    }
    for path, value in changes.items():
        where = values
        *parents, last = path.split("__")
        for parent in parents:
            where = where[parent]
        where[last] = value
    return Device.model_validate_json(json.dumps(values))


def sync(engine: str, waits: str = "", signals: str = "", repeat: int = 1, label: str = "") -> Instr:
    """A sync instruction; waits and signals are words "name" or "name*count"."""
    return Instr(engine, "sync", waits=_syncs(waits), signals=_syncs(signals), repeat=repeat, label=label)


def _syncs(words: str) -> tuple[Sync, ...]:
    pairs = [word.partition("*") for word in words.split()]
    return tuple(Sync(name, int(count or 1)) for name, _, count in pairs)


def load(
    array: str,
    rows: int,
    cols: int,
    row: Affine = ZERO,
    col: Affine = ZERO,
    waits: str = "",
    signals: str = "",
    repeat: int = 1,
    fmt: str = "fp16",
) -> Instr:
    """A copy from global memory to slot 0 of buffer "l1"."""
    return Instr(
        "IN",
        "copy",
        (LocalTile("l1", rows, cols, fmt),),
        (GlobalTile(array, row, col, rows, cols),),
        _syncs(waits),
        _syncs(signals),
        repeat=repeat,
    )


def store(array: str, rows: int, cols: int, row: Affine = ZERO, col: Affine = ZERO, fmt: str = "fp16") -> Instr:
    """A copy from slot 0 of buffer "ub" to global memory."""
    return Instr("OUT", "copy", (GlobalTile(array, row, col, rows, cols),), (LocalTile("ub", rows, cols, fmt),))


def kernel(
    *bodies: tuple[StreamItem, ...],
    counts: tuple[int, ...] = (),
    semaphores: dict[str, int] | None = None,
    name: str = "k",
    buffers: tuple[Buffer, ...] = (),
) -> Kernel:
    """One core group per body, one stream each, cores numbered on."""
    groups, first = [], 0
    for body, count in zip(bodies, counts or (1,) * len(bodies), strict=True):
        groups.append(CoreGroup(first, count, (Stream("s", body),)))
        first += count
    buffers = buffers or tuple(
        Buffer(n, m, 2, 32768) for n, m in (("l1", "L1"), ("ub", "UB"), ("la", "LA"), ("lb", "LB"), ("lc", "LC"))
    )
    return Kernel(name, tuple(groups), buffers, tuple(Semaphore(*s) for s in (semaphores or {}).items()))


def program(*kernels: Kernel, arrays: tuple[GlobalArray, ...] = ()) -> Program:
    """Kernels over arrays X and Y, 4096 x 4096 fp16 each."""
    arrays = arrays or tuple(GlobalArray(name, 4096, 4096, "fp16") for name in "XY")
    return Program(arrays, kernels, (arrays[0].name,), arrays[-1].name)
