"""A progress bar on the terminal, for work that takes more than two seconds."""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TextIO

from tqdm import tqdm

DELAY_SECONDS = 2.0


class ProgressBar:
    """A progress bar with the time left: call it with the share done, 0 to 1; close it at the end."""

    def __init__(self, stream: TextIO, delay_seconds: float = DELAY_SECONDS) -> None:
        self.lock = threading.Lock()
        self.bar = tqdm(
            total=1.0,
            file=stream,
            delay=delay_seconds,
            leave=False,
            bar_format="{percentage:3.0f} % |{bar:40}| {elapsed}, {remaining} left",
        )

    def __call__(self, share: float) -> None:
        """Show that `share` of the work is done."""
        with self.lock:
            self.bar.update(max(share - self.bar.n, 0.0))

    def close(self) -> None:
        """Remove the bar."""
        self.bar.close()


def progress_bar(*, quiet: bool) -> AbstractContextManager[ProgressBar | None]:
    """A progress bar on standard error, or a context of None with `quiet` or without a terminal."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    return closing(ProgressBar(sys.stderr))
