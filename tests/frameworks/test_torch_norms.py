"""PyTorch's norms, softmax, sums and functions under `hwsim.torch.emulate`: which have the bits of a GPU's kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812

import hwsim.torch  # noqa: E402
from hwsim.arithmetic.cuda_math import CudaMath  # noqa: E402
from hwsim.arithmetic.layer_norm import NormKernel, layer_norm  # noqa: E402
from hwsim.arithmetic.row_sums import SumKernel, row_sums  # noqa: E402
from hwsim.devices.special_functions import nvidia_tables  # noqa: E402
from hwsim.frameworks.torch.element_functions import FUNCTIONS, OTHER_FORMS, POWERS  # noqa: E402
from hwsim.frameworks.torch.softmax import SoftmaxKernels, softmax  # noqa: E402
from hwsim.libraries.pytorch.routes import evidence_of_kernel, pytorch  # noqa: E402

Single = np.float32
CAPTURES = np.load(Path(__file__).parents[1] / "golden" / "h200_pytorch" / "operators.npz").files
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
    assert "as PyTorch's kernel computes it, evidence of the bits assumption: layer_norm, 2 calls" in run.report()


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


FORMULAS = {
    "tanh": (torch.tanh, lambda x: hwsim.mufu("tanhf", x)),
    "exp": (torch.exp, lambda x: hwsim.mufu("expf", x)),
    "cos": (torch.cos, lambda x: hwsim.mufu("cosf", x)),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + hwsim.mufu("expf", -x))),
    "silu": (F.silu, lambda x: x / (1 + hwsim.mufu("expf", -x))),
    "gelu": (F.gelu, lambda x: x * Single(0.5) * (1 + hwsim.mufu("erff", x * Single(0.5**0.5)))),
    "gelu_tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: Single(0.5) * x * (1 + hwsim.mufu("tanhf", inner(x))),
    ),
}


def inner(x):
    """sqrt(2 / pi) (x + 0.044715 x^3), of which a sum and a product are rounded once."""
    cube, factor = (x * x * x).astype(np.float64), np.float64(Single(0.044715))
    return Single((2 / np.pi) ** 0.5) * (factor * cube + x).astype(np.float32)  # the product has 48 digits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FORMULAS)
def test_functions_of_elements_are_cuda_s(name, dtype):
    function, formula = FORMULAS[name]
    x = (2 * drawn(6, 500, 40)).to(dtype).T  # not stored row by row
    with np.errstate(all="ignore"):
        want = torch.from_numpy(formula(x.float().contiguous().numpy())).to(dtype)
    with hwsim.torch.emulate(**SETTINGS) as run:
        got = function(x)
        empty = function(x[:0])
    assert torch.equal(got, want) and got.stride() == x.stride() and empty.shape == (0, 500)
    if dtype == torch.float32:
        assert not torch.equal(got, function(x))
    assert run.record.own_kernels == {name: 1} and run.to_dict()["own_kernels"][name]["calls"] == 1
    with hwsim.torch.emulate(device="h100"):
        assert torch.equal(function(x), function(x.clone()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_and_means_of_rows_have_the_kernel_s_order(dtype):
    x = drawn(7, 3, 20, 1001).to(dtype)
    kernel = SumKernel(512, 32, 4, 4 if dtype == torch.float32 else 8, 128, 16, 256)
    rows = row_sums(x.float().numpy().reshape(60, 1001), kernel)
    means = torch.from_numpy(rows * (Single(60) / Single(60060))).reshape(3, 20, 1)
    sums = torch.from_numpy(rows).reshape(3, 20)
    with hwsim.torch.emulate(**SETTINGS) as run:
        assert torch.equal(x.sum(-1), sums.to(dtype)) and torch.equal(x.mean(2, keepdim=True), means.to(dtype))
        wide = x.mean(-1, dtype=torch.float32)
        whole = x.sum()
        others = x.sum(0), x.mT.sum(-1), x.double().mean(-1), x.long().sum(-1)
    assert torch.equal(wide, means[..., 0]) and not torch.equal(wide, x.mean(-1, dtype=torch.float32))
    assert whole.shape == () and whole == torch.from_numpy(row_sums(x.float().numpy().reshape(1, -1), kernel)).to(dtype)
    assert run.record.own_kernels == {"sum": 2, "mean": 2}  # those of the last line are PyTorch's
    assert all(map(torch.equal, others, (x.sum(0), x.mT.sum(-1), x.double().mean(-1), x.long().sum(-1))))


def test_the_file_and_the_code_have_the_same_functions():
    named = [name for group in pytorch().functions.values() for name in group.names]
    assert sorted(named) == sorted({*FUNCTIONS, *(name for name, _ in POWERS.values())})
    assert set(OTHER_FORMS) < set(FUNCTIONS)
    for name in named:  # each that counts as compared has results of the chip
        captures = f"fp32/{'pow3' if name == 'pow_3' else name}"
        assert (evidence_of_kernel(name, "h200") == "silicon") == (captures in CAPTURES), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_powers_are_by_products_roots_and_quotients(dtype):
    """Exponents that PyTorch's kernel knows: each product rounded; others, and 2 and -1, are a CPU's."""
    codes = torch.arange(1 << 16).to(torch.int16)
    x = (2 * drawn(8, 300, 40)) if dtype == torch.float32 else codes.view(dtype)
    x = torch.cat([x.flatten(), torch.tensor([0.0, -0.0, 1e-30, torch.inf, -torch.inf, torch.nan]).to(dtype)])
    powers = (3, -2, 0.5, -0.5, 2, -1, 1.5, 4, 3.0)
    with hwsim.torch.emulate(**SETTINGS) as run:
        got = [torch.pow(x, exponent) for exponent in powers]
        roots = x.sqrt(), x.rsqrt()
    plain = [torch.pow(x, exponent) for exponent in powers]

    def same(left, right):
        return torch.equal(left.nan_to_num(7), right.nan_to_num(7)) and torch.equal(left.isnan(), right.isnan())

    products = (x.float() * x.float()).to(dtype)
    assert same(got[0], (products.float() * x.float()).to(dtype)) and same(got[0], got[8])
    assert same(got[1], (1 / products.double()).to(dtype)) and same(got[2], roots[0]) and same(got[3], roots[1])
    assert all(same(got[i], plain[i]) for i in (4, 5, 6, 7)) and same(got[4], products)
    assert same(got[5], (1 / x.double()).to(dtype))
    assert run.record.own_kernels == {
        "pow_3": 2,
        "pow_minus_2": 1,
        "pow_half": 1,
        "pow_minus_half": 1,
        "sqrt": 1,
        "rsqrt": 1,
    }


def test_the_evidence_of_a_kernel_is_the_file_s():
    for name in ("pow_half", "pow_minus_half", "pow_minus_2"):
        assert evidence_of_kernel(name, "h200") == "assumption"
    for name in ("softmax", "layer_norm", "mean", "sum", "rsqrt", "tanh", "gelu_tanh"):
        assert evidence_of_kernel(name, "v100") == "assumption"
        whole = name not in ("softmax", "layer_norm")  # rows of some widths alone were compared
        assert evidence_of_kernel(name, "h200") == ("silicon" if whole else "assumption")
