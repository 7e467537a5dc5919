"""Sums that are rounded once, by passes: every element is the rounding of the exact sum, in one pass or many."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import hwsim
from hwsim.arithmetic.rounded_once import raised_whole
from hwsim.dataflows import exact_sums
from hwsim.errors import UnsupportedError
from hwsim.formats import Exact, format_of, round_to
from hwsim.gemm.expressions import terms_at_places
from hwsim.gemm.plan import Depth, Scaled, Sum, TermValue
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme

DEVICES = ("h200", "mi300x", "ascend910a", "ascend910b3")


def operands(seed, m=9, n=7, k=67, power=0):
    """Elements of many magnitudes; products that cancel but for their last digits, and some that all cancel."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)) * 2.0 ** rng.integers(-25, 5, (m, k)) * 2.0**power
    b = rng.standard_normal((k, n)) * 2.0 ** rng.integers(-25, 5, (k, n)) * 2.0**power
    half = k // 2
    a[: m // 2, half : 2 * half] = a[: m // 2, :half]
    b[half : 2 * half] = -b[:half]
    a[: m // 4, 2 * half :] = 0.0
    return a, b


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("output", "power"), [("fp64", 0), ("fp64", -520), ("fp64", 505), ("bf16", 0), ("fp32", -68)])
def test_a_program_rounds_the_sum_once(device, output, power):
    """Subnormal results and those beyond the format are among them."""
    a, b = operands(3, power=power)
    more = {"device": device, "scheme": "ozaki-fp16", "slices": 8, "sum": "exact", "output": output}
    plain, program = hwsim.run(a, b, **more), hwsim.run(a, b, functional=True, **more)
    assert plain.c.tobytes() == program.c.tobytes() and plain.cycles == program.cycles > 0


@pytest.mark.parametrize("output", ["fp64", "fp32"])
def test_all_slices_give_the_rounded_product(output):
    """Slices that represent the operands: the result is the exact product's nearest number."""
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 3, shape) for shape in ((4, 5), (5, 3)))
    more = {"device": "ascend910a", "scheme": "ozaki-int8", "slices": 0, "truncate": False, "sum": "exact"}
    c = hwsim.run(a, b, functional=True, output=output, **more).c
    for i, j in np.ndindex(4, 3):
        exact = sum(Fraction(x) * Fraction(y) for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True))
        wanted = float(exact) if output == "fp64" else float(rounded_fp32(exact))
        assert float(c[i, j]) == wanted


def rounded_fp32(number):
    """The fp32 number nearest to a fraction whose denominator is a power of two."""
    exponent = 1 - number.denominator.bit_length()
    value = Exact("finite", int(number < 0), abs(number.numerator), exponent)
    return np.uint32(round_to(format_of("fp32"), value, "RNE")).view(np.float32)


def test_many_digits_pass_through_memory(monkeypatch):
    """Sums, and what was appended so far, go from pass to pass."""
    monkeypatch.setattr(exact_sums, "MOST_ARRAYS", 4)
    a, b = operands(5, 5, 4, 9)
    more = {"device": "ascend910a", "scheme": "ozaki-int8", "slices": 5, "truncate": False, "sum": "exact"}
    program = hwsim.run(a, b, functional=True, **more)
    assert {"combine.add3", "combine.round2"} <= {phase.name for phase in program.phases}
    assert program.c.tobytes() == hwsim.matmul(a, b, **more).tobytes()


@pytest.mark.parametrize("bits", [1, 7, 24, 25, 53, 54, 63])
@pytest.mark.parametrize("form", ["fp32", "fp64"])
def test_whole_numbers_times_powers_of_two_are_rounded_once(form, bits):
    """Also where the result is subnormal: beside exact fractions."""
    fmt, rng = format_of(form), np.random.default_rng(bits)
    dtype = np.dtype(np.float32 if form == "fp32" else np.float64)
    numbers = rng.integers(-(2 ** (bits - 1)) * 2 + 1 if bits < 63 else -(2**63), 2 ** min(bits, 62), 300)
    least = fmt.min_exponent - fmt.fraction_bits
    exponents = np.concatenate([rng.integers(least - bits - 2, least + 3, 200), rng.integers(-5, 200, 100)])
    found = raised_whole(numbers, exponents, dtype)
    for number, exponent, value in zip(numbers.tolist(), exponents.tolist(), found, strict=True):
        exact = Exact("finite", int(number < 0), abs(number), exponent)
        wanted = round_to(fmt, exact, "RNE")
        assert number == 0 or int(value.view(f"u{dtype.itemsize}")) == wanted


def test_what_is_no_sum_of_slices_is_refused():
    """A plan of exact sums of pieces that are no whole numbers has bits and no program."""
    native = scheme_of("markidis")

    def plan(options, problem):
        return replace(native.plan(options, problem), arithmetic="exact")

    scheme = Scheme("exact-markidis", "", "", native.options, plan, native.inspect)
    a = np.ones((4, 5), np.float32)
    with pytest.raises(UnsupportedError, match="exact sums of terms that are not exact sums of slices"):
        hwsim.run(a, a.T, device="h200", scheme=scheme, functional=True)


def test_terms_at_places_are_those_of_the_plan():
    expression = Scaled(Sum(Scaled(TermValue(1), -3), TermValue(0)), 2)
    assert terms_at_places(expression) == [(1, -1), (0, 2)]
    with pytest.raises(UnsupportedError, match="exact sums are of terms"):
        terms_at_places(Sum(TermValue(0), Depth(3)))
