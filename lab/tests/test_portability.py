"""lab/tools/portability: what it runs is there, and what it cannot run is said in a line."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "lab/tools/portability"


@pytest.fixture
def tool(monkeypatch):
    """A module of the tool by its name, all from one import."""
    monkeypatch.syspath_prepend(str(TOOL))
    names = ("arm", "blas", "pythons", "runs")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["arm", "blas"])
def test_the_tests_that_are_named_are_there(name, tool):
    tests = tool(name).TESTS
    assert tests and not [one for one in tests if not (ROOT / one).exists()]


def test_a_command_passes_where_it_ends_with_zero(tool, capsys):
    runs = tool("runs")
    for code, is_passed in ((0, True), (1, False), (5, False)):
        command = [sys.executable, "-c", f"print('first'); print('last'); raise SystemExit({code})"]
        assert runs.passes("this", command, runs.clean_environment()) == is_passed
        said = capsys.readouterr().out
        assert f"this: exit code {code}" in said and "last" in said and ("\nfirst" in said) != is_passed
    assert runs.called([sys.executable, "-c", "print('made')"]) == "made\n"
    with pytest.raises(runs.CannotRunError, match="exit code 3\nwhy"):
        runs.called([sys.executable, "-c", "print('why'); raise SystemExit(3)"])


def test_settings_of_this_process_are_not_those_of_what_is_tried(tool, monkeypatch):
    for name in ("PYTHONPATH", "PYTHONOPTIMIZE", "HWSIM_KERNEL", "HWSIM_CACHE", "OPENBLAS_CORETYPE", "PYTEST_ADDOPTS"):
        monkeypatch.setenv(name, "other")
    monkeypatch.setenv("PATH", "here")
    own = tool("runs").clean_environment(OPENBLAS_CORETYPE="Haswell")
    assert own["PATH"] == "here" and own["OPENBLAS_CORETYPE"] == "Haswell" and "other" not in own.values()


@pytest.mark.parametrize(
    ("chosen", "results", "found"),
    [
        ("openblas 0.3 Prescott", [True], True),
        ("openblas 0.3 Katmai", [True], True),  # as OpenBLAS calls it
        ("openblas 0.3 Prescott", [False], False),
        ("openblas 0.3 Haswell", [True], "Prescott was asked for, and NumPy's BLAS is: openblas 0.3 Haswell"),
        ("mkl 2024 None", [True], "NumPy's BLAS is: mkl"),
        ("", [True], "is: not known"),
    ],
)
def test_other_kernels_of_openblas_are_those_that_it_took(chosen, results, found, tool, monkeypatch):
    blas, ran = tool("blas"), []

    def passes(label, command, env):
        ran.append((env["OPENBLAS_CORETYPE"], command[-1]))
        return results[0]

    monkeypatch.setattr(blas, "CORES", {"Prescott": (), "Nehalem": (), "Martian": ("no_such_flag",)})
    monkeypatch.setattr(blas, "called", lambda command, env: {"Prescott": chosen}.get(*[env["OPENBLAS_CORETYPE"]] * 2))
    monkeypatch.setattr(blas, "passes", passes)
    given = SimpleNamespace(core=["Prescott"], tests=["tests/one.py"], processes="1")
    if isinstance(found, str):
        with pytest.raises(blas.CannotRunError, match=found):
            blas.run(given)
        assert not ran
    else:
        assert blas.run(given) == found and ran == [("Prescott", "tests/one.py")]
        given.core = None  # all that this processor runs
        assert blas.run(given) == found and ran[1:] == [("Prescott", "tests/one.py"), ("Nehalem", "tests/one.py")]
    given.core = ["Martian"]
    with pytest.raises(blas.CannotRunError, match="has not what Martian needs; allowed: Prescott, Nehalem"):
        blas.run(given)


@pytest.mark.parametrize("is_passed", [True, False])
def test_the_exit_code_says_whether_everything_passed(is_passed, tool, monkeypatch):
    blas = tool("blas")
    monkeypatch.setattr(blas, "run", lambda arguments: is_passed)
    monkeypatch.setattr(sys, "argv", ["portability", "blas"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOL / "__main__.py"), run_name="__main__")
    assert ended.value.code == (0 if is_passed else 1)


def test_a_wheel_for_another_python_or_machine_is_refused(tool, tmp_path):
    arm = tool("arm")
    for name in ("hwsim-1-cp312-cp312-manylinux_2_17_aarch64.whl", "hwsim-1-cp311-cp311-manylinux_2_17_x86_64.whl"):
        with pytest.raises(arm.CannotRunError, match=r"allowed: a wheel cp311-cp311-manylinux_\.\.\._aarch64"):
            arm.install(tmp_path, "3.11", Path(name))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arm", "--wheel", "none.whl"], "none.whl: no such file; lab/tools/wheels/build.py makes it"),
        (["pythons", "--python", "no-such-python"], "no-such-python: No such file or directory"),
    ],
)
def test_what_cannot_run_is_one_line(words, said, tmp_path):
    command = [sys.executable, str(TOOL), *words, "--work", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == f"portability: error: {said}\n"
