"""Fit the tiles and clusters that cuBLASLt chooses for strided batches, and put them into the file of trees.

    python lab/tools/library/fit_batch_tiles.py FOLDER --out configs/libraries/cublas-13.1.trees

FOLDER holds what lab/tools/record/cublaslt_choices.py --parts batch_narrow:1 wrote. A tree takes facts of the sizes and
the batch, the algorithm and its slices. Every 50th chunk is left out; prints the share right of it. Takes a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "record"))
from fit import SHAPE, SHARES_K, Answers, Model, tree_of, write

from hwsim.libraries.cublas.answers.features import batch_features
from hwsim.libraries.cublas.answers.tree import unpack

PART, MIB = "batch_narrow", 1 << 20
MODELS = ((("bf16", "fp16"), "bf16>bf16"), (("tf32",), "tf32>fp32"), (("fp32",), "fp32>fp32"))  # operands, asked as
MOST_SAMPLES, PRICE = 120_000, 3.0  # PRICE: answers that a leaf must mend


def facts_of(size: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """(features, batches) of sizes (batches, 4) and answers (batches, 9)."""
    return np.concatenate([batch_features(*size.T), answer[:, [0, 3]].T.astype(float)])


def shapes_of(answer: np.ndarray) -> np.ndarray:
    """(batches, 3): tile, cluster and, as for single products, no swizzle."""
    return np.stack([answer[:, 1], answer[:, 8], np.zeros(len(answer), np.int64)], 1)


def main() -> None:
    """Fit, print and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="h200", help="that was asked")
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    folder = Answers(arguments.folder, arguments.device)
    with zipfile.ZipFile(arguments.out) as file:
        head = json.loads(file.read("head.json"))
        own = {f"{one['name']}.tile" for one in head.get("batch_tiles", [])}
        files = {name: file.read(name) for name in file.namelist() if name not in {*own, "head.json"}}
    head["batch_tiles"] = []
    for operands, kind in MODELS:
        for a_layout in ("rows", "columns"):
            for b_layout in ("rows", "columns"):
                model = Model(operands[0], a_layout, b_layout, 32 * MIB, 7, ((PART, kind),), batched=True)
                given, left = (folder.column(model, PART, kind, left_out=x) for x in (False, True))
                assert given is not None and left is not None
                (size, answer), (own_size, own_answer) = (
                    (sizes[keep], answers[keep])
                    for sizes, answers in (given, left)
                    for keep in [(answers[:, 0] >= 0) & (answers[:, 0] != SHARES_K)]
                )
                order = np.random.default_rng(0).permutation(len(size))[:MOST_SAMPLES]
                values, shapes = facts_of(size[order], answer[order]), shapes_of(answer[order])
                data, table, _, nodes = tree_of(values, shapes, PRICE)
                found = np.array(table)[unpack(data).leaves(facts_of(own_size, own_answer))[0]]
                share = float((found == shapes_of(own_answer)).all(1).mean())
                name = "-".join([*operands, a_layout, b_layout, "batch"])
                print(
                    f"{name}: {len(order)} answers, {nodes} nodes, right {share:.4f} of {len(found)} left out",
                    flush=True,
                )
                head["batch_tiles"].append({
                    "name": name, "operands": operands, "a_layout": a_layout, "b_layout": b_layout,
                    "asked_on": [arguments.device], "tile": table, "tile_right": round(share, 4),
                })  # fmt: skip
                files[f"{name}.tile"] = data
    head["tile_fields"] = SHAPE
    write(arguments.out, head, files)


if __name__ == "__main__":
    main()
