"""Rows of lab/hwsim_lab/configs/measured: what the tools of this folder append, one CSV file for each kind of
measurement.

    ./turn | python tidy.py --out FOLDER --set turn --device h200    # results printed as one JSON object

Standard library only; the columns are explained in lab/hwsim_lab/configs/measured/README.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

WHEN = ("set", "date", "device")
GEMM = ("format", "b_layout", "m", "n", "k")
ATTENTION = (
    *("device", "backend", "format", "batch", "heads", "key_heads", "queries", "keys", "width", "causal", "us"),
    *("repeats", "sm_mhz"),
)
COLUMNS: dict[str, tuple[str, ...]] = {
    "gemm_times": (
        *WHEN, "format", "output", "accumulate", "a_layout", "b_layout", "m", "n", "k", "batch", "role", "state",
        "operands", "us", "least_us", "first_us", "last_us", "replays", "in_graph", "sm_mhz", "kernels", "grids",
        "kernel_us",
    ),
    "gemm_held": (
        *WHEN, *GEMM, "operands", "sm_mhz_first", "nvml_sm_mhz_mean", "nvml_sm_mhz_least", "nvml_sm_mhz_most",
        "memory_mhz", "power_w_mean", "power_w_averaged_by_driver", "temperature_c", "samples", "reasons",
    ),
    "gemm_counters": (
        *WHEN, *GEMM, "us", "cycles_elapsed", "cycles_active_mean", "cycles_ideal", "ideal_over_active", "sm_mhz",
        "l2_read_bytes", "l2_write_bytes", "hbm_read_bytes", "hbm_write_bytes", "kernels", "grids",
    ),
    "tensor_pipe": (
        *WHEN, *GEMM, "role", "tensor_pipe_busy_percent", "tensor_instructions", "shared_load_instructions",
        "shared_load_bank_conflicts", "kernels",
    ),
    "clusters": (
        *WHEN, *GEMM, "tile", "segment_k", "cluster_x", "cluster_y", "grid_x", "grid_y", "l2_read_mb",
    ),
    "kernels": ("name", "block", "shared_bytes", "registers"),
    "microbenchmarks": (*WHEN, "case", "quantity", "value"),
    "attention_times": ATTENTION,
    "attention_other_times": ATTENTION,
    "attention_math_times": ATTENTION,
    "attention_rates": ("source", "device", "kernel", "format", "width", "causal", "queries", "tflops"),
    "h100_power": (
        "half", "what", "format", "m", "n", "k", "operands", "us", "sm_mhz", "power_w", "power_w_least", "power_w_most",
        "temperature_c", "samples",
    ),
}  # fmt: skip
BETWEEN = " | "  # kernels of one GEMM


def append(folder: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to FOLDER/TABLE.csv, which is begun where there is none. None is an empty field; true is 1."""
    path, columns = folder / f"{table}.csv", COLUMNS[table]
    is_new = not path.exists()
    if not is_new:
        with path.open(encoding="utf-8", newline="") as file:
            head = tuple(next(csv.reader(file)))
        if head != columns:
            raise SystemExit(f"{path}: columns {', '.join(head)}; needed: {', '.join(columns)}")
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="raise", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(
            {key: int(value) if isinstance(value, bool) else value for key, value in row.items()} for row in rows
        )


def describe(folder: Path, set: str, **about: object) -> None:
    """Add to FOLDER/sets.yaml what a set is: text and numbers by name (JSON, which YAML reads)."""
    lines = [f"{set}:\n", *(f"  {key}: {json.dumps(value)}\n" for key, value in about.items() if value)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "sets.yaml").open("a", encoding="utf-8") as file:
        file.writelines(lines)


def is_described(folder: Path, set: str) -> bool:
    """Whether FOLDER/sets.yaml has the set."""
    path = folder / "sets.yaml"
    return path.exists() and f"{set}:" in path.read_text(encoding="utf-8").splitlines()


def today() -> str:
    """The date, as rows have it."""
    return time.strftime("%Y-%m-%d")


def gemm(format: str, by_columns: bool, shape: Iterable[int]) -> dict[str, Any]:
    """The columns that name a GEMM."""
    return dict(zip(GEMM, (format, "columns" if by_columns else "rows", *shape), strict=True))


def launched(kernels: list[Mapping[str, Any]]) -> dict[str, str]:
    """Columns for the kernels of one GEMM, in order of launch; a memset has no grid."""
    grids = ["x".join(map(str, kernel["grid"])) if kernel["grid"] else "" for kernel in kernels]
    return {
        "kernels": BETWEEN.join(kernel["name"] for kernel in kernels),
        "grids": BETWEEN.join(grids),
        "kernel_us": BETWEEN.join(str(kernel["us"]) for kernel in kernels),
    }


def new_kernels(folder: Path, kernels: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of those that the table of kernels does not have; memsets are left out."""
    path, known = folder / "kernels.csv", set()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            known = {row["name"] for row in csv.DictReader(file)}
    for kernel in kernels:
        if kernel["block"] and kernel["name"] not in known:
            known.add(kernel["name"])
            yield {
                "name": kernel["name"],
                "block": "x".join(map(str, kernel["block"])),
                "shared_bytes": kernel["shared_bytes"],
                "registers": kernel["registers"],
            }


def observations(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """`case`, `quantity`, `value` of every number of results; names of nested ones are joined by a dot.

    A text x is counted: quantity NAME.x, value 1. A case that failed ("error") raises SystemExit.
    """
    for case, found in results.items():
        if "error" in found:
            raise SystemExit(f"{case}: {found['error']}")
        for quantity, value in _leaves(found):
            yield {"case": case, "quantity": quantity, "value": value}


def _leaves(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        elif isinstance(value, list):
            by_name = {(x if isinstance(x, str) else str(i)): x for i, x in enumerate(value)}
            yield from _leaves(by_name, f"{before}{name}.")
        else:
            yield before + name, 1 if isinstance(value, str) else value


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--set", required=True)
    parser.add_argument("--device", required=True, help="name of its file in configs/devices")
    args = parser.parse_args()
    results = {case: found for case, found in json.load(sys.stdin).items() if found}
    head = {"set": args.set, "date": today(), "device": args.device}
    append(args.out, "microbenchmarks", [head | row for row in observations(results)])


if __name__ == "__main__":
    main()
