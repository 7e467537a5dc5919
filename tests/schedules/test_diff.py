"""Two settings compared: counts against NumPy, and the first step of K where running sums part."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.studies.diff import Variant, _ordered, diff

RNG = np.random.default_rng(20)
A, B = (RNG.standard_normal(shape).astype(np.float16) for shape in ((24, 200), (200, 18)))


def test_counts_are_those_of_the_products() -> None:
    one, other = (hwsim.matmul(A, B, device=name) for name in ("a100", "h100"))
    unlike = one.view(np.uint32) != other.view(np.uint32)
    found = diff(A, B, Variant("a100"), Variant("h100"))
    assert found.differing == unlike.sum() > 0 and found.elements == 24 * 18 and found.special == 0
    assert [(p.row, p.column) for p in found.first] == [tuple(at) for at in np.argwhere(unlike)[:10].tolist()]
    codes = [x.view(np.int32).astype(np.int64) for x in (one, other)]
    same_sign = (codes[0] < 0) == (codes[1] < 0)
    assert same_sign.all()
    ulps = np.abs(codes[0] - codes[1])
    assert found.largest_ulps == ulps.max() and found.worst is not None and found.worst.ulps == ulps.max()
    assert found.mean_ulps == pytest.approx(ulps[unlike].mean())
    assert "first differs at k" in found.to_text()
    assert json.loads(json.dumps(found.to_dict()))["differing"] == found.differing


def test_first_step_is_where_truncated_products_part() -> None:
    found = diff(A, B, Variant("a100"), Variant("h100"))
    step = found.step
    assert step is not None and step.step == 16

    def code(device: str, k: int) -> int:
        return int(
            hwsim.matmul(A[:, :k], B[:k], device=device, rows=[step.row], cols=[step.column]).view(np.uint32)[0, 0]
        )

    unlike = [k for k in range(16, 201, 8) if (k % 16 == 0 or k == 200) and code("a100", k) != code("h100", k)]
    assert unlike[0] == step.k_end and step.k_first == step.k_end - 16
    assert (step.left_code, step.right_code) == tuple(f"0x{code(d, step.k_end):08x}" for d in ("a100", "h100"))


def test_two_schedules_part_in_the_second_slice() -> None:
    found = diff(A, B, Variant("h200"), Variant("h200", schedule={"split_k": 2}), element=(3, 4))
    if found.step is not None:
        assert found.step.k_first >= 128
    worst = diff(A, B, Variant("h200"), Variant("h200", schedule={"split_k": 2})).step
    assert worst is not None and worst.k_first >= 128
    assert found.schedules[1]["split_k"] == 2


def test_equal_settings_have_no_step() -> None:
    found = diff(A, B, Variant("h100"), Variant("h200"))
    assert found.differing == 0 and found.worst is None and found.step is None and found.first == ()
    assert "0 of 432" in found.to_text()


def test_rows_columns_and_places_of_the_whole() -> None:
    whole = diff(A, B, Variant("a100"), Variant("h100"), first=1000)
    part = diff(A, B, Variant("a100"), Variant("h100"), rows=[5, 20], cols=slice(3, 9), first=1000)
    wanted = [p for p in whole.first if p.row in (5, 20) and 3 <= p.column < 9]
    # sizes are over the RMS of the elements compared
    assert [replace(p, over_rms=None) for p in part.first] == [replace(p, over_rms=None) for p in wanted]
    assert part.elements == 12


def test_infinities_come_first() -> None:
    a, b = np.full((1, 32), 60000, np.float16), np.full((32, 1), 60000, np.float16)
    found = diff(a, b, Variant("h200", output="fp16"), Variant("ascend910a", output="fp16"))
    assert found.special == 1 and found.worst is not None and found.worst.ulps is None
    assert found.worst.left == np.inf and found.worst.right == 65504


def test_errors() -> None:
    with pytest.raises(InputError, match="one output format"):
        diff(A, B, Variant("h200"), Variant("h200", output="fp16"))
    with pytest.raises(InputError, match="element's row is 24"):
        diff(A, B, Variant("h200"), Variant("a100"), element=(24, 0))
    with pytest.raises(InputError, match="columns must equal"):
        diff(A, A, Variant("h200"), Variant("a100"))


def test_integers_of_64_bits_are_compared() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-(1 << 15), 1 << 15, (16, 16)).astype(np.int16) for _ in range(2))
    plain, wraps = Variant("a100", "ape-int16"), Variant("a100", "ape-int16", options={"low_byte": "biased"})
    for other in (plain, wraps):
        found = diff(a, b, plain, other)
        assert (found.differing, found.elements) == (0, 256)
    codes = np.array([0, 1, (1 << 64) - 1, 1 << 63, (1 << 63) - 1], np.uint64)
    assert list(_ordered(codes, "int64")) == [0, 1, -1, -(1 << 63), (1 << 63) - 1]
    assert list(_ordered(codes[:3].astype(np.uint32), "int32")) == [0, 1, -1]
