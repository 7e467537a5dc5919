"""Energy of a timed GEMM by energies of operations and bytes (configs/energy/chips.yaml): assumed ones, at three
levels, and where a chip's power was measured, those that were fitted to it.

Counted are multiply-accumulates, cycles of the lanes beside them, operands that a matrix unit reads from shared memory,
traffic by memory, and time. Of assumed energies, ratios of similar runs say more than joules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.devices import find
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.host.places import package_folder, text_of

if TYPE_CHECKING:
    from hwsim.analysis.program_times import Times
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

AssumedLevel = Literal["low", "typical", "high"]
EnergyLevel = AssumedLevel | Literal["measured"]
LEVELS: tuple[AssumedLevel, ...] = get_args(AssumedLevel)
MEASURED: EnergyLevel = "measured"
EVIDENCE: Mapping[EnergyLevel, str] = {**dict.fromkeys(LEVELS, "assumption"), MEASURED: "fitted"}
_LANE_BYTES = 4  # of an fp32 lane
_PICO = 1e-12
_ON_CHIP = ("SMEM", "TMEM")


class _EnergyRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EnergyRange(_EnergyRecord):
    """Three levels of an assumed number, with its source. bound: no true value is above it. measured: the number that
    was fitted to measured power, None where none was.
    """

    low: float
    typical: float
    high: float
    source: str
    bound: float | None = None
    measured: float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 <= self.low <= self.typical <= self.high <= (self.high if self.bound is None else self.bound):
            raise ValueError("low, typical, high and bound have to rise")
        return self

    def at(self, level: EnergyLevel) -> float:
        """The value of a level. Raises UnsupportedError where nothing was measured."""
        value = {"low": self.low, "typical": self.typical, "high": self.high, MEASURED: self.measured}[level]
        if value is None:
            raise UnsupportedError(
                "no energies of this chip, or of this format on it, were measured; take another level"
            )
        return value


class BoardPower(_EnergyRecord):
    """Watts that the vendor gives for a board."""

    value: float
    source: str


class ChipEnergies(_EnergyRecord):
    """Energies of a chip: of an FMA and of another operation on an FP32 lane, of a multiply-accumulate in a matrix unit
    by operand format, of a byte by memory (shared: of one core), and power that flows whatever runs.
    """

    title: str
    devices: tuple[str, ...]
    board_watts: BoardPower
    lane_fma_pj: EnergyRange
    lane_other_pj: EnergyRange
    mac_pj: dict[str, EnergyRange]
    hbm_pj_per_byte: EnergyRange
    l2_pj_per_byte: EnergyRange
    shared_pj_per_byte: EnergyRange
    static_watts: EnergyRange


class _EnergyFile(_EnergyRecord):
    schema_version: Literal[1]
    evidence: Literal["assumption"]
    sources: dict[str, str]
    chips: dict[str, ChipEnergies]


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules by what takes them (`static`, `lanes`, `matrix`, `hbm`, `l2`, `shared`), seconds, and the level.

    2 m n k of the problem are `operations`.
    """

    joules_by: Mapping[str, float]
    seconds: float
    operations: int
    level: EnergyLevel

    @property
    def evidence(self) -> str:
        """How good the energies are: `assumption`, or `fitted` to measured power."""
        return EVIDENCE[self.level]

    @property
    def joules(self) -> float:
        """The sum."""
        return sum(self.joules_by.values())

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds

    @property
    def gflops_per_watt(self) -> float:
        """Operations of the problem per joule, in 1e9."""
        return self.operations / self.joules / 1e9


