"""hwsim.torch called as PyTorch's users call it: keywords, old and new signatures, odd arguments, containers of
modules, graphs that are compiled once, higher-order operators, wrapped and batched gradients.
"""

import copy
import functools
import io
import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from torch_cases import FP32, H200, A, B, C, drawn, network, same  # noqa: E402

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.frameworks.torch.tensors import array_of  # noqa: E402

F = torch.nn.functional
X, W = drawn(4, 1, 3, 8, 8), drawn(5, 4, 3, 3, 3)
KEYWORDS = {
    "linear": (lambda: F.linear(input=A, weight=B.t(), bias=C), lambda: F.linear(A, B.t(), C)),
    "mm": (lambda: torch.mm(input=A, mat2=B), lambda: torch.mm(A, B)),
    "Tensor.mm": (lambda: A.mm(mat2=B), lambda: A.mm(B)),
    "matmul": (lambda: torch.matmul(input=A, other=B), lambda: A @ B),
    "Tensor.matmul": (lambda: A.matmul(other=B), lambda: A @ B),
    "addmm": (lambda: torch.addmm(input=C, mat1=A, mat2=B, beta=2), lambda: torch.addmm(C, A, B, beta=2)),
    "bmm": (lambda: torch.bmm(input=A[None], mat2=B[None]), lambda: torch.bmm(A[None], B[None])),
    "baddbmm": (
        lambda: torch.baddbmm(input=C, batch1=A[None], batch2=B[None]),
        lambda: torch.baddbmm(C, A[None], B[None]),
    ),
    "mv": (lambda: torch.mv(input=A, vec=B[:, 0]), lambda: torch.mv(A, B[:, 0])),
    "dot": (lambda: torch.dot(input=A[0], tensor=B[:, 0]), lambda: torch.dot(A[0], B[:, 0])),
    "inner": (lambda: torch.inner(input=A, other=B.t()), lambda: torch.inner(A, B.t())),
    "tensordot": (lambda: torch.tensordot(a=A, b=B, dims=1), lambda: torch.tensordot(A, B, 1)),
    "conv2d": (lambda: F.conv2d(input=X, weight=W, stride=2), lambda: F.conv2d(X, W, None, 2)),
    "transposed": (
        lambda: F.conv_transpose2d(input=X, weight=W.transpose(0, 1)),
        lambda: F.conv_transpose2d(X, W.transpose(0, 1)),
    ),
    "attention": (
        lambda: F.scaled_dot_product_attention(query=A[None], key=A[None], value=A[None]),
        lambda: F.scaled_dot_product_attention(A[None], A[None], A[None]),
    ),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_operands_given_by_keywords(name):
    by_name, by_place = KEYWORDS[name]
    with hwsim.torch.emulate(**H200) as run:
        got, want = by_name(), by_place()
    assert same(got, want) and run.record.total().calls >= 2 and not run.not_caught
    assert not same(got, by_place())  # PyTorch's own


def test_sums_that_stay_in_fp32():
    """PyTorch has `out_dtype` for GPUs."""
    a, b, c = A.bfloat16(), B.bfloat16(), C
    with hwsim.torch.emulate(**H200):
        results = torch.mm(a, b, out_dtype=torch.float32), torch.bmm(a[None], b[None], torch.float32)[0]
        added = torch.addmm(c, a, b, out_dtype=torch.float32)
    want = hwsim.matmul(array_of(a), array_of(b), **H200)
    assert all(np.array_equal(x.numpy().view("u4"), want.view("u4")) for x in results)
    want = hwsim.matmul(array_of(a), array_of(b), bias=c.numpy(), **H200)
    assert np.array_equal(added.numpy().view("u4"), want.view("u4"))


WRONG = {
    "dims below 0": lambda: torch.tensordot(A, B, -1),
    "too many dims": lambda: torch.tensordot(A, B, 3),
    "no such dimension": lambda: torch.tensordot(A, B, ([3], [0])),
    "a dimension twice": lambda: torch.tensordot(A, A, ([0, 0], [0, 0])),
    "three strides": lambda: F.conv2d(X, W, stride=(1, 1, 1)),
    "three paddings": lambda: F.conv2d(X, W, padding=(1, 1, 1)),
    "heads": lambda: F.scaled_dot_product_attention(*(drawn(1, 1, n, 4, 8) for n in (3, 2, 2)), enable_gqa=True),
    "complex alpha": lambda: torch.addmm(C, A, B, alpha=1j),
    "an operand twice": lambda: F.linear(A, B.t(), input=A),
    "no operand": lambda: torch.mm(A),
    "no such argument": lambda: torch.mm(A, B, mat3=B),
    "out_dtype": lambda: torch.mm(A, B, out_dtype=torch.float16),
}


@pytest.mark.parametrize("name", WRONG)
def test_pytorch_says_what_is_wrong(name):
    with pytest.raises(Exception) as plain:
        WRONG[name]()
    with pytest.raises(type(plain.value)) as got, hwsim.torch.emulate(**H200):
        WRONG[name]()
    assert str(got.value) == str(plain.value)


def test_heads_without_width_are_pytorch_s():
    empty = torch.zeros(1, 4, 0)
    with hwsim.torch.emulate(**H200):
        assert F.scaled_dot_product_attention(empty, empty, empty).shape == (1, 4, 0)


def test_old_signatures_are_caught_below():
    with warnings.catch_warnings(), hwsim.torch.emulate(**H200) as run:
        warnings.simplefilter("ignore")
        got = torch.addmm(0.5, C, 2.0, A, B)
        assert same(got, torch.addmm(C, A, B, beta=0.5, alpha=2.0))
    assert run.record.total().calls == 2


def test_a_context_in_every_step_compiles_once():
    torch._dynamo.reset()
    model = network()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = drawn(1, 4, 16)
    torch._dynamo.utils.counters.clear()
    outputs = []
    for _ in range(12):  # torch.compile gives up after 8
        with hwsim.torch.emulate(**H200) as run:
            outputs.append(compiled(x).detach())
        assert {key[0]: entry.calls for key, entry in run.record.layers.items()} == {"0": 1, "2": 1}
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    with hwsim.torch.emulate(**H200):
        assert all(same(output, model(x).detach()) for output in outputs)


def test_sizes_that_a_graph_leaves_open():
    torch._dynamo.reset()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), torch.nn.ReLU(), torch.nn.ConvTranspose2d(4, 2, 3)
    )

    def attention(q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    own = [torch.compile(x, fullgraph=True, backend="aot_eager", dynamic=True) for x in (model, attention)]
    for size in (4, 5, 7):
        x, q = drawn(size, size, 2, 5 + size, 6).requires_grad_(), drawn(size, 2, size, 8)
        with hwsim.torch.emulate(**H200):
            pairs = [(own[0](x), model(x)), (own[1](q), attention(q))]
            pairs.append(tuple(torch.autograd.grad(y.sum(), x)[0] for y in pairs[0]))
        assert all(same(one.detach(), other.detach()) for one, other in pairs)


def test_checkpoints_inside_compiled_models_are_run_eagerly():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = network(), torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.last(torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False))

    torch.manual_seed(1)
    torch._dynamo.reset()
    model, found = Model(), []
    for call in (model, torch.compile(model, backend="aot_eager")):
        model.zero_grad()
        with hwsim.torch.emulate(**H200, backward_input={"format": "tf32"}) as run:  # tells a wrong pass
            call(drawn(1, 4, 16)).square().sum().backward()
        found.append(([x.grad.clone() for x in model.parameters()], run.record.layers))
    assert all(same(one, other) for one, other in zip(found[0][0], found[1][0], strict=True))
    assert {x: y.calls for x, y in found[0][1].items()} == {x: y.calls for x, y in found[1][1].items()}
    torch._dynamo.reset()
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="checkpoints are run eagerly"), hwsim.torch.emulate(**H200):
        whole(drawn(1, 4, 16))


