"""hwsim.torch: products of PyTorch models with the bits of hwsim.matmul, gradients, graphs, the record."""

import functools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.errors import InputError, UnsupportedError  # noqa: E402
from hwsim.frameworks.torch.functions import FUNCTIONS  # noqa: E402
from hwsim.frameworks.torch.tensors import array_of, layout, tensor_of  # noqa: E402
from hwsim.operands.powers import power_of_two  # noqa: E402

F = torch.nn.functional
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def drawn(seed, *shape, dtype=torch.float32, spread=12):
    """Full significands, many magnitudes: sums of such products are exact nowhere."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)
    return torch.from_numpy(values).to(dtype)


def same(x, y):
    integer = BITS[x.element_size()]
    return x.dtype == y.dtype and torch.equal(x.contiguous().view(integer), y.contiguous().view(integer))


def product(a, b, dtype=None, **arguments):
    """The product by hwsim.matmul, from tensors to a tensor."""
    out = dtype or a.dtype
    more = {torch.bfloat16: {"output": "bf16"}, torch.float16: {"output": "fp16"}}.get(out, {})
    return tensor_of(hwsim.matmul(array_of(a), array_of(b), **more, **arguments), out, a.device)


B200 = {"device": "b200", "scheme": "bf16x9"}
H200 = {"device": "h200", "format": "bf16"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_tensors_cross_over_without_copies(dtype):
    x = drawn(1, 6, 8).to(dtype)
    for view in (x, x.t(), x[::2, 1::3]):
        array = array_of(view)
        assert array.shape == tuple(view.shape)
        assert array.__array_interface__["data"][0] == view.data_ptr()
        assert same(tensor_of(np.ascontiguousarray(array), dtype, x.device), view)


def test_layout_follows_from_strides():
    x = torch.zeros(6, 8)
    assert [layout(y) for y in (x, x.t(), x[:, :4], x[:1], x.t()[:4])] == ["rows", "columns", "rows", "rows", "columns"]


CALLS = {
    "mm": (lambda a, b: torch.mm(a, b), (5, 33), (33, 7)),
    "operator": (lambda a, b: a @ b, (5, 33), (33, 7)),
    "columns": (lambda a, b: a.t() @ b.t(), (33, 5), (7, 33)),
    "stack by matrix": (lambda a, b: torch.matmul(a, b), (2, 3, 33), (33, 7)),
    "stacks": (lambda a, b: torch.matmul(a, b), (2, 1, 4, 33), (3, 33, 7)),
    "vector": (lambda a, b: torch.matmul(a, b), (33,), (33, 7)),
    "by vector": (lambda a, b: a @ b, (5, 33), (33,)),
    "mv": (lambda a, b: torch.mv(a, b), (5, 33), (33,)),
    "dot": (lambda a, b: torch.dot(a, b), (33,), (33,)),
    "inner": (lambda a, b: torch.inner(a, b), (2, 3, 33), (4, 33)),
    "bmm": (lambda a, b: torch.bmm(a, b), (3, 4, 33), (3, 33, 5)),
    "linear": (lambda a, b: F.linear(a, b), (2, 5, 33), (7, 33)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, ([1, 2], [1, 0])), (4, 3, 11), (11, 3, 5)),
    "einsum": (lambda a, b: torch.einsum("bik,bjk->bij", a, b), (3, 4, 33), (3, 5, 33)),
    "einsum with sums": (lambda a, b: torch.einsum("bkis,kj->ij", a, b), (2, 33, 4, 2), (33, 5)),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_give_hwsim_s_bits_and_gradients(name):
    call, *shapes = CALLS[name]
    a, b = (drawn(i, *shape).requires_grad_() for i, shape in enumerate(shapes))
    with hwsim.torch.emulate(**B200) as run:
        got = call(a, b)
        left, right = torch.autograd.grad(got.sum(), (a, b))
    assert not run.not_caught
    assert run.record.total().calls == 3
    plain = call(a, b)
    for x, y in zip((got, left, right), (plain, *torch.autograd.grad(plain.sum(), (a, b))), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-3 * float(y.detach().abs().max()))
    if name in ("mm", "operator"):
        a, b, ones = a.detach(), b.detach(), torch.ones(5, 7)
        assert same(got, product(a, b, **B200)) and not same(got, plain)
        assert same(left, product(ones, b.t(), **B200)) and same(right, product(a.t(), ones, **B200))
    if name == "bmm":
        assert same(got.detach(), product(a.detach(), b.detach(), **B200))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_have_pytorch_s_dtypes(dtype):
    a, b, c = drawn(1, 6, 40, spread=3).to(dtype), drawn(2, 40, 9, spread=3).to(dtype), drawn(3, 9, spread=3).to(dtype)
    name = {torch.float32: "tf32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
    with hwsim.torch.emulate(device="h200", format=name):
        got, biased = a @ b, torch.addmm(c, a, b)
    assert same(got, product(a, b, device="h200", format=name))
    assert same(biased, product(a, b, device="h200", format=name, bias=array_of(c)))


def test_addmm_and_baddbmm_scale_in_the_epilogue():
    a, b, c = drawn(1, 2, 5, 20), drawn(2, 2, 20, 6), drawn(3, 2, 5, 6)
    with hwsim.torch.emulate(**B200):
        got = torch.baddbmm(c, a, b, alpha=0.5, beta=-3.0)
        one = torch.addmm(c[0], a[0], b[0], alpha=0.5, beta=-3.0)
    expected = hwsim.matmul(a.numpy(), b.numpy(), c.numpy(), alpha=0.5, beta=-3.0, **B200)
    assert np.array_equal(got.numpy().view(np.uint32), expected.view(np.uint32))
    assert np.array_equal(one.numpy().view(np.uint32), expected[0].view(np.uint32))


def test_int_mm_and_scaled_mm():
    rng = np.random.default_rng(5)
    x, y = (torch.from_numpy(rng.integers(-128, 128, shape, dtype=np.int8)) for shape in ((32, 64), (64, 16)))
    with hwsim.torch.emulate(device="h200", format="int8"):
        assert torch.equal(torch._int_mm(x, y), x.int() @ y.int())
    a, b = (drawn(i, *shape, spread=3).to(torch.float8_e4m3fn) for i, shape in enumerate(((32, 64), (16, 64))))
    one, two = torch.tensor(0.5), torch.tensor(4.0)
    with hwsim.torch.emulate(device="h200", format="e4m3"):
        got = torch._scaled_mm(a, b.t(), one, two, out_dtype=torch.bfloat16)
        rows = torch._scaled_mm(a, b.t(), torch.ones(32, 1), torch.full((1, 16), 2.0), out_dtype=torch.bfloat16)
    expected = tensor_of(
        hwsim.matmul(array_of(a), array_of(b.t()), device="h200", format="e4m3"), torch.float32, a.device
    )
    assert same(got, (expected * 2.0).bfloat16()) and same(rows, got)


def test_unlike_passes_and_layers():
    model = torch.nn.Sequential(
        torch.nn.Linear(40, 30), torch.nn.Sequential(torch.nn.Linear(30, 20)), torch.nn.Linear(20, 5)
    )
    x = drawn(3, 8, 40, spread=2)
    modules = {"1.*": {"device": "b200", "scheme": "bf16x9"}, "2": "plain"}
    with hwsim.torch.emulate(
        **H200, backward_weight={"format": "tf32"}, backward_input="plain", modules=modules
    ) as run:
        out = model(x)
        out.sum().backward()
    first, second = model[0], model[1][0]
    h = product(x, first.weight.detach().t(), **H200, bias=first.bias.detach().numpy())
    g = product(h, second.weight.detach().t(), **B200, bias=second.bias.detach().numpy())
    assert same(out.detach(), model[2](g).detach())
    ones = torch.ones(8, 5)
    back = ones @ model[2].weight.detach()
    assert same(second.weight.grad, product(back.t(), h, **B200))
    back = product(back, second.weight.detach(), **B200)
    assert same(first.weight.grad, product(back.t(), x, device="h200", format="tf32"))
    assert {(layer, stage) for layer, _, stage in run.record.layers} == {
        *(("0", stage) for stage in ("forward", "backward_weight")),
        *(("1.0", stage) for stage in ("forward", "backward_input", "backward_weight")),
    }


def test_scaled_fp8_training_step_and_gradient_format():
    a, b = drawn(1, 8, 64, spread=2) * 1e-4, drawn(2, 64, 16, spread=2) * 1e3
    a.requires_grad_()
    settings = {"device": "h200", "format": "e4m3", "accumulate": "promoted", "scale": "power-of-two"}
    with hwsim.torch.emulate(**settings, gradient_format="e5m2"):
        got = a @ b
        (of_a,) = torch.autograd.grad(got.sum(), a)
    e, f = (power_of_two(float(x.detach().abs().max()), 448.0) for x in (a, b))
    left, right = np.ldexp(a.detach().numpy(), e), np.ldexp(b.numpy(), f)
    assert 224 < np.abs(left).max() <= 448
    run = functools.partial(hwsim.matmul, device="h200", accumulate="promoted")
    assert np.array_equal(got.detach().numpy(), np.ldexp(run(left, right, format="e4m3"), -e - f))
    ones = np.full((8, 16), 2.0**15, np.float32)  # the largest power of two of e5m2
    expected = np.ldexp(run(ones, right.T, format="e5m2", format_b="e4m3"), -15 - f)
    assert np.array_equal(of_a.numpy(), expected)


CONVOLUTIONS = {
    "stride, padding": (F.conv2d, (2, 4, 9, 8), (6, 4, 3, 3), {"stride": 2, "padding": 1}),
    "groups, dilation": (F.conv2d, (2, 4, 9, 9), (6, 2, 3, 2), {"dilation": (2, 1), "groups": 2}),
    "same": (F.conv2d, (1, 3, 7, 6), (2, 3, 4, 3), {"padding": "same"}),
    "one dimension": (F.conv1d, (2, 3, 11), (5, 3, 4), {"stride": 3, "padding": 2}),
    "three dimensions": (F.conv3d, (1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"stride": (1, 2, 1)}),
    "transposed": (F.conv_transpose2d, (2, 4, 5, 4), (4, 3, 3, 2), {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed, groups": (F.conv_transpose1d, (2, 4, 5), (4, 3, 3), {"stride": 2, "groups": 2, "dilation": 2}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_gradients(name):
    function, image, window, options = CONVOLUTIONS[name]
    x, w = (
        torch.from_numpy(np.random.default_rng(i).standard_normal(s)).requires_grad_()
        for i, s in ((1, image), (2, window))
    )
    plain = function(x, w, **options)
    bias = torch.randn(plain.shape[1], dtype=torch.float64, requires_grad=True)
    expected = (
        function(x, w, bias, **options),
        *torch.autograd.grad(function(x, w, bias, **options).square().sum(), (x, w, bias)),
    )
    with hwsim.torch.emulate(device="h200", format="fp64") as run:
        got = function(x, w, bias, **options)
        gradients = torch.autograd.grad(got.square().sum(), (x, w, bias))
    for one, other in zip((got, *gradients), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    strides, dilations = (
        (size,) * (len(window) - 2) if isinstance(size, int) else size
        for size in (options.get("stride", 1), options.get("dilation", 1))
    )
    # For an image's gradient, or a transposed convolution: a product for each place between strides that a tap meets.
    axes = zip(strides, dilations, window[2:], strict=True)
    products = math.prod(len({tap * d % s for tap in range(r)}) for s, d, r in axes)
    assert run.record.total().calls == 2 + products and not run.not_caught


def test_a_convolution_is_hwsim_s_conv2d():
    x, w, bias = drawn(1, 2, 4, 9, 8, spread=3), drawn(2, 6, 4, 3, 3, spread=3), drawn(3, 6, spread=3)
    with hwsim.torch.emulate(**H200):
        got = F.conv2d(x, w, bias, stride=2, padding=1)
    expected = hwsim.conv2d(x.numpy(), w.numpy(), stride=2, padding=1, bias=bias.numpy(), **H200)
    assert np.array_equal(got.numpy().view(np.uint32), expected.view(np.uint32))


def test_the_bias_of_a_convolution_with_groups_is_of_the_epilogue_too():
    half = {"dtype": torch.bfloat16}
    x, w, bias = (drawn(i, *size, spread=3).to(**half) for i, size in enumerate(((2, 4, 9, 8), (6, 2, 3, 3), (6,))))
    with hwsim.torch.emulate(**H200):
        got = F.conv2d(x, w, bias, groups=2)
        parts = [F.conv2d(x[:, c : c + 2], w[o : o + 3], bias[o : o + 3]) for c, o in ((0, 0), (2, 3))]
        mapped = torch.vmap(F.conv2d, (None, 0, 0))(x[:, :2], w.unflatten(0, (2, 3)), bias.unflatten(0, (2, 3)))
        each = [F.conv2d(x[:, :2], w[o : o + 3], bias[o : o + 3]) for o in (0, 3)]
    assert torch.equal(got, torch.cat(parts, 1)) and torch.equal(mapped, torch.stack(each))


def test_gradcheck_in_fp64():
    a, b, c = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4, 2), (2,)))
    q = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    with hwsim.torch.emulate(device="h200", format="fp64", measure_every=0):
        assert torch.autograd.gradcheck(lambda a, b, c: torch.addmm(c, a, b, alpha=0.5, beta=2.0), (a, b, c))
        assert torch.autograd.gradgradcheck(lambda a, b: a @ b, (a, b))
        assert torch.autograd.gradcheck(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (q,))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": True}, {"scale": 0.3}])
def test_attention_is_its_math_form(options):
    q, k, v = (torch.from_numpy(np.random.default_rng(i).standard_normal((2, 3, 5, 8))) for i in range(3))
    more = {name: x for name, x in options.items() if name != "mask"}
    if "mask" in options:
        more["attn_mask"] = torch.rand(5, 5) > 0.3
        more["attn_mask"][:, 0] = True
    with hwsim.torch.emulate(device="h200", format="fp64") as run:
        got = F.scaled_dot_product_attention(q, k, v, **more)
    torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, **more), rtol=1e-12, atol=1e-12)
    assert [key[1] for key in run.record.layers] == ["attention scores", "attention values"]


def test_what_cpp_code_multiplies_is_caught_below_with_its_pass():
    torch.manual_seed(1)
    cell = torch.nn.LSTMCell(12, 8)
    attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    x, h = torch.randn(4, 12), (torch.zeros(4, 8), torch.zeros(4, 8))
    with hwsim.torch.emulate(device="b200", scheme="bf16x9") as run:
        cell(x, h)[0].sum().backward()
        attention(*([torch.randn(2, 5, 16)] * 3), need_weights=True)[0].sum().backward()
    stages = {stage for _, _, stage in run.record.layers}
    assert stages == {"forward", "backward_input", "backward_weight"}
    assert not run.not_caught
    assert run.record.total().calls >= 12


def test_products_of_other_kinds_are_counted_by_name():
    x = torch.randn(4, 4, dtype=torch.complex64)
    with hwsim.torch.emulate(**H200) as run:
        x @ x
        torch.linalg.inv(torch.eye(3))
        torch.arange(6).reshape(2, 3) @ torch.arange(6).reshape(3, 2)
    assert run.not_caught == {"mm of complex64": 1, "linalg_inv_ex of float32": 1, "mm of int64": 1}
    assert "not caught: mm of complex64, 1 call" in run.report()


class Block(torch.nn.Module):
    """Products of several kinds."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(24, 48), torch.nn.Linear(48, 24, bias=False)

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        return torch.einsum("ik,jk->ij", y, x) + F.scaled_dot_product_attention(y[None], x[None], x[None])[0] @ x.t()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_graphs_hold_the_operators(backend):
    """torch.compile neither drops nor breaks at hwsim's operators; inductor compiles C++ for it, which takes long."""
    torch.manual_seed(2)
    torch._dynamo.reset()
    model, x = Block(), torch.randn(6, 24)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    outputs = []
    for module in (model, compiled):
        with hwsim.torch.emulate(**H200) as run:
            out = module(x)
            gradient = torch.autograd.grad(out.sum(), model.up.weight)[0]
        assert ("up", "linear", "backward_weight") in run.record.layers and not run.not_caught
        outputs.append((out.detach(), gradient))
    assert torch.allclose(outputs[0][0], outputs[1][0], rtol=1e-2, atol=1e-4)


