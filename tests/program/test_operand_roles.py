"""Operands by role: block scales and metadata of an mma in a program, and the rules for them."""

from dataclasses import replace

import numpy as np
import pytest

from hwsim.backend.cpu import CPU
from hwsim.devices import instruction, load
from hwsim.errors import ProgramError, UnsupportedError
from hwsim.formats import code_dtype, format_of
from hwsim.machines import functional, reference
from hwsim.machines.element_values import ElementValues
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import ZERO, Affine, GlobalArray, GlobalTile, Instr, LocalTile, Loop, Program, variable
from hwsim.program.roles import OPCODES, ROLES
from hwsim.report.text.program_text import program_text

B200 = load("b200")
MXF8 = "tcgen05.mma.m128n8k32.mxf8f6f4.f32.e4m3.e5m2"
MXF4 = "tcgen05.mma.m128n8k64.mxf4.f32.e2m1.e2m1"
NVF4 = "tcgen05.mma.m128n8k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"
UNITS = (
    MXF8,
    "tcgen05.mma.m128n8k32.mxf8f6f4.f32.e2m1.e3m2",
    MXF4,
    NVF4,
    "tcgen05.mma.m128n8k64.mxf4nvf4.f32.e2m1.e2m1.ue8m0.block16",
    "tcgen05.mma.m128n8k64.mxf4nvf4.f32.e2m1.e2m1.ue8m0.block32",
)
ROWS, COLUMNS = 16, 8


