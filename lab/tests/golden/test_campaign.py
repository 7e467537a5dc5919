"""Campaigns with the simulator in the place of the GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwsim._kernels import gemm
from hwsim.errors import InputError
from hwsim.golden.instructions import parse
from hwsim.golden.verify import compute
from hwsim.operands.code_draws import DISTRIBUTIONS
from hwsim_lab.golden.campaign import Summary, campaign

sys.path.append(str(Path(__file__).parents[3] / "tests" / "golden"))
import hopper

# What follows runs with the simulator in the place of the GPU.
ENTRIES = [parse(name) for name in ("wgmma.m64n8k16.f32.f16.f16", "mma.m16n8k32.s32.s8.u8.s32")]


FACTS = Summary("none", "none", "h200", 7, 0.0, "test", "2026-01-01")


def simulated(name: str, a: Any, b: Any, c: Any, scale_d: int = 0) -> Any:
    assert scale_d == 0
    return gemm(hopper.spec(name), a, np.swapaxes(b, 1, 2), c)


def simulate(golden: Any) -> Any:
    return compute(lambda device, name, a, b, c: gemm(hopper.spec(name), a, b, c), "h200", golden)


def test_a_campaign_counts(tmp_path: Path) -> None:
    found = campaign(simulated, simulate, ENTRIES, summary=FACTS, outputs=60_000, seconds=60, threads=2)
    assert 60_000 <= found.results < 70_000
    assert found.mismatches == 0
    assert set(found.counts) == {(entry.name, name) for entry in ENTRIES for name in DISTRIBUTIONS}
    assert min(tally.results for tally in found.counts.values()) >= 2 * 16 * 8
    assert found.counts[ENTRIES[0].name, "anybits"].special > 0
    assert found.counts[ENTRIES[1].name, "anybits"].special == 0
    found.write(tmp_path)
    assert f"{found.results:,} results, 0 differ" in (tmp_path / "campaign.md").read_text()


def test_a_campaign_finds_a_wrong_bit(tmp_path: Path) -> None:
    def faulty(name: str, a: Any, b: Any, c: Any, scale_d: int = 0) -> Any:
        d = simulated(name, a, b, c)
        if ".s32." in name:
            d[1, 2, 3] ^= 0x100
        return d

    found = campaign(
        faulty,
        simulate,
        ENTRIES,
        summary=FACTS,
        distributions=["narrow"],
        outputs=10_000,
        seconds=60,
        threads=2,
        batch_results=2048,
    )
    tally = found.counts[ENTRIES[1].name, "narrow"]
    assert found.mismatches == tally.mismatches > 0
    assert found.counts[ENTRIES[0].name, "narrow"].mismatches == 0
    assert [(miss.case, miss.row, miss.column, miss.bits, miss.ulps) for miss in found.first[:1]] == [
        (1, 2, 3, (8,), 256)
    ]
    assert len(found.first) == min(3, tally.mismatches)
    assert found.to_json()["mismatches"] == found.mismatches


def test_a_campaign_stops_in_time_and_refuses_nothing_to_do() -> None:
    found = campaign(
        simulated, simulate, ENTRIES, summary=FACTS, outputs=10**12, seconds=0.3, threads=1, batch_results=2048
    )
    assert 0 < found.results < 10**9 and found.seconds > 0.3  # stopped by its time, long before its 10^12 results
    for wrong in ({"distributions": []}, {"outputs": 0}, {"seconds": 0.0}):
        with pytest.raises(InputError, match="campaign"):
            campaign(simulated, simulate, ENTRIES, summary=FACTS, **wrong)  # type: ignore[arg-type]
