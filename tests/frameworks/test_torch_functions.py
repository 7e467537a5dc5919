"""Functions between products: which side computed them, where they part, and which this CPU computed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.frameworks.torch.comparison import digest_of  # noqa: E402
from hwsim.frameworks.torch.unsimulated import has_same_bits, shown_name  # noqa: E402

ATEN = torch.ops.aten
SIDES = ("as h100's kernel", "by this CPU")
LIBRARY = {"library": "pytorch"}


class Normed(torch.nn.Module):
    """An embedding, a layer norm and a product, as a transformer begins."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(16, 128), torch.nn.LayerNorm(128)
        self.head = torch.nn.Linear(128, 8, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.table(tokens)))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Normed().eval()


TOKENS = torch.arange(16)


def test_diff_names_the_function_where_bits_part_first(model):
    parting = hwsim.torch.diff(model, TOKENS, "h100", "mi300x", **LIBRARY)
    assert (parting.first, parting.has_unlike_inputs) == (0, True)
    function = parting.function
    assert (function.name, function.layer, function.sides) == ("layer_norm", "norm", SIDES)
    said = "the inputs of product 1 differ already: layer_norm (layer norm) has other bits: "
    said += "computed as h100's kernel on the left, by this CPU on the right"
    assert parting.reason == said
    with pytest.raises(hwsim.UnsupportedError, match=r"layer_norm \(layer norm\) has other bits"):
        parting.explain()


def test_the_function_is_not_blamed_where_a_product_parts_first():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(2048, 128), torch.nn.LayerNorm(128), torch.nn.Linear(128, 8))
    parting = hwsim.torch.diff(
        torch.nn.Sequential(*layers).bfloat16(), torch.randn(16, 2048).bfloat16(), "h100", "mi300x", **LIBRARY
    )
    assert parting.first == 0 and not parting.has_unlike_inputs and parting.function is None


def test_equal_products_do_not_hide_a_function_that_parts_behind_them():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(128, 128, bias=False), torch.nn.LayerNorm(128))
    model = torch.nn.Sequential(*layers)
    x = torch.eye(128)  # sums of one product: no order
    parting = hwsim.torch.diff(model, x, "h100", "mi300x", **LIBRARY)
    assert parting.first is None and not parting.is_equal
    assert parting.function.name == "layer_norm" and "between products layer_norm (layer 1)" in parting.verdict
    with pytest.raises(hwsim.UnsupportedError, match="no product parts"):
        parting.explain()
    assert hwsim.torch.diff(model, x, "h100", "h200", **LIBRARY).is_equal


def test_compare_says_which_functions_the_sides_computed_unlike(model):
    answer = hwsim.torch.compare(model, TOKENS, "h100", "mi300x", "plain", **LIBRARY)
    said = [[remark for remark in side.remarks if remark.startswith("not alike")] for side in answer.sides]
    assert said[0] == said[2] == []
    assert said[1] == [
        "not alike: layer_norm by this CPU here, as the chip's kernel with h100; "
        "this computer's bits are in the distance"
    ]
    alike = hwsim.torch.compare(model, TOKENS, "h100", "h200", **LIBRARY)
    assert "not alike" not in str(alike)


def line_of(run):
    return [line for line in run.report().splitlines() if line.startswith("computed by this CPU")]


def test_the_report_names_what_this_cpu_computed():
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    model = torch.nn.Sequential(*layers, torch.nn.AvgPool2d(2)).eval()
    x = torch.randn(2, 8, 8, 8)
    with hwsim.torch.emulate(device="h100", **LIBRARY) as run, torch.no_grad():
        model(x)
    assert line_of(run) == [
        "computed by this CPU: avg_pool2d, batch_norm (a chip's kernels may have other bits); "
        "max_pool2d_with_indices, relu (the same bits on all chips)"
    ]
    here = run.to_dict()["computed_here"]
    assert here["may_differ"] == {"batch_norm": 1, "avg_pool2d": 1}


def test_a_function_of_the_chip_s_kernel_is_not_this_cpu_s(model):
    with hwsim.torch.emulate(device="h100", **LIBRARY) as run, torch.no_grad():
        model(TOKENS)
    assert line_of(run) == ["computed by this CPU: embedding (the same bits on all chips)"]
    with hwsim.torch.emulate(device="h100") as run, torch.no_grad():
        model(TOKENS)
    assert "layer_norm (a chip's kernels may have other bits)" in line_of(run)[0]


