"""Bandwidth shared by cores, the L2, and the account of engine time, against hand-made numbers."""

import random
from fractions import Fraction
from math import ceil

import pytest
from timing_device import device, kernel, load, program, store, sync

from hwsim.machines.timing import busy, run
from hwsim.program.ir import CORE, Affine, GlobalArray, Loop, variable

CORE_ROWS = variable(CORE) * 64


def hbm(rate):
    return {"capacity_bytes": 1 << 40, "bytes_per_second": rate * 1e6}


def l2(capacity, rate=1e6):
    return {"capacity_bytes": capacity, "bytes_per_second": rate * 1e6}


def ends(prog, dev):
    """End of every transfer in cycles."""
    return [int(r["end"]) / 1024 for r in run(prog, dev, trace=100).trace.rows]


# --- fair shares ----------------------------------------------------------------------------------------------


def test_link_is_the_limit_up_to_the_shared_rate_and_the_share_beyond():
    for cores, cycles in ((1, 200), (15, 200), (16, Fraction(12800 * 16, 1000)), (20, 256), (50, 640)):
        prog = program(kernel((load("X", 64, 100, CORE_ROWS),), counts=(cores,)))
        assert ends(prog, device()) == [1 + ceil(cycles * 1024) / 1024], cores


def test_two_groups_share_by_core_and_speed_up_when_one_ends():
    short, long = (load("X", 64, 50, CORE_ROWS),), (load("X", 64, 100, CORE_ROWS),)
    # 25 cores at 1000 / 25 = 40 bytes: 6400 bytes in 160 cycles. Then 5 cores at their link's 64: 6400 more in 100.
    assert ends(program(kernel(short, long, counts=(20, 5))), device()) == [161, 261]


def test_late_transfer_slows_the_early_one():
    early, late = (load("X", 64, 100, CORE_ROWS),), (sync("IN", repeat=10), load("X", 64, 100, CORE_ROWS))
    dev = device(hbm=hbm(64))
    # alone 1..101 at 64: 6400 bytes; then 32 each: 6400 more until 301; the late one has 6400 left: 401
    got = run(program(kernel(early, late)), dev, trace=10).trace.rows
    assert [int(t) / 1024 for t in got["end"]] == [101, 301, 401]


def test_slow_link_leaves_its_share_to_the_others():
    dev = device(hbm=hbm(100), links__UB_GM__bytes_per_cycle=10.0, links__GM_L1__bytes_per_cycle=1000.0)
    prog = program(kernel((store("Y", 1, 500), load("X", 64, 64, CORE_ROWS)), (load("X", 64, 64, CORE_ROWS),)))
    # store 1000 bytes at 10: from 1 to 101. Loads start at 1 and 2: each gets 45 of the 90 left.
    rows = run(prog, dev, trace=10).trace
    end = {(rows.engines[r["engine"]], int(r["core"])): int(r["end"]) / 1024 for r in rows.rows}
    assert end["OUT", 0] == 101
    alone = 90.0  # core 1's load, from 1 to 2
    at_101 = {0: 8192 - 99 * 45, 1: 8192 - alone - 99 * 45}
    last = 101 + at_101[1] / 50  # then 50 each
    assert abs(end["IN", 1] - last) < 2 / 1024  # 45 and 50 are not whole fractions of a tick
    assert abs(end["IN", 0] - (last + (at_101[0] - at_101[1]) / 100)) < 3 / 1024


def test_l2_rate_is_shared_by_hits():
    body = (load("X", 64, 64), load("X", 64, 64))
    dev = device(l2=l2(1 << 20, rate=160), hbm=hbm(1))
    # miss: 8192 bytes for the group over HBM at 1 byte a cycle; hit: 10 cores share 160 bytes of L2
    assert ends(program(kernel(body, counts=(10,))), dev) == [1 + 8192, 1 + 8192 + 512]


def test_shared_rate_is_used_up_and_never_exceeded():
    """Random transfers of many groups: HBM never moves more than its rate, and moves just that while all are busy."""
    rng = random.Random(7)
    for _ in range(20):
        rate, counts = rng.uniform(50, 500), tuple(rng.randint(1, 9) for _ in range(rng.randint(2, 6)))
        rows = [rng.randint(1, 64) for _ in counts]
        bodies = [(Loop("i", 20, (load("X", r, 256, CORE_ROWS),)),) for r in rows]
        timing = run(program(kernel(*bodies, counts=counts)), device(hbm=hbm(rate)), trace=1000)
        moved = sum(count * 20 * r * 512 for count, r in zip(counts, rows, strict=True))
        assert timing.traffic_bytes["HBM read"] == moved
        first_end = (
            min(
                max(int(r["end"]) for r in timing.trace.rows if r["core"] == core)
                for core in set(timing.trace.rows["core"])
            )
            / 1024
        )
        demand = sum(counts) * 64 >= rate
        done = sum(int(r["bytes"]) * int(r["cores"]) for r in timing.trace.rows if r["end"] <= first_end * 1024)
        begun = sum(int(r["bytes"]) * int(r["cores"]) for r in timing.trace.rows if r["start"] < first_end * 1024)
        assert timing.cycles * rate >= moved
        if demand:
            assert done <= (first_end - 1) * rate * 1.0001 and begun >= (first_end - 1) * rate * 0.9999
        for row in timing.trace.rows:
            assert (int(row["end"]) - int(row["start"])) / 1024 >= int(row["bytes"]) / 64


