"""Text formatting: numbers with separators and units, aligned columns. It knows no device and no result."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 100
JOINED_PERCENT = "\u00a0%"  # a number and its sign, while lines are wrapped
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def count(value: float) -> str:
    """A number rounded to an integer, with thousands separators."""
    return f"{value:,.0f}"


def cell_text(value: object) -> str:
    """A number of a table: integers with separators, large fractions with an SI prefix (4 T); other values as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return count(value)
    for scale, prefix in PREFIXES:
        if scale <= abs(value) < 1000 * scale:
            return f"{value / scale:,.5g} {prefix}"
    return f"{value:,.0f}" if abs(value) < 1e6 and value == int(value) else f"{value:.5g}"


def plural(value: int, noun: str, nouns: str | None = None) -> str:
    """A count with its noun: `1 core`, `1,024 cores`. nouns: the plural where it is not the noun with an s."""
    return f"{count(value)} {noun if value == 1 else nouns or f'{noun}s'}"


def runs(sizes: Iterable[int]) -> list[list[int]]:
    """Runs of neighbouring sizes, [first, last] each."""
    joined: list[list[int]] = []
    for size in sorted(sizes):
        if joined and size == joined[-1][1] + 1:
            joined[-1][1] = size
        else:
            joined.append([size, size])
    return joined


def run_text(first: int, last: int) -> str:
    """A run of sizes: `7`, or `1..64`."""
    return str(first) if first == last else f"{first}..{last}"


def percent(share: float) -> str:
    """A ratio as a percentage. None that is not 0 or 1 is shown as 0.0 or 100.0 %."""
    text = f"{100 * share:.1f}"
    if share > 0 and text == "0.0":
        return "< 0.05 %"
    if share < 1 and text == "100.0":
        return "> 99.9 %"
    return f"{text} %"


def data(size: float) -> str:
    """A size in the largest binary unit that gives at least one, and in bytes."""
    power = 0
    while power + 1 < len(BINARY) and size >= 1024 ** (power + 1):
        power += 1
    return f"{size / 1024**power:,.{1 if power else 0}f} {BINARY[power]}"


def duration(seconds: float) -> str:
    """A time in the unit that gives one to three digits before the decimal point."""
    for scale, unit in SECONDS:
        if seconds >= scale:
            return f"{seconds / scale:,.4g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def value(item: object) -> str:
    """A setting as text: mappings as key=value, truth values as options take them, None in words."""
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, dict):
        return " ".join(f"{key}={value(setting)}" for key, setting in item.items())
    if isinstance(item, float):
        return f"{item:,g}"
    return "chosen by hwsim" if item is None else count(item) if isinstance(item, int) else str(item)


def table(
    rows: Iterable[Sequence[str]], head: Sequence[str] = (), right: Sequence[int] = (), indent: str = "  "
) -> list[str]:
    """Lines of aligned columns; `right`: numbers of the columns that are right-aligned."""
    rows = [list(head), *map(list, rows)] if head else list(map(list, rows))
    if not rows:
        return []
    widths = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(max(map(len, rows)))]
    return [
        (
            indent
            + "  ".join(cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row))
        ).rstrip()
        for row in rows
    ]


def facts(pairs: Iterable[tuple[str, str]], indent: str = "", least: int = 0) -> list[str]:
    """Lines of `name  text`, with texts aligned and wrapped; an empty name continues the one before.

    least: columns of the names, at least.
    """
    pairs = list(pairs)
    lead = max((len(name) for name, _ in pairs), default=0)
    lead = max(lead, least) + 2
    lines = []
    for name, text in pairs:
        broken = textwrap.wrap(
            text.replace(" %", JOINED_PERCENT),
            max(WIDTH - lead - len(indent), 40),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        broken = [line.replace(JOINED_PERCENT, " %") for line in broken]
        lines += [
            (indent + name.ljust(lead) + broken[0]).rstrip(),
            *(indent + " " * lead + line for line in broken[1:]),
        ]
    return lines
