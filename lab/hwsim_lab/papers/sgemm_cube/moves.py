"""Counts of what a program moves and where it works: elements by array and memory, cores, block rows.

It expands the loops of hwsim.program.ir and knows neither schemes nor times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from hwsim.program.ir import CORE, Affine, CoreGroup, GlobalTile, Instr, Kernel, LocalTile, Loop, StreamItem


@dataclass(frozen=True, slots=True)
class Executed:
    """An instruction as written, how often each core of the group executes it, and the loops around it."""

    group: CoreGroup
    instr: Instr
    times: int
    loops: dict[str, int]


def executed(kernel: Kernel) -> Iterator[Executed]:
    """Every instruction of a kernel once, with its count."""

    def walk(group: CoreGroup, body: tuple[StreamItem, ...], times: int, loops: dict[str, int]) -> Iterator[Executed]:
        for node in body:
            if isinstance(node, Loop):
                yield from walk(group, node.body, times * node.count, loops | {node.name: node.count})
            elif isinstance(node, Instr):
                yield Executed(group, node, times * node.repeat, loops)

    for group in kernel.groups:
        for stream in group.streams:
            yield from walk(group, stream.body, 1, {})


@dataclass(slots=True)
class Moves:
    """Elements moved by all cores. read, written: by global array. staged: by (array, memory that it is read into)."""

    read: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    written: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    staged: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    cast: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # by the memory that is read
    made: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # by casts, by the buffer that is written
    half: int = 0  # by casts from fp32 to fp16

    @property
    def all(self) -> int:
        """Everything between global memory and the cores, both ways."""
        return sum(self.read.values()) + sum(self.written.values())


def moves(kernel: Kernel) -> Moves:
    """What a kernel moves."""
    found = Moves()
    memory = {buffer.name: buffer.memory for buffer in kernel.buffers}
    for one in executed(kernel):
        cores = one.group.count
        for tile in one.instr.reads:
            elements = tile.rows * tile.cols * one.times * cores
            if isinstance(tile, GlobalTile):
                found.read[tile.array] += elements
                for target in one.instr.writes:
                    if isinstance(target, LocalTile):
                        found.staged[tile.array, memory[target.buffer]] += elements
            elif one.instr.opcode == "cast":
                found.cast[memory[tile.buffer]] += elements
                target = one.instr.writes[0]
                if isinstance(target, LocalTile):
                    found.made[target.buffer] += elements
                    found.half += elements * ((tile.format, target.format) == ("fp32", "fp16"))
        for tile in one.instr.writes:
            if isinstance(tile, GlobalTile):
                found.written[tile.array] += tile.rows * tile.cols * one.times * cores
    return found


def cores_by_row(kernel: Kernel, array: str) -> dict[int, set[int]]:
    """First row of each tile of an array that is read, and the cores that read it."""
    found: dict[int, set[int]] = defaultdict(set)
    for one in executed(kernel):
        for tile in one.instr.reads:
            if isinstance(tile, GlobalTile) and tile.array == array:
                for core in range(one.group.first, one.group.first + one.group.count):
                    for row in _values(tile.row, one.loops, core):
                        found[row].add(core)
    return found


def working_cores(kernel: Kernel) -> set[int]:
    """The cores that multiply matrices."""
    return {
        core
        for one in executed(kernel)
        if one.instr.opcode == "mma" and one.times
        for core in range(one.group.first, one.group.first + one.group.count)
    }


def _values(expression: Affine, loops: dict[str, int], core: int) -> Iterator[int]:
    """Values over all iterations. Raises KeyError for a counter or a derived variable."""
    constant = expression.constant + sum(factor * core for name, factor in expression.terms if name == CORE)
    terms = [(factor, loops[name]) for name, factor in expression.terms if name != CORE]
    for steps in product(*(range(count) for _, count in terms)):
        yield constant + sum(factor * step for (factor, _), step in zip(terms, steps, strict=True))
