"""One way of computing a product: from a device and options to its evaluator, its operands and what is known of it.

It knows requests and records; it compares nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwsim.analysis.program_times import Times
from hwsim.analysis.unit_difference import UnitDifference, UnitSide, unit_difference
from hwsim.compute.call import product_call
from hwsim.compute.times import evidence_of
from hwsim.dataflows.options import LAYOUT_OPTIONS
from hwsim.devices import dot_spec, instruction, load
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.multiplied import multiplied
from hwsim.evaluate.product import Evaluator
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.numerics.units import FmaChainUnit
from hwsim.operands.operand import Operand, operand_pair, to_common_format
from hwsim.request.declarations import DEFAULT_SCHEME
from hwsim.request.options import FORMAT_B
from hwsim.resolve import library_on_device
from hwsim.resolve.resolved import NOT_ASKED

if TYPE_CHECKING:
    from hwsim.analysis.run_records import Evidence
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.schemes import Scheme


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of computing the product; fields as the arguments of hwsim.run. label: for the report (generated if
    empty). gemm: a resolved record of `device`: its plan, order of summation and epilogue instead of scheme, format,
    schedule, output and options; A and B are rounded to its input format. library: by whose kernel it is computed, as
    of hwsim.run.
    """

    device: str | Path | Mapping[str, Any] | Device
    scheme: str | Scheme = DEFAULT_SCHEME
    format: str | None = None
    schedule: Schedule | Mapping[str, Any] | None = None
    output: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    gemm: Gemm | None = None
    library: str | Path | LibraryOnDevice | None = None


@dataclass(frozen=True)
class DiffSide:
    """A variant, resolved. evaluator: computes its bits from a and b. format, format_b: that were asked for, None:
    none was.
    """

    evaluator: Evaluator
    a: Operand
    b: Operand
    format: str | None
    label: str
    format_b: str | None = None

    @property
    def record(self) -> Gemm:
        """The resolved GEMM."""
        return self.evaluator.gemm

    @property
    def instruction(self) -> str:
        """The full name of the matrix instruction of the first product, as the mapping has it."""
        record = self.record
        return record.unit if record.mapping is None else record.mapping.kernels[0].instruction

    @property
    def is_fp32_fma(self) -> bool:
        """Whether each product is a fused multiply-add of the CUDA cores: one element, no matrix unit."""
        model = instruction(self.evaluator.device, self.instruction)
        spec = dot_spec(self.evaluator.device, self.instruction)
        return isinstance(spec.unit, FmaChainUnit) and (model.m, model.n, model.k) == (1, 1, 1)

    @property
    def evidence(self) -> Evidence:
        """The evidence of the bits (`numerics`) and of the order of summation (`schedule`)."""
        return evidence_of(self.record, Times(NOT_ASKED))

    @property
    def confidence(self) -> float | None:
        """The least probability that a library's choice is the one that was computed; None: none is known."""
        known = [decision.confidence for decision in self.record.decisions if decision.confidence is not None]
        return min(known, default=None)

    @cached_property
    def multiplied(self) -> tuple[Operand, Operand]:
        """A and B as the unit takes them."""
        return multiplied(self.evaluator, self.a, self.b)

    def at(self, row: int, column: int) -> Evaluator:
        """The evaluator of one element, in its own order of summation."""
        if not self.record.schedule.regions:
            return self.evaluator
        schedule = self.evaluator.schedule_at(row, column)
        alone = replace(self.record, schedule=schedule, mapping=None, parts=())
        return Evaluator(alone, self.evaluator.device, self.evaluator.backend)


