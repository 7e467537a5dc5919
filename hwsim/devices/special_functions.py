"""The special functions of a chip: its tables, from configs/special_functions. It knows files and devices by family; no
arithmetic.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from hwsim.errors import InputError, UnsupportedError
from hwsim.host.places import package_folder
from hwsim.numerics.special_functions import Interpolation, Tables

if TYPE_CHECKING:
    from hwsim.devices.device import Device

MUFU = "mufu.yaml"


@cache
def _file() -> tuple[Tables, tuple[str, ...]]:
    import yaml  # optional: when a table is first asked for
    from pydantic import BaseModel, ConfigDict, ValidationError  # optional

    class _Strict(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

    class _Function(_Strict):
        rest_bits: int
        shifts: tuple[int, int, int]
        added: int
        dropped: int
        source: str
        evidence: str
        lines: list[tuple[int, int, int]]

    class _Families(_Strict):
        value: list[str]
        source: str
        evidence: str

    class _Tables(_Strict):
        schema_version: Literal[1]
        sources: dict[str, str]
        families: _Families
        functions: dict[str, _Function]

    path = package_folder("special_functions") / MUFU
    try:
        data = _Tables.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {error}") from None
    tables = {
        name: Interpolation(np.array(f.lines, np.int64), f.rest_bits, f.shifts, f.added, f.dropped)
        for name, f in data.functions.items()
    }
    return tables, tuple(data.families.value)


def nvidia_tables() -> Tables:
    """The tables of NVIDIA's chips."""
    return _file()[0]


def special_functions(device: Device) -> Tables:
    """The tables of a device. Raises UnsupportedError for a chip whose functions nobody has published."""
    tables, families = _file()
    if device.family not in families:
        raise UnsupportedError(
            f"device {device.name}: its special functions are not known to the bit; known of families "
            f"{', '.join(families)}"
        )
    return tables


def has_special_functions(device: Device) -> bool:
    """Whether a device's special functions are known to the bit."""
    return device.family in _file()[1]
