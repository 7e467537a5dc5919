"""The recorder's shared library: built with nvcc, called through ctypes. Needs an NVIDIA GPU.

It knows how to build and call the library, not what the operands mean.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.golden.format import UnsignedCodes
from hwsim.golden.instructions import parse
from hwsim.host.files import make_folder, write_text
from hwsim.operands.matrix_product import MatrixProduct

#: Targets whose matrix instructions need a suffix on the capability.
SUFFIX = {90: "a", 100: "a", 103: "a"}
DEFAULT_WGMMA_N = (8, 64, 256)
SOURCES = ("generate.py", "recorder.cuh")


def source_folder() -> Path:
    """The folder of the recorder's sources. Raises UnsupportedError where they are missing."""
    folder = Path(__file__).with_name("record_sources")
    if all((folder / name).is_file() for name in SOURCES):
        return folder
    raise UnsupportedError(f"the recorder's sources ({', '.join(SOURCES)}) are not in {folder}; install hwsim again")


def nvcc_path() -> str:
    """The CUDA compiler: $NVCC, on the PATH, or under $CUDA_HOME. Raises UnsupportedError where there is none."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = [os.environ.get("NVCC"), shutil.which("nvcc"), f"{home}/bin/nvcc"]
    for place in places:
        if place and Path(place).exists():
            return place
    raise UnsupportedError(
        "nvcc was not found; recording needs the CUDA toolkit (12.8 or later for tcgen05): put nvcc "
        "on the PATH, or set NVCC or CUDA_HOME"
    )


def gpu_target() -> str:
    """The compilation target of the first GPU, for example "90a". Raises UnsupportedError where the driver reports
    none.
    """
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
        major, minor = text.split()[0].split(".")
    except (OSError, subprocess.SubprocessError, IndexError, ValueError) as error:
        raise UnsupportedError(
            f"no NVIDIA GPU was found ({' '.join(query)}: {error}); recording needs one. "
            "With arch= the recorder can be built without"
        ) from None
    capability = int(major) * 10 + int(minor)
    return f"{capability}{SUFFIX.get(capability, '')}"


def driver_version() -> str:
    """Version of the NVIDIA driver, or "" where nvidia-smi does not answer."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def generate(arch: str, wgmma_n: tuple[int, ...] = DEFAULT_WGMMA_N, *, names: bool = False) -> str:
    """CUDA source of the kernels of a target, or (names) the instructions' names, one per line.

    Raises InputError for a target or a number of columns that the generator refuses.
    """
    command = [
        sys.executable,
        str(source_folder() / "generate.py"),
        "--arch",
        arch,
        "--wgmma-n",
        ",".join(map(str, wgmma_n)),
        *(["--list"] if names else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def build(arch: str | None = None, *, wgmma_n: tuple[int, ...] = DEFAULT_WGMMA_N, folder: Path | None = None) -> Path:
    """Compile the library for a target (None: the GPU's own) unless the same one exists, and return its path.

    folder: for the output; None: hwsim/recorder in the user's cache folder. Raises UnsupportedError without nvcc, a GPU
    (arch None) or the sources, and when nvcc fails, with its message.
    """
    nvcc = nvcc_path()
    target = arch if arch is not None else gpu_target()
    text = generate(target, wgmma_n)
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    header = (source_folder() / "recorder.cuh").read_text()
    digest = hashlib.sha256("\0".join([text, header, version]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = folder if folder is not None else cache / "hwsim" / "recorder"
    library = folder / f"librecord-sm_{target}-{digest}.so"
    if library.exists():
        return library
    make_folder(folder)
    source = folder / f"kernels-sm_{target}-{digest}.cu"
    write_text(source, text)
    fresh = folder / f".hwsim-{secrets.token_hex(8)}.so"
    # -gencode and not -arch: the latter may add code for the plain target, which has no wgmma and no tcgen05.
    command = [
        nvcc,
        "-O1",
        "-std=c++17",
        "-gencode",
        f"arch=compute_{target},code=sm_{target}",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        f"-I{source_folder()}",
        str(source),
        "-o",
        str(fresh),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fresh.unlink(missing_ok=True)
        raise UnsupportedError(
            f"nvcc could not build the recorder for sm_{target}: {' '.join(command)}\n{done.stderr.strip()[:2000]}"
        )
    fresh.replace(library)
    return library


@dataclass(frozen=True, slots=True)
class Gpu:
    """Properties of the GPU from the driver: its name, capability * 10, CUDA versions as it numbers them (13000)."""

    name: str
    capability: int
    driver_cuda: int
    runtime_cuda: int


class Recorder:
    """An opened library: runs instructions on the GPU, one per case. Not thread-safe."""

    def __init__(self, library: Path) -> None:
        """Open the library. Raises UnsupportedError when it cannot be loaded."""
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise UnsupportedError(f"{library}: {error}") from None
        self._library.record_name.restype = ctypes.c_char_p
        self._library.record_error.restype = ctypes.c_char_p
        self._library.record_run.argtypes = [
            ctypes.c_int,
            *[ctypes.c_void_p] * 4,
            ctypes.c_int64,
            ctypes.c_int,
        ]
        names = [self._library.record_name(i).decode() for i in range(self._library.record_count())]
        self._index: Mapping[str, int] = {name: i for i, name in enumerate(names)}
        self.instructions: Mapping[str, MatrixProduct] = {name: parse(name) for name in names}
        for name, instruction in self.instructions.items():
            self._compare_sizes(name, instruction)

    def _compare_sizes(self, name: str, instruction: MatrixProduct) -> None:
        sizes = (ctypes.c_int64 * 8)()
        self._library.record_shape(self._index[name], sizes)
        bytes_of = {
            operand: int(np.prod(instruction.shape(operand, 1))) * instruction.dtype(operand).itemsize
            for operand in "abcd"
        }
        if list(sizes)[:7] != [instruction.m, instruction.n, instruction.k, *bytes_of.values()]:
            raise UnsupportedError(f"the recorder's {name} takes {list(sizes)[:7]}; its name says otherwise")

    def gpu(self) -> Gpu:
        """The GPU in use. Raises UnsupportedError where CUDA finds none."""
        name, numbers = ctypes.create_string_buffer(256), (ctypes.c_int * 3)()
        self._check(self._library.record_device(name, len(name), numbers), "the GPU")
        return Gpu(name.value.decode(), *numbers)

    def find(self, name: str) -> MatrixProduct:
        """The instruction of this name. Raises UnsupportedError, with the nearest name, for one that was not built."""
        if name not in self.instructions:
            names = tuple(self.instructions)
            raise UnsupportedError(
                f"the recorder has no instruction {name!r} for this GPU{nearest(name, names)}; "
                f"it has: {', '.join(names)}"
            )
        return self.instructions[name]

    def run(self, name: str, a: UnsignedCodes, b: UnsignedCodes, c: UnsignedCodes, scale_d: int = 0) -> UnsignedCodes:
        """Results (cases, M, N) of a (cases, M, K), b (cases, N, K): columns of B, c (cases, M, N), all codes.

        scale_d: tcgen05's scale-input-d. Raises InputError for arrays that do not fit, UnsupportedError for an
        unknown instruction, a scale that it has not, or a CUDA error.
        """
        instruction = self.find(name)
        cases = a.shape[0] if a.ndim else 0
        held = []
        for operand, array in zip("abc", (a, b, c), strict=True):
            wanted = instruction.shape(operand, cases)
            if array.shape != wanted or array.dtype != instruction.dtype(operand):
                raise InputError(
                    f"{name}: {operand} must be {wanted} of {instruction.dtype(operand)}; "
                    f"got {array.shape} of {array.dtype}"
                )
            held.append(np.ascontiguousarray(array))
        d = np.empty(instruction.shape("d", cases), instruction.dtype("d"))
        pointers = [array.ctypes.data for array in (*held, d)]
        status = self._library.record_run(self._index[name], *pointers, cases, scale_d)
        if status == -1:
            raise UnsupportedError(f"{name}: scale_d {scale_d} is not possible with it")
        self._check(status, name)
        return d

    def _check(self, status: int, what: str) -> None:
        if status:
            text = self._library.record_error(status).decode()
            raise UnsupportedError(f"{what}: CUDA error {status}, {text}")


def select(instructions: Mapping[str, MatrixProduct], wanted: Sequence[str] | None) -> list[MatrixProduct]:
    """Instructions by name or by pattern (* stands for anything), in their order; None: all.

    Raises InputError for one that matches nothing.
    """
    if wanted is None:
        return list(instructions.values())
    chosen: dict[str, MatrixProduct] = {}
    for pattern in wanted:
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        matching = {name: entry for name, entry in instructions.items() if expression.fullmatch(name)}
        if not matching:
            raise InputError(f"no instruction is called {pattern!r}{nearest(pattern, tuple(instructions))}")
        chosen |= matching
    return list(chosen.values())
