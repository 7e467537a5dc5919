"""Batch classes: where labels are equal a row's bits are, and hardly elsewhere."""

import json
import re
import sys
from collections import Counter
from dataclasses import FrozenInstanceError
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.cli.command import main
from hwsim.errors import InputError
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Region
from hwsim.studies import invariance
from hwsim.studies.invariance import _added, _has_equal_rows, batch_classes

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "lab" / "tools" / "library"))
import compare_classes  # noqa: E402
import compare_sweeps  # noqa: E402

CASES = [
    ("bf16", "bf16", 1024, 4096),
    ("fp16", "fp32", 257, 1000),
    ("tf32", "fp32", 128, 2048),
    ("fp64", "fp64", 96, 515),
]
M = (1, 2, 7, 16, 33, 64, 200)
DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "tf32": np.float32, "fp64": np.float64}


@pytest.mark.parametrize(("fmt", "output", "n", "k"), CASES)
def test_labels_are_equal_where_a_rows_bits_are(fmt: str, output: str, n: int, k: int) -> None:
    """Bits of row 0 by `run(library=)`, on operands of many exponents; a narrow output may hide a difference."""
    rng = np.random.default_rng(3)
    scale = 2.0 ** rng.integers(-8, 1, k)
    a = (rng.standard_normal((max(M), k)) * scale).astype(DTYPES[fmt])
    b = rng.standard_normal((k, 24)).astype(DTYPES[fmt])
    labels = hwsim.invariance(n=n, k=k, m=list(M), device="h200", library="cublas", format=fmt, output=output)
    rows = {}
    for m in M:
        choice = hwsim.run(
            a[:1], b, device="h200", library="cublas", format=fmt, output=output, timing=False, shape=(m, n),
            at=([0], np.arange(24)),
        )  # fmt: skip
        rows[m] = np.asarray(choice.c).tobytes()
    for i, x in enumerate(M):
        for j, y in enumerate(M):
            if labels[i] == labels[j]:
                assert rows[x] == rows[y], (x, y)
            elif output != fmt:  # a narrow output may round a difference away
                assert rows[x] != rows[y], (x, y, labels[i], labels[j])


def test_labels_of_products_with_a_bias_are_those_of_their_own_call() -> None:
    """F.linear with a bias is another call than `mm`, and some kernels round before they add it."""
    rng = np.random.default_rng(5)
    sizes, n, k = (1, 2, 3, 5, 9, 17, 33, 64, 100, 200, 2000), 257, 2048
    a = (rng.standard_normal((1, k)) * 2.0 ** rng.integers(-8, 1, k)).astype(np.float16)
    b, bias = rng.standard_normal((k, 128)).astype(np.float16), 1e3 * rng.standard_normal(128).astype(np.float16)
    call = {"device": "h200", "library": "cublas", "format": "fp16", "output": "fp16", "b_layout": "columns"}
    labels = hwsim.invariance(n=n, k=k, m=sizes, bias=True, **call)
    assert labels != hwsim.invariance(n=n, k=k, m=sizes, **call)
    rows, kernels = {}, {}
    for m in sizes:
        found = hwsim.run(a, b, bias=bias, timing=False, shape=(m, n), at=([0], np.arange(128)), **call)
        rows[m] = found.c.tobytes(), found.gemm.schedule.epilogue.product_format
        kernels[m] = found.gemm.decided("kernel").value
    assert len({product for _, product in rows.values()}) == 2
    for x, label in zip(sizes, labels, strict=True):
        for y, other in zip(sizes, labels, strict=True):
            assert label != other or rows[x] == rows[y], (x, y)


def test_no_two_m_of_unknown_orders_are_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """Between K that is whole and K that CTAs share: the best guesses for these two m are different orders."""
    call = {"n": 1000, "k": 568, "device": "h200", "library": "cublas", "format": "tf32", "b_layout": "columns"}
    classes = batch_classes(m=[386, 387, 2885], **call)
    assert len(classes) == len({one.label for one in classes}) == 3
    assert not any(one.choices[0].known for one in classes)
    again = hwsim.invariance(m=[2885, 386, 386], **call)
    assert again[1] == again[2] == classes[0].label and again[0] == classes[2].label
    words = [f"--{name.replace('_', '-')}={value}" for name, value in call.items()]
    assert main(["invariance", *words, "--m", "380:390"]) == 0
    said = capsys.readouterr().out
    assert "each m by itself: 6 of m: 385..390" in said and "order of summation is not known" in said
    assert "\n1 class\n" in said and "1 class:" not in said


