"""Which matrix instruction of a device a lowered dot runs, and in which order it takes K.

The module knows how assembly and layouts spell instructions; it knows no array and no kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwsim.devices.model import DeviceModel
from hwsim.devices.patterns import spelt
from hwsim.devices.query import dot_spec, find, instruction
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.frameworks.triton.ttgir import Function, Operation, TensorType, number, numbers
from hwsim.numerics.units import DotSpec

#: MLIR's element types as hwsim's formats.
FORMATS = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
    "f8E4M3FNUZ": "e4m3fnuz",
    "f8E5M2FNUZ": "e5m2fnuz",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
}
WGMMA = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.(m\d+n\d+k\d+)\.([\w.]+)\s*\{[^}]*\},[^;]*?, *(0|%p\d+|1|-1)[,;][^\n]*"
)
MMA = re.compile(r"\bmma\.sync\.aligned\.(m\d+n\d+k\d+)\.row\.col\.([\w.]+)")
TCGEN05 = re.compile(r"\btcgen05\.mma\.cta_group::(\d)\.kind::(\w+)")
MFMA = re.compile(r"\bv_mfma_\w+")
FMA = re.compile(r"\bfma\.rn\.f\d+\b")
SCALED_MMA = re.compile(
    r"\bmma\.sync\.aligned\.(m\d+n\d+k(\d+))\.row\.col\.kind::(\w+)\.block_scale\.scale_vec::(\d)X\.([\w.]+)\.(ue\w+)"
)
SCALED_FORMATS = re.compile(r"\blhs = (\w+) rhs = (\w+)")
SCALE_FORMATS = {"i8": "ue8m0", "f8E4M3FN": "ue4m3"}
TCGEN05_K = (8, 16, 32, 64)
#: What the operands and the types of each dot are. "d" among the types is the result's, or the memory's that gets it.
OPERANDS = {
    "tt.dot": ("a", "b", "c"),
    "ttng.warp_group_dot": ("a", "b", "c"),
    "ttng.tc_gen5_mma": ("a", "b", "c", "reads_c"),
    "ttng.tc_gen5_mma_scaled": ("a", "b", "c", "a_scale", "b_scale", "reads_c"),
    "tt.dot_scaled": ("a", "a_scale", "b", "b_scale", "c"),
}
TYPES = {
    "ttng.tc_gen5_mma_scaled": ("a", "b", "d", "a_scale", "b_scale"),
    "tt.dot_scaled": ("a", "a_scale", "b", "b_scale", "d"),
}
LANES = 64  # of an AMD wavefront, which share one MFMA
QUAD = 4  # threads of an mma.sync that share a row of A


@dataclass(frozen=True, slots=True)
class DotStep:
    """How one dot runs: an instruction, K in this order (None: ascending), and partial sums.

    partial_k: so many of K are summed from +0 before the sum is added to the accumulator; 0: all begin at it. scaled:
    the formats of a and b where the instruction takes block scales.
    """

    instruction: str
    spec: DotSpec
    order: NDArray[np.intp] | None
    partial_k: int
    scaled: tuple[str, str] | None = None


def step_of(device: DeviceModel, function: Function, operation: Operation, assembly: str) -> DotStep:
    """How the device runs this dot, one of `OPERANDS`.

    Raises UnsupportedError where the assembly has no instruction of the device, or several.
    """
    types = types_of(operation)
    a, b, d = types["a"], types["b"], types["d"]
    layout = function.layout_of(d)
    if "a_scale" in types:
        return _scaled_step(device, function, operation, types, assembly)
    k = a.shape[-1]
    order: NDArray[np.intp] | None = None
    partial_k = 0
    if operation.name == "ttng.tc_gen5_mma":
        name = _tcgen05(device, layout, assembly, (FORMATS[a.element], FORMATS[b.element]))
    elif layout.startswith("ttg.nvidia_mma") and number(layout, "versionMajor") == 3:
        name, partial_k = _wgmma(assembly, operation)
    elif layout.startswith("ttg.nvidia_mma"):
        name = _only({f"mma.{shape}.{formats}" for shape, formats in MMA.findall(assembly)}, "mma.sync")
        order = _quad_order(k, _k_width(function, operation), format_of(dot_spec(device, name).a).bits)
    elif layout.startswith("ttg.amd_mfma"):
        name = _mfma(device, assembly)
        order = _lane_order(k, _k_width(function, operation), *numbers(layout, "instrShape"))
    else:
        name = _only(set(FMA.findall(assembly)), "fma")
    instruction(device, name)  # raises where the device has none
    return DotStep(name, dot_spec(device, name), order, partial_k if 0 < partial_k < 2**30 else 0)


def _only(names: set[str], kind: str) -> str:
    if len(names) != 1:
        listed = ", ".join(sorted(names)) or "none"
        raise UnsupportedError(
            f"Triton's assembly of this tl.dot has {len(names)} kinds of {kind}: {listed}; hwsim takes one"
        )
    return names.pop()


def _wgmma(assembly: str, operation: Operation) -> tuple[str, int]:
    """The instruction, and how much of K a partial sum has: instructions from one that ignores its accumulator on."""
    calls = WGMMA.findall(assembly)
    name = _only({f"wgmma.{shape}.{formats}" for shape, formats, _ in calls}, "wgmma")
    most = number(operation.text, "maxNumImpreciseAcc")
    if not most:
        return name, 0
    begins = [place for place, (_, _, scale_d) in enumerate(calls) if scale_d == "0"]
    if not begins:
        return name, 0
    lengths = {end - begin for begin, end in zip(begins, [*begins[1:], len(calls)], strict=True)}
    if len(lengths) != 1:
        raise UnsupportedError(
            f"Triton's partial sums of this tl.dot have {sorted(lengths)} instructions; hwsim takes equal ones"
        )
    matched = re.search(r"k(\d+)$", calls[0][0])
    assert matched is not None
    return name, lengths.pop() * int(matched[1])


def types_of(operation: Operation) -> dict[str, TensorType]:
    """The types of a dot's operands and result, by name."""
    names = TYPES.get(operation.name, ("a", "b", "d"))
    if len(operation.types) < len(names):
        raise UnsupportedError(f"Triton lowered this dot to {operation.name} without scales of one operand")
    return dict(zip(names, operation.types, strict=False))


