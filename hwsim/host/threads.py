"""Number of host threads: the one rule for every function and option that takes a thread count."""

from __future__ import annotations

import operator
import os
from typing import Any

from hwsim.errors import InputError

MOST = 1024
ELEMENTS_PER_THREAD = 1 << 19  # of a pass over memory: about as long as starting and joining a thread, twice
MACS_PER_THREAD = 1 << 22  # some tenths of a millisecond of one; starting and joining another takes less than one


def worker_count(threads: Any = None) -> int:
    """The validated thread count; None means the environment variable HWSIM_THREADS, else one per processor.

    Raises InputError for anything but an integer from 1 to MOST.
    """
    if threads is None:
        named = os.environ.get("HWSIM_THREADS")
        if not named:
            return min(os.cpu_count() or 1, MOST)
        if not named.isdecimal() or not 1 <= int(named) <= MOST:
            raise InputError(f"HWSIM_THREADS = {named!r}; allowed: an integer of at least 1 and at most {MOST}")
        return int(named)
    try:
        count = 0 if isinstance(threads, bool) else operator.index(threads)
    except TypeError:
        count = 0
    if not 1 <= count <= MOST:
        raise InputError(f"threads = {threads!r}; allowed: an integer of at least 1 and at most {MOST}")
    return count


def for_elements(threads: int, elements: int) -> int:
    """The number of host threads, at most `threads` and at least one, that pays for one pass over some elements."""
    return max(1, min(threads, elements // ELEMENTS_PER_THREAD))


def worth_starting(threads: int, macs: int) -> int:
    """The number of host threads, at most `threads` and at least one, that pays for `macs` multiply-accumulates."""
    return max(1, min(threads, macs // MACS_PER_THREAD))
