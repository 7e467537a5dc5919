"""Each rule of the timing machine alone, with times worked out by hand. Times are exact: equal, not near."""

from dataclasses import replace

import pytest
from timing_device import ZERO, device, kernel, load, program, store, sync

from hwsim.errors import ProgramError
from hwsim.machines.timing import missing, run
from hwsim.program.ir import (
    Advance,
    Buffer,
    CoreGroup,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    Semaphore,
    Stream,
    Sync,
    variable,
)

TICKS = 1024


def rows_of(prog, dev=None):
    """Trace rows as a list of dicts with times in cycles."""
    trace = run(prog, dev or device(), trace=1000).trace
    assert trace.complete
    return [
        {
            **{n: int(row[n]) for n in trace.rows.dtype.names},
            **{n: int(row[n]) / TICKS for n in ("issue", "start", "free", "end")},
            "engine": trace.engines[row["engine"]],
            "cause": trace.causes[row["cause"]],
            "label": trace.labels[row["label"]],
        }
        for row in trace.rows
    ]


def spans(prog, dev=None):
    return [(r["engine"], r["issue"], r["start"], r["free"], r["end"]) for r in rows_of(prog, dev)]


def mma(m, n, k, repeat=1, **more):
    return Instr(
        "M",
        "mma",
        (LocalTile("lc", m, n, "fp32"),),
        (LocalTile("la", m, k, "fp16"), LocalTile("lb", k, n, "fp16")),
        unit="mm",
        repeat=repeat,
        **more,
    )


# --- cost of one instruction ----------------------------------------------------------------------------------


def test_sync_costs_issue_then_its_cycles():
    assert spans(program(kernel((sync("M"),)))) == [("M", 1, 1, 11, 11)]


@pytest.mark.parametrize(
    "m, n, k, cycles",
    [
        (64, 64, 32, 9 + 2 * 16),  # 16 blocks per k step hide the accumulate latency of 10
        (16, 16, 16, 9 + 10),  # one block does not
        (48, 48, 16, 9 + 10),  # nine do not
        (64, 48, 16, 9 + 12),  # twelve do
        (17, 1, 67, 9 + 5 * 10),  # padded: 2 x 1 x 5 blocks
        (1, 1, 1, 9 + 10),
        (64, 64, 3, 9 + 16),
    ],
)
def test_mma_occupancy_and_drain(m, n, k, cycles):
    assert spans(program(kernel((mma(m, n, k),)))) == [("M", 1, 1, 1 + cycles, 1 + cycles + 20)]


def test_repeat_multiplies_occupancy_but_not_the_drain():
    assert spans(program(kernel((mma(64, 64, 32, repeat=3),)))) == [("M", 1, 1, 1 + 3 * 41, 1 + 3 * 41 + 20)]
    assert run(program(kernel((mma(64, 64, 32, repeat=3),))), device()).macs == 3 * 64 * 64 * 32


def test_vector_repeats_are_counted_in_the_widest_format():
    cast = Instr("V", "cast", (LocalTile("ub", 100, 100, "fp16"),), (LocalTile("ub", 100, 100, "fp32", slot=ZERO + 1),))
    add = Instr("V", "add", (LocalTile("ub", 8, 8, "fp32"),), (LocalTile("ub", 8, 8, "fp32"),) * 2)
    move = Instr("V", "copy", (LocalTile("ub", 1, 65, "fp32"),), (LocalTile("ub", 1, 65, "fp32"),))
    assert [r["free"] - r["start"] for r in rows_of(program(kernel((cast, add, move))))] == [24 + 157, 24 + 2, 24 + 2]


def test_transfer_inside_a_core_takes_whole_requests_and_whole_cycles():
    copy = Instr("MOVE", "copy", (LocalTile("la", 17, 33, "fp16"),), (LocalTile("l1", 17, 33, "fp16"),))
    # 17 * 66 = 1122 bytes = 9 requests of 128 = 1152 bytes at 100 a cycle: 12 cycles, 3 before, 7 after
    assert spans(program(kernel((copy,)))) == [("MOVE", 1, 1, 16, 23)]
    padded = device(fractal={"rows": 16, "row_bytes": 32})  # 32 rows of 96 bytes = 24 requests: 31 cycles
    assert spans(program(kernel((copy,))), padded) == [("MOVE", 1, 1, 35, 42)]
    assert run(program(kernel((copy,))), padded).traffic_bytes == {"L1_LA": 32 * 96}


