"""Seconds of a library's call: its program's time, with what else such kernels were seen to take.

It knows calls, resolved records and times; it chooses nothing and resolves nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hwsim.analysis.program_times import Times
from hwsim.gemm.record import Gemm
from hwsim.libraries.call import LibraryCall
from hwsim.program.identity_cache import IdentityCache
from hwsim.resolve.choice.cost import native_seconds
from hwsim.resolve.resolved import Resolved

ESTIMATES = 256  # of records, that are kept
_ESTIMATES: IdentityCache[float] = IdentityCache(ESTIMATES, ESTIMATES)


def library_times(call: LibraryCall, resolved: Resolved, times: Times, of_product: Times | None) -> Times:
    """The times of a resolved call with what such kernels were seen to take; as they are where none was recorded.

    times: of its program. of_product: of the program of `resolved.one_product`, where there is one.
    """
    if call.times is None:
        return times
    if not call.is_of_a_scheme:
        return _with_kernels_time(call, resolved.timed, times)
    if resolved.one_product is None or of_product is None or times.seconds is None:
        return times
    alone = _with_kernels_time(call, resolved.one_product.timed, of_product)
    if alone.seconds is None:
        return times
    operations = 2 * resolved.gemm.problem.matrices * math.prod(resolved.gemm.problem.sizes)
    beyond = alone.seconds - (of_product.seconds or 0.0)
    return _at_seconds(times, times.seconds + call.count * beyond, operations)


def _with_kernels_time(call: LibraryCall, timed: Resolved, times: Times) -> Times:
    """The times of one kernel with the recorded ones. timed: the record whose program they are of."""
    problem = timed.gemm.problem
    assert call.times is not None
    program_us = 0.0 if times.seconds is None else times.seconds * 1e6
    seconds = call.times.seconds(program_us, _estimate_us(call, timed))
    return _at_seconds(times, seconds, 2 * problem.matrices * math.prod(problem.sizes))


def _at_seconds(times: Times, seconds: float, operations: int) -> Times:
    """The times with a library's seconds. operations: floating-point operations of the user's product."""
    tflops = None if not seconds else operations / seconds / 1e12
    fraction = times.peak_fraction
    if fraction is not None:
        fraction = fraction * tflops / times.tflops if tflops is not None and times.tflops else None
    return replace(times, seconds=seconds, tflops=tflops, peak_fraction=fraction, by_library=True)


def _estimate_us(call: LibraryCall, timed: Resolved) -> float:
    """Microseconds that the products of a call take by the kernel and slices that the device's dataflow would choose; 0
    where it has none. The fit has them as one of its quantities.
    """
    gemm: Gemm = timed.gemm
    estimate = _ESTIMATES.get(gemm, timed.device)
    if estimate is None:
        seconds = native_seconds(timed.device, gemm.problem, call.format, gemm.output)
        estimate = 0.0 if seconds is None else seconds * 1e6 * gemm.problem.matrices
        _ESTIMATES.put(estimate, 1, gemm, timed.device)
    return estimate
