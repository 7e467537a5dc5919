"""Dataflows: one module per architecture family turns a plan into a program for a device of that family.

davinci and davinci_separated (Ascend) write their kernels themselves; the families of GPUs (sm70, sm80, sm90, sm100,
cdna) describe how operands travel and hand the plan to hwsim.dataflows.tiled. A lowering knows plans and devices; it
does not know how a scheme splits, which bits come out, or cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from hwsim.errors import UnsupportedError

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.gemm.plan import Plan
    from hwsim.program.ir import Program

FAMILIES = {
    "davinci": "hwsim.dataflows.davinci.coupled",
    "davinci_separated": "hwsim.dataflows.davinci.separated",
    "sm70": "hwsim.dataflows.tiled.sm70",
    "sm80": "hwsim.dataflows.tiled.sm80",
    "sm90": "hwsim.dataflows.tiled.sm90",
    "sm100": "hwsim.dataflows.tiled.sm100",
    "cdna": "hwsim.dataflows.tiled.cdna",
}


def dataflow(device: Device) -> ModuleType:
    """The module for the device's family: `lower(plan, device, m, n, k, options)`, `TILE_KEYS`, `OPTIONS`.

    It may also say: EPILOGUE (True: the options alpha, beta, c, bias and output are known), OUTPUTS (formats of
    results, where not all), CHOOSES_K_GROUP (True: where the plan leaves it open, how much of K the unit accumulates
    from zero is the lowering's choice, so that the bits depend on it), CHOOSERS (formulas that choose a tile for it,
    hwsim.studies.analytic_tiles), FAMILY (hwsim.dataflows.tiled.model).
    Raises UnsupportedError when there is none.
    """
    if device.family not in FAMILIES:
        raise UnsupportedError(
            f"device {device.name}: no dataflow for family {device.family!r}; there is one for {', '.join(FAMILIES)}"
        )
    return import_module(FAMILIES[device.family])


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, object]) -> Program:
    """The program of `plan` for C[m, n] = A[m, k] B[k, n] on `device` (see `dataflow`)."""
    program: Program = dataflow(device).lower(plan, device, m, n, k, options)
    return program
