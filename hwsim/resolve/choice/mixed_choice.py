"""Strategy for a GEMM with a mixed plan (Ape, 5.3): one plan for all blocks, or each block its own.

The module knows block statistics (hwsim.evaluate.mixed) and predicted costs of programs; it computes no result.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.mixed import DECIDE, add_block_counting
from hwsim.dataflows.program_sequence import ProgramSequence
from hwsim.dataflows.registry import dataflow
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.mixed import count_block_products, types_of_operands, with_equal_stacks, written_types
from hwsim.gemm.mixed_plan import HYBRID, BlockCounts, block_counts_of, one_for_all, short_name
from hwsim.gemm.plan import Mixed, Plan
from hwsim.machines import timing
from hwsim.machines.l2_state import COLD
from hwsim.program.ir import GlobalArray
from hwsim.resolve.choice.cost import cost
from hwsim.resolve.mixed_parts import counters, depths_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.operands.operand import Operand

SAMPLE = 8  # blocks of K whose cost, and that of half as many, is looked at to predict that of more
PERCENT = 100


def surveyed(
    chip: Device, mixed: Mixed, sizes: tuple[int, int, int], operands: tuple[Operand, Operand] | None
) -> tuple[Mixed, dict[str, Any]]:
    """`mixed` with its block statistics filled in, and the entries for the result's options.

    The entries are `blocks` (block products by plan) and, where the strategy is "decide", `decided` and the times
    `predicted_us` (microseconds). Without operands, `wide_percent` gives the percentage of products with the second
    plan.
    """
    types = None
    if operands is not None:
        types = types_of_operands(mixed, operands[0].on_host(), operands[1].on_host())
        blocks = count_block_products(*types, len(mixed.plans))
    else:
        blocks = _assumed(mixed.wide_percent or 0, mixed, sizes)
    surveyed_plan = dataclasses.replace(mixed, blocks=blocks.counts)
    facts: dict[str, Any] = {"blocks": {plan.scheme: n for plan, n in zip(mixed.plans, blocks.counts, strict=True)}}
    if mixed.strategy == DECIDE:
        predicted = predict(chip, surveyed_plan, *sizes, {})
        surveyed_plan = dataclasses.replace(surveyed_plan, decided=min(predicted, key=lambda name: predicted[name]))
        facts |= {"predicted_us": predicted, "decided": surveyed_plan.decided}
    if types is not None and one_for_all(surveyed_plan) is None and sum(map(bool, blocks.counts)) > 1:
        a, b = map(written_types, with_equal_stacks(*types))
        surveyed_plan = dataclasses.replace(surveyed_plan, a_types=a, b_types=b)
    return surveyed_plan, facts


def _assumed(percent: Any, mixed: Mixed, sizes: tuple[int, int, int]) -> BlockCounts:
    if not 0 <= percent <= PERCENT:
        raise InputError(f"scheme {mixed.scheme}: wide_percent = {percent}; allowed: 0 to {PERCENT}")
    total = 1
    for size, block in zip(sizes, mixed.block, strict=True):
        total *= -(-size // block)
    wide = round(total * percent / PERCENT)
    return BlockCounts((total - wide, wide, *[0] * (len(mixed.plans) - 2)))


def predict(chip: Device, mixed: Mixed, m: int, n: int, k: int, options: Mapping[str, Any]) -> dict[str, float]:
    """Predicted microseconds of every strategy that the operands allow, by name: one plan for all blocks, or hybrid.

    From samples, as in section 5.3: each plan's own program is timed over a few blocks of K, which gives its time per K
    and its fixed cost; the kernels that classify and count blocks are timed as they are. Raises UnsupportedError where
    the device has no dataflow, or no timing data.
    """
    counted = block_counts_of(mixed)
    reason = timing.missing(chip)
    if reason is not None:
        raise UnsupportedError(f"scheme {mixed.scheme}: nothing to decide by: {reason}")
    looking = ProgramSequence(GlobalArray("A", m, k, "fp32"), GlobalArray("B", k, n, "fp32"))
    flow = dataflow(chip)
    add_block_counting(
        looking, tuple(flow.map(kernel, chip, {}) for kernel in counters(mixed, chip, (m, n, k))), flow, chip
    )
    overhead = timing.seconds(timing.run(looking.program(), chip), chip)
    costs = {plan.scheme: _cost(chip, plan, m, n, k, mixed.block[2], options) for plan in mixed.plans}
    seconds_by_name = {
        short_name(mixed, plan): overhead + costs[plan.scheme](k)
        for number, plan in enumerate(mixed.plans)
        if number >= counted.cheapest_plan
    }
    mixture = zip(mixed.plans, depths_of(counted.shares, k), strict=True)
    seconds_by_name[HYBRID] = math.fsum([overhead, *(costs[plan.scheme](depth) for plan, depth in mixture if depth)])
    return {name: round(seconds * 1e6, 3) for name, seconds in seconds_by_name.items()}


def _cost(
    chip: Device, plan: Plan, m: int, n: int, k: int, block: int, options: Mapping[str, Any]
) -> Callable[[int], float]:
    """Seconds of a plan as a linear function of K, from two samples."""
    most = min(k, SAMPLE * block)
    lengths = sorted({max(1, most // 2), most})
    times = [cost(plan, chip, (m, n, length), options, l2=COLD, search=False).seconds for length in lengths]
    if len(lengths) == 1:
        return lambda depth: times[0] * depth / lengths[0]
    slope = (times[1] - times[0]) / (lengths[1] - lengths[0])
    return lambda depth: times[0] + slope * (depth - lengths[0])
