"""What an audit found: roles of points that moved a choice, sources that say what they are cited for.

The definitions that it found are tested with their schemes: Markidis' rounding, Ootomo's leading product in the unit,
zeros, numbers that BF16 rounds to infinity, notices below a range in tests/schemes/straight; INT16 in test_ape.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwsim.devices import load
from hwsim_lab.papers import anchor_data

ROOT = Path(__file__).parents[3]
MOVED = (
    *("910a-fig11-4096", "910a-fig11-8192", "910a-fig11-16384", "910a-fig11-k4096", "910a-fig11-k16384"),
    *("bf16x9-idle", "le-pipeline-a800"),
    *("ape-fp32", "ape-m", "ape-f", "ape-f-calls", "ape-t", "ape-b", "ape-b-calls", "ape-f-fp32", "ape-b-fp32"),
    *("ape-f-m-a100", "ape-b-f"),
    *("mi300x-maf-bf16", "mi300x-maf-fp16", "mi300x-maf-e4m3fnuz"),
    # Clocks under load, rates per format and joules: published throughput of chips.
    *("h100-fp16", "h100-bf16", "h200-torch-fp16", "h200-torch-bf16", "b200-fp16", "b200-bf16"),
    *("b200-750w-fp16-2048", "b200-750w-fp16-4096", "b200-750w-fp16-8192", "gb200-aic-e4m3-3584x51200x10240"),
    *("l40s-torch-fp32", "rtx3090-torch-fp32", "rtx5090-torch-fp32"),
)


def test_points_that_moved_a_card_a_tile_a_range_or_a_lowering_are_seen() -> None:
    roles = {one.id: one.role for one in anchor_data.read().points}
    assert {roles[id] for id in MOVED} == {"seen"}
    assert {id for id, role in roles.items() if role == "seen"} == set(MOVED)


def test_a_ratio_of_two_calibrations_is_a_calibration() -> None:
    roles = {one.id: one.role for one in anchor_data.read().points}
    assert roles["910a-double"] == roles["910a-single"] == roles["910a-ratio"] == "calibration"


@pytest.mark.parametrize(
    ("device", "path", "source", "evidence"),
    [
        ("ascend910a", "hbm.capacity_bytes", "APE", "paper"),
        ("ascend910b3", "hbm.capacity_bytes", "S1", "assumption"),
        ("tf64", "instructions.mma.m8n8k4.f64.f32.f32.f64.m", "TF64; it proposes the unit and no instruction", ""),
        ("tf64", "instructions.mma.m8n8k4.f64.f32.f32.f64.timing.drain_cycles", "TF64; it proposes the unit", ""),
        (
            "tf64", "instructions.mma.m8n8k4.f64.f32.f32.f64.timing.accumulate_latency_cycles",
            "TF64; it proposes the unit", "",
        ),
    ],
)  # fmt: skip
def test_sources_of_numbers_say_them(device: str, path: str, source: str, evidence: str) -> None:
    about = load(device).evidence[path]
    assert str(about.source).startswith(source)
    assert str(about.evidence) == (evidence or "assumption")


def test_projections_and_sections_that_there_are() -> None:
    sources = anchor_data.read().sources
    assert "53 TFLOP/s" in sources["S5"] and "section 4.2" in sources["S1"]
    page = (ROOT / "lab" / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert "at most 1.05 times elementwise at every point" in page and "1.059 at m = n = 128" in page
