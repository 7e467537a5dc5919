"""hwsim.torch with library="cublas": the network that cuBLAS would run, layer by layer."""

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
