"""The server of `hwsim blas`: products that programs send over a Unix socket, computed on a simulated device.

A program whose connection is lost ends with a line on standard error and exit code 3 (the shim's work). This module
knows the requests of kernels_ext/blas/shim.c and the engine of hwsim.frameworks.numpy.emulation.
"""

from __future__ import annotations

import errno
import os
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.environment import in_default_environment
from hwsim.errors import HwsimError
from hwsim.frameworks.blas.routines import TYPES, RoutineChoice
from hwsim.frameworks.numpy.emulation import Engine, new_engine
from hwsim.host.memory import left_if_too_little
from hwsim.report.text.words import plural

AnyArray = NDArray[Any]
#: Of a request: magic, routine, type, transposes of A and B, row major, whether C follows, m, n, k, alpha, beta.
HEADER = struct.Struct("<8s8scccbiqqqdddd")
MAGIC = b"HWBLAS1\0"
DONE, REFUSED, OVERFLOWED, INVALID = 0, 2, 4, 8  # with a result: flags that the program's arithmetic would raise
COPIES = 16  # of a product's matrices that simulating it may hold at once
MEASURED_EVERY = 16  # products of a routine: the exact product takes longer than the simulation
STATUS = struct.Struct("<i")


@dataclass
class RoutineRecord:
    """Calls of one routine and type: the engine that computed them, the longest sum (largest k), and seconds spent."""

    engine: Engine
    calls: int = 0
    longest: int = 0
    seconds: float = 0.0