def scaled_program(unit, k, *, steps=1, begins_with_c=False):
    """One tile of C, `steps` matrix instructions of equal parts of K each; scales beside A and B."""
    model = instruction(B200, unit)
    depth, block = k // steps, model.scale_block
    sizes = {
        "a": (ROWS, depth, model.a),
        "b": (depth, COLUMNS, model.b),
        "scale_a": (ROWS, -(-depth // block), model.scale_format),
        "scale_b": (-(-depth // block), COLUMNS, model.scale_format),
    }
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    arrays, operands = [], {}
    names = ("loaded", "copied", "done", "read", "begun", "out")
    loaded, copied, done, read, begun, out = (kernel.semaphore(name) for name in names)
    for role, (rows, cols, form) in sizes.items():
        kernel.buffer(role, "SMEM", steps, -(-rows * cols // 128) * 128)
        if role in ("scale_a", "scale_b"):
            kernel.buffer(f"{role}.tm", "TMEM", steps, 16384)
        operands[role] = LocalTile(role, rows, cols, form, variable("turn"))
        down, across = (steps, 1) if role in ("b", "scale_b") else (1, steps)
        arrays.append(GlobalArray(role, rows * down, cols * across, form))
    kernel.buffer("sum", "TMEM", 1, 16384)
    kernel.buffer("rows", "RF", 1, ROWS * COLUMNS * 4)
    arrays += [GlobalArray("c", ROWS, COLUMNS, "fp32"), GlobalArray("d", ROWS, COLUMNS, "fp32")]
    total, rows = LocalTile("sum", ROWS, COLUMNS, "fp32"), LocalTile("rows", ROWS, COLUMNS, "fp32")
    if begins_with_c:
        s.emit("LDG", "copy", rows, [GlobalTile("c", ZERO, ZERO, ROWS, COLUMNS)], [], [read])
        s.emit("TMEMST", "copy", total, [rows], [read], [begun])
        s.emit("TC", "sync", waits=[begun])
    turn = s.begin("turn")
    for role, tile in operands.items():
        at = variable(turn) * (tile.rows if role in ("b", "scale_b") else tile.cols)
        row, col = (at, ZERO) if role in ("b", "scale_b") else (ZERO, at)
        operands[role] = replace(tile, slot=variable(turn))
        s.emit("TMA", "copy", operands[role], [GlobalTile(role, row, col, tile.rows, tile.cols)], [], [loaded])
    for role in ("scale_a", "scale_b"):
        stage, waits = operands[role], [replace(loaded, count=4)] if role == "scale_a" else []
        operands[role] = replace(stage, buffer=f"{role}.tm")
        s.emit("TMEMCP", "copy", operands[role], [stage], waits, [copied])
    zero = None if begins_with_c else (turn,)
    s.emit("TC", "mma", total, operands, [replace(copied, count=2)], [done], unit=unit, zero_at=zero)
    s.end(turn, steps)
    s.emit("TMEMLD", "copy", rows, [total], [replace(done, count=steps)], [out])
    s.emit("STG", "copy", GlobalTile("d", ZERO, ZERO, ROWS, COLUMNS), [rows], [out])
    kernel.group(0, 1, s)
    inputs = ("a", "b", "scale_a", "scale_b", *(["c"] if begins_with_c else []))
    return Program(tuple(arrays), (kernel.finish(),), inputs, "d")


def drawn(program, seed):
    """Codes of all inputs: any code of narrow formats, NaNs of elements and scales among them."""
    draw, found = np.random.default_rng(seed), {}
    for array in program.arrays:
        form, shape = format_of(array.format), (array.rows, array.cols)
        if array.name in program.inputs and array.format == "fp32":
            found[array.name] = draw.standard_normal(shape).astype(np.float32).view(np.uint32)
        elif array.name in program.inputs and array.format == "ue8m0":
            codes = draw.integers(100, 150, shape)
            found[array.name] = np.where(draw.random(shape) < 0.02, 255, codes).astype(np.uint8)
        elif array.name in program.inputs:
            codes = draw.integers(0, 1 << form.bits, shape)
            # NaNs are rare, so that most elements of C are numbers.
            common = codes & ~(1 << (form.bits - 2)) if form.bits == 8 else codes
            found[array.name] = np.where(draw.random(shape) < 0.005, codes, common).astype(code_dtype(form))
    return found


def by_mma(unit, inputs):
    """The same product by single instructions of the device, the last padded with zeros."""
    model = instruction(B200, unit)
    k, block = inputs["a"].shape[1], model.scale_block
    c = np.zeros((model.m, COLUMNS), np.uint32)
    if "c" in inputs:
        c[:ROWS] = inputs["c"]
    for start in range(0, k, model.k):
        given = {}
        for role, codes in inputs.items():
            if role == "c":
                continue
            per = block if role.startswith("scale") else 1
            full = np.zeros(
                (model.m, model.k // per) if role in ("a", "scale_a") else (model.k // per, COLUMNS), codes.dtype
            )
            span = slice(start // per, -(-min(start + model.k, k) // per))
            part = codes[:, span] if role in ("a", "scale_a") else codes[span]
            full[: part.shape[0], : part.shape[1]] = part
            given[role] = full
        c = B200.mma(unit, given["a"], given["b"], c, scale_a=given["scale_a"], scale_b=given["scale_b"])
    return c[:ROWS]


@pytest.mark.covering("begins_with_c", "steps", "unit")
@pytest.mark.parametrize("begins_with_c", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("unit", UNITS)
def test_a_block_scaled_product_by_both_machines_is_the_instructions(unit, steps, begins_with_c):
    k = instruction(B200, unit).k * 3
    program = scaled_program(unit, k, steps=steps, begins_with_c=begins_with_c)
    check(program, B200)
    inputs = drawn(program, 1)
    expected = by_mma(unit, inputs)
    assert np.array_equal(functional.run(program, B200, inputs), expected)
    for order in range(2):
        assert np.array_equal(reference.run(program, B200, inputs, order=order), expected)
    other = dict(inputs, scale_a=np.roll(inputs["scale_a"], 1, 0))
    assert not np.array_equal(functional.run(program, B200, other), expected)


@pytest.mark.parametrize("unit", [MXF8, MXF4, NVF4])
@pytest.mark.parametrize("rest", [1, 17, 40])
def test_a_last_instruction_that_is_not_full(unit, rest):
    k = instruction(B200, unit).k * 2 + rest
    program = scaled_program(unit, k)
    check(program, B200)
    inputs = drawn(program, 2)
    expected = by_mma(unit, inputs)
    assert np.array_equal(functional.run(program, B200, inputs), expected)
    assert np.array_equal(reference.run(program, B200, inputs), expected)


def test_values_of_an_element_have_its_scales():
    program = scaled_program(NVF4, 192, steps=3)
    inputs = drawn(program, 3)
    values = ElementValues(program, B200, [(5, 2)], CPU)
    output = functional.run(program, B200, inputs, before_kernel=values.before_kernel)
    (steps,) = values.checked(output)
    mmas = [step for step in steps if step.opcode == "mma"]
    assert [tuple(x.code for x in step.operands["scale_a"]) for step in mmas] == [
        tuple(inputs["scale_a"][5, i : i + 4].tolist()) for i in (0, 4, 8)
    ]
    assert [x.format for x in mmas[0].operands["scale_b"]] == ["ue4m3"] * 4
    assert "--scale-a 0x" in mmas[0].command and "--scale-b 0x" in mmas[0].command


def test_the_text_names_the_scales():
    assert ", scale_a scale_a.tm(turn#0) 16x4 ue4m3, scale_b " in program_text(scaled_program(NVF4, 64), B200)


def edited(program, change):
    """The program with its mma replaced."""

    def visit(body):
        return tuple(
            replace(node, body=visit(node.body))
            if isinstance(node, Loop)
            else change(node)
            if isinstance(node, Instr) and node.opcode == "mma"
            else node
            for node in body
        )

    kernel = program.kernels[0]
    groups = tuple(
        replace(group, streams=tuple(replace(x, body=visit(x.body)) for x in group.streams)) for group in kernel.groups
    )
    return replace(program, kernels=(replace(kernel, groups=groups),))


def with_tile(role, **changes):
    def change(instr):
        tiles = dict(zip(instr.roles, instr.reads, strict=True))
        tiles[role] = replace(tiles[role], **changes)
        return replace(instr, reads=tuple(tiles.values()))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: replace(x, reads=x.reads[:2], optional=()), "reads no scales; .* takes scale_a and scale_b: ue4m3"),
        (lambda x: replace(x, reads=x.reads[:3], optional=("scale_a",)), "reads scale_a; .* takes scale_a and scale_b"),
        (lambda x: replace(x, optional=("scale_b", "scale_a")), "names scale_b, scale_a as optional operands; mma"),
        (lambda x: replace(x, optional=("bias", "scale_b")), "names bias, scale_b as optional"),
        (lambda x: replace(x, optional=("scale_a",)), r"reads 4 tiles; mma writes 1 and reads 3 \(a, b, scale_a\)"),
        (with_tile("scale_a", cols=3), "scale_a 16 x 3 does not fit m, n, k = 16, 8, 64; it must be 16 x 4"),
        (with_tile("scale_b", rows=2), "scale_b 2 x 8 does not fit m, n, k = 16, 8, 64; it must be 4 x 8"),
        (with_tile("scale_b", format="ue8m0"), "scale_b is ue8m0; .* takes ue4m3"),
        (with_tile("scale_a", buffer="scale_a"), "scale_a lies in SMEM; .* takes it from TMEM"),
        (with_tile("b", rows=32), "A 16 x 64, B 32 x 8"),
    ],
)
def test_rules_of_scales(change, message):
    program = scaled_program(NVF4, 64)
    check(program, B200)
    with pytest.raises(ProgramError, match=message):
        check(edited(program, change), B200)


def test_a_unit_without_scales_takes_none():
    plain = "tcgen05.mma.m128n16k32.f8f6f4.f32.e2m1.e2m1"
    with pytest.raises(ProgramError, match=r"reads scale_a and scale_b; .* takes no block scales"):
        check(edited(scaled_program(NVF4, 64), lambda x: replace(x, unit=plain)), B200)


def sparse(instr, rows=ROWS, cols=16, of_a=32):
    """The same instruction with half of A, and metadata in the slot of its scales."""
    tiles = dict(zip(instr.roles, instr.reads, strict=True))
    tiles["a"] = replace(tiles["a"], cols=of_a)
    tiles["metadata"] = LocalTile("a", rows, cols, "uint8")
    return replace(instr, reads=tuple(tiles.values()), optional=(*instr.optional, "metadata"))


def test_metadata_has_a_place_in_a_program_and_no_dot_unit():
    program = edited(scaled_program(NVF4, 64), sparse)
    check(program, B200)
    for machine in (functional.run, reference.run):
        with pytest.raises(UnsupportedError, match="no dot unit takes metadata"):
            machine(program, B200, {})
    with pytest.raises(UnsupportedError, match="no dot unit takes metadata"):
        ElementValues(program, B200, [(0, 0)], CPU)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: sparse(x, cols=8), "metadata 16 x 8 does not fit m, n, k = 16, 8, 64; it must be 16 x 16"),
        (lambda x: sparse(x, of_a=64), "must be m x k / 2, k x n and m x n"),
    ],
)
def test_rules_of_metadata(change, message):
    with pytest.raises(ProgramError, match=message):
        check(edited(scaled_program(NVF4, 64), change), B200)


def test_operands_by_role():
    tiles = {"b": LocalTile("b", 4, 8, "fp16"), "a": LocalTile("a", 2, 4, "fp16")}
    s = StreamBuilder("s")
    s.emit("TC", "mma", LocalTile("c", 2, 8, "fp32"), tiles, unit="u", zero_at=None)
    (instr,) = s.finish().body
    assert instr.roles == ("a", "b") and instr.operand("a").buffer == "a" and instr.operand("b").buffer == "b"
    assert instr.operand("accumulator") == instr.writes[0] and not instr.has("scale_a")
    assert not replace(instr, zero_at=()).has("accumulator")
    assert replace(instr, scale_exponent=3).immediates() == {"scale_d": 3}
    with pytest.raises(ProgramError, match="mma reads no scale_a; it reads a, b"):
        instr.operand("scale_a")
    with pytest.raises(ProgramError, match="mma with operands a, scale; it needs a, b; allowed beside: scale_a"):
        s.emit("TC", "mma", None, {"a": tiles["a"], "scale": tiles["b"]})
    assert set(OPCODES) == set(ROLES)


# Parts of slots: the functional machine keeps chains and copies pending by slot, the reference machine does not.

F16 = "tcgen05.mma.m128n16k16.f16.f32.f16.f16"


def in_slots(body):
    """A program of A, B (32 x 32), C (16 x 16) to D (16 x 16) in buffers with one slot each, all in order on `body`."""
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    for name, memory, size in (("x", "SMEM", 4096), ("y", "SMEM", 4096), ("sum", "TMEM", 16384), ("r", "RF", 1024)):
        kernel.buffer(name, memory, 1, size)
    turns = [kernel.semaphore("turn 0", 1)]

    def emit(engine, opcode, target, *sources, **given):
        turns.append(kernel.semaphore(f"turn {len(turns)}"))
        s.emit(engine, opcode, target, sources, [turns[-2]], [turns[-1]], **given)

    body(emit)
    s.emit("STG", "sync", waits=[turns[-1]])
    s.emit("STG", "sync", signals=[turns[0]])
    kernel.group(0, 1, s)
    arrays = [GlobalArray(name, 32, 32, "fp16") for name in "ab"] + [GlobalArray(x, 16, 16, "fp32") for x in "cd"]
    return Program(tuple(arrays), (kernel.finish(),), ("a", "b", "c"), "d")


def shown(name, row, col, rows, cols):
    return GlobalTile(name, Affine(row), Affine(col), rows, cols)


def store(emit):
    emit("TMEMLD", "copy", LocalTile("r", 16, 16, "fp32"), LocalTile("sum", 16, 16, "fp32"))
    emit("STG", "copy", shown("d", 0, 0, 16, 16), LocalTile("r", 16, 16, "fp32"))


def two_sums_in_a_slot(emit):
    emit("TMA", "copy", LocalTile("x", 16, 32, "fp16"), shown("a", 0, 0, 16, 32))
    emit("TMA", "copy", LocalTile("y", 32, 16, "fp16"), shown("b", 0, 0, 32, 16))
    for k in (0, 16):
        for row in (0, 8):
            a = LocalTile("x", 8, 16, "fp16", row=row, col=k, width=32)
            b = LocalTile("y", 16, 16, "fp16", row=k)
            sums = LocalTile("sum", 8, 16, "fp32", row=row)
            emit("TC", "mma", sums, a, b, unit=F16, zero_at=() if k == 0 else None)
    store(emit)


def two_copies_in_a_slot(emit):
    emit("TMA", "copy", LocalTile("x", 8, 32, "fp16"), shown("a", 0, 0, 8, 32))
    emit("TMA", "copy", LocalTile("x", 8, 32, "fp16", row=8), shown("a", 24, 0, 8, 32))
    emit("TMA", "copy", LocalTile("y", 16, 16, "fp16", row=16), shown("b", 0, 0, 16, 16))
    emit("TMA", "copy", LocalTile("y", 16, 16, "fp16"), shown("b", 16, 0, 16, 16))
    a, b = LocalTile("x", 16, 32, "fp16"), LocalTile("y", 32, 16, "fp16")
    emit("TC", "mma", LocalTile("sum", 16, 16, "fp32"), a, b, unit=F16)
    store(emit)


def sums_that_begin_with_a_copy(emit):
    emit("LDG", "copy", LocalTile("r", 16, 16, "fp32"), shown("c", 0, 0, 16, 16))
    emit("TMEMST", "copy", LocalTile("sum", 16, 16, "fp32"), LocalTile("r", 16, 16, "fp32"))
    emit("TMA", "copy", LocalTile("x", 16, 32, "fp16"), shown("a", 0, 0, 16, 32))
    emit("TMA", "copy", LocalTile("y", 32, 16, "fp16"), shown("b", 0, 0, 32, 16))
    a, b = LocalTile("x", 16, 32, "fp16"), LocalTile("y", 32, 16, "fp16")
    emit("TC", "mma", LocalTile("sum", 16, 16, "fp32"), a, b, unit=F16, zero_at=None)
    store(emit)


def a_sum_in_a_part_of_a_copy(emit):
    emit("LDG", "copy", LocalTile("r", 16, 16, "fp32"), shown("c", 0, 0, 16, 16))
    emit("TMEMST", "copy", LocalTile("sum", 16, 16, "fp32"), LocalTile("r", 16, 16, "fp32"))
    emit("TMA", "copy", LocalTile("x", 8, 32, "fp16"), shown("a", 0, 0, 8, 32))
    emit("TMA", "copy", LocalTile("y", 32, 16, "fp16"), shown("b", 0, 0, 32, 16))
    a, b = LocalTile("x", 8, 32, "fp16"), LocalTile("y", 32, 16, "fp16")
    emit("TC", "mma", LocalTile("sum", 8, 16, "fp32", row=8), a, b, unit=F16)
    store(emit)


@pytest.mark.parametrize(
    "body", [two_sums_in_a_slot, two_copies_in_a_slot, sums_that_begin_with_a_copy, a_sum_in_a_part_of_a_copy]
)
def test_parts_of_a_slot_keep_what_lies_beside_them(body):
    program = in_slots(body)
    check(program, B200)
    draw = np.random.default_rng(5)
    inputs = {x: draw.standard_normal((32, 32)).astype(np.float16).view(np.uint16) for x in "ab"}
    inputs["c"] = draw.standard_normal((16, 16)).astype(np.float32).view(np.uint32)
    expected = reference.run(program, B200, inputs)
    assert np.array_equal(functional.run(program, B200, inputs), expected)
