"""The memory that this machine has left, the refusal of what needs more, and what the allocator keeps. It knows bytes,
not what they hold.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from hwsim.errors import InputError

ALWAYS_THERE = 1 << 28  # bytes: not worth asking for
LARGEST_MAPPED = (32 << 20) - (64 << 10)  # bytes: below glibc's DEFAULT_MMAP_THRESHOLD_MAX
MEMINFO = Path("/proc/meminfo")  # Linux; elsewhere nothing is known, and nothing refused


def available_bytes() -> int | None:
    """Bytes that new allocations may take without swapping; None where the system does not say."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def check_memory(needed_bytes: int, what: str, instead: str) -> None:
    """Raise InputError where `what` needs more than this machine has left. instead: what to do about it."""
    left = available_bytes() if needed_bytes > ALWAYS_THERE else None
    if left is not None and needed_bytes > left:
        raise InputError(
            f"{what} need {needed_bytes / 1e9:,.1f} GB of memory; this machine has {left / 1e9:,.1f} left: {instead}"
        )


@cache
def keep_freed_pages() -> None:
    """Let glibc keep the memory that a product frees for the next one, up to 64 MiB; once in a process.

    Its default gives more than 128 KiB at the end of the heap back to the system, and fresh pages cost more than the
    work on them. It raises that limit to twice the largest mapped block that was freed so far (mallopt(3),
    M_MMAP_THRESHOLD): so one is taken and freed, untouched. Elsewhere this does nothing.
    """
    np.empty(LARGEST_MAPPED, np.uint8)
