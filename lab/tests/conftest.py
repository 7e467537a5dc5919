"""What the laboratory's tests have: the modules beside the product's tests, its fixtures of the command line, and
failures for skips for want of an extra.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("hwsim_lab") is None:
    raise pytest.UsageError("lab/tests need the laboratory: pip install -e ./lab; without it: pytest tests")
sys.path.append(str(Path(__file__).parents[2] / "tests"))

from command_line import cli, refused  # noqa: F401
from required_extras import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401
