"""Campaign: how much faster than `run`'s choice is the best mapping with the same bits that `tune` finds.

    python lab/tools/fuzz/tiles.py --draws 1000 --log tiles.jsonl

A draw is a product on a drawn device, in a native format of it or by a scheme, of drawn sizes. `tune` times every tile
that the dataflow knows for the product, then changes one other option at a time from the best of them; `--exhaustive`
times all combinations. Printed are mean and worst of the cycles of `run`'s choice over the least cycles, in all and by
family, the same of the dataflow's first choice by estimate, and the worst draws. A stopped campaign goes on from its
log.
"""

import argparse
import json
import math
import random
import sys
from collections import defaultdict
from functools import cache
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
        return {
            "seed": seed,
            "number": number,
            "device": chip.name,
            "family": chip.family,
            "scheme": scheme if form is None else f"{scheme} {form}",
            "sizes": sizes,
            "first": first_cycles(plan, chip, sizes),
            "cycles": found.default.cycles,
            "least": min(found.best.cycles, found.default.cycles),
            "options": found.best.options,
        }


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
        mean = sum(of_group) / len(of_group)
        before = f"{sum(first[name]) / len(of_group):.3f} | {max(first[name]):.2f}"
        print(f"| {name} | {len(of_group)} | {mean:.3f} | {of_group[0]:.2f} | {above[0]} | {above[1]} | {before} |")
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
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    rows = {}
    if given.log is not None and given.log.exists():
        logged = [json.loads(line) for line in given.log.read_text().splitlines() if line.endswith("}")]
        rows = {row["number"]: row for row in logged if row["seed"] == given.seed and row["number"] < given.draws}
    for number in range(given.draws):
        if number not in rows:
            rows[number] = compared(given.seed, number, given.exhaustive)
            if given.log is not None:
                with given.log.open("a") as file:
                    file.write(json.dumps(rows[number]) + "\n")
    return 0 if printed(list(rows.values()), given.worst) else 1


if __name__ == "__main__":
    sys.exit(main())
