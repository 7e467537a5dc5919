"""Cells: kept within a folder, told apart by their arguments, resumed from a checkpoint, shared by processes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwsim.errors import InputError
from hwsim.host import cache
from hwsim.host.threads import worker_count
from hwsim_lab.papers import cells, processes, reproduce
from hwsim_lab.papers.ape import circuits
from hwsim_lab.papers.bf16x9 import spectral_transform as spectral
from hwsim_lab.papers.bf16x9.sphere import RoundTrips, Sphere
from hwsim_lab.papers.cells import Cell, Checkpoint, HeldCell, call
from hwsim_lab.papers.claims import PAPERS
from hwsim_lab.papers.experiment import Experiment, Found, Scale


@dataclass(frozen=True)
class Point:
    x: int
    name: str


@dataclass(frozen=True)
class Answer:
    values: tuple[float, ...]
    counts: dict[int, int]


RAN: list[Point] = []
STOPPED_AT: set[int] = set()


@Cell
def asked(point: Point, kind: type = np.float64, *, scale: float = 1.0) -> Answer:
    if point.x in STOPPED_AT:
        raise KeyboardInterrupt
    RAN.append(point)
    return Answer((point.x / 3 * scale, float("inf")), {point.x: 1})


@HeldCell
def held(x: float) -> float:
    RAN.append(Point(0, "held"))
    return x / 7


def forget() -> None:
    RAN.clear()
    STOPPED_AT.clear()
    held.cache_clear()


@pytest.fixture(autouse=True)
def clean() -> None:
    forget()


def test_a_cell_runs_once_within_a_folder_and_always_without(tmp_path: Path) -> None:
    point = Point(2, "a")
    assert asked(point) == asked(point) and len(RAN) == 2
    RAN.clear()
    with cells.stored_in(tmp_path):
        first = asked(point)
        assert asked(point, scale=1.0) == asked(point, np.float64) == first == Answer((2 / 3, float("inf")), {2: 1})
        assert len(RAN) == 1
        assert asked(Point(2, "b")).counts == {2: 1} and asked(point, np.float32) == first
        assert asked(point, scale=2.0).values[0] == 4 / 3
    assert len(RAN) == 4 and len(list(tmp_path.iterdir())) == 4


def test_a_held_cell_is_forgotten_in_this_process_alone(tmp_path: Path) -> None:
    with cells.stored_in(tmp_path):
        assert held(1.0) == held(1.0) == 1 / 7
        held.cache_clear()
        assert held(1.0) == 1 / 7 and len(RAN) == 1
    held.cache_clear()
    assert held(1.0) == 1 / 7 and len(RAN) == 2


@dataclass(frozen=True)
class Hidden:
    x: int = field(repr=False)


@Cell
def any_of(value: object, **more: object) -> float:
    return 0.0


def local() -> type:
    class Inner:
        pass

    return Inner


@pytest.mark.parametrize(
    "value",
    [
        object(), np.arange(2000.0), (1, np.zeros(3)), {"a": np.zeros(3)}, lambda x: x, local(), partial(max, 1), max,
        Path("a"), {1, 2},
    ],
)  # fmt: skip
def test_what_is_not_plain_is_refused(value: object) -> None:
    """Its text may be that of another value: of long arrays, which are cut short, of all functions of one line."""
    with pytest.raises(TypeError, match="any_of: value is not plain"):
        any_of.key(value)
    with pytest.raises(TypeError, match="any_of: more is not plain"):
        any_of.key(1, option=value)


def test_arguments_that_differ_have_keys_that_differ() -> None:
    values = [
        0, 0.0, -0.0, False, None, "0", "None", b"0", (0,), [0], ((0,),), (0, 0), (), {}, {"a": 0}, {"a": 0.0},
        {"b": 0}, np.float32(0), np.float64, np.float32, Hidden(0), Hidden(1), Point(0, "0"), Point(0, "a"), local,
        held, float("inf"), float("nan"), 1e-300, np.nextafter(1.0, 2.0), 1.0,
    ]  # fmt: skip
    assert len({any_of.key(value) for value in values}) == len(values)
    assert len({any_of.key(0, option=value) for value in values}) == len(values)
    assert any_of.key(float("nan")) == any_of.key(float("nan")) and any_of.key(Hidden(2)) == any_of.key(Hidden(2))


def test_a_checkpoint_is_where_a_stopped_cell_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "SECONDS_APART", 0.0)
    assert Checkpoint(held, 1.0).state() is None
    with cells.stored_in(tmp_path):
        Checkpoint(held, 1.0).keep(grid=np.arange(3.0))
        assert Checkpoint(held, 2.0).state() is None
        state = Checkpoint(held, 1.0).state()
        assert state is not None and state["grid"].tolist() == [0, 1, 2]
        Checkpoint(held, 1.0).remove()
        assert Checkpoint(held, 1.0).state() is None
        Checkpoint(held, 1.0).remove()  # as another process may have done


def test_a_checkpoint_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(cells.time, "monotonic", lambda: now[0])

    def kept(seconds: float, x: float) -> object:
        now[0] += seconds
        reached.keep(x=np.float64(x))
        state = reached.state()
        return None if state is None else float(state["x"])

    with cells.stored_in(tmp_path):
        reached = Checkpoint(held, 1.0)
        assert [kept(19.0, 1.0), kept(2.0, 2.0), kept(19.0, 3.0), kept(2.0, 4.0)] == [None, 2.0, 2.0, 4.0]


def test_cells_of_one_name_in_two_modules_have_files_of_their_own(tmp_path: Path) -> None:
    def other(x: float) -> float:
        return x

    other.__qualname__, other.__module__ = held.function.__qualname__, f"another.{held.function.__module__}"
    with cells.stored_in(tmp_path):
        paths = {cell.path(cell.key(1.0)) for cell in (held, Cell(other))}
        assert len(paths) == 2 and len({path.name.partition("-")[0] for path in paths if path is not None}) == 1
        assert any_of.path("") != asked.path("")


def test_round_trips_go_on_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = spectral.TransformSetting(Sphere(19, (0, 3), 8), 1, 30, 10)
    expected = spectral.errors.function(setting, "native")
    monkeypatch.setattr(cells, "SECONDS_APART", 0.0)
    step, steps = RoundTrips.step, []

    def stopped(trips: RoundTrips) -> None:
        steps.append(1)
        if len(steps) == 15:
            raise KeyboardInterrupt
        step(trips)

    monkeypatch.setattr(RoundTrips, "step", stopped)
    spectral.errors.cache_clear()
    with cells.stored_in(tmp_path):
        with pytest.raises(KeyboardInterrupt):
            spectral.errors(setting, "native")
        assert spectral.errors(setting, "native") == expected
    spectral.errors.cache_clear()
    assert len(steps) == 15 + 20
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_cell_of_every_experiment_can_be_sent_to_a_process(paper: str, tmp_path: Path) -> None:
    for one in reproduce.experiments(paper):
        for scale in ("quick", "full"):
            with cells.stored_in(tmp_path):
                calls = one.cells(scale)  # type: ignore[arg-type]
                assert len({call.path for call in calls}) > 1 or not calls
            again = pickle.loads(pickle.dumps(calls))
            assert [x.cell for x in again] == [x.cell for x in calls]


def test_an_experiment_asks_for_no_cell_beside_those_that_it_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("QUBITS", 6), ("ISING_QUBITS", 7), ("FUSED", 3)):
        monkeypatch.setattr(circuits, name, {"quick": value})
    monkeypatch.setattr(circuits, "CIRCUITS", {"Ising": circuits.ising})
    monkeypatch.setattr(circuits, "STEPS", 1)
    (one,) = circuits.EXPERIMENTS
    with cells.stored_in(tmp_path):
        for each in one.cells("quick"):
            each.run()
        before = set(tmp_path.iterdir())
        found = one.measure("quick")
        assert set(tmp_path.iterdir()) == before
    assert one.measure("quick") == found


@pytest.mark.slow
def test_processes_give_what_one_gives_and_repeat_nothing(tmp_path: Path) -> None:
    def reproduced(folder: str, *more: str) -> dict[str, object]:
        command = [sys.executable, "-m", "hwsim", "reproduce", "bf16x9", "experiment:cluster-energies", "--json", *more]
        environment = os.environ | {"HWSIM_CACHE": str(tmp_path / folder)}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return dict(json.loads(ran.stdout))

    alone, two = reproduced("alone", "--jobs", "1"), reproduced("two", "--jobs", "2")
    assert alone == two
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "two").rglob("*.json")}
    assert len(kept) == 10
    assert reproduced("two", "--jobs", "1") == two
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "two").rglob("*.json")} == kept


class Pool:
    """In the place of processes: runs everything here, at once, and notes what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Path | str]] = []

    def __call__(self) -> Pool:
        return self

    def pool(self, jobs: int) -> Pool:
        return self

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: Callable[..., None], *args: Any) -> Future[None]:
        future: Future[None] = Future()
        with cells.stored_in(args[0] if function is processes._run_cell else None):
            self.given.append(("cell", args[1].path) if function is processes._run_cell else ("experiment", args[1]))
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pool:
    """Experiments of one paper: two that share a cell, and one without cells."""
    claim = reproduce.experiments(PAPERS[0])[0].claims[0]

    def experiment(name: str, points: Sequence[int]) -> Experiment:
        def measure(scale: Scale) -> Found:
            return Found({claim: {"x": [asked(Point(x, "")).values[0] for x in points]}})

        of = [call(asked, Point(x, "")) for x in points]
        return Experiment(name, (claim,), measure, {"quick": 1.0, "full": 1.0}, lambda scale: of)

    every = experiment("one", (1, 2)), experiment("two", (2, 3)), experiment("three", ())
    package = SimpleNamespace(EXPERIMENTS=every, __file__=str(Path(reproduce.__file__)))
    monkeypatch.setitem(reproduce.PACKAGES, PAPERS[0], package)
    monkeypatch.setattr(reproduce, "_folder", lambda paper: tmp_path / "kept")
    found = Pool()
    monkeypatch.setattr(processes, "WorkerGroup", found)
    return found


