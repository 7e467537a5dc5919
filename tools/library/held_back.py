"""Take rows for the tests from the chunks of answers that tools/library/fit.py leaves out.

    python tools/library/held_back.py --out tests/golden/h200_library/answers_of_calls.csv.gz FOLDER=DEVICE [...]

For each model but those of cuBLAS's default preference (32 MiB of workspace, any reduction), which are the calls that
PyTorch makes for narrow results, biases, e4m3 and int8: ROWS answers of each source, with what was asked.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

import numpy as np
from fit import MIB, Answers, models

ROWS = 100
FIELDS = ("device", "kind", "b_layout", "workspace_bytes", "reductions", "m", "n", "k", "id", "splitk")


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER=DEVICE")
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    folders = [Answers(Path(name), device) for name, _, device in (x.rpartition("=") for x in arguments.folders)]
    rng, rows = np.random.default_rng(1), []
    for model in models():
        if (model.workspace_bytes, model.reductions) == (32 * MIB, 7):
            continue
        for folder in folders:
            for part, kind in model.sources:
                found = folder.column(model, part, kind, left_out=True) if folder.device in model.devices else None
                if found is None:
                    continue
                sizes, answers = found
                keep = answers[:, 0] >= 0
                if model.aligned is not None:
                    keep &= ((sizes[:, 1] % 8 == 0) & (sizes[:, 2] % 8 == 0)) == model.aligned
                places = np.flatnonzero(keep)
                for place in rng.choice(places, min(ROWS, len(places)), replace=False):
                    said = (int(answers[place, 0]), int(answers[place, 3]))
                    asked = (folder.device, kind, model.b_layout, model.workspace_bytes, model.reductions)
                    rows.append((*asked, *map(int, sizes[place]), *said))
    with gzip.open(arguments.out, "wt", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows(rows)
    print(f"{len(rows)} answers")


if __name__ == "__main__":
    main()
