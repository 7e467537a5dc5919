"""hwsim's strided batches of matrix-vector products beside those recorded on a GPU: how many come out to the bit.

    python lab/tools/library/compare_vectors.py FILE.npz --device h100 [--rows 2000] [--told] [--json]

FILE is what lab/tools/record/batched_vectors.py wrote (or such a file cut to fewer batches: then its meta says which).
With
--rows, so many are drawn from it. --told: by what cuBLASLt answered, without dot products, which it was asked otherwise
than they ran. Exit 1 where a batch differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "record"))
from batched_vectors import FIELDS, KINDS, draw, places, pool

import hwsim
from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.families import usual_tables
from hwsim.libraries.kernel_choice import SummationOrder

DTYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "fp32": np.float32, "fp64": np.float64,
}  # fmt: skip
LAYOUTS = ("rows", "columns")


class Recorded:
    """A file of recorded batches. shapes: (batches, 7), as FIELDS of the recorder; indices: of each in the drawing."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as archive:
            self.said: dict[str, Any] = json.loads(str(archive["meta"]))
            self.words, self.answers, self.kernels = (archive[x] for x in ("words", "answers", "kernels"))
        count = self.said.get("drawn", len(self.words))
        self.indices = np.array(self.said.get("indices", range(count)))
        self.shapes = draw(self.said["seed"], count)[self.indices]
        self.values = pool(self.said["seed"])

    def call(self, place: int) -> dict[str, Any]:
        """What `choose` takes for a batch."""
        kind, a_columns, b_columns, m, n, k, batch = self.shapes[place].tolist()
        operand, output = KINDS[kind].split(">")
        return {
            "m": m, "n": n, "k": k, "format": operand, "output": output, "batch": batch,
            "a_layout": LAYOUTS[a_columns], "b_layout": LAYOUTS[b_columns],
            "reductions": "compute" if output in ("fp16", "bf16") else "any",
        }  # fmt: skip

    def is_dot(self, place: int) -> bool:
        """Whether a batch is of dot products."""
        return bool((self.shapes[place, 3:5] == 1).all())

    def told(self, place: int, tile_k: int | None) -> SummationOrder:
        """The order of summation by cuBLASLt's answer. tile_k: K of a tile, of kernels that have one."""
        call = self.call(place)
        number, _, _, slices, reduction, _, custom, *_ = self.answers[place].tolist()
        known = CublasGemm(*(call[x] for x in ("m", "n", "k", "format", "output", "a_layout", "b_layout")))
        return usual_tables().order_of(known, Answer(number, tile_k, slices, reduction, custom))

    def operands(self, place: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The vector, (results, k) rows or columns of the matrix, and which results of the product they give."""
        kind, *_, m, n, k, _ = self.shapes[place].tolist()
        operand = KINDS[kind].split(">")[0]
        kept, start, vector = places(self.said["seed"], int(self.indices[place]), max(m, n), k)
        values = self.values if operand == "fp64" else self.values.astype(np.float32)
        typed = [values[at : at + k].astype(DTYPES[operand]) for at in (vector, *start)]
        return typed[0], np.stack(typed[1:]), kept

    def result(self, place: int) -> np.ndarray:
        """The recorded bits of those results."""
        output = KINDS[self.shapes[place, 0]].split(">")[1]
        word = f"u{np.dtype(DTYPES[output]).itemsize}"
        return self.words[place].astype(np.int64).astype(np.uint64).astype(word)

    def simulated(self, place: int, device: str, schedule: Any) -> np.ndarray:
        """The bits of those results in hwsim, by a schedule."""
        call = self.call(place)
        vector, matrix, kept = self.operands(place)
        is_row = call["m"] == 1
        left, right = (vector[None], matrix.T) if is_row else (matrix, vector[:, None])
        at = ([0], kept) if is_row else (kept, [0])
        d = hwsim.matmul(
            left, right, device=device, schedule=schedule, format=call["format"], output=call["output"],
            shape=(call["m"], call["n"]), at=at,
        )  # fmt: skip
        d = np.ascontiguousarray(d).reshape(-1)
        return d.view(f"u{d.dtype.itemsize}")


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--told", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    recorded = Recorded(arguments.file)
    chosen = np.arange(len(recorded.words))
    if arguments.rows is not None:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[: arguments.rows])
    library = hwsim.library("cublas", device=arguments.device)
    count, equal, differing = Counter[str](), Counter[str](), []
    for place in chosen.tolist():
        if arguments.told and recorded.is_dot(place):
            continue
        choice = library.choose(**recorded.call(place))
        schedule = recorded.told(place, choice.tile_k).schedule if arguments.told else choice.schedule
        same = np.array_equal(recorded.simulated(place, arguments.device, schedule), recorded.result(place))
        kind = KINDS[recorded.shapes[place, 0]]
        count[kind] += 1
        equal[kind] += same
        if not same:
            name = recorded.said["names"][recorded.kernels[place, 0, 0]]
            answer = {"id": int(recorded.answers[place, 0]), "custom": int(recorded.answers[place, 6])}
            differing.append({**dict(zip(FIELDS[1:], recorded.shapes[place, 1:].tolist(), strict=True)), "kind": kind,
                              "chosen": (choice.algorithm, choice.custom), "answered": tuple(answer.values()),
                              "kernel": name[:90]})  # fmt: skip
    if arguments.json:
        print(json.dumps({"equal": dict(equal), "count": dict(count), "differing": differing}))
    else:
        for kind in sorted(count):
            share = 100 * equal[kind] / count[kind]
            print(f"{kind:10} {equal[kind]:6} of {count[kind]:6} equal in every bit, {share:.1f} %")
        for one in differing[:40]:
            print("differs:", one)
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
