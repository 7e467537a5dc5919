"""The split-K reduction kernel: adds up slices of K in an elementwise pass over C.

It knows what a tile's epilogue does to a sum (TileEpilogue), not how K was split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import Pass, depth, evaluate
from hwsim.gemm import refusals
from hwsim.gemm.plan import TermValue

if TYPE_CHECKING:
    from hwsim.dataflows.elementwise import VectorOps
    from hwsim.dataflows.tiled.model import TileEpilogue
    from hwsim.gemm.plan import Expression
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import GlobalArray, LocalTile


def add_previous(
    ops: VectorOps,
    epilogue: TileEpilogue,
    target: LocalTile,
    value: LocalTile,
    previous: LocalTile,
    scratch: LocalTile,
    label: str = "",
) -> None:
    """Emit target = value + scale * previous. scratch: may be the target."""
    if epilogue.scale != 1:
        ops.op("scale", scratch, previous, scalar=epilogue.scale, label=label)
        previous = scratch
    pair = (value, previous) if epilogue.order == "value" else (previous, value)
    ops.op("add", target, *pair, label=label)


def add_c(
    ops: VectorOps,
    epilogue: TileEpilogue,
    target: LocalTile,
    value: LocalTile,
    c: LocalTile,
    scratch: LocalTile,
    label: str = "",
) -> None:
    """Emit target = value + beta * C, or with the multiplication that is fused with the addition. scratch: in the
    format of the lanes; may be the target.
    """
    if c.format != scratch.format:
        ops.op("cast", scratch, c, label=label)
        c = scratch
    if epilogue.fused == "beta":
        ops.op("fma", target, c, value, scalar=epilogue.beta, label=label)
        return
    if epilogue.beta != 1:
        ops.op("scale", scratch, c, scalar=epilogue.beta, label=label)
        c = scratch
    if epilogue.fused == "alpha":
        ops.op("fma", target, value, c, scalar=epilogue.alpha, label=label)
    else:
        ops.op("add", target, value, c, label=label)


def reduction_pass(
    name: str,
    partial: Sequence[GlobalArray],
    addends: Sequence[GlobalArray],
    target: GlobalArray,
    epilogue: TileEpilogue,
    slices: int,
    *,
    joined: bool = False,
    placeholder: bool = False,
    words: int = 1,
) -> Pass:
    """The pass that adds slices in ascending order and then applies the epilogue that a kernel without split-K has.

    Each array of `partial` holds `slices` matrices of C's height, one below another. epilogue: to apply; addends,
    target: its matrices. joined: the terms are combined already. placeholder: the arithmetic is not that of the fp32
    lanes: additions of elements of `words` words are timed instead.
    """
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
        added = ins[len(partial) * slices : len(reads)]
        if epilogue.previous is not None:
            add_previous(ops, epilogue, value, value, added[0], scratch[1])
        if epilogue.alpha != 1 and epilogue.fused != "alpha":
            ops.op("scale", value, value, scalar=epilogue.alpha)
        if epilogue.c is not None:
            add_c(ops, epilogue, value, value, added[-1], scratch[1])
        if epilogue.bias:
            ops.op("add_row", value, value, ins[-1])
        ops.op("copy" if outs[0].format == epilogue.format else "cast", outs[0], value)

    temporaries = ("fp64",) if placeholder else (epilogue.format,) * (len(partial) + 2 + depth(expression))
    return Pass(
        name=name,
        inputs=reads,
        outputs=(target,),
        temporaries=temporaries,
        body=placeholders if placeholder else body,
        shape=None,
        offsets=offsets,
        row=epilogue.bias_row,
    )


def refuses(gemm: Gemm) -> str:
    """What of a record the reduction does not carry: orders and formats other than its own, sums rounded into C."""
    schedule, count = gemm.schedule, len(gemm.schedule.slice_lengths(gemm.problem.k))
    if count == 1:
        return ""
    return refusals.joined(
        refusals.named({"merge_order": schedule.merge_order not in ("ascending", tuple(range(count)))}),
        refusals.of_schedule(schedule, ("partial_format", "merge_format")),
        refusals.named({"merge_into='output'": schedule.merge_into == "output"}),
    )
