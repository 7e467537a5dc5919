"""The example that trains a transformer on simulated units: five steps of three of its settings."""

import json
import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs hwsim[torch]")
FOLDER = Path(__file__).parents[2] / "examples" / "transformer"


def test_five_steps(tmp_path, monkeypatch, capsys):
    """Training through hwsim.torch, forward and backward, falls in loss on each unit and differs from unit to unit."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import train

    names = ["fp32", "h200-bf16", "h200-e4m3-promoted"]
    for _ in range(2):  # the second time all is there
        monkeypatch.setattr(sys, "argv", ["train.py", "--steps", "5", "--out", str(tmp_path), "--settings", *names])
        train.main()
    assert capsys.readouterr().out.count("h200-bf16") == 2
    found = {name: json.loads((tmp_path / f"{name}-5.json").read_text()) for name in names}
    for one in found.values():
        assert (
            len(one["losses"]) == 5 and all(map(math.isfinite, one["losses"])) and one["losses"][-1] < one["losses"][0]
        )
    assert found["fp32"]["losses"] != found["h200-bf16"]["losses"] != found["h200-e4m3-promoted"]["losses"]
    products = found["h200-bf16"]["products"]
    assert products["calls"] == 5 * 3 * (6 * 6 + 1) and products["error"] < 0.01