def test_transfer_from_global_memory_drains_between_overhead_and_startup():
    slow = device(links__GM_L1__overhead_cycles=5, links__GM_L1__startup_cycles=190)
    prog = program(kernel((load("X", 64, 64), load("X", 64, 64))))
    # 8192 bytes at 64: 128 cycles. The second starts when the first has drained, not when it has arrived.
    assert spans(prog, slow) == [("IN", 1, 1, 134, 324), ("IN", 2, 134, 267, 457)]


def test_requests_are_rounded_up_row_by_row_unless_rows_are_whole():
    dev = device(links__GM_L1__request_bytes=512)
    assert rows_of(program(kernel((load("X", 4, 64),))), dev)[0]["free"] == 1 + 4 * 512 / 64
    assert rows_of(program(kernel((load("X", 4, 4096),))), dev)[0]["free"] == 1 + 4 * 8192 / 64
    assert rows_of(program(kernel((load("X", 1, 257),))), dev)[0]["free"] == 1 + 1024 / 64
    assert run(program(kernel((load("X", 4, 64),))), dev).traffic_bytes["GM_L1"] == 4 * 128


def test_repeat_of_a_transfer_moves_its_bytes_again():
    timing = run(program(kernel((load("X", 64, 64, repeat=3),))), device())
    assert timing.cycles == 1 + 3 * 128
    assert timing.traffic_bytes == {"GM_L1": 3 * 8192, "HBM read": 3 * 8192}


def test_rate_that_does_not_divide_ends_at_the_next_tick():
    dev = device(links__GM_L1__bytes_per_cycle=37.3)
    row = run(program(kernel((load("X", 1, 50),))), dev, trace=1).trace.rows[0]
    ticks = int(row["free"] - row["start"])
    assert (ticks - 1) * 37.3 < 100 * TICKS <= ticks * 37.3 + 1e-3


# --- queues, issue, semaphores --------------------------------------------------------------------------------


def test_issue_cost_of_each_engine_is_paid_by_the_stream():
    dev = device(engines__V__issue_cycles=2.5)
    assert [r["issue"] for r in rows_of(program(kernel((sync("M"), sync("V"), sync("IN")))), dev)] == [1, 3.5, 4.5]


@pytest.mark.parametrize("depth, third, after", [(1, 11, 12), (2, 3, 4)])
def test_full_queue_stalls_the_stream_until_the_head_starts(depth, third, after):
    dev = device(engines__M__queue_depth=depth)
    rows = rows_of(program(kernel((sync("M"), sync("M"), sync("M"), sync("V")))), dev)
    issued = [r["issue"] for r in sorted(rows, key=lambda r: (r["engine"], r["start"]))]
    assert issued == [1, 2, third, after]
    assert sorted(r["start"] for r in rows if r["engine"] == "M") == [1, 11, 21]


def test_signal_is_given_at_completion_not_before():
    slow = device(links__GM_L1__startup_cycles=50)
    prog = program(kernel((load("X", 64, 64, signals="full"), sync("M", "full")), semaphores={"full": 0}))
    by_engine = {r["engine"]: r for r in rows_of(prog, slow)}
    assert by_engine["IN"]["free"] == 129 and by_engine["IN"]["end"] == 179
    assert by_engine["M"]["start"] == 179 and by_engine["M"]["cause"] == "semaphore:full"


def test_completions_of_one_engine_are_in_order():
    body = (mma(64, 64, 16, label="slow"), sync("M", signals="done"), sync("V", "done"))
    rows = {r["label"] + r["engine"]: r for r in rows_of(program(kernel(body, semaphores={"done": 0})))}
    assert (rows["slowM"]["free"], rows["slowM"]["end"]) == (26, 46)
    assert (rows["M"]["free"], rows["M"]["end"]) == (36, 46)
    assert rows["V"]["start"] == 46


def test_counted_wait_needs_all_of_its_count():
    body = (Loop("i", 3, (sync("IN", signals="a"),)), sync("M", "a*2"), sync("V", "a"))
    rows = rows_of(program(kernel(body, semaphores={"a": 0})))
    ends = [r["end"] for r in rows if r["engine"] == "IN"]
    starts = {r["engine"]: r["start"] for r in rows}
    assert ends == [11, 21, 31]
    # V asks for one and is served first, at 11 (it was issued at 5); M needs two, there at 31.
    assert starts["V"] == 11 and starts["M"] == 31


