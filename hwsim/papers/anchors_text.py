"""Measured times beside simulated ones, as Markdown tables (hwsim.papers.anchors)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hwsim.papers.anchors import large, mean_absolute, pooled

if TYPE_CHECKING:
    from hwsim.papers.anchor_data import MeasuredTimes
    from hwsim.papers.anchors import Row, Spread

POOLED_LARGE, POOLED_ALL = 0.10, 0.15  # mean absolute error allowed of a format: of the large ones, of all


def rows_text(rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = [
        "| point | measured | simulated | error | allowed | role | within | source |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for x in rows:
        low, high = x.measured
        measured = f"{low:,.4g}" if low == high else f"{low:,.4g} to {high:,.4g}"
        verdict = "yes" if x.passes else f"**no**: {x.why}" if x.why else "**no**"
        lines.append(
            f"| {x.what} | {measured} | {x.simulated:,.4g} | {x.error:+.1%} | {x.tolerance:.0%} | {x.role} | {verdict} "
            f"| {x.source} |"
        )
    return "\n".join(lines) + "\n"


def times_text(sets: Sequence[tuple[MeasuredTimes, Spread]]) -> str:
    """Two Markdown tables: each format over all its sets, then set by set."""
    head = "Each format over all sets below but the calibration's:\n\n"
    return f"{head}{pooled_text(pooled(sets))}\nSet by set:\n\n{spreads_text(sets)}"


def spreads_text(sets: Iterable[tuple[MeasuredTimes, Spread]]) -> str:
    """A Markdown table of sets of times."""
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
    """A Markdown table of formats, all sets together."""
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
    """Whether a format's runs with K cut keep both limits, and plain ones that of the large."""
    largest = max(mean_absolute(large(errors)) for errors in (x.plain, x.cut))
    return largest <= POOLED_LARGE and mean_absolute(x.cut) <= POOLED_ALL


def _counts(x: Spread) -> str:
    return "{} of {} large".format(*x.counts)


def _means(x: Spread) -> str:
    """Large ones plain and cut, all plain and cut."""
    each = (large(x.plain), large(x.cut), x.plain, x.cut)
    return " | ".join(f"{mean_absolute(errors):.1%}" if errors else "" for errors in each)
