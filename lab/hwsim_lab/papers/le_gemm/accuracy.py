"""Errors of LE-GEMM and its baselines: Fig. 10 to 13 and 16, the dropped product of Eq. 10, and the abstract's claims.

The reference V_single is an FP32 chain of FMAs along k. Of products above a block's size, a block of C with the whole K
stands for the matrix; inputs are uniform in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim.analysis import metrics
from hwsim.api import fma_chain
from hwsim.gemm.plan import Plan, Scaled, Sum, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers.cells import CellCall, HeldCell, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.le_gemm.runs import DEVICES, NAMES, SCHEMES

Array = NDArray[Any]
METHODS = ("plain", "mark", "ooto", "le")
SIZES = (1024, 2048, 4096)
GROWING = (512, *SIZES)
FEW = 64  # rows and columns of a what-if with few outputs
EDGE: dict[Scale, int] = {"quick": 512, "full": 1024}
SEEDS: dict[Scale, int] = {"quick": 1, "full": 10}
SYMMETRIC, SHIFTED = (-1.0, 1.0), (0.5, 2.5)


@dataclass(frozen=True, slots=True)
class PairErrors:
    """Errors against V_single: Max_error (Eq. 19) and MRED (Eq. 20). double: the mean relative error against FP64."""

    most: float
    mred: float
    double: float


@cache
def inputs(edge: int, k: int, seed: int, span: tuple[float, float] = SYMMETRIC) -> tuple[Array, Array, Array]:
    """A[edge, k], B[k, edge], and their FP32 chain."""
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(*span, size).astype(np.float32) for size in ((edge, k), (k, edge)))
    return a, b, fma_chain(a, b)


def product(method: str, device: str, a: Array, b: Array, **options: Any) -> Array:
    """The product's bits by a method on a device."""
    return hwsim.matmul(a, b, device=device, **SCHEMES[method] | options)


@HeldCell
def errors(
    method: str, device: str, edge: int, k: int, seed: int, span: tuple[float, float] = SYMMETRIC, **options: Any
) -> PairErrors:
    """Errors of one product."""
    a, b, single = inputs(edge, k, seed, span)
    c = product(method, device, a, b, **options)
    double = a.astype(np.float64) @ b.astype(np.float64)
    return PairErrors(metrics.max_error(single, c), metrics.mean_relative(single, c), metrics.mean_relative(double, c))


def mean_errors(method: str, device: str, k: int, scale: Scale, edge: int = 0, **options: Any) -> PairErrors:
    """The means over seeds. edge: of the block; 0: that of the scale."""
    edge = min(edge or EDGE[scale], k)
    found = [errors(method, device, edge, k, seed, **options) for seed in range(SEEDS[scale])]
    return PairErrors(*(float(np.mean([getattr(x, name) for x in found])) for name in ("most", "mred", "double")))


def _ratio_of_means(over: str, device: str, name: str, scale: Scale) -> float:
    sums = [sum(getattr(mean_errors(m, device, n, scale), name) for n in SIZES) for m in (over, "le")]
    return float(sums[0] / sums[1])


def _ratios(over: str, device: str, name: str, scale: Scale) -> list[float]:
    pairs = [[getattr(mean_errors(m, device, n, scale), name) for m in (over, "le")] for n in SIZES]
    return [x / y for x, y in pairs]


def measure_errors(scale: Scale) -> Found:
    """Fig. 10 and 11, and what the abstract and Section 5.3 conclude from them."""
    measured: dict[str, dict[str, Quantity]] = {}
    api = {"mi210": "rocwmma", "a800": "wmma"}
    for figure, name in (("fig10", "most"), ("fig11", "mred")):
        for device in DEVICES:
            for over in ("plain", "mark", "ooto"):
                key = api[device] if over == "plain" else over
                measured[f"{figure}-{device}-{key}"] = {"ratio": _ratio_of_means(over, device, name, scale)}
            measured[f"{figure}-{device}-smallest"] = {
                over: _ratios(over, device, name, scale) for over in ("plain", "mark", "ooto")
            }
            measured[f"{figure}-{device}-grows"] = {
                m: [float(getattr(mean_errors(m, device, n, scale, GROWING[0]), name)) for n in GROWING]
                for m in METHODS
            }
    measured["fig10-refinement-helps"] = {
        f"plain_over_{m}": [
            mean_errors("plain", d, n, scale).most / mean_errors(m, d, n, scale).most for d in DEVICES for n in SIZES
        ]
        for m in ("mark", "ooto")
    }
    measured["fig10-same-ranking"] = {
        d: [float(np.mean([mean_errors(m, d, n, scale).most for n in SIZES])) for m in METHODS] for d in DEVICES
    }
    measured["abstract-accuracy"] = {
        key: [_ratio_of_means(over, d, name, scale) for d in DEVICES for over in ("plain", "mark", "ooto")]
        for key, name in (("max_error", "most"), ("mred", "mred"))
    }
    measured["abstract-no-loss"] = {
        "le_over_fp32": [
            mean_errors("le", d, n, scale).double / mean_errors("blas", d, n, scale).double
            for d in DEVICES
            for n in SIZES
        ]
    }
    return Found(measured, _error_notes(tuple(measured), scale), (_figure("most", scale), _figure("mred", scale)))


