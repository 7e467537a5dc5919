"""hwsim.torch with what surrounds a model: autocast, torch.func, threads, nested contexts, checkpoints, exceptions."""

import contextlib
import threading
import tracemalloc
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_cases import FP32, H200, A, B, C, drawn, network, same  # noqa: E402

import hwsim.torch  # noqa: E402
from hwsim.frameworks.torch.tensors import array_of  # noqa: E402

F = torch.nn.functional
AUTOCAST = {
    "mm": lambda: A @ B,
    "addmm": lambda: torch.addmm(C, A, B),
    "bmm": lambda: torch.bmm(A[None], B[None]),
    "linear of two dtypes": lambda: F.linear(A.bfloat16(), B.t(), C),
    "convolution": lambda: F.conv1d(A[None, :, :], drawn(4, 4, 9, 3)),
    "transposed": lambda: F.conv_transpose1d(A[None, :, :], drawn(4, 9, 4, 3)),
    "attention": lambda: F.scaled_dot_product_attention(A[None], A[None], A[None]),
    "einsum": lambda: torch.einsum("ij,jk->ik", A, B),
    "tensordot": lambda: torch.tensordot(A, B, 1),
    "fp64": lambda: A.double() @ B.double(),
    "mv": lambda: torch.mv(A, B[:, 0]),
    "dot": lambda: torch.dot(A[0], A[1]),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_gives_the_dtypes_that_pytorch_gives(name):
    call = AUTOCAST[name]
    with torch.autocast("cpu", torch.bfloat16):
        plain = call()
        with hwsim.torch.emulate(device="h200") as run:
            got = call()
    assert got.dtype == plain.dtype and run.record.total().calls and not run.not_caught
    if name == "mm":
        with hwsim.torch.emulate(device="h200"):
            assert same(got, A.bfloat16() @ B.bfloat16())


TRANSFORMS = {
    "grad": lambda: torch.func.grad(lambda a: (a @ B).square().sum())(A),
    "vmap of grad": lambda: torch.vmap(torch.func.grad(lambda a: (a @ B).square().sum()))(A.expand(3, 9, 30)),
    "jacrev": lambda: torch.func.jacrev(lambda b: A[:2] @ b)(B),
    "jacfwd": lambda: torch.func.jacfwd(lambda b: A[:2] @ b)(B),
    "jvp with C": lambda: torch.func.jvp(
        lambda a, b, c: torch.addmm(c, a, b, alpha=0.5, beta=2.0), (A, B, C), (A + 1, B - 1, C)
    )[1],
    "hessian": lambda: torch.func.hessian(lambda a: (a @ B[:, :2]).pow(3).sum())(A[:2]),
}
IMAGES, WINDOWS = drawn(6, 3, 2, 4, 7, 6), drawn(7, 6, 2, 3, 3)


def convolved(x, w):
    return F.conv_transpose2d(F.conv2d(x, w, stride=2, padding=1, groups=2), w, stride=2, groups=2)


for _mapped, _dims in {"images": (0, None), "windows": (None, 0), "both": (0, 0)}.items():

    def _gradients(dims=_dims):
        x = IMAGES if dims[0] == 0 else IMAGES[0]
        w = torch.stack([WINDOWS, 2 * WINDOWS, WINDOWS - 1]) if dims[1] == 0 else WINDOWS
        per_sample = torch.func.grad(lambda x, w: convolved(x, w).square().sum(), (0, 1))
        return torch.cat([y.flatten() for y in torch.vmap(per_sample, dims)(x, w)])

    TRANSFORMS[f"convolutions, mapped: {_mapped}"] = _gradients
TRANSFORMS["convolution, jvp"] = lambda: torch.func.jvp(convolved, (IMAGES[0], WINDOWS), (IMAGES[1], WINDOWS + 1))[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda bias: F.linear(A, B.T.contiguous(), bias),
        lambda bias: torch.addmm(bias, A, B, beta=2.0),
        lambda bias: F.conv2d(drawn(8, 2, 3, 5, 5), drawn(9, B.shape[1], 3, 2, 2), bias),
    ],
)
def test_the_derivative_by_a_bias_alone_has_the_output_s_shape(call):
    """It had the bias's, and torch.func refused it."""
    bias, along = drawn(10, B.shape[1]), drawn(11, B.shape[1])
    with hwsim.torch.emulate(**FP32) as run:
        value, tangent = torch.func.jvp(call, (bias,), (along,))
    assert run.record.total().calls == 1
    plain, expected = torch.func.jvp(call, (bias,), (along,))
    assert value.shape == plain.shape and torch.equal(tangent, expected)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_functions(name):
    call = TRANSFORMS[name]
    with hwsim.torch.emulate(**FP32) as run:
        got = call()
    assert run.record.total().calls >= 2 and not run.not_caught
    plain = call()
    torch.testing.assert_close(got, plain, rtol=1e-4, atol=1e-4 * float(plain.abs().max()))


