"""Kernels of the vector cores that follow the GEMMs on a separated DaVinci core.

Promotion, combination of the terms, alpha, C, bias, and conversion to the output format: elementwise passes over global
memory, where cube and vector cores exchange data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwsim.dataflows.elementwise import Pass, VectorOps, depth, evaluate
from hwsim.gemm.plan import Expression, Plan, TermValue
from hwsim.program.ir import GlobalArray, LocalTile

WORDS = {"fp32": 1, "int32": 1, "int64": 2}  # 32-bit words of the vector cores' arithmetic
MOST_INPUTS = 8  # sums of runs of K that one vector kernel adds


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

    sum_format: of the sums. addition: what is done with the sum. placeholder_ops: operations per element that stand for
    sums which fp32 lanes cannot compute; 0 where they can.
    """

    plan: Plan
    terms: Sequence[StoredTermSums]
    output: GlobalArray
    sum_format: str
    addition: ScaledAddition
    placeholder_ops: int

    def passes(self) -> list[Pass]:
        """The passes, in order."""
        if self.placeholder_ops:
            return self._placeholders()
        plain = self.addition.is_empty and self.output.format == self.sum_format
        is_one = len(self.terms) == 1 and isinstance(self.plan.combine, TermValue)
        if self.plan.join == "group" or (plain and is_one):
            total = self.output if plain else self._sum("T.sum")
            folds = self._fold("join" if len(self.terms) > 1 else "sum", list(self.terms), total)
            return folds if plain else [*folds, self._combine([total], TermValue(0))]
        made: list[Pass] = []
        sums = []
        for number, term in enumerate(self.terms, 1):
            if term.is_promoted:
                total = self._sum(f"{term.array.name}.sum")
                made += self._fold(f"sum_{number}", [term], total)
                sums.append(total)
            else:
                sums.append(term.array)
        return [*made, self._combine(sums, self.plan.combine)]

    def _sum(self, name: str) -> GlobalArray:
        return GlobalArray(name, self.output.rows, self.output.cols, self.sum_format)

    def _placeholders(self) -> list[Pass]:
        """Passes that read all runs of the terms and take the time of their sum."""
        m = self.output.rows
        values = [(term.array, run * m) for term in self.terms for run in range(term.runs)]
        words = WORDS[self.plan.arithmetic]
        made = []
        for first in range(0, len(values), MOST_INPUTS):
            chosen = values[first : first + MOST_INPUTS]
            is_last = first + MOST_INPUTS >= len(values)
            addends = (self.addition.c, self.addition.bias)
            more = self.placeholder_ops + sum(array is not None for array in addends)
            count = len(chosen) - 1 + (more if is_last else 0)

            def body(
                ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile], count: int = count
            ) -> None:
                wide = replace(temps[0], cols=temps[0].cols * words, format="fp32")
                for _ in range(max(count, 1)):
                    ops.op("add", wide, wide, wide)

            inputs = [array for array, _ in chosen] + ([self.output] if first else [])
            offsets = [row for _, row in chosen] + ([0] if first else [])
            name = "combine" if len(values) <= MOST_INPUTS else f"combine.{first // MOST_INPUTS + 1}"
            scratch = ("fp64" if words > 1 else "fp32",)
            made.append(
                Pass(
                    name=name,
                    inputs=tuple(inputs),
                    outputs=(self.output,),
                    temporaries=scratch,
                    body=body,
                    shape=None,
                    offsets=tuple(offsets),
                )
            )
        return made

    def _fold(self, label: str, terms: list[StoredTermSums], total: GlobalArray) -> list[Pass]:
        """The pass total = (+0 + value of run 0) + value of run 1 ..., of one term, or of the combined terms."""
        expression: Expression = self.plan.combine if len(terms) > 1 else TermValue(0)
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
                    if not isinstance(expression, TermValue):
                        value = temps[1]
                        evaluate(ops, expression, values, value, temps[2:])
                    ops.op("add", outs[0], so_far, value)
                    so_far = outs[0]

            inputs = [term.array for _ in range(count) for term in terms]
            offsets = [(first + i) * m for i in range(count) for _ in terms]
            if first:
                inputs, offsets = [*inputs, total], [*offsets, 0]
            scratch = (self.sum_format,) * (2 + depth(expression))
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

    def _combine(self, sums: list[GlobalArray], expression: Expression) -> Pass:
        """The pass from the terms' sums (or the combined one) to the result: alpha, C, bias, format."""
        addition, count = self.addition, len(sums)

        def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            value = ins[expression.term] if isinstance(expression, TermValue) else temps[0]
            if value is temps[0]:
                evaluate(ops, expression, dict(enumerate(ins[:count])), value, temps[2:])
            c = None if addition.c is None else ins[count]
            row = None if addition.bias is None else ins[-1]
            value = addition.emit(ops, value, c, row, temps)
            ops.op("copy" if outs[0].format == value.format else "cast", outs[0], value)

        return Pass(
            "combine",
            (*sums, *addition.inputs),
            (self.output,),
            ("fp32",) * (2 + depth(expression)),
            body,
            repeated=() if addition.bias is None else (addition.bias,),
        )
