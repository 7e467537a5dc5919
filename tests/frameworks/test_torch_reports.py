"""What hwsim.torch says of a model's products: the record against numbers by hand, and where two ways part."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.errors import InputError, UnsupportedError  # noqa: E402
from hwsim.frameworks.torch.tensors import array_of  # noqa: E402

ONES = torch.ones(2, 1)


def drawn(seed, *shape, spread=4):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)).float()


def test_errors_and_distances_by_hand():
    """fp16 of 1 + 2^-12 is 1, and of 2^-30 is 0; fp32 sums of both keep the first alone; fp64 has both."""
    small, smaller = 2.0**-12, 2.0**-30
    with hwsim.torch.emulate(device="h200", format="fp16", measure_every=1, timing=True) as run:
        got = torch.tensor([[1 + small, smaller]]) @ ONES
        assert got.item() == 1
        torch.tensor([[1.0, 0.0]]) @ ONES  # no error at all
        torch.tensor([[0.0, 0.0]]) @ ONES  # nothing to divide by: neither measured nor compared
    entry = run.record.layers["", "matmul", "forward"]
    exact = 1 + small + smaller
    assert (entry.calls, entry.measured, entry.compared, entry.overflows, entry.macs) == (3, 2, 2, 0, 6)
    assert entry.error == pytest.approx((small + smaller) / exact / math.sqrt(2), rel=1e-12)
    assert entry.largest_error == pytest.approx((small + smaller) / exact, rel=1e-12)
    assert entry.plain_error == pytest.approx(smaller / exact / math.sqrt(2), rel=1e-12)
    assert entry.distance == pytest.approx(small / (1 + small) / math.sqrt(2), rel=1e-12)
    (layer,), total = run.to_dict()["layers"], run.to_dict()["total"]
    assert layer["distance"] == total["distance"] == entry.distance and layer["cycles"] == entry.cycles > 0
    title, line, last, _ = run.record.text().splitlines()
    verdict = "100.0 % of this model's MACs were simulated, in hwsim's own order (no library asked); "
    verdict += "weakest evidence of the bits: assumption"
    assert run.report().splitlines()[0] == str(run.verdict) == run.to_dict()["verdict"]["text"] == verdict
    names = ["layer", "operation", "pass", "calls", "MMAC", "error", "PyTorch's", "distance", "overflows", "cycles"]
    assert title.split()[:10] == names
    assert line.split()[5:8] == [f"{x:.2e}" for x in (entry.error, entry.plain_error, entry.distance)]
    assert line.split()[9] == str(entry.cycles) and last.split()[0] == "all"


def test_elements_that_overflow_are_counted_and_have_no_distance():
    """70,000 is infinite in fp16; the other row, 3 + 2^-11 there 3, is compared."""
    a = torch.tensor([[70000.0, 0.0], [3 + 2.0**-11, 0.0]])
    with hwsim.torch.emulate(device="h200", format="fp16", measure_every=1) as run:
        got = a @ ONES
    assert torch.isinf(got[0]) and got[1] == 3
    entry = run.record.layers["", "matmul", "forward"]
    assert entry.overflows == 1 and entry.plain_error == 0
    assert entry.distance == pytest.approx(2.0**-11 / (3 + 2.0**-11), rel=1e-12)
    assert entry.error == pytest.approx(2.0**-11 / math.hypot(70000, 3 + 2.0**-11), rel=1e-12)


def test_plain_products_that_overflow_are_not_compared():
    """bf16 has a larger range than fp16: the device's sum is finite where PyTorch's fp16 result is not."""
    a = torch.tensor([[256.0, 256.0]], dtype=torch.float16)
    with hwsim.torch.emulate(device="h200", format="fp16", measure_every=1) as run:
        got = a @ a.t()
    assert torch.isinf(got).all()
    entry = run.record.layers["", "matmul", "forward"]
    assert (entry.overflows, entry.compared, entry.distance, entry.plain_error) == (1, 0, None, 0)
    assert run.record.text().splitlines()[1].split()[7] == "-"


def test_totals_are_sums_over_layers():
    model = torch.nn.Sequential(torch.nn.Linear(24, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with hwsim.torch.emulate(device="h200", format="bf16", measure_every=1, timing=True) as run:
        model(drawn(1, 8, 24)).sum().backward()
    layers, total = list(run.record.layers.values()), run.record.total()
    assert total.seconds == pytest.approx(sum(layer.seconds for layer in layers))  # Python 3.12 adds floats otherwise
    for name in ("calls", "macs", "cycles", "measured", "overflows", "compared"):
        assert getattr(total, name) == sum(getattr(layer, name) for layer in layers)
    squares = sum(layer.distance**2 * layer.compared for layer in layers)
    assert total.distance == pytest.approx(math.sqrt(squares / total.compared))
    assert total.largest_error == max(layer.largest_error for layer in layers)


PARTED = {  # two ways of computing: left, right, of both; sizes of the first layer
    "schemes": ({"scheme": "bf16x9"}, {"scheme": "tf32x3"}, {"device": "b200"}, (96, 64)),
    "a scheme and a format": ({"scheme": "bf16x9"}, {"format": "tf32"}, {"device": "b200"}, (96, 64)),
    "schemes of two chips": (
        {"device": "ascend910a", "scheme": "sgemm-cube"},
        {"device": "b200", "scheme": "bf16x9"},
        {},
        (96, 64),
    ),
    "formats of results": ({"scheme": "ozaki-int8", "slices": 3}, {"format": "tf32"}, {"device": "h200"}, (96, 64)),
    "a library and none": ({"library": "cublas"}, {}, {"device": "h200", "format": "tf32"}, (2048, 72)),
    "libraries on two chips": ("h200", "a100", {"library": "cublas", "format": "tf32"}, (2048, 72)),
    "sums": ({"k_group": 32}, {}, {"device": "h200", "format": "bf16"}, (96, 64)),
    "schedules": ({"schedule": {"split_k": 3}}, {}, {"device": "h200", "format": "bf16"}, (96, 64)),
    "accumulators of fp8": (
        {"accumulate": "fast"},
        {"accumulate": "promoted"},
        {"device": "h200", "format": "e4m3", "scale": "power-of-two"},
        (512, 64),
    ),
    "chips of scaled fp8": ("h200", "b200", {"format": "e4m3", "scale": "power-of-two"}, (512, 64)),
}


@pytest.mark.parametrize("name", PARTED)
def test_diff_of_schemes_and_libraries(name):
    left, right, common, (k, n) = PARTED[name]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(k, n, bias=False), torch.nn.Tanh(), torch.nn.Linear(n, 8))
    x = drawn(4, 16, k)
    found = hwsim.torch.diff(model, x, left, right, **common)
    assert not found.is_equal and found.first == 0 and found.steps[0].layer == "0" and found.steps[0].differing
    i, j = found.element
    sides = [{"device": side} if isinstance(side, str) else side for side in (left, right)]
    values = []
    for side in sides:  # the layer by itself, on that side
        with hwsim.torch.emulate(**common, **side), torch.no_grad():
            values.append(model[0](x)[i, j].item())
    assert values[0] != values[1] and found.values == tuple(values)
    explained = found.explain()
    errors, step = explained.errors, explained.step
    if "scale" in common:  # the explained sums are of scaled operands
        assert len({value / element for value, element in zip(_of_codes(errors), values, strict=True)}) == 1
    else:
        assert _of_codes(errors) == tuple(values)
    assert step is not None and 0 <= step.k_first < step.k_end <= k and step.left_code != step.right_code
    assert f"first differs at k = {step.k_first}" in explained.to_text()


def _of_codes(errors):
    return tuple(float(np.uint32(int(code, 16)).view(np.float32)) for code in (errors.left_code, errors.right_code))


def test_an_element_of_a_kernel_that_sums_regions_unlike():
    """Here several CTAs share tiles: each region has an order of its own."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(8192, 600, bias=False), drawn(5, 300, 8192)
    given = {"device": "h200", "format": "tf32"}
    found = hwsim.torch.diff(layer, x, {"library": "cublas"}, {}, **given)
    w = layer.weight.detach().t()
    whole = hwsim.run(array_of(x), array_of(w), **given, library="cublas", b_layout="columns", timing=False)
    assert whole.gemm.schedule.regions
    assert found.values[0] == whole.c[found.element] and _of_codes(found.explain().errors) == found.values