def test_forward_mode_of_a_plain_product():
    with hwsim.torch.emulate(**FP32), torch.autograd.forward_ad.dual_level():
        made = torch.autograd.forward_ad.make_dual(A, A + 1) @ B
        tangent = torch.autograd.forward_ad.unpack_dual(made).tangent
        assert same(tangent, (A + 1) @ B)


class Watching(TorchDispatchMode):
    """Sees every operator, as the registered ones want it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("operation", ["linear", "addmm", "bmm"])
def test_gradients_are_the_same_whether_somebody_watches_the_operator_or_not(operation):
    """Products that nobody watches go past PyTorch's dispatcher."""
    found = []
    for watching in (contextlib.nullcontext(), Watching()):
        a, b, c = (x.clone().requires_grad_() for x in (A, B, C))
        product = {
            "linear": lambda a, b, c: F.linear(a, b.t(), c),
            "addmm": lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2.0),
            "bmm": lambda a, b, c: torch.bmm(a[None], b[None]) + c,
        }[operation]
        with hwsim.torch.emulate(**H200) as run, watching:
            out = product(a, b, c)
            first = torch.autograd.grad(out.square().sum(), (a, b, c), create_graph=True)
            second = torch.autograd.grad(first[0].square().sum(), (a, b, c))
        found.append(((out.detach(), *first, *second), run.record.total().calls))
        assert not run.not_caught
    assert found[0][1] == found[1][1]
    assert all(same(x.detach(), y.detach()) for x, y in zip(found[0][0], found[1][0], strict=True))


def test_records_of_contexts_with_equal_settings_stay_apart():
    with hwsim.torch.emulate(**H200) as outer:
        with hwsim.torch.emulate(**H200) as inner:
            A @ B
        A @ B
        A @ B
    assert (outer.record.total().calls, inner.record.total().calls) == (2, 1)
    counts, outputs = {}, {}

    def work(index):
        with hwsim.torch.emulate(**H200) as run:
            outputs[index] = [A @ B for _ in range(10)][-1]
        counts[index] = run.record.total().calls

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {0: 10, 1: 10, 2: 10} and same(outputs[0], outputs[2])


def test_modules_in_other_threads_do_not_name_this_one_s_products():
    other, start, done = network(), threading.Event(), threading.Event()

    class Waiting(torch.nn.Module):
        def forward(self, x):
            start.set()
            done.wait(10)
            return x

    thread = threading.Thread(target=torch.nn.Sequential(Waiting(), other), args=(drawn(1, 2, 16),))
    with hwsim.torch.emulate(**H200) as run:
        thread.start()
        start.wait(10)
        A @ B
        done.set()
        thread.join()
    assert list(run.record.layers) == [("", "matmul", "forward")]


@pytest.mark.parametrize(("use_reentrant", "by"), [(False, "backward"), (False, "grad"), (True, "backward")])
def test_checkpoints_recompute_as_the_forward_pass(use_reentrant, by):  # PyTorch has no `grad` of reentrant ones
    model, x = network(), drawn(1, 4, 16).requires_grad_()
    gradients, layers = [], []
    for call in (model, lambda x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=use_reentrant)):
        model.zero_grad()
        with hwsim.torch.emulate(**H200, backward_input={"format": "tf32"}) as run:  # tells a wrong pass
            loss = call(x).square().sum()
            weights = list(model.parameters())
            if by == "grad":
                own = torch.autograd.grad(loss, weights)
            else:
                loss.backward()
                own = [weight.grad for weight in weights]
        gradients.append(own)
        layers.append(run.record.layers)
    assert all(same(one, other) for one, other in zip(*gradients, strict=True))
    assert set(layers[0]) == set(layers[1])
    assert layers[1]["0", "linear", "forward"].calls == 2


