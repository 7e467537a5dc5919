"""Ape's Fig. 14: errors of the splits over magnitudes.

It knows splits and random numbers of each binade; none of the paper's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hwsim_lab.papers.ape.representation import WITHIN_22_BITS, B, F, M, T
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.splits import SchemeSplit

COUNT = 16384
NORMAL = range(-126, 128)
CLAIMS = (
    "fig14-fp32f-fp32m-level", "fig14-level-equals-analysis", "fig14-fp32m-below-quarter", "fig14-fp32f-below-limit",
    "fig14-fp32f-wider-than-fp32m", "fig14-fp32b-almost-exact", "fig14-fp32t-level", "fig14-fp32b-fp32t-range",
)  # fmt: skip


def error(split: SchemeSplit, exponent: int) -> float:
    """The largest relative error over random FP32 numbers in [2^e, 2^(e+1)), those left out that round to infinity."""
    rng = np.random.default_rng(exponent + 1000)
    x = np.ldexp(rng.uniform(1, 2, COUNT).astype(np.float32), exponent).astype(np.float32)
    x = x[(x >= np.float64(2.0) ** exponent) & (x < np.float64(2.0) ** (exponent + 1))]
    found = split.errors(x)
    return float(found[np.isfinite(found)].max()) if exponent == NORMAL[-1] else float(found.max())


def errors(split: SchemeSplit, exponents: Iterable[int]) -> list[float]:
    """`error` of each exponent."""
    return [error(split, exponent) for exponent in exponents]


def measure(scale: Scale) -> Found:
    """The four splits."""
    level = errors(F, range(-14, 15))
    tf32, bf16 = errors(T, NORMAL), errors(B, NORMAL)
    measured: dict[str, dict[str, Quantity]] = {
        "fig14-fp32f-fp32m-level": {"fp32f": level, "fp32m": errors(M, range(-2, 15))},
        "fig14-level-equals-analysis": {"error": max(level)},
        "fig14-fp32m-below-quarter": {"above": errors(M, (-2, -1, 0)), "below": errors(M, range(-3, -15, -1))},
        "fig14-fp32f-below-limit": {"above": errors(F, (-14, -13, -12)), "below": errors(F, range(-15, -25, -1))},
        "fig14-fp32f-wider-than-fp32m": {
            "fp32f": errors(F, range(-2, 15)), "fp32m": errors(M, range(-2, 15)),
            "fp32f_low": errors(F, range(-14, -2)), "fp32m_low": errors(M, range(-14, -2)),
        },
        "fig14-fp32b-almost-exact": {"fp32b": errors(B, (*range(-110, 121, 10), 126))},
        "fig14-fp32t-level": {"fp32t": errors(T, (*range(-114, 117, 10), 126))},
        "fig14-fp32b-fp32t-range": {
            "fp32t": sum(x <= WITHIN_22_BITS for x in tf32), "fp32b": sum(x == 0 for x in bf16),
        },
    }  # fmt: skip
    rows = [
        (name, exponent, error(split, exponent))
        for name, split, exponents in (("FP32-F", F, range(-24, 15)), ("FP32-M", M, range(-24, 15)))
        for exponent in exponents
    ]
    rows += [("FP32-T", exponent, value) for exponent, value in zip(NORMAL, tf32, strict=True)]
    rows += [("FP32-B", exponent, value) for exponent, value in zip(NORMAL, bf16, strict=True)]
    split, place, value = (list(column) for column in zip(*rows, strict=True))
    columns = {"type": split, "log2 of magnitude": place, "largest relative error": value}
    series = Series("fig14", columns, x="log2 of magnitude", y="largest relative error", by="type", log="y")
    return Found(measured, {}, (series,))


EXPERIMENTS = (Experiment("fig14", CLAIMS, measure, {"quick": 10, "full": 10}),)
