"""The text of a core's streams: instructions with the bounds of their variables, and counts of signals and waits.

It executes nothing. It refuses names and counts for which a text has no meaning; it knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hwsim.errors import ProgramError
from hwsim.program.bounds import OUTSIDE, Bounds
from hwsim.program.ir import CORE, Advance, CoreGroup, Instr, Kernel, Loop, Stream, StreamItem
from hwsim.program.places import Balance


def instructions(kernel: Kernel, group: CoreGroup, stream: Stream) -> Iterator[tuple[Instr, Bounds]]:
    """Every instruction with the bounds of its variables, in the order of numbering. Raises ProgramError for loops,
    counters and derived variables that share a name or cannot be evaluated.
    """
    ranges: dict[str, tuple[int, int]] = {CORE: (group.first, group.first + group.count - 1)}
    derived = {variable.name: variable for variable in stream.derived}
    advanced: set[str] = set()

    def declare(body: tuple[StreamItem, ...]) -> None:
        for node in body:
            if isinstance(node, Advance):
                advanced.add(node.counter)
            elif isinstance(node, Loop):
                if node.count < 0:
                    raise ProgramError(f"kernel '{kernel.name}': loop '{node.name}' has count {node.count}")
                if node.name in ranges:
                    raise ProgramError(
                        f"kernel '{kernel.name}', stream '{stream.name}': two loops are called '{node.name}'"
                    )
                ranges[node.name] = OUTSIDE
                declare(node.body)

    def visit(body: tuple[StreamItem, ...]) -> Iterator[tuple[Instr, Bounds]]:
        bounds = Bounds(ranges.copy(), derived)
        for node in body:
            if isinstance(node, Instr):
                yield node, bounds
            elif isinstance(node, Loop) and node.count:
                ranges[node.name] = (0, node.count - 1)
                yield from visit(node.body)
                ranges[node.name] = OUTSIDE

    declare(stream.body)
    for name in advanced:
        if name in ranges:
            raise ProgramError(
                f"kernel '{kernel.name}', stream '{stream.name}': '{name}' is advanced, and is a loop or CORE"
            )
    _check_derived(kernel, stream, {*ranges, *advanced})
    return visit(stream.body)


def _check_derived(kernel: Kernel, stream: Stream, taken: set[str]) -> None:
    """Refuse derived variables that cannot be evaluated; `taken`: names of loops, counters and CORE."""
    later = [variable.name for variable in stream.derived]
    for variable in stream.derived:
        where = f"kernel '{kernel.name}', stream '{stream.name}': derived variable '{variable.name}'"
        if variable.divisor < 1:
            raise ProgramError(f"{where} has divisor {variable.divisor}; it must be at least 1")
        if variable.name in taken:
            raise ProgramError(f"{where}: a loop, a counter, CORE or another derived variable has that name")
        for name, _ in variable.of.terms:
            if name in later and name not in taken:
                raise ProgramError(f"{where} depends on '{name}', which is derived after it; put that first")
        taken.add(variable.name)


def balances_of(group: CoreGroup, counts: Callable[[int], int]) -> tuple[Balance, Balance]:
    """Per semaphore, the total that a core of `group` signals and waits for; also with `counts` in place of the loop
    counts.
    """
    sums: dict[str, list[int]] = {}

    def visit(body: tuple[StreamItem, ...], whole: int, few: int) -> None:
        for node in body:
            if isinstance(node, Instr):
                for first, syncs in enumerate((node.signals, node.waits)):
                    for sync in syncs:
                        of = sums.setdefault(sync.semaphore, [0, 0, 0, 0])
                        of[first] += whole * sync.count
                        of[first + 2] += few * sync.count
            elif isinstance(node, Loop):
                visit(node.body, whole * node.count, few * counts(node.count))

    for stream in group.streams:
        visit(stream.body, 1, 1)
    return {name: (of[0], of[1]) for name, of in sums.items()}, {name: (of[2], of[3]) for name, of in sums.items()}
