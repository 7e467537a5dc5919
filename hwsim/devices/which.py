"""Which devices have a matrix instruction with certain formats and arithmetic.

The module knows device files; it runs nothing.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from hwsim.devices.loader import load
from hwsim.devices.query import choices, dot_spec, example, numerics_evidence
from hwsim.devices.registry import names
from hwsim.errors import InputError, nearest
from hwsim.formats import format_of
from hwsim.numerics.units import (
    CompositeUnit,
    ExactUnit,
    FmaChainUnit,
    IntegerUnit,
    PairwiseUnit,
    RoundingName,
    TwoLevelUnit,
    Unit,
)

if typing.TYPE_CHECKING:
    from hwsim.devices.device import Device

MODELS = tuple(typing.get_args(typing.get_type_hints(unit)["model"])[0] for unit in typing.get_args(Unit))
ROUNDINGS: tuple[str, ...] = typing.get_args(RoundingName)


@dataclass(frozen=True, slots=True)
class Matching:
    """One instruction that matches: a, b, c, d its formats; terms: products that its unit adds at once; fraction_bits:
    that it keeps while adding (None: all); scale_input_d: the largest s of d = a b + c 2^-s (None: none). evidence: the
    weakest behind its bits. is_timed: whether the file has its rate. scales: format of its block scales (None: none).
    """

    device: str
    instruction: str
    a: str
    b: str
    c: str
    d: str
    model: str
    terms: int | None
    fraction_bits: int | None
    rounding: str | None
    scale_input_d: int | None
    evidence: str
    is_timed: bool
    scales: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def which(
    *,
    bits: str | None = None,
    bits_b: str | None = None,
    accumulate: str | None = None,
    result: str | None = None,
    model: str | None = None,
    rounding: str | None = None,
    terms: int | None = None,
    least_fraction_bits: int | None = None,
    scale_input_d: bool = False,
    timing: bool = False,
    scales: str | None = None,
    devices: Iterable[str] | None = None,
) -> list[Matching]:
    """The matrix instructions of all devices (or of `devices`) that have all that is asked for.

    Instructions that differ only in N are one.

    Args:
        bits: format of A, and of B where `bits_b` says no other.
        bits_b: format of B.
        accumulate: format of the accumulator C.
        result: format of D.
        model: of the dot unit.
        rounding: of the dot unit.
        terms: products that the dot unit adds in one step.
        least_fraction_bits: fraction bits that the unit keeps while it adds, at least; units that drop none match.
        scale_input_d: the instruction scales its accumulator.
        timing: the instruction's rate is known.
        scales: format of the block scales that the instruction takes.
        devices: names of the devices to look at; None: all.

    Raises:
        InputError: formats, models and roundings that there are not.
    """
    for name in (bits, bits_b, accumulate, result, scales):
        if name is not None:
            format_of(name)
    for what, value, allowed in (("model", model, MODELS), ("rounding", rounding, ROUNDINGS)):
        if value is not None and value not in allowed:
            raise InputError(f"{what} {value!r}; allowed: {', '.join(allowed)}{nearest(value, list(allowed))}")
    wanted = {"scales": scales, "c": accumulate, "d": result, "model": model, "rounding": rounding, "terms": terms}
    rows = []
    for name in [name for name, _ in names()] if devices is None else devices:
        for matching in _instructions(load(name), bits, bits_b):
            drops = matching.fraction_bits is not None and least_fraction_bits is not None
            if (
                all(value is None or getattr(matching, field) == value for field, value in wanted.items())
                and not (drops and (matching.fraction_bits or 0) < (least_fraction_bits or 0))
                and (matching.scale_input_d or not scale_input_d)
                and (matching.is_timed or not timing)
            ):
                rows.append(matching)
    return rows


def _fraction_bits(unit: Any, result: str) -> int | None:
    """Fraction bits that a unit keeps of its largest term while it adds; None: all."""
    match unit:
        case ExactUnit() | IntegerUnit():
            return None
        case FmaChainUnit() | PairwiseUnit():  # every sum is rounded to the result's format
            return format_of(result).fraction_bits
        case TwoLevelUnit():
            return min(unit.product_fraction_bits, unit.sum_fraction_bits, unit.accumulator_fraction_bits)
        case CompositeUnit():
            return min(unit.inner.fraction_bits, format_of(result).fraction_bits)
    return int(unit.fraction_bits)


def _instructions(device: Device, bits: str | None, bits_b: str | None) -> Iterable[Matching]:
    """The device's instructions of these formats of A and B: of each entry one N, and every pair that it allows."""
    for key, entry in device.matrix_instructions.items():
        open_formats = choices(device, key).formats
        firsts = open_formats or (entry.a,)
        for a in firsts:
            seconds = open_formats or (entry.b,)
            for b in seconds:
                if bits is not None and (a != bits or b != (bits_b or bits)):
                    continue
                if bits is None and (
                    (bits_b is not None and b != bits_b) or (bits_b is None and open_formats and a != b)
                ):
                    continue
                name = example(device, key, n=entry.n_last, a=a, b=b)
                spec = dot_spec(device, name)
                unit: Any = spec.unit
                yield Matching(
                    device=device.name,
                    instruction=name,
                    a=spec.a,
                    b=spec.b,
                    c=spec.c,
                    d=spec.d,
                    model=str(unit.model),
                    terms=getattr(unit, "terms", None),
                    fraction_bits=_fraction_bits(unit, spec.d),
                    rounding=getattr(unit, "rounding", None),
                    scale_input_d=entry.scale_input_d,
                    evidence=str(numerics_evidence(device, name)),
                    is_timed=entry.timing is not None,
                    scales=entry.scale_format,
                )
