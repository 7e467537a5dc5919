r"""Fit what a library's kernels take beside their program to times of recorded GEMMs.

    python lab/tools/library/fit_times.py FILE.csv.gz --sets seed1,blind,train1,train2 \
        --out configs/libraries/cublas-13.1.times
    python lab/tools/library/fit_times.py FILE.csv.gz --compare --sets blind2

FILE, as tests/golden/h200_library/times.csv.gz, has a row per GEMM: device, set, kind, b_layout, m, n, k, kernels, us
(median of a graph of replays) and launch_us (of a GEMM of 16 cubed of the kind). For each chip, algorithm, operands'
format, and with or without slices of K, the numbers of hwsim.libraries.cublas.times.fitted_times are fitted by least
absolute relative error; then, for each chip, the trees of the factor. A launch is the median of a kind's in all sets.
Writes OUT.csv and OUT.npz. 34,000 GEMMs take an hour on 2 cores. --compare prints how far `hwsim.run(library=)` is off,
and fits nothing. Needs scipy and scikit-learn.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from compare_cycles import asked
from scipy.optimize import linprog
from sklearn.ensemble import HistGradientBoostingRegressor

import hwsim
from hwsim.errors import HwsimError
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.cublas.times.fitted_times import (
    ABOUT_A_LAUNCH_US,
    ANY,
    QUANTITIES,
    Key,
    facts,
    key_of,
    quantities,
    with_factor,
)
from hwsim.libraries.cublas.times.forest import LEAF, Forest, unpack
from hwsim.libraries.gemm_call import PYTORCH, GemmCall

LEAST_GEMMS = 6
PARTS = 4  # of the recorded GEMMs, of which each is held out of a fit in turn
TREES = {"max_iter": 400, "learning_rate": 0.08, "max_leaf_nodes": 31, "min_samples_leaf": 8, "l2_regularization": 1}
LEAST_US = 0.4  # of a launch and what is beyond it
Row = dict[str, str]


def estimated(device: str, call: dict[str, object]) -> float:
    """Microseconds without the library, as `hwsim.run(library=)` has them; 0 where there are none."""
    given = {name: value for name, value in call.items() if name != "accumulate"}
    try:
        return (hwsim.run(device=device, exact=False, split_k="auto", threads=1, **given).seconds or 0.0) * 1e6
    except HwsimError:
        return 0.0


@dataclass(frozen=True)
class Simulated:
    """What hwsim knows of a recorded GEMM. seconds: as it gives them now."""

    key: Key
    quantities: tuple[float, ...]
    choice: CublasChoice
    seconds: float


def simulated(row: Row) -> Simulated | str:
    """Of a recorded GEMM; why not, where the library refuses it."""
    call = asked(row)
    try:
        run = hwsim.run(device=row["device"], library="cublas", exact=False, threads=1, **call)
    except HwsimError as error:
        return repr(error)
    library = hwsim.library("cublas", device=row["device"])
    choice = library.choose(GemmCall(**call, caller=PYTORCH))
    clocked = run.times.chip
    program_us = 0.0 if clocked is None or run.cycles is None else run.cycles / clocked.clock_mhz
    estimate_us = estimated(row["device"], call)
    found = quantities(choice, GemmCall(**call), library.cores, program_us, estimate_us)
    return Simulated(key_of(choice), found, choice, run.seconds or 0.0)


def least_absolute(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The numbers with the least weighted sum of absolute errors; all but the first at least 0."""
    rows, columns = x.shape
    cost = np.concatenate([np.zeros(columns), weight, weight])
    bounds = [(None, None)] + [(0, None)] * (columns - 1 + 2 * rows)
    found = linprog(cost, A_eq=np.hstack([x, np.eye(rows), -np.eye(rows)]), b_eq=y, bounds=bounds, method="highs")
    return found.x[:columns]


