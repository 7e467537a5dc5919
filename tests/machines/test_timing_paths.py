"""Ports, bytes in flight, latencies and full queues: each rule with a tiny program worked out by hand.

`done_at` looks at both sides: an instruction is not done one cycle earlier, and done then.
"""

from dataclasses import replace

import pytest
from timing_device import ZERO, device, kernel, load, program, store, sync

from hwsim.devices import at_clock
from hwsim.errors import ProgramError, UnsupportedError
from hwsim.machines.timing import run, seconds
from hwsim.program.check import check
from hwsim.program.ir import Buffer, Instr, LocalTile, Loop, Stream, variable

TICKS = 1024
MM = "instructions__mm__timing"


def rows_of(prog, dev):
    trace = run(prog, dev, trace=1000).trace
    return [
        {
            **{n: int(row[n]) / TICKS for n in ("issue", "start", "free", "end")},
            "engine": trace.engines[row["engine"]],
            "cause": trace.causes[row["cause"]],
        }
        for row in trace.rows
    ]


def done_at(instrs, dev, cycle, semaphores=None):
    """Whether the last of `instrs` is not done at `cycle` - 1 and is done at `cycle`: a watcher on V waits for it."""
    *before, last = instrs
    last = Instr(
        last.engine, last.opcode, last.writes, last.reads, last.waits, (*last.signals, *sync("V", "", "it").signals)
    )
    prog = program(kernel((*before, last, sync("V", "it")), semaphores={"it": 0, **(semaphores or {})}))
    start = next(r["start"] for r in rows_of(prog, dev) if r["engine"] == "V")
    return cycle - 1 < start <= cycle


def move(rows=16, cols=64, repeat=1, **more):
    """rows * 128 bytes from L1 to LA."""
    return Instr(
        "MOVE",
        "copy",
        (LocalTile("la", rows, cols, "fp16"),),
        (LocalTile("l1", rows, cols, "fp16"),),
        repeat=repeat,
        **more,
    )


def mma(m, n, k):
    return Instr(
        "M",
        "mma",
        (LocalTile("lc", m, n, "fp32"),),
        (LocalTile("la", m, k, "fp16"), LocalTile("lb", k, n, "fp16")),
        unit="mm",
    )


def l2(capacity, rate=1e5, **more):
    return {"capacity_bytes": capacity, "bytes_per_second": rate * 1e6, **more}


# --- matrix instructions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "timing, cycles",
    [
        ({"macs_per_cycle": 1024.0}, 8 * 4),  # 16 * 16 * 16 / 1024 = 4 for each of 2 x 2 x 2 blocks
        ({"macs_per_cycle": 1000.0}, 8 * 4.096),
        ({"issue_interval_cycles": 4.0}, 8 * 4),
        ({"macs_per_cycle": 1024.0, "overhead_cycles": 5}, 5 + 8 * 4),
        ({"macs_per_cycle": 1024.0, "accumulate_latency_cycles": 30}, 2 * 30),
        # A is 512 bytes a block, in LA; B as much, in LB
        ({"macs_per_cycle": 1024.0, "operand_bytes_per_cycle": {"LA": 64.0}}, 8 * 8),
        ({"macs_per_cycle": 1024.0, "operand_bytes_per_cycle": {"LA": 64.0, "LB": 32.0}}, 8 * 16),
        ({"macs_per_cycle": 1024.0, "operand_bytes_per_cycle": {"LA": 512.0, "UB": 1.0}}, 8 * 4),
        # the accumulators are 32 x 32
        ({"macs_per_cycle": 1024.0, "tile_macs_per_cycle": {"32x32": 512.0}}, 8 * 8),
        ({"macs_per_cycle": 1024.0, "tile_macs_per_cycle": {"32x64": 512.0}}, 8 * 4),
    ],
)
def test_interval_by_rate_and_by_what_feeds_the_operands(timing, cycles):
    dev = device(**{MM: timing})
    (row,) = rows_of(program(kernel((mma(32, 32, 32),))), dev)
    assert row["free"] - row["start"] == pytest.approx(cycles, abs=1 / TICKS) and row["free"] - row["start"] >= cycles


