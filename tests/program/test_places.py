"""Addresses decided on tables: what is vouched for there breaks no rule, instruction by instruction."""

import random

import pytest

from hwsim.devices import load
from hwsim.errors import ProgramError
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import _Checker, _Shortened, _whole
from hwsim.program.flat import flattened
from hwsim.program.ir import CORE, Affine, GlobalArray, GlobalTile, LocalTile, one_of, variable
from hwsim.program.places import Places, UnsureError
from hwsim.program.resolve import Scope
from hwsim.program.streams import balances_of

DEVICE = load("ascend910a")
ARRAYS = (GlobalArray("X", 40, 24, "fp32"), GlobalArray("T", 24, 40, "fp32", order="columns"))


def drawn(draw):
    """A kernel of loads whose addresses are made of loops, counters, the core and derived variables, rightly or not."""
    kernel = KernelBuilder("k")
    ring = kernel.ring("b", "UB", 2, 4096)
    first = 0
    for _ in range(draw.choice((1, 2))):
        stream = StreamBuilder("main")
        block(draw, stream, ring, [Affine(), variable(CORE)], 0)
        count = draw.randint(1, 4)
        kernel.group(first, count, stream)
        first += count
    return kernel.finish()


def block(draw, stream, ring, known, depth):
    for _ in range(draw.randint(1, 3)):
        what = draw.random()
        if what < 0.3 and depth < 2:
            with stream.loop("l", draw.choice((1, 2, 3, 8))) as (_, index):
                inner = [*known, index]
                block(draw, stream, ring, inner, depth + 1)
            if draw.random() < 0.1:
                known = inner  # and so a variable outside its loop
        elif what < 0.4:
            stream.advance("n" if draw.random() < 0.9 else CORE)
            known = [*known, variable("n")]
        elif what < 0.55:
            known = [*known, *stream.derive("d", draw.choice(known) * 3 + 1, draw.choice((1, 2, 3)))]
        else:
            row, col = (draw.choice(known) * draw.choice((1, 1, 4, -1)) + draw.choice((0, 0, 2)) for _ in range(2))
            source = GlobalTile(draw.choice("XT"), row, col, 8, 8)
            target = LocalTile("b", 8, 8, "fp32", draw.choice(known))
            syncs = [[one_of(draw.choice(("b.free", "b.full")))] for _ in range(2)]
            stream.emit("MTE2", "copy", target, [source], *syncs)


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_rules(seed):
    draw, kept, refused = random.Random(seed), 0, 0
    for _ in range(300):
        kernel = drawn(draw)
        checker = _Checker(Scope(kernel, ARRAYS, DEVICE), ARRAYS)
        try:
            places = Places(kernel, flattened(kernel, ARRAYS, DEVICE.engines)[1], ARRAYS)
            found = [places.group(number, 0) for number in range(len(kernel.groups))]
        except UnsureError:
            try:
                checker._one_by_one()
            except ProgramError:
                refused += 1
            continue
        checker._one_by_one()
        kept += 1
        for group, balances in zip(kernel.groups, found, strict=True):
            wanted = balances_of(group, _whole)
            got = tuple({name: of for name, of in one.items() if of != (0, 0)} for one in balances)
            assert got == wanted
    assert kept > 30 and refused > 30


@pytest.mark.parametrize("factor", [1 << 62, -(1 << 62)])
def test_addresses_beyond_64_bits_are_left_to_the_rules(factor):
    kernel = KernelBuilder("k")
    ring, stream = kernel.ring("b", "UB", 2, 4096), StreamBuilder("main")
    with stream.loop("l", 8) as (_, index):
        target, source = LocalTile("b", 8, 8, "fp32"), GlobalTile("X", index * factor, Affine(), 8, 8)
        stream.emit("MTE2", "copy", target, [source], [ring.free], [ring.full])
    kernel.group(0, 1, stream)
    made = kernel.finish()
    with pytest.raises(UnsureError):
        Places(made, flattened(made, ARRAYS, DEVICE.engines)[1], ARRAYS).group(0, 0)


def copies(*counts):
    """A kernel whose first instruction names CORE and another a derived variable, in loops of these counts."""
    kernel = KernelBuilder("k")
    ring, stream = kernel.ring("b", "UB", 2, 4096), StreamBuilder("main")
    target = LocalTile("b", 8, 8, "fp32")
    stream.emit("MTE2", "copy", target, [GlobalTile("X", variable(CORE) * 8, Affine(), 8, 8)], [ring.free], [ring.full])
    for count in counts:
        with stream.loop("l", count) as (_, index):
            row, col = stream.derive("d", index * 2 + 1, 3)
            source = GlobalTile("X", row * 0, col, 8, 8)
            stream.emit("MTE2", "copy", target, [source], [ring.free], [ring.full, ring.full])
    kernel.group(0, 2, stream)
    return kernel.finish()


@pytest.mark.parametrize("period", [0, 1, 2, 5])
def test_tables_suffice_for_cores_derived_variables_and_shortened_loops(period):
    made = copies(1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 14, 15, 16, 19, 20, 21, 99)
    counts = _Shortened(period) if period else _whole
    found = Places(made, flattened(made, ARRAYS, DEVICE.engines)[1], ARRAYS).group(0, period)
    assert tuple(found) == balances_of(made.groups[0], counts)
