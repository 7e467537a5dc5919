"""The mapping of one device on another: a device with other numbers takes the faster of two mappings.

One is chosen for it; the other is the mapping that the device has without the changes. The module knows records,
devices and predicted times; it chooses no mapping of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.devices import at_clock, at_power, instruction
from hwsim.errors import InputError, ProgramError, UnsupportedError
from hwsim.gemm.record import Decision, DeviceId, Gemm
from hwsim.resolve.mapping_choice import program_of
from hwsim.resolve.record_cost import cost_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program
    from hwsim.request.request import TimedState

#: The decision of a record whose mapping is kept.
OF_BASE = Decision(
    "mapping", "kept", "estimate", "", "of the device without the changes: the one chosen anew takes no less time"
)


def base_of(device: Device) -> Device | None:
    """The device whose numbers were changed, at the clock or power limit that was asked for; None for one as its file
    has it. Its board keeps its own limit where that is lower, or where the one asked for leaves it no power for work.
    """
    base = device.changed_from
    if base is not None and device.asked_mhz is not None:
        return at_clock(base, device.asked_mhz)
    asked = device.asked_watts
    if base is None or base.board_power is None or asked is None or asked <= base.board_power.static_watts:
        return base
    return at_power(base, min(asked, base.board_power.watts))


def on_device(gemm: Gemm, device: Device, base: Device) -> tuple[Gemm, Program] | None:
    """A mapped record of `base` on a device with other numbers, and its checked program.

    None where no such program fits the device, or where an instruction of the mapping has another shape there.
    """
    if gemm.mapping is None or not _has_same_instructions(gemm, device, base):
        return None
    name = DeviceId(device.name, device.sha256, device.asked_mhz)
    moved = replace(gemm, device=name, parts=tuple([replace(part, device=name) for part in gemm.parts]))
    try:
        return moved, program_of(moved, device)
    except (InputError, ProgramError, UnsupportedError):
        return None


def faster_of(
    chosen: Gemm, of_base: Gemm, device: Device, base: Device, state: TimedState
) -> tuple[Gemm, Program] | None:
    """The record of the base on the device, and its program, where it takes no more time than the one chosen for the
    device; else None. The records are of one plan. state: what the times are of.
    """
    if chosen.plan != of_base.plan or (chosen.mapping, chosen.schedule) == (of_base.mapping, of_base.schedule):
        return None
    moved = on_device(of_base, device, base)
    if moved is None or _seconds(moved[0], device, state) > _seconds(chosen, device, state):
        return None
    gemm, program = moved
    return replace(gemm, decisions=(*gemm.decisions, OF_BASE)), program


def _seconds(gemm: Gemm, device: Device, state: TimedState) -> float:
    """The seconds of a mapped record's program."""
    has_launches = state.launches and device.launch_overhead_us is not None
    return cost_of(gemm, device, l2=state.l2, launch_overhead=has_launches).seconds


def _has_same_instructions(gemm: Gemm, device: Device, base: Device) -> bool:
    """Whether the instructions of a mapping differ in times at most."""
    assert gemm.mapping is not None
    return all(
        _without_times(instruction(device, kernel.instruction)) == _without_times(instruction(base, kernel.instruction))
        for kernel in gemm.mapping.kernels
    )


def _without_times(model: Any) -> Any:
    return model.model_copy(update={"timing": None})
