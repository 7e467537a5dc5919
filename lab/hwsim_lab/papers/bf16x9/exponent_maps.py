"""BF16x9's signal-to-noise ratio over the exponents of both operands, denormals among them: Section 5, Eq. 6 and 7,
Fig. 5 and 6.

It knows maps of matrices with one exponent each, and a part of each product's rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis import metrics
from hwsim_lab.papers.bf16x9.condition_sweep import product
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

Array = NDArray[Any]
SHAPE = (512, 1024, 2048)  # m, k, n
EDGE: dict[Scale, int] = {"quick": 24, "full": 128}  # rows and columns that are computed
WIDE_EDGE: dict[Scale, int] = {"quick": 8, "full": 64}
REGION = (-145, -140, -135, -130, -120, -90, -60, 0, 60, 90, 120)
WIDE = tuple(range(-149, 128, 12))  # of Fig. 5
GREATEST_SUM = 115  # of exponents, beyond which sums over K overflow
LEAST_NORMAL = -126
LEAST_RESULT = 2.0**-150
MOST_DB = 400.0
NORMAL_SUMS = (-100, GREATEST_SUM)
LARGE = 60  # of an exponent whose products with denormals are normal
DENORMAL_RESULTS = ((-70, -62), (-90, -45), (-40, -95), (-110, -25))
RESULTS_EDGE = 64
ALPHA_EXPONENT = 100
SLICES = 4  # of K, of native FP32 in the what-if
STEPS = 64  # of 16 of K, all of it, between BF16x9's additions outside the unit in the what-if
EXAMPLE = (np.array([[3.0, 4.0]]), np.array([[3.0, 4.5]]))  # FP64 result, result


@dataclass(frozen=True, slots=True)
class MapCell:
    """Operands with exponents a and b: ratios in dB, native FP32's and BF16x9's; the greatest FP64 and FP32 result."""

    a: int
    b: int
    native: float
    x9: float
    greatest: float
    greatest_fp32: float
    is_a_denormal: bool
    is_b_denormal: bool

    @property
    def gain(self) -> float:
        """BF16x9's ratio above native FP32's."""
        return self.x9 - self.native

    @property
    def has_results(self) -> bool:
        """Whether a result can be other than zero in FP32."""
        return self.greatest >= LEAST_RESULT

    @property
    def region(self) -> str:
        """Which of the four combinations it is."""
        return " x ".join("denormal" if x else "normal" for x in (self.is_a_denormal, self.is_b_denormal))


def ratio(exact: Array, computed: Array) -> float:
    """Eq. 7's ratio, at most MOST_DB."""
    return min(metrics.snr_db(exact, computed), MOST_DB)


def operands(a: int, b: int, rows: int, columns: int) -> tuple[Array, Array]:
    """FP32 matrices of one exponent each, random signs and significands; some rows of A and columns of B."""
    random = np.random.default_rng([1000 + a, 1000 + b])
    k = SHAPE[1]
    pair = ((rows, k), a), ((k, columns), b)
    left, right = (
        np.ldexp(random.uniform(1, 2, shape) * random.choice((-1.0, 1.0), shape), exponent).astype(np.float32)
        for shape, exponent in pair
    )
    return left, right


def multiplied(method: str, a: Array, b: Array, **options: Any) -> Array:
    """Evenly spaced rows and columns of the whole product."""
    m, _, n = SHAPE
    at = tuple(np.linspace(0, size - 1, count).astype(int) for size, count in ((m, len(a)), (n, b.shape[1])))
    return product(method, a, b, shape=(m, n), at=at, **options)


def cell(a: int, b: int, edge: int) -> MapCell:
    """Both methods for one pair of exponents."""
    left, right = operands(a, b, edge, edge)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    native, x9 = (multiplied(method, left, right) for method in ("native", "x9"))
    least = np.finfo(np.float32).smallest_normal
    small = [bool(((x != 0) & (np.abs(x) < least)).all()) for x in (left, right)]
    greatest = float(max(np.abs(native).max(), np.abs(x9).max()))
    return MapCell(a, b, ratio(exact, native), ratio(exact, x9), float(np.abs(exact).max()), greatest, *small)


def region(edge: int) -> tuple[MapCell, ...]:
    """The cells of the region of interest."""
    return tuple(cell(a, b, edge) for a in REGION for b in REGION if a + b <= GREATEST_SUM)


def gains(cells: Iterable[MapCell], taken: Callable[[MapCell], bool]) -> list[float]:
    """The gains of some cells."""
    return [one.gain for one in cells if taken(one)]


def measure_metrics(scale: Scale) -> Found:
    """Eq. 6 and 7 by hwsim's metrics."""
    return Found(
        {
            "eq6-rms": {"rms": metrics.relative_frobenius(*EXAMPLE)},
            "eq7-snr": {"snr": metrics.snr_db(*EXAMPLE)},
        }
    )


