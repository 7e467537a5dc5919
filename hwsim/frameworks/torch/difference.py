"""`hwsim.torch.diff`: where two devices, schemes or libraries part in a model, and how far the difference grows.

The module knows the record of products; how they are computed is others'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

import hwsim
from hwsim.analysis.unit_difference import ARITHMETIC, UnitDifference, UnitSide, unit_difference
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.product import Evaluator
from hwsim.frameworks.product import scaled_operands
from hwsim.frameworks.torch.forward_pass import called, forward_pass
from hwsim.frameworks.torch.layer_record import LayerRecord
from hwsim.frameworks.torch.multiplication import active
from hwsim.frameworks.torch.place import VALUES, Place
from hwsim.frameworks.torch.run_steps import FunctionCall, RunStep, is_compared, step_of
from hwsim.frameworks.torch.tensors import array_of, format_name
from hwsim.gemm.plan import Mixed
from hwsim.operands.powers import times_power
from hwsim.report.text.words import percent, plural, run_text

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.frameworks.settings import PassSettings, Settings
    from hwsim.gemm.record import Gemm
    from hwsim.studies.diff import Difference

AnyArray = NDArray[Any]
SIDES = ("left: ", "right:")
BY_THIS_CPU = "by this CPU"


@dataclass(frozen=True)
class Step:
    """One product of the model, or an attention: its layer, operation and pass, how many of its elements differ in
    bits, and the largest difference relative to the largest value. An attention is one step where a side knows the
    order of its fused kernel, or one side alone has one; else its two products are.

    evidence: the weakest level behind both sides' bits. least_confidence: the least probability that a library's kernel
    is the one that was computed; None: no library was asked. products: of the model; 2 in an attention.
    """

    layer: str
    operation: str
    stage: str
    shape: tuple[int, ...]
    differing: int
    largest_difference: float
    evidence: str = ""
    least_confidence: float | None = None
    products: int = 1


@dataclass(frozen=True)
class FunctionParting:
    """The first operator without products whose results differ: its name and layer. sides: how each computed it."""

    name: str
    layer: str
    sides: tuple[str, str]

    def __str__(self) -> str:
        where = f"layer {self.layer}" if self.layer else "outside of modules"
        left, right = self.sides
        both = f"{left} on both sides" + ("; is the model random?" if left == BY_THIS_CPU else "")
        whose = both if left == right else f"{left} on the left, {right} on the right"
        return f"{self.name} ({where}) has other bits: computed {whose}"


@dataclass(frozen=True)
class Parting:
    """The answer of `diff`.

    steps: every product in order. first: index of the first one with a difference, None where all bits are equal; of
    its operands, where has_unlike_inputs. element: index of its first differing element, empty where its operands alone
    differ; values: that element on both sides; row, column: the operands of it, as the left side takes them. function:
    the operator without products at which they part before any product; None: there is none. attention: the kernels of
    both, in words; empty where there is none. sides: the settings of both in words. refused: why that
    row and column do not explain the element, or empty. remarks: of each side, what its report says beside the table:
    evidence, what was not caught, how much of the model was simulated. records: how each side computes its sum. reason:
    why the two differ there, by their units and orders of summation; "": they differ nowhere. evidence: of each side,
    the level behind the arithmetic of the unit there; where none differs, the weakest behind the bits of all products.
    unknown_orders: calls of each side whose kernel adds in an order that is not known, so that the unit's own stands
    for it.
    """

    sides: tuple[str, str]
    steps: tuple[Step, ...]
    first: int | None = None
    element: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)
    row: Any = None
    column: Any = None
    refused: str = field(default="", repr=False)
    remarks: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    records: tuple[hwsim.Variant, ...] = field(default=(), repr=False)
    reason: str = ""
    evidence: tuple[str, str] = ("", "")
    has_unlike_inputs: bool = False
    attention: tuple[str, str] = ("", "")
    unknown_orders: tuple[int, int] = (0, 0)
    function: FunctionParting | None = None

    @property
    def is_equal(self) -> bool:
        """Whether all products, and all operators that were compared with them, have the same bits."""
        return self.first is None and self.function is None

    def explain(self) -> Difference:
        """The element, looked into: `hwsim.diff` of its row and column by both sides' resolved records (where they part
        along K, and what the units did there). alpha, C, the bias and the output format are left out: where sums are
        equal, the two sides part there. Raises InputError where nothing differs, and UnsupportedError where the two
        sides multiply unlike operands, or an element is no product of a row and a column alone.
        """
        if self.first is None and self.function is not None:
            raise UnsupportedError(f"explain: no product parts: {self.function}; it has no sum that is followed")
        if self.first is None:
            raise InputError("nothing to explain: all products have the same bits")
        if self.refused:
            raise UnsupportedError(f"explain: {self.refused}")
        return hwsim.diff(self.row, self.column, *self.records, element=(0, 0))

    @property
    def verdict(self) -> str:
        """What differs and why, in a sentence, with the evidence of both sides."""
        whose = "bits" if self.first is None else ARITHMETIC
        evidence = f", evidence of the {whose}: {' | '.join(self.evidence)}" if all(self.evidence) else ""
        if any(self.unknown_orders):
            counts = " and ".join(
                f"{plural(calls, 'product')} {side}"
                for calls, side in zip(self.unknown_orders, ("left", "right"), strict=True)
                if calls
            )
            evidence += f"; order not known of {counts}"
        if self.first is None:
            count = sum(step.products for step in self.steps)
            which = f"all {count} products that were simulated have" if count > 1 else "what was simulated has"
            behind = "" if self.function is None else f"; between products {self.function}"
            return f"{which} the same bits{behind}{evidence}"
        step = self.steps[self.first]
        where = step.layer or "outside of modules"
        parted = f"they part at {self._place} ({where})"
        return f"{parted}: {self.reason}{evidence}" if self.reason else f"{parted}{evidence}"

    @property
    def _place(self) -> str:
        """Where they part, in words: an attention's two products are one step."""
        assert self.first is not None
        return f"{_numbered(self.steps, self.first)} of {sum(step.products for step in self.steps)}"

    def __str__(self) -> str:
        left, right = self.sides
        lines = [self.verdict, f"left:  {left}", f"right: {right}"]
        if self.remarks[0] == self.remarks[1]:
            lines += [f"both:  {remark}" for remark in self.remarks[0]]
        else:
            lines += [f"{side} {remark}" for side, texts in zip(SIDES, self.remarks, strict=True) for remark in texts]
        if any(self.attention):
            same = self.attention[0] == self.attention[1]
            lines.append(f"attention: {self.attention[0] if same else ' | '.join(self.attention)}")
        if self.first is None:
            return "\n".join(lines)
        step = self.steps[self.first]
        where = step.layer or "(outside of modules)"
        place = f"they part at {self._place}: {where}, {step.operation}, {step.stage}"
        values = f", element {list(self.element)}: {self.values[0]!r} and {self.values[1]!r}" if self.element else ""
        lines.append(f"{place}{values}")
        lines.append(f"{'layer':<32} {'operation':<18} {'differing':>12} {'largest difference':>20}")
        for row in self.steps[self.first :]:
            total = 1
            for size in row.shape:
                total *= size
            share = percent(row.differing / total) if total else "-"
            lines.append(f"{row.layer or '-':<32} {row.operation:<18} {share:>12} {row.largest_difference:>20.2e}")
        return "\n".join(lines)