def test_a_product_in_a_function_s_backward_is_a_gradient_s():
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a @ B

        @staticmethod
        def backward(ctx, grad):
            return grad @ B.t()

    a = A.clone().requires_grad_()
    with hwsim.torch.emulate(**H200) as run:
        Own.apply(a).sum().backward()
    assert {stage for _, _, stage in run.record.layers} == {"forward", "backward_input"}


def test_modes_and_hooks_are_gone_after_an_exception():
    own = torch.nn.modules.module

    def state():
        hooks = len(own._global_forward_hooks), len(own._global_forward_pre_hooks)
        return *hooks, torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()

    before = state()
    with pytest.raises(RuntimeError, match="cannot be multiplied"), hwsim.torch.emulate(**H200):
        network()(A)
    assert state() == before


def test_inference_mode_gives_the_same_bits():
    model, x = network(), drawn(1, 4, 16)
    outputs = []
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with hwsim.torch.emulate(**H200) as run, context():
            outputs.append(model(x).detach())
        assert run.record.total().calls == 2
    assert same(outputs[0], outputs[1]) and same(outputs[0], outputs[2])


WRONG = {
    "mm": lambda: torch.mm(A, A),
    "of a vector": lambda: torch.mm(A[0], B),
    "bmm of matrices": lambda: torch.bmm(A, B),
    "linear": lambda: F.linear(A, B),
    "bias": lambda: F.linear(A, B.t(), torch.randn(5)),
    "C": lambda: torch.addmm(torch.randn(2, 2), A, B),
    "mv": lambda: torch.mv(A, C),
    "dot": lambda: torch.dot(A[0], C),
    "inner": lambda: torch.inner(A, B),
    "einsum": lambda: torch.einsum("ij,jk->ik", A, A),
    "tensordot": lambda: torch.tensordot(A, A, 1),
    "dtypes": lambda: A @ B.double(),
    "channels": lambda: F.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 2, 3, 3)),
    "window beyond the image": lambda: F.conv2d(torch.randn(1, 3, 2, 2), torch.randn(4, 3, 3, 3)),
    "padding": lambda: F.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), padding=-1),
    "same and a stride": lambda: F.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), padding="same", stride=2),
    "attention": lambda: F.scaled_dot_product_attention(*(torch.randn(1, 4, n) for n in (8, 7, 8))),
    "_int_mm": lambda: torch._int_mm(torch.ones(3, 3, dtype=torch.int8), torch.ones(4, 4, dtype=torch.int8)),
}


@pytest.mark.parametrize("name", WRONG)
def test_pytorch_says_what_is_wrong_with_shapes_and_dtypes(name):
    with pytest.raises((RuntimeError, IndexError, ValueError)) as plain:
        WRONG[name]()
    with pytest.raises(type(plain.value)) as got, hwsim.torch.emulate(**H200):
        WRONG[name]()
    assert str(got.value) == str(plain.value)


def test_operands_without_elements():
    calls = [
        lambda: torch.randn(0, 4) @ torch.randn(4, 3),
        lambda: torch.addmm(torch.ones(2, 3), torch.randn(2, 0), torch.randn(0, 3)),
        lambda: F.linear(torch.randn(0, 4), torch.randn(3, 4), torch.randn(3)),
        lambda: torch.randn(2, 0, 4) @ torch.randn(4, 3),
        lambda: torch.einsum("ij,jk->ik", torch.randn(2, 0), torch.randn(0, 3)),
        lambda: torch.tensordot(torch.randn(2, 0), torch.randn(0, 3), 1),
        lambda: F.scaled_dot_product_attention(*(torch.randn(1, 0, 4) for _ in range(3))),
        lambda: F.conv2d(torch.randn(0, 3, 8, 8), torch.randn(4, 3, 3, 3)),
    ]
    for call in calls:
        with hwsim.torch.emulate(**H200):
            got = call()
        assert torch.equal(got, call())


