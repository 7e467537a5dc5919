"""Schemes that quantise operands, inside a model: each product, and each matrix of a stack, by itself."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402

SCHEMES = [("b200", "mxfp8"), ("b200", "mxfp4"), ("b200", "nvfp4"), ("h100", "fp8-row"), ("h100", "fp8-block")]


def codes(values):
    return values.detach().contiguous().view(torch.int32)


def bits(values):
    return torch.from_numpy(values).view(torch.int32)


@pytest.mark.parametrize(("device", "scheme"), SCHEMES)
def test_each_product_of_a_shape_is_quantised(device, scheme):
    torch.manual_seed(0)
    layer, first = torch.nn.Linear(64, 48, bias=False), torch.randn(8, 64)
    inputs = [first, 3 * first + 1, first * torch.logspace(-3, 3, 64)]
    with hwsim.torch.emulate(device=device, scheme=scheme), torch.no_grad():
        outputs = [layer(x) for x in inputs]
    for x, output in zip(inputs, outputs, strict=True):
        product = hwsim.matmul(x.numpy(), layer.weight.detach().numpy().T, device=device, scheme=scheme)
        assert torch.equal(codes(output), bits(product))


def test_options_of_a_scheme_hold_for_each_product():
    torch.manual_seed(0)
    a, b = torch.randn(8, 64), torch.randn(64, 16)
    options = {"device": "b200", "scheme": "mxfp8", "element_format": "e5m2", "rule": "floor"}
    with hwsim.torch.emulate(**options):
        torch.mm(a + 1, b)
        output = torch.mm(a, b)
    assert torch.equal(codes(output), bits(hwsim.matmul(a.numpy(), b.numpy(), **options)))


@pytest.mark.parametrize(("device", "scheme"), SCHEMES)
def test_a_stack_is_quantised_matrix_by_matrix(device, scheme):
    torch.manual_seed(0)
    a, b = torch.randn(2, 3, 40, 64), torch.randn(2, 3, 64, 24) * torch.logspace(-3, 3, 6).reshape(2, 3, 1, 1)
    with hwsim.torch.emulate(device=device, scheme=scheme, timing=True) as run:
        stack = a @ b
    with hwsim.torch.emulate(device=device, scheme=scheme, timing=True) as single:
        for i in range(2):
            for j in range(3):
                assert torch.equal(codes(a[i, j] @ b[i, j]), codes(stack[i, j]))
    assert run.record.total().cycles == single.record.total().cycles


def test_attention_forward_and_backward_under_mxfp8():
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    x = torch.randn(2, 8, 64)
    with hwsim.torch.emulate(device="b200", scheme="mxfp8") as run:
        output, _ = attention(x, x, x, need_weights=False)
        output.sum().backward()
    plain, _ = attention(x, x, x, need_weights=False)
    assert not run.not_caught
    assert 0 < float((output - plain).detach().norm() / plain.detach().norm()) < 0.1
