"""Abstract execution of one core, or of peers together: finds deadlocks and unordered accesses, with vector clocks.

Every engine is a thread of in-order instructions, so two instructions of one engine are ordered. A semaphore is a queue
of tokens; a token carries the clock of its signaller, and a wait joins the clocks of the tokens it takes. Time is not
modelled: an instruction runs as soon as its queue has space for it and its waits can be satisfied.

What peers signal (ir.Semaphore.peers) is there for a core that is executed alone, and orders nothing; `walk_together`
executes one core of each group, and looks at some arrays in global memory.

`counts` replaces the loop counts, so that a long program can be executed in short form; what is found that way is only
a suspicion (hwsim.program.check repeats with the true counts before it refuses).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hwsim._kernels.engine import in_order
from hwsim.errors import DeadlockError, ProgramError
from hwsim.program.accesses import Accesses, Issued, Rect
from hwsim.program.flat import TILE_GLOBAL, FlatKernel
from hwsim.program.ir import AnyTile, CoreGroup, GlobalTile, Instr, Kernel, Loop, StreamItem
from hwsim.program.resolve import Scope

if TYPE_CHECKING:
    from hwsim.devices.device import Device

Clock = dict[str, int]


def walk(
    scope: Scope, group: CoreGroup, numbers: Mapping[int, int], counts: Callable[[int], int], most_instrs: int
) -> None:
    """Execute the streams of a core of `group` abstractly, until `most_instrs` instructions or more have run.

    numbers: position of an instruction in the kernel, by id() of the object. counts: passes taken of a loop
    with that count. Raises ProgramError for a deadlock, or two unordered accesses to overlapping elements of
    one slot, or of one global array, of which one is a write.
    """
    _Walk(scope, group, numbers, counts).run(most_instrs)


def walk_together(
    scope: Scope,
    numbers: Mapping[int, int],
    counts: Callable[[int], int],
    arrays: set[str],
    place: int,
    mean_instrs: int,
) -> None:
    """Execute the core at one place of every group abstractly, all together. counts: as of `walk`.

    arrays: those of which the accesses must be ordered. place: 0 is the first core of a group; the last where there
    are fewer. mean_instrs: instructions of a core on average, over all of them; what comes after is not seen. Raises
    ProgramError as `walk` does.
    """
    peers = {semaphore.name: deque[Clock]() for semaphore in scope.kernel.semaphores if semaphore.peers}
    shared = _Shared(peers, {}, {}, arrays)
    walks = [
        _Walk(scope, group, numbers, counts, shared, group.first + min(place, group.count - 1))
        for group in scope.kernel.groups
    ]
    left = mean_instrs * len(walks)
    while left > 0:
        done = sum(core_walk.advance() for core_walk in walks)
        left -= done
        if not done:
            for core_walk in walks:
                core_walk.end()
            return


class Walker:
    """A compiled version of `walk` for all groups of a kernel, which only says whether there is a violation; `walk`
    reports it.

    engines, flat: of the kernel, as from hwsim.program.flat.flattened.
    """

    def __init__(self, kernel: Kernel, device: Device, engines: tuple[str, ...], flat: FlatKernel) -> None:
        self.kernel, self.flat = kernel, flat
        slots = flat.buffer_slots
        depths = [device.engines[name].queue_depth for name in engines]
        self.tables = {
            **flat.walked,
            "queue_depth": np.array(depths, np.int64),
            "buffer_slots": slots,
            "first_slot": np.cumsum(slots) - slots,
        }
        self.arrays = 1 + max(flat.tile[flat.tile[:, 0] == TILE_GLOBAL, 1].tolist(), default=-1)

    def is_orderly(self, group: int, period: int, most_instrs: int) -> bool:
        """Whether `walk` of a core of that group finds no violation. False also where only `walk` can decide.

        period: loops of more than three of them take two and what the count leaves (0: all take all passes).
        """
        first = sum(len(earlier.streams) for earlier in self.kernel.groups[:group])
        cores = self.kernel.groups[group]
        return in_order(self.tables, first, len(cores.streams), cores.first, self.arrays, period, most_instrs)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What cores that are executed together share: tokens of peers, clocks by engine and core, accesses, arrays."""

    tokens: dict[str, deque[Clock]]
    clocks: dict[str, Clock]
    seen: dict[tuple[str, int], dict[tuple[str, Rect, bool], tuple[int, Issued]]]
    arrays: set[str]


