"""Experiments and their cells computed by several processes, and kept where `reproduce` finds them.

It knows what depends on what, and how many host threads a process may have; nothing of what is computed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hwsim.host.processes import WorkerGroup
from hwsim.host.threads import worker_count
from hwsim_lab.papers import cells, reproduce
from hwsim_lab.papers.cells import CellCall
from hwsim_lab.papers.experiment import Experiment, Scale
from hwsim_lab.papers.reproduce import Progress

#: Environment variables by which hwsim and the libraries below NumPy bound their threads.
THREADS = ("HWSIM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def shared_threads(jobs: int) -> Iterator[None]:
    """Processes started within the block have the host's threads divided by `jobs`, where nothing else is set."""
    count = str(max(1, worker_count() // jobs))
    own = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(own, count))
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)


@dataclass(slots=True)
class _Waiting:
    """An experiment with its cells by file, in its own order (the longest first, where it knows), and the files of
    those that are not there yet.
    """

    paper: str
    experiment: Experiment
    calls: dict[Path, CellCall] = field(default_factory=dict)
    left: set[Path] = field(default_factory=set)

    def seconds(self, scale: Scale) -> float:
        """What one task of it may take on two cores."""
        return self.experiment.seconds[scale] / (len(self.calls) + 1)


def run(papers: Sequence[str], item: str | None, *, scale: Scale, jobs: int, progress: Progress | None = None) -> None:
    """Run the experiments of papers (of one item) that are not cached, `jobs` processes at a time, cells apart.

    What ended is kept, whatever happens to the others. Raises what the first of them raises.
    """
    todo = [_waiting(paper, one, scale) for paper in papers for one in reproduce.chosen(paper, item)]
    todo = [one for one in todo if not reproduce.cached_path(one.paper, one.experiment, scale).exists()]
    if not todo:
        return
    seconds_of = {path: one.seconds(scale) for one in todo for path in one.left}
    total = sum(seconds_of.values()) + sum(one.seconds(scale) for one in todo) or 1.0
    done = 0.0
    with shared_threads(jobs), WorkerGroup() as group:
        pool = group.pool(jobs)
        pending: dict[Future[None], float] = {}
        of_cell: dict[Future[None], Path] = {}
        for one in sorted(todo, key=lambda x: -x.seconds(scale)):
            for path in (path for path in one.calls if path in one.left and path not in of_cell.values()):
                future = pool.submit(_run_cell, path.parent, one.calls[path])
                pending[future], of_cell[future] = seconds_of[path], path
            if not one.left:
                task = pool.submit(_run_experiment, one.paper, one.experiment.name, scale)
                pending[task] = one.seconds(scale)
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                future.result()
                done += pending.pop(future)
                for one in _ready(todo, of_cell.pop(future, None)):
                    task = pool.submit(_run_experiment, one.paper, one.experiment.name, scale)
                    pending[task] = one.seconds(scale)
            if progress is not None:
                progress(min(done / total, 1.0))


def _waiting(paper: str, one: Experiment, scale: Scale) -> _Waiting:
    with cells.stored_in(reproduce.cells_folder(paper)):
        calls = {call.path: call for call in one.cells(scale)}
    return _Waiting(paper, one, calls, {path for path in calls if not path.exists()})


def _ready(todo: Sequence[_Waiting], ended: Path | None) -> list[_Waiting]:
    """The experiments whose last cell has ended."""
    waited = [one for one in todo if ended in one.left]
    for one in waited:
        one.left -= {path for path in one.left if path == ended}
    return [one for one in waited if not one.left]


def _run_cell(folder: Path, call: CellCall) -> None:
    with cells.stored_in(folder):
        call.run()


def _run_experiment(paper: str, name: str, scale: Scale) -> None:
    one = next(one for one in reproduce.experiments(paper) if one.name == name)
    reproduce.measured(paper, one, scale)
