"""Products with operands scaled by powers of two: bits of the operands scaled by NumPy and given to hwsim.run."""

import itertools
import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim._kernels import convert
from hwsim.devices import load
from hwsim.evaluate.split import is_piece, scaled
from hwsim.formats import decode, format_of
from hwsim.frameworks.product import multiplied
from hwsim.frameworks.settings import settings_of
from hwsim.gemm.plan import Piece, Plan, TermValue, chain
from hwsim.operands.operand import Operand
from hwsim.operands.powers import encoded, exponent_for, power_of_two, times_power

SETTINGS = {
    "h200 e4m3": {"device": "h200", "format": "e4m3"},
    "h200 e4m3 promoted": {"device": "h200", "format": "e4m3", "accumulate": "promoted"},
    "h200 e4m3 by e5m2": {"device": "h200", "format": "e4m3", "gradient_format": "e5m2"},
    "mi300x e4m3fnuz": {"device": "mi300x", "format": "e4m3fnuz"},
    "h200 tf32": {"device": "h200", "format": "tf32"},
    "h200 fp32": {"device": "h200", "format": "fp32"},
    "b200 bf16": {"device": "b200", "format": "bf16"},
    "ascend910a fp16": {"device": "ascend910a", "format": "fp16"},  # its conversions saturate
}

PLAN = Plan("own", (Piece("e4m3"),), (Piece("e4m3"),), (chain((0, 0)),), TermValue(0))


def largest_of(name):
    top = decode(format_of(name), format_of(name).largest_code())
    return math.ldexp(top.significand, top.exponent)


def by_hand(settings, a, b, gradient, **more):
    """Operands scaled by np.ldexp, hwsim.run, and the result scaled back."""
    own = {name: x for name, x in settings.items() if name != "gradient_format"}
    formats = [own["format"], own["format"]]
    if gradient and "gradient_format" in settings:
        formats["ab".index(gradient)] = settings["gradient_format"]
        own |= {"format": formats[0], "format_b": formats[1]}
    total, scaled = 0, []
    for x, name in zip((a, b), formats, strict=True):
        values = x.astype(np.float32)
        largest = float(np.abs(values).max())
        exponent = 0
        if math.isfinite(largest) and largest:
            while largest * 2.0**exponent > largest_of(name):
                exponent -= 1
            while largest * 2.0 ** (exponent + 1) <= largest_of(name):
                exponent += 1
        total += exponent
        scaled.append(np.ldexp(values, exponent))
    with np.errstate(all="ignore"):
        return np.ldexp(hwsim.run(*scaled, **own, **more, timing=False).c.astype(np.float32), -total)


def drawn(seed, *shape, scale=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** (rng.integers(-14, 6, shape) + scale)).astype(np.float32)


def special(x, *values):
    x = x.copy()
    for index, value in enumerate(values):
        x[..., (3 * index) % x.shape[-2], (5 * index + 1) % x.shape[-1]] = value
    return x