# --- L2 -------------------------------------------------------------------------------------------------------


def traffic(*bodies, dev, counts=()):
    return run(program(*(kernel(body, counts=counts) for body in bodies)), dev).traffic_bytes


def tile(i, array="X"):
    """16 x 16 fp16 = one sector of 512 bytes, each in a block of its own."""
    return load(array, 16, 16, variable("zero") + 128 * i)


def test_second_read_of_a_tile_hits():
    got = traffic((tile(0), tile(0)), dev=device(l2=l2(4096)))
    assert got == {"GM_L1": 1024, "L2 read": 1024, "HBM read": 512}
    assert traffic((tile(0), tile(0)), dev=device()) == {"GM_L1": 1024, "HBM read": 1024}


def test_least_recently_used_is_evicted():
    assert traffic((tile(0), tile(1), tile(0), tile(1)), dev=device(l2=l2(1024)))["HBM read"] == 1024
    assert traffic((tile(0), tile(1), tile(2), tile(0)), dev=device(l2=l2(1024)))["HBM read"] == 2048
    assert traffic((tile(0), tile(1), tile(2), tile(1)), dev=device(l2=l2(1024)))["HBM read"] == 1536
    assert traffic((tile(0), tile(1), tile(0), tile(2), tile(0)), dev=device(l2=l2(1024)))["HBM read"] == 1536
    assert traffic((tile(0), tile(1), tile(2), tile(0)), dev=device(l2=l2(1535)))["HBM read"] == 2048
    assert traffic((tile(0), tile(1), tile(2), tile(0)), dev=device(l2=l2(1536)))["HBM read"] == 1536


def test_written_tile_is_read_from_l2_and_written_back_when_evicted():
    write = store("X", 16, 16)
    assert traffic((write,), (tile(0),), dev=device(l2=l2(1024))) == {
        "UB_GM": 512,
        "GM_L1": 512,
        "L2 write": 512,
        "L2 read": 512,
    }
    got = traffic((write,), (tile(1), tile(2)), dev=device(l2=l2(1024)))
    assert got == {"UB_GM": 512, "GM_L1": 1024, "L2 write": 512, "L2 read": 1024, "HBM read": 1024, "HBM write": 512}
    clean = traffic((tile(0),), (tile(1), tile(2)), dev=device(l2=l2(1024)))
    assert "HBM write" not in clean


def test_write_backs_may_wait_until_hbm_is_idle():
    """Tiles as large as L2, 8192 bytes; the link takes 64 a cycle, HBM 10. Each but the first pushes one out."""
    stores = program(kernel(tuple(store("X", 64, 64, Affine(128 * i)) for i in range(4))))

    def found(most):
        timed = run(stores, device(hbm=hbm(10), l2=l2(8192) | {"deferred_write_bytes": most}), trace=4)
        assert timed.traffic_bytes["HBM write"] == 3 * 8192
        return [row["end"] / 1024 for row in timed.trace.rows]

    assert found(0) == pytest.approx([129, 948.2, 1767.4, 2586.6], abs=0.01)
    assert found(16384 + 5632) == pytest.approx([129, 257, 385, 513], abs=0.01)  # the last pushes out while 5632 wait
    # The third finds 1280 bytes of room, which HBM has written in 128 cycles, and pays for 6912; the fourth for all.
    assert found(8192) == pytest.approx([129, 257, 257 + 691.2, 257 + 691.2 + 819.2], abs=0.01)
    flushed = run(stores, device(hbm=hbm(10), l2=l2(8192) | {"deferred_write_bytes": 8192}), write_back=True)
    assert flushed.kernels[1].cycles == 1638  # 8192 in L2, and of 8192 those that the last 0.6 cycles left


def test_write_back_is_paid_by_the_transfer_that_evicts():
    dev = device(l2=l2(1024), hbm=hbm(32))
    reads = (tile(1), tile(2))
    plain = run(program(kernel((tile(0),)), kernel(reads)), dev).kernels[1].cycles
    dirty = run(program(kernel((store("X", 16, 16),)), kernel(reads)), dev).kernels[1].cycles
    assert (plain, dirty) == (1 + 16 + 16, 1 + 16 + 32)


def test_group_misses_once_on_a_shared_tile_and_per_core_on_its_own():
    dev = device(l2=l2(1 << 20))
    shared = traffic((load("X", 64, 64),), dev=dev, counts=(8,))
    own = traffic((load("X", 64, 64, CORE_ROWS),), dev=dev, counts=(8,))
    assert (shared["HBM read"], shared["L2 read"]) == (8192, 8 * 8192)
    assert (own["HBM read"], own["L2 read"]) == (8 * 8192, 8 * 8192)


