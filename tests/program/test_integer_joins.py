"""Instructions for joins in integers and fp64: bits of both machines, the checker, the text, values of an element."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from hwsim.arithmetic.vector import VectorUnit
from hwsim.backend.cpu import CPU
from hwsim.dataflows.elementwise import link_engine
from hwsim.devices import load
from hwsim.errors import ProgramError
from hwsim.formats import code_dtype, decode, format_of
from hwsim.machines import functional, reference, timing
from hwsim.machines.element_values import ElementValues
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, LocalTile, Program
from hwsim.report.text.program_text import program_text

ROWS, COLS = 7, 9
WHOLE, COLUMN, ROW, ONE = (ROWS, COLS), (ROWS, 1), (1, COLS), (1, 1)
DEVICES = ("h200", "v100", "mi300x", "ascend910a")


def program_of(device, opcode, out, reads, **attributes):
    """A program of one instruction on one core: C = opcode(in0, in1).

    out, reads: (format, shape). In operands that are smaller than what an instruction writes are read where they lie,
    in global memory.
    """
    vector = device.vector
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    done = kernel.semaphore("done", 0)
    load_engine, store = link_engine(device, "GM", vector.memory), link_engine(device, vector.memory, "GM")

    def tile(name, fmt, shape):
        return LocalTile(kernel.buffer(name, vector.memory, 1, 1024), *shape, fmt)

    tiles, loaded = [], []
    for i, (fmt, shape) in enumerate(reads):
        given = GlobalTile(f"in{i}", Affine(), Affine(), *shape)
        if shape != out[1] and not opcode.startswith("reduce"):
            tiles.append(given)
            continue
        tiles.append(tile(f"t{i}", fmt, shape))
        loaded.append(kernel.semaphore(f"loaded{i}", 0))
        s.emit(load_engine, "copy", tiles[-1], [given], [], loaded[-1:])
    result = tile("c", *out)
    s.emit(vector.engine, opcode, result, tiles, loaded, [done], **attributes)
    s.emit(store, "copy", GlobalTile("C", Affine(), Affine(), *out[1]), [result], [done])
    kernel.group(0, 1, s)
    arrays = [GlobalArray(f"in{i}", *shape, fmt) for i, (fmt, shape) in enumerate(reads)]
    inputs = tuple(array.name for array in arrays)
    return Program((*arrays, GlobalArray("C", *out[1], out[0])), (kernel.finish(),), inputs, "C")


def codes(fmt, shape, seed=0):
    """Codes of integers of all magnitudes; of finite floats, subnormals and zeros among them."""
    rng, form = np.random.default_rng(seed), format_of(fmt)
    is_small = rng.random(shape) < 0.3
    if form.is_integer:
        bits = rng.integers(0, 1 << 63, shape, np.uint64) * 2 + rng.integers(0, 2, shape, np.uint64)
        return np.where(is_small, bits % 5, bits & ((1 << form.bits) - 1)).astype(code_dtype(form))
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-90, 90, shape)
    values = np.where(is_small, rng.choice([0.0, 2.0**-149, 3.0, -(2.0**-130), 0.5, 1.0], shape), values)
    return values.astype(form.dtype_name).view(code_dtype(form))


def inputs_of(program, seed=1):
    arrays = [array for array in program.arrays if array.name in program.inputs]
    return {x.name: codes(x.format, (x.rows, x.cols), seed + i) for i, x in enumerate(arrays)}


def bits_of(program, device, inputs):
    """The program's bits, which the functional and the reference machine give alike."""
    check(program, device)
    assert timing.run(program, device).cycles > 0
    found = functional.run(program, device, inputs)
    for order in range(2):
        assert np.array_equal(reference.run(program, device, inputs, order=order), found)
    return found


def number(fmt, code):
    """A code's exact value."""
    return decode(format_of(fmt), int(code)).fraction


def wrapped(value, fmt):
    return int(value) & ((1 << format_of(fmt).bits) - 1)


def held(value, fmt):
    """The code of the nearest signed integer."""
    limit = 1 << (format_of(fmt).bits - 1)
    return wrapped(min(max(int(value), -limit), limit - 1), fmt)


