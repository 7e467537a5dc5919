"""What is measured: each group is a function that hands cases, a name and how to get its numbers, to `put`.

Knows the kernels and sensible settings; not how results are kept. A case that fails does not stop the others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import generate
import numpy as np
from library import Library, Setting
from nvml import Sampler

Put = Callable[[str, Callable[[], Any]], None]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LARGE = 4 * GIB


def r(value: float, digits: int = 3) -> float:
    """Rounded for the file."""
    return round(float(value), digits)


def warm_up(lib: Library) -> None:
    """Bring the clocks up."""
    for _ in range(20):
        lib.run("op.ffma.ilp8", 20000, Setting(grid=264, block=512))


# ---- instructions


def matrix(lib: Library, put: Put) -> None:
    """wgmma and mma.sync on one SM. Cycles."""
    warm_up(lib)
    for kernel in generate.kernels():
        if kernel.name.startswith("wgmma."):
            put(kernel.name, lambda k=kernel: wgmma_case(lib, k.name, k.work))
        elif kernel.name.startswith("mma."):
            put(kernel.name, lambda k=kernel: mma_case(lib, k.name, k.work))


def wgmma_case(lib: Library, name: str, unroll: int) -> dict[str, float]:
    """Group of one: round trip. Groups of 8, 16, 64: interval, and what a group costs beyond that."""
    one = Setting(block=128, shared=41 * KIB, p=(1,))
    if unroll == 1:
        return {"round_trip": r(lib.slope(name, 50, 550, one)[0])}
    if name.endswith("wait1"):  # one group stays under way
        return {
            f"cycles_per_wgmma_groups_of_{unroll * inner}": r(
                lib.slope(name, 20, 220, replace(one, p=(inner,)))[0] / (unroll * inner)
            )
            for inner in (1, 2, 4)
        }
    group = {inner: lib.slope(name, 20, 120, replace(one, p=(inner,)))[0] for inner in (1, 2, 8)}
    interval = (group[8] - group[2]) / (6 * unroll)
    values = {
        "interval": r(interval),
        "group_of_8": r(group[1]),
        "group_of_16": r(group[2]),
        "group_of_64": r(group[8]),
        "group_overhead": r(group[8] - 8 * unroll * interval),
    }
    two = replace(one, block=256)
    both = {inner: lib.slope(name, 20, 120, replace(two, p=(inner,)))[0] for inner in (1, 8)}
    values["two_warpgroups_interval"] = r((both[8] - both[1]) / (7 * unroll) / 2)
    values["two_warpgroups_group_of_8"] = r(both[1])
    return values


def mma_case(lib: Library, name: str, unroll: int) -> dict[str, float]:
    """Cycles per instruction of a warp, by number of warps (4: one for each sub-core)."""
    return {
        f"warps_{warps}": r(lib.slope(name, 20, 220, Setting(block=warps * 32))[0] / unroll) for warps in (1, 4, 8, 16)
    }


def vector(lib: Library, put: Put) -> None:
    """Elementwise operations: latency, and results per cycle and SM."""
    warm_up(lib)
    for name, *_ in generate.OPERATIONS:
        put(name, lambda name=name: operation_case(lib, name))


def operation_case(lib: Library, name: str) -> dict[str, float]:
    """ilp1 on one warp; ilp8 on 4, 8, 16, 32 warps."""
    chain, wide = f"op.{name}.ilp1", f"op.{name}.ilp8"
    work = lib.work(wide)
    values = {"latency": r(lib.slope(chain, 20, 220, Setting(block=32))[0] / work)}
    for warps in (4, 8, 16, 32):
        cycles = lib.slope(wide, 20, 120, Setting(block=warps * 32))[0] / work
        values[f"threads_per_cycle_per_sm_warps_{warps}"] = r(32 * warps / cycles)
    return values


# ---- one SM


def shared(lib: Library, put: Put) -> None:
    """Shared memory of one SM: latency in cycles (with one dependent add, about 4), rates in bytes per cycle."""
    warm_up(lib)
    for name in ("lds32_latency", "lds64_latency", "lds128_latency", "ldmatrix4_latency"):
        put(name, lambda name=name: {"cycles": r(lib.slope(name, 20, 220, Setting(block=32, shared=32 * KIB))[0] / 16)})
    rates = {
        "lds32_rate": 4, "lds64_rate": 8, "lds128_rate": 16, "ldmatrix1_rate": 4, "ldmatrix2_rate": 8,
        "ldmatrix4_rate": 16, "ldmatrix4_trans_rate": 16, "sts32_rate": 4, "sts64_rate": 8, "sts128_rate": 16,
        "stmatrix4_rate": 16,
    }  # fmt: skip
    for name, size in rates.items():
        put(name, lambda name=name, size=size: shared_rate(lib, name, size))
    for stride in (8, 16, 32, 64, 128):
        put(f"lds32_rate stride {stride} bytes", lambda s=stride: conflict(lib, "lds32_rate", 4, s))
    for stride in (32, 64, 128, 256):
        put(f"lds128_rate stride {stride} bytes", lambda s=stride: conflict(lib, "lds128_rate", 16, s))
    for cluster in (2, 4):
        setting = Setting(grid=cluster, block=32, shared=64 * KIB, cluster=cluster)
        put(
            f"dsm_latency cluster {cluster}",
            lambda s=setting: {"cycles": r(lib.slope("dsm_latency", 20, 220, s)[0] / 16)},
        )
        wide = replace(setting, block=1024)
        put(f"dsm_rate cluster {cluster}", lambda s=wide: distributed_rate(lib, s))
    full = Setting(grid=132, block=1024, shared=64 * KIB, cluster=2)
    put("dsm_rate cluster 2, all SMs", lambda: distributed_rate(lib, full))


def distributed_rate(lib: Library, setting: Setting) -> dict[str, float]:
    """Bytes that each block reads per cycle from its neighbour."""
    cycles = lib.slope("dsm_rate", 20, 120, setting)[0] / 16
    return {"bytes_per_cycle_per_block": r(setting.block * 16 / cycles)}


def shared_rate(lib: Library, name: str, size: int) -> dict[str, float]:
    """Neighbouring threads at neighbouring addresses."""
    step = 16 if "matrix" in name else size
    values = {}
    for warps in (1, 4, 8, 16, 32):
        setting = Setting(block=warps * 32, shared=64 * KIB, p=(step,))
        cycles = lib.slope(name, 20, 120, setting)[0] / 16
        values[f"bytes_per_cycle_warps_{warps}"] = r(size * 32 * warps / cycles, 2)
    return values


def conflict(lib: Library, name: str, size: int, stride: int) -> dict[str, float]:
    """Threads `stride` bytes apart, 16 warps."""
    cycles = lib.slope(name, 20, 120, Setting(block=512, shared=64 * KIB, p=(stride,)))[0] / 16
    return {"bytes_per_cycle": r(size * 512 / cycles, 2), "cycles_per_warp_load": r(cycles / 16)}


def sync(lib: Library, put: Put) -> None:
    """Barriers, in cycles; launches, in microseconds."""
    warm_up(lib)
    for warps in (1, 4, 8, 12, 16, 32):
        put(
            f"syncthreads {warps} warps",
            lambda w=warps: {"cycles": r(lib.slope("syncthreads", 20, 220, Setting(block=32 * w))[0] / 16)},
        )
    for cluster in (2, 4, 8):
        setting = Setting(grid=cluster, block=384, cluster=cluster)
        put(
            f"cluster_sync {cluster}",
            lambda s=setting: {"cycles": r(lib.slope("cluster_sync", 20, 220, s)[0] / 16)},
        )
    for cluster in (2, 4):
        setting = Setting(grid=cluster, block=384, cluster=cluster)
        put(
            f"cluster_sync_relaxed {cluster}",
            lambda s=setting: {"cycles": r(lib.slope("cluster_sync_relaxed", 20, 220, s)[0] / 16)},
        )
    for name, unroll in (
        ("mbarrier_arrive_test", 16),
        ("mbarrier_ping_pong_test", 1),
        ("mbarrier_arrive", 16),
        ("mbarrier_try", 16),
        ("mbarrier_arrive_wait", 16),
        ("mbarrier_ping_pong", 1),
        ("fence_async", 16),
    ):
        block = 64 if "ping_pong" in name else 32
        put(
            name,
            lambda n=name, u=unroll, b=block: {
                "cycles": r(lib.slope(n, 20, 220, Setting(block=b, shared=1024))[0] / u)
            },
        )
    shapes = {
        "1 block of 32": Setting(grid=1, block=32),
        "132 blocks of 128": Setting(grid=132, block=128),
        "132 blocks of 384, 200 KiB": Setting(grid=132, block=384, shared=200 * KIB),
        "132 blocks of 384, 200 KiB, cluster 2": Setting(grid=132, block=384, shared=200 * KIB, cluster=2),
        "128 blocks of 384, 200 KiB, cluster 4": Setting(grid=128, block=384, shared=200 * KIB, cluster=4),
        "1056 blocks of 384, 200 KiB": Setting(grid=1056, block=384, shared=200 * KIB),
        "1056 blocks of 384, 200 KiB, cluster 2": Setting(grid=1056, block=384, shared=200 * KIB, cluster=2),
        "8448 blocks of 384, 200 KiB": Setting(grid=8448, block=384, shared=200 * KIB),
        "8448 blocks of 128": Setting(grid=8448, block=128),
    }
    for label, setting in shapes.items():
        put(
            f"launch us: {label}",
            lambda s=setting: {
                "stream_back_to_back": r(lib.launches("nothing", s, 0, 200)),
                "graph_of_20": r(lib.launches("nothing", s, 1, 20)),
                "launch_and_wait": r(lib.launches("nothing", s, 2, 200)),
            },
        )
        put(f"kernel span in a graph: {label}", lambda s=setting: spans(lib, s))


def spans(lib: Library, s: Setting) -> dict[str, float]:
    """Global timer of 20 empty kernels in a graph: first block's start to last one's end, and the gap to the next."""
    count = 20
    lib.launches("empty", s, 1, count, repeats=3, step=s.grid * 8)
    rows = lib.records(s.grid * count)[:, 2:4].astype(np.int64).reshape(count, s.grid, 2)
    inside = [int(k[:, 1].max() - k[:, 0].min()) for k in rows]
    pairs = range(count - 1)
    return {
        "span_ns": statistics.median(inside),
        "gap_ns": statistics.median(int(rows[i + 1][:, 0].min() - rows[i][:, 1].max()) for i in pairs),
        "start_to_start_ns": statistics.median(int(rows[i + 1][:, 0].min() - rows[i][:, 0].min()) for i in pairs),
    }


# ---- memory


def latency(lib: Library, put: Put) -> None:
    """Dependent loads: SM cycles each. Places are visited in a scattered order."""
    warm_up(lib)
    put("global timer step ns", lambda: timer_step(lib))
    put("L1 hit, 16 KiB", lambda: chase(lib, "chase_l1", 16 * KIB, 128, 256, 2048))
    for mib in (1, 4, 8, 16, 32, 64):
        put(f"load, {mib} MiB in L2", lambda m=mib: chase(lib, "chase_l2", m * MIB, 128, 512, 4096, warm=True))
    for mib in (128, 512, 4096):
        put(f"load, {mib} MiB of HBM", lambda m=mib: cold_chase(lib, m * MIB))
    put("load, 16 MiB in L2, all SMs", lambda: chase(lib, "chase_l2", 16 * MIB, 128, 512, 4096, True, 132))
    put("one line from each SM", lambda: lines(lib))
    put("atomic add, dependent", lambda: {"cycles": r(lib.slope("atomic_latency", 64, 1024, Setting(block=32))[0])})
    for size in (128, 1 * KIB, 4 * KIB, 16 * KIB, 32 * KIB):
        put(f"TMA bulk {size} B, 8 MiB in L2", lambda s=size: tma_chase(lib, s, 8 * MIB, False))
        put(f"TMA bulk {size} B, HBM", lambda s=size: tma_chase(lib, s, LARGE, True))
    for rows in (8, 64, 128, 256):
        put(f"TMA box 64 x {rows} of fp16, 8 MiB in L2", lambda n=rows: tensor_chase(lib, n, 2048, 2048, False))
        put(f"TMA box 64 x {rows} of fp16, HBM", lambda n=rows: tensor_chase(lib, n, 16384, 65536, True))
    for size in (16, 128, 512, 1 * KIB, 2 * KIB, 4 * KIB):
        put(f"TMA issue, {size} B each", lambda s=size: tma_issue(lib, s))


def timer_step(lib: Library) -> dict[str, float]:
    """Resolution of the global timer."""
    lib.run("timer_steps", 20000, Setting(block=32))
    return {"nanoseconds": int(lib.records(1)[0, 4])}


def chase(lib: Library, name: str, footprint: int, stride: int, low: int, high: int, warm: bool = False,
          grid: int = 1) -> dict[str, float]:  # fmt: skip
    """A footprint that stays in cache; every run visits other lines of it, or (not warm) the same."""
    found, worst = [], []
    for seed in range(3):
        runs = []
        for which, count in enumerate((low, high)):
            if warm:
                lib.run("ldg_read", max(1, 3 * footprint // (32 * KIB) // 132), Setting(132, 256, footprint=footprint))
            first = (2 * seed + which) * 65537 if warm else 0
            runs.append(lib.run(name, count, Setting(grid, 32, footprint=footprint, p=(stride, first, 977))).cycles)
        found.append(float(np.median(runs[1]) - np.median(runs[0])) / (high - low))
        worst.append(float(runs[1].max() - runs[0].max()) / (high - low))
    return {"cycles": r(statistics.median(found)), "slowest_block": r(statistics.median(worst))}


def cold_chase(lib: Library, footprint: int) -> dict[str, float]:
    """Lines that are not in L2."""
    found, seed = [], 1
    for _ in range(3):
        cycles = []
        for count in (64, 1024):
            lib.flush()
            seed += 5003
            setting = Setting(block=32, footprint=footprint, p=(512, seed, 0), source=LARGE - footprint)
            cycles.append(float(lib.run("chase_l2", count, setting).cycles[0]))
        found.append((cycles[1] - cycles[0]) / 960)
    return {"cycles": r(statistics.median(found)), "least": r(min(found)), "most": r(max(found))}


def lines(lib: Library) -> dict[str, object]:
    """Latency from each SM to each of 32 lines: how it spreads (near and far L2 partition)."""
    table, order = [], None
    for line in range(32):
        setting = Setting(grid=132, block=32, p=(line * 4096 + line * 128,))
        low, high = lib.run("line_latency", 64, setting), lib.run("line_latency", 320, setting)
        order = high.blocks[:, 4].astype(int)
        table.append(((high.cycles - low.cycles) / 256)[np.argsort(order)])
    values = np.array(table)
    return {
        "least": r(values.min()),
        "most": r(values.max()),
        "median": r(np.median(values)),
        "histogram_20_cycles": {
            int(edge): int(((values >= edge) & (values < edge + 20)).sum()) for edge in range(160, 700, 20)
        },
        "first_line_by_sm": [r(x, 1) for x in values[0]],
    }


def tma_chase(lib: Library, size: int, footprint: int, cold: bool) -> dict[str, float]:
    """One bulk copy at a time: cycles from issue until the wait ends."""
    stride = max(size, 128)
    found, seed = [], 1
    for _ in range(3):
        cycles = []
        for count in (32, 288):
            if cold:
                lib.flush()
            else:
                lib.run("ldg_read", 64, Setting(132, 256, footprint=footprint))
            seed += 5003
            setting = Setting(block=32, shared=40 * KIB, footprint=footprint, p=(size, stride, seed))
            cycles.append(float(lib.run("tma_latency", count, setting).cycles[0]))
        found.append((cycles[1] - cycles[0]) / 256)
    return {"cycles": r(statistics.median(found))}


def tensor_chase(lib: Library, rows: int, columns: int, height: int, cold: bool) -> dict[str, float]:
    """One tensor copy at a time."""
    size, found, seed = rows * 128, [], 1
    for _ in range(3):
        cycles = []
        for count in (32, 288):
            if cold:
                lib.flush()
            else:
                lib.run("ldg_read", 64, Setting(132, 256, footprint=columns * height * 2))
            seed += 5003
            setting = Setting(
                block=32, shared=40 * KIB, p=(size, seed, 0, rows, columns, height), tensor=(columns, height, rows)
            )
            cycles.append(float(lib.run("tma_tensor_latency", count, setting).cycles[0]))
        found.append((cycles[1] - cycles[0]) / 256)
    return {"cycles": r(statistics.median(found))}


def tma_issue(lib: Library, size: int) -> dict[str, float]:
    """Cycles between issues of one thread, and between completions."""
    setting, values = Setting(block=32, shared=40 * KIB, p=(size,)), {}
    rows = {}
    for count in (16, 64, 128, 240):
        runs = [lib.run("tma_issue", count, setting) for _ in range(4)][1:]
        rows[count] = (
            statistics.median(int(x.blocks[0, 4]) for x in runs),
            statistics.median(int(x.cycles[0]) for x in runs),
        )
    values["one_thread_issue_interval_short"] = r((rows[64][0] - rows[16][0]) / 48)
    values["one_thread_issue_interval"] = r((rows[240][0] - rows[128][0]) / 112)
    values["one_thread_completion_interval"] = r((rows[240][1] - rows[128][1]) / 112)
    for warps in (1, 2, 4):
        pair = []
        for count in (32, 128):
            runs = [lib.run("tma_issue_elected", count, replace(setting, block=32 * warps)) for _ in range(4)][1:]
            pair.append((statistics.median(int(x.blocks[0, 4]) for x in runs),
                         statistics.median(int(x.cycles[0]) for x in runs)))  # fmt: skip
        values[f"elected_{warps}_warps_issue_interval"] = r((pair[1][0] - pair[0][0]) / 96 / warps)
        values[f"elected_{warps}_warps_completion_interval"] = r((pair[1][1] - pair[0][1]) / 96 / warps)
    return values


def bandwidth(lib: Library, put: Put) -> None:
    """L2 and HBM by loads and stores: all SMs, by footprint; and by number of SMs."""
    lib.fill(6)
    warm_up(lib)
    wide = Setting(grid=132 * 8, block=256)

    def stream(name: str, s: Setting, total: int, moved: int = 1) -> dict[str, float]:
        high = max(12, total // (s.block * 128 * s.grid))
        found = lib.rate(name, max(2, high // 5), high, s, s.block * 128 * moved)
        return {k: float(f"{v:.5g}") for k, v in found.items()}

    for mib in (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 80, 100, 128, 200, 512, 4096):
        put(
            f"read, {mib} MiB",
            lambda m=mib: stream("ldg_read", replace(wide, footprint=m * MIB), (2 if m < 64 else 6) * GIB),
        )
    for mib in (1, 8, 16, 32):
        put(
            f"read, {mib} MiB, every block the same chunks",
            lambda m=mib: stream("ldg_read", replace(wide, footprint=m * MIB, p=(1,)), 2 * GIB),
        )
    for mib in (1, 8, 16, 24, 32, 48, 64, 128, 4096):
        put(
            f"write, {mib} MiB",
            lambda m=mib: stream("stg_write", replace(wide, footprint=m * MIB), (2 if m < 64 else 6) * GIB),
        )
    for mib in (4, 8, 16, 24, 4096):
        put(
            f"copy, {mib} MiB to as many (read and written counted)",
            lambda m=mib: stream("copy", replace(wide, footprint=m * MIB), (2 if m < 64 else 6) * GIB, 2),
        )
    for sms in (1, 2, 4, 8, 16, 33, 66, 99, 132):
        one = Setting(grid=sms, block=1024, shared=120 * KIB, footprint=16 * MIB)
        put(f"read, 16 MiB in L2, {sms} SMs", lambda s=one: stream("ldg_read", s, 16 * MIB * s.grid))
        big = replace(one, footprint=LARGE)
        put(f"read, HBM, {sms} SMs", lambda s=big: stream("ldg_read", s, 16 * MIB * s.grid))


def tma(lib: Library, put: Put) -> None:
    """The bulk copy engine: rate by bytes in flight. "w x KiB x stages": warps, each with a ring of its own."""
    lib.fill(6)
    warm_up(lib)
    places = {"L2 16 MiB": (16 * MIB, 0), "L2 16 MiB shared": (16 * MIB, 1), "L2 32 MiB": (32 * MIB, 0),
              "HBM": (LARGE, 0)}  # fmt: skip

    def ring(name: str, s: Setting, total: int) -> dict[str, float]:
        warps = s.block // 32 if name in ("tma_ring", "tma_tensor_ring") else 1
        high = max(s.p[1] * 3, total // (s.p[0] * warps * s.grid))
        low = max(s.p[1], high // 4)
        return {k: float(f"{v:.5g}") for k, v in lib.rate(name, low, high, s, s.p[0] * warps).items()}

    # fmt: off
    plain = [
        (1, 1, 1), (1, 1, 4), (1, 2, 1), (1, 4, 1), (1, 4, 4), (1, 8, 1), (1, 8, 2), (1, 8, 4), (1, 16, 1), (1, 16, 2),
        (1, 16, 4), (1, 16, 8), (1, 16, 12), (1, 32, 1), (1, 32, 2), (1, 32, 4), (1, 32, 6), (2, 8, 4), (4, 1, 1),
        (4, 1, 4), (4, 2, 4), (4, 4, 1), (4, 4, 2), (4, 4, 4), (4, 4, 8), (4, 8, 1), (4, 8, 2), (4, 8, 4), (4, 8, 6),
        (4, 16, 1), (4, 16, 2), (4, 16, 3), (8, 1, 4), (8, 2, 4), (8, 4, 4), (8, 4, 6), (8, 8, 2), (8, 8, 3),
    ]
    boxes = [
        (1, 64, 1), (1, 64, 4), (1, 128, 1), (1, 128, 4), (1, 256, 1), (1, 256, 4), (2, 64, 4), (2, 128, 2),
        (2, 128, 4), (2, 256, 2), (4, 64, 2), (4, 64, 4), (4, 64, 6), (4, 128, 2), (4, 128, 3),
    ]
    # fmt: on
    for place, (footprint, kind) in places.items():
        for sms in (1, 132):
            for warps, kib, stages in plain:
                s = Setting(
                    grid=sms, block=32 * warps, shared=2 * KIB + warps * kib * stages * KIB, footprint=footprint,
                    p=(kib * KIB, stages, kind),
                )  # fmt: skip
                total = (4 * MIB if sms == 1 else 1 * GIB) if footprint < LARGE else (4 * MIB if sms == 1 else 2 * GIB)
                if sms == 1 and kind == 1:
                    continue
                put(
                    f"bulk, {place}, {sms} SMs, {warps} x {kib} KiB x {stages}",
                    lambda s=s, n=total: ring("tma_ring", s, n),
                )
    for sms in (2, 4, 8, 16, 33, 66, 99):
        s = Setting(grid=sms, block=128, shared=2 * KIB + 128 * KIB, footprint=16 * MIB, p=(8 * KIB, 4, 0))
        put(f"bulk, L2 16 MiB, {sms} SMs, 4 x 8 KiB x 4", lambda s=s: ring("tma_ring", s, 8 * MIB * s.grid))
    for label, (columns, height) in {
        "L2 16 MiB": (4096, 2048), "L2 32 MiB": (4096, 4096), "HBM": (16384, 65536),
    }.items():  # fmt: skip
        for sms in (1, 132):
            for warps, rows, stages in boxes:
                size = rows * 128
                for kind in (0, 1) if sms > 1 else (0,):
                    s = Setting(
                        grid=sms, block=32 * warps, shared=2 * KIB + size * stages * warps,
                        p=(size, stages, kind, rows, columns, height), tensor=(columns, height, rows),
                    )  # fmt: skip
                    total = 4 * MIB if sms == 1 else 1 * GIB
                    put(
                        f"box 64 x {rows} of fp16, {label}{' shared' if kind else ''}, {sms} SMs, "
                        f"{warps} x {size // KIB} KiB x {stages}",
                        lambda s=s, n=total: ring("tma_tensor_ring", s, n),
                    )
    for label, footprint in (("L2 16 MiB", 16 * MIB), ("HBM", LARGE)):
        for sms in (1, 132):
            for kib in (4, 16, 32):
                s = Setting(grid=sms, block=128, shared=64 * KIB, footprint=footprint, p=(kib * KIB, 4, 0))
                put(
                    f"bulk store, {label}, {sms} SMs, {kib} KiB",
                    lambda s=s, n=sms: ring("tma_store_ring", s, 2 * MIB if n == 1 else 1 * GIB),
                )


# ---- pitch


def pitch(lib: Library, put: Put) -> None:
    """Boxes of a matrix whose rows begin off lines of 128 bytes: rate of the bulk copy engine, by bytes of a row."""
    lib.fill(6)
    warm_up(lib)
    for label, height in (("L2 16 MiB", 2048), ("L2 32 MiB", 4096)):
        for columns in (4096, 4160, 4192, 4176, 4168, 4128):
            for warps, rows, stages in ((4, 64, 4), (2, 128, 4)):
                size = rows * 128
                for kind in (0, 1):
                    s = Setting(
                        grid=132, block=32 * warps, shared=2 * KIB + size * stages * warps,
                        p=(size, stages, kind, rows, columns, height), tensor=(columns, height, rows),
                    )  # fmt: skip
                    turns = 1 * GIB // (size * warps * s.grid)
                    put(
                        f"box 64 x {rows} of fp16, rows of {2 * columns} bytes, {label}{' shared' if kind else ''}, "
                        f"132 SMs, {warps} x {size // KIB} KiB x {stages}",
                        lambda s=s, n=turns, size=size, warps=warps: {
                            k: float(f"{v:.5g}")
                            for k, v in lib.rate("tma_tensor_ring", max(s.p[1], n // 4), n, s, size * warps).items()
                        },
                    )


# ---- clocks


def clocks(lib: Library, put: Put) -> None:
    """SM clock and power while one kind of work runs on all SMs; operands zero or random."""
    wgmma = Setting(grid=132, block=256, shared=41 * KIB, p=(64,))
    mma = Setting(grid=132, block=512)
    work = [
        ("wgmma f16 m64n256 ss", "wgmma.f16.ss.n256.acc1.u8.wait0", wgmma, 1),
        ("wgmma f16 m64n128 ss", "wgmma.f16.ss.n128.acc1.u8.wait0", wgmma, 1),
        ("wgmma f16 m64n256 rs", "wgmma.f16.rs.n256.acc1.u8.wait0", wgmma, 1),
        ("wgmma bf16 m64n256 ss", "wgmma.bf16.ss.n256.acc1.u8.wait0", wgmma, 2),
        ("wgmma tf32 m64n256 ss", "wgmma.tf32.ss.n256.acc1.u8.wait0", wgmma, 3),
        ("wgmma e4m3 m64n256 ss", "wgmma.e4m3.ss.n256.acc1.u8.wait0", wgmma, 4),
        ("wgmma s8 m64n256 ss", "wgmma.s8.ss.n256.acc1.u8.wait0", wgmma, 6),
        ("mma f16 m16n8k16", "mma.f16.m16n8k16.acc8", mma, 1),
        ("mma f64 m16n8k16", "mma.f64.m16n8k16.acc4", mma, 5),
        ("ffma", "op.ffma.ilp8", Setting(grid=264, block=1024), 3),
        ("dfma", "op.dfma.ilp8", Setting(grid=264, block=1024), 5),
        ("read HBM", "ldg_read", Setting(grid=1056, block=256, footprint=LARGE), 6),
        ("copy HBM", "copy", Setting(grid=1056, block=256, footprint=LARGE), 6),
    ]
    for label, name, setting, kind in (work[0], work[5], work[7], work[8], work[9]):
        for grid in (66, 131):
            put(
                f"{label}, {grid} blocks: their clock, another SM's",
                lambda n=name, s=setting, g=grid, k=kind: beside(lib, n, replace(s, grid=g), k),
            )
    put("idle, one warp", lambda: {"mhz": r(lib.run("clock_rate", 1, Setting(block=32, p=(2_000_000,))).mhz, 1)})
    for label, name, setting, kind in work:
        for fill in (0, kind):
            put(
                f"{label}, {'random' if fill else 'zeros'}",
                lambda n=name, s=setting, f=fill: sustained(lib, n, s, f),
            )


def beside(lib: Library, name: str, setting: Setting, fill: int) -> dict[str, float]:
    """Effective clocks while some SMs work."""
    lib.fill(fill)
    probe = lib.run(name, 200, setting)
    probe = lib.run(name, 200, setting)
    iterations = max(200, int(200 * 8 / max(probe.ms, 1e-3)))
    for _ in range(8):
        run, other = lib.run_beside(name, iterations, setting, 3_000_000)
    return {"working_mhz": r(run.mhz, 1), "other_sm_mhz": r(other, 1)}


def sustained(lib: Library, name: str, setting: Setting, fill: int, seconds: float = 0.5) -> dict[str, object]:
    """Launches of about 10 ms for `seconds`: clock of each by both timers."""
    lib.fill(fill)
    probe = lib.run(name, 200, setting)
    probe = lib.run(name, 200, setting)
    iterations = max(200, int(200 * 10 / max(probe.ms, 1e-3)))
    began, mhz, times = time.monotonic(), [], []
    with Sampler() as sampler:
        while not mhz or time.monotonic() - began < seconds:
            run = lib.run(name, iterations, setting)
            mhz.append(run.mhz)
            times.append(run.ms)
    late = mhz[len(mhz) // 3 :]
    return {
        "mhz_first_launch": r(mhz[0], 1),
        "mhz_sustained": r(statistics.mean(late), 1),
        "mhz_least": r(min(mhz), 1),
        "ms_per_launch": r(statistics.median(times), 4),
        "iterations": iterations,
        "nvml": sampler.summary(),
    }


GROUPS: dict[str, Callable[[Library, Put], None]] = {
    "matrix": matrix,
    "vector": vector,
    "shared": shared,
    "sync": sync,
    "latency": latency,
    "bandwidth": bandwidth,
    "tma": tma,
    "pitch": pitch,
    "clocks": clocks,
}
