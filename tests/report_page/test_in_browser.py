"""Pages as a reader sees them: drawn by Chromium, in light and dark."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

import hwsim

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
BACKGROUNDS = {"1": "rgb(255, 255, 255)", "0": "rgb(22, 24, 27)"}  # by Chromium's preferred colour scheme

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)}")


def seen(page: Path, scheme: str, folder: Path) -> str:
    """The DOM after the page's scripts ran."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
            f"--blink-settings=preferredColorScheme={scheme}", "--virtual-time-budget=4000", "--window-size=1250,2000",
            "--dump-dom", page.resolve().as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return unescape(re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("plotly")
    path = tmp_path_factory.mktemp("page") / "run.html"
    hwsim.run(device="ascend910a", scheme="sgemm-cube", m=256, n=256, k=512, l2="cold").report(path)
    return path


@pytest.mark.parametrize("scheme", BACKGROUNDS)
def test_plots_are_drawn_in_the_readers_colours(page: Path, scheme: str, tmp_path: Path) -> None:
    dom = seen(page, scheme, tmp_path)
    backgrounds = re.findall(r'<svg class="main-svg"[^>]*style="background: (rgb\([^)]*\))', dom)
    assert len(backgrounds) == len(re.findall(r'<div class="plot js-plotly-plot"', dom)) >= 6
    assert set(backgrounds) == {BACKGROUNDS[scheme]}
    for title in (
        "elements of C (%)", "row of C", "column of C", "share of the time, all cores and phases (%)",
        "time (cycles of the core)", "work per byte of HBM (FLOP/byte)", "rate (TFLOP/s)", "moved, all cores (MiB)",
    ):  # fmt: skip
        assert re.search(rf'<text class="[xy]title"[^>]*>{re.escape(title)}</text>', dom), title
    ticks = re.findall(r'<g class="([xy])tick"><text[^>]*>([^<]+)</text>', dom)
    assert {"M", "MTE1", "MTE2", "GM_L1"} <= {text for axis, text in ticks if axis == "y"}
    assert {"≤ 1", "100"} <= {text for axis, text in ticks if axis == "x"}
    assert "NaN" not in "".join(text for _, text in ticks)
