"""The roofline of a run by hand: its bytes are those read from HBM and those written to it."""

from __future__ import annotations

import pytest

import hwsim
from hwsim.devices import instruction, load


def test_bytes_of_hbm_are_reads_and_writes() -> None:
    """One pass over A, B and C, which do not fit in an L2 that is empty: 2 m n k operations for these bytes."""
    m, n, k = 8192, 8192, 256
    found = hwsim.run(m=m, n=n, k=k, device="mi300x", format="fp16", exact=False, l2="cold").roofline
    times = hwsim.run(m=m, n=n, k=k, device="mi300x", format="fp16", exact=False, l2="cold")
    moved = times.traffic_bytes
    assert found is not None and moved["HBM write"] > 0
    assert found.hbm_bytes == moved["HBM read"] + moved["HBM write"]
    assert found.intensity == pytest.approx(2 * m * n * k / found.hbm_bytes)
    chip = load("mi300x")
    unit = instruction(chip, times.gemm.unit)
    assert found.peak == pytest.approx(2e-6 * float(unit.macs_per_cycle) * chip.cores * times.times.chip.clock_mhz)
    assert found.attainable == pytest.approx(min(found.peak, found.intensity * chip.hbm.bytes_per_second / 1e12))
