"""`split_k` beside a library: each slice of K is a call of its own, merged as the schedule says."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.schedule import Schedule

SIZES = {
    "chains": ("h100", "fp16", (32, 256, 4096)),  # each slice is one chain
    "ragged": ("h100", "fp16", (33, 257, 4001)),
    "tf32": ("h100", "tf32", (64, 64, 8192)),
    "slices in slices": ("h100", "fp16", (16, 4096, 14336)),  # cuBLAS cuts each slice's K again
    "estimated": ("a100", "fp16", (64, 256, 4096)),
}
MERGES = {
    "sums": {"split_k": 4},
    "16 bits": {"schedule": {"split_k": 4, "partial_format": "fp16", "merge_format": "fp16"}},
    "descending": {"schedule": {"slice_k": 2048, "merge_order": "descending"}},
}


def _operands(format, m, n, k):
    rng = np.random.default_rng(0)
    dtype = np.float16 if format == "fp16" else np.float32
    return rng.standard_normal((m, k), np.float32).astype(dtype), rng.standard_normal((k, n), np.float32).astype(dtype)


@pytest.mark.covering("name", "merge")
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("name", SIZES)
def test_slices_are_calls_that_are_added(name, merge):
    device, format, (m, n, k) = SIZES[name]
    a, b = _operands(format, m, n, k)
    call = {"device": device, "library": "cublas", "format": format}
    options = MERGES[merge]
    schedule = Schedule.from_dict(options.get("schedule", {"split_k": 4}))
    narrow = np.float16 if schedule.partial_format else np.float32
    more = {"output": "fp16"} if schedule.partial_format and format == "fp16" else {}
    parts, start = [], 0
    for length in schedule.slice_lengths(k):
        left, right = (
            np.ascontiguousarray(a[:, start : start + length]),
            np.ascontiguousarray(b[start : start + length]),
        )
        parts.append(hwsim.matmul(left, right, **call, **more).astype(narrow))
        start += length
    parts = parts[::-1] if schedule.merge_order == "descending" else parts
    total = parts[0]
    for part in parts[1:]:
        total = (total.astype(np.float32) + part).astype(narrow)
    result = hwsim.run(a, b, **call, **options)
    assert np.array_equal(result.c, total.astype(np.float32)) and result.cycles
    assert hwsim.run(a, b, gemm=result.gemm).result_sha256 == result.result_sha256


def test_two_ranks_have_other_bits_than_one():
    a, b = _operands("fp16", 64, 512, 4096)
    call = {"device": "h200", "library": "pytorch", "format": "fp16", "output": "fp16"}
    results = [hwsim.matmul(a, b, **call, **more) for more in ({}, {"split_k": 2}, MERGES["16 bits"])]
    assert len({result.tobytes() for result in results}) == 3


def test_what_does_not_fit_is_refused():
    a, b = _operands("fp16", 16, 16, 256)
    call = {"device": "h100", "library": "cublas"}
    with pytest.raises(InputError, match="split_k: K = 256 is one slice of 256; leave split_k out"):
        hwsim.run(a, b, **call, schedule={"slice_k": 256})
    with pytest.raises(InputError, match="split_k = 'auto' beside a library, where each slice is a call of its own"):
        hwsim.run(a, b, **call, split_k="auto")
    with pytest.raises(InputError, match="decides schedule"):
        hwsim.run(a, b, **call, schedule={"split_k": 2, "promotion_k": 64})
    with pytest.raises((InputError, UnsupportedError), match="decides split_k"):
        hwsim.run(a.astype(np.float32), b.astype(np.float32), **call, scheme="tf32x3", split_k=2)
