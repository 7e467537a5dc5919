"""PyTorch's own kernels of depthwise convolutions: fused multiply-adds in FP32, whatever the switches."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name

import hwsim.torch  # noqa: E402
from hwsim.frameworks.torch import convolution_order  # noqa: E402
from hwsim.frameworks.torch.tensors import array_of  # noqa: E402
from hwsim.libraries.convolution_call import ConvolutionSizes  # noqa: E402
from hwsim.libraries.pytorch.convolutions import ConvolutionKernel, convolution_kernel  # noqa: E402

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.fixture(scope="module")
def fmaf():
    """The C library's fused multiply-add."""
    try:
        function = ctypes.CDLL("libm.so.6").fmaf
    except OSError:
        pytest.skip("needs libm.so.6")
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    return function


def drawn(*shape, dtype, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


#: Zeros and ones of both signs, numbers whose products no FP32 number holds, and one infinity.
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 2.0**-24, -(2.0**-24), float("inf")]


def special(*shape, dtype, seed, least=0, most=None):
    places = torch.randint(least, most or len(SPECIAL), shape, generator=torch.Generator().manual_seed(seed))
    return torch.tensor(SPECIAL)[places].to(dtype)


def equal_bits(x, y):
    """Zeros of unlike signs differ; NaNs do not."""
    same = (x == y) & (x.signbit() == y.signbit())
    return bool((same | (x.isnan() & y.isnan())).all())


def chain(fmaf, start, products):
    """The C library's fused multiply-adds, one after another."""
    for left, right in products:
        start = fmaf(left, right, start)
    return start


