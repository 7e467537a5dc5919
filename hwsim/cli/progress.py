"""A progress bar on the terminal, for work that takes more than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, TextIO

DELAY_SECONDS = 2.0
INTERVAL_SECONDS = 0.1
WIDTH = 40


class Progress:
    """A progress bar: call it with the share done, 0 to 1; close it at the end. Uses tqdm where it is installed."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, plain: bool = False) -> None:
        self.stream, self.clock, self.lock = stream, clock, threading.Lock()
        self.started = self.drawn = clock()
        self.shown = False
        self.bar: Any = None
        if not plain:
            try:
                from tqdm import tqdm  # optional
            except ImportError:
                return
            self.bar = tqdm(
                total=1.0,
                file=stream,
                delay=DELAY_SECONDS,
                leave=False,
                bar_format="{percentage:3.0f} % |{bar:40}| {elapsed}",
            )

    def __call__(self, share: float) -> None:
        """Show that `share` of the work is done."""
        with self.lock:
            if self.bar is not None:
                self.bar.update(max(share - self.bar.n, 0.0))
                return
            now = self.clock()
            if now - self.started < DELAY_SECONDS or (self.shown and now - self.drawn < INTERVAL_SECONDS):
                return
            self.shown, self.drawn = True, now
            done = round(WIDTH * share)
            self.stream.write(
                f"\r{100 * share:3.0f} % |{'#' * done}{' ' * (WIDTH - done)}| {now - self.started:.0f} s "
            )
            self.stream.flush()

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
        elif self.shown:
            self.stream.write("\r" + " " * (WIDTH + 20) + "\r")
            self.stream.flush()


def progress_bar(*, quiet: bool) -> AbstractContextManager[Progress | None]:
    """A progress bar on standard error, or a context of None with `quiet` or without a terminal."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    return closing(Progress(sys.stderr))
