"""Clusters of cuBLAS's tf32 kernels, from Nsight Compute's table: rows of clusters.csv.

    ncu --clock-control none --cache-control none --csv --log-file ncu.csv \\
        --metrics "$(python clusters.py --metrics)" python clusters.py --run --times FOLDER/gemm_times.csv
    python clusters.py --csv ncu.csv --times FOLDER/gemm_times.csv --out FOLDER --set clusters --device h200

--times: rows of gemms.py, whose tf32 shapes are taken, with B by rows (nn) and by columns (nt). --run multiplies each
once, a small kernel before it that tells them apart in the table. Kernels that know no clusters are left out. How many
clusters of a size can be active goes to microbenchmarks.csv.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path

import ncu
import tidy

METRICS = (
    "launch__cluster_dim_x", "launch__cluster_dim_y", "launch__cluster_max_active", "lts__t_sectors_op_read.sum",
)  # fmt: skip
SECTOR_BYTES = 32
KERNEL = re.compile(r"tilesize(\d+x\d+)x\d+_\S*execute_segment_k_(on|off)_kernel")


def names(files: list[Path]) -> list[str]:
    """ "MxNxK LAYOUT" of every tf32 shape but launches'."""
    shapes: dict[str, None] = {}
    for file in files:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row["format"] == "tf32" and row["role"] != "launch"]
        shapes |= dict.fromkeys(f"{row['m']}x{row['n']}x{row['k']}" for row in rows)
    return [f"{shape} {layout}" for shape in shapes for layout in ("nn", "nt")]


def run(every: list[str]) -> None:
    """Each GEMM once."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    for name in every:
        shape, layout = name.split()
        m, n, k = map(int, shape.split("x"))
        a, d = torch.empty(m, k, device="cuda"), torch.empty(m, n, device="cuda")
        b = torch.empty(n, k, device="cuda").t() if layout == "nt" else torch.empty(k, n, device="cuda")
        torch.arange(4, device="cuda")
        torch.mm(a, b, out=d)
    torch.cuda.synchronize()


def groups(path: Path) -> list[list[dict[str, str]]]:
    """The table's kernels in order of launch, those after each mark together."""
    found: list[list[dict[str, str]]] = []
    for kernel in ncu.kernels(path):
        if "arange" in kernel["name"]:
            found.append([])
        else:
            found[-1].append(kernel)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", action="store_true", help="print what ncu shall count")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--times", type=Path, nargs="+", default=[])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--set", default="clusters")
    parser.add_argument("--device", help="name of its file in configs/devices")
    args = parser.parse_args()
    if args.metrics:
        print(",".join(METRICS))
        return
    every = names(args.times)
    if args.run:
        run(every)
        return
    if not (args.csv and args.out and every and args.device):
        parser.error("--csv, --times, --out and --device go together")
    head = {"set": args.set, "date": tidy.today(), "device": args.device}
    rows, active = [], {}
    for name, group in zip(every, groups(args.csv), strict=True):
        shape, layout = name.split()
        for kernel in group:
            if (tile := KERNEL.search(kernel["name"])) is not None:
                x, y = (int(kernel[f"launch__cluster_dim_{axis}"]) for axis in "xy")
                if x * y > 1:
                    active[x * y] = int(kernel["launch__cluster_max_active"])
                grid_x, grid_y = (int(v) for v in re.findall(r"\d+", kernel["grid"])[:2])
                found = {
                    "tile": tile[1],
                    "segment_k": tile[2] == "on",
                    "cluster_x": x,
                    "cluster_y": y,
                    "grid_x": grid_x,
                    "grid_y": grid_y,
                    "l2_read_mb": round(float(kernel["lts__t_sectors_op_read.sum"]) * SECTOR_BYTES / 1e6, 1),
                }
                rows.append(head | tidy.gemm("tf32", layout == "nt", map(int, shape.split("x"))) | found)
    tidy.append(args.out, "clusters", rows)
    counted = {f"clusters of {size}": {"active": active[size]} for size in sorted(active)}
    tidy.append(args.out, "microbenchmarks", [head | row for row in tidy.observations(counted)])
    what = (
        "clusters of cuBLAS's tf32 kernels (wgmma): CTAs along the kernel's own x and y (x of a tile is along N of a "
        "row-major C), its grid, bytes read from L2; and how many clusters of a size can be active at once"
    )
    tidy.describe(args.out, args.set, what=what, command="see lab/tools/measure/clusters.py")


if __name__ == "__main__":
    main()