@pytest.mark.parametrize(
    "rates, order, cycles",
    [
        ({"any": 512.0}, ("rows", "columns"), 8 * 4),  # both along K
        ({"any": 512.0}, ("rows", "rows"), 8 * 8),
        ({"any": 512.0}, ("columns", "columns"), 8 * 8),
        ({"32x32": 256.0, "any": 512.0}, ("rows", "rows"), 8 * 16),
        ({"32x64": 256.0}, ("rows", "rows"), 8 * 4),  # not this tile
        ({}, ("columns", "rows"), 8 * 4),
    ],
)
def test_operands_that_do_not_run_along_k(rates, order, cycles):
    dev = device(**{MM: {"macs_per_cycle": 1024.0, "mn_major_macs_per_cycle": rates}})
    one = mma(32, 32, 32)
    one = replace(one, reads=tuple(replace(tile, order=x) for tile, x in zip(one.reads, order, strict=True)))
    (row,) = rows_of(program(kernel((one,))), dev)
    assert row["free"] - row["start"] == cycles


def test_operands_in_one_memory_share_its_port():
    """B may lie in LA too: then both blocks come through one port."""
    timing = {"macs_per_cycle": 4096.0, "operand_bytes_per_cycle": {"LA": 128.0}}
    dev = device(instructions__mm__memories=("LA", ("LA", "LB"), "LC"), **{MM: timing})
    apart = mma(16, 16, 16)
    together = Instr("M", "mma", apart.writes, (apart.reads[0], LocalTile("la", 16, 16, "fp16", ZERO + 1)), unit="mm")
    check(program(kernel((apart, together))), dev)
    assert [r["free"] - r["start"] for r in rows_of(program(kernel((apart, together))), dev)] == [4, 8]
    wrong = Instr("M", "mma", apart.writes, (apart.reads[0], LocalTile("l1", 16, 16, "fp16")), unit="mm")
    with pytest.raises(ProgramError, match="B lies in L1; mm takes it from LA or LB"):
        check(program(kernel((wrong,))), dev)


# --- links ----------------------------------------------------------------------------------------------------


def test_conflicts_count_bytes_more_than_once():
    dev = device(links__L1_LA__conflict_factor=2.5)
    # 2048 bytes at 100 a cycle: 21 cycles; 5120: 52. 3 before, 7 after
    assert done_at([move()], device(), 1 + 3 + 21 + 7)
    assert done_at([move()], dev, 1 + 3 + 52 + 7)
    assert run(program(kernel((move(),))), dev).traffic_bytes == {"L1_LA": 2048}


def test_conflicts_slow_the_link_and_not_what_is_shared():
    dev = device(links__GM_L1__conflict_factor=2.0, hbm={"capacity_bytes": 1 << 40, "bytes_per_second": 48e6})
    # 8192 bytes: the link gives 32 a cycle, and HBM would 48
    assert done_at([load("X", 64, 64)], dev, 1 + 256)
    assert run(program(kernel((load("X", 64, 64),))), dev).traffic_bytes == {"GM_L1": 8192, "HBM read": 8192}


@pytest.mark.parametrize(
    "limit, ends",
    [
        # Each occupies 3 + 21 cycles and completes 7 later; they are issued at 1, 2, 3.
        (None, [32, 56, 80]),
        (6144, [32, 56, 80]),
        (4096, [32, 56, 80]),  # two may be on their way
        (4095, [32, 63, 94]),  # one: the next starts when the one before has completed
        (1, [32, 63, 94]),  # one alone always may
    ],
)
def test_bytes_in_flight(limit, ends):
    dev = device(links__L1_LA__in_flight_bytes=limit)
    body = (move(), move(), move())
    rows = rows_of(program(kernel(body)), dev)
    assert [r["end"] for r in rows] == ends
    assert all(done_at(body[: i + 1], dev, end) for i, end in enumerate(ends))
    stall = run(program(kernel(body)), dev).engines["MOVE"].stall_cycles.get("in-flight", 0)
    assert stall == (14 if ends[1] == 63 else 0)
    assert rows[1]["cause"] == ("in-flight" if stall else "")


