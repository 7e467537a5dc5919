"""Triton's target of each device, from configs/frameworks/triton.yaml. The module knows no compiler and no array."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from pydantic import Field, PositiveInt

from hwsim.datafiles.base import Name, SourcedFile, StrictRecord
from hwsim.datafiles.reading import record_of
from hwsim.datafiles.yaml_text import parse
from hwsim.devices.device import Device
from hwsim.devices.special_functions import has_special_functions
from hwsim.errors import UnsupportedError, nearest
from hwsim.host import places

SCHEMA_VERSION = 1


class TritonTarget(NamedTuple):
    """A target of Triton's compiler: backend "cuda" or "hip", architecture (90, "gfx942"), threads of a warp."""

    backend: str
    arch: int | str
    warp_size: int


class BackendTargets(StrictRecord):
    """One backend of Triton: threads of a warp; architectures by device, where no compute capability says them."""

    warp_size: PositiveInt
    arch: dict[Name, Name] = Field(default_factory=dict)


class TritonTargets(SourcedFile):
    """The file: one block for each backend."""

    schema_version: Literal[1]
    framework: Literal["triton"]
    title: str
    cuda: BackendTargets
    hip: BackendTargets


@cache
def _file() -> TritonTargets:
    file = places.package_folder("frameworks") / "triton.yaml"
    text, problems = parse(places.text_of(file, "framework"), str(file))
    return record_of(text, problems, TritonTargets, SCHEMA_VERSION, "framework").record


def target_of(device: Device) -> TritonTarget:
    """The device's target. Raises UnsupportedError where Triton has none."""
    file = _file()
    if device.compute_capability is not None:
        return TritonTarget("cuda", int(device.compute_capability.replace(".", "")), file.cuda.warp_size)
    if has_special_functions(device):
        raise UnsupportedError(
            f"Triton's target of the device {device.name} follows from its compute_capability, which its file lacks; "
            'add it as a text, such as "9.0"'
        )
    if device.name not in file.hip.arch:
        raise UnsupportedError(
            f"Triton has no target for the device {device.name}{nearest(device.name, list(file.hip.arch))}; "
            f"devices with one: {', '.join(file.hip.arch)}, and each whose file has a compute_capability, as NVIDIA's"
        )
    return TritonTarget("hip", file.hip.arch[device.name], file.hip.warp_size)
