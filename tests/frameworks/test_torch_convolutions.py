"""Convolutions of PyTorch with library="pytorch": an H100's results, and no work on a stride's gaps."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from modern import kernels, operand, picked  # noqa: E402

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.frameworks.torch.convolution_order import is_stored_last  # noqa: E402
from hwsim.gemm.convolution import conv_shape  # noqa: E402
from hwsim.libraries.convolution_call import ConvolutionCall  # noqa: E402
from hwsim.libraries.cudnn.provider import CUDNN  # noqa: E402
from hwsim.libraries.protocol import LibraryRequest  # noqa: E402

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "lab" / "tools" / "record"))
import convolution_results  # noqa: E402

RESULTS = ROOT / "tests" / "golden" / "h200_convolutions" / "results.npz"
MOST_MACS = 1e8  # of a recorded call that is computed whole
CAPTURES = kernels("conv")
NOT_FORESEEN = ("conv tf32 2x64x56 64 3 1 1 nchw",)
TYPES = {"bf16": (np.int16, torch.bfloat16), "fp16": (np.int16, torch.float16)}


def tensor(seed: int, rows: int, columns: int, fmt: str) -> torch.Tensor:
    codes, dtype = TYPES.get(fmt, (np.int32, torch.float32))
    return torch.from_numpy(operand(seed, rows, columns, fmt).view(codes)).view(dtype)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=pytest.mark.xfail(strict=True, reason="the trees choose another kernel"))
        if key in NOT_FORESEEN
        else key
        for key in CAPTURES
    ],
)
def test_a_convolution_is_that_of_an_h100(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, fmt, sizes, *numbers, layout = key.split()
    (b, c, hw), (o, r, stride, padding) = map(int, sizes.split("x")), map(int, numbers)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", fmt == "tf32")
    x = tensor(91, b * hw * hw, c, fmt).view(b, hw, hw, c).permute(0, 3, 1, 2)
    w = tensor(92, o * r * r, c, fmt).view(o, r, r, c).permute(0, 3, 1, 2)
    if layout == "nchw":
        x, w = x.contiguous(), w.contiguous()
    with hwsim.torch.emulate(device="h100", library="pytorch") as run:
        y = torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)
    assert not run.not_caught
    got = y.permute(0, 2, 3, 1).reshape(-1, o)[torch.from_numpy(picked(b * y.shape[2] * y.shape[3], 128, 6))]
    want = CAPTURES[key]
    assert np.array_equal(got.contiguous().view(torch.int16 if want.itemsize == 2 else torch.int32).numpy(), want)


@pytest.mark.parametrize(
    ("sizes", "window", "stride", "padding", "dilation"),
    [
        ((2, 4, 7, 6), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((1, 4, 9, 8), (2, 3), (3, 2), (0, 1), (1, 2)),
        ((1, 4, 5, 5), (1, 1), (2, 2), (0, 0), (1, 1)),
        ((1, 4, 11), (3,), (2,), (2,), (3,)),
        ((1, 4, 5, 4, 6), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)),
    ],
)
def test_a_stride_s_gaps_are_no_work(
    sizes: tuple[int, ...],
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:
    """The gradient of the input of whole numbers is exact, and no product is larger than the forward convolution."""
    torch.manual_seed(0)
    x = torch.randint(-8, 9, sizes).float().requires_grad_()
    w = torch.randint(-8, 9, (6, sizes[1] // 2, *window)).float()
    convolve = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[
        len(window)
    ]
    more = {"stride": stride, "padding": padding, "dilation": dilation, "groups": 2}
    y = convolve(x, w, **more)
    grad = torch.randint(-8, 9, y.shape).float()
    (want,) = torch.autograd.grad(y, x, grad)
    with hwsim.torch.emulate(device="h100", format="fp32") as run:
        (got,) = torch.autograd.grad(convolve(x, w, **more), x, grad)
    assert torch.equal(got, want)
    forward, backward = (
        sum(layer.macs for (_, _, of), layer in run.record.layers.items() if of == stage)
        for stage in ("forward", "backward_input")
    )
    assert forward == backward == products_of_pixels(sizes, window, y.shape[2:], stride, padding, dilation) * 6


def products_of_pixels(sizes, window, out, stride, padding, dilation) -> int:
    """Pixels that elements of a window meet, over all places of it, images and channels of one of two groups."""
    met = 0
    for place, tap in product(product(*map(range, out)), product(*map(range, window))):
        at = [y * s + t * d - p for y, s, t, d, p in zip(place, stride, tap, dilation, padding, strict=True)]
        met += all(0 <= pixel < size for pixel, size in zip(at, sizes[2:], strict=True))
    return met * sizes[0] * sizes[1] // 2


def test_products_of_padding_are_told_and_no_work() -> None:
    x, w = torch.ones(1, 8, 6, 6).requires_grad_(), torch.ones(40, 8, 3, 3).requires_grad_()
    with hwsim.torch.emulate(device="h100", format="bf16", measure_every=0) as run:
        torch.nn.functional.conv2d(x, w, padding=1).sum().backward()
    layers = list(run.record.layers.values())
    real, padding = 8 * 40 * 16 * 16, 8 * 40 * (18 * 18 - 16 * 16)
    assert [(entry.macs, entry.padding_macs) for entry in layers] == [(real, padding)] * 3
    assert run.record.to_dict()["total"]["padding_macs"] == 3 * padding
    assert f"zeros of padding: {3 * padding / 1e6:.1f} MMAC beside these" in run.report()


def test_what_pytorch_takes_as_channels_last() -> None:
    x = torch.empty(2, 3, 4, 5)
    assert not is_stored_last(x) and is_stored_last(x.contiguous(memory_format=torch.channels_last))
    assert not is_stored_last(torch.empty(8, 4, 1, 1)) and is_stored_last(torch.empty(8, 1, 1, 4).permute(0, 3, 1, 2))
    assert not is_stored_last(torch.empty(3, 4, 5))


def test_drawn_convolutions_in_bf16_are_those_of_an_h200() -> None:
    """By the kernels that hwsim chooses: forward and for the images every call in bf16 is equal."""
    with np.load(RESULTS) as archive:
        meta = json.loads(str(archive["meta"]))
        counts = {"fprop": 0, "dgrad": 0}
        for entry in meta["entries"]:
            shape, index = entry["shape"], entry["index"]
            operation, fmt, batch, channels, height, width, filters, r, s, stride, *_, groups, _ = shape
            macs = batch * channels * height * width * filters * r * s / groups / stride**2
            if operation not in counts or fmt != "bf16" or macs > MOST_MACS:
                continue
            operands = convolution_results.operands(shape, meta["seed"], index)
            with hwsim.torch.emulate(device="h200", library="pytorch", measure_every=0):
                got = convolution_results.kept(convolution_results.run(shape, *operands), meta["seed"], index)
            assert np.array_equal(got, archive[str(index)]), shape
            counts[operation] += 1
    assert min(counts.values()) >= 5, counts


def test_a_recording_whose_time_is_up_says_what_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(convolution_results, "run", lambda shape, x, k, dy: x)
    out = tmp_path / "out.npz"
    given = ["convolution_results.py", "record", "--count", "3", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*given, "--seconds", "0"])
    assert convolution_results.main() == 2
    assert "0 of 3 calls, 3 left" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*given, "--seconds", "600"])
    assert convolution_results.main() == 0
    assert "3 of 3 calls, 0 left" in capsys.readouterr().out
    with np.load(out) as archive:
        meta = json.loads(str(archive["meta"]))
        assert meta["count"] == 3 == len(meta["entries"])


@pytest.mark.parametrize("window", [3, 1], ids=["cudnn", "as a product"])
@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
def test_fp32_results_of_narrow_operands_are_not_rounded(fmt: str, window: int) -> None:
    """The kernel's result has the tensors' format: near to the exact product of the rounded operands."""
    generator = torch.Generator().manual_seed(window)
    x, w = (torch.randn(*size, generator=generator) for size in ((2, 16, 8, 8), (32, 16, window, window)))
    x = x.contiguous(memory_format=torch.channels_last)
    with hwsim.torch.emulate(device="h100", library="pytorch", format=fmt, measure_every=0) as run:
        y = torch.nn.functional.conv2d(x, w)
    narrow = TYPES[fmt][1]
    exact = torch.nn.functional.conv2d(x.to(narrow).double(), w.to(narrow).double())
    assert float((y - exact).norm() / exact.norm()) < 1e-6 and not run.not_caught
    images, filters = x.numpy(), w.numpy()
    arrays = hwsim.conv2d(images, filters, device="h100", library="cudnn", format=fmt)
    assert np.array_equal(arrays, y.numpy())
    rounded = hwsim.conv2d(images, filters, device="h100", library="cudnn", format=fmt, output=fmt)
    assert rounded.dtype.itemsize == 2 and not np.array_equal(rounded.astype(np.float32), arrays)


@pytest.mark.parametrize("device", ["h100", "a100", "b200", "v100", "mi300x"])
def test_pytorch_adds_a_bias_to_the_rounded_result_on_every_gpu(device: str) -> None:
    """As Convolution.cpp of ATen does around cuDNN, and Conv_miopen.cpp around MIOpen."""
    fmt = torch.float16
    generator = torch.Generator().manual_seed(1)
    x, w, bias = (torch.randn(*s, generator=generator).to(fmt) for s in ((2, 8, 9, 9), (6, 4, 3, 3), (6,)))
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0):
        alone, whole = (torch.nn.functional.conv2d(x, w, b, padding=1, groups=2) for b in (None, bias))
    assert torch.equal(whole, alone + bias[:, None, None])
    with hwsim.torch.emulate(device=device, measure_every=0):
        once, unrounded = (torch.nn.functional.conv2d(x, w, b, padding=1, groups=2) for b in (bias, None))
    assert not torch.equal(once, unrounded + bias[:, None, None])  # without a library it is the epilogue's


DEPTHWISE = [
    *((name, fmt) for name in ("h100", "a100", "b200", "mi300x") for fmt in ("fp16", "bf16")),
    ("v100", "fp16"),
]


@pytest.mark.parametrize(("device", "narrow"), DEPTHWISE)
@pytest.mark.parametrize("channels", [8, 32])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
def test_pytorch_s_own_depthwise_kernel_adds_the_bias_before_it_rounds(
    device, narrow, channels, dilation, order
) -> None:
    """ConvParams::use_cudnn_depthwise of ATen: cuDNN takes what is stored channels last, and fp16 of 32 channels."""
    fmt = TYPES[narrow][1]
    generator = torch.Generator().manual_seed(2)
    sizes = (2, channels, 9, 9), (channels, 1, 3, 3), (channels,)
    x, w, bias = (torch.randn(*size, generator=generator).to(fmt) for size in sizes)
    x, more = x.contiguous(memory_format=order), {"padding": 1, "groups": channels, "dilation": dilation}
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0):
        alone, whole = (torch.nn.functional.conv2d(x, w, b, **more) for b in (None, bias))
    is_cudnn_s = order == torch.channels_last or (narrow == "fp16" and channels == 32 and dilation == 1)
    assert torch.equal(whole, alone + bias[:, None, None]) == (is_cudnn_s or device == "mi300x")


def test_the_error_of_groups_is_of_all_of_them() -> None:
    """The first channel is dead: its group alone would have no error."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 16, 8, 8, generator=generator).half()
    w = torch.randn(16, 1, 3, 3, generator=generator).half()
    x[:, 0] = 0
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=1) as run:
        y = torch.nn.functional.conv2d(x, w, groups=16)
    exact = torch.nn.functional.conv2d(x.double(), w.double(), groups=16)
    (entry,) = run.record.layers.values()
    assert entry.error == pytest.approx(float((y - exact).norm() / exact.norm()), rel=0.2)
    assert entry.plain_error == pytest.approx(entry.error, rel=0.2) and entry.measured == 1


def test_the_report_names_the_kernels_of_layers() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.nn.Linear(8, 8)).bfloat16()
    x = torch.ones(2, 64, 8, 8).bfloat16().contiguous(memory_format=torch.channels_last)
    with torch.no_grad(), hwsim.torch.emulate(device="h100", library="pytorch") as run:
        model(x)
    shape = conv_shape(x.shape, (64, 64, 3, 3), padding=1)
    call = ConvolutionCall(shape=shape, format="bf16")
    kernel = CUDNN.on(LibraryRequest(device="h100")).choose(call).kernel
    first, second = run.to_dict()["layers"]
    (name,) = first["kernels"]
    assert name.startswith(kernel) and first["kernels"][name] == 1 and name not in second["kernels"]
    assert f"kernel {name}: 1 call (0)" in run.report() and "kernel nvjet" in run.report()
    with torch.no_grad(), hwsim.torch.emulate(device="h100") as run:
        model(x)
    assert "kernel " not in run.report() and not run.record.total().kernels
