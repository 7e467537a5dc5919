"""The fitted choices of cuBLAS, beside answers of cuBLASLt that no tree was fitted to, and what `choose` refuses."""

import csv
import gzip
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwsim
import hwsim.api
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.explicit import elements
from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.answers.features import BATCH_NAMES, NAMES, batch_features, features
from hwsim.libraries.cublas.answers.store import store
from hwsim.libraries.cublas.answers.tree import LEAF, Tree, unpack
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.families import usual_tables
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.gemm_call import PYTORCH, GemmCall

ROOT = Path(__file__).parents[2]
MOST_BYTES = 7_000_000  # the choices take 5, networks of times 1
LEAST_RIGHT = {
    "fp16>fp32": 0.96, "bf16>bf16": 0.96, "bf16>fp32": 0.96, "fp16>fp16": 0.96, "e4m3>bf16fast": 0.985,
    "tf32>fp32": 0.93,
    "fp32>fp32": 0.93, "fp64>fp64": 0.93, "int8>int32": 0.97, "bf16>bf16+bias": 0.96, "fp16>fp16+bias": 0.96,
    "tf32>fp32+bias": 0.93,
}  # fmt: skip


WORDS = {"+bias": {"bias": True}, "fast": {"accumulate": "fast"}, "slow": {"accumulate": "promoted"}}
MASKS = {"7": "any", "2": "compute"}


@cache
def library(device, **workspace):
    return hwsim.library("cublas", device=device, **workspace)


def compared(name):
    """(row, choice, whether algorithm and slices are the answer's) of each of cuBLASLt's answers in a file."""
    with gzip.open(ROOT / "tests" / "golden" / "h200_library" / name, "rt") as file:
        for row in csv.DictReader(file):
            operand, _, output = row["kind"].partition(">")
            more = next((dict(given) for word, given in WORDS.items() if output.endswith(word)), {})
            more |= {"batch": int(row["batch"]), "a_layout": row["a_layout"]} if "batch" in row else {}
            more |= {"reductions": MASKS[row["reductions"]]} if "reductions" in row else {}
            for word in WORDS:
                output = output.removesuffix(word)
            workspace = {"workspace_bytes": int(row["workspace_bytes"])} if "workspace_bytes" in row else {}
            choice = library(row["device"], **workspace).choose(
                **{size: int(row[size]) for size in "mnk"}, format=operand, output=output,
                b_layout=row.get("b_layout") or row["layout"], **more,
            )  # fmt: skip
            slices = int(row["splitk"])
            yield row, choice, choice.algorithm == int(row["id"]) and (slices < 0 or choice.split_k == max(slices, 1))


def operand_of(row):
    return row["kind"].partition(">")[0]


def shares_and_confidence(name, key):
    """{kind: (share right, answers)} by `key` of a row; {device: mean confidence less the share right}; evidence."""
    right, count, off, evidence = Counter(), Counter(), {}, set()
    for row, choice, same in compared(name):
        if min(int(row["m"]), int(row["n"])) > 1:  # of batched vectors: test_vectors.py
            evidence.add(choice.evidence)
        right[key(row)] += same
        count[key(row)] += 1
        off.setdefault(row["device"], []).append(choice.confidence - same)
    shares = {kind: (right[kind] / count[kind], count[kind]) for kind in count}
    return shares, {device: np.mean(of_rows) for device, of_rows in off.items()}, evidence


def test_choices_are_cublaslts() -> None:
    shares, off, _ = shares_and_confidence("answers.csv.gz", lambda row: row["kind"])
    assert set(shares) == set(LEAST_RIGHT)
    # 200 rows a kind: three standard deviations below the promise is what they can tell.
    for kind, (share, count) in shares.items():
        least = LEAST_RIGHT[kind]
        assert share > least - 3 * np.sqrt(least * (1 - least) / count), (kind, share)
    assert max(map(abs, off.values())) < 0.02, off  # by kind, on more rows: lab/tools/library/confidence.py


def test_wheel_stays_small() -> None:
    """All files of the version together; archives are compressed, and a wheel makes them no smaller."""
    files = list((ROOT / "configs" / "libraries").glob(f"{versions()[0].library}-{versions()[0].version}.*"))
    assert {versions()[0].path, versions()[0].layers, versions()[0].factors} <= {file.name for file in files}
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


