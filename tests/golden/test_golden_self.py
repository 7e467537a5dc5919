"""The `self` sets: complete, unchanged, computed by kernels and reference alike; their renewal shows what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwsim.devices import choices, dot_spec, load
from hwsim.formats import format_of
from hwsim.golden import self_made, simulated
from hwsim.golden.format import keys, read_meta, read_sets
from hwsim.golden.verify import check, compute, verify
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

HERE = Path(__file__).parent
SELF = HERE / "self"
#: Variants whose instructions and units are their base's, of which one set of results is enough.
AS_THEIR_BASE = {
    **dict.fromkeys(("a40", "a10", "rtx3090"), "a2"),
    **dict.fromkeys(("l40", "l4", "rtx4090"), "l40s"),
    **dict.fromkeys(("rtx5090", "gb10"), "rtxpro6000"),
    **dict.fromkeys(("h20", "h800", "h100pcie", "h100nvl"), "h100"),
    "b300": "b200",
}
FILES = (HERE.parents[1] / "configs" / "devices").glob("*.yaml")
DEVICES = sorted({path.stem for path in FILES} - AS_THEIR_BASE.keys())


def test_every_instruction_of_every_device_gives_what_it_gave() -> None:
    """By the kernels. A difference is a changed rule or a broken kernel: `hwsim golden self` shows the first."""
    report = check(verify([SELF], simulated.mma))
    assert {entry.origin for entry in report.sets} == {"self"}
    assert {entry.device for entry in report.sets} == set(DEVICES)
    assert report.results > 100_000


@pytest.mark.parametrize("name", DEVICES)
def test_no_instruction_is_missing(name: str) -> None:
    device = load(name)
    assert (SELF / f"{name}.npz").exists(), "a new device: run hwsim golden self, or see AS_THEIR_BASE"
    kept = {key.partition("/")[0] for key in keys(SELF / f"{name}.npz")}
    assert kept == set(self_made.names(device)), "instructions came or went: run hwsim golden self --replace"
    meta = read_meta(SELF / f"{name}.npz")
    assert meta is not None and (meta.origin, meta.device) == ("self", name)
    for key in device.instructions():
        spelt = [one for one in kept if one == key or choices_match(device, key, one)]
        assert spelt, key


@pytest.mark.parametrize("name", AS_THEIR_BASE)
def test_a_variant_without_a_set_has_its_bases_bits(name: str) -> None:
    device, base = load(name), load(AS_THEIR_BASE[name])
    assert not (SELF / f"{name}.npz").exists() and AS_THEIR_BASE[name] in DEVICES
    for key in self_made.names(device):
        assert dot_spec(device, key) == dot_spec(base, key), key


def choices_match(device: Any, key: str, name: str) -> bool:
    from hwsim.devices.patterns import match

    return match(key, choices(device, key), name) is not None


@pytest.mark.parametrize("name", ["v100", "mi210", "mi300x", "ascend910a", "ascend910b3"])
def test_the_reference_gives_the_same(name: str) -> None:
    """One tile of each set; scaled and rounded operands have tests of their own."""
    device, compared = load(name), 0
    for golden in read_sets(SELF / f"{name}.npz"):
        spec = dot_spec(device, golden.instruction)
        if golden.scales or "hf32" in golden.instruction or golden.d is None:
            continue
        case = len(golden.instruction) % len(golden.a)
        got = reference.gemm(spec, DotOperands(golden.a[case], golden.b[case].T, golden.c[case]))
        np.testing.assert_array_equal(got, golden.d[case], golden.key)
        compared += got.size
    assert compared >= 32


def test_the_sets_are_small() -> None:
    assert sum(path.stat().st_size for path in SELF.glob("*")) < 4_000_000


def test_special_values_are_among_the_operands() -> None:
    for fmt, part in (("fp16", ".f32.f16.f16"), ("bf16", ".f32.bf16.bf16"), ("e4m3", ".f32.e4m3.e4m3")):
        sets = [golden for name in ("h200", "b200") for golden in read_sets(SELF / f"{name}.npz", part)]
        special = set(self_made.special_codes(format_of(fmt)).tolist())
        assert special <= {code for golden in sets for code in golden.a[-2:].ravel().tolist()}, fmt
        assert {0x7F800000, 0xFF800000} <= {code for golden in sets for code in golden.c.ravel().tolist()}
    (golden,) = (g for g in read_sets(SELF / "b200.npz", "tcgen05.mma.m64n8k16.f16.f32.f16.f16/scale_d15"))
    assert int(golden.scales["scale_d"]) == 15


def test_operands_do_not_depend_on_the_device() -> None:
    one, other = (
        {g.key: g for g in read_sets(SELF / f"{name}.npz", "mma.m16n8k8.f32.tf32")} for name in ("a100", "h200")
    )
    assert one.keys() == other.keys() and one
    for key, golden in one.items():
        np.testing.assert_array_equal(golden.a, other[key].a)
        assert not np.array_equal(golden.d, other[key].d)  # F = 24, terms = 4 against F = 25, terms = 8


def test_renewal_shows_the_change_and_keeps_the_file(tmp_path: Path) -> None:
    device = load("v100")
    (change,) = self_made.renew([device], tmp_path, simulated.mma)
    assert change.same is False and not change.was_there and len(change.added) == change.sets == 13
    before = (tmp_path / "v100.npz").read_bytes()
    (change,) = self_made.renew([device], tmp_path, simulated.mma)
    assert change.same and change.was_there and (tmp_path / "v100.npz").read_bytes() == before

    def changed(*args: Any, **scales: Any) -> Any:
        d = simulated.mma(*args, **scales)
        if args[1].startswith("mma.m8n8k4.f32.f16.f16.f32"):
            d[0, 0, 0] ^= d.dtype.type(1)
        return d

    (change,) = self_made.renew([device], tmp_path, changed)
    assert (change.differing, change.added, change.removed) == (1, (), ())
    assert "case 0 row 0 column 0: was 0x" in change.first and "hwsim explain --from" in change.first
    assert (tmp_path / "v100.npz").read_bytes() == before
    (change,) = self_made.renew([device], tmp_path, changed, replace_files=True)
    assert change.differing == 1 and (tmp_path / "v100.npz").read_bytes() != before
    (change,) = self_made.renew([device], tmp_path, changed)
    assert change.same


def test_sets_that_come_and_go_are_counted(tmp_path: Path) -> None:
    device = load("v100")
    sets = self_made.computed(device, simulated.mma)
    self_made.write(device, sets[1:], tmp_path / "v100.npz")
    change = self_made.compare(device, sets[:-1], tmp_path / "v100.npz")
    assert (change.added, change.removed, change.differing) == ((sets[0].key,), (sets[-1].key,), 0)


def test_tiles_smaller_than_the_instruction() -> None:
    """In the corner of a whole tile, or one dot product at a time: the same codes."""
    (golden,) = (g for g in read_sets(SELF / "h200.npz", "wgmma.m64n8k16.f32.f16.f16/"))
    for i, j in ((0, 0), (3, 1)):
        single = simulated.mma(
            "h200",
            golden.instruction,
            golden.a[:, i : i + 1],
            np.swapaxes(golden.b, 1, 2)[:, :, j : j + 1],
            golden.c[:, i : i + 1, j : j + 1],
        )
        assert golden.d is not None
        np.testing.assert_array_equal(single[:, 0, 0], golden.d[:, i, j])
    np.testing.assert_array_equal(compute(simulated.mma, "h200", golden), golden.d)
    with pytest.raises(ValueError, match="tiles of at most 64 x 8 x 16"):
        simulated.mma(
            "h200",
            golden.instruction,
            np.zeros((1, 65, 16), np.uint16),
            np.zeros((1, 16, 8), np.uint16),
            np.zeros((1, 65, 8), np.uint32),
        )
