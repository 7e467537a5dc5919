"""Campaign: how much faster than `run`'s choice is the best mapping with the same bits that `tune` finds.

    python lab/tools/fuzz/tiles.py --draws 1000 --log tiles.jsonl    # all cores; goes on where the log ends

A draw is a product on a drawn device, in a native format of it or by a scheme, of drawn sizes. `tune` times every tile
that the dataflow knows for the product, then changes one other option at a time from the best of them; `--exhaustive`
times all combinations. Printed are mean and worst of the cycles of `run`'s choice over the least cycles of all that
`tune` timed, in all and by family, the same of seconds and of the dataflow's first choice by estimate, and the worst
draws. A campaign that is stopped lacks the draws that take longest; it says how many, and by name those that began.
"""

import argparse
import json
import math
import multiprocessing
import random
import sys
import time
from collections import defaultdict
from functools import cache, partial
from pathlib import Path

import hwsim
from hwsim.dataflows.registry import dataflows
from hwsim.devices import names
from hwsim.errors import HwsimError
from hwsim.gemm.plan import Mixed
from hwsim.gemm.problem import Problem
from hwsim.machines import timing
from hwsim.resolve.choice.cost import plan_input
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import mapped
from hwsim.resolve.planning import plan_for
from hwsim.resolve.record_cost import cost_of
from hwsim.schemes import scheme_of
from hwsim.studies.tune import tune

NATIVE = "native"
SCHEMES = (
    *("bf16x9", "bf16x6", "tf32x3", "tf64x3", "sgemm-cube", "ootomo-tf32", "ootomo-fp16", "le-gemm", "egemm-tc"),
    *("markidis", "ape-fp32-f", "ape-int16", "quantensor", "ozaki-int8", "ozaki-fp16"),
)
LEAST, MOST = (16, 16, 32), (4096, 4096, 8192)  # m, n, k
MOST_MACS = 2**32  # times the products of a plan
STEPS = 1, 8, 8, 64  # of which sizes are multiples
BUDGET = 100_000  # programs of a draw
MEAN, WORST = 1.03, 1.10  # promised
SECONDS = "seconds: mean", "worst"


@cache
def families():
    """The devices with times, by family."""
    of_family = defaultdict(list)
    for name, _ in names():
        chip = hwsim.device(name)
        if chip.family in dataflows() and timing.missing(chip) is None:
            of_family[chip.family].append(chip)
    return sorted(of_family.items())


