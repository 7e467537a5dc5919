"""Strided batches of matrix-vector products: what cuBLASLt chose on an H100 and what the kernels gave, of batches that
no tree was fitted to (every 20th of a drawing of 60,000)."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.libraries.cublas.answers.store import store
from hwsim.libraries.cublas.answers.tree import LEAF
from hwsim.libraries.cublas.answers.vectors import NAMES, as_row, facts
from hwsim.libraries.cublas.calls import CublasGemm

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "lab" / "tools" / "library"))
import compare_vectors  # noqa: E402

EVERY = 25
LEAST_RIGHT = {"fp32": 0.98, "tf32": 0.98, "fp64": 0.96, "fp16": 0.92, "bf16": 0.92}


@pytest.fixture(scope="module")
def recorded() -> compare_vectors.Recorded:
    return compare_vectors.Recorded(ROOT / "tests" / "golden" / "h200_library" / "vectors_h100.npz")


def test_choices_are_cublaslts_and_confidence_is_their_share(recorded) -> None:
    right, count, sure = Counter(), Counter(), []
    for place, answer in enumerate(recorded.answers[:, [0, 3, 6]].tolist()):
        call = recorded.call(place)
        if recorded.is_dot(place):  # cuBLASLt was asked otherwise than PyTorch asks
            continue
        choice = hwsim.library("cublas", device="h100").choose(**call)
        same = (choice.algorithm, choice.split_k) == (answer[0], max(answer[1], 1))
        same &= answer[0] == 66 or choice.custom == answer[2]
        count[call["format"]] += 1
        right[call["format"]] += same
        sure.append((choice.confidence, same))
        assert choice.evidence == "fitted" and choice.known
    for name, least in LEAST_RIGHT.items():
        assert right[name] / count[name] > least, (name, right, count)
    said, was = np.mean(sure, 0)
    assert abs(said - was) < 0.02


def test_every_bit_of_most_with_no_hint_and_of_all_told_the_answer(recorded) -> None:
    """Of every 25th batch; of all 3,000 lab/tools/library/compare_vectors.py says 2,964. More is better, and then the
    page is behind as well. Dot products were asked otherwise than they ran, so they are not told.
    """
    equal = told = asked = 0
    for place in range(0, len(recorded.words), EVERY):
        call = recorded.call(place)
        choice = hwsim.library("cublas", device="h100").choose(**call)
        expected = recorded.result(place)
        equal += np.array_equal(recorded.simulated(place, "h100", choice.schedule), expected)
        if recorded.is_dot(place):
            continue
        order = recorded.told(place, choice.tile_k)
        told += np.array_equal(recorded.simulated(place, "h100", order.schedule), expected)
        asked += 1
    assert (equal, told) == (119, asked) and asked > 100


def test_a_column_is_chosen_for_as_the_transposed_row() -> None:
    column = CublasGemm(96, 1, 300, "fp32", "fp32", "rows", "rows")
    assert as_row(column) == CublasGemm(1, 96, 300, "fp32", "fp32", "columns", "columns")
    assert np.array_equal(facts(column, 7), facts(as_row(column), 7))
    choose = hwsim.library("cublas", device="h100").choose
    first = choose(m=96, n=1, k=300, format="fp32", batch=7, a_layout="rows", b_layout="columns")
    second = choose(m=1, n=96, k=300, format="fp32", batch=7, a_layout="rows", b_layout="columns")
    assert first.custom == second.custom and first.evidence == "fitted"


def test_an_epilogue_or_other_reductions_were_not_asked() -> None:
    choose = hwsim.library("cublas", device="h100").choose
    given = {"m": 1, "n": 100, "k": 999, "format": "fp16", "output": "fp16", "batch": 4}
    assert choose(**given, reductions="compute").evidence == "fitted"
    assert choose(**given, reductions="any").evidence == "assumption"
    assert choose(**given, reductions="compute", bias=True).evidence == "assumption"


def test_header_names_what_these_trees_read() -> None:
    kept = store("cublas-13.1.trees")
    assert facts(CublasGemm(1, 2, 3, "fp32", "fp32", "rows", "rows"), 4).shape == (len(NAMES), 1)
    assert {x for one in kept.vectors for x in one.operands} == {"fp16", "bf16", "tf32", "fp32", "fp64"}
    for entry in kept.vectors:
        tree = kept.tree(f"{entry.name}.order")
        assert tree.feature[tree.feature != LEAF].max() < len(NAMES)
        assert tree.label.max() < len(entry.order)


def test_on_an_h200_nobody_asked() -> None:
    """The choice is the same there, as elsewhere where nvjet has no part, which is an assumption."""
    choose = hwsim.library("cublas", device="h200").choose
    given = {"m": 1, "n": 100, "k": 999, "format": "fp32", "batch": 4}
    asked = hwsim.library("cublas", device="h100").choose(**given)
    assert asked.evidence == "fitted" and choose(**given).evidence == "assumption"
    assert (choose(**given).custom, choose(**given).confidence) == (asked.custom, asked.confidence)
    own = {"h100": "fitted", "h200": "assumption"}
    biased = {"format": "fp64", "output": "fp64", "bias": True, "m": 96, "batch": 1}
    for more, workspace_bytes in (({"a_layout": "columns", "m": 96}, 1 << 25), (biased, 1 << 20)):
        for device, evidence in own.items():
            library = hwsim.library("cublas", device=device, workspace_bytes=workspace_bytes)
            assert library.choose(**given | more).evidence == evidence
