"""An mma that divides its accumulator by a power of two first: bits of both machines, the checker, the text."""

import json

import numpy as np
import pytest

from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, load
from hwsim.devices.device import Device
from hwsim.errors import ProgramError
from hwsim.formats import decode, format_of, round_to
from hwsim.machines import functional
from hwsim.machines import reference as readable
from hwsim.machines.element_values import ElementValues
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.terms import Exact
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.executed import by_opcode
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, LocalTile, Program
from hwsim.report.text.program_text import program_text

UNIT = "mmad.m16n16k16.f32.f16.f16"
SIZE, K = 16, 16
# Products down to 2^-48: after a few scalings an fp32 accumulator of them is far from subnormal, so one operand
# column brings it there by cancellation: large terms that leave a unit in the last place.
CODES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC01, 0x3555, 0x7BFF, 0xFBFF, 0x2E66], np.uint16)


def device(rule="exact", largest=15):
    tree = load("ascend910a").model_dump(by_alias=True)
    unit = {"model": "fused", "terms": 16, "fraction_bits": 25, "floor_exponent": -133}
    tree["dot_units"]["cube"] = unit
    tree["instructions"][UNIT] |= {"scale_input_d": largest, "scale_input_d_rule": rule}
    return Device.model_validate_json(json.dumps(tree))


def chained(steps):
    """One 16 x 16 block: an mma of 16 of K for each (scale exponent, repeat), the first from zero."""
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    depth = K * len(steps)
    for name, memory in (("a", "L1"), ("b", "L1"), ("a0", "L0A"), ("b0", "L0B")):
        kernel.buffer(name, memory, len(steps), SIZE * K * 2)
    kernel.buffer("c0", "L0C", 1, SIZE * SIZE * 4)
    kernel.buffer("cu", "UB", 1, SIZE * SIZE * 4)
    loaded, fed, done, out = (kernel.semaphore(name) for name in ("loaded", "fed", "done", "out"))
    c0, cu = LocalTile("c0", SIZE, SIZE, "fp32"), LocalTile("cu", SIZE, SIZE, "fp32")
    for i, (scale, repeat) in enumerate(steps):
        slot = Affine(i)
        a, b = LocalTile("a", SIZE, K, "fp16", slot), LocalTile("b", K, SIZE, "fp16", slot)
        a0, b0 = LocalTile("a0", SIZE, K, "fp16", slot), LocalTile("b0", K, SIZE, "fp16", slot)
        s.emit("MTE2", "copy", a, [GlobalTile("A", Affine(), Affine(i * K), SIZE, K)])
        s.emit("MTE2", "copy", b, [GlobalTile("B", Affine(i * K), Affine(), K, SIZE)], [], [loaded])
        s.emit("MTE1", "copy", a0, [a], [loaded])
        s.emit("MTE1", "copy", b0, [b], [], [fed])
        last = [done] if i == len(steps) - 1 else []
        zero = () if i == 0 else None
        s.emit("M", "mma", c0, [a0, b0], [fed], last, unit=UNIT, zero_at=zero, scale_exponent=scale, repeat=repeat)
    s.emit("V", "copy", cu, [c0], [done], [out])
    s.emit("MTE3", "copy", GlobalTile("C", Affine(), Affine(), SIZE, SIZE), [cu], [out])
    kernel.group(0, 1, s)
    arrays = (
        GlobalArray("A", SIZE, depth, "fp16"),
        GlobalArray("B", depth, SIZE, "fp16"),
        GlobalArray("C", SIZE, SIZE, "fp32"),
    )
    return Program(arrays, (kernel.finish(),), ("A", "B"), "C")


def scaled(code, exponent, rule):
    """c 2^-exponent as a code of fp32; None where rule "exact" keeps what fp32 cannot hold."""
    fp32 = format_of("fp32")
    value = decode(fp32, code)
    if value.kind != "finite" or not value.significand:
        return code
    lower = Exact("finite", value.sign, value.significand, value.exponent - exponent)
    subnormal = value.significand.bit_length() - 1 + lower.exponent < -126
    if rule == "flush" and subnormal:
        return fp32.zero_code(value.sign)
    return None if rule == "exact" and subnormal else round_to(fp32, lower, "RNE" if rule == "RNE" else "RZ")