@pytest.mark.skipif(not hasattr(torch, "cond"), reason="torch.cond")
def test_what_higher_order_operators_multiply_is_counted():
    model, x = network(), drawn(1, 4, 16)

    def chosen(x):
        return torch.cond(x.sum() > 0, lambda x: model(x), lambda x: 2 * model(x), (x,))

    torch._dynamo.reset()
    want = chosen(x)
    with hwsim.torch.emulate(**H200) as run, torch.no_grad():
        got = chosen(x)
        torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # no products
    assert run.not_caught == {"cond": 1} and run.record.total().calls == 0
    torch.testing.assert_close(got, want)


def test_gradients_of_several_outputs_at_once():
    """autograd's `is_grads_batched` maps by other means than torch.func."""
    from torch.autograd.functional import jacobian

    def function(a):
        return (a @ B).sin()

    with hwsim.torch.emulate(**FP32):
        found = jacobian(function, A, vectorize=True), jacobian(function, A)
    assert same(*found) and found[0].abs().max() > 0


def test_a_wrapped_backward_recomputes_as_the_forward_pass(monkeypatch):
    """Other libraries put functions of their own around Tensor.backward; these have closures and keyword defaults."""
    own = torch.Tensor.backward

    @functools.wraps(own)
    def wrapped(self, *args, note="", **given):
        return own(self, *args, **given)

    gradients = []
    for function in (own, wrapped):
        monkeypatch.setattr(torch.Tensor, "backward", function)
        model, x = network(), drawn(1, 4, 16)
        with hwsim.torch.emulate(**H200, backward_input={"format": "tf32"}) as run:
            torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().sum().backward()
        gradients.append([weight.grad for weight in model.parameters()])
        assert run.record.layers["0", "linear", "forward"].calls == 2 and not run.not_caught
    assert all(same(one, other) for one, other in zip(*gradients, strict=True))