def _error_notes(claims: tuple[str, ...], scale: Scale) -> dict[str, str]:
    what = {"mi210": "MI210", "a800": "A800"}
    cut = {d: _ratio_of("ooto", d, scale, leading="outside") for d in DEVICES}
    nearest = {d: _ratio_of("le", d, scale, residual_rounding="RNE") for d in DEVICES}
    toward = {d: _ratio_of("mark", d, scale, rounding="RZ") for d in DEVICES}
    floor = {d: _floor(d) for d in DEVICES}
    general = {
        d: (
            f"Ootomo in the unit, two accumulators; {what[d]}, n = 1024, MRED over LE-GEMM's: with its leading product "
            f"added outside the unit {cut[d]:.2f}; Markidis cut (RZ) {toward[d]:.2f}; LE-GEMM with its residual to "
            f"nearest {nearest[d]:.2f}. "
        )
        for d in DEVICES
    }
    ootomo = (
        "The splits differ in the residual's last bits alone, and the roundings of the FP32 sums (V_single's too) hide "
        "them: against FP64 LE-GEMM's error is {:.2f} times, Ootomo's {:.2f} times FP32's at n = 1024."
    )
    block = f"Blocks of {EDGE[scale]} x {EDGE[scale]}, {SEEDS[scale]} seed(s). "
    notes = {}
    for claim in claims:
        devices = [d for d in DEVICES if d in claim] or list(DEVICES)
        text = block + "".join(general[d] for d in devices)
        if "ooto" in claim or "smallest" in claim or claim in ("abstract-accuracy", "fig10-same-ranking"):
            text += " ".join(f"{what[d]}: {ootomo.format(*floor[d])}" for d in devices)
        notes[claim] = text.strip()
    notes["abstract-no-loss"] = block + _loss()
    for d, key in (("mi210", "rocwmma"), ("a800", "wmma")):
        few = {m: errors(m, d, FEW, SIZES[0], 0).most for m in METHODS}
        outputs = (
            f"{block}Outputs near 0 set Max_error, and it cannot exceed 1, which an output with the wrong sign has: so "
            f"the number of outputs moves the ratio. {what[d]}, n = 1024, of {FEW} x {FEW} outputs plain FP16 is at "
            f"{few['plain']:.2f} and the ratios are {few['plain'] / few['le']:.0f} (plain), "
            f"{few['mark'] / few['le']:.1f} (Markidis) and {few['ooto'] / few['le']:.2f} (Ootomo); "
            "the paper's number of elements is not given."
        )
        notes |= {f"fig10-{d}-{key}": outputs, f"fig10-{d}-mark": outputs, f"fig10-{d}-grows": outputs}
        one = dict(zip(SIZES, _ratios("plain", d, "mred", scale), strict=True))
        notes[f"fig11-{d}-{key}"] = (
            f"{block}The ratio of MRED falls with n, from {one[1024]:.0f} at 1024 to {one[4096]:.0f} at 4096, as "
            "LE-GEMM's error grows with the length of its FP32 sums and plain FP16's hardly; the "
            "paper's sizes are not given."
        )
    for claim in ("fig10-refinement-helps", "fig10-same-ranking", "abstract-accuracy"):
        notes[claim] += (
            " Max_error: see fig10-mi210-rocwmma; plain FP16 and Markidis on the MI210 reach its upper end 1."
        )
    return notes


def _ratio_of(method: str, device: str, scale: Scale, **options: Any) -> float:
    """The MRED of a method with options over that of LE-GEMM as it is, at the least size."""
    n = SIZES[0]
    return mean_errors(method, device, n, scale, 256, **options).mred / mean_errors("le", device, n, scale, 256).mred


