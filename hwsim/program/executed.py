"""How many instructions a program executes, by its text and the counts of its loops alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hwsim.program.ir import Instr, Kernel, Loop, Program, StreamItem


@dataclass(frozen=True, slots=True)
class Executed:
    """Instructions of all cores together, and of the core that has the most, in all kernels."""

    total: int
    longest: int


def executed(program: Program) -> Executed:
    """What a run of the program executes."""
    kernels = [_of_kernel(kernel) for kernel in program.kernels]
    return Executed(sum(one.total for one in kernels), sum(one.longest for one in kernels))


def _of_kernel(kernel: Kernel) -> Executed:
    total = longest = 0
    for group in kernel.groups:
        own = sum(_count(stream.body) for stream in group.streams)
        total += group.count * own
        longest = max(longest, own)
    return Executed(total, longest)


def _count(body: Iterable[StreamItem]) -> int:
    found = 0
    for node in body:
        if isinstance(node, Instr):
            found += 1
        elif isinstance(node, Loop):
            found += node.count * _count(node.body)
    return found


def by_opcode(program: Program) -> dict[str, int]:
    """Instructions of all cores in all kernels by opcode; one that is repeated counts each time."""
    found: Counter[str] = Counter()
    for kernel in program.kernels:
        for group in kernel.groups:
            for stream in group.streams:
                _count_opcodes(stream.body, group.count, found)
    return dict(sorted(found.items()))


def _count_opcodes(body: Iterable[StreamItem], times: int, found: Counter[str]) -> None:
    for node in body:
        if isinstance(node, Instr):
            found[node.opcode] += times * node.repeat
        elif isinstance(node, Loop) and node.count:
            _count_opcodes(node.body, times * node.count, found)
