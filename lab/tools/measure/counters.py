"""Hardware counters of cuBLAS GEMMs, from Nsight Compute's table: rows of gemm_counters.csv.

    ncu --clock-control none --cache-control none -k 'regex:nvjet|xmma|cutlass|Kernel2|sgemm|splitK' --csv \\
        --log-file ncu.csv --metrics "$(python counters.py --metrics)" python gemms.py --once --out list.json
    python counters.py --csv ncu.csv --list list.json --out FOLDER --set gemm_counters --device h200

`gemms.py --once` runs every GEMM twice; the second one is kept (its operands are in L2 as far as they fit). A GEMM of
several kernels (split K) is their sum.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import ncu
import tidy

METRICS = {
    "gpu__time_duration.sum": "nanoseconds",
    "sm__cycles_elapsed.max": "cycles_elapsed",
    "sm__cycles_active.avg": "cycles_active_mean",
    "sm__cycles_elapsed.avg.per_second": "sm_hertz",
    "lts__t_sectors_op_read.sum": "l2_read_sectors",
    "lts__t_sectors_op_write.sum": "l2_write_sectors",
    "dram__bytes_read.sum": "hbm_read_bytes",
    "dram__bytes_write.sum": "hbm_write_bytes",
}
#: Multiply-adds per cycle and SM at one wgmma, mma or FFMA after another (README.md).
PEAK = {"fp16": 2048, "bf16": 2048, "tf32": 1024, "e4m3": 4096, "fp64": 128, "fp32": 128}
SMS = 132


def kernels(path: Path) -> list[dict[str, Any]]:
    """The table's kernels in order of launch, metrics as METRICS names them."""
    return [
        {"name": x["name"][:200], "grid": x["grid"]} | {own: float(x[name]) for name, own in METRICS.items()}
        for x in ncu.kernels(path)
    ]


def second_runs(every: list[dict[str, Any]], names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Kernels of each GEMM's second run: a run ends where its first kernel comes again."""
    at, runs = 0, {}
    for name in names:
        first, size = every[at], 1
        while any(every[at + size][x] != first[x] for x in ("name", "grid")):
            size += 1
        runs[name] = every[at + size : at + 2 * size]
        at += 2 * size
    if at != len(every):
        raise SystemExit(f"{len(every)} kernels, but {at} belong to the listed GEMMs")
    return runs


def summary(name: str, run: list[dict[str, Any]]) -> dict[str, Any]:
    """A row: sums over the kernels; the SM clock is the first one's."""
    format, shape = name.split()
    m, n, k = map(int, shape.split("x"))
    total = {key: sum(x[key] for x in run) for key in METRICS.values() if key != "sm_hertz"}
    ideal = m * n * k / SMS / PEAK[format]
    return tidy.gemm(format, format == "e4m3", (m, n, k)) | {
        "us": round(total["nanoseconds"] / 1e3, 3),
        "cycles_elapsed": round(total["cycles_elapsed"]),
        "cycles_active_mean": round(total["cycles_active_mean"]),
        "cycles_ideal": round(ideal),
        "ideal_over_active": round(ideal / total["cycles_active_mean"], 4),
        "sm_mhz": round(run[0]["sm_hertz"] / 1e6, 1),
        "l2_read_bytes": round(total["l2_read_sectors"] * 32),
        "l2_write_bytes": round(total["l2_write_sectors"] * 32),
        "hbm_read_bytes": round(total["hbm_read_bytes"]),
        "hbm_write_bytes": round(total["hbm_write_bytes"]),
        "kernels": tidy.BETWEEN.join(x["name"] for x in run),
        "grids": tidy.BETWEEN.join("x".join(re.findall(r"\d+", x["grid"])) for x in run),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", action="store_true", help="print what ncu shall count")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--list", type=Path)
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--set")
    parser.add_argument("--device", help="name of its file in configs/devices")
    args = parser.parse_args()
    if args.metrics:
        print(",".join(METRICS))
        return
    if not (args.csv and args.list and args.out and args.set and args.device):
        parser.error("--csv, --list, --out, --set and --device go together")
    runs = second_runs(kernels(args.csv), json.loads(args.list.read_text()))
    head = {"set": args.set, "date": tidy.today(), "device": args.device}
    tidy.append(args.out, "gemm_counters", [head | summary(name, run) for name, run in runs.items()])
    what = "one cuBLAS GEMM at a time under Nsight Compute, clocks not fixed, L2 not flushed; second of two runs"
    tidy.describe(args.out, args.set, what=what, command="see lab/tools/measure/counters.py")


if __name__ == "__main__":
    main()
