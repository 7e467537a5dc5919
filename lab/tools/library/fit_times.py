r"""Fit what a library's kernels take to times of recorded GEMMs, as shares of what the chip could do at most.

    python lab/tools/library/fit_times.py FILE.csv.gz ... --sets seed1,blind,train1,train2 \
        --out configs/libraries/cublas-13.1.times
    python lab/tools/library/fit_times.py FILE.csv.gz ... --more --out configs/libraries/cublas-13.1.times \
        --sets calls1,calls2,default1,default2,compute2,calls3,calls4 --counted calls1,calls2
    python lab/tools/library/fit_times.py FILE.csv.gz --compare --sets blind6

A FILE, as in tests/golden/h200_library, has a row per GEMM: device, set, group, kind, a_layout, b_layout, batch, m, n,
k, kernels, us (median of a graph of replays), launch_us (of a GEMM of 16 cubed of the kind) and reductions (any: as
PyTorch's switches are by default; empty: compute). A launch is the shortest launch_us of a chip's set. For each kind of
kernel the numbers of hwsim.libraries.cublas.times.fitted_times are fitted by least absolute relative error; then, for
all, the trees. Writes OUT.csv and OUT.npz. --more keeps the numbers and the trees of OUT, and adds trees for what these
leave of the recorded GEMMs; its rows count those of --counted already. GEMMs with the same n and k are held out
together. --compare prints how far `hwsim.run(library=)` is off, and fits nothing. Needs scipy and lightgbm.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from scipy.optimize import nnls

import hwsim
from hwsim.devices.least_time import LeastTime
from hwsim.errors import HwsimError
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.cublas.times.fitted_times import Key, TimeRow, key_of, rows_of, with_factor
from hwsim.libraries.cublas.times.forest import LEAF, Forest, unpack
from hwsim.libraries.cublas.times.kernel_facts import ABOUT_A_LAUNCH_US, QUANTITIES, facts, quantities
from hwsim.libraries.gemm_call import PYTORCH, GemmCall
from hwsim.libraries.recording.gemm_list import parse
from hwsim.libraries.times import least_of

LEAST_GEMMS = 12
PARTS = 4  # of the recorded GEMMs, of which each is held out of a fit in turn
ROUNDS, LEAST_ERROR = 12, 0.01  # of least squares whose weights tend to least absolute errors
#: Of LightGBM. Each tree takes its splits from a part of the facts, so that no fact decides alone.
TREES = {
    "objective": "regression", "num_iterations": 400, "learning_rate": 0.08, "num_leaves": 31, "min_data_in_leaf": 6,
    "lambda_l2": 1.0, "feature_fraction": 0.6, "seed": 1, "deterministic": True, "force_row_wise": True,
    "num_threads": 1, "verbose": -1,
}  # fmt: skip
MORE = {  # of trees that are added
    "objective": "regression_l1", "num_iterations": 300, "learning_rate": 0.06, "min_data_in_leaf": 12,
    "feature_fraction": 0.3,
}  # fmt: skip
MOST_LEFT = 1.5  # a logarithm, beyond which hwsim's choice is another kernel than the library's
LEAST_US = 0.05  # beyond a launch
WEIGHT_OF_CALLS = 3.0  # of sets as programs in use make them, beside sets of drawn sizes
COLUMNS = (
    *("device", "set", "group", "kind", "a_layout", "b_layout", "batch", "m", "n", "k", "kernels", "us", "launch_us"),
    *("cold_us", "clock_mhz", "reductions"),
)
Row = dict[str, str]


@dataclass(frozen=True)
class Recorded:
    """A recorded GEMM: the call, hwsim's choice for it, and microseconds, of it with a launch and of a launch."""

    row: Row
    call: GemmCall
    choice: CublasChoice
    least: LeastTime
    cores: int
    us: float
    launch_us: float

    @property
    def key(self) -> Key:
        """The row of its kernels."""
        return key_of(self.choice, self.call)

    @property
    def weight(self) -> float:
        """Beside other GEMMs."""
        return WEIGHT_OF_CALLS if self.row.get("group") else 1.0

    @property
    def beyond_us(self) -> float:
        """Without a launch."""
        return max(self.us - self.launch_us, LEAST_US)