def diff(
    model: Callable[..., Any],
    x: Any,
    left: str | Mapping[str, Any],
    right: str | Mapping[str, Any],
    **common: Any,
) -> Parting:
    """Run `model` on x in two ways, and compare its products bit by bit, in order.

    The model must multiply in the same order both times (dropout is as the model's mode says: eval() first).

    Args:
        model: a module or a function.
        x: a tensor, a tuple of arguments, or a mapping of keyword arguments.
        left: a device, or a mapping of arguments of `emulate`.
        right: a device, or a mapping of arguments of `emulate`.
        common: arguments of both.

    Raises:
        InputError: the two runs have unlike products, or a pattern of `modules` matches no module; and as `emulate`.
    """
    settings_of_sides = [{"device": side} if isinstance(side, str) else dict(side) for side in (left, right)]
    runs: list[list[RunStep]] = [[], []]
    functions: list[list[tuple[int, FunctionCall]]] = [[], []]  # each with the number of steps before it
    operands: list[tuple[torch.Tensor, torch.Tensor]] = []
    sides, settings = [], []
    remarks: list[tuple[str, ...]] = []
    levels: list[str] = []
    unknown: list[int] = []
    state = torch.get_rng_state()
    for index, arguments in enumerate(settings_of_sides):
        torch.set_rng_state(state)

        def observe(place: Place, a: Any, b: Any, out: Any, record: Gemm | None, index: int = index) -> None:
            runs[index].append(step_of(place, (a, b), out, record))
            if index and not operands and _part_here(*runs):
                operands.append((a.detach().clone(), b.detach().clone()))

        def observe_attention(place: Place, query: Any, key: Any, value: Any, out: Any, index: int = index) -> None:
            runs[index].append(step_of(place, (query, key, value), out))

        def observe_function(call: FunctionCall, index: int = index) -> None:
            functions[index].append((len(runs[index]), call))

        with forward_pass(model, **{**common, **arguments}) as run:
            run.record.observer, run.record.attention_observer = observe, observe_attention
            run.record.function_observer = observe_function
            called(model, x)
        remarks.append(tuple(run.record.remarks()))
        levels.append(run.verdict.evidence)
        unknown.append(sum(run.record.unknown_orders.values()))
        sides.append(run.title)
        settings.append(run.settings)
    _check_alike(*runs)
    pairs = [pair for pair in zip(*runs, strict=True) if is_compared(*pair)]
    steps = tuple(_step(*pair) for pair in pairs)
    first = next((index for index, pair in enumerate(pairs) if _has_parted(*pair)), None)
    whole = Parting(
        sides=(sides[0], sides[1]),
        steps=steps,
        first=first,
        remarks=(remarks[0], remarks[1]),
        evidence=(levels[0], levels[1]),
        attention=_kernels(runs),
        unknown_orders=(unknown[0], unknown[1]),
    )
    if first is None:
        return replace(whole, function=_parted_function(functions, len(runs[0]), settings))
    left_step, right_step = pairs[first]
    place, left_out, right_out = left_step.place, left_step.out, right_step.out
    differing = _differs(left_out, right_out).nonzero()
    element = tuple(int(i) for i in differing[0]) if len(differing) else ()
    values = (float(left_out[element]), float(right_out[element])) if element else (0.0, 0.0)
    parted = replace(whole, element=element, values=values)
    if left_step.digests != right_step.digests:
        function = None if place.kind == VALUES else _parted_function(functions, runs[0].index(left_step), settings)
        between = "the softmax between them" if place.kind == VALUES else "what lies between"
        what = f"{between} is not the same on both sides" if function is None else str(function)
        why_unlike = f"the inputs of {_numbered(steps, first)} differ already: {what}"
        refused = f"{why_unlike}; no sum parts here"
        return replace(parted, has_unlike_inputs=True, reason=why_unlike, refused=refused, function=function)
    if left_step.gemm is None or right_step.gemm is None:
        why_kernels = f"the kernels of attention are {left_step.kernel} and {right_step.kernel}"
        return replace(parted, reason=why_kernels, refused=f"{why_kernels}; an attention has no sum of its own")
    chosen = [side_settings.of(place.layer, place.stage) for side_settings in settings]
    # no product before the first one: these are equal
    operand_pairs = [_taken(side_settings, *operands[0], element) for side_settings in chosen]
    records = left_step.gemm, right_step.gemm
    devices = [(side_settings.arguments or {})["device"] for side_settings in chosen]
    why = _why(records, devices)
    return replace(
        parted,
        row=operand_pairs[0][0],
        column=operand_pairs[0][1],
        refused=_refusal(records, operand_pairs),
        records=_variants(records, devices, element, left_out.dtype),
        reason=next(iter(why.reasons), ""),
        evidence=why.evidence,
    )


