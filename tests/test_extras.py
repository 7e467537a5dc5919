"""HWSIM_REQUIRE_EXTRAS: a skip for want of an extra that must be there is a failure, any other a skip.

HWSIM_RECORD_IMPORTS and without_extras.py: a test that needs a package and does not skip without it fails there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from extras import VARIABLE, contents, declared, missing

HERE = Path(__file__).parent
MODULE = """
import pytest
pytest.importorskip("{module}", reason="{reason}")
def test_it(): pass
"""
TESTS = """
import pytest
def test_named(): pytest.skip("matplotlib: pip install 'hwsim[plot]'")
def test_hardware(): pytest.skip("no CUDA device")
def test_other(): pytest.skip("aiconfigurator-core and pyarrow: pip install 'hwsim[independent]'")
def test_runs(): pass
@pytest.mark.xfail(reason="plotly draws it otherwise", strict=True)
def test_known(): assert False
"""


def test_contents_of_extras():
    extras, packages = contents(["test", "all"], declared())
    assert {"test", "oracle", "all", "plot", "parquet", "trace", "sweep"} <= extras
    assert {"gmpy2", "pytest", "matplotlib", "pyarrow", "dask", "onnx"} <= packages
    assert "independent" not in extras and "aiconfigurator-core" not in packages
    with pytest.raises(ValueError, match=f"{VARIABLE}: no extra 'plots'; allowed: report, plot, "):
        contents(["plots"], declared())


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("could not import 'pyarrow.parquet': No module named 'pyarrow'", "pyarrow"),
        ("matplotlib: pip install 'hwsim[plot]'", "hwsim[plot]"),
        ("type_stubs is not installed", "type-stubs"),
        ("aiconfigurator-core and pyarrow: pip install './lab[independent]'", None),
        ("no pyarrow-hotfix here", None),
        ("HWSIM_GOLDEN_DIR is not set: no third-party captures", None),
        ("this processor runs one variant only", None),
    ],
)
def test_reasons(reason, name):
    assert missing(reason, {"plot"}, {"pyarrow", "matplotlib", "type-stubs"}) == name


def outcome(folder, **variables):
    """What pytest says of the tests in a folder with this project's hooks."""
    for name in ("conftest.py", "covering.py", "first_mapping.py", "extras.py", "required_extras.py"):
        text = (HERE / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("Path(__file__).parents[1]", f"Path({str(HERE.parent)!r})"))
    (folder / "pytest.ini").write_text("[pytest]\n")
    env = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    return subprocess.run(command, cwd=folder, env=env | variables, capture_output=True, text=True).stdout


def test_skips_of_required_extras_fail(tmp_path):
    (tmp_path / "test_one.py").write_text(TESTS, encoding="utf-8")
    missing_module = MODULE.format(module="no_such_module", reason="plotly is not installed")
    (tmp_path / "test_whole.py").write_text(missing_module, encoding="utf-8")
    said = outcome(tmp_path)
    assert "1 passed, 4 skipped, 1 xfailed" in said, said
    said = outcome(tmp_path, HWSIM_REQUIRE_EXTRAS="test,all")
    assert f"{VARIABLE}=test,all: skipped for want of plotly: " in said, said
    (tmp_path / "test_whole.py").unlink()
    said = outcome(tmp_path, HWSIM_REQUIRE_EXTRAS="test,all")
    assert f"{VARIABLE}=test,all: skipped for want of hwsim[plot]: " in said
    assert "1 failed, 1 passed, 2 skipped, 1 xfailed" in said, said


IMPORTING = {
    "helper": "import drawing",
    "test_helped": "import helper\ndef test_it(): pass",
    "test_own": """
import subprocess, sys
import pytest
import pen  # reads drawing only where it is there
def draws(): import drawing
def test_first(): draws()
def test_loaded_already(): draws()
def test_child(): subprocess.run([sys.executable, "-c", "from drawing import line"], check=True)
def test_skipping():
    pytest.importorskip("drawing")
    draws()
def test_module():
    from hwsim import plots
def test_module_below():
    import hwsim.plots
def test_other_module():
    import hwsim
    from hwsim import other
""",
}
OWN = ("first", "loaded_already", "child", "skipping", "module", "module_below")


def test_what_imports_a_package_is_run_again_without_it(tmp_path):
    """drawing is missing then, pen is there in both environments; hwsim.plots is for a package that is missing too."""
    for folder in ("tests", "both", "both/hwsim", "more", "record"):
        (tmp_path / folder).mkdir()
    for name, text in IMPORTING.items():
        (tmp_path / "tests" / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "both" / "pen.py").write_text("try: import drawing\nexcept ImportError: pass\n")
    for name in ("__init__", "plots", "other"):
        (tmp_path / "both" / "hwsim" / f"{name}.py").touch()
    (tmp_path / "more" / "drawing.py").write_text("line = 1\n")
    (tmp_path / "more" / "sitecustomize.py").write_text("import recorded_imports\n")
    shutil.copy(HERE / "recorded_imports.py", tmp_path / "more")
    (tmp_path / "record" / "packages.txt").write_text("drawing\nplots\n")
    (tmp_path / "record" / "installed.txt").write_text("_pytest\npen\nrecorded_imports\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def said(*command, path, **variables):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HWSIM_", "PYTEST_"))}
        env |= variables | {"PYTHONPATH": os.pathsep.join(str(tmp_path / folder) for folder in path)}
        return subprocess.run([sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True)

    record = str(tmp_path / "record")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    first = said("-m", "pytest", *options, "tests", path=("both", "more"), HWSIM_RECORD_IMPORTS=record)
    assert "8 passed" in first.stdout, first
    tests = (tmp_path / "record" / "tests.txt").read_text(encoding="utf-8").split()
    own = [f"tests/test_own.py::test_{name}" for name in OWN]
    assert sorted(tests) == sorted(["tests/helper.py", "tests/test_helped.py", *own])
    again = said(str(HERE / "without_extras.py"), "run", record, path=("both",))
    assert again.returncode and "ERROR tests/test_helped.py" in again.stdout, again
    (tmp_path / "tests" / "test_helped.py").write_text("import pytest\npytest.importorskip('drawing')\nimport helper")
    again = said(str(HERE / "without_extras.py"), "run", record, path=("both",))
    assert again.returncode == 1 and "3 failed, 2 passed, 2 skipped, 1 deselected" in again.stdout, again
