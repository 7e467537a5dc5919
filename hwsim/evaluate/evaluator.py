"""The direct evaluator: the bits of a plan under a schedule on a device, without a program.

A plan and a schedule fix every rounding, so no dataflow is needed. Each product of pieces is chained by the dot unit of
its instruction over the spans that the schedule gives, and the results go through the plan's arithmetic. The module
connects these parts, block by block of C; it knows no scheme, no tile and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.evaluate.block_sizes import block_at_once, sums_at_once
from hwsim.evaluate.chains import Chains
from hwsim.evaluate.explicit_term import explicit_sum
from hwsim.evaluate.plan_evaluation import PlanEvaluation, UnitResult, plan_evaluation
from hwsim.evaluate.row_block import RowBlock
from hwsim.evaluate.slice_merge import calls_into_output, into_output, merged
from hwsim.evaluate.split import Pieces, as_pieces
from hwsim.formats import code_dtype, format_of
from hwsim.gemm.summation import Reduction

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Plan
    from hwsim.gemm.schedule import KPartition, Schedule

Codes = NDArray[Any]
AnyArray = NDArray[Any]
Progress = Callable[[float], None]


def evaluate(
    plan: Plan,
    schedule: Schedule,
    device: Device,
    a: Pieces | Sequence[Codes],
    b: Pieces | Sequence[Codes],
    *,
    c: AnyArray | None = None,
    bias: AnyArray | None = None,
    partition: KPartition | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    backend: Backend = CPU,
) -> Codes:
    """Codes (m, n) of C in the epilogue's output format (by default the plan's, or the unit's).

    a, b: the plan's pieces, (m, K) and (K, n), any strides; plain codes where the plan needs no more; or stacks of
    these, (count, m, K) and (count, K, n), which give (count, m, n) (see `takes_stacks`). schedule: `resolved`
    (hwsim.evaluate.defaults). c: codes (m, n) of the output format. bias: (n,) values. partition: of K, if
    not the schedule's for this K. threads, progress (called with 0..1): no influence on the bits. backend: computes
    them. With some columns of b only, or some rows of a, the result equals those columns and rows of the full one.
    Raises InputError and UnsupportedError for what does not fit together.
    """
    job = plan_evaluation(plan, schedule, device, backend, c is not None)
    return evaluate_plan(job, a, b, c=c, bias=bias, partition=partition, threads=threads, progress=progress)


def evaluate_plan(
    job: PlanEvaluation,
    a: Pieces | Sequence[Codes],
    b: Pieces | Sequence[Codes],
    *,
    c: AnyArray | None = None,
    bias: AnyArray | None = None,
    partition: KPartition | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Codes:
    """The same for a plan that is ready, made with a C where one is given; arguments as of `evaluate`."""
    left, right = as_pieces(a), as_pieces(b)
    (m, k), n = left.shape, right.shape[1]
    fmt, backend = format_of(job.output), job.backend
    if not m * n:  # no rows or no columns chosen; strides of nothing fit no kernel
        return backend.empty((*left.lead, m, n), code_dtype(fmt))
    left, right = job.instructions.taken("a", left, backend), job.instructions.taken("b", right, backend)
    chains = Chains(job.instructions, backend, job.schedule.k_permutation)
    cuts = job.schedule.k_partition(k) if partition is None else partition
    sums = sums_at_once(job.plan, job.schedule, len(cuts.slices))
    rows, cols = block_at_once(job.products, n, k, sums, threads=threads, calls=backend.calls_at_once)
    with np.errstate(all="ignore"):
        if (m <= rows and n <= cols) or left.lead:
            block = RowBlock(job, chains, left, right, cuts, threads=threads, progress=progress)
            codes = _block_codes(block, c, bias)
            if progress is not None:
                progress(1.0)
            return codes
        out = backend.empty((m, n), code_dtype(fmt))
        done = 0
        for of_cols in (slice(start, min(start + cols, n)) for start in range(0, n, cols)):
            some = right if cols >= n else right.picked("b", of_cols)
            for of_rows in (slice(start, min(start + rows, m)) for start in range(0, m, rows)):
                place = of_rows, of_cols
                codes_c, of_bias = None if c is None else c[place], None if bias is None else bias[of_cols]
                size = (of_rows.stop - of_rows.start) * (of_cols.stop - of_cols.start)
                within = None
                if progress is not None:
                    within = partial(_share, progress, done / (m * n), (done + size) / (m * n))
                part = left.picked("a", of_rows)
                block = RowBlock(job, chains, part, some, cuts, threads=threads, progress=within)
                out[place] = _block_codes(block, codes_c, of_bias)
                done += size
                if progress is not None:
                    progress(done / (m * n))
    return out


def apply_epilogue(
    plan: Plan,
    schedule: Schedule,
    device: Device,
    codes: Codes,
    *,
    c: AnyArray | None = None,
    bias: AnyArray | None = None,
    threads: int = 1,
    backend: Backend = CPU,
) -> Codes:
    """Apply the schedule's epilogue to a finished sum, given as codes of the plan's own output format."""
    job = plan_evaluation(plan, schedule, device, backend, c is not None)
    if job.output == plan.output_format and job.epilogue.is_plain(bias):
        return codes
    with np.errstate(all="ignore"):
        return job.epilogue.apply(job.join.lanes.load(codes), c, bias, 1, threads)


def _share(progress: Progress, begin: float, end: float, share: float) -> None:
    """A progress callback that maps 0..1 onto the part of the whole from begin to end."""
    progress(begin + (end - begin) * share)


def _block_codes(block: RowBlock, c: Codes | None, bias: AnyArray | None) -> Codes:
    """Codes of the output for a block of rows: its slices of K, merged, and the epilogue."""
    job, a, b, threads = block.job, block.a, block.b, block.threads
    start = None
    if job.from_c:
        assert c is not None
        lanes = job.join.lanes
        start = lanes.store(lanes.values(c, format_of(job.output)), format_of(job.spec.c), "RNE")
    written = job.schedule.sum
    slices = [
        [explicit_sum(job, block.chains, term, written, a, b, threads) for term in job.plan.terms]
        if written is not None
        else block.joined_runs(runs)
        if job.plan.join == "group"
        else block.terms(runs, start if index == 0 else None)
        for index, runs in enumerate(block.cuts.slices)
    ]
    if job.schedule.merge_into == "output" and len(slices) > 1 and job.has_one_sum:
        return into_output(job, [block.joined(values) for values in slices], c, bias, threads)
    parts = slices[0]
    if len(slices) > 1 and job.calls is None:
        parts = [merged(job, [values[t] for values in slices]) for t in range(len(parts))]
    special = None if job.patch is None else job.patch.find(a, b, block.k)
    is_scaled = block.scaling is not None and block.scaling.is_outside
    if isinstance(parts[0], UnitResult) and special is None and job.is_unit_result(bias) and not is_scaled:
        return parts[0].codes
    acc = block.joined(parts) if len(slices) == 1 or job.calls is None else calls_into_output(job, slices)
    if a.exponents is not None and b.exponents is not None:
        acc = job.join.raised(acc, a.exponents[..., :, None] + b.exponents[..., None, :])
    if block.scaling is not None and is_scaled:
        acc = block.scaling.finished(acc)
    if special is not None and job.is_float:
        special.put(acc, threads)
    count = len(written.parts) if isinstance(written, Reduction) else len(slices)
    codes = job.epilogue.apply(acc, c, bias, count, threads)
    if special is not None and not job.is_float:
        special.put_codes(codes, job.epilogue, c, bias, threads)
    return codes
