"""Clusters of cuBLAS's tf32 kernels, from Nsight Compute's table, as JSON.

    ncu --clock-control none --cache-control none --csv --log-file ncu.csv \\
        --metrics "$(python clusters.py --metrics)" python clusters.py --run --times gemm.json blind*.json
    python clusters.py --csv ncu.csv --times gemm.json blind*.json --out clusters.json

--times: files of gemms.py, whose tf32 shapes are taken, with B by rows (nn) and by columns (nt). --run multiplies each
once, a small kernel before it that tells them apart in the table. Kernels that know no clusters are left out.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path

import ncu

METRICS = (
    "launch__cluster_dim_x", "launch__cluster_dim_y", "launch__cluster_max_active", "lts__t_sectors_op_read.sum",
)  # fmt: skip
SECTOR_BYTES = 32
KERNEL = re.compile(r"tilesize(\d+x\d+)x\d+_\S*execute_segment_k_(on|off)_kernel")


def names(files: list[Path]) -> list[str]:
    """ "MxNxK LAYOUT" of every tf32 shape."""
    shapes: dict[str, None] = {}
    for file in files:
        data = json.loads(file.read_text())
        keys = [key.split() for key in data.get("times") or data["validation"]]
        shapes |= dict.fromkeys(key[1] for key in keys if key[0] == "tf32")
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
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.metrics:
        print(",".join(METRICS))
        return
    every = names(args.times)
    if args.run:
        run(every)
        return
    if not (args.csv and args.out and every):
        parser.error("--csv, --times and --out go together")
    gemms, active = {}, {}
    for name, group in zip(every, groups(args.csv), strict=True):
        for kernel in group:
            if (tile := KERNEL.search(kernel["name"])) is not None:
                x, y = (int(kernel[f"launch__cluster_dim_{axis}"]) for axis in "xy")
                active[str(x * y)] = int(kernel["launch__cluster_max_active"]) if x * y > 1 else None
                gemms[f"tf32 {name}"] = {
                    "tile": tile[1],
                    "segment_k": tile[2] == "on",
                    "cluster": [x, y],
                    "grid": [int(v) for v in re.findall(r"\d+", kernel["grid"])[:2]],
                    "l2_read_mb": round(float(kernel["lts__t_sectors_op_read.sum"]) * SECTOR_BYTES / 1e6, 1),
                }
    data = {
        "what": "clusters of cuBLAS's tf32 kernels (wgmma): CTAs along the kernel's own x and y (x of a tile is along "
        "N of a row-major C), its grid, bytes read from L2; and how many clusters of a size can be active at once",
        "shape": "MxNxK; nn: B by rows, nt: B by columns",
        "date": time.strftime("%Y-%m-%d"),
        "device": "NVIDIA H200, CUDA 13.0, cuBLAS of PyTorch 2.11",
        "command": "see tools/measure/clusters.py",
        "active_clusters": {size: active[size] for size in sorted(active, key=int) if active[size] is not None},
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(gemm)}" for name, gemm in gemms.items())
    args.out.write_text(json.dumps(data, indent=1)[:-2] + ',\n "gemms": {\n' + lines + "\n }\n}\n")


if __name__ == "__main__":
    main()
