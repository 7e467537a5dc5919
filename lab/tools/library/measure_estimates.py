"""How often hwsim's estimate of what a library runs is cuBLASLt's answer, by kind of GEMM: what estimates claim.

    python lab/tools/library/measure_estimates.py --out configs/libraries/cublas-13.1.estimates.csv

On chips that cuBLAS was not asked on, `library=` takes an estimate (hwsim/libraries/cublas/answers/estimated.py). Here
the same estimate is asked for on an H100 and an H200, by the rules that configs/libraries/cublas-13.yaml has for their
kind, and compared with the answers of tests/golden/h200_library (no tree was fitted to them, and no estimate is), and
for matrix-vector products with those for m = 1 of each LAYERSth weight of layers: right where algorithm and slices are
cuBLASLt's; where that leaves slices open (-1), the algorithm. Where a rule says the fewest tiles of K in a slice, the
share without it is measured too: other chips have kernels of which no such number is known.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.host.files import write_whole
from hwsim.libraries.cublas.answers.estimated import FIELDS, Estimates, GemmKind, calls_on, generation_of
from hwsim.libraries.cublas.answers.sweeps import NOT_ASKED, REFUSED_ID, shipped
from hwsim.libraries.cublas.calls import ELEMENT_BYTES, LINE_BYTES, CublasGemm
from hwsim.libraries.cublas.orders.families import NVJET
from hwsim.libraries.cublas.versions import versions
from hwsim.resolve.library_estimate import DataflowEstimator

ROOT = Path(__file__).resolve().parents[3]
ANSWERS = ("answers.csv.gz", "answers_of_calls.csv.gz", "answers_further.csv.gz")
DEFAULT_WORKSPACE = 32 << 20
LAYERS = 20


class Asked(NamedTuple):
    """A GEMM that cuBLASLt was asked for on a chip, with its answer."""

    device: str
    call: CublasGemm
    fast: bool | None
    batch: int
    workspace_bytes: int
    algorithm: int
    slices: int


def held_back() -> Iterator[Asked]:
    """The recorded answers that no tree was fitted to."""
    for name in ANSWERS:
        with gzip.open(ROOT / "tests" / "golden" / "h200_library" / name, "rt") as file:
            for row in csv.DictReader(file):
                operand, _, rest = row["kind"].partition(">")
                fast = True if "fast" in rest else False if "slow" in rest else None
                output = rest.removesuffix("+bias").removesuffix("fast").removesuffix("slow")
                layouts = row.get("a_layout", "rows"), row.get("b_layout") or row["layout"]
                call = CublasGemm(int(row["m"]), int(row["n"]), int(row["k"]), operand, output, *layouts)
                told = int(row.get("batch") or 1), int(row.get("workspace_bytes") or DEFAULT_WORKSPACE)
                yield Asked(row["device"], call, fast, *told, int(row["id"]), int(row["splitk"]))


def of_layers() -> Iterator[Asked]:
    """Answers for m = 1 of weights of layers."""
    for (device, kind), sweep in shipped(versions()[0].layers).by_kind.items():
        for key in sweep.keys[::LAYERS].tolist():
            n, k = key >> 32, key & 0xFFFFFFFF
            (row,) = sweep.at([1], n, k)
            if row is not None and row[0] != REFUSED_ID:
                call = CublasGemm(1, n, k, kind.operand, kind.output, kind.a_layout, kind.b_layout)
                yield Asked(device, call, kind.fast, 1, kind.workspace_bytes, row[0], row[2])


def fewest_tiles() -> tuple[int, float]:
    """Of nvjet's answers with slices for weights of layers: how many runs of m have one, and the fewest tiles of K, of
    128 bytes, that a slice has on average.
    """
    count, least = 0, math.inf
    for (_, kind), sweep in shipped(versions()[0].layers).by_kind.items():
        step = LINE_BYTES // ELEMENT_BYTES[kind.operand]
        k = np.repeat(sweep.keys & 0xFFFFFFFF, np.diff(sweep.starts))
        slices = np.array([row[2] if row[0] == NVJET else 0 for row in sweep.answers])
        is_known = sweep.labels != NOT_ASKED
        own = slices[sweep.labels[is_known]]
        tiles = np.ceil(k[is_known] / step)[own > 1] / own[own > 1]
        count, least = count + tiles.size, min(least, tiles.min(initial=math.inf))
    return count, float(least)


def estimates_on(device: str) -> dict[bool, Estimates]:
    """The estimates on a chip with the fewest tiles of K in a slice and without; their shares are not asked for."""
    chip, version = load(device), versions()[0]
    calls = calls_on(chip, version.library, version.version)
    assert calls is not None
    rules = {name: rule.model_copy(update={"slice_tiles": None}) for name, rule in calls.rules.items()}
    free = calls.model_copy(update={"rules": rules})
    generation, estimator = generation_of(chip, version.library), DataflowEstimator(chip)
    return {
        limit: Estimates(chip, one, generation, estimator, version, False)
        for limit, one in ((True, calls), (False, free))
    }


def compared(asked: Asked, own: dict[bool, Estimates]) -> dict[GemmKind, bool]:
    """The kinds of a GEMM, and whether the estimate is the answer; none where nothing is estimated."""
    found: dict[GemmKind, bool] = {}
    for one in own.values():
        try:
            said = one.of(asked.call, asked.fast, asked.batch, asked.workspace_bytes)
        except UnsupportedError:
            continue
        answer = said.answer
        is_right = answer.algorithm == asked.algorithm and (asked.slices < 0 or answer.slices == max(asked.slices, 1))
        found[said.kind] = is_right
    return found


def main() -> None:
    """Ask, count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    chips: dict[str, dict[bool, Estimates]] = {}
    count: Counter[GemmKind] = Counter()
    right: Counter[GemmKind] = Counter()
    refused = 0
    for asked in tqdm([*held_back(), *of_layers()], unit=" answers"):
        if asked.device not in chips:
            chips[asked.device] = estimates_on(asked.device)
        found = compared(asked, chips[asked.device])
        refused += not found
        count.update(found.keys())
        right.update(kind for kind, is_right in found.items() if is_right)
    lines = [",".join(FIELDS), *(",".join((*kind, str(count[kind]), str(right[kind]))) for kind in sorted(count))]
    write_whole(arguments.out, lambda file: file.write(("\n".join(lines) + "\n").encode()))
    for limit in ("yes", "no"):
        total, good = (sum(x for kind, x in one.items() if kind.limit == limit) for one in (count, right))
        print(f"fewest tiles in a slice: {limit}; {good} of {total} answers ({good / total:.1%})")
    print(f"{refused} refused")
    runs, tiles = fewest_tiles()
    print(f"nvjet with slices: {runs} runs of m, at least {tiles:.3f} tiles of K in a slice")


if __name__ == "__main__":
    main()
