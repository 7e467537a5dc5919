"""What reports of models say of their grounds and gaps; outputs on several devices; batch sizes with equal bits."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name
from torch_cases import H200, drawn, network  # noqa: E402

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402

PYTORCH = {"device": "h100", "library": "pytorch"}


class Conv1D(torch.nn.Module):
    """A linear layer of somebody's own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(drawn(1, 8, 4))

    def forward(self, x):
        return x @ self.weight


def test_the_report_says_how_much_was_simulated():
    x = drawn(1, 6, 8)
    with hwsim.torch.emulate(**H200, progress=False) as run:
        x @ drawn(2, 8, 4)  # 192 multiply-accumulates
        torch.addmm(drawn(3, 6, 4), x, drawn(2, 8, 4), out=torch.empty(6, 4))
        torch.linalg.inv(drawn(4, 3, 3))
    assert run.record.computed_share == 0.5 and run.record.uncounted == ["linalg_inv_ex of float32"]
    lines = run.report().splitlines()
    assert "not caught: addmm of float32, 1 call, 50.0 % of the MACs" in lines
    first = "50.0 % of this model's MACs were simulated, not counting linalg_inv_ex of float32, "
    first += "in hwsim's own order (no library asked); 2 calls not simulated "
    assert lines[0].startswith(f"{first}(addmm of float32, linalg_inv_ex of float32); weakest evidence of the bits: ")
    data = json.loads(json.dumps(run.to_dict()))
    assert data["computed_share"] == 0.5 and data["macs_not_caught"] == {"addmm of float32": 192}


def test_what_stands_for_another_kernel_is_not_simulated():
    query = drawn(1, 1, 2, 16, 64).bfloat16()
    weight = drawn(2, 64, 64).bfloat16()
    with hwsim.torch.emulate(device="b200", library="pytorch") as run:
        F.scaled_dot_product_attention(query @ weight, query, query)
    products, attention = 2 * 16 * 64 * 64, 2 * 2 * 16 * 16 * 64
    share = attention / (products + attention)
    assert run.record.computed_share == 1 and run.record.library_share == pytest.approx(1 - share)
    sure = run.record.total().least_confidence  # of the only product in a known order
    assert run.record.weighed_library_share == pytest.approx((1 - share) * sure)
    shares = f"100.0 % of this model's MACs were simulated: {100 - 100 * share:.1f} % in the library's known order "
    shares += (
        f"if each kernel is the one that it takes ({100 * (1 - share) * sure:.1f} % weighed by that probability), "
    )
    assert str(run.verdict).startswith(f"{shares}{100 * share:.1f} % in an assumed one; 2 products in another order")
    name = "CUDNN_ATTENTION of bf16, in the unit's own order"
    assert f"kernel not known: {name}, 2 products, {100 * share:.1f} % of the MACs" in run.report()
    assert f"2 products in another order than there ({name})" in str(run.verdict) and not run.verdict.not_caught
    assert not run.record.macs_not_caught


def test_the_report_has_evidence_and_the_least_confidence():
    x, w = drawn(1, 7, 512).bfloat16(), drawn(2, 512, 51865).bfloat16()
    with hwsim.torch.emulate(**PYTORCH, measure_every=0) as run:
        x @ w
        x @ w[:, :64].contiguous()
    entry = run.record.total()
    each = [
        hwsim.library("pytorch", device="h100").choose(m=7, n=n, k=512, format="bf16", output="bf16").confidence
        for n in (51865, 64)
    ]
    assert entry.least_confidence == pytest.approx(min(each)) and entry.evidence
    assert f"weakest evidence of the bits: {entry.evidence}" in run.report()
    assert (min(each) < 1) == ("least probability that a kernel is the library's" in run.report())
    assert run.verdict.least_confidence == entry.least_confidence