def expected(chip, steps, a, b, rule):
    spec, c = dot_spec(chip, UNIT), np.zeros((SIZE, SIZE), np.uint32)
    for i, (scale, repeat) in enumerate(steps):
        left, right = a[:, i * K : (i + 1) * K], b[i * K : (i + 1) * K]
        for turn in range(repeat):
            new = np.empty_like(c)
            for row in range(SIZE):
                for col in range(SIZE):
                    start = int(c[row, col]) if i else 0
                    exponent = scale if i else 0
                    code = scaled(start, exponent, rule) if exponent else start
                    rest = {"scale_d": exponent} if code is None else {}
                    new[row, col] = reference.dot(
                        spec,
                        DotOperands(
                            left[row].tolist(), right[:, col].tolist(), start if code is None else code, **rest
                        ),
                    )
            c = new
            del turn
    return c


def operands(steps, seed):
    draw = np.random.default_rng(seed)
    a, b = draw.choice(CODES, (SIZE, K * len(steps))), draw.choice(CODES, (K * len(steps), SIZE))
    # From the second step on, row 0 multiplies zeros and row 1 the least subnormals: what is scaled there stays tiny.
    a[0, K:] = 0
    a[1] = np.where(np.arange(a.shape[1]) % 5 == 0, 1, 0x8000)
    b[:, 2] = 1
    return a, b


STEPS = [
    [(0, 1), (4, 1), (0, 1), (11, 1)],
    [(15, 1), (15, 1), (15, 2), (15, 3), (15, 1)],  # a first step from zero has nothing to scale
    [(0, 2), (1, 3), (0, 2)],
]


@pytest.mark.parametrize(
    "rule, steps",
    [("exact", STEPS[0]), ("exact", STEPS[1]), ("RZ", STEPS[2]), ("RNE", STEPS[0]), ("flush", STEPS[2])],
)
def test_bits_of_both_machines(rule, steps):
    chip, program = device(rule), chained(steps)
    check(program, chip)
    a, b = operands(steps, len(steps))
    want = expected(chip, steps, a, b, rule)
    inputs = {"A": a, "B": b}
    assert np.array_equal(functional.run(program, chip, inputs), want)
    assert np.array_equal(readable.run(program, chip, inputs, order=1), want)


def test_the_rules_differ_where_the_accumulator_becomes_subnormal():
    """Row 1 of column 2 sums products of the least subnormals, 2^-48; five times 2^-15 takes them below 2^-126."""
    steps = [(0, 1), (15, 6)]
    a, b = operands(steps, 1)
    a[1, K:] = 0
    got = {}
    for rule in ("exact", "RZ", "RNE", "flush"):
        chip = device(rule)
        got[rule] = functional.run(chained(steps), chip, {"A": a, "B": b})[1, 2]
        assert got[rule] == expected(chip, steps, a, b, rule)[1, 2]
    assert got["flush"] == 0 and got["RZ"] != 0


def test_the_checker_knows_which_instructions_scale():
    program = chained(STEPS[0])
    with pytest.raises(ProgramError, match=f"scale_exponent is 11; {UNIT} takes 0 to 10"):
        check(program, device(largest=10))
    with pytest.raises(ProgramError, match=f"scale_exponent is 4; {UNIT} does not scale its accumulator"):
        check(program, load("ascend910a"))
    with pytest.raises(ProgramError, match="scale_exponent is -1"):
        check(chained([(0, 1), (-1, 1)]), device())


def test_program_text_says_the_scale():
    text = program_text(chained(STEPS[0]), device())
    assert f"by {UNIT}, accumulating, accumulator * 2^-11" in text


@pytest.mark.parametrize("rule", ["exact", "RNE", "RZ", "flush"])
def test_values_of_an_accumulator_that_is_divided(rule):
    steps, chip = [(0, 1), (7, 1), (15, 2), (3, 1)], device(rule)
    a, b = operands(steps, 3)
    program, places = chained(steps), [(row, col) for row in (0, 1, 5) for col in (0, 2, 9)]
    followed = ElementValues(program, chip, places, CPU)
    assert by_opcode(program)["mma"] == 5
    out = functional.run(program, chip, {"A": a, "B": b}, before_kernel=followed.before_kernel)
    bits = expected(chip, steps, a, b, rule)
    for (row, col), found in zip(places, followed.checked(out), strict=True):
        of_mma = [step for step in found if step.opcode == "mma"]
        assert [step.scale_d for step in of_mma] == [0, 7, 15, 15, 3]
        assert of_mma[-1].after.code == bits[row, col]
        for step in of_mma:
            codes = [np.array([x.code for x in step.operands[side]], np.uint16) for side in ("a", "b")]
            start = np.array(step.operands["accumulator"].code, np.uint32)
            assert int(chip.dot(UNIT, *codes, start, scale_d=step.scale_d)) == step.after.code
