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

OUTPUTS = [("ascend910a", 8, form) for form in ("fp64", "bf16", "fp32")] + [
    (device, 3, "fp64") for device in ("h200", "mi300x", "ascend910b3")
]
POWERS = (0, -1060, 1005, -152)  # of rows: with subnormal results in fp64, results beyond it, subnormal ones in fp32


def operands(seed, m=12, n=7, k=67, powers=POWERS):
    """Elements of many magnitudes; products that cancel but for their last digits, and some that all cancel."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)) * 2.0 ** rng.integers(-25, 5, (m, k))
    b = rng.standard_normal((k, n)) * 2.0 ** rng.integers(-25, 5, (k, n))
    half = k // 2
    a[: m // 2, half : 2 * half] = a[: m // 2, :half]
    b[half : 2 * half] = -b[:half]
    a[: m // 4, 2 * half :] = 0.0
    return a * 2.0 ** np.resize(powers, (m, 1)), b * 2.0**20


@pytest.mark.parametrize(("device", "slices", "output"), OUTPUTS)
def test_a_program_rounds_the_sum_once(device, slices, output):
    a, b = operands(3)
    more = {"device": device, "scheme": "ozaki-fp16", "slices": slices, "sum": "exact", "output": output}
    plain, program = hwsim.run(a, b, **more), hwsim.run(a, b, functional=True, **more)
    assert plain.c.tobytes() == program.c.tobytes() and plain.cycles == program.cycles > 0
    c = np.abs(plain.c.astype(float))
    range_of = np.finfo(np.float64 if output == "fp64" else np.float32)  # of bf16, too
    assert (c > 0.99 * range_of.max).any() and np.isinf(c).any() == (device != "ascend910a")
    assert ((c > 0) & (c < range_of.tiny)).any()


@pytest.mark.parametrize("output", ["fp64", "fp32"])
def test_a_sum_just_below_a_power_of_two_is_rounded_to_its_nearest_number(output):
    """Below a power of two numbers are twice as dense: the digits so far are the power, and the rest is negative."""
    last = 54 if output == "fp64" else 25
    lines = [
        [2.0**power, -(1 + 2.0**-nearer) * 2.0 ** (power - last), 2.0**20, -(2.0**20)]
        for power in range(8)
        for nearer in (3, 8, 20)
    ]
    a = np.array([*lines, *(-np.array(lines))])
    more = {"device": "ascend910a", "scheme": "ozaki-int8", "slices": 14, "truncate": False, "sum": "exact"}
    c = hwsim.run(a, np.ones((4, 1)), output=output, functional=True, **more).c[:24, 0]
    below = [np.nextafter(c.dtype.type(2.0**power), c.dtype.type(0)) for power in range(8) for _ in range(3)]
    assert c.tolist() == below


def test_formats_between_the_sum_and_the_result():
    """A rounding that is not to nearest even is of the sum rounded to fp64; a format that is not narrower is none."""
    a, b = np.array([[1 + 2.0**-8, 2.0**-30], [1 + 2.0**-6, -(2.0**-8)]]), np.array([[1.0], [2.0**-30]])
    more = {"device": "h200", "scheme": "ozaki-fp16", "slices": 3, "truncate": False, "sum": "exact", "output": "bf16"}
    expected = {
        ("output_rounding", "RZ"): [1.0, 1 + 2.0**-7],
        ("product_format", "fp64"): [1 + 2.0**-7, 1 + 2.0**-6],
        ("product_format", "fp32"): [1.0, 1 + 2.0**-6],
    }
    for (name, value), wanted in expected.items():
        for functional in (False, True):
            c = hwsim.run(a, b, functional=functional, schedule={"epilogue": {name: value}}, **more).c
            assert c[:, 0].astype(float).tolist() == wanted


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
    a, b = operands(5, 5, 4, 9, (0,))
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
