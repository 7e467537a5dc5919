"""The kernels that LE-GEMM's evaluation compares, as runs of hwsim, and their times; each run is done once a process.

It knows the settings that the claims name or assume (tiles, buffers, devices), and no claim. Times are of LE-GEMM and
of SGEMM; those of plain rocWMMA and WMMA, Markidis and Ootomo are `baselines`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import hwsim
from hwsim.devices import instruction, load
from hwsim.devices.device import Device
from hwsim.result import Result

DEVICES = ("mi210", "a800")
LANE_BYTES = 4  # of an fp32 lane
#: Tiles of Table 2, and those that the kernel can have: the A800's registers do not hold two sums of 128 x 256.
TABLE_2 = {"mi210": (128, 128, 32), "a800": (128, 256, 32)}
HELD = {"mi210": (128, 128, 32), "a800": (128, 128, 32)}
#: Bits: method -> arguments of hwsim.matmul.
SCHEMES: dict[str, dict[str, Any]] = {
    "le": {"scheme": "le-gemm"},
    "plain": {"format": "fp16"},
    "mark": {"scheme": "markidis", "rounding": "RNE"},
    "ooto": {"scheme": "ootomo-fp16", "leading": "unit"},
    "blas": {"format": "fp32"},
}
NAMES = {"le": "LE-GEMM", "plain": "rocWMMA/WMMA", "mark": "Markidis", "ooto": "Ootomo", "blas": "rocBLAS/cuBLAS"}
A800_TILE = (
    "A800: LE-GEMM with tile (128, 128, 32), since two FP32 sums of Table 2's 128 x 256 and the operands need 270,336 "
    "bytes of registers and the SM has 262,144."
)


def tile(sizes: tuple[int, int, int]) -> dict[str, int]:
    """A tile as hwsim.run takes it."""
    return dict(zip("mnk", sizes, strict=True))


@cache
def lanes_device(name: str) -> Device:
    """The device whose SGEMM runs on the ordinary cores: the MI210 with an FP32 FMA per lane beside its MFMA.

    hwsim's MI210 has FP32 products on the matrix unit alone; the rate is that of the lanes of its own description.
    """
    chip = load(name)
    if chip.name != "mi210":
        return chip
    assert chip.vector is not None
    fma = {
        "source": "NONE; an FMA per lane and cycle", "evidence": "assumption", "engine": chip.vector.engine,
        "unit": "f32", "m": 1, "n": 1, "k": 1, "a": "fp32", "b": "fp32", "c": "fp32", "d": "fp32",
        "memories": ["RF", "RF", "RF"],
        "timing": {"macs_per_cycle": chip.vector.repeat_bytes // LANE_BYTES, "drain_cycles": 4},
    }  # fmt: skip
    return hwsim.device(variant(name, "lanes", {"instructions": {"v_fma_f32": fma}, "native": {"fp32": "v_fma_f32"}}))


@cache
def roomy_device(name: str) -> Device:
    """The device with twice the registers, which hold Table 2's tile on the A800 too."""
    size = 2 * load(name).memories["RF"].capacity_bytes
    given = {"value": size, "source": "NONE; twice the file's", "evidence": "assumption"}
    return hwsim.device(variant(name, "roomy", {"memories": {"RF": {"capacity_bytes": given}}}))


def variant(name: str, suffix: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a device as another with changes."""
    inherited = {"source": "NONE; what-if", "evidence": "assumption"}
    head = {"schema_version": 1, "name": f"{name}-{suffix}", "title": f"{name}, {suffix}", "extends": name}
    return {**head, "inherited": inherited, **changes}


@cache
def timed(method: str, device: str, m: int, n: int, k: int, **options: Any) -> Result:
    """The timed run of a method on a device: A is m x k, B k x n. options: instead of the method's own; None:
    hwsim's choice; own: SGEMM by hwsim's own device."""
    given: dict[str, Any] = dict(SCHEMES[method])
    chip: Device = load(device)
    if method == "blas" and not options.get("own"):
        chip = lanes_device(device)
    elif method == "le":
        given |= {"input_format": "fp32", "tile": HELD[device], "stages": 2}
    given |= {name: value for name, value in options.items() if name != "own"}
    if given.pop("roomy", False):
        chip = roomy_device(device)
    if isinstance(given.get("tile"), tuple):
        given["tile"] = tile(given["tile"])
    given = {name: value for name, value in given.items() if value is not None}
    return hwsim.run(device=chip, m=m, n=n, k=k, exact=False, **given)


def seconds(method: str, device: str, m: int, n: int, k: int, **options: Any) -> float:
    """Seconds of a method, its split included."""
    found = timed(method, device, m, n, k, **options).seconds
    assert found is not None
    return found


def operations(m: int, n: int, k: int) -> int:
    """Operations of one product as Eq. 18 counts them, 2 (M N K + M N)."""
    return 2 * (m * n * k + m * n)


def tflops(method: str, device: str, m: int, n: int, k: int, **options: Any) -> float:
    """TFLOPS by Eq. 18."""
    return operations(m, n, k) / seconds(method, device, m, n, k, **options) / 1e12


def faster(device: str, m: int, n: int, k: int, over: str) -> float:
    """The speed of LE-GEMM over that of a baseline."""
    return tflops("le", device, m, n, k) / tflops(over, device, m, n, k)


def unit_of(result: Result) -> Any:
    """The matrix instruction of a run's products, as the device file has it."""
    assert result.gemm is not None
    name = result.gemm.unit
    chip = lanes_device("mi210") if result.device == "mi210-lanes" else load(result.device.removesuffix("-roomy"))
    return instruction(chip, name)
