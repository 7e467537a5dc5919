"""Where two runs of a model with attention part: kernels of other names, inputs that differ already, known orders."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402

OWN, STANDS = "in the kernel's own order", "in the unit's own order"


class Block(torch.nn.Module):
    """One layer of attention: `ahead` makes query, key and value, `behind` takes the result."""

    def __init__(self, width):
        super().__init__()
        self.ahead, self.behind = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x):
        query, key, value = (part.unsqueeze(1) for part in self.ahead(x).chunk(3, -1))
        return self.behind(F.scaled_dot_product_attention(query, key, value).squeeze(1))


def block(rows, width=64):
    torch.manual_seed(0)
    return Block(width).bfloat16(), torch.randn(1, rows, width).bfloat16()


def kinds(parting):
    return [step.operation for step in parting.steps]


@pytest.mark.filterwarnings("ignore")
def test_kernels_of_other_names_are_alike():
    parting = hwsim.torch.diff(*block(32), "b200", "mi300x", library="pytorch")
    assert parting.attention == (f"CUDNN_ATTENTION {STANDS}", f"FLASH_ATTENTION {STANDS}")
    assert f"attention: CUDNN_ATTENTION {STANDS} | FLASH_ATTENTION {STANDS}" in str(parting)
    assert kinds(parting) == ["linear", "attention scores", "attention values", "linear"]


@pytest.mark.parametrize("rows", [16, 512])
def test_a_kernel_of_known_order_is_compared_as_a_whole(rows):
    """Beside it the products are not what the chip adds; whether bits differ is what the outputs say."""
    model, x = block(rows)
    parting = hwsim.torch.diff(model, x, "h100", "b200", library="pytorch")
    assert parting.attention == (f"CUDNN_ATTENTION {OWN}", f"CUDNN_ATTENTION {STANDS}")
    assert kinds(parting) == ["linear", "attention", "linear"]
    outputs = []
    for device in ("h100", "b200"):
        with hwsim.torch.emulate(device=device, library="pytorch"), torch.no_grad():
            query, key, value = (part.unsqueeze(1) for part in model.ahead(x).chunk(3, -1))
            outputs.append(F.scaled_dot_product_attention(query, key, value).view(torch.int16))
    count = int((outputs[0] != outputs[1]).sum())
    assert parting.steps[0].differing == 0 and parting.steps[1].differing == count
    if not count:
        return
    assert parting.first == 1 and not parting.has_unlike_inputs
    assert parting.reason == (f"the kernels of attention are CUDNN_ATTENTION {OWN} and CUDNN_ATTENTION {STANDS}")
    with pytest.raises(hwsim.UnsupportedError, match="an attention has no sum of its own"):
        parting.explain()


def test_one_side_in_products_is_compared_as_a_whole():
    model, x = block(32)
    allowed = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    with sdpa_kernel(allowed):
        parting = hwsim.torch.diff(model, x, {"library": "pytorch"}, {}, device="h100")
    assert parting.attention == (f"FLASH_ATTENTION {OWN}", "MATH")
    assert kinds(parting) == ["linear", "attention", "linear"]


@pytest.mark.filterwarnings("ignore")
def test_inputs_that_differ_already_are_no_unit_s_fault():
    """The softmax of an H100's kernel is emulated; another chip's is PyTorch's own."""
    with sdpa_kernel(SDPBackend.MATH):
        parting = hwsim.torch.diff(*block(32, width=32), "h100", "mi300x", library="pytorch")
    assert kinds(parting) == ["linear", "attention scores", "attention values", "linear"]
    assert parting.first == 2 and parting.has_unlike_inputs and not parting.records
    assert parting.reason == (
        "the inputs of product 3 differ already: the softmax between them is not the same on both sides"
    )
    assert "NaN" not in str(parting)
    with pytest.raises(hwsim.UnsupportedError, match="the inputs of product 3 differ already"):
        parting.explain()


@pytest.mark.filterwarnings("ignore")
def test_the_order_of_the_sum_comes_before_codes_of_nans():
    """Scores of an H100's kernel are two slices of K, and none of them is a NaN."""
    with sdpa_kernel(SDPBackend.MATH):
        parting = hwsim.torch.diff(*block(32, width=64), "h100", "mi300x", library="pytorch")
    assert parting.steps[parting.first].operation == "attention scores"
    assert parting.reason.startswith("the order of summation differs: slices of K 2 on h100, 1 on mi300x")


def test_inputs_are_looked_at_where_outputs_are_equal():
    """What lies between differs, and a product of zeros hides it."""
    calls = []

    def model(x):
        calls.append(None)
        return (x @ x + len(calls)) @ torch.zeros(4, 4)

    parting = hwsim.torch.diff(model, torch.eye(4), "h200", "h200")
    assert parting.first == 1 and parting.element == () and parting.has_unlike_inputs
    said = (
        "the inputs of product 2 differ already: add (outside of modules) has other bits: computed by this CPU on both"
    )
    assert said in str(parting) and "is the model random?" in str(parting)


def test_unlike_products_are_named():
    calls = []

    def model(x):
        calls.append(None)
        return x @ x if len(calls) == 1 else torch.mv(x, x[0])

    with pytest.raises(
        hwsim.InputError, match=r"number 1 is matmul \(outside of modules, forward, 4 x 4\) on the left and mv"
    ):
        hwsim.torch.diff(model, torch.eye(4), "h200", "h200")


def test_operands_that_are_quantised_are_no_row_and_column():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 16), torch.randn(4, 64)
    parting = hwsim.torch.diff(layer, x, {"scheme": "mxfp8"}, {"scheme": "mxfp4"}, device="b200")
    assert parting.first == 0 and parting.reason
    with pytest.raises(hwsim.UnsupportedError, match="operands with scales"):
        parting.explain()


def test_an_attention_counts_as_its_two_products():
    """The report of a run counts the same."""
    model, x = block(32, width=64)
    parting = hwsim.torch.diff(model, x, {"device": "h100"}, {"device": "h100", "library": "pytorch"})
    with hwsim.torch.emulate(device="h100", library="pytorch") as run, torch.no_grad():
        model(x) if not isinstance(x, tuple) else model(*x)
    total = sum(step.products for step in parting.steps)
    assert total == run.record.total().calls > len(parting.steps)
    assert f"of {total}" in parting.verdict or f"all {total} products" in parting.verdict


def test_both_sides_draw_the_same_random_numbers():
    """A model that draws takes the same numbers on both sides, so equal chips give equal products."""
    layer, x = torch.nn.Linear(64, 16).bfloat16(), torch.randn(4, 64).bfloat16()
    parting = hwsim.torch.diff(lambda rows: layer(rows + torch.rand_like(rows)), x, "h100", "h200")
    assert parting.first is None and [step.differing for step in parting.steps] == [0]
