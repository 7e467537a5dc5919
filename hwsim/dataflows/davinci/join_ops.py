"""Vector instructions of DaVinci cores that finish C: slices added, terms joined, alpha, C, bias, conversion.

It knows an expression over terms, an epilogue and the arrays of the sums; it knows no cube, no blocking and no scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.elementwise import Pass
from hwsim.dataflows.exact_sums import RoundedSum, addends_of, largest_of
from hwsim.dataflows.expression_ops import depth, evaluate
from hwsim.dataflows.protocol import Features
from hwsim.dataflows.records import MERGE, ROUNDINGS
from hwsim.formats import format_of
from hwsim.gemm import refusals
from hwsim.gemm.plan import OperandSum, Scaled, Sum, TermValue
from hwsim.program.ir import GlobalArray, LocalTile
from hwsim.program.roles import Opcode

if TYPE_CHECKING:
    from hwsim.dataflows.vector_ops import VectorOps
    from hwsim.gemm.plan import Expression, Plan
    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import Contraction

FEATURES = Features(epilogue=True)
EpilogueStep = Callable[[LocalTile, LocalTile], None]  # emits target = step(value)
EPILOGUE_TILES = 2  # scratch tiles of `OutputEpilogue.emit`
MOST_TERMS = 16  # that one pass joins


def conversion(present: str, wanted: str) -> Opcode:
    """The instruction from a format to another one; integers that become narrower keep their low bits."""
    if present == wanted:
        return "copy"
    source, target = format_of(present), format_of(wanted)
    is_cut = source.is_integer and target.is_integer and target.bits < source.bits
    return "extract" if is_cut else "cast"


@dataclass(frozen=True, slots=True)
class OutputEpilogue:
    """D = alpha * sum + beta * C + bias.

    c: the array of C; None where it is not read. bias: an array of one row, in the format of the epilogue. contraction:
    the multiplication that rounds together with the addition of C (see hwsim.gemm.schedule.Epilogue).
    """

    alpha: float = 1.0
    beta: float = 0.0
    c: GlobalArray | None = None
    bias: GlobalArray | None = None
    contraction: Contraction = "alpha"

    @classmethod
    def of(cls, gemm: Gemm, c: GlobalArray | None, bias: GlobalArray | None, slices: int) -> OutputEpilogue:
        """The epilogue of a record whose K has this number of slices. With beta = 0, C is not read."""
        beta = gemm.epilogue.beta or 0.0
        contraction = gemm.epilogue.contraction or ("alpha" if slices == 1 else "beta")
        return cls(gemm.epilogue.alpha, beta, c if beta else None, bias, contraction)

    @property
    def is_plain(self) -> bool:
        """Whether D is the sum."""
        return self.alpha == 1 and self.c is None and self.bias is None

    def emit(
        self,
        ops: VectorOps,
        target: LocalTile,
        value: LocalTile,
        c: LocalTile | None,
        bias: LocalTile | None,
        temps: Sequence[LocalTile],
    ) -> None:
        """Emit target = alpha * value + beta * C + bias.

        c, bias: tiles of these, where the epilogue reads them. temps: two tiles in the format of the epilogue; `value`
        may be the first.
        """
        lanes = temps[0].format
        steps = self._steps(ops, c, bias, temps[1])
        for step in steps[:-1]:
            step(temps[0], value)
            value = temps[0]
        if steps:
            last = target if target.format == lanes else temps[0]
            steps[-1](last, value)
            value = last
        if value is not target:
            ops.op(conversion(value.format, target.format), target, value)

    def _steps(
        self, ops: VectorOps, c: LocalTile | None, bias: LocalTile | None, scratch: LocalTile
    ) -> list[EpilogueStep]:
        """The instructions on the sum, in order."""
        steps: list[EpilogueStep] = []
        if self.alpha != 1 and (c is None or self.contraction != "alpha"):
            steps.append(lambda target, value: ops.op("scale", target, value, scalar=self.alpha))
        if c is not None:
            addend = c
            steps.append(lambda target, value: self._add_c(ops, target, value, addend, scratch))
        if bias is not None:
            row = bias
            steps.append(lambda target, value: ops.op("add_row", target, value, row))
        return steps

    def _add_c(self, ops: VectorOps, target: LocalTile, value: LocalTile, c: LocalTile, scratch: LocalTile) -> None:
        """Emit target = alpha * value + beta * C. Alpha is in the value where it does not round with the sum."""
        if c.format != scratch.format:
            ops.op(conversion(c.format, scratch.format), scratch, c)
            c = scratch
        if self.contraction == "beta" and self.beta != 1:
            ops.op("fma", target, c, value, scalar=self.beta)
            return
        if self.beta != 1:
            ops.op("scale", scratch, c, scalar=self.beta)
            c = scratch
        if self.alpha != 1 and self.contraction == "alpha":
            ops.op("fma", target, value, c, scalar=self.alpha)
        else:
            ops.op("add", target, value, c)


@dataclass(frozen=True, slots=True)
class SumArrays:
    """The arrays that a product leaves: of each term, `slices` matrices of C's height, one below another."""

    terms: tuple[GlobalArray, ...]
    slices: int

    @property
    def inputs(self) -> tuple[GlobalArray, ...]:
        """Each array once for each of its slices."""
        return tuple(term for term in self.terms for _ in range(self.slices))

    def offsets(self, height: int) -> tuple[int, ...]:
        """The first row of each of `inputs`; height: rows of C."""
        return tuple(i * height for _ in self.terms for i in range(self.slices))

    def added(
        self, ops: VectorOps, tiles: Sequence[LocalTile], totals: Sequence[LocalTile], converted: LocalTile | None
    ) -> dict[int, LocalTile]:
        """Emit the sums of the slices in ascending order; the tile of each term.

        totals: one tile of each term, in the format of the sum. converted: another, where the arrays are in another
        format.
        """
        values: dict[int, LocalTile] = {}
        for t in range(len(self.terms)):
            value, *parts = tiles[t * self.slices : (t + 1) * self.slices]
            if parts and converted is not None:
                ops.op("cast", totals[t], value)
                value = totals[t]
            for part in parts:
                if converted is not None:
                    ops.op("cast", converted, part)
                    part = converted
                ops.op("add", totals[t], value, part)
                value = totals[t]
            values[t] = value
        return values


