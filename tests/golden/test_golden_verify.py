"""Verification: finds a planted bit, refuses to check nothing, and passes on what an H200 gave."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import hopper
import numpy as np
import pytest

from hwsim._kernels import gemm
from hwsim.devices import dot_spec, load
from hwsim.errors import InputError, MismatchError
from hwsim.golden.format import Meta, read_sets, write_sets
from hwsim.golden.gemms import GemmSet, verify_gemms
from hwsim.golden.verify import check, golden_files, verify
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

HERE = Path(__file__).parent
H200 = [HERE / "h200", HERE / "h200_edge"]
SPEC = cache(hopper.spec)


def by_table(device: str, instruction: str, a: Any, b: Any, c: Any) -> Any:
    return gemm(SPEC(instruction), a, b, c)


@cache
def device_of(name: str) -> Any:
    return load(name)


def by_device(device: str, instruction: str, a: Any, b: Any, c: Any) -> Any:
    return gemm(dot_spec(device_of(device), instruction), a, b, c)


def by_reference(device: str, instruction: str, a: Any, b: Any, c: Any) -> Any:
    return np.stack([reference.gemm(SPEC(instruction), DotOperands(*tile)) for tile in zip(a, b, c, strict=True)])


@pytest.mark.parametrize("mma", [by_table, by_device])
def test_h200_sets_all_of_them(mma: Any) -> None:
    report = check(verify(H200, mma))
    assert report.results == 1_186_816
    assert {entry.device for entry in report.sets} == {"h200"}
    assert {entry.origin for entry in report.sets} == {"silicon"}
    assert "0 of 1186816 results differ, 203 sets" in report.to_text()


def test_h200_sets_by_the_reference() -> None:
    report = check(verify(H200, by_reference, results=1, only="mma.m16n8k8.f32.f16"))
    assert report.results > 500


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Two captured sets, with one bit planted in the second."""
    sets = list(read_sets(H200[0] / "instructions.npz", "wgmma.m64n8k16.f16.f16.f16/n"))
    assert [golden.name for golden in sets] == ["narrow", "normal"]
    sets[1].d[5, 17, 3] ^= 1 << 2
    path = tmp_path / "planted.npz"
    write_sets(path, sets, Meta("silicon", "h200"))
    return path


def test_a_planted_bit_is_found_and_described(copied: Path) -> None:
    report = verify([copied], by_table)
    assert (report.mismatches, report.results) == (1, 2 * 12 * 64 * 8)
    assert [entry.mismatches for entry in report.sets] == [0, 1]
    (miss,) = report.first
    assert (miss.set, miss.case, miss.row, miss.column, miss.bits, miss.ulps) == ("normal", 5, 17, 3, (2,), 4)
    golden = next(iter(read_sets(copied, "/normal")))
    assert [int(x, 16) for x in miss.a] == golden.a[5, 17].tolist()
    assert [int(x, 16) for x in miss.b] == golden.b[5, 3].tolist()
    assert int(miss.expected, 16) == int(golden.d[5, 17, 3]) == int(miss.got, 16) ^ 4
    again = gemm(SPEC(miss.instruction), golden.a[5, 17:18], golden.b[5, 3:4].T, golden.c[5, 17:18, 3:4])
    assert int(again[0, 0]) == int(miss.got, 16)
    assert miss.replay.startswith(f"hwsim explain h200 {miss.instruction} --a 0x")
    assert miss.replay.endswith(f"--c {miss.c}")
    assert miss.replay in report.to_text()
    with pytest.raises(MismatchError, match="1 of 12288 results differ"):
        check(report)


def test_zero_cases_fail(tmp_path: Path, copied: Path) -> None:
    with pytest.raises(InputError, match="zero cases"):
        verify([], by_table)
    with pytest.raises(InputError, match="zero cases"):
        verify([tmp_path / "planted.npz"], by_table, only="no such set")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="zero cases"):
        verify([tmp_path / "empty"], by_table)
    with pytest.raises(InputError, match="no such file"):
        verify([tmp_path / "missing"], by_table)