def test_bytes_in_flight_are_those_of_one_link_of_one_core():
    """Little's law: with latency 200 and 8192 bytes in flight a core gets 8192 bytes every 328 cycles."""
    dev = device(links__GM_L1__startup_cycles=200, links__GM_L1__in_flight_bytes=8192)
    body = (Loop("i", 4, (load("X", 64, 64), move())),)
    rows = [r for r in rows_of(program(kernel(body, counts=(3,))), dev) if r["engine"] == "IN"]
    assert [r["start"] for r in rows] == [1, 329, 657, 985]
    twice = device(links__GM_L1__startup_cycles=200, links__GM_L1__in_flight_bytes=16384)
    rows = [r for r in rows_of(program(kernel(body, counts=(3,))), twice) if r["engine"] == "IN"]
    assert [r["start"] for r in rows] == [1, 129, 329, 457]


def test_a_transfer_waits_for_its_semaphores_and_for_room_together():
    """What lacks room holds no semaphore: V takes the one that MOVE cannot use yet."""
    dev = device(links__L1_LA__in_flight_bytes=2048)
    body = (move(), move(waits=sync("M", "a").waits, signals=sync("M", "", "a").signals), sync("V", "a", "a"))
    rows = rows_of(program(kernel(body, semaphores={"a": 1})), dev)
    v = next(r for r in rows if r["engine"] == "V")
    assert (v["start"], v["end"]) == (3, 13)
    assert [r["start"] for r in rows if r["engine"] == "MOVE"] == [1, 32]


def test_cores_that_take_a_tile_together_share_the_traffic_of_l2():
    """Eight cores ask L2, which gives 256 bytes a cycle, for 64 a cycle each; pairs ask once."""
    dev = device(l2=l2(1 << 20, rate=256.0))
    alone = load("X", 64, 64)
    pair, four = replace(alone, multicast=2), replace(alone, multicast=4)
    for instr, cycles, asked in ((alone, 256, 8), (pair, 128, 4), (four, 128, 2)):  # 128: what the link gives
        prog = program(kernel((instr,), counts=(8,)))
        check(prog, dev)
        timing = run(prog, dev)
        assert timing.cycles == 1 + cycles
        assert timing.traffic_bytes == {"GM_L1": 8 * 8192, "L2 read": asked * 8192, "HBM read": 8192}
    for wrong in (replace(alone, multicast=0), replace(move(), multicast=2), replace(sync("M"), multicast=2)):
        with pytest.raises(ProgramError, match=f"multicast is {wrong.multicast}; it must be at least 1"):
            check(program(kernel((wrong,))), dev)


def test_a_slot_that_is_spread_takes_its_part_of_a_tile_in_each_core():
    """8192 bytes into slots of two cores: 4096 on each link of 64 a cycle, and from L2, which gives 256 to all 8."""
    dev = device(l2=l2(1 << 20, rate=256.0))
    whole = replace(load("X", 64, 64), multicast=2)

    def buffers(spread):
        return tuple(Buffer(n, m, 2, 32768, spread if n == "l1" else 1) for n, m in (("l1", "L1"), ("la", "LA")))

    for instr, cycles in ((whole, 128), (replace(whole, multicast=4), 64)):
        prog = program(kernel((instr,), counts=(8,), buffers=buffers(2)))
        check(prog, dev)
        timing = run(prog, dev)
        assert timing.cycles == 1 + cycles
        asked = 8 * 4096 * 2 // instr.multicast
        assert timing.traffic_bytes == {"GM_L1": 8 * 4096, "L2 read": asked, "HBM read": 8192}
    # Two copies, each complete 200 cycles later: 8192 bytes in flight let both go, one byte less only one at a time.
    for limit, cycles in ((8192, 1 + 64 + 64 + 200), (8191, 1 + 2 * (64 + 200))):
        bounded = device(l2=l2(1 << 20), links__GM_L1__startup_cycles=200, links__GM_L1__in_flight_bytes=limit)
        assert run(program(kernel((whole, whole), counts=(8,), buffers=buffers(2))), bounded).cycles == cycles
    for wrong, spread, words in (
        (replace(whole, multicast=1), 2, "to a multiple of as many cores at once"),
        (move(), 2, None),
        (replace(move(), writes=move().reads, reads=move().writes), 2, "spread over 2"),
        (whole, 3, "spread over 3 cores; toy has 64; allowed: divisors"),
    ):
        prog = program(kernel((wrong,), buffers=buffers(spread)))
        if words is None:
            check(prog, dev)
        else:
            with pytest.raises(ProgramError, match=words):
                check(prog, dev)


# --- latency --------------------------------------------------------------------------------------------------


