"""Convolutions against plain loops, and against products of matrices built element by element."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.frameworks.numpy.windows import im2col
from hwsim.gemm.convolution import conv_shape

CASES = [
    {},
    {"stride": 2},
    {"stride": (1, 3), "padding": (2, 0)},
    {"padding": 1, "dilation": (1, 2)},
    {"stride": (2, 1), "padding": (1, 3), "dilation": (3, 2), "groups": 2},
    {"groups": 4, "padding": 2},
]


def plain(x: np.ndarray, w: np.ndarray, stride=1, padding=0, dilation=1, groups=1) -> np.ndarray:
    """Loops over every output element and every place of its window, in the arrays' own type."""
    (sy, sx), (py, px), (dy, dx) = (v if isinstance(v, tuple) else (v, v) for v in (stride, padding, dilation))
    n, _, h, width = x.shape
    o, per_group, r, s = w.shape
    rows = (h + 2 * py - dy * (r - 1) - 1) // sy + 1
    columns = (width + 2 * px - dx * (s - 1) - 1) // sx + 1
    out = np.zeros((n, o, rows, columns), x.dtype)
    for i, f, y, z in np.ndindex(*out.shape):
        first = f // (o // groups) * per_group
        for ch, u, v in np.ndindex(per_group, r, s):
            at, to = y * sy + u * dy - py, z * sx + v * dx - px
            if 0 <= at < h and 0 <= to < width:
                out[i, f, y, z] += x[i, first + ch, at, to] * w[f, ch, u, v]
    return out


def drawn(groups: int, low: int = -9, high: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(groups)
    return rng.integers(low, high, (2, 4, 7, 8)), rng.integers(low, high, (8, 4 // groups, 3, 2))


@pytest.mark.parametrize("case", CASES)
def test_whole_numbers_are_exact(case: dict) -> None:
    x, w = drawn(case.get("groups", 1))
    want = plain(x, w, **case)
    for device, form in (("a100", {"format": "fp16"}), ("mi210", {"format": "fp16"}), ("ascend910a", {})):
        got = hwsim.conv2d(x.astype(np.float32), w.astype(np.float32), device=device, **form, **case)
        assert got.dtype == np.float32 and np.array_equal(got, want)
    small = hwsim.conv2d(x.astype(np.int8), w.astype(np.int8), device="t4", format="int8", **case)
    assert small.dtype == np.int32 and np.array_equal(small, want)
    words = hwsim.conv2d(
        (x * 999).astype(np.int16), (w * 999).astype(np.int16), device="a100", scheme="ape-int16", **case
    )
    assert words.dtype == np.int64 and np.array_equal(words, want * 999**2)


def test_bits_are_those_of_the_matrices() -> None:
    """K in order of c, r, s, whatever the values; bias per filter, C as an image."""
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((2, 3, 6, 5)).astype(np.float32), rng.standard_normal((4, 3, 2, 3)).astype(np.float32)
    c, bias = rng.standard_normal((2, 4, 7, 3)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    rows = []
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    for i, y, z in np.ndindex(2, 7, 3):
        rows.append([padded[i, ch, y + u, z + v] for ch in range(3) for u in range(2) for v in range(3)])
    columns = np.array([[w[f, ch, u, v] for ch in range(3) for u in range(2) for v in range(3)] for f in range(4)])
    flat = np.array([[c[i, f, y, z] for f in range(4)] for i, y, z in np.ndindex(2, 7, 3)])
    arguments = {"device": "a100", "scheme": "ape-fp32-f", "alpha": 0.5, "beta": 3.0}
    want = hwsim.matmul(np.array(rows), columns.T, flat, bias=bias, **arguments)
    got = hwsim.conv2d(x, w, c, padding=(1, 0), bias=bias, **arguments)
    assert got.shape == (2, 4, 7, 3)
    for row, (i, y, z) in zip(want, np.ndindex(2, 7, 3), strict=True):
        assert np.array_equal(got[i, :, y, z].view(np.uint32), row.view(np.uint32))


def test_specials_stay_in_their_windows() -> None:
    x, w = np.ones((1, 1, 5, 5), np.float32), np.ones((1, 1, 2, 2), np.float32)
    x[0, 0, 2, 2] = np.inf
    got = hwsim.conv2d(x, w, device="h200", scheme="bf16x9", accumulation="termwise")
    assert np.array_equal(np.argwhere(np.isinf(got[0, 0])), [[1, 1], [1, 2], [2, 1], [2, 2]])
    assert np.array_equal(got[0, 0][~np.isinf(got[0, 0])], np.full(12, 4.0))


def test_sizes_and_views() -> None:
    shape = conv_shape((1, 64, 56, 56), (64, 64, 3, 3), padding=1)
    assert shape.gemm == (3136, 64, 576) and (shape.out_height, shape.out_width) == (56, 56)
    x = np.arange(2 * 6 * 5 * 4).reshape(4, 5, 6, 2).T.astype(np.float32)  # any strides
    a = im2col(x, conv_shape(x.shape, (2, 3, 1, 1), groups=2), 1)
    assert np.array_equal(a, np.moveaxis(x[:, 3:], 1, -1).reshape(-1, 3))


@pytest.mark.parametrize(
    ("x", "w", "given", "said"),
    [
        ((1, 2, 3), (1, 2, 1, 1), {}, "four dimensions"),
        ((1, 3, 4, 4), (2, 3, 5, 1), {}, "do not fit"),
        ((1, 3, 4, 4), (2, 2, 1, 1), {}, "filters of channels / groups"),
        ((1, 4, 4, 4), (3, 2, 1, 1), {"groups": 2}, "groups divide"),
        ((1, 1, 4, 4), (1, 1, 1, 1), {"stride": 0}, "stride = 0"),
        ((1, 1, 4, 4), (1, 1, 1, 1), {"padding": (1, 2, 3)}, "padding"),
        ((1, 1, 4, 4), (1, 1, 1, 1), {"groups": 0}, "groups = 0"),
        ((1, 1, 4, 4), (1, 1, 1, 1), {"rows": [0]}, "rows: not for a convolution"),
        ((1, 1, 4, 4), (1, 1, 1, 1), {"bias": np.ones(2)}, "bias has shape"),
        ((1, 1, 4, 4), (1, 1, 1, 1), {"c": np.ones((4, 4))}, "C has shape"),
    ],
)
def test_what_does_not_fit(x: tuple, w: tuple, given: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        hwsim.conv2d(np.ones(x, np.float32), np.ones(w, np.float32), device="a100", **given)