def rounded(value, fmt):
    """The code of an exact number in fp32 or fp64, to nearest even; it does not overflow."""
    dtype = np.dtype({"fp32": "f4", "fp64": "f8"}[fmt])
    near = dtype.type(float(value))
    around = (np.nextafter(near, dtype.type(-np.inf)), near, np.nextafter(near, dtype.type(np.inf)))
    best = min(around, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(f"u{dtype.itemsize}")) & 1))
    return 0 if best == 0 else int(best.view(f"u{dtype.itemsize}"))


def without_minus_zero(found, fmt):
    """Codes in which every zero is +0: exact numbers have no other."""
    if format_of(fmt).is_integer:
        return found
    top = found.dtype.type(1 << (format_of(fmt).bits - 1))
    return np.where(found == top, found.dtype.type(0), found)


CASES = {  # opcode, format written, formats read, attributes, what an element becomes
    "add int64": ("add", "int64", ("int64", "int64"), {}, lambda x, y: wrapped(int(x) + int(y), "int64")),
    "add int32": ("add", "int32", ("int32", "int32"), {}, lambda x, y: wrapped(int(x) + int(y), "int32")),
    "sub int32": ("sub", "int32", ("int32", "int32"), {}, lambda x, y: wrapped(int(x) - int(y), "int32")),
    "sub int64": ("sub", "int64", ("int64", "int64"), {}, lambda x, y: wrapped(int(x) - int(y), "int64")),
    "scale int64": ("scale", "int64", ("int64",), {"scalar": -65536.0}, lambda x: wrapped(int(x) * -65536, "int64")),
    "scale int32": ("scale", "int32", ("int32",), {"scalar": 3.0}, lambda x: wrapped(int(x) * 3, "int32")),
    "fma int64": (
        "fma",
        "int64",
        ("int64", "int64"),
        {"scalar": -7.0},
        lambda x, y: wrapped(int(x) * -7 + int(y), "int64"),
    ),
    "fill int64": ("fill", "int64", (), {"scalar": -(2.0**40) + 1}, lambda: wrapped(-(2**40) + 1, "int64")),
    "scale by a power beyond fp32": (
        "scale",
        "fp32",
        ("fp32",),
        {"scale_exponent": 140},
        lambda x: rounded(number("fp32", x) / 2**140, "fp32"),
    ),
    "int32 to int64": ("cast", "int64", ("int32",), {}, lambda x: wrapped(number("int32", x), "int64")),
    "int16 to int64": ("cast", "int64", ("int16",), {}, lambda x: wrapped(number("int16", x), "int64")),
    "uint8 to int32": ("cast", "int32", ("uint8",), {}, int),
    "int32 to int8": ("cast", "int8", ("int32",), {}, lambda x: held(number("int32", x), "int8")),
    "int64 to int32": ("cast", "int32", ("int64",), {}, lambda x: held(number("int64", x), "int32")),
    "int32 to fp32": ("cast", "fp32", ("int32",), {}, lambda x: rounded(number("int32", x), "fp32")),
    "int32 to fp64": ("cast", "fp64", ("int32",), {}, lambda x: rounded(number("int32", x), "fp64")),
    "int64 to fp32": ("cast", "fp32", ("int64",), {}, lambda x: rounded(number("int64", x), "fp32")),
    "int64 to fp64": ("cast", "fp64", ("int64",), {}, lambda x: rounded(number("int64", x), "fp64")),
    "fp64 to int32": ("cast", "int32", ("fp64",), {"rounding": "RZ"}, lambda x: held(number("fp64", x), "int32")),
    "fp32 to int8": ("cast", "int8", ("fp32",), {}, lambda x: held(round(number("fp32", x)), "int8")),
    "high byte": ("extract", "int8", ("int16",), {"scale_exponent": 8}, lambda x: int(x) >> 8),
    "low byte": ("extract", "uint8", ("int16",), {}, lambda x: int(x) & 255),
    "four bits": ("extract", "int4", ("int32",), {"scale_exponent": 3}, lambda x: int(x) >> 3 & 15),
    "low word": ("extract", "int32", ("int64",), {}, lambda x: wrapped(x, "int32")),
    "bits of the sign": (
        "extract",
        "int16",
        ("int32",),
        {"scale_exponent": 24},
        lambda x: wrapped(int(number("int32", x)) >> 24, "int16"),
    ),
    "exponent of fp32": ("exponent", "int32", ("fp32",), {}, lambda x: wrapped(exponent(number("fp32", x)), "int32")),
    "exponent of fp64": ("exponent", "int32", ("fp64",), {}, lambda x: wrapped(exponent(number("fp64", x)), "int32")),
}


