"""`hwsim.library`: a library on a device, by its name, by a file of its answers, or as it was given.

It joins the registry of libraries with hwsim's estimate, which only chips need on which a library was not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.protocol import Estimator, LibraryRequest
from hwsim.libraries.providers import rules_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

#: What estimates; its imports take longer than an answer on a chip that was asked.
ESTIMATOR = "hwsim.resolve.library_estimate:DataflowEstimator"


def library(
    name: str | Path | LibraryOnDevice,
    *,
    device: str | Path | Mapping[str, Any] | Device,
    version: str | None = None,
    workspace_bytes: int | None = None,
) -> LibraryOnDevice:
    """A GEMM library's choices on a device.

    On chips that cuBLAS was not asked on, its choices are hwsim's estimate among the kernels of the library file that
    the device names, with evidence "assumption".

    Args:
        name: "cublas", the name of a library that an installed package registers, or a file that `hwsim library record`
            wrote (.npz): its answers where it has them, else those of the shipped version that it was asked of (of
            another version there are none). What this function gave for the same device is taken, too.
        device: a name, the path of a YAML file, a mapping of that shape, or a Device.
        version: as "13.1"; None: the newest there is whose rules were seen.
        workspace_bytes: what the library may use; None: 32 MiB, with a file and in a product that of PyTorch's call.

    Raises:
        UnsupportedError: a library, a version or a device that nothing is known of.
        ConfigError: a file that is none.
        InputError: a library on another device.
    """
    if isinstance(name, LibraryOnDevice):
        return _same_device(name, load(device))
    request = LibraryRequest(device=device, version=version, workspace_bytes=workspace_bytes, estimator=_estimator)
    return LibraryOnDevice(rules_of(name, request))


def _same_device(library: LibraryOnDevice, chip: Device) -> LibraryOnDevice:
    """The library, if it is on this chip."""
    seen = None if chip.library is None else chip.library.observations
    if library.device not in (chip.name, seen) or library.cores != chip.cores:
        raise InputError(
            f"library = {library}: the device is {chip.name} ({chip.cores} cores); give "
            f"hwsim.library({library.id.name!r}, device=...) of that device, or the name"
        )
    return library


def _estimator(chip: Device) -> Estimator:
    module, _, name = ESTIMATOR.partition(":")
    return cast("Estimator", getattr(import_module(module), name)(chip))
