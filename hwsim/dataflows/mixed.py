"""The program of a GEMM whose blocks follow different plans (Ape, section 5).

The blocks of one plan are computed by kernels of their own, as the paper does it (section 5.2), so the cycles of a
mixture are those of each plan's kernels over its share of K, with the kernels that look at the blocks and count them.
That is a model: it spreads each plan's blocks evenly over the output. It knows dataflows; it knows no operand's values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.elementwise import lower_pass, stand_in_pass
from hwsim.dataflows.layouts import layout_of
from hwsim.devices import instruction
from hwsim.errors import InputError
from hwsim.evaluate import evaluator as scheduled
from hwsim.evaluate.mixed import census_of, one_for_all, short_name
from hwsim.gemm.plan import Mixed, Piece, Plan, TermValue, chain
from hwsim.gemm.schedule import Schedule
from hwsim.program.ir import GlobalArray, GlobalTile, Instr, Kernel, Loop, Node, Program, Tile

if TYPE_CHECKING:
    from hwsim.devices.model import Device

DECIDE = "decide"  # the strategy that looks at the blocks to take one plan for all, or each its own
GRANULE = 32  # of K that a plan's kernels are given: a stage of 16-bit operands
SCAN_OPERATIONS = 2  # per element: the least and the largest magnitude of a block
MODEL = "each plan's kernels over its share of K, its blocks spread evenly over the output"


def program_mixed(
    flow: ModuleType, mixed: Mixed, chip: Device, m: int, n: int, k: int, options: Mapping[str, Any]
) -> Program:
    """The program of a mixture by the family's dataflow `flow`; options: as its `lower` takes them.

    It stands for the work and its time (see the module's text). `facts`: `blocks`, `plans` (facts of each plan's
    kernels), `unit` and `products` for the peak, and `timing_model` where plans are mixed.
    Raises InputError for slices of K, what the dataflow raises otherwise.
    """
    if (options.get("split_k") or 1) != 1:
        raise InputError(f"scheme {mixed.scheme}: split_k = {options['split_k']}; its blocks are not cut along K")
    sizes, batch = (m, n, k), int(options.get("batch") or 1)
    whole, counted = one_for_all(mixed), census_of(mixed)
    if whole is not None:
        depths = {plan.scheme: k if plan is whole else 0 for plan in mixed.plans}
    else:
        depths = {p.scheme: x for p, x in zip(mixed.plans, depths_of(counted.shares, k), strict=True)}
    made = Merge(
        GlobalArray("A", batch * m, k, "fp32", layout_of(options, "A")),
        GlobalArray("B", batch * k, n, "fp32", layout_of(options, "B")),
    )
    if whole is None or mixed.strategy == DECIDE:
        look(made, mixed, chip, flow, sizes)
    used = [plan for plan in mixed.plans if depths[plan.scheme]]
    start = 0
    for plan in used:
        own = dict(options)
        is_first, is_last = plan is used[0], plan is used[-1]
        if not is_last:
            own |= {"alpha": None, "bias": False, "output": None}
        if not is_first:
            own |= {"c": True, "beta": None}
        depth = depths[plan.scheme]
        part: Program = flow.lower(plan, chip, m, n, depth, own)
        made.add(short_name(mixed, plan), part, start, is_last)
        start += depth
    facts: dict[str, object] = {
        "blocks": dict(zip((p.scheme for p in mixed.plans), counted.counts, strict=True)),
        "plans": made.facts,
    }
    if len(used) > 1:
        facts["timing_model"] = MODEL
    return made.program(facts | _peak(used, depths, chip))


def depths_of(shares: Sequence[float], k: int) -> list[int]:
    """K of each plan's kernels: its share in whole granules, at least one where it has blocks at all."""
    found = [0] * len(shares)
    left = k
    used = [p for p, share in enumerate(shares) if share]
    for p in used[:0:-1]:  # the first plan takes what the others leave
        found[p] = min(left, max(GRANULE, round(shares[p] * k / GRANULE) * GRANULE))
        left -= found[p]
    found[used[0]] = max(left, min(GRANULE, k))
    return found


def _peak(used: Sequence[Plan], depths: Mapping[str, int], chip: Device) -> dict[str, object]:
    """The first plan's unit, and how many products per element of A B it would form in the time all units need."""
    units = []
    for plan in used:
        unit = scheduled.first_unit(plan, scheduled.resolved(Schedule(), plan, chip), chip)
        units.append((unit, instruction(chip, unit)))
    name, first = units[0]
    if any(model.timing is None for _, model in units):
        return {"unit": name}

    def rate(model: Any) -> float:
        return float(model.macs_per_cycle)

    total = sum(depths[plan.scheme] for plan in used)
    products = sum(
        plan.products * depths[plan.scheme] / total * rate(first) / rate(model)
        for plan, (_, model) in zip(used, units, strict=True)
    )
    return {"unit": name, "products": products}


def look(made: Merge, mixed: Mixed, chip: Device, flow: ModuleType, sizes: tuple[int, int, int]) -> None:
    """Kernels that look at both operands, and the small GEMMs that count."""
    for array in (made.a, made.b):
        made.kernels.append(
            lower_pass(stand_in_pass(f"mask_{array.name.lower()}", [array], [], SCAN_OPERATIONS, 1), chip)
        )
    piece = (Piece("fp16"),)
    plan = Plan("native", piece, piece, (chain((0, 0)),), TermValue(0), input_format="fp16")
    blocks = tuple(-(-size // block) for size, block in zip(sizes, mixed.block, strict=True))
    for number in range(len(mixed.ranges)):
        made.add(f"count{number + 1}", flow.lower(plan, chip, *blocks, {}), 0, False, is_apart=True)


class Merge:
    """Programs put one after another; their operands are parts of one A and one B, their results one C."""

    def __init__(self, a: GlobalArray, b: GlobalArray) -> None:
        self.a, self.b = a, b
        self.arrays = {a.name: a, b.name: b}
        self.kernels: list[Kernel] = []
        self.facts: dict[str, object] = {}

    def add(self, name: str, part: Program, start: int, is_last: bool, is_apart: bool = False) -> None:
        """Take a program whose K begins at `start`; is_apart: one with operands of its own."""
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
        if not is_apart:
            self.facts[name] = {x: value for x, value in part.facts.items() if x not in ("k_group", "split_k")}

    def program(self, facts: dict[str, object]) -> Program:
        """All of them."""
        return Program(
            tuple(self.arrays.values()), tuple(self.kernels), (self.a.name, self.b.name), "C", facts, computes=False
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """An array of another name, and where in it."""

    name: str
    row: int = 0
    col: int = 0


def _renamed(kernel: Kernel, name: str, names: Mapping[str, _Place]) -> Kernel:
    def tile(one: Tile) -> Tile:
        if not isinstance(one, GlobalTile):
            return one
        place = names[one.array]
        return dataclasses.replace(one, array=place.name, row=one.row + place.row, col=one.col + place.col)

    def node(one: Node) -> Node:
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