def test_waits_are_taken_together_or_not_at_all():
    body = (sync("M", "a b"), sync("V", "a", "a b"))  # M must not hold a while it lacks b
    prog = program(kernel((*body, sync("IN", signals="a")), semaphores={"a": 1, "b": 0}))
    rows = {r["engine"]: r for r in rows_of(prog)}
    assert rows["V"]["start"] == 2 and rows["M"]["start"] == 12 and rows["M"]["cause"] == "semaphore:b"


def test_same_semaphore_twice_in_the_waits_adds_up():
    body = (sync("IN", signals="a"), sync("IN", signals="a"), sync("M", "a a"))
    assert [r["start"] for r in rows_of(program(kernel(body, semaphores={"a": 0}))) if r["engine"] == "M"] == [21]


def test_streams_of_a_core_share_engines_and_semaphores():
    streams = (Stream("a", (sync("M", signals="x"), sync("M"))), Stream("b", (sync("M"), sync("V", "x"))))
    prog = program(Kernel("k", (CoreGroup(0, 1, streams),), (), (Semaphore("x"),)))
    assert spans(prog) == [("M", 1, 1, 11, 11), ("M", 1, 11, 21, 21), ("V", 2, 11, 21, 21), ("M", 2, 21, 31, 31)]


# --- pipelines ------------------------------------------------------------------------------------------------


def pipeline(slots, passes=20, produce=13, consume=7):
    body = (Loop("i", passes, (sync("IN", "free", "full", repeat=produce), sync("M", "full", "free", repeat=consume))),)
    return program(kernel(body, semaphores={"free": slots, "full": 0}))


def test_double_buffer_runs_at_the_slower_stage_single_at_the_sum():
    assert run(pipeline(2), device()).cycles == 1 + 20 * 130 + 70
    assert run(pipeline(1), device()).cycles == 1 + 20 * 200
    assert run(pipeline(2, produce=7, consume=13), device()).cycles == 1 + 70 + 20 * 130
    assert run(pipeline(3), device()).cycles == run(pipeline(2), device()).cycles


def test_tail_lengthens_the_single_buffered_period_only():
    """A tail of 20 after the mma is hidden by the second slot and not without it."""
    body = (
        Loop(
            "i",
            10,
            (
                sync("IN", "free", "full", repeat=5),
                mma(64, 64, 16, waits=(sync("M", "full").waits), signals=(sync("M", "", "free").signals)),
            ),
        ),
    )
    period = {
        slots: run(program(kernel(body, semaphores={"free": slots, "full": 0})), device()).cycles for slots in (1, 2)
    }
    assert period[1] == 1 + 10 * (50 + 25 + 20)
    assert period[2] == 1 + 10 * 50 + 25 + 20


def test_kernels_follow_each_other_from_whole_cycles():
    dev = device(links__GM_L1__bytes_per_cycle=60.0)
    first, second = kernel((load("X", 1, 50),), name="a"), kernel((sync("M"),), name="b")
    timing = run(program(first, second), dev, trace=5)
    assert [k.cycles for k in timing.kernels] == [3, 11]  # 1 + 100/60 rounded up
    assert timing.cycles == 14
    assert timing.trace.rows["start"][1] == (3 + 1) * TICKS
    assert list(timing.trace.rows["kernel"]) == [0, 1]


def test_kernel_ends_with_its_slowest_group():
    timing = run(program(kernel((sync("M"),), (sync("M", repeat=5),), counts=(3, 2))), device())
    kernel_time = timing.kernels[0]
    assert (timing.cycles, kernel_time.cores, kernel_time.instructions) == (51, 5, 5)
    assert kernel_time.engines["M"].busy_cycles == 3 * 10 + 2 * 50
    assert kernel_time.engines["M"].stall_cycles == {"empty": 5.0, "done": 3 * 40}
    assert kernel_time.critical["M"].busy_cycles == 50


# --- addresses and trace --------------------------------------------------------------------------------------


