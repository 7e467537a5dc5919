"""Times of LE-GEMM and its baselines over sizes and shapes: Table 6, Fig. 8, 9, 15 and 17, and claims of the abstract.

It knows the figures' sizes as the claims assume them.
"""

from __future__ import annotations

import numpy as np

from hwsim.papers.conditions import Quantity
from hwsim.papers.experiment import Experiment, Found, Scale, Series
from hwsim.papers.le_gemm import runs
from hwsim.papers.le_gemm.runs import A800_TILE, BASELINES, DEVICES, NAMES, STAND_IN, TABLE_2

Shape = tuple[int, int, int]
EVERY = tuple(range(1024, 10241, 1024))
#: Sizes by scale: those that claims name one by one are run at both.
SIZES: dict[Scale, tuple[int, ...]] = {"quick": (1024, 4096, 8192), "full": EVERY}
FAMILIES = ("square", "wide", "deep")
LABELS = {"square": "n*n*n", "wide": "n*4n*n", "deep": "n*n*4n"}
VECTOR = (
    "rocblas_sgemm runs on the FP32 lanes of the MI210 (as Table 5 says), by an instruction added to its device file; "
    "hwsim's own SGEMM of the MI210 runs on the matrix unit, with twice the peak."
)


def shape(family: str, n: int) -> Shape:
    """(M, N, K) of the three shapes; (n*4n*n) and (n*n*4n) are M*N*K."""
    return {"square": (n, n, n), "wide": (n, 4 * n, n), "deep": (n, n, 4 * n)}[family]


def gain(device: str, family: str, n: int, over: str) -> float:
    """LE-GEMM's speed over a baseline's."""
    m, columns, k = shape(family, n)
    return runs.faster(device, m, columns, k, over)


def mean_gain(device: str, family: str, over: str, sizes: tuple[int, ...]) -> float:
    """The arithmetic mean over n."""
    return float(np.mean([gain(device, family, n, over) for n in sizes]))


def _plain_tflops(family: str, n: int) -> float:
    return runs.tflops("plain", "a800", *shape(family, n))


def measure_figures(scale: Scale) -> Found:
    """Fig. 8, 9 and Table 6: all shapes, sizes and baselines on both devices."""
    sizes = SIZES[scale]
    means = {
        (device, family, over): mean_gain(device, family, over, sizes)
        for device in DEVICES
        for family in FAMILIES
        for over in BASELINES
    }

    def by_family(device: str, over: str) -> list[float]:
        return [means[device, family, over] for family in FAMILIES]

    def by_baseline(device: str, family: str) -> list[float]:
        return [means[device, family, over] for over in BASELINES]

    def at(device: str, family: str, over: str, *chosen: int) -> list[float]:
        return [gain(device, family, n, over) for n in chosen]

    largest, ends = sizes[-1], (1024, 2048, 4096, 8192) if scale == "full" else sizes
    small = (1024, 2048, 3072, 4096) if scale == "full" else (1024, 4096)
    trend: dict[str, Quantity] = {family: at("mi210", family, "plain", *ends) for family in FAMILIES}
    measured: dict[str, dict[str, Quantity]] = {
        "abstract-speed": {
            device: [means[device, family, over] for over in BASELINES for family in FAMILIES] for device in DEVICES
        },
        "fig8-mean-speedup": {over: float(np.mean(by_family("mi210", over))) for over in ("blas", "mark", "ooto")},
        "fig8-rocwmma": {"speedup": by_family("mi210", "plain")},
        "fig8-small-n": {
            "le_over_rocwmma": [x for family in FAMILIES[:2] for x in at("mi210", family, "plain", *small)]
        },
        "fig8-large-n": {"speedup": [gain("mi210", f, largest, over) for f in FAMILIES for over in BASELINES]},
        "fig8-trend": trend | {"blas": at("mi210", "square", "blas", *ends)},
        "fig9-square": {"speedup": by_baseline("a800", "square")},
        "fig9-wide": {"speedup": by_baseline("a800", "wide")},
        "fig9-small-n": {
            "small": [*at("a800", "square", "blas", 1024, 2048), *at("a800", "square", "plain", 1024, 2048)],
            "large": [gain("a800", "square", 8192, "blas"), gain("a800", "square", 8192, "plain")],
        },
        "fig9-large-n": {
            "speedup": [gain("a800", f, largest, over) for f in FAMILIES for over in BASELINES],
            "gain": at("a800", "square", "blas", 1024, largest),
        },
        "fig9-skewed": {"speedup": by_baseline("a800", "wide") + by_baseline("a800", "deep")},
        "fig9-wmma-drop": {"wmma": [_plain_tflops("deep", n) for n in (7168, 8192, 9216, 10240)]},
        "fig9-wmma-drop-shape": {"ratio": [_plain_tflops(f, 10240) / _plain_tflops(f, 7168) for f in FAMILIES]},
        "fig9-mark-ooto-alike": {"ratio": [_alike(device, sizes) for device in DEVICES]},
        "table6-mi210-rocblas": {"speedup": by_family("mi210", "blas")},
        "table6-mi210-rocwmma": {"speedup": by_family("mi210", "plain")},
        "table6-mi210-mark": {"speedup": by_family("mi210", "mark")},
        "table6-mi210-ooto": {"speedup": by_family("mi210", "ooto")},
        "table6-a800-cublas": {"speedup": by_family("a800", "blas")},
        "table6-a800-wmma": {"speedup": by_family("a800", "plain")},
        "table6-a800-mark": {"speedup": by_family("a800", "mark")},
        "table6-a800-ooto": {"speedup": by_family("a800", "ooto")},
    }
    measured["fig8-mean-speedup"]["rocblas"] = measured["fig8-mean-speedup"].pop("blas")
    return Found(measured, _notes(measured, sizes, scale), tuple(_figure(device, sizes) for device in DEVICES))


