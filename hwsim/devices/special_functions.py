"""The special functions of a chip: its tables, from configs/special_functions. It knows files and devices by family; no
arithmetic.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.places import package_folder, text_of
from hwsim.numerics.special_functions import Interpolation, Tables

if TYPE_CHECKING:
    from hwsim.devices.device import Device

FOLDER, MUFU = "special_functions", "mufu.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FunctionTable(_Strict):
    """A table of a file: the fields of Interpolation, with source and evidence."""

    rest_bits: int
    shifts: tuple[int, int, int]
    added: int
    dropped: int
    source: str
    evidence: str
    lines: list[tuple[int, int, int]]


class ServedFamilies(_Strict):
    """Families of chips that have the tables."""

    value: list[str]
    source: str
    evidence: str


class FunctionFile(_Strict):
    """A file of configs/special_functions."""

    schema_version: Literal[1]
    sources: dict[str, str]
    families: ServedFamilies
    functions: dict[str, FunctionTable]


@cache
def _file() -> tuple[Tables, tuple[str, ...]]:
    source = package_folder(FOLDER) / MUFU
    try:
        data = FunctionFile.model_validate(common_yaml(text_of(source, FOLDER)))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{source}: {error}") from None
    tables = {
        name: Interpolation(np.array(table.lines, np.int64), table.rest_bits, table.shifts, table.added, table.dropped)
        for name, table in data.functions.items()
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
