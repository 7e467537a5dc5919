"""Notices of schemes about operands: counts of elements that two fp16 pieces cannot represent."""

from __future__ import annotations

import numpy as np

from hwsim.backend.cpu import CPU
from hwsim.formats import format_of
from hwsim.schemes.scheme import AnyArray, Notice

FP16_OVERFLOW = 65520.0  # rounds to infinity (or saturates), nearest even
FP16_RANGE = 65536.0  # what is below is cut to 65504 at most
FP16_UNDERFLOW = 2.0**-25  # rounds to zero, nearest even


def finite_magnitudes(a: AnyArray, b: AnyArray) -> AnyArray:
    """Magnitudes of the finite non-zero elements of both operands."""
    x = np.concatenate([np.ravel(a), np.ravel(b)])
    magnitudes: AnyArray = np.abs(x[np.isfinite(x) & (x != 0)])
    return magnitudes


def counted(*counts: tuple[str, int, str]) -> list[Notice]:
    """A notice for each (code, count, what) with a non-zero count."""
    return [Notice(code, count, f"{count} {what}") for code, count, what in counts if count]


def fp16_pieces(a: AnyArray, b: AnyArray, scale_exponent: int, rounding: str = "RNE") -> list[Notice]:
    """Notices: elements whose high fp16 piece underflows to zero or overflows, or whose low piece, scaled by
    2^scale_exponent, does.

    rounding: of the high piece, "RNE" or "RZ".
    """
    with np.errstate(over="ignore"):  # fp64 values beyond fp32's range count as beyond fp16's
        x = finite_magnitudes(a, b).astype(np.float32)
    zero = x <= FP16_UNDERFLOW if rounding == "RNE" else x < FP16_UNDERFLOW * 2
    over = x >= (FP16_OVERFLOW if rounding == "RNE" else FP16_RANGE)
    high = CPU.encode(x, format_of("fp16"), rounding, "infinity").view(np.float16).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        rest = np.abs((x - high) * np.float32(2.0**scale_exponent))
    return counted(
        ("high_piece_zero", int(zero.sum()), "elements whose high piece is zero: the low piece alone carries them"),
        ("high_piece_overflow", int(over.sum()), "elements beyond the FP16 range overflow the high piece"),
        ("low_piece_overflow", int(((rest >= FP16_OVERFLOW) & ~over).sum()), "low pieces overflow FP16"),
    )


def outside(a: AnyArray, b: AnyArray, limits: tuple[float, float], fmt: str) -> list[Notice]:
    """Notices with the counts of elements below and above a range; above it the high piece, of `fmt`, is infinite."""
    x = finite_magnitudes(a, b).astype(np.float64)
    return counted(
        ("below_full_precision", int((x < limits[0]).sum()), f"elements below {limits[0]:.3g} keep fewer bits"),
        ("high_piece_overflow", int((x > limits[1]).sum()), f"elements that {fmt} rounds to infinity"),
    )


def below(a: AnyArray, b: AnyArray, least: float, what: str) -> list[Notice]:
    """A notice with the count of elements of magnitude below `least`."""
    return counted(("below_full_precision", int((finite_magnitudes(a, b) < least).sum()), f"elements {what}"))