def test_cores_find_what_other_cores_wrote():
    """Core i writes row block i; then core i reads block 7 - i, and the whole is read in other shapes."""
    dev = device(l2=l2(1 << 20))
    write = (store("X", 64, 64, CORE_ROWS),)
    back = (load("X", 64, 64, variable(CORE) * -64 + 448),)
    shapes = (load("X", 512, 16), load("X", 16, 64, variable("zero") + 32))
    prog = program(kernel(write, counts=(8,)), kernel(back, counts=(8,)), kernel(shapes))
    assert "HBM read" not in run(prog, dev).traffic_bytes
    beyond = kernel((load("X", 64, 96),))  # columns 64..95 were not written
    assert run(program(kernel(write, counts=(8,)), beyond), dev).traffic_bytes["HBM read"] == 64 * 32 * 2


def test_overlapping_tiles_fetch_each_sector_once():
    dev = device(l2=l2(1 << 30))
    i = variable("i")
    sliding = (Loop("i", 63, (load("X", 64, 64, i * 16, i * 16),)),)
    assert traffic(sliding, dev=dev)["HBM read"] == (63 * 64 * 64 - 62 * 48 * 48) * 2
    rows = (Loop("i", 100, (load("X", 1, 4096, i),)),)  # rows 0..99 touch sectors of rows 0..111
    assert traffic(rows, dev=dev)["HBM read"] == 112 * 8192


def test_edges_of_an_array_count_what_is_there():
    dev = device(l2=l2(1 << 30))
    arrays = (GlobalArray("X", 67, 67, "fp16"), GlobalArray("Y", 3, 1, "fp32"))
    prog = program(kernel((load("X", 67, 67), load("Y", 3, 1, fmt="fp32"))), arrays=arrays)
    assert run(prog, dev).traffic_bytes["HBM read"] == 67 * 67 * 2 + 12


def test_larger_than_l2_streams_again():
    dev = device(l2=l2(64 * 1024))
    i = variable("i")
    stream = (Loop("p", 2, (Loop("i", 32, (load("X", 128, 64, i * 128),)),)),)  # 512 KB, twice
    assert traffic(stream, dev=dev)["HBM read"] == 2 * 32 * 128 * 128
    assert traffic(stream, dev=device(l2=l2(1 << 20)))["HBM read"] == 32 * 128 * 128


# --- account --------------------------------------------------------------------------------------------------


def mixed():
    i = variable("i")
    body = (
        Loop(
            "i",
            17,
            (
                load("X", 64, 64, CORE_ROWS, i * 64, "free", "full"),
                sync("M", "full", "free mid", repeat=3),
                sync("V", "mid"),
                store("Y", 64, 48, CORE_ROWS, i * 48),
            ),
        ),
    )
    other = (Loop("i", 9, (load("X", 64, 33, CORE_ROWS, i * 33),)), sync("V", repeat=7))
    return program(kernel(body, other, counts=(20, 12), semaphores={"free": 2, "full": 0, "mid": 0}), kernel(other))


def test_busy_and_stalls_are_the_whole_time_of_all_cores():
    timing = run(mixed(), device(l2=l2(1 << 18, rate=1500), hbm=hbm(777.7)))
    for part in timing.kernels:
        for cores, engines in ((part.cores, part.engines), (1, part.critical)):
            assert set(engines) == {"M", "V", "IN", "MOVE", "OUT"}
            for time in engines.values():
                assert time.busy_cycles + sum(time.stall_cycles.values()) == part.cycles * cores
    total = sum(part.cycles * part.cores for part in timing.kernels)
    assert all(t.busy_cycles + sum(t.stall_cycles.values()) == total for t in timing.engines.values())
    assert timing.cycles == sum(part.cycles for part in timing.kernels)
    assert timing.engines["M"].busy_cycles == 20 * 17 * 30
    assert timing.engines["M"].stall_cycles["semaphore:full"] > 0


def test_the_brief_run_has_the_times_of_the_whole_one():
    prog, dev = mixed(), device(l2=l2(1 << 18, rate=1500), hbm=hbm(777.7), core_start_us=3.0)
    timing = run(prog, dev)
    for name, time in timing.engines.items():
        assert busy(prog, dev, name) == (timing.cycles, time.busy_cycles)


def test_two_runs_are_the_same_to_the_last_tick():
    dev = device(l2=l2(1 << 18, rate=1500), hbm=hbm(777.7))
    first, second = run(mixed(), dev, trace=10_000), run(mixed(), dev, trace=10_000)
    assert first.trace.rows.tobytes() == second.trace.rows.tobytes()
    assert first.kernels == second.kernels


def test_splitting_a_group_of_equal_cores_changes_nothing():
    body = (Loop("i", 9, (load("X", 64, 64, CORE_ROWS, variable("i") * 64), sync("M"))),)
    dev = device(l2=l2(1 << 18, rate=1200), hbm=hbm(500))
    whole, split = (
        run(program(kernel(*bodies, counts=counts)), dev)
        for bodies, counts in (((body,), (24,)), ((body, body, body), (8, 8, 8)))
    )
    assert (whole.cycles, whole.engines, whole.traffic_bytes) == (split.cycles, split.engines, split.traffic_bytes)
