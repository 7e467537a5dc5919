"""Pytest's side of lab/tools/sanitize: which tests a call runs, which cannot work there, and a log that adds up over
calls.

It knows tests by their names; it does not know how the kernels are built or what a sanitizer reports.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
UNFIT = Path(__file__).with_name("unfit.yaml")
CANNOT, LATER = "cannot work under sanitizers", "no time left in this call"
SOURCES = ("setup.py", "kernels_ext/**/*.[chp]*", "hwsim/**/*.py")  # what a log is of
EXIT_LEFT = pytest.ExitCode.INTERRUPTED


def digest() -> str:
    """Of the sources that are under test."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in SOURCES for path in ROOT.glob(pattern)}):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


def unfit() -> dict[str, str]:
    """Tests, or files of them, that cannot work under sanitizers, and why."""
    return dict(yaml.safe_load(UNFIT.read_text(encoding="utf-8")))


def reason_for(test: str, reasons: dict[str, str]) -> str | None:
    """Why a test cannot work: that of its file, of its function, or of itself with its parameters."""
    file, _, name = test.partition("::")
    for key in (test, f"{file}::{name.partition('[')[0]}", file):
        if key in reasons:
            return reasons[key]
    return None


def part(text: str) -> tuple[int, int]:
    """(K, N) of "K/N". Raises UsageError."""
    first, _, count = text.partition("/")
    if not (first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
        raise pytest.UsageError(f"--part {text}: must be K/N with K from 1 to N, such as 3/8")
    return int(first), int(count)


class Log:
    """Outcomes of tests in a file, one a line, the first line what sources they are of; the last of a test counts.

    Raises UsageError for a file that is of other sources, or no such log.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.sources = path, digest()
        self.rows: dict[str, dict[str, Any]] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        try:
            rows = [json.loads(line) for line in lines if line.endswith("}")]  # a call may have been killed as it wrote
            of = rows.pop(0)["sources"] if rows else self.sources
            self.rows = {row["test"]: row for row in rows}
        except (ValueError, KeyError, TypeError):
            raise pytest.UsageError(f"--log {path}: no log of lab/tools/sanitize") from None
        if of != self.sources:
            raise pytest.UsageError(f"--log {path}: of other sources ({of}, not {self.sources}); name another file")
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write({"sources": self.sources})
        elif not path.read_bytes().endswith(b"\n"):
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def done(self) -> list[str]:
        """Tests that need not run again: those that passed, and those that were skipped for whatever reason."""
        return [test for test, row in self.rows.items() if row["outcome"] != "failed"]

    def add(self, test: str, outcome: str, seconds: float, said: str) -> None:
        row = {"test": test, "outcome": outcome, "seconds": round(seconds, 2)} | ({"said": said} if said else {})
        self.rows[test] = row
        self._write(row)

    def _write(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lab/tools/sanitize")
    group.addoption("--part", metavar="K/N")
    group.addoption("--log", type=Path)
    group.addoption("--minutes", type=float)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Selection(config), "sanitized selection")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Account(config), "sanitized account")


class Selection:
    """In each process that runs tests: the tests of this call."""

    def __init__(self, config: pytest.Config) -> None:
        given = getattr(config, "workerinput", None)
        if given is not None:  # as the process that started this one found it: all workers select the same
            self.deadline, self.done = given["deadline"], set(given["done"])
        else:
            minutes, log = config.option.minutes, config.option.log
            self.deadline = time.time() + 60 * minutes if minutes else None
            self.done = set(Log(log).done()) if log else set()
        self.part = part(config.option.part or "1/1")
        self.collected = self.in_log = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput |= {"deadline": self.deadline, "done": sorted(self.done)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Each N-th test from the K-th, without those of the log."""
        first, count = self.part
        mine = items[first - 1 :: count]
        now = [item for item in mine if item.nodeid not in self.done]
        self.collected, self.in_log = len(mine), len(mine) - len(now)
        chosen, reasons = set(now), unfit()
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = now
        for item in now:
            if why := reason_for(item.nodeid, reasons):
                item.add_marker(pytest.mark.skip(reason=f"{CANNOT}: {why}"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self.deadline is not None and time.time() > self.deadline:
            pytest.skip(LATER)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["sanitized"] = [self.collected, self.in_log]


class Account:
    """In the process that was started: what came of each test, into the log and at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.log = Log(config.option.log) if config.option.log else None
        self.config = config
        self.reports: dict[str, list[pytest.TestReport]] = defaultdict(list)
        self.outcomes: Counter[str] = Counter()
        self.counts: list[int] | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.counts = getattr(node, "workeroutput", {}).get("sanitized", self.counts)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phases = self.reports[report.nodeid]
        phases.append(report)
        if report.when in ("setup", "call"):
            return
        del self.reports[report.nodeid]  # the last of its reports, or that of the end of its process
        outcome = next((name for name in ("failed", "skipped") if any(x.outcome == name for x in phases)), "passed")
        said = next((_said(x) for x in phases if x.outcome == outcome and outcome != "passed"), "")
        if said == LATER:
            self.outcomes[LATER] += 1
            return
        self.outcomes[f"{outcome}, {said.partition(':')[2].strip()}" if said.startswith(CANNOT) else outcome] += 1
        if self.log is not None:
            self.log.add(report.nodeid, outcome, sum(x.duration for x in phases), said)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        selection = self.config.pluginmanager.getplugin("sanitized selection")
        self.counts = self.counts or [selection.collected, selection.in_log]
        if exitstatus == pytest.ExitCode.OK and self.outcomes[LATER]:
            session.exitstatus = EXIT_LEFT
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.counts[1]:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self._lines(*(self.counts or (0, 0))):
            terminalreporter.write_line(f"sanitize: {line}")

    def _lines(self, collected: int, in_log: int) -> Iterator[str]:
        yield f"{collected} tests in this part, {in_log} done before, {self.outcomes[LATER]} left for another call"
        yield "; ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()) if name != LATER)
        if self.log is not None:
            rows = self.log.rows.values()
            totals = sorted(Counter(row["outcome"] for row in rows).items())
            seconds = sum(row["seconds"] for row in rows)
            yield f"{self.log.path} has {', '.join(f'{count} {name}' for name, count in totals)}; {seconds:.0f} s"
            yield from (f"failed: {row['test']}" for row in rows if row["outcome"] == "failed")


def _said(report: pytest.TestReport) -> str:
    """Why a test was skipped, or the end of what it said when it failed."""
    if report.outcome == "skipped":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return str(reason).removeprefix("Skipped: ")
    return str(report.longrepr)[-1500:]
