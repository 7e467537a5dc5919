"""Measured and simulated times as Markdown tables (hwsim_lab.papers.anchors)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, get_args

from hwsim_lab.papers.anchor_data import Role
from hwsim_lab.papers.anchors import large, mean_absolute, pooled

if TYPE_CHECKING:
    from hwsim_lab.papers.anchor_data import MeasuredTimes
    from hwsim_lab.papers.anchors import Row, Spread

POOLED_LARGE, POOLED_ALL = 0.10, 0.15  # mean absolute error allowed of a format: of the large ones, of all


def rows_text(rows: Iterable[Row]) -> str:
    """The points as a Markdown table, after a count of them by role."""
    given = list(rows)
    return f"{roles_text(given)}\n{points_text(given)}"


def roles_text(rows: Sequence[Row]) -> str:
    """How many points of each role there are, how many are within what is allowed, and their median error."""
    lines = ["| role | points | within what is allowed | median absolute error |", "| --- | ---: | ---: | ---: |"]
    for role in get_args(Role):
        own = [row for row in rows if row.role == role]
        if own:
            middle = median(abs(row.error) for row in own)
            lines.append(f"| {role} | {len(own)} | {sum(row.passes for row in own)} | {middle:.1%} |")
    return "\n".join(lines) + "\n"


def points_text(rows: Iterable[Row]) -> str:
    """The points as a Markdown table."""
    lines = [
        "| point | measured | simulated | error | allowed | role | within | source |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for x in rows:
        low, high = x.measured
        measured = f"{low:,.4g}" if low == high else f"{low:,.4g} to {high:,.4g}"
        verdict = "yes" if x.passes else f"**no**: {x.why}" if x.why else "**no**"
        lines.append(
            f"| {x.what} | {measured} | {x.simulated:,.4g} | {x.error:+.1%} | {x.tolerance:.0%} "
            f"| {x.role}{f': {x.moved}' if x.moved else ''} | {verdict} "
            f"| {x.source} |"
        )
    return "\n".join(lines) + "\n"


def times_text(sets: Sequence[tuple[MeasuredTimes, Spread]]) -> str:
    """Two Markdown tables: each format over all its sets, then set by set."""
    head = "Each format over all sets below but the calibration's:\n\n"
    return f"{head}{pooled_text(pooled(sets))}\nSet by set:\n\n{spreads_text(sets)}"


def spreads_text(sets: Iterable[tuple[MeasuredTimes, Spread]]) -> str:
    """The errors of sets of times as a Markdown table."""
    lines = [
        "| device, format | shapes | mean absolute error, large ones | large, K cut by estimate | all "
        "| all, K cut by estimate | mean error | allowed | role | within |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for times, x in sets:
        verdict = "yes" if x.passes(times.tolerance) else f"**no**: {times.why}" if times.why else "**no**"
        lines.append(
            f"| {times.device} {times.format}{', B by columns' if times.columns else ''} "
            f"| {_counts(x)} | {_means(x)} "
            f"| {x.bias:+.1%} | {times.tolerance:.0%} | {times.role} | {verdict} |"
        )
    return "\n".join(lines) + "\n"


def pooled_text(found: Mapping[str, Spread]) -> str:
    """The errors by format, over all sets, as a Markdown table."""
    lines = [
        f"| format | shapes | mean absolute error, large ones ({POOLED_LARGE:.0%} allowed) "
        f"| large, K cut by estimate ({POOLED_LARGE:.0%} allowed) | all "
        f"| all, K cut by estimate ({POOLED_ALL:.0%} allowed) | within |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, x in found.items():
        verdict = "yes" if is_within(x) else "**no**"
        lines.append(f"| {name} | {_counts(x)} | {_means(x)} | {verdict} |")
    return "\n".join(lines) + "\n"


def is_within(x: Spread) -> bool:
    """Whether a format's errors meet the limits: both with split-K, and that for large GEMMs without."""
    largest = max(mean_absolute(large(errors)) for errors in (x.plain, x.cut))
    return largest <= POOLED_LARGE and mean_absolute(x.cut) <= POOLED_ALL


def _counts(x: Spread) -> str:
    return "{} of {} large".format(*x.counts)


def _means(x: Spread) -> str:
    """Four mean absolute errors: large without and with split-K, all without and with split-K."""
    each = (large(x.plain), large(x.cut), x.plain, x.cut)
    return " | ".join(f"{mean_absolute(errors):.1%}" if errors else "" for errors in each)
