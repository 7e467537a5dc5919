"""Splits into pieces against the same steps in NumPy's float32 and hwsim.formats."""

from __future__ import annotations

import numpy as np
import pytest

from hwsim import formats
from hwsim._kernels import convert
from hwsim.formats import FORMATS

VARIANTS = convert.variants()
SCHEMES = {
    "bf16x3": [("bf16", "RNE", 0)] * 3,
    "bf16x3 scaled, toward zero": [("bf16", "RZ", 0), ("bf16", "RZ", 8), ("bf16", "RZ", 8)],
    "fp16x2 scaled": [("fp16", "RNE", 0), ("fp16", "RNE", 12)],
    "tf32x2, away": [("tf32", "RNA", 0), ("tf32", "RNA", 0)],
    "mixed": [("e4m3", "RNE", -3), ("fp16", "RU", 5), ("e8m13", "RD", -149), ("fp32", "RNE", 127)],
}
EDGES = [
    0x00000000,
    0x80000000,
    0x00000001,
    0x807FFFFF,
    0x00800000,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x7F800000,
    0xFF800000,
    0x7FC00001,
    0xFF800001,
    0x477FEFFF,
    0x477FF000,
    0x33000000,
    0x33000001,
    0x3F801000,
    0x3F803000,
    0x43F00001,
]


def operand() -> np.ndarray:
    """(7, 67) fp32: edges, then all exponents with ties of bf16, fp16 and tf32 in the fraction, both signs."""
    exponents = np.arange(1, 255, 3, dtype=np.uint32)
    fractions = np.array([0x000000, 0x008000, 0x018000, 0x001000, 0x003FFF, 0x7FFFFF], np.uint32)
    words = (exponents[:, None] << 23 | fractions).ravel()
    words[::2] |= np.uint32(1 << 31)
    return np.concatenate([np.array(EDGES, np.uint32), words])[: 7 * 67].reshape(7, 67).view(np.float32)


def settled(x: np.ndarray, overflow: str, nan: str) -> np.ndarray:
    if overflow == "saturate":
        x = np.where(np.isinf(x), np.copysign(np.finfo(np.float32).max, x), x)
    return np.where(np.isnan(x), np.float32(0), x) if nan == "zero" else x


def reference(x: np.ndarray, pieces, overflow: str, nan: str) -> list[list[int]]:
    result = []
    rest = x.copy()
    with np.errstate(all="ignore"):
        for fmt, rounding, exponent in pieces:
            rest = settled(rest * np.float32(2.0**exponent), overflow, nan)
            codes, values = [], []
            for word in rest.view(np.uint32).ravel():
                exact = formats.decode(FORMATS["fp32"], int(word))
                codes.append(formats.round_to(fmt, exact, rounding, overflow=overflow))
                piece = formats.encode(FORMATS["fp32"], formats.decode(fmt, codes[-1]))
                values.append(piece)
            result.append(codes)
            piece = np.array(values, np.uint32).view(np.float32).reshape(x.shape)
            rest = settled(rest - piece, overflow, nan)
    return result


@pytest.mark.parametrize(
    ("overflow", "nan"),
    [("ieee", "quiet"), ("infinity", "quiet"), ("saturate", "quiet"), ("saturate", "zero"), ("ieee", "zero")],
)
@pytest.mark.parametrize("name", SCHEMES)
def test_split_is_the_steps_one_by_one(name, overflow, nan):
    x = operand()
    pieces = [(FORMATS[fmt], rounding, exponent) for fmt, rounding, exponent in SCHEMES[name]]
    want = reference(x, pieces, overflow, nan)
    for variant in VARIANTS:
        got = convert.split(x, pieces, overflow=overflow, nan=nan, variant=variant)
        assert [codes.ravel().tolist() for codes in got] == want
        strided = np.asfortranarray(x)
        turned = convert.split(strided, pieces, overflow=overflow, nan=nan, variant=variant)
        assert [codes.ravel().tolist() for codes in turned] == want


def test_three_bf16_pieces_hold_a_normal_float32_exactly():
    x = operand()
    x = x[(np.abs(x) > 1e-20) & (np.abs(x) < 1e30)]
    assert x.size > 100
    total = sum(
        convert.decode(codes, FORMATS["bf16"], np.float64)
        for codes in convert.split(x, [(FORMATS["bf16"], "RNE", 0)] * 3)
    )
    assert np.array_equal(total, x.astype(np.float64))


def test_long_rows_cross_the_blocks():
    x = np.tile(operand().ravel(), 5)[:2100].reshape(1, -1)
    pieces = [(FORMATS["fp16"], "RNE", 0), (FORMATS["fp16"], "RNE", 12)]
    whole = convert.split(x, pieces)
    parts = [convert.split(x[:, i : i + 1], pieces) for i in range(x.shape[1])]
    for p in range(2):
        assert np.array_equal(whole[p].ravel(), np.array([part[p][0, 0] for part in parts]))