def test_a_read_that_misses_completes_later_than_one_that_hits():
    dev = device(l2=l2(1 << 20, latency_ns=30_000.0), hbm__latency_ns=500_000.0)  # 1 MHz: 30 and 500 cycles
    assert done_at([load("X", 64, 64)], dev, 1 + 128 + 30 + 500)
    assert done_at([load("X", 64, 64), load("X", 64, 64)], dev, 1 + 128 + 30 + 500)  # in order: not before the first
    assert done_at([load("X", 64, 64), load("Y", 64, 64)], dev, 1 + 256 + 30 + 500)
    first = kernel((load("X", 64, 64),))
    rows = rows_of(program(first, kernel((load("X", 64, 64),))), dev)
    assert rows[1]["end"] - rows[1]["start"] == 128 + 30
    rows = rows_of(program(first, kernel((load("X", 64, 80),))), dev)  # 16 columns more, from HBM
    assert rows[1]["end"] - rows[1]["start"] == 160 + 30 + 500


def test_without_an_l2_every_read_misses_and_no_write_does():
    dev = device(hbm__latency_ns=2500.0)
    assert done_at([load("X", 64, 64)], dev, 1 + 128 + 2.5)
    prog = program(kernel((store("X", 64, 64),)))
    assert rows_of(prog, dev)[0]["end"] == 129


def test_latency_is_time_and_follows_the_clock():
    dev = at_clock(device(l2=l2(1 << 20, latency_ns=100.0), hbm__latency_ns=250.0), 1500.0)
    assert dev.clock_mhz == 1500
    (row,) = rows_of(program(kernel((load("X", 1, 32),))), dev)
    assert row["end"] - row["free"] == 150 + 375


# --- full queues ----------------------------------------------------------------------------------------------


def test_a_full_queue_is_a_cause_of_its_own():
    """M holds one instruction at work and one waiting; what is behind them in the stream starts late."""
    dev = device(engines__M__queue_depth=1)
    timing = run(program(kernel((sync("M"), sync("M"), sync("M"), sync("V"), sync("V")))), dev, trace=9)
    # M: 1-11, 11-21, 21-31. The third is ready at 3 and enters at 11, so V has its first at 12, its second at 13.
    assert timing.engines["V"].stall_cycles == {"empty": 4.0, "queue-full": 8.0}
    assert timing.engines["V"].busy_cycles == 20 and timing.cycles == 32
    assert timing.streams == {("s", "M"): 8.0}
    cause = {timing.trace.engines[r["engine"]]: timing.trace.causes[r["cause"]] for r in timing.trace.rows[::-1]}
    assert cause["V"] == "queue-full"


def test_only_the_stream_that_issues_counts():
    """Stream a is stalled; V gets its work from stream b, which is merely slow."""
    dev = device(engines__M__queue_depth=1, engines__V__issue_cycles=25.0)
    made = kernel(())
    group = type(made.groups[0])(0, 2, (Stream("a", (sync("M"),) * 3), Stream("b", (sync("V"),))))
    timing = run(program(type(made)("k", (group,), made.buffers)), dev)
    assert timing.engines["V"].stall_cycles == {"empty": 2 * 25.0}
    assert timing.streams == {("a", "M"): 2 * 8.0}


# --- the whole program ----------------------------------------------------------------------------------------


def test_write_back_at_the_end_is_a_kernel_of_its_own():
    dev = device(l2=l2(1 << 20), hbm={"capacity_bytes": 1 << 40, "bytes_per_second": 100e6})
    prog = program(kernel((store("X", 64, 64), load("Y", 64, 64))))
    plain, whole = run(prog, dev), run(prog, dev, write_back=True)
    assert [k.name for k in whole.kernels] == ["k", "write-back"]
    assert whole.kernels[1].cycles == 82 and whole.cycles == plain.cycles + 82  # 8192 bytes at 100: 81.92
    assert whole.traffic_bytes == {**plain.traffic_bytes, "HBM write": 8192}
    overhead = device(launch_overhead_us=4.5, clock_mhz=1.0)  # nobody launches it
    assert seconds(whole, overhead, launch_overhead=True) == pytest.approx(seconds(whole, dev) + 4.5e-6, rel=1e-12)
    assert (
        run(program(kernel((load("Y", 64, 64),))), dev, write_back=True).kernels
        == run(program(kernel((load("Y", 64, 64),))), dev).kernels
    )


