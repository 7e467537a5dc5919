"""The elements of a product whose instructions are wanted, and the instructions, by places in a stack of matrices.

It knows places in C; it knows no program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hwsim.errors import InputError
from hwsim.machines.element_steps import ElementStep

ElementIndex = tuple[int, ...]
MATRIX = 2  # dimensions


@dataclass(frozen=True, slots=True)
class FollowedPart:
    """The elements of one execution of a program. names: as the caller named them. places: (row, column) of the
    program's output.
    """

    names: tuple[ElementIndex, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """indices: by the caller's name of an element, its indices in C, those in the stack first. steps: by the caller's
    names, filled while the product is computed.
    """

    indices: Mapping[ElementIndex, ElementIndex]
    steps: dict[ElementIndex, tuple[ElementStep, ...]] = field(default_factory=dict)

    def of_runs(self, lead: ElementIndex, rows: int, *, in_one: bool) -> Iterator[FollowedPart]:
        """The elements of each execution of the program. lead: extents of the stack. rows: of one matrix. in_one: one
        execution computes all matrices, one below another; else each has its own, in C order.
        """
        by_matrix: dict[int, list[tuple[ElementIndex, tuple[int, int]]]] = {}
        for name, (*matrix, row, col) in self.indices.items():
            number = int(np.ravel_multi_index(matrix, lead)) if lead else 0
            place = (number * rows + row, col) if in_one else (row, col)
            by_matrix.setdefault(0 if in_one else number, []).append((name, place))
        for number in range(1 if in_one else int(np.prod(lead, dtype=np.int64))):
            named = by_matrix.get(number, [])
            yield FollowedPart(tuple([name for name, _ in named]), tuple([place for _, place in named]))

    def add(self, part: FollowedPart, steps: Sequence[tuple[ElementStep, ...]]) -> None:
        """Take the instructions of a part's elements."""
        self.steps.update(zip(part.names, steps, strict=True))

    @property
    def result(self) -> dict[ElementIndex, tuple[ElementStep, ...]]:
        """The instructions of all elements, in the order asked for."""
        return {name: self.steps[name] for name in self.indices}


def followed(asked: Sequence[Sequence[int]] | None, shape: ElementIndex) -> Followed | None:
    """The elements asked for, None where there are none. shape: of C, leading dimensions of a stack first.

    Raises InputError for a place that C does not have.
    """
    if asked is None:
        return None
    indices: dict[ElementIndex, ElementIndex] = {}
    for name in map(tuple, asked):
        index = (*(0,) * (len(shape) - MATRIX), *name) if len(name) == MATRIX else name  # of the first matrix
        if len(index) != len(shape) or any(number >= extent for number, extent in zip(index, shape, strict=True)):
            stack = "" if len(shape) == MATRIX else ", or a row and a column alone for the first matrix"
            raise InputError(f"values: {name}; allowed: indices below {shape}, the shape of C{stack}")
        indices[name] = index
    return Followed(indices)
