"""Random operands of a call: one seed, shape and input format give the same ones for every scheme."""

from __future__ import annotations

import pytest

from hwsim.compute.call import sort_by_owner
from hwsim.request.operands import operands_of
from hwsim.schemes import scheme_of

SCHEMES = ("native", "ozaki-int8", "fixedpoint-fp64", "ape-int16")


def drawn_bits(scheme: str, input_format: str) -> tuple[bytes, bytes]:
    named = scheme_of(scheme)
    values = {"m": 8, "n": 8, "k": 16, "seed": 3, "input_format": input_format}
    pair = operands_of(None, None, sort_by_owner(values, named), named).pair
    assert pair is not None
    return pair[0].values().tobytes(), pair[1].values().tobytes()


@pytest.mark.parametrize("input_format", ["fp64", "fp32", "fp16"])
def test_every_scheme_draws_the_same_operands(input_format: str) -> None:
    assert len({drawn_bits(scheme, input_format) for scheme in SCHEMES}) == 1