def _parted_function(
    functions: Sequence[Sequence[tuple[int, FunctionCall]]], steps: int, settings: Sequence[Settings]
) -> FunctionParting | None:
    """The first operator before step number `steps` whose results differ in bits, of two runs that call the same
    operators; None: there is none, or what they call differs first. settings: of each side.
    """
    for (at, left), (_, right) in zip(*functions, strict=False):
        if at > steps or (left.name, left.layer) != (right.name, right.layer):
            return None
        if left.digest != right.digest:
            words = [_computed_by(call, of_side) for call, of_side in zip((left, right), settings, strict=True)]
            return FunctionParting(left.name, left.layer, (words[0], words[1]))
    return None


def _computed_by(call: FunctionCall, settings: Settings) -> str:
    """Whose kernel computed an operator, in words: this CPU's, or the one of the device that its layer has."""
    if call.is_here:
        return BY_THIS_CPU
    device = (settings.of(call.layer, "forward").arguments or {}).get("device")
    return f"as {device.name}'s kernel" if device is not None else "as a chip's kernel"


def _check_alike(left: list[RunStep], right: list[RunStep]) -> None:
    """Raises InputError where two runs have not the same steps in order."""
    of_sides = [[step.name for step in run] for run in (left, right)]
    if of_sides[0] == of_sides[1]:
        return
    at = next((i for i, names in enumerate(zip(*of_sides, strict=False)) if names[0] != names[1]), None)
    at = min(map(len, of_sides)) if at is None else at
    first, second = (_named(names[at]) if at < len(names) else "none" for names in of_sides)
    raise InputError(
        f"the two runs have unlike products, {len(left)} and {len(right)}: number {at + 1} is {first} on the left and "
        f"{second} on the right; is the model random?"
    )


def _named(name: tuple[str, str, str, tuple[int, ...]]) -> str:
    layer, stage, kind, shape = name
    return f"{kind} ({layer or 'outside of modules'}, {stage}, {' x '.join(map(str, shape))})"


