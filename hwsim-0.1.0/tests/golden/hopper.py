"""Hopper's dot units by instruction name, for checks that must not rest on the device files.

Numerics reference, section 2. UNKNOWN are names that the recorder runs on Hopper and of which nobody says how they
are carried out there; their entries are the guess to test, not a fact.
"""

from __future__ import annotations

from hwsim.golden.instructions import parse
from hwsim.numerics.units import CompositeUnit, DotSpec, FmaChainUnit, FusedUnit, IntegerUnit, Specials, Unit

NAN = {"fp32": 0x7FFFFFFF, "fp16": 0x7FFF}
FLOOR = {"fp32": -133, "fp16": -21}
ROUNDING = {"fp32": "RZ", "fp16": "RNE"}
FP8 = ("e4m3", "e5m2")
#: Patterns of instructions whose way of working on Hopper is a guess.
UNKNOWN = ("mma.m8n8k4.*.f16.f16.*", "mma.m16n8k16.*.e4m3.*", "mma.m16n8k16.*.e5m2.*", "wmma.*")


def fused(d: str, terms: int, fraction_bits: int = 25, result_format: str | None = None) -> FusedUnit:
    """NVIDIA's step with Hopper's floor."""
    return FusedUnit(terms, fraction_bits, FLOOR[d], ROUNDING[d], result_format, Specials(nan_code=NAN[d]))


def spec(name: str) -> DotSpec:
    """The unit and formats of a Hopper instruction."""
    entry = parse(name)
    unit: Unit
    if entry.d == "int32":
        unit = IntegerUnit(entry.k, "saturate" if "satfinite" in name else "wrap")
    elif entry.d == "fp64":
        # Which NaN: h200_nan.
        unit = FmaChainUnit(nan_order="bca", specials=Specials(nan_code=0xFFF8000000000000, zero="ieee"))
    elif entry.a not in FP8:
        terms = {"fp16": 16, "bf16": 16, "tf32": 8}[entry.a]
        unit = fused(entry.d, min(entry.k, terms))
    elif name.startswith("wgmma"):
        unit = fused(entry.d, entry.k, 13, "e8m13" if entry.d == "fp32" else None)
    else:
        specials = Specials(nan_code=NAN[entry.d])
        unit = CompositeUnit(entry.k, fused(entry.d, 16), "fp16", 4, ((0, 1), (2, 3)), specials)
    return DotSpec(unit, entry.a, entry.b, entry.c, entry.d)
