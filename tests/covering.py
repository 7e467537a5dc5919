"""Tests with many cases of which every run takes a part: `@pytest.mark.covering("device", "scheme")`.

The default run takes enough cases of such a test that each value of these arguments is there; a tuple of arguments
stands for their values together. Which cases meet which is drawn, the same in every run. The other cases are marked
slow: `pytest -m slow` takes them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

Argument = str | tuple[str, ...]


def features(params: Mapping[str, Any], arguments: Iterable[Argument]) -> Iterator[tuple[str, ...]]:
    """What a case shows: each argument with its value. Raises KeyError for an argument that the test does not have."""
    for argument in arguments:
        names = (argument,) if isinstance(argument, str) else argument
        yield tuple(f"{name} = {_text(params[name])}" for name in names)


def _text(value: Any) -> str:
    name = getattr(value, "__qualname__", None)  # of a function or a class, whose repr() may tell where it lies
    return repr(value) if name is None else f"{value.__module__}.{name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that bring nothing new; before pytest selects by marks."""
    tests: dict[str, list[tuple[str, pytest.Item, set[tuple[str, ...]]]]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("covering")
        if mark is None:
            continue
        callspec: Any = getattr(item, "callspec", None)
        if callspec is None:
            raise pytest.UsageError(f"{item.nodeid}: marked covering, but has no parameters")
        try:
            own = set(features(callspec.params, mark.args))
        except KeyError as error:
            raise pytest.UsageError(f"{item.nodeid}: marked covering of {error}, which it does not have") from None
        test, _, case = item.nodeid.partition("[")
        tests[test].append((hashlib.sha256(case.encode()).hexdigest(), item, own))
    for cases in tests.values():
        seen: set[tuple[str, ...]] = set()
        for _, item, own in sorted(cases, key=lambda case: case[0]):
            if own <= seen:
                item.add_marker(pytest.mark.slow)
            seen |= own
