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
    """Compared with eager code; a model of this layer alone is compared with PyTorch below."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, x = Mixed(), torch.randn(2, 4, 9, 9)
    eager, eager_run = computed(model, x, {pattern: "plain"}, has_gradients)
    compiled, run = computed(torch.compile(model, backend="aot_eager"), x, {pattern: "plain"}, has_gradients)
    assert all(map(torch.equal, compiled, eager)) and not run.not_caught
    assert run.record.macs_plain == eager_run.record.macs_plain and run.verdict.left == eager_run.verdict.left > 0


class First(torch.nn.Module):
    """A layer of which the first result counts, beside an outer module with other settings."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y = self.layer(x, x, x) if isinstance(self.layer, torch.nn.MultiheadAttention) else self.layer(x)
        return y[0] if isinstance(y, tuple) else y


nn = torch.nn
OWN = {
    "conv1d, same": (lambda: nn.Conv1d(8, 16, 4, padding="same"), (4, 8, 33)),
    "conv2d": (lambda: nn.Conv2d(8, 16, 3, padding=1, stride=2, groups=2), (4, 8, 17, 17)),
    "conv2d, depthwise": (lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), (2, 32, 9, 9)),
    "conv2d, one image": (lambda: nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"), (3, 17, 17)),
    "conv2d, channels last": (lambda: nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last), (4, 8, 17, 17)),
    "conv3d": (lambda: nn.Conv3d(3, 8, 3, padding=1), (2, 3, 9, 9, 9)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1), (4, 8, 9, 9)),
    "linear": (lambda: nn.Linear(96, 32), (4, 16, 96)),
    "attention": (lambda: nn.MultiheadAttention(32, 4, batch_first=True), (2, 16, 32)),
    "gru": (lambda: nn.GRU(16, 16), (6, 8, 16)),
    "lstm": (lambda: nn.LSTM(16, 16), (6, 8, 16)),
}


def own_and_emulated(name, dtype, is_compiled):
    """Result, gradient of the input and of the parameters: of PyTorch alone, and of the plain layer."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    make, shape = OWN[name]
    model, x = First(make()).to(dtype), torch.randn(shape).to(dtype).requires_grad_()

    def all_of(called):
        for leaf in (x, *model.parameters()):
            leaf.grad = None
        y = called(x)
        y.square().sum().backward()
        return [y.detach(), *(leaf.grad for leaf in (x, *model.parameters()))]

    wanted = all_of(model)
    with hwsim.torch.emulate(device="h100", modules={"layer*": "plain"}) as run:
        got = all_of(torch.compile(model, backend="aot_eager") if is_compiled else model)
    return wanted, got, run


COMPILED = ("conv2d", "transposed", "attention", "gru")


@pytest.mark.parametrize(
    ("name", "is_compiled"), [*((name, False) for name in OWN), *((name, True) for name in COMPILED)]
)
def test_a_plain_layer_has_the_bits_of_pytorch_alone(name, is_compiled):
    wanted, got, run = own_and_emulated(name, torch.float32, is_compiled)
    assert all(map(torch.equal, got, wanted)) and not run.record.layers
    assert run.verdict.left > 0 or name == "lstm"  # whose operator for a CPU tells nobody what it multiplies


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_a_plain_convolution_of_16_bits(is_compiled):
    wanted, got, run = own_and_emulated("conv2d", torch.bfloat16, is_compiled)
    assert all(map(torch.equal, got, wanted)) and not run.record.layers


@pytest.mark.parametrize("transposed", [False, True])
def test_a_plain_convolution_s_gradients_have_gradients(transposed):
    layer = (nn.ConvTranspose1d if transposed else nn.Conv1d)(3, 3, 3).double()
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    with hwsim.torch.emulate(device="h100", modules={"layer": "plain"}):
        model = First(layer)
        assert torch.autograd.gradcheck(model, (x,)) and torch.autograd.gradgradcheck(model, (x,))
        of_each = torch.func.vmap(torch.func.grad(lambda x: model(x[None]).square().sum()))(x)
    expected = torch.autograd.grad(layer(x).square().sum(), x)[0]
    assert torch.allclose(of_each, expected)


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


class Block(nn.Module):
    """Products, functions of elements, a norm and attention."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.act = nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()
        self.att = nn.MultiheadAttention(64, 2, batch_first=True)

    def forward(self, x):
        x = self.act(self.norm(self.up(x)))
        return self.att(x, x, x)[0]


def block_run(modules, form):
    """The result and the run of a block on an H100: eager, compiled, or compiled as one graph."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, x = Block(), torch.randn(2, 8, 64)
    called = model if form == "eager" else torch.compile(model, backend="aot_eager", fullgraph=form == "one graph")
    (y,), run = computed(called, x, modules, False, library="pytorch")
    return y, run


OF_LAYERS = {
    "norm plain": ({"norm": "plain"}, {"layer_norm of norm"}),
    "functions of another chip": ({"act": {"device": "mi300x", "library": "pytorch"}}, {"gelu of act"}),
    "attention": ({"att": {"device": "mi300x"}}, {"softmax of att", "mean of att"}),
    "chips with the same kernels": ({"norm": {"device": "h200", "library": "pytorch"}}, set()),
}


@pytest.mark.parametrize("case", OF_LAYERS)
def test_functions_follow_their_layer_or_are_named(case):
    """A graph ends where a function has another layer's bits; one graph for all does not know layers, and says so."""
    modules, named = OF_LAYERS[case]
    SAID.clear()
    (wanted, eager), (y, run) = (block_run(modules, form) for form in ("eager", "compiled"))
    assert torch.equal(y, wanted) and run.record.own_kernels == eager.record.own_kernels
    assert not run.verdict.hints and not eager.verdict.hints and not SAID
    whole, of_graph = block_run(modules, "one graph")
    assert torch.equal(whole, wanted) == (not named)
    said = " ".join(of_graph.verdict.hints)
    assert all(text in said for text in named) and ("do not follow modules=" in said) == bool(named)
    assert said.count(" of ") == len(named) + 2 * bool(named)  # "of h100, not of this CPU", and no other function


def test_notes_are_of_graphs_that_ran():
    """Equal settings have one key in a process; a note is of its graph."""
    torch._dynamo.reset()
    SAID.clear()
    other = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)), torch.randn(16, 64)
    one, two = (torch.compile(m, backend="aot_eager", fullgraph=True) for m in (model, other))
    with pytest.warns(UserWarning, match="layer_norm of 1 had the bits of h100, not of this CPU"):
        _, run = computed(one, x, {"1": "plain"}, False, library="pytorch")
    assert "layer_norm of 1" in str(run.verdict)
    for called in (two, model):
        assert not computed(called, x, {"1": "plain"}, False, library="pytorch")[1].verdict.hints
    assert "layer_norm of 1" in str(computed(one, x, {"1": "plain"}, False, library="pytorch")[1].verdict)


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
