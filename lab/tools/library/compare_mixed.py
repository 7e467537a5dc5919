"""cuBLASLt's answers for e4m3 times e5m2 beside those for e4m3 alone, for the same shapes: how many differ.

    python lab/tools/library/compare_mixed.py FOLDER [--sample rows.csv.gz]

FOLDER is what `lab/tools/record/cublaslt_choices.py --parts mixed:1` wrote. Prints for each kind how many of both
answer, and of these how many differ in algorithm or slices, and in tile or cluster alone. --sample: writes 300 answers
of each mixed kind, as rows of tests/golden/h200_library/answers_of_calls.csv.gz.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import lzma
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "record"))
from cublaslt_choices import MIXED, draw
from held_back import FIELDS

ROWS = 300
ORDER, SHAPE = [0, 2, 3, 4], [1, 8]  # fields of an answer: what fixes bits; tile and cluster


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="h100")
    parser.add_argument("--sample", type=Path)
    arguments = parser.parse_args()
    said = json.loads((arguments.folder / "choices.json").read_text())
    table, found, sizes, rows = np.array(said["answers"], np.int64), {}, np.zeros((0, 4), np.int64), []
    for one in said["columns"]:
        planes = np.frombuffer(lzma.decompress((arguments.folder / one["file"]).read_bytes()), np.uint8).reshape(2, -1)
        found[one["kind"]] = table[planes[0] + 256 * planes[1].astype(np.int64)]
        sizes = np.concatenate([draw(one["part"], said["seed"], chunk) for chunk in one["chunks"]])
    rng = np.random.default_rng(1)
    for kind in (x for x in MIXED if x.operand_b is not None):
        alone = next(x for x in MIXED if x.operand_b is None and (x.output, x.fast) == (kind.output, kind.fast))
        first, second = found[alone.name], found[kind.name]
        both = (first[:, 0] >= 0) & (second[:, 0] >= 0)
        differs = (first[:, ORDER] != second[:, ORDER]).any(1) & both
        tile = (first[:, SHAPE] != second[:, SHAPE]).any(1) & both & ~differs
        print(f"{kind.name}: of {both.sum()} {differs.sum()} differ in algorithm or slices, {tile.sum()} in tile alone")
        for place in rng.choice(np.flatnonzero(second[:, 0] >= 0), ROWS, replace=False):
            asked = (arguments.device, kind.name, "rows", "columns", 1 << 20, 7)
            rows.append((*asked, *map(int, sizes[place]), int(second[place, 0]), int(second[place, 3])))
    if arguments.sample:
        with gzip.open(arguments.sample, "wt", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(FIELDS)
            writer.writerows(rows)


if __name__ == "__main__":
    main()
