"""An experiment run again with one assumption at another value, in a process of its own.

It knows how a value takes the place of the assumed one: a device file that is found first, another energy, a constant,
another seed of every drawing. It knows neither what an experiment measures nor what is judged by it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hwsim.analysis import energy
from hwsim.devices import changed, expanded, load
from hwsim.errors import InputError
from hwsim.host.files import write_text
from hwsim.host.processes import WorkerGroup
from hwsim_lab.papers.assumptions import OTHER_SEED, Assumption, energy_at
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Scale
from hwsim_lab.papers.reproduce import experiments

NONE = "NONE"  # of the table of sources
VARIED = {"source": f"{NONE}; varied over its range", "evidence": "assumption"}


@dataclass(frozen=True, slots=True)
class Variation:
    """An assumption at another value; without one, operands of another seed."""

    assumption: Assumption | None
    value: Any

    @property
    def key(self) -> str:
        """What tells it from another, as text."""
        return json.dumps([self.assumption and self.assumption.name, self.value])


@dataclass(frozen=True, slots=True)
class VariedRun:
    """measured: as of an experiment's Found. refused: why hwsim does not take the value; nothing is measured then."""

    measured: Mapping[str, Mapping[str, Quantity]]
    refused: str = ""


def run_apart(group: WorkerGroup, paper: str, experiment: str, scale: Scale, variation: Variation) -> VariedRun:
    """The experiment with the variation, in a fresh process: results that experiments keep are not taken for it."""
    with group.pool(1) as pool:
        return pool.submit(run_here, paper, experiment, scale, variation).result()


def run_here(paper: str, experiment: str, scale: Scale, variation: Variation) -> VariedRun:
    """The same in this process, which is of no other use after it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            put_in_place(variation, Path(folder))
        except ValueError as error:
            return VariedRun({}, str(error).splitlines()[0])
        one = next(one for one in experiments(paper) if one.name == experiment)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "device .* is taken from")
            try:
                return VariedRun(one.measure(scale).measured)
            except InputError as error:
                return VariedRun({}, str(error).splitlines()[0])


def put_in_place(variation: Variation, folder: Path) -> None:
    """Let this process find the other value. folder: for a device file, as long as it is used."""
    one, value = variation.assumption, variation.value
    if one is None:
        draw = np.random.default_rng
        np.random.default_rng = lambda seed=None: draw(_other(seed))
    elif one.constant is not None:
        module, _, name = one.constant.partition(":")
        setattr(sys.modules[module], name, _tuples(value))
    elif one.energy:
        assert one.device is not None and one.number is not None
        _put_energy(one.device, one.number, value)
    else:
        assert one.device is not None and one.number is not None
        _put_device(one.device, one.number, value, folder)


def _other(seed: Any) -> Any:
    if isinstance(seed, int | np.integer):
        return int(seed) + OTHER_SEED
    return [int(x) for x in seed] + [OTHER_SEED] if isinstance(seed, list | tuple) else seed


def _put_energy(device: str, number: str, value: float) -> None:
    """Every level of one energy is the value."""
    file = energy._file()
    varied = file.model_copy(
        update={
            "chips": {
                name: _chip(chip, number, value) if device in chip.devices else chip
                for name, chip in file.chips.items()
            }
        }
    )
    energy._file = lambda: varied  # type: ignore[assignment]


def _chip(chip: energy.ChipEnergies, number: str, value: float) -> energy.ChipEnergies:
    level = energy_at(chip, number).model_copy(update=dict.fromkeys(energy.LEVELS, value))
    name, _, format = number.partition(".")
    return chip.model_copy(update={name: {**getattr(chip, name), format: level} if format else level})


def _tuples(value: Any) -> Any:
    """Lists of a file as the tuples of a module's constant."""
    if isinstance(value, Mapping):
        return {key: _tuples(one) for key, one in value.items()}
    return tuple(_tuples(one) for one in value) if isinstance(value, list | tuple) else value


def _put_device(device: str, number: str, value: float, folder: Path) -> None:
    tree = expanded(changed(load(device), {number: value}))
    block, rest = tree, number
    while rest not in block:
        key = max((key for key in block if rest.startswith(f"{key}.")), key=len)
        block, rest = block[key], rest[len(key) + 1 :]
    block[rest] = {"value": value, **VARIED}
    tree["sources"] = {NONE: "no source", **tree.get("sources", {})}
    write_text(folder / f"{device}.yaml", yaml.safe_dump(tree, sort_keys=False))
    places = [str(folder), os.environ.get("HWSIM_CONFIG_PATH", "")]
    os.environ["HWSIM_CONFIG_PATH"] = os.pathsep.join(place for place in places if place)
