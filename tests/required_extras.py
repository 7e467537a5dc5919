"""Hooks by which HWSIM_REQUIRE_EXTRAS turns skips for want of an extra into failures; a conftest.py imports them.

Which extra a skipped test wanted, extras.py says.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from extras import VARIABLE, contents, declared, missing, split

REQUIRED = split(os.environ.get("HWSIM_REQUIRE_EXTRAS", ""))
try:
    EXTRAS, PACKAGES = contents(REQUIRED, declared()) if REQUIRED else (set(), set())
except ValueError as problem:
    raise pytest.UsageError(str(problem)) from None


def _failed_if_missing(report: Any) -> Any:
    """The report of a test or a module, a failure where it was skipped for want of what must be there."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return report
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    name = missing(reason, EXTRAS, PACKAGES)
    if name is not None:
        report.outcome = "failed"
        report.longrepr = f"{VARIABLE}={','.join(REQUIRED)}: skipped for want of {name}: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A test that was skipped."""
    return _failed_if_missing((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """A module that was skipped as a whole."""
    return _failed_if_missing((yield))
