"""A run of experiments that is killed or interrupted between and within experiments repeats none that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Three experiments of claims that need no number of the paper; the second waits until a file is there.
SCRIPT = """
import signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from hwsim.cli import main
from hwsim_lab.papers import claims, reproduce
from hwsim_lab.papers.experiment import Experiment, Found

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
folder, paper = Path(sys.argv[1]), "tf32-tf64"
own = [claim for claim in claims.read(paper).claims if claim.holds is not None and not (claim.paper or claim.sizes)][:3]

def experiment(name, claim):
    def measure(scale):
        with (folder / "log").open("a") as log:
            log.write(f"{name} begun\\n")
        while name == "second" and not (folder / "go").exists():
            time.sleep(0.02)
        with (folder / "log").open("a") as log:
            log.write(f"{name} ended\\n")
        return Found({claim.id: {key: [1.0, 2.0] for key in claim.measured}})
    return Experiment(name, (claim.id,), measure, {"quick": 1, "full": 100})

names = ("first", "second", "third")
reproduce.PACKAGES[paper] = SimpleNamespace(
    EXPERIMENTS=tuple(experiment(name, claim) for name, claim in zip(names, own)),
    __file__=reproduce.PACKAGES[paper].__file__,
)
claims.Claim.verdict = lambda claim, measured: "fails"
sys.exit(main(["reproduce", paper, "--scale", sys.argv[2], "--out", str(folder / "out")]))
"""


def started(folder: Path, scale: str) -> subprocess.Popen[str]:
    environment = os.environ | {"HWSIM_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", SCRIPT, str(folder), scale]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def log(folder: Path) -> list[str]:
    file = folder / "log"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(("stop", "scale"), [(signal.SIGKILL, "quick"), (signal.SIGINT, "full")])
def test_a_run_that_was_stopped_goes_on(tmp_path: Path, stop: signal.Signals, scale: str) -> None:
    run = started(tmp_path, scale)
    while "second begun" not in log(tmp_path):
        assert run.poll() is None, run.stderr and run.stderr.read()
        time.sleep(0.02)
    run.send_signal(stop)
    run.communicate()
    assert run.returncode != 0
    assert not (tmp_path / "out" / "claims.json").exists()
    (tmp_path / "go").touch()
    again = started(tmp_path, scale)
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    assert log(tmp_path) == [
        *("first begun", "first ended", "second begun", "second begun", "second ended", "third begun", "third ended"),
    ]
    assert (tmp_path / "out" / "claims.json").exists()
