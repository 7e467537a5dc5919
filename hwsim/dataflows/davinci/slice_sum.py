"""The pass that adds the slices of K of each term, in ascending order, and combines the terms to C.

It knows arrays and an expression over terms, not how K was cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsim.dataflows.elementwise import Pass, VectorOps, combine_pass, depth, evaluate
from hwsim.dataflows.records import MERGE
from hwsim.gemm import refusals
from hwsim.gemm.plan import Expression
from hwsim.gemm.record import Gemm
from hwsim.program.ir import GlobalArray, LocalTile


def sliced_combine_pass(
    name: str, expression: Expression, terms: Sequence[GlobalArray], target: GlobalArray, slices: int
) -> Pass:
    """The pass target = expression over the sums of the terms' slices.

    terms: each holds `slices` matrices of the target's height, one below another.
    """
    if slices == 1:
        return combine_pass(name, expression, terms, target)

    def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        for t in range(len(terms)):
            parts = ins[t * slices : (t + 1) * slices]
            total = parts[0]
            for part in parts[1:]:
                ops.op("add", temps[t], total, part)
                total = temps[t]
        evaluate(ops, expression, dict(enumerate(temps[: len(terms)])), outs[0], temps[len(terms) :])

    return Pass(
        name=name,
        inputs=tuple(term for term in terms for _ in range(slices)),
        outputs=(target,),
        temporaries=(terms[0].format,) * len(terms) + ("fp32",) * depth(expression),
        body=body,
        shape=None,
        offsets=tuple(i * target.rows for _ in terms for i in range(slices)),
    )


def refuses(gemm: Gemm) -> str:
    """What of a record the sum of slices does not carry: another order, other formats, sums rounded into C."""
    return refusals.of_schedule(gemm.schedule, MERGE)
