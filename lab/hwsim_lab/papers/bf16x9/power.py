"""Energy and power of BF16x9 beside native FP32, by assumed energies: Fig. 12 and Section 8.

It knows the sizes that the claims assume; verdicts are by the typical level of configs/energy, notes give the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsim.analysis.energy import LEVELS, Energy, EnergyLevel, energy
from hwsim_lab.papers.bf16x9 import runs
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

SIZES = (2048, 3072, 4096, 6144, 8192, 16384)


def energy_of(method: str, n: int, level: EnergyLevel = "typical") -> Energy:
    """The energy of a square product by a method of runs.METHODS."""
    result = runs.timed(method, n, n, n)
    return energy(result.times, result.gemm, level)


def gains(level: EnergyLevel, native_level: EnergyLevel | None = None) -> list[float]:
    """GFLOPS per watt of BF16x9 by that of native FP32. native_level: of native FP32, where another."""
    other = level if native_level is None else native_level
    return [energy_of("x9", n, level).gflops_per_watt / energy_of("native", n, other).gflops_per_watt for n in SIZES]


def measure_power(scale: Scale) -> Found:
    """Fig. 12: efficiency, power and time."""
    gain = gains("typical")
    watts = {name: [energy_of(name, n).watts for n in SIZES] for name in ("native", "x9")}
    ratio = [x / y for x, y in zip(watts["x9"], watts["native"], strict=True)]
    speedup = [runs.speedup(n, n, n) for n in SIZES]
    saving = [100 * (1 - 1 / one) for one in gain]
    measured: dict[str, dict[str, Quantity]] = {
        "fig12-efficiency-gain": {"gain": gain},
        "fig12-instantaneous-power": {"power_ratio": ratio},
        "fig12-twice-time": {"speedup": speedup},
        "fig12-power-and-time-consistent": {"speedup": speedup, "power_ratio": ratio},
        "section8-power-saving": {"saving": float(np.mean(saving)), "speedup": speedup},
    }
    alike = {level: float(np.mean(gains(level))) for level in LEVELS}
    crossed = [float(np.mean(gains("low", "high"))), float(np.mean(gains("high", "low")))]
    clock, share = runs.limited_share()
    parts = {name: energy_of(name, SIZES[-1]) for name in watts}
    split = "; ".join(
        f"{runs.NAMES[name]} {one.watts:.0f} W ("
        + ", ".join(f"{part} {joules / one.seconds:.0f}" for part, joules in one.joules_by.items())
        + ")"
        for name, one in parts.items()
    )
    base = (
        f"Marked: by assumed energies (configs/energy/chips.yaml, written before), not by measured power. All at their "
        f"low, typical or high level the gain is {alike['low']:.2f}, {alike['typical']:.2f}, {alike['high']:.2f}; with "
        f"BF16x9 at one end and native FP32 at the other {min(crossed):.2f} to {max(crossed):.2f}. At n = {SIZES[-1]}: "
        f"{split}. Native FP32 runs at {runs.chip().clock_mhz:g} MHz, long BF16 work at {clock:g}, {share:.2f} of it: "
        "the file has a power limit for 16-bit operands alone."
    )
    n = SIZES[-1]
    other = [
        energy_of("x9", n, "low").watts / energy_of("native", n, "high").watts,
        energy_of("x9", n, "high").watts / energy_of("native", n, "low").watts,
    ]
    base += f" With the two at opposite ends the power's ratio is {other[0]:.2f} to {other[1]:.2f} there."
    notes = dict.fromkeys(measured, base) | {"fig12-twice-time": "Each run is one, L2 empty, with one launch."}
    columns: dict[str, list[Any]] = {
        "line": [f"{runs.NAMES[name]}, {level}" for name in watts for level in LEVELS for _ in SIZES],
        "n": [n for _ in watts for _ in LEVELS for n in SIZES],
        "gflops per watt": [
            energy_of(name, n, level).gflops_per_watt for name in watts for level in LEVELS for n in SIZES
        ],
        "evidence": ["assumption"] * (len(watts) * len(LEVELS) * len(SIZES)),
    }
    return Found(measured, notes, (Series("fig12", columns, x="n", y="gflops per watt", by="line", log="x"),))


EXPERIMENTS = (
    Experiment(
        "power",
        (
            "fig12-efficiency-gain", "fig12-instantaneous-power", "fig12-twice-time",
            "fig12-power-and-time-consistent", "section8-power-saving",
        ),
        measure_power,
        {"quick": 8.0, "full": 8.0},
    ),
)  # fmt: skip
