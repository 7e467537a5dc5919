"""The clock that a power limit leaves a chip: by the energy of a busy cycle in each format, and by the board's watts.

It knows clocks, watts and the table configs/energy/busy_cycles.yaml; it knows no program and no product. Power beyond
what flows whatever runs is joules of a cycle x clock x voltage^2. Below a share of the chip's clock the voltage is
constant, above it grows with the clock. A clock in one format at a limit therefore gives the clocks in the others, at
other limits, with another number of cores, and under a slower instruction.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from functools import cache
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


def clock_at(power: float, nominal_mhz: float, most_mhz: float | None = None) -> float:
    """The clock, MHz, at which `power_at` is `power`; at most `most_mhz` (None: `nominal_mhz`)."""
    floor_mhz = busy_cycles().voltage_floor_share.value * nominal_mhz
    mhz = power if power <= floor_mhz else (power * floor_mhz**2) ** (1 / 3)
    return min(mhz, nominal_mhz if most_mhz is None else most_mhz)


def at_rate(mhz: float, share: float, nominal_mhz: float, most_mhz: float | None = None) -> float:
    """The clock, MHz, under an instruction with `share` of the multiply-accumulates a cycle of the one that runs at
    `mhz`, and so with that share of the joules of a busy cycle. At most as of `clock_at`; rounded to whole MHz.
    """
    return float(round(clock_at(power_at(mhz, nominal_mhz) / share, nominal_mhz, most_mhz)))


def by_reference(
    clocks: Mapping[str, float], format: str, nominal_mhz: float, most_mhz: float | None = None
) -> float | None:
    """The clock of a format that `clocks` lacks, MHz, by the joules of its cycle; None without a reference.

    clocks: under one load, by format. At most as of `clock_at`; rounded to whole MHz, as the clocks beside it.
    """
    power = _power_in(clocks, format, nominal_mhz)
    return None if power is None else float(round(clock_at(power, nominal_mhz, most_mhz)))


def _power_in(clocks: Mapping[str, float], format: str, nominal_mhz: float) -> float | None:
    """The `power_at` that a load leaves a format: at its own clock, else by the joules of its cycle beside a 16-bit
    format's. None without a reference.
    """
    if format in clocks:
        return power_at(clocks[format], nominal_mhz)
    reference = next((name for name in REFERENCES if name in clocks), None)
    if reference is None:
        return None
    table = busy_cycles()
    return power_at(clocks[reference], nominal_mhz) * table.joules(reference) / table.joules(format)


def at_power(device: Device, watts: float) -> Device:
    """The device with a board that is held to `watts`: its clocks under load are those that such a limit leaves.

    Raises UnsupportedError where the device file has no board power or no clock under load, InputError for a device at
    a fixed clock, and for a limit that what flows whatever runs exceeds, or that exceeds the board's own.
    """
    if device.asked_mhz is not None:
        raise InputError("clock_mhz fixes the clock that power_limit_w would change; leave one of them out")
    board = device.board_power
    if board is None or not has_clocks(device):
        raise UnsupportedError(
            f"power_limit_w: {device.name}'s file has no board power, or no clock under load, to start from; give "
            "clock_mhz"
        )
    if not board.static_watts < watts <= board.watts:
        raise InputError(
            f"power_limit_w = {watts:g}: {device.name} draws {board.static_watts:g} W whatever runs, and its board "
            f"{board.watts:g} W at most; allowed: more than the first, at most the second (board_power.watts, which a "
            "study may change)"
        )
    limited: Device = device.model_copy()
    limited._asked_watts = watts
    return with_clocks_of(limited, device)


def with_clocks_of(variant: Device, before: Device) -> Device:
    """A variant of `before` with the clocks under load that its own clock, its number of cores and its board leave.

    What flows whatever runs stays, and each core may draw more where there are fewer, or where the board may. A clock
    takes the voltage that it took before, and none is above the variant's own. The clocks follow from the measured
    ones, and so do not depend on the changes in between. Raises InputError where what flows whatever runs
    exceeds the limit under which they were measured, or the variant's.
    """
    measured = before.measured
    with_clocks: Device = variant.model_copy(update=_clocks_of(variant, before, measured))
    with_clocks._origin = replace(variant._origin, measured=measured)
    return with_clocks


def has_clocks(device: Device) -> bool:
    """Whether clocks under load are known."""
    return bool(device.sustained_clock_mhz) or device.power_limit is not None


def _clocks_of(variant: Device, before: Device, measured: Device) -> dict[str, object]:
    """The fields of the clocks under load of a variant of `before`; none where no clock changes."""

    def numbers(device: Device) -> tuple[object, ...]:
        return device.clock_mhz, device.cores, device.board_power, device.most_watts

    if numbers(variant) == numbers(before) or not has_clocks(measured):
        return {}
    share = measured.cores / variant.cores
    board, watts, watts_before = variant.board_power, variant.most_watts, measured.most_watts
    if board is not None and watts is not None and watts_before is not None:
        static_watts = board.static_watts
        if static_watts >= (least_watts := min(watts, watts_before)):
            held = "were measured at" if least_watts == watts_before else "are of a board that is held to"
            raise InputError(
                f"{variant.name} with board_power.static_watts = {static_watts:g}: its clocks under load {held} "
                f"{least_watts:g} W; allowed: less"
            )
        share *= (watts - static_watts) / (watts_before - static_watts)
    return _clocks_at(variant, measured, share)


def _clocks_at(variant: Device, measured: Device, share: float) -> dict[str, object]:
    """The fields of the clocks under load where a core may draw `share` of the power that it draws at the measured
    ones.
    """

    def scaled(clocks: Mapping[str, float], unslowed: Container[str] = ()) -> dict[str, float]:
        """Clocks at that power. unslowed: formats with clocks of their own, which a stage does not slow."""
        others = [name for name in variant.native if name not in unslowed]
        names = clocks if DEFAULT in clocks else dict.fromkeys((*clocks, *others))
        nominal = measured.clock_mhz
        powers = {name: _power_in(clocks, name, nominal) for name in names}
        return {
            name: max(float(round(clock_at(share * power, nominal, variant.clock_mhz))), LEAST_MHZ)
            for name, power in powers.items()
            if power is not None
        }

    def of(measured_stage: PowerStage) -> dict[str, object]:
        return {"clock_mhz": scaled(measured_stage.clock_mhz, measured.sustained_clock_mhz)}

    limit, measured_limit = variant.power_limit, measured.power_limit
    if limit is not None and measured_limit is not None:
        limit = limit.model_copy(update=of(measured_limit))
        if limit.later is not None and measured_limit.later is not None:
            later = limit.later.model_copy(update=of(measured_limit.later))
            limit = limit.model_copy(update={"later": later})
    return {"sustained_clock_mhz": scaled(measured.sustained_clock_mhz), "power_limit": limit}
