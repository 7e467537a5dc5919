"""ecTrans' round trips, reduced: errors of temperature and wind after many pairs of transforms, Section 6.1, Fig. 7, 8.

It knows the sizes, seeds and precisions; the transform itself is in `sphere`. Only the Legendre GEMMs are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim_lab.papers.bf16x9.sphere import RoundTrips, Sphere, projected
from hwsim_lab.papers.cells import CellCall, Checkpoint, HeldCell, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

Array = NDArray[Any]
DEVICE = "b200"
#: Precision of the GEMMs -> arguments of hwsim.matmul.
METHODS: dict[str, dict[str, Any]] = {
    "native": {"format": "fp32"},
    "x9": {"scheme": "bf16x9"},
    "3xtf32": {"scheme": "tf32x3"},
    "tf32": {"format": "tf32"},
    "x6": {"scheme": "bf16x6"},
    "markidis": {"scheme": "markidis"},
    "ootomo": {"scheme": "ootomo-fp16"},
}
EXACT = "exact"  # for comparison: the GEMMs in FP64, rounded once
WIDE = "wide"  # and the conversion of wind to vorticity and divergence as well
NAMES = {"native": "FP32", "x9": "BF16x9", "3xtf32": "3xTF32", "tf32": "TF32"}
WINDS = ("U", "V")
PLOTTED = ("native", "x9", "3xtf32")
PAIRS = 1000  # the paper's
STEP = 10  # pairs between two records
BINS = 60
QUANTILES = 2001


@dataclass(frozen=True)
class TransformSetting:
    """Whose transform, of how many seeds, how often. early: growth is counted from this pair on. wind: with U and V.
    scalar_wind: U and V a second time, as scalars.
    """

    sphere: Sphere
    seeds: int
    pairs: int = 1000
    early: int = 100
    wind: bool = True
    scalar_wind: bool = False


LOW: dict[Scale, TransformSetting] = {
    "quick": TransformSetting(Sphere(399, (0, 1, 50), 108), 2, 30, 10),
    "full": TransformSetting(Sphere(399, (0, 1, 50, 100, 200, 300, 390), 864), 3),
}
#: Temperature alone, for what only the last of a thousand pairs tells.
LONG: dict[Scale, TransformSetting] = {
    "quick": TransformSetting(Sphere(199, (0,), 4), 2, wind=False),
    "full": LOW["full"],
}
HIGH: dict[Scale, TransformSetting] = {
    "quick": TransformSetting(Sphere(799, (0, 1, 50), 108), 1, 20, 10, scalar_wind=True),
    "full": TransformSetting(Sphere(799, (0, 100, 200, 400), 864), 1, scalar_wind=True),
}


@dataclass(frozen=True)
class FieldErrors:
    """Of one field after the last pair less the first one. By seed: standard deviation over the grid points, 99th
    percentile of the absolute error, mean. worst: the 99th percentile of all seeds, and the greatest; widest: the
    99.5th. quantiles: of all seeds' errors, at QUANTILES equal steps of probability. rms: of Eq. 6 after every STEP
    pairs, by pair and seed.
    """

    deviations: list[float]
    percentiles: list[float]
    means: list[float]
    worst: list[float]
    widest: float
    quantiles: list[float]
    rms: list[list[float]]

    @classmethod
    def of(cls, final: Array, rms: Array) -> FieldErrors:
        """final: (seed, latitude, longitude); rms: (pair, seed)."""
        size = np.abs(final)
        return cls(
            final.std(axis=(1, 2)).tolist(),
            np.percentile(size, 99, axis=(1, 2)).tolist(),
            final.mean(axis=(1, 2)).tolist(),
            [float(np.percentile(size, 99)), float(size.max())],
            float(np.percentile(size, 99.5)),
            np.quantile(final, np.linspace(0, 1, QUANTILES)).tolist(),
            rms.tolist(),
        )

    def density(self, edges: Array) -> Array:
        """Probability density between edges, from the quantiles."""
        below = np.interp(edges, self.quantiles, np.linspace(0, 1, QUANTILES))
        return np.asarray(np.diff(below) / np.diff(edges))


@dataclass(frozen=True)
class TransformErrors:
    """Of the fields T, U, V and, as scalars, "U scalar" and "V scalar"."""

    fields: dict[str, FieldErrors]

    def deviation(self, field: str) -> Array:
        """Standard deviation over the grid points, by seed."""
        return np.asarray(self.fields[field].deviations)

    def percentile(self, field: str) -> Array:
        """The 99th of the absolute error, by seed."""
        return np.asarray(self.fields[field].percentiles)

    def rms(self, field: str) -> Array:
        """RMS error after every STEP pairs, mean of the seeds."""
        return np.asarray(np.mean(self.fields[field].rms, axis=1))

    def after(self, pairs: int, field: str) -> float:
        """RMS error after so many pairs, mean of the seeds."""
        return float(self.rms(field)[pairs // STEP - 1])


def exact(a: Array, b: Array) -> Array:
    """The products in FP64, rounded to FP32."""
    return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32))


def simulated(a: Array, b: Array, method: str) -> Array:
    """Products of a stack, by a method of METHODS."""
    return np.asarray(hwsim.matmul(a, b, device=DEVICE, **METHODS[method]))


@HeldCell
def errors(setting: TransformSetting, method: str) -> TransformErrors:
    """TransformErrors of round trips with a method of METHODS, with EXACT or WIDE."""
    sphere, seeds = setting.sphere, range(setting.seeds)
    names, scalars = ["T"], [sphere.temperature(seed) for seed in seeds]
    winds = [np.zeros((0, *scalars[0].shape[1:]))] * 2
    if setting.wind:
        winds = list(np.stack([sphere.winds(seed) for seed in seeds], axis=1))
    if setting.scalar_wind:
        scalars += [projected(sphere, one) for one in winds]
        names += ["U scalar", "V scalar"]
    names += WINDS if setting.wind else ()
    product = exact if method in (EXACT, WIDE) else partial(simulated, method=method)
    trips = RoundTrips(sphere, np.concatenate(scalars), winds[0], winds[1], product, wide=method == WIDE)
    first = trips.grid.astype(np.float64)
    rms: list[Array] = []
    reached = Checkpoint(errors, setting, method)
    if (state := reached.state()) is not None:
        trips.grid, rms = state["grid"], list(state["rms"])
    for pair in range(STEP * len(rms) + 1, setting.pairs + 1):
        trips.step()
        if pair % STEP == 0:
            rms.append(np.linalg.norm(trips.grid - first, axis=(1, 2)) / np.linalg.norm(first, axis=(1, 2)))
            reached.keep(grid=trips.grid, rms=np.asarray(rms))
    reached.remove()
    shape = (len(names), setting.seeds)
    final = (trips.grid - first).reshape(*shape, *first.shape[1:])
    history = np.asarray(rms).reshape(-1, *shape)
    return TransformErrors({name: FieldErrors.of(final[i], history[:, i]) for i, name in enumerate(names)})


def mean_deviations(setting: TransformSetting, method: str, fields: tuple[str, ...] = WINDS) -> list[float]:
    """Standard deviation of the error of each field, mean of the seeds."""
    found = errors(setting, method)
    return [float(found.deviation(field).mean()) for field in fields]


def growth(setting: TransformSetting, method: str) -> list[float]:
    """RMS error of the winds per pair, from the early pair to the last."""
    found, pairs = errors(setting, method), setting.pairs - setting.early
    return [(found.after(setting.pairs, field) - found.after(setting.early, field)) / pairs for field in WINDS]


def line_r2(x: Array, y: Array) -> float:
    """Coefficient of determination of the straight line through points."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def described(setting: TransformSetting, instead: str) -> str:
    """What was run."""
    sphere = setting.sphere
    orders = ", ".join(str(m) for m in sphere.orders)
    pairs = "" if setting.pairs == PAIRS else f" instead of {PAIRS}, as errors grow about in proportion"
    return (
        f"Run: TCo{sphere.truncation}{instead}, zonal wave number{'s' * (len(sphere.orders) > 1)} {orders} alone, "
        f"{sphere.longitudes} longitudes, {setting.pairs} pairs{pairs}, {setting.seeds} "
        f"seed{'s' * (setting.seeds > 1)}."
    )


