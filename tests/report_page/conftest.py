"""One Chromium for the tests that look at pages; they are skipped by name where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import NAMES, PROGRAM, Browser, browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)}")
    with browser() as opened:
        yield opened
