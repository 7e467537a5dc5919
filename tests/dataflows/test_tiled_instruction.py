"""Which instruction a GEMM is made of: by name, by what the library has for slices of K; the bits stay."""

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.dataflows.instructions import Instructions
from hwsim.devices import instruction, load
from hwsim.errors import InputError
from hwsim.resolve import mapping_search, resolver

MMA, WGMMA = "mma.m16n8k8.f32.tf32.tf32.f32", "wgmma.m64nNk8.f32.tf32.tf32"
LONG = {"m": 256, "n": 256, "k": 8192, "device": "h200", "format": "tf32", "exact": False}


def operands(format, shape, seed):
    """From bit fields, zeros, subnormals, infinities and NaN among them; fp64 with more digits than fp32."""
    found = bits(shape, seed, -9, 9)
    if format == "int8":
        return found.view(np.uint32).astype(np.int8)
    found[:2, ::3] = bits(found[:2, ::3].shape, seed, -9, 9, specials=True)  # most results stay finite
    return found + bits(shape, seed + 1, -40, -30).astype(np.float64) if format == "fp64" else found


@pytest.fixture
def first_choice(monkeypatch):
    """Runs take what the dataflow likes best by estimate: no other mapping is fast enough for the search."""
    monkeypatch.setattr(mapping_search, "LEAST_GAIN", 0)
    monkeypatch.setattr(mapping_search, "_CACHE", type(mapping_search._CACHE)(8))
    monkeypatch.setattr(resolver, "_CACHE", type(resolver._CACHE)(8))


def unit(**given) -> str:
    return hwsim.run(**LONG | given).options["unit"]


@pytest.mark.parametrize(
    ("device", "format", "name", "count"),
    [
        ("h100", "fp16", "mma.m16n8k16.f32.f16.f16.f32", 1),
        ("h100", "fp16", "mma.m16n8k16.f32.f16.f16.f32", 3),
        ("h200", "tf32", MMA, 1),
        ("h200", "tf32", MMA, 3),
        ("h200", "tf32", WGMMA, 3),
        ("h200", "int8", "mma.m16n8k32.s32.A.B.s32", 1),
        ("b200", "bf16", "mma.m16n8k16.f32.bf16.bf16.f32", 1),
        ("b200", "bf16", "mma.m16n8k16.f32.bf16.bf16.f32", 3),
        ("mi210", "fp64", "v_mfma_f64_4x4x4f64", 1),
    ],
)
def test_another_instruction_gives_the_same_bits_by_its_program(device, format, name, count):
    for k in (1, 3, 67, 323) if count == 1 else (323,):
        a, b = operands(format, (67, k), k), operands(format, (k, 33), k + 1)
        given = {"device": device, "format": format, "split_k": count}
        own = hwsim.run(a, b, **given, functional=False)
        other = hwsim.run(a, b, **given, instruction=name, functional=True)
        used = other.options["unit"]
        assert Instructions(load(device)).like(own.options["unit"], used) == used
        assert used.split(".")[0] == name.split(".")[0]
        assert (other.codes == own.codes).all()


def test_warps_take_longer_than_warp_groups():
    """mma.sync reaches about two thirds of wgmma's rate on Hopper, at a higher clock."""
    given = {"m": 4096, "n": 4096, "k": 4096, "device": "h200", "format": "fp16", "exact": False}
    slow, fast = (hwsim.run(**given, instruction=name) for name in ("mma.m16n8k16.f32.f16.f16.f32", None))
    assert 0.6 < fast.cycles / slow.cycles < 0.75
    assert fast.cycles / slow.cycles < fast.seconds / slow.seconds < 0.85


