"""Races between cores that no semaphore orders: those at different places of their groups.

A semaphore of peers (ir.Semaphore.peers) joins the i-th core of one group with the i-th core of another; cores of
unlike i may have an element of global memory in common only if both read it. This module knows which elements cores
access, and no semaphore; cores at one place are executed together elsewhere (hwsim.program.order.walk_together).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hwsim.errors import ProgramError
from hwsim.program.accesses import Accesses, Rect
from hwsim.program.ir import CoreGroup, Instr
from hwsim.program.resolve import Scope

Ints = npt.NDArray[np.int64]
_WRITTEN, _PLACE, _ACCESS = 4, 5, 6  # columns after those of a rectangle: row, row end, column, column end
ROWS, PAIRS = 200_000, 20_000_000  # accesses of cores that are looked at, pairs that are compared: half a second


class _Access(NamedTuple):
    group: CoreGroup
    instr: Instr
    number: int
    written: bool


def check_apart(
    scope: Scope, numbers: Mapping[int, int], counts: Callable[[int], int], arrays: set[str], stream_instrs: int
) -> None:
    """Raise ProgramError where cores at different places of their groups access an element, one of them to write.

    numbers, counts: as of hwsim.program.accesses.Accesses. arrays: those that are looked at. Accesses after the first
    ROWS unlike ones, pairs after the first PAIRS of an array, and instructions after the first `stream_instrs` of each
    stream are not.
    """
    if all(group.count == 1 for group in scope.kernel.groups):
        return
    accesses: list[_Access] = []
    left = ROWS
    rows_of_array: dict[str, list[Ints]] = {}
    known: dict[tuple[int, int, str, bool], set[bytes]] = {}
    of = Accesses(scope, numbers, counts, arrays, has_buffers=False)
    for group, instr, number, (name, rect, written) in _of_all_cores(of, stream_instrs):
        rows = _rows(rect, written, group.count, len(accesses))
        seen = known.setdefault((group.first, number, name, written), set())
        if (key := rows[:, :_ACCESS].tobytes()) not in seen:  # a loop that stays where it is
            if (left := left - group.count) < 0:
                break
            seen.add(key)
            accesses.append(_Access(group, instr, number, written))
            rows_of_array.setdefault(name, []).append(rows)
    for name, parts in rows_of_array.items():
        if (pair := _meeting(np.concatenate(parts))) is not None:
            raise ProgramError(_text(scope, name, *[(accesses[access], int(place)) for place, access in pair]))


def _of_all_cores(of: Accesses, stream_instrs: int) -> Iterator[tuple[CoreGroup, Instr, int, tuple[str, Rect, bool]]]:
    """(group, instruction, its position, (array, rectangle, written)); bounds of a rectangle that differ by core are
    NumPy integers, one for each core of the group.
    """
    for group in of.scope.kernel.groups:
        cores = np.arange(group.first, group.first + group.count)
        for stream in group.streams:
            for issued in islice(of.along(stream, cores), stream_instrs):
                for name, _, rect, written in issued.accesses:
                    yield group, issued.instr, issued.index, (name, rect, written)


def _rows(rect: Rect, written: bool, count: int, access: int) -> Ints:
    """int64 (count, 7), a row for each core of a group: its rectangle, whether it is written, its place, the index of
    the access.
    """
    rows = np.empty((count, 7), np.int64)
    for column, bound in enumerate(rect):
        rows[:, column] = bound
    rows[:, _WRITTEN], rows[:, _PLACE], rows[:, _ACCESS] = written, np.arange(count), access
    return rows


def _meeting(rows: Ints) -> list[tuple[int, int]] | None:
    """(place, access) of two rows of different places that share an element, one of them written; None: there is none.

    rows: int64 (n, 7), as of _rows. Sorted along the axis on which rectangles begin at more places, each is compared
    with the next one, the one after it and so on, as long as any still begins before the other ends.
    """
    low = max(0, 2, key=lambda axis: len(np.unique(rows[:, axis])))
    rows = rows[np.argsort(rows[:, low], kind="stable")]
    compared = 0
    for distance in range(1, len(rows)):
        first, other = rows[:-distance], rows[distance:]
        is_beside = other[:, low] < first[:, low + 1]
        compared += len(first)
        if compared > PAIRS or not is_beside.any():
            return None
        meets = is_beside.copy()
        for start, end in ((0, 1), (2, 3)):
            meets &= (first[:, start] < other[:, end]) & (other[:, start] < first[:, end])
        meets &= (first[:, _PLACE] != other[:, _PLACE]) & (first[:, _WRITTEN] | other[:, _WRITTEN]).astype(bool)
        if meets.any():
            at = int(np.argmax(meets))
            return [(int(x[at, _PLACE]), int(x[at, _ACCESS])) for x in (first, other)]
    return None


def _text(scope: Scope, name: str, first: tuple[_Access, int], second: tuple[_Access, int]) -> str:
    said = [
        f"{scope.place(access.number, access.instr)} of core {access.group.first + place} "
        f"{'writes' if access.written else 'reads'}"
        for access, place in (first, second)
    ]
    return (
        f"array '{name}': {said[0]} and {said[1]} an element; cores at different places of their groups are no peers, "
        "and no semaphore orders the two"
    )
