"""Every mechanism of the timing machine from both sides: not done at cycle c - 1, done at c.

A clock on an engine of its own runs until a chosen cycle and then waits for the signal of the instruction looked at.
Set to c - 1 it waits for just one cycle; set to c not at all. c is worked out by hand beside each mechanism.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import pytest
from timing_device import device, load, program, store, sync

from hwsim.machines.timing import run
from hwsim.program.ir import (
    CORE,
    Buffer,
    CoreGroup,
    Derived,
    Instr,
    Kernel,
    LocalTile,
    Semaphore,
    Stream,
    Sync,
    variable,
)

HBM = {"capacity_bytes": 1 << 40, "bytes_per_second": 1e9}  # 1000 bytes a cycle; a cycle is 1000 ns
L2 = {"capacity_bytes": 1 << 30, "bytes_per_second": 1e9}


class Case(NamedTuple):
    """body: the last instruction is looked at. cycle: when it completes. cores: that do the same."""

    name: str
    cycle: int
    body: tuple[Instr, ...]
    device: Mapping[str, object] = MappingProxyType({})
    cores: int = 1
    clock: str = "OUT"
    derived: tuple[Derived, ...] = ()
    semaphores: tuple[Semaphore, ...] = ()


def mma(m, n, k, **more):
    pieces = (LocalTile("la", m, k, "fp16"), LocalTile("lb", k, n, "fp16"))
    return Instr("M", "mma", (LocalTile("lc", m, n, "fp32"),), pieces, unit="mm", **more)


ADD = Instr("V", "add", (LocalTile("ub", 8, 8, "fp32"),), (LocalTile("ub", 8, 8, "fp32"),) * 2)
MOVE = Instr("MOVE", "copy", (LocalTile("la", 17, 33, "fp16"),), (LocalTile("l1", 17, 33, "fp16"),))
FILLED = mma(64, 64, 32, signals=(Sync("full"),))  # from 1 on, 9 + 2 * 16 and 20 to drain: complete at 62
EMPTIED = replace(ADD, waits=(Sync("full"),))  # issued at 2, takes 26
WHOLE, IN_PIECES = (Semaphore("full", 0, pieces) for pieces in (False, True))  # IN_PIECES: UnitFlag
TILE = load("X", 64, 64)  # 8192 bytes: 128 cycles at the link's 64
OWN = load("X", 64, 64, variable(CORE) * 64)
TOGETHER = replace(load("X", 64, 64), multicast=2)

CASES = (
    Case(
        "issue: 1 for IN, then 4 for M; 10 of sync",
        1 + 4 + 10,
        (sync("IN"), sync("M")),
        {"engines__M__issue_cycles": 4},
    ),
    Case(
        "the stream waits for room: third M at 11, V at 12",
        12 + 10,
        (*[sync("M")] * 3, sync("V")),
        {"engines__M__queue_depth": 1},
    ),
    Case(
        "a deeper queue has it: third M at 4 - 1, V at 4",
        4 + 10,
        (*[sync("M")] * 3, sync("V")),
        {"engines__M__queue_depth": 2},
    ),
    Case("mma: 9 + 2 k steps of 16 blocks, 20 to drain", 1 + 9 + 2 * 16 + 20, (mma(64, 64, 32),)),
    Case("accumulate latency: 10 for each k step of one block", 1 + 9 + 2 * 10 + 20, (mma(16, 16, 32),)),
    Case("issue interval: the second mma does not wait for the drain", 1 + 2 * 25 + 20, (mma(64, 64, 16),) * 2),
    Case("repeat", 1 + 3 * 41 + 20, (mma(64, 64, 32, repeat=3),)),
    Case("completions of an engine are in order", 1 + 25 + 20, (mma(64, 64, 16), sync("M"))),
    Case("vector: 24 + 1 repeat of 2", 1 + 26, (ADD,)),
    Case("within a core: 3 + 1152 bytes in requests at 100, then 7", 1 + 3 + 12 + 7, (MOVE,)),
    Case("rate of the link", 1 + 128, (TILE,)),
    Case(
        "overhead before, start-up after the draining",
        1 + 5 + 128 + 190,
        (TILE,),
        {"links__GM_L1__overhead_cycles": 5, "links__GM_L1__startup_cycles": 190},
    ),
    Case(
        "start-up is hidden behind the next transfer",
        1 + 2 * 128 + 190,
        (TILE, TILE),
        {"links__GM_L1__startup_cycles": 190},
    ),
    Case("a row takes 4 cycles at least, and 2 by its bytes", 1 + 64 * 4, (TILE,), {"links__GM_L1__row_cycles": 4.0}),
    Case("a row takes 1 cycle at least, and 2 by its bytes", 1 + 128, (TILE,), {"links__GM_L1__row_cycles": 1.0}),
    Case(
        "what comes from HBM takes the link twice as long",
        1 + 256 + 128,
        (TILE, TILE),
        {"l2": L2, "links__GM_L1__miss_factor": 2.0},
    ),
    Case(
        "half comes from HBM, at 48 bytes a cycle, half does not, at 96",
        1 + 128 + 64 + 128,
        (load("X", 48, 64), load("X", 96, 64)),
        {"l2": L2, "links__GM_L1__bytes_per_cycle": 96.0, "links__GM_L1__miss_factor": 2.0},
    ),
    Case(
        "what is written misses nothing",
        1 + 128,
        (store("Y", 64, 64),),
        {"l2": L2, "links__UB_GM__miss_factor": 2.0},
        1,
        "IN",
    ),
    Case(
        "rows take longer than the link even so",
        1 + 64 * 8,
        (TILE,),
        {"l2": L2, "links__GM_L1__miss_factor": 2.0, "links__GM_L1__row_cycles": 8.0},
    ),
    Case(
        "without L2 all comes from HBM",
        1 + 256,
        (TILE,),
        {"links__GM_L1__miss_factor": 2.0},
    ),
    Case(
        "requests: four rows of 128 bytes take 512 each",
        1 + 32,
        (load("X", 4, 64),),
        {"links__GM_L1__request_bytes": 512},
    ),
    Case("bank conflicts", 1 + 256, (TILE,), {"links__GM_L1__conflict_factor": 2.0}),
    Case(
        "in flight: the second waits until the first has arrived",
        1 + 2 * (128 + 50),
        (TILE, TILE),
        {"links__GM_L1__startup_cycles": 50, "links__GM_L1__in_flight_bytes": 16383},
    ),
    Case(
        "in flight: room for both",
        1 + 2 * 128 + 50,
        (TILE, TILE),
        {"links__GM_L1__startup_cycles": 50, "links__GM_L1__in_flight_bytes": 16384},
    ),
    Case("HBM: 20 cores share 1000 bytes a cycle", 1 + 256, (load("X", 64, 100, variable(CORE) * 64),), cores=20),
    Case(
        "L2 misses once for all cores, 8192 bytes at 1",
        1 + 8192,
        (TILE,),
        {"l2": L2, "hbm": HBM | {"bytes_per_second": 1e6}},
        cores=10,
    ),
    Case(
        "L2 hit: 10 cores share 160 bytes a cycle",
        1 + 8192 + 512,
        (TILE, TILE),
        {"l2": L2 | {"bytes_per_second": 160e6}, "hbm": HBM | {"bytes_per_second": 1e6}},
        cores=10,
    ),
    Case(
        "L2: tiles of their own, each core's over HBM",
        1 + 8 * 128,
        (OWN,),
        {"l2": L2, "hbm": HBM | {"bytes_per_second": 64e6}},
        cores=8,
    ),
    Case("L2 latency of 20 cycles", 1 + 128 + 20, (TILE,), {"l2": L2 | {"latency_ns": 20_000}}),
    Case(
        "a miss arrives 30 cycles after a hit",
        1 + 128 + 20 + 30,
        (TILE,),
        {"l2": L2 | {"latency_ns": 20_000}, "hbm": HBM | {"latency_ns": 30_000}},
    ),
    Case(
        "a hit does not",
        1 + 2 * 128 + 20,
        (TILE, TILE),
        {"l2": L2 | {"latency_ns": 20_000}, "hbm": HBM | {"latency_ns": 30_000}},
    ),
    Case(
        "writes of L2: 16 cores share 512 bytes a cycle, half its rate",
        1 + 256,
        (store("Y", 64, 64, variable(CORE) * 64),),
        {"l2": L2 | {"bytes_per_second": 1.024e9, "write_bytes_per_second": 0.512e9}},
        16,
        "IN",
    ),
    Case(
        "multicast: two cores take L2's 64 bytes a cycle together",
        1 + 128,
        (TOGETHER,),
        {"l2": L2 | {"bytes_per_second": 64e6}, "hbm": HBM},
        cores=2,
    ),
    Case("and one by one", 1 + 256, (TILE,), {"l2": L2 | {"bytes_per_second": 64e6}, "hbm": HBM}, cores=2),
    Case(
        "derived: four cores on two tiles, 16384 bytes at 64",
        1 + 256,
        (load("X", 64, 64, variable("pair") * 64),),
        {"l2": L2, "hbm": HBM | {"bytes_per_second": 64e6}},
        4,
        derived=(Derived("pair", variable(CORE), 2, "quotient"),),
    ),
    Case(
        "derived: four cores on four tiles",
        1 + 512,
        (load("X", 64, 64, variable("all") * 64),),
        {"l2": L2, "hbm": HBM | {"bytes_per_second": 64e6}},
        4,
        derived=(Derived("all", variable(CORE), 4, "remainder"),),
    ),
    Case("handed over whole: begins when the mma is complete", 62 + 26, (FILLED, EMPTIED), semaphores=(WHOLE,)),
    Case(
        "in pieces (UnitFlag): begins with the mma, is not done before it",
        62,
        (FILLED, EMPTIED),
        semaphores=(IN_PIECES,),
    ),
    Case(
        "in pieces: begun at 2, it takes longer than the mma",
        2 + 3 * 26,
        (FILLED, replace(EMPTIED, repeat=3)),
        semaphores=(IN_PIECES,),
    ),
    Case(
        "in pieces: the mma gets its accumulators back as they are emptied, the last at 79, and then 20 to drain",
        1 + 3 * 26 + 20,
        (
            replace(ADD, repeat=3, signals=(Sync("free"),)),
            replace(FILLED, waits=(Sync("free"),), signals=()),
        ),
        semaphores=(Semaphore("free", 0, True),),
    ),
)


def probed(case, until):
    """The case beside a clock that runs until a cycle and then waits for the last instruction of the body."""
    last = replace(case.body[-1], signals=(Sync("done"),))
    ticking = sync(case.clock, repeat=until - 1)  # issued at 1
    waiting = sync(case.clock, "done")
    streams = (Stream("body", (*case.body[:-1], last), case.derived), Stream("clock", (ticking, waiting)))
    buffers = tuple(
        Buffer(name, memory, 1, 65536)
        for name, memory in (("l1", "L1"), ("ub", "UB"), ("la", "LA"), ("lb", "LB"), ("lc", "LC"))
    )
    prog = program(Kernel("k", (CoreGroup(0, case.cores, streams),), buffers, (Semaphore("done"), *case.semaphores)))
    dev = device(**{**case.device, f"engines__{case.clock}__sync_cycles": 1})
    return run(prog, dev, trace=100)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_not_done_a_cycle_before_and_done_then(case):
    for until, waits in ((case.cycle - 1, 1), (case.cycle, 0)):
        timing = probed(case, until)
        assert timing.engines[case.clock].stall_cycles.get("semaphore:done", 0) == waits * case.cores
        last = [row for row in timing.trace.rows if timing.trace.engines[row["engine"]] == case.clock][-1]
        assert timing.trace.causes[last["cause"]] == ("semaphore:done" if waits else "")
        assert int(last["start"]) == case.cycle * 1024