def _alike(device: str, sizes: tuple[int, ...]) -> float:
    found = [runs.tflops("mark", device, n, n, n) / runs.tflops("ooto", device, n, n, n) for n in sizes]
    return float(np.mean(found))


def _notes(measured: dict[str, dict[str, Quantity]], sizes: tuple[int, ...], scale: Scale) -> dict[str, str]:
    half = f"Means over n = {', '.join(map(str, sizes))} instead of all ten. " if scale == "quick" else ""
    at = (2048,) * 3
    piped = [runs.tflops("le", d, *at) / runs.tflops("plain", d, *at, tile=None, stages=None) for d in DEVICES]
    single = [
        runs.tflops("le", d, *at) / runs.tflops("plain", d, *at, tile=t)
        for d, t in zip(DEVICES, ((32, 32, 16), (16, 16, 16)), strict=True)
    ]
    moves = (
        f"{STAND_IN} At n = 2048 LE-GEMM over plain FP16 moves from {piped[0]:.2f} (MI210) and {piped[1]:.2f} (A800) "
        f"with the library's pipelined kernel to {single[0]:.1f} and {single[1]:.1f} with one fragment of Table 2 per "
        "block; the paper's kernel is not given."
    )
    cores = (
        f"At n = 4096 cublasSgemm runs at {runs.tflops('blas', 'a800', 4096, 4096, 4096):.1f} TFLOPS and LE-GEMM at "
        f"{runs.tflops('le', 'a800', 4096, 4096, 4096):.1f}, with its matrix units busy most of the time; why "
        f"the paper's "
        "is so much slower is not explained."
    )
    notes = {}
    for claim in measured:
        is_a800 = "a800" in claim or claim.startswith(("fig9", "abstract"))
        is_blas = claim in ("table6-mi210-rocblas", "table6-a800-cublas")
        parts = [half] if not claim.startswith(NO_MEANS) else []
        parts += [] if is_blas else [moves + " "]
        parts += [A800_TILE + " "] if is_a800 else []
        parts += [VECTOR + " "] if claim in ("table6-mi210-rocblas", "fig8-mean-speedup", "fig8-trend") else []
        parts += [cores] if claim in ("table6-a800-cublas", "fig9-square", "fig9-wide", "fig9-small-n") else []
        notes[claim] = "".join(parts).strip()
    if scale == "quick":
        notes["fig8-small-n"] = f"n = 1024 and 4096 alone. {notes['fig8-small-n']}"
        notes["fig8-trend"] = f"n = 1024, 4096, 8192. {notes['fig8-trend']}"
        for claim in ("fig8-large-n", "fig9-large-n"):
            notes[claim] = f"n = 8192 instead of 10240. {notes[claim]}"
    return notes


def _figure(device: str, sizes: tuple[int, ...]) -> Series:
    columns: dict[str, list[object]] = {"shape": [], "method": [], "line": [], "n": [], "tflops": []}
    for family in FAMILIES:
        for method in ("le", *BASELINES):
            for n in sizes:
                rate = runs.tflops(method, device, *shape(family, n))
                row = (LABELS[family], NAMES[method], f"{NAMES[method]} {LABELS[family]}", n, rate)
                for column, cell in zip(columns.values(), row, strict=True):
                    column.append(cell)
    return Series("fig8" if device == "mi210" else "fig9", columns, x="n", y="tflops", by="line")


