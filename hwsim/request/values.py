"""What `values` asks of a run: the bits by the device's program. It knows options, no array and no program."""

from __future__ import annotations

from dataclasses import replace

from hwsim.errors import InputError
from hwsim.request.option_records import MachineOptions


def with_program(machine: MachineOptions) -> MachineOptions:
    """The options with `functional`, where elements are followed. Raises InputError where others forbid it."""
    if machine.values is None or machine.functional:
        return _exact(machine)
    if machine.functional is not None:
        raise InputError("values: instructions of a program, and functional is false; leave functional out")
    return _exact(replace(machine, functional=True))


def _exact(machine: MachineOptions) -> MachineOptions:
    if machine.values is not None and not machine.exact:
        raise InputError("values: elements of C, and exact is false; leave exact out")
    return machine
