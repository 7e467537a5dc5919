"""How many host threads work: one rule for every function and option that takes a number of them."""

from __future__ import annotations

import operator
import os
from typing import Any

from hwsim.errors import InputError

MOST = 1024
MACS_PER_THREAD = 1 << 24  # about a millisecond of one; starting and joining another takes a tenth of that


def worker_count(threads: Any = None) -> int:
    """`threads` as a Python int; None: one for each processor. Raises InputError for what is not 1 to MOST."""
    if threads is None:
        return min(os.cpu_count() or 1, MOST)
    try:
        count = 0 if isinstance(threads, bool) else operator.index(threads)
    except TypeError:
        count = 0
    if not 1 <= count <= MOST:
        raise InputError(f"threads = {threads!r}; allowed: an integer of at least 1 and at most {MOST}")
    return count


def worth_starting(threads: int, macs: int) -> int:
    """How many of `threads` host threads are worth starting for `macs` multiply-accumulates: at least one."""
    return max(1, min(threads, macs // MACS_PER_THREAD))
