"""Amplitudes of a random circuit by tensor contraction, in native FP32, BF16x9 and TF32: Section 6.2, Fig. 9.

It knows the stand-in for the 53 qubits (a patch of the same layout, same gates and layers) and how a complex product is
made of real ones; the circuit and the search of paths are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import hwsim
from hwsim_lab.papers import claims
from hwsim_lab.papers.bf16x9.circuit import Array, Network, network, random_circuit, state_vector
from hwsim_lab.papers.bf16x9.paths import ContractionPath, best, sliced
from hwsim_lab.papers.cells import CellCall, HeldCell, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

DEVICE = "b200"
NATIVE = "native FP32"
EMULATED = "BF16x9"
TF32 = "TF32"
METHODS: dict[str, dict[str, Any]] = {
    NATIVE: {"format": "fp32"},
    EMULATED: {"scheme": "bf16x9"},
    TF32: {"scheme": "tf32x1"},
    "BF16x6": {"scheme": "bf16x6"},
    "Markidis": {"scheme": "markidis"},
    "Ootomo": {"scheme": "ootomo-fp16"},
}
LAYERS = 12
OPEN = 6  # qubits whose values the 64 bit strings go through
RANGE_QUBITS: dict[Scale, int] = {"quick": 16, "full": 20}
WHOLE = 53  # qubits of the paper's circuit
COUNTED: dict[Scale, int] = {"quick": 32, "full": 1024}  # greedy paths of which the cheapest is taken, of 53 qubits
PATHS = 3
MOST, LESS = 32, 28  # log2 of the elements of a slice's largest tensor: 32 GiB, and a what-if
OPERATIONS = 8  # of a complex multiply-add
LEAST_K = 16  # of a product that runs in another method than native FP32
QUBITS: dict[Scale, int] = {"quick": 20, "full": 24}
SMALLER = 16  # qubits of a what-if
SEEDS: dict[Scale, int] = {"quick": 3, "full": 5}
TRIES = 256  # greedy paths, of which the cheapest is taken
SLICE = 64  # least K of a slice where native FP32 splits K, as a what-if
SLICES = 16
#: Path and method of Fig. 9.
WANTED = ((0, NATIVE), (0, EMULATED), (1, NATIVE), (1, EMULATED), (0, TF32))
Multiply = Callable[[Array, Array], Array]


# --- one contraction --------------------------------------------------------------------------------------------------


def contracted(net: Network, path: ContractionPath, multiply: Multiply, dtype: Any) -> Array:
    """The result of a network, its axes in the order of the open names."""
    tensors: list[Array | None] = [one.astype(dtype) for one in net.tensors]
    names = list(net.names)
    for a, b in path.pairs:
        left, right = tensors[a], tensors[b]
        assert left is not None and right is not None
        shared = [name for name in names[a] if name in names[b]]
        rows = [name for name in names[a] if name not in shared]
        columns = [name for name in names[b] if name not in shared]
        x = left.transpose([names[a].index(name) for name in rows + shared]).reshape(2 ** len(rows), -1)
        y = right.transpose([names[b].index(name) for name in shared + columns]).reshape(-1, 2 ** len(columns))
        tensors.append(multiply(x, y).reshape((2,) * (len(rows) + len(columns))))
        names.append((*rows, *columns))
        tensors[a] = tensors[b] = None
    result = tensors[-1]
    assert result is not None
    return result.transpose([names[-1].index(name) for name in net.open]).ravel()


def four_products(a: Array, b: Array, **options: Any) -> Array:
    """A complex product of FP32 parts as four real ones on the device, joined by FP32 additions."""
    left, right = ((np.ascontiguousarray(x.real), np.ascontiguousarray(x.imag)) for x in (a, b))
    (rr, ri), (ir, ii) = ([hwsim.matmul(x, y, device=DEVICE, **options) for y in right] for x in left)
    return np.asarray((rr - ii) + np.complex64(1j) * (ri + ir))


def one_sum(a: Array, b: Array, **options: Any) -> Array:
    """A complex product as a real one of twice the depth: real and imaginary parts alternate in one sum."""
    left = np.stack([a.real, -a.imag, a.imag, a.real], axis=-1).reshape(*a.shape, 2, 2)
    left = left.transpose(2, 0, 1, 3).reshape(2 * len(a), -1)
    right = np.stack([b.real, b.imag], axis=1).reshape(-1, b.shape[1])
    real, imaginary = np.split(hwsim.matmul(left, right, device=DEVICE, **options), 2)
    return np.asarray(real + np.complex64(1j) * imaginary)


@dataclass(frozen=True)
class DeviceRun:
    """The amplitudes, and the depths k of the products that ran in the method itself."""

    amplitudes: Array
    depths: tuple[int, ...]


def on_device(net: Network, path: ContractionPath, method: str, product: Callable[..., Array]) -> DeviceRun:
    """A contraction on the device: products of k < LEAST_K in native FP32, the others in the method."""
    depths: list[int] = []

    def multiply(a: Array, b: Array) -> Array:
        if a.shape[1] < LEAST_K:
            return product(a, b, **METHODS[NATIVE])
        depths.append(a.shape[1])
        return product(a, b, **METHODS[method])

    return DeviceRun(contracted(net, path, multiply, np.complex64), tuple(depths))


# --- all of them ------------------------------------------------------------------------------------------------------


@cache
def patch_network(qubits: int, seed: int) -> Network:
    """A seed's circuit and bit string; the open qubits are the outermost."""
    bits = np.random.default_rng([seed, qubits]).integers(0, 2, qubits)
    return network(random_circuit(qubits, LAYERS, seed), bits, tuple(range(qubits - OPEN, qubits)))


