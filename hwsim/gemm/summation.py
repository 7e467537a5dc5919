"""An explicit order of summation for one element of C: accumulation chains over K, and reductions of their results.

A `Schedule` states rules ("three slices", "promote every 128"); this form is for kernels that follow no such rule, or
whose split of K differs between tiles. It knows neither a device nor an array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from hwsim.errors import InputError

ReduceOrder = Literal["ascending", "descending", "pairwise", "halving"]
SumLevel = Literal["registers", "lanes", "shared", "cluster", "workspace", "kernel"]
FORMATS = ("fp64", "fp32", "fp16", "bf16")  # in which partial sums are stored and added
#: Of a `Reduction`; looked up once, as an order may have a million of them.
_ALLOWED: dict[str, tuple[str | None, ...]] = {
    "order": get_args(ReduceOrder),
    "start": ("first", "zero"),
    "format": (None, *FORMATS),
    "stored": (None, *FORMATS),
    "level": get_args(SumLevel),
}


@dataclass(frozen=True, slots=True)
class Range:
    """Blocks of `block` elements that begin at start, start + step, ... below stop: of K, or of rows or columns of C.

    The last block ends at stop at the latest. With step = block the elements from start to stop are one block.
    """

    start: int
    stop: int
    step: int = 1
    block: int = 1

    def __post_init__(self) -> None:
        for number in (self.start, self.stop, self.step, self.block):
            if type(number) is not int:
                raise InputError(f"schedule: {number!r} in a Range; allowed: integers start, stop, step, block")
        if self.start < 0 or self.stop < self.start or not 1 <= self.block <= self.step:
            raise InputError(
                f"range {self.start}..{self.stop}, blocks of {self.block} every {self.step}; allowed: "
                "0 <= start <= stop, 1 <= block <= step"
            )

    def __repr__(self) -> str:  # the dataclass's own takes seconds for an order of a million terms
        return f"Range({self.start}, {self.stop}, {self.step}, {self.block})"

    def spans(self) -> list[tuple[int, int]]:
        """(start, stop) of each run of neighbouring elements, in order."""
        if self.step == self.block:
            return [(self.start, self.stop)] if self.start < self.stop else []
        return [(at, min(at + self.block, self.stop)) for at in range(self.start, self.stop, self.step)]


@dataclass(frozen=True, slots=True)
class Chain:
    """One accumulator, from zero, to which the products of `ranges` of K are added in this order.

    Each block of a range begins with a new instruction, padded with zeros, also within the length of a promotion, which
    counts elements. Elements of K in no range are skipped.
    With no range the result is zero.
    """

    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        _tuple_of("ranges of a Chain", self.ranges, Range)

    def __repr__(self) -> str:
        return f"Chain({self.ranges!r})"


@dataclass(frozen=True, slots=True)
class Reduction:
    """A sum of partial results, with the order and format of its additions.

    order: "ascending" ((p0 + p1) + p2), "descending", "pairwise" (a balanced tree of neighbours), "halving" (part i and
    part i + n / 2, n halved each time, as in a warp shuffle), or the parts' indices in the order in which they are
    added. start: "first": from the first part itself; "zero": from +0. format: each addition is rounded to it, to
    nearest even; no wider than the unit's result format. stored: each part is rounded to it first. None (both): the
    unit's result format. level: where partial sums meet: registers of one thread, lanes of a warp, shared memory of a
    CTA, CTAs of a cluster, CTAs through a workspace in global memory, or a separate kernel.

    Raises InputError for a value that is not allowed.
    """

    parts: tuple[Chain | Reduction, ...]
    order: ReduceOrder | tuple[int, ...] = "ascending"
    start: Literal["first", "zero"] = "first"
    format: str | None = None
    stored: str | None = None
    level: SumLevel = "registers"

    def __post_init__(self) -> None:
        _tuple_of("parts of a Reduction", self.parts, Chain, Reduction)
        if isinstance(self.order, tuple):
            _tuple_of("order of a Reduction", self.order, int)
        for name, allowed in _ALLOWED.items():
            value = getattr(self, name)
            if value not in allowed and not (name == "order" and isinstance(value, tuple)):
                choices = ", ".join(str(choice) for choice in allowed if choice is not None)
                raise InputError(f"schedule: {name} = {value!r} of a reduction; allowed: {choices}")


@dataclass(frozen=True, slots=True)
class Region:
    """Rows and columns of C that share an order of summation, where it differs between tiles (stream-K)."""

    rows: Range
    cols: Range
    sum: Chain | Reduction

    def __post_init__(self) -> None:
        for name, value, *kinds in (("rows", self.rows, Range), ("cols", self.cols, Range), ("sum", self.sum, *PARTS)):
            if type(value) not in kinds:
                raise InputError(f"schedule: {name} = {value!r} of a Region; allowed: {_names(kinds)}")


PARTS = (Chain, Reduction)


def _tuple_of(what: str, items: object, *kinds: type) -> None:
    """Raises InputError for anything but a tuple of these classes."""
    if type(items) is not tuple:
        raise InputError(f"schedule: {what} = {items!r}; allowed: a tuple of {_names(kinds)}")
    for item in items:
        if type(item) not in kinds:
            raise InputError(f"schedule: {item!r} in the {what}; allowed: {_names(kinds)}")


def _names(kinds: Iterable[type]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)
