"""Take rows for the tests from the chunks of answers that lab/tools/library/fit.py leaves out.

    python lab/tools/library/held_back.py --out tests/golden/h200_library/answers_of_calls.csv.gz FOLDER=DEVICE [...]
    python lab/tools/library/held_back.py --further --out [...]/answers_further.csv.gz FOLDER=DEVICE [...]
    python lab/tools/library/held_back.py --switched --out [...]/answers_switched.csv.gz FOLDER=DEVICE [...]

For each model but those of cuBLAS's default preference (32 MiB of workspace, any reduction), which are the calls that
PyTorch makes for narrow results, biases, e4m3 and int8: ROWS answers of each source, with what was asked. --further:
instead of the models of A by columns and of batches. --switched: instead those of rows that are not whole 16 bytes by
PyTorch's switches and by serving's, with all that fixes the order of sums.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

import numpy as np
from fit import MIB, Answers, Model, is_aligned, models

ROWS = 100
ASKED = ("device", "kind", "a_layout", "b_layout", "workspace_bytes", "reductions")
FIELDS = (*ASKED, "m", "n", "k", "batch", "id", "splitk")
ORDER_FIELDS = ("id", "splitk", "stages", "reduction", "custom")  # of --switched


def is_switched(model: Model) -> bool:
    """Whether a model is of PyTorch's switches at their defaults, or of serving's."""
    return model.base is not None or (model.aligned is False and (model.workspace_bytes, model.reductions) == (MIB, 7))


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER=DEVICE")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--further", action="store_true")
    parser.add_argument("--switched", action="store_true")
    arguments = parser.parse_args()
    folders = [Answers(Path(name), device) for name, _, device in (x.rpartition("=") for x in arguments.folders)]
    rng, rows = np.random.default_rng(1), []
    for model in models():
        is_plain = (model.workspace_bytes, model.reductions) == (32 * MIB, 7) and not model.is_further
        if is_switched(model) != arguments.switched:
            continue
        if not arguments.switched and (is_plain or model.is_further != arguments.further):
            continue
        for folder in folders:
            for part, kind in model.sources:
                found = folder.column(model, part, kind, left_out=True) if folder.device in model.devices else None
                if found is None:
                    continue
                sizes, answers = found
                keep = answers[:, 0] >= 0
                if model.aligned is not None:
                    keep &= is_aligned(model, sizes) == model.aligned
                places = np.flatnonzero(keep)
                for place in rng.choice(places, min(ROWS, len(places)), replace=False):
                    said = [
                        int(answers[place, column]) for column in ((0, 3, 2, 4, 6) if arguments.switched else (0, 3))
                    ]
                    layouts = model.a_layout, model.b_layout
                    asked = (folder.device, kind, *layouts, model.workspace_bytes, model.reductions)
                    rows.append((*asked, *map(int, sizes[place]), *said))
    with gzip.open(arguments.out, "wt", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*FIELDS[:-2], *ORDER_FIELDS) if arguments.switched else FIELDS)
        writer.writerows(rows)
    print(f"{len(rows)} answers")


if __name__ == "__main__":
    main()
