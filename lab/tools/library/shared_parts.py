"""Into how many parts did CTAs cut the K of tiles that they shared? Found from the bits of recorded tf32 GEMMs.

    python lab/tools/library/shared_parts.py GEMMS.npz ANSWERS.npz --device h100 --out parts.csv

GEMMS is what lab/tools/record/cublas_gemms.py wrote, ANSWERS the file of `hwsim library record` for the same shapes.
For each GEMM of which hwsim has CTAs share tiles, some results in such a tile are computed with 1 to 32 parts; all
numbers that give the recorded bits are written. Prints in how many GEMMs hwsim's own number is among them.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np

import hwsim
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.cublas.orders.families import usual_tables
from hwsim.libraries.recording.gemm_list import drawn

KIND = "tf32>fp32"
COLUMNS = ("b_layout", "m", "n", "k", "tile", "cluster", "own", "fits")
MOST_RESULTS, LEAST_RESULTS = 8, 3  # compared, along a row


def inside(region: object, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Which of the sampled results lie in a region."""
    at = (rows >= region.rows.start) & (rows < region.rows.stop)
    over = (columns >= region.cols.start) & (columns < region.cols.stop)
    return at[:, None] & over[None, :]


def main() -> None:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gemms", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    library, found, equal = hwsim.library(arguments.answers, device=arguments.device), [], 0
    with np.load(arguments.gemms) as archive:
        said = json.loads(str(archive["meta"]))
        for entry in said["entries"]:
            if entry.get("kind") != KIND or f"{entry.get('index')}/d" not in archive:
                continue
            m, n, k, d = entry["m"], entry["n"], entry["k"], archive[f"{entry['index']}/d"]
            choice = library.choose(m=m, n=n, k=k, format="tf32", output="fp32", b_layout=entry["b_layout"])
            if not choice.schedule.regions:
                continue
            rows, columns, a, b, _ = drawn(said["seed"], entry["index"], m, n, k)
            sampled = sum(inside(one, rows[: d.shape[0]], columns[: d.shape[1]]) for one in choice.schedule.regions)
            row = int(np.argmax(sampled.sum(axis=1)))
            at = np.flatnonzero(sampled[row])[:MOST_RESULTS]
            if len(at) < LEAST_RESULTS:
                continue
            x, y = a[row : row + 1].astype(np.float32), b[:, at].astype(np.float32)
            fits = []
            for parts in range(1, usual_tables().shared_k.table.most_parts + 1):
                schedule = Schedule(sum=usual_tables().shared_k.segment_sum(k, parts)) if parts > 1 else None
                got = hwsim.matmul(x, y, device=arguments.device, format="tf32", output="fp32", schedule=schedule)
                if np.array_equal(np.ascontiguousarray(got).view(d.dtype).ravel(), d[row, at]):
                    fits.append(parts)
            total = choice.schedule.regions[0].sum
            own = len(getattr(total, "parts", (None,)))
            equal += own in fits
            tile, cluster = ("x".join(map(str, pair)) for pair in (choice.tile, choice.cluster))
            found.append((entry["b_layout"], m, n, k, tile, cluster, own, " ".join(map(str, fits))))
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(found)
    print(f"{len(found)} GEMMs with shared tiles, hwsim's number of parts gives the recorded bits of {equal}")


if __name__ == "__main__":
    main()
