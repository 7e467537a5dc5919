"""Each opcode once executed wrongly by the functional machine: the machine of single instructions then has other bits.

The fault is in what the functional machine executes. The program, and what the other machine executes, stay as they
are. A new opcode without a fault fails here.
"""

from dataclasses import replace

import numpy as np
import pytest

from hwsim.devices import load
from hwsim.formats import code_dtype, format_of
from hwsim.machines import functional, kernel_values, reference
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import ZERO, GlobalArray, GlobalTile, Instr, LocalTile, Loop, Program
from hwsim.program.roles import OPCODES, ROLES

DEVICE = load("b200")
MMA = "tcgen05.mma.m128n16k16.f16.f32.f16.f16"
ROWS, COLS = 16, 8
WHOLE, COLUMN, ROW, QUAD = (ROWS, COLS), (ROWS, 1), (1, COLS), (ROWS, 4)
FP32, INT32 = ("fp32", WHOLE), ("int32", WHOLE)


def lanes(opcode, target, *sources, optional=(), engine="FMA", **attributes):
    """A program of one instruction of the fp32 lanes between loads and a store. optional: roles of further operands."""
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    loaded, done = kernel.semaphore("loaded"), kernel.semaphore("done")
    arrays, tiles = [], {}
    for role, (form, shape) in zip((*ROLES[opcode].required, *optional), sources, strict=True):
        kernel.buffer(role, "RF", 1, 1024)
        tiles[role] = LocalTile(role, *shape, form)
        arrays.append(GlobalArray(f"in.{role}", *shape, form))
        s.emit("LDG", "copy", tiles[role], [GlobalTile(f"in.{role}", ZERO, ZERO, *shape)], [], [loaded])
    kernel.buffer("result", "RF", 1, 1024)
    result = LocalTile("result", *target[1], target[0])
    waits = [replace(loaded, count=len(tiles))] if tiles else []
    s.emit(engine, opcode, result, tiles, waits, [done], label="planted", **attributes)
    s.emit("STG", "copy", GlobalTile("out", ZERO, ZERO, *target[1]), [result], [done])
    kernel.group(0, 1, s)
    inputs = tuple(array.name for array in arrays)
    return Program((*arrays, GlobalArray("out", *target[1], target[0])), (kernel.finish(),), inputs, "out")


def of_copy():
    """A copy of a part of an array to another."""
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    kernel.buffer("x", "RF", 1, 1024)
    loaded, tile = kernel.semaphore("loaded"), LocalTile("x", ROWS, COLS, "fp32")
    s.emit("LDG", "copy", tile, [GlobalTile("in", ZERO + 1, ZERO, ROWS, COLS)], [], [loaded], label="planted")
    s.emit("STG", "copy", GlobalTile("out", ZERO, ZERO, ROWS, COLS), [tile], [loaded])
    kernel.group(0, 1, s)
    arrays = GlobalArray("in", ROWS + 2, COLS, "fp32"), GlobalArray("out", ROWS, COLS, "fp32")
    return Program(arrays, (kernel.finish(),), ("in",), "out")


def of_mma():
    """A product of one instruction."""
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    loaded, done, out = (kernel.semaphore(name) for name in ("loaded", "done", "out"))
    sizes = {"a": (ROWS, 32), "b": (32, ROWS)}
    tiles = {role: LocalTile(kernel.buffer(role, "SMEM", 1, 1024), *sizes[role], "fp16") for role in sizes}
    for role, tile in tiles.items():
        s.emit("TMA", "copy", tile, [GlobalTile(role, ZERO, ZERO, *sizes[role])], [], [loaded])
    total = LocalTile(kernel.buffer("sum", "TMEM", 1, 16384), ROWS, ROWS, "fp32")
    rows = LocalTile(kernel.buffer("rows", "RF", 1, 1024), ROWS, ROWS, "fp32")
    s.emit("TC", "mma", total, tiles, [replace(loaded, count=2)], [done], unit=MMA, label="planted")
    s.emit("TMEMLD", "copy", rows, [total], [done], [out])
    s.emit("STG", "copy", GlobalTile("out", ZERO, ZERO, ROWS, ROWS), [rows], [out])
    kernel.group(0, 1, s)
    arrays = *(GlobalArray(role, *sizes[role], "fp16") for role in sizes), GlobalArray("out", ROWS, ROWS, "fp32")
    return Program(arrays, (kernel.finish(),), ("a", "b"), "out")


