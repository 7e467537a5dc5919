"""A fixture of tests of bits: runs take the dataflow's first mapping, and none is searched.

No mapping changes a bit, which tests/dataflows/test_mapping_search.py and the manifest hold. A search makes, checks and
times ten programs of a call, where the test executes one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def first_mapping(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from hwsim.resolve import mapping_search, resolver  # what starts the tests' processes needs no hwsim

    monkeypatch.setattr(mapping_search, "_fastest", lambda flow, first, *_: first)
    for module in (mapping_search, resolver):
        monkeypatch.setattr(module, "_CACHE", _without_search(type(module._CACHE), module._CACHE.most))
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path))  # of results of sweeps, between processes


@cache
def _without_search(kind: type, most: int) -> Any:
    """What is known of runs without a search, beside what other tests of the process know of runs with one."""
    return kind(most)
