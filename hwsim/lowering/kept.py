"""Programs kept between calls: what was lowered and checked once is not lowered again for the same question.

A program follows from the dataflow's function, the device, the plan, the sizes and the options, and from nothing else.
Function and device are known by identity (devices are immutable; both are kept here as long as their programs), the
rest by its whole text, so that 1 and True, or 0.0 and -0.0, are two questions. It does not know what a program is
made of.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from threading import Lock
from typing import TYPE_CHECKING

from hwsim.program.plan import Expression, Scaled, Sum

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.program.ir import Program
    from hwsim.program.plan import Plan

MOST = 32  # programs; those asked for last stay


class Kept:
    """At most `most` programs by question."""

    def __init__(self, most: int = MOST) -> None:
        self.most, self.lock = most, Lock()
        self.found: OrderedDict[tuple[int, int, str], tuple[object, Device, Program]] = OrderedDict()

    def get(
        self,
        dataflow: object,
        device: Device,
        plan: Plan,
        sizes: tuple[int, int, int],
        options: Mapping[str, object],
        make: Callable[[], Program],
    ) -> Program:
        """The program of this question: an earlier one, or what `make` returns. `facts` are the caller's own."""
        key = id(dataflow), id(device), f"{sizes, sorted(options.items())!r} {_text(plan)}"
        with self.lock:
            entry = self.found.get(key)
            if entry is not None:
                self.found.move_to_end(key)
        program = make() if entry is None else entry[2]
        if entry is None:
            with self.lock:
                self.found[key] = dataflow, device, program
                while len(self.found) > self.most:
                    self.found.popitem(last=False)
        return replace(program, facts=copy.deepcopy(program.facts))


def _text(plan: Plan) -> str:
    """All that a plan says. Its expression is walked by hand: a sum of hundreds is deeper than repr may go."""
    said = [f"{field.name}={getattr(plan, field.name)!r}" for field in fields(plan) if field.name != "combine"]
    left: list[Expression] = [plan.combine]
    while left:
        match left.pop():
            case Sum(one, other):
                said.append("sum")
                left += [other, one]
            case Scaled(value, exponent):
                said.append(f"scaled {exponent!r}")
                left.append(value)
            case leaf:
                said.append(repr(leaf))
    return "; ".join(said)


KEPT = Kept()
