"""Layers of compiled models keep their names, so that `modules=` holds as in eager code."""

import pytest
import torch

import hwsim.torch


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
