"""Registry of dataflows by family: hwsim's own, families of files, and those that installed packages register.

hwsim's own dataflows are imported on first use of a device of their family; their options are known without the import.
A file of a GPU family (hwsim.dataflows.families) needs no Python. A package registers a family through the entry point
group "hwsim.dataflows": the name of the entry point is the `family` of device files, its object a `Dataflow`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from hwsim.dataflows import families
from hwsim.dataflows.options import COUPLED, PAIRED, SEPARATED, SYSTOLIC, TILED
from hwsim.dataflows.protocol import Dataflow
from hwsim.errors import UnsupportedError, nearest
from hwsim.host.plugins import entry_points, loaded

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from hwsim.dataflows.tiled.dataflow import TiledDataflow
    from hwsim.dataflows.tiled.family import Family
    from hwsim.devices.device import Device
    from hwsim.gemm.option_types import Option

GROUP = "hwsim.dataflows"


@dataclass(frozen=True, slots=True)
class OwnFamily:
    """A family whose dataflow is a module of hwsim's own. where: the dataflow as "module:object"; declared: its
    options.
    """

    where: str
    declared: tuple[Option, ...]

    def load(self) -> Dataflow:
        """Import the dataflow."""
        module, _, name = self.where.partition(":")
        flow: Dataflow = getattr(import_module(module), name)
        return flow

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of the dataflow if it has been imported, else `declared`."""
        return self.load().options if self.where.partition(":")[0] in sys.modules else self.declared


OWN: Mapping[str, OwnFamily] = {
    "davinci": OwnFamily("hwsim.dataflows.davinci.coupled:COUPLED", COUPLED),
    "davinci_separated": OwnFamily("hwsim.dataflows.davinci.separated:SEPARATED", SEPARATED),
    "systolic": OwnFamily("hwsim.dataflows.systolic.systolic:SYSTOLIC", SYSTOLIC),
}


TILED_DATAFLOW = "hwsim.dataflows.tiled.dataflow:TiledDataflow"


@lru_cache(maxsize=64)
def _tiled(family: Family) -> TiledDataflow:
    """The dataflow of a GPU family; it is imported on first use."""
    module, _, name = TILED_DATAFLOW.partition(":")
    flow: TiledDataflow = getattr(import_module(module), name)(family)
    return flow


@cache
def _shipped(name: str) -> TiledDataflow:
    """The dataflow of a GPU family of hwsim's own."""
    return _tiled(families.shipped()[name])


class Dataflows(Mapping[str, Dataflow]):
    """Dataflows by family. Looking up one of hwsim's own, or one of a family file, imports it."""

    def __init__(self, registered: Mapping[str, Dataflow]) -> None:
        """registered: the dataflows of other packages; their families differ from hwsim's own."""
        self._registered = registered

    def __getitem__(self, name: str) -> Dataflow:
        if name in OWN:
            return OWN[name].load()
        family = families.find(name)
        return self._registered[name] if family is None else _tiled(family)

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*OWN, *families.known(), *self._registered])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in OWN or name in families.known() or name in self._registered

    def __or__(self, others: Mapping[str, Dataflow]) -> dict[str, Dataflow]:
        return {**self, **others}

    def options(self) -> dict[str, tuple[Option, ...]]:
        """The options of each dataflow by family, without importing any."""
        shipped = {name: family.options for name, family in OWN.items()}
        tiled = {name: PAIRED if family.pairs else TILED for name, family in families.known().items()}
        return shipped | tiled | {name: flow.options for name, flow in self._registered.items() if name not in tiled}


@cache
def dataflows() -> Dataflows:
    """All dataflows by family; a broken plug-in causes a warning and is left out."""
    others = [point for point in entry_points(group=GROUP) if point.name not in {*OWN, *families.shipped()}]
    return Dataflows(loaded(others, _dataflow, "dataflow plug-in"))


def _dataflow(point: EntryPoint) -> Dataflow:
    flow = point.load()
    if not isinstance(flow, Dataflow):
        raise TypeError(f"gives {type(flow).__name__}; needs a hwsim.dataflows.protocol.Dataflow")
    return flow


def dataflow(device: Device) -> Dataflow:
    """The dataflow of the device's family.

    Raises UnsupportedError for a family without one, ConfigError for a family file with problems.
    """
    name = device.family
    if name in OWN:  # without a look for plug-ins
        return OWN[name].load()
    if name in families.shipped():
        return _shipped(name)
    family = families.find(name)
    if family is not None:
        return _tiled(family)
    known = dataflows()
    if name not in known:
        raise UnsupportedError(
            f"device {device.name}: no dataflow for family {name!r}; there is one for {', '.join(known)}"
            f"{nearest(name, list(known))}"
        )
    return known[name]
