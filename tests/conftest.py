"""What all tests have: the modules beside this file (lowered.py, timing_device.py) can be imported in every folder,
most take the first mapping of a run (first_mapping.py), some take a part of their cases (covering.py), and
HWSIM_REQUIRE_EXTRAS turns skips for want of an extra into failures (required_extras.py). The garbage collector leaves
alone what collecting the tests makes: going through it is a third of that time, and a twentieth of the tests'. What the
tests make it looks at rarely: programs are tens of thousands of objects without circles.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from covering import pytest_collection_modifyitems  # noqa: F401
from first_mapping import pytest_runtest_protocol  # noqa: F401
from required_extras import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401

THRESHOLD = 50_000  # Python's own is 700; a tenth of the time of tests of programs
os.environ["TRITON_INTERPRET"] = "1"  # hwsim.triton's tests need it before PyTorch imports Triton


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Modules, parameters and items, most of which live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(THRESHOLD)
        gc.enable()
