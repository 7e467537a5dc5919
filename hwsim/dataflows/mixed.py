"""Programs of GEMMs with mixed plans (Ape, section 5): each plan's kernels over its share of K.

This is a timing model: it spreads each plan's blocks evenly over the output, and adds the kernels that classify the
blocks and count them. It knows dataflows and records; it knows no operand values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.elementwise import lower_pass, placeholder_pass
from hwsim.devices import instruction
from hwsim.errors import InputError
from hwsim.gemm.mixed_plan import one_for_all, short_name
from hwsim.gemm.plan import Mixed
from hwsim.program.ir import AnyTile, GlobalArray, GlobalTile, Instr, Kernel, Loop, Program, StreamItem

if TYPE_CHECKING:
    from hwsim.dataflows.protocol import Dataflow
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

DECIDE = "decide"  # the strategy that inspects the blocks and selects one plan for all, or one per block
SCAN_OPERATIONS = 2  # per element: the least and the largest magnitude of a block
MODEL = "each plan's kernels over its share of K, its blocks spread evenly over the output"


def classifies_blocks(mixed: Mixed) -> bool:
    """Whether the program has kernels that classify and count the blocks."""
    return one_for_all(mixed) is None or mixed.strategy == DECIDE


def mapped(flow: Dataflow, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
    """The record with each part mapped. options: for the plans' parts; the counting GEMMs use their defaults."""
    counting, plans = parts_of(gemm)
    parts = [flow.map(part, device, {}) for part in counting] + [flow.map(part, device, options) for part in plans]
    return dataclasses.replace(gemm, parts=tuple(parts), mapping=parts[-1].mapping)


def lowered(flow: Dataflow, gemm: Gemm, device: Device) -> Program:
    """The program of all parts in sequence. It stands for the work and its time (see the module's docstring)."""
    mixed, problem = gemm.plan, gemm.problem
    assert isinstance(mixed, Mixed)
    counting, plans = mapped_parts(gemm)
    made = ProgramSequence(
        GlobalArray("A", problem.matrices * problem.m, problem.k, "fp32", problem.a_layout),
        GlobalArray("B", problem.matrices * problem.k, problem.n, "fp32", problem.b_layout),
    )
    if classifies_blocks(mixed):
        add_block_counting(made, counting, flow, device)
    start = 0
    for part in plans:
        assert not isinstance(part.plan, Mixed)
        at = min(start, problem.k - part.problem.k)  # of a short K each plan has a whole step, so that they overlap
        made.add(short_name(mixed, part.plan), flow.lower(part, device), at, part is plans[-1])
        start += part.problem.k
    return made.program()


def add_block_counting(made: ProgramSequence, counting: tuple[Gemm, ...], flow: Dataflow, device: Device) -> None:
    """Append the kernels that classify both operands, and the small GEMMs that count (mapped records)."""
    for array in (made.a, made.b):
        made.kernels.append(
            lower_pass(placeholder_pass(f"mask_{array.name.lower()}", [array], [], SCAN_OPERATIONS, 1), device)
        )
    for number, part in enumerate(counting):
        made.add(f"count{number + 1}", flow.lower(part, device), 0, False, is_apart=True)


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
    found: dict[str, Any] = {
        "blocks": dict(zip((plan.scheme for plan in mixed.plans), mixed.blocks, strict=True)),
        "plans": shown,
    }
    if len(plans) > 1:
        found["timing_model"] = MODEL
    return found | _peak(plans, device)


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


class ProgramSequence:
    """Concatenates programs; their operands are parts of one A and one B, their results one C."""

    def __init__(self, a: GlobalArray, b: GlobalArray) -> None:
        self.a, self.b = a, b
        self.arrays = {a.name: a, b.name: b}
        self.kernels: list[Kernel] = []

    def add(self, name: str, part: Program, start: int, is_last: bool, is_apart: bool = False) -> None:
        """Append a program whose K begins at `start`; is_apart: one with operands of its own."""
        names: dict[str, _Place] = {}
        for array in part.arrays:
            place = _Place(f"{name}.{array.name}")
            if not is_apart:
                if array.name == part.inputs[0]:
                    place = _Place(self.a.name, 0, start)
                elif array.name == part.inputs[1]:
                    place = _Place(self.b.name, start, 0)
                elif array.name == part.output:
                    place = _Place("C" if is_last else "sum")
                elif array.name == "C.in" and array.format == "fp32":
                    place = _Place("sum")
            names[array.name] = place
            self.arrays.setdefault(place.name, dataclasses.replace(array, name=place.name))
        self.kernels += [_renamed(kernel, name, names) for kernel in part.kernels]

    def program(self) -> Program:
        """The concatenated program."""
        return Program(
            tuple(self.arrays.values()), tuple(self.kernels), (self.a.name, self.b.name), "C", computes=False
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """A replacement for an array: another array, and an offset in it."""

    name: str
    row: int = 0
    col: int = 0


def _renamed(kernel: Kernel, name: str, names: Mapping[str, _Place]) -> Kernel:
    def tile(one: AnyTile) -> AnyTile:
        if not isinstance(one, GlobalTile):
            return one
        place = names[one.array]
        return dataclasses.replace(one, array=place.name, row=one.row + place.row, col=one.col + place.col)

    def node(one: StreamItem) -> StreamItem:
        if isinstance(one, Loop):
            return dataclasses.replace(one, body=tuple(map(node, one.body)))
        if isinstance(one, Instr):
            return dataclasses.replace(one, writes=tuple(map(tile, one.writes)), reads=tuple(map(tile, one.reads)))
        return one

    groups = tuple(
        dataclasses.replace(
            group,
            streams=tuple(dataclasses.replace(s, body=tuple(map(node, s.body))) for s in group.streams),
        )
        for group in kernel.groups
    )
    return dataclasses.replace(kernel, name=f"{name}.{kernel.name}", groups=groups)