def test_a_compiled_graph_of_products_alone_has_the_same_bits():
    with hwsim.torch.emulate(**H200):
        flat = torch.compile(lambda a, b: a @ b @ a, fullgraph=True, backend="inductor")
        a, b = drawn(1, 9, 9), drawn(2, 9, 9)
        assert same(flat(a, b), a @ b @ a)


def test_what_was_compiled_inside_is_pytorchs_own_outside():
    torch.manual_seed(2)
    torch._dynamo.reset()
    model, x = Block(), torch.randn(6, 24)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with hwsim.torch.emulate(**H200):
        inside = compiled(x)
    plain = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(compiled(x), plain) and not torch.equal(inside, plain)


def test_swapped_modules_need_no_context():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), torch.nn.Flatten(), torch.nn.Linear(64, 5)
    )
    x = torch.randn(2, 3, 4, 4)
    with hwsim.torch.emulate(**H200):
        expected = model(x).detach()
    names = sorted(model.state_dict())
    run = hwsim.torch.swap(model, **H200)
    torch._dynamo.reset()
    for module in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        assert same(module(x).detach(), expected)
    model(x).sum().backward()
    assert {layer for layer, _, _ in run.record.layers} == {"0", "2"} and sorted(model.state_dict()) == names
    hwsim.torch.unswap(model)
    calls = run.record.total().calls
    model(x)
    assert run.record.total().calls == calls


