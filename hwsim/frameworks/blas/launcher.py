"""Runs a program whose BLAS products go to a server of this process.

It knows the shim's file and the environment of a program; what is computed is the server's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hwsim.frameworks.blas
from hwsim.errors import InputError, UnsupportedError
from hwsim.frameworks.blas.routines import SIZES
from hwsim.frameworks.blas.server import BlasRecord, BlasServer
from hwsim.frameworks.numpy.emulation import new_engine

SHIM = Path(hwsim.frameworks.blas.__file__).with_name("libhwsim_blas.so")
SOCKET, PRELOAD = "HWSIM_BLAS_SOCKET", "LD_PRELOAD"
MOST_PATH = 107  # bytes of a Unix socket's name on Linux


def run_program(
    command: Sequence[str], arguments: Mapping[str, Any], routines: Sequence[str] = ()
) -> tuple[int, BlasRecord]:
    """Run a command with its products on a simulated device; its exit code (128 + the number of a signal), and what it
    asked for.

    arguments: as of `hwsim.run`. routines: patterns of names (sgemm, d*) that run on the device; none: all routines
    whose products come in a type as long as their own. Raises UnsupportedError on other systems than Linux and where
    neither float32 nor float64 products run. Raises InputError for a command that cannot be started, a TMPDIR too long
    for a socket and a pattern that names no routine, and as `hwsim.run` for wrong arguments.
    """
    if not sys.platform.startswith("linux") or not SHIM.is_file():
        raise UnsupportedError(f"hwsim blas needs Linux and {SHIM.name} beside {SHIM.parent}: build hwsim there")
    engine = new_engine(dict(arguments))
    m, n, k = SIZES
    engine.multiply(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
    with tempfile.TemporaryDirectory(prefix="hwsim-blas-") as folder:
        path = Path(folder) / "socket"
        if len(os.fsencode(path)) > MOST_PATH:
            raise InputError(
                f"hwsim blas: {path} is longer than the {MOST_PATH} bytes that a socket's name may have; "
                "set TMPDIR to a folder with a shorter name"
            )
        with BlasServer(path, arguments, routines) as server:
            listener = threading.Thread(target=server.serve_forever, daemon=True)
            listener.start()
            before = os.environ.get(PRELOAD, "")
            environment = {**os.environ, SOCKET: str(path), PRELOAD: f"{SHIM}:{before}" if before else str(SHIM)}
            try:
                code = subprocess.run(list(command), env=environment, check=False).returncode
            except OSError as error:
                raise InputError(f"cannot run {command[0]}: {error.strerror}") from error
            finally:
                server.shutdown()
            return (code if code >= 0 else 128 - code), server.record
