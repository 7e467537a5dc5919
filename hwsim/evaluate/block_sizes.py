"""How much of C one call of the evaluator computes: blocks of rows and columns, and the values that they hold.

The module knows plans, schedules and sizes; it knows no operands and no arithmetic.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hwsim.gemm.summation import Chain, Reduction

if TYPE_CHECKING:
    from hwsim.gemm.plan import Plan
    from hwsim.gemm.schedule import Schedule

PRODUCTS_PER_CALL = 1 << 31  # of a thread between two reports of progress; also how long an interrupt may wait
LINES_PER_CALL = 256  # rows of a thread, and columns, that a call has at least: each arranges its A and B
VALUES_PER_CALL = 1 << 22  # of a thread's block of C in a call, those of all terms, slices and chains: memory
LEAST_LINES = 64  # where K is so long that 256 by 256 take too long


def takes_stacks(schedule: Schedule) -> bool:
    """Whether `evaluate` takes stacks of matrices under this schedule: not where it writes the order out."""
    return schedule.sum is None and not schedule.regions


def block_at_once(products: int, n: int, k: int, sums: int = 1, *, threads: int = 1, calls: int = 1) -> tuple[int, int]:
    """The rows of A and the columns of B that one call takes: an interrupt waits for a call.

    products: of pieces. sums: how many values of each element of C a call keeps. threads: of the host, each with rows.
    calls: how many threads' work a backend does at a time by itself (Backend.calls_at_once).
    """
    rows, cols = _block(products, n, k, sums, calls)
    return rows * (threads if calls == 1 else 1), cols


def _block(products: int, n: int, k: int, sums: int, calls: int) -> tuple[int, int]:
    """The same with one thread."""
    per_element = max(k * products, 1)
    products_per_call, values_per_call = PRODUCTS_PER_CALL * calls, VALUES_PER_CALL * calls
    rows = max(LINES_PER_CALL, products_per_call // max(n * per_element, 1))
    rows = min(rows, max(LINES_PER_CALL, values_per_call // max(n * sums, 1)))
    most = min(products_per_call // per_element, max(values_per_call // sums, LINES_PER_CALL**2))
    if rows * n <= most:
        return rows, n
    cols = most // rows
    if cols >= LINES_PER_CALL:
        return rows, cols
    lines = max(LEAST_LINES, math.isqrt(most))
    return min(lines, LINES_PER_CALL), min(max(lines, cols), LINES_PER_CALL)


def sums_at_once(plan: Plan, schedule: Schedule, slices: int) -> int:
    """How many values of each element of C are kept until they are combined. slices: of K."""
    chains = 1 if schedule.sum is None else _chain_count(schedule.sum)
    return len(plan.terms) * (1 if plan.join == "group" else max(slices, chains))


def _chain_count(node: Chain | Reduction) -> int:
    return 1 if isinstance(node, Chain) else sum(map(_chain_count, node.parts))
