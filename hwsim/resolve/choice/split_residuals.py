"""What the split of an operand leaves of each element: bounds by exponents, without splitting it.

Half a unit in the last place of the last piece, but no finer than that piece's subnormals allow, and the whole element
where a piece overflows (SGEMM-cube, Eq. 3-6; Ape, Table 2). A residual below the operand's own last place is zero, so
that three scaled bf16 pieces lose nothing. The module knows plans and dot units, no product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.residue_places import places_of_squares
from hwsim.arithmetic.vector import saturates
from hwsim.devices import dot_spec, instruction_for
from hwsim.formats import Format, decode, format_of
from hwsim.gemm.plan import SLICED, Piece, Plan
from hwsim.operands.powers import exponents_beyond_norms

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.numerics.units import DotSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Residuals:
    """Residuals of a split: bounds on what is left of each element before each piece and after the last, unsigned,
    fp64.

    mean: expected value of the last residual, signed, where the rounding is one-sided (truncation); None: round to
    nearest.
    """

    before: tuple[Floats, ...]
    after: Floats
    mean: Floats | None


def residuals_of(x: Floats, plan: Plan, side: str, source: str, device: Device, top: float) -> Residuals:
    """The residuals of the elements `x` of an operand of format `source`; top: its largest magnitude."""
    flushes = any(spec.unit.specials.flush_operands for spec in _specs(plan, device) if hasattr(spec.unit, "specials"))
    pieces = plan.a_pieces if side == "a" else plan.b_pieces
    size = np.abs(x)
    if plan.split == "bytes":
        return Residuals((size, np.minimum(size, 256.0)), np.zeros_like(size), None)
    if plan.split == "signed_bytes":  # from 32640 on the high byte wraps
        return Residuals((size, np.minimum(size, 128.0)), np.where(x >= 32640, 65536.0, 0.0), None)
    if plan.split == "residues":
        return _residues(x, plan, 1 if side == "a" else 0, format_of(plan.input_format))
    if plan.split in SLICED:
        return _slices(x, plan, pieces, 1 if side == "a" else 0)
    operand_format, stored = format_of(plan.input_format), format_of(source)
    quantum = _quantum(
        size, operand_format if operand_format.precision < stored.precision and not stored.is_integer else stored
    )
    is_saturating = saturates(device.vector)
    before: list[Floats] = []
    rest, scale = size, 0
    lost = np.where(_quantum(size, operand_format) > quantum, _quantum(size, operand_format) / 2, 0.0)
    if operand_format.precision < stored.precision:  # rounded to the scheme's operands first
        lost = _quantum(size, operand_format) / 2
    if (
        plan.clamp is False
        and not is_saturating
        and math.ldexp(top, pieces[0].scale_exponent) > _largest(pieces[0])
        and not pieces[0].overflow
    ):
        lost = np.full_like(size, np.inf)
    for piece in pieces:
        scale += piece.scale_exponent
        if flushes:  # pieces below the normal range count as 0, and no later piece makes up for it
            normal = math.ldexp(1.0, format_of(piece.format).min_exponent - scale)
            lost = lost + np.where((rest < normal) | bool(before), np.minimum(rest, normal), 0.0)
        before.append(rest)
        rest = _residual_after(rest, piece, scale, quantum, is_saturating)
    whole = rest + lost
    if pieces[-1].rounding in ("RZ", "RD", "RU") and np.isfinite(whole).all():
        return Residuals(tuple(before), whole, np.copysign(whole / 2, x))
    return Residuals(tuple(before), whole, None)


def _largest(piece: Piece) -> float:
    fmt = format_of(piece.format)
    value = decode(fmt, fmt.largest_code())
    return math.ldexp(float(value.significand), value.exponent)


def _quantum(size: Floats, fmt: Format) -> Floats:
    """The unit in the last place of elements in a format (1 for an integer format)."""
    if fmt.is_integer:
        return np.ones_like(size)
    exponent = np.frexp(size)[1] - 1
    quantum: Floats = np.ldexp(1.0, np.maximum(exponent, fmt.min_exponent) - fmt.fraction_bits)
    return quantum


def _residual_after(rest: Floats, piece: Piece, scale: int, stored_quantum: Floats, saturates: bool) -> Floats:
    """The residual after rounding residuals of at most this size, times 2^scale, to the piece, in units of the
    operand.
    """
    fmt = format_of(piece.format)
    scaled = np.ldexp(rest, scale)
    quantum = _quantum(scaled, fmt)
    error = np.ldexp(quantum if piece.rounding == "RZ" else quantum / 2, -scale)
    # A rest is a multiple of the operand's last place: nothing finer is lost.
    error = np.where(np.ldexp(quantum, -scale) <= stored_quantum, 0.0, np.minimum(error, rest))
    beyond = scaled > _largest(piece)
    holds = saturates or piece.overflow == "saturate" or piece.rounding == "RZ"
    lost = np.maximum(np.ldexp(scaled - _largest(piece), -scale), error) if holds else np.inf
    return np.where(beyond, lost, error)


def _slices(x: Floats, plan: Plan, pieces: tuple[Piece, ...], axis: int) -> Residuals:
    """Residuals of slices in fixed point, scaled by the largest element of each row of A (axis 1) or column of B (axis
    0) of the sample.
    """
    exponent = np.frexp(np.abs(x).max(axis=axis, keepdims=True, initial=0.0))[1]
    bits = plan.slice_bits
    before = tuple(np.minimum(np.abs(x), np.ldexp(1.0, exponent - bits * i)) for i in range(len(pieces)))
    last = np.ldexp(1.0, exponent - bits * len(pieces))
    after = np.minimum(np.abs(x), last if pieces[-1].rounding == "RZ" else last / 2)
    if pieces[-1].rounding == "RZ":
        # Bits of the operand below the last slice; none where the operand has none.
        return Residuals(before, after, np.copysign(after / 2, x))
    return Residuals(before, after, None)


def _residues(x: Floats, plan: Plan, axis: int, operand_format: Format) -> Residuals:
    """Residuals of the integers that elements are truncated to, which products lack; of no piece alone."""
    last, size = residue_units(x, plan, axis), np.abs(x)
    after = np.where(_quantum(size, operand_format) >= last, 0.0, np.minimum(size, last))
    return Residuals((), after, np.copysign(after / 2, x))


def residue_units(x: Floats, plan: Plan, axis: int) -> Floats:
    """The unit of those integers, for each row of A (axis 1) or column of B (axis 0), as the sum of squares gives it.

    Ozaki-II's accurate mode bounds the product itself and takes other units. The prediction does not follow these.
    """
    if plan.log2_bound and not plan.bounds_product:
        with np.errstate(over="ignore", under="ignore"):
            squares = (x.astype(np.float64) ** 2).sum(axis=axis, keepdims=True)
        top = np.frexp(np.abs(x).max(axis=axis, keepdims=True, initial=0.0))[1]
        by_places: Floats = np.ldexp(1.0, top - 1 - places_of_squares(squares, plan.log2_bound))
        return by_places
    top, above = exponents_beyond_norms(x, axis, plan.bound_factor or 2.0 ** (-2 * plan.log2_bound))
    unit: Floats = np.ldexp(1.0, top + above)
    return unit


def _specs(plan: Plan, device: Device) -> list[DotSpec]:
    """The dot units of the plan's products."""
    formats = {(plan.a_pieces[i].format, plan.b_pieces[j].format) for term in plan.terms for i, j in term.products}
    return [dot_spec(device, instruction_for(device, *pair)) for pair in sorted(formats)]