@dataclass(frozen=True, slots=True)
class TermJoin:
    """What the sums of terms become: an expression over them, in `format`, and an epilogue in `end_format`.

    powers: the exponents of A's rows and of B's columns, where the sum counts times 2 to the sum of both. extra: of the
    expression's sums of operands their arrays, of its multiples of K their values.
    """

    expression: Expression
    format: str
    end_format: str
    epilogue: OutputEpilogue
    powers: tuple[GlobalArray, GlobalArray] | None = None
    extra: Mapping[Expression, GlobalArray | float] = field(default_factory=dict)

    def is_stored(self, sum_format: str, output: str) -> bool:
        """Whether the joined sums of this format are C, with nothing done to them."""
        is_alike = sum_format == self.format == self.end_format == output
        return is_alike and self.epilogue.is_plain and not self.powers

    def passes(self, name: str, sums: SumArrays, output: GlobalArray, most: int = MOST_TERMS) -> list[Pass]:
        """The passes from the terms' sums to C: one, or several that pass on the sum of `most` terms or fewer."""
        leaves = _leaves(self.expression)
        if len(sums.terms) <= most or len(leaves) == 1:
            return [self._pass(name, sums, output)]
        total = GlobalArray("T.sum", output.rows, output.cols, self.format)
        unfinished = replace(self, epilogue=OutputEpilogue(), end_format=self.format, powers=None)
        passes: list[Pass] = []
        for first in range(0, len(leaves), most):
            chosen = leaves[first : first + most]
            numbers = sorted({term for leaf in chosen for term in _terms(leaf)})
            known = {term: number for number, term in enumerate(numbers)}
            parts = [_renumbered(leaf, known) for leaf in chosen]
            previous = total if first else None
            value = parts[0] if previous is None else Sum(TermValue(len(numbers)), parts[0])
            for part in parts[1:]:
                value = Sum(value, part)
            some = SumArrays(tuple(sums.terms[term] for term in numbers), sums.slices)
            is_last = first + most >= len(leaves)
            extra = {node: self.extra[node] for node in chosen if node in self.extra}
            join = replace(self if is_last else unfinished, expression=value, extra=extra)
            label = f"{name}.{first // most + 1}"
            passes.append(join._pass(label, some, output if is_last else total, previous))
        return passes

    def _pass(self, name: str, sums: SumArrays, output: GlobalArray, previous: GlobalArray | None = None) -> Pass:
        """One pass. previous: one more array, after the arrays of the terms."""
        epilogue, form, expression = self.epilogue, self.format, self.expression
        arrays, count = [array for array in (previous, epilogue.c) if array is not None], len(sums.inputs)
        converts = any(term.format != form for term in sums.terms)
        is_cut = sums.slices > 1
        is_stored = not converts and self.is_stored(form, output.format)
        is_in_place = isinstance(expression, TermValue) and not self.powers and (is_cut or not converts)
        totals = len(sums.terms) if is_cut else 0
        needed = depth(expression, converts and not is_cut)
        of_rows, of_columns = self._vectors()
        vectors = [*of_rows, *of_columns]
        joined = 0 if is_stored or is_in_place else 1
        end = 0 if is_stored else EPILOGUE_TILES

        def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            rest = iter(temps)
            total_tiles = [next(rest) for _ in range(totals)]
            converted = next(rest) if is_cut and converts else None
            value = next(rest) if joined else outs[0]
            exponents = next(rest) if self.powers else None
            end_tiles = [next(rest) for _ in range(end)]
            values = sums.added(ops, ins, total_tiles, converted)
            if previous is not None:
                values[len(sums.terms)] = ins[count]
            at = dict(zip(map(id, vectors), ins[count + len(arrays) :], strict=True))
            if is_in_place and not is_stored:
                assert isinstance(expression, TermValue)
                value = values[expression.term]
            else:
                extra = {node: part if isinstance(part, float) else at[id(part)] for node, part in self.extra.items()}
                evaluate(ops, expression, values, value, list(rest), extra)
            if self.powers is not None and exponents is not None:
                ops.op("add", exponents, *(at[id(array)] for array in self.powers))
                ops.op("ldexp", value, value, exponents, scalar=1.0)
            if is_stored:
                return
            if value.format != self.end_format:
                ops.op("cast", end_tiles[0], value)
                value = end_tiles[0]
            c = None if epilogue.c is None else ins[count + len(arrays) - 1]
            epilogue.emit(ops, outs[0], value, c, None if epilogue.bias is None else at[id(epilogue.bias)], end_tiles)

        temporaries = (
            *(form,) * (totals + (is_cut and converts) + joined),
            *(("int32",) if self.powers else ()),
            *(self.end_format,) * end,
            *(form,) * needed,
        )
        return Pass(
            name=name,
            inputs=(*sums.inputs, *arrays),
            outputs=(output,),
            temporaries=temporaries,
            body=body,
            offsets=(*sums.offsets(output.rows), *(0 for _ in arrays)),
            of_rows=tuple(of_rows),
            of_columns=tuple(of_columns),
        )

    def _vectors(self) -> tuple[list[GlobalArray], list[GlobalArray]]:
        """The arrays of one number for each row, and for each column, that the last pass reads."""
        of_rows: list[GlobalArray] = [] if self.powers is None else [self.powers[0]]
        of_columns: list[GlobalArray] = [] if self.powers is None else [self.powers[1]]
        for node, part in self.extra.items():
            if isinstance(node, OperandSum) and isinstance(part, GlobalArray):
                (of_rows if node.side == "a" else of_columns).append(part)
        if self.epilogue.bias is not None:
            of_columns.append(self.epilogue.bias)
        return of_rows, of_columns


