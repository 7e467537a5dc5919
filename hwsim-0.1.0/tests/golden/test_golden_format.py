"""The golden format: what is written comes back, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwsim.errors import InputError
from hwsim.golden.format import GoldenSet, Meta, keys, read_meta, read_sets, write_sets
from hwsim.golden.instructions import parse

NAME = "mma.m16n8k8.f32.f16.f16.f32"


def a_set(name: str = "normal", cases: int = 3, with_d: bool = True, **scales: np.ndarray) -> GoldenSet:
    rng = np.random.default_rng(len(name))
    entry = parse(NAME)
    a, b, c, d = (rng.integers(0, 1 << 16, entry.shape(x, cases)).astype(entry.dtype(x)) for x in "abcd")
    return GoldenSet(NAME, name, a, b, c, d if with_d else None, scales)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.npz"
    meta = Meta("silicon", "h200", "NVIDIA H200", "580", "2026-01-02", "hwsim golden record", note="n")
    first, second = a_set("normal"), a_set("huge", scale_d=np.array(3, np.uint8))
    assert write_sets(path, [first, second], meta) == first.d.size * 2
    assert read_meta(path) == meta
    assert keys(path) == [f"{NAME}/huge", f"{NAME}/normal"]
    for wanted, got in zip((second, first), read_sets(path), strict=True):
        assert (got.instruction, got.name) == (wanted.instruction, wanted.name)
        for x in "abcd":
            np.testing.assert_array_equal(getattr(got, x), getattr(wanted, x), strict=True)
        assert {x: int(array) for x, array in got.scales.items()} == {x: int(v) for x, v in wanted.scales.items()}
    assert [golden.name for golden in read_sets(path, "huge")] == ["huge"]


def test_same_sets_give_same_bytes(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_sets(tmp_path / f"{name}.npz", [a_set()], Meta("self", "h200"))
    assert (tmp_path / "x.npz").read_bytes() == (tmp_path / "y.npz").read_bytes()


def test_meta_beside_an_older_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    golden = a_set()
    np.savez(path, **{f"{golden.key}/{x}": getattr(golden, x) for x in "abcd"})
    assert read_meta(path) is None
    (tmp_path / "x.meta.json").write_text('{"origin": "third party", "device": "a100"}')
    assert read_meta(path) == Meta("third party", "a100")


@pytest.mark.parametrize("text", ["[]", "{}", '{"origin": "guess"}', '{"origin": "self", "x": 1}', "{"])
def test_wrong_meta_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros(1))
    (tmp_path / "x.meta.json").write_text(text)
    with pytest.raises(InputError):
        read_meta(path)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    golden = a_set()
    with pytest.raises(InputError, match="needed; got"):
        GoldenSet(NAME, "x", golden.a, golden.b[:2], golden.c, golden.d)
    with pytest.raises(InputError, match="three dimensions"):
        GoldenSet(NAME, "x", golden.a[0], golden.b, golden.c, golden.d)
    with pytest.raises(InputError, match="unsigned codes"):
        GoldenSet(NAME, "x", golden.a.view(np.float16), golden.b, golden.c, golden.d)
    with pytest.raises(InputError, match="has no results"):
        write_sets(tmp_path / "x.npz", [a_set(with_d=False)], Meta("silicon"))
    with pytest.raises(InputError, match="two sets"):
        write_sets(tmp_path / "x.npz", [golden, golden], Meta("silicon"))
    with pytest.raises(InputError, match="nothing to write"):
        write_sets(tmp_path / "x.npz", [], Meta("silicon"))
    (tmp_path / "y.npz").write_text("no archive")
    with pytest.raises(InputError, match=r"y\.npz: not an \.npz"):
        keys(tmp_path / "y.npz")
    with pytest.raises(InputError, match="no such file"):
        keys(tmp_path / "z.npz")


def test_instruction_names() -> None:
    entry = parse("wgmma.m64n24k32.satfinite.s32.s8.u8")
    assert (entry.m, entry.n, entry.k, entry.a, entry.b, entry.c, entry.d) == (
        64,
        24,
        32,
        "int8",
        "uint8",
        "int32",
        "int32",
    )
    entry = parse("tcgen05.mma.m128n16k32.f8f6f4.f16.e2m1.e4m3")
    assert (entry.a, entry.b, entry.c, entry.d) == ("e2m1", "e4m3", "fp16", "fp16")
    assert parse("mma.m8n8k4.f32.f16.f16.f16").c == "fp16"
    for name in ("mma.m16n8k8.f32.f16.f16", "wgmma.m64n8k16.f32.f17.f16", "v_mfma_f32_32x32x8f16"):
        with pytest.raises(InputError, match="is not an instruction"):
            parse(name)
