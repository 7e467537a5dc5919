"""The elements of a product whose instructions are wanted, and what was found of them, matrix by matrix of a stack.

It knows places in C; it knows no program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hwsim.errors import InputError
from hwsim.machines.element_steps import ElementStep

ElementIndex = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """asked: places as the caller named them. matrices: by a matrix's indices in the stack, its elements, each the
    caller's name of the place and (row, column). steps: by the caller's names, filled while the product is computed.
    """

    asked: tuple[ElementIndex, ...]
    matrices: dict[ElementIndex, list[tuple[ElementIndex, tuple[int, int]]]]
    steps: dict[ElementIndex, tuple[ElementStep, ...]] = field(default_factory=dict)

    def of_matrix(self, index: ElementIndex) -> list[tuple[int, int]]:
        """Rows and columns of one matrix's elements."""
        return [place for _, place in self.matrices.get(index, ())]

    def add(self, index: ElementIndex, found: Sequence[tuple[ElementStep, ...]]) -> None:
        """The instructions of the elements of `of_matrix`."""
        for (name, _), steps in zip(self.matrices.get(index, ()), found, strict=True):
            self.steps[name] = steps

    @property
    def result(self) -> dict[ElementIndex, tuple[ElementStep, ...]]:
        """The instructions of all elements, in the order asked for."""
        return {place: self.steps[place] for place in self.asked}


def followed(asked: Sequence[Sequence[int]] | None, shape: ElementIndex) -> Followed | None:
    """The elements asked for, None where there are none. shape: of C, leading dimensions of a stack first.

    Raises InputError for a place that C does not have.
    """
    if asked is None:
        return None
    matrices: dict[ElementIndex, list[tuple[ElementIndex, tuple[int, int]]]] = {}
    names = tuple([tuple(place) for place in asked])
    for place in names:
        whole = (*(0,) * (len(shape) - 2), *place) if len(place) == 2 else place  # of the first matrix
        if len(whole) != len(shape) or any(index >= extent for index, extent in zip(whole, shape, strict=True)):
            stack = "" if len(shape) == 2 else ", or a row and a column alone for the first matrix"
            raise InputError(f"values: {place}; allowed: indices below {shape}, the shape of C{stack}")
        matrices.setdefault(whole[:-2], []).append((place, (whole[-2], whole[-1])))
    return Followed(names, matrices)
