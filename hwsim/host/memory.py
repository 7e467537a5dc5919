"""The memory that this process may still take, the refusal of what needs more, and what the allocator keeps. It knows
bytes, not what they hold.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from hwsim.errors import InputError
from hwsim.host.memory_limits import bytes_left

ALWAYS_THERE = 1 << 26  # bytes: not worth asking for
LARGEST_MAPPED = (32 << 20) - (64 << 10)  # bytes: below glibc's DEFAULT_MMAP_THRESHOLD_MAX
MEMINFO = Path("/proc/meminfo")  # Linux; elsewhere nothing is known of the machine, and nothing refused


def machine_bytes() -> int | None:
    """Bytes that the machine has for new allocations without swapping; None where the system does not say."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def available_bytes() -> int | None:
    """Bytes that new allocations may take: what the machine has, or a limit on this process or one of its control
    groups leaves. None where the system does not say.
    """
    return min((count for count in (machine_bytes(), bytes_left()) if count is not None), default=None)


def left_if_too_little(needed_bytes: int) -> int | None:
    """The bytes that are left where they are fewer than needed; None where the need fits, or nothing is known."""
    left = available_bytes() if needed_bytes > ALWAYS_THERE else None
    return left if left is not None and needed_bytes > left else None


def check_memory(needed_bytes: int, what: str, instead: str) -> None:
    """Raise InputError where `what` needs more than there is for this process. instead: what to do about it."""
    left = left_if_too_little(needed_bytes)
    if left is not None:
        raise InputError(
            f"{what} need {needed_bytes / 1e9:,.2f} GB of memory; {left / 1e9:,.2f} are left (of this machine, or of a "
            f"limit on this process): {instead}"
        )


@cache
def keep_freed_pages() -> None:
    """Let glibc keep the memory that a product frees for the next one, up to 64 MiB; once in a process.

    Its default gives more than 128 KiB at the end of the heap back to the system, and fresh pages cost more than the
    work on them. It raises that limit to twice the largest mapped block that was freed so far (mallopt(3),
    M_MMAP_THRESHOLD): so one is taken and freed, untouched. Elsewhere, and where a limit does not leave as much, this
    does nothing.
    """
    with suppress(MemoryError):
        np.empty(LARGEST_MAPPED, np.uint8)