def reason_of(left: DiffSide, right: DiffSide, share: float, largest: float | None) -> UnitDifference:
    """Why two sides give other bits. share: of the elements that differ; largest: difference over the RMS of C, None:
    infinities and NaNs differ.
    """
    names: list[tuple[str, str]] = [
        (left.evaluator.device.name, right.evaluator.device.name),
        (left.record.scheme, right.record.scheme),
        (_library_name(left), _library_name(right)),
    ]
    pair = next((pair for pair in names if pair[0] != pair[1]), ("left", "right"))
    sides = [
        UnitSide(name, side.evaluator.device, side.instruction, side.record)
        for name, side in zip(pair, (left, right), strict=True)
    ]
    reason = unit_difference(*sides, share=share, largest=largest)
    # of the whole record: a scheme rests on more than the instruction of its first product
    levels = [side.evidence.get("numerics", "") or "unknown" for side in (left, right)]
    reason = replace(reason, evidence=(levels[0], levels[1]))
    return replace(reason, alike=_same_product(left)) if left.record == right.record else reason


def _same_product(side: DiffSide) -> str:
    """What to say of two sides that resolve to one record."""
    other = "a second --device, --scheme, --schedule or --library makes a difference"
    if side.record.library is not None:
        other = "--library none on one side compares with the chip's own order"
    return f"both sides are the same product; {other}"


def _library_name(side: DiffSide) -> str:
    library = side.record.library
    return "hwsim's own order" if library is None else f"{library.name} {library.version}"


def side_of(a: Any, b: Any, variant: Variant, input_format: str | None) -> DiffSide:
    """The side of a variant for A (m, k) and B (k, n). Raises as hwsim.run."""
    if variant.gemm is not None:
        return _of_record(a, b, variant, variant.gemm, input_format)
    values: dict[str, Any] = {
        "format": variant.format,
        "schedule": variant.schedule,
        "output": variant.output,
        "library": variant.library,
        "input_format": input_format,
        "timing": True,  # the mapping, and with it the instruction, is then that of hwsim.run
        **_layouts(variant),
        **variant.options,
    }
    call = product_call(a, b, variant.device, variant.scheme, {key: x for key, x in values.items() if x is not None})
    left, right = call.operands.left, call.operands.right
    if left is None or right is None or call.operands.lead:
        raise InputError("diff: compares single matrices; give A (m, k) and B (k, n)")
    return _side(call.resolved.evaluator, left, right, variant)


def _of_record(a: Any, b: Any, variant: Variant, record: Gemm, input_format: str | None) -> DiffSide:
    """The side of a variant that is a resolved record already."""
    left, right = to_common_format(
        *operand_pair(a, b, input_format=input_format, format=variant.format, format_b=variant.options.get(FORMAT_B))
    )
    if left.shape[1] != right.shape[0]:
        raise InputError(
            f"A is {left.shape[0]} x {left.shape[1]} and B {right.shape[0]} x {right.shape[1]}: "
            "A's columns must equal B's rows"
        )
    taken = record.problem.input_format  # kernels that multiply wider operands do not round them
    evaluator = Evaluator(record, load(variant.device))
    return _side(evaluator, left.converted(taken), right.converted(taken), variant)


def _side(evaluator: Evaluator, left: Operand, right: Operand, variant: Variant) -> DiffSide:
    side = DiffSide(evaluator, left, right, variant.format, variant.label, variant.options.get(FORMAT_B))
    return side if variant.label else replace(side, label=_label(side))


def _layouts(variant: Variant) -> dict[str, str]:
    """The storage orders that a library takes operands of the format in, where the options say none."""
    if variant.library is None or variant.format is None or any(name in variant.options for name in LAYOUT_OPTIONS):
        return {}
    try:
        library = library_on_device.library(variant.library, device=variant.device)
        layouts = library.layouts(variant.format, ("rows", "rows"))
    except (InputError, UnsupportedError):  # the call itself says what is wrong
        return {}
    return {name: layout for name, layout in zip(LAYOUT_OPTIONS, layouts, strict=True) if layout != "rows"}


def _label(side: DiffSide) -> str:
    plain, schedule = Schedule().to_dict(), side.evaluator.schedule.to_dict()
    skipped = ("instruction", "slice_multiple", "epilogue", "sum", "regions")
    settings = [f"{name}={schedule[name]}" for name in plain if name not in skipped and schedule[name] != plain[name]]
    record = side.record
    library = [] if record.library is None else [f"{record.library.name} {record.library.version}"]
    return ", ".join([f"{side.evaluator.device.name} {record.scheme}", *library, side.instruction, *settings])