def test_operators_pass_pytorch_s_own_checks():
    with hwsim.torch.emulate(device="h200", format="fp64", measure_every=0) as run:
        pass
    key = run.settings.key
    a, b, c = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4, 5), (5,)))
    where = (key, "layer", "forward", "mm", "")
    for given in ((a, b, None), (a, b, c), (a[None].repeat(2, 1, 1), b[None].repeat(2, 1, 1), None)):
        torch.library.opcheck(torch.ops.hwsim.product.default, (*given, 1.0, 1.0, torch.float64, *where))
    x, w = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((2, 4, 6, 5), (6, 2, 3, 3)))
    shape = ([1, 2], [1, 0], [1, 1], 2, False, key, "layer", "forward")
    torch.library.opcheck(torch.ops.hwsim.convolution.default, (x, w, None, *shape))
    y = torch.randn(2, 6, 6, 2, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.hwsim.convolution_input.default, (y, w, [2, 4, 6, 5], *shape))
    torch.library.opcheck(torch.ops.hwsim.convolution_weight.default, (y, x, [6, 2, 3, 3], *shape))


def test_vmap_makes_one_stack():
    a, b, c = drawn(1, 3, 5, 20), drawn(2, 20, 6), drawn(3, 3, 6)
    with hwsim.torch.emulate(**B200) as run:
        got = torch.vmap(lambda a, c: torch.addmm(c, a, b))(a, c)
    assert run.record.total().calls == 1
    expected = torch.stack(
        [product(x, b, **B200, c=array_of(y.expand(5, 6).contiguous()), beta=1.0) for x, y in zip(a, c, strict=True)]
    )
    assert same(got, expected)