class Averaged(torch.nn.Module):
    """A convolution with batch norm, then functions that a library has a kernel for."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8))
        self.norm = torch.nn.LayerNorm(36)

    def forward(self, x):
        return self.norm(self.body(x).flatten(2)).softmax(-1).mean(-1)


def here_of(model, x, modules):
    torch._dynamo.reset()
    with torch.no_grad(), hwsim.torch.emulate(device="h100", **LIBRARY, modules=modules) as run:
        model(x)
    return run.to_dict()["computed_here"]["may_differ"], line_of(run)


@pytest.mark.parametrize("pattern", ["*", ""])
def test_what_plain_modules_leave_to_this_cpu_is_named_eager_and_compiled_alike(pattern):
    torch.manual_seed(0)
    model, x = Averaged().eval(), torch.randn(2, 4, 8, 8)
    here, line = here_of(model, x, {pattern: "plain"})
    norm = {"layer_norm": 1} if pattern else {}  # "" is the root alone
    assert here == {"batch_norm": 1, "softmax": 1, "mean": 1, **norm}
    assert here_of(torch.compile(model, backend="aot_eager"), x, {pattern: "plain"}) == (here, line)


def test_products_alone_have_no_such_line():
    x = torch.ones(4, 4)
    with hwsim.torch.emulate(device="h100", **LIBRARY) as run:
        (x @ x).reshape(16).unflatten(0, (2, 8)).clone()
    assert line_of(run) == []


@pytest.mark.parametrize(
    ("name", "operator", "rest", "same"),
    [
        ("relu", ATEN.relu_.default, (), True),
        ("softmax", ATEN._softmax.default, (), False),
        ("batch_norm", ATEN.native_batch_norm.default, (), False),
        ("batch_norm", ATEN._native_batch_norm_legit_no_training.default, (), False),
        ("pow", ATEN.pow.Tensor_Scalar, (2,), True),
        ("pow", ATEN.pow.Tensor_Scalar, (3,), False),
        ("add", ATEN.add.Tensor, (1,), True),
        ("add", ATEN._foreach_add.List, (1,), True),
        ("add", ATEN.add.Scalar, (0.3, 0.7), False),
        ("rsub", ATEN.rsub.Scalar, (0.3, 0.7), False),
        ("randn", ATEN.randn.default, (), False),
        ("uniform", ATEN.uniform_.default, (), False),
        ("linspace", ATEN.linspace.default, (1.0, 4), False),
        ("", ATEN.view.default, (), True),
        ("", ATEN.clone.default, (), True),
    ],
)
def test_names_and_bits_of_operators(name, operator, rest, same):
    assert shown_name(operator) == name
    assert not name or has_same_bits(name, (torch.ones(1), *rest), {}) == same


ROWS, PLACES = torch.ones(4, 2), torch.tensor([0, 0, 2])


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x.index_put((PLACES,), torch.ones(3, 2), accumulate=True), "index_put that adds"),
        (lambda x: x.index_put_((PLACES,), torch.ones(3, 2), True), "index_put that adds"),
        (lambda x: x.scatter(0, PLACES[:, None], torch.ones(3, 1), reduce="add"), "scatter that reduces"),
        (lambda x: x.scatter_(0, PLACES[:, None], 0.1, reduce="multiply"), "scatter that reduces"),
        (lambda x: x.scatter_add(0, PLACES[:, None], torch.ones(3, 1)), "scatter_add"),
        (lambda x: ATEN._unsafe_index_put(x, (PLACES,), torch.ones(3, 2), True), "index_put that adds"),
        (lambda x: x.index_put((PLACES,), torch.ones(3, 2)), ""),
        (lambda x: ATEN._unsafe_index_put(x, (PLACES,), torch.ones(3, 2)), ""),
        (lambda x: x.scatter(0, PLACES[:, None], torch.ones(3, 1)), ""),
        (lambda x: x.scatter_(0, PLACES[:, None], 0.1), ""),
    ],
)
@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_a_move_that_adds_is_a_sum_of_this_cpu(function, name):
    with hwsim.torch.emulate(device="h100", **LIBRARY) as run:
        function(ROWS.clone())
    assert run.to_dict()["computed_here"] == {"may_differ": {name: 1} if name else {}, "same_bits": {}}


def test_the_gradient_of_rows_that_are_picked_is_a_sum():
    x = ROWS.clone().requires_grad_()
    with hwsim.torch.emulate(device="h100", **LIBRARY) as run:
        (x[PLACES] @ torch.ones(2, 2)).backward(torch.ones(3, 2))
    assert "index_put that adds" in run.to_dict()["computed_here"]["may_differ"]


def test_a_multiple_that_is_added_may_be_fused():
    assert not has_same_bits("add", (torch.ones(1), torch.ones(1)), {"alpha": 0.1})


def test_a_function_of_a_layer_with_a_device_of_its_own_names_this_device(model):
    """MI300X has no kernel of a layer norm that is followed; the layer's H200 has one."""
    outer = {"device": "mi300x", "library": "pytorch"}
    norm = {"norm": {"device": "h200", "library": "pytorch"}}
    parting = hwsim.torch.diff(model, TOKENS, {**outer, "modules": norm}, outer)
    assert parting.function.name == "layer_norm" and parting.function.sides == ("as h200's kernel", "by this CPU")


def test_digests_are_of_all_numbers():
    first, second = np.zeros(4000, np.float32), np.zeros(4000, np.float32)
    second[2000] = 1
    assert digest_of((first, 1)) != digest_of((second, 1)) and digest_of((first, 1)) == digest_of((first.copy(), 1))
    layer = torch.nn.Linear(4, 4)
    layer.register_buffer("kept", torch.zeros(4), persistent=False)
    x, sides = torch.ones(1, 4), ("h100", "a100")
    before = hwsim.torch.compare(layer, x, *sides).to_dict()["weights"]
    layer.kept[0] = 1
    assert hwsim.torch.compare(layer, x, *sides).to_dict()["weights"] != before
