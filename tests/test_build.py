"""setup.py on one extension: what it prints, what a second build does again, what it refuses."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("Cython")
pytest.importorskip("setuptools")
ROOT = Path(__file__).parents[1]
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
BUILD_VARIABLES = (
    "HWSIM_ALONE",
    "HWSIM_EXTENSIONS",
    "HWSIM_DEBUG",
    "HWSIM_SANITIZE",
    "HWSIM_BUILT",
    "MAX_JOBS",
    "CC",
    "CFLAGS",
)


def build(tree: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in BUILD_VARIABLES}
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    return subprocess.run(command, cwd=tree, env=env | variables, capture_output=True, text=True)


def steps(output: str) -> list[tuple[int, int, str, str]]:
    """(number, of how many, time or "kept", label) per line of progress."""
    found = re.findall(r"^\[ *(\d+)/(\d+)\] +(kept|\d+\.\d s)  (.*)$", output, re.MULTILINE)
    return [(int(number), int(total), how, " ".join(label.split())) for number, total, how, label in found]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The compiled parts' sources alone; of the engine's wrapper little, most of whose time goes into the compiler."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "setup.py", folder)
    shutil.copytree(ROOT / "kernels_ext", folder / "kernels_ext")
    (folder / "kernels_ext/engine.pyx").write_text("def nothing():\n    pass\n")
    (folder / "hwsim/_kernels").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"MAX_JOBS": "0"}, "MAX_JOBS: must be a whole number of at least 1; got '0'"),
        ({"MAX_JOBS": "two"}, "MAX_JOBS: must be a whole number of at least 1; got 'two'"),
        ({"HWSIM_ALONE": "avx"}, "HWSIM_ALONE: 'avx' not known; allowed: baseline"),
        ({"HWSIM_EXTENSIONS": "engine,dots"}, "HWSIM_EXTENSIONS: 'dots' not known; allowed: coalesce, convert, dot,"),
    ],
)
def test_refusals(tree, variables, said):
    done = build(tree, **{"HWSIM_EXTENSIONS": "engine"} | variables)
    assert done.returncode and said in done.stderr
    assert not (tree / "build").exists()


def test_compiled_parts_of_a_wheel(tree, tmp_path):
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    wheel, other, made = tmp_path / "a.whl", tmp_path / "b.whl", tree / f"hwsim/_kernels/engine{suffix}"
    for path, name in ((wheel, "engine"), (other, "dot")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"hwsim/_kernels/{name}{suffix}", b"compiled")
    for wrong in (other, tmp_path / "none.whl", Path(__file__)):
        done = build(tree, HWSIM_EXTENSIONS="engine", HWSIM_BUILT=str(wrong))
        assert done.returncode and f"HWSIM_BUILT: {wrong}: " in done.stderr
    done = build(tree, HWSIM_EXTENSIONS="engine", HWSIM_BUILT=str(wheel))
    assert done.returncode == 0 and "1 files from a.whl, nothing compiled" in done.stdout, done.stdout + done.stderr
    assert made.read_bytes() == b"compiled"
    made.unlink()
    shutil.rmtree(tree / "build")


@pytest.mark.skipif(not shutil.which(COMPILER), reason="no C compiler")
def test_steps_and_a_second_build(tree):
    """Real builds of one extension, with a wrapper that wraps nothing.

    What is compiled again after each kind of change, and how a failure is told.
    """
    first = build(tree, HWSIM_EXTENSIONS="engine", MAX_JOBS="2")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "hwsim: 10 steps, 2 at once (MAX_JOBS), for engine; kernels for baseline" in first.stdout
    told = steps(first.stdout)
    assert [(number, total) for number, total, _, _ in told] == [(i, 10) for i in range(1, 11)]
    sources = {f"plain {path.name}" for path in (tree / "kernels_ext/src").glob("engine*.c")}
    assert {label for *_, label in told} == {"cython engine.pyx", "wrapper engine.c", "link engine"} | sources
    assert all(how != "kept" for _, _, how, _ in told)
    assert len(list((tree / "hwsim/_kernels").glob("engine.*"))) == 1

    def again(changed: str, text: str = "\n", **variables: str) -> set[str]:
        """Labels of steps that are not kept after a line is added to a file."""
        if changed:
            with (tree / changed).open("a") as file:
                file.write(text)
        done = build(tree, HWSIM_EXTENSIONS="engine", **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return {label for _, _, how, label in steps(done.stdout) if how != "kept"}

    assert again("") == {"link engine"}
    assert again("kernels_ext/src/engine_share.c") == {"plain engine_share.c", "link engine"}
    including = {
        f"plain {path.name}"
        for path in (tree / "kernels_ext/src").glob("engine*.c")
        if "hw_engine_machine.h" in path.read_text()
    }
    assert 0 < len(including) < len(sources)
    assert again("kernels_ext/include/hw_engine_machine.h") == {*including, "link engine"}
    assert sources < again("", CFLAGS="-DOTHER")

    with (tree / "kernels_ext/src/engine_flow.c").open("a") as file:
        file.write("#error stopped here\n")
    failed = build(tree, HWSIM_EXTENSIONS="engine")
    assert failed.returncode and "plain engine_flow.c: exit code 1" in " ".join(failed.stderr.split())
    assert "stopped here" in failed.stderr