def test_loops_and_counters_move_addresses_and_slots():
    i, c = variable("i"), variable("c")
    body = (
        Loop(
            "i",
            3,
            (
                Loop("j", 2, (load("X", 16, 16, i * 16, variable("j") * 32 + c),)),
                Advance("c", 5),
                Instr("V", "fill", (LocalTile("ub", 8, 8, "fp32", slot=c),)),
            ),
        ),
    )
    rows = rows_of(program(kernel(body)))
    assert [(r["row"], r["col"]) for r in rows if r["engine"] == "IN"] == [
        (0, 0),
        (0, 32),
        (16, 5),
        (16, 37),
        (32, 10),
        (32, 42),
    ]
    assert sorted(r["slot"] for r in rows if r["engine"] == "V") == [5, 10, 15]
    assert {(r["array"], r["bytes"]) for r in rows} == {(0, 512), (-1, 0)}


def test_core_variable_is_the_first_core_of_the_group():
    body = (load("X", 16, 16, variable("core") * 16),)
    assert [(r["core"], r["cores"], r["row"]) for r in rows_of(program(kernel(body, body, counts=(3, 2))))] == [
        (0, 3, 0),
        (3, 2, 48),
    ]


def test_trace_stops_at_its_limit_and_does_not_change_time():
    prog = pipeline(2)
    limited = run(prog, device(), trace=7)
    assert len(limited.trace.rows) == 7 and not limited.trace.complete
    assert run(prog, device(), trace=40).trace.complete
    assert run(prog, device()).trace is None
    assert limited.cycles == run(prog, device()).cycles


# --- what is refused ------------------------------------------------------------------------------------------


def test_deadlock_says_who_waits_for_what():
    body = (sync("M", "ready*2", label="multiply"), sync("V", signals="ready"))
    with pytest.raises(ProgramError) as error:
        run(program(kernel(body, counts=(4,), semaphores={"ready": 0}, name="gemm")), device())
    for words in (
        "deadlock",
        "kernel 'gemm'",
        "instruction 0",
        "sync 'multiply' on M",
        "cores 0 to 3",
        "'ready': has 1, needs 2",
    ):
        assert words in str(error.value)


def test_deadlock_behind_a_full_queue_is_found():
    body = (*[sync("M", "never")] * 10, sync("V", signals="never*10"))
    with pytest.raises(ProgramError, match="deadlock"):
        run(program(kernel(body, semaphores={"never": 0})), device())
    deep = device(engines__M__queue_depth=9)  # the tenth still does not fit
    with pytest.raises(ProgramError, match="deadlock"):
        run(program(kernel(body, semaphores={"never": 0})), deep)
    assert run(program(kernel(body, semaphores={"never": 0})), device(engines__M__queue_depth=10)).instructions == 11


def test_leak_says_which_semaphore():
    body = (sync("M", signals="left"),)
    with pytest.raises(ProgramError, match="semaphore 'left' ends at 3, began at 2"):
        run(program(kernel(body, semaphores={"left": 2})), device())
    with pytest.raises(ProgramError, match="semaphore 'left' ends at 1, began at 2"):
        run(program(kernel((sync("M", "left"),), semaphores={"left": 2})), device())
    names = [f"s{i}" for i in range(12)]
    many = kernel(tuple(sync("M", signals=name) for name in names), semaphores=dict.fromkeys(names, 0))
    with pytest.raises(ProgramError) as found:
        run(program(many), device())
    assert str(found.value).count("ends at 1, began at 0") == 8  # the first ones


def test_instruction_without_link_or_time_is_named():
    copy = Instr("IN", "copy", (LocalTile("la", 16, 16, "fp16"),), (LocalTile("ub", 16, 16, "fp16"),), label="odd")
    with pytest.raises(ProgramError, match=r"instruction 0: copy 'odd' on IN.*no link"):
        run(program(kernel((copy,))), device())
    with pytest.raises(ProgramError, match="the vector unit of toy has no mul"):
        tile = LocalTile("ub", 16, 16, "fp32")
        run(program(kernel((Instr("V", "mul", (tile,), (tile, tile)),))), device())
    with pytest.raises(ProgramError, match="one instruction may move less than"):
        run(program(kernel((load("X", 4096, 4096, repeat=40),))), device())


def test_a_kernel_beyond_the_count_of_ticks_is_refused():
    dev = device(engines__M__sync_cycles=1 << 20)
    assert run(program(kernel((sync("M", repeat=1 << 26),))), dev).cycles == 1 + (1 << 46)  # of an engine, a stream
    with pytest.raises(ProgramError, match="kernel 'long': takes longer than"):
        run(program(kernel((sync("M", repeat=1 << 32),), name="long")), dev)


