"""Fast path of the static checker: address bounds, variable scopes and semaphore counts in one pass over the tables.

It accepts a kernel or raises UnsureError, without naming an instruction; hwsim.program.check then checks instruction by
instruction and reports the violation, if there is one. Intervals as in hwsim.program.bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwsim.program.flat import (
    INSTR_COLUMNS,
    NODE_ADVANCE,
    NODE_INSTR,
    NODE_LOOP,
    OPCODES,
    TILE_LOCAL,
    FlatKernel,
)
from hwsim.program.ir import GlobalArray, Kernel

_OPCODE, _FIRST_TILE, _WRITES, _READS, _FIRST_WAIT, _WAITS, _FIRST_SIGNAL, _SIGNALS, _ZERO_AT = (
    INSTR_COLUMNS.index(name)
    for name in (
        "opcode",
        "first_tile",
        "writes",
        "reads",
        "first_wait",
        "waits",
        "first_signal",
        "signals",
        "zero_at",
    )
)
_MMA = OPCODES.index("mma")
Balance = dict[str, tuple[int, int]]  # by semaphore: signalled, awaited


# The values of a variable or an expression: minimum (None: it depends on a counter), maximum; and its scope: nodes
# begin .. end - 1 of the stream.
_Values = tuple[int | None, int, int, int]


class UnsureError(Exception):
    """A rule may be violated, or cannot be decided on the tables."""


class Places:
    """The tables of one kernel as lists, which are faster than arrays to read one value at a time."""

    def __init__(self, kernel: Kernel, flat: FlatKernel, arrays: Sequence[GlobalArray]) -> None:
        self.kernel = kernel
        self.extents = [one.stored for one in arrays]
        self.instr, self.tile, self.sync = flat.instr.tolist(), flat.tile.tolist(), flat.sync.tolist()
        self.affine, self.term = flat.affine.tolist(), flat.term.tolist()
        self.zero_list, self.zero_variable = flat.zero_list.tolist(), flat.zero_variable.tolist()
        self.node, self.derived = flat.walked["node"].tolist(), flat.walked["derived"].tolist()
        self.stream = flat.walked["stream"].tolist()
        self.first_streams = [0]
        for group in kernel.groups:
            self.first_streams.append(self.first_streams[-1] + len(group.streams))
        if flat.skipped or any(count < 1 for _, count in self.sync):
            raise UnsureError

    def group(self, number: int, counts: Callable[[int], int]) -> tuple[Balance, Balance]:
        """Check the streams of a group; the total that one of its cores signals and waits for, per semaphore.

        The second result has the same totals with loop counts replaced by `counts` of them. Raises UnsureError.
        """
        group = self.kernel.groups[number]
        sums = [[0, 0, 0, 0] for _ in self.kernel.semaphores]
        for stream in range(self.first_streams[number], self.first_streams[number + 1]):
            _Stream(self, stream, group.first, group.count).walk(counts, sums)
        named = list(zip((one.name for one in self.kernel.semaphores), sums, strict=True))
        return {name: (of[0], of[1]) for name, of in named}, {name: (of[2], of[3]) for name, of in named}


class _Stream:
    """Checks one stream. variables: by number, with None as the minimum of a counter; affines: cached, by row."""

    def __init__(self, of: Places, number: int, first_core: int, cores: int) -> None:
        first, nodes, variables, first_derived, derived = of.stream[number]
        self.of, self.nodes = of, of.node[first : first + nodes]
        self.variables: list[_Values] = [(None, 0, 0, nodes)] * variables
        self.affines: dict[int, _Values] = {}
        self.variables[0] = first_core, first_core + cores - 1, 0, nodes
        named = {0}
        advanced = set()
        for at, (kind, index, count, jump) in enumerate(self.nodes):
            if kind == NODE_LOOP:
                if index in named or count < 1:
                    raise UnsureError
                named.add(index)
                self.variables[index] = 0, count - 1, at, jump
            elif kind == NODE_ADVANCE:
                advanced.add(index)
        if not named.isdisjoint(advanced):
            raise UnsureError
        self.loops = frozenset(named)  # and CORE
        self._derive(of.derived[first_derived : first_derived + derived], named | advanced)

    def _derive(self, rows: list[list[int]], taken: set[int]) -> None:
        later = {row[0] for row in rows}
        if len(later) < len(rows) or not later.isdisjoint(taken):
            raise UnsureError
        for variable, affine, divisor, part in rows:
            _, first, terms = self.of.affine[affine]
            if divisor < 1 or any(index in later for index, _ in self.of.term[first : first + terms]):
                raise UnsureError
            later.remove(variable)
            low, high, begin, end = self._values(affine)
            if part:
                if low is None or low // divisor != high // divisor:
                    low, high = 0, divisor - 1
                else:
                    low, high = low % divisor, high % divisor
            elif low is not None:
                low, high = low // divisor, high // divisor
            self.variables[variable] = low, high, begin, end

    def _values(self, affine: int) -> _Values:
        known = self.affines.get(affine)
        if known is not None:
            return known
        constant, first, terms = self.of.affine[affine]
        low: int | None = constant
        high, begin, end = constant, 0, len(self.nodes)
        for index, coefficient in self.of.term[first : first + terms]:
            least, most, after, before = self.variables[index]
            begin, end = max(begin, after), min(end, before)
            if low is None or least is None:
                low = None
            elif coefficient < 0:
                low, high = low + coefficient * most, high + coefficient * least
            else:
                low, high = low + coefficient * least, high + coefficient * most
        known = self.affines[affine] = low, high, begin, end
        return known

    def walk(self, counts: Callable[[int], int], sums: list[list[int]]) -> None:
        """Check every instruction, and add its signals and waits to `sums`.

        A row of sums has signals and waits of a semaphore with the true loop counts, then with `counts` of them.
        """
        sync, instrs = self.of.sync, self.of.instr
        whole = few = 1
        outer: list[tuple[int, int]] = []
        for at, (kind, index, count, _) in enumerate(self.nodes):
            if kind == NODE_INSTR:
                instr = instrs[index]
                for tile in range(instr[_FIRST_TILE], instr[_FIRST_TILE] + instr[_WRITES] + instr[_READS]):
                    self._tile(at, self.of.tile[tile])
                if instr[_OPCODE] == _MMA and instr[_ZERO_AT] >= 0:
                    self._zero_at(at, instr[_ZERO_AT])
                for first, number, side in (
                    (instr[_FIRST_SIGNAL], instr[_SIGNALS], 0),
                    (instr[_FIRST_WAIT], instr[_WAITS], 1),
                ):
                    for semaphore, times in sync[first : first + number]:
                        of = sums[semaphore]
                        of[side] += whole * times
                        of[side + 2] += few * times
            elif kind == NODE_LOOP:
                outer.append((whole, few))
                whole, few = whole * count, few * counts(count)
            elif kind != NODE_ADVANCE:
                whole, few = outer.pop()

    def _tile(self, at: int, tile: list[int]) -> None:
        kind, number, rows, cols, row, col, slot, _, _ = tile
        if kind == TILE_LOCAL:
            self._inside(at, slot)
            return
        extents = self.of.extents[number]
        for affine, size, extent in ((row, rows, extents[0]), (col, cols, extents[1])):
            low, high, _, _ = self._inside(at, affine)
            if low is not None and (low < 0 or high + size > extent):
                raise UnsureError

    def _inside(self, at: int, affine: int) -> _Values:
        """The values of an expression at an instruction; raises UnsureError outside the scope of its variables."""
        found = self.affines.get(affine) or self._values(affine)
        if not found[2] <= at < found[3]:
            raise UnsureError
        return found

    def _zero_at(self, at: int, row: int) -> None:
        first, number = self.of.zero_list[row]
        for (index,) in self.of.zero_variable[first : first + number]:
            _, _, begin, end = self.variables[index]
            if index not in self.loops or not begin <= at < end:
                raise UnsureError