def of_sync():
    """A store that a sync alone holds back until what it stores is there; its stream is issued first."""
    kernel, first, second = KernelBuilder("k"), StreamBuilder("stores"), StreamBuilder("loads")
    tile = LocalTile(kernel.buffer("x", "RF", 1, 1024), ROWS, COLS, "fp32")
    loaded = kernel.semaphore("loaded")
    first.emit("STG", "sync", waits=[loaded], label="planted")
    first.emit("STG", "copy", GlobalTile("out", ZERO, ZERO, ROWS, COLS), [tile])
    second.emit("LDG", "copy", tile, [GlobalTile("in", ZERO, ZERO, ROWS, COLS)], [], [loaded])
    kernel.group(0, 1, first, second)
    arrays = GlobalArray("in", ROWS, COLS, "fp32"), GlobalArray("out", ROWS, COLS, "fp32")
    return Program(arrays, (kernel.finish(),), ("in",), "out")


def attribute(**values):
    return lambda instr: replace(instr, **values)


def tile_of(role, **values):
    """The same instruction with another tile as one of its operands."""

    def change(instr):
        tiles = [replace(x, **values) if own == role else x for own, x in zip(instr.roles, instr.reads, strict=True)]
        return replace(instr, reads=tuple(tiles))

    return change


def half_of_k(instr):
    a, b = instr.reads
    return replace(instr, reads=(replace(a, cols=16, width=32), replace(b, rows=16)))


#: By opcode: a program with it, and the instruction that is executed in its place.
PLANTED = {
    "copy": (of_copy(), lambda x: replace(x, reads=(replace(x.reads[0], row=ZERO + 2),))),
    "mma": (of_mma(), half_of_k),
    "cast": (lanes("cast", ("fp16", WHOLE), FP32), attribute(rounding="RZ")),
    "add": (lanes("add", FP32, FP32, FP32), attribute(opcode="sub")),
    "sub": (lanes("sub", FP32, FP32, FP32), lambda x: replace(x, reads=x.reads[::-1])),
    "mul": (lanes("mul", FP32, FP32, FP32), attribute(opcode="add")),
    "scale": (lanes("scale", FP32, FP32, scalar=0.7), attribute(scalar=0.7 + 2.0**-22)),
    "fill": (lanes("fill", FP32, scalar=1.5), attribute(scalar=1.25)),
    "sync": (of_sync(), attribute(waits=())),
    "fma": (lanes("fma", FP32, FP32, FP32, scalar=1.5), lambda x: replace(x, reads=x.reads[::-1])),
    "fma with a multiplier": (
        lanes("fma", FP32, FP32, FP32, ("fp32", COLUMN), optional=("multiplier",)),
        lambda x: replace(x, reads=(x.reads[1], x.reads[0], x.reads[2])),
    ),
    "add rounded up": (lanes("add", FP32, FP32, FP32, rounding="RU"), attribute(rounding="RNE")),
    "fma rounded up": (
        lanes("fma", FP32, FP32, FP32, ("fp32", COLUMN), optional=("multiplier",), rounding="RU"),
        attribute(rounding="RNE"),
    ),
    "places": (lanes("places", INT32, FP32, scalar=58.391586), attribute(scalar=60.0)),
    "add_row": (lanes("add_row", FP32, FP32, ("fp32", ROW)), lambda x: replace(x, opcode="copy", reads=x.reads[:1])),
    "ldexp": (lanes("ldexp", FP32, FP32, INT32, scalar=1.0), attribute(scalar=-1.0)),
    "extract": (lanes("extract", ("int8", WHOLE), INT32, scale_exponent=8), attribute(scale_exponent=7)),
    "exponent": (lanes("exponent", INT32, FP32), attribute(opcode="cast")),
    "reduce_add": (
        lanes("reduce_add", ("int32", COLUMN), INT32, ("int32", COLUMN)),
        tile_of("source", cols=COLS - 1, width=COLS),
    ),
    "reduce_max": (
        lanes("reduce_max", ("fp32", COLUMN), FP32, ("fp32", COLUMN)),
        tile_of("source", cols=1, width=COLS),
    ),
    "select": (
        lanes("select", INT32, ("int32", COLUMN), INT32, INT32),
        lambda x: replace(x, reads=(x.reads[0], x.reads[2], x.reads[1])),
    ),
    "mask": (
        lanes("mask", FP32, FP32, ("int32", ROW), ("int32", COLUMN), scalar=-float("inf")),
        attribute(scalar=0.0),
    ),
    "reduce_largest": (
        lanes("reduce_largest", ("fp32", COLUMN), FP32, ("fp32", COLUMN)),
        attribute(opcode="reduce_max"),
    ),
    "reduce_lanes": (
        lanes("reduce_lanes", ("fp32", QUAD), FP32, ("fp32", QUAD)),
        tile_of("source", cols=COLS - 1, width=COLS),
    ),
    "reduce_meet": (
        lanes("reduce_meet", ("fp32", COLUMN), ("fp32", QUAD), scale_exponent=2),
        attribute(scale_exponent=1),
    ),
    "reduce_row": (
        lanes("reduce_row", ("fp32", COLUMN), FP32, ("fp32", COLUMN)),
        tile_of("source", cols=COLS - 1, width=COLS),
    ),
    "choose_above": (
        lanes("choose_above", FP32, FP32, FP32, FP32, scalar=0.25),
        lambda x: replace(x, reads=(x.reads[0], x.reads[2], x.reads[1])),
    ),
    "ex2_cubic": (lanes("ex2_cubic", FP32, FP32), attribute(opcode="ex2")),
    "halve_below": (lanes("halve_below", FP32, FP32, scalar=0.25), attribute(scalar=0.5)),
    "square_below": (lanes("square_below", FP32, FP32, FP32, scalar=0.25), lambda x: replace(x, reads=x.reads[::-1])),
    "or_zero": (lanes("or_zero", FP32, FP32), attribute(opcode="or_one")),
    "or_one": (lanes("or_one", FP32, FP32), attribute(opcode="or_zero")),
    "reciprocal": (lanes("reciprocal", FP32, FP32), attribute(opcode="rcp")),
    "divide": (lanes("divide", FP32, FP32, ("fp32", COLUMN)), lambda x: replace(x, opcode="mul")),
    "log": (lanes("log", FP32, FP32), attribute(opcode="lg2")),
    "ex2": (lanes("ex2", FP32, FP32, engine="MUFU"), attribute(opcode="exp")),
    "lg2": (lanes("lg2", FP32, FP32, engine="MUFU"), attribute(opcode="log")),
    "rcp": (lanes("rcp", FP32, FP32, engine="MUFU"), attribute(opcode="reciprocal")),
    "exp": (lanes("exp", FP32, FP32, engine="MUFU"), attribute(opcode="ex2")),
    "remainder": (lanes("remainder", ("int8", WHOLE), INT32, scale_exponent=251), attribute(scale_exponent=250)),
}


