"""Inputs of a program as its instructions read them: 32-bit words that they round to a narrower format.

It knows programs, a device's instructions and formats; it knows neither order nor time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import instruction
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program

Codes = NDArray[Any]


def as_read(program: Program, device: Device, inputs: Mapping[str, Codes], backend: Backend) -> dict[str, Codes]:
    """The codes of the program's inputs, rounded by the backend where the instructions for their format have an
    `operand_rounding`.

    Raises UnsupportedError where the program's instructions for one format round differently: which of them reads an
    input is not followed.
    """
    said = roundings(program, device)
    formats = {array.name: array.format for array in program.arrays}
    return {
        name: _rounded(codes, fmt := formats.get(name, ""), said.get(fmt, {None}), backend)
        for name, codes in inputs.items()
    }


def roundings(program: Program, device: Device) -> dict[str, set[str | None]]:
    """By input format, the `operand_rounding` of each of the program's instructions for it."""
    said: dict[str, set[str | None]] = {}
    for model in (instruction(device, unit) for unit in program.units):
        for fmt in (model.a, model.b):
            said.setdefault(fmt, set()).add(model.operand_rounding)
    return said


def _rounded(codes: Codes, fmt: str, modes: Collection[str | None], backend: Backend) -> Codes:
    if len(modes) > 1:
        known = ", ".join(sorted("none" if rounding is None else rounding for rounding in modes))
        raise UnsupportedError(
            f"operand_rounding: the program's instructions for {fmt} have {known}; allowed: one for all instructions "
            "of a program with the same input format"
        )
    (rounding,) = modes
    return codes if rounding is None else backend.encode(codes.view(np.float32), format_of(fmt), rounding)
