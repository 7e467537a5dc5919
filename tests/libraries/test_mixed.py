"""e4m3 times e5m2 through the library: cuBLASLt answers as for e4m3 alone, but for alignment (asked on an H100)."""

import csv
import gzip
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.errors import UnsupportedError
from hwsim.libraries.recording.gemm_list import pair, parse

GOLDEN = Path(__file__).parents[1] / "golden" / "h200_library"
CALL = {"m": 96, "n": 512, "k": 1024, "output": "bf16", "b_layout": "columns"}


def test_choices_for_two_formats_are_cublaslts() -> None:
    """Algorithm and slices of 3,600 answers."""
    right, count = 0, 0
    choose = hwsim.library("cublas", device="h100", workspace_bytes=1 << 20).choose
    with gzip.open(GOLDEN / "answers_mixed.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            operand, output, fast, _ = parse(row["kind"])
            first, second = pair(operand)
            choice = choose(
                **{name: int(row[name]) for name in ("m", "n", "k")}, format=first, format_b=second, output=output,
                accumulate="fast" if fast else "promoted", b_layout="columns",
            )  # fmt: skip
            right += (choice.algorithm, choice.split_k) == (int(row["id"]), max(int(row["splitk"]), 1))
            count += 1
    assert count == 3600 and right / count > 0.985


def test_evidence_is_of_the_chip_that_was_asked() -> None:
    h100, h200 = (hwsim.library("cublas", device=name) for name in ("h100", "h200"))
    assert h100.choose(**CALL, format="e4m3", format_b="e5m2").evidence == "fitted"
    assert h200.choose(**CALL, format="e5m2", format_b="e4m3").evidence == "assumption"
    assert h100.choose(**CALL, format="e4m3", format_b="e4m3") == h100.choose(**CALL, format="e4m3")
    of_a_weight = CALL | {"n": 4096, "k": 4096}  # cuBLASLt's own answer ships, for e4m3 alone
    choose = hwsim.library("cublas", device="h100", workspace_bytes=1 << 20).choose
    known, mixed = (choose(**of_a_weight, format="e4m3", format_b=other) for other in (None, "e5m2"))
    assert (known.evidence, known.confidence) == ("microbenchmark", 1)
    assert mixed.evidence == "fitted" and 0.999 < mixed.confidence < 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"format": "e5m2"}, "no e5m2 by e5m2"),
        ({"format": "fp16", "format_b": "bf16"}, "no fp16 by bf16"),
        ({"format": "e4m3", "format_b": "e5m2", "k": 1032}, "whole 16 bytes"),
        ({"format": "e4m3", "format_b": "e5m2", "b_layout": "rows"}, "K-major"),
    ],
)
def test_refusals_say_why(given, said) -> None:
    with pytest.raises(UnsupportedError, match=said):
        hwsim.library("cublas", device="h100").choose(**(CALL | given))


def test_a_run_multiplies_two_formats() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((32, 256)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((256, 48)).astype(ml_dtypes.float8_e5m2)
    named = {"format": "e4m3", "format_b": "e5m2", "output": "fp32"}
    run = hwsim.run(a, b, device="h100", library="cublas", b_layout="columns", **named)
    plain = hwsim.matmul(a, b, device="h100", **named)
    assert run.gemm.decided("kernel").value.startswith("nvjet") and run.seconds > 0
    assert run.gemm.decided("times").evidence == "assumption"
    assert np.array_equal(run.c, plain)  # one chain in order of K
