"""Scheme fixedpoint-fp64 beside integers and exact products; results of an H100: tests/golden/test_golden_h100.py."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.errors import InputError
from hwsim.evaluate.split import pieces_of
from hwsim.gemm.problem import Problem
from hwsim.machines import reference
from hwsim.operands.operand import operand
from hwsim.report.text.run_text import run_text
from hwsim.schemes import scheme_of
from hwsim.schemes.fixedpoint import needed_bits

SCHEME = scheme_of("fixedpoint-fp64")


def sliced(x: np.ndarray, bits: int, side: str = "a"):
    plan = SCHEME.plan(SCHEME.complete({"bits": bits}), Problem.of("fp64", 8, 8, 8))
    return pieces_of(operand("A", x), plan, side, hwsim.device("h100"))


@pytest.mark.parametrize("bits", [7, 39, 55, 79, 95])
def test_slices_add_up_to_the_truncated_value(bits: int) -> None:
    """Digits from -128 to 127, whose sum is the element cut toward zero at the last slice."""
    rng = np.random.default_rng(bits)
    x = rng.standard_normal((20, 30)) * np.exp2(rng.integers(-70, 70, (20, 30)))
    x[3], x[4, 5:] = 0, 5e-324
    pieces = sliced(x, bits)
    count = len(pieces.codes)
    for row, exponent in enumerate(pieces.exponents):
        for col in range(30):
            digits = [int(codes.view(np.int8)[row, col]) for codes in pieces.codes]
            value = sum(Fraction(d) / 256 ** (i + 1) for i, d in enumerate(digits)) * Fraction(2) ** int(exponent)
            unit = Fraction(2) ** (int(exponent) - 8 * count)
            assert value == int(Fraction(x[row, col]) / unit) * unit


def test_a_significand_of_ones_takes_the_next_exponent() -> None:
    """So that its first digit stays below 128 after a carry."""
    below, above = (sliced(np.array([[x, 0.0]]), 55).exponents[0] for x in (1.984, 1.985))
    assert (below, above) == (2, 3)


def test_enough_bits_give_the_rounded_product_of_small_integers() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**20), 2**20, shape).astype(float) for shape in ((17, 33), (33, 9)))
    assert np.array_equal(hwsim.matmul(a, b, device="h100", scheme="fixedpoint-fp64", bits=63), a @ b)


def test_data_that_need_more_bits_are_multiplied_in_fp64() -> None:
    a, b = np.ones((8, 64)), np.ones((64, 8))
    a[0, 0], b[0, 5] = 2.0**40, 2.0**-40
    result = hwsim.run(a, b, device="h100", scheme="fixedpoint-fp64")
    native = hwsim.matmul(a, b, device="h100", format="fp64")
    assert np.array_equal(result.c, native) and result.gemm.single.products == 1
    assert [notice["code"] for notice in result.warnings] == ["native_instead"]
    b[2, 2] = np.inf
    assert np.isinf(hwsim.matmul(a, b, device="h100", scheme="fixedpoint-fp64", bits=55)[:, 2]).all()


def test_the_notice_says_why_the_product_is_native() -> None:
    a, b = np.ones((8, 64)), np.ones((64, 8))
    complete = SCHEME.complete({"bits": 0})
    (asked,) = SCHEME.inspect(a, b, complete)
    assert asked.message.startswith("bits is 0; data need 54 bits:")
    a[0, 0], b[0, 5] = 2.0**40, 2.0**-40
    (of_data,) = SCHEME.inspect(a, b, complete)
    assert of_data.message.startswith(f"data need {needed_bits(a, b)} bits, most_bits is 79:")


def test_of_sizes_alone_there_are_55_bits() -> None:
    asked = {"m": 64, "n": 64, "k": 64, "device": "h100", "scheme": "fixedpoint-fp64", "exact": False}
    assert hwsim.run(**asked).cycles == hwsim.run(bits=55, **asked).cycles > hwsim.run(bits=39, **asked).cycles


def test_times_of_sizes_alone_say_how_many_bits_they_assume() -> None:
    asked = {"m": 64, "n": 64, "k": 64, "device": "h100", "scheme": "fixedpoint-fp64"}
    alone = hwsim.run(exact=False, **asked)
    assert "55 assumed without data" in alone.timing_note == alone.to_dict()["timing_note"]
    assert "55 assumed without data" in str(run_text(alone))
    assert hwsim.run(exact=False, bits=55, **asked).timing_note == hwsim.run(**asked).timing_note == ""


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Elements far apart, a row of zeros, -0, subnormals, and largest elements beside a power of two."""
    draw = np.random.default_rng(m + k)
    a = draw.standard_normal((m, k)) * np.exp2(draw.integers(-40, 40, (m, k)))
    b = draw.standard_normal((k, n)) * np.exp2(draw.integers(-9, 9, (k, n)))
    a[-1] = -0.0
    a[0] = np.nextafter(0, 1) * draw.integers(1, 1 << 40, k)
    b[:, 0] = draw.choice([1 - 2.0**-7, -(1 - 2.0**-7), np.nextafter(1 - 2.0**-7, 0), 0.5], k)
    b[:, -1] = 1.5e308
    return a, b