def test_header_names_what_the_trees_read() -> None:
    kept = store(versions()[0].path)
    assert features(1, 2, 3).shape == (len(NAMES), 1)
    assert batch_features(1, 2, 3, 4).shape == (len(NAMES) + len(BATCH_NAMES), 1)
    for entry in kept.entries:
        tree = kept.tree(f"{entry.name}.order")
        more = (len(BATCH_NAMES) if entry.batched else 0) + (
            len(entry.order[0]) if entry.is_further or entry.base else 0
        )
        assert tree.feature[tree.feature != LEAF].max(initial=0) < len(NAMES) + more
        assert tree.label.max() < len(entry.order)


def test_tree_packs_and_finds_leaves() -> None:
    tree = Tree(
        np.array([1, LEAF, 0, LEAF, LEAF], np.uint8), np.array([0, 1, 1, 2, 2]), np.array([2.0, 10.0], np.float32),
        np.array([7, 300, 9], np.uint16), np.array([255, 51, 0], np.uint8),
    )  # fmt: skip
    again = unpack(tree.pack())
    points = np.array([[0.0, 10.0, 11.0], [2.0, 3.0, 3.0]])
    assert [again.leaf(points[:, i]) for i in range(3)] == [(7, 1.0), (300, 0.2), (9, 0.0)]
    labels, confidence = again.leaves(points)
    assert labels.tolist() == [7, 300, 9] and confidence.tolist() == [1.0, 0.2, 0.0]
    with pytest.raises(ValueError, match="no tree of"):
        unpack(tree.pack()[:-1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"m": 0}, "m = 0"),
        ({"format": "fp4"}, "not one of"),
        ({"output": "fp64"}, "give"),
        ({"accumulate": "promoted"}, "e4m3 alone"),
        ({"b_layout": "diagonal"}, "allowed: rows, columns"),
        ({"format": "e4m3"}, "K-major"),
        ({"format": "e4m3", "output": "bf16", "b_layout": "columns", "k": 63}, "whole 4 bytes"),
        ({"format": "e4m3", "b_layout": "columns", "k": 72, "accumulate": "promoted"}, "whole 16 bytes"),
        ({"format": "int8", "b_layout": "columns", "k": 62}, "multiple of 4"),
    ],
)
def test_refusals_say_why(given, said) -> None:
    library = hwsim.library("cublas", device="h200")
    with pytest.raises((InputError, UnsupportedError), match=said):
        library.choose(**{"m": 64, "n": 64, "k": 64, "format": "fp16"} | given)


def test_unknown_library_version_device_and_workspace() -> None:
    with pytest.raises(UnsupportedError, match="there is batch-invariant, cublas"):
        hwsim.library("cublass", device="h200")
    with pytest.raises(UnsupportedError, match=r"there is '13\.1'"):
        hwsim.library("cublas", device="h200", version="9")
    with pytest.raises(UnsupportedError, match=r"h100 \(132 SMs\), h200"):
        hwsim.library("cublas", device="mi300x")
    with pytest.raises(UnsupportedError, match="workspace"):
        hwsim.library("cublas", device="h200", workspace_bytes=1 << 30).choose(m=64, n=64, k=64, format="fp16")
    unasked = hwsim.library("cublas", device="h200", workspace_bytes=12345).choose(m=64, n=64, k=64, format="fp16")
    assert unasked.evidence == "assumption" and "workspace" in unasked.why


def test_run_follows_the_library_and_says_so() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((64, 4099)).astype(np.float16), rng.standard_normal((4099, 96)).astype(np.float16)
    result = hwsim.run(a, b, device="h200", library="cublas", format="fp16", output="fp16", rows=range(3), timing=False)
    choice = hwsim.library("cublas", device="h200").choose(
        m=64, n=96, k=4099, format="fp16", output="fp16", reductions="compute"
    )
    assert result.gemm.library.name == "cublas" and result.gemm.decided("kernel").by == "library"
    assert result.gemm.decided("split_k").value == str(choice.slices)
    assert result.c.shape == (3, 96)
    again = hwsim.run(a, b, gemm=json.loads(result.gemm.to_json()), rows=range(3), timing=False)
    assert np.array_equal(again.c.view(np.uint16), result.c.view(np.uint16))


def test_lost_elements_of_k_are_lost_and_warned_of() -> None:
    """nvjet with 9 slices of K = 11528 leaves out the last 8, as was published for sm_90."""
    order = usual_tables().order_of(CublasGemm(1, 8, 11528, "bf16", "fp32", "rows", "columns"), Answer(66, 64, 9, 2, 0))
    assert elements(order.schedule.sum) == 11520
    a, b = np.zeros((1, 11528), np.float32), np.zeros((11528, 1), np.float32)
    a[0, -8:], b[-8:, 0], a[0, 0], b[0, 0] = 1, 1, 3, 1
    assert hwsim.matmul(a, b, device="h200", format="bf16", schedule=order.schedule, shape=(1, 8), at=([0], [0])) == 3
    whole = usual_tables().order_of(CublasGemm(1, 8, 11520, "bf16", "fp32", "rows", "columns"), Answer(66, 64, 9, 2, 0))
    assert whole.schedule.sum is None and sum(whole.schedule.slice_k) == 11520


