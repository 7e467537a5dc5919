"""A notice where a product leaves more than half of the cores idle that it could use, with what gives them work.

It knows programs and the options of dataflows. Slices of K are named where a simulated program is faster with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.options import DECOMPOSITION
from hwsim.dataflows.registry import dataflow
from hwsim.gemm.schedule import SLICE_MULTIPLE
from hwsim.resolve.choice.split_k_advice import slices_of_run

if TYPE_CHECKING:
    from hwsim.analysis.run_records import RunWarning
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import Program

CODE = "idle_cores"


def idle_cores(gemm: Gemm, program: Program, device: Device, options: Mapping[str, Any]) -> list[RunWarning]:
    """A list with one notice {"code", "count": number of idle cores, "message"}, or none. gemm: mapped; options: of the
    mapping, as given.

    A product of too few blocks for half of the cores gets none: no option gives the others work.
    """
    names = {kernel.name for kernel in gemm.mapping.kernels} if gemm.mapping is not None else set()
    counts = [sum(group.count for group in kernel.groups) for kernel in program.kernels if kernel.name in names]
    busy = max(counts, default=device.cores)
    if 2 * busy >= device.cores or 2 * _blocks(gemm, device) < device.cores:
        return []
    message = f"{busy} of {device.cores} cores compute the product, the others idle: {_remedy(gemm, device, options)}"
    return [{"code": CODE, "count": device.cores - busy, "message": message}]


def _blocks(gemm: Gemm, device: Device) -> int:
    """The number of the smallest blocks of work: those of C that an instruction computes, of each slice of K that the
    dataflow may cut.
    """
    problem, schedule = gemm.problem, gemm.schedule
    rows, cols = Instructions(device).smallest(gemm.unit)
    slices = len(schedule.slice_lengths(problem.k))
    if _cuts_k(device):
        slices = max(slices, -(-problem.k // (schedule.slice_multiple or SLICE_MULTIPLE)))
    return problem.matrices * -(-problem.m // rows) * -(-problem.n // cols) * slices


def _cuts_k(device: Device) -> bool:
    return any(option.name == "split_k" for option in dataflow(device).options)


def _gains_by_slices(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> bool:
    """Whether K is whole, and a run with the cores that the user left it takes less time with K in slices."""
    is_cut = len(gemm.schedule.slice_lengths(gemm.problem.k)) > 1 or gemm.decided(DECOMPOSITION.name) is not None
    if not _cuts_k(device) or is_cut:
        return False
    best = slices_of_run(gemm, device, options)
    return best is not None and best.slices > 1


def _remedy(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> str:
    """What gives more cores work: what the user gave is left out, then smaller tiles, then slices of K."""
    decisions = {name: gemm.decided(name) for name in ("tile", "grid")}
    by_user = [name for name, decision in decisions.items() if decision is not None and decision.by == "user"]
    remedies = [f"leave out {' and '.join(by_user)}" if by_user else "give a smaller tile"]
    if _gains_by_slices(gemm, device, options):
        remedies.append('cut K with split_k="auto" (changes the bits)')
    if dataflow(device).features.stacks and gemm.problem.matrices == 1:
        remedies.append("multiply a stack of matrices in one call")
    return ", or ".join(remedies)
