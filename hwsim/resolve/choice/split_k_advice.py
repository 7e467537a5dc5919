"""Advice for a run without split-K: that split-K would be much faster.

A vendor's library uses split-K where C has few tiles; a run here does only on request, because it changes bits. The
share of the time that the advice names is of simulated programs, as the run's own time is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.analysis.run_records import RunWarning
from hwsim.dataflows.options import DECOMPOSITION, SPLIT_K
from hwsim.dataflows.registry import dataflow
from hwsim.gemm.plan import Mixed
from hwsim.resolve.slice_choice import fastest_slices

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.resolve.slice_choice import SliceChoice

CODE = "k_not_cut"


def advice(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> list[RunWarning]:
    """A list with one notice {"code", "count": number of slices, "message"}, or none. gemm: mapped; options: of the
    mapping, as given.
    """
    is_mixed = isinstance(gemm.plan, Mixed)
    is_decided = any(gemm.decided(name) is not None for name in (SPLIT_K.name, DECOMPOSITION.name))
    if is_mixed or is_decided or len(gemm.schedule.slice_lengths(gemm.problem.k)) > 1:
        return []
    estimate = dataflow(device).split_k(replace(gemm, mapping=None, decisions=()), device, options)
    if estimate is None or estimate.share > estimate.advise_below:
        return []
    best = slices_of_run(gemm, device, options)
    if best is None or best.share > estimate.advise_below:
        return []
    message = (
        f'K is in one piece: split_k="auto" takes {best.slices} slices and about {best.share:.0%} of the time '
        "(simulated, without launches); the bits are others then"
    )
    return [{"code": CODE, "count": best.slices, "message": message}]


def slices_of_run(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SliceChoice | None:
    """What `split_k="auto"` takes for a mapped record with K in one piece; None where nothing can be timed."""
    return fastest_slices(replace(gemm, mapping=None, decisions=()), device, options)
