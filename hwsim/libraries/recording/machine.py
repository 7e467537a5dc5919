"""What recording needs of this machine: its GPU, cuBLASLt, and PyTorch to run GEMMs.

It knows how they are found and what to say where one is missing; not what is asked of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hwsim.errors import UnsupportedError
from hwsim.golden.recorder import driver_version
from hwsim.libraries.recording.answers import Heuristic
from hwsim.libraries.recording.compare import GemmRunner
from hwsim.libraries.recording.cublaslt import CublasLt
from hwsim.libraries.recording.pytorch_gemms import PytorchGemms
from hwsim.libraries.recording.runner import PytorchRunner

SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
NAME_BYTES = 256


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The first GPU that CUDA shows: its name, SMs, and the versions of driver and CUDA."""

    name: str
    cores: int
    driver: str
    cuda: str


@dataclass(frozen=True, slots=True)
class Machine:
    """GPU, cuBLASLt's heuristic on it, and what runs GEMMs (None: nothing is to be run)."""

    gpu: GpuFacts
    heuristic: Heuristic
    runner: GemmRunner | None


def this_machine(*, runs: bool) -> Machine:
    """That of this process. runs: GEMMs are to be run, too. Raises UnsupportedError, with what is missing."""
    gpu = gpu_facts()
    runner = _runner() if runs else None  # before cuBLASLt, so that both take PyTorch's copy
    return Machine(gpu, _heuristic(), runner)


def gpu_facts(load: Callable[[str], Any] = ctypes.CDLL) -> GpuFacts:
    """Of the first GPU, from the CUDA driver. Raises UnsupportedError where there is none."""
    try:
        driver = load("libcuda.so.1")
    except OSError as error:
        raise UnsupportedError(f"no NVIDIA GPU: {error}; run this on a machine with one and its driver") from None
    device, count, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(NAME_BYTES)
    calls = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDeviceGetName", (name, NAME_BYTES, device)),
        ("cuDeviceGetAttribute", (ctypes.byref(count), SM_COUNT, device)),
        ("cuDriverGetVersion", (ctypes.byref(version),)),
    )
    for function, arguments in calls:
        if status := getattr(driver, function)(*arguments):
            raise UnsupportedError(
                f"no NVIDIA GPU: {function} gives {status}; is one visible (nvidia-smi, CUDA_VISIBLE_DEVICES)?"
            )
    number = version.value
    return GpuFacts(
        name.value.decode(errors="replace"), count.value, driver_version(), f"{number // 1000}.{number % 1000 // 10}"
    )


def _heuristic() -> Heuristic:
    try:
        return CublasLt()
    except OSError as error:
        raise UnsupportedError(
            f"libcublasLt was not found ({error}); install PyTorch with CUDA, whose copy is taken, or name the file in "
            "HWSIM_CUBLASLT"
        ) from None
    except RuntimeError as error:
        raise UnsupportedError(f"cuBLASLt: {error}") from None


def _runner() -> GemmRunner:
    try:
        return PytorchRunner(PytorchGemms())
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"the sample is run by PyTorch with CUDA ({error}); install it, or give --no-run to record without running"
        ) from None
