r"""Fit what a library's kernels take to times of recorded GEMMs, as shares of what the chip could do at most.

    python lab/tools/library/fit_times.py FILE.csv.gz ... --out configs/libraries/cublas-13.1.times \
        --sets \
        seed1,blind,blind2,blind3,train1,train2,calls1,calls2,default1,default2,compute2,calls3,calls4,calls5,calls6,\
        calls7,calls8,calls9
    python lab/tools/library/fit_times.py FILE.csv.gz --compare --sets blind6

A FILE, as in tests/golden/h200_library, has a row per GEMM: device, set, group, kind, a_layout, b_layout, batch, m, n,
k, kernels, us (median of a graph of replays), launch_us (of a GEMM of 16 cubed of the kind), clock_mhz, reductions
(any: as PyTorch's switches are by default; empty: compute) and perhaps us_of_places (with operands at several
addresses; the fit takes their median). A launch is the shortest launch_us of a chip's set. For each kind of kernel the
numbers of hwsim.libraries.cublas.times.fitted_times are fitted by least absolute relative error; then, for all,
networks. Writes OUT.npz and OUT.csv; rows of OUT.csv for kernels of which too few GEMMs are given stay. GEMMs with the
same n and k are held out together. Of GEMMs without a group, whose sizes were drawn, a part is taken. GEMMs at a low
clock are left out, but for long ones that may lower it themselves. --compare prints how far `hwsim.run(library=)` is
off, and fits nothing. Needs scipy and PyTorch.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from settled_clock import highest_clocks, is_settled

import hwsim
from hwsim.devices.least_time import LeastTime
from hwsim.errors import HwsimError
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.cublas.times.factor import MOST_LOGARITHM, factor_at
from hwsim.libraries.cublas.times.fitted_times import Key, TimeRow, key_of, rows_of, with_factor
from hwsim.libraries.cublas.times.kernel_facts import ABOUT_A_LAUNCH_US, FACTS, QUANTITIES, facts, quantities
from hwsim.libraries.cublas.times.network import EQUAL, LEAST, LOGARITHM, LOGARITHM_RAMP, PLAIN, RAMP, Networks
from hwsim.libraries.gemm_call import PYTORCH, GemmCall
from hwsim.libraries.recording.gemm_list import parse
from hwsim.libraries.times import least_of

LEAST_GEMMS = 8  # of a row
PARTS = 4  # of the recorded GEMMs, of which each is held out of a fit in turn
ROUNDS, LEAST_ERROR = 12, 0.01  # of least squares whose weights tend to least absolute errors
NETWORKS, WIDTH = 5, 192  # how many, and numbers between layers
EPOCHS, TOGETHER, RATE, DECAY, WARM, DROPOUT = 40, 512, 6e-3, 0.1, 0.1, 0.1  # of their training
RAMPS = 5  # of a number that has as many values or more, each over an equal share of the recorded GEMMs
ABSOLUTE = 0.03  # a logarithm, beyond which an error counts as its absolute value
CATEGORIES = ("algorithm", "format")  # facts that are names
SPREAD = 4.0  # a fact without negative values that exceeds it is given as its logarithm
LEAST_US = 0.05  # beyond a launch
OWN_SHARE, OWN_US = 0.5, 100.0  # a call may lower the clock itself whose products take so much of it, and as long
SHARE_OF_DRAWN = 0.3  # of GEMMs without a group
WEIGHT_OF_CALLS = 8.0  # of sets as programs in use make them, beside sets of drawn sizes
COLUMNS = (
    *("device", "set", "group", "kind", "a_layout", "b_layout", "batch", "m", "n", "k", "kernels", "us", "launch_us"),
    *("cold_us", "clock_before_mhz", "clock_mhz", "reductions", "us_of_places"),
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
    def lowers_clock(self) -> bool:
        """Whether the call may lower the clock itself."""
        return self.us > OWN_US and self.least.products_us > OWN_SHARE * self.beyond_us

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
    """What hwsim's choice says of recorded GEMMs; left out are those that the library refuses, and those whose clock
    was low (settled_clock.py) though their own load is small.
    """
    of_launches, highest, out = launches(rows), highest_clocks(rows), []
    chips = {name: (hwsim.device(name), hwsim.library("cublas", device=name)) for name in {x["device"] for x in rows}}
    for row in rows:
        (chip, library), call = chips[row["device"]], gemm_call(row)
        try:
            choice = library.choose(call)
        except HwsimError:
            continue
        assert isinstance(choice, CublasChoice)
        launch_us = of_launches[row["device"], row["set"]]
        places = [float(us) for us in (row.get("us_of_places") or row["us"]).split()]
        gemm = Recorded(row, call, choice, least_of(chip, call), library.cores, median(places), launch_us)
        if gemm.lowers_clock or is_settled(row, highest):
            out.append(gemm)
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


def rows_fitted(gemms: list[Recorded], least: int = LEAST_GEMMS) -> Sums:
    """The numbers by kind of kernel, of which there are at least so many GEMMs."""
    groups: dict[Key, list[Recorded]] = defaultdict(list)
    for gemm in gemms:
        groups[gemm.key].append(gemm)
    sums = {}
    for key, of_key in groups.items():
        if len(of_key) >= least:
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


def both(gemms: list[Recorded], count: int = NETWORKS) -> tuple[Sums, Networks]:
    """The numbers by kind of kernel, and networks for the factor. count: how many are trained."""
    sums = rows_fitted(gemms)
    points, factors, weights = [], [], []
    for gemm in gemms:
        sum_us = summed(gemm, sums)
        if sum_us is not None:
            points.append(facts(gemm.choice, gemm.call, gemm.cores, gemm.least, sum_us))
            factors.append(np.log((gemm.beyond_us + ABOUT_A_LAUNCH_US) / (sum_us + ABOUT_A_LAUNCH_US)))
            weights.append(gemm.weight)
    logarithms = np.clip(factors, -MOST_LOGARITHM, MOST_LOGARITHM)
    given = np.array(points), logarithms, np.array(weights)
    return sums, trained(*given, count)


def predicted(gemm: Recorded, sums: Sums, networks: Networks) -> float:
    """Microseconds with a launch; nan where such a kernel was not recorded."""
    sum_us = summed(gemm, sums)
    if sum_us is None:
        return np.nan
    factor = factor_at(networks, facts(gemm.choice, gemm.call, gemm.cores, gemm.least, sum_us))
    return max(with_factor(sum_us, factor), gemm.least.us) + gemm.launch_us


def scaling(points: np.ndarray) -> list[tuple[int, int, float, float]]:
    """Inputs of networks for such points: place, kind, shift and scale of each."""
    inputs = []
    for place, (name, values) in enumerate(zip(FACTS, points.T, strict=True)):
        if name in CATEGORIES:
            inputs += [(place, EQUAL, value, 1.0) for value in sorted(set(values.tolist()))]
            continue
        kind = LOGARITHM if values.min() >= 0 and values.max() > SPREAD else PLAIN
        scaled = np.log(np.maximum(values, LEAST)) if kind == LOGARITHM else values
        if scaled.std() > LEAST:
            inputs.append((place, kind, scaled.mean(), 1 / scaled.std()))
            inputs += ramps(place, LOGARITHM_RAMP if kind == LOGARITHM else RAMP, scaled)
    return inputs


def ramps(place: int, kind: int, values: np.ndarray) -> list[tuple[int, int, float, float]]:
    """Inputs that rise over one part of the values each; none where there are too few parts."""
    ends = np.quantile(values, np.linspace(0, 1, RAMPS + 1)).tolist()
    parts = [(low, high) for low, high in pairwise(ends) if high - low > LEAST]
    return [(place, kind, low, 1 / (high - low)) for low, high in parts] if len(parts) > 1 else []


def trained(points: np.ndarray, logarithms: np.ndarray, weights: np.ndarray, count: int) -> Networks:
    """Networks for logarithms of factors, of different first weights."""
    number, kind, shift, scale = (np.array(column) for column in zip(*scaling(points), strict=True))
    kinds = number.astype(np.uint8), kind.astype(np.uint8), shift.astype(np.float32), scale.astype(np.float32)
    inputs = Networks(*kinds, (), ()).inputs(points)
    given = [torch.tensor(array, dtype=torch.float32) for array in (inputs, logarithms, weights / weights.mean())]
    torch.set_num_threads(1)
    models = [one_trained(*given, seed) for seed in range(count)]
    layers = [[layer for layer in model if isinstance(layer, torch.nn.Linear)] for model in models]
    stacked = []
    for of_layer in zip(*layers, strict=True):
        matrices = [layer.weight.detach().numpy().T for layer in of_layer]
        biases = [layer.bias.detach().numpy()[None] for layer in of_layer]
        stacked.append((np.stack(matrices), np.stack(biases)))
    return Networks(*kinds, tuple(x for x, _ in stacked), tuple(x for _, x in stacked))


def one_trained(inputs: torch.Tensor, wanted: torch.Tensor, weights: torch.Tensor, seed: int) -> torch.nn.Sequential:
    """One network, by AdamW with a rate that rises and falls once."""
    torch.manual_seed(seed)
    sizes = (inputs.shape[1], WIDTH, WIDTH, 1)
    linear = [torch.nn.Linear(*pair) for pair in pairwise(sizes)]
    between = [layer for one in linear[:-1] for layer in (one, torch.nn.SiLU(), torch.nn.Dropout(DROPOUT))]
    model = torch.nn.Sequential(*between, linear[-1])
    steps = max(len(wanted) // TOGETHER, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * steps, pct_start=WARM)
    for _ in range(EPOCHS):
        order = torch.randperm(len(wanted))
        for step in range(steps):
            some = order[step * TOGETHER : (step + 1) * TOGETHER]
            errors = torch.nn.functional.smooth_l1_loss(
                model(inputs[some])[:, 0], wanted[some], beta=ABSOLUTE, reduction="none"
            )
            optimizer.zero_grad()
            (errors * weights[some]).mean().backward()
            optimizer.step()
            rates.step()
    return model


def is_taken(row: Row) -> bool:
    """Whether a fit takes a row: all of programs' calls, a part of drawn sizes."""
    return bool(row.get("group")) or digest(",".join(row[x] for x in "mnk")) % 1000 < 1000 * SHARE_OF_DRAWN


