"""Products of one accumulator that alternate after a number of elements of K: bits, programs, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError


def _operands(k, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((37, k), np.float32), rng.standard_normal((k, 24), np.float32)


def _bits(k, device="a100", scheme="tf32x3", **options):
    more = {"accumulation": "chained"} if scheme == "tf32x3" else {}
    return hwsim.run(*_operands(k), device=device, scheme=scheme, **more, **options).result_sha256


def _tf32(x):
    codes = x.view(np.uint32)
    return ((codes + 0xFFF + ((codes >> 13) & 1)) & 0xFFFFE000).astype(np.uint32).view(np.float32)


def test_the_length_lies_between_an_instruction_s_and_all_of_k():
    assert _bits(64, interleave=8) == _bits(64, interleave="instruction") != _bits(64, interleave=32)
    assert _bits(64, interleave=64) == _bits(64, interleave="k") == _bits(64, interleave=128)
    assert len({_bits(256, interleave=x) for x in ("instruction", 32, 64, "k")}) == 4


def test_blocks_are_the_chain_that_calls_by_hand_give():
    """Three tf32 products of each block of 32, on one accumulator: calls of the instruction, by hand."""
    a, b = _operands(96)
    (a1, a2), (b1, b2) = ((high, _tf32(x - high)) for x in (a, b) for high in (_tf32(x),))
    total = np.zeros((37, 24), np.float32)
    for start in range(0, 96, 32):
        block = slice(start, start + 32)
        for left, right in ((a1, b1), (a1, b2), (a2, b1)):
            operands = np.ascontiguousarray(left[:, block]), np.ascontiguousarray(right[block])
            total = hwsim.matmul(*operands, device="a100", format="tf32", c=total, beta=1.0, schedule={"start": "c"})
    expected = hwsim.matmul(a, b, device="a100", scheme="tf32x3", accumulation="chained", interleave=32)
    assert total.tobytes() == expected.tobytes()


@pytest.mark.parametrize("device", ["a100", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("scheme", ["tf32x3", "ape-fp32-f"])
@pytest.mark.parametrize(("k", "more"), [(100, {}), (256, {"split_k": 2}), (256, {"k_group": 64}), (37, {})])
def test_the_program_has_the_evaluator_s_bits(device, scheme, k, more):
    direct = _bits(k, device, scheme, interleave=32, **more)
    assert direct == _bits(k, device, scheme, interleave=32, functional=True, **more)


def test_what_is_not_allowed_says_so():
    with pytest.raises(InputError, match=r"interleave = 12; allowed: multiples of 8, the K of mma\.m16n8k8"):
        _bits(64, interleave=12)
    with pytest.raises(InputError, match="interleave is not for accumulation='termwise'"):
        hwsim.run(*_operands(64), device="a100", scheme="tf32x3", interleave=32)
    with pytest.raises(InputError, match="tile k = 32; allowed: multiples of interleave = 64"):
        _bits(128, interleave=64, tile=(128, 128, 32))
    with pytest.raises(UnsupportedError, match="interleave in elements of K"):
        _bits(64, "ascend910a", "ape-fp32-f", interleave=32, functional=True)
