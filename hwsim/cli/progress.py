"""Progress on standard error: what is computed, then a bar on a terminal, a line every ten seconds elsewhere.

It knows the share done, the time and the stage; it knows nothing of the work. A terminal loses it at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TextIO

TERMINAL_SECONDS = (1.0, 0.5)  # until the first frame, and between frames
LINE_SECONDS = (10.0, 10.0)  # until the first line, and between lines, where there is no terminal
COLUMNS = 80  # of a terminal that does not say how many it has
BAR = 30  # columns of the bar
ERASE = "\r\x1b[K"
ERASE_BELOW = "\r\x1b[{rows}A\x1b[J"  # from so many rows above on


class ProgressBar:
    """Shows how far the work is: call it with the share done, 0 to 1, and `at` with the stage; close it at the end.

    A thread draws, so that work which calls seldom is shown too. seconds: until the first frame, and between frames.
    """

    def __init__(self, stream: TextIO, *, is_terminal: bool = True, seconds: tuple[float, float] | None = None) -> None:
        self.stream, self.is_terminal = stream, is_terminal
        self.first, self.every = seconds or (TERMINAL_SECONDS if is_terminal else LINE_SECONDS)
        self.share, self.stage, self.is_drawn, self.rows = 0.0, "", False, 0
        self.start = self.begun = time.monotonic()
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self._draw, name="hwsim progress", daemon=True)
        self.thread.start()

    def __call__(self, share: float) -> None:
        """Say that `share` of the stage is done."""
        with self.lock:
            self.share = min(max(share, self.share), 1.0)

    def at(self, stage: str) -> None:
        """Say what is done now, in a few words; its share begins at 0."""
        with self.lock:
            self.share, self.stage, self.begun = 0.0, stage, time.monotonic()

    def show(self, text: str) -> None:
        """Show lines at once: on a terminal above the bar until the end, elsewhere for good."""
        with self.lock:
            self._clear()
            lines = text.splitlines()
            if self.is_terminal:
                lines, self.rows = [line[: _columns() - 1] for line in lines], len(lines)
            self._write("".join(f"{line}\n" for line in lines))

    def clear(self) -> None:
        """Remove the bar and the lines above it, for other text."""
        with self.lock:
            self._clear()

    def close(self) -> None:
        """End, and remove the bar and the lines above it."""
        self.ended.set()
        self.thread.join()
        self.clear()

    def _draw(self) -> None:
        wait = self.first
        while not self.ended.wait(wait):
            wait = self.every
            with self.lock:
                self._write(self._frame() if self.is_terminal else f"hwsim: {self._words()}\n")
                self.is_drawn = self.is_terminal

    def _clear(self) -> None:
        if self.rows:
            self._write(ERASE_BELOW.format(rows=self.rows))
        elif self.is_drawn:
            self._write(ERASE)
        self.is_drawn, self.rows = False, 0

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # nobody reads any more
            self.ended.set()

    def _words(self) -> str:
        now = time.monotonic()
        share = f"{self.share:.0%}".replace("%", " %") + " " if self.share else ""
        return f"{share}after {clock(now - self.start)}{self._left(now)}{f', {self.stage}' if self.stage else ''}"

    def _frame(self) -> str:
        now, filled = time.monotonic(), "#" * round(self.share * BAR)
        text = f"{self.share * 100:3.0f} % |{filled:<{BAR}}| {clock(now - self.start)}{self._left(now)}  {self.stage}"
        return ERASE + text.rstrip()[: _columns() - 1]

    def _left(self, now: float) -> str:
        """The time that is left, where a share of the stage is done."""
        return f", {clock((now - self.begun) * (1 / self.share - 1))} left" if self.share else ""


def is_beside_output() -> bool:
    """Whether standard error goes to the file or pipe that standard output goes to, where neither is a terminal."""
    try:
        streams = [os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr)]
    except (OSError, ValueError, AttributeError):  # no files, or closed
        return False
    return not sys.stderr.isatty() and os.path.samestat(*streams)


def _columns() -> int:
    return shutil.get_terminal_size().columns or COLUMNS


_shown: list[ProgressBar] = []  # on standard error now


def clock(seconds: float) -> str:
    """A time as minutes and seconds, with hours where there are any: 1:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def progress_bar(*, quiet: bool, stage: str = "") -> Iterator[ProgressBar | None]:
    """Progress on standard error, or a context of None with `quiet`. stage: what is done, in a few words."""
    if quiet:
        yield None
        return
    with closing(ProgressBar(sys.stderr, is_terminal=sys.stderr.isatty())) as bar:
        bar.at(stage)
        _shown.append(bar)
        try:
            yield bar
        finally:
            _shown.remove(bar)


def print_beside(text: str) -> None:
    """Print a line on standard error for good, whatever progress is shown there."""
    for bar in _shown:
        bar.clear()
    print(text, file=sys.stderr)
