"""PyTorch's layer norm and softmax under `hwsim.torch.emulate`: which calls have the bits of a GPU's kernel."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812

import hwsim.torch  # noqa: E402
from hwsim.arithmetic.cuda_math import CudaMath  # noqa: E402
from hwsim.arithmetic.layer_norm import NormKernel, layer_norm  # noqa: E402
from hwsim.devices.special_functions import nvidia_tables  # noqa: E402
from hwsim.frameworks.torch.softmax import SoftmaxKernels, softmax  # noqa: E402

SETTINGS = {"device": "h100", "library": "pytorch"}


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def of_the_kernel(x, norm):
    factors = (y.detach().float().numpy() for y in (norm.weight, norm.bias))
    out = layer_norm(x.float().numpy(), *factors, norm.eps, NormKernel(128, 32, 4), CudaMath(nvidia_tables()))
    return torch.from_numpy(out).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_norm_has_the_kernel_s_bits_and_pytorch_s_gradients(dtype):
    norm = torch.nn.LayerNorm(1000).to(dtype)
    torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(3))
    x = (3 * drawn(1, 50, 1000)).to(dtype).requires_grad_()
    plain = norm(x)
    plain.square().sum().backward()
    gradient, x.grad = x.grad, None
    with hwsim.torch.emulate(**SETTINGS) as run:
        y = norm(x)
        compiled = torch.compile(norm, backend="eager", fullgraph=True)(x)
        y.square().sum().backward()
    assert torch.equal(y, of_the_kernel(x.detach(), norm)) and torch.equal(y, compiled)
    assert not torch.equal(y, plain) if dtype == torch.float32 else y.dtype == dtype
    assert torch.allclose(x.grad, gradient, rtol=0.05, atol=0.05) and not run.not_caught
    assert "in the order of PyTorch's kernel: layer_norm, 2 calls; the evidence above is" in run.report()


def test_other_layer_norms_are_pytorch_s():
    x, odd = 3 * drawn(1, 50, 1000), 3 * drawn(2, 50, 1002)
    for settings, y in (({"device": "h100"}, x), ({"device": "mi300x", "library": "pytorch"}, x), (SETTINGS, odd)):
        want = F.layer_norm(y, y.shape[1:])
        with hwsim.torch.emulate(**settings) as run:
            assert torch.equal(F.layer_norm(y, y.shape[1:]), want)
        assert "PyTorch's kernel" not in run.report()
    with hwsim.torch.emulate(**SETTINGS, modules={"*": "plain"}) as run:
        assert torch.equal(torch.nn.Sequential(torch.nn.LayerNorm(1000))(x), F.layer_norm(x, (1000,)))
        assert not torch.equal(F.layer_norm(x, (1000,)), torch.zeros(())) and not run.not_caught


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_softmax_has_the_kernel_s_bits(dtype):
    x = (4 * drawn(1, 30, 300)).to(dtype)
    want = softmax(x.float(), SoftmaxKernels(32, 2048, 1024, 9, 4, 49152)).to(dtype)
    plain = torch.softmax(x, -1)
    with hwsim.torch.emulate(**SETTINGS):
        got, other = torch.softmax(x, -1), torch.softmax(x, 0)
        assert torch.softmax(x[0, 0], 0) == 1  # without a dimension
    assert torch.equal(got, want) and torch.equal(other, torch.softmax(x, 0))
    assert torch.equal(got, plain) == (dtype == torch.float16)  # which hides it


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_reciprocal_root_is_cuda_s(dtype):
    x = drawn(1, 40, 50).square().to(dtype)
    x[0, :3] = torch.tensor([0, torch.inf, -1])
    want = torch.from_numpy(hwsim.mufu("rsqrtf", x.float().numpy())).to(dtype)
    with hwsim.torch.emulate(**SETTINGS):
        got = torch.rsqrt(x.T).T
        assert torch.rsqrt(x[1, 1]).shape == ()
    assert torch.equal(got.nan_to_num(-5), want.nan_to_num(-5))
    assert not torch.equal(got.nan_to_num(-5), torch.rsqrt(x).nan_to_num(-5))
    with hwsim.torch.emulate(device="mi300x", library="pytorch"):
        other = torch.rsqrt(x[1:])
    assert torch.equal(other, torch.rsqrt(x[1:]))
