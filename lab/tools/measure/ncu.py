"""Nsight Compute's table of kernels, as it writes it with --csv: one row for each kernel and metric."""

from __future__ import annotations

import csv
from pathlib import Path


def kernels(path: Path) -> list[dict[str, str]]:
    """The kernels in order of launch: `name`, `grid`, and each metric by its name, as digits without commas."""
    csv.field_size_limit(1 << 30)  # names of templates can be long
    found: dict[str, dict[str, str]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("==")):
            entry = found.setdefault(row["ID"], {"name": row["Kernel Name"], "grid": row["Grid Size"]})
            entry[row["Metric Name"]] = row["Metric Value"].replace(",", "")
    return list(found.values())
