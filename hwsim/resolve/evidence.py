"""Evidence for a run: how well it is known that its bits and cycles are those of the chip and of the vendor's library.

Pure functions of a device, a plan and what was chosen; observations are in the library's file.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hwsim.datafiles.provenance import Level
from hwsim.dataflows.mixed import parts_of
from hwsim.devices import find, instruction_taking, numerics_evidence, timing_evidence
from hwsim.devices.patterns import ARITHMETIC
from hwsim.formats import format_of
from hwsim.gemm.plan import Mixed
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.libraries.model import observed, observed_level

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Plan
    from hwsim.gemm.record import Gemm
    from hwsim.libraries.model.kernels import InOrderModel

TILE = 128  # of C, m and n: what InOrderModel.tiles counts


def of_numerics(chip: Device, gemm: Gemm, unit: str) -> Level:
    """The weakest evidence level behind the bits of the record's products; `unit`: the instruction that the program
    uses for `gemm.unit`.
    """
    plans = gemm.plan.plans if isinstance(gemm.plan, Mixed) else (gemm.plan,)
    wanted = None if isinstance(gemm.plan, Mixed) else gemm.schedule.instruction
    levels = []
    for plan in plans:
        scaled = any(stage.scale_exponent for term in plan.terms for stage in term.stages)
        pairs = {(plan.a_pieces[i].format, plan.b_pieces[j].format) for term in plan.terms for i, j in term.products}
        names = {instruction_taking(chip, a, b, wanted) for a, b in pairs}
        is_whole = plan is gemm.single and not isinstance(gemm.plan, Mixed)
        names = {unit if is_whole and name == gemm.unit else name for name in names}
        levels += [numerics_evidence(chip, name, scaled=scaled) for name in names]
    return max(levels, key=list(Level).index)


def of_schedule(chip: Device, gemm: Gemm) -> Level:
    """The evidence level for the claim that the vendor's library runs the record's GEMMs in this order of summation.

    The level of the library's observations for GEMMs within the observed range (in_order); "assumption" beyond it:
    other formats and shapes, a schedule given by the caller, terms in an order that no library runs.
    """
    plan, cut = gemm.single, gemm.decided("split_k")
    formats = {piece.format for piece in (*plan.a_pieces, *plan.b_pieces)}
    observations = observed(chip)
    seen = observations.in_order.get(min(formats)) if observations is not None and len(formats) == 1 else None
    if seen is None:
        return Level.ASSUMPTION
    fmt = min(formats)
    is_seen = (
        (cut is None or cut.by != "estimate")
        and gemm.problem.matrices == 1
        and _of_calls(plan)
        and _is_default(chip, plan, gemm.schedule, seen, fmt)
        and _finishes_so(gemm, seen)
        and _is_within(seen, fmt, gemm.problem.sizes)
    )
    return observed_level(chip, f"in_order.{fmt}") if is_seen else Level.ASSUMPTION


def of_times(chip: Device, gemm: Gemm, unit: str) -> Level:
    """The weakest evidence level behind the cycles of the record; at best "model" for a mixture."""
    level = timing_evidence(chip, unit)
    mixes = isinstance(gemm.plan, Mixed) and len(parts_of(gemm)[1]) > 1
    return max(level, Level.MODEL, key=list(Level).index) if mixes else level


def _of_calls(plan: Plan) -> bool:
    """Whether each product is a separate library call: accumulated from zero over all of K."""
    if plan.split != "round" or any(term.k_group is not None for term in plan.terms):
        return False
    if plan.products == 1:
        return True
    return plan.order == "calls" and plan.join == "end" and all(len(term.products) == 1 for term in plan.terms)


def _is_default(chip: Device, plan: Plan, schedule: Schedule, seen: InOrderModel, fmt: str) -> bool:
    """Whether the schedule is one chain in order of K by instructions with the bits of the native one."""
    group = schedule.promotion_k or plan.k_group
    if group is not None and (group != seen.promoted_k or plan.products > 1):
        return False
    if schedule.instruction is not None:
        used, native = find(chip, schedule.instruction), find(chip, chip.native[fmt])
        if used is None or native is None or any(getattr(used, key) != getattr(native, key) for key in ARITHMETIC):
            return False
    apart: dict[str, Any] = {"instruction": None, "slice_multiple": None, "promotion_k": None, "epilogue": Epilogue()}
    return dataclasses.replace(schedule, **apart) == Schedule()


def _finishes_so(gemm: Gemm, seen: InOrderModel) -> bool:
    """Whether this epilogue is within what was observed."""
    epilogue = gemm.epilogue
    plain = Epilogue(epilogue.alpha, epilogue.beta, output_format=epilogue.output_format)
    if epilogue != plain or gemm.problem.bias is not None or gemm.output not in seen.outputs:
        return False
    is_bare = not gemm.problem.has_c and epilogue.alpha == 1
    return is_bare or (gemm.output in seen.with_c and gemm.single.products == 1)


def _is_within(seen: InOrderModel, fmt: str, sizes: tuple[int, int, int]) -> bool:
    m, n, k = sizes
    if min(sizes) < seen.least or max(sizes) > seen.most or k > (seen.longest_k or k) or k % (seen.k_multiple or 1):
        return False
    if any(length * format_of(fmt).bits % (8 * seen.row_bytes) for length in (k, n)):
        return False
    return -(-m // TILE) * -(-n // TILE) >= seen.tiles or k <= (seen.short_k or 0)
