"""Inputs of a program as its instructions read them: 32-bit words of a narrower format that the instruction rounds.

It knows programs, a device's instructions and formats; it knows neither order nor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.convert import encode
from hwsim.devices import instruction
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program

Codes = NDArray[Any]


def as_read(program: Program, device: Device, inputs: Mapping[str, Codes]) -> dict[str, Codes]:
    """The codes of the program's inputs, rounded where an instruction has an `operand_rounding` for their format."""
    rounding = rounded_formats(program, device)
    formats = {array.name: array.format for array in program.arrays}
    return {
        name: encode(codes.view(np.float32), format_of(fmt), rounding[fmt])
        if (fmt := formats.get(name, "")) in rounding
        else codes
        for name, codes in inputs.items()
    }


def rounded_formats(program: Program, device: Device) -> dict[str, str]:
    """The formats whose words an instruction of the program rounds, and how."""
    return {
        fmt: model.operand_rounding
        for model in (instruction(device, unit) for unit in program.units)
        for fmt in (model.a, model.b)
        if model.operand_rounding is not None
    }
