"""Calling the command line in this process."""

import json
from dataclasses import dataclass

import pytest

from hwsim.cli import main


@dataclass
class Done:
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def without_problem(err):
    """Standard error without the lines of the problem, which `hwsim run` shows before it computes."""
    lines = err.splitlines(keepends=True)
    while lines and lines[0].split()[0] in ("problem", "formats", "scheme", "device"):
        del lines[0]
        while lines and lines[0].startswith(" "):
            del lines[0]
    return "".join(lines)


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Run `hwsim` with these words in an empty folder, with no device files of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HWSIM_CONFIG_PATH", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def refused(cli):
    """Run a command line that must be refused: exit code 2, nothing on standard output; gives the message."""

    def run(*words):
        done = cli(*words)
        assert (done.code, done.out) == (2, ""), done
        errors = [line for line in done.err.splitlines() if "error:" in line]
        assert len(errors) == 1, done.err
        assert "Traceback" not in done.err
        return done.err

    return run
