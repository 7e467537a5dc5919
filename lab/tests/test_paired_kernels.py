"""lab/tools/paired_kernels.py: one build beside itself, and a file that is none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hwsim._kernels import dot

TOOL = Path(__file__).parents[1] / "tools" / "paired_kernels.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True)


def test_a_build_has_its_own_bits() -> None:
    of_tool = run(dot.__file__, dot.__file__, "--device", "mi300x", "--format", "tf32", "--size", "16", "--pairs", "2")
    assert of_tool.returncode == 0, of_tool.stderr
    assert re.fullmatch(
        r"mi300x +tf32 +ordinary +base +[\d.]+, new +[\d.]+ GMAC/s; ratio of best [\d.]+, median [\d.]+\n",
        of_tool.stdout,
    )


def test_what_is_no_extension_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "dot.so"
    text.write_text("no library")
    for path in (str(tmp_path / "absent.so"), str(text)):
        of_tool = run(dot.__file__, path)
        assert of_tool.returncode == 2 and path in of_tool.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--format", "fp61"), "fp61: no unit has it; allowed: fp16"), (("--device", "mi300y"), "mi300y")],
)
def test_nothing_to_compare_is_not_equal(options: tuple[str, ...], said: str) -> None:
    of_tool = run(dot.__file__, dot.__file__, *options)
    assert of_tool.returncode == 2 and said in of_tool.stderr and "Traceback" not in of_tool.stderr
