"""Programs of GEMMs with mixed plans (Ape, section 5): each plan's kernels over its blocks of C and K.

The kernels of a plan add their sum to what the plans before have left in C. Kernels that classify and count blocks come
first; they stand for time alone, as what they find is in the record. Where no operands were there to look at, each
plan's blocks are a share of K of all of C. It knows dataflows and records; it knows no operand values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.elementwise import Pass, VectorOps
from hwsim.dataflows.plan_areas import AreaDataflow, areas_of, even_shares
from hwsim.dataflows.program_sequence import ProgramSequence, StackSequence
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.mixed_plan import one_for_all, short_name
from hwsim.gemm.plan import Mixed
from hwsim.gemm.schedule import Epilogue
from hwsim.program.ir import GlobalArray, LocalTile, Program

if TYPE_CHECKING:
    from hwsim.dataflows.protocol import Dataflow
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

DECIDE = "decide"  # the strategy that inspects the blocks and selects one plan for all, or one per block
SCAN_OPERATIONS = 2  # per element: the least and the largest magnitude of a block
MODEL = "each plan's kernels over its share of K, its blocks spread evenly over the output"
SUM_FORMAT = "fp32"  # in which the plans' sums are added


def classifies_blocks(mixed: Mixed) -> bool:
    """Whether the program has kernels that classify and count the blocks."""
    return one_for_all(mixed) is None or mixed.strategy == DECIDE


def mapped(flow: Dataflow, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
    """The record with each part mapped. options: for the plans' parts; the counting GEMMs use their defaults."""
    counting, plans = parts_of(gemm)
    parts = [flow.map(part, device, {}) for part in counting] + [flow.map(part, device, options) for part in plans]
    return dataclasses.replace(gemm, parts=tuple(parts), mapping=parts[-1].mapping)


def lowered(flow: Dataflow, gemm: Gemm, device: Device) -> Program:
    """The program of all parts in sequence."""
    mixed, problem = gemm.plan, gemm.problem
    assert isinstance(mixed, Mixed)
    if problem.matrices > 1 and has_blocks(gemm) and not flow.features.stacks:
        return _of_stack(flow, gemm, device)
    counting, plans = mapped_parts(gemm)
    sequence = ProgramSequence(
        GlobalArray("A", problem.matrices * problem.m, problem.k, "fp32", problem.a_layout),
        GlobalArray("B", problem.matrices * problem.k, problem.n, "fp32", problem.b_layout),
    )
    if classifies_blocks(mixed):
        add_block_counting(sequence, counting, flow, device)
    if len(plans) == 1:
        only = plans[0]
        assert not isinstance(only.plan, Mixed)
        sequence.add(short_name(mixed, only.plan), flow.lower(only, device), "C")
        return sequence.program()
    if not isinstance(flow, AreaDataflow):
        raise UnsupportedError(f"the {flow.name} dataflow has no programs of blocks with plans of their own")
    _add_areas(sequence, gemm, plans, flow, device)
    return sequence.program()


def has_blocks(gemm: Gemm) -> bool:
    """Whether the record says which plan each block of each matrix uses."""
    return isinstance(gemm.plan, Mixed) and bool(gemm.plan.a_types)


def _of_stack(flow: Dataflow, gemm: Gemm, device: Device) -> Program:
    """The program of a stack of matrices: of each in turn, by its own blocks."""
    mixed, problem = gemm.plan, gemm.problem
    assert isinstance(mixed, Mixed)
    count, sequence = problem.matrices, None
    for number, (a_types, b_types) in enumerate(
        zip(_split(mixed.a_types, count), _split(mixed.b_types, count), strict=True)
    ):
        own_plan = dataclasses.replace(mixed, a_types=a_types, b_types=b_types)
        own_problem = dataclasses.replace(problem, lead=())
        part = lowered(flow, dataclasses.replace(gemm, plan=own_plan, problem=own_problem), device)
        if sequence is None:
            sequence = StackSequence(part, count, problem.sizes)
        sequence.add(number, part)
    assert sequence is not None
    return sequence.program()


def _split(lines: tuple[str, ...], count: int) -> list[tuple[str, ...]]:
    """Lines in this number of equal parts."""
    each = len(lines) // count
    return [lines[start : start + each] for start in range(0, len(lines), each)]