def test_functions_that_were_wrapped_before_the_import():
    text = """
import functools, torch
own = torch.Tensor.backward
@functools.wraps(own)
def wrapped(self, *args, note="", **given):
    return own(self, *args, **given)
torch.Tensor.backward = wrapped
import hwsim.torch
layer = torch.nn.Linear(3, 3)
with hwsim.torch.emulate(device="h200", format="bf16") as run:
    torch.utils.checkpoint.checkpoint(layer, torch.ones(2, 3), use_reentrant=False).sum().backward()
assert run.record.layers["", "linear", "forward"].calls == 2 and not run.not_caught
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_functions_that_differentiate_keep_closures_and_keyword_defaults():
    from hwsim.frameworks.torch.emulation import _unasked

    factor = 3

    def function(x, *, more=2):
        return factor * x + more + has_torch_function(())  # noqa: F821  asked by PyTorch's own

    assert _unasked(function)(5) == 17 and _unasked(function)(5, more=4) == 19


def test_a_subclass_of_tensors_may_have_a_backward_of_its_own():
    class Own(torch.Tensor):
        asked = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            Own.asked += func is torch.Tensor.backward
            return super().__torch_function__(func, types, args, kwargs)

    x = A.clone().requires_grad_()
    loss = (x @ B).sum().as_subclass(Own)
    with hwsim.torch.emulate(**H200):
        loss.backward()
    assert Own.asked == 1 and x.grad is not None


def test_meta_tensors_have_shapes_alone():
    with hwsim.torch.emulate(**H200) as run:
        y = network().to("meta")(torch.empty(4, 16, device="meta"))
        z = torch.nn.Conv2d(2, 3, 3, device="meta")(torch.empty(1, 2, 5, 5, device="meta"))
    assert y.shape == (4, 8) and z.shape == (1, 3, 3, 3) and run.record.total().calls == 0


@pytest.mark.parametrize("via", ["deepcopy", "save"])
def test_copies_of_swapped_models_compute_there_too(via):
    model, x = network(), drawn(1, 4, 16)
    run = hwsim.torch.swap(model, **H200)
    if via == "deepcopy":
        other = copy.deepcopy(model)
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    with torch.no_grad():
        other[0].weight.mul_(2)
    got, calls = other(x).detach(), run.record.total().calls
    assert calls == 2 and not same(got, model(x).detach())
    hwsim.torch.unswap(other)
    with hwsim.torch.emulate(**H200):
        assert same(got, other(x).detach())


def test_swapped_modules_take_pytorch_s_arguments():
    model = torch.nn.ModuleList([torch.nn.Linear(16, 8), torch.nn.ConvTranspose2d(4, 2, 3, stride=2)])
    x, image = drawn(1, 4, 16), drawn(2, 1, 4, 4, 4)
    with hwsim.torch.emulate(**H200):
        want = model[0](x), model[1](image, output_size=(10, 10))
    run = hwsim.torch.swap(model, **H200)
    got = model[0](input=x), model[1](input=image, output_size=(10, 10))
    assert all(same(one.detach(), other.detach()) for one, other in zip(got, want, strict=True))
    assert run.record.total().calls == 1 + 2 * 2  # a product for each place between strides of 2 x 2


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_products_of_recurrent_layers_are_caught_or_named(layer):
    """Which ones PyTorch fuses depends on how it was built."""
    model, x = getattr(torch.nn, layer)(8, 4, batch_first=True), drawn(1, 2, 3, 8)
    with hwsim.torch.emulate(**H200) as run:
        got, _ = model(x)
        got.sum().backward()
    stages = {stage for _, _, stage in run.record.layers}
    fused = [name for name in run.not_caught if "rnn" in name or "lstm" in name or "gru" in name]
    assert len(fused) == 2 if run.not_caught else stages >= {"forward", "backward_weight"}


def test_products_into_given_memory_are_counted_by_name():
    out = torch.empty(9, 7)
    with hwsim.torch.emulate(**H200) as run:
        torch.mm(A, B, out=out)
        torch.matmul(A, B, out=out)
        torch.addmm(C, A, B, out=out)
        out.addmm_(A, B)
        torch.bmm(A[None], B[None], out=out[None])
    names = {"mm of float32": 2, "addmm of float32": 1, "addmm_ of float32": 1, "bmm of float32": 1}
    assert run.not_caught == names and run.record.total().calls == 0


def test_workers_of_a_loader_end():
    """In a process of its own: JAX's threads of this one must not be forked."""
    text = """
import torch
import hwsim.torch
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(2, 8) @ torch.full((8, 3), float(index))
with hwsim.torch.emulate(device="h200", format="bf16") as run:
    batches = list(torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=1))
    torch.nn.Linear(3, 2)(batches[0])
assert [float(batch.sum()) for batch in batches] == [48, 240] and run.record.total().calls == 1
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=300)


def _tangent(x, w):
    return torch.func.jvp(lambda v: x @ v, (w,), (2 * w,))[1]


def _gradient(x, w):
    return torch.func.grad(lambda v: ((x @ v) ** 2).sum())(w)


def _gradient_of_mapped(x, w):
    return torch.func.grad(lambda v: torch.func.vmap(lambda row: ((row @ v) ** 2).sum())(x).sum())(w)


@pytest.mark.parametrize("derivative", [_tangent, _gradient, _gradient_of_mapped])
def test_derivatives_inside_what_is_compiled_are_run_eagerly(derivative):
    """As part of a graph the operator's tangent was zero, and its gradient an error."""
    x, w = torch.randn(5, 8), torch.randn(8, 2)
    torch._dynamo.reset()
    with hwsim.torch.emulate(device="h200", format="tf32") as eager:
        expected = derivative(x, w)
    with hwsim.torch.emulate(device="h200", format="tf32") as run:
        got = torch.compile(derivative, backend="aot_eager")(x, w)
    assert torch.equal(got, expected) and got.count_nonzero() == got.numel()
    assert run.record.total().calls == eager.record.total().calls == 2
    torch._dynamo.reset()
    with (
        hwsim.torch.emulate(device="h200", format="tf32"),
        pytest.raises(Exception, match="derivatives are run eagerly"),
    ):
        torch.compile(derivative, backend="aot_eager", fullgraph=True)(x, w)
