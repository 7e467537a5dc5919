"""Chromium without a window, as a reader's eyes: it opens pages at a width, light or dark, measures and photographs.

The module knows Chromium's DevTools protocol, over pipes, and no page. It needs a POSIX system.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next((path for name in NAMES if (path := shutil.which(name))), None)
TIMEOUT_S = 120.0
POLL_S = 0.05
HEIGHT = 900  # pixels of the window
TALLEST = 16_000  # pixels of a photograph: what Chromium still draws
#: Whether the page and all of its plots are drawn.
DRAWN = """document.readyState === "complete" && [...document.querySelectorAll(".plot")].every(
    plot => plot.querySelector(".main-svg") !== null)"""

#: What sticks out of the page to the right, but for what is scrolled in its own box, and the site's closed drawers.
OUTSIDE = """[...document.querySelectorAll("body *")].filter(element => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.right > document.documentElement.clientWidth + 1
        && !element.closest(".wide, pre, defs, clipPath, .toc-drawer, .sidebar-drawer");
}).map(element => `${element.tagName} ${element.textContent.slice(0, 60)}`)"""
#: Texts of plots that lie outside of their plot.
CUT = """[...document.querySelectorAll(".plot text")].filter(text => {
    const plot = text.closest(".plot").getBoundingClientRect(), box = text.getBoundingClientRect();
    return box.width > 0 && (box.left < plot.left - 1 || box.right > plot.right + 1 || box.top < plot.top - 1
        || box.bottom > plot.bottom + 1);
}).map(text => text.textContent)"""
#: Chromium reads commands from file 3 and writes answers to file 4; the pipes' numbers are the first two arguments.
START = """import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for pipe, number in zip(pipes, (3, 4)):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])"""


class Browser:
    """A running Chromium with one page. Use `browser()`."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer, self._number, self._session = b"", 0, ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, page: Path | str, *, width: int = 1280, dark: bool = False) -> None:
        """Open a file or an address in a window of that width in pixels, and wait until its plots are drawn."""
        address = page if isinstance(page, str) else page.resolve().as_uri()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", features=scheme)
        self._call("Page.navigate", url="about:blank")
        if error := self._call("Page.navigate", url=address).get("errorText"):
            raise FileNotFoundError(f"{address}: {error}")
        self.wait(f'location.href !== "about:blank" && {DRAWN}')

    def wait(self, condition: str) -> None:
        """Wait until a condition in JavaScript holds."""
        end = time.monotonic() + TIMEOUT_S
        while not self.value(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"after {TIMEOUT_S:g} s this does not hold: {condition}")
            time.sleep(POLL_S)

    def value(self, script: str) -> Any:
        """The value of a JavaScript expression in the page, as plain data."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that a CSS selector names."""
        texts: list[str] = self.value(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(element => element.textContent)"
        )
        return texts

    def photograph(self, file: Path, *, height: int = TALLEST) -> None:
        """Write a PNG of the page, at most that many pixels of its height."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height), "scale": 1}
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> bytes:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], TIMEOUT_S)
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("Chromium ended, or gives no answer")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium that ends with the block. Raises RuntimeError where there is none."""
    if PROGRAM is None:
        raise RuntimeError(f"no browser on the PATH; looked for {', '.join(NAMES)}")
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = f"--headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir={profile}"
        words = [PROGRAM, *options.split(), "--remote-debugging-pipe", "about:blank"]
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(from_us), str(to_us), *words],
            pass_fds=(from_us, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        try:
            yield Browser(from_browser, to_browser)
        finally:
            os.close(to_browser)
            os.close(from_browser)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
