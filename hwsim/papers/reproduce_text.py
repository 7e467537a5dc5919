"""Outcomes of claims as Markdown, and as files: claims.json, a page per paper, data and plots."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from hwsim.files import check_writable, make_folder, whole_file, write_text
from hwsim.papers import claims
from hwsim.papers.claims import Verdict
from hwsim.papers.experiment import Series
from hwsim.papers.reproduce import ClaimOutcome, Reproduction

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SHOWN = 6  # elements of a series in a table
CLAIMS_FILE = "claims.json"


def summary(outcomes: Sequence[ClaimOutcome]) -> str:
    """How many claims of each paper hold, hold in order, fail, and so on."""
    lines = ["| paper | " + " | ".join(VERDICTS) + " | claims |", "| --- |" + " ---: |" * (len(VERDICTS) + 1)]
    papers = list(dict.fromkeys(one.paper for one in outcomes))
    for paper in [*papers, *(["all"] if len(papers) > 1 else [])]:
        own = [one for one in outcomes if paper in (one.paper, "all")]
        counts = Counter(one.verdict for one in own)
        cells = [str(counts[verdict]) for verdict in VERDICTS]
        lines.append(f"| {paper} | {' | '.join(cells)} | {len(own)} |")
    return "\n".join(lines) + "\n"


def table(outcomes: Iterable[ClaimOutcome]) -> str:
    """A row per claim: what the paper says, what was measured, the verdict."""
    lines = ["| claim | item | stated | paper | hwsim | verdict |", "| --- | --- | --- | --- | --- | --- |"]
    for one in outcomes:
        claim = one.claim
        own = _numbers(one.measured) or "-"
        unit = f" {claim.unit}" if claim.unit and claim.paper else ""
        cells = (claim.id, claim.item, claim.stated, _numbers(claim.paper) + unit, own, f"**{one.verdict}**")
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def page(paper: str, outcomes: Sequence[ClaimOutcome]) -> str:
    """A paper's claims, those that do not hold with what is known of why, and what nobody can ask a simulator."""
    said = claims.read(paper)
    text = f"# {said.title}\n\n{said.reference}\n\n{summary(outcomes)}\n{table(outcomes)}"
    noted = [one for one in outcomes if one.note]
    if noted:
        text += "\n## Notes\n\n" + "".join(f"* `{one.claim.id}` ({one.verdict}): {_cell(one.note)}\n" for one in noted)
    return text


def check_folder(folder: Path) -> None:
    """Raise InputError where the files could not be written."""
    make_folder(folder)
    check_writable(folder / CLAIMS_FILE)


def write(folder: Path, found: Reproduction) -> list[Path]:
    """Write claims.json, PAPER.md, data/PAPER-NAME.csv and, with matplotlib, plots/PAPER-NAME.png; the paths."""
    check_folder(folder)
    paths = [folder / CLAIMS_FILE]
    write_text(paths[0], json.dumps([one.to_dict() for one in found.outcomes], indent=1, default=str) + "\n")
    for paper, series in found.series.items():
        paths.append(folder / f"{paper}.md")
        write_text(paths[-1], page(paper, [one for one in found.outcomes if one.paper == paper]))
        for one in series:
            make_folder(folder / "data")
            paths.append(folder / "data" / f"{paper}-{one.name}.csv")
            write_text(paths[-1], _csv(one))
            if one.x and one.y and (image := _plot(one)) is not None:
                make_folder(folder / "plots")
                paths.append(folder / "plots" / f"{paper}-{one.name}.png")
                with whole_file(paths[-1]) as file:
                    file.write(image)
    return paths


def _csv(series: Series) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(series.columns)
    writer.writerows(zip(*series.columns.values(), strict=True))
    return text.getvalue()


def _plot(series: Series) -> bytes | None:
    """A PNG of one series; None without matplotlib."""
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError:
        return None
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    assert series.x is not None and series.y is not None
    x, y = series.columns[series.x], series.columns[series.y]
    names = series.columns[series.by] if series.by else [""] * len(x)
    for name in dict.fromkeys(names):
        own = [i for i, other in enumerate(names) if other == name]
        axes.plot([x[i] for i in own], [y[i] for i in own], marker="o", markersize=3, label=str(name))
    axes.set(xlabel=series.x, ylabel=series.y, title=series.name)
    for letter, scale in (("x", axes.set_xscale), ("y", axes.set_yscale)):
        if letter in series.log:
            scale("log")
    if series.by:
        axes.legend(fontsize="small")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def _numbers(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(_number(one) for one in value[:SHOWN])
        return f"[{shown}{f', ... {len(value)} in all' if len(value) > SHOWN else ''}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
