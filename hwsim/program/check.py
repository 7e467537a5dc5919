"""The static checker: refuses a program that violates a rule of its device, and names the instruction.

It reads a program and a device model; it computes no values and no cycles. Rules that hold for every iteration of a
loop are checked on the text, with the bounds of affine expressions over their loops: names, capacities, alignment,
bounds, shapes, formats, engines, links. A leak of a semaphore is also decided exactly, from the loop counts. Deadlocks
and unordered accesses are found by an abstract execution (hwsim.program.order) of one core per group, in which long
loops are shortened.

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

from collections.abc import Callable, Iterator
from math import lcm
from typing import TYPE_CHECKING

from hwsim.devices import find
from hwsim.errors import ProgramError, nearest
from hwsim.program.apart import check_apart
from hwsim.program.bounds import OUTSIDE, Bounds, Interval
from hwsim.program.flat import flattened
from hwsim.program.forms import FormCache
from hwsim.program.ir import (
    CORE,
    LANE_FORMATS,
    Advance,
    Affine,
    CoreGroup,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    Node,
    Program,
    Stream,
    Tile,
)
from hwsim.program.order import Walker, walk, walk_together
from hwsim.program.peers import check_peers, names_of, written_arrays
from hwsim.program.places import Balance, Places, UnsureError
from hwsim.program.rename import has_like_arrays
from hwsim.program.resolve import GM, Scope, mma_shape

if TYPE_CHECKING:
    from hwsim.devices.device import Device

INSTRS = 2000  # of a core that are executed abstractly
CONFIRM_INSTRS = 100_000  # the same with true counts, once there is a suspicion
_FEW_SLOTS = 16  # shortened loops keep their count modulo the slots of rings, up to this common multiple;
_MANY_SLOTS = 1024  # up to this one in the second look, after a suspicion
_READS = {"copy": 1, "mma": 2, "cast": 1, "add": 2, "sub": 2, "mul": 2, "scale": 1, "fill": 0, "sync": 0}


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
            balances = [_balances(group, few) for group, few in zip(self.kernel.groups, fews, strict=True)]
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
        `_balances`), or None if a rule may be violated.
        """
        try:
            _, flat = flattened(self.kernel, self.arrays, self.device.engines)
            known = _FORMS_CHECKED.of(self.device)
            for i, instr, form in zip(flat.firsts, flat.examples, flat.forms, strict=True):
                if form not in known:
                    _Rules(self.scope, self.semaphores, i, instr, _ANYWHERE).check()
                    known[form] = True
            places = Places(self.kernel, flat, self.arrays)
            found = [places.group(number, few.period) for number, few in enumerate(fews)]
            leaks = any(self._own_leaks(balance) for balance, _ in found)
            return None if leaks else found
        except (KeyError, ProgramError, UnsureError):
            return None

    def _one_by_one(self) -> None:
        """Check each instruction against all rules except those of order; raise at the first violation."""
        number = 0
        for group in self.kernel.groups:
            for stream in group.streams:
                for instr, bounds in _instructions(self.kernel, group, stream):
                    _Rules(self.scope, self.semaphores, number, instr, bounds).check()
                    number += 1

    def _numbers(self) -> dict[int, int]:
        """The position of each instruction in the kernel, by id() of the object."""
        numbers: dict[int, int] = {}
        for number, instr in enumerate(self.kernel.instrs()):
            numbers.setdefault(id(instr), number)
        return numbers

    def _fail(self, text: str) -> ProgramError:
        return ProgramError(f"kernel '{self.kernel.name}': {text}")

    def _capacity(self) -> None:
        used: dict[str, int] = {}
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
            used[buffer.memory] = used.get(buffer.memory, 0) + buffer.own_bytes
        for name, size in used.items():
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
        for name, (given, taken) in self._own_leaks(balance).items():
            raise self._fail(
                f"semaphore '{name}' leaks on core {group.first}: {given} signalled, {taken} awaited; "
                "every wait needs its signal"
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
        numbers = self._numbers()
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
        numbers, written, few = self._numbers(), written_arrays(self.kernel), _Shortened(1)
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


class _Anywhere(Bounds):
    """Bounds that accept every address, to check only the rules that instructions of a form share."""

    def __init__(self) -> None:
        super().__init__({}, {})

    def outside(self, affine: Affine) -> str | None:
        return None

    def extremes(self, affine: Affine) -> Interval | None:
        return None

    def is_around(self, loop: str) -> bool:
        return True


_ANYWHERE = _Anywhere()
_FORMS_CHECKED: FormCache[bool] = FormCache()  # forms known to keep the shape rules


class _Rules:
    """Checks one instruction. bounds: of the variables that its addresses may depend on."""

    def __init__(self, scope: Scope, semaphores: set[str], number: int, instr: Instr, bounds: Bounds) -> None:
        self.scope, self.semaphores, self.number, self.instr, self.bounds = scope, semaphores, number, instr, bounds

    def check(self) -> None:
        """Raise at the first violation."""
        instr, device = self.instr, self.scope.device
        if instr.engine not in device.engines:
            raise self._fail(
                f"{device.name} has no engine '{instr.engine}' (it has {', '.join(device.engines)})"
                f"{nearest(instr.engine, list(device.engines))}"
            )
        if instr.repeat < 1:
            raise self._fail(f"repeat is {instr.repeat}; it must be at least 1")
        self._syncs()
        operands = (0 if instr.opcode == "sync" else 1, _READS[instr.opcode])
        if (len(instr.writes), len(instr.reads)) != operands:
            raise self._fail(
                f"writes {len(instr.writes)} and reads {len(instr.reads)} tiles; "
                f"{instr.opcode} writes {operands[0]} and reads {operands[1]}"
            )
        for tile in (*instr.writes, *instr.reads):
            self._tile(tile)
        shared = instr.opcode in ("copy", "cast") and isinstance(instr.reads[0], GlobalTile)
        if instr.multicast < 1 or (instr.multicast > 1 and not shared):
            raise self._fail(
                f"multicast is {instr.multicast}; it must be at least 1, and 1 but for a copy from global memory"
            )
        spread = max((self.scope.buffers[t.buffer].spread for t in instr.writes if isinstance(t, LocalTile)), default=1)
        if spread > 1 and (not shared or instr.multicast % spread):
            raise self._fail(
                f"writes slots that are spread over {spread} cores; allowed: copies from global memory to a "
                "multiple of as many cores at once"
            )
        if instr.scale_exponent and instr.opcode not in ("mma", "add"):
            raise self._fail(f"scale_exponent is {instr.scale_exponent}; only an mma and an add have one")
        if instr.opcode == "mma":
            self._mma()
        elif instr.opcode == "copy":
            self._copy()
        elif instr.opcode != "sync":
            self._elementwise()

    def _fail(self, text: str) -> ProgramError:
        return ProgramError(f"{self.scope.place(self.number, self.instr)}: {text}")

    def _syncs(self) -> None:
        for sync in (*self.instr.waits, *self.instr.signals):
            if sync.semaphore not in self.semaphores or sync.count < 1:
                raise self._fail(
                    f"waits for or signals {sync.count} of semaphore '{sync.semaphore}'; the kernel has "
                    f"{', '.join(sorted(self.semaphores)) or 'none'}, and counts are at least 1"
                )

    def _zero_at(self) -> None:
        if self.instr.opcode != "mma":
            return
        for loop in self.instr.zero_at or ():
            if not self.bounds.is_around(loop):
                raise self._fail(f"zero_at names '{loop}', which is not a loop around it")

    def _tile(self, tile: Tile) -> None:
        if tile.rows < 1 or tile.cols < 1:
            raise self._fail(f"a tile of {tile.rows} x {tile.cols} elements is empty")
        if isinstance(tile, GlobalTile):
            self._global(tile)
        else:
            self._local(tile)

    def _local(self, tile: LocalTile) -> None:
        buffer = self.scope.buffers.get(tile.buffer)
        if buffer is None:
            raise self._fail(f"no buffer '{tile.buffer}'{nearest(tile.buffer, list(self.scope.buffers))}")
        if tile.row < 0 or tile.col < 0:
            raise self._fail(f"tile at ({tile.row}, {tile.col}) of a slot of '{tile.buffer}'; neither may be negative")
        width = tile.width or tile.col + tile.cols
        if tile.col + tile.cols > width:
            raise self._fail(
                f"columns {tile.col} to {tile.col + tile.cols - 1} of a slot of '{tile.buffer}', "
                f"whose rows have {width}"
            )
        size = self.scope.reach_bytes(tile.buffer, tile.row + tile.rows, width, tile.format)
        if size > buffer.slot_bytes:
            raise self._fail(
                f"a tile of {tile.rows} x {tile.cols} {tile.format} at ({tile.row}, {tile.col}) reaches {size} bytes "
                f"into a slot of '{tile.buffer}', which holds {buffer.slot_bytes}"
            )
        self._inside(tile.slot)

    def _global(self, tile: GlobalTile) -> None:
        array = self.scope.arrays.get(tile.array)
        if array is None:
            raise self._fail(f"no array '{tile.array}'{nearest(tile.array, list(self.scope.arrays))}")
        for what, affine, size, extent in (
            ("rows", tile.row, tile.rows, array.rows),
            ("columns", tile.col, tile.cols, array.cols),
        ):
            if affine.terms:
                self._inside(affine)
            extremes = self.bounds.extremes(affine)
            if extremes is not None and not _within(extremes, size, extent):
                extremes = self.bounds.exact(affine)  # an interval may be wider than what is taken
            if extremes is not None and not _within(extremes, size, extent):
                low, high = extremes
                raise self._fail(f"takes {what} {low} to {high + size - 1} of array '{tile.array}', which has {extent}")

    def _inside(self, affine: Affine) -> None:
        loop = self.bounds.outside(affine)
        if loop is not None:
            raise self._fail(f"uses the variable of loop '{loop}', which is not around it")

    def _mma(self) -> None:
        instr, device = self.instr, self.scope.device
        model = find(device, instr.unit or "")
        if model is None:
            raise self._fail(
                f"{device.name} has no instruction {instr.unit!r}{nearest(instr.unit or '', device.instructions())}"
            )
        if model.engine != instr.engine:
            raise self._fail(f"{instr.unit} runs on engine {model.engine}")
        m, n, k = mma_shape(instr)
        a, b, c = instr.reads[0], instr.reads[1], instr.writes[0]
        if (a.rows, b.rows, b.cols) != (m, k, n):
            raise self._fail(
                f"A {a.rows} x {a.cols}, B {b.rows} x {b.cols} and C {c.rows} x {c.cols} do not fit; "
                "they must be m x k, k x n and m x n"
            )
        if model.largest is not None and max(m, n, k) > model.largest:
            raise self._fail(f"m, n, k = {m}, {n}, {k}; {instr.unit} takes at most {model.largest} of each")
        for name, tile, form in (("A", a, model.a), ("B", b, model.b), ("C", c, model.d)):
            if self.scope.format(tile) != form:
                raise self._fail(f"{name} is {self.scope.format(tile)}; {instr.unit} takes {form}")
        for operand, tile in enumerate((a, b, c)):
            places, memory = model.places(operand), self.scope.memory(tile)
            if places and memory not in places:
                raise self._fail(f"{'ABC'[operand]} lies in {memory}; {instr.unit} takes it from {' or '.join(places)}")
        if not 0 <= instr.scale_exponent <= (model.scale_input_d or 0):
            allowed = f"takes 0 to {model.scale_input_d}" if model.scale_input_d else "does not scale its accumulator"
            raise self._fail(f"scale_exponent is {instr.scale_exponent}; {instr.unit} {allowed}")
        self._zero_at()

    def _copy(self) -> None:
        target, source = self.instr.writes[0], self.instr.reads[0]
        if (target.rows, target.cols) != (source.rows, source.cols):
            raise self._fail(f"copies {source.rows} x {source.cols} to {target.rows} x {target.cols} elements")
        if self.scope.format(target) != self.scope.format(source):
            raise self._fail(f"copies {self.scope.format(source)} to {self.scope.format(target)}; use cast")
        if self.scope.link(self.instr) is None and not self.scope.is_vector(self.instr):
            device = self.scope.device
            paths = ", ".join(
                f"{link.source} to {link.target}" for link in device.links.values() if link.engine == self.instr.engine
            )
            raise self._fail(
                f"engine {self.instr.engine} of {device.name} has no link from "
                f"{self.scope.memory(source)} to {self.scope.memory(target)} (it has {paths or 'none'})"
            )

    def _elementwise(self) -> None:
        if self.instr.opcode == "cast" and self.scope.link(self.instr) is not None:
            target, source = self.instr.writes[0], self.instr.reads[0]
            if (target.rows, target.cols) != (source.rows, source.cols):
                raise self._fail(f"moves {source.rows} x {source.cols} to {target.rows} x {target.cols} elements")
            return
        instr, vector = self.instr, self.scope.device.vector
        if vector is None or instr.opcode not in vector.cycles_per_repeat or instr.engine != vector.engine:
            raise self._fail(f"no vector unit of {self.scope.device.name} does {instr.opcode} on this engine")
        target = instr.writes[0]
        for tile in (*instr.writes, *instr.reads):
            memory = self.scope.memory(tile)
            if memory != vector.memory:
                raise self._fail(
                    f"a tile lies in {'global memory' if memory == GM else memory}; "
                    f"the vector unit works on {vector.memory}"
                )
            if (tile.rows, tile.cols) != (target.rows, target.cols):
                raise self._fail(f"tiles of {tile.rows} x {tile.cols} and {target.rows} x {target.cols} elements")
            form, first = self.scope.format(tile), self.scope.format(target)
            allowed = LANE_FORMATS.get(instr.opcode, (form,))
            if form not in allowed or (instr.opcode in LANE_FORMATS and form != first):
                of_one = "" if len(allowed) == 1 else ", and all its tiles one"
                raise self._fail(f"a tile is {form}; {instr.opcode} takes {' or '.join(allowed)}{of_one}")


def _within(extremes: tuple[int, int], size: int, extent: int) -> bool:
    return extremes[0] >= 0 and extremes[1] + size <= extent


def _unique(kernel: Kernel, what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ProgramError(f"kernel '{kernel.name}': two {what}s are called '{name}'")


def _instructions(kernel: Kernel, group: CoreGroup, stream: Stream) -> Iterator[tuple[Instr, Bounds]]:
    """Every instruction with the bounds of its variables, in the order of numbering."""
    ranges: dict[str, tuple[int, int]] = {CORE: (group.first, group.first + group.count - 1)}
    derived = {one.name: one for one in stream.derived}
    advanced: set[str] = set()

    def declare(body: tuple[Node, ...]) -> None:
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

    def visit(body: tuple[Node, ...]) -> Iterator[tuple[Instr, Bounds]]:
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
    _derived(kernel, stream, {*ranges, *advanced})
    return visit(stream.body)


def _derived(kernel: Kernel, stream: Stream, taken: set[str]) -> None:
    """Refuse derived variables that cannot be evaluated; `taken`: names of loops, counters and CORE."""
    later = [one.name for one in stream.derived]
    for one in stream.derived:
        where = f"kernel '{kernel.name}', stream '{stream.name}': derived variable '{one.name}'"
        if one.divisor < 1:
            raise ProgramError(f"{where} has divisor {one.divisor}; it must be at least 1")
        if one.name in taken:
            raise ProgramError(f"{where}: a loop, a counter, CORE or another derived variable has that name")
        for name, _ in one.of.terms:
            if name in later and name not in taken:
                raise ProgramError(f"{where} depends on '{name}', which is derived after it; put that first")
        taken.add(one.name)


def _balances(group: CoreGroup, counts: Callable[[int], int]) -> tuple[Balance, Balance]:
    """Per semaphore, the total that a core of `group` signals and waits for; also with `counts` in place of the loop
    counts.
    """
    sums: dict[str, list[int]] = {}

    def visit(body: tuple[Node, ...], whole: int, few: int) -> None:
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
