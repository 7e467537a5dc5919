"""Points of a sweep in processes: what one run gives as a row, and workers that append rows as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwsim.analysis.area import area_notes, area_of
from hwsim.analysis.energy import energy
from hwsim.analysis.verdict import verdict_of
from hwsim.api import run
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.numbers import changed_instructions, with_numbers
from hwsim.errors import HwsimError, InputError, UnsupportedError
from hwsim.host.processes import WorkerGroup
from hwsim.libraries.notices import OF_LIBRARY
from hwsim.machines.timing import moved_bytes
from hwsim.result import Result
from hwsim.schemes import Scheme
from hwsim.studies.sweep_journal import SweepJournal
from hwsim.studies.sweep_study import SetNumbers, SweepPoint

#: What the times are of, by the names of hwsim.run's options: the state of L2, the clock, the board's power, launches.
STATE = ("timed_l2", "timed_clock_mhz", "timed_power_limit_w", "timed_launch_overhead")
#: Columns of a row's results, after the parameters.
RESULTS = (
    *(
        "chosen_scheme",
        "chosen_format",
        "memory_format",
        "chosen_tile",
        "chosen_k_group",
        "chosen_split_k",
        *STATE,
        "cycles",
        "seconds",
        "tflops",
        "peak_fraction",
        "bound",
        "roofline_bound",
        "hbm_bytes",
    ),
    *("numerics_evidence", "timing_evidence", "timing_note", "refused"),
)
UNDEFINED = "undefined_elements"  # that have no relative error: the column is empty where there are none
ERRORS = ("relative_frobenius", "max_relative", UNDEFINED)
COSTS = ("joules", "energy_evidence", "area_mm2", "cost_note")
RESULT_COLUMNS = (*RESULTS, *ERRORS, *COSTS)
VARIANTS = 64  # devices with other numbers that a process keeps
BATCH = 16  # points that a worker takes at once: timing alone is milliseconds
AHEAD = 4  # batches in line for each worker
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A point to run, with its key, the SHA-256 of its device, and whether bits are computed."""

    point: SweepPoint
    key: str
    device: str
    exact: bool


def row_of(task: SweepTask, threads: int | None = None, objects: Mapping[str, Scheme] | None = None) -> Row:
    """The results of a point by column; those that it lacks are None.

    threads: of the host, for the bits. objects: Scheme objects by the name that the point has.
    """
    point = task.point
    row: Row = dict.fromkeys((*RESULTS, *COSTS, *(ERRORS if task.exact else ())))
    try:
        result = run(
            device=_device(point),
            scheme=(objects or {}).get(point.scheme, point.scheme),
            exact=task.exact,
            threads=threads,
            **dict(point.options),
        )
        errors = result.error if task.exact else None
    except HwsimError as error:
        return row | {"refused": " ".join(str(error).split())}
    row |= {
        "chosen_scheme": result.scheme,
        "chosen_format": result.options.get("format"),
        "memory_format": result.options["input_format"],
        "chosen_tile": _tile(result),
        "chosen_k_group": result.options.get("k_group"),
        "chosen_split_k": result.options.get("split_k"),
        "cycles": result.cycles,
        "seconds": result.seconds,
        "tflops": result.tflops,
        "peak_fraction": result.peak_fraction,
        "bound": None if result.cycles is None else verdict_of(result.times, advises=False).bound,
        "roofline_bound": None if result.roofline is None else result.roofline.bound,
        "numerics_evidence": result.evidence.get("numerics"),
        "hbm_bytes": _hbm_bytes(result),
        "timing_note": "; ".join([*filter(None, [result.timing_note]), *_of_library(result)]) or None,
        "timing_evidence": None if result.seconds is None else result.evidence.get("timing"),
    }
    if (state := result.state) is not None:
        of_state = (state["l2"], state["clock_mhz"], state["power_limit_w"], state["launches"])
        row |= dict(zip(STATE, of_state, strict=True))
    row |= _costs(result)
    if errors is None:
        return row
    undefined = {} if errors.finite is None else {UNDEFINED: errors.finite.undefined}
    return row | {name: float(errors[name]) for name in ERRORS if name in errors} | undefined


def _hbm_bytes(result: Result) -> int | None:
    """Bytes from and to DRAM; None where nothing was timed, or the device has none."""
    if result.times.chip is None or result.times.chip.hbm is None:
        return None
    return moved_bytes(result.traffic_bytes, "HBM")