def _add_areas(
    sequence: ProgramSequence, gemm: Gemm, plans: tuple[Gemm, ...], flow: AreaDataflow, device: Device
) -> None:
    """Append each plan's kernels over its areas, and the epilogue of the record where it has one."""
    mixed, problem = gemm.plan, gemm.problem
    assert isinstance(mixed, Mixed)
    end = gemm.epilogue
    has_epilogue = end.alpha != 1 or problem.has_c or problem.bias is not None or gemm.output != SUM_FORMAT
    target, bare = "sum" if has_epilogue else "C", dataclasses.replace(problem, has_c=False, bias=None)
    if mixed.a_types:
        shares = [(areas, 0, problem.k) for areas in areas_of(mixed, problem.sizes, problem.matrices)]
    else:
        shares = list(even_shares([part.problem.k for part in plans], problem.sizes, problem.matrices))
    for part, (areas, start, k) in zip(plans, shares, strict=True):
        assert not isinstance(part.plan, Mixed)
        if not areas:  # of this matrix of a stack
            continue
        schedule = dataclasses.replace(part.schedule, epilogue=Epilogue(beta=0.0, output_format=SUM_FORMAT))
        own_problem = dataclasses.replace(bare, k=k)
        mapped_part = dataclasses.replace(part, problem=own_problem, schedule=schedule, output=SUM_FORMAT)
        sequence.add(short_name(mixed, part.plan), flow.lower_areas(mapped_part, device, areas), target, start)
    if has_epilogue:
        last = dataclasses.replace(plans[-1], problem=problem, schedule=gemm.schedule, output=gemm.output)
        sequence.add_epilogue(flow.lower_epilogue(last, device))


def add_block_counting(sequence: ProgramSequence, counting: tuple[Gemm, ...], flow: Dataflow, device: Device) -> None:
    """Append the kernels that classify both operands, and the small GEMMs that count (mapped records)."""
    for array in (sequence.a, sequence.b):
        sequence.add_pass(_scan(array), device)
    for number, part in enumerate(counting):
        sequence.add_apart(f"count{number + 1}", flow.lower(part, device))


def _scan(array: GlobalArray) -> Pass:
    """A pass that takes the time of a look at every element; what it would find is in the record."""

    def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        for _ in range(SCAN_OPERATIONS):
            ops.op("add", temps[0], temps[0], temps[0])

    return Pass(f"mask_{array.name.lower()}", (array,), (), (SUM_FORMAT,), body, (array.rows, array.cols))


def facts(flow: Dataflow, gemm: Gemm, device: Device) -> dict[str, Any]:
    """The mapping as results show it: block products by plan, the mapping of each plan, units and their share."""
    mixed = gemm.plan
    assert isinstance(mixed, Mixed)
    _, plans = mapped_parts(gemm)
    shown = {
        short_name(mixed, part.plan): {
            name: value for name, value in flow.facts(part).items() if name not in ("k_group", "split_k")
        }
        for part in plans
        if not isinstance(part.plan, Mixed)
    }
    mapping_shown: dict[str, Any] = {
        "blocks": dict(zip((plan.scheme for plan in mixed.plans), mixed.blocks, strict=True)),
        "plans": shown,
    }
    if len(plans) > 1 and not mixed.a_types:
        mapping_shown["timing_model"] = MODEL
    return mapping_shown | _peak(plans, device)


def parts_of(gemm: Gemm) -> tuple[tuple[Gemm, ...], tuple[Gemm, ...]]:
    """The parts of a mixture's record: (GEMMs that count, GEMMs of the plans)."""
    assert isinstance(gemm.plan, Mixed)
    count = len(gemm.plan.ranges) if classifies_blocks(gemm.plan) else 0
    return gemm.parts[:count], gemm.parts[count:]


def mapped_parts(gemm: Gemm) -> tuple[tuple[Gemm, ...], tuple[Gemm, ...]]:
    """`parts_of` a mapped record. Raises InputError for a record that lacks them."""
    assert isinstance(gemm.plan, Mixed)
    counting, plans = parts_of(gemm)
    if not plans or len(plans) > len(gemm.plan.plans):
        most = len(gemm.plan.plans)
        raise InputError(f"gemm record: {len(plans)} parts for the plans of {gemm.scheme}; allowed: 1 to {most}")
    if any(isinstance(part.plan, Mixed) for part in gemm.parts):
        raise InputError("gemm record: a part has blocks with plans of their own; allowed: one plan a part")
    if not gemm.plan.blocks:
        raise InputError("gemm record.plan.blocks: none; allowed: a count of block products for each plan")
    return counting, plans


def _peak(parts: tuple[Gemm, ...], device: Device) -> dict[str, Any]:
    """The first plan's unit, and the number of its products per element of A B in the time that all units need."""
    models = [instruction(device, part.unit) for part in parts]
    name, first = parts[0].unit, models[0]
    if any(model.timing is None for model in models):
        return {"unit": name}
    total = sum(part.problem.k for part in parts)
    products = sum(
        part.single.products * part.problem.k / total * float(first.macs_per_cycle) / float(model.macs_per_cycle)
        for part, model in zip(parts, models, strict=True)
    )
    return {"unit": name, "products": products}
