"""HWSIM_REQUIRE_EXTRAS: a skip for want of an extra that must be there is a failure, any other a skip."""

from __future__ import annotations

import os
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
        ("aiconfigurator-core and pyarrow: pip install 'hwsim[independent]'", None),
        ("no pyarrow-hotfix here", None),
        ("HWSIM_GOLDEN_DIR is not set: no third-party captures", None),
        ("this processor runs one variant only", None),
    ],
)
def test_reasons(reason, name):
    assert missing(reason, {"plot"}, {"pyarrow", "matplotlib", "type-stubs"}) == name


def outcome(folder, **variables):
    """What pytest says of the tests in a folder with this project's hooks."""
    for name in ("conftest.py", "extras.py"):
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