def _loss() -> str:
    n = SIZES[-1]
    chain = mean_errors("blas", "a800", n, "quick", 256).double
    grouped = mean_errors("le", "a800", n, "quick", 256, k_group=64).double / chain
    outside = mean_errors("ooto", "a800", n, "quick", 256, leading="outside").double / chain
    return (
        "The A800's tensor cores cut the sum in every instruction, which grows with n, and the MI210's "
        "matrix cores add "
        f"to nearest. A800, n = {n}: with sums of 64 of K added outside the unit LE-GEMM's error is "
        f"{grouped:.2f} times "
        f"FP32's, and Ootomo's with its leading product outside {outside:.2f} times."
    )


def _floor(device: str) -> tuple[float, float]:
    n = SIZES[0]
    found = [mean_errors(m, device, n, "quick", 256).double for m in ("le", "ooto", "blas")]
    return found[0] / found[2], found[1] / found[2]


def _figure(name: str, scale: Scale) -> Series:
    columns: dict[str, list[object]] = {"line": [], "n": [], "error": []}
    for device in DEVICES:
        for method in METHODS:
            for n in GROWING:
                columns["line"].append(f"{device}, {NAMES[method]}")
                columns["n"].append(n)
                columns["error"].append(getattr(mean_errors(method, device, n, scale, GROWING[0]), name))
    return Series("fig10" if name == "most" else "fig11", columns, x="n", y="error", by="line", log="xy")


def _cells_of(methods: Sequence[str], sizes: Sequence[int], scale: Scale, edge: int = 0) -> list[CellCall]:
    """The products behind `mean_errors`; those of the same inputs stand together."""
    return [
        call(errors, method, device, min(edge or EDGE[scale], k), k, seed)
        for k in sizes
        for seed in range(SEEDS[scale])
        for device in DEVICES
        for method in methods
    ]


def _error_cells(scale: Scale) -> list[CellCall]:
    return [*_cells_of((*METHODS, "blas"), SIZES, scale), *_cells_of(METHODS, GROWING, scale, GROWING[0])]


ERROR_CLAIMS = (
    *(
        f"{figure}-{device}-{key}"
        for figure in ("fig10", "fig11")
        for device, api in (("mi210", "rocwmma"), ("a800", "wmma"))
        for key in (api, "mark", "ooto", "smallest", "grows")
    ),
    "fig10-refinement-helps", "fig10-same-ranking", "abstract-accuracy", "abstract-no-loss",
)  # fmt: skip


# --- Fig. 12 and 13 --------------------------------------------------------------------------------------------------

HISTOGRAM = 1024
BINS = 60


@cache
def signed(method: str, device: str, edge: int) -> Array:
    """V_p - V_single of every element."""
    a, b, single = inputs(edge, HISTOGRAM, 0)
    found: Array = product(method, device, a, b).astype(np.float64) - single.astype(np.float64)
    return found


def measure_histograms(scale: Scale) -> Found:
    """Fig. 12 and 13: signed errors of one product of 1024 cubed, the whole of it at both scales."""
    measured: dict[str, dict[str, Quantity]] = {}
    advantage: dict[str, Quantity] = {}
    columns: dict[str, list[object]] = {"line": [], "error": [], "share": []}
    for figure, device in (("fig12", "mi210"), ("fig13", "a800")):
        of = {m: signed(m, device, HISTOGRAM) for m in METHODS}
        width = {m: float(np.ptp(x)) for m, x in of.items()}
        spread = {m: float(np.sqrt(np.mean(x * x))) for m, x in of.items()}
        most = {m: float(np.abs(x).max()) for m, x in of.items()}
        median = np.median(np.abs(of["ooto"]))
        share = float(np.mean(np.abs(of["le"]) <= median)) - 0.5
        measured |= {
            f"{figure}-widest": {"over_others": [width["plain"] / width[m] for m in ("mark", "ooto", "le")]},
            f"{figure}-mark": {"range_ratio": width["mark"] / width["le"], "max_ratio": most["mark"] / most["le"]},
            f"{figure}-ooto-similar": {
                "range_ratio": width["ooto"] / width["le"], "std_ratio": spread["ooto"] / spread["le"]
            },
            f"{figure}-ooto-concentrated": {"std_ratio": spread["ooto"] / spread["le"], "share_gain": share},
        }  # fmt: skip
        advantage[device] = spread["mark"] / spread["le"]
        for m, x in of.items():
            if m != "plain":
                counts, edges = np.histogram(x, BINS)
                columns["line"] += [f"{device}, {NAMES[m]}"] * BINS
                columns["error"] += [float(e) for e in (edges[1:] + edges[:-1]) / 2]
                columns["share"] += [float(c) / x.size for c in counts]
    measured["fig12-mark-more-on-mi210"] = advantage
    why = (
        "Both splits keep 21 or 22 bits and both sums are FP32 in the unit, so that the roundings of the sums make up "
        "the errors; one product, seed 0."
    )
    notes = {f"{figure}-{key}": why for figure in ("fig12", "fig13") for key in ("ooto-similar", "ooto-concentrated")}
    return Found(measured, notes, (Series("fig12", columns, x="error", y="share", by="line"),))


