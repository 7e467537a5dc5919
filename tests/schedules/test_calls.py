"""Schemes of several library calls: what their program computes with an epilogue, or that it refuses to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.errors import UnsupportedError

RNG = np.random.default_rng(11)
A, B = RNG.standard_normal((40, 67), np.float32), RNG.standard_normal((67, 24), np.float32)


@pytest.mark.covering(("device", "scheme"), "more")
@pytest.mark.parametrize(
    "more", [{}, {"alpha": 2.5}, {"output": "fp16"}, {"output": "bf16"}, {"output": "fp64"}], ids=str
)
@pytest.mark.parametrize("scheme", ["tf32x1", "tf32x3", "tf32x4", "sgemm-cube", "egemm-tc", "ootomo-tf32", "markidis"])
@pytest.mark.parametrize("device", ["h200", "a100", "b200", "mi300x"])
def test_the_program_gives_the_bits_or_none(device: str, scheme: str, more: dict[str, Any]) -> None:
    try:
        expected = hwsim.run(A, B, device=device, scheme=scheme, **more)
    except UnsupportedError:
        pytest.skip(f"{device} has no {scheme}")
    try:
        found = hwsim.run(A, B, device=device, scheme=scheme, functional=True, **more)
    except UnsupportedError:
        assert more or device == "mi300x"
        return
    assert found.result_sha256 == expected.result_sha256 and found.cycles == expected.cycles


@pytest.mark.parametrize("device", ["h200", "v100", "a100", "b200"])
@pytest.mark.parametrize("k", [3, 67, 200])
def test_runs_too_short_for_the_lanes_give_bits_alone(device: str, k: int) -> None:
    a, b = A[:3, :1] * np.ones((3, k), np.float32), B[:1, :5] * np.ones((k, 5), np.float32)
    for more in ({"k_group": 1}, {"k_group": 2}, {"schedule": {"promotion_k": 1}}):
        found = hwsim.run(a, b, device=device, format="fp32", **more)
        assert found.c is not None
        if found.cycles is None:
            assert "runs of" in str(found.timing_note)
    assert hwsim.run(a, b, device=device, format="fp32", k_group=4).cycles is not None