def test_operands_of_a_kernel_that_multiplies_wider_ones_are_explained_as_it_takes_them():
    """A matrix-vector product of bf16 is an fp32 chain over rounded operands."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(70, 3, bias=False), drawn(5, 1, 70)
    found = hwsim.torch.diff(layer, x, {"library": "cublas"}, {}, device="h200", format="bf16")
    assert not found.is_equal and _of_codes(found.explain().errors) == found.values


def test_a_bias_does_not_hide_where_sums_part():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(2048, 72), drawn(4, 16, 2048)
    with torch.no_grad():
        layer.bias.mul_(1000)
    found = hwsim.torch.diff(layer, x, {"library": "cublas"}, {}, device="h200", format="tf32")
    assert not found.is_equal and found.explain().step is not None


def test_what_a_row_and_a_column_do_not_explain_is_refused():
    layer, x = torch.nn.Linear(512, 64), drawn(4, 16, 512)
    found = hwsim.torch.diff(layer, x, {"scheme": "ape"}, {"format": "fp32"}, device="h200")
    with pytest.raises(UnsupportedError, match="scheme ape does to a row follows from the whole matrices"):
        found.explain()
    found = hwsim.torch.diff(layer, x, {"scale": "power-of-two"}, {}, device="h200", format="e4m3")
    with pytest.raises(UnsupportedError, match="unlike powers of two"):
        found.explain()
    with pytest.raises(InputError, match="unlike products"):
        hwsim.torch.diff(layer, x, {"modules": {"*": "plain"}, "forward": "plain"}, {}, device="h200", format="bf16")


def test_scaled_stacks_are_explained_with_the_exponents_of_the_whole():
    a, b = drawn(1, 3, 16, 512), drawn(2, 3, 512, 8)
    given = {"device": "h200", "format": "e4m3", "scale": "power-of-two"}
    found = hwsim.torch.diff(torch.bmm, (a, b), {"accumulate": "fast"}, {"accumulate": "promoted"}, **given)
    assert len(found.element) == 3 and found.row.shape == (1, 512) and found.column.shape == (512, 1)
    values = _of_codes(found.explain().errors)
    assert values[0] / found.values[0] == values[1] / found.values[1]


@pytest.mark.parametrize("device", ["a100", "h100", "mi300x"])
@pytest.mark.parametrize("groups", [1, 2])
def test_errors_of_a_convolution_are_those_of_what_it_returns(device, groups):
    """A bias that PyTorch adds to the rounded result is in them. All rows and columns are measured."""
    x, w, bias = drawn(1, 1, 4, 4, 4, spread=1).bfloat16(), drawn(2, 8, 4 // groups, 3, 3).bfloat16(), drawn(3, 8)
    bias = bias.bfloat16()
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=1) as run:
        got = torch.nn.functional.conv2d(x, w, bias, groups=groups).double()
    exact = torch.nn.functional.conv2d(x.double(), w.double(), bias.double(), groups=groups)
    entry = run.record.layers["", "convolution", "forward"]
    assert entry.error == pytest.approx(float((got - exact).norm() / exact.norm()), rel=1e-9)
    assert entry.distance > 0 and entry.error > entry.plain_error


def test_equal_bits_of_a_convolution_have_equal_lines():
    """K runs over channels first on one chip and last on another; small integers make all orders alike."""
    rng = np.random.default_rng(0)
    x, w = (torch.from_numpy(rng.integers(-3, 4, shape)).bfloat16() for shape in ((2, 16, 9, 9), (8, 16, 3, 3)))
    x, lines, results = x / 3, set(), []
    for device in ("h100", "a100", "mi300x"):
        leaf = x.clone().requires_grad_()
        with hwsim.torch.emulate(device=device, library="pytorch", measure_every=1) as run:
            y = torch.nn.functional.conv2d(leaf, w, torch.ones(8).bfloat16(), padding=1)
            y.backward(torch.ones_like(y))
        rows = run.to_dict()["layers"]
        rows = [row for row in rows if row["pass"] != "backward_weight"]
        lines.add(tuple((row["pass"], row["error"], row["plain_error"], row["distance"]) for row in rows))
        results.append(torch.cat([y.detach().flatten(), leaf.grad.flatten()]))
    assert all(torch.equal(result, results[0]) for result in results)
    assert len(lines) == 1 and len(next(iter(lines))) == 2


def test_a_report_of_products_with_scales_says_what_their_errors_leave_out():
    a = torch.randn(16, 32).to(torch.float8_e4m3fn)
    one = torch.ones(())
    with hwsim.torch.emulate(device="h100", library="pytorch") as run:
        torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16)
    assert "what quantisation loses before is not in them" in run.report()
    with hwsim.torch.emulate(device="h100", library="pytorch") as run:
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert "quantisation" not in run.report()


def test_a_kernel_with_empty_slices_names_the_ones_that_hold_work():
    """K = 10 has two vectors of eight elements; cuBLAS asks for 132 slices."""
    with hwsim.torch.emulate(device="h100", library="pytorch") as run:
        torch.ones(8, 10).bfloat16() @ torch.ones(10, 64).bfloat16()
    assert "K in 2 slices: 1 call" in run.report()


def test_batches_print_the_switches():
    layer = torch.nn.Linear(64, 8).bfloat16()
    answer = str(hwsim.torch.invariance(layer, torch.ones(1, 64).bfloat16(), [1, 2], device="h100", library="pytorch"))
    assert (
        "\nPyTorch's switches: reductions of fp16 any" in answer
        and "rows: of the product with a batch of one" in answer
    )


def test_assumed_orders_name_their_format_and_layers():
    """Two layers whose kernels' order is not known, in the format in which they are computed."""
    layers = [torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(2)]
    model, x = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]), torch.randn(1, 4, 8, 8)
    with torch.no_grad(), hwsim.torch.emulate(device="mi300x", library="pytorch", format="fp16") as run:
        model(x)
    assert "order not known: convolution of fp16, 2 products, 100.0 % of the MACs (0, 2)" in run.report()
    assert "least probability" not in str(run.verdict) and "not predicted" in str(run.verdict)


def test_settings_print_as_a_line():
    with hwsim.torch.emulate(device="h100", format="bf16") as run:
        pass
    assert str(run.settings).startswith("<h100 ") and len(str(run.settings)) < 400
