r"""How far the programs of a library's kernels are off recorded times by themselves, with nothing fitted to a GEMM.

    python lab/tools/library/compare_cycles.py tests/golden/h200_library/times.csv.gz --kernels segment_k_on \
        [--sets blind5]

Of GEMMs whose kernel's name has the word: the program's cycles at its clock and a launch, against the median of a graph
of replays; by chip and by the number of CTAs that share a tile's K (1: none does). A row of FILE as in fit_times.py.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import hwsim
from hwsim.errors import HwsimError
from hwsim.gemm.summation import Reduction
from hwsim.libraries.recording.gemm_list import parse

BOUNDS = (1, 2, 4, 8, 16, 32)  # numbers of CTAs, each up to and with it


def asked(row: dict[str, str]) -> dict[str, object]:
    """The GEMM of a row as a keyword call of hwsim."""
    operand, output, fast, _ = parse(row["kind"])
    accumulate = {} if fast is None else {"accumulate": "fast" if fast else "promoted"}
    sizes = {name: int(row[name]) for name in "mnk"}
    return {"format": operand, "output": output, "b_layout": row["b_layout"], **accumulate, **sizes}


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--kernels", required=True, help="a word of the kernel's name")
    parser.add_argument("--sets", default="", help="only these sets of the file, with commas")
    arguments = parser.parse_args()
    with gzip.open(arguments.file, "rt") as file:
        wanted = arguments.sets.split(",") if arguments.sets else None
        rows = [row for row in csv.DictReader(file) if wanted is None or row["set"] in wanted]
    errors = defaultdict(list)
    for row in rows:
        if arguments.kernels not in row["kernels"] or "bias" in row["kind"]:
            continue
        try:
            run = hwsim.run(device=row["device"], library="cublas", exact=False, threads=1, **asked(row))
        except HwsimError as error:
            print("refused:", row["kind"], row["m"], row["n"], row["k"], error)
            continue
        if run.cycles is None or run.times.chip is None:
            continue
        us = run.cycles / run.times.chip.clock_mhz + float(row["launch_us"])
        sums = [one.sum for one in run.gemm.schedule.regions if isinstance(one.sum, Reduction)]
        parts = max((len(total.parts) for total in sums), default=1)
        bound = next(bound for bound in BOUNDS if parts <= bound)
        for group in ("all", f"up to {bound} CTAs"):
            errors[row["device"], group].append(us / float(row["us"]) - 1)
    for (device, group), values in sorted(errors.items()):
        print(
            f"{device} {group:16} {len(values):5} GEMMs: mean {100 * np.mean(np.abs(values)):5.1f} %, "
            f"mean signed {100 * np.mean(values):+5.1f} %, standard deviation {100 * np.std(values):5.1f} %"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
