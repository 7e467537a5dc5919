"""Tensors of a GPU under hwsim.torch: products stay there, with the bits that the CPU's kernels give."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hwsim.torch  # noqa: E402
from hwsim.backend import by_name  # noqa: E402
from hwsim.backend.cpu import CPU  # noqa: E402
from hwsim.frameworks.torch import multiplication, tensors  # noqa: E402

SETTINGS = (
    {"device": "ascend910a", "format": "fp16"},
    {"device": "a100", "format": "bf16"},
    {"device": "h200", "scheme": "tf32x3"},
    {"device": "b200", "scheme": "bf16x9"},
    {"device": "mi300x", "format": "bf16", "backward_weight": {"format": "tf32"}},
    {"device": "h200", "format": "e4m3", "scale": "power-of-two", "gradient_format": "e5m2"},
)


class Words(np.ndarray):
    """An array of the host that is called one of a GPU's."""

    is_of_a_backend = True
    typed = property(lambda self: self.view(np.ndarray))


def of_model(device, settings, dtype):
    """Output and gradients of a few kinds of products."""
    torch.manual_seed(0)
    layer, filters = torch.nn.Linear(48, 32), torch.nn.Conv1d(4, 8, 3)
    x, c = torch.randn(2, 24, 48), torch.randn(24, 32)
    layer, filters = layer.to(device, dtype), filters.to(device, dtype)
    x, c = x.to(device, dtype).requires_grad_(), c.to(device, dtype)
    with hwsim.torch.emulate(**settings):
        y = layer(x)
        y = y + torch.addmm(c, x[0], layer.weight.T, beta=0.5) + torch.bmm(x, x.transpose(1, 2))[..., :1]
        z = filters(y.reshape(-1, 4, 48))
        (z.float().square().sum() + y.float().sum()).backward()
    return [z, *(p.grad for p in (x, layer.weight, layer.bias, filters.weight))]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(map(str, settings.values())))
def test_bits_of_tensors_of_a_gpu(settings, dtype, monkeypatch):
    pytest.importorskip("cupy")
    stays = []
    gpu_array_of = multiplication.gpu_array_of
    monkeypatch.setattr(multiplication, "gpu_array_of", lambda x: stays.append(x.device.type) or gpu_array_of(x))
    results = [of_model("cuda", {**settings, "engine": engine}, dtype) for engine in ("cpu", "cuda")]
    for want, got in zip(*results, strict=True):
        assert got.is_cuda and torch.equal(*(side.contiguous().view(torch.uint8) for side in (got, want)))
    assert set(stays) == {"cuda"}


def test_tensors_cross_by_dlpack_or_their_words(monkeypatch):
    moved = []

    def from_host(x):
        moved.append(x.dtype)
        return np.from_dlpack(x).view(Words)

    backend = type("Backend", (), {"from_host": staticmethod(from_host)})
    monkeypatch.setattr(tensors, "backend", lambda name, *, on_gpu: backend)
    for dtype, word in (
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.int16),
        (torch.float8_e4m3fn, torch.uint8),
    ):
        x = torch.randn(3, 4).to(dtype)
        array = tensors.gpu_array_of(x)
        assert moved.pop() == word and array.dtype == tensors.FORMATS[dtype][1]
        words = array.view(np.ndarray) if dtype == torch.float32 else array.view(f"u{array.itemsize}")
        back = tensors.tensor_of(
            type("Gpu", (), {"is_of_a_backend": True, "dtype": array.dtype, "typed": words}), dtype, x.device
        )
        assert back.dtype == dtype and torch.equal(back.view(torch.uint8), x.view(torch.uint8))


def test_tensors_of_the_host_take_the_cpus_way(monkeypatch):
    monkeypatch.setattr(by_name, "_cuda", lambda: CPU)
    monkeypatch.setattr(multiplication, "gpu_array_of", None)
    got = of_model("cpu", {"device": "a100", "format": "bf16", "engine": "cuda"}, torch.float32)
    want = of_model("cpu", {"device": "a100", "format": "bf16"}, torch.float32)
    assert all(map(torch.equal, got, want))
