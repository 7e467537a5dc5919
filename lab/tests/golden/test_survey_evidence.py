"""What a result calls silicon, beside the survey of cuBLAS on an H200."""

import json
from pathlib import Path

from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim.resolve.evidence import of_schedule
from hwsim.resolve.prepare import prepare
from hwsim.schemes import scheme_of
from hwsim_lab.golden.survey import read_survey

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"


def test_no_gemm_of_the_survey_contradicts_it():
    """What is called silicon follows the default schedule wherever it was recorded, and that is no empty set."""
    chip, folder = load("h200"), GOLDEN / "h200_cublas"
    others = json.loads((folder / "schedules.json").read_text())
    survey = read_survey(folder / "survey.npz")
    level: dict[tuple[str, str, str | None, float, float], list[bool]] = {}
    for entry in survey.entries:
        options = {} if entry.accumulate is None else {"accumulate": entry.accumulate}
        sizes = entry.m, entry.n, entry.k
        epilogue = {"alpha": entry.alpha, "beta": entry.beta, "output": entry.output}
        ready = prepare(
            chip,
            scheme_of("native"),
            Problem.of(entry.format, *sizes, has_c=bool(entry.beta)),
            format=entry.format,
            scheme_options=options,
            **epilogue,
        )
        if of_schedule(chip, ready.gemm) == "silicon":
            kind = (entry.format, entry.output, entry.accumulate, entry.alpha, entry.beta)
            level.setdefault(kind, []).append(
                others.get(str(entry.index), {"verdict": "default"})["verdict"] == "default"
            )
    assert all(all(found) for found in level.values())
    assert len(level) == 12 and min(len(found) for found in level.values()) >= 7
    assert {kind for kind in level if kind[0] == "fp16"} == {
        ("fp16", "fp32", None, 1.0, 0.0),
        ("fp16", "fp16", None, 1.0, 0.0),
    }
