"""The abstract execution of a core: the compiled walk finds something wrong where the one with messages does."""

import random
from dataclasses import replace

import pytest

from hwsim.devices import load
from hwsim.errors import ProgramError
from hwsim.program.apart import check_apart
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import _Shortened, _whole, check
from hwsim.program.flat import flattened
from hwsim.program.ir import CORE, Affine, GlobalArray, GlobalTile, LocalTile, Program, Sync, variable
from hwsim.program.order import Walker, walk, walk_together
from hwsim.program.resolve import Scope

DEVICE = load("ascend910a")
ENGINES = ("MTE2", "V", "M", "S")
ARRAYS = (GlobalArray("A", 64, 64, "fp16"), GlobalArray("T", 64, 64, "fp16", order="columns"))


def drawn(draw):
    """A kernel of no use: loops, counters, semaphores and tiles as they fall, in one or two groups and streams."""
    kernel = KernelBuilder("k")
    for name in ("b", "c"):
        kernel.buffer(name, "UB", draw.choice((1, 1, 2, 3)), 4096)
    for name in ("s", "t"):
        kernel.semaphore(name, draw.choice((0, 0, 1, 3)))
    kernel.semaphore("p", peers=True)  # there for a core by itself, and orders nothing
    first = 0
    for _ in range(draw.choice((1, 1, 2))):
        streams = [StreamBuilder(f"x{i}") for i in range(draw.choice((1, 1, 2)))]
        for stream in streams:
            block(draw, stream, [variable(CORE), variable("n")], 0)
        count = draw.randint(1, 3)
        kernel.group(first, count, *streams)
        first += count
    return kernel.finish()


def block(draw, stream, known, depth):
    for _ in range(draw.randint(1, 4)):
        what = draw.random()
        if what < 0.25 and depth < 2:
            with stream.loop("l", draw.choice((1, 2, 3, 7, 20))) as (_, index):
                block(draw, stream, [*known, index], depth + 1)
        elif what < 0.35:
            stream.advance("n", draw.choice((1, 2, -1)))
        elif what < 0.45:
            known += stream.derive("d", draw.choice(known) * 3 + 1, draw.choice((2, 3)))
        else:
            reads = [tile(draw, known) for _ in range(draw.choice((0, 1, 2)))]
            writes = tile(draw, known) if draw.random() < 0.6 else None
            engine = draw.choice(ENGINES)
            stream.emit(engine, "sync", writes, reads, syncs(draw, 0.3), syncs(draw, 0.4))


def syncs(draw, share):
    return [Sync(draw.choice("ststp"), draw.choice((1, 1, 2))) for _ in range(2) if draw.random() < share]


def tile(draw, known):
    at = [draw.choice(known) * draw.choice((0, 1, 2)) + draw.randint(0, 2) for _ in range(2)]
    rows, cols = draw.choice((1, 2)), draw.choice((1, 3))
    if draw.random() < 0.3:
        return GlobalTile(draw.choice("AT"), *at, rows, cols)
    return LocalTile(draw.choice("bc"), rows, cols, "fp16", at[0], draw.randint(0, 2), draw.randint(0, 2))


def raises(kernel, group, counts, most_instrs):
    numbers = {id(instr): i for i, instr in enumerate(kernel.instrs())}
    try:
        walk(Scope(kernel, ARRAYS, DEVICE), group, numbers, counts, most_instrs)
    except ProgramError as error:
        return str(error)
    return ""


def peers(written, read):
    """Cores 0 and 1 write rows of A, 2 and 3 read rows of it; by a function of CORE, two rows each."""
    kernel = KernelBuilder("k")
    flag = kernel.semaphore("p", peers=True)
    giver, taker = StreamBuilder("giver"), StreamBuilder("taker")
    giver.emit("MTE2", "sync", GlobalTile("A", written(variable(CORE)), Affine(0), 2, 8), (), (), (flag,))
    taker.emit("MTE2", "sync", None, [GlobalTile("A", read(variable(CORE)), Affine(0), 2, 8)], (flag,), ())
    kernel.group(0, 2, giver)
    kernel.group(2, 2, taker)
    return kernel.finish()