def of_native(setting: TransformSetting, method: str, fields: tuple[str, ...] = WINDS) -> str:
    """Deviations by those of native FP32, as text."""
    pairs = zip(mean_deviations(setting, method, fields), mean_deviations(setting, "native", fields), strict=True)
    return ", ".join(f"{field} {a / b:.2f}" for field, (a, b) in zip(fields, pairs, strict=True))


def wind_note(setting: TransformSetting) -> str:
    """How much of wind's error is of the GEMMs."""
    return (
        f"Deviations by native FP32's: BF16x9 {of_native(setting, 'x9')}; GEMMs in FP64 {of_native(setting, EXACT)}; "
        f"the conversion to vorticity and divergence in FP64 as well {of_native(setting, WIDE)}. What GEMMs in "
        "FP64 leave is of FP32 outside them."
    )


def densities(
    name: str, setting: TransformSetting, methods: tuple[str, ...], fields: tuple[str, ...]
) -> tuple[Series, ...]:
    """Probability density of the error, a series for each field."""
    found = []
    for field in fields:
        values = {method: errors(setting, method).fields[field] for method in methods}
        widest = max(one.widest for one in values.values())
        edges = np.linspace(-widest, widest, BINS + 1)
        columns: dict[str, list[Any]] = {"error": [], "density": [], "precision": []}
        for method, one in values.items():
            columns["error"] += ((edges[1:] + edges[:-1]) / 2).tolist()
            columns["density"] += one.density(edges).tolist()
            columns["precision"] += [NAMES[method]] * BINS
        found.append(Series(f"{name}-{field.lower()}", columns, "error", "density", "precision"))
    return tuple(found)


