"""Kernels of the vector cores that follow the GEMMs on a separated DaVinci core.

Promotion, combination of the terms, alpha, C, bias, and conversion to the output format: elementwise passes over global
memory, where cube and vector cores exchange data. The module knows a plan, an epilogue and arrays; it knows no cube and
no blocking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwsim.dataflows.elementwise import Pass, depth, evaluate
from hwsim.dataflows.protocol import Features
from hwsim.dataflows.records import FUSIONS
from hwsim.dataflows.vector_ops import VectorOps
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm import refusals
from hwsim.gemm.expressions import JoinStep, parts_of, scaled, sequential_form
from hwsim.gemm.plan import Depth, Expression, OperandSum, Plan, Side, Sum, TermValue
from hwsim.gemm.record import Gemm
from hwsim.program.ir import GlobalArray, LocalTile

FEATURES = Features(epilogue=True)
MOST_INPUTS = 8  # sums of runs of K, or of terms, that one vector kernel adds


@dataclass(frozen=True, slots=True)
class StoredTermSums:
    """Partial sums of one term in global memory: run r of `runs` in rows r m .. (r + 1) m - 1 of `array`.

    is_promoted: they are added to a sum that starts at +0, also where there is one run.
    """

    array: GlobalArray
    runs: int
    is_promoted: bool


@dataclass(frozen=True, slots=True)
class ScaledAddition:
    """alpha * sum + beta * C + bias as vector instructions: alpha * sum + (beta * C) is rounded once, as by `fma`.

    c: the array of C; None where it is not read (beta = 0). bias: an array of one row, in the format of the lanes.
    """

    alpha: float = 1.0
    beta: float = 0.0
    c: GlobalArray | None = None
    bias: GlobalArray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the result is the sum itself."""
        return self.alpha == 1 and self.c is None and self.bias is None

    @property
    def inputs(self) -> tuple[GlobalArray, ...]:
        """Arrays of the result's size that are read beside the sums."""
        return () if self.c is None else (self.c,)

    @property
    def of_columns(self) -> tuple[GlobalArray, ...]:
        """Arrays of one number for each column that are read beside the sums."""
        return () if self.bias is None else (self.bias,)

    def emit(
        self, ops: VectorOps, value: LocalTile, c: LocalTile | None, row: LocalTile | None, temps: Sequence[LocalTile]
    ) -> LocalTile:
        """Emit the instructions; returns the tile of the result.

        value: of the sum. c, row: of C and of the bias, where they are read. temps: two, in the format of the lanes;
        `value` may be the first.
        """
        if c is None:
            if self.alpha != 1:
                ops.op("scale", temps[0], value, scalar=self.alpha)
                value = temps[0]
        else:
            if c.format != temps[1].format:
                ops.op("cast", temps[1], c)
                c = temps[1]
            if self.beta != 1:
                ops.op("scale", temps[1], c, scalar=self.beta)
                c = temps[1]
            if self.alpha != 1:
                ops.op("fma", temps[0], value, c, scalar=self.alpha)
            else:
                ops.op("add", temps[0], value, c)
            value = temps[0]
        if row is not None:
            ops.op("add_row", temps[0], value, row)
            value = temps[0]
        return value


