"""The clock that a power limit leaves a chip: by the energy of a busy cycle in each format, and by the board's watts.

It knows clocks, watts and the table configs/energy/busy_cycles.yaml; it knows no program and no product. Power beyond
what flows whatever runs is joules of a cycle x clock x voltage^2. Below a share of the chip's clock the voltage is
constant, above it grows with the clock. A clock in one format at a limit therefore gives the clocks in the others, at
other limits, with another number of cores, and under a slower instruction.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.devices.ranges import LEAST_MHZ
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.places import package_folder, text_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model.chip import PowerStage

#: Formats whose clock under load says those of the others, best first.
REFERENCES = ("bf16", "fp16")
DEFAULT = "default"


class _PowerRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelNumber(_PowerRecord):
    """A number of the model. role: whether the source set it, or moved a choice."""

    value: float
    source: str
    role: Literal["calibration", "seen", "assumption"]


class BusyCycles(_PowerRecord):
    """The table: where the voltage stops falling, and joules of a busy cycle by format, relative to bf16."""

    schema_version: Literal[1]
    sources: dict[str, str]
    voltage_floor_share: ModelNumber
    joules_of_a_cycle: dict[str, ModelNumber]

    def joules(self, format: str) -> float:
        """Of a cycle in which the unit for operands of `format` is busy; as bf16 for one that the table lacks."""
        number = self.joules_of_a_cycle.get(format)
        return 1.0 if number is None else number.value


@cache
def busy_cycles() -> BusyCycles:
    """The table of configs/energy/busy_cycles.yaml. Raises InputError for a damaged one."""
    source = package_folder("energy") / "busy_cycles.yaml"
    try:
        return BusyCycles.model_validate(common_yaml(text_of(source, "energy")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{source}: {error}") from None


def power_at(mhz: float, nominal_mhz: float) -> float:
    """Clock x voltage^2, relative to the voltage's floor: what a cycle's joules are multiplied by, in MHz."""
    floor_mhz = busy_cycles().voltage_floor_share.value * nominal_mhz
    return mhz * max(1.0, mhz / floor_mhz) ** 2


def clock_at(power: float, nominal_mhz: float) -> float:
    """The clock, MHz, at which `power_at` is `power`; at most `nominal_mhz`."""
    floor_mhz = busy_cycles().voltage_floor_share.value * nominal_mhz
    mhz = power if power <= floor_mhz else (power * floor_mhz**2) ** (1 / 3)
    return min(mhz, nominal_mhz)


def at_rate(mhz: float, share: float, nominal_mhz: float) -> float:
    """The clock, MHz, under an instruction with `share` of the multiply-accumulates a cycle of the one that runs at
    `mhz`, and so with that share of the joules of a busy cycle. At most `nominal_mhz`; rounded to whole MHz.
    """
    return float(round(clock_at(power_at(mhz, nominal_mhz) / share, nominal_mhz)))


def by_reference(clocks: Mapping[str, float], format: str, nominal_mhz: float) -> float | None:
    """The clock of a format that `clocks` lacks, MHz, by the joules of its cycle; None without a reference.

    clocks: under one load, by format. Rounded to whole MHz, as the clocks that it stands beside.
    """
    reference = next((name for name in REFERENCES if name in clocks), None)
    if reference is None:
        return None
    table = busy_cycles()
    power = power_at(clocks[reference], nominal_mhz) * table.joules(reference) / table.joules(format)
    return float(round(clock_at(power, nominal_mhz)))


def at_power(device: Device, watts: float) -> Device:
    """The device with a board that may draw `watts`: its clocks under load are those that such a limit leaves.

    Raises UnsupportedError where the device file has no board power or no clock under load, InputError for a limit that
    what flows whatever runs exceeds.
    """
    board = device.board_power
    if board is None or (device.power_limit is None and not device.sustained_clock_mhz):
        raise UnsupportedError(
            f"power_limit_w: {device.name}'s file has no board power, or no clock under load, to start from; give "
            "clock_mhz"
        )
    if not board.static_watts < watts < inf:
        raise InputError(
            f"power_limit_w = {watts:g}: {device.name} draws {board.static_watts:g} W whatever runs; "
            "allowed: more, and finite"
        )
    share = (watts - board.static_watts) / (board.watts - board.static_watts)
    board_at_watts = board.model_copy(update={"watts": watts})
    at_limit: Device = device.model_copy(update=_clocks_at(device, share) | {"board_power": board_at_watts})
    at_limit._asked_mhz = device.asked_mhz
    at_limit._asked_watts = watts
    return at_limit


def at_cores(device: Device, cores_before: int) -> Device:
    """A device whose clocks under load were measured with `cores_before` cores, with those that its own cores leave.

    The limit stays, and so does what flows whatever runs: each core may draw more where there are fewer. The same
    object for the same number of cores, and where the file has no clock under load.
    """
    if device.cores == cores_before or not (device.sustained_clock_mhz or device.power_limit):
        return device
    of_cores: Device = device.model_copy(update=_clocks_at(device, cores_before / device.cores))
    of_cores._asked_mhz, of_cores._asked_watts = device.asked_mhz, device.asked_watts
    return of_cores


def _clocks_at(device: Device, share: float) -> dict[str, object]:
    """The fields of the clocks under load where a core may draw `share` of the power that it draws at the device's."""

    def scaled(clocks: Mapping[str, float], unslowed: Container[str] = ()) -> dict[str, float]:
        """Clocks at that power. unslowed: formats with clocks of their own, which a stage does not slow."""
        others = [name for name in device.native if name not in unslowed]
        names = clocks if DEFAULT in clocks else dict.fromkeys((*clocks, *others))
        nominal, scaled_mhz = device.clock_mhz, {}
        for name in names:
            mhz = clocks[name] if name in clocks else by_reference(clocks, name, nominal)
            if mhz is not None:
                left = clock_at(share * power_at(mhz, nominal), nominal)
                scaled_mhz[name] = max(float(round(left)), LEAST_MHZ)
        return scaled_mhz

    def of(stage: PowerStage) -> dict[str, object]:
        return {"clock_mhz": scaled(stage.clock_mhz, device.sustained_clock_mhz)}

    limit = device.power_limit
    if limit is not None:
        limit = limit.model_copy(update=of(limit))
        if limit.later is not None:
            limit = limit.model_copy(update={"later": limit.later.model_copy(update=of(limit.later))})
    return {"sustained_clock_mhz": scaled(device.sustained_clock_mhz), "power_limit": limit}
