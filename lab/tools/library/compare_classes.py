"""hwsim.invariance beside batch classes recorded on a GPU: how many weights have exactly the library's partition.

    python lab/tools/library/compare_classes.py [FILE.csv.gz]

FILE, as tests/golden/h200_library/batch_classes.csv.gz, has rows of lab/tools/record/batch_classes.py with the device.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import Counter, defaultdict
from pathlib import Path

import hwsim
from hwsim.libraries.recording.gemm_list import parse

RECORDED = Path(__file__).resolve().parents[3] / "tests" / "golden" / "h200_library" / "batch_classes.csv.gz"


def recorded(path: Path = RECORDED) -> dict[tuple[str, str, int, int], list[tuple[int, int]]]:
    """(m, class of the first row) by device, kind, n and k."""
    found = defaultdict(list)
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            key = row["device"], row["kind"], int(row["n"]), int(row["k"])
            found[key].append((int(row["m"]), int(row["row_class"])))
    return found


def partition(labels: list) -> list[int]:
    """Labels by the place of their first occurrence."""
    first: dict = {}
    return [first.setdefault(label, place) for place, label in enumerate(labels)]


def wrong_sizes(key: tuple[str, str, int, int], rows: list[tuple[int, int]]) -> list[int]:
    """The m in classes that hwsim has otherwise, by the largest common parts; none where the partitions are equal."""
    device, kind, n, k = key
    operand, output, fast, _ = parse(kind)
    accumulate = None if fast is None else "fast" if fast else "promoted"
    sizes, classes = [m for m, _ in rows], [own for _, own in rows]
    labels = hwsim.invariance(
        n=n, k=k, m=sizes, device=device, library="cublas", format=operand, output=output, accumulate=accumulate,
        b_layout="columns",
    )  # fmt: skip
    if partition(labels) == partition(classes):
        return []
    joined: dict[int, object] = {}
    for (own, label), _ in Counter(zip(classes, labels, strict=True)).most_common():
        if own not in joined and label not in joined.values():
            joined[own] = label
    return [m for m, own, label in zip(sizes, classes, labels, strict=True) if joined.get(own) != label]


def main() -> int:
    """Compare and print."""
    equal, count, products, wrong = Counter(), Counter(), Counter(), Counter()
    for key, rows in recorded(*map(Path, sys.argv[1:2])).items():
        group = key[0], key[1].partition(">")[0]
        sizes = wrong_sizes(key, rows)
        equal[group] += not sizes
        count[group] += 1
        products[group] += len(rows)
        wrong[group] += len(sizes)
        if sizes:
            print(*key, "in other classes: m =", ", ".join(map(str, sizes)))
    for group, number in sorted(count.items()):
        share = 1 - wrong[group] / products[group]
        print(
            f"{group[0]} {group[1]:5} {equal[group]} of {number} weights have the library's partition; m: {share:.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
