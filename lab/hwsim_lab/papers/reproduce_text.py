"""Outcomes of claims as Markdown, and as files: claims.json, a page per paper, data and plots."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from hwsim.host.files import check_writable, make_folder, whole_file, write_text
from hwsim.report.plot_style import COLOURS, MARKERS
from hwsim_lab.papers import claims, influences_text
from hwsim_lab.papers.claims import Kind, Verdict
from hwsim_lab.papers.experiment import Series
from hwsim_lab.papers.reproduce import ClaimOutcome, Reproduction

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SHOWN = 6  # elements of a series in a table
CLAIMS_FILE = "claims.json"
LETTERS_SIDE_BY_SIDE = 60  # of names on an axis
LINES_IN_AXES = 12  # of a plot whose legend is in the axes
DOTS_PER_INCH, DOTS_ON_A_PAGE = 120, 64
DEVIATIONS: tuple[Verdict, ...] = ("order", "fails")
UNEXPLAINED = "not explained."
INTRODUCTION = (
    "This page has every claim of the paper, what hwsim measured for it, and the verdict.\n"
    "[papers.md](../papers.md) says what a verdict and a kind of claim mean and by which rules a verdict is given.\n"
)
COLUMNS = (
    "`paper` has the paper's numbers, `hwsim` the same quantities as measured; a series is cut after six elements.\n"
    '"of 6 sizes" says at how many sizes a claim has which verdict. A row without a verdict of its own is another\n'
    "reading of the claim above it.\n"
)
DEVIATIONS_SAID = (
    "Claims that hold in order only, or fail: why, as far as that is known, and what was run otherwise than the paper\n"
    "says."
)
NOTES_SAID = "Of claims that hold: what was run otherwise than the paper says, and what the result rests on."
ASSUMPTIONS = (
    "The experiment was run again with one assumption at another value. The table has how far that moves what was\n"
    "measured, and the verdict there, bold where it turns: for claims that do not hold, and for those that hold and\n"
    "turn. `operands`: all drawn with other seeds."
)


def summary(outcomes: Sequence[ClaimOutcome]) -> str:
    """How many claims of each paper hold, hold in order, fail, and so on."""
    shown = _shown(outcomes)
    lines = ["| paper | " + " | ".join(shown) + " | claims |", "| --- |" + " ---: |" * (len(shown) + 1)]
    papers = list(dict.fromkeys(one.paper for one in outcomes))
    for paper in [*papers, *(["all"] if len(papers) > 1 else [])]:
        own = [one for one in outcomes if paper in (one.paper, "all")]
        counts = Counter(one.verdict for one in own)
        cells = [str(counts[verdict]) for verdict in shown]
        lines.append(f"| {paper} | {' | '.join(cells)} | {len(own)} |")
    return "\n".join(lines) + "\n"


def _shown(outcomes: Sequence[ClaimOutcome]) -> list[Verdict]:
    """The columns of a table of counts: "not measured" only where a claim is."""
    seen = {one.verdict for one in outcomes}
    return [verdict for verdict in VERDICTS if verdict != "not measured" or verdict in seen]


def by_kind(outcomes: Sequence[ClaimOutcome]) -> str:
    """The same by kind of claim: definitions and designs hold because hwsim follows them, bits and times because they
    come out.
    """
    shown = _shown(outcomes)
    lines = ["| kind | " + " | ".join(shown) + " | claims |", "| --- |" + " ---: |" * (len(shown) + 1)]
    for kind in get_args(Kind):
        own = [one for one in outcomes if one.claim.kind == kind]
        counts = Counter(one.verdict for one in own)
        if own:
            lines.append(f"| {kind} | {' | '.join(str(counts[verdict]) for verdict in shown)} | {len(own)} |")
    return "\n".join(lines) + "\n"


def table(outcomes: Iterable[ClaimOutcome]) -> str:
    """A row per claim: what the paper says, what was measured, the verdict."""
    lines = ["| verdict | claim | item | stated | paper | hwsim |", "| --- | --- | --- | --- | --- | --- |"]
    for one in outcomes:
        claim = one.claim
        own = numbers_text(one.measured) or "-"
        if claim.sizes and one.measured:
            own += f"; {_at_sizes(one)}"
        if claim.fitted:
            own += " (fitted, see notes)"
        unit = f" {claim.unit}" if claim.unit and claim.paper else ""
        cells = (f"**{one.verdict}**", claim.id, claim.item, claim.stated, numbers_text(claim.paper) + unit, own)
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
        for other in one.readings:
            cells = ("", f"*{other.name}*", "", f"{other.said}: {other.verdict}", "", numbers_text(other.measured))
            lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _at_sizes(one: ClaimOutcome) -> str:
    """At how many of a claim's sizes it has which verdict."""
    counts = Counter(one.claim.verdicts(one.measured))
    found = ", ".join(f"{verdict} at {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
    return f"of {len(one.claim.sizes)} sizes: {found}"


def other_readings(outcomes: Iterable[ClaimOutcome]) -> str:
    """A row for each claim whose words have several readings, with the verdict of each."""
    lines = ["| claim | its reading | verdict | other reading | verdict |", "| --- | --- | --- | --- | --- |"]
    for one in outcomes:
        first = next(iter(one.claim.readings), "")
        lines += [f"| {one.id} | {first} | {one.verdict} | {x.name} | {x.verdict} |" for x in one.readings]
    return "\n".join(lines) + "\n"


def page(paper: str, outcomes: Sequence[ClaimOutcome], plots: Sequence[str] = ()) -> str:
    """A paper's claims; those that do not hold with what is known of why; what assumptions do to all; notes.

    plots: names of the files of its figures, beside the page.
    """
    said = claims.read(paper)
    text = f"# {said.title}\n\n{said.reference}\n\n{INTRODUCTION}\n{summary(outcomes)}\n{by_kind(outcomes)}\n"
    text += f"## Claims\n\n{COLUMNS}\n{table(outcomes)}"
    apart = [one for one in outcomes if one.verdict in DEVIATIONS]
    if apart:
        text += f"\n## Deviations\n\n{DEVIATIONS_SAID}\n\n"
        text += "".join(f"* `{one.claim.id}` ({one.verdict}): {_cell(_note(one)) or UNEXPLAINED}\n" for one in apart)
    moved = influences_text.table(outcomes)
    if moved:
        text += f"\n## What assumptions do to the claims\n\n{ASSUMPTIONS}\n\n{moved}"
    noted = [(one, _note(one)) for one in outcomes if one not in apart]
    if any(note for _, note in noted):
        text += f"\n## Notes\n\n{NOTES_SAID}\n\n"
        text += "".join(f"* `{one.claim.id}` ({one.verdict}): {_cell(note)}\n" for one, note in noted if note)
    if plots:
        text += "\n## Figures\n\n" + "\n".join(f"![{Path(name).stem}]({name})\n" for name in plots)
    return text


def _note(one: ClaimOutcome) -> str:
    """The note of an outcome, and what was fitted to the claim's own number."""
    fitted = f" Fitted to the claim's own number: {one.claim.fitted}." if one.claim.fitted else ""
    return f"{one.note}{fitted}".strip()


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
        for one in series:
            make_folder(folder / "data")
            paths.append(folder / "data" / f"{paper}-{one.name}.csv")
            write_text(paths[-1], _csv(one))
    return paths + write_pages(folder, found, DOTS_PER_INCH)


def write_pages(folder: Path, found: Reproduction, dots_per_inch: int = DOTS_ON_A_PAGE) -> list[Path]:
    """Write PAPER.md and, with matplotlib, plots/PAPER-NAME.png; the paths."""
    make_folder(folder)
    paths = []
    for paper, series in found.series.items():
        plots = []
        for one in series:
            if one.x and one.y and (image := _plot(one, dots_per_inch)) is not None:
                make_folder(folder / "plots")
                plots.append(f"plots/{paper}-{one.name}.png")
                paths.append(folder / plots[-1])
                with whole_file(paths[-1]) as file:
                    file.write(image)
        paths.append(folder / f"{paper}.md")
        write_text(paths[-1], page(paper, [one for one in found.outcomes if one.paper == paper], plots))
    return paths


def _csv(series: Series) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(series.columns)
    writer.writerows(zip(*series.columns.values(), strict=True))
    return text.getvalue()


def _plot(series: Series, dots_per_inch: int) -> bytes | None:
    """A PNG of one series; None without matplotlib."""
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError:
        return None
    assert series.x is not None and series.y is not None
    x, y = series.columns[series.x], series.columns[series.y]
    names = series.columns[series.by] if series.by else [""] * len(x)
    lines = list(dict.fromkeys(names))
    is_crowded = len(lines) > LINES_IN_AXES and series.value is None
    figure = Figure(figsize=(9.6, 6.4) if is_crowded else (6.4, 4.2), layout="constrained")
    axes: Any = figure.add_subplot()
    axes.set_prop_cycle(color=COLOURS)
    if series.value is not None:
        _draw_map(figure, axes, series)
    elif any(isinstance(one, str) for one in x):
        _draw_bars(axes, series, lines)
    else:
        for number, name in enumerate(lines):
            own = sorted((i for i, other in enumerate(names) if other == name), key=lambda i: x[i])
            marker = MARKERS[number % len(MARKERS)]
            axes.plot([x[i] for i in own], [y[i] for i in own], marker=marker, markersize=3.5, label=str(name))
    axes.set(xlabel=series.x, ylabel=series.y, title=series.name)
    for letter, scale in (("x", axes.set_xscale), ("y", axes.set_yscale)):
        if letter in series.log:
            scale("log")
    if series.by and series.value is None:
        if is_crowded:
            figure.legend(fontsize="x-small", title=series.by, loc="outside right upper")
        else:
            axes.legend(fontsize="small", title=series.by)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return image.getvalue()


def _draw_bars(axes: Any, series: Series, lines: Sequence[Any]) -> None:
    """Bars over names, a group of the lines' bars for each name."""
    assert series.x is not None and series.y is not None
    x, y = series.columns[series.x], series.columns[series.y]
    names = series.columns[series.by] if series.by else [""] * len(x)
    groups = list(dict.fromkeys(str(one) for one in x))
    width = 0.8 / len(lines)
    for number, name in enumerate(lines):
        own = [i for i, other in enumerate(names) if other == name]
        places = [groups.index(str(x[i])) + (number - (len(lines) - 1) / 2) * width for i in own]
        axes.bar(places, [y[i] for i in own], width, label=str(name))
    is_slanted = sum(len(name) for name in groups) > LETTERS_SIDE_BY_SIDE
    axes.set_xticks(
        range(len(groups)), groups, rotation=30 if is_slanted else 0, ha="right" if is_slanted else "center"
    )


def _draw_map(figure: Any, axes: Any, series: Series) -> None:
    """Cells over the values of x and y, coloured by a third column; a cell that was not measured stays empty."""
    assert series.x is not None and series.y is not None and series.value is not None
    x, y = (series.columns[name] for name in (series.x, series.y))
    across, up = (sorted(set(one)) for one in (x, y))
    cells = [[float("nan")] * len(across) for _ in up]
    for left, below, value in zip(x, y, series.columns[series.value], strict=True):
        if isinstance(value, int | float):
            cells[up.index(below)][across.index(left)] = float(value)
    image = axes.pcolormesh(across, up, cells, shading="nearest", cmap="viridis")
    figure.colorbar(image, ax=axes, label=series.value)


def numbers_text(values: Mapping[str, Any]) -> str:
    """Quantities by name, long series cut after SHOWN."""
    return "; ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(_number(one) for one in value[:SHOWN])
        return f"[{shown}{f', ... {len(value)} in all' if len(value) > SHOWN else ''}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
