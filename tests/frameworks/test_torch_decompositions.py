"""hwsim.torch cuts a function into the products that PyTorch itself calls, and leaves alone what is no product."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_cases import H200, drawn, same  # noqa: E402

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402

F = torch.nn.functional
X, W, BIAS = drawn(1, 4, 5, 6), drawn(2, 7, 6), drawn(3, 7)
GRADIENT = drawn(2, 7, 6).requires_grad_()
PRODUCTS = ("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.addmm.default")

CALLS = {
    "linear of a stack": lambda: F.linear(X, W, BIAS),
    "linear of a transposed stack": lambda: F.linear(X.transpose(0, 1), W),
    "linear of a transposed stack with a bias": lambda: F.linear(X.transpose(0, 1), W, BIAS),
    "linear of a transposed stack whose weight has a gradient": lambda: F.linear(X.transpose(0, 1), GRADIENT),
    "linear of a matrix by columns": lambda: F.linear(X[0].t().contiguous().t(), W, BIAS),
    "stack by matrix": lambda: X @ W.t(),
    "transposed stack by matrix": lambda: X.transpose(0, 1) @ W.t(),
    "stack by vector": lambda: X @ W[0],
    "matrix by stack": lambda: W[:3, :5] @ X,
    "matrix with a gradient by stack": lambda: GRADIENT[:3, :5] @ X,
    "vector by stack": lambda: W[0, :5] @ X,
    "vector by transposed stack": lambda: W[0, :5] @ X.mT.contiguous().mT,
    "four dimensions": lambda: drawn(5, 2, 4, 5, 6).transpose(1, 2) @ W.t(),
}


class _Products(TorchDispatchMode):
    """The sizes (batch, m, n, k) of the products that PyTorch calls."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if str(func) in PRODUCTS:
            a, b = [x for x in args if isinstance(x, torch.Tensor)][-2:]
            self.sizes.append(_sizes(a, b))
        return func(*args, **(kwargs or {}))


def _sizes(a, b):
    b = b if len(b.shape) > 1 else b[:, None]
    return (int(np.prod(a.shape[:-2])), a.shape[-2], b.shape[-1], a.shape[-1])


@pytest.mark.parametrize("name", CALLS)
def test_products_are_those_that_pytorch_calls(name):
    with _Products() as seen:
        want = CALLS[name]()
    with hwsim.torch.emulate(**H200) as run:
        taken = []
        run.record.observer = lambda place, a, b, out, gemm: taken.append(_sizes(a, b))
        got = CALLS[name]()
    assert taken == seen.sizes and len(taken) == 1
    assert got.shape == want.shape and torch.allclose(got, want, rtol=0.1, atol=0.1)


EINSUMS = ("i,j->ij", "ij,ij->ij", "ij,j->ij", "bi,bj->bij")


@pytest.mark.parametrize("equation", EINSUMS)
def test_an_einsum_that_sums_over_nothing_is_no_product(equation):
    size = dict(zip("bij", (3, 4, 5), strict=True))
    x, y = (1000 + drawn(i, *(size[c] for c in term)) for i, term in enumerate(equation.split("->")[0].split(",")))
    with hwsim.torch.emulate(device="h200", format="bf16") as run:
        got = torch.einsum(equation, x, y)
    assert run.record.total().calls == 0 and same(got, torch.einsum(equation, x, y))
    with hwsim.emulate(device="h200", format="bf16") as engine:
        array = np.einsum(equation, x.numpy(), y.numpy())
    assert engine.calls == 0 and np.array_equal(array, np.einsum(equation, x.numpy(), y.numpy()))


class _Quantised(torch.Tensor):
    """An int8 payload with a scale: a wrapper subclass as libraries of quantised tensors make them."""

    @staticmethod
    def __new__(cls, payload, scale):
        return torch.Tensor._make_wrapper_subclass(cls, payload.shape, dtype=scale.dtype)

    def __init__(self, payload, scale):
        self.payload, self.scale = payload, scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            x, weight = args[:2]
            return F.linear(x, weight.payload.to(weight.scale.dtype) * weight.scale, *args[2:])
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(str(func))


class _Distributed(_Quantised):
    """A wrapper subclass that knows operators alone, as DTensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.default:
            return func(args[0], args[1].payload.float())
        raise NotImplementedError(str(func))


def test_a_tensor_of_a_subclass_computes_its_own_functions():
    weight = _Quantised(torch.randint(-127, 127, (16, 6), dtype=torch.int8), torch.tensor(0.01))
    with hwsim.torch.emulate(**H200) as run:
        got = F.linear(X, weight)
        wide = F.linear(X, weight.payload.float() * weight.scale)
    assert same(got, wide) and run.record.total().calls == 2 and not run.not_caught


def test_a_tensor_of_a_subclass_computes_its_own_operators():
    payload = torch.randint(-127, 127, (6, 16), dtype=torch.int8)
    weight = _Distributed(payload, torch.tensor(0.01))
    with hwsim.torch.emulate(**H200) as run:
        got, wide = torch.mm(X[0], weight), torch.mm(X[0], payload.float())
    assert same(got, wide) and run.record.total().calls == 2


def test_a_multiplied_tensor_can_still_be_resized():
    x, y = torch.randn(4, 8), torch.randn(8, 4, dtype=torch.bfloat16)
    with hwsim.torch.emulate(device="h200", format="bf16"):
        x @ y.float()
        x.bfloat16() @ y
    assert x.resize_(8, 8).shape == (8, 8) and y.resize_(16, 4).shape == (16, 4)


WHOLE = {
    "MultiheadAttention": (
        lambda: torch.nn.MultiheadAttention(32, 4, batch_first=True),
        lambda layer, x: layer(x, x, x, need_weights=False)[0],
    ),
    "TransformerEncoderLayer": (
        lambda: torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        lambda layer, x: layer(x),
    ),
    "Transformer": (lambda: torch.nn.Transformer(32, 4, 1, 1, 64, batch_first=True), lambda layer, x: layer(x, x)),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_attention_inside_a_layer_is_caught(name, mode):
    torch.manual_seed(0)
    make, call = WHOLE[name]
    layer, x = make(), drawn(6, 2, 9, 32)
    layer.train(mode == "train")
    with hwsim.torch.emulate(device="h200", format="bf16") as run:
        result = call(layer, x)
        if mode == "train":
            result.sum().backward()
    assert not run.not_caught and run.record.total().calls >= 4


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_encoder_in_eval_mode_equals_the_eager_one():
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).eval()
    x = drawn(7, 2, 9, 64)
    before = torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hwsim.torch.emulate(device="h200", format="bf16") as eager:
            want = model(x)
        compiled = torch.compile(model, backend="aot_eager")
        with hwsim.torch.emulate(device="h200", format="bf16") as graph:
            got = compiled(x)
    assert same(got, want) and not eager.not_caught and not graph.not_caught
    assert eager.record.total().calls == graph.record.total().calls == 12
    assert torch.backends.mha.get_fastpath_enabled() == before