@cache
def path_of(qubits: int, number: int, tries: int = TRIES, most: int | None = None) -> ContractionPath:
    """A path of the layout's network: it is the same for all seeds of gates."""
    return best(patch_network(qubits, 0).names, number, tries, most)


@dataclass(frozen=True)
class StoredRun:
    """A DeviceRun as numbers: real and imaginary parts of the amplitudes, and depths."""

    real: list[float]
    imaginary: list[float]
    depths: tuple[int, ...]


@HeldCell
def stored_run(qubits: int, seed: int, path: int, method: str, product: Callable[..., Array]) -> StoredRun:
    """A run of a seed's circuit along a path."""
    found = on_device(patch_network(qubits, seed), path_of(qubits, path), method, product)
    return StoredRun(found.amplitudes.real.tolist(), found.amplitudes.imag.tolist(), found.depths)


def run(qubits: int, seed: int, path: int, method: str, product: Callable[..., Array]) -> DeviceRun:
    """The same with its amplitudes in FP32."""
    found = stored_run(qubits, seed, path, method, product)
    parts = (np.asarray(one, np.float32) for one in (found.real, found.imaginary))
    return DeviceRun(np.asarray(next(parts) + np.complex64(1j) * next(parts)), found.depths)


def reference(qubits: int, seed: int, *, gates_in_fp32: bool = False) -> Array:
    """The amplitudes in fp64, from gates in fp64 or in fp32."""
    net = patch_network(qubits, seed)
    if gates_in_fp32:
        net = Network([x.astype(np.complex64) for x in net.tensors], net.names, net.open)
    return contracted(net, path_of(qubits, 0), np.matmul, np.complex128)


# --- Fig. 9 -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AmplitudeErrors:
    """Over RMS of the fp64 amplitudes: by seed, of every bit string, distances between two ways of computing them.

    to_fp64: by path and method; between: BF16x9 and native FP32 on path 0; paths: native FP32 on paths 0 and 1.
    """

    to_fp64: Mapping[tuple[int, str], list[Array]]
    between: list[Array]
    paths: list[Array]

    def median(self, path: int, method: str) -> float:
        """Over bit strings and seeds."""
        return pooled(self.to_fp64[path, method])


