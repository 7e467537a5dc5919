"""Kernels of the vector cores that follow the GEMMs on a separated DaVinci core.

Promotion, combination of the terms, alpha, C, bias, and conversion to the output format: elementwise passes over global
memory, where cube and vector cores exchange data. The module knows a plan, an epilogue and arrays; it knows no cube and
no blocking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwsim.dataflows.davinci.join_ops import OutputEpilogue, SumArrays, TermJoin, conversion, exact_passes
from hwsim.dataflows.elementwise import Pass
from hwsim.dataflows.expression_ops import depth, evaluate
from hwsim.dataflows.protocol import Features
from hwsim.dataflows.records import ROUNDINGS
from hwsim.dataflows.vector_ops import VectorOps
from hwsim.gemm import refusals
from hwsim.gemm.plan import Expression, Plan, TermValue
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
class VectorEpilogue:
    """The passes from the terms' sums to `output`.

    sum_format: of the cube's sums. join_format: in which runs and terms are added. end_format: in which `epilogue`
    computes what is done with the sum. powers: the exponents of A's rows and of B's columns, where the sum counts times
    2 to the sum of both. extra: of the plan's sums of operands their arrays, of its multiples of K their values. k: of
    the product.
    """

    plan: Plan
    terms: Sequence[StoredTermSums]
    output: GlobalArray
    sum_format: str
    join_format: str
    end_format: str
    epilogue: OutputEpilogue
    powers: tuple[GlobalArray, GlobalArray] | None
    extra: Mapping[Expression, GlobalArray | float]
    k: int

    def passes(self) -> list[Pass]:
        """The passes, in order."""
        is_alike = self.sum_format == self.join_format == self.end_format and self.powers is None
        plain = is_alike and self.epilogue.is_plain and self.output.format == self.sum_format
        is_one = len(self.terms) == 1 and isinstance(self.plan.combine, TermValue)
        if self.plan.join == "group" or (plain and is_one):
            total = self.output if plain else self._sum("T.sum")
            folds = self._fold("join" if len(self.terms) > 1 else "sum", list(self.terms), total)
            return folds if plain else [*folds, self._combine([total], TermValue(0))]
        passes: list[Pass] = []
        sums = []
        for number, term in enumerate(self.terms, 1):
            if term.is_promoted:
                total = self._sum(f"{term.array.name}.sum")
                passes += self._fold(f"sum_{number}", [term], total)
                sums.append(total)
            else:
                sums.append(term.array)
        if self.plan.arithmetic == "exact" and self.powers is not None:
            return [*passes, *exact_passes(self.plan, self.k, sums, (0,), self.output, self.powers, self.epilogue)]
        if is_alike and not self.extra:
            return [*passes, self._combine(sums, self.plan.combine)]
        join = TermJoin(self.plan.combine, self.join_format, self.end_format, self.epilogue, self.powers, self.extra)
        return [*passes, *join.passes("combine", SumArrays(tuple(sums), 1), self.output, MOST_INPUTS)]

    def finish(self, total: GlobalArray) -> Pass:
        """The pass from an array of the finished sum to `output`."""
        return self._combine([total], TermValue(0))

    def _sum(self, name: str) -> GlobalArray:
        return GlobalArray(name, self.output.rows, self.output.cols, self.join_format)

    def _fold(self, label: str, terms: list[StoredTermSums], total: GlobalArray) -> list[Pass]:
        """The pass total = (+0 + value of run 0) + value of run 1 ..., of one term, or of the combined terms."""
        expression: Expression = self.plan.combine if len(terms) > 1 else TermValue(0)
        converts = self.sum_format != self.join_format
        runs, m = terms[0].runs, self.output.rows
        per_pass = max(1, MOST_INPUTS // len(terms))
        passes = []
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
            passes.append(
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
        return passes

    def _combine(self, sums: list[GlobalArray], expression: Expression) -> Pass:
        """The pass from the terms' sums (or the combined one) to the result: alpha, C, bias, format."""
        epilogue, count = self.epilogue, len(sums)

        def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            value = ins[expression.term] if isinstance(expression, TermValue) else temps[0]
            if value is temps[0]:
                evaluate(ops, expression, dict(enumerate(ins[:count])), value, temps[2:])
            if not epilogue.is_plain:
                c = None if epilogue.c is None else ins[count]
                epilogue.emit(ops, temps[0], value, c, None if epilogue.bias is None else ins[-1], temps)
                value = temps[0]
            ops.op(conversion(value.format, outs[0].format), outs[0], value)

        return Pass(
            "combine",
            (*sums, *(() if epilogue.c is None else (epilogue.c,))),
            (self.output,),
            (self.end_format,) * (2 + depth(expression)),
            body,
            of_columns=() if epilogue.bias is None else (epilogue.bias,),
        )


def refuses(gemm: Gemm) -> str:
    """What of a record the vector kernels do not carry: roundings other than their own, scales of sums."""
    return refusals.joined(refusals.of_epilogue(gemm.epilogue, ROUNDINGS), refusals.scales(gemm.problem, refusals.SUMS))