def test_shares_in_a_known_and_in_an_assumed_order_are_of_all_products():
    """Of eight equal products two are in the library's order, two in another one, and PyTorch computes four."""
    x, w = drawn(1, 7, 512).bfloat16(), drawn(2, 512, 64).bfloat16()
    macs = 7 * 512 * 64
    with hwsim.torch.emulate(**PYTORCH, measure_every=0) as run:
        for _ in range(4):
            x @ w
        run.record.unordered("linear of bfloat16", macs)
        run.record.left_out("CUDNN_ATTENTION of bf16", macs)
        run.record.passed_on("bmm of bfloat16", 4 * macs)
    assert (run.verdict.computed, run.verdict.in_order) == (0.5, 0.25)
    said, caught = run.to_dict(), {"bmm of bfloat16": 1}
    assert run.not_caught == said["not_caught"] == said["verdict"]["not_caught"] == caught
    assert said["substituted"] == said["verdict"]["substituted"] == {"CUDNN_ATTENTION of bf16": 1}
    shares = "50.0 % of this model's MACs were simulated: 25.0 % in the library's known order, 25.0 % in an assumed one"
    assert str(run.verdict).startswith(shares)


def test_attention_that_is_not_caught_is_said_with_what_catches_it():
    query = drawn(1, 1, 2, 16, 64)
    with hwsim.torch.emulate(device="h200") as run:
        run.record.passed_on("_scaled_dot_product_flash_attention_for_cpu of float32", 2 * 16 * 16 * 64)
        query @ query.mT
    first = run.report().splitlines()[0]
    assert "1 call not simulated (_scaled_dot_product_flash_attention_for_cpu of float32)" in first
    assert first.endswith("use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)")


def test_swap_names_modules_that_it_leaves_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), Conv1D(), torch.nn.LayerNorm(4), torch.nn.Embedding(3, 4))
    run = hwsim.torch.swap(model, **H200)
    kind = f"{__name__.partition('.')[0]}'s Conv1D"
    assert run.record.not_swapped == {kind: ["1"]} and f"not swapped: 1 of {kind} (1)" in run.report()


def test_diff_takes_keyword_arguments_and_says_its_grounds():
    layer = torch.nn.Linear(512, 8)

    def model(*, pixels, scale):
        torch.linalg.inv(torch.eye(2))
        return layer(pixels) * scale

    inputs = {"pixels": drawn(1, 5, 512), "scale": 2.0}
    answer = hwsim.torch.diff(model, inputs, "h200", "mi300x", format="bf16")
    assert not answer.is_equal and answer.steps[0].evidence
    first = str(answer).splitlines()[0]
    assert first.startswith("they part at product 1 of 1 (") and first.endswith(
        "evidence of the units' arithmetic: silicon | assumption"
    )
    assert "h200 adds 16 products and the accumulator at once" in first and "mi300x adds 8 products" in first
    assert "not caught: linalg_inv_ex of float32, 1 call" in str(answer)
    assert "100.0 % of this model's MACs were simulated, not counting linalg_inv_ex" in str(answer)


