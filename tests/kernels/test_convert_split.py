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
