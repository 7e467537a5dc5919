"""`hwsim` where no file may grow beyond a number of bytes, as on a full disk, and what it leaves there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def limited(limit: int, *words: str) -> subprocess.CompletedProcess[str]:
    """`hwsim` with these words where no file may grow beyond `limit` bytes."""
    return subprocess.run(
        [sys.executable, "-m", "hwsim", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # Python would leave bytecode files that are cut off
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
