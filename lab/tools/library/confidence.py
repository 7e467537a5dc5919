"""Is a choice's confidence the share right? By device and kind, on answers to which no tree was fitted.

    python lab/tools/library/confidence.py FILE.csv.gz=DEVICE [FILE.csv.gz=DEVICE ...] [--every 19] [--first 5]
    python lab/tools/library/confidence.py

FILE has a column per attribute of cuBLASLt's answer, asked with 32 MiB and any reduction (kind, layout, m, n, k,
status, id, splitk). Without one: tests/golden/h200_library/answers.csv.gz, which names the device in each row. Of every
so many rows one is taken. Right are algorithm and slices, where the answer says them (-1 does not). Exit 1 where a kind
with FEWEST rows is more than WITHIN off.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import hwsim
from hwsim.libraries.recording.gemm_list import parse

ANSWERS = Path(__file__).resolve().parents[3] / "tests" / "golden" / "h200_library" / "answers.csv.gz"
WITHIN, FEWEST = 0.02, 500


def judged(path: Path, device: str, every: int, first: int) -> Iterator[tuple[str, str, float, bool]]:
    """Of each row: device, kind, confidence, whether the choice is right. device: "" where the rows name it."""
    with gzip.open(path, "rt") as file:
        for row in islice(csv.DictReader(file), first, None, every):
            if row.get("status", "0") != "0":
                continue
            operand, output, fast, bias = parse(row["kind"])
            on = device or row["device"]
            choice = hwsim.library("cublas", device=on).choose(
                m=int(row["m"]), n=int(row["n"]), k=int(row["k"]), format=operand, output=output, bias=bias,
                accumulate=None if fast is None else "fast" if fast else "promoted", b_layout=row["layout"],
            )  # fmt: skip
            slices = int(row["splitk"])
            is_right = choice.algorithm == int(row["id"]) and (slices < 0 or choice.split_k == max(slices, 1))
            yield on, row["kind"], choice.confidence, is_right


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE=DEVICE")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    given = [(Path(path), device) for path, _, device in (x.rpartition("=") for x in arguments.files)]
    found: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for path, device in given or [(ANSWERS, "")]:
        for on, kind, confidence, is_right in judged(path, device, arguments.every, arguments.first):
            found[on, kind].append((confidence, is_right))
    off = 0
    for (device, kind), rows in sorted(found.items()):
        said, right = np.mean(rows, 0)
        is_off = len(rows) >= FEWEST and abs(said - right) > WITHIN
        off += is_off
        print(f"{device} {kind:16} {len(rows):6} rows: right {right:.4f}, said {said:.4f}{'  OFF' if is_off else ''}")
    said, right = np.mean([row for rows in found.values() for row in rows], 0)
    print(f"all: right {right:.4f}, said {said:.4f}; {off} kinds more than {WITHIN} off")
    return int(bool(off))


if __name__ == "__main__":
    sys.exit(main())