def _part_here(left: list[RunStep], right: list[RunStep]) -> bool:
    """Whether the newest step of the right run differs from its like."""
    at = len(right) - 1
    if at >= len(left) or left[at].name != right[at].name:
        return False
    return is_compared(left[at], right[at]) and _has_parted(left[at], right[at])


def _has_parted(left: RunStep, right: RunStep) -> bool:
    return left.digests != right.digests or bool(_differs(left.out, right.out).any())


def _numbered(steps: Sequence[Step], at: int) -> str:
    """Which products of the model a step is, in words."""
    number = sum(step.products for step in steps[:at]) + 1
    last = number + steps[at].products - 1
    return f"product{'' if last == number else 's'} {run_text(number, last)}"


def _step(left: RunStep, right: RunStep) -> Step:
    place = left.place
    grounds = _grounds(*(step.gemm for step in (left, right) if step.gemm is not None))
    compared = _compared(left.out, right.out)
    return Step(
        place.layer, place.kind, place.stage, tuple(left.out.shape), *compared, *grounds, products=1 if left.gemm else 2
    )


def _kernels(runs: list[list[RunStep]]) -> tuple[str, str]:
    """The kernels of attention of both runs, in words."""
    left, right = (", ".join(dict.fromkeys(step.kernel for step in run if step.gemm is None)) for run in runs)
    return left, right


def _grounds(*records: Gemm) -> tuple[str, float | None]:
    """The weakest evidence of several records, and their least confidence."""
    both = LayerRecord()
    for record in records:
        both.note(record)
    return both.evidence, both.least_confidence


def _taken(
    chosen: PassSettings, a: torch.Tensor, b: torch.Tensor, element: tuple[int, ...]
) -> tuple[AnyArray, AnyArray]:
    """The row and the column of an element's operands, as the settings take them."""
    *lead, row, column = element
    left, right, exponents = array_of(a), array_of(b), (0, 0)
    if chosen.scale is not None:
        left, right, exponents = scaled_operands(chosen, left, right, "")
    parts = left[tuple(lead)][row : row + 1], right[tuple(lead)][:, column : column + 1]
    first, second = (
        times_power(part, exponent) if exponent else part for part, exponent in zip(parts, exponents, strict=True)
    )
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


def _why(records: tuple[Gemm, Gemm], devices: list[Device]) -> UnitDifference:
    """Why two records give other bits."""
    return unit_difference(
        *(UnitSide(device.name, device, record.unit, record) for record, device in zip(records, devices, strict=True))
    )


def _refusal(records: tuple[Gemm, Gemm], operand_pairs: list[tuple[AnyArray, AnyArray]]) -> str:
    """Why one row and one column do not show where the element parts; empty where they do."""
    if any(side.scale is not None for record in records for side in record.problem.operands):
        return "operands with scales of blocks or rows are no row and column alone"
    mixed = [record.scheme for record in records if isinstance(record.plan, Mixed)]
    if mixed:
        return f"what scheme {mixed[0]} does to a row follows from the whole matrices; no element has sums of its own"
    if any(
        first.dtype != second.dtype or first.tobytes() != second.tobytes()
        for first, second in zip(*operand_pairs, strict=True)
    ):
        return (
            "the two sides multiply their operands by unlike powers of two first; compare settings with one format and "
            "scale"
        )
    return ""


def _variants(
    records: tuple[Gemm, Gemm], devices: list[Device], element: tuple[int, ...], dtype: torch.dtype
) -> tuple[hwsim.Variant, ...]:
    """The sums of one element as both records fix them, without alpha, C, bias and the rounding to the output."""
    formats = {record.single.output_format for record in records}
    output = (formats.pop() if len(formats) == 1 else None) or format_name(dtype)
    variants = []
    for record, device in zip(records, devices, strict=True):
        schedule = Evaluator(record, device).schedule_at(*element[-2:])
        ending = replace(schedule.epilogue, alpha=1.0, beta=0.0, contraction=None, output_format=output)
        bare = replace(
            record,
            problem=replace(record.problem, has_c=False, bias=None),
            schedule=replace(schedule, epilogue=ending),
            output=output,
            mapping=None,
            parts=(),
        )
        variants.append(hwsim.Variant(device, record.scheme, gemm=bare))
    return tuple(variants)


def _differs(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one dtype differ in bits."""
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
    return left.contiguous().view(integer) != right.contiguous().view(integer)


def _compared(left: torch.Tensor, right: torch.Tensor) -> tuple[int, float]:
    count = int(_differs(left, right).sum())
    if not count:
        return 0, 0.0
    x, y = left.double(), right.double()
    largest = float(torch.maximum(x.abs(), y.abs()).nan_to_num().max())
    return count, float((x - y).abs().nan_to_num().max()) / largest if largest else 0.0


__all__ = ["FunctionParting", "Parting", "Step", "active", "called", "diff"]
