"""The self-test of an installation: complete, small, current with the golden sets, and able to fail."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwsim.cli import main
from hwsim.devices import dot_spec, example, load
from hwsim.devices.registry import shipped
from hwsim.errors import InputError
from hwsim.golden import simulated
from hwsim.golden.format import read_meta, read_sets
from hwsim.golden.selftest import PATTERNS, computed_run, operand, pattern_runs, selftest, shipped_device

ROOT = Path(__file__).parents[2]
MOST_BYTES = 250_000


def expected_run(options: Any) -> Any:
    """Stands for a run: what is expected of it."""
    (found,) = (one for one in pattern_runs() if one.options == options)
    return found


def test_this_installation_passes() -> None:
    shares: list[float] = []
    found = selftest(progress=shares.append)
    assert found.same and found.mismatches == 0 and len(found.runs) == 4
    assert found.results > 4000
    assert shares == sorted(shares) and shares[-1] == 1.0
    origins = {entry.origin for report in found.reports for entry in report.sets}
    assert origins == {"self", "silicon"}
    assert all(one.expected.cycles and len(one.expected.sha256) == 64 for one in found.runs)


def test_a_wrong_bit_and_a_wrong_cycle_are_found(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def flipped(device: str, instruction: str, *codes: Any, **scales: Any) -> Any:
        d = simulated.mma(device, instruction, *codes, **scales)
        if instruction.startswith("wgmma.m64n8k16.f32.bf16"):
            d[1, 2, 3] ^= d.dtype.type(1)
        return d

    found = selftest(flipped, expected_run)
    assert not found.same and found.mismatches == 1
    assert "case 1 row 2 column 3: expected 0x" in found.to_text() and "hwsim explain h200" in found.to_text()

    def slow(options: Any) -> Any:
        right = expected_run(options)
        return replace(right, cycles=right.cycles + 1) if options["device"] == "mi300x" else right

    found = selftest(simulated.mma, slow)
    assert not found.same and [one.same for one in found.runs] == [True, True, True, False]
    assert "cycles: expected 3392, got 3393" in found.to_text()
    monkeypatch.setattr("hwsim.cli.selftest.selftest", lambda progress: found)
    assert main(["selftest"]) == 1
    assert "FAIL  run         device=mi300x" in capsys.readouterr().out


def test_the_command_works_in_any_folder(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """And tests the package's devices, where a user's file has the name of one of them."""
    (tmp_path / "configs/devices").mkdir(parents=True)
    (tmp_path / "configs/devices/h200.yaml").write_text("name: h200\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["selftest", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert said.err == "" and found["schema"] == "hwsim.selftest/1"
    assert found["same"] is True and found["mismatches"] == 0 and len(found["runs"]) == 4


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"runs\.json: cannot read it: .*; install hwsim again"):
        selftest(folder=tmp_path)
    shutil.copy(PATTERNS / "runs.json", tmp_path)
    with pytest.raises(InputError, match="zero cases prove nothing"):
        selftest(folder=tmp_path)


def test_patterns_are_small_and_current(tmp_path: Path) -> None:
    """After a change of tests/golden or of cycles: python lab/tools/selftest_patterns.py."""
    spec = importlib.util.spec_from_file_location("selftest_patterns", ROOT / "lab" / "tools" / "selftest_patterns.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.write(tmp_path) <= MOST_BYTES
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in PATTERNS.iterdir()} - {"SHA256SUMS"}
    assert json.loads((tmp_path / "runs.json").read_text()) == json.loads((PATTERNS / "runs.json").read_text())
    for path in sorted(tmp_path.glob("*.npz")):
        assert read_meta(path) == read_meta(PATTERNS / path.name)
        pairs = zip(read_sets(path), read_sets(PATTERNS / path.name), strict=True)
        for new, old in pairs:
            assert new.key == old.key
            for x in "abcd":
                np.testing.assert_array_equal(getattr(new, x), getattr(old, x), f"{path.name} {new.key}")


def test_every_dot_unit_of_every_device_is_among_them() -> None:
    there = set()
    for path in PATTERNS.glob("*.npz"):
        meta = read_meta(path)
        assert meta is not None
        chip = load(shipped_device(meta.device))
        there |= {str(dot_spec(chip, golden.instruction).unit) for golden in read_sets(path)}
    for name in shipped():
        chip = load(shipped_device(name))
        for key in chip.matrix_instructions:
            unit = dot_spec(chip, example(chip, key)).unit
            assert str(unit) in there, f"{name} {key}"


def test_operands_depend_on_integers_alone() -> None:
    assert operand(2, 2, 1).tolist() == operand(4, 1, 1).reshape(2, 2).tolist()
    values = operand(50, 40, 7)
    assert values.dtype == np.float32 and values.min() >= -1 and values.max() < 1 and len(np.unique(values)) > 1990
    assert computed_run({"device": "a100", "scheme": "native", "m": 8, "n": 8, "k": 8}).cycles
