"""Run on a machine with an NVIDIA GPU: check the recorder, then compare the GPU with the simulator at length.

    PYTHONPATH=. python lab/tests/golden/hardware.py --device h200 --outputs 1e9 --seconds 420 --out build/record

1. Builds the recorder. 2. Runs the operands of the captured sets again: the recorder must give the captured results.
3. A campaign over every instruction whose rule is known; must show no mismatch. 4. A short one over those whose rule
on this GPU is a guess; shows what it shows. Summaries, and a small recorded file, go to --out.
Rules come from the device file where it has the instruction, else from tests/golden/hopper.py.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hwsim._kernels import gemm, variant
from hwsim.devices import dot_spec, load
from hwsim.errors import HwsimError, UnsupportedError
from hwsim.golden.recorder import Recorder, build, driver_version, select
from hwsim.golden.recording import command_line, record, today
from hwsim.golden.verify import all_sets, compute
from hwsim.numerics.units import DotSpec
from hwsim.operands.code_draws import DISTRIBUTIONS
from hwsim_lab.golden.campaign import Summary, campaign
from hwsim_lab.golden.questions import QUESTIONS, write_questions

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden"
sys.path.append(str(GOLDEN))
import hopper  # noqa: E402


def specs(device: str) -> Callable[[str], DotSpec]:
    """The dot unit of an instruction: the device file's, or the table's."""
    try:
        loaded: Any = load(device)
    except (HwsimError, ImportError) as error:
        print(f"no device file ({error}); using the table", flush=True)
        loaded = None

    @cache
    def find(name: str) -> DotSpec:
        if loaded is not None:
            with contextlib.suppress(UnsupportedError):
                return dot_spec(loaded, name)
        return hopper.spec(name)

    return find


def replay(recorder: Recorder, paths: list[Path]) -> int:
    """Captured operands through the recorder; returns the number of sets that differ or could not be run."""
    bad = results = 0
    for _, _, golden in all_sets(paths):
        try:
            same = np.array_equal(recorder.run(golden.instruction, golden.a, golden.b, golden.c), golden.d)
        except HwsimError as error:
            same = False
            print(error)
        results += golden.results
        if not same:
            bad += 1
            print(f"recorder differs from the capture: {golden.key}", flush=True)
    print(f"replay: {results} captured results, {bad} sets differ", flush=True)
    return bad


def main() -> int:
    """Exit status 0 when the replay and the campaign show no difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--outputs", type=float, default=1e9)
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--explore-seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("build/record"))
    parser.add_argument("--cache", type=Path, default=None, help="folder of the built library")
    options = parser.parse_args()
    start = time.monotonic()
    recorder = Recorder(build(folder=options.cache))
    gpu = recorder.gpu()
    print(
        f"{gpu}; {len(recorder.instructions)} instructions; kernels {variant}; built in "
        f"{time.monotonic() - start:.0f} s",
        flush=True,
    )
    bad = replay(recorder, [GOLDEN / "h200", GOLDEN / "h200_edge"])
    find = specs(options.device)
    guesses = {entry.name for entry in select(recorder.instructions, hopper.UNKNOWN)}
    known = [entry for entry in recorder.instructions.values() if entry.name not in guesses]

    def mma(device: str, name: str, a: Any, b: Any, c: Any) -> Any:
        return gemm(find(name), a, b, c)

    facts = Summary(gpu.name, driver_version(), options.device, options.seed, 0.0, command_line(), today())
    options.out.mkdir(parents=True, exist_ok=True)
    for folder, chosen, outputs, seconds in (
        ("campaign", known, int(options.outputs), options.seconds),
        ("guesses", [recorder.instructions[name] for name in sorted(guesses)], 3 * 10**7, options.explore_seconds),
    ):
        found = campaign(
            recorder.run,
            lambda golden: compute(mma, options.device, golden),
            chosen,
            summary=facts,
            outputs=outputs,
            seconds=seconds,
            threads=options.threads,
            keep=120,
            progress=lambda s: print(f"{s.seconds:.0f} s: {s.results:,} results, {s.mismatches:,} differ", flush=True),
        )
        found.write(options.out / folder)
        print(f"{folder}:\n{found.to_markdown()}", flush=True)
        for miss in found.first[:12]:
            print(json.dumps(dataclasses.asdict(miss))[:600])
        bad += found.mismatches + (found.results == 0) if folder == "campaign" else 0
        if folder == "campaign" and found.results < options.outputs:
            print(f"only {found.results:,} of {int(options.outputs):,} results in {options.seconds:.0f} s")
    answers = [
        question
        for question in QUESTIONS().values()
        if question.recordable and question.instruction.name in recorder.instructions
    ]
    write_questions(options.out / "questions_operands.npz", answers)
    total = record(
        options.out / "questions.npz",
        operands=options.out / "questions_operands.npz",
        device=options.device,
        recorder=recorder,
    )
    total += record(
        options.out / "sample.npz",
        cases=1,
        seed=options.seed,
        device=options.device,
        recorder=recorder,
        distributions=tuple(DISTRIBUTIONS),
        instructions=["*m64n8k*", "mma.*"],
    )
    print(f"recorded {total} results in {options.out}; {time.monotonic() - start:.0f} s in all")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