def test_empty_and_no_dimension():
    pieces = [(FORMATS["bf16"], "RNE", 0)]
    assert convert.split(np.empty((0, 3), np.float32), pieces)[0].shape == (0, 3)
    assert convert.split(np.array(1.5, np.float32), pieces)[0].tolist() == 0x3FC0


def test_fp64_source_keeps_its_rest_in_fp64():
    rng = np.random.default_rng(4)
    x = np.ldexp(rng.standard_normal((5, 67)), rng.integers(-40, 40, (5, 67)))
    x[0, :4] = 0.0, -0.0, 2.0**-1074, 1 + 2.0**-52
    pieces = [(FORMATS["fp32"], "RNE", 0), (FORMATS["fp32"], "RZ", 30), (FORMATS["bf16"], "RNE", 24)]
    want, rest = [], x.copy()
    for fmt, rounding, exponent in pieces:
        rest = rest * 2.0**exponent
        codes = [
            formats.round_to(fmt, formats.decode(FORMATS["fp64"], int(w)), rounding)
            for w in rest.view(np.uint64).ravel()
        ]
        want.append(codes)
        rest = rest - convert.decode(np.array(codes, formats.code_dtype(fmt)).reshape(x.shape), fmt, np.float64)
    for variant in VARIANTS:
        for source in (x, np.asfortranarray(x)):
            got = convert.split(source, pieces, variant=variant)
            assert [codes.ravel().tolist() for codes in got] == want


def test_three_fp32_pieces_hold_a_double_exactly():
    x = np.random.default_rng(6).standard_normal(1067)
    pieces = convert.split(x, [(FORMATS["fp32"], "RNE", 0)] * 3)
    assert np.array_equal(sum(codes.view(np.float32).astype(np.float64) for codes in pieces), x)


@pytest.mark.parametrize(("dtype", "top"), [(np.float32, 0x7F7FFFFF), (np.float64, 0x7FEFFFFFFFFFFFFF)])
def test_clamp_takes_infinities_before_the_split(dtype, top):
    word = np.uint32 if dtype is np.float32 else np.uint64
    largest = np.array(top, word).view(dtype)
    x = np.array([np.inf, -np.inf, 1.0, -0.0, largest], dtype)
    pieces = [(FORMATS["bf16"], "RNE", 0, "saturate"), (FORMATS["bf16"], "RNE", 8, "saturate")]
    given = convert.split(x, pieces, clamp=True)
    clamped = convert.split(np.clip(x, -largest, largest), pieces)
    assert all(map(np.array_equal, given, clamped))
    assert given[0].tolist() == [0x7F7F, 0xFF7F, 0x3F80, 0x8000, 0x7F7F]
    nan = convert.split(np.array([np.nan], dtype), pieces, clamp=True)
    assert nan[0].tolist() == [0x7FC0]


def test_overflow_of_one_piece_alone():
    x = np.array([70000.0, -np.inf, np.inf], np.float32)
    fp16 = FORMATS["fp16"]
    ieee, mixed = [(fp16, "RNE", 0)] * 2, [(fp16, "RNE", 0, "saturate"), (fp16, "RNE", 0, None)]
    assert convert.split(x, ieee)[0].tolist() == [0x7C00, 0xFC00, 0x7C00]
    high, low = convert.split(x, mixed)
    assert high.tolist() == [0x7BFF, 0xFBFF, 0x7BFF]
    # The rest is IEEE: what is left of an infinity is one.
    assert low.tolist() == [int(np.array(70000 - 65504, np.float16).view(np.uint16)), 0xFC00, 0x7C00]


def test_pieces_into_given_arrays():
    x = operand()
    pieces = [(FORMATS["fp16"], "RNE", 0), (FORMATS["fp16"], "RNE", 12)]
    out = [np.zeros(x.shape, np.uint16) for _ in pieces]
    got = convert.split(x, pieces, out=out)
    assert all(g is o for g, o in zip(got, out, strict=True))
    assert all(map(np.array_equal, out, convert.split(x, pieces)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_clamped_infinities_are_split_as_the_largest_number(variant, dtype):
    largest = np.finfo(dtype).max
    x, y = (np.array([[top, -top, 1.5, -0.0]], dtype) for top in (np.inf, largest))
    pieces = [(FORMATS["bf16"], "RZ", 0)] * 3
    for one, other in zip(*(convert.split(z, pieces, clamp=True, variant=variant) for z in (x, y)), strict=True):
        assert np.array_equal(one, other)
