"""torch._scaled_mm and torch.nn.functional.scaled_mm with scales of MX and NVFP4, as PyTorch lays them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.operands import scale_layouts  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this PyTorch has no packed FP4")
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((130, 256)).astype(np.float32), RNG.standard_normal((96, 256)).astype(np.float32)


def elements(quantized: Any) -> Any:
    if quantized.element == "e4m3":
        return torch.from_numpy(quantized.codes.copy()).view(torch.float8_e4m3fn)
    low, high = quantized.codes[:, ::2], quantized.codes[:, 1::2]
    return torch.from_numpy((low | high << 4).astype(np.uint8)).view(torch.float4_e2m1fn_x2)


def scales(quantized: Any) -> Any:
    dtype = {"ue8m0": torch.float8_e8m0fnu, "ue4m3": torch.float8_e4m3fn}[quantized.scale_format]
    return torch.from_numpy(scale_layouts.swizzled(quantized.scales)).view(dtype)


def expected(a: Any, b: Any, **options: Any) -> Any:
    product = hwsim.matmul(
        a.elements, b.elements.T, device="b200", scale_a=a.scales, scale_b=b.scales, output="bf16", **options
    )
    return product.view(np.int16)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("library", [{}, {"library": "pytorch"}], ids=str)
def test_swizzled_scales(name: str, library: dict[str, str]) -> None:
    a, b = hwsim.quantize(X, name), hwsim.quantize(W, name)
    with hwsim.torch.emulate(device="b200", **library) as run:
        y = torch._scaled_mm(elements(a), elements(b).t(), scales(a), scales(b), out_dtype=torch.bfloat16)
    assert np.array_equal(y.view(torch.int16).numpy(), expected(a, b))
    rows, columns = (np.linspace(0, size - 1, count).astype(int) for size, count in ((130, 8), (96, 64)))
    left, right = (hwsim.dequantize(replace(x, factor=None)).astype(np.float32) for x in (a, b))
    exact = left[rows].astype(np.float64) @ right[columns].astype(np.float64).T
    error = np.linalg.norm(y.double().numpy()[np.ix_(rows, columns)] - exact) / np.linalg.norm(exact)
    assert run.record.total().error == pytest.approx(error, rel=1e-6)


def test_nvfp4_with_factors() -> None:
    functional = torch.nn.functional
    if not hasattr(functional, "scaled_mm"):
        pytest.skip("torch.nn.functional.scaled_mm is of PyTorch 2.10 and later")
    kinds = [functional.ScalingType.BlockWise1x16, functional.ScalingType.TensorWise]
    swizzles = [functional.SwizzleType.SWIZZLE_32_4_4, functional.SwizzleType.NO_SWIZZLE]
    a, b = hwsim.quantize(X, "nvfp4"), hwsim.quantize(W, "nvfp4")
    with hwsim.torch.emulate(device="b200"):
        y = functional.scaled_mm(
            *(elements(a), elements(b).t()),
            scale_a=[scales(a), torch.tensor(a.factor)],
            scale_recipe_a=kinds,
            swizzle_a=swizzles,
            scale_b=[scales(b), torch.tensor(b.factor)],
            scale_recipe_b=kinds,
            swizzle_b=swizzles,
            output_dtype=torch.bfloat16,
        )
    assert np.array_equal(y.view(torch.int16).numpy(), expected(a, b, tensor_scales=(a.factor, b.factor)))


def test_what_pytorch_refuses_of_scaled_products_raises_its_own_error_and_chips_without_the_format_are_refused():
    a, b = torch.ones(64, 128).to(torch.float8_e4m3fn), torch.ones(96, 128).to(torch.float8_e4m3fn).t()
    one, rows = torch.tensor(1.0), (torch.ones(64, 1), torch.ones(1, 96))
    refused = [
        ((a, b, rows[0], one), "scale_b.dim"),
        ((a, b, torch.ones(128, 1), rows[1]), r"Invalid scaling configuration.*scale_a.*\(64, 1\)"),
        ((a, b.contiguous(), one, one), "mat2 must be col_major"),
        ((a, b, torch.ones(64), torch.ones(96)), "must be 2D"),
    ]
    for library in (None, "pytorch"):
        with hwsim.torch.emulate(device="h100", library=library):
            for operands, words in refused:
                with pytest.raises(RuntimeError, match=words):
                    torch._scaled_mm(*operands, out_dtype=torch.bfloat16)
            assert torch.equal(torch._scaled_mm(a, b, *rows, out_dtype=torch.float32), torch.full((64, 96), 128.0))
    with (
        hwsim.torch.emulate(device="a100"),
        pytest.raises(hwsim.UnsupportedError, match="a100: it has no 8-bit floats"),
    ):
        torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
def test_tensors_of_torchao(name: str) -> None:
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    nv = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    dtype = {"mxfp8": torch.float8_e4m3fn, "mxfp4": torch.float4_e2m1fn_x2}.get(name)
    x, w = (torch.from_numpy(y[:64]).bfloat16() for y in (X, W))
    options: dict[str, Any] = {} if dtype is None else {"kernel_preference": mx.KernelPreference.AUTO}
    make = nv.NVFP4Tensor.to_nvfp4 if dtype is None else lambda y: mx.MXTensor.to_mx(y, dtype, 32, **options)
    two_level: dict[str, Any] = {"two_level": False} if dtype is None else {}
    a, b = (hwsim.quantize(y.float().numpy(), name, rule="torchao", **two_level) for y in (x, w))
    with hwsim.torch.emulate(device="b200") as run:
        y = torch.mm(make(x), make(w).t())
    assert np.array_equal(y.view(torch.int16).numpy(), expected(a, b))
    assert not run.not_caught


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_a_layer_that_torchao_trains_in_float8(recipe: str) -> None:
    float8 = pytest.importorskip("torchao.float8")
    layer = torch.nn.Sequential(torch.nn.Linear(256, 96, bias=False, dtype=torch.bfloat16))
    x, w = torch.from_numpy(X[:64]).bfloat16(), torch.from_numpy(W).bfloat16()
    layer[0].weight.data = w
    config = float8.Float8LinearConfig.from_recipe_name(recipe)
    model = float8.convert_to_float8_training(layer, config=config)
    is_row = recipe == "rowwise"
    scheme = "fp8-row" if is_row else "fp8-tensor"
    a, b = (hwsim.quantize(y.float().numpy(), scheme, rule="torchao", power_of_two=is_row) for y in (x, w))
    with hwsim.torch.emulate(device="h100", library="pytorch") as run:
        y = model(x)
    chosen: dict[str, Any] = {"scale_a": a.scales, "scale_b": b.scales, "output": "bf16"}
    want = hwsim.matmul(a.elements, b.elements.T, device="h100", **chosen)
    assert np.array_equal(y.detach().view(torch.int16).numpy(), want.view(np.int16))
    assert not run.not_caught