def test_an_experiment_runs_when_its_cells_have_ended_and_each_of_them_once(pool: Pool) -> None:
    shares: list[float] = []
    processes.run([PAPERS[0]], None, scale="quick", jobs=2, progress=shares.append)
    assert [point.x for point in RAN] == [1, 2, 3]  # in the order of the lists
    names = [name for kind, name in pool.given if kind == "experiment"]
    assert sorted(map(str, names)) == ["one", "three", "two"]
    with cells.stored_in(reproduce.cells_folder(PAPERS[0])):
        for one in reproduce.experiments(PAPERS[0]):
            before = pool.given[: pool.given.index(("experiment", one.name))]
            assert all(before.count(("cell", each.path)) == 1 for each in one.cells("quick"))
            assert reproduce.cached_path(PAPERS[0], one, "quick").exists()
    assert len(pool.given) == 3 + 3 and shares == sorted(shares) and shares[-1] == 1.0
    pool.given.clear()
    processes.run([PAPERS[0]], None, scale="quick", jobs=2)
    assert not pool.given


def test_a_run_that_was_stopped_gives_its_processes_what_is_left(pool: Pool) -> None:
    STOPPED_AT.add(3)
    with pytest.raises(KeyboardInterrupt):
        processes.run([PAPERS[0]], None, scale="quick", jobs=2)
    kept = [path for kind, path in pool.given if isinstance(path, Path) and path.exists()]
    assert [point.x for point in RAN] == [1, 2] and len(kept) == 2
    forget()
    pool.given.clear()
    processes.run([PAPERS[0]], None, scale="quick", jobs=2)
    assert [point.x for point in RAN] == [3] and not set(kept) & {path for _, path in pool.given}


