"""Options that a scheme settles itself: the report says what they are."""

from __future__ import annotations

import pytest

import hwsim
from hwsim.report.text.run_text import run_text


@pytest.mark.parametrize(
    "scheme, options, shown",
    [
        ("ozaki-int8", {}, "slices 8,"),
        ("ozaki2-int8", {"input_format": "fp64"}, "moduli 15, mode fast, result fp64"),
        ("ozaki2-int8", {"input_format": "fp32"}, "moduli 7, mode fast, result fp32"),
        ("ozaki2-fp8", {"mode": "accurate", "input_format": "fp64"}, "moduli 13, mode accurate, result fp64"),
    ],
)
def test_the_report_has_the_number_of_slices_and_moduli(scheme: str, options: dict, shown: str) -> None:
    result = hwsim.run(m=16, n=16, k=16, device="h200", scheme=scheme, exact=False, **options)
    text = " ".join(run_text(result).split())
    assert shown in text and "chosen by hwsim" not in text