@pytest.mark.covering("device", "bits")
@pytest.mark.parametrize("bits", [1, 7, 23, 55, 71])
@pytest.mark.parametrize("device", ["h100", "a100", "b200", "mi300x", "ascend910b3", "ascend910a"])
def test_programs_give_the_evaluator_s_bits(device: str, bits: int) -> None:
    if device == "mi300x":
        bits = min(bits, 55)  # as its LDS holds
    for m, n, k in [(2, 2, 1), (3, 5, 3), (67, 35, 67)]:
        asked = {"device": device, "scheme": "fixedpoint-fp64", "bits": bits}
        pair, c = operands(m, n, k), np.ones((m, n))
        for more in ({}, {"c": c, "alpha": 0.3, "bias": c[0]})[k == 3 :]:
            direct, program = hwsim.run(*pair, **asked, **more), hwsim.run(*pair, **asked, **more, functional=True)
            assert program.result_sha256 == direct.result_sha256
            assert program.cycles == direct.cycles


def test_random_orders_of_a_program_give_the_same_bits() -> None:
    a, b = operands(9, 7, 33)
    direct = hwsim.run(a, b, device="h100", scheme="fixedpoint-fp64", bits=55)
    chip, program = hwsim.api.program(
        device="h100", scheme="fixedpoint-fp64", bits=55, input_format="fp64", m=9, n=7, k=33
    )
    inputs = dict(zip(program.inputs, (a.view(np.uint64), b.view(np.uint64)), strict=True))
    for order in range(2):
        assert np.array_equal(
            reference.run(program, chip, inputs, order=order, dots=CPU.gemm).view(np.float64), direct.c
        )


def test_blocks_without_a_common_element_need_no_bits() -> None:
    """Whatever the size of the data: a block in which one operand is zero has no product."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((5, 128)), rng.standard_normal((128, 4))
    a[2, :64] = 0
    found = [needed_bits(a * scale, b * scale) for scale in (1.0, 2.0**-6, 2.0**20)]
    assert found[0] == found[1] == found[2] < 79


def test_each_pair_of_a_stack_counts() -> None:
    a, b = np.ones((2, 1, 4, 64)), np.ones((1, 3, 64, 4))
    a[1, 0, 0, 0], b[0, 1, 0, 1] = 2.0**10, 2.0**-10
    pairs = [needed_bits(a[i, 0], b[0, j]) for i in range(2) for j in range(3)]
    assert needed_bits(a, b) == max(pairs) > min(pairs)


def test_as_many_bits_as_an_element_can_be_scaled_by() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((4, 67)), rng.standard_normal((67, 3))
    got = hwsim.matmul(a, b, device="h100", scheme="fixedpoint-fp64", bits=1000)
    assert np.abs(got - a @ b).max() < 1e-13
    with pytest.raises(InputError, match="bits"):
        hwsim.matmul(a, b, device="h100", scheme="fixedpoint-fp64", bits=1001)
