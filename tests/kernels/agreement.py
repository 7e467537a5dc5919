"""The long comparison of kernels and reference: random cases per model, and all two-term dots of the 8-bit formats.

    python tests/kernels/agreement.py --results 1e7 --processes 16 --seconds 3600 --out agreement.json
    python tests/kernels/agreement.py --exhaustive --processes 16 --out exhaustive.json

Every result is computed by each build of the kernels that the processor runs and by hwsim.numerics.reference.
Random cases: the units and operands of test_dot_models, single dots, mostly of few products, up to two steps.
Exhaustive: a0 b0 + a1 b1 from a zero accumulator, where (a0, b0) and (a1, b1) run over one representative of
every distinct signed (significand, exponent) product that the two formats can form. Exit code 1 if anything
differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from test_dot_models import NVIDIA, SPECS, VARIANTS, operands

from hwsim._kernels import gemm, variants
from hwsim.formats import code_dtype, decode, format_of
from hwsim.numerics import reference
from hwsim.numerics.units import DotSpec, FusedUnit

KINDS = ("near", "wide", "small", "large", "any")
SIDE = 12  # a task is SIDE x SIDE results, many times
FP8 = tuple(itertools.product(("e4m3", "e5m2"), repeat=2))
FP8_UNITS = {
    "fused 32 terms, F = 13, E8M13": FusedUnit(32, 13, -133, result_format="e8m13", specials=NVIDIA),
    "fused 32 terms, F = 25": FusedUnit(32, 25, -133, specials=NVIDIA),
}


def compare(spec: DotSpec, a: Any, b: Any, c: Any) -> int:
    """Results that differ from the reference in any build."""
    expected = reference.gemm(spec, a, b, c)
    wrong = np.zeros(expected.shape, bool)
    for variant in VARIANTS:
        wrong |= gemm(spec, a, b, c, _variant=variant) != expected
    return int(wrong.sum())


def random_task(task: tuple[str, int]) -> tuple[str, int, int]:
    """(model, results, differing) of one unit and seed."""
    name, seed = task
    spec, rng = SPECS[name], np.random.default_rng([11, seed])
    terms, total, wrong = max(spec.unit.terms, 1), 0, 0
    for repeat in range(10):
        k = int(rng.integers(1, (2 * terms if rng.random() < 0.1 else min(terms, 4)) + 1))
        a, b, c = operands(int(rng.integers(1 << 40)), spec, SIDE, SIDE, k, KINDS[(seed + repeat) % len(KINDS)])
        wrong += compare(spec, a, b, c)
        total += c.size
    return spec.unit.model, total, wrong


def products(a: str, b: str) -> list[tuple[int, int]]:
    """One (code of a, code of b) for every distinct signed product (significand, exponent sum), zero once."""
    fa, fb = format_of(a), format_of(b)
    found: dict[tuple[int, int, int], tuple[int, int]] = {}
    finite = [[(code, decode(f, code)) for code in range(256) if decode(f, code).kind == "finite"] for f in (fa, fb)]
    for (x, u), (y, v) in itertools.product(*finite):
        significand = u.significand * v.significand
        key = (u.sign ^ v.sign, significand, u.exponent + v.exponent) if significand else (0, 0, 0)
        found.setdefault(key, (x, y))
    return list(found.values())


def exhaustive_task(task: tuple[str, str, str, int, int]) -> tuple[str, int, int]:
    """(unit and formats, results, differing): one slice of first products against all second ones."""
    unit, a, b, start, stop = task
    spec = DotSpec(FP8_UNITS[unit], a, b, "fp32", "fp32")
    pairs = np.array(products(a, b), np.int64)
    total = wrong = 0
    for x, y in pairs[start:stop]:
        # Row i of A holds (x, a_i), column i of B (y, b_i): only the diagonal is meant, so each case is its own batch.
        left = np.stack([np.full(len(pairs), x), pairs[:, 0]], 1)[:, None, :].astype(code_dtype(format_of(a)))
        right = np.stack([np.full(len(pairs), y), pairs[:, 1]], 1)[:, :, None].astype(code_dtype(format_of(b)))
        zero = np.zeros((len(pairs), 1, 1), np.uint32)
        expected = np.array(
            [reference.dot(spec, u[0].tolist(), v[:, 0].tolist(), 0) for u, v in zip(left, right, strict=True)],
            np.uint32,
        )
        for variant in VARIANTS:
            wrong += int((gemm(spec, left, right, zero, _variant=variant)[:, 0, 0] != expected).sum())
        total += len(pairs)
    return f"{unit}, {a} x {b}", total, wrong


def main() -> int:
    """Run one of the two comparisons and write its summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=float, default=1e7, help="random results per model")
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    start, counts = time.time(), {}

    def note(key: str, total: int, wrong: int) -> None:
        have = counts.setdefault(key, {"results": 0, "differ": 0})
        have["results"] += total
        have["differ"] += wrong

    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        if arguments.exhaustive:
            tasks = [
                (unit, a, b, at, at + 8)
                for unit in FP8_UNITS
                for a, b in FP8
                for at in range(0, len(products(a, b)), 8)
            ]
            for found in pool.imap_unordered(exhaustive_task, tasks):
                note(*found)
        else:
            models = {spec.unit.model for spec in SPECS.values()}
            seeds = itertools.count()
            while time.time() - start < arguments.seconds:
                short = [m for m in models if counts.get(m, {"results": 0})["results"] < arguments.results]
                if not short:
                    break
                names = [name for name, spec in SPECS.items() if spec.unit.model in short]
                for found in pool.imap_unordered(random_task, [(n, next(seeds)) for n in names for _ in range(4)]):
                    note(*found)
    summary = {"builds": variants, "seconds": round(time.time() - start), "counts": dict(sorted(counts.items()))}
    text = json.dumps(summary, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    return int(not counts or any(entry["differ"] for entry in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
