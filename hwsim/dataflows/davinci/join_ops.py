"""Vector instructions of DaVinci cores that finish C: slices added, terms joined, alpha, C, bias, conversion.

It knows an expression over terms, an epilogue and the arrays of the sums; it knows no plan, no cube and no blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import Pass, VectorOps, depth, evaluate
from hwsim.gemm.plan import TermValue
from hwsim.program.ir import AnyTile, GlobalArray, LocalTile

if TYPE_CHECKING:
    from hwsim.gemm.plan import Expression
    from hwsim.gemm.record import Gemm

Step = Callable[[LocalTile, LocalTile], None]  # emits target = step(value)
EPILOGUE_TILES = 2  # scratch tiles of `OutputEpilogue.emit`


@dataclass(frozen=True, slots=True)
class OutputEpilogue:
    """D = alpha * sum + beta * C + bias, where `beta` = 0 leaves C unread.

    is_cut: the sum has several slices of K, which decides the multiplication that rounds together with the addition of
    C: beta's, else alpha's.
    """

    alpha: float = 1.0
    beta: float = 0.0
    has_bias: bool = False
    is_cut: bool = False

    @classmethod
    def of(cls, gemm: Gemm, slices: int) -> OutputEpilogue:
        """The epilogue of a record whose K has this number of slices."""
        beta = gemm.epilogue.beta if gemm.problem.has_c else 0.0
        return cls(gemm.epilogue.alpha, beta or 0.0, gemm.problem.bias is not None, slices > 1)

    @property
    def is_plain(self) -> bool:
        """Whether D is the sum."""
        return self.alpha == 1 and not self.beta and not self.has_bias

    def emit(
        self,
        ops: VectorOps,
        target: LocalTile,
        value: LocalTile,
        c: LocalTile | None,
        bias: AnyTile | None,
        temps: Sequence[LocalTile],
    ) -> None:
        """Emit target = alpha * value + beta * C + bias.

        c, bias: tiles of these, where the epilogue reads them. temps: two tiles in the format of the lanes.
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
            ops.op("copy" if target.format == value.format else "cast", target, value)

    def _steps(self, ops: VectorOps, c: LocalTile | None, bias: AnyTile | None, scratch: LocalTile) -> list[Step]:
        """The instructions on the sum, in order."""
        steps: list[Step] = []
        is_alpha_fused = bool(self.beta) and not self.is_cut
        if self.alpha != 1 and not is_alpha_fused:
            steps.append(lambda target, value: ops.op("scale", target, value, scalar=self.alpha))
        if self.beta:
            assert c is not None
            addend = c
            steps.append(lambda target, value: self._add_c(ops, target, value, addend, scratch))
        if self.has_bias:
            assert bias is not None
            row = bias
            steps.append(lambda target, value: ops.op("add_row", target, value, row))
        return steps

    def _add_c(self, ops: VectorOps, target: LocalTile, value: LocalTile, c: LocalTile, scratch: LocalTile) -> None:
        """Emit target = alpha * value + beta * C, with one rounding of a product and the sum."""
        if c.format != scratch.format:
            ops.op("cast", scratch, c)
            c = scratch
        if self.is_cut and self.beta != 1:
            ops.op("fma", target, c, value, scalar=self.beta)
            return
        if self.beta != 1:
            ops.op("scale", scratch, c, scalar=self.beta)
            c = scratch
        if self.alpha != 1 and not self.is_cut:
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

    def added(self, ops: VectorOps, tiles: Sequence[LocalTile], totals: Sequence[LocalTile]) -> dict[int, LocalTile]:
        """Emit the sums of the slices in ascending order; the tile of each term. totals: one tile of each term."""
        values: dict[int, LocalTile] = {}
        for t in range(len(self.terms)):
            value = tiles[t * self.slices]
            for part in tiles[t * self.slices + 1 : (t + 1) * self.slices]:
                ops.op("add", totals[t], value, part)
                value = totals[t]
            values[t] = value
        return values


def join_pass(
    name: str,
    expression: Expression,
    sums: SumArrays,
    output: GlobalArray,
    epilogue: OutputEpilogue,
    c: GlobalArray | None = None,
    bias: str = "",
) -> Pass:
    """The pass output = epilogue(expression over the terms' sums). c: read where `epilogue.beta` is not 0. bias: the
    array of one row that is added, where the epilogue has one.
    """
    lanes = sums.terms[0].format
    is_stored = epilogue.is_plain and output.format == lanes
    addends = (c,) if c is not None and epilogue.beta else ()
    totals = len(sums.terms) if sums.slices > 1 else 0
    tail = 0 if is_stored else EPILOGUE_TILES

    def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        values = sums.added(ops, ins, temps)
        end, scratch = temps[totals : totals + tail], temps[totals + tail :]
        if is_stored:
            evaluate(ops, expression, values, outs[0], scratch)
            return
        if isinstance(expression, TermValue):
            value = values[expression.term]
        else:
            value = end[0]
            evaluate(ops, expression, values, value, scratch)
        count = len(sums.inputs)
        epilogue.emit(ops, outs[0], value, ins[count] if addends else None, ins[-1] if bias else None, end)

    return Pass(
        name=name,
        inputs=(*sums.inputs, *addends),
        outputs=(output,),
        temporaries=(lanes,) * (totals + tail + depth(expression)),
        body=body,
        offsets=(*sums.offsets(output.rows), *(0 for _ in addends)),
        row=bias if epilogue.has_bias else "",
    )


__all__ = ["OutputEpilogue", "SumArrays", "join_pass"]
