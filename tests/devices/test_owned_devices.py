"""Variants for the chips that people own: bits as of their bases, peaks as in datasheets, spellings of their names."""

import pytest

import hwsim
from hwsim import devices
from hwsim.devices import spelling
from hwsim.errors import UnsupportedError

BASES = {
    "a40": "a2",
    "a10": "a2",
    "rtx3090": "a2",
    "l40": "ada",
    "l4": "ada",
    "rtx4090": "ada",
    "rtx5090": "rtxpro6000",
    "gb10": "rtxpro6000",
    "h20": "h100",
    "h800": "h100",
    "h100pcie": "h100",
    "h100nvl": "h100",
    "b300": "b200",
}
NOT_TIMED = {"gb10"}

#: Dense TFLOP/s (TOP/s) of datasheets and white papers, which the files name; B300's are of its microbenchmarks.
MMA16, MMA16H = "mma.m16n8k16.f32.f16.f16.f32", "mma.m16n8k16.f16.f16.f16.f16"
BF16, TF32 = "mma.m16n8k16.f32.bf16.bf16.f32", "mma.m16n8k8.f32.tf32.tf32.f32"
FP8, FP8H = "mma.m16n8k32.f32.e4m3.e4m3.f32", "mma.m16n8k32.f16.e4m3.e4m3.f16"
INT8, INT4, FP32 = "mma.m16n8k32.s32.s8.s8.s32", "mma.m16n8k64.s32.s4.s4.s32", "fma.rn.f32"
MXF4 = "mma.m16n8k64.mxf4nvf4.f32.e2m1.e2m1.f32.ue4m3.block16"
WGMMA16, WGMMATF = "wgmma.m64n256k16.f32.f16.f16", "wgmma.m64n256k8.f32.tf32.tf32"
WGMMA8, WGMMAI8 = "wgmma.m64n256k32.f32.e4m3.e4m3", "wgmma.m64n256k32.s32.s8.s8"
FP64 = "mma.m16n8k16.f64.f64.f64.f64"
TCGEN4 = "tcgen05.mma.m128n256k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"
PEAKS = {
    "a40": {MMA16: 149.7, BF16: 149.7, TF32: 74.8, INT8: 299.3, INT4: 598.7, FP32: 37.4},
    "a10": {MMA16: 125, BF16: 125, TF32: 62.5, INT8: 250, INT4: 500, FP32: 31.2},
    "rtx3090": {MMA16: 71, MMA16H: 142, BF16: 71, TF32: 35.6, INT8: 284, INT4: 568, FP32: 35.6},
    "l40": {MMA16: 181.05, BF16: 181.05, TF32: 90.5, FP8: 362, INT8: 362, INT4: 724, FP32: 90.5},
    "l4": {MMA16: 121, BF16: 121, TF32: 60, FP8: 242.5, INT8: 242.5, FP32: 30.3},
    "rtx4090": {
        MMA16: 165.2,
        MMA16H: 330.3,
        BF16: 165.2,
        TF32: 82.6,
        FP8: 330.3,
        FP8H: 660.6,
        INT8: 660.6,
        INT4: 1321.2,
    },
    "rtx5090": {MMA16: 209.5, MMA16H: 419, BF16: 209.5, TF32: 104.8, FP8: 419, FP8H: 838, INT8: 838, MXF4: 1676},
    "h20": {WGMMA16: 148, WGMMATF: 74, WGMMA8: 296, WGMMAI8: 296, FP64: 1},
    "h800": {WGMMA16: 989.4, WGMMATF: 494.7, WGMMA8: 1978.9, WGMMAI8: 1978.9, FP64: 1},
    "h100pcie": {WGMMA16: 756.5, WGMMATF: 378, WGMMA8: 1513, WGMMAI8: 1513},
    "h100nvl": {WGMMA16: 835.5, WGMMATF: 417.5, WGMMA8: 1670.5, WGMMAI8: 1670.5},
    "b300": {TCGEN4: 9856, INT8: 143, FP64: 1.2},
}


@pytest.mark.parametrize("name", BASES)
def test_the_bits_are_the_bases(name):
    """Every instruction of the variant is one of the base's, with the same dot unit; its evidence is no better."""
    device, base = devices.load(name), devices.load(BASES[name])
    assert device.dot_units == base.dot_units and device.family == base.family
    numerics = {"timing", "memories", "scale_memory", "k_major_only"}
    for key, model in device.matrix_instructions.items():
        assert model.model_dump(exclude=numerics) == base.matrix_instructions[key].model_dump(exclude=numerics), key
    gone = set(base.matrix_instructions) - set(device.matrix_instructions)
    assert gone == ({key for key in gone if ".i8." in key} if name == "b300" else set())
    assert set(device.native) == set(base.native)
    levels = {about.evidence for path, about in device.evidence.items() if path.startswith("dot_units.")}
    assert levels == {"assumption"}