A, B = drawn(1, 13, 67), drawn(2, 67, 21, scale=9)
OPERANDS = {
    "plain": (A, B),
    "by columns": (np.asfortranarray(A), np.asfortranarray(B)),
    "strided": (drawn(3, 26, 201)[::2, ::3], drawn(4, 67, 42)[:, ::2]),
    "backwards": (A[::-1, ::-1], B[::-1]),
    "stacks": (drawn(5, 3, 13, 67), drawn(6, 3, 67, 21)),
    "one row": (A[:1], B[:, :1]),
    "zeros": (np.zeros_like(A), B),
    "minus zeros": (special(A, -0.0, 0.0, -0.0), -np.zeros_like(B)),
    "subnormals": (special(A * np.float32(2.0**-140), 1e-45, -1e-45), B),
    "subnormals alone": (np.full_like(A, 3e-45), special(B, 1e-45)),
    "far above": (special(A, 3e38, -1e30), special(B, 2.0**127)),
    "far apart": (special(A, 2.0**100), special(B, 2.0**-120, 2.0**100)),
    "infinity": (special(A, math.inf), B),
    "minus infinity and a NaN": (special(A, -math.inf), special(B, math.nan)),
    "bf16": (A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)),
    "fp16": (A.astype(np.float16), B.astype(np.float16)),
    "fp64": (A.astype(np.float64), B.astype(np.float64)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_scaled_products_are_those_of_operands_scaled_by_hand(name):
    settings = SETTINGS[name]
    chosen = settings_of({**settings, "scale": "power-of-two"}).base["forward"]
    is_fp8_pair = "gradient_format" in settings
    for case, (a, b) in OPERANDS.items():
        for gradient in ("", "a", "b") if is_fp8_pair else ("",):
            want = by_hand(settings, a, b, gradient)
            for call in range(3):  # the first one is resolved, the others are repeated
                got, ready = multiplied(chosen, a, b, gradient=gradient, timing=False, threads=1 + call)
                same = got.view(np.uint32) == want.view(np.uint32)
                assert (same | (np.isnan(got) & np.isnan(want))).all(), (case, gradient, call)
                assert ready.product is not None


def test_a_library_s_kernel_takes_scaled_operands():
    settings = {"device": "h200", "format": "e4m3", "library": "cublas", "accumulate": "promoted"}
    chosen = settings_of({**settings, "scale": "power-of-two"}).base["forward"]
    more = {"a_layout": "rows", "b_layout": "columns"}
    for seed in range(3):
        a, b = drawn(seed, 32, 512, scale=-seed), drawn(9 + seed, 48, 512, scale=seed).T
        want = by_hand(settings, a, b, "", **more)
        got, ready = multiplied(chosen, a, b, timing=False, **more)
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32)) and ready.gemm.library is not None


def test_the_same_kind_of_operands_may_have_any_exponent():
    chosen = settings_of({"device": "h200", "format": "e4m3", "scale": "power-of-two"}).base["forward"]
    rng = np.random.default_rng(7)
    for trial in range(40):
        a, b = (
            (rng.standard_normal(shape) * 2.0 ** rng.integers(-146, 125)).astype(np.float32)
            for shape in ((9, 40), (40, 8))
        )
        got, _ = multiplied(chosen, a, b, timing=False)
        want = by_hand({"device": "h200", "format": "e4m3"}, a, b, "")
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32)), trial


def test_codes_are_those_of_two_roundings():
    """To fp32, then to the format: by integers where both steps are hwsim.formats', by NumPy and ml_dtypes."""
    fp32 = format_of("fp32")
    words = [fp32.word(s, m) for s, m in itertools.product((0, 1), (0, 1, 3, 0x400000, 0x7FFFFF, 0x800000, 0x800001))]
    words += [fp32.word(s, e << 23 | f) for s, e, f in itertools.product((0, 1), (64, 120, 127), (0, 1, 0x555555))]
    words += [fp32.word(0, e << 23 | f << 19 | low) for e in (119, 121) for f in range(16) for low in (0, 1, 0x40000)]
    values = np.array(words, np.uint32).view(np.float32)
    types = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16}
    for name, dtype in types.items():
        fmt = format_of(name)
        for exponent in (-149, -20, -3, 0, 1, 7):
            step = np.ldexp(values, exponent)
            got = encoded(values, exponent, fmt)
            assert np.array_equal(got, step.astype(dtype).view(got.dtype)), (name, exponent)
            want = [
                hwsim.formats.round_to(fmt, decode(fp32, int(word)), "RNE", overflow="ieee")
                for word in step.view(np.uint32)
            ]
            assert got.tolist() == want, (name, exponent)


@pytest.mark.parametrize("name", ["e4m3", "e4m3fnuz", "e2m1", "bf16", "int8", "fp64"])
@pytest.mark.parametrize("rounding", ["RNE", "RNA", "RZ", "RU", "RD"])
def test_codes_by_other_roundings_and_beyond_the_range(name, rounding):
    fmt, fp32 = format_of(name), format_of("fp32")
    values = drawn(5, 6, 40)
    for exponent, overflow in itertools.product((-12, 3, 9), ("ieee", "saturate")):
        if overflow == "ieee" and (fmt.is_integer or fmt.nan == "none"):
            continue  # these saturate alone
        words = np.ldexp(values, exponent).view(np.uint32)
        want = [
            [hwsim.formats.round_to(fmt, decode(fp32, word), rounding, overflow=overflow) for word in row]
            for row in words.tolist()
        ]
        for given in (values, np.asfortranarray(values)):
            assert encoded(given, exponent, fmt, rounding, overflow).tolist() == want, (exponent, overflow)


