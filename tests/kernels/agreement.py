"""The long comparison of kernels and reference: random cases per model, and all two-term dots of the 8-bit formats.

    python tests/kernels/agreement.py --results 1e7 --processes 2 --seconds 3600 --out agreement.json
    python tests/kernels/agreement.py --exhaustive --processes 2 --out exhaustive.json

Every result is computed by each build of the kernels that the processor runs, by the integer code behind them
("scalar"), and by hwsim.numerics.

Random: the units and operands of test_dot_models, mostly dots of few products, up to two steps, against
`reference.gemm`. Nearly all of the time is the reference's; compiling its unchanged source halves it, in a copy of
the checkout: `mypyc hwsim/formats.py hwsim/numerics/{block_scaled,composite,exact,fused,integer,pairwise,reference,
terms,two_level}.py`.

Exhaustive: a0 b0 + a1 b1 from a zero accumulator in one fused step. a0 b0 runs over one representative of every
distinct signed (significand, exponent) product of the two formats and of every special one; a1 b1 over all codes of a
with all codes of b that have no sign, as one GEMM with K = 2 per a0 b0: every distinct product, mostly several times.
The expected codes come from the reference's own stages, each called once per distinct argument: `read_operand` and
`multiply_terms` for every pair of codes, `top_exponent` and `cut` for every product at every exponent, `special_of`,
`round_sum` and `pack` for every distinct sum. Between them stand only the larger of two exponents and the sum of two
integers. That this is the reference is itself checked, by plain `reference.dot` on random members of the same cases
(`sampled`). "scalar" takes the representatives of a1 b1 only.

An --out file that exists is continued: random counts are added to it, with cases not yet used, and formats that are
complete are passed over. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from test_dot_models import NVIDIA, SCALED, SPECS, VARIANTS, operands, scale_codes

from hwsim._kernels import gemm, variants
from hwsim.formats import Exact, code_dtype, format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.fused import cut, top_exponent
from hwsim.numerics.terms import Addend, multiply_terms, pack, read_operand, round_sum, special_of, zero_sign
from hwsim.numerics.units import DotSpec, FusedUnit

KINDS = ("near", "wide", "small", "large", "any")
SIDE = 12  # a random task is SIDE x SIDE results, REPEATS times
REPEATS = 10
TASK_RESULTS = SIDE * SIDE * REPEATS
UNITS = {**SPECS, **{name: spec for name, spec in SCALED.items() if spec.unit.model == "block_scaled"}}
MODELS = tuple(sorted({spec.unit.model for spec in UNITS.values()}))

FP8 = tuple(itertools.product(("e4m3", "e5m2"), repeat=2))
FP8_UNITS = {
    "fused 32 terms, F = 13, E8M13": FusedUnit(32, 13, -133, result_format="e8m13", specials=NVIDIA),
    "fused 32 terms, F = 25": FusedUnit(32, 25, -133, specials=NVIDIA),
}
SAMPLES = 48  # plain reference.dot calls per first product
FIRST_PRODUCTS = 16  # of one exhaustive task
SIGNLESS = 128  # codes without a sign bit
COUNTED = ("pairs", "results", "differ", "scalar_results", "scalar_differ", "sampled", "sampled_differ")

Counts = dict[str, dict[str, int]]


# Random cases


def differing(spec: DotSpec, a: Any, b: Any, c: Any, **scales: Any) -> int:
    """Results that differ from the reference in any build."""
    expected = reference.gemm(spec, DotOperands(a, b, c, **scales))
    wrong = np.zeros(expected.shape, bool)
    for variant in VARIANTS:
        wrong |= gemm(spec, a, b, c, _variant=variant, **scales) != expected
    return int(wrong.sum())


def random_scales(spec: DotSpec, rng: np.random.Generator, k: int, kind: str) -> dict[str, Any]:
    """Codes of block scales for a SIDE x k by k x SIDE product, as keywords; none for a unit without them."""
    if spec.scale_format is None or spec.scale_block is None:
        return {}
    fmt, blocks = format_of(spec.scale_format), -(-k // spec.scale_block)
    kind = kind if kind in ("wide", "any") else "near"
    return {
        "scale_a": scale_codes(rng, fmt, (SIDE, blocks), kind),
        "scale_b": scale_codes(rng, fmt, (blocks, SIDE), kind),
    }


def random_task(task: tuple[str, int]) -> tuple[str, int, int]:
    """(model, results, differing) of one unit and seed."""
    name, seed = task
    spec, rng = UNITS[name], np.random.default_rng([12, seed])
    step, wrong = max(spec.unit.terms, 1), 0
    for repeat in range(REPEATS):
        longest = 2 * step if rng.random() < 0.1 else min(step, 4)
        if spec.scale_block is not None and rng.random() < 0.3:
            longest = step  # several groups
        k, kind = int(rng.integers(1, longest + 1)), KINDS[(seed + repeat) % len(KINDS)]
        a, b, c = operands(int(rng.integers(1 << 40)), spec, SIDE, SIDE, k, kind)
        if spec.scale_block is not None:
            a[: SIDE // 4, : k // 2] = 0  # groups of zeros
        wrong += differing(spec, a, b, c, **random_scales(spec, rng, k, kind))
    return spec.unit.model, TASK_RESULTS, wrong


def random_tasks(models: Iterable[str], have: Counts, results: float, first_seed: int) -> list[tuple[str, int]]:
    """Tasks until every model has `results`, the models progressing alike, units of fewer terms more often."""
    planned = []
    for model in models:
        names = [name for name, spec in UNITS.items() if spec.unit.model == model]
        count = -(-max(int(results) - have.get(model, {"results": 0})["results"], 0) // TASK_RESULTS)
        passed = dict.fromkeys(names, 0)
        for index in range(count):
            name = min(names, key=passed.__getitem__)
            passed[name] += 4 + UNITS[name].unit.terms
            planned.append((index / count, name))
    return [(name, first_seed + index) for index, (_, name) in enumerate(sorted(planned))]


# All two-term dots


class TwoTerms:
    """Every product of two 8-bit formats, and the reference's code of every sum of two of them in one fused step.

    classes (256, 256): index of the product of two codes among the distinct ones, `products`. codes: one pair of
    codes of each. Products that are zero are one class: the units here give +0 for any zero sum, and a zero term
    takes no part in the alignment.
    """

    def __init__(self, unit: FusedUnit, a: str, b: str) -> None:
        """Form all products."""
        if unit.specials.zero != "positive":
            raise ValueError("zero products of both signs are told apart by this unit")
        self.spec = DotSpec(unit, a, b, "fp32", "fp32")
        self.unit = unit
        left, right = ([read_operand(format_of(f), code, unit.specials) for code in range(256)] for f in (a, b))
        index: dict[Addend, int] = {}
        self.classes = np.empty((256, 256), np.int64)
        self.codes: list[tuple[int, int]] = []
        for x, y in np.ndindex(256, 256):
            product = multiply_terms(left[x], right[y])
            if product.is_zero:
                product = Addend("finite", 0)
            elif product.kind == "nan":
                product = Addend("nan", 0)
            if product not in index:
                index[product] = len(index)
                self.codes.append((x, y))
            self.classes[x, y] = index[product]
        self.products = list(index)
        # Where each product alone would put the alignment, and each finite product cut at each of those places.
        self.tops = [top_exponent([p], unit.floor_exponent) if p.kind == "finite" else 0 for p in self.products]
        self.cuts = {
            top: [
                cut(p, top - unit.fraction_bits) if p.kind == "finite" and own <= top else 0
                for p, own in zip(self.products, self.tops, strict=True)
            ]
            for top in set(self.tops)
        }
        self.rounded: dict[tuple[int, int], int] = {}

    @property
    def distinct(self) -> int:
        """Distinct finite products, zero among them."""
        return sum(product.kind == "finite" for product in self.products)

    def _pack(self, value: Exact) -> int:
        narrow = None if self.unit.result_format is None else format_of(self.unit.result_format)
        return pack(format_of(self.spec.d), value, self.unit.rounding, self.unit.specials, narrow)

    def sums(self, first: int) -> list[int]:
        """Codes of products[first] + each of the products."""
        mine, codes = self.products[first], []
        for second, other in enumerate(self.products):
            special = special_of((mine, other)) if mine.kind != "finite" or other.kind != "finite" else None
            if special is not None:
                codes.append(self._pack(special))
                continue
            top = max(self.tops[first], self.tops[second])
            total = self.cuts[top][first] + self.cuts[top][second]
            if (top, total) not in self.rounded:
                sign = zero_sign((mine, other), self.unit.specials, self.unit.rounding)
                self.rounded[top, total] = self._pack(round_sum(total, top - self.unit.fraction_bits, sign))
            codes.append(self.rounded[top, total])
        return codes


@cache
def two_terms(unit: str, a: str, b: str) -> TwoTerms:
    """The products of one unit and pair of formats."""
    return TwoTerms(FP8_UNITS[unit], a, b)


def exhaustive_task(task: tuple[str, str, str, int, int]) -> dict[str, int]:
    """Counts of first products start..stop of `TwoTerms.products` with all second ones.

    pairs: of distinct finite products. results: over all codes, specials included, by every build; differ: of them.
    scalar_results, scalar_differ: of the scalar code. sampled, sampled_differ: expected codes that plain
    reference.dot was asked for, and those that it gives otherwise.
    """
    unit, a, b, start, stop = task
    table = two_terms(unit, a, b)
    spec, dtype_a, dtype_b = table.spec, code_dtype(format_of(a)), code_dtype(format_of(b))
    rng = np.random.default_rng([13, start])
    every_a, every_b = np.arange(256), np.arange(SIGNLESS)
    seconds = np.array(table.codes)
    count = dict.fromkeys(COUNTED, 0)
    for first in range(start, min(stop, len(table.products))):
        sums = np.array(table.sums(first), np.uint32)
        expected = sums[table.classes[:, :SIGNLESS]]
        x, y = table.codes[first]
        left = np.stack([np.full(256, x), every_a], 1).astype(dtype_a)
        right = np.stack([np.full(SIGNLESS, y), every_b], 0).astype(dtype_b)
        wrong = np.zeros(expected.shape, bool)
        for variant in variants:
            wrong |= gemm(spec, left, right, np.zeros(expected.shape, np.uint32), _variant=variant) != expected
        # Each case its own batch, since only equal rows and columns belong together.
        left = np.stack([np.full(len(seconds), x), seconds[:, 0]], 1)[:, None, :].astype(dtype_a)
        right = np.stack([np.full(len(seconds), y), seconds[:, 1]], 1)[:, :, None].astype(dtype_b)
        scalar = gemm(spec, left, right, np.zeros((len(seconds), 1, 1), np.uint32), _variant="scalar")[:, 0, 0]
        members = np.argwhere(table.classes == first)
        for u, v in rng.integers(0, 256, (SAMPLES, 2)).tolist():
            p, q = members[rng.integers(len(members))].tolist()
            count["sampled_differ"] += reference.dot(spec, DotOperands([p, u], [q, v], 0)) != int(
                sums[table.classes[u, v]]
            )
        count["pairs"] += table.distinct if table.products[first].kind == "finite" else 0
        count["results"] += wrong.size
        count["differ"] += int(wrong.sum())
        count["scalar_results"] += len(seconds)
        count["scalar_differ"] += int((scalar != sums).sum())
        count["sampled"] += SAMPLES
    return count


# The run


def run_random(pool: Any, counts: Counts, models: Iterable[str], results: float, first_seed: int) -> Iterator[int]:
    """Count random cases; gives the number of seeds planned after every task."""
    tasks = random_tasks(models, counts, results, first_seed)
    for model, total, wrong in pool.imap_unordered(random_task, tasks):
        entry = counts.setdefault(model, {"results": 0, "differ": 0})
        entry["results"] += total
        entry["differ"] += wrong
        yield len(tasks)


def run_exhaustive(pool: Any, counts: Counts) -> Iterator[int]:
    """Count all two-term dots; a unit and pair of formats enters `counts` when it is complete."""
    for unit, (a, b) in itertools.product(FP8_UNITS, FP8):
        name = f"{unit}, {a} x {b}"
        if name in counts:
            continue
        size = len(two_terms(unit, a, b).products)
        tasks = [(unit, a, b, at, at + FIRST_PRODUCTS) for at in range(0, size, FIRST_PRODUCTS)]
        total = dict.fromkeys(COUNTED, 0)
        for found in pool.imap_unordered(exhaustive_task, tasks):
            total = {key: total[key] + found[key] for key in COUNTED}
            yield 0
        counts[name] = total


def main() -> int:
    """Run one of the two comparisons and write its summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=float, default=1e7, help="random results per model")
    parser.add_argument("--models", default=",".join(MODELS), help="of the random cases (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="of the random cases of a new --out")
    parser.add_argument("--exhaustive", action="store_true", help="all two-term dots instead of random cases")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600, help="stop after this time")
    parser.add_argument("--out", type=Path, help="summary (JSON); continued if it exists")
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    if unknown := set(models) - set(MODELS):
        parser.error(f"--models: {', '.join(sorted(unknown))}; allowed are {', '.join(MODELS)}")
    summary: dict[str, Any] = {
        "seconds": 0,
        "processes": [],
        "builds": [],
        "next_seed": arguments.first_seed,
        "counts": {},
    }
    if arguments.out and arguments.out.exists():
        summary = json.loads(arguments.out.read_text())
    start, before, counts = time.time(), summary["seconds"], summary["counts"]
    builds = sorted({*summary["builds"], *variants})
    summary.update(builds=builds, processes=[*summary["processes"], arguments.processes])
    first_seed = summary["next_seed"]

    def write() -> str:
        summary["seconds"] = before + round(time.time() - start)
        text = json.dumps({**summary, "counts": dict(sorted(counts.items()))}, indent=1)
        if arguments.out:
            arguments.out.write_text(text + "\n")
        return text

    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        work = (
            run_exhaustive(pool, counts)
            if arguments.exhaustive
            else run_random(pool, counts, models, arguments.results, first_seed)
        )
        for done, seeds in enumerate(work):
            summary["next_seed"] = max(summary["next_seed"], first_seed + seeds)
            if done % 200 == 0:
                write()
            if time.time() - start > arguments.seconds:
                break
    print(write())
    return int(not counts or any(n for entry in counts.values() for key, n in entry.items() if key.endswith("differ")))


if __name__ == "__main__":
    sys.exit(main())
