"""Pictures of reports and of the docs site: those that the docs show, or every kind of page at several widths.

    python lab/tools/screenshots.py [--only NAME]
    python lab/tools/screenshots.py --pages FOLDER [--only NAME]

The first writes docs/images/*.png. The second writes, for each kind of page, pictures in light and dark at 1280 and
420 pixels into FOLDER, and says what sticks out of the page or of a plot; exit code 1 where something does. Needs
Chromium (chromium, google-chrome or chrome on the PATH) and the extras report and docs, for a model's page PyTorch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser import CUT, OUTSIDE, Browser, browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTHS = (1280, 420)  # pixels
STUDY = """title: fp16 and bf16 on three chips
devices: [h200, b200, ascend910a]
m: 256
n: 256
k: [128, 256, 512, 1024]
options: {format: [bf16, fp16]}
"""
MODEL = """import sys, torch, hwsim.torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32))
sides = ({"device": name, "format": "fp16"} for name in ("h100", "v100", "mi300x"))
hwsim.torch.compare(model, torch.randn(64, 512), *sides).write(sys.argv[1])
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of a width and height in pixels. command: hwsim's words, without --report (STUDY: a study's file); script:
    Python that writes the page; site: a page of the site.
    """

    name: str
    size: tuple[int, int] = (1280, 900)
    command: str = ""
    script: str = ""
    site: str = ""


#: What the docs show.
PICTURES = (
    Picture(
        "report_run", (1100, 1900), "run --device h200 --format bf16 --m 1024 --n 1024 --k 4096 --input-format bf16"
    ),
    Picture("report_diff", (1100, 1700), "diff --device h200 --device v100 --format fp16 --m 128 --n 96 --k 256"),
    Picture("report_tune", (1280, 1000), "tune --device h200 --format bf16 --m 1024 --n 1024 --k 512"),
    Picture("site", (1200, 800), site="tutorial/first_run.html"),
)
#: Every kind of page.
PAGES = (
    Picture("run", command="run --device h200 --format bf16 --m 512 --n 512 --k 1024"),
    Picture("run_cold", command="run --device ascend910a --scheme sgemm-cube --m 256 --n 256 --k 512 --l2 cold"),
    Picture(
        "run_library", command="run --device h200 --library cublas --format bf16 --m 512 --n 512 --k 512 --no-exact"
    ),
    Picture("diff", command="diff --device h200 --device v100 --format fp16 --m 128 --n 96 --k 256"),
    Picture("tune", command="tune --device h200 --format bf16 --m 1024 --n 1024 --k 512 --budget 60"),
    Picture("sweep", command="sweep STUDY --jobs 1 --no-cache"),
    Picture(
        "variants",
        command="sweep --device h200 --format bf16 --m 512 --n 512 --k 512 --set cores=66,132 "
        "--set instructions.wgmma.m64*.macs_per_cycle=0.5x,1x,2x --jobs 1 --no-cache",
    ),
    Picture(
        "invariance", command="invariance --device b200 --library cublas --format bf16 --n 4096 --k 4096 --m 1:512:3"
    ),
    Picture("comparison", script=MODEL),
    Picture("site_first", site="index.html"),
    Picture("site_api", site="reference/api.html"),
    Picture("site_options", site="generated/options.html"),
    Picture("site_device", site="generated/devices/h200.html"),
    Picture("site_paper", site="generated/laboratory/papers/le-gemm.html"),
    Picture("site_tutorial", site="tutorial/first_run.html"),
)


def page_of(picture: Picture, folder: Path) -> Path:
    """The HTML file of a picture, made anew; the site is made once."""
    if picture.site:
        site = folder / "site"
        if not site.exists():
            words = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(ROOT / "docs"), str(site)]
            subprocess.run(words, check=True)
        return site / picture.site
    page = folder / f"{picture.name}.html"
    if picture.script:
        subprocess.run([sys.executable, "-c", picture.script, str(page)], check=True, cwd=ROOT)
        return page
    study = folder / "study.yaml"
    study.write_text(STUDY, encoding="utf-8")
    words = [str(study) if word == "STUDY" else word for word in picture.command.split()]
    words = [sys.executable, "-m", "hwsim", *words, "--report", str(page)]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if done.returncode not in (0, 1):  # 1: what it compares differs
        sys.exit(f"hwsim {picture.command}: exit code {done.returncode}\n{done.stderr}")
    return page


def main() -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pages", type=Path, metavar="FOLDER", help="every kind of page, light and dark, wide and narrow"
    )
    parser.add_argument("--only", choices=[picture.name for picture in (*PICTURES, *PAGES)])
    arguments = parser.parse_args()
    wanted = [x for x in (PAGES if arguments.pages else PICTURES) if arguments.only in (None, x.name)]
    target = arguments.pages or IMAGES
    target.mkdir(parents=True, exist_ok=True)
    faults = 0
    with tempfile.TemporaryDirectory() as made, browser() as seen:
        for picture in wanted:
            page = page_of(picture, Path(made))
            if arguments.pages:
                faults += _all_looks(seen, page, target / picture.name)
            else:
                seen.open(page, width=picture.size[0])
                file = target / f"{picture.name}.png"
                seen.photograph(file, height=picture.size[1])
                print(f"{file.relative_to(ROOT)}: {file.stat().st_size // 1024} kB")
    return 1 if faults else 0


def _all_looks(seen: Browser, page: Path, target: Path) -> int:
    """Pictures of a page at every width, light and dark; the number of things that are cut."""
    faults = []
    for width in WIDTHS:
        for dark in (False, True):
            seen.open(page, width=width, dark=dark)
            file = target.with_name(f"{target.name}_{width}_{'dark' if dark else 'light'}.png")
            seen.photograph(file)
            cut = [*seen.value(OUTSIDE), *seen.value(CUT)]
            wide = seen.value("document.documentElement.scrollWidth")
            faults += [f"{file.name}: {text}" for text in cut] + ([f"{file.name}: {wide} px"] if wide > width else [])
    print("\n".join([f"{target.name}: {2 * len(WIDTHS)} pictures", *faults]), flush=True)
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