def looked_at(kernel, place=None):
    """What is said of a core at one place of each group, or of different places."""
    numbers = {id(instr): i for i, instr in enumerate(kernel.instrs())}
    scope = Scope(kernel, ARRAYS, DEVICE)
    try:
        if place is None:
            check_apart(scope, numbers, _whole, {"A"}, 100)
        else:
            walk_together(scope, numbers, _whole, {"A"}, place, 100)
    except ProgramError as error:
        return str(error)
    return ""


def test_cores_at_different_places_lie_apart():
    right = peers(lambda core: core * 4, lambda core: core * 4 + -8)
    assert [looked_at(right, place) for place in (0, 1, None)] == ["", "", ""]
    # core 3 reads the second of the rows that core 0 writes; core 1 writes them too; both read, which is nothing
    beside = looked_at(peers(lambda core: core * 4, lambda core: core + -2))
    assert "of core 0 writes" in beside and "of core 3 reads" in beside and "array 'A'" in beside
    same = looked_at(peers(lambda core: core * 0, lambda core: core * 4 + 8))
    assert "of core 0 writes" in same and "of core 1 writes" in same
    assert looked_at(peers(lambda core: core * 4 + 8, lambda core: core * 0)) == ""


def two_cores(*tiles):
    """A kernel of two cores that write tiles of A, one after the other."""
    kernel, stream = KernelBuilder("k"), StreamBuilder("x")
    for tile in tiles:
        stream.emit("MTE2", "sync", tile, (), (), ())
    kernel.group(0, 2, stream)
    return kernel.finish()


def test_many_equal_accesses_count_once(monkeypatch):
    """A loop that stays where it is, then, in another group, cores that meet."""
    kernel, still, meeting = KernelBuilder("k"), StreamBuilder("still"), StreamBuilder("meeting")
    with still.loop("l", 50):
        still.emit("MTE2", "sync", GlobalTile("A", variable(CORE), Affine(0), 1, 8), (), (), ())
    meeting.emit("MTE2", "sync", GlobalTile("A", Affine(60), Affine(0), 1, 8), (), (), ())
    kernel.group(0, 4, still)
    kernel.group(4, 4, meeting)
    monkeypatch.setattr("hwsim.program.apart.ROWS", 8)
    assert "of core 4 writes" in looked_at(kernel.finish())


@pytest.mark.parametrize("count", [1, 2])
def test_cores_at_one_place_write_apart_too(count):
    """Of an array that nobody reads; the flag comes too late."""

    def program(shift):
        kernel, first, second = KernelBuilder("k"), StreamBuilder("first"), StreamBuilder("second")
        kernel.buffer("b", "UB", 1, 4096)
        flag, tile = kernel.semaphore("p", peers=True), LocalTile("b", 2, 16, "fp16", Affine())
        for stream, row in ((first, variable(CORE) * 2), (second, variable(CORE) * 2 + shift)):
            stream.emit("MTE3", "copy", GlobalTile("A", row, Affine(0), 2, 16), [tile], (), ())
        first.emit("S", "sync", None, [], (), (flag,))
        second.emit("S", "sync", None, [], (flag,), ())
        kernel.group(0, count, first)
        kernel.group(count, count, second)
        return Program(ARRAYS[:1], (kernel.finish(),), inputs=(), output="A")

    check(program(0), DEVICE)
    with pytest.raises(ProgramError, match=r"array 'A'.*no semaphore orders the two"):
        check(program(-2 * count), DEVICE)


def test_tiles_side_by_side_lie_apart():
    core = variable(CORE)
    assert looked_at(two_cores(GlobalTile("A", Affine(0), core * 8, 2, 8))) == ""
    assert "of core 0 writes" in looked_at(two_cores(GlobalTile("A", Affine(0), core * 8, 2, 9)))


