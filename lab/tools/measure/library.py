"""The microbenchmarks' shared library: built with nvcc, driven through ctypes.

Knows how to build it and how to run one kernel; not what is worth measuring.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import generate
import numpy as np

HERE = Path(__file__).resolve().parent
NVCC_FLAGS = ["-O2", "-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC", f"-I{HERE}"]
WORDS = 8  # of a block's record: clock at start and end, global timer (ns) at start and end, four of the kernel's own
BLOCKS = 1 << 18  # records that fit


def build(folder: Path) -> Path:
    """Compile all sources into folder/libmeasure.so, several at a time; raises SystemExit with nvcc's message."""
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = os.environ.get("NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    for part, text in enumerate(generate.parts()):
        (folder / f"arithmetic_{part}.cu").write_text(text)
    sources = sorted(folder.glob("arithmetic_*.cu")) + [HERE / f"{name}.cu" for name in ("shared", "memory", "host")]
    objects, running = [], []
    for source in sources:
        target = folder / f"{source.stem}.o"
        objects.append(str(target))
        command = [nvcc, *NVCC_FLAGS, "-c", str(source), "-o", str(target)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        if len(running) >= (os.cpu_count() or 2):
            finish(running.pop(0))
    for process in running:
        finish(process)
    library = folder / "libmeasure.so"
    subprocess.run([nvcc, "-shared", *NVCC_FLAGS[2:4], *objects, "-o", str(library)], check=True)
    return library


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for nvcc."""
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{process.args}\n{text}")


class Args(ctypes.Structure):
    """struct Args of common.cuh."""

    _fields_ = [
        ("out", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("iterations", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("p", ctypes.c_int64 * 8),
    ]


class Launch(ctypes.Structure):
    """struct Launch of host.cu."""

    _fields_ = [(name, ctypes.c_int) for name in ("grid", "block", "shared", "cluster")]


class Tensor(ctypes.Structure):
    """struct Tensor of host.cu: a matrix of two-byte elements that TMA reads in boxes of 64 columns."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("address", "columns", "rows", "box_rows")]


@dataclass(frozen=True)
class Setting:
    """How a kernel is launched, and its parameters: `p` by place."""

    grid: int = 1
    block: int = 128
    shared: int = 0
    cluster: int = 1
    footprint: int = 0
    p: tuple[int, ...] = ()
    tensor: tuple[int, int, int] | None = None  # columns, rows, rows of a box
    source: int = 0  # bytes into the source buffer


@dataclass(frozen=True)
class Run:
    """One run: milliseconds between events, and the blocks' records (blocks, 8)."""

    ms: float
    blocks: np.ndarray = field(repr=False)

    @property
    def cycles(self) -> np.ndarray:
        """SM clock cycles of each block."""
        return (self.blocks[:, 1] - self.blocks[:, 0]).astype(np.int64)

    @property
    def nanoseconds(self) -> int:
        """From the first block's start to the last one's end, by the global timer."""
        return int(self.blocks[:, 3].max() - self.blocks[:, 2].min())

    @property
    def mhz(self) -> float:
        """SM clock, from both timers; good for runs of a millisecond and more."""
        spent = (self.blocks[:, 3] - self.blocks[:, 2]).astype(np.int64)
        return float(np.median(self.cycles / np.maximum(spent, 1))) * 1e3


class CudaError(RuntimeError):
    """A CUDA error. What follows it in this process may fail too."""


class Library:
    """The opened library, with a source and a target buffer on the device."""

    def __init__(self, path: Path, buffer_bytes: int = 1 << 32) -> None:
        """Allocates two buffers of this size."""
        self.c = ctypes.CDLL(str(path))
        self.c.measure_name.restype = ctypes.c_char_p
        self.c.measure_error.restype = ctypes.c_char_p
        self.c.measure_alloc.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
        self.c.measure_fetch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self.index: dict[str, int] = {}
        while name := self.c.measure_name(len(self.index)):
            self.index[name.decode()] = len(self.index)
        self.buffer_bytes = buffer_bytes
        self.out = self.alloc(BLOCKS * WORDS * 8)
        self.source = self.alloc(buffer_bytes)
        self.to = self.alloc(buffer_bytes)
        self.filled: int | None = None
        self.fill(0)

    def check(self, code: int, what: str) -> None:
        """Raises CudaError."""
        if code:
            raise CudaError(f"{what}: CUDA error {code}, {self.c.measure_error(code).decode()}")

    def alloc(self, size: int) -> int:
        """A device address."""
        pointer = ctypes.c_void_p()
        self.check(self.c.measure_alloc(size, ctypes.byref(pointer)), f"{size} bytes")
        return int(pointer.value or 0)

    def device(self) -> dict[str, object]:
        """Name and sizes, as CUDA says them."""
        name, numbers = ctypes.create_string_buffer(256), (ctypes.c_int * 8)()
        self.check(self.c.measure_device(name, 256, numbers), "device")
        keys = ("capability", "sms", "l2_bytes", "shared_bytes_per_block", "memory_mib", "driver_cuda", "runtime_cuda",
                "registers_per_sm")  # fmt: skip
        return {"name": name.value.decode(), **dict(zip(keys, numbers, strict=True))}

    def work(self, name: str) -> int:
        """Instructions per iteration."""
        return int(self.c.measure_work(self.index[name]))

    def arguments(self, iterations: int, s: Setting) -> Args:
        """The kernel's arguments."""
        return Args(self.out, self.source + s.source, self.to, iterations, s.footprint, (ctypes.c_int64 * 8)(*s.p))

    def run(self, name: str, iterations: int, s: Setting) -> Run:
        """Run a kernel once."""
        ms = ctypes.c_float()
        tensor = Tensor(self.source, *s.tensor) if s.tensor else Tensor()
        launch = Launch(s.grid, s.block, s.shared, s.cluster)
        args = self.arguments(iterations, s)
        code = self.c.measure_run(
            self.index[name], ctypes.byref(args), ctypes.byref(tensor), ctypes.byref(launch), ctypes.byref(ms)
        )
        self.check(code, f"{name} {s}")
        return Run(ms.value, self.records(s.grid))

    def run_beside(self, name: str, iterations: int, s: Setting, nanoseconds: int) -> tuple[Run, float]:
        """Run a kernel on fewer SMs than there are; the clock (MHz) of another SM meanwhile, over some time."""
        spy_out = self.out + (BLOCKS - 1) * WORDS * 8
        mine, spy = self.arguments(iterations, s), self.arguments(1, Setting(p=(nanoseconds,)))
        spy.out = spy_out
        launch, spy_launch = Launch(s.grid, s.block, s.shared, s.cluster), Launch(1, 32, 0, 1)
        code = self.c.measure_run_beside(
            self.index[name], ctypes.byref(mine), ctypes.byref(launch), self.index["clock_rate"], ctypes.byref(spy),
            ctypes.byref(spy_launch),
        )  # fmt: skip
        self.check(code, f"{name} {s} beside clock_rate")
        row = np.zeros((1, WORDS), np.uint64)
        self.check(self.c.measure_fetch(row.ctypes.data, spy_out, row.nbytes), "records")
        return Run(0.0, self.records(s.grid)), Run(0.0, row).mhz

    def records(self, blocks: int) -> np.ndarray:
        """The blocks' records of the last run."""
        host = np.zeros((min(blocks, BLOCKS), WORDS), np.uint64)
        self.check(self.c.measure_fetch(host.ctypes.data, self.out, host.nbytes), "records")
        return host

    def launches(self, name: str, s: Setting, how: int, count: int, repeats: int = 20, step: int = 0) -> float:
        """Microseconds per launch: see measure_launches in host.cu."""
        us = ctypes.c_double()
        args, launch = self.arguments(0, s), Launch(s.grid, s.block, s.shared, s.cluster)
        code = self.c.measure_launches(
            self.index[name], ctypes.byref(args), ctypes.byref(launch), how, count, repeats, ctypes.c_int64(step),
            ctypes.byref(us),
        )  # fmt: skip
        self.check(code, f"launches of {name} {s}")
        return us.value

    def fill(self, kind: int) -> None:
        """Both buffers: 0 zeros, 1 fp16, 2 bf16, 3 fp32, 4 e4m3, 5 fp64 normal values, 6 random bits."""
        if self.filled == kind:
            return
        source, target = self.source, self.to
        for address in (source, target):
            self.to = address
            self.run("fill", 1, Setting(grid=1056, block=1024, footprint=self.buffer_bytes, p=(kind,)))
        self.to, self.filled = target, kind

    def slope(self, name: str, low: int, high: int, s: Setting, repeats: int = 3) -> tuple[float, float]:
        """SM cycles per iteration, from runs of two lengths: the median block's, and the slowest block's."""
        middle, slowest = [], []
        self.run(name, low, s)
        for _ in range(repeats):
            short, long = self.run(name, low, s).cycles, self.run(name, high, s).cycles
            middle.append((float(np.median(long)) - float(np.median(short))) / (high - low))
            slowest.append((float(long.max()) - float(short.max())) / (high - low))
        return statistics.median(middle), statistics.median(slowest)

    def flush(self) -> None:
        """Fill L2 with the target buffer's first 256 MiB."""
        self.run("ldg_read", 8, Setting(grid=1056, block=256, footprint=1 << 28, source=self.to - self.source))

    def rate(self, name: str, low: int, high: int, s: Setting, size: int, repeats: int = 3) -> dict[str, float]:
        """Bytes per second and per SM cycle of `size` bytes per iteration and block, from runs of two lengths.

        A footprint over 256 MiB starts with an L2 that holds none of it.
        """
        cold = s.footprint > 1 << 28 or (s.tensor is not None and s.tensor[0] * s.tensor[1] > 1 << 27)
        seconds, clocks, speeds = [], [], []
        self.run(name, low, s)
        for _ in range(repeats):
            if cold:
                self.flush()
            short = self.run(name, low, s)
            if cold:
                self.flush()
            long = self.run(name, high, s)
            seconds.append((long.nanoseconds - short.nanoseconds) * 1e-9)
            speeds.append(long.mhz)
            clocks.append((float(np.median(long.cycles)) - float(np.median(short.cycles))) / (high - low))
        moved = size * s.grid * (high - low)
        return {
            "bytes_per_second": moved / statistics.median(seconds),
            "bytes_per_cycle_per_block": size / statistics.median(clocks),
            "mhz": statistics.median(speeds),
        }
