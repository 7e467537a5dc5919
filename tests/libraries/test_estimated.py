"""Choices by estimate, on chips that cuBLAS was not asked on: what they claim, and how kernels add there."""

import importlib.util
import json
import random
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.api import program
from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.libraries import model as libraries
from hwsim.libraries.cublas.answer import HOPPER, Answer
from hwsim.libraries.cublas.answers.estimated import GemmKind, generation_of, shares
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.families import usual_tables
from hwsim.libraries.cublas.versions import versions
from hwsim.studies.invariance import batch_classes

ROOT = Path(__file__).parents[2]
SHARES = versions()[0].shares
WHOLE = {"m": 4096, "n": 4096, "k": 1024, "b_layout": "columns"}
SLICED = {"m": 64, "n": 128, "k": 16384, "b_layout": "columns"}


def tool():
    path = ROOT / "lab" / "tools" / "library" / "measure_estimates.py"
    spec = importlib.util.spec_from_file_location("measure_estimates", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shares_are_what_the_tool_measures() -> None:
    """On a sample of the answers, each kind is right as often as the file says, within what the sample can tell."""
    measure = tool()
    answers = random.Random(3).sample(list(measure.held_back()), 300)
    chips = {device: measure.estimates_on(device) for device in {one.device for one in answers}}
    known, said, variance, right, count = shares(SHARES), 0.0, 0.0, 0, 0
    for one in answers:
        for kind, is_right in measure.compared(one, chips[one.device]).items():
            if kind in known:
                share = known[kind][1] / known[kind][0]
                said, variance = said + share, variance + share * (1 - share)
                right, count = right + is_right, count + 1
    assert count > 250
    assert abs(said - right) < 4 * np.sqrt(variance)


def test_slices_of_nvjet_have_so_many_tiles() -> None:
    runs, fewest = tool().fewest_tiles()
    assert runs > 100_000 and fewest > libraries.load("cublas-13").calls.rules["nvjet"].slice_tiles


@pytest.mark.parametrize(
    ("device", "format", "algorithm", "kernel"),
    [
        ("a100", "bf16", 21, "cutlass_80_tensorop"),
        ("l40s", "fp16", 21, "cutlass_80_tensorop"),
        ("b200", "bf16", 66, "nvjet_sm100"),
        ("gb200", "e4m3", 66, "nvjet_sm100"),
        ("t4", "fp16", 24, "cutlass_75_tensorop"),
    ],
)
def test_choice_is_marked_as_an_estimate(device, format, algorithm, kernel) -> None:
    library = hwsim.library("cublas", device=device)
    choice, sliced = library.choose(format=format, **WHOLE), library.choose(format=format, **SLICED)
    assert (choice.algorithm, choice.split_k, choice.is_estimated) == (algorithm, 1, True)
    assert choice.family == kernel and choice.kernel.startswith(f"{kernel} ") and choice.tile is not None
    assert choice.evidence == choice.order_evidence == "assumption" and not choice.seen
    assert sliced.split_k > 1 and sliced.confidence < choice.confidence
    limit = "yes" if device in ("b200", "gb200") else "no"
    found = shares(SHARES)[GemmKind(format, "16", "single", "matrix", limit, "one")]
    assert choice.confidence == found[1] / found[0]


def test_rows_decide_the_kernels() -> None:
    library = hwsim.library("cublas", device="a100")
    sizes = ((64, 64), (66, 64), (64, 63))
    found = [library.choose(m=256, n=n, k=k, format="fp16", b_layout="columns").algorithm for n, k in sizes]
    assert found == [21, 23, 24]


@pytest.mark.parametrize(
    ("device", "call", "said"),
    [
        ("v100", {"format": "fp16"}, r"compute capability 7\.5"),
        ("t4", {"format": "bf16"}, "bf16 is not known"),
        ("b200", {"format": "fp64"}, "fp64 is not known"),
        ("l40s", {"format": "e4m3", "accumulate": "promoted"}, "e4m3, promoted is not known"),
        ("b200", {"format": "fp32", "m": 1}, r"the estimate gives none of "),
        ("a2", {"format": "fp16"}, "no timing data"),
        ("ada", {"format": "fp16"}, "no timing data"),
        ("mi300x", {"format": "fp16"}, r"h100 \(132 SMs\), h200"),
        ("ascend910a", {"format": "fp16"}, r"h100 \(132 SMs\), h200"),
    ],
)
def test_what_cannot_be_estimated_is_refused(device, call, said) -> None:
    with pytest.raises(UnsupportedError, match=said):
        hwsim.library("cublas", device=device).choose(**WHOLE | call)


def test_a_hopper_with_other_sms_is_estimated(tmp_path) -> None:
    path = tmp_path / "pcie.yaml"
    text = "schema_version: 1\nextends: h100\nname: pcie\ntitle: a Hopper\n"
    path.write_text(f"{text}cores: {{value: 114, source: DS, evidence: datasheet}}\n")
    choice = hwsim.library("cublas", device=path).choose(format="bf16", **WHOLE)
    assert choice.is_estimated and choice.family == "nvjet_sm90" and choice.order_evidence == "assumption"
    assert not hwsim.library("cublas", device="h100").choose(format="bf16", **WHOLE).is_estimated


def test_run_says_what_it_rests_on_and_runs_again() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((64, 4096)).astype(np.float16), rng.standard_normal((4096, 96)).astype(np.float16)
    call = {"device": "a100", "library": "cublas", "format": "fp16", "output": "fp16"}
    result = hwsim.run(a, b, rows=range(3), **call)
    assert {warning["code"] for warning in result.warnings} == {"library_choice_estimated", "library_order_assumed"}
    kernel, slices = result.gemm.decided("kernel"), result.gemm.decided("split_k")
    assert kernel.evidence == slices.evidence == result.evidence["schedule"] == "assumption"
    assert result.cycles and result.seconds and result.gemm.decided("times").by == "device"
    choice = hwsim.library("cublas", device="a100").choose(m=64, n=96, k=4096, format="fp16", output="fp16")
    assert slices.value == str(choice.slices) and result.options["tile"]["m"] == choice.tile[0]
    again = hwsim.matmul(a, b, gemm=json.loads(result.gemm.to_json()), rows=range(3))
    assert np.array_equal(again.view(np.uint16), result.c.view(np.uint16))
    plain = hwsim.matmul(a, b, device="a100", format="fp16", output="fp16", schedule=choice.schedule, rows=range(3))
    assert np.array_equal(plain.view(np.uint16), result.c.view(np.uint16))
    assert program(m=64, n=96, k=4096, **call)[1].kernels


def test_slices_that_run_are_said_beside_the_library_s_own_number() -> None:
    """20 slices of 33 blocks of 64 are two blocks long each, and 17 of them are K."""
    sizes = {"m": 8, "n": 128, "k": 2112}
    choice = hwsim.library("cublas", device="a100").choose(**sizes, format="fp16")
    result = hwsim.run(**sizes, device="a100", library="cublas", format="fp16", exact=False)
    slices = result.gemm.decided("split_k")
    assert (choice.split_k, choice.slices) == (20, 17) == (20, len(result.gemm.schedule.slice_lengths(2112)))
    assert slices.value == "17" and slices.why.startswith("the library says 20, and rounding")
    [batch_class] = batch_classes(device="a100", library="cublas", format="fp16", n=128, k=2112, m=[8])
    assert batch_class.choices[0].slices == 17


def test_e4m3_is_one_chain_on_blackwell() -> None:
    """Published: without fast accumulation nothing is closed at 128 on sm_100; on Hopper it is."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((8, 512), (512, 16)))
    call = {"library": "cublas", "format": "e4m3", "output": "fp32", "b_layout": "columns"}
    fast, promoted = (
        {device: hwsim.matmul(a, b, device=device, accumulate=how, **call) for device in ("b200", "h200")}
        for how in ("fast", "promoted")
    )
    assert np.array_equal(fast["b200"], promoted["b200"])
    assert np.array_equal(fast["b200"], hwsim.matmul(a, b, device="b200", format="e4m3"))
    assert not np.array_equal(fast["h200"], promoted["h200"])
    labels = [
        hwsim.invariance(n=4096, k=4096, m=[4096], device="b200", accumulate=how, **call)
        for how in ("fast", "promoted")
    ]
    assert labels[0] == labels[1]


def test_a_split_that_loses_k_is_computed_and_said() -> None:
    """Published: K = 8648 loses its last 8 products on sm_100, as K = 11528 does on sm_90."""
    loses = Answer(66, 64, 9, 2, 0, generation=generation_of(load("b200"), "cublas"))
    order = usual_tables().order_of(CublasGemm(8, 16, 8648, "fp16", "fp32", "rows", "columns"), loses)
    assert order.known and order.lost_k == 8
    a, b = np.zeros((8, 8648), np.float16), np.ones((8648, 16), np.float16)
    a[:, -8:] = 1
    assert not hwsim.matmul(a, b, device="b200", format="fp16", schedule=order.schedule).any()
    result = hwsim.run(a, b, device="b200", library="cublas", format="fp16", b_layout="columns", timing=False)
    assert result.gemm.decided("split_k").value == "9" and not result.c.any()
    assert "library_loses_k" in {warning["code"] for warning in result.warnings}


def test_matrix_vector_kernels_of_other_generations() -> None:
    own = generation_of(load("b200"), "cublas")
    call = CublasGemm(1, 64, 2048, "fp16", "fp32", "rows", "columns")

    def order(custom: int, generation=own):
        return usual_tables().order_of(call, Answer(13, 0, 1, 0, custom, generation=generation))

    assert order(111, HOPPER).known and not order(111).known  # a custom option of sm_90 alone
    for custom in (1, 2, 31, 84, 114):  # met in batches on Hopper, of which nothing is published for sm_100
        assert order(custom, HOPPER).known and not order(custom).known
    for custom in (0, 5, 8, 10, 14, 36, 86, 98):  # published
        assert order(custom).known
    assert order(7, HOPPER).schedule.sum != order(7).schedule.sum == order(6).schedule.sum  # nothing is closed there
    assert order(48).schedule == order(48, HOPPER).schedule
    assert generation_of(load("h100"), "cublas") == HOPPER and generation_of(load("mi300x"), "cublas") == HOPPER
