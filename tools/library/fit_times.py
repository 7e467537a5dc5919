"""Fit what a library's kernels take beside their program to times of recorded GEMMs.

    python tools/library/fit_times.py FILE.csv.gz --sets seed1,blind --out configs/libraries/cublas-13.1.times.csv
    python tools/library/fit_times.py FILE.csv.gz --compare --sets blind2

FILE, as tests/golden/h200_library/times.csv.gz, has a row per GEMM: device, set, kind, b_layout, m, n, k, kernels, us
(median of a graph of replays) and launch_us (of a GEMM of 16 cubed of the kind). For each chip, algorithm, operands'
format, and with or without slices of K, the numbers of hwsim.library_calls.times are fitted by least absolute relative
error. --compare prints how far `hwsim.run(library=)` is off, and fits nothing. Needs scipy.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

import hwsim
from hwsim.errors import HwsimError
from hwsim.library_calls.times import ANY, QUANTITIES, key_of, quantities
from hwsim.recording.gemm_list import parse
from hwsim.resolve.library_call import EpilogueUse, library_call

LEAST_GEMMS = 6
Row = dict[str, str]


def asked(row: Row) -> dict[str, object]:
    """The GEMM as a keyword call of hwsim."""
    operand, output, fast, _ = parse(row["kind"])
    accumulate = {} if fast is None else {"accumulate": "fast" if fast else "promoted"}
    sizes = {name: int(row[name]) for name in "mnk"}
    return {"format": operand, "output": output, "b_layout": row["b_layout"], **accumulate, **sizes}


def estimated(device: str, call: dict[str, object]) -> float:
    """Microseconds without the library, as `hwsim.run(library=)` has them; 0 where there are none."""
    given = {name: value for name, value in call.items() if name != "accumulate"}
    try:
        return (hwsim.run(device=device, exact=False, split_k="auto", threads=1, **given).seconds or 0.0) * 1e6
    except HwsimError:
        return 0.0


def simulated(row: Row) -> tuple[object, tuple[float, ...], float]:
    """Key and quantities of a GEMM, and the seconds that hwsim gives now."""
    call = asked(row)
    try:
        run = hwsim.run(device=row["device"], library="cublas", exact=False, threads=1, **call)
    except HwsimError as error:
        return None, (), repr(error)
    sizes = call["m"], call["n"], call["k"]
    chip = hwsim.device(row["device"])
    found = library_call(
        "cublas", chip, sizes, format=call["format"], output=call["output"], accumulate=call.get("accumulate"),
        layouts=("rows", call["b_layout"]), batch=1, epilogue=EpilogueUse(),
    )  # fmt: skip
    clocked = run.times.chip
    program_us = 0.0 if clocked is None or run.cycles is None else run.cycles / clocked.clock_mhz
    operand, output = call["format"], call["output"]
    estimate_us = estimated(row["device"], call)
    found = quantities(found.choice, sizes, operand, output, chip.cores, program_us, estimate_us), found.choice
    return key_of(found[1], operand), found[0], run.seconds or 0.0


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
    us, launch = (np.array([float(row[name]) for row in rows]) for name in ("us", "launch_us"))
    if arguments.compare:
        compare(rows, found, us, launch)
        return 0
    groups = defaultdict(list)
    for index, (row, (key, _, _)) in enumerate(zip(rows, found, strict=True)):
        if key is not None:
            groups[row["device"], *key].append(index)
            groups[row["device"], key[0], ANY, key[2]].append(index)
    lines = []
    for (device, algorithm, operand, sliced), places in sorted(groups.items()):
        formats = {key[2] for key in groups if key[:2] == (device, algorithm) and key[3] == sliced}
        if len(places) < LEAST_GEMMS or (operand == ANY and len(formats) == 2):
            continue
        x = np.array([found[place][1] for place in places])
        beyond, weight, quarter = us[places] - launch[places], 1 / us[places], np.arange(len(places)) % 4
        own, errors = least_absolute(x, beyond, weight), []
        for number in range(4):
            known, other = quarter != number, quarter == number
            held = np.maximum(x[other] @ least_absolute(x[known], beyond[known], weight[known]), 0)
            errors.append(np.abs((held - beyond[other]) * weight[other]))
        error = np.concatenate(errors).mean()
        numbers = [f"{number:.5g}" for number in own]
        lines.append([device, algorithm, operand, "yes" if sliced else "no", *numbers, len(places), f"{error:.3f}"])
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["device", "algorithm", "operand", "slices", *QUANTITIES, "gemms", "mean_error"])
        writer.writerows(lines)
    print(f"{len(lines)} rows from {sum(key is not None for key, _, _ in found)} GEMMs")
    return 0


def compare(rows: list[Row], found: list, us: np.ndarray, launch: np.ndarray) -> None:
    """Print the errors by chip and kind of kernel."""
    errors = defaultdict(list)
    for row, (key, _, seconds), measured, own in zip(rows, found, us, launch, strict=True):
        if key is None:
            print("refused:", row["kind"], row["m"], row["n"], row["k"], seconds)
            continue
        error = (seconds * 1e6 + own) / measured - 1
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
