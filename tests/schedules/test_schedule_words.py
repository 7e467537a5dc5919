"""Whatever a schedule's fields are given, a run answers or says what is wrong; it never breaks."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

import hwsim
from hwsim.errors import HwsimError, InputError
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.gemm.summation import Chain, Range, Reduction, Region

CALL = {"m": 16, "n": 16, "k": 64, "device": "h200", "format": "bf16"}
RANGE = {"is": "Range", "start": 0, "stop": 32, "step": 1, "block": 1}
CHAIN = {"is": "Chain", "ranges": [RANGE]}
TREE = {
    "is": "Reduction",
    "parts": [{"is": "Chain", "ranges": [{"is": "Range", "start": 32, "stop": 64}]}, CHAIN],
    "order": "pairwise",
    "level": "workspace",
    "start": "first",
    "format": None,
    "stored": None,
}
WRONG: list[Any] = [
    *("x", "", "fp32", "pairwise", 0, -1, 3, 2.5, True, None, 10**30, float("nan"), float("inf")),
    *([], [1], ["a"], [None], [[1, 2]], [0, "x"], {}, {"a": 1}, {"is": []}, {"is": "float", "value": "nan"}),
    *(RANGE, CHAIN, {"is": "Reduction", "parts": []}, {"is": "Chain", "and then": []}, {"is": "Range", "start": "0"}),
]


def whole(**more: Any) -> dict[str, Any]:
    """A schedule with every field, as `to_dict` writes it, that a program carries."""
    plain = Schedule().to_dict() | {"shape": [16, 16]} | more
    return plain | {"epilogue": Epilogue().to_dict()}


REGIONS = {"regions": [{"is": "Region", "rows": RANGE | {"stop": 16}, "cols": RANGE | {"stop": 16}, "sum": TREE}]}


def places(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, item in items:
        yield from places(item, (*place, name))


def changed(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    data = copy.deepcopy(data)
    part = data
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    return data


@pytest.mark.parametrize("base", [whole(**REGIONS), whole(sum=TREE)], ids=["regions", "sum"])
def test_every_field_with_any_value_runs_or_is_refused(base: dict[str, Any]) -> None:
    rng, refused = random.Random(9), 0
    hwsim.run(**CALL, schedule=base, timing=False)
    for place in places(base):
        for value in WRONG:
            try:
                hwsim.run(**CALL, schedule=changed(base, place, value), exact=False, timing=rng.random() < 0.3)
            except HwsimError:
                refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    "make",
    [
        lambda: Schedule(regions="stream-k"),  # type: ignore[arg-type]
        lambda: Schedule(regions=(CHAIN,)),  # type: ignore[arg-type]
        lambda: Schedule(sum="in order"),  # type: ignore[arg-type]
        lambda: Range("0", 3),  # type: ignore[arg-type]
        lambda: Range(0, 3.0),  # type: ignore[arg-type]
        lambda: Chain(Range(0, 3)),  # type: ignore[arg-type]
        lambda: Chain((3,)),  # type: ignore[arg-type]
        lambda: Reduction("ab"),  # type: ignore[arg-type]
        lambda: Reduction((Chain(()),), order=("0",)),  # type: ignore[arg-type]
        lambda: Region(3, Range(0, 3), Chain(())),  # type: ignore[arg-type]
        lambda: Region(Range(0, 3), Range(0, 3), "in order"),  # type: ignore[arg-type]
    ],
)
def test_parts_of_another_kind_are_refused_where_they_are_made(make: Any) -> None:
    with pytest.raises(InputError, match="allowed: "):
        make()


@pytest.mark.parametrize("given", ["stream-k", [{}], [{"is": "Region"}], ["x"], {"rows": 3}])
def test_an_error_of_regions_shows_their_form(given: Any) -> None:
    with pytest.raises(InputError, match=re.escape('{"is": "Region", "rows": {"is": "Range", "start": 0')):
        Schedule.from_dict({"regions": given})


def test_the_record_says_what_a_written_out_sum_is() -> None:
    region = {"is": "Region", "rows": RANGE | {"stop": 16}, "cols": RANGE | {"stop": 16}, "sum": TREE}
    tree = "2 parts of K, pairwise, through workspace"
    for schedule, words in (
        ({"regions": [region]}, f"1 region of C: {tree}"),
        ({"regions": [region, region | {"sum": CHAIN}]}, f"2 regions of C: {tree}; one chain"),
        ({"sum": TREE}, tree),
        ({}, "one chain in order of K"),
    ):
        decided = hwsim.run(**CALL, schedule=schedule).gemm.decided("order of summation")
        assert decided is not None and decided.value == words