def drawn(rng):
    """(device, scheme, format, sizes): log-uniform sizes."""
    chip = rng.choice(rng.choice(families())[1])
    is_native = rng.random() < 0.5
    scheme, form = (NATIVE, rng.choice(sorted(chip.native))) if is_native else (rng.choice(SCHEMES), None)
    sizes = []
    for least, most in zip(LEAST, MOST, strict=True):
        step = rng.choice(STEPS)
        sizes.append(max(least, int(least * (most / least) ** rng.random()) // step * step))
    return chip, scheme, form, tuple(sizes)


def first_cycles(plan, chip, sizes):
    """Cycles of the dataflow's first choice, by estimate alone."""
    problem = Problem.of(plan_input(plan), *sizes)
    return cost_of(mapped(record_of(plan, chip, problem), chip, {}), chip).cycles


def compared(seed, number, exhaustive):
    """The row of one draw: of draws that a device does not support, the next."""
    start = time.process_time()
    rng = random.Random(f"{seed} {number}")
    while True:
        chip, scheme, form, sizes = drawn(rng)
        if math.prod(sizes) > MOST_MACS:
            continue
        try:
            plan = plan_for(chip, scheme_of(scheme), Problem.of("fp32", *sizes), form, {}, None).plan
            if isinstance(plan, Mixed) or math.prod(sizes) * plan.products > MOST_MACS:
                continue
            found = tune(chip, plan, sizes, exhaustive=exhaustive, budget=BUDGET, same_bits=True)
        except HwsimError:
            continue
        timed = [*found.ranked, found.default]
        return {
            "seed": seed,
            "number": number,
            "device": chip.name,
            "family": chip.family,
            "scheme": scheme if form is None else f"{scheme} {form}",
            "sizes": sizes,
            "first": first_cycles(plan, chip, sizes),
            "cycles": found.default.cycles,
            "least": min(point.cycles for point in timed),
            "seconds": found.default.seconds,
            "least_seconds": min(point.seconds for point in timed),
            "options": min(timed, key=lambda point: point.cycles).options,
            "timed": len(timed),
            "complete": found.complete,
            "processor_seconds": round(time.process_time() - start, 2),
        }


def logged(log, seed, draws):
    """The rows of a log, by number of the draw."""
    if log is None or not log.exists():
        return {}
    rows = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return {row["number"]: row for row in rows if row["seed"] == seed and row["number"] < draws}


def run(numbers, seed, exhaustive, processes, seconds):
    """The rows of draws as they end, in so many processes; seconds: after which those that have not ended are left."""
    if not numbers:
        return
    end = math.inf if seconds is None else time.monotonic() + seconds
    with multiprocessing.get_context("fork").Pool(min(processes, len(numbers)), maxtasksperchild=50) as pool:
        rows = pool.imap_unordered(partial(_compared, seed=seed, exhaustive=exhaustive), numbers)
        for _ in numbers:
            try:
                yield rows.next(None if end == math.inf else max(0.0, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                return


def _compared(number, seed, exhaustive):
    return compared(seed, number, exhaustive)


def printed(rows, worst):
    """Print the losses; returns whether they are within what is promised."""
    losses = sorted(((row["cycles"] / row["least"], row) for row in rows), key=lambda pair: -pair[0])
    groups, first, seconds = defaultdict(list), defaultdict(list), defaultdict(list)
    for loss, row in losses:
        for name in ("all", row["family"]):
            groups[name].append(loss)
            first[name].append(row["first"] / row["least"])
            seconds[name].append(row["seconds"] / row["least_seconds"])
    head = "family", "draws", "mean", "worst", "above 1.03", "above 1.10", *SECONDS, "first choice: mean", "worst"
    print(f"| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    for name, of_group in sorted(groups.items(), key=lambda pair: (pair[0] != "all", pair[0])):
        above = [sum(loss > limit for loss in of_group) for limit in (MEAN, WORST)]
        mean = sum(of_group) / len(of_group)
        others = [f"{sum(x[name]) / len(of_group):.3f} | {max(x[name]):.2f}" for x in (seconds, first)]
        cells = len(of_group), f"{mean:.3f}", f"{of_group[0]:.2f}", *above, *others
        print(f"| {name} | {' | '.join(map(str, cells))} |")
    for loss, row in losses[:worst]:
        m, n, k = row["sizes"]
        where = f"{row['device']} {row['scheme']} {m} x {n} x {k}"
        print(f"{loss:.3f}  {where}: {row['cycles']:,} -> {row['least']:,} {row['options']}")
    return sum(groups["all"]) / len(rows) <= MEAN and losses[0][0] <= WORST


def main():
    """Run the draws that the log does not hold; the exit code is 1 beyond what is promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--worst", type=int, default=10, help="rows printed")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seconds", type=float, help="stop after so many; draws that have not ended are left out")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    rows = logged(given.log, given.seed, given.draws)
    left = [number for number in range(given.draws) if number not in rows]
    for row in run(left, given.seed, given.exhaustive, given.processes, given.seconds):
        rows[row["number"]] = row
        if given.log is not None:
            with given.log.open("a") as file:
                file.write(json.dumps(row) + "\n")
    missing_draws = [number for number in range(given.draws) if number not in rows]
    if missing_draws:
        ended = len(left) - len(missing_draws)
        begun = [number for number in left[: ended + given.processes] if number not in rows]
        print(f"{len(missing_draws)} of {given.draws} draws have not ended; begun: {begun}")
    return 0 if rows and printed(list(rows.values()), given.worst) and not missing_draws else 1


if __name__ == "__main__":
    sys.exit(main())
