"""A notice where a product leaves more than half of the device's cores idle, with what gives them work.

It knows programs and the options of dataflows; it estimates no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.dataflows.registry import dataflow

if TYPE_CHECKING:
    from hwsim.analysis.run_records import RunWarning
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import Program

CODE = "idle_cores"


def idle_cores(gemm: Gemm, program: Program, device: Device) -> list[RunWarning]:
    """A list with one notice {"code", "count": number of idle cores, "message"}, or none. gemm: mapped."""
    names = {kernel.name for kernel in gemm.mapping.kernels} if gemm.mapping is not None else set()
    counts = [sum(group.count for group in kernel.groups) for kernel in program.kernels if kernel.name in names]
    busy = max(counts, default=device.cores)
    if 2 * busy >= device.cores:
        return []
    said = f"{busy} of {device.cores} cores compute the product, the others idle: {_remedy(gemm, device)}"
    return [{"code": CODE, "count": device.cores - busy, "message": said}]


def _remedy(gemm: Gemm, device: Device) -> str:
    """What gives more cores work: what the user gave is left out, then smaller tiles, then slices of K."""
    flow = dataflow(device)
    known = {option.name for option in flow.options}
    given = [name for name in ("tile", "grid") if (taken := gemm.decided(name)) is not None and taken.by == "user"]
    found = [f"leave out {' and '.join(given)}" if given else "give a smaller tile"]
    if "split_k" in known and len(gemm.schedule.slice_lengths(gemm.problem.k)) == 1:
        found.append('cut K with split_k="auto" (changes the bits)')
    if flow.features.stacks and gemm.problem.matrices == 1:
        found.append("multiply a stack of matrices in one call")
    return ", or ".join(found)