def _scaled_step(
    device: DeviceModel, function: Function, operation: Operation, types: dict[str, TensorType], assembly: str
) -> DotStep:
    """A dot whose instruction takes block scales: tcgen05.mma or mma.sync."""
    matched, scale = SCALED_FORMATS.search(operation.text), SCALE_FORMATS[types["a_scale"].element]
    assert matched is not None
    formats = (matched[1], matched[2])
    if operation.name == "tt.dot_scaled":
        names = set()
        for shape, k, kind, vectors, operands, of_scales in SCALED_MMA.findall(assembly):
            chosen = f".{of_scales}.block{int(k) // int(vectors)}" if kind == "mxf4nvf4" else ""
            names.add(f"mma.{shape}.{kind}.{operands}{chosen}")
        name = _only(names, "mma.sync with scales")
        if _quad_order(types["a"].shape[-1], _k_width(function, operation), 8) is not None:
            raise UnsupportedError(f"Triton gives {name} K in another order; with block scales hwsim takes it in order")
    else:
        block = 2 * types["a"].shape[-1] // types["a_scale"].shape[-1]
        name = _tcgen05(device, function.layout_of(types["d"]), assembly, formats, f".{scale}.block{block}")
    spec = dot_spec(device, name)
    if spec.scale_format != scale:
        raise UnsupportedError(f"Triton lowered this dot to {name}, whose scales are {spec.scale_format}, not {scale}")
    return DotStep(name, spec, None, 0, formats)


def _tcgen05(device: DeviceModel, layout: str, assembly: str, operands: tuple[str, str], scales: str = "") -> str:
    """The instruction. scales: how it ends where its kind has a choice of scales."""
    group, kind = _only({f"{group} {kind}" for group, kind in TCGEN05.findall(assembly)}, "tcgen05.mma").split()
    m, n = number(layout, "blockM"), number(layout, "blockN")
    assert m is not None and n is not None
    formats = ".".join(spelt("tf32" if kind == "tf32" else x) for x in operands)
    for k in TCGEN05_K:
        name = f"tcgen05.mma.m{m * int(group)}n{n}k{k}.{kind}.f32.{formats}{scales if kind == 'mxf4nvf4' else ''}"
        if find(device, name) is not None:
            return name
    raise UnsupportedError(f"{device.name} has no tcgen05.mma of kind {kind}, {m * int(group)} x {n}, for {formats}")


def _mfma(device: DeviceModel, assembly: str) -> str:
    """The device's name of the MFMA: chips before gfx940 spell it without some underscores."""
    name = _only(set(MFMA.findall(assembly)), "v_mfma")
    same = [entry for entry in device.matrix_instructions if entry.replace("_", "") == name.replace("_", "")]
    return same[0] if same else name


def _k_width(function: Function, operation: Operation) -> int:
    """How many neighbours of K a thread holds in A, as the operand's layout says."""
    return number(function.layout_of(operation.types[0]), "kWidth") or 1


def _quad_order(k: int, width: int, bits: int) -> NDArray[np.intp] | None:
    """K as mma.sync takes it where a thread holds `width` neighbours: a register of them an instruction and half."""
    each = 32 // bits  # elements of a register
    tile = 2 * QUAD * width
    if width <= each or tile > k:
        return None
    places = np.arange(tile).reshape(2, QUAD, width // each, each)  # half, thread, register, element
    within = places.transpose(2, 0, 1, 3).reshape(-1)
    return (np.arange(0, k, tile)[:, None] + within).reshape(-1)


def _lane_order(k: int, width: int, m: int, n: int, k_instruction: int) -> NDArray[np.intp] | None:
    """K as an MFMA takes it where a lane holds `width` neighbours: as many an instruction as its K leaves a lane."""
    groups = LANES // max(m, n)
    each = max(k_instruction // groups, 1)
    tile = groups * width
    if width <= each or tile > k:
        return None
    places = np.arange(tile).reshape(groups, width // each, each)
    within = places.transpose(1, 0, 2).reshape(-1)
    return (np.arange(0, k, tile)[:, None] + within).reshape(-1)
