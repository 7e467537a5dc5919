"""The dataflows by name: hwsim's own, and those that installed packages register.

A dataflow of hwsim's own is imported when a device of its family is used; its options are known before. A package
registers a family through the entry point group "hwsim.dataflows": the point's name is the `family` of device files,
its object a `Dataflow`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from hwsim.dataflows.options import COUPLED, PAIRED, SEPARATED, TILED
from hwsim.dataflows.protocol import Dataflow
from hwsim.errors import UnsupportedError, nearest

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.options import Option

GROUP = "hwsim.dataflows"


@dataclass(frozen=True, slots=True)
class OwnFamily:
    """A family of hwsim's own: its dataflow as "module:object", and the options that the dataflow has."""

    where: str
    declared: tuple[Option, ...]

    def load(self) -> Dataflow:
        """The dataflow, imported."""
        module, _, name = self.where.partition(":")
        found: Dataflow = getattr(import_module(module), name)
        return found

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of the dataflow if it is imported, else those declared for it."""
        return self.load().options if self.where.partition(":")[0] in sys.modules else self.declared


OWN: Mapping[str, OwnFamily] = {
    "davinci": OwnFamily("hwsim.dataflows.davinci.coupled:COUPLED", COUPLED),
    "davinci_separated": OwnFamily("hwsim.dataflows.davinci.separated:SEPARATED", SEPARATED),
    "sm70": OwnFamily("hwsim.dataflows.tiled.sm70:DATAFLOW", TILED),
    "sm80": OwnFamily("hwsim.dataflows.tiled.sm80:DATAFLOW", TILED),
    "sm90": OwnFamily("hwsim.dataflows.tiled.sm90:DATAFLOW", TILED),
    "sm100": OwnFamily("hwsim.dataflows.tiled.sm100:DATAFLOW", PAIRED),
    "cdna": OwnFamily("hwsim.dataflows.tiled.cdna:DATAFLOW", TILED),
}


class Dataflows(Mapping[str, Dataflow]):
    """Dataflows by the name of their family. One of hwsim's own is imported when it is asked for by name."""

    def __init__(self, registered: Mapping[str, Dataflow]) -> None:
        """registered: those of other packages, none of which has the name of one of hwsim's own."""
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
        """The options of each, by name; nothing is imported for them."""
        own = {name: family.options for name, family in OWN.items()}
        return own | {name: flow.options for name, flow in self._registered.items()}


@cache
def dataflows() -> Dataflows:
    """All dataflows by the name of their family; a broken plug-in warns and is left out."""
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
    """The dataflow of the device's family. Raises UnsupportedError when there is none."""
    if device.family in OWN:  # looking for plug-ins takes milliseconds
        return OWN[device.family].load()
    found = dataflows()
    if device.family not in found:
        raise UnsupportedError(
            f"device {device.name}: no dataflow for family {device.family!r}; there is one for {', '.join(found)}"
            f"{nearest(device.family, list(found))}"
        )
    return found[device.family]
