"""The memory that this machine has left, and the refusal of what needs more. It knows bytes, not what they hold."""

from __future__ import annotations

from pathlib import Path

from hwsim.errors import InputError

ALWAYS_THERE = 1 << 28  # bytes: not worth asking for
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