def gemm_call(row: Row) -> GemmCall:
    """The call of a row."""
    operand, output, fast, has_bias = parse(row["kind"])
    return GemmCall(
        **{name: int(row[name]) for name in "mnk"},
        format=operand,
        output=output,
        accumulate=None if fast is None else "fast" if fast else "promoted",
        a_layout=row.get("a_layout") or "rows",
        b_layout=row["b_layout"],
        batch=int(row.get("batch") or 1),
        bias=has_bias,
        reductions=row.get("reductions") or None,
        caller=PYTORCH,
    )


def run_of(row: Row) -> Any:
    """The same call by `hwsim.run`, cycles alone."""
    call = gemm_call(row)
    lead = [] if call.batch == 1 else [call.batch]
    options = {
        "format": call.format, "output": call.output, "accumulate": call.accumulate, "a_layout": call.a_layout,
        "b_layout": call.b_layout, "reductions": call.reductions,
    }  # fmt: skip
    if call.bias:
        options["bias"] = np.zeros(call.n, np.float32)
    dtype = {"fp64": np.float64, "int8": np.int8}.get(call.format, np.float32)
    if lead:
        a = np.broadcast_to(dtype(0), (*lead, call.m, call.k))
        b = np.broadcast_to(dtype(0), (*lead, call.k, call.n))
        return hwsim.run(a, b, device=row["device"], library="cublas", exact=False, threads=1, **options)
    sizes = {"m": call.m, "n": call.n, "k": call.k}
    return hwsim.run(device=row["device"], library="cublas", exact=False, threads=1, **options, **sizes)


def read(paths: Iterable[Path], sets: str) -> list[Row]:
    """Rows of files, of the sets that are named."""
    wanted, rows = sets.split(",") if sets else None, []
    for path in paths:
        with gzip.open(path, "rt") as file:
            rows += [row for row in csv.DictReader(file) if wanted is None or row["set"] in wanted]
    return rows


def launches(rows: list[Row]) -> dict[tuple[str, str], float]:
    """A launch by device and set."""
    least: dict[tuple[str, str], float] = {}
    for row in rows:
        place = row["device"], row["set"]
        least[place] = min(float(row["launch_us"]), least.get(place, np.inf))
    return least


def recorded(rows: list[Row]) -> list[Recorded]:
    """What hwsim's choice says of recorded GEMMs; those that the library refuses are left out."""
    of_launches, out = launches(rows), []
    chips = {name: (hwsim.device(name), hwsim.library("cublas", device=name)) for name in {x["device"] for x in rows}}
    for row in rows:
        (chip, library), call = chips[row["device"]], gemm_call(row)
        try:
            choice = library.choose(call)
        except HwsimError:
            continue
        assert isinstance(choice, CublasChoice)
        launch_us = of_launches[row["device"], row["set"]]
        out.append(Recorded(row, call, choice, least_of(chip, call), library.cores, float(row["us"]), launch_us))
    return out


