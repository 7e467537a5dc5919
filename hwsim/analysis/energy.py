"""Energy of a timed GEMM by energies of operations and bytes: a device file's own, or of configs/energy/chips.yaml
assumed ones, at three levels, and where a chip's power was measured, fitted ones.

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
from hwsim.devices import find, weakest
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.host.places import package_folder, text_of
from hwsim.machines.timing import moved_bytes

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
    """Joules by what takes them (`static`, `lanes`, `matrix`, `hbm`, `l2`, `shared`, or the memories of a core by
    name), seconds, and the level.

    2 m n k of the problem are `operations`. evidence: how good the energies are, as `assumption`, or `fitted` to
    measured power.
    """

    joules_by: Mapping[str, float]
    seconds: float
    operations: int
    level: EnergyLevel
    evidence: str

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
    """The assumed energies of a device, by its name. Raises UnsupportedError for one that the table does not have."""
    energies = next((chip for chip in _file().chips.values() if device in chip.devices), None)
    if energies is None:
        names = ", ".join(name for chip in _file().chips.values() for name in chip.devices)
        raise UnsupportedError(
            f"no energies of device {device}: its file has no energy: (documentation: page Energy), and hwsim's table "
            f"has {names}"
        )
    return energies


def energy(times: Times, gemm: Gemm, level: EnergyLevel = "typical", energies: ChipEnergies | None = None) -> Energy:
    """The energy of a timed GEMM (result.times, result.gemm).

    energies: by default the device file's own (`energy:`), or else the ones by the device's name. Of a file's own
    numbers "low" and "high" are the ends of the span that it gives.

    A cycle in which the lanes are busy, beside FMAs of the products, is one operation of each lane. Raises
    UnsupportedError without times, for a time of 0 (a library's kernel that takes no longer than a launch), without
    energies, for a format or a memory without one, and for "measured" where no power was measured.
    """
    chip = times.chip
    if chip is None or times.seconds is None:
        raise UnsupportedError(f"no energy without times: {times.note}")
    if not times.seconds:
        raise UnsupportedError("no energy of a time of 0: the library's kernels take no longer than a launch")
    problem = gemm.problem
    operations = 2 * problem.m * problem.n * problem.k * problem.matrices
    work = _work(times, gemm, chip)
    if energies is None and chip.energy is not None:
        joules, evidence = _by_file(work, times, chip, level), str(weakest(chip, "energy"))
    else:
        joules = _by_table(work, times, energies or energies_of(chip.name), level)
        evidence = EVIDENCE[level]
    return Energy(joules, times.seconds, operations, level, evidence)


@dataclass(frozen=True, slots=True)
class _Work:
    """What a GEMM does, as counted: multiply-accumulates of a matrix unit with operands of a format, FMAs of products
    and other operations on lanes, bytes that matrix units read by memory, bytes over links by name, and of HBM and L2.
    """

    format: str
    matrix_macs: int
    lane_fmas: int
    lane_others: float
    operand_bytes: Mapping[str, float]
    link_bytes: Mapping[str, int]
    hbm_bytes: int
    l2_bytes: int


def _work(times: Times, gemm: Gemm, chip: Device) -> _Work:
    """The work of a timed GEMM. All kernels are taken to use the instruction of the first."""
    unit = times.unit if gemm.mapping is None else gemm.mapping.kernels[0].instruction
    model = find(chip, unit)
    if model is None:
        raise UnsupportedError(f"device {chip.name} has no instruction {unit}")
    count = times.macs["padded"]
    is_on_lanes = chip.vector is not None and model.engine == chip.vector.engine
    read: dict[str, float] = {}
    if not is_on_lanes:
        size = format_of(model.a).bits / 8
        for places, reuse in ((model.places(0), model.n), (model.places(1), model.m)):
            for place in places:
                read[place] = read.get(place, 0.0) + count / reuse * size
    moved = times.traffic_bytes
    shared = {f"{memory} {way}" for memory in ("HBM", "L2") for way in ("read", "write")}
    return _Work(
        format=model.a,
        matrix_macs=0 if is_on_lanes else count,
        lane_fmas=count if is_on_lanes else 0,
        lane_others=_other_lane_operations(times, gemm, chip),
        operand_bytes=read,
        link_bytes={name: size for name, size in moved.items() if name not in shared},
        hbm_bytes=moved_bytes(moved, "HBM"),
        l2_bytes=moved_bytes(moved, "L2"),
    )


def _by_table(work: _Work, times: Times, table: ChipEnergies, level: EnergyLevel) -> dict[str, float]:
    """Joules by energies of a chip's table, whose shared memories are SMEM and TMEM."""
    if work.matrix_macs and work.format not in table.mac_pj:
        listed = ", ".join(table.mac_pj)
        raise UnsupportedError(f"no assumed energy of {work.format} in a matrix unit; there are {listed}")
    matrix = work.matrix_macs * table.mac_pj[work.format].at(level) if work.matrix_macs else 0.0
    lanes = work.lane_fmas * table.lane_fma_pj.at(level) + work.lane_others * table.lane_other_pj.at(level)
    shared = work.operand_bytes.get("SMEM", 0.0)
    shared += sum(size for name, size in work.link_bytes.items() if any(part in _ON_CHIP for part in name.split("_")))
    assert times.seconds is not None
    return {
        "static": table.static_watts.at(level) * times.seconds,
        "lanes": lanes * _PICO,
        "matrix": matrix * _PICO,
        "hbm": work.hbm_bytes * table.hbm_pj_per_byte.at(level) * _PICO,
        "l2": work.l2_bytes * table.l2_pj_per_byte.at(level) * _PICO,
        "shared": shared * table.shared_pj_per_byte.at(level) * _PICO,
    }


def _by_file(work: _Work, times: Times, chip: Device, level: EnergyLevel) -> dict[str, float]:
    """Joules by the energies of the device's own file."""
    model = chip.energy
    assert model is not None and times.seconds is not None
    if level == MEASURED:
        raise UnsupportedError(f"no energies of {chip.name} were measured; take another level")

    def picojoules(amount: float, value: float | None, path: str) -> float:
        if not amount:
            return 0.0
        if value is None:
            raise UnsupportedError(
                f"device {chip.name} has no energy.{path} in its file, and the GEMM needs it: add it"
            )
        about = chip.evidence.get(f"energy.{path}")
        span = None if about is None else about.span
        levels = {} if span is None else {"low": span[0], "high": span[1]}
        return amount * levels.get(level, value)

    bytes_of = {
        memory: work.operand_bytes.get(memory, 0.0)
        + sum(
            size
            for name, size in work.link_bytes.items()
            if name in chip.links and memory in (chip.links[name].source, chip.links[name].target)
        )
        for memory in model.memory_pj_per_byte
    }
    lanes = picojoules(work.lane_fmas, model.lane_fma_pj, "lane_fma_pj")
    lanes += picojoules(work.lane_others, model.lane_other_pj, "lane_other_pj")
    matrix = picojoules(work.matrix_macs, model.mac_pj.get(work.format), f"mac_pj.{work.format}")
    joules = {
        "static": picojoules(times.seconds / _PICO, model.static_watts, "static_watts"),
        "lanes": lanes,
        "matrix": matrix,
        "hbm": picojoules(work.hbm_bytes, model.hbm_pj_per_byte, "hbm_pj_per_byte"),
        "l2": picojoules(work.l2_bytes, model.l2_pj_per_byte, "l2_pj_per_byte"),
        **{
            memory: picojoules(size, model.memory_pj_per_byte[memory], f"memory_pj_per_byte.{memory}")
            for memory, size in bytes_of.items()
        },
    }
    return {part: amount * _PICO for part, amount in joules.items()}


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
