"""How often the answer for a weight of the same n and nearly the same k has the library's slices.

    python lab/tools/library/neighbours.py [FILE.npz]

FILE holds answers as `library=` takes them (lab/tools/library/pack_layers.py); by default those that ship. Each weight
is taken as if it had not been asked about and its neighbours stand for it
(hwsim/libraries/cublas/answers/neighbours.py), at the m of lab/tools/record/batch_classes.py. Per chip and kind of
call: right answers of two neighbours that agree, and of one, by its distance in tiles of K; and how many m change their
slices from one k to the next of the same n, where a whole span of K lies between them and where not. Spans, distances,
and the shares found so: `neighbours` of the version file (configs/libraries/cublas-13.1.version.yaml).
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import pairwise
from pathlib import Path

from compare_sweeps import SIZES

from hwsim.libraries.cublas.answers.neighbours import near
from hwsim.libraries.cublas.answers.sweeps import Sweep, read, shipped
from hwsim.libraries.cublas.calls import ELEMENT_BYTES, LINE_BYTES
from hwsim.libraries.cublas.orders.families import NVJET
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.model.version_model import NeighboursModel

MOST_APART = 512  # of two k that are compared, elements


def right_answers(known: NeighboursModel, sweep: Sweep, operand: str) -> Counter:
    """Answers and right ones by (neighbours, most tiles away; 0 of two): keys (..., "all") and (..., "right")."""
    found: Counter = Counter()
    for n, k in (divmod(int(key), 1 << 32) for key in sweep.keys):
        own = sweep.at(SIZES, n, k)
        for one, true in zip(near(known, sweep, operand, SIZES, n, k), own, strict=True):
            if one is None or true is None:
                continue
            away = next((most for most, _ in known.right.one if one.tiles <= most), known.span_tiles)
            key = one.neighbours, 0 if one.neighbours == 2 else away
            found[(*key, "all")] += 1
            found[(*key, "right")] += one.answer[:3] == true[:3]
    return found


def changes(known: NeighboursModel, sweep: Sweep, operand: str) -> Counter:
    """Pairs of neighbours in k and m, and those with other slices, by whether whole spans lie between."""
    span, found = known.span_tiles * LINE_BYTES // ELEMENT_BYTES[operand], Counter()
    for first, second in pairwise(divmod(int(key), 1 << 32) for key in sweep.keys):
        if first[0] != second[0] or second[1] - first[1] > MOST_APART or first[1] <= 2 * span:
            continue
        crosses = (first[1] - 1) // span != (second[1] - 1) // span
        for one, other in zip(*(sweep.at(SIZES, *weight) for weight in (first, second)), strict=True):
            if one is not None and other is not None and {one[0], other[0]} == {NVJET}:
                found[crosses, "all"] += 1
                found[crosses, "other"] += one[2] != other[2]
    return found


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    arguments = parser.parse_args()
    known = versions()[0].neighbours
    answers = shipped(versions()[0].layers) if arguments.file is None else read(arguments.file)
    for (device, kind), sweep in answers.by_kind.items():
        found = right_answers(known, sweep, kind.operand)
        if not found:
            continue
        said = []
        for neighbours, away in sorted({key[:2] for key in found}, reverse=True):
            right, count = (found[neighbours, away, name] for name in ("right", "all"))
            what = "two that agree" if neighbours == 2 else f"one within {away} tiles"
            said.append(f"{what} {right} of {count} ({right / count:.4f})")
        moved = changes(known, sweep, kind.operand)
        said += [
            f"slices change for {100 * moved[crosses, 'other'] / max(moved[crosses, 'all'], 1):.1f} % {where}"
            for crosses, where in ((False, "within a span"), (True, "across"))
        ]
        print(f"{device} {kind.text}: {'; '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