@dataclass
class BlasRecord:
    """What a program asked for. routines: {"sgemm": ...}. refused: {reason: calls} left to the program's own BLAS."""

    arguments: Mapping[str, Any]
    routines: dict[str, RoutineRecord] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def of(self, name: str) -> RoutineRecord:
        """The entry of a routine."""
        if name not in self.routines:
            self.routines[name] = RoutineRecord(new_engine(dict(self.arguments)))
        return self.routines[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        rows = [
            {"routine": name, "calls": routine.calls, "largest_k": routine.longest, "host_seconds": routine.seconds}
            | {
                key: value
                for key, value in routine.engine.report().items()
                if key in ("macs", "error", "largest_error")
            }
            for name, routine in sorted(self.routines.items())
        ]
        return {"routines": rows, "refused": dict(self.refused)}

    def text(self) -> str:
        """A line for each routine: calls, multiply-adds, errors against fp64 (of fp64: against the exact product)."""
        titles = ("calls", "MMAC", "k up to", "error", "largest", "seconds")
        widths = (8, 12, 8, 10, 10, 9)
        lines = [" ".join(["routine ", *(title.rjust(width) for title, width in zip(titles, widths, strict=True))])]
        for row in self.to_dict()["routines"]:
            lines.append(
                f"{row['routine']:<8} {row['calls']:>8} {row['macs'] / 1e6:>12.3f} {row['largest_k']:>8} "
                f"{_shown(row['error']):>10} {_shown(row['largest_error']):>10} {row['host_seconds']:>9.2f}"
            )
        if not self.routines and not self.refused:
            lines.append("no product was asked for: does the program call a BLAS that is linked dynamically?")
        lines += [
            f"left to the program's own BLAS: {plural(count, 'call')}: {why}" for why, count in self.refused.items()
        ]
        return "\n".join(lines)


class BlasServer(socketserver.ThreadingUnixStreamServer):
    """Listens on the socket at `path`. Close it after use.

    arguments: as of `hwsim.run`. routines: patterns of the names of routines that run on the device, as of
    RoutineChoice.
    """

    daemon_threads = True

    def __init__(self, path: Path, arguments: Mapping[str, Any], routines: Sequence[str] = ()) -> None:
        self.choice = RoutineChoice(new_engine(dict(arguments)), routines)
        self.record = BlasRecord(arguments)
        self.lock = threading.Lock()
        self.spare = os.open(os.devnull, os.O_RDONLY)
        super().__init__(str(path), _Connection)

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection. Without a file descriptor for it, it is closed at once: the program ends, and does not
        wait for ever.
        """
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                os.close(self.spare)
                super().get_request()[0].close()
                self.spare = os.open(os.devnull, os.O_RDONLY)
            raise

    def server_close(self) -> None:
        """Closes the socket and the spare descriptor."""
        super().server_close()
        os.close(self.spare)

    def is_left_out(self, routine: str) -> bool:
        """Whether calls of a routine stay with the program's own BLAS; one is counted with the reason."""
        with self.lock:
            reason = self.choice.why_left_out(routine)
            if reason:
                self.record.refused[f"{routine}: {reason}"] += 1
        return bool(reason)

    @in_default_environment  # alpha, beta and C
    def compute(
        self, routine: str, a: AnyArray, b: AnyArray, c: AnyArray | None, alpha: complex, beta: complex
    ) -> AnyArray:
        """alpha a b + beta c in the operands' type; the product on the device, the rest as BLAS rounds it."""
        with self.lock:
            start = time.perf_counter()
            entry = self.record.of(routine)
            entry.engine.measure = entry.calls % MEASURED_EVERY == 0
            product = entry.engine.multiply(a, b)
            entry.calls += 1
            entry.longest = max(entry.longest, a.shape[-1])
            entry.seconds += time.perf_counter() - start
        kind = product.dtype
        with np.errstate(all="ignore"):
            if alpha != 1:
                product = product * _number(alpha, kind)
            if c is not None:
                product = product + (c if beta == 1 else c * _number(beta, kind))
        result: AnyArray = product.astype(kind, copy=False)
        return result


def _number(value: complex, kind: np.dtype[Any]) -> Any:
    return kind.type(value if kind.kind == "c" else value.real)


class _Connection(socketserver.BaseRequestHandler):
    """The requests of one thread of a program."""

    request: socket.socket
    server: BlasServer

    def handle(self) -> None:
        while (head := self._read(HEADER.size)) is not None:
            magic, routine, kind, trans_a, trans_b, by_rows, has_c, m, n, k, *scalars = HEADER.unpack(head)
            dtype = TYPES.get(kind.decode("latin-1"))
            if magic != MAGIC or dtype is None:
                return
            name = kind.decode() + routine.rstrip(b"\0").decode()
            if self.server.is_left_out(name):
                self.request.sendall(STATUS.pack(REFUSED))
                continue
            needed = COPIES * (m * k + k * n + m * n) * np.dtype(dtype).itemsize
            if left_if_too_little(needed) is not None:
                self.server.record.refused[
                    f"{name}: {m} x {n} x {k} needs {needed / 1e9:.1f} GB, more than is free"
                ] += 1
                self.request.sendall(STATUS.pack(REFUSED))
                continue
            self.request.sendall(STATUS.pack(DONE))
            shapes = [(k, m) if _is_transposed(trans_a) else (m, k), (n, k) if _is_transposed(trans_b) else (k, n)]
            shapes += [(m, n)] if has_c else []
            matrices = [self._matrix(shape, dtype, by_rows) for shape in shapes]
            if any(matrix is None for matrix in matrices):
                return
            a, b, *c = matrices
            try:
                out = self.server.compute(
                    name,
                    _operated(a, trans_a),
                    _operated(b, trans_b),
                    c[0] if c else None,
                    complex(*scalars[:2]),
                    complex(*scalars[2:]),
                )
            except (HwsimError, ArithmeticError, MemoryError) as error:
                self.server.record.refused[f"{name}: {type(error).__name__}: {error}"] += 1
                self.request.sendall(STATUS.pack(REFUSED))
                continue
            self.request.sendall(STATUS.pack(_flags(out, matrices)) + (out if by_rows else out.T).tobytes())

    def _matrix(self, shape: tuple[int, int], dtype: Any, by_rows: int) -> Any:
        """A stored matrix of that shape, by rows or by columns; None when the program has gone."""
        data = self._read(shape[0] * shape[1] * np.dtype(dtype).itemsize)
        if data is None:
            return None
        return (
            np.frombuffer(data, dtype).reshape(shape) if by_rows else np.frombuffer(data, dtype).reshape(shape[::-1]).T
        )

    def _read(self, size: int) -> bytearray | None:
        """So many bytes; None at the end of the connection."""
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self.request.recv_into(view)
            if not count:
                return None
            view = view[count:]
        return data


def _shown(error: float | None) -> str:
    return "-" if error is None else f"{error:.2e}"


def _flags(out: AnyArray, matrices: list[AnyArray]) -> int:
    """OVERFLOWED for a result that is infinite or NaN though all that it was made of is finite, INVALID for a NaN where
    no operand was one: inf - inf, 0 inf.
    """
    if np.isfinite(out).all():
        return DONE
    overflows = all(bool(np.isfinite(matrix).all()) for matrix in matrices)
    is_invalid = bool(np.isnan(out).any()) and not any(bool(np.isnan(matrix).any()) for matrix in matrices)
    return (OVERFLOWED if overflows else DONE) | (INVALID if is_invalid else DONE)


def _is_transposed(trans: bytes) -> bool:
    return trans not in (b"N", b"n")


def _operated(x: AnyArray, trans: bytes) -> AnyArray:
    """op(x): as it is, transposed, or conjugated and transposed."""
    if not _is_transposed(trans):
        return x
    return x.conj().T if trans in (b"C", b"c") else x.T
