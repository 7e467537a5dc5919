"""A count of products on the terminal, for runs of models that take more than two seconds.

The module knows counts; it knows no product and no model.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from tqdm import tqdm

DELAY_SECONDS = 2.0


@contextlib.contextmanager
def counting(is_wanted: bool, total: int | None = None) -> Iterator[Callable[[int], None] | None]:
    """Inside, a function that is told the multiply-accumulates of each product; None without a terminal.

    total: multiply-accumulates of all, where they are known: a bar with the time left, else a count.
    """
    if not is_wanted or not sys.stderr.isatty():
        yield None
        return
    with tqdm(
        total=total, unit="MAC", unit_scale=True, file=sys.stderr, delay=DELAY_SECONDS, leave=False, desc="hwsim"
    ) as bar:
        yield lambda macs: bar.update(macs) and None