def test_missing_says_why_there_are_no_cycles():
    assert missing(device()) is None
    assert "engines" in missing(device(engines={}))
    assert "hbm" in missing(device(hbm=None))
    prog = program(kernel((mma(16, 16, 16),)))
    assert missing(device(), prog) is None
    assert "instruction mm" in missing(device(instructions__mm__timing=None), prog)


def test_store_takes_its_link():
    timing = run(program(kernel((store("Y", 64, 64),))), device())
    assert timing.cycles == 129
    assert timing.traffic_bytes == {"UB_GM": 8192, "HBM write": 8192}


def test_buffers_of_any_name_are_found():
    body = (Instr("IN", "copy", (LocalTile("x", 16, 16, "fp16"),), (load("X", 16, 16).reads[0],)),)
    assert run(program(kernel(body, buffers=(Buffer("x", "L1", 1, 512),))), device()).cycles == 9


def test_flags_take_places_of_the_queue_where_the_device_says_so():
    """Syncs of 10 cycles on V, queue of 4, each with a wait that never lacks and a signal."""
    body = (sync("V", "s", "s"),) * 4
    prog = program(kernel(body, semaphores={"s": 1}))
    plain = rows_of(prog)
    assert [r["issue"] for r in plain] == [1, 2, 3, 4]
    # Three places each: one waits beside the one that runs, and the next enters when that starts.
    queued = rows_of(prog, device(flags={"per_pipe_pair": 1, "queued": True}))
    assert [r["issue"] for r in queued] == [1, 2, 11, 21]
    assert [r["start"] for r in queued] == [r["start"] for r in plain] == [1, 11, 21, 31]
    # An instruction of more places than there are enters an empty queue.
    wide = program(kernel((sync("V", "a b c d", "a b c d"),) * 2, semaphores=dict.fromkeys("abcd", 1)))
    assert [r["start"] for r in rows_of(wide, device(flags={"per_pipe_pair": 1, "queued": True}))] == [1, 11]


# --- hand-over in pieces --------------------------------------------------------------------------------------


def handed_over(pieces, side, between=0):
    """A product, a copy of it to global memory (side x side), the next product: rows of products and copy, and times.

    Alone the products take 49 cycles and are complete 20 later, a sync takes 10, a copy of 64 x 64 128.
    """
    copy = replace(store("Y", side, side), waits=(Sync("full"),), signals=(Sync("free"),))
    body = (
        sync("M", "free"),
        mma(16, 16, 64),
        *[sync("V")] * between,
        sync("M", signals="full"),
        copy,
        sync("M", "free"),
        mma(16, 16, 64),
        sync("M", signals="free"),
    )
    one = kernel(body, semaphores={"free": 1, "full": 0})
    one = replace(one, semaphores=tuple(replace(s, pieces=pieces) for s in one.semaphores))
    rows = [r for r in rows_of(program(one)) if r["bytes"] or r["macs"]]
    return [(r["engine"], r["start"], r["free"], r["end"]) for r in rows], run(program(one), device())


def test_whole_results_are_handed_over_when_they_are_complete():
    rows, timed = handed_over(False, 64)
    assert rows == [("M", 11, 60, 80), ("OUT", 80, 208, 208), ("M", 218, 267, 287)]
    assert timed.engines["OUT"].busy_cycles == 128


def test_pieces_are_handed_over_while_the_unit_works():
    # The copy begins with the product. The next product waits for the two syncs alone, but ends behind the copy.
    rows, timed = handed_over(True, 64)
    assert rows == [("M", 11, 60, 80), ("OUT", 11, 139, 139), ("M", 80, 139, 159)]
    assert timed.cycles == 159
    # From its issue at 4 the copy has begun: what it waits is its own time.
    assert timed.engines["OUT"].busy_cycles == 139 - 4
    assert timed.engines["M"].busy_cycles == 4 * 10 + 49 + (139 - 80)


def test_a_copy_of_pieces_does_not_end_before_the_product():
    rows, _ = handed_over(True, 16)
    assert rows == [("M", 11, 60, 80), ("OUT", 11, 80, 80), ("M", 80, 129, 149)]


def test_pieces_are_handed_over_late_where_the_signal_is_issued_late():
    # Eight syncs of V, whose queue holds four: the last enters it at 33, the signal its queue at 34.
    rows, _ = handed_over(True, 64, between=8)
    assert rows[:2] == [("M", 11, 60, 80), ("OUT", 35, 163, 163)]
    assert rows[2][2:] == (163, 183)
