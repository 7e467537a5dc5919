"""The workflows of a public repository: valid, and each does what a script of .ci does, for every Python supported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml")) if FOLDER.is_dir() else []
pytestmark = pytest.mark.skipif(not FILES, reason="a source distribution has no workflows")
#: Commands of the workflows that are none of .ci's own: Alpine has no action for Python.
CONTAINER = re.compile(r'docker run --rm -v "\$PWD:/hwsim" -w /hwsim python:\$\{\{ matrix\.python \}\}-alpine sh (.*)')


def loaded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


def test_all_are_there() -> None:
    assert [path.name for path in FILES] == ["docs.yml", "test.yml", "wheels.yml"]


def test_they_are_valid(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, FILES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(FILES[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:"), encoding="utf-8")
    assert subprocess.run([*command, str(wrong)], capture_output=True).returncode


def test_every_command_is_a_script_of_ci() -> None:
    scripts = set()
    for path in FILES:
        for job in loaded(path.name)["jobs"].values():
            for step in job["steps"]:
                command = step.get("run", ".ci/none")
                command = match[1] if (match := CONTAINER.fullmatch(command)) else command
                script, *arguments = command.split()
                if script == ".ci/none":
                    continue
                assert script.startswith(".ci/"), command
                assert os.access(ROOT / script, os.X_OK), script
                text = (ROOT / script).read_text(encoding="utf-8")
                assert all(f"\n{word})" in text for word in arguments), command
                scripts.add(script)
    assert scripts == {".ci/run", ".ci/docs", ".ci/wheels"}


def test_every_python_supported_is_tested_and_built() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    supported = [one.replace(prefix, "3.") for one in project["classifiers"] if one.startswith(prefix)]
    assert supported[0] == project["requires-python"].removeprefix(">=") and len(supported) >= 4
    for name in ("test.yml", "wheels.yml"):
        for key, job in loaded(name)["jobs"].items():
            assert job["strategy"]["matrix"]["python"] == supported, (name, key)


def test_actions_are_of_a_version_and_jobs_end() -> None:
    for path in FILES:
        found = loaded(path.name)
        assert found["permissions"] == {"contents": "read"}
        for job in found["jobs"].values():
            assert job["timeout-minutes"] <= 60
            uses = [step["uses"] for step in job["steps"] if "uses" in step]
            assert all(re.fullmatch(r"actions/[\w-]+@v\d+", one) for one in uses), uses


def test_ci_checks_the_workflows_and_the_wheel() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "vendor.github-workflows .github/workflows/*.yml" in text and "lab/tools/wheels/check.py" in text
    assert "HWSIM_REQUIRE_EXTRAS=test,all,torch,jax pytest" in text
    said = " record --than ", "HWSIM_RECORD_IMPORTS=", "without_extras.py run "
    assert sorted(said, key=text.index) == list(said)  # in this order
