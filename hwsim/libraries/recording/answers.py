"""Asking a library for GEMMs and weights, and the file of its answers that `library=` takes.

It knows what is asked and the file; not how the library is reached (`Heuristic`), and it runs no GEMM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hwsim.errors import UnsupportedError
from hwsim.libraries.cublas.answers.sweeps import REFUSED_ID, CallKind, Recorded, Runs, write
from hwsim.libraries.cublas.calls import MOST_SIZE
from hwsim.libraries.recording.cublaslt import Kind, LtAnswer
from hwsim.libraries.recording.rows_asked import grid, runs
from hwsim.libraries.recording.shapes import GemmForm, GemmShape, Wanted

LIBRARY = "cublas"
MAJORS = (12, 13)  # versions whose C interface hwsim.libraries.recording.cublaslt knows

Progress = Callable[[float], None]


class Heuristic(Protocol):
    """cuBLASLt's heuristic on the GPU at hand. version: cuBLASLt's number, as 130100."""

    @property
    def version(self) -> int: ...

    def ask(
        self,
        kind: Kind,
        m: int,
        n: int,
        k: int,
        *,
        a_columns: bool,
        b_columns: bool,
        workspace: int,
        reductions: int,
    ) -> LtAnswer: ...


@dataclass(frozen=True, slots=True)
class Answers:
    """What the library answered: by kind of call and weight (n, k) its runs over m; m asked for, and single GEMMs that
    the library refuses."""

    by_kind: Mapping[CallKind, Mapping[tuple[int, int], Runs]]
    asked: int
    refused: tuple[GemmShape, ...]

    @property
    def count(self) -> int:
        """Runs of m with an answer that is no refusal."""
        answers = (
            answer for weights in self.by_kind.values() for weight_runs in weights.values() for _, answer in weight_runs
        )
        return sum(answer is not None and answer[0] != REFUSED_ID for answer in answers)


def version_name(number: int) -> str:
    """As files have it: "13.1" for 130100, "12.9.1" for 120901. Raises UnsupportedError for a version whose C interface
    is not known.
    """
    major, minor, patch = number // 10000, number // 100 % 100, number % 100
    if major not in MAJORS:
        versions = " and ".join(map(str, MAJORS))
        raise UnsupportedError(
            f"cuBLASLt {number}: its C interface is known here for versions {versions}; install a PyTorch with CUDA of "
            "such a version, or name its libcublasLt.so in HWSIM_CUBLASLT"
        )
    return f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"


def ask_all(heuristic: Heuristic, wanted: Wanted, progress: Progress | None = None) -> Answers:
    """Ask for every single GEMM, and for every weight along m (hwsim.libraries.recording.rows_asked).

    progress: shares, 0 to 1.
    """
    spans: dict[GemmForm, list[tuple[int, int]]] = {}
    for shape in wanted.shapes:
        spans.setdefault(shape.form, []).append((shape.m, shape.m))
    for sweep in wanted.sweeps:
        spans.setdefault(sweep.form, []).append((sweep.first, sweep.last))
    questions = 0
    by_kind: dict[CallKind, dict[tuple[int, int], Runs]] = {}
    for done, (form, ranges) in enumerate(spans.items()):
        kind, put = form.call_kind, form.asked

        def ask(m: int, form: GemmForm = form, kind: CallKind = kind, put: Kind = put) -> Recorded:
            nonlocal questions
            questions += 1
            a_columns, b_columns = form.a_layout == "columns", form.b_layout == "columns"
            answer = heuristic.ask(
                put,
                m,
                form.n,
                form.k,
                a_columns=a_columns,
                b_columns=b_columns,
                workspace=kind.workspace_bytes,
                reductions=kind.reductions,
            )
            return recorded(answer)

        by_kind.setdefault(kind, {})[form.n, form.k] = _along(ranges, ask)
        if progress is not None:
            progress((done + 1) / len(spans))
    refused = tuple(
        shape
        for shape in wanted.shapes
        if _at(by_kind[shape.form.call_kind][shape.form.n, shape.form.k], shape.m) == REFUSED_ID
    )
    return Answers(by_kind, questions, refused)


def recorded(answer: LtAnswer) -> Recorded:
    """As `hwsim.libraries.cublas.answers.sweeps.FIELDS` has it."""
    return (
        answer.id,
        answer.stages,
        answer.splitk,
        answer.reduction,
        answer.custom,
        answer.tile,
        answer.cluster,
        answer.swizzle,
    )


def _along(spans: Iterable[tuple[int, int]], ask: Callable[[int], Recorded]) -> Runs:
    """The runs over m of overlapping spans, (first, last); what is between them was not asked."""
    joined: list[tuple[int, int, set[int]]] = []  # first, last, points
    for first, last in sorted(set(spans)):
        points = set(grid(first, last)) if first < last else {first}
        if joined and first <= joined[-1][1]:
            start, stop, before = joined[-1]
            joined[-1] = (start, max(stop, last), before | points)
        else:
            joined.append((first, last, points))
    along: Runs = []
    for place, (_, last, points) in enumerate(joined):
        along += runs(ask, sorted(points))
        goes_on = place + 1 < len(joined) and joined[place + 1][0] == last + 1
        if not goes_on and last < MOST_SIZE:
            along.append((last + 1, None))
    return along


def _at(runs: Runs, m: int) -> int | None:
    """The algorithm's id at m."""
    answer = [answer for first, answer in runs if first <= m][-1]
    return None if answer is None else answer[0]


def write_answers(path: Path, answers: Answers, *, device: str, cores: int, version: str, source: str) -> None:
    """Write the file, whole or not at all. device: the name under which `library=` looks for it; cores: its SMs."""
    entries = [(kind, (device,), weights) for kind, weights in answers.by_kind.items()]
    write(path, library=LIBRARY, version=version, source=source, cores={device: cores}, entries=entries)
