"""What PyTorch does alone it does inside `hwsim.torch.emulate` too."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name
from torch_cases import H200, drawn, same  # noqa: E402

import hwsim.torch  # noqa: E402


@pytest.mark.parametrize("layer", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_can_be_compiled(layer):
    torch._dynamo.reset()
    model, x = getattr(torch.nn, layer)(4, 8), drawn(1, 3, 2, 4)
    with warnings.catch_warnings(), hwsim.torch.emulate(**H200) as run:
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend="aot_eager")(x)[0]
        count = run.record.total().calls, dict(run.not_caught)
        eager = model(x)[0]
    assert same(compiled.detach(), eager.detach())
    assert count[0] or count[1]  # which ones PyTorch fuses depends on how it was built


@pytest.mark.filterwarnings("ignore")
def test_traced_graphs_hold_the_products():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Conv1d(3, 2, 3))
    x, y = drawn(1, 2, 3, 4), drawn(2, 2, 3, 4)
    with hwsim.torch.emulate(**H200):
        traced = torch.jit.trace(model, x)
    with hwsim.torch.emulate(**H200) as run:
        got = traced(y)
    with hwsim.torch.emulate(**H200):
        assert same(got.detach(), model(y).detach())
    assert run.record.total().calls == 2 and not same(got.detach(), model(y).detach())


CONVOLUTIONS = {
    "image": lambda x, w: F.conv2d(x, w, padding=1),
    "transposed": lambda x, w: F.conv_transpose2d(x, w, stride=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("last", [(True, True), (True, False), (False, True), (False, False)])
def test_channels_stay_where_they_are(name, last):
    formats = [torch.channels_last if is_last else torch.contiguous_format for is_last in last]
    x, w = (drawn(i, 8, 8, 5, 4).to(memory_format=fmt).requires_grad_() for i, fmt in enumerate(formats))
    convolve = CONVOLUTIONS[name]
    torch._dynamo.reset()
    with hwsim.torch.emulate(**H200):
        got = convolve(x, w)
        compiled = torch.compile(convolve, backend="aot_eager", fullgraph=True)(x, w)
        (of_x,) = torch.autograd.grad(got.sum(), x)
    assert got.stride() == compiled.stride() == convolve(x, w).stride()
    assert same(got.detach(), compiled.detach()) and of_x.shape == x.shape
    plain = convolve(x.detach().contiguous(), w.detach().contiguous())
    torch.testing.assert_close(got.detach(), plain, rtol=2e-2, atol=2e-1)


def test_a_volume_s_channels_stay_last():
    x, w = drawn(1, 2, 8, 4, 4, 4).to(memory_format=torch.channels_last_3d), drawn(2, 3, 8, 2, 2, 2)
    with hwsim.torch.emulate(**H200):
        assert F.conv3d(x, w).stride() == F.conv3d(x, w).contiguous(memory_format=torch.channels_last_3d).stride()
