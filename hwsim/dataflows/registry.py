"""Registry of dataflows by family: hwsim's own, and those that installed packages register.

hwsim's own dataflows are imported on first use of a device of their family; their options are known without the import.
A package registers a family through the entry point group "hwsim.dataflows": the name of the entry point is the
`family` of device files, its object a `Dataflow`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from hwsim.dataflows.options import COUPLED, PAIRED, SEPARATED, TILED
from hwsim.dataflows.protocol import Dataflow
from hwsim.errors import UnsupportedError, nearest
from hwsim.host.plugins import entry_points

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.option_types import Option

GROUP = "hwsim.dataflows"


@dataclass(frozen=True, slots=True)
class OwnFamily:
    """One of hwsim's own families. where: its dataflow as "module:object"; declared: the options of the dataflow."""

    where: str
    declared: tuple[Option, ...]

    def load(self) -> Dataflow:
        """Import the dataflow."""
        module, _, name = self.where.partition(":")
        found: Dataflow = getattr(import_module(module), name)
        return found

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of the dataflow if it has been imported, else `declared`."""
        return self.load().options if self.where.partition(":")[0] in sys.modules else self.declared


OWN: Mapping[str, OwnFamily] = {
    "davinci": OwnFamily("hwsim.dataflows.davinci.coupled:COUPLED", COUPLED),
    "davinci_separated": OwnFamily("hwsim.dataflows.davinci.separated:SEPARATED", SEPARATED),
    "sm70": OwnFamily("hwsim.dataflows.tiled.sm70:DATAFLOW", TILED),
    "sm80": OwnFamily("hwsim.dataflows.tiled.sm80:DATAFLOW", TILED),
    "sm90": OwnFamily("hwsim.dataflows.tiled.sm90:DATAFLOW", TILED),
    "sm100": OwnFamily("hwsim.dataflows.tiled.sm100:DATAFLOW", PAIRED),
    "cdna": OwnFamily("hwsim.dataflows.tiled.cdna:DATAFLOW", TILED),
    "tiled": OwnFamily("hwsim.dataflows.tiled.generic:DATAFLOW", TILED),
}


class Dataflows(Mapping[str, Dataflow]):
    """Dataflows by family. Looking up one of hwsim's own imports it."""

    def __init__(self, registered: Mapping[str, Dataflow]) -> None:
        """registered: the dataflows of other packages; their families differ from hwsim's own."""
        self._registered = registered

    def __getitem__(self, name: str) -> Dataflow:
        return OWN[name].load() if name in OWN else self._registered[name]

    def __iter__(self) -> Iterator[str]:
        yield from OWN
        yield from self._registered

    def __len__(self) -> int:
        return len(OWN) + len(self._registered)

    def __contains__(self, name: object) -> bool:
        return name in OWN or name in self._registered

    def __or__(self, others: Mapping[str, Dataflow]) -> dict[str, Dataflow]:
        return {**self, **others}

    def options(self) -> dict[str, tuple[Option, ...]]:
        """The options of each dataflow by family, without importing any."""
        own = {name: family.options for name, family in OWN.items()}
        return own | {name: flow.options for name, flow in self._registered.items()}


@cache
def dataflows() -> Dataflows:
    """All dataflows by family; a broken plug-in causes a warning and is left out."""
    found: dict[str, Dataflow] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if point.name in OWN:
            continue
        try:
            flow = point.load()
            if not isinstance(flow, Dataflow):
                raise TypeError(f"gives {type(flow).__name__}; needs a hwsim.dataflows.protocol.Dataflow")
            found.setdefault(point.name, flow)
        except Exception as error:  # a plug-in may fail in any way
            warnings.warn(f"dataflow plug-in {point.name} ({point.value}) is left out: {error}", stacklevel=2)
    return Dataflows(found)


def dataflow(device: Device) -> Dataflow:
    """The dataflow of the device's family. Raises UnsupportedError for a family without one."""
    if device.family in OWN:  # without a look for plug-ins
        return OWN[device.family].load()
    found = dataflows()
    if device.family not in found:
        raise UnsupportedError(
            f"device {device.name}: no dataflow for family {device.family!r}; there is one for {', '.join(found)}"
            f"{nearest(device.family, list(found))}"
        )
    return found[device.family]