def test_rows_that_are_quotients_are_known():
    """Core 0 writes rows from 0 on, core 1 from 4 on."""
    for rows, said in ((4, ""), (5, "of core 0 writes")):
        kernel, stream = KernelBuilder("k"), StreamBuilder("x")
        row, _ = stream.derive("d", variable(CORE) * 8, 2)
        stream.emit("MTE2", "sync", GlobalTile("A", row, Affine(0), rows, 8), (), (), ())
        kernel.group(0, 2, stream)
        assert said in looked_at(kernel.finish()) and bool(said) == bool(looked_at(kernel.finish()))


def test_a_later_iteration_is_looked_at():
    """Core 0 goes from rows 0 to 8, core 1 from 8 to 16."""
    kernel, stream = KernelBuilder("k"), StreamBuilder("x")
    with stream.loop("l", 2) as (_, index):
        stream.emit("MTE2", "sync", GlobalTile("A", variable(CORE) * 8 + index * 8, Affine(0), 2, 8), (), (), ())
    kernel.group(0, 2, stream)
    assert "of core 0 writes" in looked_at(kernel.finish())


@pytest.mark.parametrize("along", ["row", "col"])
def test_tiles_are_compared_along_the_axis_that_tells_them_apart(along, monkeypatch):
    """32 tiles in a line, two for each of 16 steps: few pairs are enough to find the two that meet."""

    def at(place, size):
        spots = {"row": (place, Affine(0), size, 1), "col": (Affine(0), place, 1, size)}
        return GlobalTile("A", *spots[along])

    tiles = [at(Affine(step * 4) + variable(CORE) * 2, 2) for step in range(16)]
    monkeypatch.setattr("hwsim.program.apart.PAIRS", 64)
    assert looked_at(two_cores(*tiles)) == ""
    assert "of core 0 writes" in looked_at(two_cores(*tiles[:-1], at(Affine(60) + variable(CORE) * 2, 3)))


def test_the_last_cores_are_executed_together_too():
    """Without its flag the reader is in the writer's rows at the second place alone: rows 0, 4 and 8, 4."""
    kernel = peers(lambda core: core * 4, lambda core: core * -4 + 16)
    bare = tuple(
        replace(x, streams=tuple(replace(s, body=tuple(map(no_flags, s.body))) for s in x.streams))
        for x in kernel.groups
    )
    damaged = replace(kernel, groups=bare)
    assert looked_at(damaged) == looked_at(damaged, 0) == "" and "no semaphore orders the two" in looked_at(damaged, 1)
    assert looked_at(kernel, 1) == ""


def no_flags(instr):
    return replace(instr, waits=(), signals=())


@pytest.mark.parametrize("seed", range(6))
def test_the_compiled_walk_agrees(seed):
    draw, seen = random.Random(seed), {"deadlock": 0, "no semaphore orders": 0, "": 0}
    for _ in range(250):
        kernel = drawn(draw)
        walker = Walker(kernel, DEVICE, *flattened(kernel, ARRAYS, DEVICE.engines))
        for number, group in enumerate(kernel.groups):
            period, most_instrs = draw.choice((0, 1, 2, 5)), draw.choice((3, 20, 2000))
            error = raises(kernel, group, _Shortened(period) if period else _whole, most_instrs)
            assert walker.is_orderly(number, period, most_instrs) == (not error), error
            seen[next(key for key in seen if key in error)] += 1
    assert min(seen.values()) > 20, seen


def test_one_tile_more_than_it_knows_is_left_to_the_other_walk():
    kernel, stream = KernelBuilder("k"), StreamBuilder("x")
    kernel.buffer("b", "UB", 1, 4096)
    stream.emit("V", "sync", None, [LocalTile("b", 1, 1, "fp16", Affine())] * 4)
    kernel.group(0, 1, stream)
    made = kernel.finish()
    assert not Walker(made, DEVICE, *flattened(made, (), DEVICE.engines)).is_orderly(0, 0, 10)