def test_compare_by_hand(tmp_path):
    model, x = network(), drawn(3, 6, 16)
    comparison = hwsim.torch.compare(model, x, "h200", {"device": "mi300x", "format": "fp16"}, "plain", format="bf16")
    outputs = []
    for more in ({"device": "h200", "format": "bf16"}, {"device": "mi300x", "format": "fp16"}):
        with hwsim.torch.emulate(**more), torch.no_grad():
            outputs.append(model(x).double())
    first, other = outputs
    pair = comparison.pairs[0]
    assert [p.left + p.right for p in comparison.pairs] == ["h200mi300x fp16", "h200plain", "mi300x fp16plain"]
    assert pair.distance == pytest.approx(float((other - first).norm() / first.norm()))
    kl = F.kl_div(other.log_softmax(-1), first.log_softmax(-1), log_target=True, reduction="none").sum(-1)
    assert pair.divergence == pytest.approx(float(kl.mean())) and pair.largest_divergence == pytest.approx(
        float(kl.max())
    )
    assert pair.flips == int((first.argmax(-1) != other.argmax(-1)).sum()) and pair.positions == 6
    comparison.write(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "h200 and mi300x fp16" in page and f"{pair.distance:.2e}" in page
    assert json.loads(json.dumps(comparison.to_dict()))["pairs"][0]["flips"] == pair.flips
    with pytest.raises(hwsim.InputError, match="1 sides; allowed: at least two"):
        hwsim.torch.compare(model, x, "h200")
    with pytest.raises(hwsim.InputError, match="the model gives dict; allowed: a tensor"):
        hwsim.torch.compare(lambda x: {"y": x}, x, "h200", "plain")


def test_flips_are_counted():
    x = torch.tensor([[1.0, 1.0 + 2.0**-9], [1.0, 0.0]])  # bf16 rounds both to 1, and the first of equals is taken
    comparison = hwsim.torch.compare(
        lambda x: x @ torch.eye(2), x, {"format": "bf16"}, {"format": "fp32"}, device="h200"
    )
    assert (comparison.pairs[0].flips, comparison.pairs[0].positions) == (1, 2)


def test_batch_sizes_with_equal_bits_layer_by_layer():
    """Each layer's classes are those that its own products have, although the layers before differ."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4096, 512), torch.nn.ReLU(), torch.nn.Linear(512, 4096)).bfloat16()
    x, batches = drawn(1, 1, 4096).bfloat16(), (1, 64, 128, 512)
    answer = hwsim.torch.invariance(model, x, batches, **PYTORCH)
    assert [(layer.layer, layer.operation, layer.rows) for layer in answer.layers] == [
        ("0", "linear", 1),
        ("2", "linear", 1),
    ]
    for layer, (n, k) in zip(answer.layers, ((512, 4096), (4096, 512)), strict=True):
        labels = hwsim.invariance(
            n=n, k=k, m=batches, b_layout="columns", bias=True, format="bf16", output="bf16", **PYTORCH
        )
        by_label = {}
        for batch, label in zip(batches, labels, strict=True):
            by_label.setdefault(label, []).append(batch)
        assert layer.classes == tuple(map(tuple, by_label.values()))
        assert not layer.operands_differ
    assert not answer.is_invariant
    assert "batch sizes with equal bits in all 2 products" in str(answer)
    assert all(", K in " in kernel for layer in answer.layers for kernel in layer.kernels.values())
    cure = "What to do for equal bits:\n  pad each batch to 512, and drop the samples added"
    assert str(answer).endswith(cure)
    without = hwsim.torch.invariance(model, x, batches, device="h100")
    assert without.is_invariant and without.classes == (batches,) and "What to do" not in str(without)


def test_classes_are_of_orders_where_a_sample_has_equal_bits_all_the_same():
    """K is cut into 3 slices, and then into 2: of most samples bf16 rounds the difference away, of zeros always."""
    layer, batches = torch.nn.Linear(4096, 256, bias=False).bfloat16(), (64, 150)
    answer = hwsim.torch.invariance(layer, torch.zeros(1, 4096).bfloat16(), batches, **PYTORCH)
    (product,) = answer.layers
    call = {"n": 256, "k": 4096, "b_layout": "columns", "format": "bf16", "output": "bf16"}
    assert len(set(hwsim.invariance(m=batches, **call, **PYTORCH))) == 2 and product.classes == ((64,), (150,))
    for m in batches:
        choice = hwsim.library("pytorch", device="h100").choose(m=m, **call)
        assert product.kernels[m] == f"{choice.kernel}, K in {choice.split_k} slices"
    assert answer.is_invariant is False and "batch sizes with equal bits in the product: 64 | 150" in str(answer)


def test_where_a_librarys_order_is_not_known_nothing_is_claimed():
    layer, x = torch.nn.Linear(64, 8, bias=False).bfloat16(), drawn(1, 1, 64).bfloat16()
    unknown = {"device": "mi300x", "library": "pytorch"}
    answer = hwsim.torch.invariance(layer, x, [1, 2, 3], **unknown)
    assert answer.is_invariant is None and answer.layers[0].is_invariant is None
    assert answer.classes == ((1,), (2,), (3,)) and answer.layers[0].unknown == (1, 2, 3)
    assert "order not known in 1 product" in str(answer)
    parting = hwsim.torch.diff(layer, x, unknown, {"device": "h100"})
    assert parting.unknown_orders == (1, 0) and "order not known of 1 product left" in parting.verdict
    with hwsim.torch.emulate(**unknown) as run:
        layer(x)
    assert (
        run.record.computed_share == 1
        and run.record.library_share == 0
        and run.verdict.unknown_orders == {"linear of bf16": 1}
    )
    assert "order not known: linear of bf16, 1 product, 100.0 % of the MACs" in run.report()
    assert "1 product by a kernel whose order is not known" in str(run.verdict) and not run.not_caught
    known = hwsim.torch.invariance(layer, x, [1, 2, 3], device="mi300x")
    assert known.is_invariant and "in the product: 1..3" in str(known)


def test_stacks_and_several_rows_a_sample_are_followed():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    answer = hwsim.torch.invariance(layer, drawn(1, 2, 5, 32), [1, 2, 3], **H200)
    assert answer.is_invariant and {layer.rows for layer in answer.layers} == {5, 20}
    last = torch.nn.TransformerEncoderLayer(32, 4, 64).eval()  # the batch is its second dimension
    swapped = hwsim.torch.invariance(lambda x: last(x.transpose(0, 1)), drawn(1, 2, 5, 32), [2, 3], **H200)
    assert swapped.is_invariant and swapped.batches == (2, 3) and swapped.classes == ((2, 3),)
    with pytest.raises(hwsim.InputError, match="its first dimension must count samples"):
        hwsim.torch.invariance(lambda x: torch.ones(3, 4) @ x.t(), drawn(1, 1, 4), [1, 2], **H200)
    with pytest.raises(hwsim.InputError, match=r"batches = .*; allowed: integers of at least 1"):
        hwsim.torch.invariance(layer, drawn(1, 2, 5, 32), [0], **H200)


def test_a_product_that_all_samples_share_is_followed_whole():
    angles, layer = drawn(2, 1, 6, 1), torch.nn.Linear(8, 8)

    def model(x):
        return layer(x) + (angles @ torch.ones(1, 1, 8)).to(x.dtype)

    answer = hwsim.torch.invariance(model, drawn(1, 1, 6, 8), [1, 3], **H200)
    assert [product.classes for product in answer.layers] == [((1, 3),)] * 2
    assert not any(product.operands_differ for product in answer.layers)


def test_products_are_counted_on_a_terminal(monkeypatch):
    told = []

    class Bar:
        def __init__(self, **options):
            assert options["delay"] == 2.0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            told.append("end")

        def update(self, macs):
            told.append(macs)

    from hwsim.frameworks.torch import progress

    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    for is_wanted in (False, True):
        with hwsim.torch.emulate(**H200, progress=is_wanted):
            drawn(1, 3, 8) @ drawn(2, 8, 4)
    assert told == [96, "end"]


def test_times_are_in_microseconds_and_said_to_be_of_products_alone():
    with hwsim.torch.emulate(**H200, timing=True) as run:
        drawn(1, 64, 64) @ drawn(2, 64, 64)
    report, entry = run.report(), run.record.total()
    table = report.partition("\n\n")[2].splitlines()
    titles, row = table[0].split(), table[1].split()
    assert titles[-2:] == ["cycles", "us"] and row[-2:] == [str(entry.cycles), f"{entry.seconds * 1e6:,.2f}"]
    assert entry.seconds > 0 and "of the products and fused attention alone; softmax" in report


def test_a_library_that_is_not_known_is_said_beside_what_was_computed(tmp_path):
    layer, x = torch.nn.Linear(64, 8, bias=False).bfloat16(), drawn(1, 4, 64).bfloat16()
    answer = hwsim.torch.compare(layer, x, "h100", "mi300x", library="pytorch")
    known, unknown = answer.sides
    assert known.is_predicted and not unknown.is_predicted
    whole = "100.0 % of this model's MACs were simulated"
    assert known.remarks[0].startswith(f"{whole}: 100.0 % in the library's known order")
    said = f"{whole}: 0.0 % in the library's known order, 100.0 % in an assumed one; not "
    assert unknown.remarks[0].startswith(f"{said}predicted for this chip's library")
    answer.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "h100 and mi300x (mi300x: not predicted for this chip's library)" in text.replace("&#x27;", "'")
    unasked = hwsim.torch.compare(layer, x, "h100", "mi300x")
    assert all(side.is_predicted and "no library asked" in side.remarks[0] for side in unasked.sides)


def test_a_line_of_each_layer_has_its_probability_and_all_its_kernels():
    layer, x = torch.nn.Linear(512, 256, bias=False).bfloat16(), drawn(1, 16, 512).bfloat16()
    answer = hwsim.torch.invariance(layer, x, [1, 2, 40], device="h100", library="pytorch")
    (product,) = answer.layers
    line = next(line for line in str(answer).splitlines() if line.startswith("- "))
    assert set(product.confidences) == {1, 2, 40} and len(set(product.kernels.values())) > 1
    assert f"right with a probability of {min(product.confidences.values()):.2f} at least" in line
    assert all(kernel in line for kernel in product.kernels.values()) and "1..2" not in str(answer)
    sliced = hwsim.torch.invariance(layer, x, [1, 4], device="h100", split_k=3)
    assert set(sliced.layers[0].kernels.values()) == {"3 slices of K of 192, the last of 128"}
    plain = str(hwsim.torch.invariance(layer, x, [1, 4], device="h100"))
    assert "probability" not in plain and plain.count("K in one piece") == 0 and "one chain in order of K" in plain


def test_a_saved_comparison_is_checked_by_another(tmp_path):
    """Someone else runs the model again; what is not as it was is named."""
    torch.manual_seed(1)
    model, x = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8)).eval(), drawn(1, 4, 16)
    sides = "h100", {"device": "b200", "format": "bf16"}
    hwsim.torch.compare(model, x, *sides).write(tmp_path / "answers.html")
    saved = tmp_path / "answers.json"
    assert hwsim.torch.compare(model, x.clone(), *sides).differences(saved) == []
    other = hwsim.torch.compare(model, -x, *sides).differences(saved)
    assert other == ["inputs differ", "h100: outputs have other bits", "b200 bf16: outputs have other bits"]
    formats = hwsim.torch.compare(model, x, "h100", {"device": "b200", "format": "fp16"}).differences(saved)
    assert formats == ["sides: h100, b200 bf16 there, h100, b200 fp16 here"]
    given = json.loads(saved.read_text())
    given["sides"][1]["settings"] = given["sides"][1]["settings"].replace("fp32 products ieee", "fp32 products tf32")
    (said,) = hwsim.torch.compare(model, x, *sides).differences(given)
    assert said.startswith("b200 bf16: settings ") and "tf32 there" in said
    with torch.no_grad():
        model[1].running_mean[3] = 1
    here = hwsim.torch.compare(model, x, *sides)
    assert here.differences(saved)[0] == "weights differ"
    assert here.differences({**given, "pytorch": "0.1"})[-1] == f"pytorch 0.1 there, {torch.__version__} here"
    assert given["schema"] == "hwsim.comparison/2"
    for wrong in (tmp_path / "none.json", {"sides": []}, {"schema": "hwsim.comparison/2"}):
        with pytest.raises(hwsim.InputError, match="comparison"):
            here.differences(wrong)
    with pytest.raises(hwsim.InputError, match=r"comparison/1'; allowed: 'hwsim.comparison/2'.*anew"):
        here.differences({**given, "schema": "hwsim.comparison/1"})  # its digests left numbers and buffers out


def test_a_library_without_the_product_names_the_layer_and_a_way_on():
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Linear(8, 8)), drawn(1, 4, 64)
    call = {"device": "a100", "library": "batch-invariant"}
    with pytest.raises(hwsim.UnsupportedError, match=r"^layer 0, linear: ") as refused:
        hwsim.torch.invariance(model, x, [1, 2], **call)
    said = str(refused.value)
    assert 'modules={"0": {"device": "a100", "library": "pytorch"}} for the kernels that PyTorch calls there' in said
    assert 'modules={"0": {"device": "a100"}} for hwsim\'s own order' in said and 'modules={"0": "plain"}' in said
    assert "have this CPU's norms" in said and "output=" not in said
    modules = {name: {"device": "a100"} for name in ("0", "1")}
    assert hwsim.torch.invariance(model, x, [1, 2], modules=modules, **call).is_invariant


@pytest.mark.parametrize("where", ["all", "modules", "forward"])
def test_a_switch_of_pytorchs_is_no_argument(where):
    wrong = {"allow_splitk": False}
    given = {"all": wrong, "modules": {"modules": {"0": wrong}}, "forward": {"forward": wrong}}[where]
    with (
        pytest.raises(hwsim.InputError, match=r'allow_splitk is a switch .* give reductions="none"'),
        hwsim.torch.emulate(device="h100", library="pytorch", **given),
    ):
        pass
