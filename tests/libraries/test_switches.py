"""Calls of PyTorch with its switches at their defaults and at serving's, beside what an H100 ran and cuBLASLt answered.

Nothing was fitted to the recorded calls (lab/tools/record/pytorch_calls.py, 2026-11-28); the answers are of chunks that
no tree has seen.
"""

import csv
import gzip
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from modern import FOLDER, operand

import hwsim
from hwsim.libraries.cublas.answers.store import store
from hwsim.libraries.cublas.calls import CublasGemm, HeuristicQuery, Preference
from hwsim.libraries.cublas.orders.families import NVJET
from hwsim.libraries.cublas.versions import version_of

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "h200_library"
sys.path.insert(0, str(ROOT / "lab" / "tools" / "library"))
import compare_calls  # noqa: E402

MASKS = {"7": "any", "2": "compute"}
MOST_MACS, MOST_WEIGHT = 2**31, 2**21  # of a public call that is compared
WITHIN = 0.02  # of the share right a confidence lies


@cache
def compared(mode):
    """(call, how many results differ where the library's own answer is told, and by hwsim's own choice)."""
    recording = compare_calls.read(GOLDEN / f"switches_{mode}_h100.npz")
    ways = ({"is_told": True}, {})
    return [(x, *(compare_calls.count_differing(x, recording, **way) for way in ways)) for x in recording.entries]


@pytest.mark.parametrize("mode", ["default", "serving", "blind"])
def test_told_the_librarys_own_answers_every_bit_is_the_chips(mode):
    differing = [entry for entry, wrong, _ in compared(mode) if wrong]
    assert len(compared(mode)) > 100 and not differing


@pytest.mark.parametrize(("mode", "least"), [("default", 0.95), ("serving", 0.95), ("blind", 0.95)])
def test_by_hwsims_own_choice_nearly_all_are_ragged_ones_too(mode, least):
    found = [(entry, wrong) for entry, _, wrong in compared(mode)]
    for is_ragged in (True, False):
        right = [not wrong for entry, wrong in found if compare_calls.is_ragged(entry) is is_ragged]
        assert len(right) >= 40 and np.mean(right) >= (least - 0.02 if is_ragged else least), (
            is_ragged,
            np.mean(right),
        )


def test_without_slices_every_bit_is_an_h200_s(monkeypatch):
    """allow_splitk=False: products with a bias, and stacks; PyTorch refuses others, which it gives to cublasGemmEx."""
    monkeypatch.setattr(compare_calls, "DEVICE", "h200")
    recording = compare_calls.read(GOLDEN / "switches_whole_h200.npz")
    assert len(recording.entries) == 22
    assert not [entry for entry, wrong in compare_calls.compared(recording) if wrong]


def public(row):
    """How many results of a public call differ: the sampled rows and columns alone."""
    mode, index, what, m, n, k, fmt, output, layout, extra = row
    seed, batch = index * 64, extra if what == "bmm" else 1
    a, bt = (operand(seed + i, size, k, fmt, (batch - 1) * size) for i, size in ((1, m), (2, n)))
    rng = np.random.default_rng(90000 + index)
    count = 64 if output in ("bf16", "fp16") else 12
    rows, columns = (np.sort(rng.choice(size, min(size, count), replace=False)) for size in (m, n))
    options = {"format": fmt, "output": output, "shape": (m, n), "at": (rows, columns)}
    layouts = {
        "a_layout": "columns" if layout == "acols" else "rows",
        "b_layout": "columns" if layout == "columns" else "rows",
    }
    if what == "linear":
        options["bias"] = operand(seed + 3, 1, n, fmt)[0][columns]
    if what == "addmm":
        options |= {"c": operand(seed + 3, m, n, fmt)[np.ix_(rows, columns)], "alpha": extra[0], "beta": extra[1]}
    told = compare_calls.told_of({"format": fmt, "output": output}, mode)
    if batch > 1:
        sizes = {"m": m, "n": n, "k": k, "batch": batch, "format": fmt, "output": output}
        options["schedule"] = hwsim.library("pytorch", device="h100").choose(**sizes, **layouts, **told).schedule
    else:
        options |= {"library": "pytorch", **layouts, **told}
    return np.ascontiguousarray(hwsim.matmul(a[rows], bt[columns].T, device="h100", **options))