def exact_passes(
    plan: Plan,
    k: int,
    terms: Sequence[GlobalArray],
    rows: Sequence[int],
    output: GlobalArray,
    powers: tuple[GlobalArray, GlobalArray],
    epilogue: OutputEpilogue,
) -> list[Pass]:
    """The passes from the terms' sums to C, where the sum of all is rounded once. rows: of each array, where its slices
    of K begin.
    """
    total = output if epilogue.is_plain else GlobalArray("C.sum", output.rows, output.cols, plan.output_format)
    rounded = RoundedSum(addends_of(plan, terms, rows), largest_of(plan, k), total, powers)
    passes = rounded.passes("combine")
    if epilogue.is_plain:
        return passes
    end = TermJoin(TermValue(0), total.format, total.format, epilogue)
    return [*passes, *end.passes("epilogue", SumArrays((total,), 1), output)]


def _leaves(expression: Expression) -> list[Expression]:
    """The operands of the sums on an expression's left edge, in order."""
    rights: list[Expression] = []
    while isinstance(expression, Sum):
        rights.append(expression.right)
        expression = expression.left
    return [expression, *reversed(rights)]


def _terms(expression: Expression) -> list[int]:
    """The terms of a short expression."""
    match expression:
        case TermValue(term):
            return [term]
        case Sum(left, right):
            return [*_terms(left), *_terms(right)]
        case Scaled(value, _):
            return _terms(value)
    return []


def _renumbered(expression: Expression, numbers: Mapping[int, int]) -> Expression:
    """A short expression over terms with other numbers."""
    match expression:
        case TermValue(term):
            return TermValue(numbers[term])
        case Sum(left, right):
            return Sum(_renumbered(left, numbers), _renumbered(right, numbers))
        case Scaled(value, exponent):
            return Scaled(_renumbered(value, numbers), exponent)
    return expression


def refuses(gemm: Gemm) -> str:
    """What of a record these instructions do not carry: slices in other orders and formats, other
    roundings, scales of sums.
    """
    return refusals.joined(
        refusals.of_schedule(gemm.schedule, MERGE),
        refusals.of_epilogue(gemm.epilogue, ROUNDINGS),
        refusals.scales(gemm.problem, refusals.SUMS),
    )


__all__ = ["OutputEpilogue", "SumArrays", "TermJoin", "conversion", "exact_passes", "refuses"]