def pooled(series: list[Array]) -> float:
    """The median over seeds and bit strings."""
    return float(np.median(np.concatenate(series)))


def quartiles(errors: Array) -> float:
    """The distance of the quartiles."""
    low, high = np.percentile(errors, [25, 75])
    return float(high - low)


def split_deep(a: Array, b: Array, **options: Any) -> Array:
    """As `four_products`, K split as far as it goes, and the partial sums added."""
    return four_products(a, b, split_k=max(1, min(SLICES, a.shape[1] // SLICE)), **options)


@cache
def errors(
    qubits: int,
    seeds: int,
    product: Callable[..., Array] = four_products,
    *,
    gates_in_fp32: bool = False,
    wanted: tuple[tuple[int, str], ...] = WANTED,
) -> AmplitudeErrors:
    """Runs of all seeds. wanted: path and method."""
    to_fp64: dict[tuple[int, str], list[Array]] = {key: [] for key in wanted}
    between: list[Array] = []
    paths: list[Array] = []
    for seed in range(seeds):
        exact = reference(qubits, seed, gates_in_fp32=gates_in_fp32)
        size = np.sqrt(np.mean(np.abs(exact) ** 2))
        found = {key: run(qubits, seed, *key, product) for key in wanted}
        for key in wanted:
            to_fp64[key].append(np.abs(found[key].amplitudes - exact) / size)
        pairs = ((between, (0, EMULATED)), (paths, (1, NATIVE)))
        for series, other in pairs:
            if other in found:
                series.append(np.abs(found[other].amplitudes - found[0, NATIVE].amplitudes) / size)
    return AmplitudeErrors(to_fp64, between, paths)


def named(scale: Scale) -> str:
    """What was run."""
    qubits, seeds = QUBITS[scale], SEEDS[scale]
    of_path = " and ".join(
        f"{len(ks)} of k >= {LEAST_K} (the deepest {max(ks)}) on path {i}"
        for i, ks in enumerate(deep_products(path_of(qubits, i)) for i in (0, 1))
    )
    return (
        f"{qubits} qubits in the middle of the chip, {seeds} seeds, the {OPEN} outermost qubits open; gates as "
        f"published (phases drawn), joined to pairs' gates in fp64 and then rounded; paths: the best of {TRIES} greedy "
        f"ones with chance, contractions {of_path}; complex products as four real ones. "
    )


def deep_products(path: ContractionPath) -> list[int]:
    """The depths k of a path's products that are emulated."""
    return [1 << one.k for one in path.costs() if 1 << one.k >= LEAST_K]


def measure_amplitudes(scale: Scale) -> Found:
    """Fig. 9 and TF32: a stand-in small enough for exact bits."""
    size = (QUBITS[scale], SEEDS[scale])
    base, native = errors(*size), ((0, NATIVE), (1, NATIVE))
    split, joined = (errors(*size, way, wanted=native) for way in (split_deep, one_sum))
    few = errors(SMALLER, SEEDS[scale], wanted=(*native, (0, EMULATED)))
    reasons = noted(base, AmplitudeWhatIfs(errors(*size, gates_in_fp32=True), split, joined, few))
    fp32, own = base.median(0, NATIVE), base.median(0, EMULATED)
    pairs = list(zip(base.to_fp64[0, EMULATED], base.to_fp64[0, NATIVE], strict=True))
    rms = {
        name: float(np.median([np.sqrt(np.mean(one**2)) for one in base.to_fp64[0, name]])) for name in (TF32, NATIVE)
    }
    measured: dict[str, dict[str, Quantity]] = {
        "section6-tf32-noticeable": {"rms_tf32": rms[TF32], "rms_fp32": rms[NATIVE]},
        "fig9-about-same": {"ratio": own / fp32},
        "fig9-slightly-smaller": {"ratio": [float(np.median(x) / np.median(y)) for x, y in pairs]},
        "fig9-more-uniform": {"spread_ratio": [quartiles(x) / quartiles(y) for x, y in pairs]},
        "fig9-emulated-against-native": {"difference": pooled(base.between), "error_fp32": fp32},
        "fig9-path-difference": {"difference": pooled(base.paths), "error_fp32": fp32},
        "fig9-path-accuracy": {
            "ratio": base.median(1, NATIVE) / fp32, "ratio_bf16x9": base.median(1, EMULATED) / own,
        },
    }  # fmt: skip
    notes = {id: named(scale) + reasons.get(id, "") for id in measured}
    return Found(measured, notes, (boxes(base),))


@dataclass(frozen=True)
class AmplitudeWhatIfs:
    """same: gates rounded to fp32 in the reference too. split: native FP32 with K in slices. joined: real and imaginary
    parts in one sum. smaller: fewer qubits, SMALLER.
    """

    same: AmplitudeErrors
    split: AmplitudeErrors
    joined: AmplitudeErrors
    smaller: AmplitudeErrors


def noted(base: AmplitudeErrors, other: AmplitudeWhatIfs) -> dict[str, str]:
    """What moves the result: native FP32's order of summation first, and with it k."""
    fp32, own, less = base.median(0, NATIVE), base.median(0, EMULATED), other.split.median(0, NATIVE)
    few, deepest = other.smaller, max(deep_products(path_of(SMALLER, 0)))
    few_fp32 = few.median(0, NATIVE)
    why = (
        f"Native FP32 adds all of k in one chain. With K in up to {SLICES} slices of {SLICE} or more, summed apart, "
        f"its median error falls from {fp32:.1e} to {less:.1e}, "
    )
    fewer = f"on {SMALLER} qubits (k of path 0 at most {deepest})"
    gates = f"with the same rounded gates in the reference {ratio(other.same, 0):.2f}"
    paths = {
        name: one.median(1, NATIVE) / one.median(0, NATIVE) for name, one in (("s", other.split), ("j", other.joined))
    }
    pairs = list(zip(base.to_fp64[0, EMULATED], other.split.to_fp64[0, NATIVE], strict=True))
    medians = ", ".join(f"{np.median(x) / np.median(y):.2f}" for x, y in pairs)
    spreads = ", ".join(f"{quartiles(x) / quartiles(y):.2f}" for x, y in pairs)
    return {
        "fig9-about-same": f"{why}and the ratio is {own / less:.2f}; {fewer} {ratio(few, 0):.2f}; {gates}.",
        "fig9-slightly-smaller": f"{why}and the ratios are {medians}.",
        "fig9-more-uniform": (
            f"The distance of the quartiles shrinks with the error itself: over the median it is "
            f"{relative_spread(base, EMULATED):.2f} with BF16x9, {relative_spread(base, NATIVE):.2f} with native FP32. "
            f"{why}and the ratios are {spreads}."
        ),
        "fig9-emulated-against-native": (
            f"{why}so that BF16x9's own error ({own:.1e}) is as large; two independent errors differ by the root of "
            "the sum of squares, and only the rounding of gates and of the products of small k is common to both. "
            f"Over native FP32's error the difference is {pooled(base.between) / fp32:.2f}; {fewer} "
            f"{pooled(few.between) / few_fp32:.2f}."
        ),
        "fig9-path-difference": (
            f"{why}and the difference is {pooled(other.split.paths) / less:.2f} of it (before: "
            f"{pooled(base.paths) / fp32:.2f}); {fewer} {pooled(few.paths) / few_fp32:.2f}; with real and imaginary "
            f"parts in one sum of twice the length {pooled(other.joined.paths) / other.joined.median(0, NATIVE):.2f}."
        ),
        "fig9-path-accuracy": (
            f"The paths have other k. {why}and the ratio of the paths is {paths['s']:.2f}; {fewer} "
            f"{few.median(1, NATIVE) / few_fp32:.2f}; with real and imaginary parts in one sum of twice the length "
            f"{paths['j']:.2f}."
        ),
    }


def ratio(errors_of: AmplitudeErrors, path: int) -> float:
    """The median error of BF16x9 over that of native FP32."""
    return errors_of.median(path, EMULATED) / errors_of.median(path, NATIVE)


def relative_spread(errors_of: AmplitudeErrors, method: str) -> float:
    """The distance of the quartiles over the median, path 0, mean over the seeds."""
    return float(np.mean([quartiles(one) / np.median(one) for one in errors_of.to_fp64[0, method]]))


def boxes(base: AmplitudeErrors) -> Series:
    """Fig. 9's five boxes, pooled over the seeds."""
    drawn = {
        "1: native FP32 to FP64": base.to_fp64[0, NATIVE],
        "2: BF16x9 to FP64": base.to_fp64[0, EMULATED],
        "3: BF16x9 to native FP32": base.between,
        "4: path 1 to path 0": base.paths,
        "5: path 1 to FP64": base.to_fp64[1, NATIVE],
    }
    marks = {"least": 0, "lower quartile": 25, "median": 50, "upper quartile": 75, "greatest": 100}
    rows = [
        (box, mark, float(np.percentile(np.concatenate(series), share)))
        for mark, share in marks.items()
        for box, series in drawn.items()
    ]
    columns: dict[str, list[Any]] = {
        "box": [row[0] for row in rows], "mark": [row[1] for row in rows], "relative error": [row[2] for row in rows],
    }  # fmt: skip
    return Series("fig9", columns, x="box", y="relative error", by="mark", log="y")


# --- Section 6.2: amplitudes, and the cost of 53 qubits ---------------------------------------------------------------


def measure_range(scale: Scale) -> Found:
    """How the moduli of all amplitudes lie, scaled to 53 qubits."""
    id = "section6-amplitude-range"
    bounds = claims.read("bf16x9").claim(id).paper
    low, high = (float(bounds[name]) for name in ("lowest", "greatest"))  # type: ignore[arg-type]
    qubits = RANGE_QUBITS[scale]
    size = np.concatenate([
        np.abs(state_vector(random_circuit(qubits, LAYERS, seed))).ravel() for seed in range(PATHS)
    ]) * 2.0 ** ((qubits - WHOLE) / 2)  # fmt: skip
    inside = float(np.mean((size >= low) & (size <= high)))
    mean = float(np.sqrt(np.mean(size**2)))
    note = (
        f"{qubits} qubits, {PATHS} seeds. The RMS modulus is {mean:.2e} by normalization alone; of the probabilities "
        f"{float(np.mean((size**2 >= low) & (size**2 <= high))):.2f} lie in the range."
    )
    edges = np.linspace(-12, -7, 26)
    counts, _ = np.histogram(np.log10(np.maximum(size, 1e-300)), edges)
    columns: dict[str, list[Any]] = {
        "modulus": [float(x) for x in 10 ** ((edges[1:] + edges[:-1]) / 2)],
        "share": [float(x) for x in counts / len(size)],
    }
    measured: dict[str, dict[str, Quantity]] = {
        id: {"share_inside": inside, "lower_bound": low, "upper_bound": high},
    }
    return Found(measured, {id: note}, (Series("amplitudes", columns, x="modulus", y="share", log="x"),))


def cumulated(path: ContractionPath) -> tuple[Array, Array]:
    """Per cent of the pairs, the most expensive first, and per cent of the operations that they have."""
    each = np.sort([float(OPERATIONS * one.multiply_adds) for one in path.costs()])[::-1]
    return 100 * np.arange(len(each) + 1) / len(each), 100 * np.append(0, np.cumsum(each)) / each.sum()


def deep_share(path: ContractionPath) -> float:
    """The share of operations in products of k >= LEAST_K."""
    costs = path.costs()
    deep = sum(one.multiply_adds for one in costs if 1 << one.k >= LEAST_K)
    return deep / sum(one.multiply_adds for one in costs)


def measure_costs(scale: Scale) -> Found:
    """The pairs of greedy paths of the whole circuit, counted."""
    concentrated, dominates = "section6-cost-concentrated", "section6-k16-dominates"
    top = float(claims.read("bf16x9").claim(concentrated).paper["top"])  # type: ignore[arg-type]
    paths = [path_of(WHOLE, number, COUNTED[scale], MOST) for number in range(PATHS)]
    curves = [cumulated(path) for path in paths]
    shares = [float(np.interp(top, *curve)) for curve in curves]
    small = [float(np.interp(top, *cumulated(sliced(path, LESS)))) for path in paths]
    depths = [depth for number in (0, 1) for depth in run(QUBITS["quick"], 0, number, EMULATED, four_products).depths]
    measured: dict[str, dict[str, Quantity]] = {
        concentrated: {"flop_share": float(np.mean(shares)), "top": top},
        dominates: {"share_k16": float(np.mean([deep_share(path) for path in paths])), "least_k": min(depths)},
    }
    petaflops = " ".join(f"{OPERATIONS * path.multiply_adds / 1e15:.2g}" for path in paths)
    slices = " ".join(str(1 << path.sliced.bit_count()) for path in paths)
    note = (
        f"{WHOLE} qubits, {LAYERS} layers, the {OPEN} outermost open; each pair's gates and one-qubit gates are one "
        f"tensor: {len(paths[0].pairs)} contractions a slice, {slices} slices of tensors of at most 2^{MOST} elements "
        f"(32 GiB), {petaflops} PFLOP: the best of {COUNTED[scale]} greedy paths each, far from the paper's. "
    )
    notes = {
        concentrated: (
            f"{note}{top} % are {top * len(paths[0].pairs) / 100:.2f} contractions; between whole numbers the share is "
            f"interpolated. By path: {', '.join(f'{x:.1f}' for x in shares)} %; with tensors of at most 2^{LESS} "
            f"{', '.join(f'{x:.1f}' for x in small)} %."
        ),
        dominates: f"{note}least_k is the least of the stand-in's emulated products; k is a power of two.",
    }
    rows = [
        (f"path {i}", float(x), float(y)) for i, curve in enumerate(curves) for x, y in zip(*curve, strict=True) if x
    ]
    columns: dict[str, list[Any]] = {
        "path": [row[0] for row in rows], "contractions (%)": [row[1] for row in rows],
        "operations (%)": [row[2] for row in rows],
    }  # fmt: skip
    series = Series("contraction-costs", columns, x="contractions (%)", y="operations (%)", by="path", log="x")
    return Found(measured, notes, (series,))


def amplitude_runs(
    qubits: int, seeds: int, keys: Sequence[tuple[int, str]], product: Callable[..., Array] = four_products
) -> list[CellCall]:
    """The runs behind `errors`."""
    return [call(stored_run, qubits, seed, path, method, product) for path, method in keys for seed in range(seeds)]


def _amplitude_cells(scale: Scale) -> list[CellCall]:
    size, native = (QUBITS[scale], SEEDS[scale]), ((0, NATIVE), (1, NATIVE))
    return [
        *amplitude_runs(*size, WANTED),
        *amplitude_runs(*size, native, split_deep),
        *amplitude_runs(*size, native, one_sum),
        *amplitude_runs(SMALLER, SEEDS[scale], (*native, (0, EMULATED))),
    ]


EXPERIMENTS = (
    Experiment("amplitude-range", ("section6-amplitude-range",), measure_range, {"quick": 2.0, "full": 40.0}),
    Experiment(
        "contraction-costs",
        ("section6-cost-concentrated", "section6-k16-dominates"),
        measure_costs,
        {"quick": 7.0, "full": 120.0},
    ),
    Experiment(
        "contracted-amplitudes",
        (
            "section6-tf32-noticeable", "fig9-about-same", "fig9-slightly-smaller", "fig9-more-uniform",
            "fig9-emulated-against-native", "fig9-path-difference", "fig9-path-accuracy",
        ),
        measure_amplitudes,
        {"quick": 18.0, "full": 2400.0},
        _amplitude_cells,
    ),
)  # fmt: skip
