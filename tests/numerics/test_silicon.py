"""The reference against bit patterns captured on hardware; every distribution of every instruction is sampled."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from silicon_specs import CDNA3_FP8, hopper, third_party

from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.reference import dot

GOLDEN = Path(__file__).parent.parent / "golden"
CAPTURES = [GOLDEN / "h200" / "instructions.npz", GOLDEN / "h200_edge" / "edge.npz"]
PER_KEY = 100
PER_FILE = 300


@cache
def keys_of(path: Path) -> list[str]:
    if not path.exists():
        return []
    with np.load(path) as archive:
        return sorted({name.rpartition("/")[0] for name in archive.files})


def spread(total: int, wanted: int) -> range:
    """About `wanted` indices over `total`, at an odd stride so that every row and column is met."""
    return range(0, total, max(total // wanted, 1) | 1)


def mismatch(a: list[int], b: list[int], c: int, expected: int, got: int) -> str:
    return f"a={[hex(x) for x in a]} b={[hex(x) for x in b]} c={c:#x}: hardware {expected:#x}, reference {got:#x}"


@pytest.mark.parametrize(
    ("path", "key"), [pytest.param(path, key, id=key) for path in CAPTURES for key in keys_of(path)]
)
def test_h200(path: Path, key: str) -> None:
    spec = hopper(key.split("/")[0])
    with np.load(path) as archive:
        a, b, c, d = (archive[f"{key}/{name}"] for name in "abcd")
    bad, done = [], 0
    for index in spread(d.size, PER_KEY):
        case, i, j = np.unravel_index(index, d.shape)
        row, column = a[case, i].tolist(), b[case, j].tolist()
        got, expected = dot(spec, DotOperands(row, column, int(c[case, i, j]))), int(d[case, i, j])
        done += 1
        if got != expected:
            bad.append(mismatch(row, column, int(c[case, i, j]), expected, got))
    assert done >= PER_KEY // 2
    assert not bad, f"{len(bad)} of {done}; first: {bad[0]}"


def test_h200_captures_are_there() -> None:
    """Without this a missing file would pass as zero tests."""
    assert [path.name for path in CAPTURES if not keys_of(path)] == []


GEMM_SPECS = {
    "f16": "wgmma.m64n8k16.f32.f16.f16",
    "bf16": "wgmma.m64n8k16.f32.bf16.bf16",
    "e4m3.fast": "wgmma.m64n8k32.f32.e4m3.e4m3",
}


@pytest.mark.parametrize("name", GEMM_SPECS)
@pytest.mark.parametrize("k", [64, 1024])
def test_cublas_is_the_chain_of_steps(name: str, k: int) -> None:
    spec = hopper(GEMM_SPECS[name])
    with np.load(GOLDEN / "h200" / "gemm.npz") as archive:
        a, bt, d = (archive[f"cublas.{name}.k{k}/{array}"] for array in ("a", "bt", "d"))
    chosen = [divmod(index, d.shape[1]) for index in spread(d.size, 6400 // k)]
    assert len(chosen) >= 4
    got = [dot(spec, DotOperands(a[i].tolist(), bt[j].tolist(), 0)) for i, j in chosen]
    assert got == [int(d[i, j]) for i, j in chosen]


def third_party_folder() -> Path | None:
    name = os.environ.get("HWSIM_GOLDEN_DIR")
    return Path(name) if name else None


def third_party_files() -> list[object]:
    """One parameter per file; a skip that says why when no folder is named."""
    folder = third_party_folder()
    if folder is None:
        reason = "HWSIM_GOLDEN_DIR is not set: no third-party captures (files DEVICE_FORMAT.npz)"
        return [pytest.param(Path(), marks=pytest.mark.skip(reason=reason), id="unset")]
    found = sorted(folder.glob("*_*.npz"))
    return [pytest.param(path, id=path.stem) for path in found] or [pytest.param(folder / "empty", id="empty")]


@pytest.mark.parametrize("path", third_party_files())
def test_third_party(path: Path) -> None:
    device, _, fmt = path.stem.partition("_")
    with np.load(path) as archive:
        data = {name: archive[name] for name in archive.files}
    done = 0
    for result, accumulator, d in (("d32", "c", "fp32"), ("d16", "c16", "fp16")):
        if result not in data:
            continue
        spec = CDNA3_FP8 if device == "MI300X" else third_party(device, fmt, d)
        # These were captured by wgmma with a zero accumulator, whatever c says (README of the captures).
        from_zero = device in ("H100", "H200") and fmt in ("e4m3", "e5m2") and d == "fp32"
        bad = []
        for case in spread(len(data[result]), PER_FILE):
            c = 0 if from_zero else int(data[accumulator][case])
            row, column = data["a"][case].tolist(), data["b"][case].tolist()
            got, expected = dot(spec, DotOperands(row, column, c)), int(data[result][case])
            done += 1
            if got != expected:
                bad.append(mismatch(row, column, c, expected, got))
        assert not bad, f"{d}: {len(bad)}; first: {bad[0]}"
    assert done