class _Walk:
    def __init__(
        self,
        scope: Scope,
        group: CoreGroup,
        numbers: Mapping[int, int],
        counts: Callable[[int], int],
        shared: _Shared | None = None,
        core: int | None = None,
    ) -> None:
        """core: the group's first, unless given. shared: what cores that are executed together have in common."""
        self.scope, self.core = scope, group.first if core is None else core
        arrays = _watched_arrays(group) if shared is None else shared.arrays
        of = Accesses(scope, numbers, counts, arrays, has_buffers=shared is None)
        self.streams = [of.along(stream, self.core) for stream in group.streams]
        self.queues: dict[str, deque[Issued]] = {name: deque() for name in scope.device.engines}
        self.clocks: dict[str, Clock] = {} if shared is None else shared.clocks
        self.threads = {name: name if shared is None else f"{name} of core {self.core}" for name in self.queues}
        self.clocks |= {thread: {} for thread in self.threads.values()}
        self.tokens: dict[str, deque[Clock]] = {} if shared is None else dict(shared.tokens)
        for semaphore in scope.kernel.semaphores:
            if not semaphore.peers:
                self.tokens[semaphore.name] = deque({} for _ in range(semaphore.initial))
        # (object, slot) -> (engine, rectangle, written) -> latest tick and instruction: earlier ones are ordered too
        self.seen: dict[tuple[str, int], dict[tuple[str, Rect, bool], tuple[int, Issued]]] = (
            {} if shared is None else shared.seen
        )
        self.heads = [next(stream, None) for stream in self.streams]

    def run(self, most_instrs: int) -> None:
        """Issue and execute until everything is done, nothing can go on, or `most_instrs` instructions have run."""
        left = most_instrs
        while left > 0:
            done = self.advance()
            left -= done
            if not done:
                self.end()
                return

    def advance(self) -> int:
        """Issue what the queues have room for and execute what can go on; returns the number of instructions."""
        for i, stream in enumerate(self.streams):
            head = self.heads[i]
            while head is not None:
                queue = self.queues[head.instr.engine]
                if len(queue) >= self.scope.device.engines[head.instr.engine].queue_depth:
                    break
                queue.append(head)
                head = next(stream, None)
            self.heads[i] = head
        done = 0
        for engine, queue in self.queues.items():
            while queue and self._takes(engine, queue[0]):
                self._execute(engine, queue.popleft())
                done += 1
        return done

    def end(self) -> None:
        """Raise where nothing can go on and something is left."""
        if any(self.queues.values()):
            raise DeadlockError(self._deadlock())

    def _takes(self, engine: str, queued: Issued) -> bool:
        waits = queued.instr.waits
        if not waits:
            return True
        needs: dict[str, int] = {}
        for wait in waits:
            if wait.semaphore in self.tokens:
                needs[wait.semaphore] = needs.get(wait.semaphore, 0) + wait.count
        if any(len(self.tokens[name]) < count for name, count in needs.items()):
            return False
        clock = self.clocks[self.threads[engine]]
        for name, count in needs.items():
            tokens = self.tokens[name]
            for _ in range(count):
                for other, tick in tokens.popleft().items():
                    if clock.get(other, 0) < tick:
                        clock[other] = tick
        return True

    def _execute(self, engine: str, queued: Issued) -> None:
        thread = self.threads[engine]
        clock = self.clocks[thread]
        tick = clock[thread] = clock.get(thread, 0) + 1
        for name, slot, rect, written in queued.accesses:
            seen = self.seen.setdefault((name, slot), {})
            for (other, there, other_written), (when, before) in seen.items():
                if (written or other_written) and other != thread and clock.get(other, 0) < when and _meet(rect, there):
                    raise ProgramError(self._conflict(name, slot, queued, written, before, other_written))
            seen[thread, rect, written] = (tick, queued)
        if queued.instr.signals:
            token = dict(clock)
            for signal in queued.instr.signals:
                if signal.semaphore not in self.tokens:  # peers', of a core that is executed alone
                    continue
                self.tokens[signal.semaphore].extend([token] * signal.count)

    def _deadlock(self) -> str:
        lines = []
        for queue in self.queues.values():
            if not queue:
                continue
            waits = [wait for wait in queue[0].instr.waits if wait.semaphore in self.tokens]
            wait = next(
                w
                for w in waits
                if len(self.tokens[w.semaphore]) < sum(other.count for other in waits if other.semaphore == w.semaphore)
            )
            needs = sum(other.count for other in waits if other.semaphore == wait.semaphore)
            lines.append(
                f"{self.scope.place(queue[0].index, queue[0].instr)} waits for semaphore "
                f"'{wait.semaphore}': has {len(self.tokens[wait.semaphore])}, needs {needs}"
            )
        return f"deadlock on core {self.core}: nothing can proceed.\n" + "\n".join(lines[:8])

    def _conflict(
        self, name: str, slot: int, queued: Issued, written: bool, before: Issued, other_written: bool
    ) -> str:
        where = f"slot {slot} of buffer '{name}'" if slot >= 0 else f"array '{name}'"
        return (
            f"{self.scope.place(queued.index, queued.instr)} {_verb(written)} {where}, which "
            f"instruction {before.index}, {before.instr.opcode}"
            f"{f' {before.instr.label!r}' if before.instr.label else ''} on {before.instr.engine}, "
            f"{_verb(other_written)}; no semaphore orders the two"
        )


def _watched_arrays(group: CoreGroup) -> set[str]:
    """Arrays that one engine of the core writes and another reads or writes."""
    engines: dict[str, set[str]] = {}
    writes: set[str] = set()

    def note(tile: AnyTile, engine: str, written: bool) -> None:
        if isinstance(tile, GlobalTile):
            engines.setdefault(tile.array, set()).add(engine)
            if written:
                writes.add(tile.array)

    def visit(body: tuple[StreamItem, ...]) -> None:
        for node in body:
            if isinstance(node, Loop):
                visit(node.body)
            elif isinstance(node, Instr):
                for tile in node.writes:
                    note(tile, node.engine, True)
                for tile in node.reads:
                    note(tile, node.engine, False)

    for stream in group.streams:
        visit(stream.body)
    return {name for name in writes if len(engines[name]) > 1}


def _meet(a: Rect, b: Rect) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def _verb(written: bool) -> str:
    return "writes" if written else "reads"
