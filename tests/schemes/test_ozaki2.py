"""Ozaki scheme II: constants, correctly rounded dots, programs beside the evaluator, special numbers, refusals."""

import math
from fractions import Fraction
from itertools import combinations

import gmpy2
import numpy as np
import pytest

import hwsim
import hwsim.api
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.problem import Problem
from hwsim.program.check import check
from hwsim.schemes import scheme_of
from hwsim.schemes.ozaki2 import FP8_MODULI, INT8_MODULI, KINDS, log2_bound

#: By scheme and number of moduli, the first weights and the product of GEMMul8 2.0.9 (src/table.hpp).
PUBLISHED = {
    ("ozaki2-int8", 6): (["0x1.24d0f0aa6c020p+47", "0x1.00ffb685c4000p+47"], ["-0x1.c0de2f022e000p+47"]),
    ("ozaki2-int8", 13): (
        ["0x1.187ecea5a8800p+102", "0x1.2a800bf67755ap+60", "0x1.71af223280000p+94", "0x1.459502088c715p+60"],
        ["-0x1.703d73109e93ep+102", "0x1.2f97c1b215000p+48"],
    ),
    ("ozaki2-fp8", 6): (["0x1.f1b859e448000p+55", "0x0.0p+0"], ["-0x1.08a826cc82c90p+58", "0x0.0p+0"]),
}
DEVICES = {
    "ozaki2-int8": ("a100", "ascend910a", "ascend910b3", "b200", "h200", "mi210", "mi300x", "rtx4090", "t4", "tf64"),
    "ozaki2-fp8": ("b200", "h200", "l40s", "rtx5090"),
}
PAIRS = [(scheme, device) for scheme, devices in DEVICES.items() for device in devices]
RNG = np.random.default_rng(43)


def plan_of(scheme, k=64, fmt="fp64", **options):
    declared = scheme_of(scheme)
    if scheme == "ozaki2-fp8":
        options = {"accumulate": "chain", **options}
    return declared.plan(declared.complete(options), Problem.of(fmt, 4, 4, k))


def last_digit(number):
    """The place of the last binary digit that is not zero."""
    significand, exponent = math.frexp(number)
    whole = int(significand * 2**53)
    return math.ldexp(float(whole & -whole), exponent - 53) if whole else math.inf


def test_moduli_share_no_factor():
    for moduli in (INT8_MODULI, FP8_MODULI):
        assert all(math.gcd(p, q) == 1 for p, q in combinations(moduli, 2))


