"""The static checker: refuses a program that violates a rule of its device, and names the instruction.

It reads a program and a device model; it computes no values and no cycles. Rules that hold for every iteration of a
loop are checked on the text, with the bounds of affine expressions over their loops: names, capacities, alignment; and
of each instruction (hwsim.program.rules) bounds, shapes, formats, engines, links. A leak of a semaphore is also decided
exactly, from the loop counts. Deadlocks and unordered accesses are found by an abstract execution (hwsim.program.order)
of one core per group, in which long loops are shortened.

The shortened execution can miss: what happens only after more iterations than it executes or beyond INSTRS instructions
(the timing machine finds every deadlock, with the full counts); conflicts between cores of kernels without semaphores
of peers (hwsim.program.peers); in those with some, conflicts between cores at one place of their groups other than the
first and the last, which are executed together (of cores at different places what one writes must lie apart from what
others access: hwsim.program.apart, up to its ROWS and PAIRS); conflicts that need another interleaving, when several
engines signal one semaphore. The number of hardware flags that a semaphore needs is not counted (it depends on how far
engines run apart). Addresses in global memory that depend on a counter are not checked against the bounds, nor those
with more than hwsim.program.bounds.POINTS values of loops in quotients and remainders.
There are no false alarms: a violation found with shortened loops counts only if less shortened loops, and then the true
counts, confirm it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING

from hwsim.errors import DeadlockError, ProgramError, nearest
from hwsim.program.apart import check_apart
from hwsim.program.flat import flattened
from hwsim.program.forms import FormCache
from hwsim.program.ir import CoreGroup, GlobalArray, Kernel, Program, Stream
from hwsim.program.order import Walker, walk, walk_together
from hwsim.program.peers import check_peers, names_of, written_arrays
from hwsim.program.places import Balance, Places, UnsureError
from hwsim.program.rename import has_like_arrays
from hwsim.program.resolve import Scope
from hwsim.program.rules import ANYWHERE, Rules
from hwsim.program.streams import balances_of, instructions

if TYPE_CHECKING:
    from hwsim.devices.device import Device

INSTRS = 2000  # of a core that are executed abstractly
CONFIRM_INSTRS = 100_000  # the same with true counts, once there is a suspicion
_FEW_SLOTS = 16  # shortened loops keep their count modulo the slots of rings, up to this common multiple;
_MANY_SLOTS = 1024  # up to this one in the second look, after a suspicion


def check(program: Program, device: Device) -> None:
    """Check `program` against every rule of `device`; raises ProgramError at the first violation."""
    checked: set[int] = set()  # by id()
    for kernel in program.kernels:
        # A renamed copy of a checked kernel on equal arrays violates no rule either.
        if id(kernel.original) not in checked or not has_like_arrays(kernel, program.arrays):
            _Checker(Scope(kernel, program.arrays, device), program.arrays).check()
        checked.add(id(kernel))


class _Checker:
    """Checks one kernel.

    The tables are checked first, which is fast but names no instruction. If they may violate a rule, each instruction
    is checked on its own, which gives the error message.
    """

    def __init__(self, scope: Scope, arrays: tuple[GlobalArray, ...]) -> None:
        self.scope, self.kernel, self.device, self.arrays = scope, scope.kernel, scope.device, arrays
        self.semaphores = {semaphore.name for semaphore in self.kernel.semaphores}
        self.peers = names_of(self.kernel)

    def check(self) -> None:
        """Run all checks: the static ones first, because the abstract execution relies on them."""
        _unique(self.kernel, "buffer", [b.name for b in self.kernel.buffers])
        _unique(self.kernel, "semaphore", [s.name for s in self.kernel.semaphores])
        self._capacity()
        self._cores()
        period = _period([buffer.slots for buffer in self.kernel.buffers], _FEW_SLOTS)
        fews = [_Shortened(period) for _ in self.kernel.groups]
        balances = self._on_tables(fews)
        if balances is None:
            self._one_by_one()
            balances = [balances_of(group, few) for group, few in zip(self.kernel.groups, fews, strict=True)]
        walker = Walker(self.kernel, self.device, *flattened(self.kernel, self.arrays, self.device.engines))
        done: list[tuple[Stream, ...]] = []
        for number, (group, few) in enumerate(zip(self.kernel.groups, fews, strict=True)):
            if group.streams not in done:
                done.append(group.streams)
                self._order(group, number, walker, few, balances[number])
        if self.peers:
            self._together([balance for balance, _ in balances])

    def _on_tables(self, fews: list[_Shortened]) -> list[tuple[Balance, Balance]] | None:
        """Check the tables against all rules except those of order. Returns the balances of each group (see
        hwsim.program.streams.balances_of), or None if a rule may be violated.
        """
        try:
            _, flat = flattened(self.kernel, self.arrays, self.device.engines)
            known = _FORMS_CHECKED.of(self.device)
            for i, instr, form in zip(flat.firsts, flat.examples, flat.forms, strict=True):
                if form not in known:
                    Rules(self.scope, self.semaphores, i, instr, ANYWHERE).check()
                    known[form] = True
            places = Places(self.kernel, flat, self.arrays)
            balances = [places.group(number, few.period) for number, few in enumerate(fews)]
            leaks = any(self._own_leaks(balance) for balance, _ in balances)
            return None if leaks else balances
        except (KeyError, ProgramError, UnsureError):
            return None

    def _one_by_one(self) -> None:
        """Check each instruction against all rules except those of order; raise at the first violation."""
        number = 0
        for group in self.kernel.groups:
            for stream in group.streams:
                for instr, bounds in instructions(self.kernel, group, stream):
                    Rules(self.scope, self.semaphores, number, instr, bounds).check()
                    number += 1

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """The position of each instruction in the kernel, by id() of the object."""
        numbers: dict[int, int] = {}
        for number, instr in enumerate(self.kernel.instrs()):
            numbers.setdefault(id(instr), number)
        return numbers

    def _fail(self, text: str) -> ProgramError:
        return ProgramError(f"kernel '{self.kernel.name}': {text}")

    def _capacity(self) -> None:
        for buffer in self.kernel.buffers:
            memory = self.device.memories.get(buffer.memory)
            if memory is None:
                raise self._fail(
                    f"buffer '{buffer.name}': {self.device.name} has no memory '{buffer.memory}' "
                    f"(it has {', '.join(self.device.memories)}){nearest(buffer.memory, list(self.device.memories))}"
                )
            if buffer.slots < 1 or buffer.slot_bytes < 1:
                raise self._fail(
                    f"buffer '{buffer.name}': {buffer.slots} slots of {buffer.slot_bytes} bytes; "
                    "both must be at least 1"
                )
            if buffer.spread < 1 or self.device.cores % buffer.spread:
                raise self._fail(
                    f"buffer '{buffer.name}': spread over {buffer.spread} cores; {self.device.name} has "
                    f"{self.device.cores}; allowed: divisors of that"
                )
            if buffer.slot_bytes % (memory.align_bytes * buffer.spread):
                raise self._fail(
                    f"buffer '{buffer.name}': slots of {buffer.slot_bytes} bytes; {buffer.memory} needs "
                    f"a multiple of {memory.align_bytes * buffer.spread}"
                )
            if not 0 <= buffer.spilled <= buffer.slots * buffer.slot_bytes // buffer.spread:
                raise self._fail(
                    f"buffer '{buffer.name}': {buffer.spilled} bytes spilled; allowed: at most "
                    f"{buffer.slots * buffer.slot_bytes // buffer.spread}"
                )
        for name, size in self.kernel.memory_bytes.items():
            if size > self.device.memories[name].capacity_bytes:
                parts = " + ".join(
                    f"{b.name} {b.slots} x {b.slot_bytes // b.spread}" for b in self.kernel.buffers if b.memory == name
                )
                raise self._fail(
                    f"buffers in {name} take {size} bytes ({parts}); it holds "
                    f"{self.device.memories[name].capacity_bytes}"
                )

    def _cores(self) -> None:
        if not self.kernel.groups:
            raise self._fail("runs on no core; leave the kernel out")
        end = 0
        for group in sorted(self.kernel.groups, key=lambda g: g.first):
            if group.count < 1 or group.first < end or group.first + group.count > self.device.cores:
                raise self._fail(
                    f"cores {group.first} to {group.first + group.count - 1} overlap another group, or "
                    f"are not among the {self.device.cores} of {self.device.name}"
                )
            end = group.first + group.count

    def _own_leaks(self, balance: Balance) -> dict[str, tuple[int, int]]:
        """Of the semaphores that are a core's own, those that it signals and awaits not equally often."""
        return {name: both for name, both in balance.items() if both[0] != both[1] and name not in self.peers}

    def _leak(self, group: CoreGroup, balance: Balance) -> None:
        for name, (signalled, awaited) in self._own_leaks(balance).items():
            raise DeadlockError(
                f"kernel '{self.kernel.name}': semaphore '{name}' leaks on core {group.first}: "
                f"{signalled} signalled, {awaited} awaited; every wait needs its signal"
            )

    def _order(
        self, group: CoreGroup, number: int, walker: Walker, few: _Shortened, balances: tuple[Balance, Balance]
    ) -> None:
        balance, balance_of_few = balances
        self._leak(group, balance)
        # Shortened loops that signal more than they await, or the reverse, say nothing about the true ones.
        uneven = bool(self._own_leaks(balance_of_few))
        if walker.is_orderly(number, 0 if uneven else few.period, INSTRS):
            return
        numbers = self._numbers
        if uneven:
            walk(self.scope, group, numbers, _whole, INSTRS)
            return
        try:
            walk(self.scope, group, numbers, few, INSTRS)
        except ProgramError:
            if not few.used:
                raise
            many = _Shortened(_period([buffer.slots for buffer in self.kernel.buffers], _MANY_SLOTS))
            try:
                walk(self.scope, group, numbers, many, 2 * INSTRS)
            except ProgramError:
                walk(self.scope, group, numbers, _whole, CONFIRM_INSTRS)

    def _together(self, balances: list[Balance]) -> None:
        """Check what semaphores of peers order. Slots of rings are not looked at, so that loops may be short."""
        check_peers(self.kernel, balances)
        numbers, written, few = self._numbers, written_arrays(self.kernel), _Shortened(1)
        last = max(group.count for group in self.kernel.groups) - 1

        def look(counts: Callable[[int], int], instrs: int) -> None:
            """instrs: of a core on average where cores are executed, of each stream where accesses are compared."""
            for place in sorted({0, last}):
                walk_together(self.scope, numbers, counts, written, place, instrs)
            check_apart(self.scope, numbers, counts, written, instrs)

        try:
            look(few, INSTRS)
        except ProgramError:
            if not few.used:
                raise
            look(_whole, CONFIRM_INSTRS)


class _Shortened:
    """Shortens loop counts to at least two turns of every ring buffer, ending on the same slot as the true count."""

    def __init__(self, period: int) -> None:
        self.period, self.used = period, False

    def __call__(self, count: int) -> int:
        """The number of iterations to execute of a loop with this count."""
        if count <= 3 * self.period:
            return count
        self.used = True
        return 2 * self.period + count % self.period


def _whole(count: int) -> int:
    return count


def _period(slots: list[int], limit: int) -> int:
    """A common multiple of the rings' slot counts, of as many rings as keeps it at most `limit`."""
    period = 1
    for number in sorted(slots):
        if lcm(period, number) <= limit:
            period = lcm(period, number)
    return period


_FORMS_CHECKED: FormCache[bool] = FormCache()  # forms known to keep the shape rules


def _unique(kernel: Kernel, what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ProgramError(f"kernel '{kernel.name}': two {what}s are called '{name}'")