def test_views_of_any_strides_and_signs():
    x, b = drawn(1, 60, 90), drawn(2, 27, 5)
    views = {
        "strided": x[::2, ::3][:, :27],
        "columns": x[:27, :30].t(),
        "rows expanded": x[:1, :27].expand(30, 27),
        "columns expanded": x[:30, :1].expand(30, 27),
        "overlapping": x.flatten().as_strided((30, 27), (1, 2)),
        "negated": torch.complex(x[:30, :27], x[:30, :27]).conj().imag,
    }
    for dtype in (torch.float32, torch.bfloat16):
        for name, view in views.items():
            own = view if name == "negated" else view.to(dtype)
            other = b if name == "negated" else b.to(dtype)
            with hwsim.torch.emulate(**H200):
                assert same(own @ other, own.contiguous() @ other), name
    assert np.array_equal(array_of(views["negated"]), -x[:30, :27].numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_narrow_operands_are_not_copied(dtype, n=512):
    a, b = drawn(1, n, n).to(dtype), drawn(2, n, n).to(dtype).t()
    one = torch.tensor(1.0)

    def multiply():
        return a @ b if dtype == torch.bfloat16 else torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)

    with hwsim.torch.emulate(
        device="h200", format="bf16" if dtype == torch.bfloat16 else "e4m3", measure_every=0, threads=1
    ):
        multiply()
        tracemalloc.start()
        multiply()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    sums, rounded = 4, 2  # bytes of an element: fp32 sums, scaled in their place, and the epilogue's result in bf16
    assert peak < n * n * (sums + rounded) + n * n // 4  # NumPy's memory; an operand has n * n bytes or twice as many


def test_rows_of_attention_that_a_mask_hides_are_zero():
    q = drawn(1, 1, 4, 8)
    mask = torch.tensor([True, False, True, True])[:, None].expand(4, 4)
    added = torch.where(mask, 0.0, -torch.inf)
    for given in (mask, added):
        with hwsim.torch.emulate(**FP32):
            got = F.scaled_dot_product_attention(q, q, q, attn_mask=given)
        torch.testing.assert_close(got, F.scaled_dot_product_attention(q, q, q, attn_mask=given), rtol=1e-5, atol=1e-5)


def test_what_is_not_caught_has_a_name_whichever_library_it_is_of():
    x, w = drawn(1, 4, 3), drawn(2, 3, 5)
    with hwsim.torch.emulate(**H200) as run:
        torch.linalg.vecdot(x, x)
        torch.linalg.householder_product(torch.randn(4, 3), torch.randn(3))
        torch.conv_tbc(torch.randn(5, 2, 3), torch.randn(2, 3, 4), torch.randn(4))
        torch.addmv(torch.randn(4), x, w[:, 0])
        torch.linalg.vector_norm(x)
        x * x
    names = {name.partition(" of ")[0] for name in run.not_caught} | {key[1] for key in run.record.layers}
    assert {"linalg_householder_product", "conv_tbc", "addmv"} <= names and "linalg_vector_norm" not in names


@pytest.mark.skipif(not hasattr(F, "scaled_mm"), reason="torch.nn.functional.scaled_mm is of PyTorch 2.10 and later")
def test_the_public_scaled_mm():
    kind = F.ScalingType.TensorWise
    a, b = drawn(1, 32, 64).to(torch.float8_e4m3fn), drawn(2, 16, 64).to(torch.float8_e4m3fn).t()
    with hwsim.torch.emulate(device="h200", format="e4m3") as run:
        got = F.scaled_mm(a, b, torch.tensor(0.5), kind, torch.tensor(2.0), kind, output_dtype=torch.bfloat16)
        assert same(got, torch._scaled_mm(a, b, torch.tensor(0.5), torch.tensor(2.0), out_dtype=torch.bfloat16))
        rows = F.ScalingType.RowWise
        F.scaled_mm(a, b, torch.ones(32, 1), rows, torch.ones(1, 16), rows, output_dtype=torch.bfloat16)
    assert run.record.total().calls == 3 and not run.not_caught


def test_a_checkpoint_without_backward_inside_is_warned_of():
    """Backward outside recomputes PyTorch's own operators, which save other tensors."""
    layer, x = torch.nn.Linear(8, 8), torch.ones(2, 8, requires_grad=True)

    def run(is_inside):
        with hwsim.torch.emulate(device="h200"):
            y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum()
            if is_inside:
                y.backward()

    with pytest.warns(UserWarning, match=r"call backward\(\) inside the `with`"):
        run(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(True)
        with hwsim.torch.emulate(device="h200"):
            layer(x)