def test_operands_alone_are_no_cases(tmp_path: Path, copied: Path) -> None:
    path = tmp_path / "alone" / "x.npz"
    write_sets(path, read_sets(copied), Meta("operands"))
    with pytest.raises(InputError, match="zero cases"):
        verify([path], by_table)


def test_a_nameless_device_must_be_named(tmp_path: Path, copied: Path) -> None:
    path = tmp_path / "nameless" / "x.npz"
    path.parent.mkdir()
    with np.load(copied) as archive:
        np.savez(path, **{name: archive[name] for name in archive.files if name != "meta"})
    with pytest.raises(InputError, match="name the device"):
        verify([path], by_table)
    assert verify([path], by_table, device="h200").mismatches == 1


def test_a_wrong_shape_is_an_error(copied: Path) -> None:
    with pytest.raises(InputError, match="the computation gave"):
        verify([copied], lambda *args: by_table(*args)[:, :3])


def test_distance_in_places() -> None:
    from hwsim.golden.verify import _ulps

    assert _ulps("wgmma.m64n8k16.f32.f16.f16", 32, 0x3F800000, 0x3F7FFFFF) == 1
    assert _ulps("wgmma.m64n8k16.f32.f16.f16", 32, 0x00000001, 0x80000001) == 2
    assert _ulps("wgmma.m64n8k16.f32.f16.f16", 32, 0x7FFFFFFF, 0x3F800000) is None
    assert _ulps("mma.m16n8k32.s32.s8.s8.s32", 32, 0xFFFFFFFF, 1) == 2


def test_whole_gemms() -> None:
    """cuBLAS's blocks as chains of wgmma; promotion every 128 of k where it is asked for."""

    def matmul(device: str, block: GemmSet) -> Any:
        kind = {"fp16": "k16.f32.f16.f16", "bf16": "k16.f32.bf16.bf16", "tf32": "k8.f32.tf32.tf32"}
        spec = SPEC(f"wgmma.m64n8{kind.get(block.format, 'k32.f32.e4m3.e4m3')}")
        a, b = (tf32_nearest(x) if block.format == "tf32" else x for x in (block.a, block.bt))
        if block.accumulate != "promoted":
            return gemm(spec, a, b.T)
        total = np.zeros(block.d.shape, np.float32)
        for k in range(0, a.shape[1], 128):
            total += gemm(spec, a[:, k : k + 128], b[:, k : k + 128].T).view(np.float32)
        return total.view(np.uint32)

    def tf32_nearest(words: Any) -> Any:
        return (words + 0xFFF + (words >> 13 & 1)) & np.uint32(0xFFFFE000)

    report = check(verify_gemms(HERE / "h200" / "gemm.npz", matmul))
    assert len(report.sets) >= 10
    wrong = verify_gemms(HERE / "h200" / "gemm.npz", lambda device, block: block.d ^ np.uint32(1))
    assert wrong.mismatches == wrong.results > 0


def test_folders_leave_whole_gemms_out() -> None:
    assert [path.name for path in golden_files(H200)] == ["instructions.npz", "edge.npz"]
    whole = {path.name for path in golden_files([H200[0].parent])}
    assert {"edge.npz", "h200.npz", "fp64_nan.npz"} <= whole and not {"schemes.npz", "gemm.npz", "survey.npz"} & whole


THIRD_PARTY = os.environ.get("HWSIM_GOLDEN_DIR")


@pytest.mark.skipif(THIRD_PARTY is None, reason="HWSIM_GOLDEN_DIR is not set: no third-party captures")
def test_third_party_sets() -> None:
    report = check(verify([Path(str(THIRD_PARTY))], by_device))
    assert {entry.device for entry in report.sets if entry.origin == "third party"} >= {
        "v100",
        "a100",
        "a2",
        "ada",
        "l40s",
        "h100",
        "h200",
        "b200",
        "mi300x",
    }
