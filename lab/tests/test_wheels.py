"""The scripts of lab/tools/wheels: targets, environment of a cross-build, headers that do not fit, tags."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "lab" / "tools" / "wheels"
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
PYCONFIG = """/* pyconfig.h */
#define HAVE_FORK 1
# define SIZEOF_LONG {long}
#define ALIGNOF_MAX_ALIGN_T {most}
#define SIZEOF_VOID_P {pointer}
#define SIZEOF__BOOL 1
#define SIZEOF_PID_T 4
"""
TARGETS_PROBE = """
import runpy, sys
sys.argv = ["setup.py", "--name"]
found = runpy.run_path("setup.py")
print(found["TARGET"], found["X86"], *found["VARIANTS"], found["extensions"][0].define_macros)
"""


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts as modules; build is a package's name too."""
    monkeypatch.syspath_prepend(str(TOOLS))
    found = {}
    for name in ("wheel_targets", "python_headers", "build"):
        spec = importlib.util.spec_from_file_location(f"wheels_{name}", TOOLS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        found[name] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, found[name])  # dataclasses look there
        spec.loader.exec_module(found[name])
    return SimpleNamespace(**found)


def test_targets_are_consistent(tools: Any) -> None:
    for name, target in tools.wheel_targets.TARGETS.items():
        libc, version, machine = tools.build.tag_parts(target.tag)
        assert name == f"{libc}-{machine}"
        assert target.platform == f"linux-{machine}" and target.abi.startswith(f"{machine}-linux-")
        assert target.triple.startswith(target.abi)
        if libc == "manylinux":
            assert target.triple.endswith(f".{version[0]}.{version[1]}") and version == (2, 17)


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        ("linux-x86_64", "linux-x86_64 True baseline avx2 avx512 [('HWSIM_X86', '1')]"),
        ("linux-aarch64", "linux-aarch64 False baseline [('HWSIM_X86', '0')]"),
        ("macosx-11.0-arm64", "macosx-11.0-arm64 False baseline [('HWSIM_X86', '0')]"),
        ("macosx-11.0-x86_64", "macosx-11.0-x86_64 True baseline avx2 avx512 [('HWSIM_X86', '1')]"),
        ("macosx-10.13-universal2", "macosx-10.13-universal2 False baseline [('HWSIM_X86', '0')]"),
    ],
)
def test_setup_builds_for_the_target_and_not_for_the_machine(platform: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    shutil.copy(ROOT / "setup.py", tmp_path)  # without pyproject.toml, which old setuptools do not read
    (tmp_path / "kernels_ext").symlink_to(ROOT / "kernels_ext")
    env = os.environ | {"_PYTHON_HOST_PLATFORM": platform}
    done = subprocess.run([sys.executable, "-c", TARGETS_PROBE], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == said


def test_environment_of_a_cross_build(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.build, "zig", lambda: Path("/tools/with space/zig"))
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    python = tools.build.Interpreter("python3.12", (3, 12), Path("include"))
    found = tools.build.build_environment(tools.wheel_targets.TARGETS["manylinux-aarch64"], python)
    assert found["CC"] == "'/tools/with space/zig' cc -target aarch64-linux-gnu.2.17 -fno-sanitize=all"
    assert found["LDSHARED"] == f"{found['CC']} -shared -s"
    assert found["SETUPTOOLS_EXT_SUFFIX"] == ".cpython-312-aarch64-linux-gnu.so"
    assert found["_PYTHON_HOST_PLATFORM"] == "linux-aarch64"
    assert "PYTHONPATH" not in found


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        (["manylinux_2_17_x86_64", "manylinux2014_x86_64"], "manylinux_2_17_x86_64", True),
        (["manylinux_2_12_x86_64", "manylinux2010_x86_64"], "manylinux_2_17_x86_64", True),
        (["manylinux_2_28_x86_64"], "manylinux_2_17_x86_64", False),
        (["manylinux_2_17_aarch64"], "manylinux_2_17_x86_64", False),
        (["musllinux_1_1_x86_64"], "manylinux_2_17_x86_64", False),
        (["linux_x86_64"], "manylinux_2_17_x86_64", False),
    ],
)
def test_tags(tools: Any, found: list[str], wanted: str, fits: bool) -> None:
    assert tools.build.allows(found, wanted) is fits
    assert tools.build.platform_tags(Path(f"dist/hwsim-1.0-cp311-cp311-{'.'.join(found)}.whl")) == found


@pytest.mark.skipif(not shutil.which(COMPILER), reason="no C compiler")
def test_headers_that_do_not_fit_the_target(tools: Any, tmp_path: Path) -> None:
    def checked(**sizes: int) -> int:
        right = {"long": 8, "most": 16, "pointer": 8}
        (tmp_path / "pyconfig.h").write_text(PYCONFIG.format(**right | sizes), encoding="utf-8")
        count: int = tools.python_headers.check_headers(tmp_path, [COMPILER], tmp_path)
        return count

    assert checked() == 5
    with pytest.raises(ValueError, match=r"pyconfig\.h does not hold for this target(.|\n)*SIZEOF_LONG is 4"):
        checked(long=4)
    with pytest.raises(ValueError, match="ALIGNOF_MAX_ALIGN_T is 8"):
        checked(most=8)
    with pytest.raises(ValueError, match=r"nowhere/pyconfig\.h: .*; install the headers"):
        tools.python_headers.check_headers(tmp_path / "nowhere", [COMPILER], tmp_path)
    with pytest.raises(ValueError, match="it only includes another"):
        tools.python_headers.assertions("#include <x86_64-linux-gnu/python3.11/pyconfig.h>\n")


def test_refusals(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, TOOLS / "check.py", tmp_path / "none.whl"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and "none.whl: no such file" in done.stderr
    done = subprocess.run(
        [sys.executable, TOOLS / "build.py", "--out", tmp_path, "--target", "windows"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "manylinux-aarch64" in done.stderr
    wheel = tmp_path / "hwsim-1.0-cp27-cp27m-manylinux_2_17_x86_64.whl"
    wheel.touch()
    done = subprocess.run(
        [sys.executable, TOOLS / "check.py", "--installable", wheel], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and "left out" in done.stdout and "can install none of these" in done.stderr
