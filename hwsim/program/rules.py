"""The rules that one instruction keeps, on the device and kernel that it stands in.

It knows an instruction, what its kernel declares, and the bounds of the variables of its addresses; no order, no count
of executions, and no other instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwsim.devices import find
from hwsim.errors import ProgramError, nearest
from hwsim.formats import format_of
from hwsim.program.bounds import Bounds, Interval
from hwsim.program.ir import (
    LANE_FORMATS,
    LANE_WIDTHS,
    MIXED_FORMATS,
    REDUCING,
    SPECIAL,
    Affine,
    AnyTile,
    GlobalTile,
    Instr,
    LocalTile,
    repeats,
)
from hwsim.program.resolve import GM, Scope, mma_shape
from hwsim.program.roles import ROLES

if TYPE_CHECKING:
    from hwsim.devices.model import InstructionModel

_TARGET = ""  # in place of a role: the tile that is written
_SCALES = ("scale_a", "scale_b")
LEAST_MODULUS, MOST_MODULUS = 2, 1 << 15  # of remainder
NONZERO_OF_FOUR = 2  # elements that a has of each four of K, where it reads metadata
_SCALING = [opcode for opcode, roles in ROLES.items() if "scale_exponent" in roles.immediates.values()]


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


ANYWHERE = _Anywhere()


class Rules:
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
        self._operands()
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
        if instr.scale_exponent and instr.opcode not in _SCALING:
            allowed = f"{', '.join(_SCALING[:-1])} and {_SCALING[-1]}"
            raise self._fail(f"scale_exponent is {instr.scale_exponent}; only {allowed} have one")
        if instr.opcode == "mma":
            self._mma()
        elif instr.opcode == "copy":
            self._copy()
        elif instr.opcode != "sync":
            self._elementwise()

    def _fail(self, text: str) -> ProgramError:
        return ProgramError(f"{self.scope.place(self.number, self.instr)}: {text}")

    def _operands(self) -> None:
        """Check that it writes and reads the tiles that its opcode has."""
        instr, roles = self.instr, ROLES[self.instr.opcode]
        if tuple(role for role in roles.optional if role in instr.optional) != instr.optional:
            raise self._fail(
                f"names {', '.join(instr.optional)} as optional operands; {instr.opcode} allows, in this order, "
                f"{', '.join(roles.optional) or 'none'}"
            )
        if (len(instr.writes), len(instr.reads)) != (roles.writes, len(instr.roles)):
            raise self._fail(
                f"writes {len(instr.writes)} and reads {len(instr.reads)} tiles; {instr.opcode} writes {roles.writes} "
                f"and reads {len(instr.roles)}{f' ({named})' if (named := ', '.join(instr.roles)) else ''}"
            )

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

    def _tile(self, tile: AnyTile) -> None:
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
        width = tile.width or tile.cols
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
        a, b, c = instr.operand("a"), instr.operand("b"), instr.writes[0]
        of_a = k * NONZERO_OF_FOUR // 4 if instr.has("metadata") else k
        if (a.rows, a.cols, b.cols) != (m, of_a, n):
            raise self._fail(
                f"A {a.rows} x {a.cols}, B {b.rows} x {b.cols} and C {c.rows} x {c.cols} do not fit; "
                f"they must be m x {'k / 2' if of_a != k else 'k'}, k x n and m x n"
            )
        self._beside(model, (m, n, k))
        if model.largest is not None and max(m, n, k) > model.largest:
            raise self._fail(f"m, n, k = {m}, {n}, {k}; {instr.unit} takes at most {model.largest} of each")
        for name, tile, form in (("A", a, model.a), ("B", b, model.b), ("C", c, model.d)):
            if self.scope.format(tile) != form:
                raise self._fail(f"{name} is {self.scope.format(tile)}; {instr.unit} takes {form}")
        if instr.swapped and (model.a != model.b or instr.optional):
            raise self._fail("swapped; only products of one format, without scales and metadata, are")
        for operand, tile in enumerate((b, a, c) if instr.swapped else (a, b, c)):
            places, memory = model.places(operand), self.scope.memory(tile)
            if places and memory not in places:
                raise self._fail(f"{'ABC'[operand]} lies in {memory}; {instr.unit} takes it from {' or '.join(places)}")
        if not 0 <= instr.scale_exponent <= (model.scale_input_d or 0):
            allowed = f"takes 0 to {model.scale_input_d}" if model.scale_input_d else "does not scale its accumulator"
            raise self._fail(f"scale_exponent is {instr.scale_exponent}; {instr.unit} {allowed}")
        self._zero_at()

    def _beside(self, model: InstructionModel, shape: tuple[int, int, int]) -> None:
        """Check the scales and the metadata of an mma of this shape (m, n, k)."""
        instr, (m, n, k) = self.instr, shape
        scales = [role for role in _SCALES if instr.has(role)]
        if model.scale_block is None and scales:
            raise self._fail(f"reads {' and '.join(scales)}; {instr.unit} takes no block scales")
        if model.scale_block is not None and len(scales) != len(_SCALES):
            raise self._fail(
                f"reads {scales[0] if scales else 'no scales'}; {instr.unit} takes scale_a and scale_b: "
                f"{model.scale_format}, one for each {model.scale_block} of k"
            )
        blocks = -(-k // (model.scale_block or k))
        wanted = {"scale_a": (m, blocks), "scale_b": (blocks, n), "metadata": (m, -(-k // 4))}
        for role in instr.optional:
            tile = instr.operand(role)
            if (tile.rows, tile.cols) != wanted[role]:
                rows, cols = wanted[role]
                raise self._fail(
                    f"{role} {tile.rows} x {tile.cols} does not fit m, n, k = {m}, {n}, {k}; it must be {rows} x {cols}"
                )
            if role in _SCALES and self.scope.format(tile) != model.scale_format:
                raise self._fail(f"{role} is {self.scope.format(tile)}; {instr.unit} takes {model.scale_format}")
            if role in _SCALES and model.scale_memory not in (None, self.scope.memory(tile)):
                raise self._fail(
                    f"{role} lies in {self.scope.memory(tile)}; {instr.unit} takes it from {model.scale_memory}"
                )

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
        if self.instr.opcode in SPECIAL:
            self._special()
            return
        instr, vector = self.instr, self.scope.device.vector
        if vector is None or not vector.does(self.scope.timed_as(instr)) or instr.engine != vector.engine:
            raise self._fail(f"no vector unit of {self.scope.device.name} does {instr.opcode} on this engine")
        for role, tile in zip((_TARGET, *instr.roles), (*instr.writes, *instr.reads), strict=True):
            self._size(role, tile)
            memory = self.scope.memory(tile)
            is_repeated = role != _TARGET and 1 in (tile.rows, tile.cols) and repeats(instr, role)
            if memory != vector.memory and not ((role == "row" or is_repeated) and memory == GM):
                raise self._fail(
                    f"a tile lies in {'global memory' if memory == GM else memory}; "
                    f"the vector unit works on {vector.memory}"
                )
        self._formats()

    def _special(self) -> None:
        """Check an instruction of the special-function unit."""
        instr, unit = self.instr, self.scope.device.special
        if unit is None or instr.engine != unit.engine:
            raise self._fail(f"no special-function unit of {self.scope.device.name} does {instr.opcode} on this engine")
        for role, tile in zip((_TARGET, *instr.roles), (*instr.writes, *instr.reads), strict=True):
            self._size(role, tile)
            if self.scope.memory(tile) != unit.memory or self.scope.format(tile) != "fp32":
                raise self._fail(
                    f"a tile is {self.scope.format(tile)} in {self.scope.memory(tile)}; {instr.opcode} takes fp32 in "
                    f"{unit.memory}"
                )

    def _size(self, role: str, tile: AnyTile) -> None:
        """The size of what an elementwise instruction writes or reads."""
        opcode, target = self.instr.opcode, self.instr.writes[0]
        size, whole = (tile.rows, tile.cols), (target.rows, target.cols)
        if opcode in REDUCING and role == "source":
            if whole not in ((size[0], 1), (1, size[1])):
                raise self._fail(
                    f"writes a tile of {whole[0]} x {whole[1]} elements from one of {size[0]} x {size[1]}; "
                    f"{opcode} writes {size[0]} x 1 or 1 x {size[1]}"
                )
        elif opcode in LANE_WIDTHS and role in (_TARGET, "source"):
            read, written = LANE_WIDTHS[opcode]
            wanted = (whole[0], (read or size[1]) if role == "source" else written)
            if size != wanted:
                raise self._fail(f"a tile of {size[0]} x {size[1]} elements; {opcode} takes {wanted[0]} x {wanted[1]}")
        elif role != _TARGET and repeats(self.instr, role):
            is_fitting = all(extent in (1, every) for extent, every in zip(size, whole, strict=True))
            if not is_fitting:
                raise self._fail(f"tiles of {size[0]} x {size[1]} and {whole[0]} x {whole[1]} elements")
        elif size != (1 if role == "row" else whole[0], whole[1]):
            raise self._fail(f"tiles of {size[0]} x {size[1]} and {whole[0]} x {whole[1]} elements")

    def _formats(self) -> None:
        """The formats of what an elementwise instruction writes and reads."""
        instr = self.instr
        forms = [self.scope.format(tile) for tile in (*instr.writes, *instr.reads)]
        is_whole = (format_of(forms[0]).is_integer and instr.opcode != "places") or instr.opcode == "ldexp"
        if is_whole and "scalar" in ROLES[instr.opcode].immediates.values() and not float(instr.scalar).is_integer():
            raise self._fail(f"the scalar is {instr.scalar}; {instr.opcode} takes a whole number here")
        if instr.opcode == "remainder" and not LEAST_MODULUS <= instr.scale_exponent <= MOST_MODULUS:
            raise self._fail(
                f"the modulus is {instr.scale_exponent}; remainder takes {LEAST_MODULUS} to {MOST_MODULUS}"
            )
        if instr.opcode == "reduce_meet" and instr.scale_exponent not in (1, 2):
            raise self._fail(f"lanes that are {instr.scale_exponent} apart meet first; allowed: 1 and 2")
        is_up = instr.rounding == "RU" and (instr.opcode == "add" or instr.has("multiplier"))
        if instr.opcode != "cast" and instr.rounding != "RNE" and not (is_up and not format_of(forms[0]).is_integer):
            raise self._fail(
                f"{instr.opcode} of {forms[0]} rounds {instr.rounding}; "
                "add and fma with a multiplier round floats RU or RNE"
            )
        if instr.has("multiplier") and forms[0] != "fp32" and not (is_up and forms[0] == "fp64"):
            raise self._fail(f"a tile is {forms[0]}; {instr.opcode} with a multiplier takes fp32, or fp64 rounded up")
        is_right = instr.scale_exponent == 0 or (instr.scale_exponent, forms[-1]) == (1, "fp32")
        if instr.opcode == "places" and not is_right:
            raise self._fail(f"places {instr.scale_exponent} of {forms[-1]}; it takes 0 of a float, or 1 of fp32")
        if instr.opcode in MIXED_FORMATS:
            for form, allowed in zip(forms, MIXED_FORMATS[instr.opcode], strict=True):
                if form not in allowed:
                    raise self._fail(f"a tile is {form}; {instr.opcode} takes {_any_of(allowed)} there")
        elif instr.opcode in LANE_FORMATS:
            allowed = LANE_FORMATS[instr.opcode]
            for form in forms:
                if form not in allowed or form != forms[0]:
                    raise self._fail(
                        f"a tile is {form}; {instr.opcode} takes {_any_of(allowed)}, and all its tiles one"
                    )
        elif instr.opcode == "cast" and "int64" in forms:
            target, source = forms
            if source == "int64" and not (target in ("fp32", "fp64") or format_of(target).is_integer):
                raise self._fail(
                    f"casts int64 to {target}; allowed: fp32, fp64 and integers, from which another goes on"
                )
            if target == "int64" and not format_of(source).is_integer:
                raise self._fail(f"casts {source} to int64; allowed: from integers, and int32 before from a float")


def _any_of(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _within(extremes: tuple[int, int], size: int, extent: int) -> bool:
    return extremes[0] >= 0 and extremes[1] + size <= extent
