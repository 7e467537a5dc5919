"""Ape's Fig. 9: five applications on the A100, from the times of their GEMMs.

It knows what the paper says of them (the share of GEMM in the time, sizes) and stand-ins where it says nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hwsim.api import run
from hwsim.errors import InputError
from hwsim_lab.papers import claims
from hwsim_lab.papers.ape.rates import CARD, DEVICE, EDGES, ROWS
from hwsim_lab.papers.ape.speedups import bandwidth
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.rates import tflops

FP32, FP32_F = ROWS["FP32"], ROWS["FP32-F"]
CALLS: dict[str, Any] = {"scheme": "ape-fp32-f", "accumulation": "termwise"}
WORD = 4  # bytes of an FP32 number
QUBITS, MATRIX = 25, 512  # of a state of complex FP32 numbers; the largest matrix
SMALLER = (256, 64)
HIDDEN, INNER, HEADS, TOKENS = 768, 3072, 12, 128  # BERT base, one sequence
BATCHES = {"quick": (1, 8, 32, 128), "full": (1, 8, 32, 128)}
SHARES = {"PCA": "fig9-pca", "kNN": "fig9-knn", "k-means": "fig9-kmeans"}
ALONE = {"QS": "fig9-qs", **SHARES, "BERT": "fig9-bert"}
TOGETHER = ("fig9-pca-least", "fig9-maximum", "fig9-average-abstract", "fig9-average-conclusion")


def gemm_seconds(m: int, n: int, k: int, device: str, options: dict[str, Any]) -> float:
    """The time of one GEMM, splits included."""
    return 2 * m * n * k / tflops(device, m, n, k, **options) / 1e12


def stack_seconds(count: int, m: int, n: int, k: int, device: str, options: dict[str, Any]) -> float:
    """The time of a stack of GEMMs in one launch."""
    a, b = (np.broadcast_to(np.float32(0), (count, *shape)) for shape in ((m, k), (k, n)))
    found = run(a, b, device=device, exact=False, **options).seconds
    if found is None:
        raise InputError(f"{device}: no time for a stack of {count} x {m} x {n} x {k}, {options}")
    return found


def moved_seconds(elements: int, device: str) -> float:
    """The time of one read and one write of FP32 numbers, at the device's memory bandwidth."""
    return 2 * WORD * elements / (bandwidth(device) * 1e9)


def gain(device: str, options: dict[str, Any]) -> float:
    """Geometric mean, over square GEMMs, of the speedup over native FP32."""
    each = [tflops(device, n, n, n, **options) / tflops(device, n, n, n, **FP32) for n in EDGES]
    return math.exp(sum(map(math.log, each)) / len(each))


def by_share(share: float, of_gemm: float) -> float:
    """The speedup of an application of whose time only GEMM's share (per cent) gains (Amdahl)."""
    f = share / 100
    return 1 / (1 - f + f / of_gemm)


def circuit(device: str, options: dict[str, Any], edge: int = MATRIX) -> float:
    """Seconds of a step of a quantum circuit: a complex GEMM as four real ones, and a transposition of the state."""
    columns = 2**QUBITS // edge
    return 4 * gemm_seconds(edge, columns, edge, device, options) + moved_seconds(2 * 2**QUBITS, device)


def bert_layer(batch: int, device: str, options: dict[str, Any]) -> float:
    """Seconds of one layer of BERT base: its GEMMs, and one pass over memory for everything between them.

    Between them: biases of all six products with weights, softmax, GELU, two residuals, two layer norms.
    """
    m, head = TOKENS * batch, HIDDEN // HEADS
    products = 4 * gemm_seconds(m, HIDDEN, HIDDEN, device, options)
    products += gemm_seconds(m, INNER, HIDDEN, device, options) + gemm_seconds(m, HIDDEN, INNER, device, options)
    products += stack_seconds(HEADS * batch, TOKENS, TOKENS, head, device, options)
    products += stack_seconds(HEADS * batch, TOKENS, head, TOKENS, device, options)
    biases, gelu, softmax = m * (5 * HIDDEN + INNER), m * INNER, HEADS * batch * TOKENS * TOKENS
    return products + moved_seconds(biases + gelu + softmax + 4 * m * HIDDEN, device)


def speedups(device: str, options: dict[str, Any], batches: tuple[int, ...]) -> dict[str, list[float]]:
    """Speedups of all applications over native FP32; of BERT one for each batch."""
    paper, of_gemm = claims.read("ape"), gain(device, options)
    shares = {name: paper.claim(id).paper["gemm_share"] for name, id in SHARES.items()}
    return {
        "QS": [circuit(device, FP32) / circuit(device, options)],
        **{name: [by_share(float(share), of_gemm)] for name, share in shares.items()},  # type: ignore[arg-type]
        "BERT": [bert_layer(x, device, FP32) / bert_layer(x, device, options) for x in batches],
    }


def measure(scale: Scale) -> Found:
    """All five on the A100; on a PCIe board too, as the paper does not say which it had."""
    found = speedups(DEVICE, FP32_F, BATCHES[scale])
    other, calls = (speedups(card, way, BATCHES[scale]) for card, way in ((CARD, FP32_F), (DEVICE, CALLS)))
    largest = {name: max(values) for name, values in found.items()}
    measured: dict[str, dict[str, Quantity]] = {
        id: {"speedup": found[name] if name == "BERT" else largest[name]} for name, id in ALONE.items()
    }
    measured |= {id: {"speedups": list(largest.values())} for id in TOGETHER}
    gains = f"GEMM gains {gain(DEVICE, FP32_F):.2f} here, {gain(CARD, FP32_F):.2f} on a PCIe board"
    gains += f" and {gain(DEVICE, CALLS):.2f} as three calls"
    notes = {}
    for name, id in ALONE.items():
        notes[id] = (
            f"{gains}. With these {name} gains {largest[name]:.2f}, {max(other[name]):.2f}, {max(calls[name]):.2f}. "
        )
    for name, id in SHARES.items():
        values = claims.read("ape").claim(id).paper
        f, said = float(values["gemm_share"]) / 100, float(values["speedup"])  # type: ignore[arg-type]
        least = f / (f - 1 + 1 / said)
        notes[id] += f"The printed pair means {least:.2f}: less than on the sizes of Fig. 10; {name}'s are not given."
    small = [circuit(DEVICE, FP32, n) / circuit(DEVICE, FP32_F, n) for n in SMALLER]
    notes[ALONE["QS"]] += (
        f"Circuits are not given; with matrices of {SMALLER[0]} and {SMALLER[1]} in place of {MATRIX} it is "
    )
    notes[ALONE["QS"]] += f"{small[0]:.2f} and {small[1]:.2f}, so that smaller matrices among them bring it down."
    notes[ALONE["BERT"]] += "Model, batch and what lies between its GEMMs are assumed."
    for id in TOGETHER:
        notes[id] = f"{gains}: the applications' speedups are too large by that. Which board and sizes: not said."
    rows = list(largest.items())
    columns: dict[str, list[Any]] = {"application": [x for x, _ in rows], "speedup": [x for _, x in rows]}
    return Found(measured, notes, (Series("fig9", columns, x="application", y="speedup"),))


EXPERIMENTS = (Experiment("applications", (*ALONE.values(), *TOGETHER), measure, {"quick": 25, "full": 25}),)
