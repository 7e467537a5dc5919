"""Arithmetic in software: as many 32-bit instructions as device files count, and IEEE's bits."""

from __future__ import annotations

import numpy as np
import pytest
from word_lanes import Pair, WordLanes, fp64_add, fp64_scaled

from hwsim.devices import load
from hwsim.devices.variants import changed
from hwsim.machines import timing
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, LocalTile, Program

CHIP = load("ascend910b3")
COUNT = 20000
SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**-1074, 1.7976931348623157e308, -1.7976931348623157e308]


def numbers(seed: int) -> np.ndarray:
    """Doubles of all exponents, of near ones, subnormals and specials."""
    rng = np.random.default_rng(seed)
    every = rng.integers(0, 1 << 64, COUNT, dtype=np.uint64).view(np.float64)
    near = rng.standard_normal(COUNT) * 2.0 ** rng.integers(-60, 60, COUNT)
    tiny = rng.integers(0, 1 << 53, COUNT, dtype=np.uint64).view(np.float64)
    kind = rng.integers(0, 4, COUNT)
    return np.select([kind == 0, kind == 1, kind == 2], [every, near, tiny], rng.choice(SPECIALS, COUNT))


def pair(x: np.ndarray) -> Pair:
    codes = x.view(np.uint64)
    return Pair((codes >> np.uint64(32)).astype(np.uint32), codes.astype(np.uint32))


def joined(x: Pair) -> np.ndarray:
    return x.high.astype(np.uint64) << np.uint64(32) | x.low


def is_same(found: np.ndarray, wanted: np.ndarray) -> bool:
    both_nan = np.isnan(wanted) & np.isnan(found.view(np.float64))
    return bool(np.all((found == wanted.view(np.uint64)) | both_nan))


@pytest.mark.filterwarnings("ignore")
def test_an_addition_of_fp64() -> None:
    a, b, lanes = numbers(1), numbers(2), WordLanes()
    b[::5] = -a[::5] * (1 + np.random.default_rng(3).integers(-3, 4, len(a[::5])) * 2.0**-52)
    assert is_same(joined(fp64_add(lanes, pair(a), pair(b))), a + b)
    assert lanes.count == CHIP.vector.software["add.fp64"] == CHIP.vector.software["add_row.fp64"]
    assert lanes.count + 1 == CHIP.vector.software["sub.fp64"]  # another sign


@pytest.mark.parametrize("power", [1, -1, 12, -140, 900, -1000, -1074, -2100])
@pytest.mark.filterwarnings("ignore")
def test_a_multiplication_of_fp64_by_a_power_of_two(power: int) -> None:
    a, lanes = numbers(4), WordLanes()
    assert is_same(joined(fp64_scaled(lanes, pair(a), power)), np.ldexp(a, power))
    assert lanes.count == CHIP.vector.software["scale.fp64"] == CHIP.vector.software["ldexp.fp64"]


def test_int64() -> None:
    a, b = np.random.default_rng(5).integers(-(1 << 63), 1 << 63, (2, COUNT))
    lanes = WordLanes()
    assert np.array_equal(joined(lanes.wide_add(pair(a), pair(b))), (a + b).view(np.uint64))
    assert lanes.count == CHIP.vector.software["add.int64"]
    lanes = WordLanes()
    assert np.array_equal(joined(lanes.wide_left(pair(a), 8)), (a << 8).view(np.uint64))
    assert lanes.count == CHIP.vector.software["scale.int64"]
    lanes = WordLanes()
    assert np.array_equal(joined(lanes.wide_right_signed(pair(a), 8)), (a >> 8).view(np.uint64))
    assert lanes.count == CHIP.vector.software["extract.int64"]
    lanes, condition = WordLanes(), a * np.random.default_rng(6).integers(0, 2, COUNT) << np.arange(COUNT) % 64
    chosen = joined(lanes.wide_selected(pair(condition), pair(a), pair(b)))
    assert np.array_equal(chosen, np.where(condition != 0, a, b).view(np.uint64))
    assert lanes.count == CHIP.vector.software["select.int64"]


def program_of(fmt: str) -> Program:
    kernel, s = KernelBuilder("k"), StreamBuilder("main")
    x = LocalTile(kernel.buffer("x", "UB", 1, 64 * 64 * 8), 64, 64, fmt)
    done = kernel.semaphore("done")
    s.emit("V", "add", x, [x, x], [], [done])
    s.emit("VMTE3", "copy", GlobalTile("C", Affine(), Affine(), 64, 64), [x], [done])
    kernel.group(0, 1, s)
    return Program((GlobalArray("C", 64, 64, fmt),), (kernel.finish(),), (), "C")


def test_the_time_is_of_as_many_additions_of_words() -> None:
    def busy(fmt: str, device: object = CHIP) -> float:
        program = program_of(fmt)
        check(program, device)
        return timing.run(program, device).engines["V"].busy_cycles

    repeats = 64 * 64 * 4 // 512
    assert busy("fp32") == 24 + repeats
    assert busy("int64") == 9 * (24 + repeats)
    assert busy("fp64") == 373 * (24 + repeats)
    assert busy("fp64", changed(CHIP, {"vector.software": {}})) == 24 + 2 * repeats


def test_another_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="software"):
        changed(CHIP, {"vector.software": {"sqrt.fp64": 3}})
