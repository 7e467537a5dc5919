"""Pictures of reports and of the docs site, as the docs show them.

    python lab/tools/screenshots.py [--only NAME]

Needs Chromium (chromium, google-chrome or chrome on the PATH), the extras report and docs. Writes docs/images/*.png.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT_MS = 15_000  # of a page's own clock, for its plots to be drawn


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of a width and height in pixels. command: hwsim's words, without --report; site: a page of the site."""

    name: str
    size: tuple[int, int]
    command: str = ""
    site: str = ""


PICTURES = (
    Picture(
        "report_run", (1100, 1900), "run --device h200 --format bf16 --m 1024 --n 1024 --k 4096 --input-format bf16"
    ),
    Picture("report_diff", (1100, 1700), "diff --device h200 --device v100 --format fp16 --m 128 --n 96 --k 256"),
    Picture("report_tune", (1100, 900), "tune --device h200 --format bf16 --m 1024 --n 1024 --k 512"),
    Picture("site", (1200, 800), site="tutorial/first_run.html"),
)


def browser() -> str:
    """The browser's path. Exits where there is none."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        sys.exit(f"no browser on the PATH; looked for {', '.join(BROWSERS)}")
    return found


def page_of(picture: Picture, folder: Path) -> Path:
    """The HTML file of a picture, made anew."""
    if picture.site:
        subprocess.run(
            [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(ROOT / "docs"), str(folder / "site")], check=True
        )
        return folder / "site" / picture.site
    page = folder / f"{picture.name}.html"
    words = [sys.executable, "-m", "hwsim", *picture.command.split(), "-q", "--report", str(page)]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, cwd=ROOT, check=False)
    if done.returncode not in (0, 1):  # 1: what it compares differs
        sys.exit(f"hwsim {picture.command}: exit code {done.returncode}")
    return page


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[picture.name for picture in PICTURES])
    wanted = parser.parse_args().only
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for picture in PICTURES:
            if wanted not in (None, picture.name):
                continue
            page = page_of(picture, folder)
            target = IMAGES / f"{picture.name}.png"
            size = f"--window-size={picture.size[0]},{picture.size[1]}"
            quiet = [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
            ]
            time = f"--virtual-time-budget={WAIT_MS}"
            words = [browser(), *quiet, size, time, f"--screenshot={target}", page.as_uri()]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
