"""Dot units of real devices, written down once more for the tests, from the numerics reference's tables.

They are kept apart from the device files on purpose: the reference arithmetic is tested before any of those
exists, and a slip in a device file cannot hide behind the same slip here.
"""

from __future__ import annotations

from hwsim.numerics.units import CompositeUnit, DotSpec, FusedUnit, Specials, TwoLevelUnit, Unit

NAN = {"fp32": 0x7FFFFFFF, "fp16": 0x7FFF}
ROUNDING = {"fp32": "RZ", "fp16": "RNE"}
PTX_FORMATS = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "f32": "fp32", "e4m3": "e4m3", "e5m2": "e5m2"}

# Integer bits of the widest sum of each generation (numerics reference, section 1): the floor below emin.
FLOOR = {width: {"fp32": -126 - width, "fp16": -14 - width} for width in (5, 6, 7)}


def fused(d: str, terms: int, fraction_bits: int, width: int, result_format: str | None = None) -> FusedUnit:
    """NVIDIA's step for results of format d."""
    return FusedUnit(terms, fraction_bits, FLOOR[width][d], ROUNDING[d], result_format, Specials(nan_code=NAN[d]))


def fp8_by_fp16(d: str) -> CompositeUnit:
    """fp8 mma.sync on sm_90 and sm_100."""
    return CompositeUnit(32, fused(d, 16, 25, 7), "fp16", 4, ((0, 1), (2, 3)), Specials(nan_code=NAN[d]))


def fp8_fourteen_bits(d: str, terms: int, width: int) -> FusedUnit:
    """Native fp8 on Ada (16 products) and by wgmma on Hopper (32): F = 13, and e8m13 results in fp32."""
    return fused(d, terms, 13, width, "e8m13" if d == "fp32" else None)


def hopper(instruction: str) -> DotSpec:
    """The unit of a Hopper instruction, by its name."""
    opcode, shape, *names = instruction.split(".")
    d, a, b = (PTX_FORMATS[name] for name in names[:3])
    c = PTX_FORMATS[names[3]] if len(names) > 3 else d
    k = int(shape.rpartition("k")[2])
    unit: Unit
    if a in ("e4m3", "e5m2"):
        unit = fp8_fourteen_bits(d, k, 7) if opcode == "wgmma" else fp8_by_fp16(d)
    else:
        unit = fused(d, k, 25, 7)
    return DotSpec(unit, a, b, c, d)


# Products per step of 16-bit formats and of tf32, F, width: by device of the third-party captures.
GENERATIONS = {
    "V100": (4, 4, 23, 5),
    "A100": (8, 4, 24, 6),
    "A2": (8, 4, 24, 6),
    "Ada": (8, 4, 24, 6),
    "L40S": (8, 4, 24, 6),
    "H100": (16, 8, 25, 7),
    "H200": (16, 8, 25, 7),
    "B200": (16, 8, 25, 7),
}


def third_party(device: str, fmt: str, d: str) -> DotSpec:
    """The unit behind a third-party file, by its device, operand format and result format."""
    half_terms, tf32_terms, fraction_bits, width = GENERATIONS[device]
    unit: Unit
    if fmt not in ("e4m3", "e5m2"):
        unit = fused(d, tf32_terms if fmt == "tf32" else half_terms, fraction_bits, width)
    elif device in ("Ada", "L40S"):
        unit = fp8_fourteen_bits(d, 16, width)
    elif device in ("H100", "H200") and d == "fp32":
        unit = fp8_fourteen_bits(d, 32, width)
    else:
        unit = fp8_by_fp16(d)
    return DotSpec(unit, fmt, fmt, d, d)


CDNA3_FP8 = DotSpec(
    TwoLevelUnit(16, interleaved=True, accumulator_drop_bits=25), "e4m3fnuz", "e4m3fnuz", "fp32", "fp32"
)
CDNA3_FP16 = DotSpec(TwoLevelUnit(8), "fp16", "fp16", "fp32", "fp32")
