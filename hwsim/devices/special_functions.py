"""The special functions of a chip: its tables, from configs/special_functions. It knows files and devices by family; no
arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from hwsim.datafiles.provenance import Level
from hwsim.datafiles.yaml_text import common_yaml
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.places import package_folder, text_of
from hwsim.numerics.special_functions import TABLE_OF, Interpolation, Tables

if TYPE_CHECKING:
    from hwsim.devices.device import Device

FOLDER, MUFU = "special_functions", "mufu.yaml"
FIRST = "1.0"  # of compute capabilities


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FunctionTable(_Strict):
    """A table of a file: the fields of Interpolation, with source and evidence. since: the compute capability from
    which on chips have the function.
    """

    rest_bits: int
    shifts: tuple[int, int, int]
    added: int
    dropped: int
    source: str
    evidence: str
    since: str = FIRST
    lines: list[tuple[int, int, int]]


class NarrowForm(_Strict):
    """An instruction of 16 bits: the fp32 function whose result is cut to a format. since: the compute capability from
    which on chips have it.
    """

    function: str
    format: Literal["f16", "bf16"]
    since: str
    source: str
    evidence: str


class NamedChips(_Strict):
    """Chips or families of chips, by name, with source and evidence."""

    value: list[str]
    source: str
    evidence: str


class ComparedChips(NamedChips):
    """Chips whose results were compared. functions: tables for which they were; None: all."""

    functions: list[str] | None = None

    def covers(self, chip: str, table: str) -> bool:
        """Whether the results of this chip's table were compared."""
        return chip in self.value and (self.functions is None or table in self.functions)


class FunctionFile(_Strict):
    """A file of configs/special_functions."""

    schema_version: Literal[1]
    sources: dict[str, str]
    families: NamedChips
    seen: list[ComparedChips]
    narrow_forms: dict[str, NarrowForm]
    functions: dict[str, FunctionTable]


@cache
def _data() -> FunctionFile:
    source = package_folder(FOLDER) / MUFU
    try:
        return FunctionFile.model_validate(common_yaml(text_of(source, FOLDER)))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{source}: {error}") from None


@cache
def nvidia_tables() -> Tables:
    """The tables of NVIDIA's chips."""
    return {
        name: Interpolation(np.array(table.lines, np.int64), table.rest_bits, table.shifts, table.added, table.dropped)
        for name, table in _data().functions.items()
    }


def special_functions(device: Device) -> Tables:
    """The tables of a device. Raises UnsupportedError for a chip whose functions nobody has published."""
    if not has_special_functions(device):
        raise UnsupportedError(
            f"device {device.name}: its special functions are not known to the bit; known of families "
            f"{', '.join(_data().families.value)}"
        )
    tables = nvidia_tables()
    return {name: tables[name] for name, table in _data().functions.items() if _has(device, table.since)}


def narrow_forms(device: Device) -> Mapping[str, NarrowForm]:
    """The instructions of 16 bits that a device has, by PTX's name."""
    return {name: form for name, form in _data().narrow_forms.items() if _has(device, form.since)}


def _has(device: Device, since: str) -> bool:
    """Whether a device's compute capability is this one or a later one."""
    return _version(device.compute_capability or FIRST) >= _version(since)


def _version(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


def has_special_functions(device: Device) -> bool:
    """Whether a device's special functions are known to the bit."""
    return device.family in _data().families.value


def lacking(device: Device, name: str) -> str:
    """Why a device with known special functions has no instruction `name`, in words: the chip is older, or its file
    does not say how old it is.
    """
    if device.compute_capability is None:
        return (
            f"whether it has the instruction {name} its compute_capability says, which its file lacks; "
            'add it as a text, such as "9.0"'
        )
    return f"it has no instruction {name}; another chip has, as h100"


def tables_evidence(device: Device, functions: Iterable[str]) -> Level:
    """The weakest evidence level of a device's tables of some functions (as "ex2"): of the table, and of the claim
    that the chip has it, which rests on compared results or else on its family.

    Raises InputError for another name, UnsupportedError for a chip that lacks a function, or whose functions nobody has
    published.
    """
    tables, data, functions = special_functions(device), _data(), list(functions)
    for name in functions:
        if name not in TABLE_OF:
            raise InputError(f"special functions: {name!r} has no table; {', '.join(TABLE_OF)} have")
        if TABLE_OF[name] not in tables:
            raise UnsupportedError(f"device {device.name}: {lacking(device, name)}")
    levels = []
    for table in (TABLE_OF[name] for name in functions):
        compared = (claim.evidence for claim in data.seen if claim.covers(device.name, table))
        levels += [data.functions[table].evidence, next(compared, data.families.evidence)]
    return max((Level(level) for level in levels), key=list(Level).index)
