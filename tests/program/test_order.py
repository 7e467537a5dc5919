"""The abstract execution of a core: the compiled walk finds something wrong where the one with messages does."""

import random

import pytest

from hwsim.devices import load
from hwsim.errors import ProgramError
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import _Shortened, _whole
from hwsim.program.flat import flattened
from hwsim.program.ir import CORE, Affine, GlobalArray, GlobalTile, LocalTile, Sync, variable
from hwsim.program.order import Walker, walk
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


def raises(kernel, group, counts, budget):
    numbers = {id(instr): i for i, instr in enumerate(kernel.instrs())}
    try:
        walk(Scope(kernel, ARRAYS, DEVICE), group, numbers, counts, budget)
    except ProgramError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(6))
def test_the_compiled_walk_agrees(seed):
    draw, seen = random.Random(seed), {"deadlock": 0, "no semaphore orders": 0, "": 0}
    for _ in range(250):
        kernel = drawn(draw)
        walker = Walker(kernel, DEVICE, *flattened(kernel, ARRAYS, DEVICE.engines))
        for number, group in enumerate(kernel.groups):
            period, budget = draw.choice((0, 1, 2, 5)), draw.choice((3, 20, 2000))
            error = raises(kernel, group, _Shortened(period) if period else _whole, budget)
            assert walker.is_orderly(number, period, budget) == (not error), error
            seen[next(key for key in seen if key in error)] += 1
    assert min(seen.values()) > 20, seen


def test_one_tile_more_than_it_knows_is_left_to_the_other_walk():
    kernel, stream = KernelBuilder("k"), StreamBuilder("x")
    kernel.buffer("b", "UB", 1, 4096)
    stream.emit("V", "sync", None, [LocalTile("b", 1, 1, "fp16", Affine())] * 4)
    kernel.group(0, 1, stream)
    made = kernel.finish()
    assert not Walker(made, DEVICE, *flattened(made, (), DEVICE.engines)).is_orderly(0, 0, 10)