def test_checkpoints_recompute_the_same_bits():
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4))
    x = torch.randn(5, 20, requires_grad=True)
    gradients = []
    with hwsim.torch.emulate(**H200) as run:
        for call in (model, lambda x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)):
            gradients.append(torch.autograd.grad(call(x).sum(), (x, model[0].weight)))
    assert all(same(one, other) for one, other in zip(*gradients, strict=True))
    assert run.record.total().calls > 5 + 5  # three products of the forward pass again, or two


def test_diff_finds_the_first_product_and_explains_it():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    x = drawn(4, 16, 64)
    found = hwsim.torch.diff(model, x, "h200", "mi300x", format="bf16")
    assert not found.is_equal and found.first == 0
    step = found.steps[0]
    assert (step.layer, step.operation) == ("0", "linear") and 0 < step.differing <= 16 * 64
    assert found.steps[1].differing and "they part at product 1 of 2: 0, linear" in str(found)
    assert str(found.explain())
    alike = hwsim.torch.diff(model, x, "h200", {"device": "h100"}, format="bf16")
    assert alike.is_equal and "same bits" in str(alike)
    with pytest.raises(InputError, match="nothing to explain"):
        alike.explain()


def test_the_record_measures_errors_and_overflows():
    a = torch.full((4, 8), 200.0)
    with hwsim.torch.emulate(device="h200", format="fp16", measure_every=2, timing=True) as run:
        for _ in range(3):
            a.half() @ a.half().t()  # 320,000: beyond fp16
    entry = run.record.layers["", "matmul", "forward"]
    assert (entry.calls, entry.measured + 0, entry.overflows) == (3, 2, 32) and entry.cycles > 0
    assert run.to_dict()["total"]["macs"] == 3 * 4 * 8 * 4


