"""Times of LE-GEMM beside SGEMM, another tile and no pipeline: Table 6, Fig. 8, 9, 15 and 17.

It knows the figures' sizes as the claims assume them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.le_gemm import runs
from hwsim_lab.papers.le_gemm.runs import A800_TILE, DEVICES, TABLE_2

Shape = tuple[int, int, int]
EVERY = tuple(range(1024, 10241, 1024))
SIZES: dict[Scale, tuple[int, ...]] = {"quick": (1024, 2048, 3072, 4096, 6144, 8192), "full": EVERY}
FAMILIES = ("square", "wide", "deep")
LABELS = {"square": "n*n*n", "wide": "n*4n*n", "deep": "n*n*4n"}
VECTOR = (
    "rocblas_sgemm runs on the FP32 lanes of the MI210 (as Table 5 says), by an instruction added to its device file; "
    "hwsim's own SGEMM of the MI210 runs on the matrix unit, with twice the peak."
)


def shape(family: str, n: int) -> Shape:
    """(M, N, K) of the three shapes; (n*4n*n) and (n*n*4n) are M*N*K."""
    return {"square": (n, n, n), "wide": (n, 4 * n, n), "deep": (n, n, 4 * n)}[family]


def sgemm_gain(device: str, family: str, sizes: tuple[int, ...], *, own: bool = False) -> float:
    """LE-GEMM's speed over SGEMM's, the arithmetic mean over n. own: SGEMM by hwsim's own device."""
    shapes = [shape(family, n) for n in sizes]
    gains = [runs.seconds("blas", device, *x, own=own) / runs.seconds("le", device, *x) for x in shapes]
    return float(np.mean(gains))


def measure_table6(scale: Scale) -> Found:
    """Table 6's rows of SGEMM: rocBLAS on the MI210, cuBLAS on the A800."""
    sizes = SIZES[scale]
    claims = {"mi210": "table6-mi210-rocblas", "a800": "table6-a800-cublas"}
    measured: dict[str, dict[str, Quantity]] = {
        claim: {"speedup": [sgemm_gain(device, family, sizes) for family in FAMILIES]}
        for device, claim in claims.items()
    }
    half = f"Means over n = {', '.join(map(str, sizes))} instead of all ten. " if scale == "quick" else ""
    notes = {}
    for device, claim in claims.items():
        rates = [runs.tflops(method, device, 4096, 4096, 4096) for method in ("blas", "le")]
        notes[claim] = (
            f"{half}At n = 4096 SGEMM runs at {rates[0]:.1f} TFLOPS and LE-GEMM at {rates[1]:.1f}, with its matrix "
            f"units busy {_busy(device, 4096, 2):.0f} % of the time; why the paper's gain is smaller is not explained. "
            f"{VECTOR if device == 'mi210' else A800_TILE}"
        )
    by_matrix = {"speedup": [sgemm_gain("mi210", family, sizes, own=True) for family in FAMILIES]}
    return Found(measured, notes, readings={claims["mi210"]: {"matrix instructions": by_matrix}})


# --- Fig. 17, 6 and Eq. 10: what the tile, the pipeline and the dropped product give ---------------------------------

BY_HAND = (64, 64, 32)
MODEL_SIZES = (1024, 2048, 3072, 4096, 6144, 8192)


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
    busy = {stages: [[_busy(d, n, stages) for d in DEVICES] for n in sizes] for stages in (2, 1)}
    measured: dict[str, dict[str, Any]] = {
        "fig17-model": {"speedup": means["model"]},
        "fig17-model-large-n": {d: model[d] for d in DEVICES},
        "fig17-pipeline": {"speedup": means["pipeline"]},
        "fig17-pipeline-larger": means,
        "fig17-utilisation": {"le": busy[2], "plain": busy[1]},
        "fig6-pipeline-overlap": {"serial_over_le": [[pipeline[d][i] for d in DEVICES] for i in range(len(sizes))]},
    }
    roomy = [runs.seconds("le", "a800", n, n, n, tile=TABLE_2["a800"], stages=stages, roomy=True) for stages in (2, 1)]
    note = (
        f"{A800_TILE} With twice the registers Table 2's tile takes {roomy[0] / le['a800', n]:.3f} of this time at "
        f"n = {n}, and the pipeline gains {roomy[1] / roomy[0]:.2f}."
    )
    bare = [runs.seconds("le", d, n, n, n, tile=None, stages=None, staging="none") / le[d, n] for d in DEVICES]
    spilled = runs.seconds("le", "a800", n, n, n, tile=TABLE_2["a800"], spill=True) / le["a800", n]
    direct = (
        "The plain kernel loads a whole tile into one buffer and waits. With fragments straight from global memory "
        f"(staging=none, 4 x 4 warps of one fragment) LE-GEMM takes {bare[0]:.2f} (MI210) and {bare[1]:.2f} (A800) "
        f"times as long as with the pipeline at n = {n}; the A800's Table 2 tile with spill=True {spilled:.2f} times."
    )
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
BATCH, HIDDEN, INNER, LENGTHS = 32, 768, 3072, (32, 64, 128, 256, 384, 512)
TOKENS, WIDTHS = 4096, (1024, 2048, 3072, 4096, 5120, 8192)
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
    measured: dict[str, dict[str, Quantity]] = {
        "fig15-kmeans": {"speedup": [float(np.mean(kmeans[d])) for d in DEVICES]},
        "fig15-ffn": {"speedup": [float(np.mean(ffn[d])) for d in DEVICES]},
        "fig15-llm-linear": {"speedup": [float(np.mean(linear[d])) for d in DEVICES]},
        "fig15-kmeans-trend": {d: kmeans[d] for d in DEVICES},
        "fig15-ffn-lengths": {"speedup": [x for d in DEVICES for x in ffn[d]]},
        "section1-gemm-share": {
            "kmeans": [_share(d, [(p, 1024, 1024)], FP32_BYTES * 2 * p * 1024) for d in DEVICES for p in POINTS[scale]],
            "ffn": [
                _share(d, _ffn(length), 2 * FP32_BYTES * BATCH * length * (INNER + HIDDEN))
                for d in DEVICES
                for length in LENGTHS
            ],
        },
    }
    why = f"Larger than the paper's by as much as in Table 6, see there. {VECTOR} {A800_TILE}"
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
    Experiment("table6", ("table6-mi210-rocblas", "table6-a800-cublas"), measure_table6, {"quick": 5.0, "full": 20.0}),
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
