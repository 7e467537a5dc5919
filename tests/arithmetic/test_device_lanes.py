"""The elementwise lanes of devices: IEEE or saturating, with the device's NaN, in fp32, fp64 and int32."""

from __future__ import annotations

import numpy as np
import pytest

from hwsim.arithmetic.lanes import Lanes
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, load
from hwsim.evaluate.join import join_for
from hwsim.formats import FORMATS

WORDS = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x3F800000, 0x3F800001, 0x34000001, 0x7F7FFFFF, 0xFF7FFFFF,
     0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001],
    np.uint32,
)  # fmt: skip
#: device: code of a NaN that leaves the lanes; None: the device has neither NaNs nor infinities there.
DEVICES = {"h200": 0x7FFFFFFF, "mi210": 0x7FC00000, "ascend910a": None}


def lanes_of(name: str, format: str = "fp16") -> Lanes:
    device = load(name)
    return Lanes(device, dot_spec(device, device.native[format]), CPU)


def wanted(x: np.ndarray, nan_code: int | None) -> np.ndarray:
    if nan_code is None:
        top = np.finfo(np.float32).max
        return np.where(np.isnan(x), np.float32(0), np.clip(x, -top, top)).view(np.uint32)
    return np.where(np.isnan(x), np.uint32(nan_code), x.view(np.uint32))


@pytest.mark.parametrize("name", DEVICES)
def test_each_operation_rounds_once_and_settles_the_edges(name):
    lanes, nan_code = lanes_of(name), DEVICES[name]
    x, y = (np.ascontiguousarray(part) for part in np.meshgrid(WORDS.view(np.float32), WORDS.view(np.float32)))
    read = wanted(x, nan_code).view(np.float32)
    other = wanted(y, nan_code).view(np.float32)
    assert np.array_equal(lanes.load(x.view(np.uint32)).view(np.uint32), read.view(np.uint32))
    with np.errstate(all="ignore"):
        assert np.array_equal(lanes.add(read, other).view(np.uint32), wanted(read + other, nan_code))
        scaled = wanted(np.float32(0.1) * read, nan_code)
        assert np.array_equal(lanes.multiply(0.1, read).view(np.uint32), scaled)
        # A power of two and fp64: the product is exact and the sum of two floats this far apart rounds the same way.
        fused = (4.0 * read.astype(np.float64) + 0.0).astype(np.float32)
        assert np.array_equal(lanes.fused(4.0, read, np.zeros_like(read)).view(np.uint32), wanted(fused, nan_code))
    steps = (("load", 0), ("load", 1), ("add",), ("scale", 0.1))
    one_by_one = lanes.multiply(0.1, lanes.add(read, other))
    assert np.array_equal(lanes.combine((read, other), steps).view(np.uint32), one_by_one.view(np.uint32))
    total = read.copy()
    assert lanes.add(total, other, out=total, threads=2) is total
    assert np.array_equal(total.view(np.uint32), lanes.add(read, other).view(np.uint32))


def test_an_array_without_specials_is_not_copied():
    values = np.ones((3, 5), np.float32)
    assert np.shares_memory(lanes_of("h200").load(values.view(np.uint32)), values)
    assert np.shares_memory(lanes_of("ascend910a").load(values.view(np.uint32)), values)


def test_int32_sums_wrap():
    lanes = lanes_of("h200", "int8")
    total = np.array([[2**31 - 1, -(2**31), 5]], np.int32)
    assert lanes.add(total, np.array([[1, -1, -7]], np.int32)).tolist() == [[-(2**31), 2**31 - 1, -2]]
    assert lanes.add(total, total, out=total) is total


def test_store_gives_the_units_nan():
    x = np.array([[np.nan, -np.nan, 1.5, np.inf]], np.float32)
    assert lanes_of("h200").store(x, FORMATS["fp16"], "RNE").tolist() == [[0x7FFF, 0x7FFF, 0x3E00, 0x7C00]]
    assert lanes_of("mi210").store(x, FORMATS["fp16"], "RNE").tolist() == [[0x7E00, 0x7E00, 0x3E00, 0x7C00]]
    assert lanes_of("ascend910a").store(x, FORMATS["fp16"], "RNE").tolist() == [[0, 0, 0x3E00, 0x7BFF]]


@pytest.mark.parametrize(
    ("unit", "nan32"), [("mma.m16n8k16.f32.f16.f16.f32", 0x7FFFFFFF), ("mma.m16n8k16.f16.f16.f16.f16", 0x7FFFFFFF)]
)
def test_sums_have_the_unit_s_nan_in_fp32_and_the_format_s_own_in_fp64(unit, nan32):
    chip = load("l40s")
    ones = np.ones(3)
    for arithmetic, code in (("fp32", nan32), ("fp64", 0x7FF8000000000000)):
        join = join_for(arithmetic, chip, dot_spec(chip, unit), arithmetic, CPU)
        total = join.add(np.array([np.nan, 1, np.inf], join.dtype), (-ones * [1, 1, np.inf]).astype(join.dtype))
        assert total.view(f"u{join.dtype.itemsize}").tolist() == [code, 0, code]
