"""Speed of `hwsim.sweep`: 10,000 timing-only points with drawn shapes on all timed devices, and from its cache.

    python lab/tools/sweep_rate.py [POINTS [JOBS]]

Prints seconds of a sweep whose cache is empty, of the same sweep read from its cache, and of the sweep beyond
`hwsim.run`, per point. The cache is a folder of its own, removed at the end. Shapes: m, n, k log-uniform from 64 to
8192 in multiples of 8, by seed 0.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import Any

import numpy as np

import hwsim
from hwsim.dataflows.registry import dataflows
from hwsim.devices import names
from hwsim.machines import timing
from hwsim.studies import sweep_pool

SIDES = (64, 8192)
STEP = 8
APART = 200  # points of the comparison with hwsim.run


def timed_devices() -> list[str]:
    """The devices with a dataflow and timing data."""
    chips = [hwsim.device(name) for name, _ in names()]
    return [chip.name for chip in chips if chip.family in dataflows() and timing.missing(chip) is None]


def study(points: int) -> dict[str, Any]:
    """A study of about `points` points: the same drawn shapes on every timed device."""
    devices = timed_devices()
    rng = np.random.default_rng(0)
    drawn = np.exp(rng.uniform(*np.log(SIDES), (-(-points // len(devices)), 3)))
    shapes = [[int(side) for side in row] for row in (drawn / STEP).astype(int) * STEP]
    return {"devices": devices, "shapes": shapes, "options": {"format": "fp16"}}


def main() -> None:
    """Measure and print."""
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    asked = study(points)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HWSIM_CACHE"] = folder
        hwsim.sweep({"shapes": [[16, 16, 16]]})
        for what in ("computed", "from the cache"):
            start = time.perf_counter()
            table = hwsim.sweep(asked, jobs=jobs)
            seconds = time.perf_counter() - start
            print(
                f"{len(table.rows)} points on {len(asked['devices'])} devices, {what}: {seconds:.1f} s with {jobs} "
                f"processes; {table.computed} run, {table.refused} refused",
                flush=True,
            )
        beyond_run()


def beyond_run() -> None:
    """Print what a sweep in one process takes beyond its calls of hwsim.run, journal included."""
    inside = 0.0

    def timed(**arguments: Any) -> hwsim.Result:
        nonlocal inside
        start = time.perf_counter()
        try:
            return run(**arguments)
        finally:
            inside += time.perf_counter() - start

    run, sweep_pool.run = sweep_pool.run, timed
    some = {"devices": "h200", "m": list(range(64, 64 + STEP * APART, STEP)), "options": {"format": "fp16"}}
    start = time.perf_counter()
    hwsim.sweep(some, jobs=1)
    print(f"beyond hwsim.run: {1e3 * (time.perf_counter() - start - inside) / APART:.2f} ms per point")


if __name__ == "__main__":
    main()
