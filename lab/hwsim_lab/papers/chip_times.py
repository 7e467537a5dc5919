"""Public times of native GEMMs beside hwsim's, chip by chip and format by format, as one Markdown table.

It knows the points of hwsim_lab.papers.anchor_data and their rows; it simulates through hwsim_lab.papers.anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import mean

from hwsim.machines.l2_state import DEFAULT
from hwsim_lab.papers import anchors, ascend910b
from hwsim_lab.papers.anchor_data import Anchors, MeasuredRun
from hwsim_lab.papers.anchors import Row

#: Chips in the order of the table; others follow in the order of the file.
CHIPS = ("v100", "t4", "a100", "a800", "a100pcie", "h100", "h200", "h20", "b200", "gb200", "l40s", "l40")
ALLOWED = 0.15  # of a point of role validation


@dataclass(frozen=True, slots=True)
class ChipTime:
    """One public time: the chip, the format of A and B, the state in which hwsim ran it, and the row."""

    chip: str
    format: str
    state: str
    row: Row


def chip_times(data: Anchors, progress: Callable[[float], None] | None = None) -> list[ChipTime]:
    """Every public rate of a native GEMM, simulated; a minute."""
    points = [entry for entry in data.points if entry.quantity == "tflops" and entry.run.scheme == "native"]
    rows = []
    for i, entry in enumerate(points):
        rows.append(ChipTime(entry.run.device, entry.run.format or "fp16", state(entry.run), anchors.row(entry)))
        if progress is not None:
            progress((i + 1) / len(points))
    rows += list(_ascends())
    order = {name: i for i, name in enumerate(dict.fromkeys((*CHIPS, *(one.chip for one in rows))))}
    return sorted(rows, key=lambda one: (order[one.chip], one.format))


def _ascends() -> Iterator[ChipTime]:
    """PyTorch's GEMMs on a 910B2."""
    for point in ascend910b.torch():
        name = point.what.split()[1]
        what = f"910B2 {point.what}"
        row = Row(
            what, what, "tflops", point.measured, point.simulated, ALLOWED, point.role, "TPD", ascend910b.why(point)
        )
        yield ChipTime("910b2", name, "l2=series", row)


def state(run: MeasuredRun) -> str:
    """The state of L2, and the clock or power that a point was run with, where they are not the defaults."""
    parts = [f"l2={run.l2}"]
    parts += [] if run.clock_mhz is None else [f"{run.clock_mhz:g} MHz"]
    parts += [] if run.power_limit_w is None else [f"{run.power_limit_w:g} W"]
    return ", ".join(parts)


def summary_text(rows: Iterable[ChipTime]) -> str:
    """Per chip and format: points by role, the mean and the largest error of those that are validation."""
    groups: dict[tuple[str, str], list[ChipTime]] = {}
    for one in rows:
        groups.setdefault((one.chip, one.format), []).append(one)
    lines = [
        "| chip | format | calibration | seen | validation | mean error of validation | largest | beyond 15 % |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (chip, name), group in groups.items():
        count = {role: sum(one.row.role == role for one in group) for role in ("calibration", "seen", "validation")}
        errors = [one.row.error for one in group if one.row.role == "validation"]
        middle = f"{mean(map(abs, errors)):.1%}" if errors else ""
        most = f"{max(errors, key=abs):+.1%}" if errors else ""
        beyond = sum(abs(error) > ALLOWED for error in errors)
        lines.append(
            f"| {chip} | {name} | {count['calibration'] or ''} | {count['seen'] or ''} | {count['validation'] or ''} "
            f"| {middle} | {most} | {beyond or ''} |"
        )
    return "\n".join(lines) + "\n"


def points_text(rows: Iterable[ChipTime]) -> str:
    """The points as a Markdown table."""
    lines = [
        "| chip | format | point | state | TFLOP/s, measured | simulated | error | role | within 15 % | source |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for one in rows:
        row = one.row
        low, high = row.measured
        measured = f"{low:,.4g}" if low == high else f"{low:,.4g} to {high:,.4g}"
        within = "yes" if abs(row.error) <= ALLOWED else f"**no**: {row.why}" if row.why else "**no**"
        state_words = "" if one.state == f"l2={DEFAULT}" else one.state
        lines.append(
            f"| {one.chip} | {one.format} | {row.what} | {state_words} | {measured} | {row.simulated:,.4g} "
            f"| {row.error:+.1%} | {row.role}{f': {row.moved}' if row.moved else ''} | {within} | {row.source} |"
        )
    return "\n".join(lines) + "\n"


def page_text(rows: Iterable[ChipTime]) -> str:
    """Both tables."""
    known = list(rows)
    return f"{summary_text(known)}\n{points_text(known)}"
