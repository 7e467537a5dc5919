"""What-if analysis and roofline point as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from hwsim.analysis.changed_numbers import ComparedMapping
from hwsim.report.text.words import count, data, duration, percent, table

if TYPE_CHECKING:
    from hwsim.analysis.changed_numbers import ChangedNumbers
    from hwsim.analysis.roofline import Roofline
    from hwsim.analysis.what_if import WhatIf

WORTH = 0.0005  # parts that save less are named in one line
MOST_NUMBERS = 8  # of the device that a pattern changes


def what_if_text(gains: Sequence[WhatIf], *, by_library: bool = False) -> str:
    """A table of the parts of `what_if` that save time, and the names of the others. by_library: the run's time is a
    library's, and not the program's.
    """
    rows = [(gain.part, count(gain.cycles), percent(gain.saved)) for gain in gains if gain.saved >= WORTH]
    rest = [gain.part for gain in gains if gain.saved < WORTH]
    of = " of the program" if by_library else ""
    lines = [f"what to speed up: cycles{of} if this part took no time"]
    lines += table(rows, ("part", "cycles", "saved"), right=(1, 2))
    if rest:
        lines.append(f"  nothing to gain from: {', '.join(rest)}")
    return "\n".join(lines)


def changed_rows(changed: ChangedNumbers, *, by_library: bool = False) -> list[tuple[str, str, str, str]]:
    """Rows (what, now, then, words) of numbers, cycles, a clock that moves and time before and after a change of the
    device's numbers.

    by_library: the run's time is a library's, and not this one, which is of the program.
    """
    rows = [
        (path, f"{before:,g}", f"{after:,g}", _words(changed, path))
        for path, (before, after) in islice(changed.numbers.items(), MOST_NUMBERS)
    ]
    if (left := len(changed.numbers) - MOST_NUMBERS) > 0:
        rows.append((f"and {count(left)} others (--json)", "", "", ""))
    (cycles, then), (seconds, later) = changed.cycles, changed.seconds
    rows.append(("cycles", count(cycles), count(then), f"{then / cycles - 1:+.1%}"))
    before, after = changed.clock_mhz
    if before != after:
        rows.append(("clock under load", f"{before:,g} MHz", f"{after:,g} MHz", f"{after / before - 1:+.1%}"))
    time = "time of the program" if by_library else "time"
    rows.append((time, *_times(seconds, later)))
    if changed.old_mapping_seconds is not None:
        rows.append(("  with the mapping of before", *_times(seconds, changed.old_mapping_seconds)))
    if changed.new_mapping_seconds is not None and changed.new_mapping_seconds < seconds:
        rows.append(("  with the new mapping in both", *_times(changed.new_mapping_seconds, later)))
    if changed.anew_seconds is not None:
        rows.append(("  with the mapping chosen anew", *_times(seconds, changed.anew_seconds)))
    return rows


def _times(seconds: float, later: float) -> tuple[str, str, str]:
    return duration(seconds), duration(later), f"{later / seconds - 1:+.1%}"


def _words(changed: ChangedNumbers, path: str) -> str:
    """What keeps a number from saving time, or what else follows from it."""
    return f"held by {changed.held[path]}" if path in changed.held else changed.beside.get(path, "")


NEW = (ComparedMapping.ANEW, ComparedMapping.OF_LIBRARY)  # mappings that are another one than before
#: What was done with the mapping, in words.
_HOW = {
    ComparedMapping.SAME: "the mapping is kept: the one chosen anew is the same, or takes no less time",
    ComparedMapping.ANEW: "the mapping is chosen anew: it takes less time than the one of before",
    ComparedMapping.OF_LIBRARY: "the mapping is of the kernel that the library runs there",
    ComparedMapping.FIXED: "the same program at the same clock: a saved record or a library fixes it",
}


def how_text(changed: ChangedNumbers) -> str:
    """What was done with the mapping, in words."""
    how = _HOW[changed.mapping]
    if changed.mapping in NEW and changed.old_mapping_seconds is None:
        how = f"{how.partition(':')[0]}: the one of before does not fit"
    return f"with other numbers of the device: {how}"


def about_mapping(changed: ChangedNumbers) -> str:
    """What of a change is the new mapping's, as a sentence; empty where nothing is."""
    if changed.mapping not in NEW:
        return ""
    if changed.new_mapping_seconds is None and changed.tile is not None:
        tile, sums = changed.tile, ", with other sums of K" if changed.tile.has_other_sums else ""
        change = f"{tile.seconds / changed.seconds[0] - 1:+.1%}"
        return (
            f"the new mapping does not fit without the change; its tile alone does{sums}: --tile {tile.tile} takes "
            f"{duration(tile.seconds)} ({change})"
        )
    if changed.new_mapping_seconds is None:
        return "the new mapping does not fit without the change; hwsim tune looks for the best one that does"
    saved = 1 - changed.new_mapping_seconds / changed.seconds[0]
    if saved <= 0:
        return ""
    return f"{percent(saved)} are saved by the new mapping without the change too"


def changed_text(changed: ChangedNumbers, *, by_library: bool = False) -> str:
    """`changed_rows` as text, and what bounds the changed device."""
    rows = changed_rows(changed, by_library=by_library)
    lines = [how_text(changed), *table(rows, ("", "now", "then", ""), right=(1, 2, 3))]
    if changed.bound is not None:
        lines.append(
            f"  then most to gain from: {changed.bound.part} ({percent(changed.bound.saved)} if it took no time)"
        )
    if words := about_mapping(changed):
        lines.append(f"  {words}")
    return "\n".join(lines)


def roofline_text(point: Roofline) -> str:
    """One roofline point as text."""
    limit = "the matrix units" if point.bound == "compute" else "HBM"
    work = (f"{point.intensity:,.1f} FLOP", f"{data(point.hbm_bytes)} moved")
    if not point.hbm_bytes:
        work = ("none", "no traffic to HBM")
    return "\n".join(
        [
            "roofline",
            *table(
                [
                    ("work per byte of HBM", *work),
                    ("attainable", f"{point.attainable:,.1f} TFLOP/s", f"limited by {limit}; peak {point.peak:,.1f}"),
                    (
                        "achieved",
                        f"{point.achieved:,.1f} TFLOP/s",
                        f"{percent(point.achieved / point.attainable)} of that, all phases together",
                    ),
                ],
                right=(1,),
            ),
        ]
    )
