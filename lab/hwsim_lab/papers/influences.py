"""How far assumptions move what was measured for claims, and whether verdicts turn, those of claims that hold too.

It runs experiments again with assumptions at the ends of their ranges, cached as those before; it knows neither what an
experiment measures nor how a value is put in its place.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwsim.host.files import write_text
from hwsim.host.processes import WorkerGroup
from hwsim_lab.papers import assumptions, processes, reproduce, varied
from hwsim_lab.papers.assumptions import OTHER_SEED, VARIED_KINDS, AssumedRange, Assumption
from hwsim_lab.papers.claims import Verdict
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Scale
from hwsim_lab.papers.reproduce import ClaimInfluence, ClaimOutcome, InfluenceEnd, Progress, Reproduction
from hwsim_lab.papers.varied import Variation, VariedRun

ASKED: tuple[Verdict, ...] = ("holds", "order", "fails")
OPERANDS = "operands"
#: Kinds that no assumption of hwsim's moves, and why.
UNMOVED = {
    "bits": "bit patterns, by a rule or as recorded: no assumed number moves them",
    "data sheet": "a ratio or a product of numbers of data sheets: no assumed number moves it",
    "definition": "a formula, a format or a count: it follows from the definition",
    "design": "the paper's own sizes and pieces: it follows from them",
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """One experiment, the assumption (None: operands) with its ends, and the outcomes that it may move."""

    paper: str
    experiment: Experiment
    assumption: Assumption | None
    range: AssumedRange
    outcomes: tuple[ClaimOutcome, ...]


def is_asked(outcome: ClaimOutcome) -> bool:
    """Whether what moves a claim is asked: of every claim that was measured."""
    return outcome.verdict in ASKED


def seconds_left(found: Reproduction, scale: Scale) -> float:
    """What is left to run takes about this long on two cores."""
    return sum(
        one.experiment.seconds[scale] + START_SECONDS
        for one in _asked(found)
        for value in one.range.others
        if not _path(one, value, scale).exists()
    )


START_SECONDS = 2.0  # of a process


def with_influences(
    found: Reproduction, scale: Scale, progress: Progress | None = None, *, only_cached: bool = False, jobs: int = 1
) -> Reproduction:
    """The reproduction with the influences of assumptions on claims. Runs done before are read.

    only_cached: those alone; nothing is run. jobs: runs at a time, each in a process of its own.
    """
    asked = [
        one for one in _asked(found) if not only_cached or all(_path(one, x, scale).exists() for x in one.range.others)
    ]
    runs_of = _runs(asked, scale, jobs, progress)
    moved: dict[str, list[ClaimInfluence]] = {}
    for one, runs in zip(asked, runs_of, strict=True):
        for outcome in one.outcomes:
            moved.setdefault(outcome.id, []).append(_influence(one, outcome, runs))
    outcomes = tuple(
        replace(outcome, influences=tuple(moved.get(outcome.id, ())), unmoved=why_unmoved(outcome))
        if is_asked(outcome)
        else outcome
        for outcome in found.outcomes
    )
    return replace(found, outcomes=outcomes)


def vary_cheapest(found: Reproduction, scale: Scale, seconds: float) -> int:
    """Vary assumptions one after another, the cheapest for a claim first; none is begun after so many seconds.

    What ended is kept, as `with_influences` keeps it. Returns how many runs are left.
    """
    begun = time.monotonic()
    left = [
        (one, value) for one in sorted(_asked(found), key=lambda one: _cost(one, scale)) for value in one.range.others
        if not _path(one, value, scale).exists()
    ]  # fmt: skip
    with WorkerGroup() as group:
        while left and time.monotonic() - begun < seconds:
            one, value = left.pop(0)
            _run(group, one, value, scale)
    return len(left)


def _cost(one: _Asked, scale: Scale) -> float:
    """Seconds for each claim that an assumption may move."""
    return (one.experiment.seconds[scale] + START_SECONDS) * len(one.range.others) / len(one.outcomes)


def _runs(asked: Sequence[_Asked], scale: Scale, jobs: int, progress: Progress | None) -> list[list[VariedRun]]:
    """The runs behind each, `jobs` at a time, the longest first."""
    tasks = [(i, one, value) for i, one in enumerate(asked) for value in one.range.others]
    total = sum(one.experiment.seconds[scale] for _, one, _ in tasks) or 1.0
    done = 0.0
    with (
        processes.shared_threads(jobs) if jobs > 1 else nullcontext(),
        ThreadPoolExecutor(jobs) as threads,
        WorkerGroup() as group,
    ):
        by_length = sorted(tasks, key=lambda task: -task[1].experiment.seconds[scale] if jobs > 1 else 0)
        pending = {threads.submit(_run, group, one, value, scale): one for _, one, value in by_length}
        try:
            for future in as_completed(pending):
                future.result()
                done += pending[future].experiment.seconds[scale]
                if progress is not None:
                    progress(done / total)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [[_stored(one, value, scale) for value in one.range.others] for one in asked]


def why_unmoved(outcome: ClaimOutcome) -> str:
    """Why no assumption moves a claim; empty where one may."""
    if outcome.claim.kind not in VARIED_KINDS:
        return UNMOVED[outcome.claim.kind]
    return assumptions.read(outcome.paper).unmoved.get(outcome.claim.id, "")


def _asked(found: Reproduction) -> Iterator[_Asked]:
    for paper in dict.fromkeys(outcome.paper for outcome in found.outcomes):
        own = {one.claim.id: one for one in found.outcomes if one.paper == paper and is_asked(one)}
        file = assumptions.read(paper)
        for experiment in reproduce.experiments(paper):
            here = [own[id] for id in experiment.claims if id in own and not why_unmoved(own[id])]
            drawn = tuple(one for one in here if one.claim.kind == "accuracy")
            if drawn:
                other = AssumedRange(value=0, others=(OTHER_SEED,), said="all drawn with other seeds")
                yield _Asked(paper, experiment, None, other, drawn)
            for one in file.assumptions:
                moved = tuple(x for x in here if one.experiment == experiment.name and one.moves(x.claim.id))
                if moved:
                    yield _Asked(paper, experiment, one, assumptions.range_of_assumption(one), moved)


def _path(one: _Asked, value: Any, scale: Scale) -> Path:
    digest = hashlib.sha256(Variation(one.assumption, value).key.encode()).hexdigest()
    plain = reproduce.cached_path(one.paper, one.experiment, scale)
    return plain.with_name(f"{plain.stem}-{digest[:12]}.json")


def _run(group: WorkerGroup, one: _Asked, value: Any, scale: Scale) -> None:
    path = _path(one, value, scale)
    if not path.exists():
        made = varied.run_apart(group, one.paper, one.experiment.name, scale, Variation(one.assumption, value))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(reproduce.plain(asdict(made))))


def _stored(one: _Asked, value: Any, scale: Scale) -> VariedRun:
    stored = json.loads(_path(one, value, scale).read_text(encoding="utf-8"))
    return VariedRun(reproduce.numbers(stored["measured"]), stored["refused"])


def _influence(one: _Asked, outcome: ClaimOutcome, runs: Sequence[VariedRun]) -> ClaimInfluence:
    about = one.assumption
    values = tuple(
        _end(outcome, value, run.measured.get(outcome.claim.id, {}), run.refused)
        for value, run in zip(one.range.others, runs, strict=True)
    )
    return ClaimInfluence(
        OPERANDS if about is None else about.name,
        one.range.value,
        one.range.said,
        "" if about is None else about.why,
        values,
    )


def _end(outcome: ClaimOutcome, value: Any, measured: Mapping[str, Quantity], refused: str) -> InfluenceEnd:
    if not measured:
        return InfluenceEnd(value, {}, None, {}, refused or "not measured")
    return InfluenceEnd(value, dict(measured), outcome.claim.verdict(measured), moves(outcome.measured, measured))


def moves(before: Mapping[str, Quantity], after: Mapping[str, Quantity]) -> dict[str, list[float]]:
    """By quantity, the least and the greatest relative change of its elements; left out where lengths differ."""
    found = {}
    for name, value in before.items():
        old, new = (np.ravel(np.asarray(x, dtype=np.float64)) for x in (value, after[name]))
        if old.shape != new.shape or not len(old):
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(new == old, 0.0, (new - old) / np.abs(old))
        found[name] = [float(np.min(change)), float(np.max(change))]
    return found
