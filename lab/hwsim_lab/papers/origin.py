"""Where and when results were computed: the host, its Python and NumPy. It knows nothing of the results."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from hwsim_lab.papers.sgemm_cube.host_blas import blas_name


@dataclass(frozen=True, slots=True)
class Origin:
    """day: as YYYY-MM-DD, UTC. host: its processors and software."""

    day: str
    host: str


def here() -> Origin:
    """Of this process, now."""
    return Origin(datetime.now(UTC).date().isoformat(), _host())


@cache
def _host() -> str:
    processor = f"{_processor()}, {os.cpu_count()} processors"
    return f"{processor}; Python {platform.python_version()}, NumPy {np.__version__} with {blas_name()}"


def _processor() -> str:
    """The model as Linux names it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