def test_slices_are_made_of_what_the_library_has_for_them(first_choice):
    assert unit().startswith("wgmma.")
    assert unit(split_k=4) == MMA
    assert unit(split_k=4, instruction=WGMMA).startswith("wgmma.")
    assert unit(split_k=4, format="bf16").startswith("wgmma.")
    assert unit(split_k=4, format=None, scheme="tf32x1") == MMA
    assert unit(split_k=4, format=None, scheme="tf32x3").startswith("wgmma.")  # no GEMM of the library's
    chip = load("h200")
    assert chip.library is not None and chip.library.observations == "h200"
    without = chip.model_copy(update={"library": chip.library.model_copy(update={"observations": None})})
    assert unit(split_k=4, device=without).startswith("wgmma.")


@pytest.mark.parametrize(
    ("format", "sizes", "tile", "stages"),
    [
        ("tf32", (128, 128, 1024), (64, 64, 32), 12),  # ..._64x64_32x6, two of them a core
        ("tf32", (2048, 2048, 8192), (128, 128, 32), 5),  # ..._128x128_32x5
        ("fp64", (128, 128, 1024), (32, 32, 16), 4),
    ],
)
def test_tiles_of_mma_sync_are_those_of_the_format(first_choice, format, sizes, tile, stages):
    m, n, k = sizes
    found = hwsim.run(m=m, n=n, k=k, device="h200", format=format, split_k=2, exact=False).options
    assert (tuple(found["tile"].values()), found["stages"]) == (tile, stages)


def test_cutting_by_estimate_weighs_the_library_instruction():
    """1536 x 1024 x 4096: slices of wgmma would pay, those of mma.sync do not."""
    sizes = {"m": 1536, "n": 1024, "k": 4096}
    count = hwsim.run(**LONG | sizes, split_k="auto").options["split_k"]
    faster = hwsim.run(**LONG | sizes, split_k="auto", instruction=WGMMA).options["split_k"]
    assert count == 1 < faster


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            "mma.m16n8k4.f32.tf32.tf32.f32",
            f"allowed, with the bits of wgmma.m64n256k8.f32.tf32.tf32: {MMA}, {WGMMA}; did",
        ),
        ("mma.m16n8k16.f32.f16.f16.f32", "instruction = 'mma.m16n8k16.f32.f16.f16.f32'; allowed"),
        ("", "instruction = ''; allowed"),
        (8, "instruction = 8; allowed"),
    ],
)
def test_instructions_of_other_bits_are_refused(wanted, words):
    with pytest.raises(InputError, match=words):
        unit(instruction=wanted)


def test_families_without_the_option_say_so():
    with pytest.raises(InputError, match="instruction = mmad: programs of family davinci have"):
        hwsim.run(m=64, n=64, k=64, exact=False, instruction="mmad")


def test_kinds_are_told_apart_by_name_and_share_bits():
    chip = load("b200")
    kinds = Instructions(chip).equivalent_families(chip.native["fp16"])
    assert [kind.split(".")[0] for kind in kinds] == ["mma", "tcgen05"]
    assert len({(instruction(chip, kind).unit, instruction(chip, kind).k) for kind in kinds}) == 1
    assert Instructions(chip).equivalent_families(chip.native["fp64"]) == [chip.native["fp64"]]
    whole = Instructions(chip).equivalent_families(chip.native["int8"])  # of mma.sync there are no times
    assert [kind.split(".")[0] for kind in whole] == ["tcgen05"]


def test_a_pattern_is_spelt_out_for_the_formats():
    units = Instructions(load("h200"))
    name, pattern = "wgmma.m64n256k32.f32.e5m2.e5m2", "wgmma.m64nNk32.f32.A.B"
    assert units.like(name, pattern) == "wgmma.m64n8k32.f32.e5m2.e5m2"
    assert units.like(name, "wgmma.m64n32k32.f32.e5m2.e5m2") == "wgmma.m64n32k32.f32.e5m2.e5m2"
    with pytest.raises(InputError, match=r"instruction = 'wgmma\.m64n32k32\.f32\.e4m3\.e5m2'; allowed"):
        units.like(name, "wgmma.m64n32k32.f32.e4m3.e5m2")
