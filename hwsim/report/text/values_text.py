"""The instructions that made some elements of C, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from hwsim.report.exact_element import beside
from hwsim.report.text.explain_text import exact_words
from hwsim.report.text.words import plural, table

if TYPE_CHECKING:
    from hwsim.compute.bits import ExactValue
    from hwsim.machines.element_steps import CodedValue, ElementStep


def values_text(
    values: Mapping[tuple[int, ...], Sequence[ElementStep]],
    exact: Mapping[tuple[int, ...], ExactValue] = MappingProxyType({}),
) -> str:
    """A table for each element: where each instruction ran, what it read, and the element before and after it.

    Under a matrix instruction stands the command that shows it stage by stage. exact: by element, its values without
    any rounding, beside which the result stands at the end.
    """
    parts = [[*_element(place, steps), *_exact(steps, exact.get(place))] for place, steps in values.items()]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _exact(steps: Sequence[ElementStep], exact: ExactValue | None) -> list[str]:
    """The result beside the exact values; one of them where the unit takes A and B as they are."""
    if exact is None or exact.as_stored is None or not steps:
        return []
    result = steps[-1].after
    named = [("exact", exact.as_stored)]
    if exact.as_multiplied not in (None, exact.as_stored):
        named = [("exact, of A and B as given", exact.as_stored), ("exact, of A and B as rounded", exact.as_multiplied)]
    lines = [f"  result {_value(result)}"]
    for name, value in named:
        if value is not None and value.denominator & (value.denominator - 1) == 0:  # binary: alpha may not be
            record = beside(value, (result.format, result.code))
            lines.append(f"  {name}  {exact_words(record, result.hex, result.format)}")
    return lines


def _element(place: tuple[int, ...], steps: Sequence[ElementStep]) -> list[str]:
    rows = [
        (
            str(number),
            f"{step.kernel}, core {step.core}",
            step.engine,
            step.opcode,
            step.place,
            "" if step.before is None else _value(step.before),
            _value(step.after),
            _operands(step),
        )
        for number, step in enumerate(steps)
    ]
    title = f"C[{', '.join(map(str, place))}]: {plural(len(steps), 'instruction')}"
    head, *lines = table(rows, ("", "kernel", "engine", "opcode", "place", "before", "after", "operands"), right=(0,))
    text = [title, head]
    for line, step in zip(lines, steps, strict=True):
        text.append(line)
        if step.command is not None:
            text.append(f"       {step.command}")
    return text


def _operands(step: ElementStep) -> str:
    """The operands of an instruction other than a matrix instruction, whose command has them."""
    if step.instruction is not None:
        return step.instruction
    words = [f"{role} {_value(x)}" for role, x in step.operands.items() if not isinstance(x, tuple)]
    words += [] if step.scalar is None else [f"scalar {step.scalar:.9g}"]
    words += [] if step.rounding is None else [f"rounding {step.rounding}"]
    return ", ".join(words)


def _value(x: CodedValue) -> str:
    return f"{x.value:.9g} ({x.hex})"
