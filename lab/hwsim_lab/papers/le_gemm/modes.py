"""cuBLAS's modes beside LE-GEMM on the A800: Fig. 18.

FAST_16F is hwsim's native FP16 product of FP32 matrices, which are converted first; COMPUTE_64F its native FP64
product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim.analysis import exact_product
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.le_gemm import runs
from hwsim_lab.papers.le_gemm.accuracy import EDGE, inputs, product

Array = NDArray[Any]
DEVICE = "a800"
ERROR_SIZES, TIME_SIZES = (1024, 2048, 4096), (1024, 2048, 3072, 4096, 6144, 8192)
MODES = ("FAST_16F", "LE-GEMM", "COMPUTE_64F")


def mode_tflops(mode: str, n: int) -> float:
    """TFLOPS by Eq. 18; FAST_16F and COMPUTE_64F by the kernels that hwsim takes for these formats."""
    if mode == "LE-GEMM":
        return runs.tflops("le", DEVICE, n, n, n)
    given: dict[str, Any] = {"format": "fp16", "input_format": "fp32"} if mode == "FAST_16F" else {"format": "fp64"}
    found = hwsim.run(device=DEVICE, m=n, n=n, k=n, exact=False, **given).seconds
    assert found is not None
    return runs.operations(n, n, n) / found / 1e12


def mode_product(mode: str, a: Array, b: Array) -> Array:
    """The bits of a mode's product."""
    if mode == "COMPUTE_64F":
        return hwsim.matmul(a.astype(np.float64), b.astype(np.float64), device=DEVICE, format="fp64")
    return product("le" if mode == "LE-GEMM" else "plain", DEVICE, a, b)


def distances(c: Array, high: Array, low: Array) -> tuple[float, float]:
    """The largest |V - V_ref| / (|V| + |V_ref|), and the mean |V - V_ref| / |V_ref|; V_ref = high + low."""
    apart = np.abs((high - c.astype(np.float64)) + low)
    return float(np.max(apart / (np.abs(high) + np.abs(c)))), float(np.mean(apart / np.abs(high)))


def measure_modes(scale: Scale) -> Found:
    """Fig. 18: speed and errors of the three modes."""
    edge = EDGE[scale] // 2
    rates = {mode: [mode_tflops(mode, n) for n in TIME_SIZES] for mode in MODES}
    most: dict[str, list[float]] = {mode: [] for mode in (*MODES, "WMMA")}
    mean: dict[str, list[float]] = {mode: [] for mode in (*MODES, "WMMA")}
    for n in ERROR_SIZES:
        a, b, _ = inputs(edge, n, 0)
        high, low, rows = exact_product.reference(a, b)
        for mode in (*MODES, "WMMA"):
            c = product("plain", DEVICE, a, b) if mode == "WMMA" else mode_product(mode, a, b)
            found = distances(c[rows], high, low)
            most[mode].append(found[0])
            mean[mode].append(found[1])
    fast, le, wide = (np.array(rates[mode]) for mode in MODES)
    at = TIME_SIZES.index(4096), ERROR_SIZES.index(4096)
    measured: dict[str, dict[str, Quantity]] = {
        "fig18-fastest": {"over_others": [*map(float, fast / le), *map(float, fast / wide)]},
        "fig18-fp64-slow": {"le_over_fp64": list(map(float, le / wide))},
        "fig18-fp64-accurate": {"le_over_fp64": _over(most["LE-GEMM"], most["COMPUTE_64F"])},
        "fig18-le-more-accurate": {"fast16_over_le": _over(most["FAST_16F"], most["LE-GEMM"])},
        "fig18-fast16-as-wmma": {"ratio": _over(mean["FAST_16F"], mean["WMMA"])},
        "fig18-trade-off": {
            "tflops": [rates[mode][at[0]] for mode in MODES], "errors": [mean[mode][at[1]] for mode in MODES]
        },
    }  # fmt: skip
    block = f"Blocks of {edge} x {edge}, one seed. "
    notes = dict.fromkeys(("fig18-fp64-accurate", "fig18-le-more-accurate", "fig18-trade-off"), block)
    notes["fig18-fast16-as-wmma"] = block + "In hwsim both are the same product, bit for bit."
    columns: dict[str, list[object]] = {"line": [], "n": [], "tflops": []}
    for mode in MODES:
        columns["line"] += [mode] * len(TIME_SIZES)
        columns["n"] += list(TIME_SIZES)
        columns["tflops"] += rates[mode]
    errors: dict[str, list[object]] = {"line": [], "n": [], "error": []}
    for mode in MODES:
        errors["line"] += [mode] * len(ERROR_SIZES)
        errors["n"] += list(ERROR_SIZES)
        errors["error"] += most[mode]
    series = (
        Series("fig18-tflops", columns, "n", "tflops", "line"),
        Series("fig18-errors", errors, "n", "error", "line", "xy"),
    )
    return Found(measured, notes, series)


def _over(x: list[float], y: list[float]) -> list[float]:
    return [one / other for one, other in zip(x, y, strict=True)]


EXPERIMENTS = (
    Experiment(
        "modes",
        (
            "fig18-fastest", "fig18-fp64-slow", "fig18-fp64-accurate", "fig18-le-more-accurate", "fig18-fast16-as-wmma",
            "fig18-trade-off",
        ),
        measure_modes,
        {"quick": 6.0, "full": 12.0},
    ),
)  # fmt: skip