def test_public_captures_of_each_mode():
    """Of 147 those that are compared in a moment; more is better."""
    counts = {}
    with np.load(FOLDER / "calls.npz") as archive:
        for row in json.loads((FOLDER / "calls.json").read_text()):
            mode, index, _, m, n, k, *_ = row
            if m * n * k > MOST_MACS or n * k > MOST_WEIGHT:
                continue
            words = [str(tuple(x) if isinstance(x, list) else x) for x in row[2:]]
            expected = archive[" ".join([mode, *words])]
            group = counts.setdefault(mode + (" ragged" if index >= 797 else ""), [0, 0])
            group[0] += np.array_equal(public(row).view(expected.dtype).reshape(expected.shape), expected)
            group[1] += 1
    right, count = np.sum(list(counts.values()), 0)
    assert count >= 40 and right >= 0.95 * count, counts
    assert all(count - right <= 1 for right, count in counts.values()), counts


def test_a_confidence_is_the_share_right():
    """By preference and kind, of the whole order of summation."""
    rules, said = hwsim.library("cublas", device="h100").rules, {}
    with gzip.open(GOLDEN / "answers_switched.csv.gz", "rt") as file:
        for row in list(csv.DictReader(file))[::3]:
            format, _, output = row["kind"].partition(">")
            call = CublasGemm(
                *(int(row[size]) for size in "mnk"),
                *(format, output.removesuffix("+bias"), row["a_layout"], row["b_layout"]),
            )
            told = Preference(int(row["workspace_bytes"]), MASKS[row["reductions"]])
            query = HeuristicQuery(call, told, None, output.endswith("+bias"), 1)
            (source,) = rules.sources.of(query, [call.m])
            wanted = [int(row[name]) for name in ("id", "stages", "splitk", "reduction", "custom")]
            wanted[4] = 0 if wanted[0] == NVJET else wanted[4]
            is_right = list(source.order) == wanted
            key = row["workspace_bytes"], row["reductions"]
            said.setdefault(key, []).append((source.confidence, is_right))
    assert len(said) == 5
    for key, pairs in said.items():
        confidence, right = np.mean(pairs, 0)
        assert right > 0.93 and abs(confidence - right) < WITHIN, (key, confidence, right)


def test_a_model_for_16_bit_results_is_for_them_alone():
    """Slices reduced in the result's type need half the workspace where it has 16 bits."""
    library = hwsim.library("pytorch", device="h100")
    sizes = {"m": 296, "n": 2445, "k": 11638, "format": "fp16", "b_layout": "columns"}
    narrow, wide = (library.choose(**sizes, output=output) for output in ("fp16", "fp32"))
    assert narrow.split_k == wide.split_k > 1
    assert narrow.reduction != wide.reduction
    trees = store(version_of(None).path)
    assert all(trees.entry(entry.base).aligned == entry.aligned for entry in trees.entries if entry.base)


def test_on_another_chip_the_models_say_where_the_library_was_asked():
    call = {"m": 333, "n": 1001, "k": 4099, "format": "bf16", "output": "bf16", "b_layout": "columns", "bias": True}
    choices = [hwsim.library("pytorch", device=name).choose(**call) for name in ("h100", "h200")]
    assert [choice.evidence for choice in choices] == ["fitted", "assumption"]
    assert choices[1].unasked.chips == ("h100",)


def test_serial_slices_of_a_linear_layer_warn_where_padding_is_three_times_faster():
    bias = np.zeros(2317, np.float32)
    call = {"device": "h100", "format": "fp16", "output": "fp16", "b_layout": "columns", "exact": False, "bias": bias}
    for library in ("cublas", "pytorch"):
        run = hwsim.run(m=233, n=2317, k=11868, library=library, **call)
        warned = [warning["code"] for warning in run.warnings]
        assert ("library_kernel_slow" in warned) == (run.seconds > 3 * 40e-6)