def measure_maps(scale: Scale) -> Found:
    """The region of interest by native FP32 and BF16x9, and denormal results of normal operands."""
    edge = EDGE[scale]
    cells = region(edge)
    seen = [one for one in cells if one.has_results]
    both = [one for one in cells if one.a < LEAST_NORMAL and one.b < LEAST_NORMAL]
    m, k, n = SHAPE
    lowest, highest = NORMAL_SUMS
    results = [cell(a, b, RESULTS_EDGE) for a, b in DENORMAL_RESULTS]
    measured: dict[str, dict[str, Quantity]] = {
        "sec5-exponent-range-matters": {"snr": [one.x9 for one in seen]},
        "fig5-region-of-interest": {
            "combinations": len({one.region for one in cells}),
            "denormal_a": sum(one.is_a_denormal for one in cells),
            "denormal_b": sum(one.is_b_denormal for one in cells),
            "m": m, "k": k, "n": n,
        },
        "fig6-roi-lower-error": {"gain": [one.gain for one in seen]},
        "fig6-normal-normal": {
            "gain": gains(
                cells, lambda x: min(x.a, x.b) >= LEAST_NORMAL and lowest <= x.a + x.b <= highest
            ),
        },
        "fig6-normal-denormal": {"gain": gains(cells, lambda x: x.b < LEAST_NORMAL and x.a >= LARGE)},
        "fig6-denormal-normal": {"gain": gains(cells, lambda x: x.a < LEAST_NORMAL and x.b >= LARGE)},
        "fig6-denormal-denormal": {"gain": [one.gain for one in both]},
        "fig6-denormal-results": {"gain": [one.gain for one in results]},
    }  # fmt: skip
    sampled = f"{edge} x {edge} of the {m} x {n} results of a cell, evenly spaced."
    notes = dict.fromkeys(measured, sampled)
    notes |= dict.fromkeys(("fig6-roi-lower-error", "fig6-normal-normal"), f"{sampled} {_other_orders(edge)}")
    notes["fig6-denormal-results"] = (
        f"{RESULTS_EDGE} x {RESULTS_EDGE} results of a cell. Native FP32 rounds to the grid of denormals after each of "
        f"{k} FMAs, BF16x9 after each 16 of K; how the unit rounds sums of such size is assumed as for normal numbers."
    )
    notes["fig5-region-of-interest"] = "The extents are those of the whole products whose parts the map computes."
    notes["fig6-denormal-denormal"] = _underflow(both)
    return Found(measured, notes, (*_series(cells), _wide(scale)))


def _other_orders(edge: int) -> str:
    """How the gain of a cell of normal numbers moves with the order in which either method adds."""
    left, right = operands(0, 0, edge, edge)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    native, x9 = (ratio(exact, multiplied(method, left, right)) for method in ("native", "x9"))
    sliced = ratio(exact, multiplied("native", left, right, split_k=SLICES))
    unpromoted = ratio(exact, multiplied("x9", left, right, promotion_interval=STEPS))
    return (
        f"Native FP32 is assumed to be one chain of FMAs in order of K, BF16x9 to be added in FP32 after each 16 of K: "
        f"with exponents of 0 it gains {x9 - native:.1f} dB. With native FP32 in {SLICES} slices of K it would gain "
        f"{x9 - sliced:.1f} dB, with BF16x9 added in the unit over all of K {unpromoted - native:.1f} dB: with "
        "one exponent per matrix the products of first pieces, of few bits, add up exactly there, not so in Fig. 4."
    )


def _underflow(cells: list[MapCell]) -> str:
    """What is left of products of two denormals."""
    highest = max(cells, key=lambda one: one.greatest)
    left, right = operands(highest.a, highest.b, 8, 8)
    scaled = max(
        float(np.abs(multiplied(method, left, right, alpha=2.0**ALPHA_EXPONENT)).max()) for method in ("native", "x9")
    )
    return (
        f"The greatest FP64 result of these cells is 2^{np.log2(highest.greatest):.0f}, the greatest by either method "
        f"{max(one.greatest_fp32 for one in cells):g}: both errors are 100 %, 0 dB. Nor does alpha = "
        f"2^{ALPHA_EXPONENT} show more (the greatest is {scaled:g}), as it multiplies sums in FP32. The caption's "
        "fourth region has to be another one, or one in which no difference can be seen."
    )


def _series(cells: tuple[MapCell, ...]) -> list[Series]:
    """Fig. 6's two maps and their difference: an exponent on the axis, one on the lines."""
    maps: dict[str, tuple[str, Callable[[MapCell], float]]] = {
        "fig6-fp32": ("snr_db", lambda one: one.native),
        "fig6-bf16x9": ("snr_db", lambda one: one.x9),
        "fig6-gain": ("gain_db", lambda one: one.gain),
    }
    return [
        Series(
            name,
            {
                "exponent_a": [one.a for one in cells],
                "exponent_b": [one.b for one in cells],
                column: [value(one) for one in cells],
                "region": [one.region for one in cells],
            },
            "exponent_b",
            "exponent_a",
            value=column,
        )
        for name, (column, value) in maps.items()
    ]


def _wide(scale: Scale) -> Series:
    """Fig. 5's map: native FP32 over all exponents."""
    columns: dict[str, list[Any]] = {"exponent_a": [], "exponent_b": [], "snr_db": []}
    for a in WIDE:
        for b in WIDE:
            if a + b <= GREATEST_SUM:
                left, right = operands(a, b, WIDE_EDGE[scale], WIDE_EDGE[scale])
                exact = left.astype(np.float64) @ right.astype(np.float64)
                values = (a, b, ratio(exact, multiplied("native", left, right)))
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
    return Series("fig5", columns, "exponent_b", "exponent_a", value="snr_db")


EXPERIMENTS = (
    Experiment("signal-to-noise", ("eq6-rms", "eq7-snr"), measure_metrics, {"quick": 0.1, "full": 0.1}),
    Experiment(
        "exponent-maps",
        (
            "sec5-exponent-range-matters", "fig5-region-of-interest", "fig6-roi-lower-error", "fig6-normal-normal",
            "fig6-normal-denormal", "fig6-denormal-normal", "fig6-denormal-denormal", "fig6-denormal-results",
        ),
        measure_maps,
        {"quick": 14.0, "full": 300.0},
    ),
)  # fmt: skip
