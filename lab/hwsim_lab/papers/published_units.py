"""Counts and rates of units that device files do not have, read from lab/hwsim_lab/configs/papers/published-units.yaml.

It knows the form of the file, and how a peak follows; no claim. No simulated run uses these numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import yaml
from pydantic import ValidationError

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.errors import InputError
from hwsim.host.places import text_of
from hwsim_lab import places
from hwsim_lab.papers.record import PaperRecord

FILE = "published-units.yaml"


class LaneRates(PaperRecord):
    """fmas_per_cycle: fused multiply-adds of one core's ordinary units per cycle, by format.

    source: who publishes them; checked: where they were read.
    """

    fmas_per_cycle: dict[str, int]
    source: str
    checked: str


class Processor(PaperRecord):
    """A chip without a device file. bits: of one core's vectors; pipes: such vectors of FMAs a core issues a cycle."""

    cores: int
    bits: int
    pipes: int
    clock_mhz: float
    source: str
    checked: str

    def peak_tflops(self, bits: int) -> float:
        """2 operations for each FMA of numbers of so many bits, all cores."""
        return 2e-6 * self.cores * self.pipes * (self.bits // bits) * self.clock_mhz


class TensorCores(PaperRecord):
    """per_sm: of one multiprocessor."""

    per_sm: int
    source: str
    checked: str


class PublishedUnits(PaperRecord):
    """By chip."""

    schema_version: Literal[1]
    lanes: dict[str, LaneRates]
    processors: dict[str, Processor]
    tensor_cores: dict[str, TensorCores]


@cache
def read() -> PublishedUnits:
    """The file. Raises InputError where it does not fit."""
    source = places.PAPERS / FILE
    try:
        return PublishedUnits.model_validate(common_yaml(text_of(source, "units")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{source}: {error}") from None