def least_absolute(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The numbers, none negative, with about the least weighted sum of absolute errors."""
    scale = np.abs(x).max(0) + 1e-12
    scaled, now = x / scale, weight
    for _ in range(ROUNDS):
        numbers, _ = nnls(scaled * now[:, None], y * now, maxiter=2000)
        error = np.abs(scaled @ numbers - y) * weight
        now = weight / np.sqrt(np.maximum(error, LEAST_ERROR))
    return numbers / scale


Sums = dict[Key, np.ndarray]


def rows_fitted(gemms: list[Recorded]) -> Sums:
    """The numbers by kind of kernel."""
    groups: dict[Key, list[Recorded]] = defaultdict(list)
    for gemm in gemms:
        groups[gemm.key].append(gemm)
    sums = {}
    for key, of_key in groups.items():
        if len(of_key) >= LEAST_GEMMS:
            x = np.array([quantities(gemm.choice, gemm.call, gemm.cores, gemm.least) for gemm in of_key])
            y = np.array([gemm.beyond_us for gemm in of_key])
            weight = np.array([gemm.weight / gemm.us for gemm in of_key])
            sums[key] = least_absolute(x, y, weight)
    return sums


def summed(gemm: Recorded, sums: Sums) -> float | None:
    """Microseconds by the numbers alone; None where there are none for such a kernel."""
    key = gemm.key
    numbers = sums.get(key, sums.get((*key[:3], not key[3])))
    if numbers is None:
        return None
    point = quantities(gemm.choice, gemm.call, gemm.cores, gemm.least)
    return max(float(np.dot(point, numbers)), gemm.least.us)


def both(gemms: list[Recorded]) -> tuple[Sums, Forest]:
    """The numbers by kind of kernel, and the trees."""
    sums = rows_fitted(gemms)
    points, factors, weights = [], [], []
    for gemm in gemms:
        sum_us = summed(gemm, sums)
        if sum_us is not None:
            points.append(facts(gemm.choice, gemm.call, gemm.cores, gemm.least, sum_us))
            factors.append(np.log((gemm.beyond_us + ABOUT_A_LAUNCH_US) / (sum_us + ABOUT_A_LAUNCH_US)))
            weights.append(gemm.weight)
    return sums, grown(np.array(points, np.float32), np.array(factors), np.array(weights))


def predicted(gemm: Recorded, sums: Sums, forest: Forest) -> float:
    """Microseconds with a launch; nan where such a kernel was not recorded."""
    sum_us = summed(gemm, sums)
    if sum_us is None:
        return np.nan
    factor = np.exp(forest.at(facts(gemm.choice, gemm.call, gemm.cores, gemm.least, sum_us)))
    return max(with_factor(sum_us, factor), gemm.least.us) + gemm.launch_us


def grown(points: np.ndarray, factors: np.ndarray, weights: np.ndarray, **settings: Any) -> Forest:
    """Trees for logarithms of factors, by gradient boosting. settings: in place of TREES."""
    model = lightgbm.train(TREES | settings, lightgbm.Dataset(points, factors, weight=weights))
    features, thresholds, values, sizes = [], [], [], []
    for tree in model.dump_model()["tree_info"]:
        nodes = [tree["tree_structure"]]
        for node in nodes:  # breadth first
            if "split_feature" in node:
                nodes += [node["left_child"], node["right_child"]]
        sizes.append(len(nodes))
        features += [node.get("split_feature", LEAF) for node in nodes]
        thresholds += [node["threshold"] for node in nodes if "split_feature" in node]
        values += [node["leaf_value"] for node in nodes if "split_feature" not in node]
    return unpack(
        {
            "trees": np.array(sizes, np.uint16),
            "feature": np.array(features, np.uint8),
            "threshold": np.array(thresholds, np.float32),
            "value": np.array(values, np.float16),
        }
    )


def joined(first: Forest, second: Forest) -> Forest:
    """The trees of both."""
    shift = len(first.feature)
    return Forest(
        np.concatenate([first.feature, second.feature]),
        np.concatenate([first.threshold, second.threshold]),
        np.concatenate([first.left, second.left + shift]),
        np.concatenate([first.value, second.value]),
        np.concatenate([first.roots, second.roots + shift]),
    )


@dataclass(frozen=True)
class Point:
    """A recorded GEMM beside numbers and trees: its facts, microseconds by the numbers, the trees' logarithm."""

    gemm: Recorded
    facts: tuple[float, ...]
    sum_us: float
    logarithm: float

    def us(self, more: float = 0.0) -> float:
        """Microseconds without a launch. more: a logarithm by trees that are added."""
        return max(with_factor(self.sum_us, np.exp(self.logarithm + more)), self.gemm.least.us)

    def error(self, more: float = 0.0) -> float:
        """Relative, of the time with a launch."""
        return (self.us(more) + self.gemm.launch_us) / self.gemm.us - 1


def points_of(gemms: list[Recorded], sums: Sums, forest: Forest) -> list[Point]:
    """The GEMMs of whose kernels there are numbers."""
    points = []
    for gemm in gemms:
        sum_us = summed(gemm, sums)
        if sum_us is not None:
            values = facts(gemm.choice, gemm.call, gemm.cores, gemm.least, sum_us)
            points.append(Point(gemm, values, sum_us, forest.at(values)))
    return points


def more_trees(points: list[Point]) -> Forest:
    """Trees for what those before leave of the GEMMs."""
    values = np.array([point.facts for point in points], np.float32)
    left = [(point.gemm.beyond_us + ABOUT_A_LAUNCH_US) / (point.us() + ABOUT_A_LAUNCH_US) for point in points]
    weights = np.array([point.gemm.weight for point in points])
    return grown(values, np.clip(np.log(left), -MOST_LEFT, MOST_LEFT), weights, **MORE)


def part_of(gemm: Recorded, parts: int) -> int:
    """The part of a GEMM: the same for all with its n and k, as a layer of a model has them."""
    family = hashlib.md5(f"{gemm.call.n},{gemm.call.k}".encode(), usedforsecurity=False)
    return int(family.hexdigest(), 16) % parts


def write_more(gemms: list[Recorded], out: Path, parts: int, counted: Collection[str]) -> None:
    """Add trees to those of a file, and the GEMMs to its rows, less sets that these count. Prints the errors of each
    part by what was grown on the others.
    """
    rows = rows_of(f"{out.name}.csv")
    with np.load(out.with_name(out.name + ".npz")) as file:
        forest = unpack({key: file[key] for key in file.files})
    points = points_of(gemms, {key: np.array(row.numbers) for key, row in rows.items()}, forest)
    part = np.array([part_of(point.gemm, max(parts, 1)) for point in points])
    before = np.array([point.error() for point in points])
    after = before.copy()
    for number in range(parts):
        grew = more_trees([point for point, of in zip(points, part, strict=True) if of != number])
        for place in np.flatnonzero(part == number):
            after[place] = points[place].error(grew.at(points[place].facts))
    rows_by = [point.gemm.row for point in points]
    groups = np.array([f"{row['device']} {row.get('group') or 'sizes drawn'}" for row in rows_by])
    for group in sorted(set(groups)) if parts else []:
        for title, errors in (("before", before), ("held out", after)):
            report(f"{title}: {group}", errors[groups == group])
    grew = more_trees(points)
    np.savez_compressed(out.with_name(out.name + ".npz"), **joined(forest, grew).pack())
    new = [place for place, point in enumerate(points) if point.gemm.row["set"] not in counted]
    of_new = [points[place].gemm for place in new]
    write_rows({key: with_gemms(row, key, of_new, after[new]) for key, row in rows.items()}, out)
    print(f"{len(forest.roots)} trees, and {len(grew.roots)} new ones")


def with_gemms(row: TimeRow, key: Key, gemms: list[Recorded], errors: np.ndarray) -> TimeRow:
    """A row to whose times trees of recorded GEMMs were added. errors: relative, of each GEMM; held out of its fit."""
    places = [place for place, gemm in enumerate(gemms) if gemm.key == key and not np.isnan(errors[place])]
    if not places:
        return row
    of_key = [gemms[place] for place in places]
    count = row.gemms + len(places)
    return replace(
        row,
        gemms=count,
        mean_error=(row.mean_error * row.gemms + float(np.abs(errors[places]).sum())) / count,
        chips=tuple(sorted({*row.chips, *(gemm.row["device"] for gemm in of_key)})),
        batch_chips=tuple(sorted({*row.batch_chips, *(gemm.row["device"] for gemm in of_key if gemm.call.batch > 1)})),
    )


def held_out_errors(gemms: list[Recorded], parts: int) -> np.ndarray:
    """Relative errors of each part by what the others give; nan where these have no such kernel."""
    errors, part = np.full(len(gemms), np.nan), [part_of(gemm, max(parts, 1)) for gemm in gemms]
    for number in range(parts):
        sums, forest = both([gemm for gemm, of in zip(gemms, part, strict=True) if of != number])
        for place in np.flatnonzero(part == number):
            errors[place] = predicted(gemms[place], sums, forest) / gemms[place].us - 1
    return errors


def rows_with(gemms: list[Recorded], sums: Sums, errors: np.ndarray) -> dict[Key, TimeRow]:
    """Rows of numbers, with the GEMMs that they are fitted to."""
    rows = {key: TimeRow(tuple(numbers), 0, 0.0, (), ()) for key, numbers in sums.items()}
    return {key: with_gemms(row, key, gemms, errors) for key, row in rows.items()}


def write_rows(rows: dict[Key, TimeRow], out: Path) -> None:
    """Write the file of numbers."""
    with out.with_name(out.name + ".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = ["algorithm", "operand", "slices", "bias", *QUANTITIES, "gemms", "mean_error", "chips", "batch_chips"]
        writer.writerow(names)
        for (algorithm, operand, *flags), row in sorted(rows.items()):
            words = ["yes" if flag else "no" for flag in flags]
            texts = [f"{number:.5g}" for number in row.numbers]
            chips = [" ".join(row.chips), " ".join(row.batch_chips)]
            writer.writerow([algorithm, operand, *words, *texts, row.gemms, f"{row.mean_error:.3f}", *chips])


def report(title: str, errors: np.ndarray) -> None:
    """Print one line of errors."""
    size = np.abs(errors)
    wrong = int(((errors > 1) | (errors < -0.5)).sum())
    print(
        f"{title:44} {len(size):5} GEMMs: mean {100 * size.mean():5.1f} %, median {100 * np.median(size):5.1f} %, "
        f"mean signed {100 * errors.mean():+5.1f} %, by more than 2: {wrong}"
    )


def compare(rows: list[Row]) -> None:
    """Print the errors of `hwsim.run(library=)` by chip, group and kernel."""
    of_launches, errors = launches(rows), defaultdict(list)
    for row in rows:
        try:
            run = run_of(row)
        except HwsimError as error:
            print("refused:", row["kind"], row["m"], row["n"], row["k"], error)
            continue
        us = (run.seconds or 0.0) * 1e6 + of_launches[row["device"], row["set"]]
        error = us / float(row["us"]) - 1
        names = ("nvjet", "cutlass_75", "cutlass_80", "sm80_xmma", "sm90_xmma")
        named = next((name for name in names if name in row["kernels"]), "others")
        for group in ("all", f"kernels {named}", f"group {row['group']}" if row.get("group") else ""):
            if group:
                errors[row["device"], row["set"], group].append(error)
    for place, values in sorted(errors.items()):
        report(" ".join(place), np.array(values))


def rows_of_json(path: Path, device: str, set_name: str) -> list[Row]:
    """Rows of a file that lab/tools/measure_cublas_times.py wrote."""
    measured = json.loads(path.read_text())
    rows = []
    for entry in measured["entries"]:
        if "error" not in entry:
            launch = {"device": device, "set": set_name, "launch_us": measured["launches"][entry["kind"]]}
            is_any = measured["reduced_precision_reductions"] and parse(entry["kind"])[0] in ("fp16", "bf16")
            row = {**entry, **launch, "kernels": " + ".join(entry["kernels"])[:120]}
            row["reductions"] = "any" if is_any else ""
            rows.append({name: str(row.get(name, "")) for name in COLUMNS})
    return rows


def main() -> int:
    """Fit, compare, or turn a measured file into rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--sets", default="", help="only these sets of the files, with commas")
    parser.add_argument("--parts", type=int, default=PARTS, help="parts held out in turn; 0: no errors are found")
    parser.add_argument("--more", action="store_true", help="add trees to those of OUT")
    parser.add_argument("--counted", default="", help="with --more: sets that the rows of OUT count already")
    parser.add_argument("--rows", metavar="DEVICE,SET", help="FILE is measured JSON; write its rows to OUT.csv.gz")
    arguments = parser.parse_args()
    if arguments.rows:
        device, _, set_name = arguments.rows.partition(",")
        rows = [row for path in arguments.file for row in rows_of_json(path, device, set_name)]
        with gzip.open(arguments.out.with_name(arguments.out.name + ".csv.gz"), "wt", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return 0
    rows = read(arguments.file, arguments.sets)
    if arguments.compare:
        compare(rows)
        return 0
    if arguments.more:
        write_more(recorded(rows), arguments.out, arguments.parts, arguments.counted.split(","))
    else:
        write(recorded(rows), arguments.out, arguments.parts)
    return 0


def write(gemms: list[Recorded], out: Path, parts: int) -> None:
    """Fit, and write both files."""
    errors = held_out_errors(gemms, parts)
    for group in sorted({gemm.row.get("group") or "sizes drawn" for gemm in gemms} if parts else []):
        places = [i for i, gemm in enumerate(gemms) if (gemm.row.get("group") or "sizes drawn") == group]
        report(f"held out: {group}", errors[places][~np.isnan(errors[places])])
    sums, forest = both(gemms)
    write_rows(rows_with(gemms, sums, errors), out)
    np.savez_compressed(out.with_name(out.name + ".npz"), **forest.pack())
    print(f"{len(sums)} rows and {len(forest.roots)} trees from {len(gemms)} GEMMs")


if __name__ == "__main__":
    sys.exit(main())
