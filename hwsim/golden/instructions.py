"""Parser for names of NVIDIA's matrix instructions: shape and formats. It knows no device and no dot unit.

Names as in the golden files: mma.mMnNkK.D.A.B.C, wmma likewise, wgmma.mMnNkK.D.A.B, tcgen05.mma.mMnNkK.KIND.D.A.B;
integer ones may have .satfinite after the shape.
"""

from __future__ import annotations

import re

from hwsim.errors import InputError
from hwsim.operands.matrix_product import MatrixProduct

#: What PTX calls a format -> its name in hwsim.formats.
PTX_FORMATS = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "s32": "int32",
    "s8": "int8",
    "u8": "uint8",
    **{name: name for name in ("tf32", "bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1")},
}
_SHAPE = r"m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)"
_SATURATE = r"(?:\.satfinite)?"
_NAMES = (
    rf"w?mma\.{_SHAPE}{_SATURATE}\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P<c>\w+)",
    rf"wgmma\.{_SHAPE}{_SATURATE}\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)",
    rf"tcgen05\.mma\.{_SHAPE}\.\w+\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)",
)


def parse(name: str) -> MatrixProduct:
    """The instruction of this name. Raises InputError for a name that has none of the four forms above."""
    for pattern in _NAMES:
        match = re.fullmatch(pattern, name)
        if match is None:
            continue
        parts = match.groupdict()
        formats = {operand: PTX_FORMATS.get(parts.get(operand) or parts["d"]) for operand in "abcd"}
        if None not in formats.values():
            return MatrixProduct(
                name,
                int(parts["m"]),
                int(parts["n"]),
                int(parts["k"]),
                **{operand: str(f) for operand, f in formats.items()},
            )
    raise InputError(
        f"{name!r} is not an instruction that can be taken apart; allowed: mma.mMnNkK.D.A.B.C, wmma.mMnNkK.D.A.B.C, "
        f"wgmma.mMnNkK.D.A.B, tcgen05.mma.mMnNkK.KIND.D.A.B with formats {', '.join(PTX_FORMATS)}"
    )
