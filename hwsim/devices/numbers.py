"""Every number of a device by its path in the file: which a pattern names, what a change of it reaches, and a device
with other numbers.

The module knows paths and values; it knows no program and computes no time.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from hwsim.datafiles.base import Provenance
from hwsim.datafiles.messages import number_text
from hwsim.datafiles.provenance import Level
from hwsim.devices.device import Device
from hwsim.devices.power import with_clocks_of
from hwsim.devices.templates import template_with_size
from hwsim.devices.variants import changed
from hwsim.errors import InputError

NumberValue = int | float
NEAR = 5  # names that an error lists
#: Numbers that are more likely meant come first: rates, then other times, then shapes of instructions.
MANY_WITHIN = ("instructions.", "dot_units.")  # parts whose name says little
RATES, SHAPES = "*.macs_per_cycle", "instructions.*.[mnk]"
LOADED_CLOCKS = ("sustained_clock_mhz.*", "power_limit*.clock_mhz.*")
CHANGED = Provenance(source="set for a study", evidence=Level.ASSUMPTION)


class Reach(StrEnum):
    """What follows from a number of a device file."""

    BITS = "bits"
    MAPPING = "mapping"  # what the kernel is, and so its cycles
    CLOCK = "clock"  # the clock under load, or seconds beside the cycles
    TIME = "time"  # the cycles of the same kernel
    COST = "cost"  # energy and area


#: What follows from the numbers of a path; the first pattern that fits counts, and cycles follow from all others.
REACHES: tuple[tuple[str, Reach], ...] = (
    ("dot_units.*", Reach.BITS),
    ("instructions.*.timing.*", Reach.TIME),
    ("instructions.*.k", Reach.BITS),
    ("instructions.*.scale_block", Reach.BITS),
    ("instructions.*.scale_input_d", Reach.BITS),
    ("instructions.*", Reach.MAPPING),
    ("cores", Reach.MAPPING),
    ("memories.*", Reach.MAPPING),
    ("fractal.*", Reach.MAPPING),
    ("sustained_clock_mhz.*", Reach.CLOCK),
    ("power_limit.*", Reach.CLOCK),
    ("board_power.*", Reach.CLOCK),
    ("launch_overhead_us", Reach.CLOCK),
    ("energy.*", Reach.COST),
    ("area.*", Reach.COST),
)


def reach_of(path: str) -> Reach:
    """What follows from the number at a path."""
    return next((reach for pattern, reach in REACHES if fnmatchcase(path, pattern)), Reach.TIME)


def numbers_of(device: Device) -> dict[str, NumberValue]:
    """The device's numbers by path ("links.GM_L1.bytes_per_cycle"), in the file's units; defaults of the schema too."""
    tree = device.model_dump(by_alias=True)
    del tree["schema_version"]
    return dict(_leaves("", tree))


def paths_of(device: Device, pattern: str) -> list[str]:
    """The paths of the numbers that a pattern names: a path, or one with * for any text.

    Raises InputError where there is none, with the nearest.
    """
    numbers = numbers_of(device)
    if pattern in numbers:
        return [pattern]
    paths = [path for path in numbers if fnmatchcase(path, pattern)]
    if not paths:
        if (word := _word_at(device, pattern)) is not None:
            raise InputError(
                f"{pattern} of {device.name} is {word!r}, a word; here numbers are changed alone: write a "
                f"device file that extends {device.name}"
            )
        near = _of_template(device, pattern) or _near(pattern, list(numbers))
        raise InputError(f"{device.name} has no number {pattern!r}; {near}")
    return paths


def _word_at(device: Device, path: str) -> str | None:
    """The text at a path of the device; None where there is none."""
    inner: Any = device.model_dump(by_alias=True)
    while isinstance(inner, dict):
        fitting = [key for key in inner if f"{path}.".startswith(f"{key}.")]
        if not fitting:
            return None
        key = max(fitting, key=lambda name: len(str(name)))  # names of instructions have dots
        inner, path = inner[key], path[len(str(key)) + 1 :]
    return str(inner) if isinstance(inner, str) and not path else None


def new_value(path: str, before: NumberValue, text: object) -> NumberValue:
    """A number's new value: "2x" for a factor, else the value itself, in the file's unit. Whole where the one before is
    and it can be. Raises InputError for anything else.
    """
    words = str(text).strip()
    try:
        number = float(words.removesuffix("x"))
        if not math.isfinite(number) or isinstance(text, bool):
            raise ValueError(words)
    except ValueError:
        raise InputError(
            f"{path} = {text!r}; allowed: a factor such as 2x or 0.5x, or a value in the file's unit"
        ) from None
    after = before * number if words.endswith("x") else number
    return int(after) if isinstance(before, int) and after == int(after) else after


def new_values(device: Device, changes: Mapping[str, object]) -> dict[str, tuple[NumberValue, NumberValue]]:
    """{path: (value before, value after)} of changes by path or pattern. Raises InputError for a wrong one."""
    numbers = numbers_of(device)
    return {
        path: (numbers[path], new_value(path, numbers[path], text))
        for pattern, text in changes.items()
        for path in paths_of(device, pattern)
    }


def with_numbers(device: Device, changes: Mapping[str, object]) -> Device:
    """The device with other numbers, by path or pattern; what was changed has the evidence `assumption`.

    With another clock, number of cores, or power of the board, the clocks under load follow (hwsim.devices.power),
    unless one of them is changed too.

    The device remembers the one it was changed from, whose mappings it tries too. Raises InputError as `new_values`,
    and for a value that the device cannot have.
    """
    values = new_values(device, changes)
    try:
        variant = changed(device, {path: after for path, (_, after) in values.items()})
    except ValidationError as error:
        first = error.errors()[0]
        where = next(
            (path for path in values if path.endswith(".".join(map(str, first["loc"][-2:])))), ", ".join(values)
        )
        shown = f" = {values[where][1]}" if where in values else ""
        allowed = number_text(first["type"], first.get("ctx", {}))
        reason = f"allowed: {allowed}" if allowed else f"{first['msg']}; take another value"
        raise InputError(f"{device.name} with {where}{shown}; {reason}") from None
    if any(fnmatchcase(path, pattern) for path in values for pattern in LOADED_CLOCKS):
        variant._origin = replace(variant._origin, measured=None)
    else:
        variant = with_clocks_of(variant, device)
    variant._evidence.update(dict.fromkeys(values, CHANGED))
    variant._origin = replace(variant._origin, changed_from=device)
    return variant


def without_base(device: Device) -> Device:
    """The same device, without the one whose numbers were changed: it has the mapping that is chosen for it alone."""
    alone: Device = device.model_copy()
    alone._origin = replace(device._origin, changed_from=None)
    return alone


def changed_instructions(device: Device) -> list[str]:
    """The instructions, by their names in the file, of which `with_numbers` changed a number."""
    paths = [path for path, about in device.evidence.items() if about is CHANGED]
    return [name for name in device.matrix_instructions if any(p.startswith(f"instructions.{name}.") for p in paths)]


def _leaves(path: str, value: Any) -> list[tuple[str, NumberValue]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(f"{path}.{key}" if path else str(key), inner)]
    return [(path, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _of_template(device: Device, name: str) -> str:
    """What to do for a size of the template of the device's family; "" where it has no such size."""
    template = template_with_size(device.family, name)
    if not template:
        return ""
    return (
        f"it is a size of template {template}, from which several numbers follow: write one file a size with "
        f"hwsim devices new FILE.yaml --template {template} --set {name}=N, and give each file: --device repeated"
    )


