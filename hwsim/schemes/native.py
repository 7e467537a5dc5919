"""Native GEMM: one product of the operands, rounded to the unit's format where they are in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hwsim.errors import InputError
from hwsim.formats import decode, format_of
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.schemes.scheme import K_GROUP_OR_TILE, AnyArray, Notice, Scheme, special_notices

PROMOTED_K = 128  # cuBLAS on an H200 and DeepSeek's kernels: 4 wgmma of 32 (numerics reference, section 5)


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """What native's own options say of a call, for libraries that have such calls. None: not said."""

    format_b: str | None = None
    accumulate: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> NativeOptions:
        """The options of a call among those that a user gave."""
        values = {name: options.get(name) for name in cls.names()}
        return cls(**{name: None if value is None else str(value) for name, value in values.items()})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The options that name the call; native's others change what a library decides."""
        return tuple(field.name for field in fields(cls))


def plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """C = RN(A) RN(B), one accumulator; accumulate="promoted" is k_group = 128 (InputError where that clashes)."""
    left, right = (Piece(options["format"]),), (Piece(options["format_b"] or options["format"]),)
    group, fmt = options["k_group"], format_of(options["format"])
    if options["accumulate"] == "promoted":
        if fmt.is_integer or fmt.bits != 8:
            raise InputError(
                f"scheme native: accumulate='promoted' is for 8-bit float formats; got format {fmt.name}; leave it out"
            )
        if group not in (None, PROMOTED_K):
            raise InputError(f"scheme native: accumulate='promoted' is k_group = {PROMOTED_K}; got k_group = {group}")
        group = PROMOTED_K
    return Plan(
        "native",
        left,
        right,
        (chain((0, 0)),),
        TermValue(0),
        k_group=group,
        input_format=problem.input_format,
    )


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements beyond the format's range."""
    fmt = format_of(options["format"])
    top = decode(fmt, fmt.largest_code())
    largest = float(top.significand) * 2.0**top.exponent
    with np.errstate(invalid="ignore"):  # signalling NaNs, which count as none
        count = sum(int((np.isfinite(x) & (np.abs(x.astype(np.float64)) > largest)).sum()) for x in (a, b))
    overflows = (
        [Notice("operand_overflow", count, f"{count} elements are beyond the range of {fmt.name}")] if count else []
    )
    return special_notices(a, b) + overflows


SCHEME = Scheme(
    "native",
    "one product in the unit's own format",
    "the device's matrix unit",
    (
        Option("format", str, None, "operand format", default_text="the operands' own, or the device's default"),
        Option(
            "format_b",
            str,
            None,
            "operand format of B where it differs from A's: e5m2 beside e4m3, on units that take both",
        ),
        K_GROUP_OR_TILE,
        Option(
            "accumulate",
            str,
            "fast",
            "fast: one chain over K; promoted (8-bit floats only): a promotion interval of 128",
            choices=("fast", "promoted"),
        ),
    ),
    plan,
    inspect,
    input_formats=("fp32", "fp16"),
)