@cache
def _file() -> _EnergyFile:
    source = package_folder("energy") / "chips.yaml"
    try:
        return _EnergyFile.model_validate(common_yaml(text_of(source, "energy")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{source}: {error}") from None


def energies_of(device: str) -> ChipEnergies:
    """The assumed energies of a device, by its name. Raises UnsupportedError for one that the file does not have."""
    energies = next((chip for chip in _file().chips.values() if device in chip.devices), None)
    if energies is None:
        names = ", ".join(name for chip in _file().chips.values() for name in chip.devices)
        raise UnsupportedError(f"no assumed energies of device {device}; hwsim has energies of {names}")
    return energies


def energy(times: Times, gemm: Gemm, level: EnergyLevel = "typical", energies: ChipEnergies | None = None) -> Energy:
    """The energy of a timed GEMM (result.times, result.gemm). energies: by default those of the device's name.

    A cycle in which the lanes are busy, beside FMAs of the products, is one operation of each lane. Raises
    UnsupportedError without times, for a time of 0 (a library's kernel that takes no longer than a launch), without
    energies, for a format without one, and for "measured" where no power was measured.
    """
    chip = times.chip
    if chip is None or times.seconds is None:
        raise UnsupportedError(f"no energy without times: {times.note}")
    if not times.seconds:
        raise UnsupportedError("no energy of a time of 0: the library's kernels take no longer than a launch")
    table = energies if energies is not None else energies_of(chip.name)
    problem = gemm.problem
    operations = 2 * problem.m * problem.n * problem.k * problem.matrices
    matrix, fma_count, shared = _products(times, gemm, chip, table, level)
    lanes = fma_count * table.lane_fma_pj.at(level) + _other_lane_operations(times, gemm, chip) * (
        table.lane_other_pj.at(level)
    )
    moved = times.traffic_bytes
    hbm = moved.get("HBM read", 0) + moved.get("HBM write", 0)
    l2 = moved.get("L2 read", 0) + moved.get("L2 write", 0)
    shared += sum(size for name, size in moved.items() if any(part in _ON_CHIP for part in name.split("_")))
    joules = {
        "static": table.static_watts.at(level) * times.seconds,
        "lanes": lanes * _PICO,
        "matrix": matrix * _PICO,
        "hbm": hbm * table.hbm_pj_per_byte.at(level) * _PICO,
        "l2": l2 * table.l2_pj_per_byte.at(level) * _PICO,
        "shared": shared * table.shared_pj_per_byte.at(level) * _PICO,
    }
    return Energy(joules, times.seconds, operations, level)


def _products(
    times: Times, gemm: Gemm, chip: Device, table: ChipEnergies, level: EnergyLevel
) -> tuple[float, int, float]:
    """Of the products: picojoules in matrix units, FMAs on lanes, bytes that matrix units read from shared memory.

    All kernels of a GEMM are taken to use the instruction of the first.
    """
    unit = times.unit if gemm.mapping is None else gemm.mapping.kernels[0].instruction
    model = find(chip, unit)
    if model is None:
        raise UnsupportedError(f"device {chip.name} has no instruction {unit}")
    count = times.macs["padded"]
    if chip.vector is not None and model.engine == chip.vector.engine:
        return 0.0, count, 0.0
    if model.a not in table.mac_pj:
        raise UnsupportedError(f"no assumed energy of {model.a} in a matrix unit; there are {', '.join(table.mac_pj)}")
    size = format_of(model.a).bits / 8
    operands = [(model.places(0), model.n), (model.places(1), model.m)]
    read = sum(count / reuse * size for places, reuse in operands if "SMEM" in places)
    return count * table.mac_pj[model.a].at(level), 0, read


def _other_lane_operations(times: Times, gemm: Gemm, chip: Device) -> float:
    """Operations of lanes that are no FMAs of products: their busy cycles beside those, times the lanes."""
    if chip.vector is None:
        return 0.0
    engine = times.engines.get(chip.vector.engine)
    busy = 0.0 if engine is None else float(engine.busy_cycles)
    unit = times.unit if gemm.mapping is None else gemm.mapping.kernels[0].instruction
    model = find(chip, unit)
    if model is not None and model.engine == chip.vector.engine and model.timing is not None:
        busy = max(0.0, busy - times.macs["padded"] / float(model.macs_per_cycle))
    return busy * chip.vector.repeat_bytes / _LANE_BYTES
