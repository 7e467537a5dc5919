"""How often cuBLAS takes less time for more work on a chip: recorded calls, compared in pairs.

    python lab/tools/library/falling_times.py tests/golden/h200_library/calls[5-9]_h200.csv.gz

A FILE is as in fit_times.py. Two calls are a pair if they differ in sizes alone, none of m, n and k is smaller in the
second, none of them is a multiple of 8 there that is none in the first, and the work is at most MOST_WORK times as
much. Calls at a low clock are left out (settled_clock.py). Printed are pairs and falls, and the worst falls.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from settled_clock import highest_clocks, is_settled

MOST_WORK = 2.05
LEVELS = 0.95, 0.85, 0.70  # of the time of the smaller call
VECTOR = 8  # elements
Row = dict[str, str]


def groups(paths: list[Path]) -> list[list[Row]]:
    """Rows by what is alike in a pair."""
    rows, found = [], defaultdict(list)
    for path in paths:
        with gzip.open(path, "rt") as file:
            rows += csv.DictReader(file)
    highest = highest_clocks(rows)
    for row in rows:
        if is_settled(row, highest):
            alike = (row[x] for x in ("device", "kind", "a_layout", "b_layout", "batch", "reductions"))
            found[tuple(alike)].append(row)
    return list(found.values())


def pairs(rows: list[Row]) -> list[tuple[float, Row, Row]]:
    """(time of the larger over that of the smaller, smaller, larger) of each pair."""
    sizes = np.array([[int(row[name]) for name in "mnk"] for row in rows], np.float64)
    us, out = np.array([float(row["us"]) for row in rows]), []
    for place, row in enumerate(rows):
        ratios = sizes / sizes[place]
        is_better = ((sizes % VECTOR == 0) & (sizes[place] % VECTOR != 0)).any(1)
        fits = (ratios >= 1).all(1) & (ratios.prod(1) <= MOST_WORK) & (ratios.prod(1) > 1) & ~is_better
        out += [(us[other] / us[place], row, rows[other]) for other in np.flatnonzero(fits).tolist()]
    return out


def main() -> int:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--worst", type=int, default=5)
    arguments = parser.parse_args()
    found = [pair for rows in groups(arguments.file) for pair in pairs(rows)]
    falls = ", ".join(f"{sum(x < level for x, *_ in found):,} by {1 - level:.0%}" for level in LEVELS)
    print(f"{len(found):,} pairs; less time for more work: {falls} or more")
    for ratio, small, large in sorted(found, key=lambda pair: pair[0])[: arguments.worst]:
        ends = " -> ".join(
            f"{row['m']}x{row['n']}x{row['k']} {row['us']} us ({row['kernels'][:60]})" for row in (small, large)
        )
        print(f"{ratio:.2f} {small['kind']} {ends}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
