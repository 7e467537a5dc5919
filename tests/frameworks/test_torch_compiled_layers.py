"""Layers of compiled models keep their names, so that `modules=` holds as in eager code."""

import pytest

torch = pytest.importorskip("torch")

import hwsim.torch  # noqa: E402  PyTorch is optional
from hwsim.host.warned import SAID  # noqa: E402


class Attending(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.att = torch.nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.att(x, x, x, need_weights=False)[0]


class Breaking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x):
        before = x @ self.inner.weight
        torch._dynamo.graph_break()
        return self.inner(before) @ self.inner.weight


@pytest.mark.parametrize("modules", [{}, {"att": {"device": "mi300x", "format": "bf16"}}])
def test_multihead_attention_compiled_follows_its_layer_s_settings(modules):
    torch.manual_seed(1)
    model, x = Attending().bfloat16().eval(), torch.randn(2, 5, 16).bfloat16()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    settings = {"device": "h100", "library": "pytorch", "modules": modules}
    with torch.no_grad(), hwsim.torch.emulate(**settings) as eager:
        wanted = model(x)
    with torch.no_grad(), hwsim.torch.emulate(**settings) as run:
        assert torch.equal(compiled(x), wanted)
    assert set(run.record.layers) == set(eager.record.layers)
    assert {layer for layer, _, _ in run.record.layers} == {"att"}


def test_products_around_a_graph_break_keep_the_name_of_their_layer():
    torch.manual_seed(1)
    model, x = torch.nn.Sequential(Breaking(), Breaking()), torch.randn(4, 8)
    settings = {"device": "h100", "modules": {"1": {"device": "h100", "format": "bf16"}}}
    with torch.no_grad(), hwsim.torch.emulate(**settings) as eager:
        wanted = model(x)
    with torch.no_grad(), hwsim.torch.emulate(**settings) as run:
        assert torch.equal(torch.compile(model, backend="aot_eager")(x), wanted)
    calls = [{name: entry.calls for name, entry in each.record.layers.items()} for each in (eager, run)]
    assert calls[0] == calls[1]


def test_unflatten_stays_in_a_graph():
    class Model(torch.nn.Module):
        def forward(self, x):
            return (x @ x).unflatten(-1, (2, 4))

    with hwsim.torch.emulate(device="h100"):
        assert torch.compile(Model(), backend="aot_eager", fullgraph=True)(torch.ones(8, 8)).shape == (8, 2, 4)


class Mixed(torch.nn.Module):
    """Convolutions, linear layers, norms and attention."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 8, 3, padding=1, stride=2, groups=2)
        self.back = torch.nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1)
        self.encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)

    def forward(self, x):
        return self.encoder(self.back(self.conv(x)).flatten(2).mT)


def computed(model, x, modules, has_gradients, **settings):
    """The result of an emulated model, its gradients if wanted, and the run."""
    for parameter in model.parameters():
        parameter.grad = None
    with torch.set_grad_enabled(has_gradients), hwsim.torch.emulate(device="h100", modules=modules, **settings) as run:
        y = model(x)
        if has_gradients:
            y.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()] if has_gradients else []
    return [y.detach(), *gradients], run


@pytest.mark.covering("pattern", "has_gradients")
@pytest.mark.parametrize("has_gradients", [False, True])
@pytest.mark.parametrize("pattern", ["conv", "back", "encoder.self_attn*"])
def test_a_plain_layer_in_compiled_code_is_pytorch_s_own_with_its_gradients(pattern, has_gradients):
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, x = Mixed(), torch.randn(2, 4, 9, 9)
    eager, eager_run = computed(model, x, {pattern: "plain"}, has_gradients)
    compiled, run = computed(torch.compile(model, backend="aot_eager"), x, {pattern: "plain"}, has_gradients)
    assert all(map(torch.equal, compiled, eager)) and not run.not_caught
    assert run.record.macs_plain == eager_run.record.macs_plain and run.verdict.left == eager_run.verdict.left > 0


def test_attention_of_a_plain_layer_beside_others_is_pytorch_s_kernel_with_its_gradients():
    """Compared with PyTorch's own attention of the same operands."""
    torch.manual_seed(1)
    operands = [torch.randn(2, 2, 33, 16, requires_grad=True) for _ in range(3)]

    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.att = Attention()

        def forward(self, *operands):
            return self.att(*operands)

    def gradients():
        result = Model()(*operands)
        return [result.detach(), *torch.autograd.grad(result.square().sum(), operands)]

    expected = gradients()
    with hwsim.torch.emulate(device="h100", modules={"att": "plain"}) as run:
        assert all(map(torch.equal, gradients(), expected))
    counted = 3 * 2 * 2 * 2 * 33 * 33 * 16  # forward; the gradients of both products have two each
    assert run.record.macs_plain == {"att": counted} and "no product was simulated" in str(run.verdict)


def test_functions_that_do_not_follow_their_layer_are_named():
    """A layer norm of a plain layer has the bits of the chip in compiled code: a graph does not know layers."""
    torch._dynamo.reset()
    SAID.clear()
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)), torch.randn(16, 64)
    with pytest.warns(UserWarning, match="layer_norm of 1 had the bits of h100, not of this CPU"):
        _, run = computed(torch.compile(model, backend="aot_eager"), x, {"1": "plain"}, False, library="pytorch")
    assert "do not follow modules=" in str(run.verdict)
    _, eager = computed(model, x, {"1": "plain"}, False, library="pytorch")
    assert not eager.verdict.hints


def test_inductor_is_named():
    """Its functions of elements have other bits than PyTorch's operators."""
    torch._dynamo.reset()
    SAID.clear()
    model, x = torch.nn.Linear(16, 16, bias=False), torch.randn(4, 16)
    with pytest.warns(UserWarning, match="inductor"):
        compiled, run = computed(torch.compile(model), x, {}, False)
    eager, eager_run = computed(model, x, {}, False)
    assert torch.equal(compiled[0], eager[0]) and not run.not_caught
    assert any('backend="aot_eager"' in hint for hint in run.verdict.hints) and not eager_run.verdict.hints