def _of_library(result: Result) -> list[str]:
    """What a run warns of a library's choice and times."""
    if result.gemm.library is None:
        return []
    return [warning["message"] for warning in result.warnings if warning["code"] in OF_LIBRARY]


def _tile(result: Result) -> str | None:
    """The tile of the first kernel that multiplies, as the option is written; None without a mapping."""
    tile = result.options.get("tile")
    return None if tile is None else ",".join(f"{side}={length}" for side, length in tile.items())


def _costs(result: Result) -> Row:
    """Energy and area of a result, where they are known. cost_note: why one is not, or which instruction decides it."""
    costs: Row = {}
    notes = []
    try:
        spent = energy(result.times, result.gemm)
        costs |= {"joules": spent.joules, "energy_evidence": spent.evidence}
    except UnsupportedError as error:
        notes.append(str(error))
    try:
        if result.call is not None:
            chip = result.call.device
            costs["area_mm2"] = area_of(chip).mm2
            notes += area_notes(chip, changed_instructions(chip))
    except UnsupportedError as error:
        notes.append(str(error))
    return costs | {"cost_note": "; ".join(notes) or None}


def _device(point: SweepPoint) -> str | Device:
    """The device of a point, with its other numbers. Raises InputError for numbers that it cannot have."""
    if not point.numbers:
        return point.device
    if point.options.get("library") is not None:
        paths = ", ".join(path for path, _ in point.numbers)
        raise InputError(f"library: its times are of the chip as it is, and {paths} would be others; leave one out")
    return _variant(point.device, load(point.device).sha256, point.numbers)


@lru_cache(maxsize=VARIANTS)
def _variant(device: str, sha256: str, numbers: SetNumbers) -> Device:
    return with_numbers(load(device), dict(numbers))


def rows_of(
    tasks: Sequence[SweepTask], journal: SweepJournal, jobs: int, objects: Mapping[str, Scheme]
) -> Iterator[tuple[str, Row]]:
    """Yield (key, row) of every task in the order in which they are done; each is in the journal by then.

    objects: Scheme objects by the name that points have; rows of these are not in the journal.
    """
    if jobs == 1 or len(tasks) == 1:
        for task in tasks:
            row = row_of(task, None, objects)
            if task.point.scheme not in objects:
                journal.append(task.device, task.key, row)
            yield task.key, row
        return
    size = 1 if tasks[0].exact else batch_size(len(tasks), jobs)
    batches = iter([tasks[i : i + size] for i in range(0, len(tasks), size)])
    try:
        with WorkerGroup("fork" if sys.platform == "linux" else "spawn") as group:
            pool = group.pool(jobs, _begin, (journal.folder, objects))
            waiting = {pool.submit(_work, batch) for batch in islice(batches, AHEAD * jobs)}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                waiting |= {pool.submit(_work, batch) for batch in islice(batches, len(done))}
                for future in done:
                    pairs, lost = future.result()
                    if lost:
                        journal.give_up(lost)
                    yield from pairs
    except BrokenProcessPool as error:
        raise UnsupportedError(
            "a process of the sweep was killed, as for want of memory; finished points are in the journal: "
            "run it again, with fewer --jobs"
        ) from error


def batch_size(count: int, jobs: int) -> int:
    """How many of `count` timed points a worker takes at once: rows, and progress with them, come after each batch."""
    return max(1, min(BATCH, count // (AHEAD * jobs)))


class _WorkerJournal:
    """What a worker process holds: its own descriptors of the journal, and the Scheme objects of the study."""

    journal = SweepJournal(None)
    objects: Mapping[str, Scheme] = MappingProxyType({})


def _begin(folder: Path | None, objects: Mapping[str, Scheme]) -> None:
    _WorkerJournal.journal = SweepJournal(folder)
    _WorkerJournal.objects = objects


def _work(tasks: Sequence[SweepTask]) -> tuple[list[tuple[str, Row]], str]:
    """The rows of some tasks, and why they are not in the journal, where they are not."""
    rows = []
    for task in tasks:
        row = row_of(task, 1, _WorkerJournal.objects)
        if task.point.scheme not in _WorkerJournal.objects:
            _WorkerJournal.journal.append(task.device, task.key, row)
        rows.append((task.key, row))
    return rows, _WorkerJournal.journal.lost