@pytest.mark.parametrize("name", BASES)
def test_times_exist_or_are_refused_by_name(name):
    run = hwsim.run(device=name, m=256, n=256, k=256)
    if name in NOT_TIMED:
        assert run.cycles is None
        with pytest.raises(UnsupportedError, match=f"device {name} has no vector unit in its file"):
            hwsim.run(device=name, m=256, n=256, k=256, functional=True)
    else:
        assert run.cycles > 0 and run.evidence["timing"] == "assumption"


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, peaks in PEAKS.items() for key in peaks])
def test_peaks_are_the_datasheets(name, key):
    """Cores times the unit's rate times the clock, within 1 % of the vendor's rate; fp32's is of all lanes, of
    which the loop of a GEMM keeps fewer busy.
    """
    device = devices.load(name)
    clock = max(device.sustained_clock_mhz.values()) if key == FP32 and device.sustained_clock_mhz else device.clock_mhz
    rate = devices.instruction(device, key).timing.macs_per_cycle
    if key == FP32:
        assert rate <= device.vector.repeat_bytes // 4
        rate = device.vector.repeat_bytes // 4
    assert 2 * device.cores * rate * clock / 1e6 == pytest.approx(PEAKS[name][key], rel=0.01)


@pytest.mark.parametrize("name", ["rtx3090", "rtx4090", "rtx5090"])
def test_geforce_cards_add_in_fp32_at_half_rate(name):
    rate = {key: devices.instruction(devices.load(name), key).timing.macs_per_cycle for key in (MMA16, MMA16H)}
    assert 2 * rate[MMA16] == rate[MMA16H]


@pytest.mark.parametrize("name", BASES)
def test_no_clock_under_load_is_taken_from_another_board(name):
    """H800: the H100's board and limit. The others: none but what their own source says of fp32 and fp64."""
    device = devices.load(name)
    if name != "h800":
        assert device.power_limit is None and set(device.sustained_clock_mhz) <= {"fp32", "fp64"}


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("RTX 4090", "rtx4090"),
        ("rtx-4090", "rtx4090"),
        ("geforce rtx 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("H100 NVL", "h100nvl"),
        ("NVIDIA H100 PCIe", "h100pcie"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H20", "h20"),
        ("L40", "l40"),
        ("NVIDIA A100-PCIE-40GB", "a100pcie"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("DGX Spark", "gb10"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("Quadro RTX 6000", "rtx6000"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Ascend 910B3", "ascend910b3"),
    ],
)
def test_spellings_lead_to_the_file(spelt, name):
    assert devices.load(spelt).name == name
    assert hwsim.device(spelt) == hwsim.device(name)


@pytest.mark.parametrize(
    ("name", "siblings"),
    [
        ("RTX 3080", "'rtx3090' or 'a40'"),
        ("rtx4060", "'rtx4090' or 'l40s'"),
        ("RTX 6000 Ada", "'rtx4090' or 'l40s'"),
        ("rtx5070ti", "'rtx5090' or 'rtxpro6000'"),
        ("a10g", "'rtx3090' or 'a40'"),
        ("a30", "'a100'"),
        ("l20", "'rtx4090' or 'l40s'"),
        ("gh200", "'h100' or 'h200'"),
        ("NVIDIA A100 80GB PCIe", "'a100'"),
        ("gb300", "'b300'"),
        ("ascend910b4", "'ascend910b3' or 'ascend910b1'"),
        ("rtx2070", "'rtx2080ti' or 't4'"),
        ("ascend91a", "'ascend910a'"),
    ],
)
def test_names_without_a_file_lead_to_the_generation(name, siblings):
    with pytest.raises(UnsupportedError) as caught:
        devices.load(name)
    assert str(caught.value).endswith(f"; did you mean {siblings}?")


@pytest.mark.parametrize("name", ["mi355x", "ascend310", "tpu"])
def test_nothing_is_suggested_for_units_that_nobody_knows(name):
    with pytest.raises(UnsupportedError) as caught:
        devices.load(name)
    assert "did you mean" not in str(caught.value)


def test_the_tables_of_names_name_devices():
    known = {name for name, _ in devices.names()}
    assert set(spelling.chip_names().spellings) <= known
    assert {device for generation in spelling.chip_names().generations for device in generation.devices} <= known
    assert all(spelling.device_of(name, sorted(known)) == name for name in known)


def test_a_users_file_comes_before_a_spelling(write, small):
    write("configs/devices/L40.yaml", small)
    assert devices.load("L40").cores == 2 and devices.load("l40").cores == 142
