"""PyTorch's own kernels of depthwise convolutions: fused multiply-adds in FP32, whatever the switches."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name

import hwsim.torch  # noqa: E402

FMAF = ctypes.CDLL("libm.so.6").fmaf
FMAF.restype, FMAF.argtypes = ctypes.c_float, [ctypes.c_float] * 3
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def drawn(*shape, dtype, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def chain(start, products):
    """The C library's fused multiply-adds, one after another."""
    for left, right in products:
        start = FMAF(left, right, start)
    return start


def by_hand(x, w, bias, stride, padding, dilation):
    """A convolution in one, two or three dimensions: in planes a sum begins with the bias, in volumes it ends so."""
    around = [side for p in reversed(padding) for side in (p, p)]
    full, dims = F.pad(x, around).float(), x.dim() - 2
    sizes = [
        (n - d * (r - 1) - 1) // s + 1 for n, r, s, d in zip(full.shape[2:], w.shape[2:], stride, dilation, strict=True)
    ]
    times, out = w.shape[0] // x.shape[1], np.zeros((x.shape[0], w.shape[0], *sizes), np.float32)
    weights, taps = w.float(), list(product(*map(range, w.shape[2:])))
    for n, o, *at in product(*map(range, out.shape)):
        places = [[s * y + d * t for y, s, d, t in zip(at, stride, dilation, tap, strict=True)] for tap in taps]
        met = zip(taps, places, strict=True)
        pairs = [(float(weights[o, 0][tap]), float(full[n, o // times][tuple(place)])) for tap, place in met]
        shift = float(bias[o])
        out[(n, o, *at)] = chain(shift, pairs) if dims < 3 else FMAF(1.0, shift, chain(0.0, pairs))
    return torch.from_numpy(out).to(x.dtype)


WINDOWS = [
    ((2, 3, 9), (6, 1, 5), [2], [2], [1]),
    ((1, 4, 7, 6), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1]),
    ((2, 2, 7, 8), (4, 1, 3, 2), [2, 1], [1, 0], [1, 2]),
    ((1, 2, 4, 5, 4), (2, 1, 2, 3, 2), [1, 1, 1], [1, 1, 0], [1, 1, 1]),
]


@pytest.mark.parametrize("device", ["h100", "a100"])
@pytest.mark.parametrize("narrow", TYPES)
@pytest.mark.parametrize("case", range(len(WINDOWS)))
def test_forward(device, narrow, case):
    image, window, stride, padding, dilation = WINDOWS[case]
    dtype = TYPES[narrow]
    x, w, bias = drawn(*image, dtype=dtype), drawn(*window, dtype=dtype, seed=2), drawn(window[0], dtype=dtype, seed=3)
    function = (F.conv1d, F.conv2d, F.conv3d)[len(stride) - 1]
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=1) as run:
        y = function(x, w, bias, stride, padding, dilation, groups=image[1])
    assert torch.equal(y, by_hand(x, w, bias, stride, padding, dilation))
    (entry,) = run.record.layers.values()
    assert entry.error < {"fp32": 1e-6, "fp16": 1e-3, "bf16": 1e-2}[narrow]
    assert entry.evidence == "assumption" and run.verdict.in_order == 1 and "conv_depthwise" in str(entry.kernels)
    assert entry.macs + entry.padding_macs == y.numel() * int(np.prod(window[2:]))  # the bias is no product


@pytest.mark.parametrize("narrow", TYPES)
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients(narrow, stride):
    """The image's: filters of a channel, then their rows and columns from the first on. The weight's order is not
    followed, but it is FP32's.
    """
    dtype = TYPES[narrow]
    x, w = drawn(1, 3, 6, 5, dtype=dtype).requires_grad_(), drawn(6, 1, 3, 3, dtype=dtype, seed=2).requires_grad_()
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=1) as run:
        y = F.conv2d(x, w, None, stride, 1, groups=3)
        dy = drawn(*y.shape, dtype=dtype, seed=4)
        y.backward(dy)
    wanted, weights = torch.zeros(x.shape), w.detach()
    for n, c, i, j in product(*map(range, x.shape)):
        pairs = []
        for o, r, s in product(range(2 * c, 2 * c + 2), range(3), range(3)):
            (p, odd), (q, off) = divmod(i + 1 - r, stride), divmod(j + 1 - s, stride)
            if not odd and not off and 0 <= p < dy.shape[2] and 0 <= q < dy.shape[3]:
                pairs.append((float(weights[o, 0, r, s]), float(dy[n, o, p, q])))
        wanted[n, c, i, j] = chain(0.0, pairs)
    assert torch.equal(x.grad, wanted.to(dtype))
    assert set(run.verdict.unknown_orders.values()) == {1} and run.record.total().evidence == "assumption"
    if narrow == "fp32":
        assert run.record.total().largest_error < 1e-6


def test_a_format_of_its_own_keeps_the_bias_as_it_is():
    """format= rounds operands; a bias of fp32 is none."""
    x, w = drawn(1, 4, 6, 6, dtype=torch.float32), drawn(4, 1, 3, 3, dtype=torch.float32, seed=2)
    bias = drawn(4, dtype=torch.float32, seed=3)
    with hwsim.torch.emulate(device="h100", library="pytorch", format="bf16", measure_every=0):
        alone, whole = (F.conv2d(x, w, b, groups=4) for b in (None, bias))
    assert torch.equal(whole, alone + bias[:, None, None])


@pytest.mark.parametrize("shape", [(1, 32, 12, 12), (1, 32, 12)])
@pytest.mark.parametrize("taps", [3, 4])
def test_padding_same_is_padding(shape, taps):
    """PyTorch hands what both sides have to the kernel: sizes decide kernels, and zeros are no work."""
    dims = len(shape) - 2
    x, w = drawn(*shape, dtype=torch.float16), drawn(32, 1, *[taps] * dims, dtype=torch.float16, seed=2)
    function = (F.conv1d, F.conv2d)[dims - 1]
    both, more = (taps - 1) // 2, (taps - 1) % 2
    padded = F.pad(x, [0, more] * dims)
    records = []
    for image, padding in ((x, "same"), (padded, both)):
        with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run:
            records.append((function(image, w, None, 1, padding, groups=32), run.record.total()))
    assert torch.equal(records[0][0], records[1][0]) and records[0][1].kernels == records[1][1].kernels
    assert records[0][1].padding_macs == records[1][1].padding_macs > 0
