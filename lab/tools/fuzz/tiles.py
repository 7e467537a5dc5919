"""Campaign: how much faster than `run`'s choice is the best mapping with the same bits.

    python lab/tools/fuzz/tiles.py --draws 1000 --log tiles.jsonl                # all cores; goes on where the log ends
    python lab/tools/fuzz/tiles.py --draws 1000 --exhaustive --log all.jsonl     # beside all mappings

A draw is a product on a drawn device, in a native format of it or by a scheme, of drawn sizes. Its reference is the
least cycles of the mappings that `tune` times: every tile, then one other option at a time from the best of them; or of
all combinations (`--exhaustive`, all_mappings.py). Printed are mean and worst of the cycles of `run`'s choice over the
reference's, in all and by family, the same of the dataflow's first choice by estimate, and the worst draws.

Exit code 0: all draws have ended, within what is promised. 1: a mean or a draw is beyond that. 2: draws are left, which
are counted and those that began are named, or the log is of something else.
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

from all_mappings import Best, best_of_all

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
COLUMNS = "reference", "family", "device", "scheme", "sizes", "first", "cycles", "least", "options"  # that are printed
REFERENCES = {False: "tune", True: "all mappings"}


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
            found = (best_of_all if exhaustive else best_of_tune)(chip, plan, sizes)
            first = first_cycles(plan, chip, sizes)
        except HwsimError:
            continue
        return {
            "reference": REFERENCES[exhaustive],
            "seed": seed,
            "number": number,
            "device": chip.name,
            "family": chip.family,
            "scheme": scheme if form is None else f"{scheme} {form}",
            "sizes": sizes,
            "first": first,
            "cycles": found.default,
            "least": found.cycles,
            "options": found.options,
            "mappings": found.mappings,
            "timed": found.timed,
            "processor_seconds": round(time.process_time() - start, 2),
        }


def best_of_tune(chip, plan, sizes):
    """The best of the mappings that `tune` times, as `best_of_all` has it."""
    found = tune(chip, plan, sizes, budget=BUDGET, same_bits=True)
    timed = [point for point in (found.default, *found.ranked) if point.cycles is not None]
    best = min(timed, key=lambda point: point.cycles)
    return Best(found.default.cycles, best.cycles, best.options, len(found.points), len(timed))


def logged(log, seed, draws, exhaustive):
    """The rows of a log, by number of the draw. Raises ValueError for rows of something else."""
    if log is None or not log.exists():
        return {}
    lines = [line for line in log.read_text().splitlines() if line.endswith("}")]  # the last may be cut
    rows = [row for row in map(json.loads, lines) if row["seed"] == seed and row["number"] < draws]
    for row in rows:
        missing = [name for name in COLUMNS if name not in row]
        if missing:
            raise ValueError(
                f"{log}: the row of draw {row['number']} has no {', '.join(missing)}: an earlier version of this "
                "program wrote it, and its times are of that version; give another --log"
            )
        if row["reference"] != REFERENCES[exhaustive]:
            raise ValueError(
                f"{log}: draw {row['number']} is beside {row['reference']!r}, asked is {REFERENCES[exhaustive]!r}; "
                f"give another --log, or {'leave out' if exhaustive else 'add'} --exhaustive"
            )
    return {row["number"]: row for row in rows}


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
    groups, first = defaultdict(list), defaultdict(list)
    for loss, row in losses:
        for name in ("all", row["family"]):
            groups[name].append(loss)
            first[name].append(row["first"] / row["least"])
    head = "family", "draws", "mean", "worst", "above 1.03", "above 1.10", "first choice: mean", "worst"
    print(f"| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    for name, of_group in sorted(groups.items(), key=lambda pair: (pair[0] != "all", pair[0])):
        above = [sum(loss > limit for loss in of_group) for limit in (MEAN, WORST)]
        mean, of_first = sum(of_group) / len(of_group), first[name]
        cells = len(of_group), f"{mean:.3f}", f"{of_group[0]:.2f}", *above
        print(f"| {name} | {' | '.join(map(str, cells))} | {sum(of_first) / len(of_first):.3f} | {max(of_first):.2f} |")
    for loss, row in losses[:worst]:
        m, n, k = row["sizes"]
        where = f"{row['device']} {row['scheme']} {m} x {n} x {k}"
        print(f"{loss:.3f}  {where}: {row['cycles']:,} -> {row['least']:,} {row['options']}")
    return sum(groups["all"]) / len(rows) <= MEAN and losses[0][0] <= WORST


def main():
    """Run the draws that the log does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exhaustive", action="store_true", help="beside all mappings, not those that tune times")
    parser.add_argument("--worst", type=int, default=10, help="rows printed")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seconds", type=float, help="stop after so many; draws that have not ended are left out")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    try:
        rows = logged(given.log, given.seed, given.draws, given.exhaustive)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    left = [number for number in range(given.draws) if number not in rows]
    for row in run(left, given.seed, given.exhaustive, given.processes, given.seconds):
        rows[row["number"]] = row
        if given.log is not None:
            with given.log.open("a") as file:
                file.write(json.dumps(row) + "\n")
    is_within = printed(list(rows.values()), given.worst) if rows else True
    missing_draws = [number for number in range(given.draws) if number not in rows]
    if missing_draws:
        ended = len(left) - len(missing_draws)
        begun = [number for number in left[: ended + given.processes] if number not in rows]
        goes_on = "the same command goes on" if given.log is not None else "without --log they begin anew"
        print(f"{len(missing_draws)} of {given.draws} draws are left, {goes_on}; begun: {begun}")
    if not is_within:
        return 1
    return 2 if missing_draws else 0


if __name__ == "__main__":
    sys.exit(main())
