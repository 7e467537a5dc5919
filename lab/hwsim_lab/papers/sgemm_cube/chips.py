"""SGEMM-cube's claims on chips (Table 1, Sections 2, 3.3.1 and 4), read from the device files.

Peaks are cores x operations per cycle x clock; buffers and links are one AI core's. Rates of ordinary cores, and of a
chip without a device file, are those that vendors publish.
"""

from __future__ import annotations

from hwsim.dataflows.davinci.coupled_tiling import Limits
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.query import instruction
from hwsim.formats import format_of
from hwsim_lab.papers import published_units
from hwsim_lab.papers.experiment import Experiment, Found, Scale

OLD, NEW = "ascend910a", "ascend910b3"
GRID = (32, 1)  # of the 910A's cores in Algorithm 1: block rows of A alone
HALF = format_of("fp16").bits // 8


def peak_tflops(device: Device, format: str) -> float:
    """Peak of the matrix unit with operands of `format`."""
    model = instruction(device, device.native[format])
    return 2 * float(model.macs_per_cycle) * device.cores * device.clock_mhz * 1e-6


def limits(device: Device | None = None) -> Limits:
    """What an AI core's buffers hold, in FP16 elements."""
    return Limits.of(device or load(OLD), HALF)


def measure_910a(scale: Scale) -> Found:
    """Rates, formats and sizes of the 910A and the 910B3."""
    old, new = load(OLD), load(NEW)
    formats = {model.a for model in old.matrix_instructions.values()}
    cube = instruction(old, old.native["fp16"])
    assert old.hbm is not None and new.hbm is not None
    to_l0 = sum(old.links[name].bytes_per_cycle for name in ("L1_L0A", "L1_L0B")) * old.clock_mhz * 1e6
    core = limits(old)
    smaller = min(old.memories[name].capacity_bytes for name in ("L0C", "UB"))
    sizes = [chip.memories["L1"].capacity_bytes for chip in (new, old)]
    peak = peak_tflops(old, "fp16")
    return Found(
        {
            "table1-910a": {"fp16": peak},
            "table1-910a-no-fp32": {
                "fp16_modes": int("fp16" in formats),
                "fp32_fp64_modes": len(formats & {"fp32", "fp64", "tf32"}),
            },
            "fig10-equivalent-peak": {"peak": peak / 3},
            "sec3-3-1-l1-bandwidth": {"ratio": to_l0 / (old.hbm.bytes_per_second / old.cores)},
            "eq10-alignment": {"side": [cube.m, cube.k, cube.n]},
            "eq10-l0": {"l0a": core.l0a, "l0b": core.l0b},
            "eq10-l0c-ub": {"bytes": smaller},
            "sec4-910a": {
                "cores": old.cores,
                "clock": old.clock_mhz / 1e3,
                "bandwidth": old.hbm.bytes_per_second / 1e12,
            },
            "sec4-910b3": {
                "cores": new.cores,
                "clock": new.clock_mhz / 1e3,
                "bandwidth": new.hbm.bytes_per_second / 1e12,
                "l1_ratio": sizes[0] / sizes[1],
                "memory_ratio": new.hbm.capacity_bytes / old.hbm.capacity_bytes,
            },
            "sec4-910b3-fp32-peak": {"peak": peak_tflops(new, "fp32")},
        },
        {
            "eq10-l0c-ub": "The device file gives the unified buffer without what the program keeps for itself.",
            "sec4-910b3": "The device file has what boards reach of the nominal 1.6 TB/s (82 %); all else agrees.",
            "sec3-3-1-l1-bandwidth": "Link rates are the device file's assumptions from sibling chips; the main memory "
            "rate is the paper's own.",
        },
    )


def lanes_tflops(device: str, format: str) -> float:
    """Peak of the ordinary cores: their FMAs per cycle and core as published, cores and clock of the device file."""
    chip = load(device)
    return 2e-6 * published_units.read().lanes[device].fmas_per_cycle[format] * chip.cores * chip.clock_mhz


def measure_others(scale: Scale) -> Found:
    """Peaks of the other chips of Table 1, and Section 2's ratio."""
    published = published_units.read()
    sunway = published.processors["sw26010pro"]
    rows = {
        name: [peak_tflops(load(name), "fp16"), lanes_tflops(name, "fp32"), lanes_tflops(name, "fp64")]
        for name in published.lanes
    }
    fp8 = peak_tflops(load("h100"), "e4m3")
    clock = load("h100").clock_mhz
    lanes = "FP32 and FP64 are of the ordinary cores: cores and clock of the device file, rates by "
    own = {name: f"{lanes}{one.source}." for name, one in published.lanes.items()}
    own["h100"] += f" The file's clock is {clock:g} MHz, at which NVIDIA's dense FP16 peak comes out."
    return Found(
        {
            **{f"table1-{name}": {"peaks": row} for name, row in rows.items()},
            "table1-sw26010pro": {"peaks": [sunway.peak_tflops(16), sunway.peak_tflops(64)]},
            "sec2-h100-fp8-fp64": {"ratio": fp8 / rows["h100"][2]},
        },
        {
            **{f"table1-{name}": own[name] for name in rows},
            "table1-sw26010pro": f"No device file; by {sunway.source}. Four FP16 numbers in the place of an FP64 one "
            "are assumed.",
            "sec2-h100-fp8-fp64": f"{fp8:.0f} TFLOP/s of dense FP8 over {rows['h100'][2]:.1f} of the ordinary cores' "
            f"FP64; over the Tensor Cores' FP64 it would be {fp8 / peak_tflops(load('h100'), 'fp64'):.0f}.",
        },
    )


EXPERIMENTS = (
    Experiment(
        "chips",
        (
            *("table1-910a", "table1-910a-no-fp32", "fig10-equivalent-peak", "sec3-3-1-l1-bandwidth"),
            *("eq10-alignment", "eq10-l0", "eq10-l0c-ub", "sec4-910a", "sec4-910b3", "sec4-910b3-fp32-peak"),
        ),
        measure_910a,
        {"quick": 1, "full": 1},
    ),
    Experiment(
        "other-chips",
        ("table1-a100", "table1-h100", "table1-mi300x", "table1-sw26010pro", "sec2-h100-fp8-fp64"),
        measure_others,
        {"quick": 1, "full": 1},
    ),
)
