"""A library's call with a C, and of a stack of matrices: evidence and rates, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.devices import instruction, load
from hwsim.libraries.gemm_call import GemmCall


@pytest.mark.parametrize("batch", [1, 64])
def test_rates_of_a_librarys_call_are_of_its_seconds_and_of_all_matrices_of_a_stack(batch: int) -> None:
    """2 m n k by the seconds, and its share of the peak at the clock in force, by hand."""
    m, n, k = 512, 384, 512
    a, b = np.ones((batch, m, k), np.float16), np.ones((batch, k, n), np.float16)
    operands = (a, b) if batch > 1 else (a[0], b[0])
    result = hwsim.run(*operands, exact=False, device="h200", library="cublas", format="fp16")
    assert result.tflops == pytest.approx(2e-12 * batch * m * n * k / result.seconds)
    chip, clock_mhz = load("h200"), result.times.clock_mhz
    unit = instruction(chip, chip.native["fp16"])
    peak = 2e-6 * float(unit.macs_per_cycle) * chip.cores * clock_mhz
    assert result.peak_fraction == pytest.approx(result.tflops / peak, rel=1e-3)
    alone = hwsim.run(a[0], b[0], exact=False, device="h200", library="cublas", format="fp16")
    assert batch == 1 or alone.seconds < result.seconds < batch * alone.seconds


@pytest.mark.parametrize(
    ("output", "evidence", "parts"), [("fp32", "fitted", ()), ("bf16", "assumption", ("a C",)), (None, "fitted", ())]
)
def test_a_c_is_beyond_the_answers_for_narrow_results_alone(
    output: str | None, evidence: str, parts: tuple[str, ...]
) -> None:
    """8-bit floats were asked without a C: of a wide result it changes nothing, of a narrow one it may."""
    call = GemmCall(m=512, n=512, k=4096, format="e4m3", output=output, has_c=True, b_layout="columns")
    choice = hwsim.library("cublas", device="h200").choose(call)
    assert (choice.evidence, choice.unasked.parts) == (evidence, parts)
