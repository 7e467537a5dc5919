"""lab/tools/library: which recorded calls a fit takes and predicts, which are listed, which pairs are compared."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

TOOL = Path(__file__).parents[1] / "tools" / "library" / "fit_times.py"
CALL = {"kind": "bf16", "a_layout": "rows", "b_layout": "columns", "batch": "1", "m": "8", "n": "16", "k": "32"}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("torch")
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(TOOL.parent))
    spec = importlib.util.spec_from_file_location("fit_times", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fit_times", module)
    spec.loader.exec_module(module)
    return module


def test_each_part_is_told_by_the_others(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit of the other parts predicts each GEMM once; GEMMs with the same n and k are in one part."""
    gemms = [SimpleNamespace(call=SimpleNamespace(n=n, k=64), us=10.0) for n in range(8, 40) for _ in range(2)]
    part = [tool.part_of(gemm, tool.PARTS) for gemm in gemms]
    monkeypatch.setattr(tool, "both", lambda others, networks: ({tool.part_of(x, tool.PARTS) for x in others}, None))
    monkeypatch.setattr(tool, "predicted", lambda gemm, others, _: 11.0 if part_of(gemm) not in others else 99.0)

    def part_of(gemm: SimpleNamespace) -> int:
        return int(tool.part_of(gemm, tool.PARTS))

    assert set(part) == set(range(tool.PARTS))
    assert tool.held_out_errors(gemms, tool.PARTS) == pytest.approx([0.1] * len(gemms))
    assert np.isnan(tool.held_out_errors(gemms, 0)).all()


def test_ramps_cover_what_was_recorded_in_equal_shares(tool: ModuleType) -> None:
    """Each begins where the one before ends; a number with one value that nearly all GEMMs have gets none."""
    values = np.arange(101.0) ** 2
    found = tool.ramps(3, tool.RAMP, values)
    ends = np.quantile(values, np.linspace(0, 1, tool.RAMPS + 1))
    assert [(place, kind) for place, kind, *_ in found] == [(3, tool.RAMP)] * tool.RAMPS
    assert [low for _, _, low, _ in found] == pytest.approx(ends[:-1])
    assert [low + 1 / scale for _, _, low, scale in found] == pytest.approx(ends[1:])
    assert tool.ramps(3, tool.RAMP, np.array([0.0] * 99 + [1.0])) == []


def test_calls_are_kept_by_their_doubt(tool: ModuleType) -> None:
    """Those without any are kept only as plain ones; none is kept twice."""
    spec = importlib.util.spec_from_file_location("doubtful_calls", TOOL.with_name("doubtful_calls.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    calls = [{"m": number} for number in range(40)]
    listed = [call["m"] for call in module.kept(calls, np.array([0.0, 0.1] * 20), 15, 10, seed=1)]
    assert len(set(listed)) == 25 and sum(number % 2 for number in listed) >= 15


def test_a_call_at_a_clock_that_others_lowered_is_left_out(tool: ModuleType) -> None:
    """A long product of many MACs may lower the clock itself; a file without clocks is taken as it is."""
    call = {"device": "h200", "set": "calls1", "launch_us": "2", "kind": "bf16>bf16", "b_layout": "columns"}
    small, large = ({**call, "m": str(m), "n": "4096", "k": "4096"} for m in (16, 16384))
    low, high, own = (
        {**small, "us": "12", "clock_mhz": "1500"},
        {**small, "us": "11", "clock_mhz": "1980"},
        {**large, "us": "800", "clock_mhz": "1500"},
    )
    assert [gemm.row for gemm in tool.recorded([low, high, own])] == [high, own]
    settled = {**low, "clock_before_mhz": "1980"}
    assert [gemm.row for gemm in tool.recorded([settled, high])] == [settled, high]
    assert len(tool.recorded([{**row, "clock_mhz": ""} for row in (low, high, own)])) == 3


def test_pairs_have_more_work_and_no_better_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    spec = importlib.util.spec_from_file_location("falling_times", TOOL.with_name("falling_times.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = [(9, 57, 100), (9, 57, 199), (9, 64, 100), (9, 57, 300), (8, 60, 110)]
    rows = [
        {"us": str(10 - place), **dict(zip("mnk", map(str, size), strict=True))} for place, size in enumerate(sizes)
    ]
    found = {(one["k"], other["k"], ratio) for ratio, one, other in module.pairs(rows)}
    assert found == {("100", "199", 0.9), ("199", "300", 7 / 9)}
