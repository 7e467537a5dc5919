"""Elementwise passes that add up whole numbers at places of their own and round the sum once.

The sum is whole in units of its lowest place. Digits of 8 bits that have either sign leave it, the lowest first. Then
digits are appended to a number of 64 bits, the highest first, until it has two digits more than the result. If some of
the others are not 0, it is rounded to odd, so that one more rounding gives the rounding of the sum (Boldo, Melquiond:
Emulation of FMA and correctly rounded sums, 2008). The module knows arrays and formats; it knows no device, no kernel
and no matrix unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.elementwise import Pass
from hwsim.formats import format_of
from hwsim.gemm import refusals
from hwsim.gemm.expressions import terms_at_places
from hwsim.program.ir import GlobalArray, LocalTile

if TYPE_CHECKING:
    from hwsim.dataflows.vector_ops import VectorOps
    from hwsim.gemm.plan import Plan
    from hwsim.gemm.record import Gemm

DIGIT, LONG, WORD = 8, "int64", "int32"  # bits; formats
DIGIT_FORMAT = f"int{DIGIT}"
LARGEST_DIGIT = (1 << DIGIT - 1) - 1
MOST_ARRAYS = 16  # that one pass reads or writes
SIGN = 63  # the place of an int64's sign
#: Bits that a unit's sums hold exactly: those of whole numbers in fp32, and in int32.
EXACT_FLOAT, EXACT_INTEGER = 24, 31


@dataclass(frozen=True, slots=True)
class PlacedSum:
    """A matrix of whole numbers that counts 2^place: the rows of an array from `row` on."""

    array: GlobalArray
    place: int
    row: int = 0


@dataclass(frozen=True, slots=True)
class RoundedSum:
    """target = the sum of `addends`, none beyond `largest`, times 2 to the powers of rows and columns, rounded once.

    powers: the arrays of exponents of rows and of columns. matrices: of a stack, below one another in each array.
    """

    addends: tuple[PlacedSum, ...]
    largest: int
    target: GlobalArray
    powers: tuple[GlobalArray, GlobalArray]
    matrices: int = 1

    @property
    def least_place(self) -> int:
        """The place in whose units the sum is whole."""
        return min(addend.place for addend in self.addends)

    @property
    def digits(self) -> int:
        """The number of digits that hold any sum."""
        bound = sum(self.largest << (addend.place - self.least_place) for addend in self.addends)
        count = 1
        while bound > LARGEST_DIGIT * (((1 << DIGIT * count) - 1) // ((1 << DIGIT) - 1)):
            count += 1
        return count

    def passes(self, name: str) -> list[Pass]:
        """The passes: some that make the digits of the sum, then some that round it."""
        return [*self._adding(name), *self._rounding(name)]

    def _array(self, name: str, form: str) -> GlobalArray:
        return GlobalArray(f"T.{name}", self.target.rows, self.target.cols, form)

    def _adding(self, name: str) -> list[Pass]:
        """The passes that make the digits, each of at most MOST_ARRAYS addends and digits."""
        at_digit: list[list[PlacedSum]] = [[] for _ in range(self.digits)]
        for addend in self.addends:
            at_digit[(addend.place - self.least_place) // DIGIT].append(addend)
        steps: list[PlacedSum | int] = []  # an addend, or a digit that is done
        for digit, addends in enumerate(at_digit):
            steps += [*addends, digit]
        parts = [steps[start : start + MOST_ARRAYS] for start in range(0, len(steps), MOST_ARRAYS)]
        return [
            self._adding_pass(_label(name, "add", number, parts), part, number > 0, number + 1 < len(parts))
            for number, part in enumerate(parts)
        ]

    def _adding_pass(self, name: str, steps: Sequence[PlacedSum | int], goes_on: bool, is_continued: bool) -> Pass:
        addends = [step for step in steps if isinstance(step, PlacedSum)]
        digits = [self._array(f"digit{step}", DIGIT_FORMAT) for step in steps if isinstance(step, int)]
        total = self._array("total", LONG)

        def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            total, number, word, half = temps[0], temps[1], temps[2], replace(temps[3], rows=1, cols=1)
            if goes_on:
                ops.op("copy", total, ins[-1])
            else:
                ops.op("fill", total, scalar=0.0)
            ops.op("fill", half, scalar=float(1 << DIGIT - 1))
            read, written = iter(ins), iter(outs)
            for step in steps:
                if isinstance(step, int):
                    ops.op("extract", next(written), total)
                    ops.op("add", total, total, half)
                    ops.op("extract", total, total, scale_exponent=DIGIT)
                    continue
                value = next(read)
                if not format_of(value.format).is_integer:
                    ops.op("cast", word, value)
                    value = word
                ops.op("cast", number, value)
                shift = (step.place - self.least_place) % DIGIT
                if shift:
                    ops.op("scale", number, number, scalar=float(1 << shift))
                ops.op("add", total, total, number)
            if is_continued:
                ops.op("copy", next(written), total)

        return Pass(
            name=name,
            inputs=(*(addend.array for addend in addends), *((total,) if goes_on else ())),
            outputs=(*digits, *((total,) if is_continued else ())),
            temporaries=(LONG, LONG, WORD, LONG),
            body=body,
            shape=(self.target.rows, self.target.cols),
            offsets=(*(addend.row for addend in addends), *((0,) if goes_on else ())),
        )

    def _rounding(self, name: str) -> list[Pass]:
        """The passes that append the digits, and round."""
        digits = list(range(self.digits))[::-1]
        parts = [digits[start : start + MOST_ARRAYS] for start in range(0, len(digits), MOST_ARRAYS)]
        return [
            self._rounding_pass(_label(name, "round", number, parts), part, number > 0, number + 1 < len(parts))
            for number, part in enumerate(parts)
        ]

    def _rounding_pass(self, name: str, digits: Sequence[int], goes_on: bool, is_continued: bool) -> Pass:
        state = tuple(self._array(part, LONG) for part in ("head", "rest", "place"))
        inputs = tuple(self._array(f"digit{digit}", DIGIT_FORMAT) for digit in digits)
        # From 2^full on, numbers have two digits more than the result. The tie 2^full - 1 becomes 2^full, as it must.
        full = format_of("fp64" if self.target.format == "fp64" else "fp32").precision + 1

        def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            head, rest, place, number, spare, is_full = temps[:6]
            step, limit = (replace(tile, rows=1, cols=1) for tile in temps[6:8])
            ops.op("fill", step, scalar=float(DIGIT))
            ops.op("fill", limit, scalar=float(1 << full))
            for i, part in enumerate((head, rest, place)):
                if goes_on:
                    ops.op("copy", part, ins[len(digits) + i])
                else:
                    ops.op("fill", part, scalar=0.0)
            for digit, tile in zip(digits, ins, strict=False):
                ops.op("cast", number, tile)
                if DIGIT * (self.digits - 1 - digit) <= full + 1:  # so few digits are below 2^full: there is room
                    ops.op("scale", head, head, scalar=float(1 << DIGIT))
                    ops.op("add", head, head, number)
                    continue
                ops.op("add", is_full, head, limit)
                ops.op("extract", is_full, is_full, scale_exponent=full + 1)  # 0 where there is room
                ops.op("select", spare, rest, rest, number)
                ops.op("select", rest, is_full, spare, rest)
                ops.op("scale", spare, head, scalar=float(1 << DIGIT))
                ops.op("add", spare, spare, number)
                ops.op("select", head, is_full, head, spare)
                ops.op("add", spare, place, step)
                ops.op("select", place, is_full, spare, place)
            if is_continued:
                for written, part in zip(outs, (head, rest, place), strict=True):
                    ops.op("copy", written, part)
                return
            self._finish(ops, (head, rest, place, number), (step, ins[-2], ins[-1]), temps[8:], outs[0])

        end_formats = () if is_continued else self._end_formats
        of_rows, of_columns = ((), ()) if is_continued else ((array,) for array in self.powers)
        return Pass(
            name=name,
            inputs=(*inputs, *(state if goes_on else ())),
            outputs=state if is_continued else (self.target,),
            temporaries=(*(LONG,) * 8, *end_formats),
            body=body,
            shape=(self.target.rows, self.target.cols),
            of_rows=of_rows,
            of_columns=of_columns,
            matrices=1 if is_continued else self.matrices,
        )

    @property
    def _end_formats(self) -> tuple[str, ...]:
        """The formats of the scratch tiles of `_finish`."""
        return (WORD, WORD) if self.target.format == "fp64" else (WORD, WORD, "fp64")

    def _finish(
        self,
        ops: VectorOps,
        state: tuple[LocalTile, LocalTile, LocalTile, LocalTile],
        others: tuple[LocalTile, Any, Any],
        temps: Sequence[LocalTile],
        target: LocalTile,
    ) -> None:
        """Emit the only rounding. state: head, rest, place, and a scratch tile. others: one element of scratch, the
        exponents of rows and of columns.
        """
        head, rest, place, sign = state
        unit, of_rows, of_columns = others
        exponents, word = temps[:2]
        ops.op("extract", word, place)
        ops.op("fill", unit, scalar=1.0)
        ops.op("extract", sign, rest, scale_exponent=SIGN)  # -1 or 0
        ops.op("scale", sign, sign, scalar=2.0)
        ops.op("add", sign, sign, unit)
        ops.op("select", sign, rest, sign, rest)
        ops.op("extract", rest, head, scale_exponent=1)
        ops.op("scale", rest, rest, scalar=2.0)
        ops.op("sub", rest, head, rest)  # 1 where it is odd
        ops.op("add", sign, head, sign)
        ops.op("select", head, rest, head, sign)
        ops.op("add", exponents, of_rows, of_columns)
        ops.op("add", exponents, exponents, word)
        value = target if target.format == "fp64" else temps[2]
        ops.op("ldexp", value, head, exponents, scalar=1.0, scale_exponent=-self.least_place)
        if value is not target:
            ops.op("cast", target, value)


def _label(name: str, verb: str, number: int, parts: Sequence[object]) -> str:
    return f"{name}.{verb}" if len(parts) == 1 else f"{name}.{verb}{number + 1}"


def addends_of(plan: Plan, arrays: Sequence[GlobalArray], rows: Sequence[int] = (0,)) -> tuple[PlacedSum, ...]:
    """The addends of a plan's sum. arrays: of its terms. rows: of each array, where its slices of K begin."""
    return tuple(PlacedSum(arrays[term], place, row) for term, place in terms_at_places(plan.combine) for row in rows)


def largest_of(plan: Plan, k: int) -> int:
    """What no sum over K of products of slices exceeds in magnitude."""
    return k << 2 * plan.slice_bits


def refuses(gemm: Gemm) -> str:
    """What of a record these passes do not carry: exact sums of terms that are not whole numbers, or that the unit
    rounds.
    """
    plan = gemm.single
    if plan.arithmetic != "exact":
        return ""
    is_whole = format_of(plan.a_pieces[0].format).is_integer
    held = EXACT_INTEGER if is_whole else EXACT_FLOAT
    is_exact = plan.split == "slices" and largest_of(plan, gemm.problem.k) <= 1 << held
    return refusals.named({"exact sums of terms that are not exact sums of slices": not is_exact})
