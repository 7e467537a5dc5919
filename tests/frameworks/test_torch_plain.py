"""What a report calls PyTorch's, and layers that are "plain": the bits of PyTorch's own functions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name

import hwsim.torch  # noqa: E402

H100 = {"device": "h100", "format": "bf16"}
PLAIN = {"modules": {"*": "plain"}}


def bits(x):
    return x.detach().contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32)


def drawn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


CALLS = {
    "linear": lambda: F.linear(drawn(64, 96), drawn(128, 96), drawn(128)),
    "linear of stacks": lambda: F.linear(drawn(2, 3, 96), drawn(128, 96), drawn(128)),
    "addmm": lambda: torch.addmm(drawn(8), drawn(16, 32), drawn(32, 8), alpha=0.7, beta=0.3),
    "baddbmm": lambda: torch.baddbmm(drawn(2, 16, 8), drawn(2, 16, 32), drawn(2, 32, 8), alpha=0.7, beta=0.3),
    "attention": lambda: F.scaled_dot_product_attention(*(drawn(1, 2, 48, 32) for _ in range(3)), is_causal=True),
    "convolution": lambda: F.conv2d(drawn(2, 8, 9, 9), drawn(4, 8, 3, 3), drawn(4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_plain_layer_is_pytorch_s_own_function(name):
    expected = CALLS[name]()
    with hwsim.torch.emulate(**H100, **PLAIN) as run:
        result = CALLS[name]()
    assert torch.equal(bits(result), bits(expected)) and not run.not_caught


def test_a_plain_layer_with_gradients_is_pytorch_s_own():
    layer, x = torch.nn.Linear(96, 128).bfloat16(), drawn(64, 96)

    def gradients():
        layer.zero_grad()
        layer(x).square().sum().backward()
        return bits(layer.weight.grad), bits(layer.bias.grad)

    expected = gradients()
    with hwsim.torch.emulate(**H100, **PLAIN) as run:
        got = gradients()
    assert all(map(torch.equal, got, expected)) and not run.not_caught


def test_a_plain_layer_beside_others_keeps_its_gradients_plain():
    """Its gradients are products too, which belong to the layer and not to the outer settings."""
    model, x = torch.nn.Sequential(torch.nn.Linear(96, 32), torch.nn.Linear(32, 8)).bfloat16(), drawn(64, 96)
    outputs = []
    model[0].register_forward_hook(lambda *call: outputs.append(call[-1]))
    with hwsim.torch.emulate(**H100, modules={"0": "plain"}) as run:
        model(x).sum().backward()
    assert torch.equal(bits(outputs[0]), bits(F.linear(x, model[0].weight, model[0].bias)))
    assert {layer for layer, _, _ in run.record.layers} == {"1"}


@pytest.mark.parametrize("form", ["linear", "addmm"])
def test_pytorch_s_column_is_one_rounding(form):
    """Errors of PyTorch's product with C are of one rounding: at most 2^-8 of each element in bf16."""
    x, w = drawn(8, 96), drawn(64, 96)
    bias = 100 * drawn(64)
    with hwsim.torch.emulate(**H100, measure_every=1) as run:
        F.linear(x, w, bias) if form == "linear" else torch.addmm(bias, x, w.t())
    exact = x.double() @ w.double().t() + bias.double()
    own = F.linear(x, w, bias)
    expected = float((own.double() - exact).norm() / exact.norm())
    assert run.record.total().plain_error == pytest.approx(expected, rel=1e-12)


def test_scores_in_fp32_are_compared_with_scores_in_fp32():
    query = drawn(1, 2, 48, 32)
    with hwsim.torch.emulate(device="b200", library="pytorch", measure_every=1) as run:
        F.scaled_dot_product_attention(query, query, query)
    entries = [entry for (_, operation, _), entry in run.record.layers.items() if "scores" in operation]
    assert len(entries) == 1 and entries[0].plain_error < 1e-6 and entries[0].distance < 1e-6


def test_compare_s_plain_side_takes_the_path_of_the_others():
    """PyTorch's fast path for layers of transformers computes with other operators; emulate leaves it out."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    torch.backends.mha.set_fastpath_enabled(True)
    paths = []

    def model(x):
        paths.append(torch.backends.mha.get_fastpath_enabled())
        return layer(x)

    comparison = hwsim.torch.compare(model, drawn(2, 8, 32, dtype=torch.float32), "plain", PLAIN, device="h100")
    assert comparison.pairs[0].differing == 0 and paths == [False, False]
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("form", ["eager", "gradients"])
def test_the_share_counts_what_the_settings_leave_to_pytorch(form):
    """A plain layer is a part of the model: 96 x 32 of its 96 x 32 + 32 x 8 products for each row."""
    model = torch.nn.Sequential(torch.nn.Linear(96, 32), torch.nn.Linear(32, 8)).bfloat16()
    with torch.set_grad_enabled(form == "gradients"), hwsim.torch.emulate(**H100, modules={"0": "plain"}) as run:
        y = model(drawn(64, 96).requires_grad_(form == "gradients"))
        if form == "gradients":
            y.sum().backward()
    assert run.verdict.computed == pytest.approx(256 / 3328) and run.verdict.left == pytest.approx(3072 / 3328)
    assert '7.7 % of this model\'s MACs were simulated, 92.3 % left to the framework ("plain")' in str(run.verdict)
    assert 'left to PyTorch ("plain"): layer 0, 92.3 % of the MACs' in run.report()
    assert sum(run.to_dict()["macs_plain"].values()) == run.record.macs_plain["0"]


def test_a_plain_pass_is_counted_too():
    layer, x = torch.nn.Linear(96, 32).bfloat16(), drawn(64, 96)
    with hwsim.torch.emulate(**H100, backward_weight="plain") as run:
        layer(x).sum().backward()
    assert run.verdict.computed == run.verdict.left == 0.5


def test_a_model_that_is_all_plain_says_so():
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Conv1d(8, 8, 1)), drawn(8, 8, dtype=torch.float32)
    with hwsim.torch.emulate(**H100, **PLAIN) as run:
        model(x).sum().backward()
    assert str(run.verdict).startswith("no product was simulated: the settings leave 100.0 % of the MACs")
