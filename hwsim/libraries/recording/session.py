"""Recording on a user's own GPU, from what is wanted to the file and the comparison: `hwsim library record`.

It knows the order of the steps; how GPUs are reached (`Machine`) and what is printed is for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwsim.devices import names
from hwsim.devices.device import Device
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.golden.recording import device_name, today
from hwsim.host.files import check_writable
from hwsim.libraries.cublas.versions import SUFFIX, has_seen_rules, observed_as, rules_text
from hwsim.libraries.recording.answers import LIBRARY, Answers, ask_all, version_name, write_answers
from hwsim.libraries.recording.compare import SampleRow, compared, sample
from hwsim.libraries.recording.machine import GpuFacts, Machine
from hwsim.libraries.recording.shapes import Wanted

ASKING = 0.3  # share of the progress bar, where a sample is run

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded and compared. version: as in the file. notes: what a user should know. rows: of the sample."""

    path: Path
    device: str
    gpu: GpuFacts
    version: str
    source: str
    answers: Answers
    notes: tuple[str, ...]
    rows: tuple[SampleRow, ...]

    @property
    def run(self) -> tuple[SampleRow, ...]:
        """Rows that the GPU and hwsim ran."""
        return tuple(row for row in self.rows if not row.problem)

    @property
    def equal(self) -> int:
        """GEMMs that are equal in every compared bit."""
        return sum(not row.differing for row in self.run)


def check_out(path: Path) -> None:
    """Raise InputError where the file could not be written, or `library=` would not take its name for a file's."""
    if path.suffix != SUFFIX:
        raise InputError(f"--out {path}: allowed: a name that ends in {SUFFIX}")
    check_writable(path)


def record(
    out: Path,
    wanted: Wanted,
    *,
    device: Device,
    machine: Machine,
    count: int,
    seed: int,
    progress: Progress | None = None,
) -> Recording:
    """Ask for all that is wanted, write `out` (whole or not at all), and compare a sample of `count` GEMMs, drawn by
    `seed`, where the machine has a runner. device: hwsim's, of the GPU at hand.

    Raises UnsupportedError for a GPU that is not the device's, for a cuBLASLt that is not known and where it fails;
    InputError where `out` cannot be written.
    """
    check_out(out)
    gpu, version = machine.gpu, version_name(machine.heuristic.version)
    if device.cores != gpu.cores:
        raise UnsupportedError(
            f"the GPU, {gpu.name}, has {gpu.cores} SMs; the device file {device.name} has {device.cores}; name the "
            "device of this GPU, or a device file of its own (documentation: page Devices)"
        )
    asking = ASKING if machine.runner is not None else 1.0
    try:
        answers = ask_all(
            machine.heuristic, wanted, None if progress is None else lambda share: progress(asking * share)
        )
    except RuntimeError as error:
        raise UnsupportedError(
            f"cuBLASLt gave an error in place of an answer ({error}); {out} is not written; run it again, and look at "
            "the GPU (nvidia-smi) where it comes back"
        ) from error
    source = (
        f"{gpu.name}, {gpu.cores} SMs, driver {gpu.driver or 'not known'}, CUDA {gpu.cuda}, cuBLASLt "
        f"{machine.heuristic.version}, {today()}"
    )
    write_answers(out, answers, device=observed_as(device), cores=device.cores, version=version, source=source)
    rows: list[SampleRow] = []
    if machine.runner is not None:
        shapes = sample(wanted, answers, count, seed)
        for row in compared(shapes, machine.runner, device=device, path=out, seed=seed):
            rows.append(row)
            if progress is not None:
                progress(asking + (1 - asking) * len(rows) / len(shapes))
    notes = _notes(device, gpu, version, [name for name, _ in names()])
    return Recording(
        path=out,
        device=device.name,
        gpu=gpu,
        version=version,
        source=source,
        answers=answers,
        notes=tuple(notes),
        rows=tuple(rows),
    )


def _notes(device: Device, gpu: GpuFacts, version: str, device_names: Sequence[str]) -> list[str]:
    notes = []
    if not has_seen_rules(LibraryId(LIBRARY, version), observed_as(device), device.cores):
        notes.append(
            f"cuBLAS {version} on {device.name}: how its kernels add over K is taken as of {rules_text()}; rely on "
            "what a sample says, which is run where --no-run is left out"
        )
    try:
        called = device_name(gpu.name, device_names)
    except InputError:
        return notes
    if called not in (device.name, observed_as(device)):
        notes.append(f"the GPU is called {gpu.name}, as hwsim's device {called}; the file is for {device.name}")
    return notes
