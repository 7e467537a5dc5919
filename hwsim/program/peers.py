"""Semaphores of peers (ir.Semaphore.peers): which groups of cores await which others, and the rules that they keep.

It knows the text of a kernel; accesses that they order are those of hwsim.program.order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hwsim.errors import DeadlockError, ProgramError
from hwsim.program.ir import GlobalTile, Instr, Kernel, Loop, StreamItem

Balance = Mapping[str, tuple[int, int]]  # by semaphore: signalled, awaited


def names_of(kernel: Kernel) -> frozenset[str]:
    """The names of its semaphores of peers."""
    return frozenset([semaphore.name for semaphore in kernel.semaphores if semaphore.peers])


def turns(kernel: Kernel) -> tuple[tuple[int, ...], ...]:
    """The groups in turns, by index: each awaits only what groups of earlier turns signal.

    Raises ProgramError where groups await one another in a circle.
    """
    names, rest = names_of(kernel), list(range(len(kernel.groups)))
    if not names:
        return (tuple(rest),)
    in_turns: list[tuple[int, ...]] = []
    signalled, awaited = _used(kernel, names)
    while rest:
        turn = tuple([group for group in rest if not any(signalled[other] & awaited[group] for other in rest)])
        if not turn:
            circle = ", ".join(f"core {kernel.groups[group].first}" for group in rest)
            raise ProgramError(
                f"kernel '{kernel.name}': groups of cores await one another in a circle ({circle} are the first of "
                "them); a group may await only what others signal that do not await it"
            )
        in_turns.append(turn)
        rest = [group for group in rest if group not in turn]
    return tuple(in_turns)


def check_peers(kernel: Kernel, balances: Sequence[Balance]) -> None:
    """Raise ProgramError for a semaphore of peers that breaks a rule of such. balances: of a core of each group."""
    for semaphore in kernel.semaphores:
        if not semaphore.peers:
            continue
        place = f"kernel '{kernel.name}': semaphore '{semaphore.name}' of peers"
        if semaphore.initial or semaphore.pieces:
            raise ProgramError(f"{place} begins at {semaphore.initial}; it must begin at 0 and not be in pieces")
        pairs = zip(kernel.groups, balances, strict=True)
        using = [(group, balance[semaphore.name]) for group, balance in pairs if any(balance.get(semaphore.name, ()))]
        counts = {group.count for group, _ in using}
        if len(counts) > 1:
            raise ProgramError(f"{place} is of groups of {sorted(counts)} cores; they must be equally large")
        signalled, awaited = (sum(both[side] for _, both in using) for side in (0, 1))
        if signalled != awaited:
            raise DeadlockError(f"{place} leaks: {signalled} signalled, {awaited} awaited; every wait needs its signal")
    turns(kernel)


def written_arrays(kernel: Kernel) -> set[str]:
    """The global arrays that the kernel writes."""
    return {tile.array for instr in kernel.instrs() for tile in instr.writes if isinstance(tile, GlobalTile)}


def _used(kernel: Kernel, names: frozenset[str]) -> tuple[list[set[str]], list[set[str]]]:
    """Of each group, which of these semaphores it signals, and which it awaits."""
    signalled: list[set[str]] = [set() for _ in kernel.groups]
    awaited: list[set[str]] = [set() for _ in kernel.groups]

    def visit(body: tuple[StreamItem, ...], group: int) -> None:
        for node in body:
            if isinstance(node, Loop):
                visit(node.body, group)
            elif isinstance(node, Instr):
                signalled[group] |= {sync.semaphore for sync in node.signals} & names
                awaited[group] |= {sync.semaphore for sync in node.waits} & names

    for number, group in enumerate(kernel.groups):
        for stream in group.streams:
            visit(stream.body, number)
    return signalled, awaited
