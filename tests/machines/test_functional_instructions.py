"""The functional machine on programs of a few instructions by hand: each has the bits of one instruction at a time."""

from dataclasses import replace

import numpy as np
import pytest

from hwsim.devices import load
from hwsim.machines import functional, reference
from hwsim.program.ir import (
    CORE,
    Affine,
    Buffer,
    CoreGroup,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    Program,
    Stream,
    variable,
)

CHIP = load("ascend910a")
SIDE, CORES = 8, 3


def executed(opcode, target, sources=(), **options):
    return Instr("V", opcode, (target,), tuple(sources), **options)


def local(rows, cols, fmt="fp32", slot=0, **place):
    return LocalTile("u", rows, cols, fmt, slot if isinstance(slot, Affine) else Affine(slot), **place)


def part(array, row, col, rows, cols):
    row, col = (x if isinstance(x, Affine) else Affine(x) for x in (row, col))
    return GlobalTile(array, row, col, rows, cols)


def program(*body, cores=1, inputs=("X",), fmt="fp32"):
    """A program on X and Y, of SIDE x SIDE elements for each core."""
    arrays = tuple(GlobalArray(name, SIDE * cores, SIDE, fmt) for name in "XY")
    group = CoreGroup(0, cores, (Stream("s", body),))
    return Program(arrays, (Kernel("k", (group,), (Buffer("u", "UB", 3, 2048),)),), inputs, "Y")


def drawn(prog, seed=0):
    data = np.random.default_rng(seed)
    shapes = {array.name: (array.rows, array.cols) for array in prog.arrays}
    return {name: data.standard_normal(shapes[name]).astype(np.float32).view(np.uint32) for name in prog.inputs}


def assert_as_one_by_one(prog, inputs=None):
    inputs = drawn(prog) if inputs is None else inputs
    before = {name: codes.copy() for name, codes in inputs.items()}
    got = functional.run(prog, CHIP, inputs)
    assert all(np.array_equal(codes, before[name]) for name, codes in inputs.items())
    want = reference.run(prog, CHIP, before)
    assert np.array_equal(got, want)
    return got


def test_slots_of_negative_numbers_are_counted_from_the_last():
    turn = variable("turn")
    assert_as_one_by_one(
        program(
            Loop("turn", 3, (executed("copy", local(2, 8, slot=turn * -1), [part("X", turn * 2, 0, 2, 8)]),)),
            *[executed("copy", part("Y", 2 * slot, 0, 2, 8), [local(2, 8, slot=slot)]) for slot in range(3)],
        )
    )


def test_a_repeated_copy_to_a_place_that_it_reads_copies_again():
    assert_as_one_by_one(
        program(
            executed("copy", local(8, 8), [part("X", 0, 0, 8, 8)]),
            executed("copy", local(6, 8, row=1, width=8), [local(6, 8)], repeat=3),
            executed("copy", part("Y", 0, 0, 8, 8), [local(8, 8)]),
        )
    )


@pytest.mark.parametrize("opcode", ["scale", "fma"])
def test_factors_of_both_zeros_are_different_instructions(opcode):
    sources = [local(4, 8), *[local(4, 8, slot=2)] * (opcode == "fma")]
    got = assert_as_one_by_one(
        program(
            executed("copy", local(4, 8), [part("X", 0, 0, 4, 8)]),
            executed("fill", local(4, 8, slot=2), scalar=-0.0),
            executed(opcode, local(4, 8, slot=1), sources, scalar=0.0),
            executed("copy", part("Y", 0, 0, 4, 8), [local(4, 8, slot=1)]),
            executed(opcode, local(4, 8, slot=1), sources, scalar=-0.0),
            executed("copy", part("Y", 4, 0, 4, 8), [local(4, 8, slot=1)]),
        )
    )
    assert not np.array_equal(got[:4], got[4:])


def test_a_fill_with_negative_zero_keeps_the_sign():
    got = assert_as_one_by_one(
        program(executed("fill", local(8, 8), scalar=-0.0), executed("copy", part("Y", 0, 0, 8, 8), [local(8, 8)]))
    )
    assert np.all(got == 1 << 31)


def test_a_fill_of_fp64_is_rounded_to_fp64_alone():
    tile = local(8, 8, "fp64")
    prog = program(executed("fill", tile, scalar=0.1), executed("copy", part("Y", 0, 0, 8, 8), [tile]), fmt="fp64")
    assert np.all(functional.run(prog, CHIP, {}).view(np.float64) == 0.1)


def test_an_input_that_the_program_writes_stays_as_the_caller_has_it():
    prog = program(
        executed("copy", local(4, 8), [part("X", 0, 0, 4, 8)]),
        executed("copy", part("Y", 2, 0, 4, 8), [local(4, 8)]),
        inputs=("X", "Y"),
    )
    assert_as_one_by_one(replace(prog, kernels=prog.kernels * 2))


def test_what_nobody_wrote_is_zero():
    for _ in range(3):
        np.full((SIDE, SIDE), 0xFF, np.uint32)  # memory that the next array may take
        assert not assert_as_one_by_one(program(executed("copy", part("Y", 0, 0, 4, 4), [part("Y", 4, 4, 4, 4)]))).any()


def reduced(opcode, row, col, size, fmt):
    """A reduction of one element each along an axis, from the tile of X at (row, col) to Y's, by each core."""
    place = row + variable(CORE) * SIDE, Affine(col)
    return (
        executed("copy", local(*size, fmt), [part("X", *place, *size)]),
        executed("fill", local(*size, fmt, 1), scalar=0.5 if fmt == "fp32" else 3.0),
        executed(opcode, local(*size, fmt, 2), [local(*size, fmt), local(*size, fmt, 1)]),
        executed("copy", part("Y", *place, *size), [local(*size, fmt, 2)]),
    )


@pytest.mark.parametrize(("opcode", "fmt"), [("reduce_add", "int32"), ("reduce_max", "fp32")])
@pytest.mark.parametrize("size", [(4, 1), (1, 4), (1, 1)])
def test_reductions_of_one_element_beside_one_another_do_not_mix(opcode, fmt, size):
    rows, cols = size
    body = [
        instr for row in range(0, SIDE, rows) for col in range(0, SIDE, cols)
        for instr in reduced(opcode, row, col, size, fmt)
    ]  # fmt: skip
    assert_as_one_by_one(program(*body, cores=CORES, fmt=fmt))


def test_reductions_of_rows_to_totals_in_several_columns_go_along_the_rows():
    body = [executed("copy", local(8, 2), [part("X", 0, 0, 8, 2)])]
    for col in range(2):
        body += [
            executed("copy", local(8, 1, slot=1), [part("X", 0, 2 + col, 8, 1)]),
            executed("reduce_max", local(8, 1, slot=2), [local(8, 2), local(8, 1, slot=1)]),
            executed("copy", part("Y", 0, col, 8, 1), [local(8, 1, slot=2)]),
        ]
    assert_as_one_by_one(program(*body))


def test_sums_of_four_lanes_beside_one_another_do_not_mix():
    body = []
    for col in range(0, SIDE, 4):
        body += [
            executed("copy", local(4, 4), [part("X", 0, col, 4, 4)]),
            executed("copy", local(4, 4, slot=1), [part("X", 4, col, 4, 4)]),
            executed("reduce_lanes", local(4, 4, slot=2), [local(4, 4), local(4, 4, slot=1)]),
            executed("copy", part("Y", 0, col, 4, 4), [local(4, 4, slot=2)]),
        ]
    assert_as_one_by_one(program(*body))
