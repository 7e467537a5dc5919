"""Into how many slices K is cut on coupled DaVinci cores where a request leaves it open: one, but for narrow operands.

The module knows sizes, requests of MTE2 and numbers of cores; it knows no rate, no time and no tile, so that no bit
depends on these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.dataflows.vector_ops import bytes_of, link_between
from hwsim.gemm.plan import Mixed

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

# Calibrated on seen sizes: predicted cycles of products and of their transposes on one device file, and on no silicon.
LEAST_K = 240  # elements of a slice on average: the sum of the slices takes about as long as its requests
MOST_REQUESTS = 0.75  # of the busiest core with twice as many slices, as a share of those before


def open_slices(gemm: Gemm, device: Device) -> int:
    """Slices of K for a record whose order of summation is the default.

    A line of an operand that runs across K is read in whole requests, each by one core where nothing is read twice.
    Where these are few, and the other operand is narrower than half of one, K is cut until the busiest core reads no
    more than it would of lines along K. Plans of several products stay whole.
    """
    plan, problem = gemm.plan, gemm.problem
    if isinstance(plan, Mixed) or plan.products > 1:
        return 1
    to_l1, rows = link_between(device, "GM", "L1"), device.fractal.get("rows")
    if to_l1 is None or rows is None:  # the program says what is missing
        return 1
    width = to_l1.request_bytes // bytes_of(plan.a_pieces[0].format)
    sides = (problem.n, problem.m, problem.b_layout == "rows"), (problem.m, problem.n, problem.a_layout == "columns")
    lines = [line for line, other, is_across in sides if is_across and line > width >= 2 * other]
    if not lines:
        return 1
    line = max(lines)
    requests, least = -(-line // width), -(-line // (rows * device.cores)) * rows / width
    slices, turns = 1, _turns(requests, 1, device.cores)
    while turns > least and 2 * slices <= device.cores and problem.k >= 2 * slices * LEAST_K:
        fewer = _turns(requests, 2 * slices, device.cores)
        if fewer > MOST_REQUESTS * turns:
            break
        slices, turns = 2 * slices, fewer
    return slices


def _turns(requests: int, slices: int, cores: int) -> float:
    """Requests of a line that the busiest core reads, over all of K, in units of K."""
    return -(-requests // (cores // slices)) / slices