NO_MEANS = ("fig9-wmma", "fig9-large", "fig9-small", "fig8-large", "fig8-trend", "fig8-small")
FIGURE_CLAIMS = (
    "abstract-speed", "fig8-mean-speedup", "fig8-rocwmma", "fig8-small-n", "fig8-large-n", "fig8-trend", "fig9-square",
    "fig9-wide", "fig9-small-n", "fig9-large-n", "fig9-skewed", "fig9-wmma-drop", "fig9-wmma-drop-shape",
    "fig9-mark-ooto-alike", "table6-mi210-rocblas", "table6-mi210-rocwmma", "table6-mi210-mark", "table6-mi210-ooto",
    "table6-a800-cublas", "table6-a800-wmma", "table6-a800-mark", "table6-a800-ooto",
)  # fmt: skip


# --- Fig. 17, 6 and Eq. 10: what the tile, the pipeline and the dropped product give ---------------------------------

BY_HAND = (64, 64, 32)
MODEL_SIZES = (1024, 2048, 4096, 8192)


def measure_parts(scale: Scale) -> Found:
    """Fig. 17: LE-GEMM with another tile, and without its pipeline."""
    sizes = MODEL_SIZES
    le = {(d, n): runs.seconds("le", d, n, n, n) for d in DEVICES for n in sizes}
    hand = {(d, n): runs.seconds("le", d, n, n, n, tile=BY_HAND) for d in DEVICES for n in sizes}
    plain = {(d, n): runs.seconds("le", d, n, n, n, stages=1) for d in DEVICES for n in sizes}
    model = {d: [hand[d, n] / le[d, n] for n in sizes] for d in DEVICES}
    pipeline = {d: [plain[d, n] / le[d, n] for n in sizes] for d in DEVICES}
    means = {name: [float(np.mean(x[d])) for d in DEVICES] for name, x in (("model", model), ("pipeline", pipeline))}
    n = sizes[-1]
    busy = {stages: [_busy(d, n, stages) for d in DEVICES] for stages in (2, 1)}
    measured: dict[str, dict[str, Quantity]] = {
        "fig17-model": {"speedup": means["model"]},
        "fig17-model-large-n": {d: model[d] for d in DEVICES},
        "fig17-pipeline": {"speedup": means["pipeline"]},
        "fig17-pipeline-larger": means,  # type: ignore[dict-item]
        "fig17-utilisation": {"le": busy[2], "plain": busy[1]},
        "fig6-pipeline-overlap": {"serial_over_le": [pipeline[d][-1] for d in DEVICES]},
    }
    roomy = [runs.seconds("le", "a800", n, n, n, tile=TABLE_2["a800"], stages=stages, roomy=True) for stages in (2, 1)]
    note = (
        f"{A800_TILE} With twice the registers Table 2's tile takes {roomy[0] / le['a800', n]:.3f} of this time at "
        f"n = {n}, and the pipeline gains {roomy[1] / roomy[0]:.2f}."
    )
    direct = "The plain kernel loads a whole tile into one buffer and waits; the paper's loads fragments by the API."
    even = (
        "On the MI210 both tiles keep the matrix unit busy at large n, so that the tile gains nothing; at n "
        "= 1024 there "
        "are 64 tiles of 128 x 128 for 104 CUs. The hand-chosen tile of the paper is not given."
    )
    notes = dict.fromkeys(measured, f"{note} {direct}") | {
        "fig17-model": f"{even} {note}",
        "fig17-model-large-n": f"{even} {note}",
    }
    columns: dict[str, list[object]] = {"line": [], "n": [], "tflops": []}
    for d in DEVICES:
        for name, times in (("LE-GEMM", le), ("by hand", hand), ("no pipeline", plain)):
            columns["line"] += [f"{d}, {name}"] * len(sizes)
            columns["n"] += list(sizes)
            columns["tflops"] += [runs.operations(n, n, n) / times[d, n] / 1e12 for n in sizes]
    return Found(measured, notes, (Series("fig17", columns, x="n", y="tflops", by="line"),))


def _busy(device: str, n: int, stages: int) -> float:
    found = runs.timed("le", device, n, n, n, stages=stages)
    assert found.cycles is not None
    engine = runs.unit_of(found).engine
    cores = found.occupancy[0]["cores"]
    return float(100 * found.engines[engine]["busy_cycles"] / (found.cycles * cores))


