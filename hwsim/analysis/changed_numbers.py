"""What if numbers of the device file were others: the cycles of a program with some of them scaled or replaced.

The module knows the timing machine and the device's numbers by their paths; it does not know what the program computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hwsim.analysis.what_if import WhatIf, what_if
from hwsim.devices import changed
from hwsim.errors import InputError, nearest
from hwsim.machines import timing
from hwsim.machines.l2_state import COLD
from hwsim.program.ir import Program

if TYPE_CHECKING:
    from hwsim.devices.device import Device

TIMED = ("clock_mhz", "engines", "links", "memories", "hbm", "l2")  # blocks of the device file that cycles follow from


@dataclass(frozen=True, slots=True)
class ChangedNumbers:
    """A program's cycles before and after a change of the device's numbers.

    numbers: {path: (value before, value after)}, in the device file's units. cycles: before, after, in cycles of each
    device's core clock. seconds: the same in seconds. bound: the part whose absence would then save most, None where
    none saves anything.
    """

    numbers: dict[str, tuple[float, float]]
    cycles: tuple[int, int]
    seconds: tuple[float, float]
    bound: WhatIf | None


def numbers_of(device: Device) -> dict[str, float]:
    """The device's numbers that time may follow from, by path ("links.GM_L1.bytes_per_cycle"), in the file's units."""
    tree = device.model_dump(by_alias=True)
    return {path: value for block in TIMED if block in tree for path, value in _leaves(block, tree[block])}


def with_numbers(
    program: Program, device: Device, changes: Mapping[str, str | float], *, l2: str = COLD
) -> ChangedNumbers:
    """Time the program on the device as it is and with `changes`: {path: "2x" for a factor, or a value}.

    l2: the state in which L2 is before each run. Raises InputError for a path that is not in `numbers_of`, for a value
    that is no number or that the device cannot have; ProgramError where the program does not fit the changed device.
    """
    numbers_before = numbers_of(device)
    numbers = {
        path: (_before(device, numbers_before, path), _after(numbers_before, path, text))
        for path, text in changes.items()
    }
    try:
        other = changed(device, {path: _like(*pair) for path, pair in numbers.items()})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or ", ".join(numbers)
        raise InputError(f"what-if on {device.name}: {where}: {first['msg']}; take another value") from None
    before, after = (timing.run_in(program, chip, l2).cycles for chip in (device, other))
    parts = what_if(program, other, l2=l2)
    return ChangedNumbers(
        numbers,
        (before, after),
        (before / (device.clock_mhz * 1e6), after / (other.clock_mhz * 1e6)),
        parts[0] if parts and parts[0].saved > 0 else None,
    )


def _leaves(path: str, value: Any) -> list[tuple[str, float]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(f"{path}.{key}", inner)]
    return [(path, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _before(device: Device, numbers: Mapping[str, float], path: str) -> float:
    if path not in numbers:
        raise InputError(
            f"what-if: {device.name} has no number {path!r}{nearest(path, list(numbers))}; it has {', '.join(numbers)}"
        )
    return numbers[path]


def _after(numbers: Mapping[str, float], path: str, text: str | float) -> float:
    value = str(text).strip()
    try:
        number = float(value.removesuffix("x"))
        if not math.isfinite(number):
            raise ValueError(value)
    except ValueError:
        raise InputError(
            f"what-if: {path} = {text!r}; allowed: a factor such as 2x or 0.5x, or a value in the file's unit"
        ) from None
    return numbers[path] * number if value.endswith("x") else number


def _like(before: float, after: float) -> float:
    """The value, whole where the one before is and it can be."""
    return int(after) if isinstance(before, int) and after == int(after) else after
