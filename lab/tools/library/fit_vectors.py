"""Fit what cuBLASLt chooses for strided batches of matrix-vector products, and put it into the file of trees.

    python lab/tools/library/fit_vectors.py FILE.npz --out configs/libraries/cublas-13.1.trees

FILE holds answers for drawn batches: what lab/tools/record/batched_vectors.py wrote, or its `meta` and `answers` alone.
Every 20th batch is left out: they are for tests. Prints for each tree the share of answers right in a five-fold cross
validation, and of those left out. Takes a quarter of a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "record"))
from batched_vectors import KINDS, draw
from fit import ORDER_PRICE, groups, shares, write
from grow import grow, leaves, packed, pruned

from hwsim.libraries.cublas.answers.vectors import NAMES, vector_features
from hwsim.libraries.cublas.orders.families import NVJET

MODELS = (("fp32", "tf32"), ("fp64",), ("fp16", "bf16"))  # operands of which one tree is
LEFT_OUT = 20  # of so many batches one is for tests
FOLDS = 5


def features_of(shapes: np.ndarray) -> np.ndarray:
    """(features, batches) of drawn batches (batches, 7), as FIELDS of the recorder."""
    kind, a_columns, b_columns, m, n, k, batch = shapes.T
    is_column = (n == 1) & (m > 1)  # chosen for as the transposed product; dot products were asked as they are
    vector = np.where(is_column, 1 - b_columns, a_columns)
    matrix = np.where(is_column, 1 - a_columns, b_columns)
    operands, outputs = zip(*(x.split(">") for x in KINDS), strict=True)
    is_bf16, is_narrow = (np.isin(kind, [i for i, x in enumerate(names) if x in of]) for names, of in (
        (operands, ("bf16",)), (outputs, ("fp16", "bf16")),
    ))  # fmt: skip
    return vector_features(np.maximum(m, n), k, batch, vector, matrix, is_bf16, is_narrow)


def fitted(values: np.ndarray, answers: np.ndarray, left_out: np.ndarray) -> tuple[bytes, list[list[int]], float, str]:
    """The packed tree, its labels, the share right of what was left out, and what to print."""
    table, labels = np.unique(answers, axis=0, return_inverse=True)
    labels = labels.ravel()
    places = np.random.default_rng(0).permutation(np.flatnonzero(~left_out))
    group, right = [], []
    for fold in range(FOLDS):
        held, kept = places[fold::FOLDS], np.concatenate([places[x::FOLDS] for x in range(FOLDS) if x != fold])
        tree = pruned(grow(values[:, kept], labels[kept]), ORDER_PRICE)
        at = leaves(tree, values[:, held])
        group.append(groups(tree)[at])
        right.append(tree.label[at] == labels[held])
    known = np.concatenate(right)
    tree = pruned(grow(values[:, places], labels[places]), ORDER_PRICE)
    ready = packed(tree, shares(np.concatenate(group), known)[groups(tree)], np.arange(len(table)))
    found, sure = ready.leaves(values[:, left_out])
    share = float((found == labels[left_out]).mean())
    said = f"{len(places)} answers, {len(ready.feature)} nodes, right {known.mean():.4f} in cross validation, "
    said += f"{share:.4f} of {left_out.sum()} left out (confidence {sure.mean():.4f})"
    return ready.pack(), table.tolist(), share, said


def main() -> None:
    """Fit, print and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    with np.load(arguments.file) as archive:
        said, answers = json.loads(str(archive["meta"])), archive["answers"].astype(np.int64)
    shapes = draw(said["seed"], said.get("drawn", len(answers)))[: len(answers)]
    order = answers[:, [0, 2, 3, 4, 6]]
    order[order[:, 0] == NVJET, 4] = 0  # another kernel of the same bits
    values, operand = features_of(shapes), np.array([x.split(">")[0] for x in KINDS])[shapes[:, 0]]
    left_out = np.arange(len(shapes)) % LEFT_OUT == LEFT_OUT - 1
    with zipfile.ZipFile(arguments.out) as file:
        head = json.loads(file.read("head.json"))
        own = {f"{one['name']}.order" for one in head.get("vectors", [])}
        files = {name: file.read(name) for name in file.namelist() if name not in {*own, "head.json"}}
    head |= {"vectors": [], "vector_features": NAMES}
    for operands in MODELS:
        chosen = np.isin(operand, operands) & (order[:, 0] >= 0)
        data, table, share, line = fitted(values[:, chosen], order[chosen], left_out[chosen])
        name = "-".join([*operands, "vectors"])
        print(f"{name}: {line}")
        head["vectors"].append({"name": name, "operands": operands, "order": table, "order_right": round(share, 4)})
        files[f"{name}.order"] = data
    write(arguments.out, head, files)


if __name__ == "__main__":
    main()
