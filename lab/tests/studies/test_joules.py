"""Energies fitted to an H100's power: those of chips.yaml are the tool's, and hold on the half that was not fitted."""

from pathlib import Path

import pytest

import hwsim
from hwsim.analysis.energy import energies_of, energy
from hwsim.errors import UnsupportedError

TOOLS = Path(__file__).parents[2] / "tools" / "measure"


@pytest.fixture
def joules(monkeypatch):
    """The module of the tool."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import joules

    return joules


@pytest.mark.slow
def test_the_energies_of_the_file_are_the_fitted_ones(joules):
    rows = list(joules.cases())
    assert {row.half for row in rows} == {"fit", "held"} and len(rows) == 34
    table = energies_of("h100")
    found = joules.fitted([row for row in rows if row.half == "fit"], {"l2": 14.0, "shared": 1.0})
    of_file = {name: table.mac_pj[name].measured for name in joules.MATRIX}
    of_file |= {"static": table.static_watts.measured, "hbm": table.hbm_pj_per_byte.measured}
    of_file |= {"lanes": table.lane_fma_pj.measured}
    for name, value in of_file.items():
        assert found[name] == pytest.approx(value, rel=0.15), name  # counts follow the tiles, which may change


def test_gemms_that_were_not_fitted_draw_what_was_measured(joules):
    table = energies_of("h100")
    energies = {name: table.mac_pj[name].measured for name in joules.MATRIX}
    energies |= {"static": table.static_watts.measured, "hbm": table.hbm_pj_per_byte.measured}
    energies |= {"lanes": table.lane_fma_pj.measured, "l2": 14.0, "shared": 1.0}
    held = [row for row in joules.cases(half="held") if row.what.startswith("gemm")]
    errors = [abs(joules.joules(row, energies) / row.seconds / row.watts - 1) for row in held]
    assert len(errors) >= 12 and sum(errors) / len(errors) < 0.07 and max(errors) < 0.13


FITTED = {"tile": (256, 128, 64), "swizzle": 16}  # the mapping whose traffic the energies were fitted with


def test_a_power_limited_gemm_draws_the_boards_power():
    result = hwsim.run(device="h100", format="bf16", output="bf16", m=8192, n=8192, k=8192, exact=False, **FITTED)
    spent = energy(result.times, result.gemm, "measured")
    assert spent.evidence == "fitted" and spent.watts == pytest.approx(700, rel=0.05)
    assert energy(result.times, result.gemm).evidence == "assumption"


def test_no_other_chip_has_measured_energies():
    result = hwsim.run(device="b200", format="bf16", m=512, n=512, k=512, exact=False)
    with pytest.raises(UnsupportedError, match="were measured; take another level"):
        energy(result.times, result.gemm, "measured")