def inputs_of(program):
    """Codes of numbers with all their digits; small integers as exponents."""
    draw, found = np.random.default_rng(3), {}
    for array in program.arrays:
        form, shape = format_of(array.format), (array.rows, array.cols)
        if array.name not in program.inputs:
            continue
        if form.is_integer:
            most = {"in.exponent": 40, "in.condition": 2}.get(array.name, 1 << 30)
            found[array.name] = draw.integers(-most, most, shape).astype(np.int32).view(code_dtype(form))
        else:
            found[array.name] = draw.standard_normal(shape).astype(form.dtype_name).view(code_dtype(form))
            if array.name == "in.source" and form.name == "fp32":
                found[array.name][0, :2] = 0, 0xFF800000  # +0 and -infinity
    return found


def faulty(kernel, change):
    """The kernel with the planted instruction changed."""

    def visit(body):
        return tuple(
            replace(node, body=visit(node.body))
            if isinstance(node, Loop)
            else change(node)
            if isinstance(node, Instr) and node.label == "planted"
            else node
            for node in body
        )

    groups = tuple(
        replace(group, streams=tuple(replace(one, body=visit(one.body)) for one in group.streams))
        for group in kernel.groups
    )
    return replace(kernel, groups=groups)


def test_each_opcode_has_a_planted_fault():
    assert {name.split()[0] for name in PLANTED} == set(OPCODES), "plant a fault in its execution here"


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_in_the_execution_of_an_opcode_is_seen(name, monkeypatch):
    program, change = PLANTED[name]
    (planted,) = (instr for instr in program.kernels[0].instrs() if instr.label == "planted")
    assert planted.opcode == name.split()[0]
    check(program, DEVICE)
    inputs = inputs_of(program)
    expected = [reference.run(program, DEVICE, inputs, order=order) for order in range(3)]
    assert all(np.array_equal(functional.run(program, DEVICE, inputs), one) for one in expected)
    flatten = kernel_values.flatten
    monkeypatch.setattr(kernel_values, "flatten", lambda kernel, *given: flatten(faulty(kernel, change), *given))
    fresh = replace(program, kernels=tuple(replace(kernel) for kernel in program.kernels))  # nothing is kept of it
    assert not np.array_equal(functional.run(fresh, DEVICE, inputs), expected[0])
