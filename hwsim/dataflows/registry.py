"""Registry of dataflows by family: hwsim's own, and those that installed packages register.

A package registers a family through the entry point group "hwsim.dataflows": the point's name is the `family` of device
files, its object a `Dataflow`.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.dataflows.davinci.separated import SEPARATED
from hwsim.dataflows.protocol import Dataflow
from hwsim.dataflows.tiled import cdna, sm70, sm80, sm90, sm100
from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.errors import UnsupportedError, nearest

if TYPE_CHECKING:
    from hwsim.devices.device import Device

GROUP = "hwsim.dataflows"
OWN: tuple[Dataflow, ...] = (
    COUPLED,
    SEPARATED,
    *(TiledDataflow(module.FAMILY) for module in (sm70, sm80, sm90, sm100, cdna)),
)


@cache
def dataflows() -> dict[str, Dataflow]:
    """All dataflows by family; a broken plug-in causes a warning and is left out."""
    found = {flow.name: flow for flow in OWN}
    for point in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            flow = point.load()
            if not isinstance(flow, Dataflow):
                raise TypeError(f"gives {type(flow).__name__}; needs a hwsim.dataflows.protocol.Dataflow")
            found.setdefault(point.name, flow)
        except Exception as error:  # a plug-in may fail in any way
            warnings.warn(f"dataflow plug-in {point.name} ({point.value}) is left out: {error}", stacklevel=2)
    return found


def dataflow(device: Device) -> Dataflow:
    """The dataflow of the device's family. Raises UnsupportedError for a family without one."""
    own = next((flow for flow in OWN if flow.name == device.family), None)
    if own is not None:  # looking for plug-ins takes milliseconds
        return own
    found = dataflows()
    if device.family not in found:
        raise UnsupportedError(
            f"device {device.name}: no dataflow for family {device.family!r}; there is one for {', '.join(found)}"
            f"{nearest(device.family, list(found))}"
        )
    return found[device.family]
