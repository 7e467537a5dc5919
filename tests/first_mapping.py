"""Most tests take the dataflow's first mapping of a run, and search for no better one.

A search makes, checks and times ten programs of a call, where a test wants one, and no mapping changes a bit. Runs with
a search are those of the other folders, the manifest's among them, of pages' blocks, of the laboratory, of processes
that tests start, and of tests that are marked `searches`.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

HERE = Path(__file__).parent
#: Folders of tests of bits, programs, and what is said of a run.
FOLDERS = {"analysis", "backend", "cli", "dataflows", "evaluate", "machines", "plots", "program", "report_page"}
FOLDERS |= {"request", "schedules", "schemes", "studies", "trace"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Around a test and its fixtures, those of its module among them."""
    folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else "of the laboratory"
    if folder not in FOLDERS or item.get_closest_marker("searches"):
        return (yield)
    from hwsim.resolve import mapping_search, resolver  # what starts the tests' processes needs no hwsim

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapping_search, "_fastest", lambda flow, first, *_: first)
        for module in (mapping_search, resolver):
            patch.setattr(module, "_CACHE", _without_search(type(module._CACHE), module._CACHE.most))
        patch.setenv("HWSIM_CACHE", _cache_folder().name)  # of results of sweeps, between processes
        return (yield)


@cache
def _without_search(kind: type, most: int) -> Any:
    """What is known of runs without a search, beside what other tests of the process know of runs with one."""
    return kind(most)


@cache
def _cache_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()
