"""`hwsim.library`: a library's choices on a device, known ones where it was asked, else estimated ones.

It joins hwsim.libraries.cublas with the estimate, which only chips need on which the library was not asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from hwsim.libraries.cublas import choose
from hwsim.libraries.cublas.estimated import Estimates, generation_of
from hwsim.libraries.cublas.versions import Version, chips_text

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.libraries.cublas.choose import LibraryOnDevice
    from hwsim.libraries.model.kernels import CallsModel

#: What estimates; its imports take longer than an answer on a chip that was asked.
ESTIMATOR = "hwsim.resolve.library_estimate:DataflowEstimator"
MOST_RECENT = 16  # estimates, of devices


def library(
    name: str | Path,
    *,
    device: str | Path | Mapping[str, Any] | Device,
    version: str | None = None,
    workspace_bytes: int | None = None,
) -> LibraryOnDevice:
    """A GEMM library's choices on a device.

    name: "cublas", or a file that `hwsim library record` wrote (.npz): its answers where it has them, else those of the
    shipped version that it was asked of (of another version there are none). On chips that the library was not asked
    on, its choices are hwsim's estimate among the kernels of the library file that the device names, with evidence
    "assumption". version: as "13.1"; None: the newest there is. workspace_bytes: what the library may use; None: 32
    MiB, with a file that of PyTorch's call, as it was asked. Raises UnsupportedError for a library, a version or a
    device that nothing is known of, ConfigError for a file that is none.
    """
    return choose.library(name, device=device, version=version, workspace_bytes=workspace_bytes, estimates=_RECENT.of)


class _Recent:
    """Estimates of the devices asked for last: each keeps what it has found."""

    def __init__(self) -> None:
        self.lock, self.found = Lock(), OrderedDict[tuple[int, str, str], Estimates]()

    def of(self, chip: Device, calls: CallsModel, known: Version) -> Estimates:
        """Those of a library's calls on a device. known: the version, which says how often they are right."""
        module, _, name = ESTIMATOR.partition(":")
        estimator = getattr(import_module(module), name)
        key = (id(chip), calls.version, known.shares)  # the estimates keep the device alive
        with self.lock:
            if key not in self.found:
                own = generation_of(chip, calls.library)
                self.found[key] = Estimates(
                    chip=chip,
                    calls=calls,
                    generation=own,
                    estimator=estimator(chip),
                    shares=known.shares,
                    asked_on=chips_text(known.devices),
                )
                while len(self.found) > MOST_RECENT:
                    self.found.popitem(last=False)
            self.found.move_to_end(key)
            return self.found[key]


_RECENT = _Recent()
