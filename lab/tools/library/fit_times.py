r"""Fit what a library's kernels take to times of recorded GEMMs, as shares of what the chip could do at most.

    python lab/tools/library/fit_times.py FILE.csv.gz ... --sets seed1,blind,train1,train2 \
        --out configs/libraries/cublas-13.1.times
    python lab/tools/library/fit_times.py FILE.csv.gz ... --sets default1,default2,compute2,calls1,calls2 --more \
        --out configs/libraries/cublas-13.1.times
    python lab/tools/library/fit_times.py FILE.csv.gz --compare --sets blind6

A FILE, as in tests/golden/h200_library, has a row per GEMM: device, set, group, kind, a_layout, b_layout, batch, m, n,
k, kernels, us (median of a graph of replays), launch_us (of a GEMM of 16 cubed of the kind) and reductions (any: as
PyTorch's switches are by default; empty: compute). A launch is the shortest launch_us of a chip's set. For each kind of
kernel the numbers of hwsim.libraries.cublas.times.fitted_times are fitted by least absolute relative error; then, for
all, the trees. Writes OUT.csv and OUT.npz. 50,000 GEMMs take half an hour on a core. --more keeps the numbers and the
trees of OUT, and adds trees for what these leave of the recorded GEMMs. --compare prints how far `hwsim.run(library=)`
is off, and fits nothing. Needs scipy and scikit-learn.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.ensemble import HistGradientBoostingRegressor

import hwsim
from hwsim.devices.least_time import LeastTime
from hwsim.errors import HwsimError
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.cublas.times.fitted_times import Key, key_of, rows_of, with_factor
from hwsim.libraries.cublas.times.forest import LEAF, Forest, unpack
from hwsim.libraries.cublas.times.kernel_facts import ABOUT_A_LAUNCH_US, QUANTITIES, facts, quantities
from hwsim.libraries.gemm_call import PYTORCH, GemmCall
from hwsim.libraries.recording.gemm_list import parse
from hwsim.libraries.times import least_of

LEAST_GEMMS = 12
PARTS = 4  # of the recorded GEMMs, of which each is held out of a fit in turn
ROUNDS, LEAST_ERROR = 12, 0.01  # of least squares whose weights tend to least absolute errors
TREES = {"max_iter": 400, "learning_rate": 0.08, "max_leaf_nodes": 31, "min_samples_leaf": 6, "l2_regularization": 1}
MORE = {"max_iter": 100, "min_samples_leaf": 12}  # of trees that are added
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
    model = HistGradientBoostingRegressor(random_state=1, early_stopping=False, **TREES | settings)
    model.fit(points, factors, sample_weight=weights)
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


def more_trees(gemms: list[Recorded], sums: Sums, forest: Forest, chosen: np.ndarray) -> Forest:
    """The forest, and trees for what it leaves of the chosen GEMMs."""
    points, factors, weights = [], [], []
    for gemm in (gemms[place] for place in np.flatnonzero(chosen)):
        sum_us = summed(gemm, sums)
        if sum_us is None:
            continue
        point = facts(gemm.choice, gemm.call, gemm.cores, gemm.least, sum_us)
        before = max(with_factor(sum_us, np.exp(forest.at(point))), gemm.least.us)
        points.append(point)
        factors.append(np.log((gemm.beyond_us + ABOUT_A_LAUNCH_US) / (before + ABOUT_A_LAUNCH_US)))
        weights.append(gemm.weight)
    grew = grown(np.array(points, np.float32), np.clip(factors, -MOST_LEFT, MOST_LEFT), np.array(weights), **MORE)
    return joined(forest, grew)


def write_more(gemms: list[Recorded], out: Path, parts: int) -> None:
    """Add trees to those of a file. Prints the errors of each part by what was grown on the others."""
    sums = {key: np.array(row.numbers) for key, row in rows_of(f"{out.name}.csv").items()}
    with np.load(out.with_name(out.name + ".npz")) as file:
        forest = unpack({key: file[key] for key in file.files})
    part = np.random.default_rng(0).integers(0, max(parts, 1), len(gemms))
    groups = np.array([gemm.row.get("group") or "sizes drawn" for gemm in gemms])
    us = np.array([gemm.us for gemm in gemms])
    before = np.array([predicted(gemm, sums, forest) for gemm in gemms]) / us - 1
    after = before.copy()
    for number in range(parts):
        grew = more_trees(gemms, sums, forest, part != number)
        for place in np.flatnonzero(part == number):
            after[place] = predicted(gemms[place], sums, grew) / us[place] - 1
    known = ~np.isnan(before)
    for group in sorted(set(groups)) if parts else []:
        for title, errors in (("before", before), ("held out", after)):
            report(f"{title}: {group}", errors[known & (groups == group)])
    grew = more_trees(gemms, sums, forest, np.ones(len(gemms), bool))
    np.savez_compressed(out.with_name(out.name + ".npz"), **grew.pack())
    print(f"{len(grew.roots)} trees, {len(grew.roots) - len(forest.roots)} of them new")


def held_out_errors(gemms: list[Recorded], parts: int) -> np.ndarray:
    """Relative errors of each part by what the others give; nan where these have no such kernel."""
    errors, part = np.full(len(gemms), np.nan), np.arange(len(gemms)) % max(parts, 1)
    for number in range(parts):
        sums, forest = both([gemm for gemm, of in zip(gemms, part, strict=True) if of != number])
        for place in np.flatnonzero(part == number):
            errors[place] = predicted(gemms[place], sums, forest) / gemms[place].us - 1
    return errors


def lines_of(gemms: list[Recorded], sums: Sums, errors: np.ndarray) -> list[list[object]]:
    """Lines of the file of numbers."""
    lines: list[list[object]] = []
    places_of: dict[Key, list[int]] = defaultdict(list)
    for place, gemm in enumerate(gemms):
        places_of[gemm.key].append(place)
    for key, numbers in sorted(sums.items()):
        places = places_of[key]
        known = errors[places][~np.isnan(errors[places])]
        mean = float(np.abs(known).mean()) if len(known) else 1.0
        chips = sorted({gemms[place].row["device"] for place in places})
        batch_chips = sorted({gemms[place].row["device"] for place in places if gemms[place].call.batch > 1})
        algorithm, operand, sliced, has_bias = key
        texts = [f"{number:.5g}" for number in numbers]
        words = ["yes" if sliced else "no", "yes" if has_bias else "no"]
        lines.append(
            [algorithm, operand, *words, *texts, len(places), f"{mean:.3f}", " ".join(chips), " ".join(batch_chips)]
        )
    return lines


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
    (write_more if arguments.more else write)(recorded(rows), arguments.out, arguments.parts)
    return 0


def write(gemms: list[Recorded], out: Path, parts: int) -> None:
    """Fit, and write both files."""
    errors = held_out_errors(gemms, parts)
    for group in sorted({gemm.row.get("group") or "sizes drawn" for gemm in gemms} if parts else []):
        places = [i for i, gemm in enumerate(gemms) if (gemm.row.get("group") or "sizes drawn") == group]
        report(f"held out: {group}", errors[places][~np.isnan(errors[places])])
    sums, forest = both(gemms)
    with out.with_name(out.name + ".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = ["algorithm", "operand", "slices", "bias", *QUANTITIES, "gemms", "mean_error", "chips", "batch_chips"]
        writer.writerow(names)
        writer.writerows(lines_of(gemms, sums, errors))
    np.savez_compressed(out.with_name(out.name + ".npz"), **forest.pack())
    print(f"{len(sums)} rows and {len(forest.roots)} trees from {len(gemms)} GEMMs")


if __name__ == "__main__":
    sys.exit(main())
