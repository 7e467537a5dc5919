"""Errors of multiword TF64 beside DGEMM and SGEMM, on the hypothetical TF64 unit (Section 3.3, Fig. 5; abstract).

Errors are induced norms of the difference to the product of the FP64 inputs, which is good to about 104 bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim.analysis import exact_product, metrics
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.tf32_tf64.definitions import A100, TF64
from hwsim_lab.papers.tf32_tf64.single import ORDERS, POSITIVE, RANGES, SEEDS, SIGNED, Case, ratio

Array = NDArray[Any]
SIZES = (16, 32, 64, 128, 256, 512)
LARGE = 256  # from here on, quick takes one seed
POINTS = [(n, span) for span in RANGES for n in SIZES]
#: Method -> arguments of hwsim.matmul.
METHODS: dict[str, dict[str, Any]] = {
    "SGEMM": {"device": A100, "format": "fp32"},
    "1xTF64": {"device": TF64, "scheme": "tf64x1"},
    "3xTF64": {"device": TF64, "scheme": "tf64x3"},
    "4xTF64": {"device": TF64, "scheme": "tf64x4"},
    "DGEMM": {"device": A100, "format": "fp64"},
}
CLAIMS = (
    "abstract-64-bit-precision", "fig5-1x-below-sgemm", "fig5-1x-not-enough", "fig5-3x-equals-dgemm",
    "fig5-fourth-noticeable-small", "fig5-fourth-insignificant", "fig5-reduction", "fig5-reduction-l1",
    "fig5-reduction-linf", "fig5-difference-dgemm-3x",
)  # fmt: skip


@cache
def inputs(case: Case) -> tuple[Array, Array, Array, Array]:
    """A, B in FP64, and their product as a pair of doubles."""
    rng = np.random.default_rng(case.seed)
    a, b = (rng.uniform(*RANGES[case.span], (case.n, case.n)) for _ in range(2))
    high, low, rows = exact_product.reference(a, b)
    assert high.shape == (case.n, case.n), rows
    return a, b, high, low


@cache
def result(method: str, case: Case) -> Array:
    """The bits of a method's product; SGEMM's operands are rounded to FP32 before."""
    a, b, _, _ = inputs(case)
    if method == "SGEMM":
        a, b = a.astype(np.float32), b.astype(np.float32)
    return hwsim.matmul(a, b, **METHODS[method])


@cache
def sizes_of(case: Case) -> dict[str, float]:
    """||A|| ||B|| in each norm."""
    a, b, _, _ = inputs(case)
    return {name: metrics.norm(a, order) * metrics.norm(b, order) for name, order in ORDERS.items()}


@cache
def errors(method: str, case: Case, against: str | None = None) -> dict[str, float]:
    """Errors of a method in every norm; against: the difference to another method's result instead."""
    _, _, high, low = inputs(case)
    if against is None:
        apart = (high - result(method, case).astype(np.float64)) + low
    else:
        apart = result(against, case).astype(np.float64) - result(method, case).astype(np.float64)
    return {name: metrics.norm(apart, order) / sizes_of(case)[name] for name, order in ORDERS.items()}


def series(method: str, scale: Scale, norm: str = "l2", against: str | None = None) -> list[float]:
    """The means over seeds of an error, by point."""
    return [
        float(np.mean([errors(method, Case(n, span, seed), against)[norm] for seed in seeds(n, scale)]))
        for n, span in POINTS
    ]


def seeds(n: int, scale: Scale) -> range:
    """The seeds of a size."""
    return range(1 if scale == "quick" and n >= LARGE else SEEDS)