# --- Eq. 10 and Fig. 16 ----------------------------------------------------------------------------------------------


def four_terms(options: Mapping[str, Any], problem: Problem) -> Plan:
    """LE-GEMM's plan with the product of both residuals in a third accumulator, as Eq. 9 has it."""
    plan = scheme_of("le-gemm").plan(options, problem)
    assert isinstance(plan, Plan)
    exponent = plan.a_pieces[1].scale_exponent + plan.b_pieces[1].scale_exponent
    terms = (*plan.terms, chain((1, 1)))
    last = Scaled(TermValue(len(plan.terms)), -exponent)
    return replace(plan, scheme="le-gemm-four", terms=terms, combine=Sum(plan.combine, last))


def four_products() -> Scheme:
    """LE-GEMM with all four products."""
    return replace(scheme_of("le-gemm"), name="le-gemm-four", plan=four_terms)


def measure_dropped(scale: Scale) -> Found:
    """Eq. 10: what the fourth product would give."""
    n, edge = SIZES[0], EDGE[scale]
    found: list[float] = []
    for device in DEVICES:
        pairs = []
        for seed in range(SEEDS[scale]):
            a, b, single = inputs(edge, n, seed)
            products = (hwsim.matmul(a, b, device=device, scheme=s) for s in ("le-gemm", four_products()))
            pairs.append([metrics.mean_relative(single, c) for c in products])
        three, four = np.mean(pairs, axis=0)
        found.append(float(three / four))
    note = f"Blocks of {edge} x {edge}, {SEEDS[scale]} seed(s)."
    return Found({"eq10-dropped-term": {"three_over_four": found}}, {"eq10-dropped-term": note})


DEPTHS = {
    "fig16-kmeans": ((256, 512, 1024, 2048), SYMMETRIC),
    "fig16-ffn": ((768, 1536, 3072), SYMMETRIC),
    "fig16-llm-linear": ((1024, 2048, 4096), SHIFTED),
}


def measure_depths(scale: Scale) -> Found:
    """Fig. 16: errors of LE-GEMM over K in three applications."""
    measured: dict[str, dict[str, Quantity]] = {}
    columns: dict[str, list[object]] = {"line": [], "K": [], "error": []}
    for claim, (depths, span) in DEPTHS.items():
        measured[claim] = {}
        for device in DEVICES:
            for key, name in (("max", "most"), ("mred", "mred")):
                means = []
                for k in depths:
                    seeds = range(SEEDS[scale])
                    found = [getattr(errors("le", device, EDGE[scale], k, seed, span), name) for seed in seeds]
                    means.append(float(np.mean(found)))
                measured[claim][f"{device}_{key}"] = means
                columns["line"] += [f"{device}, {claim.removeprefix('fig16-')}, {key}"] * len(depths)
                columns["K"] += list(depths)
                columns["error"] += means
    note = f"Blocks of {EDGE[scale]} x {EDGE[scale]}, {SEEDS[scale]} seed(s); a few elements near 0 set Max_error."
    return Found(measured, dict.fromkeys(DEPTHS, note), (Series("fig16", columns, "K", "error", "line", "xy"),))


def _depth_cells(scale: Scale) -> list[CellCall]:
    return [
        call(errors, "le", device, EDGE[scale], k, seed, span)
        for depths, span in DEPTHS.values()
        for k in depths
        for seed in range(SEEDS[scale])
        for device in DEVICES
    ]


EXPERIMENTS = (
    Experiment("errors", ERROR_CLAIMS, measure_errors, {"quick": 20.0, "full": 600.0}, _error_cells),
    Experiment(
        "histograms",
        (
            *(f"{f}-{k}" for f in ("fig12", "fig13") for k in ("widest", "mark", "ooto-similar", "ooto-concentrated")),
            "fig12-mark-more-on-mi210",
        ),
        measure_histograms,
        {"quick": 8.0, "full": 8.0},
    ),
    Experiment("dropped", ("eq10-dropped-term",), measure_dropped, {"quick": 4.0, "full": 30.0}),
    Experiment("depths", tuple(DEPTHS), measure_depths, {"quick": 10.0, "full": 200.0}, _depth_cells),
)