@pytest.mark.parametrize("sum", ["fp64", "exact"])
@pytest.mark.parametrize("scheme", list(DEVICES))
def test_weights_are_the_integers_of_the_theorem(scheme, sum):
    for count in range(2, 21):
        node = plan_of(scheme, moduli=count, sum=sum).combine
        moduli = KINDS[scheme.removeprefix("ozaki2-")].moduli[:count]
        product, largest_sum = math.prod(moduli), np.sum([p // 2 for p in moduli])
        for weight, own in zip(node.weights, moduli, strict=True):
            whole = product // own * pow(product // own, -1, own)
            lacking = abs(np.sum([Fraction(part) for part in weight]) - whole)
            assert (
                lacking == 0 if sum == "exact" else lacking <= Fraction(product, 1 << (53 if len(weight) == 1 else 80))
            )
        for part in range(len(node.product) - (sum == "fp64")):  # a sum with residues has at most 53 digits
            numbers = [weight[part] for weight in node.weights]
            assert max(numbers) * largest_sum / min(map(last_digit, numbers)) < 2.0**53


@pytest.mark.parametrize(("scheme", "count"), list(PUBLISHED))
def test_constants_are_those_of_gemmul8(scheme, count):
    weights, product = ([float.fromhex(x) for x in part] for part in PUBLISHED[scheme, count])
    node = plan_of(scheme, moduli=count).combine
    assert [part for weight in node.weights for part in weight][: len(weights)] == weights
    assert list(node.product) == product


def ill_conditioned(count, k, digits, dtype):
    """A (count, k), B (k, count): the second half of each dot takes back the first one but for its last digits. All
    numbers are multiples of 1/16.
    """
    draw = np.random.default_rng(digits)
    half = k // 2
    a, b = (
        draw.integers(-(1 << digits) + 1, 1 << digits, shape) * np.exp2(draw.integers(-4, 5, shape))
        for shape in ((count, k), (k, count))
    )
    a[:, half:] = a[:, :half]
    change = np.exp2(-draw.uniform(5, digits, (1, count))) * draw.standard_normal((half, count))
    b[half:] = np.rint(-b[:half] * (1 + change) * 16) / 16
    return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("fmt", ["fp64", "fp32"])
@pytest.mark.parametrize(("scheme", "device"), [("ozaki2-int8", "h200"), ("ozaki2-fp8", "b200")])
def test_with_enough_moduli_ill_conditioned_dots_are_correctly_rounded(scheme, device, fmt):
    digits, dtype, moduli = {"fp64": (53, np.float64, 20), "fp32": (24, np.float32, 13)}[fmt]
    a, b = ill_conditioned(100, 24, digits - 12, dtype)
    got = hwsim.matmul(a, b, device=device, scheme=scheme, moduli=moduli, sum="exact", mode="norms")
    assert got.dtype == dtype
    wide, conditions = (a.astype(np.float64), b.astype(np.float64)), []
    sizes = np.abs(wide[0]) @ np.abs(wide[1])
    rows, columns = ([[gmpy2.mpq(x) for x in line] for line in side] for side in (wide[0].tolist(), wide[1].T.tolist()))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            dot = sum(x * y for x, y in zip(row, column, strict=True))
            assert got[i, j] == float(gmpy2.mpfr(dot, digits)), (i, j)
            conditions.append(sizes[i, j] / abs(float(dot)) if dot else math.inf)
    assert len(conditions) == 10**4 and np.median(conditions) > 2.0 ** (digits / 4), np.median(conditions)


def test_a_sum_in_fp64_is_not_correctly_rounded():
    a, b = ill_conditioned(100, 24, 41, np.float64)
    asked = {"device": "h200", "scheme": "ozaki2-int8", "moduli": 20, "mode": "norms"}
    exact, rounded = (hwsim.matmul(a, b, sum=sum, **asked) for sum in ("exact", "fp64"))
    assert 0 < (exact != rounded).sum() < exact.size
    assert np.median(np.abs(rounded - exact) / np.abs(exact)) < 2.0**-52


def lines_and_cuts(lines, moduli):
    """Rows as rational numbers, and below what each is cut: 0 where it has no such digits."""
    rows, cuts = [[Fraction(x) for x in line] for line in lines], []
    for line, row in zip(lines, rows, strict=True):
        top = top_of(line)
        squares = sum(x * x for x in row) / Fraction(4) ** top
        unit = Fraction(2) ** least_exponent(top, squares, 0, moduli)
        cuts.append(unit if any(x % unit for x in row) else 0)
    return rows, cuts


def test_dots_beyond_the_digits_of_20_moduli_differ_within_their_bound():
    """Dots of rows and columns that lose no digit are rounded once; others differ by what is cut, and the rounding."""
    draw = np.random.default_rng(1)
    left, right = (draw.standard_normal(shape) * np.exp2(draw.integers(-8, 8, shape)) for shape in ((24, 24), (24, 12)))
    left[::4] *= np.exp2(draw.integers(-6, 6, left[::4].shape))
    a = np.concatenate([left, -left * (1 + np.exp2(-50) * draw.integers(-3, 4, left.shape))], 1)
    b = np.concatenate([right, right])
    got = hwsim.matmul(a, b, device="h200", scheme="ozaki2-int8", moduli=20, sum="exact", mode="norms")
    (rows, of_rows), (columns, of_columns) = (lines_and_cuts(x.tolist(), KINDS["int8"].moduli) for x in (a, b.T))
    assert 0 < sum(map(bool, of_rows)) < len(rows)
    exact = 0
    for i, (row, cut_a) in enumerate(zip(rows, of_rows, strict=True)):
        for j, (column, cut_b) in enumerate(zip(columns, of_columns, strict=True)):
            dot = sum(x * y for x, y in zip(row, column, strict=True))
            bound = sum(cut_a * abs(y) + cut_b * abs(x) + cut_a * cut_b for x, y in zip(row, column, strict=True))
            rounded = Fraction(float(gmpy2.mpfr(gmpy2.mpq(dot.numerator, dot.denominator), 53)))
            found = Fraction(float(got[i, j]))
            assert abs(found - dot) <= bound + abs(dot - rounded), (i, j)
            assert bound or found == rounded, (i, j)
            exact += found == rounded
    assert len(rows) * len(columns) * 0.5 < exact < len(rows) * len(columns)


def fma(x, y, z):
    """x y + z in fp64, rounded once."""
    return float(Fraction(x) * Fraction(y) + Fraction(z))


def top_of(line):
    """The least exponent with all magnitudes below two to its power."""
    return max((math.frexp(abs(x))[1] for x in line if x), default=0)


def least_exponent(top, total, places, moduli):
    """top - places + j for the least j with 4^j > 2 total / (P - 1), with the scheme's margin."""
    bound, j = Fraction(2 * total, math.prod(moduli) - 1) * (1 + Fraction(1, 1 << 20)), -200
    while Fraction(4) ** j <= bound:
        j += 1
    return top - places + j


def up(number, dtype):
    """A rational number rounded up."""
    found = dtype(float(number))
    while Fraction(float(found)) < number:
        found = np.nextafter(found, dtype(np.inf))
    while Fraction(float(below := np.nextafter(found, dtype(-np.inf)))) >= number:
        found = below
    return Fraction(float(found))


def pairs_up(numbers, dtype):
    """The sum of as many numbers as a power of two, of those half of them apart first, rounded up each time."""
    while len(numbers) > 1:
        half = len(numbers) // 2
        numbers = [up(x + y, dtype) for x, y in zip(numbers[:half], numbers[half:], strict=True)]
    return numbers[0]


def log2(number):
    return Fraction(float(hwsim.mufu("lg2.approx.f32", np.array([float(number)], np.float32), device="h200")[0]))


def gemmul8_fast(line, is_contiguous, dtype, bound):
    """The exponent of a row or column in GEMMul8's fast mode, step by step in rational numbers."""
    lanes = [Fraction(0)] * (256 if is_contiguous else 32)
    for place, x in enumerate(line):
        lane = place % len(lanes)
        lanes[lane] = up(Fraction(x) ** 2 + lanes[lane], dtype)
    warps = [pairs_up(lanes[first : first + 32], dtype) for first in range(0, len(lanes), 32)]
    total = pairs_up(warps, dtype)
    if dtype is np.float64:
        exponent = math.frexp(float(total))[1] - 1
        logarithm = up(log2(up(total / Fraction(2) ** exponent, np.float32)) + exponent, np.float32)
    else:
        logarithm = log2(total)
    half = up(logarithm * Fraction(float.fromhex("0x1.000006p-1")), np.float32)
    places = math.floor(-up(Fraction(3, 2) - bound, np.float32) - max(1, half))
    return top_of(line) - 1 - places


def gemmul8_accurate(line, largest, length, kind, bound):
    """The exponent of a row or column in accurate mode. largest: of its sums of magnitudes."""
    places = kind.bound_units.bit_length() - 1
    if kind is KINDS["fp8"]:
        largest = up(largest + largest * (length + 1) * Fraction(1, 1 << 24), np.float32)
    half = log2(largest) * Fraction(float.fromhex("0x1.000006p-1"))
    return top_of(line) - places - math.floor(bound - half)


def e4m3_up(number):
    """A positive number rounded up to e4m3."""
    if not number:
        return number
    unit = Fraction(2) ** (max(math.frexp(float(number))[1] - 1, -6) - 3)
    return math.ceil(number / unit) * unit


def exponents_of(rows, columns, kind, count, dtype, mode):
    """Of the rows of A, whose elements are contiguous, and the columns of B, whose are not."""
    if mode == "norms":
        squares = [
            [
                sum(math.ceil(float(dtype(x) * dtype(x))) for x in (math.ldexp(y, 15 - top_of(line)) for y in line))
                for line in side
            ]
            for side in (rows, columns)
        ]
        return [
            [least_exponent(top_of(line), total, 15, kind.moduli[:count]) for line, total in zip(*of_side, strict=True)]
            for of_side in zip((rows, columns), squares, strict=True)
        ]
    bound = Fraction(log2_bound("int8" if kind is KINDS["int8"] else "fp8", count))
    if mode == "fast":
        sides = (rows, True), (columns, False)
        return [[gemmul8_fast(line, is_contiguous, dtype, bound) for line in side] for side, is_contiguous in sides]
    rounded = math.ceil if kind is KINDS["int8"] else e4m3_up
    bounds = [
        [[rounded(Fraction(abs(x)) / Fraction(2) ** top_of(line) * kind.bound_units) for x in line] for line in side]
        for side in (rows, columns)
    ]
    product = [[sum(x * y for x, y in zip(p, q, strict=True)) for q in bounds[1]] for p in bounds[0]]
    largest = [max(line) for line in product], [max(line) for line in zip(*product, strict=True)]
    return [
        [gemmul8_accurate(line, most, len(line), kind, bound) for line, most in zip(side, of_side, strict=True)]
        for side, of_side in zip((rows, columns), largest, strict=True)
    ]


@pytest.mark.parametrize("mode", ["fast", "accurate", "norms"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("count", [3, 8, 13])
@pytest.mark.parametrize(
    ("scheme", "device"), [("ozaki2-int8", "a100"), ("ozaki2-fp8", "b200"), ("ozaki2-fp8", "h200")]
)
def test_bits_are_those_of_integers_and_fmas(scheme, device, count, dtype, mode):
    """Integers of Python, their product modulo each modulus, and fused multiply-adds in rational numbers."""
    a, b = RNG.standard_normal((3, 37)).astype(dtype), RNG.standard_normal((37, 2)).astype(dtype)
    kind = KINDS[scheme.removeprefix("ozaki2-")]
    moduli, node = (
        kind.moduli[:count],
        plan_of(scheme, moduli=count, fmt=np.dtype(dtype).name.replace("float", "fp")).combine,
    )
    got = hwsim.matmul(a, b, device=device, scheme=scheme, moduli=count, mode=mode)
    rows, columns = exponents_of(a.tolist(), b.T.tolist(), kind, count, dtype, mode)
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.T.tolist()):
            left = [math.trunc(Fraction(x) / Fraction(2) ** rows[i]) for x in row]
            right = [math.trunc(Fraction(x) / Fraction(2) ** columns[j]) for x in column]
            dot = sum(x * y for x, y in zip(left, right, strict=True))
            assert 2 * abs(dot) < math.prod(moduli)
            sums = [0.0] * len(node.product)
            for modulus, weight in zip(moduli, node.weights, strict=True):
                rest = dot % modulus
                rest -= modulus * (2 * rest > modulus or (kind is KINDS["int8"] and rest == 128 and modulus == 256))
                sums = [fma(part, rest, total) for part, total in zip(weight, sums, strict=True)]
            quotient = round(node.inverse * sums[0])
            value = fma(node.product[0], quotient, sums[0])
            if len(sums) > 1:
                value = fma(node.product[1], quotient, value + sums[1])
            assert got[i, j] == dtype(math.ldexp(float(dtype(value)), rows[i] + columns[j]))


@pytest.mark.parametrize(("scheme", "device"), PAIRS)
def test_the_program_gives_the_evaluator_s_bits(scheme, device):
    """Every other call on a device, and the others on the next."""
    calls = (
        (1, np.float32, {}),
        (3, np.float64, {"moduli": 7}),
        (67, np.float64, {"moduli": 3, "alpha": 0.75, "beta": -1.5, "c": True}),
        (67, np.float32, {"sum": "exact", "moduli": 7}),
        (67, np.float64, {"result": "fp32", "moduli": 4}),
    )
    for k, dtype, options in calls[DEVICES[scheme].index(device) % 2 :: 2]:
        a, b = RNG.standard_normal((19, k)).astype(dtype), RNG.standard_normal((k, 13)).astype(dtype)
        asked = dict(options)
        if asked.pop("c", False):
            asked["c"] = RNG.standard_normal((19, 13)).astype(dtype)
        both = [
            hwsim.run(a, b, device=device, scheme=scheme, functional=functional, **asked)
            for functional in (False, True)
        ]
        assert both[0].result_sha256 == both[1].result_sha256, (k, options)
        assert both[1].cycles > 0


@pytest.mark.parametrize(
    ("scheme", "device"), [("ozaki2-int8", "a100"), ("ozaki2-fp8", "h200"), ("ozaki2-fp8", "b200")]
)
def test_the_program_gives_the_evaluator_s_bits_for_long_sums(scheme, device):
    a, b = RNG.standard_normal((5, 4100)), RNG.standard_normal((4100, 3))
    both = [hwsim.matmul(a, b, device=device, scheme=scheme, functional=functional) for functional in (False, True)]
    assert np.array_equal(*both)
    assert np.max(np.abs(both[0] - a @ b)) < 1e-12


@pytest.mark.parametrize(
    ("scheme", "device"),
    [("ozaki2-int8", "a100"), ("ozaki2-int8", "ascend910a"), ("ozaki2-int8", "mi300x"), ("ozaki2-fp8", "b200")],
)
def test_the_program_bounds_sums_by_a_product_as_the_evaluator_does(scheme, device):
    draw = np.random.default_rng(9)
    a, b = draw.standard_normal((21, 70)), draw.standard_normal((70, 11))
    a[:, 35:], b[:35] = a[:, 35:] / 32, b[:35] / 32  # large magnitudes never meet
    asked = {"device": device, "scheme": scheme, "moduli": 6}
    both = [hwsim.matmul(a, b, mode="accurate", functional=functional, **asked) for functional in (False, True)]
    assert np.array_equal(*both)
    fast, exact = hwsim.matmul(a, b, **asked), a @ b
    assert np.abs(both[0] - exact).mean() < 0.8 * np.abs(fast - exact).mean()
    part = hwsim.matmul(a, b, mode="accurate", rows=[3, 20], cols=[5], **asked)
    assert np.array_equal(part, both[0][[3, 20]][:, [5]])


@pytest.mark.parametrize("options", [{"split_k": 2}, {"pack_b": True}, {"grid": (4, 8)}], ids=str)
def test_a_product_that_bounds_the_others_comes_first_on_the_910a(options):
    draw = np.random.default_rng(9)
    a, b = draw.standard_normal((21, 170)), draw.standard_normal((170, 11))
    asked = {"device": "ascend910a", "scheme": "ozaki2-int8", "moduli": 4, "mode": "accurate", **options}
    direct, program = hwsim.run(a, b, **asked), hwsim.run(a, b, functional=True, **asked)
    assert direct.c.tobytes() == program.c.tobytes() and direct.cycles == program.cycles > 0
    names = [phase.name for phase in program.phases]
    assert names.index("bound_gemm") < names.index("split_a") < names.index("gemm")


def test_the_program_gives_the_evaluator_s_bits_of_stacks_and_slices():
    a, b = RNG.standard_normal((3, 9, 300)), RNG.standard_normal((3, 300, 7))
    for options in ({}, {"schedule": {"split_k": 3}}, {"mode": "accurate"}):
        asked = {"device": "h200", "scheme": "ozaki2-int8", "moduli": 9, **options}
        both = [hwsim.matmul(a, b, functional=functional, **asked) for functional in (False, True)]
        assert np.array_equal(*both)
        assert all(np.array_equal(both[0][i], hwsim.matmul(a[i], b[i], **asked)) for i in range(3))


@pytest.mark.parametrize(
    ("scheme", "device", "dtype"),
    [
        ("ozaki2-int8", "a100", np.float64),
        ("ozaki2-int8", "a100", np.float32),
        ("ozaki2-fp8", "b200", np.float32),
    ],
)
def test_a_power_of_two_changes_nothing_but_the_exponent(scheme, device, dtype):
    least = -1060 if dtype is np.float64 else -135  # these are subnormal, and lose no digit
    a = (RNG.integers(-99, 99, (9, 40)) * 2.0 ** RNG.integers(0, 3, (9, 1))).astype(dtype)
    b = RNG.integers(-99, 99, (40, 6)).astype(dtype)
    asked = {"device": device, "scheme": scheme, "mode": "norms"}
    plain = hwsim.matmul(a, b, **asked)
    assert np.array_equal(plain, a @ b)
    up = dtype(2.0 ** -(least + 60))
    small = np.ldexp(a, least)
    for functional in (False, True):
        scaled = hwsim.matmul(small, b * up, functional=functional, **asked)
        assert np.array_equal(scaled, np.ldexp(plain, -60))


@pytest.mark.parametrize("functional", [False, True])
def test_rows_of_zeros_negative_zeros_and_far_exponents(functional):
    a, b = RNG.standard_normal((6, 30)), RNG.standard_normal((30, 5))
    a[0], a[1], b[:, 2] = 0.0, -0.0, 0.0
    a[2, 0], a[3], a[4, 1:] = 2.0**1000, a[3] * 2.0**-1040, 0.0
    got = hwsim.matmul(a, b, device="a100", scheme="ozaki2-int8", moduli=20, mode="norms", functional=functional)
    assert not got[:2].any() and not np.signbit(got[:2]).any() and not got[:, 2].any()
    columns = [0, 1, 3, 4]
    assert np.allclose(got[2][columns], a[2, 0] * b[0, columns], rtol=2**-50, atol=0)
    assert np.allclose(got[3][columns], (a[3] @ b)[columns], rtol=1e-9, atol=2.0**-1070)
    assert np.allclose(got[4], a[4, 0] * b[0], rtol=2.0**-51, atol=0)


def test_infinities_and_nans_are_of_an_fma_chain():
    a, b = RNG.standard_normal((5, 8)), RNG.standard_normal((8, 4))
    plain = hwsim.matmul(a, b, device="h200", scheme="ozaki2-int8")
    a[1, 3], b[2, 0] = np.inf, np.nan
    got = hwsim.run(a, b, device="h200", scheme="ozaki2-int8", timing=False)
    assert np.isnan(got.c[:, 0]).all() and np.array_equal(got.c[1, 1:], np.copysign(np.inf, b[3, 1:]))
    assert {warning["code"] for warning in got.warnings} == {"nan_input", "infinite_input"}
    others = np.ix_([0, 2, 3, 4], [1, 2, 3])
    assert np.array_equal(got.c[others], plain[others])


def test_products_that_do_not_add_up_exactly_are_refused():
    asked = {"m": 8, "n": 8, "k": 32, "scheme": "ozaki2-fp8", "exact": False}
    with pytest.raises(UnsupportedError, match=r"products of residues must add up exactly; .* keep 13 bits"):
        hwsim.run(device="h200", accumulate="chain", **asked)
    for device, chosen in (("h200", "instruction"), ("b200", "chain")):
        settings = hwsim.run(device=device, **asked).gemm.scheme_options
        assert {setting.name: setting.value for setting in settings}["accumulate"] == chosen
    for scheme, longest in (("ozaki2-int8", 1 << 17), ("ozaki2-fp8", 1 << 16)):
        plan_of(scheme, k=longest)
        with pytest.raises(InputError, match=f"k = {longest + 1}; allowed: at most {longest}"):
            plan_of(scheme, k=longest + 1)
    with pytest.raises(
        InputError, match=r"moduli = 14; allowed: 2 to 13 for fp32 results; operands of fp64 \(input_format\)"
    ):
        plan_of("ozaki2-int8", result="fp32", moduli=14)


def test_largest_residues_over_the_longest_k_do_not_overflow():
    """All residues modulo 256 are -128: the sum of their products is 2^31 and wraps, which is the same modulo 256."""
    a = np.full((1, 1 << 17), -128.0)
    a[0, 0] = 2.0**30  # so that elements are integers times a small power of two
    asked = {"device": "a100", "scheme": "ozaki2-int8", "moduli": 20, "mode": "norms"}
    assert hwsim.matmul(a, a.T, **asked)[0, 0] == float(a[0] @ a[0])


@pytest.mark.slow
@pytest.mark.searches
def test_a_sweep_shows_from_which_size_on_emulation_is_faster():
    """An RTX 5090 has next to no FP64, an H200 has much of it."""
    study = {
        "devices": ["rtx5090", "h200"],
        "schemes": ["native", "ozaki2-int8"],
        "options": {"input_format": "fp64"},
        "shapes": [[512, 512, 512], [4096, 4096, 4096]],
    }
    table = hwsim.sweep(study, jobs=1)
    seconds = {(row["device"], row["scheme"], row["m"]): row["seconds"] for row in table.rows}
    ratio = {
        (device, m): seconds[device, "native", m] / seconds[device, "ozaki2-int8", m]
        for device in ("rtx5090", "h200")
        for m in (512, 4096)
    }
    assert ratio["rtx5090", 512] > 1 and ratio["rtx5090", 4096] > 1
    assert ratio["h200", 512] < 1 < ratio["h200", 4096]


def test_fast_mode_warns_where_its_integers_exceed_the_moduli():
    """Ones and a long K: the norm is far above the largest magnitude, and below 2 it takes no part (GEMMul8)."""
    for size, count in ((1.0, 0), (2.0**-20, 4)):
        a = np.full((3, 4000), size)
        asked = {"device": "h200", "scheme": "ozaki2-int8", "timing": False}
        found = {w["code"]: w["count"] for w in hwsim.run(a, np.ones((4000, 1)) * size, **asked).warnings}
        assert found.get("moduli_exceeded", 0) == count
        assert not hwsim.run(a, np.ones((4000, 1)) * size, mode="norms", **asked).warnings


@pytest.mark.searches
@pytest.mark.parametrize(("mode", "k"), [("fast", 30_000), ("norms", 16_384)])
def test_rows_in_several_parts_wait_once_for_their_exponents(mode, k):
    # Two parts of a row, in one loop, and a rest; the search for a tile times the program.
    given = {"device": "h100", "scheme": "ozaki2-int8", "input_format": "fp64", "mode": mode}
    device, program = hwsim.api.program(m=8, n=8, k=k, **given)
    check(program, device)
