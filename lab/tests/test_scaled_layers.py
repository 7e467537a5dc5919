"""The figure of a transformer block's layers in four formats: its rows, and where energies come from."""

import sys
from pathlib import Path

import pytest

from hwsim.analysis.energy import LEVELS, energies_of

TOOLS = Path(__file__).parents[1] / "tools" / "measure"


@pytest.fixture
def layers(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import scaled_layers

    yield scaled_layers
    sys.modules.pop("scaled_layers")


def test_shorter_formats_err_more_and_take_less(layers, monkeypatch):
    monkeypatch.setattr(layers, "LAYERS", (("down", 2048, 2048),))
    bf16, block, mx, nv = layers.rows("b200", 1024)
    assert bf16[1] < mx[1] == pytest.approx(block[1], rel=0.1) and 2 * mx[1] < nv[1]
    assert bf16[2] > block[2] > nv[2] and mx[2] > nv[2]
    assert [row[4] for row in (bf16, block, mx, nv)] == ["bf16", "e4m3", "e4m3", "e2m1"]
    for row in (bf16, block, mx, nv):
        low, typical, high = (row[3][level] for level in LEVELS)
        assert 0 < low < typical < high and energies_of("b200").mac_pj[row[4]].source
    assert bf16[3]["typical"] > mx[3]["typical"] > nv[3]["typical"]
