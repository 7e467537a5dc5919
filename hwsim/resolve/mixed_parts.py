"""The parts of a GEMM with a mixed plan: one record for each plan's share of K, and one for each counting GEMM.

Each plan's kernels take a share of K; kernels that classify and count the blocks come first (Ape, 5.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.dataflows.mixed import classifies_blocks
from hwsim.gemm.mixed_plan import block_counts_of, one_for_all
from hwsim.gemm.plan import Mixed, Piece, Plan, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.resolve.gemm_record import record_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

GRANULE = 32  # of K that a plan's kernels are given: a stage of 16-bit operands


def with_parts(gemm: Gemm, device: Device) -> Gemm:
    """The record with its parts, unmapped: GEMMs that count blocks (where blocks are classified), then the plans'."""
    plan, problem = gemm.plan, gemm.problem
    assert isinstance(plan, Mixed)
    whole = one_for_all(plan)
    if whole is not None:
        depths = [problem.k if part_plan is whole else 0 for part_plan in plan.plans]
    else:
        depths = depths_of(block_counts_of(plan).shares, problem.k)
    used = [(part_plan, depth) for part_plan, depth in zip(plan.plans, depths, strict=True) if depth]
    parts = list(counters(plan, device, problem.sizes)) if classifies_blocks(plan) else []
    for index, (part_plan, depth) in enumerate(used):
        is_first, is_last = index == 0, index + 1 == len(used)
        epilogue = Epilogue() if not is_last else gemm.epilogue
        if not is_last:
            epilogue = replace(epilogue, alpha=1.0, output_format=None)
        has_c = problem.has_c or not is_first
        epilogue = replace(epilogue, beta=gemm.epilogue.beta if is_first else 1.0)
        part_problem = replace(problem, k=depth, has_c=has_c, bias=problem.bias if is_last else None)
        parts.append(record_of(part_plan, device, part_problem, Schedule(epilogue=epilogue)))
    return replace(gemm, parts=tuple(parts))


def counters(plan: Mixed, device: Device, sizes: tuple[int, int, int]) -> list[Gemm]:
    """The small GEMMs that count the blocks of each plan but the last."""
    piece = (Piece("fp16"),)
    counting = Plan("native", piece, piece, (chain((0, 0)),), TermValue(0), input_format="fp16")
    m, n, k = (-(-size // block) for size, block in zip(sizes, plan.block, strict=True))
    return [record_of(counting, device, Problem.of("fp16", m, n, k)) for _ in plan.ranges]


def depths_of(shares: Sequence[float], k: int) -> list[int]:
    """K of each plan's kernels: its share of K in whole granules, at least one where the plan has any block."""
    depths = [0] * len(shares)
    left, least = k, min(GRANULE, k)
    used = [p for p, share in enumerate(shares) if share]
    for p in used[:0:-1]:  # the first plan takes what the others leave
        depths[p] = max(min(left, max(GRANULE, round(shares[p] * k / GRANULE) * GRANULE)), least)
        left = max(left - depths[p], 0)
    depths[used[0]] = max(left, least)
    return depths