@pytest.mark.parametrize(
    "more", [{"a_pieces": (Piece("e4m3", scale_exponent=2),)}, {"clamp": True}, {"specials": "fma_chain"}]
)
def test_pieces_that_are_more_than_the_operand_rounded_are_made_of_fp32(more):
    given = Operand(A.view(np.uint32), "fp32")
    plan = replace(PLAN, **more)
    made = scaled(given, 5, plan, "a", load("h200"))
    assert (made.format, made.is_piece) == ("fp32", False) and np.array_equal(made.array, A * 32)
    made = scaled(given, 5, PLAN, "a", load("h200"))
    assert (made.format, made.is_piece) == ("e4m3", True)
    assert is_piece(made, PLAN, "a") and not is_piece(made, plan, "a")
    assert not is_piece(Operand(made.codes, "e4m3"), PLAN, "a")


@pytest.mark.parametrize(("device", "overflow"), [("h200", "ieee"), ("ascend910a", "saturate")])
def test_pieces_are_rounded_as_the_schedule_says_and_saturate_as_the_device(device, overflow):
    given, piece = Operand(A.view(np.uint32), "fp32"), Piece("fp16", "RZ")
    plan = replace(PLAN, a_pieces=(piece,), b_pieces=(Piece("fp16", overflow="ieee"),))
    for rounding in (None, "RU"):
        made = scaled(given, 18, plan, "a", load(device), rounding=rounding)
        want = encoded(A, 18, format_of("fp16"), rounding or "RZ", overflow)
        assert np.array_equal(made.codes, want) and ((want & 0x7FFF) >= 0x7BFF).any()
    own = scaled(given, 18, plan, "b", load(device))
    assert np.array_equal(own.codes, encoded(A, 18, format_of("fp16"), "RNE", "ieee"))


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "fp16", "bf16", "e4m3fnuz"])
def test_exponents_bring_the_largest_just_below_the_top(name):
    fmt, top = format_of(name), largest_of(name)
    for largest in (1.0, top, np.nextafter(np.float32(top), np.float32(np.inf)), top / 2, 3e38, 1e-45, 2.0**-126):
        x = np.array([[0.5, -largest], [-0.0, 0.25]], np.float32) if largest > 1 else np.float32([[-largest]])
        exponent = exponent_for(x, fmt)
        assert top / 2 < float(np.abs(x).max()) * 2.0**exponent <= top
        assert exponent == power_of_two(float(np.abs(x).max()), top)
    for x in (np.zeros((2, 2)), np.array([[np.inf, 1]]), np.array([[1, np.nan]]), np.ones((0, 3))):
        assert exponent_for(x.astype(np.float32), fmt) == 0


@pytest.mark.parametrize("settings", [{"format": "fp64"}, {"format": "e4m3", "gradient_format": "fp64"}])
def test_formats_beyond_fp32_are_not_scaled(settings):
    with pytest.raises(hwsim.InputError, match="scale with format fp64: operands are scaled in fp32"):
        settings_of({"device": "h200", "scale": "power-of-two", **settings})


def test_powers_that_fp32_has_not():
    x = np.array([[3e-45, -1e-45, 0.0, -0.0]], np.float32)
    assert np.array_equal(times_power(x, 160), np.ldexp(x, 160))
    want = np.ldexp(x, 155).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert encoded(x, 155, format_of("e4m3")).tolist() == want.tolist() == [[0x70, 0xE8, 0x00, 0x80]]


def test_subnormals_are_kept_where_the_thread_flushes_them():
    """As XLA's callbacks do: operands, and results that are scaled back."""
    settings = {"device": "h200", "format": "e4m3"}
    chosen = settings_of({**settings, "scale": "power-of-two"}).base["forward"]
    small = (A * np.float32(2.0**-130)).astype(np.float32)
    cases = (small, B / 1024), (A * np.float32(2.0**-66), B * np.float32(2.0**-75)), (np.full_like(A, 3e-45), B)
    for a, b in cases:
        want = by_hand(settings, a, b, "")
        assert ((want != 0) & (np.abs(want) < 2.0**-126)).any()
        for _ in range(2):
            before = convert.environment()
            convert.set_environment(convert.FLUSHING_ENVIRONMENT)
            try:
                got, _ = multiplied(chosen, a, b, timing=False)
            finally:
                convert.set_environment(before)
            assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