def main() -> int:
    """Fit, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--sets", default="", help="only these sets of the file, with commas")
    arguments = parser.parse_args()
    with gzip.open(arguments.file, "rt") as file:
        wanted = arguments.sets.split(",") if arguments.sets else None
        rows = [row for row in csv.DictReader(file) if wanted is None or row["set"] in wanted]
    rows = [row for row in rows if "bias" not in row["kind"]]
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(simulated, rows, chunksize=16))
    if arguments.compare:
        compare(rows, found)
        return 0
    numbers, forests = fitted(rows, found)
    with arguments.out.with_name(arguments.out.name + ".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["device", "algorithm", "operand", "slices", *QUANTITIES, "gemms", "mean_error"])
        writer.writerows(numbers)
    packed = {f"{device}/{name}": x for device, forest in forests.items() for name, x in forest.pack().items()}
    np.savez_compressed(arguments.out.with_name(arguments.out.name + ".npz"), **packed)
    print(f"{len(numbers)} rows and {len(forests)} forests from {len(rows)} GEMMs")
    return 0


def fitted(rows: list[Row], found: list[Simulated | str]) -> tuple[list[list[object]], dict[str, Forest]]:
    """Lines of the file of numbers, and trees by chip."""
    pairs = [(row, one) for row, one in zip(rows, found, strict=True) if isinstance(one, Simulated)]
    launches: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row, _ in pairs:
        launches[row["device"], row["kind"]][row["set"]] = float(row["launch_us"])
    lines, forests = [], {}
    for device in sorted({row["device"] for row, _ in pairs}):
        own = [(row, one) for row, one in pairs if row["device"] == device]
        us = np.array([float(row["us"]) for row, _ in own])
        launch = np.array([np.median(list(launches[device, row["kind"]].values())) for row, _ in own])
        part, error = np.arange(len(own)) % PARTS, np.zeros(len(own))
        for number in range(PARTS):
            sums, forest = both(own, us, launch, part != number)
            for place in np.flatnonzero(part == number):
                beyond = predicted(*own[place], sums, forest)
                error[place] = abs((beyond + launch[place]) / us[place] - 1)
        sums, forests[device] = both(own, us, launch, part >= 0)
        for (algorithm, operand, sliced), numbers in sorted(sums.items()):
            places = [
                i for i, (_, one) in enumerate(own)
                if (one.key[0], one.key[2]) == (algorithm, sliced) and operand in (ANY, one.key[1])
            ]  # fmt: skip
            texts = [f"{number:.5g}" for number in numbers]
            mean = f"{error[places].mean():.3f}"
            lines.append([device, algorithm, operand, "yes" if sliced else "no", *texts, len(places), mean])
    return lines, forests


Sums = dict[Key, np.ndarray]


def both(
    own: list[tuple[Row, Simulated]], us: np.ndarray, launch: np.ndarray, known: np.ndarray
) -> tuple[Sums, Forest]:
    """The numbers by key, and the trees of the factor, fitted to the known ones of a chip's GEMMs."""
    groups = defaultdict(list)
    for place in np.flatnonzero(known):
        key = own[place][1].key
        groups[key].append(place)
        groups[key[0], ANY, key[2]].append(place)
    sums = {}
    for (algorithm, operand, sliced), places in groups.items():
        formats = {key[1] for key in groups if (key[0], key[2]) == (algorithm, sliced)}
        if len(places) < LEAST_GEMMS or (operand == ANY and len(formats) == 2):
            continue
        x = np.array([own[place][1].quantities for place in places])
        sums[algorithm, operand, sliced] = least_absolute(x, us[places] - launch[places], 1 / us[places])
    points, factors = [], []
    for place in np.flatnonzero(known):
        row, one = own[place]
        sum_us = summed(one, sums)
        if sum_us is not None:
            points.append(point(row, one, sum_us))
            total = max(us[place] - launch[place] + ABOUT_A_LAUNCH_US, LEAST_US)
            factors.append(np.log(total / (sum_us + ABOUT_A_LAUNCH_US)))
    return sums, grown(np.array(points, np.float32), np.array(factors))


def summed(one: Simulated, sums: Sums) -> float | None:
    """Microseconds by the numbers alone; None where there are none for such a kernel."""
    numbers = sums.get(one.key, sums.get((one.key[0], ANY, one.key[2])))
    return None if numbers is None else max(float(np.dot(one.quantities, numbers)), 0.0)


def point(row: Row, one: Simulated, sum_us: float) -> tuple[float, ...]:
    """What the trees split on."""
    also = facts(one.choice, GemmCall(**asked(row)), sum_us)
    return (*one.quantities, *also)


def predicted(row: Row, one: Simulated, sums: Sums, forest: Forest) -> float:
    """Microseconds beyond a launch; those of the program where such a kernel was not recorded."""
    sum_us = summed(one, sums)
    if sum_us is None:
        return one.quantities[QUANTITIES.index("program_us")]
    return with_factor(forest, point(row, one, sum_us), sum_us)


def grown(points: np.ndarray, factors: np.ndarray) -> Forest:
    """Trees for logarithms of factors, by gradient boosting of absolute errors."""
    model = HistGradientBoostingRegressor(loss="absolute_error", random_state=1, **TREES).fit(points, factors)
    features, thresholds, values, sizes = [], [], [], []
    for (tree,) in model._predictors:  # scikit-learn has no public form of its trees
        order = [0]
        for index in order:  # breadth first
            node = tree.nodes[index]
            if not node["is_leaf"]:
                order += [int(node["left"]), int(node["right"])]
        sizes.append(len(order))
        for node in tree.nodes[order]:
            features.append(LEAF if node["is_leaf"] else int(node["feature_idx"]))
            thresholds.append(float(node["num_threshold"]))
            values.append(float(node["value"]))
    features, sizes = [LEAF, *features], [1, *sizes]  # where boosting began
    values, thresholds = [float(np.ravel(model._baseline_prediction)[0]), *values], [0.0, *thresholds]
    inner = np.array(features) != LEAF
    return unpack(
        {
            "trees": np.array(sizes, np.uint16),
            "feature": np.array(features, np.uint8),
            "threshold": np.array(thresholds, np.float32)[inner],
            "value": np.array(values, np.float16)[~inner],
        }
    )


def compare(rows: list[Row], found: list[Simulated | str]) -> None:
    """Print the errors by chip and kind of kernel."""
    errors = defaultdict(list)
    for row, one in zip(rows, found, strict=True):
        if isinstance(one, str):
            print("refused:", row["kind"], row["m"], row["n"], row["k"], one)
            continue
        error = (one.seconds * 1e6 + float(row["launch_us"])) / float(row["us"]) - 1
        large = int(row["m"]) * int(row["n"]) * int(row["k"]) >= 2**30
        kernels = row["kernels"]
        named = next(
            (x for x in ("nvjet", "cutlass_75", "cutlass_80", "sm80_xmma", "sm90_xmma") if x in kernels), "others"
        )
        for group in ("all", named, f"{named} m n k >= 2^30" if large else "", "int8" if "int8" in row["kind"] else ""):
            if group:
                errors[row["device"], row["set"], group].append(error)
    for (device, name, group), values in sorted(errors.items()):
        size = np.abs(values)
        print(
            f"{device} {name:8} {group:24} {len(size):5} GEMMs: mean {100 * size.mean():5.1f} %, "
            f"median {100 * np.median(size):5.1f} %, mean signed {100 * np.mean(values):+5.1f} %"
        )


if __name__ == "__main__":
    sys.exit(main())