@dataclass(frozen=True, slots=True)
class VectorEpilogue:
    """The passes from the terms' sums to `output`.

    sum_format: of the cube's sums. join_format: in which runs and terms are added. end_format: in which `addition`
    computes what is done with the sum. powers: the exponents of A's rows and of B's columns, where the sum counts times
    2 to the sum of both. operand_sums: the arrays of the sums of operands that the plan adds, by operand. k: of the
    product.
    """

    plan: Plan
    terms: Sequence[StoredTermSums]
    output: GlobalArray
    sum_format: str
    join_format: str
    end_format: str
    addition: ScaledAddition
    powers: tuple[GlobalArray, GlobalArray] | None
    operand_sums: Mapping[Side, GlobalArray]
    k: int

    def passes(self) -> list[Pass]:
        """The passes, in order."""
        is_alike = self.sum_format == self.join_format == self.end_format and self.powers is None
        plain = is_alike and self.addition.is_empty and self.output.format == self.sum_format
        is_one = len(self.terms) == 1 and isinstance(self.plan.combine, TermValue)
        if self.plan.join == "group" or (plain and is_one):
            total = self.output if plain else self._sum("T.sum")
            folds = self._fold("join" if len(self.terms) > 1 else "sum", list(self.terms), total)
            return folds if plain else [*folds, self._last("combine", [total], TermValue(0))]
        made: list[Pass] = []
        sums = []
        for number, term in enumerate(self.terms, 1):
            if term.is_promoted:
                total = self._sum(f"{term.array.name}.sum")
                made += self._fold(f"sum_{number}", [term], total)
                sums.append(total)
            else:
                sums.append(term.array)
        if is_alike and not self.operand_sums:
            return [*made, self._last("combine", sums, self.plan.combine)]
        return [*made, *self._in_steps(sums)]

    def _sum(self, name: str) -> GlobalArray:
        return GlobalArray(name, self.output.rows, self.output.cols, self.join_format)

    def _fold(self, label: str, terms: list[StoredTermSums], total: GlobalArray) -> list[Pass]:
        """The pass total = (+0 + value of run 0) + value of run 1 ..., of one term, or of the combined terms."""
        expression: Expression = self.plan.combine if len(terms) > 1 else TermValue(0)
        converts = self.sum_format != self.join_format
        runs, m = terms[0].runs, self.output.rows
        per_pass = max(1, MOST_INPUTS // len(terms))
        made = []
        for first in range(0, runs, per_pass):
            count = min(per_pass, runs - first)

            def body(
                ops: VectorOps,
                ins: list[LocalTile],
                outs: list[LocalTile],
                temps: list[LocalTile],
                first: int = first,
                count: int = count,
            ) -> None:
                so_far = temps[0] if first == 0 else ins[-1]
                if first == 0:
                    ops.op("fill", so_far, scalar=0.0)
                for i in range(count):
                    values = dict(enumerate(ins[i * len(terms) : (i + 1) * len(terms)]))
                    value = values[0]
                    if converts or not isinstance(expression, TermValue):
                        value = temps[1]
                        evaluate(ops, expression, values, value, temps[2:])
                    ops.op("add", outs[0], so_far, value)
                    so_far = outs[0]

            inputs = [term.array for _ in range(count) for term in terms]
            offsets = [(first + i) * m for i in range(count) for _ in terms]
            if first:
                inputs, offsets = [*inputs, total], [*offsets, 0]
            scratch = (self.join_format,) * (2 + depth(expression, converts))
            name = label if runs <= per_pass else f"{label}.{first // per_pass + 1}"
            made.append(
                Pass(
                    name=name,
                    inputs=tuple(inputs),
                    outputs=(total,),
                    temporaries=scratch,
                    body=body,
                    shape=None,
                    offsets=tuple(offsets),
                )
            )
        return made

    def _in_steps(self, sums: list[GlobalArray]) -> list[Pass]:
        """The passes that add the terms' sums one after another, some in each pass, and finish the result."""
        expression, rest = self.plan.combine, []
        while isinstance(expression, Sum) and isinstance(expression.right, OperandSum | Depth):
            rest.append(expression.right)
            expression = expression.left
        steps = sequential_form(expression)
        if steps is None:
            raise UnsupportedError(f"scheme {self.plan.scheme}: its terms are not added one after another")
        made: list[Pass] = []
        total = self._sum("T.sum")
        for first in range(0, len(steps), MOST_INPUTS):
            chosen = steps[first : first + MOST_INPUTS]
            inputs = [sums[step.term] for step in chosen] + ([total] if first else [])
            value = _chain(chosen, TermValue(len(chosen)) if first else None)
            name = "combine" if len(steps) <= MOST_INPUTS else f"combine.{first // MOST_INPUTS + 1}"
            if first + MOST_INPUTS < len(steps):
                made.append(self._between(name, inputs, value, total))
                continue
            for part in reversed(rest):
                value = Sum(value, part)
            made.append(self._last(name, inputs, value))
        return made

    def _between(self, name: str, inputs: list[GlobalArray], value: Expression, total: GlobalArray) -> Pass:
        """A pass that adds some terms to the sum so far."""

        def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            evaluate(ops, value, dict(enumerate(ins)), temps[0], temps[1:])
            ops.op("copy", outs[0], temps[0])

        return Pass(name, tuple(inputs), (total,), (self.join_format,) * (1 + depth(value, True)), body)

    def _last(self, name: str, inputs: Sequence[GlobalArray], expression: Expression) -> Pass:
        """The pass from the terms' sums (or the combined one) to the result: powers, alpha, C, bias, format."""
        addition, count, end = self.addition, len(inputs), self.end_format
        converts = any(array.format != self.join_format for array in inputs)
        scratch = (self.join_format,) * depth(expression, converts)
        # Where the sum is not in the format of what follows, it has a tile of its own.
        own = (self.join_format,) if self.join_format != end else ()
        exponents = () if self.powers is None else ("int32",)
        of_rows, of_columns = self._of_rows, (*self._of_columns, *addition.of_columns)

        def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            target, more = temps[2] if own else temps[0], temps[2 + len(own) :]
            value = self._value(ops, expression, ins, target, more[len(exponents) :])
            if self.powers is not None:
                at = count + len(addition.inputs)
                ops.op("add", more[0], ins[at], ins[at + len(of_rows)])
                ops.op("ldexp", target, value, more[0], scalar=1.0)
                value = target
            if value.format != end:
                ops.op("cast", temps[0], value)
                value = temps[0]
            c = None if addition.c is None else ins[count]
            row = None if addition.bias is None else ins[-1]
            value = addition.emit(ops, value, c, row, temps)
            ops.op(_conversion(value.format, outs[0].format), outs[0], value)

        return Pass(
            name,
            (*inputs, *addition.inputs),
            (self.output,),
            (end, end, *own, *exponents, *scratch),
            body,
            of_rows=of_rows,
            of_columns=of_columns,
        )

    @property
    def _of_rows(self) -> tuple[GlobalArray, ...]:
        """The arrays of one number for each row of A that the sum needs."""
        return (*(self.powers or ())[:1], *(array for side, array in self.operand_sums.items() if side == "a"))

    @property
    def _of_columns(self) -> tuple[GlobalArray, ...]:
        """The arrays of one number for each column of B that the sum needs."""
        return (*(self.powers or ())[1:], *(array for side, array in self.operand_sums.items() if side == "b"))

    def _value(
        self, ops: VectorOps, expression: Expression, ins: list[Any], target: LocalTile, temps: Sequence[LocalTile]
    ) -> LocalTile:
        """Emit the value of the expression; returns its tile."""
        if isinstance(expression, TermValue) and ins[expression.term].format == target.format:
            tile: LocalTile = ins[expression.term]
            return tile
        first = len(ins) - len(self.addition.of_columns) - len(self._of_columns) - len(self._of_rows)
        arrays = dict(zip((*self._of_rows, *self._of_columns), ins[first:], strict=False))
        tiles = {side: arrays[array] for side, array in self.operand_sums.items()}
        extra: dict[Expression, Any] = {}
        for part in parts_of(expression):
            if isinstance(part, OperandSum):
                extra[part] = tiles[part.side]
            elif isinstance(part, Depth):
                extra[part] = float(part.factor * self.k)
        evaluate(ops, expression, dict(enumerate(ins)), target, temps, extra)
        return target


def _chain(steps: Sequence[JoinStep], total: Expression | None) -> Expression:
    """The expression that adds the terms of steps, numbered from 0, to the sum so far (None: there is none)."""
    for number, step in enumerate(steps):
        value = scaled(TermValue(number), step.own)
        if total is None:
            total = value
            continue
        total = scaled(total, step.exponent)
        total = Sum(value, total) if step.order == "value" else Sum(total, value)
    assert total is not None
    return total


def _conversion(source: str, target: str) -> Any:
    """The opcode that converts to the output format: integers keep their low bits."""
    if source == target:
        return "copy"
    one, other = format_of(source), format_of(target)
    return "extract" if one.is_integer and other.is_integer and other.bits < one.bits else "cast"


def refuses(gemm: Gemm) -> str:
    """What of a record the vector kernels do not carry: fusions and roundings other than their own, scales of sums."""
    return refusals.joined(refusals.of_epilogue(gemm.epilogue, FUSIONS), refusals.scales(gemm.problem, refusals.SUMS))
