"""ape on data whose blocks differ, against the same block by block."""

from __future__ import annotations

import numpy as np
import pytest
import straight_blocks as blocks
from straight_fp16 import ape_fp32_f
from straight_unit import pair, same
from straight_wide import ape_fp32_b, native

import hwsim


def mixed(shape, block):
    """Each block of A and B in range of fp32-f, of fp32-b only, or of neither."""
    rng = np.random.default_rng(shape)
    found = []
    for x in pair("near", shape):
        scale = rng.choice([0, 0, 0, 30, -20, -118], (-(-x.shape[0] // block), -(-x.shape[1] // block)))
        spread = np.repeat(np.repeat(scale, block, 0), block, 1)[: x.shape[0], : x.shape[1]]
        found.append(np.ldexp(x, spread))
    return found


@pytest.mark.parametrize("device", ["a100", "h200"])
@pytest.mark.parametrize("options", [{"block": 16}, {"block": 32}, {"block": 32, "interleave": "k"}], ids=str)
def test_blocks_of_three_types(options, device):
    for shape in ((1, 1, 1), (3, 5, 67), (40, 33, 130)):
        a, b = mixed(shape, options["block"])
        same(hwsim.matmul(a, b, device=device, scheme="ape", **options), blocks.ape(a, b, device, **options))


def test_specials_take_the_native_type():
    a, b = pair("special", (17, 20, 67))
    with np.errstate(all="ignore"):
        want = blocks.ape(a, b, "a100", 16)
    same(hwsim.matmul(a, b, device="a100", scheme="ape", block=16), want)
    assert np.isnan(want).any() and np.isfinite(want).any()


@pytest.mark.parametrize(
    ("strategy", "by_hand"),
    [
        ("fp32-f", ape_fp32_f),
        ("fp32-b", ape_fp32_b),
        ("native", lambda a, b, device: native(a, b, device, "fp32", lambda x: x)),
    ],
)
def test_one_type_for_all(strategy, by_hand):
    a, b = pair("near", (9, 7, 67))
    same(hwsim.matmul(a, b, device="a100", scheme="ape", strategy=strategy), by_hand(a, b, "a100"))


def test_the_decider_takes_an_admissible_type():
    """In fp32-f's range all types are admissible: one of their results comes out; outside it not fp32-f's."""
    a, b = pair("near", (9, 7, 67))
    given = hwsim.matmul(a, b, device="a100", scheme="ape", strategy="decide").tobytes()
    alone = {
        x: hwsim.matmul(a, b, device="a100", scheme="ape", strategy=x).tobytes() for x in ("fp32-f", "fp32-b", "native")
    }
    assert given in alone.values()
    a[0, 0] = 1e6
    given = hwsim.matmul(a, b, device="a100", scheme="ape", strategy="decide", block=16)
    assert np.isfinite(given).all()
    forced = hwsim.matmul(a, b, device="a100", scheme="ape", strategy="fp32-f", block=16)
    assert not np.isfinite(forced[0]).any()
