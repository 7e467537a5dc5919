"""Files that a command reads are regular files: a pipe, which could block for ever, is refused at once."""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--m", "8", "--a", "PIPE", "--b", "PIPE"],
        ["run", "--gemm", "PIPE"],
        ["sweep", "PIPE"],
        ["compare", "--device", "h200", "--ncu", "PIPE"],
        ["golden", "verify", "PIPE"],
    ],
    ids=lambda given: " ".join(given),
)
def test_a_pipe_is_refused_by_each_reader(arguments, tmp_path, cli):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    run = cli(*[str(pipe) if x == "PIPE" else x for x in arguments])
    assert run.code == 2, run.err
    assert "it is a pipe" in run.err or "not an ordinary file" in run.err
