"""Sweeps: a grid of runs as a table, one row per point; finished points are never run twice by the same hwsim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwsim._version import __version__
from hwsim.errors import InputError
from hwsim.host.renderers import rendered
from hwsim.host.threads import worker_count
from hwsim.report.notebook import card
from hwsim.report.table_file import checked_table_path, write_table
from hwsim.report.text.words import plural
from hwsim.studies.one_problem import two_problems
from hwsim.studies.sweep_cluster import rows_on_cluster
from hwsim.studies.sweep_journal import SweepJournal, device_digest, journal_folder, key_of
from hwsim.studies.sweep_pool import COSTS, ERRORS, RESULT_COLUMNS, RESULTS, SweepTask, rows_of
from hwsim.studies.sweep_schemes import shown_names
from hwsim.studies.sweep_study import SweepPoint, SweepStudy, read_study


@dataclass(frozen=True, slots=True, repr=False)
class SweepTable:
    """A sweep's rows in the order of its grid: each {column: value}, with None where there is no value. It prints as a
    table of the columns that differ.

    columns: asked parameters, then results. computed, cached: points that were run, and those read from the cache.
    paths: columns that are numbers of devices. warnings: what makes rows no answers to one question.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    computed: int
    cached: int
    paths: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(rendered("text of a sweep", self))

    def __repr__(self) -> str:
        return f"<SweepTable {self.title}{': ' if self.title else ''}{self.counts}>"

    def _repr_html_(self) -> str:
        pairs = [("points", len(self.rows)), ("computed", self.computed), ("from the cache", self.cached)]
        shown = [name for name in self.columns if any(row.get(name) is not None for row in self.rows)]
        return card(self.title, pairs, shown, [[row.get(name) for name in shown] for row in self.rows])

    @property
    def counts(self) -> str:
        """How many points there are, and where they are from, in words."""
        points = plural(len(self.rows), "point")
        return f"{points}, {self.computed} computed, {self.cached} from the cache, {self.refused} refused"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The columns that were asked for."""
        return tuple(name for name in self.columns if name not in RESULT_COLUMNS)

    @property
    def refused(self) -> int:
        """The number of points that the device cannot run."""
        return sum(row["refused"] is not None for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """As plain data ready for JSON."""
        return {
            "schema": "hwsim.sweep/1",
            "hwsim_version": __version__,
            "title": self.title,
            "columns": list(self.columns),
            "rows": list(self.rows),
            "computed": self.computed,
            "cached": self.cached,
            "refused": self.refused,
            "warnings": list(self.warnings),
        }


def sweep(
    study: str | Path | Mapping[str, Any],
    *,
    numbers: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    cache: bool = True,
    progress: Callable[[float], None] | None = None,
) -> SweepTable:
    """Run the points of a study, a YAML file or a mapping of that shape (docs/sweeps.md), as a table.

    A point that the device cannot run is a row whose `refused` says why.

    Args:
        study: the path of a YAML file, or a mapping of its shape, whose schemes may be Scheme objects too; their rows
            are not cached.
        numbers: values of numbers of the devices, by path or pattern, beside the study's own `set`.
        out: a file for the table, .csv, .jsonl or .parquet (needs pyarrow).
        jobs: processes, by default one per processor.
        scheduler: address of a dask.distributed scheduler (tcp://host:8786), whose workers run the points instead.
        cache: read and write the journal of results (HWSIM_CACHE), from which a stopped sweep goes on.
        progress: called with shares of the points, 0 to 1.

    Raises:
        ConfigError: a wrong study or device file.
        InputError: unknown names, other arguments, and files that cannot be read or written.
        UnsupportedError: names of what hwsim does not have.
    """
    path = None if out is None else checked_table_path(Path(out))
    if scheduler is not None and jobs is not None:
        raise InputError("jobs: processes of this machine; the cluster of scheduler has its own workers: leave one out")
    workers = worker_count(jobs)
    sweep_study = read_study(study).with_numbers(numbers or {})
    journal = SweepJournal(journal_folder() if cache else None)
    table = _table(sweep_study, scheduler or workers, journal, progress)
    if path is not None:
        write_table(path, table.columns, table.rows)
    return table


def _table(
    study: SweepStudy, where: str | int, journal: SweepJournal, progress: Callable[[float], None] | None
) -> SweepTable:
    """The table of a study. where: a number of processes, or the address of a scheduler."""
    objects = study.scheme_objects
    shown = shown_names([scheme.name for scheme in study.schemes], objects)  # a wrong name is no row, but an error
    if isinstance(where, str) and objects:
        raise InputError(
            f"schemes: {', '.join(objects)}: an object of this process; workers of a cluster take FILE.py:NAME"
        )
    points = list(study.points())
    digests = {device.name: device_digest(device.name) for device in study.devices}
    rows_by_key = {key: row for digest in dict.fromkeys(digests.values()) for key, row in journal.read(digest).items()}
    keys = [key_of(point, study.exact, digests[point.device]) for point in points]
    tasks: dict[str, SweepTask] = {}
    for key, point in zip(keys, points, strict=True):
        if point.scheme in objects:  # what the object computes is not known from its name
            rows_by_key.pop(key, None)
        if key not in rows_by_key and key not in tasks:
            tasks[key] = SweepTask(point, key, digests[point.device], study.exact)
    cached = sum(key in rows_by_key for key in keys)
    todo = tuple(tasks.values())
    try:
        new_rows = (
            rows_on_cluster(todo, journal, where) if isinstance(where, str) else rows_of(todo, journal, where, objects)
        )
        for done, (key, row) in enumerate(new_rows if tasks else (), 1):
            rows_by_key[key] = row
            if progress is not None:
                progress(done / len(tasks))
    finally:
        journal.close()
        journal.warn()
    costs = COSTS if study.has_costs else ()
    results = (*RESULTS[:-1], *(ERRORS if study.exact else ()), *costs, RESULTS[-1])
    parameters = study.parameters
    rows = tuple(
        _parameters(point, parameters, shown) | {name: rows_by_key[key].get(name) for name in results}
        for key, point in zip(keys, points, strict=True)
    )
    schemes = {point.scheme: objects.get(point.scheme) or point.scheme for point in points}
    warnings = two_problems(
        [(point, schemes[point.scheme], rows_by_key[key]) for key, point in zip(keys, points, strict=True)],
        exact=study.exact,
    )
    return SweepTable(
        study.title,
        (*parameters, *results),
        rows,
        computed=len(tasks),
        cached=cached,
        paths=tuple(study.paths),
        warnings=tuple(warnings),
    )


def _parameters(point: SweepPoint, names: list[str], shown: Mapping[str, str]) -> dict[str, Any]:
    values = {
        **point.options,
        **dict(point.numbers),
        "device": point.device,
        "scheme": shown[point.scheme],
        "shape": point.shape or None,
    }
    return {name: values.get(name) for name in names}