def measure(scale: Scale) -> Found:
    """Fig. 5, at the claims' own sizes."""
    e = {method: series(method, scale) for method in METHODS}
    apart = series("3xTF64", scale, against="DGEMM")
    one, three, four, double = (np.array(e[m]) for m in ("1xTF64", "3xTF64", "4xTF64", "DGEMM"))
    fourth = ratio(e["3xTF64"], e["4xTF64"])
    by_norm = {
        x: {
            "reduction": ratio(series("1xTF64", scale, x), series("3xTF64", scale, x)),
            "over_dgemm": ratio(series("3xTF64", scale, x), series("DGEMM", scale, x)),
        }
        for x in ("l1", "linf")
    }
    measured: dict[str, dict[str, Quantity]] = {
        "abstract-64-bit-precision": {"ratio": ratio(e["3xTF64"], e["DGEMM"])},
        "fig5-1x-below-sgemm": {"ratio": ratio(e["SGEMM"], e["1xTF64"])},
        "fig5-1x-not-enough": {"ratio": ratio(e["1xTF64"], e["DGEMM"])},
        "fig5-3x-equals-dgemm": {"ratio": ratio(e["3xTF64"], e["DGEMM"])},
        "fig5-fourth-noticeable-small": {"positive": fourth[: len(SIZES)], "signed": fourth[len(SIZES) :]},
        "fig5-fourth-insignificant": {"share_of_gain": list(map(float, np.abs(three - four) / (one - three)))},
        "fig5-reduction": {"reduction": ratio(e["1xTF64"], e["3xTF64"])},
        "fig5-reduction-l1": dict(by_norm["l1"]),
        "fig5-reduction-linf": dict(by_norm["linf"]),
        "fig5-difference-dgemm-3x": {"over_dgemm": ratio(apart, e["DGEMM"]), "under_tf64": ratio(e["1xTF64"], apart)},
    }
    largest = {
        span: [(three[i] / double[i], four[i] / double[i]) for i, (_, s) in enumerate(POINTS) if s == span]
        for span in RANGES
    }
    inside = "3xTF64 over DGEMM (with the fourth product): " + "; ".join(
        f"{first[0]:.2f} ({first[1]:.2f}) at n = {SIZES[0]} and {last[0]:.2f} ({last[1]:.2f}) at {SIZES[-1]} on {span}"
        for span, (first, *_, last) in largest.items()
    )
    inside += ". Two words hold 49 of FP64's 53 bits, which shows as long as the sums are short."
    gain = one / three
    few = f" One seed from n = {LARGE} on." if scale == "quick" else ""
    notes = {
        "abstract-64-bit-precision": inside,
        "fig5-3x-equals-dgemm": inside,
        "fig5-difference-dgemm-3x": inside,
        "fig5-1x-below-sgemm": (
            "Both round the operands to FP32; SGEMM's sums add errors that grow with n, and are small at n = 16, where "
            "the rounding of the operands makes up most of both errors."
        ),
        "fig5-fourth-noticeable-small": (
            f"3xTF64 over 4xTF64 is {fourth[0]:.2f} at n = {SIZES[0]} and {fourth[len(SIZES) - 1]:.2f} at n = "
            f"{SIZES[-1]} on {POSITIVE}, {fourth[len(SIZES)]:.2f} and {fourth[-1]:.2f} on {SIGNED}."
        ),
        **dict.fromkeys(
            ("fig5-reduction", "fig5-reduction-l1", "fig5-reduction-linf", "fig5-1x-not-enough"),
            f"In l2 1xTF64 over 3xTF64 is {gain.min():.1e} to {gain.max():.1e}, about 2^25 = {2.0**25:.1e}: the second "
            f"word adds 24 bits and a sign. {inside}",
        ),
    }
    notes = {claim: f"{notes.get(claim, '')}{few}".strip() for claim in CLAIMS}
    columns: dict[str, list[object]] = {"line": [], "n": [], "range": [], "l1": [], "l2": [], "linf": []}
    for method in METHODS:
        columns["line"] += [f"{method}, {span}" for _, span in POINTS]
        columns["n"] += [n for n, _ in POINTS]
        columns["range"] += [span for _, span in POINTS]
        for x in ("l1", "l2", "linf"):
            columns[x] += series(method, scale, x)
    right: dict[str, list[object]] = {
        "line": [f"|DGEMM - 3xTF64|, {span}" for _, span in POINTS],
        "n": [n for n, _ in POINTS],
        "difference": list(apart),
    }
    figures = (
        Series("fig5-errors", columns, x="n", y="l2", by="line", log="xy"),
        Series("fig5-difference", right, x="n", y="difference", by="line", log="xy"),
    )
    return Found(measured, notes, figures)


EXPERIMENTS = (Experiment("double", CLAIMS, measure, {"quick": 8.0, "full": 20.0}),)