def test_processes_share_the_host_s_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in processes.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    for jobs, each in ((2, "4"), (3, "2"), (16, "1")):
        with processes.shared_threads(jobs):
            assert [os.environ[name] for name in processes.THREADS] == [each, each, each, "7"]
        assert [os.environ.get(name) for name in processes.THREADS] == [None, None, None, "7"]
    monkeypatch.setenv("HWSIM_THREADS", "6")
    with processes.shared_threads(2):
        assert [os.environ[name] for name in processes.THREADS] == ["6", "3", "3", "7"]


def test_host_threads_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWSIM_THREADS", "3")
    assert worker_count() == 3 and worker_count(5) == 5
    for wrong in ("0", "-1", "many", "4096"):
        monkeypatch.setenv("HWSIM_THREADS", wrong)
        with pytest.raises(InputError, match=r"HWSIM_THREADS = .*; allowed"):
            worker_count()


def test_a_checkout_that_was_built_is_known_by_the_sources_of_its_kernels(tmp_path: Path) -> None:
    """Of sources that changed since, what is compiled is known by itself: its results are not those of the sources."""

    def changed(path: Path, text: str, second: int) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (second, second))
        return cache.digest_of_files(*cache._kernels(package))

    package = tmp_path / "hwsim"
    module, source = package / "_kernels" / "dot.so", tmp_path / "kernels_ext" / "src" / "dot.c"
    changed(module, "old", 10)
    assert cache._kernels(package) == ([module], package)
    changed(tmp_path / "setup.py", "", 5)
    built = changed(source, "int x;", 5)
    assert changed(module, "another compiler's", 11) == built
    unbuilt = changed(source, "int y;", 20)
    assert unbuilt == cache.digest_of_files([module], package) != built
    rebuilt = changed(module, "new", 30)
    assert changed(package / "_kernels" / "lanes.so", "old", 15) not in (built, unbuilt, rebuilt)  # half of a build
    (package / "_kernels" / "lanes.so").unlink()
    assert rebuilt not in (built, unbuilt) and changed(source, "int x;", 5) == built
    assert changed(tmp_path / "setup.py", "", 40) == cache.digest_of_files([module], package)
