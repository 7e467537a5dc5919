"""hwsim.torch with library="cublas": the network that cuBLAS would run, layer by layer."""

import copy
import re
from ast import literal_eval
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.frameworks.torch.tensors import array_of  # noqa: E402

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}


def drawn(seed, *shape, dtype):
    rng = np.random.default_rng(seed)
    values = rng.integers(1 << 23, 1 << 24, shape) * 2.0 ** rng.integers(-30, -20, shape) * rng.choice([-1, 1], shape)
    return torch.from_numpy(values).to(dtype)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_a_relu_network_is_the_library_s_calls(format, batch):
    dtype, sizes = FORMATS[format], (100, 256, 72)
    layers = [torch.nn.Linear(k, n, dtype=dtype) for k, n in pairwise(sizes)]
    for seed, layer in enumerate(layers):
        with torch.no_grad():
            layer.weight.copy_(drawn(seed, *layer.weight.shape, dtype=dtype) / 16)
            layer.bias.copy_(drawn(seed + 9, len(layer.bias), dtype=dtype))
    x = drawn(5, batch, sizes[0], dtype=dtype)
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    given = {"device": "h200", "library": "cublas", "format": format, "reductions": "compute"}
    with hwsim.torch.emulate(**given) as run, torch.no_grad():
        got = model(x)
    assert run.record.total().calls == 2
    own = array_of(x)
    for index, layer in enumerate(layers):
        w, bias = array_of(layer.weight), array_of(layer.bias)
        more = {"output": "fp32" if format == "tf32" else format, "b_layout": "columns", "timing": False}
        own = hwsim.run(own, w.T, bias=bias, **given, **more).c
        own = np.maximum(own, np.zeros((), own.dtype)) if index == 0 else own
    codes = f"u{own.dtype.itemsize}"
    assert np.array_equal(array_of(got).view(codes), own.view(codes))


def test_gradients_are_calls_with_the_layouts_of_pytorch():
    x, w = (drawn(i, *shape, dtype=torch.bfloat16) for i, shape in enumerate(((64, 128), (96, 128))))
    x.requires_grad_()
    w.requires_grad_()
    given = {"device": "h200", "library": "cublas"}
    with hwsim.torch.emulate(**given, format="bf16"):
        y = torch.nn.functional.linear(x, w)
        grad = drawn(7, *y.shape, dtype=torch.bfloat16)
        of_x, of_w = torch.autograd.grad(y, (x, w), grad)
    given |= {"format": "bf16", "output": "bf16"}
    dy, a, b = array_of(grad), array_of(x), array_of(w)
    assert np.array_equal(array_of(of_x).view("u2"), hwsim.matmul(dy, b, **given).view("u2"))
    assert np.array_equal(array_of(of_w).view("u2"), hwsim.matmul(dy.T, a, a_layout="columns", **given).view("u2"))


def test_a_library_without_a_product_says_which_argument_to_add() -> None:
    """The argument as it is printed, in a model of two blocks: it holds for both."""
    attention, up = torch.nn.MultiheadAttention(16, 2, batch_first=True), torch.nn.Linear(16, 16)
    block = torch.nn.ModuleDict({"att": attention, "up": up})

    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList([block, copy.deepcopy(block)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for each in self.blocks:
                x = each["up"](each["att"](x, x, x, need_weights=False)[0])
            return x

    model, x = Blocks().bfloat16(), torch.randn(1, 5, 16).bfloat16()
    settings = {"device": "h100", "library": "batch-invariant"}
    with torch.no_grad(), pytest.raises(hwsim.UnsupportedError) as raised, hwsim.torch.emulate(**settings):
        model(x)
    given = [literal_eval(text) for text in re.findall(r"modules=(\{.*?\}\}|\{.*?\})(?= for)", str(raised.value))]
    assert given == [
        {"blocks.*.att": {"device": "h100", "library": "pytorch"}},
        {"blocks.*.att": {"device": "h100"}},
        {"blocks.*.att": "plain"},
    ]
    for modules in given:
        with torch.no_grad(), hwsim.torch.emulate(**settings, modules=modules) as run:
            model(x)
        assert {"blocks.0.up", "blocks.1.up"} <= {layer for layer, _, _ in run.record.layers}
