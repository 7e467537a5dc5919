"""The assumptions that the papers' claims rest on, read from lab/hwsim_lab/configs/papers/*-assumptions.yaml, with
their ranges.

An assumption is a number of a device file, an energy, a constant of an experiment, or the operands that it draws. The
module knows where it stands and between which ends it lies; neither what rests on it, nor how an experiment runs.
"""

from __future__ import annotations

import sys
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from hwsim.analysis.energy import ChipEnergies, EnergyRange, energies_of
from hwsim.datafiles.yaml_text import common_yaml
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.host.places import text_of
from hwsim.studies.sensitivity import range_of
from hwsim_lab import places
from hwsim_lab.papers.record import PaperRecord

#: Claims of these kinds rest on numbers and choices of hwsim's own; the others on the paper's text or on recorded bits.
VARIED_KINDS = ("time", "energy", "accuracy")
OTHER_SEED = 1000  # added to the seed of every drawing

End = int | float | bool | str | list[int] | dict[str, Any]


class Assumption(PaperRecord):
    """One assumption of one experiment.

    claims: the ids that rest on it; empty: all of the experiment. device, number: a number of a device file, at a
    dotted path. energy: the number is one of configs/energy, between its low and its high level. constant: a module's
    constant ("package.module:NAME"). others: its other values; of a number, the ends of its range where neither the
    sources' span nor a quarter less and more is meant. why: what is assumed.
    """

    experiment: str
    claims: tuple[str, ...] = ()
    device: str | None = None
    number: str | None = None
    energy: bool = False
    constant: str | None = None
    others: tuple[End, ...] = ()
    why: str

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.device is None) != (self.number is None) or (self.device is None) == (self.constant is None):
            raise ValueError("needs `device` and `number`, or `constant`")
        if self.constant is not None and (not self.others or self.energy):
            raise ValueError(f"{self.constant}: needs `others`, its other values")
        return self

    @property
    def name(self) -> str:
        """As a page names it."""
        if self.constant is not None:
            return self.constant.rpartition(":")[2]
        return f"{self.number} of {self.device}"

    def moves(self, claim: str) -> bool:
        """Whether a claim of the experiment rests on it."""
        return not self.claims or claim in self.claims


class AssumedRange(PaperRecord):
    """The value of an assumption as it is, and its other values. said: how they come about."""

    value: Any
    others: tuple[Any, ...]
    said: str


class AssumptionFile(PaperRecord):
    """The assumptions of one paper. unmoved: claim -> why no assumption of hwsim's moves it."""

    schema_version: Literal[1]
    assumptions: tuple[Assumption, ...]
    unmoved: dict[str, str] = Field(default_factory=dict)


def read(paper: str) -> AssumptionFile:
    """The assumptions of a paper. Raises InputError for a file that does not fit."""
    source = places.PAPERS / f"{paper}-assumptions.yaml"
    try:
        return AssumptionFile.model_validate(common_yaml(text_of(source, "assumptions")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{source}: {error}") from None


def range_of_assumption(one: Assumption) -> AssumedRange:
    """Where an assumption lies and may lie. Raises InputError where it is none, or is not there."""
    if one.constant is not None:
        module, _, name = one.constant.partition(":")
        try:
            return AssumedRange(value=getattr(sys.modules[module], name), others=one.others, said="another choice")
        except (KeyError, AttributeError) as error:
            raise InputError(f"assumption {one.name}: no constant {one.constant}: {error}") from None
    assert one.device is not None and one.number is not None
    if one.energy:
        level = energy_at(energies_of(one.device), one.number)
        return AssumedRange(value=level.typical, others=(level.low, level.high), said="its low and high level")
    found = range_of(load(one.device), one.number)
    if one.others:
        value = _number(load(one.device).model_dump(by_alias=True), one.number)
        return AssumedRange(value=value, others=one.others, said="as `why` says")
    if found is None:
        raise InputError(f"assumption {one.name}: not an assumed number, and no span of sources; give `others`")
    value, low, high, from_span = found
    others = tuple(end for end in (low, high) if end != value)
    return AssumedRange(
        value=value, others=others, said="what sources give" if from_span else "a quarter less and more"
    )


def energy_at(chip: ChipEnergies, number: str) -> EnergyRange:
    """The levels of one energy of a chip, as "lane_fma_pj" or "mac_pj.bf16". Raises InputError where there is none."""
    name, _, format = number.partition(".")
    found = getattr(chip, name, None)
    level = found.get(format) if isinstance(found, dict) else found
    if not isinstance(level, EnergyRange):
        raise InputError(f"no energy {number} of {', '.join(chip.devices)}")
    return level


def _number(tree: Any, path: str) -> Any:
    for key in sorted(tree, key=len, reverse=True) if isinstance(tree, dict) else ():
        if path == key:
            return tree[key]
        if path.startswith(f"{key}."):
            return _number(tree[key], path[len(key) + 1 :])
    raise InputError(f"no number {path}")