def exponent(value):
    """The least e with |value| < 2^e."""
    if not value:
        return 0
    e = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return next(x for x in range(e - 1, e + 3) if abs(value) < Fraction(2) ** x)


def is_case_right(name, device):
    opcode, target, sources, attributes, element = CASES[name]
    program = program_of(load(device), opcode, (target, WHOLE), [(fmt, WHOLE) for fmt in sources], **attributes)
    inputs = inputs_of(program)
    want = [[element(*(x[i, j] for x in inputs.values())) for j in range(COLS)] for i in range(ROWS)]
    found = without_minus_zero(bits_of(program, load(device), inputs), target)
    return np.array_equal(found, np.array(want, np.uint64).astype(found.dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_an_element_is_the_exact_one(name, device):
    assert is_case_right(name, device)


def is_power_right(source, target, shape, device):
    """ldexp with exponents of a shape, up to subnormal results."""
    chip, less = load(device), 60
    program = program_of(
        chip, "ldexp", (target, WHOLE), [(source, WHOLE), ("int32", shape)], scalar=-1.0, scale_exponent=less
    )
    inputs = inputs_of(program)
    inputs["in1"] = np.random.default_rng(3).integers(-30, 30, shape).astype(np.int32).view(np.uint32)
    powers = np.broadcast_to(inputs["in1"].view(np.int32), WHOLE)
    found = without_minus_zero(bits_of(program, chip, inputs), target)
    want = [
        [
            rounded(number(source, inputs["in0"][i, j]) * Fraction(2) ** (-int(powers[i, j]) - less), target)
            for j in range(COLS)
        ]
        for i in range(ROWS)
    ]
    return np.array_equal(found, np.array(want, found.dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("source", "target"), [("fp64", "fp64"), ("fp32", "fp32"), ("int32", "fp64"), ("int8", "fp32")]
)
@pytest.mark.parametrize("shape", [WHOLE, COLUMN, ROW, ONE])
def test_ldexp_rounds_once(device, source, target, shape):
    assert is_power_right(source, target, shape, device)


@pytest.mark.parametrize(("opcode", "fmt"), [("add", "int32"), ("sub", "int64"), ("add", "fp64"), ("mul", "fp32")])
@pytest.mark.parametrize("shapes", [(COLUMN, ROW), (WHOLE, ROW), (ONE, WHOLE)])
def test_a_row_or_a_column_counts_for_all(opcode, fmt, shapes):
    chip = load("h200")
    program = program_of(chip, opcode, (fmt, WHOLE), [(fmt, shape) for shape in shapes])
    inputs = inputs_of(program)
    whole = {name: np.ascontiguousarray(np.broadcast_to(x, WHOLE)) for name, x in inputs.items()}
    every = program_of(chip, opcode, (fmt, WHOLE), [(fmt, WHOLE)] * 2)
    assert np.array_equal(bits_of(program, chip, inputs), bits_of(every, chip, whole))


REDUCTIONS = [("reduce_add", "int64"), ("reduce_add", "int32"), ("reduce_max", "fp32"), ("reduce_max", "fp64")]


def is_reduction_right(opcode, fmt, shape, device):
    chip = load(device)
    program = program_of(chip, opcode, (fmt, shape), [(fmt, WHOLE), (fmt, shape)])
    inputs = inputs_of(program)
    x, total = inputs["in0"], inputs["in1"]
    if opcode == "reduce_max":
        total &= total.dtype.type((1 << (format_of(fmt).bits - 1)) - 1)
        total.flat[::3] = rounded(Fraction(2) ** 100, fmt)
    want = []
    for line, start in zip(x if shape == COLUMN else x.T, total.ravel(), strict=True):
        if opcode == "reduce_add":
            want.append(wrapped(int(start) + sum(map(int, line)), fmt))
        else:
            want.append(rounded(max(number(fmt, start), *(abs(number(fmt, one)) for one in line)), fmt))
    return np.array_equal(bits_of(program, chip, inputs).ravel(), np.array(want, total.dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("opcode", "fmt"), REDUCTIONS)
@pytest.mark.parametrize("shape", [COLUMN, ROW])
def test_a_reduction_is_the_exact_one(opcode, fmt, shape, device):
    assert is_reduction_right(opcode, fmt, shape, device)


def test_infinities_and_nans_count_as_0_in_reduce_max():
    chip = load("h200")
    program = program_of(chip, "reduce_max", ("fp32", COLUMN), [("fp32", WHOLE), ("fp32", COLUMN)])
    x = np.ones(WHOLE, np.float32)
    x[0, 1], x[1, 2], x[2] = np.inf, np.nan, -np.inf
    found = bits_of(program, chip, {"in0": x.view(np.uint32), "in1": np.zeros(COLUMN, np.uint32)}).view(np.float32)
    assert found.ravel().tolist() == [1, 1, 0] + [1] * (ROWS - 3)


def test_the_result_of_ldexp_beyond_the_format_follows_the_device():
    for device, largest in (("h200", np.inf), ("ascend910a", np.finfo(np.float32).max)):
        chip = load(device)
        program = program_of(chip, "ldexp", ("fp32", WHOLE), [("fp32", WHOLE), ("int32", WHOLE)], scalar=1.0)
        inputs = {"in0": np.ones(WHOLE, np.float32).view(np.uint32), "in1": np.full(WHOLE, 128, np.uint32)}
        assert np.all(bits_of(program, chip, inputs).view(np.float32) == largest)


def other(opcode, change):
    """The execution with each instruction of an opcode changed."""

    def planted(execute):
        def faulty(self, instr, target, sources, reduced=None):
            if instr.opcode == opcode:
                instr, target, sources = change(instr, target, sources)
            execute(self, instr, target, sources, reduced)

        return faulty

    return planted


def with_fields(**fields):
    return lambda instr, target, sources: (replace(instr, **fields), target, sources)


def without_total(instr, target, sources):
    return instr, target, [sources[0], (np.zeros_like(sources[1][0]), sources[1][1])]


PLANTED = {  # a fault in the execution of an opcode, and what must see it
    "extract, another bit": (
        other("extract", with_fields(scale_exponent=7)),
        lambda: is_case_right("high byte", "h200"),
    ),
    "ldexp, another sign": (
        other("ldexp", with_fields(scalar=1.0)),
        lambda: is_power_right("fp32", "fp32", ROW, "h200"),
    ),
    "ldexp, another power": (
        other("ldexp", with_fields(scale_exponent=59)),
        lambda: is_power_right("int32", "fp64", COLUMN, "h200"),
    ),
    "exponent, rounded value": (
        other("exponent", with_fields(opcode="cast")),
        lambda: is_case_right("exponent of fp32", "h200"),
    ),
    "scale, another power": (
        other("scale", with_fields(scale_exponent=141)),
        lambda: is_case_right("scale by a power beyond fp32", "h200"),
    ),
    "scale of integers, another factor": (
        other("scale", with_fields(scalar=-65537.0)),
        lambda: is_case_right("scale int64", "h200"),
    ),
    "fma of integers, operands exchanged": (
        other("fma", lambda instr, target, sources: (instr, target, sources[::-1])),
        lambda: is_case_right("fma int64", "h200"),
    ),
    "sub of integers, operands exchanged": (
        other("sub", lambda instr, target, sources: (instr, target, sources[::-1])),
        lambda: is_case_right("sub int32", "h200"),
    ),
    "add of integers, one only": (
        other("add", lambda instr, target, sources: (instr, target, [sources[0]] * 2)),
        lambda: is_case_right("add int64", "h200"),
    ),
    "cast of int64, another rounding": (
        other("cast", lambda instr, target, sources: (instr, target, [(sources[0][0] ^ 1 << 30, sources[0][1])])),
        lambda: is_case_right("int64 to fp32", "h200"),
    ),
    "fill of integers, another number": (
        other("fill", with_fields(scalar=-(2.0**40))),
        lambda: is_case_right("fill int64", "h200"),
    ),
    "reduce_add, from zero": (
        other("reduce_add", without_total),
        lambda: is_reduction_right("reduce_add", "int64", COLUMN, "h200"),
    ),
    "reduce_max, from zero": (
        other("reduce_max", without_total),
        lambda: is_reduction_right("reduce_max", "fp64", ROW, "h200"),
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_seen(fault, monkeypatch):
    planted, is_right = PLANTED[fault]
    assert is_right()
    monkeypatch.setattr(VectorUnit, "execute", planted(VectorUnit.execute))
    assert not is_right()


REMAINDERS = [
    ("fp64", "int8", 251),
    ("fp64", "int16", 1024),
    ("fp32", "int8", 256),
    ("int32", "int8", 255),
    ("int64", "int32", 1089),
    ("int32", "int8", 3),
    ("fp32", "int32", 2),
]


def residue(number, modulus):
    """The residue of least magnitude; of two the positive one."""
    rest = number % modulus
    return rest if 2 * rest <= modulus else rest - modulus


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("source", "target", "modulus"), REMAINDERS)
def test_a_remainder_is_the_exact_one(source, target, modulus, device):
    chip = load(device)
    program = program_of(chip, "remainder", (target, WHOLE), [(source, WHOLE)], scale_exponent=modulus)
    inputs = inputs_of(program)
    if not format_of(source).is_integer:  # far beyond int64 too
        exponents = np.random.default_rng(1).integers(0, 30, WHOLE)
        values = np.ldexp(inputs["in0"].view(format_of(source).dtype_name), exponents)
        values[0, :4] = 128.5, -128.5, 512, -512
        inputs["in0"] = values.view(inputs["in0"].dtype)
    want = [[wrapped(residue(math.trunc(number(source, x)), modulus), target) for x in row] for row in inputs["in0"]]
    assert np.array_equal(bits_of(program, chip, inputs), np.array(want, code_dtype(format_of(target))))


@pytest.mark.parametrize(
    ("opcode", "target", "attributes"),
    [
        ("ldexp", ("fp32", "int32"), {"scalar": 1.0}),
        ("remainder", ("int32", "fp32"), {"scale_exponent": 251}),
    ],
)
@pytest.mark.parametrize("device", ("h200", "t4", "ascend910a"))
def test_a_conversion_within_an_instruction_takes_the_time_of_a_cast(device, opcode, target, attributes):
    chip = load(device)

    def busy_cycles(opcode, target, *sources, **attributes):
        program = program_of(chip, opcode, (target, WHOLE), [(source, WHOLE) for source in sources], **attributes)
        return timing.run(program, chip).kernels[0].engines[chip.vector.engine].busy_cycles

    rest = ("int32",) if opcode == "ldexp" else ()
    alike, other = target
    conversion = busy_cycles("cast", alike, other)
    assert conversion > 0
    same_kind = busy_cycles(opcode, alike, alike, *rest, **attributes)
    assert busy_cycles(opcode, alike, other, *rest, **attributes) == same_kind + conversion


def test_a_remainder_of_an_infinity_or_a_nan_is_0():
    chip = load("h200")
    program = program_of(chip, "remainder", ("int16", ONE), [("fp64", ONE)], scale_exponent=7)
    for special in (np.inf, -np.inf, np.nan):
        assert bits_of(program, chip, {"in0": np.array([[special]]).view(np.uint64)})[0, 0] == 0


REFUSED = {
    "a modulus of 1": (
        ("remainder", ("int8", WHOLE), [("int32", WHOLE)]),
        "the modulus is 0; remainder takes 2 to 32768",
    ),
    "a remainder as a float": (
        ("remainder", ("fp32", WHOLE), [("int32", WHOLE)]),
        "the modulus is 0; remainder",
    ),
    "another format": (
        ("add", ("int32", WHOLE), [("int32", WHOLE), ("int64", WHOLE)]),
        "a tile is int64; add takes fp32, fp64, int32 or int64, and all its tiles one",
    ),
    "products of integers": (("mul", ("int32", WHOLE), [("int32", WHOLE)] * 2), "a tile is int32; mul takes fp32"),
    "exponents that are no int32": (
        ("ldexp", ("fp32", WHOLE), [("fp32", WHOLE), ("int64", WHOLE)]),
        "a tile is int64; ldexp takes int32 there",
    ),
    "bits of a float": (("extract", ("int8", WHOLE), [("fp32", WHOLE)]), "a tile is fp32; extract takes int32"),
    "half of the exponents": (
        ("ldexp", ("fp32", WHOLE), [("fp32", WHOLE), ("int32", (ROWS, 2))]),
        "tiles of 7 x 2 and 7 x 9 elements",
    ),
    "a corner as the sum": (
        ("reduce_add", ("int32", (2, 1)), [("int32", WHOLE), ("int32", (2, 1))]),
        "writes a tile of 2 x 1 elements from one of 7 x 9; reduce_add writes 7 x 1 or 1 x 9",
    ),
    "a sum of floats": (
        ("reduce_add", ("fp32", COLUMN), [("fp32", WHOLE), ("fp32", COLUMN)]),
        "a tile is fp32; reduce_add takes int32 or int64",
    ),
    "int64 in a narrow float": (("cast", ("fp16", WHOLE), [("int64", WHOLE)]), "casts int64 to fp16; allowed: fp32"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_checker_refuses(what):
    instr, message = REFUSED[what]
    with pytest.raises(ProgramError, match=re.escape(message)):
        check(program_of(load("h200"), *instr), load("h200"))


def test_only_some_instructions_have_a_scale_exponent():
    program = program_of(load("h200"), "cast", ("fp32", WHOLE), [("fp64", WHOLE)], scale_exponent=3)
    with pytest.raises(
        ProgramError,
        match="scale_exponent is 3; only mma, add, scale, ldexp, extract, remainder, places and reduce_meet have one",
    ):
        check(program, load("h200"))


def test_the_text_says_powers_and_bits():
    chip, exponents = load("h200"), [("fp32", WHOLE), ("int32", ROW)]
    text = program_text(program_of(chip, "ldexp", ("fp32", WHOLE), exponents, scalar=-1.0, scale_exponent=7), chip)
    assert "t0(0) 7x9 fp32 * 2^(-in1[0, 0] 1x9 - 7)" in text
    text = program_text(program_of(chip, "extract", ("int8", WHOLE), [("int16", WHOLE)], scale_exponent=8), chip)
    assert "bits of t0(0) 7x9 int16 from bit 8" in text


def values_of(opcode, out, reads, place, **attributes):
    """The operands of the last arithmetic instruction of an element of C, and what it leaves."""
    chip = load("h200")
    program = program_of(chip, opcode, out, reads, **attributes)
    followed, inputs = ElementValues(program, chip, [place], CPU), inputs_of(program)
    found = functional.run(program, chip, inputs, before_kernel=followed.before_kernel)
    [steps] = followed.checked(found)
    [step] = [step for step in steps if step.opcode == opcode]
    return step, inputs


def test_values_of_a_reduction_are_its_row_and_the_total_so_far():
    step, inputs = values_of("reduce_add", ("int64", COLUMN), [("int64", WHOLE), ("int64", COLUMN)], (4, 0))
    assert [x.code for x in step.operands["source"]] == inputs["in0"][4].tolist()
    assert step.operands["total"].code == inputs["in1"][4, 0]


def test_values_of_a_power_are_of_the_elements_own_exponent():
    step, inputs = values_of("ldexp", ("fp64", WHOLE), [("fp64", WHOLE), ("int32", ROW)], (4, 5), scalar=1.0)
    assert step.operands["source"].code == inputs["in0"][4, 5]
    assert step.operands["exponent"].code == inputs["in1"][0, 5]
