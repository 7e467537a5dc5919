"""Triton's target of each device, from configs/frameworks/triton.yaml. The module knows no compiler and no array."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from pydantic import PositiveInt

from hwsim.datafiles.base import Name, SourcedFile, StrictRecord
from hwsim.datafiles.reading import record_of
from hwsim.datafiles.yaml_text import parse
from hwsim.devices.model import DeviceModel
from hwsim.errors import UnsupportedError, nearest
from hwsim.host import places

SCHEMA_VERSION = 1


class TritonTarget(NamedTuple):
    """A target of Triton's compiler: backend "cuda" or "hip", architecture (90, "gfx942"), threads of a warp."""

    backend: str
    arch: int | str
    warp_size: int


class BackendTargets(StrictRecord):
    """The architectures of one backend of Triton, by device; threads of a warp."""

    warp_size: PositiveInt
    arch: dict[Name, PositiveInt | Name]


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


def target_of(device: DeviceModel) -> TritonTarget:
    """The device's target. Raises UnsupportedError where Triton has none."""
    file = _file()
    targets = {
        name: TritonTarget(backend, arch, block.warp_size)
        for backend, block in (("cuda", file.cuda), ("hip", file.hip))
        for name, arch in block.arch.items()
    }
    if device.name not in targets:
        raise UnsupportedError(
            f"Triton has no target for the device {device.name}{nearest(device.name, list(targets))}; "
            f"devices with one: {', '.join(targets)}"
        )
    return targets[device.name]