def test_a_program_follows_the_library_too() -> None:
    sizes = {"m": 512, "n": 512, "k": 16384, "format": "bf16"}
    _, program = hwsim.api.program(device="h200", library="cublas", **sizes)
    result = hwsim.run(device="h200", library="cublas", exact=False, **sizes)
    assert program.gemm.library == result.gemm.library
    assert program.gemm.schedule == result.gemm.schedule and result.cycles > 0


def test_run_refuses_what_the_library_decides() -> None:
    a = np.ones((16, 16), np.float16)
    with pytest.raises(InputError, match="split_k"):
        hwsim.run(a, a, device="h200", library="cublas", split_k=2)
    with pytest.raises(InputError, match="give both or neither"):
        hwsim.matmul(a, a, device="h200", at=([0], [0]))


LEAST_OF_CALLS = {"fp16": 0.97, "bf16": 0.97, "e4m3": 0.98, "int8": 0.98, "tf32": 0.95, "fp32": 0.98, "fp64": 0.98}


def test_choices_are_cublaslts_with_the_preferences_of_pytorchs_calls() -> None:
    """Narrow results, biases, `_scaled_mm` and `_int_mm`: rows of chunks that no tree was fitted to."""
    shares, _, _ = shares_and_confidence("answers_of_calls.csv.gz", operand_of)
    assert set(shares) == set(LEAST_OF_CALLS)
    assert all(share > LEAST_OF_CALLS[operand] for operand, (share, _) in shares.items()), shares


#: Shares right of held-back answers, of A by columns and of batches; half of the GEMMs are ragged.
LEAST_FURTHER = {
    ("columns", "fp16"): 0.94, ("columns", "bf16"): 0.94, ("columns", "tf32"): 0.95, ("columns", "fp32"): 0.93,
    ("columns", "fp64"): 0.95, ("batch", "fp16"): 0.99, ("batch", "bf16"): 0.98, ("batch", "tf32"): 0.97,
    ("batch", "fp32"): 0.98, ("batch", "fp64"): 0.97,
}  # fmt: skip
#: The same of batches with A by columns, asked on an H100.
LEAST_BOTH = {"fp16": 0.97, "bf16": 0.96, "tf32": 0.97, "fp32": 0.97, "fp64": 0.96}


@pytest.mark.parametrize(
    ("name", "least", "key"),
    [
        (
            "answers_further.csv.gz",
            LEAST_FURTHER,
            lambda row: ("batch" if int(row["batch"]) > 1 else "columns", operand_of(row)),
        ),
        ("answers_batch_columns.csv.gz", LEAST_BOTH, operand_of),  # those of 16 bits are the ragged ones
    ],
)
def test_choices_of_a_by_columns_and_of_batches_are_cublaslts(name, least, key) -> None:
    """Rows of chunks that no tree was fitted to."""
    shares, off, evidence = shares_and_confidence(name, key)
    assert evidence == {"fitted"}
    assert set(shares) == set(least)
    assert all(share > least[kind] for kind, (share, _) in shares.items()), shares
    assert max(map(abs, off.values())) < 0.02


def test_tiles_of_batches_are_mostly_the_recorded_ones() -> None:
    """By the names of kernels of an H200. With the tile of one product 28 % of nvjet's were right."""
    right = []
    with gzip.open(ROOT / "tests" / "golden" / "h200_library" / "calls5_h200.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["group"] == "batch" and "nvjet" in row["kernels"]]
    library = hwsim.library("cublas", device="h200")
    for row in rows[::6]:
        operand, _, output = row["kind"].partition(">")
        sizes = {name: int(row[name]) for name in ("m", "n", "k", "batch")}
        layouts = {name: row[name] for name in ("a_layout", "b_layout")}
        told = {"reductions": row["reductions"] or None, "caller": PYTORCH}
        choice = library.choose(GemmCall(**sizes, **layouts, format=operand, output=output, **told))
        named = re.search(r"nvjet_sm90_\w+?_(\d+)x(\d+)_", row["kernels"])
        right.append(sorted(choice.tile) == sorted(map(int, named.groups())))
    assert len(right) > 80 and np.mean(right) > 0.5