def growths(name: str, setting: TransformSetting, methods: tuple[str, ...], field: str) -> Series:
    """RMS error over the number of pairs."""
    columns: dict[str, list[Any]] = {"pairs": [], "rms_error": [], "precision": []}
    for method in methods:
        columns["pairs"] += list(range(STEP, setting.pairs + 1, STEP))
        columns["rms_error"] += errors(setting, method).rms(field).tolist()
        columns["precision"] += [NAMES[method]] * (setting.pairs // STEP)
    return Series(name, columns, "pairs", "rms_error", "precision", log="xy")


def measure_low(scale: Scale) -> Found:
    """Fig. 7 and what its section says of growth: temperature and wind at the low resolution."""
    setting = LOW[scale]
    native, x9 = errors(setting, "native"), errors(setting, "x9")
    ratio = x9.deviation("T") / native.deviation("T")
    tails = x9.percentile("T") / native.percentile("T")

    wind = {method: mean_deviations(setting, method) for method in PLOTTED}
    rates = {method: growth(setting, method) for method in ("native", "x9", EXACT)}
    measured: dict[str, dict[str, Quantity]] = {
        "fig7-temperature-same": {"ratio": ratio.tolist(), "tail_ratio": tails.tolist()},
        "fig7-velocity-equal": {"ratio": [a / b for a, b in zip(wind["x9"], wind["native"], strict=True)]},
        "fig7-3xtf32-velocity-worse": {
            "error_3xtf32": wind["3xtf32"], "error_fp32": wind["native"], "error_bf16x9": wind["x9"],
        },
        "section6-slower-growth": {"growth_bf16x9": rates["x9"], "growth_fp32": rates["native"]},
    }  # fmt: skip
    run = described(setting, "")
    bias = {method: float(np.abs(errors(setting, method).fields["T"].means).mean()) for method in PLOTTED}
    unit = errors(setting, EXACT)
    slow = [a / b for a, b in zip(rates[EXACT], rates["native"], strict=True)]
    of_wind = wind_note(setting)
    notes = {
        "fig7-temperature-same": (
            f"{run} With GEMMs in FP64 the width is {(unit.deviation('T') / native.deviation('T')).mean():.2f} of "
            "native FP32's. Native's error grows with the length of its sums, BF16x9's hardly: tried at TCo29, with "
            "sums of 30 products and fewer, BF16x9's width is 0.9 to 1.5 times native's. Split-K by 4, tried "
            "with three wave numbers and 30 pairs, leaves native's as it is (1.02). Mean shift of the field after all "
            f"pairs: native {bias['native']:.4f} K, BF16x9 {bias['x9']:.4f} K, 3xTF32 {bias['3xtf32']:.4f} K; it does "
            "not enter a standard deviation."
        ),
        "fig7-velocity-equal": f"{run} {of_wind} Split-K by 4, tried likewise, makes native's U 0.88 and V 0.59.",
        "fig7-3xtf32-velocity-worse": f"{run} {of_wind}",
        "section6-slower-growth": (
            f"{run} With GEMMs in FP64 the wind's error grows at {slow[0]:.2f} (U) and {slow[1]:.2f} (V) of native "
            "FP32's rate."
        ),
    }
    growing = tuple(growths(f"section6-growth-{field.lower()}", setting, PLOTTED, field) for field in WINDS)
    return Found(measured, notes, (*densities("fig7", setting, PLOTTED, ("T", *WINDS)), *growing))


def measure_long(scale: Scale) -> Found:
    """Temperature's error after all pairs, and how it grows with native FP32 and with one TF32 product."""
    setting = LONG[scale]
    native, x9, tf32 = (errors(setting, method) for method in ("native", "x9", "tf32"))
    last_pair = setting.pairs
    pairs = np.arange(STEP, last_pair + 1, STEP)
    series = tf32.rms("T")
    finite = int(np.argmin(np.isfinite(series))) if not np.isfinite(series).all() else len(series)
    below = int(np.argmax(series >= 1)) if (series >= 1).any() else len(series)
    last = min(finite, below)
    x, y = pairs[:last].astype(np.float64), np.log10(series[:last])
    slope = np.log10(native.after(last_pair, "T") / native.after(setting.early, "T"))
    slope /= np.log10(last_pair / setting.early)
    measured: dict[str, dict[str, Quantity]] = {
        "fig7-temperature-below-tenth": {
            "error_bf16x9": x9.fields["T"].worst, "error_fp32": native.fields["T"].worst,
        },
        "section6-growth-law": {
            "fp32_slope": float(slope), "tf32_r2_semilog": line_r2(x, y), "tf32_r2_loglog": line_r2(np.log10(x), y),
            "growth_tf32": float(series[finite - 1] / series[0]),
            "growth_fp32": native.after(last_pair, "T") / native.after(STEP, "T"),
        },
    }  # fmt: skip
    late = np.log10(series[finite - 1] / series[finite // 2 - 1]) / np.log10(finite / (finite // 2))
    run = described(setting, "" if scale == "full" else " instead of TCo399")
    notes = {
        "fig7-temperature-below-tenth": (
            f"{run} A greatest value: it turns on the sample. Tried with the seven wave numbers of the scale full and "
            "seed 0, native's greatest error is 0.108 K (99th percentile 0.054 K), which is above the bound."
        ),
        "section6-growth-law": (
            f"{run} TF32's error over the second half "
            f"of the pairs has the slope {late:.2f} in the double logarithmic plot (1: linear) and is "
            f"{series[finite - 1]:.3g} at the end: what TF32 makes of the Legendre functions is the same in each pair. "
            "Operands truncated to TF32 rather than rounded, tried at TCo99, bring no straighter line over n."
        ),
    }
    return Found(measured, notes, (growths("section6-growth", setting, ("native", "x9", "tf32"), "T"),))


def measure_high(scale: Scale) -> Found:
    """Fig. 8, and whether the conversion of wind makes the difference, at the high resolution."""
    setting = HIGH[scale]
    fields = ("T", *WINDS)
    found = {method: mean_deviations(setting, method, fields) for method in PLOTTED}
    native, x9 = errors(setting, "native"), errors(setting, "x9")

    def ratio(suffix: str) -> float:
        each = [x9.deviation(name + suffix).mean() / native.deviation(name + suffix).mean() for name in WINDS]
        return float(np.sqrt(each[0] * each[1]))

    measured: dict[str, dict[str, Quantity]] = {
        "fig8-below-fp32": {"error_bf16x9": found["x9"], "error_fp32": found["native"]},
        "fig8-below-3xtf32": {"error_bf16x9": found["x9"], "error_3xtf32": found["3xtf32"]},
        "section6-velocity-conversion-cause": {"ratio_converted": ratio(""), "ratio_scalar": ratio(" scalar")},
    }
    run = described(setting, " instead of TCo3999")
    note = f"{run} {wind_note(setting)} Temperature, GEMMs in FP64: {of_native(setting, EXACT, ('T',))}."
    notes = {
        "fig8-below-fp32": note,
        "fig8-below-3xtf32": note,
        "section6-velocity-conversion-cause": (
            f"{note} The scalars U and V are first projected to the truncation, as FP64 transforms them."
        ),
    }
    return Found(measured, notes, densities("fig8", setting, PLOTTED, fields))


def _cells(of: dict[Scale, TransformSetting], methods: tuple[str, ...]) -> Callable[[Scale], Sequence[CellCall]]:
    return lambda scale: [call(errors, of[scale], method) for method in methods]


EXPERIMENTS = (
    Experiment(
        "spectral-low",
        ("fig7-temperature-same", "fig7-velocity-equal", "fig7-3xtf32-velocity-worse", "section6-slower-growth"),
        measure_low,
        {"quick": 6.0, "full": 1600.0},
        _cells(LOW, (*PLOTTED, EXACT, WIDE)),
    ),
    Experiment(
        "spectral-long",
        ("fig7-temperature-below-tenth", "section6-growth-law"),
        measure_long,
        {"quick": 16.0, "full": 150.0},
        _cells(LONG, ("native", "x9", "tf32")),
    ),
    Experiment(
        "spectral-high",
        ("fig8-below-fp32", "fig8-below-3xtf32", "section6-velocity-conversion-cause"),
        measure_high,
        {"quick": 9.0, "full": 2200.0},
        _cells(HIGH, (*PLOTTED, EXACT, WIDE)),
    ),
)
