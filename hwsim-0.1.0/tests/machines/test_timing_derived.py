"""Derived variables in the timing machine: every core's own address, and one L2 access per distinct tile."""

import pytest
from timing_device import device, kernel, load, program, store, sync

from hwsim.machines.timing import run
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import (
    CORE,
    Affine,
    CoreGroup,
    Derived,
    GlobalArray,
    GlobalTile,
    Kernel,
    LocalTile,
    Loop,
    Program,
    Stream,
    variable,
)

CORES = 8


def l2(capacity, rate=1e5):
    return {"capacity_bytes": capacity, "bytes_per_second": rate * 1e6}


def tiles(rows, cols, size, cores=CORES, depth=3):
    """A kernel that reads the A and B tiles of each tile of a rows x cols grid and writes its C, dealt out in turn."""
    built = KernelBuilder("k")
    for name, memory in (("l1", "L1"), ("ub", "UB")):
        built.buffer(name, memory, 2, 32768)
    rounds, rest = divmod(rows * cols, cores)
    for first, count, passes in ((0, rest, rounds + 1), (rest, cores - rest, rounds)):
        if not count or not passes:
            continue
        s = StreamBuilder("s")
        with s.loop("round", passes) as (_, turn):
            row, col = s.derive("tile", turn * cores + variable(CORE), cols)
            with s.loop("k", depth) as (_, k):
                for at in ((row * size, k * 32), (k * 32 + 2048, col * size)):
                    shape = (size, 32) if at[0].terms[0][0].startswith("tile") else (32, size)
                    s.emit("IN", "copy", LocalTile("l1", *shape, "fp16"), [GlobalTile("X", *at, *shape)])
            c = GlobalTile("Y", row * size, col * size, size, size)
            s.emit("OUT", "copy", c, [LocalTile("ub", size, size, "fp16")])
        built.group(first, count, s)
    return built.finish()


def unrolled(rows, cols, size, cores=CORES, depth=3):
    """The same without derived variables: every core a group of its own, every address a constant."""
    groups = []
    for core in range(cores):
        body = []
        for tile in range(core, rows * cols, cores):
            row, col = (Affine(at * size) for at in divmod(tile, cols))
            for k in range(depth):
                body.append(load("X", size, 32, row, Affine(32 * k)))
                body.append(load("X", 32, size, Affine(32 * k + 2048), col))
            body.append(store("Y", size, size, row, col))
        groups.append(CoreGroup(core, 1, (Stream("s", tuple(body)),)))
    return Kernel("k", tuple(groups), kernel(()).buffers)


@pytest.mark.parametrize("rows, cols", [(5, 7), (1, 3), (4, 4), (3, 8), (9, 2)])
@pytest.mark.parametrize("capacity", [1 << 30, 1 << 16])
def test_a_group_with_derived_addresses_is_its_cores_one_by_one(rows, cols, capacity):
    dev = device(l2=l2(capacity))
    one, other = program(tiles(rows, cols, 64)), program(unrolled(rows, cols, 64))
    check(one, dev)
    check(other, dev)
    a, b = run(one, dev), run(other, dev)
    if capacity == 1 << 30:  # in a small L2 the order in which cores ask decides what is still there
        assert (a.cycles, a.traffic_bytes) == (b.cycles, b.traffic_bytes)
    assert {k: a.traffic_bytes[k] for k in ("GM_L1", "UB_GM", "L2 read", "L2 write")} == {
        k: b.traffic_bytes[k] for k in ("GM_L1", "UB_GM", "L2 read", "L2 write")
    }


def test_cores_that_share_a_tile_miss_once():
    s = StreamBuilder("s")
    row, col = s.derive("tile", variable(CORE), 12)
    s.emit("IN", "copy", LocalTile("l1", 64, 64, "fp16"), [GlobalTile("X", row * 64, Affine(0), 64, 64)])
    s.emit("IN", "copy", LocalTile("l1", 64, 64, "fp16"), [GlobalTile("X", Affine(2048), col * 64, 64, 64)])
    prog = program(Kernel("k", (CoreGroup(0, 64, (s.finish(),)),), kernel(()).buffers))
    got = run(prog, device(l2=l2(1 << 30))).traffic_bytes
    assert got["HBM read"] == (6 + 12) * 8192 and got["L2 read"] == 2 * 64 * 8192


def test_quotients_are_rounded_down_also_below_zero():
    s = Stream(
        "s",
        (Loop("i", 3, (load("X", 16, 16, variable("q") * 16 + 64, variable("r") * 16),)),),
        (
            Derived("q", Affine(-7, (("i", 3),)), 5, "quotient"),  # -7, -4, -1
            Derived("r", Affine(-7, (("i", 3),)), 5, "remainder"),
        ),
    )
    prog = program(Kernel("k", (CoreGroup(0, 1, (s,)),), kernel(()).buffers))
    rows = run(prog, device(), trace=10).trace.rows
    assert [(int(r["row"]), int(r["col"])) for r in rows] == [(32, 48), (48, 16), (48, 64)]


def test_derived_of_derived_and_of_a_counter():
    """Tile t of a 4-row swizzle: group t // 8, then column and row within it."""
    s = StreamBuilder("s")
    with s.loop("i", 16) as (_, i):
        group, within = s.derive("group", i, 8)
        col, row = s.derive("within", within, 4)
        turn, _ = s.derive("turn", variable("seen"), 3)
        s.emit(
            "IN", "copy", LocalTile("l1", 16, 16, "fp16"), [GlobalTile("X", (group * 4 + row) * 16, col * 16, 16, 16)]
        )
        s.emit("IN", "copy", LocalTile("l1", 16, 16, "fp16"), [GlobalTile("Y", turn * 16, Affine(0), 16, 16)])
        s.advance("seen")
    prog = program(Kernel("k", (CoreGroup(0, 1, (s.finish(),)),), kernel(()).buffers))
    rows = run(prog, device(), trace=100).trace.rows
    expected = [((t // 8 * 4 + t % 8 % 4) * 16, t % 8 // 4 * 16) for t in range(16)]
    assert [(int(r["row"]), int(r["col"])) for r in rows[::2]] == expected
    assert [int(r["row"]) for r in rows[1::2]] == [t // 3 * 16 for t in range(16)]


def test_addresses_are_those_of_the_issue_not_of_the_start():
    """The queue runs ahead of the engine: four loads are issued before the first starts."""
    s = StreamBuilder("s")
    s.emit("V", "sync", signals=sync("V", "", "go*4").signals, repeat=50)
    with s.loop("i", 4) as (_, i):
        _, col = s.derive("c", i + variable(CORE), 4)
        s.emit(
            "IN",
            "copy",
            LocalTile("l1", 16, 16, "fp16"),
            [GlobalTile("X", Affine(0), col * 16, 16, 16)],
            waits=sync("IN", "go").waits,
        )
    made = kernel((), semaphores={"go": 0})
    prog = Program(
        tuple(GlobalArray(n, 64, 64, "fp16") for n in "XY"),
        (Kernel("k", (CoreGroup(0, 2, (s.finish(),)),), made.buffers, made.semaphores),),
        ("X",),
        "Y",
    )
    timing = run(prog, device(l2=l2(1 << 20), engines__IN__queue_depth=8), trace=100)
    loads = [r for r in timing.trace.rows if timing.trace.engines[r["engine"]] == "IN"]
    assert [int(r["col"]) for r in loads] == [0, 16, 32, 48] and min(int(r["start"]) for r in loads) > 500 * 1024
    assert timing.traffic_bytes["HBM read"] == 4 * 512