def by_hand(fmaf, x, w, bias, stride, padding, dilation):
    """A convolution in one, two or three dimensions: in planes a sum begins with the bias, in volumes it ends so.
    Padding is left out.
    """
    around = [side for p in reversed(padding) for side in (p, p)]
    full, dims = F.pad(x, around).float(), x.dim() - 2
    inside = F.pad(torch.ones(x.shape[2:]), around)
    sizes = [
        (n - d * (r - 1) - 1) // s + 1 for n, r, s, d in zip(full.shape[2:], w.shape[2:], stride, dilation, strict=True)
    ]
    times, out = w.shape[0] // x.shape[1], np.zeros((x.shape[0], w.shape[0], *sizes), np.float32)
    weights, taps = w.float(), list(product(*map(range, w.shape[2:])))
    for n, o, *at in product(*map(range, out.shape)):
        places = [[s * y + d * t for y, s, d, t in zip(at, stride, dilation, tap, strict=True)] for tap in taps]
        met = zip(taps, places, strict=True)
        met = [(tap, tuple(place)) for tap, place in met if inside[tuple(place)]]
        pairs = [(float(weights[o, 0][tap]), float(full[n, o // times][place])) for tap, place in met]
        shift = float(bias[o])
        out[(n, o, *at)] = chain(fmaf, shift, pairs) if dims < 3 else fmaf(1.0, shift, chain(fmaf, 0.0, pairs))
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
def test_forward(fmaf, device, narrow, case):
    image, window, stride, padding, dilation = WINDOWS[case]
    dtype = TYPES[narrow]
    x, w, bias = drawn(*image, dtype=dtype), drawn(*window, dtype=dtype, seed=2), drawn(window[0], dtype=dtype, seed=3)
    function = (F.conv1d, F.conv2d, F.conv3d)[len(stride) - 1]
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=1) as run:
        y = function(x, w, bias, stride, padding, dilation, groups=image[1])
    assert equal_bits(y, by_hand(fmaf, x, w, bias, stride, padding, dilation))
    (entry,) = run.record.layers.values()
    assert entry.error < {"fp32": 1e-6, "fp16": 1e-3, "bf16": 1e-2}[narrow]
    assert entry.evidence == "assumption" and run.verdict.in_order == 1 and "conv_depthwise" in str(entry.kernels)
    assert entry.macs + entry.padding_macs == y.numel() * int(np.prod(window[2:]))  # the bias is no product


@pytest.mark.parametrize("narrow", TYPES)
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients(fmaf, narrow, stride):
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
        wanted[n, c, i, j] = chain(fmaf, 0.0, pairs)
    assert torch.equal(x.grad, wanted.to(dtype))
    assert set(run.verdict.unknown_orders.values()) == {1} and run.record.total().evidence == "assumption"
    if narrow == "fp32":
        assert run.record.total().largest_error < 1e-6


LINES = [((2, 3, 70), (6, 1, 67), [1], [33], [1]), ((2, 3, 5), (6, 1, 1), [1], [2], [1])]


@pytest.mark.parametrize("narrow", TYPES)
@pytest.mark.parametrize("case", range(len(WINDOWS) + len(LINES)))
@pytest.mark.parametrize("kind", ["zeros", "numbers", "infinities"])
def test_zeros_keep_their_signs_and_padding_meets_no_infinity(fmaf, narrow, case, kind):
    """A sum that begins with -0 stays so while its products are -0; what is outside of the image has no product."""
    image, window, stride, padding, dilation = (*WINDOWS, *LINES)[case]
    dtype, least, most = TYPES[narrow], 1 if kind == "zeros" else 0, {"zeros": 3, "numbers": 8, "infinities": 9}[kind]
    x = special(*image, dtype=dtype, seed=case, most=3 if kind == "zeros" else 8)
    w = special(*window, dtype=dtype, seed=case + 9, least=least, most=most)
    bias = torch.tensor([-0.0, 0.0, -0.0, 1.0, -0.0, -0.0])[: window[0]].to(dtype)
    if kind == "zeros":  # of one channel all products are -0
        x[:, 0], w[: window[0] // image[1]] = 0.0, -0.0
    function = (F.conv1d, F.conv2d, F.conv3d)[len(stride) - 1]
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0):
        y = function(x, w, bias, stride, padding, dilation, groups=image[1])
    wanted = by_hand(fmaf, x, w, bias, stride, padding, dilation)
    assert equal_bits(y, wanted)
    assert kind != "zeros" or len(stride) == 3 or wanted[:, 0].signbit().all()
    if len(stride) == 2:
        arrays = [array_of(tensor) for tensor in (x, w, bias)]
        more = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": image[1]}
        given = {"device": "h100", "library": "pytorch", "layout": "nchw"}
        given |= {} if narrow == "fp32" else {"output": narrow}
        got = hwsim.conv2d(*arrays[:2], bias=arrays[2], **more, **given)
        assert equal_bits(torch.from_numpy(got.astype(np.float32)).to(dtype), wanted)


@pytest.mark.parametrize("narrow", TYPES)
@pytest.mark.parametrize("dims", [2, 3])
def test_a_gradient_of_images_leaves_padding_out_in_planes_alone(fmaf, narrow, dims):
    dtype, window = TYPES[narrow], (3, 3, 2)[:dims]
    x = special(1, 2, *(4, 5, 3)[:dims], dtype=dtype, seed=1).requires_grad_()
    w = special(4, 1, *window, dtype=dtype, seed=2, most=8)
    w[(1, 0, *[0] * dims)] = float("inf")  # beyond the image it would meet a zero
    function, ones = (F.conv2d, F.conv3d)[dims - 2], [1] * dims
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0):
        y = function(x, w, None, ones, ones, ones, groups=2)
        dy = special(*y.shape, dtype=dtype, seed=3, least=2, most=8)
        y.backward(dy)
    wanted = torch.zeros(x.shape)
    for c, *at in product(*map(range, x.shape[1:])):
        pairs = []
        for o, *tap in product(range(2 * c, 2 * c + 2), *map(range, window)):
            place = tuple(i + 1 - r for i, r in zip(at, tap, strict=True))
            is_met = all(0 <= i < size for i, size in zip(place, y.shape[2:], strict=True))
            if is_met or dims == 3:
                pairs.append((float(w[(o, 0, *tap)]), float(dy[(0, o, *place)]) if is_met else 0.0))
        wanted[(0, c, *at)] = chain(fmaf, 0.0, pairs)
    assert wanted.isinf().any() and (dims == 2 or wanted.isnan().any())
    assert equal_bits(x.grad, wanted.to(dtype))


def test_a_transposed_one_is_no_kernel_of_pytorch_s_own():
    """ConvParams::is_depthwise of ATen asks that it is not transposed."""
    x, w = (drawn(*size, dtype=torch.float16).requires_grad_() for size in ((1, 8, 6, 6), (8, 1, 3, 3)))
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run:
        y = F.conv_transpose2d(x, w, None, 2, 1, groups=8)
        y.backward(torch.ones_like(y))
    assert {stage for _, _, stage in run.record.layers} == {"forward", "backward_input", "backward_weight"}
    for entry in run.record.layers.values():
        assert not any("depthwise" in kernel for kernel in entry.kernels)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_second_derivative_of_a_plain_one_is_by_the_own_kernel(is_compiled):
    """The gradient's derivative by its gradient is the convolution again, which is not transposed."""
    x, w = drawn(1, 4, 6, 6, dtype=torch.float32).requires_grad_(), drawn(4, 1, 3, 3, dtype=torch.float32, seed=2)
    function = torch.compile(F.conv2d, backend="eager") if is_compiled else F.conv2d
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run:
        y = function(x, w, None, 1, 1, groups=4)
        dy = drawn(*y.shape, dtype=torch.float32, seed=3).requires_grad_()
        (of_x,) = torch.autograd.grad(y, x, dy, create_graph=True)
        (again,) = torch.autograd.grad(of_x, dy, x.detach())
    kernels = run.record.total().kernels
    names = {"conv_depthwise2d_forward_kernel": 2, "conv_depthwise2d_backward_kernel": 1}
    assert kernels == {f"{name}, K in one piece": count for name, count in names.items()}
    assert torch.equal(again, y)


def test_conv2d_takes_no_other_bias_and_no_c():
    x, w = np.ones((1, 4, 6, 6), np.float16), np.ones((4, 1, 3, 3), np.float16)
    given = {"device": "h100", "library": "pytorch", "layout": "nchw", "groups": 4}
    with pytest.raises(hwsim.InputError, match=r"bias: .* no numbers of fp16; round them to fp16"):
        hwsim.conv2d(x, w, bias=np.full(4, 1 + 2**-12, np.float32), **given)
    alone = hwsim.conv2d(x, w, **given)
    assert np.array_equal(hwsim.conv2d(x, w, bias=np.full(4, 0.5), **given), alone + 0.5)
    with pytest.raises(hwsim.UnsupportedError, match="takes none"):
        hwsim.conv2d(x, w, alone, **given)


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


@pytest.mark.parametrize(("channels", "is_depthwise"), [(4, False), (1, True)])
def test_cudnn_is_not_asked_for_a_scheme(monkeypatch, channels, is_depthwise):
    """A scheme's products are in no order of cuDNN's; native ones, which are not depthwise, are."""
    asked = []
    monkeypatch.setattr(convolution_order, "cudnn_kernel", lambda *_, **__: asked.append(1) or ConvolutionKernel())
    x, w = drawn(1, 4, 6, 6, dtype=torch.float32), drawn(4, channels, 3, 3, dtype=torch.float32, seed=2)
    with hwsim.torch.emulate(device="h100", library="pytorch", scheme="tf32x3", measure_every=0):
        F.conv2d(x, w, None, groups=4 // channels)
    assert not asked
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0):
        F.conv2d(x, w, None, groups=4 // channels)
    assert bool(asked) != is_depthwise


@pytest.mark.parametrize(
    ("image", "said"), [((1, 4, 5, 5, 5), "in three dimensions"), ((0, 4, 5, 5), "for a convolution without elements")]
)
def test_why_a_kernel_of_cudnn_is_not_known(image, said):
    sizes = ConvolutionSizes(None, image, 1)
    with pytest.raises(hwsim.UnsupportedError, match=f"its kernels {said} are not known"):
        convolution_kernel("pytorch", "h100", sizes, format="fp16", stored="fp16")
