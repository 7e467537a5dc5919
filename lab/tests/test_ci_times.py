"""lab/tools/ci_times.py: the tables of what a run of CI left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[1] / "tools" / "ci_times.py"
INNER = """
import time
class TestOne:
    def test_a(self): pass
def test_b(): pass
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), str(folder)], capture_output=True, text=True)


def test_steps_and_folders_of_pytests_own_report(tmp_path: Path) -> None:
    for name in (
        "tests/cli/test_x.py",
        "tests/docs/test_y.py",
        "tests/test_z.py",
        "lab/tests/fuzz/test_u.py",
        "lab/tests/test_v.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(INNER)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--junitxml=tests.xml",
        "tests",
        "lab/tests",
    ]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / "times.tsv").write_text("lint: mypy\t31\t28\t2\ntests\t600\t1000\t90\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "| lint: mypy | 31 | 30 |\n| tests | 600 | 1090 |\n" in done.stdout
    rows = dict(line.split(" | ")[:2] for line in done.stdout.splitlines() if "tests/" in line)
    assert rows == {
        "| tests/cli": "2",
        "| tests/docs": "2",
        "| tests/test_z.py": "2",
        "| lab/tests/fuzz": "2",
        "| lab/tests/test_v.py": "2",
    }


def test_what_is_not_there_or_damaged_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 2
    (tmp_path / "times.tsv").write_text("lint\n")
    done = run(tmp_path)
    assert done.returncode == 2 and "run .ci/run first" in done.stderr and "Traceback" not in done.stderr
