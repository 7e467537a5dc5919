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
    return Executed(sum(count.total for count in kernels), sum(count.longest for count in kernels))


def _of_kernel(kernel: Kernel) -> Executed:
    total = longest = 0
    for group in (kernel.original or kernel).groups:  # a copy's streams would be made for the counts alone
        of_core = sum(_count(stream.body) for stream in group.streams)
        total += group.count * of_core
        longest = max(longest, of_core)
    return Executed(total, longest)


def _count(body: Iterable[StreamItem]) -> int:
    count = 0
    for node in body:
        if isinstance(node, Instr):
            count += 1
        elif isinstance(node, Loop):
            count += node.count * _count(node.body)
    return count


def by_opcode(program: Program) -> dict[str, int]:
    """Instructions of all cores in all kernels by opcode; one that is repeated counts each time."""
    counts: Counter[str] = Counter()
    for kernel in program.kernels:
        for group in kernel.groups:
            for stream in group.streams:
                _count_opcodes(stream.body, group.count, counts)
    return dict(sorted(counts.items()))


def _count_opcodes(body: Iterable[StreamItem], times: int, counts: Counter[str]) -> None:
    for node in body:
        if isinstance(node, Instr):
            counts[node.opcode] += times * node.repeat
        elif isinstance(node, Loop) and node.count:
            _count_opcodes(node.body, times * node.count, counts)
