"""Derived variables: what the checker knows of them, and that every machine takes the same tiles."""

from dataclasses import replace

import numpy as np
import pytest

from hwsim.devices import dot_spec, load
from hwsim.errors import ProgramError
from hwsim.machines import functional
from hwsim.machines import reference as readable
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import (
    CORE,
    Advance,
    Affine,
    Derived,
    GlobalArray,
    GlobalTile,
    Kernel,
    LocalTile,
    Program,
    variable,
)
from hwsim.report.text.program_text import program_text

DEVICE = load("ascend910a")
UNIT = "mmad.m16n16k16.f32.f16.f16"
SIZE = 16
FINITE = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC01, 0x3555, 0x7BFF, 0xFBFF, 0x2E66], np.uint16)


def swizzled(rows, cols, k, cores, high=2):
    """C = A B, one 16 x 16 tile a turn; tiles run down columns of `high` rows, dealt out in turn to `cores`."""
    assert rows % high == 0 and rows * cols % cores == 0
    kernel, s = KernelBuilder("gemm"), StreamBuilder("main")
    for name, memory, size in (("a", "L1", 2), ("b", "L1", 2), ("a0", "L0A", 2), ("b0", "L0B", 2), ("c0", "L0C", 4)):
        kernel.buffer(name, memory, 1, SIZE * -(-k // 16) * 16 * 2 if size == 2 else SIZE * SIZE * 4)
    kernel.buffer("cu", "UB", 1, SIZE * SIZE * 4)
    steps = [kernel.semaphore(name, 0) for name in ("loaded", "fed", "done", "out", "stored")]
    loaded, fed, done, out, stored = steps
    ready = kernel.semaphore("ready", 1)
    with s.loop("round", rows * cols // cores) as (_, turn):
        band, within = s.derive("band", turn * cores + variable(CORE), high * cols)
        col, row = s.derive("within", within, high)
        where = (band * high + row) * SIZE
        a, b = LocalTile("a", SIZE, k, "fp16"), LocalTile("b", k, SIZE, "fp16")
        a0, b0 = replace(a, buffer="a0"), replace(b, buffer="b0")
        c0, cu = LocalTile("c0", SIZE, SIZE, "fp32"), LocalTile("cu", SIZE, SIZE, "fp32")
        s.emit("MTE2", "copy", a, [GlobalTile("A", where, Affine(), SIZE, k)], [ready])
        s.emit("MTE2", "copy", b, [GlobalTile("B", Affine(), col * SIZE, k, SIZE)], [], [loaded])
        s.emit("MTE1", "copy", a0, [a], [loaded])
        s.emit("MTE1", "copy", b0, [b], [], [fed])
        s.emit("M", "mma", c0, [a0, b0], [fed], [done], unit=UNIT)
        s.emit("V", "copy", cu, [c0], [done], [out])
        s.emit("MTE3", "copy", GlobalTile("C", where, col * SIZE, SIZE, SIZE), [cu], [out], [stored])
        s.emit("S", "sync", waits=[stored], signals=[ready])
    kernel.group(0, cores, s)
    arrays = (
        GlobalArray("A", rows * SIZE, k, "fp16"),
        GlobalArray("B", k, cols * SIZE, "fp16"),
        GlobalArray("C", rows * SIZE, cols * SIZE, "fp32"),
    )
    return Program(arrays, (kernel.finish(),), ("A", "B"), "C")


@pytest.mark.parametrize("rows, cols, k, cores", [(2, 3, 35, 2), (2, 5, 3, 5), (4, 2, 1, 1)])
def test_both_machines_take_every_core_to_its_tiles(rows, cols, k, cores):
    program = swizzled(rows, cols, k, cores)
    check(program, DEVICE)
    draw = np.random.default_rng(rows)
    a = draw.choice(FINITE, (rows * SIZE, k))
    b = draw.choice(FINITE, (k, cols * SIZE))
    expected = reference.gemm(dot_spec(DEVICE, UNIT), DotOperands(a, b, np.zeros((len(a), b.shape[1]), np.uint32)))
    inputs = {"A": a, "B": b}
    assert np.array_equal(functional.run(program, DEVICE, inputs, threads=2), expected)
    assert np.array_equal(readable.run(program, DEVICE, inputs, order=3), expected)


# --- the checker ----------------------------------------------------------------------------------------------


def stream_of(program):
    return program.kernels[0].groups[0].streams[0]


def with_stream(program, **changes):
    kernel = program.kernels[0]
    group = replace(kernel.groups[0], streams=(replace(stream_of(program), **changes),))
    return replace(program, kernels=(replace(kernel, groups=(group,)),))


def with_array(program, name, rows, cols):
    arrays = tuple(replace(a, rows=rows, cols=cols) if a.name == name else a for a in program.arrays)
    return replace(program, arrays=arrays)


def test_tiles_beyond_an_array_are_refused_with_what_they_reach():
    program = swizzled(4, 3, 16, 4)
    with pytest.raises(ProgramError, match=r"copy on MTE2: takes rows 0 to 63 of array 'A', which has 63"):
        check(with_array(program, "A", 63, 16), DEVICE)
    with pytest.raises(ProgramError, match=r"copy on MTE3: takes columns 0 to 47 of array 'C', which has 47"):
        check(with_array(program, "C", 64, 47), DEVICE)


def lone(derived, affine, rows=1000, count=8):
    """A load of one row of `rows` at `affine`, over cores 0 .. count - 1."""
    s = StreamBuilder("s")
    with s.loop("i", 5):
        s.emit("MTE2", "copy", LocalTile("a", 1, 16, "fp16"), [GlobalTile("A", affine, Affine(), 1, 16)])
    stream = replace(s.finish(), derived=tuple(derived))
    kernel = KernelBuilder("k")
    kernel.buffer("a", "L1", 1, 512)
    group = replace(_grouped(kernel, count).groups[0], streams=(stream,))
    made = replace(kernel.finish(), groups=(group,))
    return Program((GlobalArray("A", rows, 16, "fp16"),), (made,), ("A",), "A")


def _grouped(kernel, count) -> Kernel:
    kernel.group(0, count, StreamBuilder("s"))
    return kernel.finish()


TURN, C = variable("i#0"), variable(CORE)


@pytest.mark.parametrize(
    "of, divisor, affine, last",
    [
        (TURN * 8 + C, 8, variable("q") * 8 + variable("r"), 39),  # the number itself; as intervals 4 * 8 + 7 too
        (TURN * 8 + C, 7, variable("q") * 7 + variable("r"), 39),  # as intervals 5 * 7 + 6 = 41
        (TURN * 8 + C, 13, variable("r") * 3 + variable("q"), 12 * 3 + 2),
        (C, 3, variable("q") * 10 + variable("r") + TURN * 100, 400 + 21),  # as intervals 22
        (C * -1 + 7, 4, variable("q") + variable("r") * 2, 7),
    ],
)
def test_bounds_are_those_of_the_values_taken(of, divisor, affine, last):
    derived = (Derived("q", of, divisor, "quotient"), Derived("r", of, divisor, "remainder"))
    check(lone(derived, affine, last + 1), DEVICE)
    with pytest.raises(ProgramError, match=f"takes rows 0 to {last} of array 'A', which has {last}"):
        check(lone(derived, affine, last), DEVICE)
    with pytest.raises(ProgramError, match="takes rows -1 to"):
        check(lone(derived, affine + -1, 1000), DEVICE)


def test_an_address_by_way_of_a_counter_is_bounded_by_its_remainder_alone():
    remainder = Derived("r", variable("n") * 3, 10, "remainder")
    check(lone((remainder,), variable("r"), 10), DEVICE)
    quotient = Derived("q", variable("n"), 10, "quotient")
    check(lone((quotient,), variable("q"), 1), DEVICE)  # a counter has no bounds that are known


def test_derived_variables_must_have_a_value():
    def refused(derived, text):
        with pytest.raises(ProgramError, match=text):
            check(lone(derived, variable(derived[0].name)), DEVICE)

    refused((Derived("q", TURN, 0, "quotient"),), "'q' has divisor 0; it must be at least 1")
    refused(
        (Derived("q", variable("p"), 2, "quotient"), Derived("p", TURN, 2, "quotient")), "'p', which is derived after"
    )
    refused((Derived("q", variable("q"), 2, "quotient"),), "depends on 'q', which is derived after it")
    refused((Derived("i#0", C, 2, "quotient"),), "a loop, a counter, CORE or another derived variable has that name")
    refused((Derived("q", C, 2, "quotient"), Derived("q", C, 2, "remainder")), "another derived variable")
    body = stream_of(lone((), Affine())).body
    advanced = with_stream(lone((), Affine()), body=(*body, Advance("q")), derived=(Derived("q", C, 2, "quotient"),))
    with pytest.raises(ProgramError, match="a counter, CORE"):
        check(advanced, DEVICE)


def test_a_derived_variable_needs_its_loop_around():
    program = lone((Derived("q", TURN, 2, "quotient"), Derived("p", variable("q"), 2, "quotient")), variable("p"))
    check(program, DEVICE)
    loop = stream_of(program).body[0]
    with pytest.raises(ProgramError, match="uses the variable of loop 'i#0', which is not around it"):
        check(with_stream(program, body=(loop, *loop.body)), DEVICE)


def test_program_text_says_how_variables_are_derived():
    text = program_text(swizzled(4, 3, 16, 4), DEVICE)
    assert "band.quotient#0 = (4*round#0 + core) // 6\n" in text
    assert "within.remainder#2 = (band.remainder#0) % 2\n" in text
