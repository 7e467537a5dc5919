"""The part of the manifest's cases that every run of the tests makes: each kind of case on each device, each scheme in
each kind, each option once (texts and truth values: each value), each format of each family of devices, each kind of
operand in each format. The others are slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cases import Case

from hwsim.devices import load, names

#: Keywords that a feature of their own names.
NAMED = {"device", "scheme", "format"}
FAMILIES = {name: load(name).family for name, _ in names()}


def sample(cases: Iterable[Case]) -> list[Case]:
    """Of cases in their order, those that have a feature which no case before them has."""
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for case in cases:
        own = set(features(case))
        if not own <= seen:
            chosen.append(case)
        seen |= own
    return chosen


def features(case: Case) -> Iterator[tuple[str, ...]]:
    """What a case shows, each as a tuple that begins with the kind of feature."""
    keywords = case["keywords"]
    part, device = case["id"].partition("/")[0], keywords["device"]
    scheme, fmt = keywords.get("scheme", "native"), keywords.get("format", "")
    yield "call", case["call"]
    yield "device", part, device
    yield "scheme", part, scheme
    yield "format", FAMILIES.get(device, device), fmt
    for spec in case["arrays"].values():
        yield "kind of operand", spec["kind"], spec["format"]
    for name in keywords.keys() - NAMED:
        value = keywords[name]
        yield "option", name, str(value) if isinstance(value, (str, bool)) else ""
