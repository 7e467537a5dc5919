"""The split-K reduction kernel: adds up slices of K in an elementwise pass over C.

It knows what a tile's epilogue does to a sum (TileEpilogue), not how K was split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.elementwise import Pass
from hwsim.dataflows.expression_ops import depth, evaluate
from hwsim.dataflows.tiled.factors import multiply
from hwsim.formats import format_of
from hwsim.gemm import refusals
from hwsim.gemm.plan import OperandSum, TermValue

if TYPE_CHECKING:
    from hwsim.dataflows.elementwise import VectorOps
    from hwsim.dataflows.tiled.model import TileEpilogue
    from hwsim.gemm.plan import Expression
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import GlobalArray, LocalTile
    from hwsim.program.roles import Opcode


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


def conversion(source: str, target: str) -> Opcode:
    """The instruction from a format to another one; integers that are narrower keep their low bits."""
    if source == target:
        return "copy"
    before, after = format_of(source), format_of(target)
    return "extract" if before.is_integer and after.is_integer and after.bits < before.bits else "cast"


def reduction_pass(
    name: str,
    partial: Sequence[GlobalArray],
    addends: Sequence[GlobalArray],
    target: GlobalArray,
    epilogue: TileEpilogue,
    slices: int,
    *,
    vectors: Mapping[str, GlobalArray],
    matrices: int = 1,
    joined: bool = False,
) -> Pass:
    """The pass that adds slices in ascending order and then applies the epilogue that a kernel without split-K has.

    Each array of `partial` holds `slices` matrices of C's height, one below another. epilogue: to apply; addends,
    target: its matrices; vectors: its arrays of one number for each row or column, by name. matrices: of a stack.
    joined: the terms are combined already.
    """
    reads = (*(array for array in partial for _ in range(slices)), *addends)
    offsets = (*(i * target.rows for _ in partial for i in range(slices)), *(0 for _ in addends))
    expression: Expression = TermValue(0) if joined or epilogue.value is None else epilogue.value
    form, count = epilogue.join_format, len(partial)
    converts = any(array.format != form for array in partial)
    needed = depth(expression, converts and slices == 1)
    is_apart = epilogue.format != form
    extra = {} if joined else dict(epilogue.extra)
    of_rows, of_columns = ([array] for array in epilogue.powers) if epilogue.powers else ([], [])
    factors = epilogue.factors
    if factors is not None:
        of_rows.append(factors.a)
        of_columns.append(factors.b)
    for node, source in extra.items():
        if isinstance(node, OperandSum) and isinstance(source, str):
            (of_rows if node.side == "a" else of_columns).append(source)
    names = [*of_rows, *of_columns]

    def added(ops: VectorOps, ins: list[LocalTile], temps: list[LocalTile]) -> dict[int, LocalTile]:
        """The terms' values: sums of their slices in the format in which they join."""
        values: dict[int, LocalTile] = {}
        for t in range(count):
            total = ins[t * slices]
            if slices > 1 and total.format != form:
                ops.op("cast", temps[t], total)
                total = temps[t]
            for i in range(1, slices):
                part = ins[t * slices + i]
                if part.format != form:
                    ops.op("cast", temps[-1], part)
                    part = temps[-1]
                ops.op("add", temps[t], total, part)
                total = temps[t]
            values[t] = total
        return values

    def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        values, tiles = added(ops, ins, temps), dict(zip(names, ins[len(reads) :], strict=False))
        value, spare, *scratch = temps[count:]
        parts = {node: source if isinstance(source, float) else tiles[source] for node, source in extra.items()}
        evaluate(ops, expression, values, value, scratch[:needed], parts)
        addend = ins[count * slices : len(reads)]
        if epilogue.previous is not None:
            add_previous(ops, epilogue, value, value, addend[0], spare)
        if epilogue.powers is not None:
            exponents = scratch[needed]
            ops.op("add", exponents, *(tiles[array] for array in epilogue.powers))
            ops.op("ldexp", value, value, exponents, scalar=1.0)
        if is_apart:
            outer = scratch[needed + bool(epilogue.powers) :]
            ops.op("cast", outer[0], value)
            value, spare = outer[:2]
        if factors is not None:
            pair = tiles[factors.a], tiles[factors.b]
            multiply(ops, factors.order, pair, value, value, lambda rows, cols: spare.part(0, rows, cols))
        if epilogue.alpha != 1 and epilogue.fused != "alpha":
            ops.op("scale", value, value, scalar=epilogue.alpha)
        if epilogue.product_format:
            narrow = replace(spare, format=epilogue.product_format)
            ops.op("cast", narrow, value)
            ops.op("cast", value, narrow)
        if epilogue.c is not None:
            add_c(ops, epilogue, value, value, addend[-1], spare)
        if epilogue.bias:
            ops.op("add_row", value, value, ins[-1])
        ops.op(conversion(value.format, outs[0].format), outs[0], value, rounding=epilogue.rounding)

    temporaries = (
        *(form,) * (count + 2 + needed),
        *(("int32",) if epilogue.powers else ()),
        *((epilogue.format,) * (2 * is_apart)),
        *((form,) if converts and slices > 1 else ()),
    )
    return Pass(
        name=name,
        inputs=reads,
        outputs=(target,),
        temporaries=temporaries,
        body=body,
        offsets=offsets,
        row=epilogue.bias_row,
        of_rows=tuple([vectors[array] for array in of_rows]),
        of_columns=tuple([vectors[array] for array in of_columns]),
        matrices=matrices if of_columns else 1,
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
