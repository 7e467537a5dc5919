"""What a scheme is: typed options, a plan made from them, and a look at the data for warnings.

A scheme knows nothing of devices, engines or cycles; the plan it returns is all that a lowering reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError, nearest
from hwsim.program.plan import Mixed, Plan, Problem, Term, chain

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a scheme: `type` bool, int or str; `default` None leaves the choice to the device or the data."""

    name: str
    type: type
    default: object
    help: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None

    def check(self, scheme: str, value: object) -> object:
        """Return `value` as the option's type (text is read as a number). Raises InputError when it does not fit."""
        if value is None and self.default is None:
            return None
        if self.type is bool:
            truth = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
            if isinstance(truth, bool):
                return truth
            raise InputError(f"scheme {scheme}: {self.name} = {value!r}; allowed: true, false")
        if self.type is int:
            try:
                number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
            except ValueError:
                number = None
            low, high = (
                (-math.inf if self.least is None else self.least),
                (math.inf if self.most is None else self.most),
            )
            if number is not None and low <= number <= high:
                return number
        elif isinstance(value, str) and (not self.choices or value in self.choices):
            return value
        least = "" if self.least is None else f" >= {self.least}"
        most = "" if self.most is None else f", at most {self.most:,}"
        allowed = ", ".join(self.choices) or f"{self.type.__name__}{least}{most}"
        raise InputError(f"scheme {scheme}: {self.name} = {value!r}; allowed: {allowed}")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the data that a user should know: a code for scripts, a count, a sentence."""

    code: str
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class Scheme:
    """A GEMM scheme. plan(options, problem) and inspect(a, b, options) get complete, checked options.

    input_formats: operand formats it takes as they are; others are rounded to the first of them.
    alternatives: name of an option whose None means: the first of its choices whose plan the device can carry.
    survey: options that the data decide; survey(a, b, options) returns the complete options, and is called before
    `plan` where operands are given.
    """

    name: str
    title: str
    source: str
    options: tuple[Option, ...]
    plan: Callable[[Mapping[str, Any], Problem], Plan | Mixed]
    inspect: Callable[[Array, Array, Mapping[str, Any]], list[Notice]]
    input_formats: tuple[str, ...] = ("fp32",)
    alternatives: str | None = None
    survey: Callable[[Array, Array, Mapping[str, Any]], dict[str, Any]] | None = None

    @property
    def takes_native_formats(self) -> bool:
        """Whether its `format` is any of the device's own, and the device's choice by default."""
        return any(option.name == "format" and option.default is None for option in self.options)

    def complete(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Defaults filled in, values checked. Raises InputError naming the options there are."""
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise InputError(
                    f"scheme {self.name} has no option {name!r}; it has {', '.join(known) or 'none'}"
                    f"{nearest(name, list(known))}"
                )
        return {name: option.check(self.name, given.get(name, option.default)) for name, option in known.items()}


def special_notices(a: Array, b: Array) -> list[Notice]:
    """Counts of NaNs and infinities in the operands."""
    found = []
    for code, test, what in (("nan_input", np.isnan, "NaN"), ("infinite_input", np.isinf, "infinite")):
        count = sum(int(test(x).sum()) for x in (a, b))
        if count:
            found.append(Notice(code, count, f"{count} {what} elements in A and B: the device's rules for them apply"))
    return found


K_GROUP = Option("k_group", int, None, "length of K accumulated in the unit from zero; by default all of K", least=1)
INTERLEAVE = Option(
    "interleave",
    str,
    "instruction",
    "products of one accumulator alternate instruction by instruction, or each runs over all of K",
    choices=("instruction", "k"),
)
ACCUMULATION = Option(
    "accumulation",
    str,
    "chained",
    "chained: in the unit, one kernel; termwise: each product a GEMM of its own, added to C outside (library calls)",
    choices=("chained", "termwise"),
)


def is_termwise(name: str, options: Mapping[str, Any]) -> bool:
    """What ACCUMULATION says. Raises InputError for an interleaving that single products do not have."""
    if options["accumulation"] == "chained":
        return False
    if options["interleave"] != INTERLEAVE.default:
        raise InputError(f"scheme {name}: interleave is not for accumulation='termwise'; leave it out")
    return True


Pair = tuple[int, int]


def terms_of(
    name: str, options: Mapping[str, Any], products: Sequence[Pair], calls: Sequence[Pair] | None = None
) -> tuple[Term, ...]:
    """Products (piece of A, piece of B) as ACCUMULATION says: one chain, or a term each, in the order of `calls`.

    calls: by default that of `products`. Raises InputError as `is_termwise`.
    """
    if is_termwise(name, options):
        return tuple(chain(pair) for pair in calls or products)
    return (chain(*products, interleave=options["interleave"]),)
