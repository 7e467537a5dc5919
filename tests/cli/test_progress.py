"""Progress: a bar on a terminal from the first second, a line every ten seconds elsewhere; the problem stands first."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hwsim.cli import command
from hwsim.cli.progress import LINE_SECONDS, TERMINAL_SECONDS, ProgressBar, clock, progress_bar

RUN = ["run", "--device", "a100", "--m", "16", "--n", "16", "--k", "16"]
ROOT = Path(__file__).parents[2]
NOW = (0.01, 0.01)


def wait_for(stream: io.StringIO, text: str) -> None:
    limit = time.monotonic() + 20
    while text not in stream.getvalue():
        assert time.monotonic() < limit, stream.getvalue()
        time.sleep(0.005)


def test_a_bar_is_drawn_before_the_work_says_anything_and_goes_away() -> None:
    stream = io.StringIO()
    with closing(ProgressBar(stream, seconds=NOW)) as progress:
        progress.at("computing the bits")
        wait_for(stream, "0 % |")
        progress(0.5)
        wait_for(stream, " 50 % |###############               | 0:0")
        assert "left  computing the bits" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K") and "\n" not in stream.getvalue()


def test_without_a_terminal_there_are_lines() -> None:
    stream = io.StringIO()
    with closing(ProgressBar(stream, is_terminal=False, seconds=NOW)) as progress:
        wait_for(stream, "hwsim: after 0:00\n")
        progress.at("computing the bits")
        progress(0.25)
        wait_for(stream, "hwsim: 25 % after 0:00, 0:00 left, computing the bits\n")
    assert "\r" not in stream.getvalue()


def test_the_times_and_what_quick_work_shows() -> None:
    assert TERMINAL_SECONDS[0] <= 1 and LINE_SECONDS == (10.0, 10.0)
    stream = io.StringIO()
    for is_terminal in (True, False):
        with closing(ProgressBar(stream, is_terminal=is_terminal)) as progress:
            progress(1.0)
    assert stream.getvalue() == ""
    assert [clock(seconds) for seconds in (0, 65.4, 3661)] == ["0:00", "1:05", "1:01:01"]


def test_quiet_has_none() -> None:
    with progress_bar(quiet=True) as progress:
        assert progress is None


def test_a_terminal_of_no_columns_shows_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `script` and of pipelines, whose terminals say 0 columns."""
    monkeypatch.setattr("hwsim.cli.progress.TERMINAL_SECONDS", NOW)
    main_end, other_end = pty.openpty()
    code = (
        "import hwsim.cli.progress as progress\n"
        "progress.TERMINAL_SECONDS = (0.01, 0.01)\n"
        "import sys, time\n"
        "with progress.progress_bar(quiet=False) as bar:\n"
        "    bar.at('computing the bits')\n"
        "    time.sleep(0.5)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([sys.executable, "-c", code], stderr=other_end, env=environment, check=False)
    os.close(other_end)
    shown = os.read(main_end, 1 << 16).decode()
    os.close(main_end)
    assert done.returncode == 0 and "0 % |" in shown and "computing the bits" in shown


def test_lines_stand_above_the_bar_until_the_end() -> None:
    stream = io.StringIO()
    with closing(ProgressBar(stream, seconds=NOW)) as progress:
        progress.show("problem   C[16 x 16]\n" + 200 * "-")
        shown = len(stream.getvalue())
        assert "problem   C[16 x 16]\n---" in stream.getvalue()
        wait_for(stream, "\n\r\x1b[K  0 % |")  # a bar below them
        assert "\x1b[J" not in stream.getvalue()[:shown]
        assert all(len(line) < 200 for line in stream.getvalue().splitlines())  # a row each, which are erased
    assert stream.getvalue().endswith("\r\x1b[2A\x1b[J")


def test_a_warning_is_no_part_of_what_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", stream)
    with progress_bar(quiet=False) as progress:
        assert progress is not None
        progress.show("problem")
        with command._warnings_on_stderr():
            warnings.warn("one", stacklevel=1)
    assert stream.getvalue() == "problem\n\r\x1b[1A\x1b[Jhwsim: warning: one\n"


def test_the_problem_is_shown_before_the_bits(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    at_computing: list[Any] = []

    def computing(*_: Any, **__: Any) -> Any:
        at_computing.append(capsys.readouterr())
        raise MemoryError

    monkeypatch.setattr("hwsim.api.compute", computing)
    for quiet in ([], ["--json"], ["--quiet"]):
        assert command.main([*RUN, *quiet]) == 2
    shown = at_computing[0].err
    assert shown.startswith("problem   C[16 x 16]") and "device    a100" in shown
    assert [said.out for said in at_computing] == ["", "", ""]
    assert not any("C[16 x 16]" in said.err for said in at_computing[1:])


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_the_report_begins_with_the_verdict_and_has_the_problem_once(cli: Any, quiet: list[str]) -> None:
    said = cli(*RUN, *quiet).out
    assert said.startswith("verdict   ") and said.count("problem ") == 1
    assert said.index("advice ") < said.index("problem ") < said.index("options ") < said.index("cycles  ")
    lines = {line.split()[0]: line for line in reversed(said.splitlines()) if line.strip()}
    assert lines["problem"].index("C[") == lines["options"].index("format") == len("verdict") + 3


def test_no_problem_is_printed_for_a_call_that_is_refused(cli: Any) -> None:
    done = cli(*RUN, "--format", "e4m3")
    assert done.code == 2 and done.out == "" and "problem" not in done.err