def test_arguments_are_checked_at_once():
    with pytest.raises(UnsupportedError, match="h2000"), hwsim.torch.emulate(device="h2000"):
        pass
    for arguments, text in (
        ({"rows": [1]}, "each product has its own"),
        ({"scale": "power-of-2"}, "did you mean"),
        ({"scale": "power-of-two"}, "needs format="),
        ({"forward": 3}, "allowed: a mapping"),
        ({"modules": {"x": 3}}, "allowed: a mapping"),
        ({"sceme": "native"}, "sceme"),
    ):
        with pytest.raises(InputError, match=text), hwsim.torch.emulate(**arguments):
            pass
    with pytest.raises(InputError, match="has not made"):
        torch.ops.hwsim.product(
            torch.ones(2, 2), torch.ones(2, 2), None, 1.0, 1.0, torch.float32, "no", "", "forward", "mm", ""
        )


def test_every_function_is_one_of_pytorch_s():
    assert all(callable(function) for function in FUNCTIONS)
    assert len(FUNCTIONS) > 30


def test_seconds_of_a_library_s_kernel_without_cycles_count():
    where = {"device": "h200", "library": "cublas", "format": "fp32"}
    a, b = drawn(1, 1, 64), drawn(2, 64, 64)
    expected = hwsim.run(a.numpy(), b.numpy(), **where)
    with hwsim.torch.emulate(timing=True, **where) as run:
        a @ b
    total = run.record.total()
    assert expected.cycles is None and total.cycles == 0 and total.seconds == expected.seconds > 0
