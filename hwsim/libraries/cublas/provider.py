"""cuBLAS by name: which version's data, a user's file or an estimate stands for its choices on a device.

It knows version files, files of answers and chips; no call and no choice.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from hwsim.devices import load
from hwsim.devices.registry import are_from_package
from hwsim.errors import InputError, UnsupportedError
from hwsim.libraries.cublas.answers.estimated import Estimates, calls_on, generation_of
from hwsim.libraries.cublas.answers.sweeps import read
from hwsim.libraries.cublas.rules import CublasRules
from hwsim.libraries.cublas.versions import LIBRARY, SUFFIX, observed_as, version_of, version_on
from hwsim.libraries.protocol import LibraryProvider, LibraryRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwsim.devices.device import Device
    from hwsim.libraries.cublas.versions import Version
    from hwsim.libraries.model.kernels import CallsModel
    from hwsim.libraries.protocol import Estimator

MOST_RECENT = 16  # estimates, of devices


class Cublas(LibraryProvider):
    """cuBLAS, one of hwsim.libraries.providers. Estimates of the devices asked for last keep what they have found."""

    name = LIBRARY
    files = (SUFFIX,)

    def __init__(self) -> None:
        self._lock, self._recent = Lock(), OrderedDict[tuple[int, str, str], Estimates]()

    def on(self, request: LibraryRequest) -> CublasRules:
        """A version on a device: asked there, or by hwsim's estimate among the kernels of the device's library file."""
        _check_workspace(request)
        version, device = version_of(request.version), request.device
        # Files that ship say so, and they extend one another alone: no need to read them, which takes longer than the
        # rest.
        if isinstance(device, str) and device in version.devices and are_from_package(version.devices):
            return CublasRules(version, device, request.workspace_bytes)
        chip = load(device)
        seen = observed_as(chip)
        if version.devices.get(seen) == chip.cores:
            return CublasRules(version, seen, request.workspace_bytes, chip_name=chip.name)
        calls = calls_on(chip, version.library, version.version)
        if calls is None or request.estimator is None:
            devices = ", ".join(f"{name} ({count} SMs)" for name, count in version.devices.items())
            raise UnsupportedError(
                f"{self.name} {version.version}: its choices on {chip.name} ({chip.cores} cores) are not known; they "
                f"are on {devices}, and can be estimated where the device's library file says what {self.name} runs; "
                "leave library out, or record them on such a GPU (hwsim library record)"
            )
        estimates = self._estimates(chip, calls, version, request.estimator)
        return CublasRules(
            version, chip.name, request.workspace_bytes, estimates=estimates, generation=estimates.generation
        )

    def from_file(self, path: Path, request: LibraryRequest) -> CublasRules:
        """A version on a device, with the answers of a user's file before those that ship."""
        _check_workspace(request)
        answers = read(path)
        if answers.library != self.name:
            raise UnsupportedError(
                f"{path}: answers of library {answers.library!r}; hwsim knows the kernels of {self.name}; record "
                "answers of that (hwsim library record)"
            )
        if request.version not in (None, answers.version):
            raise UnsupportedError(
                f"{path}: answers of {answers.library} {answers.version}, not of version {request.version!r}"
            )
        chip = load(request.device)
        seen = observed_as(chip)
        if answers.cores.get(seen) != chip.cores:
            there = ", ".join(f"{name} ({count} SMs)" for name, count in answers.cores.items())
            raise UnsupportedError(
                f"{path}: answers for {there}; the device is {chip.name} ({chip.cores} cores); record them on that "
                "GPU, or name another device"
            )
        version, generation = version_on(answers.version, seen, chip.cores), generation_of(chip, answers.library)
        return CublasRules(
            version, seen, request.workspace_bytes, answers=answers, generation=generation, chip_name=chip.name
        )

    def _estimates(
        self, chip: Device, calls: CallsModel, version: Version, estimator: Callable[[Device], Estimator]
    ) -> Estimates:
        """Those of a version's calls on a device."""
        key = (id(chip), calls.version, version.shares)  # the estimates keep the device alive
        with self._lock:
            if key not in self._recent:
                generation = generation_of(chip, calls.library)
                self._recent[key] = Estimates(chip, calls, generation, estimator(chip), version)
                while len(self._recent) > MOST_RECENT:
                    self._recent.popitem(last=False)
            self._recent.move_to_end(key)
            return self._recent[key]


def _check_workspace(request: LibraryRequest) -> None:
    size = request.workspace_bytes
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise InputError(f"workspace_bytes = {size!r}; allowed: an integer of at least 0, None")


CUBLAS = Cublas()