def _near(pattern: str, paths: list[str]) -> str:
    """A few paths that are like the one asked for: first paths of the same part of the device (`l2.`), then of the
    nearest last word, then paths with the text in them and by their letters, rates before shapes of instructions.
    """
    words = dict.fromkeys(path.rpartition(".")[2] for path in paths)
    last = difflib.get_close_matches(pattern.rpartition(".")[2], words, 1, 0.75)
    first = pattern.partition(".")[0] + "."
    of_part = [path for path in paths if path.startswith(first) and not path.startswith(MANY_WITHIN)]
    same = [path for path in paths if path.rpartition(".")[2] in last]
    by_letters = difflib.get_close_matches(pattern, paths, 4 * NEAR, 0.4)
    by_letters = [*(path for path in paths if pattern in path), *by_letters]
    by_letters.sort(key=lambda path: fnmatchcase(path, SHAPES) - fnmatchcase(path, RATES))
    like = [
        *difflib.get_close_matches(pattern, of_part, 2, 0.0),
        *difflib.get_close_matches(pattern, same, NEAR, 0.0),
        *by_letters,
    ]
    near = list(dict.fromkeys(like))[:NEAR]
    listed = "hwsim devices show NAME --sources lists all, and * stands for any text"
    quoted = " or ".join(repr(path) for path in near)
    return f"did you mean {quoted}? {listed}" if near else listed
