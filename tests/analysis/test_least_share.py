"""Advice never promises time that products and bytes need, and never contradicts a library's fitted time."""

from __future__ import annotations

import random

import pytest

import hwsim
from hwsim.analysis.least_share import least_share
from hwsim.devices import instruction, load
from hwsim.report.page.run_page import run_page

ONCE = {"m": 112, "n": 6144, "k": 10240}
DEVICES = ("a100", "h200", "b200", "mi300x", "l40s", "ascend910a", "ascend910b")


def draws(count: int) -> list[dict[str, object]]:
    rng = random.Random(20261129)
    return [
        {
            "device": rng.choice(DEVICES),
            "m": rng.choice((16, 100, 200, 384)),
            "n": 64 * rng.randrange(4, 60),
            "k": 64 * rng.randrange(4, 100),
            "format": "fp16",
            "output": rng.choice((None, "fp16")),
            "l2": rng.choice(("series", "cold")),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("call", draws(16), ids=lambda call: f"{call['device']}-{call['m']}-{call['n']}-{call['k']}")
def test_at_most_leaves_the_time_of_products_and_bytes(call: dict[str, object]) -> None:
    result = hwsim.run(**call, exact=False)  # type: ignore[arg-type]
    assert result.cycles is not None and result.seconds is not None
    chip, moved = load(str(call["device"])), result.traffic_bytes
    hertz = result.cycles / result.seconds
    m, n, k = result.m, result.n, result.k
    unit = instruction(chip, result.times.unit)
    of_products = m * n * k / (float(unit.macs_per_cycle) * chip.cores) / result.cycles
    assert least_share(result.times) >= of_products * 0.999
    floors = [of_products]
    if chip.hbm is not None:
        wide = 2 if call["output"] == "fp16" else 4
        once = min(moved.get("HBM read", 0), 2 * (m * k + k * n)) + min(moved.get("HBM write", 0), wide * m * n)
        floors.append(once / chip.hbm.bytes_per_second * hertz / result.cycles)
        assert floors[1] < 1.001  # the program takes at least as long
    for advice in result.verdict.advice:
        if advice.is_most and "already" not in advice.change:
            assert advice.gain <= 1 - max(floors) + 0.01, str(advice)


def test_tiles_save_no_more_than_dram_leaves() -> None:
    verdict = hwsim.run(device="b200", format="fp16", output="fp16", b_layout="columns", exact=False, **ONCE).verdict
    busy = next(part.share for part in verdict.parts if part.kind == "DRAM")
    tiles = next(advice for advice in verdict.advice if advice.option == "hwsim tune")
    assert tiles.is_most and busy > 0.6 and tiles.gain == pytest.approx(1 - busy, abs=0.001)
    assert verdict.lost["idle cores"] > 0.6 and not tiles.of_device


def test_changes_of_the_call_come_before_changes_of_the_device() -> None:
    advice = hwsim.run(device="h200", format="bf16", m=96, n=3072, k=12288, exact=False).verdict.advice
    of_device = [item.of_device for item in advice]
    assert of_device == sorted(of_device) and set(of_device) == {False, True}
    assert [item.of_device for item in advice] == [item.option.startswith("--what-if") for item in advice]


def test_a_librarys_time_that_the_program_contradicts_gets_no_percentage() -> None:
    result = hwsim.run(device="h100", format="fp16", library="cublas", exact=False, **ONCE)
    times, point = result.times, result.roofline
    assert times.program_seconds is not None and result.seconds is not None and point is not None
    apart = result.seconds / times.program_seconds - 1
    assert apart < -0.1 and times.beside_program == pytest.approx(apart)
    text = " ".join(result.verdict.sentences)
    assert text.startswith("the program is ") and f"fitted time is {-100 * apart:.0f} % less" in text
    of_program = [item for item in result.verdict.advice if not item.option.startswith("--output")]  # by fitted times
    assert of_program and not any(item.of_device or "%" in str(item) for item in of_program)
    with_launches = hwsim.run(device="h100", format="fp16", library="cublas", exact=False, launch_overhead=True, **ONCE)
    assert with_launches.seconds > result.seconds
    assert with_launches.times.beside_program == pytest.approx(apart)
    assert not any("what-if" in item.option for item in result.verdict.advice)
    assert point.achieved == pytest.approx(result.tflops)
    first = result.verdict.advice[0]
    assert "hwsim tune --library cublas" in str(first) and "is not known" in str(first)
    assert first.gain is first.to_dict()["gain"] is None and not first.is_most


def test_a_page_says_that_a_gain_is_not_known() -> None:
    pytest.importorskip("plotly")  # the script of a page
    result = hwsim.run(device="h100", format="fp16", library="cublas", exact=False, **ONCE)
    assert result.verdict.advice[0].gain is None and ">not known<" in run_page(result).html()


def test_a_librarys_time_near_the_programs_keeps_the_advice() -> None:
    result = hwsim.run(
        device="h200",
        format="bf16",
        output="bf16",
        b_layout="columns",
        library="cublas",
        m=96,
        n=3072,
        k=12288,
        exact=False,
    )
    assert 0 < abs(result.times.beside_program) < 0.1
    assert any(item.of_device for item in result.verdict.advice) and "cannot be divided" in result.verdict.sentences[1]