# --- Fig. 15 and Section 1: products of applications -----------------------------------------------------------------

POINTS: dict[Scale, tuple[int, ...]] = {
    "quick": (4096, 8192, 16384, 32768, 65536, 131072),
    "full": (4096, 8192, 16384, 32768, 65536, 131072),
}
BATCH, HIDDEN, INNER, LENGTHS = 32, 768, 3072, (128, 256, 512)
TOKENS, WIDTHS = 4096, (1024, 2048, 4096, 8192)
FP32_BYTES = 4


def _sum(method: str, device: str, products: list[Shape]) -> float:
    return sum(runs.seconds(method, device, *sizes) for sizes in products)


def _speedup(device: str, products: list[Shape]) -> float:
    return _sum("blas", device, products) / _sum("le", device, products)


def _ffn(length: int) -> list[Shape]:
    rows = BATCH * length
    return [(rows, INNER, HIDDEN), (rows, HIDDEN, INNER)]


def _share(device: str, products: list[Shape], moved: int) -> float:
    chip = runs.lanes_device(device)
    assert chip.hbm is not None
    product = _sum("blas", device, products)
    return 100 * product / (product + moved / chip.hbm.bytes_per_second)


def measure_applications(scale: Scale) -> Found:
    """Fig. 15: the products of K-means, of BERT's feed-forward layer and of Q, K, V with SGEMM and with LE-GEMM."""
    kmeans = {d: [_speedup(d, [(p, 1024, 1024)]) for p in POINTS[scale]] for d in DEVICES}
    ffn = {d: [_speedup(d, _ffn(length)) for length in LENGTHS] for d in DEVICES}
    linear = {d: [_speedup(d, [(TOKENS, h, h)] * 3) for h in WIDTHS] for d in DEVICES}
    points = POINTS[scale][-1]
    rows = BATCH * LENGTHS[-1]
    passes = FP32_BYTES * (points * 1024 + points * 1024)
    writes = 2 * FP32_BYTES * (rows * INNER + rows * HIDDEN)
    measured: dict[str, dict[str, Quantity]] = {
        "fig15-kmeans": {"speedup": [float(np.mean(kmeans[d])) for d in DEVICES]},
        "fig15-ffn": {"speedup": [float(np.mean(ffn[d])) for d in DEVICES]},
        "fig15-llm-linear": {"speedup": [float(np.mean(linear[d])) for d in DEVICES]},
        "fig15-kmeans-trend": {d: kmeans[d] for d in DEVICES},
        "fig15-ffn-lengths": {"speedup": [x for d in DEVICES for x in ffn[d]]},
        "section1-gemm-share": {
            "kmeans": [_share(d, [(points, 1024, 1024)], passes) for d in DEVICES],
            "ffn": [_share(d, _ffn(LENGTHS[-1]), writes) for d in DEVICES],
        },
    }
    why = f"As in Table 6 the simulated LE-GEMM is much faster than the paper's. {VECTOR} {A800_TILE}"
    columns: dict[str, list[object]] = {"line": [], "point": [], "speedup": []}
    for name, found, at in (("K-means", kmeans, POINTS[scale]), ("FFN", ffn, LENGTHS), ("linear", linear, WIDTHS)):
        for d in DEVICES:
            columns["line"] += [f"{d}, {name}"] * len(at)
            columns["point"] += list(at)
            columns["speedup"] += found[d]
    return Found(
        measured,
        {claim: why for claim in measured if claim != "section1-gemm-share"} | {"section1-gemm-share": VECTOR},
        (Series("fig15", columns, x="point", y="speedup", by="line", log="x"),),
    )


EXPERIMENTS = (
    Experiment("figures", FIGURE_CLAIMS, measure_figures, {"quick": 40.0, "full": 200.0}),
    Experiment(
        "parts",
        (
            "fig17-model", "fig17-model-large-n", "fig17-pipeline", "fig17-pipeline-larger", "fig17-utilisation",
            "fig6-pipeline-overlap",
        ),
        measure_parts,
        {"quick": 10.0, "full": 10.0},
    ),
    Experiment(
        "applications",
        (
            "fig15-kmeans", "fig15-ffn", "fig15-llm-linear", "fig15-kmeans-trend", "fig15-ffn-lengths",
            "section1-gemm-share",
        ),
        measure_applications,
        {"quick": 10.0, "full": 10.0},
    ),
)  # fmt: skip
