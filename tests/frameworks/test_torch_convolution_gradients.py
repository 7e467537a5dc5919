"""Gradients of convolutions with library="pytorch", told which kernel cuDNN runs: an H100's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from modern import operand, picked  # noqa: E402

import hwsim.torch  # noqa: E402
from hwsim.libraries.convolution_call import ConvolutionCall  # noqa: E402
from hwsim.libraries.cudnn.convolution_rules import ConvolutionChoice, CudnnRules  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "h100_convolutions"
CAPTURES = np.load(GOLDEN / "gradients.npz")
KERNELS = json.loads((GOLDEN / "gradients.json").read_text())
TYPES = {"bf16": (np.int16, torch.bfloat16), "fp16": (np.int16, torch.float16)}
CHANNELS_LAST = (0, 2, 3, 1)


def tensor(seed: int, sizes: tuple[int, ...], fmt: str) -> torch.Tensor:
    """A tensor of four dimensions (N, C, H, W); its elements are drawn in the order of channels last."""
    n, c, h, w = sizes
    codes, dtype = TYPES.get(fmt, (np.int32, torch.float32))
    drawn = torch.from_numpy(operand(seed, n * h * w, c, fmt).view(codes)).view(dtype)
    return drawn.view(n, h, w, c).permute(0, 3, 1, 2)


def told(name: str, tile_k: int, slices: int) -> Any:
    """A `choose` that always gives this kernel."""

    def choose(rules: CudnnRules, call: ConvolutionCall) -> ConvolutionChoice:
        row = rules.row_of(name)
        return ConvolutionChoice(
            family=name, kernel=name, operand=call.format, tile_k=tile_k, split_k=slices, evidence="silicon",
            k_order=row.k_order, backwards=row.backwards,
        )  # fmt: skip

    return choose


def gradient(key: str) -> np.ndarray:
    """The kept results. key: dgrad or wgrad, FORMAT BxCxHxW FILTERS RxS STRIDE PADDING DILATION GROUPS LAYOUT."""
    operation, fmt, image, filters, window, *numbers, _ = key.split()
    b, c, h, w = map(int, image.split("x"))
    r, s = map(int, window.split("x"))
    stride, padding, dilation, groups = map(int, numbers)
    o = int(filters)
    p, q = ((size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1 for size, taps in ((h, r), (w, s)))
    x = tensor(91, (b, c, h, w), fmt).requires_grad_(operation == "dgrad")
    weight = tensor(92, (o, c // groups, r, s), fmt).requires_grad_(operation == "wgrad")
    with hwsim.torch.emulate(device="h100", library="pytorch", forward="plain") as run:
        y = torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation, groups)
        y.backward(tensor(94, (b, o, p, q), fmt))
    assert not run.not_caught
    found = (x if operation == "dgrad" else weight).grad
    assert found is not None
    rows = found.permute(*CHANNELS_LAST)
    rows = rows.reshape(-1, c) if operation == "dgrad" else rows.reshape(o, -1)
    wide = 64 if fmt in TYPES else 16
    kept = rows[torch.tensor(picked(rows.shape[0], 128, 6)[:24])][:, torch.tensor(picked(rows.shape[1], wide, 8)[:16])]
    return np.asarray(kept.contiguous().view(torch.int16 if kept.element_size() == 2 else torch.int32))


@pytest.mark.parametrize("operation", ["dgrad", "wgrad"])
@pytest.mark.parametrize("fmt", ["bf16", "fp16", "tf32", "fp32"])
def test_a_gradient_is_that_of_an_h100_s_kernel(operation: str, fmt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key for key in CAPTURES.files if key.split()[:2] == [operation, fmt]]
    assert len(keys) >= 4
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", fmt == "tf32")
    for key in keys:
        monkeypatch.setattr(CudnnRules, "choose", told(*KERNELS[key]))
        want = CAPTURES[key]
        assert np.array_equal(gradient(key).view(want.dtype), want), (key, KERNELS[key])


def test_the_captures_are_of_many_kernels() -> None:
    assert len({kernel[0] for kernel in KERNELS.values()}) > 30 and set(KERNELS) == set(CAPTURES.files)