def digest(text: str) -> int:
    """The same number for a text on each host."""
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16)


def part_of(gemm: Recorded, parts: int) -> int:
    """The part of a GEMM: the same for all with its n and k, as a layer of a model has them."""
    return digest(f"{gemm.call.n},{gemm.call.k}") % parts


def with_gemms(row: TimeRow, key: Key, gemms: list[Recorded], errors: np.ndarray) -> TimeRow:
    """A row with the GEMMs that its numbers are fitted to. errors: relative, of each GEMM; held out of its fit."""
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
    """Relative errors of each part by what the others give, with one network; nan where these have no such kernel."""
    errors, part = np.full(len(gemms), np.nan), np.array([part_of(gemm, max(parts, 1)) for gemm in gemms])
    for number in range(parts):
        sums, networks = both([gemm for gemm, of in zip(gemms, part, strict=True) if of != number], 1)
        for place in np.flatnonzero(part == number):
            errors[place] = predicted(gemms[place], sums, networks) / gemms[place].us - 1
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
            row["us_of_places"] = " ".join(map(str, entry.get("us_of_places", [])))
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
    write(recorded([row for row in rows if is_taken(row)]), arguments.out, arguments.parts)
    return 0


def report_groups(gemms: list[Recorded], errors: np.ndarray) -> None:
    """Print the errors of GEMMs that were held out, by chip and group."""
    groups = np.array([f"{gemm.row['device']} {gemm.row.get('group') or 'sizes drawn'}" for gemm in gemms])
    for group in sorted(set(groups[~np.isnan(errors)])):
        report(f"held out: {group}", errors[(groups == group) & ~np.isnan(errors)])


def write(gemms: list[Recorded], out: Path, parts: int) -> None:
    """Fit, and write both files."""
    errors = held_out_errors(gemms, parts)
    report_groups(gemms, errors)
    sums, networks = both(gemms)
    before = rows_of(f"{out.name}.csv") if out.with_name(f"{out.name}.csv").exists() else {}
    write_rows(before | rows_with(gemms, sums, errors), out)
    np.savez_compressed(out.with_name(out.name + ".npz"), **networks.pack())
    print(f"{len(sums)} rows and {NETWORKS} networks from {len(gemms)} GEMMs")


if __name__ == "__main__":
    sys.exit(main())
