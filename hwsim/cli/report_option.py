"""The option --report of verbs that write a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from hwsim.cli.verb_parser import add_flag
from hwsim.report.page.page import check_page, data_file


def add_report(group: argparse.ArgumentParser | argparse._ArgumentGroup, example: str) -> None:
    """Add the option. example: the other arguments of a command that its help shows."""
    add_flag(
        group,
        "--report",
        brief="write one HTML page with plots",
        type=Path,
        metavar="FILE.html",
        help="write one HTML page with plots, which loads nothing from anywhere (needs plotly), and its data as "
        "FILE.json beside it. Example: "
        f"{example} --report page.html",
    )


def check_report(path: Path | None) -> Path | None:
    """The path, checked before the work. Raises InputError for another suffix, UnsupportedError without plotly."""
    return None if path is None else check_page(path)


def report_files(path: Path | None) -> dict[str, Path | None]:
    """The files that the option writes, as `hwsim.host.files.check_outputs` takes them."""
    return {"--report": path, "the data of --report": None if path is None else data_file(path)}


def report_note(path: Path) -> str:
    """What is said of a page that was written."""
    return f"wrote {path}: a page to open in a browser, and its data beside it, {data_file(path).name}"
