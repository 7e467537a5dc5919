"""The split-K reduction kernel: adds up slices of K in an elementwise pass over C.

It knows what a tile's epilogue does to a sum (TileEpilogue), not how K was split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import Pass, depth, evaluate
from hwsim.gemm.plan import TermValue

if TYPE_CHECKING:
    from hwsim.dataflows.elementwise import VectorOps
    from hwsim.dataflows.tiled.model import TileEpilogue
    from hwsim.gemm.plan import Expression
    from hwsim.program.ir import GlobalArray, LocalTile


def reduction_pass(
    name: str,
    partial: Sequence[GlobalArray],
    c: GlobalArray | None,
    target: GlobalArray,
    epilogue: TileEpilogue,
    slices: int,
    *,
    joined: bool = False,
    placeholder: bool = False,
    words: int = 1,
) -> Pass:
    """The pass that adds slices in ascending order and then applies the epilogue that a kernel without split-K has.

    Each array of `partial` holds `slices` matrices of C's height, one below another. epilogue: to apply; c, target: its
    matrices. joined: the terms are combined already. placeholder: the arithmetic is not that of the fp32 lanes:
    additions of elements of `words` words are timed instead.
    """
    addends = () if c is None else (c,)
    reads = (*(array for array in partial for _ in range(slices)), *addends)
    offsets = (*(i * target.rows for _ in partial for i in range(slices)), *(0 for _ in addends))
    expression: Expression = TermValue(0) if joined or epilogue.value is None else epilogue.value

    def placeholders(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        wide = replace(temps[0], cols=temps[0].cols * words, format="fp32")
        for _ in range(epilogue.placeholder_ops + len(partial) * (slices - 1) + len(addends) + epilogue.bias):
            ops.op("add", wide, wide, wide)

    def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        values: dict[int, LocalTile] = {}
        for t in range(len(partial)):
            total = ins[t * slices]
            for i in range(1, slices):
                ops.op("add", temps[t], total, ins[t * slices + i])
                total = temps[t]
            values[t] = total
        scratch = temps[len(partial) :]
        evaluate(ops, expression, values, scratch[0], scratch[2:])
        value = scratch[0]
        if epilogue.alpha != 1:
            ops.op("scale", value, value, scalar=epilogue.alpha)
        if c is not None:
            other = ins[-1]
            if c.format != "fp32":
                ops.op("cast", scratch[1], other)
                other = scratch[1]
            if epilogue.beta != 1:
                ops.op("scale", scratch[1], other, scalar=epilogue.beta)
                other = scratch[1]
            ops.op("add", value, *((value, other) if epilogue.order == "value" else (other, value)))
        if epilogue.bias:
            ops.op("add", value, value, value)
        ops.op("copy" if outs[0].format == "fp32" else "cast", outs[0], value)

    temporaries = ("fp64",) if placeholder else ("fp32",) * (len(partial) + 2 + depth(expression))
    return Pass(
        name=name,
        inputs=reads,
        outputs=(target,),
        temporaries=temporaries,
        body=placeholders if placeholder else body,
        shape=None,
        offsets=offsets,
    )