def test_an_algorithm_that_fixes_no_order_is_no_advice(capsys: pytest.CaptureFixture[str]) -> None:
    """tf32 kernels that cut K of some tiles by themselves: their regions are others for other m."""
    words = ["--device=h200", "--library=cublas", "--format=tf32", "--b-layout=columns", "--n=1000", "--k=784"]
    assert main(["invariance", *words, "--m", "129,130,1"]) == 0
    alone = capsys.readouterr().out
    assert "2 classes" in alone and "pad m" in alone
    assert main(["invariance", *words, "--m", "1:2000"]) == 0
    said = capsys.readouterr().out
    assert "algorithm that cublas" not in alone
    (m,) = re.findall(r"cublasLtMatmulAlgoGetHeuristic has for m = (\d+)", said)
    choice = hwsim.library("cublas", device="h200").choose(m=int(m), n=1000, k=784, format="tf32", b_layout="columns")
    assert not choice.order_by_m and not said.split("pad m")[0].endswith(";")


def test_kernels_of_a_class_stand_without_the_tile_of_one_m(capsys: pytest.CaptureFixture[str]) -> None:
    call = {"n": 4096, "k": 4096, "device": "h200", "library": "cublas", "format": "bf16", "output": "bf16"}
    classes = batch_classes(m=range(1, 1025), b_layout="columns", **call)
    assert [[(x.family, x.split_k) for x in one.choices] for one in classes] == [
        [("nvjet_sm90", 1)],
        [("nvjet_sm90", 2)],
    ]
    words = [f"--{name}={value}" for name, value in call.items()]
    assert main(["invariance", *words, "--b-layout=columns", "--m=1:64"]) == 0
    assert "nvjet_sm90, K in 2 slices; right" in capsys.readouterr().out
    assert main(["invariance", *words, "--b-layout=columns", "--m=1:64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["kernel"] for one in found["classes"]} == {"nvjet_sm90"} and found["note"] == ""


def test_classes_cover_all_m_once() -> None:
    sizes = list(range(1, 300, 7))
    classes = batch_classes(n=4096, k=14336, m=sizes, device="h200", library="cublas", format="bf16", output="bf16")
    assert sorted(m for one in classes for m in one.sizes_m) == sizes
    assert len(classes) > 1


def test_command_says_classes_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    call = [
        "invariance",
        "--device",
        "h200",
        "--library",
        "cublas",
        "--format",
        "bf16",
        "--n",
        "4096",
        "--k",
        "14336",
        "--m",
        "1:4000:63",
    ]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert "classes" in said and "pad m" in said and "K in" in said
    assert main([*call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(one["count"] for one in found["classes"]) == 64


def test_bad_sizes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="at least one"):
        hwsim.invariance(n=8, k=8, m=[], device="h200", library="cublas", format="bf16")
    call = [
        "invariance",
        "--device",
        "h200",
        "--library",
        "cublas",
        "--format",
        "bf16",
        "--n",
        "64",
        "--k",
        "64",
        "--m",
        "9:1",
    ]
    assert main(call) == 2
    assert "allowed: A:B" in capsys.readouterr().err


def equal_partitions(path: Path) -> tuple[Counter, Counter]:
    """Recorded partitions that hwsim has, and all, by device and format."""
    equal, count = Counter(), Counter()
    for key, rows in compare_classes.recorded(path).items():
        group = key[0], key[1].partition(">")[0]
        equal[group] += not compare_classes.wrong_sizes(key, rows)
        count[group] += 1
    return equal, count


def test_partitions_recorded_on_silicon() -> None:
    """18 weights of layers that cuBLASLt was asked about at every m, in five formats on two chips: all are equal."""
    equal, count = equal_partitions(compare_classes.RECORDED)
    assert equal == count and len(count) == 10 and set(count.values()) == {18}


def test_partitions_of_other_weights() -> None:
    """Nine weights of sizes drawn at random, where fitted choices stand: so many have exactly the library's classes."""
    equal, count = equal_partitions(compare_classes.RECORDED.with_name("batch_classes_others.csv.gz"))
    assert set(count.values()) == {9}
    assert {key: found for key, found in equal.items() if found} == {
        ("h200", "e4m3"): 9, ("h200", "bf16"): 4, ("h200", "fp16"): 5, ("h200", "fp32"): 3, ("h200", "tf32"): 6,
        ("h100", "e4m3"): 7, ("h100", "bf16"): 4, ("h100", "fp16"): 4, ("h100", "fp32"): 3, ("h100", "tf32"): 6,
    }  # fmt: skip


def test_classes_by_fitted_choices_are_mostly_those_by_the_librarys_answers() -> None:
    """Six of 285 weights drawn at random and asked for at every m after the fit; the page has all of them."""
    path = compare_classes.RECORDED.with_name("drawn_h100.npz")
    found = compare_sweeps.compared(path, "h100", weights=6)
    assert {kind.operand for kind in found} == {"bf16", "fp16", "e4m3", "tf32", "fp32"}
    assert all(0 < exact <= count == 6 for exact, count, _ in found.values())
    assert all(0.94 < share <= 1 for *_, share in found.values())
    assert {kind.operand for kind in compare_sweeps.compared(path, "h200", weights=1)} == {"tf32", "fp32"}


def test_labels_of_columns_of_a_are_those_of_each_m_alone() -> None:
    """The alignment of rows of A follows from m: each m has its own fitted model."""
    call = {"n": 1024, "k": 4096, "format": "bf16", "a_layout": "columns", "device": "h200", "library": "cublas"}
    sizes = range(1, 66)
    assert list(hwsim.invariance(m=sizes, **call)) == [hwsim.invariance(m=[m], **call)[0] for m in sizes]


def test_a_sum_of_two_parts_has_no_order() -> None:
    first, second = (("chain", 16, None, (i, i + 16)) for i in (0, 16))
    empty = ("chain", 16, None)
    assert _added([first, second], "ascending") == _added([second, first], "halving")
    assert _added([first, second, empty], "ascending") == _added([first, empty, second], "ascending")
    assert _added([first, second, first], "ascending") != _added([first, first, second], "ascending")
    assert _added([first], "ascending") == first


def test_a_pairwise_sum_of_three_parts_is_one_in_order() -> None:
    parts = [("chain", 16, None, (i, i + 16)) for i in (0, 16, 32, 48)]
    assert _added(parts[:3], "pairwise") == _added(parts[:3], "ascending")
    assert _added(parts, "pairwise") != _added(parts, "ascending")


def test_regions_of_other_orders_in_some_rows_make_rows_unequal() -> None:
    """A region of all rows beside a region of some rows: the first rows and the last differ."""
    sum_of_k = Chain((Range(0, 64),))
    every, some = (Region(Range(0, rows), Range(at, at + 8), sum_of_k) for rows, at in ((32, 0), (16, 8)))
    assert _has_equal_rows(Schedule(regions=(every,), shape=(32, 16)))
    assert not _has_equal_rows(Schedule(regions=(every, some), shape=(32, 16)))
    assert not _has_equal_rows(Schedule(regions=(some,), shape=(32, 16)))


def test_one_product_with_unequal_rows_makes_a_class_unequal(monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"n": 1024, "k": 4096, "device": "h200", "library": "cublas", "format": "bf16", "m": [1, 2, 3, 4]}
    assert all(found.has_equal_rows for found in batch_classes(**call))
    answers = iter([True, False, True, True])
    monkeypatch.setattr(invariance, "_has_equal_rows", lambda schedule: next(answers))
    (found,) = batch_classes(**call)
    assert found.sizes_m == (1, 2, 3, 4) and not found.has_equal_rows


@pytest.mark.parametrize(
    "call",
    [{"format": ["bf16"]}, {"format": {}}, {"m": [1.5]}, {"m": "7"}, {"k": 0}, {"n": -1}, {"a_layout": 4}],
)
def test_calls_of_wrong_types_are_refused(call) -> None:
    given = {"n": 8, "k": 8, "m": [1], "device": "h200", "library": "cublas", "format": "bf16", **call}
    with pytest.raises(InputError, match="allowed"):
        hwsim.invariance(**given)


def test_sizes_of_other_integer_types_count_as_integers() -> None:
    call = {"n": 64, "device": "h200", "library": "cublas", "format": "bf16"}
    assert hwsim.invariance(k=np.uint8(200), m=[np.int16(7)], **call) == hwsim.invariance(k=200, m=[7], **call)


def test_confidence_of_a_class_is_of_all_its_sizes() -> None:
    found = batch_classes(n=257, k=2048, m=[*range(1, 300), 7], device="h200", library="cublas", format="bf16")
    assert sum(len(one.sizes_m) for one in found) == 299  # each once
    assert all(len(one.sizes_m) == len(one.confidences) for one in found)
    assert any(max(one.confidences) - min(one.confidences) > 0.1 for one in found)


def test_the_library_s_own_options_are_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    """A ragged product, whose slices cuBLAS adds in 16 bits where it may, and cuts otherwise without a workspace."""
    call = {
        "n": 132,
        "k": 6886,
        "m": [7, 500],
        "device": "h100",
        "library": "pytorch",
        "format": "bf16",
        "output": "bf16",
    }
    labels = {
        name: hwsim.invariance(**call, **more)
        for name, more in (("default", {}), ("any", {"reductions": "any"}), ("compute", {"reductions": "compute"}))
    }
    assert labels["default"] == labels["any"] != labels["compute"]
    bits = [
        hwsim.matmul(a, b, device="h100", library="pytorch", format="bf16", output="bf16", reductions="compute")[:7]
        for b in [np.random.default_rng(0).standard_normal((6886, 132), np.float32)]
        for a in [np.random.default_rng(1).standard_normal((m, 6886), np.float32) for m in (500, 500)]
    ]
    assert np.array_equal(*bits)
    none = hwsim.invariance(**call, reductions="compute", workspace_bytes=0)
    assert none != labels["compute"]
    words = [
        "--n",
        "132",
        "--k",
        "6886",
        "--m",
        "7,500",
        "--device",
        "h100",
        "--library",
        "pytorch",
        "--format",
        "bf16",
    ]
    assert main(["invariance", *words, "--output", "bf16", "--reductions", "compute", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["reductions"] == "compute" and len(told["classes"]) == len(set(labels["compute"]))
    for more in ({"reductions": "all"}, {"workspace_bytes": -1}, {"lt_workspace_bytes": 1.5}):
        with pytest.raises(InputError, match=f"{next(iter(more))} = .*; allowed: "):
            hwsim.invariance(**call, **more)


def test_labels_print_as_the_m_of_each():
    call = {"device": "h200", "library": "cublas", "format": "bf16", "output": "bf16", "b_layout": "columns"}
    labels = hwsim.invariance(n=4096, k=14336, m=range(1, 65), **call)
    lines = str(labels).splitlines()
    assert lines[0] == "64 values of m, 2 classes; a row has the same bits for every m of a class"
    told = [[size for size in range(1, 65) if labels[size - 1] == label] for label in dict.fromkeys(labels)]
    told.sort(key=len, reverse=True)
    assert lines[1:] == [f"  {i}. {sizes[0]}..{sizes[-1]}" for i, sizes in enumerate(told, 1)]
    assert labels.labels == tuple(labels) and labels[1:3] == (labels[1], labels[2]) and len(set(labels)) == 2
    with pytest.raises(FrozenInstanceError):
        labels.labels = ()
    assert not hasattr(labels, "append") and labels.sizes_m == tuple(range(1, 65))


def test_slices_of_k_can_be_forbidden_for_equal_bits(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["--device", "h200", "--format", "bf16", "--output", "bf16", "--n", "4096", "--k", "14336", "--m", "50:66"]
    call += ["--b-layout", "columns"]
    told = {}
    for library in ("pytorch", "cublas"):
        assert main(["invariance", *call, "--library", library]) == 0
        told[library] = capsys.readouterr().out
        assert "--reductions none; in PyTorch torch.backends.cuda.matmul.allow_bf16_reduced" in told[library]
        assert main(["invariance", *call, "--library", library, "--reductions", "none"]) == 0
        assert "1 class: a row has the same bits" in capsys.readouterr().out and "leaves 1 class (" in told[library]
    assert "cublasLtMatmul" in told["cublas"] and "cublasLtMatmul" not in told["pytorch"]


def test_a_library_without_slices_is_asked_once(capsys, monkeypatch) -> None:
    """Where no kernel takes slices of K, there is nothing to forbid."""
    asked = []

    def counted(**call):
        asked.append(call.get("reductions"))
        return batch_classes(**call)

    monkeypatch.setattr("hwsim.cli.invariance.batch_classes", counted)
    call = ["--device", "h200", "--format", "fp16", "--output", "fp16", "--n", "257", "--b-layout", "columns"]
    sizes = ["--m", "1:40", "--library", "pytorch", "--k"]
    assert main(["invariance", *call, *sizes, "128"]) == 0
    assert asked == [None] and "\n2 classes\n" in capsys.readouterr().out
    assert main(["invariance", *call, *sizes, "4096"]) == 0
    assert asked[1:] == [None, "none"] and "forbid slices of K" in capsys.readouterr().out
