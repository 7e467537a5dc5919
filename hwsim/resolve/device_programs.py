"""Which native products of a device have a program, and what keeps the others from one: for a check of its file.

It knows a device's native formats and the requests for them; it knows no link, engine or memory, which the dataflow
of the device's family names where it lacks one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.datafiles.messages import locate
from hwsim.datafiles.yaml_text import parse
from hwsim.dataflows.registry import dataflow
from hwsim.devices import changed, instruction, registry
from hwsim.devices.query import native_meant
from hwsim.errors import ConfigError, HwsimError, UnsupportedError
from hwsim.gemm.problem import Problem
from hwsim.request.request import Request
from hwsim.resolve.resolver import resolve
from hwsim.schemes import scheme_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

SIZE = 64  # rows, columns and K of the products


def without_program(device: Device) -> dict[str, str]:
    """By native format whose instruction has timing data: the reason why its product has no program.

    Of a device without `native`: by format that it may name there.
    Empty for a family without a dataflow, whose devices give bits alone.
    """
    try:
        dataflow(device)
    except UnsupportedError:
        return {}
    reasons: dict[str, str] = {}
    device = _with_native(device)
    for fmt, name in device.native.items():
        if instruction(device, name).timing is None:
            continue
        problem = Problem.of(fmt, SIZE, SIZE, SIZE)
        try:
            resolve(Request(device, scheme_of("native"), problem, fmt, exact=False))
        except HwsimError as error:
            reasons[fmt] = str(error)
    return reasons


def _with_native(device: Device) -> Device:
    """The device; of one without `native`, with the one that it may have."""
    return device if device.native else changed(device, {"native": native_meant(device)})


def _place(device: Device, fmt: str) -> str:
    """Where the device's file says its native instruction of a format, before a message; "" where no file says it."""
    if not device.file:
        return ""
    content, where = registry.read(device.file)
    tree = parse(content, where)[0] if isinstance(content, str) else None
    path, _, key = ("", None, None) if tree is None else locate(tree, ("native", fmt))
    return f"{key}: " if path == f"native.{fmt}" and key is not None else ""


def check_programs(device: Device) -> None:
    """Raise ConfigError with each native format that has timing data but no program: a link, an engine or a memory that
    the family's dataflow needs is missing, or too small.
    """
    missing = without_program(device)
    if missing:
        native = _with_native(device).native
        raise ConfigError(
            [
                f"{_place(device, fmt)}native.{fmt}: {native[fmt]} has timing data, but there is no program: {why}"
                for fmt, why in missing.items()
            ]
        )
