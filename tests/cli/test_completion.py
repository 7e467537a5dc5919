"""`hwsim completion`: lines that shells take, and what bash completes with them."""

import contextlib
import io
import shutil
import subprocess

import pytest

from hwsim.cli import main
from hwsim.cli.verbs import OWN, known

BASH = shutil.which("bash")


@pytest.fixture(scope="module")
def in_bash(tmp_path_factory):
    """Completes a command line (its words) in a bash that has read the lines."""
    pytest.importorskip("shtab", reason="needs hwsim[completion]")
    path = tmp_path_factory.mktemp("completion") / "hwsim.bash"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["completion", "bash"]) == 0
    path.write_text(out.getvalue())
    assert subprocess.run([BASH, "-n", str(path)], check=False).returncode == 0

    def complete(*words):
        line = " ".join(f"'{word}'" for word in words)
        script = (
            f"source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_hwsim; echo ${{COMPREPLY[@]}}"
        )
        found = subprocess.run([BASH, "-c", script], capture_output=True, text=True, check=True)
        return found.stdout.split()

    return complete


@pytest.mark.skipif(BASH is None, reason="no bash")
def test_bash_completes_verbs_options_and_names(in_bash):
    assert in_bash("hwsim", "sens") == ["sensitivity"]
    assert in_bash("hwsim", "run", "--dev") == ["--device"]
    assert in_bash("hwsim", "run", "--device", "h2") == ["h20", "h200"]
    assert in_bash("hwsim", "run", "--scheme", "sgemm") == ["sgemm-cube"]
    assert in_bash("hwsim", "which", "--bits", "e4m") == ["e4m3", "e4m3fnuz"]
    assert in_bash("hwsim", "devices", "show", "mi3") == ["mi300x"]


def test_zsh_has_every_verb_and_device(capsys):
    pytest.importorskip("shtab", reason="needs hwsim[completion]")
    assert main(["completion", "zsh"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#compdef hwsim") and "mi300x" in text and all(verb in text for verb in OWN)


def test_fish_needs_no_extra(capsys):
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(
        line.startswith(("complete -c hwsim", "#")) and line.count("'") % 2 == line.count("\\'") % 2 for line in lines
    )
    device = next(line for line in lines if "seen_subcommand_from run'" in line and " -l device " in line)
    assert " h200 " in device
    verbs = [line.split(" -a ")[1].split()[0] for line in lines if "__fish_use_subcommand' -a " in line]
    assert verbs == list(known())
