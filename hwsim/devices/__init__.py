"""Devices: the schema of device files, their loader and registry. A device is data; nothing here knows a scheme or a
program.
"""

from __future__ import annotations

from hwsim.devices.loader import expanded, load
from hwsim.devices.power import at_power
from hwsim.devices.query import (
    choices,
    dot_spec,
    example,
    find,
    instruction,
    instruction_for,
    instruction_taking,
    narrow_instruction,
    numerics_evidence,
    timing_evidence,
    weakest,
)
from hwsim.devices.registry import names
from hwsim.devices.variants import at_clock, changed, limited_clock, sustained_clock

__all__ = [
    "at_clock",
    "at_power",
    "changed",
    "choices",
    "dot_spec",
    "example",
    "expanded",
    "find",
    "instruction",
    "instruction_for",
    "instruction_taking",
    "narrow_instruction",
    "load",
    "names",
    "numerics_evidence",
    "limited_clock",
    "sustained_clock",
    "timing_evidence",
    "weakest",
]