def test_warm_runs_leave_their_data_in_l2():
    dev = device(l2=l2(20_000))
    prog = program(kernel((load("X", 64, 64), store("Y", 64, 64))))
    assert run(prog, dev).traffic_bytes["HBM read"] == 8192
    assert "HBM read" not in run(prog, dev, warm=1).traffic_bytes
    loads = kernel((Loop("i", 4, (load("X", 64, 64, variable("i") * 64),)),))
    streams = program(loads, kernel((store("Y", 64, 64),)))
    cold, warm = run(streams, dev).traffic_bytes, run(streams, dev, warm=2).traffic_bytes
    assert cold["HBM read"] == warm["HBM read"] == 4 * 8192
    assert "HBM write" not in cold and warm["HBM write"] == 8192  # what the run before wrote


def test_arrays_of_earlier_runs_may_be_others():
    dev = device(l2=l2(40_000))
    prog = program(kernel((load("X", 64, 64), store("Y", 64, 64))))
    assert "HBM read" not in run(prog, dev, warm=1).traffic_bytes
    assert run(prog, dev, warm=2, other=("X",)).traffic_bytes["HBM read"] == 8192
    assert run(prog, dev, other=("X",)) == run(prog, dev)
    written = run(prog, device(l2=l2(20_000)), warm=1, other=("Y",)).traffic_bytes
    assert written["HBM write"] == 8192  # the other Y makes room


def test_launches_are_time_of_their_own():
    dev = device(launch_overhead_us=4.5)
    timing = run(program(kernel((sync("M"),)), kernel((sync("V"),))), dev)
    assert seconds(timing, dev) == pytest.approx(22e-6, rel=1e-12)
    assert seconds(timing, dev, launch_overhead=True) == pytest.approx(22e-6 + 2 * 4.5e-6, rel=1e-12)
    with pytest.raises(UnsupportedError, match="toy: its file has no launch_overhead_us"):
        seconds(timing, device(), launch_overhead=True)


def test_instructions_can_be_made_free_of_all_but_what_they_share():
    dev = device(hbm={"capacity_bytes": 1 << 40, "bytes_per_second": 128e6}, links__L1_LA__in_flight_bytes=1)
    prog = program(kernel((load("X", 64, 64), move(), move(), sync("M"))))
    assert run(prog, dev).cycles == 129
    assert run(prog, dev, free=lambda i, link: link == "GM_L1").cycles == 1 + 64  # HBM's 128 a cycle
    free = run(prog, dev, free=lambda i, link: i.engine == "MOVE")
    assert free.engines["MOVE"].busy_cycles == 0 and free.traffic_bytes["L1_LA"] == 4096


def test_a_cast_to_more_bits_has_a_time_of_its_own():
    """64 x 64 elements are 64 repeats of 256 bytes of fp32."""
    narrow, wide = (LocalTile("ub", 64, 64, fmt, slot=ZERO + i) for i, fmt in enumerate(("fp16", "fp32")))
    casts = [Instr("V", "cast", (narrow,), (wide,)), Instr("V", "cast", (wide,), (narrow,))]

    def occupied(**changes):
        return [r["free"] - r["start"] for r in rows_of(program(kernel(tuple(casts))), device(**changes))]

    assert occupied() == [24 + 64, 24 + 64]
    assert occupied(vector__cycles_per_repeat__widen=3.0) == [24 + 64, 24 + 3 * 64]


def test_cores_start_late_where_the_device_says_so():
    prog = program(kernel((sync("M"), load("X", 64, 64), sync("V"))), kernel((sync("V"),)))
    now, late = (run(prog, device(**{"core_start_us": us} if us else {}), trace=64) for us in (0, 2.5))
    start = round(2.5 * device().clock_mhz)
    assert [b.cycles - a.cycles for a, b in zip(now.kernels, late.kernels, strict=True)] == [start, start]
    assert late.trace.rows["start"][0] - now.trace.rows["start"][0] == start * late.trace.ticks_per_cycle
    assert late.trace.rows["end"][-1] - now.trace.rows["end"][-1] == 2 * start * late.trace.ticks_per_cycle
    for a, b in zip(now.kernels, late.kernels, strict=True):
        for name, engine in b.engines.items():
            assert engine.busy_cycles == a.engines[name].busy_cycles
            assert engine.busy_cycles + sum(engine.stall_cycles.values()) == b.cycles * b.cores
