"""Programs of plans whose parts of K are split alone: the product of each part, one after another, into one sum.

The sum passes through memory in the plan's result format (see hwsim.gemm.plan.Plan, k_parts). It knows dataflows and
records; it knows no scheme and no bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import Pass, VectorOps
from hwsim.dataflows.program_sequence import C_INPUT, ProgramSequence
from hwsim.gemm.plan import Plan
from hwsim.program.ir import GlobalArray, LocalTile, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hwsim.dataflows.protocol import Dataflow
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

SUM, WIDE_C = "sum", "C.wide"


def is_in_parts(gemm: Gemm) -> bool:
    """Whether the parts of the record's K are split alone."""
    return isinstance(gemm.plan, Plan) and bool(gemm.plan.k_parts)


def longest(gemm: Gemm) -> Gemm:
    """The record of the longest part of K of one matrix, which adds to the parts before it: its mapping is that of all
    parts.
    """
    part = max(_parts(gemm), key=lambda part: part.problem.k)
    return replace(part, problem=replace(part.problem, has_c=True, lead=()))


def with_mapping_of(gemm: Gemm, part: Gemm) -> Gemm:
    """The record with the mapping of its longest part."""
    return replace(
        gemm,
        problem=gemm.problem.with_layouts(part.problem.a_layout, part.problem.b_layout),
        schedule=replace(part.schedule, epilogue=gemm.epilogue),
        mapping=part.mapping,
        decisions=part.decisions,
    )


def lowered(flow: Dataflow, gemm: Gemm, device: Device) -> Program:
    """The program of a mapped record of one matrix: its parts of K in order, each with the record's mapping."""
    problem, plan = gemm.problem, gemm.single
    is_wide = gemm.output == plan.output_format
    sequence = ProgramSequence(
        GlobalArray("A", problem.m, problem.k, plan.input_format, problem.a_layout),
        GlobalArray("B", problem.k, problem.n, plan.input_format, problem.b_layout),
    )
    output = GlobalArray("C", problem.m, problem.n, gemm.output)
    total = replace(output, name=SUM, format=plan.output_format)
    if problem.has_c and not is_wide:
        c = replace(output, name=C_INPUT)
        sequence.add_input(c)
        sequence.add_pass(_conversion("widen", c, replace(total, name=WIDE_C)), device)
    start = 0
    for number, part in enumerate(_parts(gemm)):
        is_last = number + 1 == len(plan.k_parts)
        target = output.name if is_last and is_wide else SUM
        shared = {C_INPUT: SUM} if number else {} if is_wide else {C_INPUT: WIDE_C}
        sequence.add(f"part{number + 1}", flow.lower(part, device), target, start, shared)
        start += part.problem.k
    if not is_wide:
        sequence.add_pass(_conversion("round", total, output, gemm.epilogue.output_rounding), device)
    return sequence.program()


def _parts(gemm: Gemm) -> Iterator[Gemm]:
    """The record of each part of K: alpha times its product, and the sum before it."""
    problem, plan = gemm.problem, gemm.single
    is_fused = gemm.epilogue.contraction is None and gemm.epilogue.product_format is None
    for number, length in enumerate(plan.k_parts):
        is_last, adds = number + 1 == len(plan.k_parts), number > 0
        epilogue = replace(
            gemm.epilogue,
            beta=1.0 if adds else gemm.epilogue.beta,
            contraction="alpha" if adds or is_fused else gemm.epilogue.contraction,
            product_format=None if adds else gemm.epilogue.product_format,
            output_format=plan.output_format,
            output_rounding="RNE",
        )
        yield replace(
            gemm,
            problem=replace(problem, k=length, has_c=adds or problem.has_c, bias=problem.bias if is_last else None),
            plan=replace(plan, k_parts=()),
            schedule=replace(gemm.schedule, epilogue=epilogue),
            output=plan.output_format,
        )


def _conversion(name: str, source: GlobalArray, target: GlobalArray, rounding: str = "RNE") -> Pass:
    """The pass from a matrix to the same one in another format."""

    def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        ops.op("cast", outs[0], ins[0], rounding=rounding)

    return Pass(name, (source,), (target,), (), body)
