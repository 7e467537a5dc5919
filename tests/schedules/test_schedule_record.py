"""The schedule as a record: JSON round trip, cuts of K, and what it refuses."""

from __future__ import annotations

import json

import pytest

from hwsim.errors import InputError
from hwsim.gemm.schedule import Epilogue, Schedule

FULL = Schedule(
    instruction="wgmma.m64n256k16.f32.f16.f16",
    slice_k=(64, 36),
    slice_multiple=32,
    merge_order=(1, 0),
    partial_format="fp16",
    merge_format="fp64",
    k_permutation=(1, 0),
    remainder="first",
    tile_k=32,
    operand_rounding="RZ",
    epilogue=Epilogue(alpha=2.0, beta=0.5, contraction="beta", output_format="bf16", output_rounding="RNA"),
)


@pytest.mark.parametrize("schedule", [Schedule(), FULL, Schedule(split_k=3, promotion_k=128, start="c")])
def test_round_trip(schedule: Schedule) -> None:
    assert Schedule.from_dict(json.loads(json.dumps(schedule.to_dict()))) == schedule


def test_layout() -> None:
    assert Schedule().k_partition(70).slices == ((((0, 70),),),)
    assert Schedule(slice_k=40, promotion_k=32).k_partition(70).slices == (
        (((0, 32),), ((32, 40),)),
        (((40, 70),),),
    )
    assert FULL.k_partition(100).slices == ((((0, 64),),), (((64, 68), (68, 100)),))
    assert Schedule(remainder="first", tile_k=32).k_partition(20).slices == ((((0, 20),),),)
    assert Schedule(split_k=5).slice_lengths(3) == (3,)


def test_prefix() -> None:
    layout = Schedule(slice_k=40, promotion_k=32).k_partition(70)
    assert layout.prefix(70) == layout
    assert layout.prefix(41).slices == ((((0, 32),), ((32, 40),)), (((40, 41),),))
    assert layout.prefix(32).slices == ((((0, 32),),),)
    assert FULL.k_partition(100).prefix(66).slices == ((((0, 64),),), (((64, 66),),))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"split_k": 0}, "split_k = 0"),
        ({"split_k": True}, "split_k = True"),
        ({"slice_k": ()}, "slice_k"),
        ({"promotion_k": 1.5}, "promotion_k = 1.5"),
        ({"merge_order": "ascend"}, "did you mean 'ascending'"),
        ({"merge_order": (0, 2)}, "each of 0 to 1 once"),
        ({"k_permutation": (0, 0)}, "each of 0 to 1 once"),
        ({"k_permutation": ()}, "k_permutation"),
        ({"partial_format": "e4m3"}, "partial_format"),
        ({"remainder": "first"}, "tile_k"),
        ({"tile_k": 32}, "belong together"),
        ({"remainder": "first", "tile_k": 32, "promotion_k": 64}, "exclude each other"),
        ({"operand_rounding": "RN"}, "did you mean 'RNE'"),
        ({"start": "C"}, "start"),
        ({"start": "c", "epilogue": Epilogue(alpha=2)}, "alpha and beta must be 1"),
        ({"epilogue": {"alpha": 1}}, "allowed: an Epilogue"),
        ({"instruction": 3}, "instruction = 3"),
    ],
)
def test_refused(fields: dict, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Schedule(**fields)


@pytest.mark.parametrize(
    "fields", [{"alpha": "1"}, {"output_format": "fp17"}, {"contraction": "fma"}, {"output_rounding": "up"}]
)
def test_refused_epilogue(fields: dict) -> None:
    with pytest.raises(InputError):
        Epilogue(**fields)
    with pytest.raises(InputError):
        Schedule.from_dict({"epilogue": fields})


def test_slices_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="cut K = 100 into 4, not split_k = 3"):
        Schedule(split_k=3, slice_k=30).slice_lengths(100)
    with pytest.raises(InputError, match="names 2 slices, but K = 10 is cut into 1"):
        Schedule(slice_k=64, merge_order=(1, 0)).k_partition(10)
