"""lab/tools/record/special_functions.py: its hash, its names, and a check that can fail."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import hwsim
from hwsim.arithmetic.mufu import NAMES, NARROW, WITH_FAST

TOOL = Path(__file__).parents[2] / "tools" / "record" / "special_functions.py"
GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "h200_mufu" / "results.npz"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, of two chunks of 2^10 codes."""
    spec = importlib.util.spec_from_file_location("special_functions_tool", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    for name, value in (("CHUNK", 1 << 10), ("CHUNKS", 2), ("BLOCK", 1 << 9)):
        monkeypatch.setattr(module, name, value)
    return module


def test_it_records_every_function_of_mufu(tool: ModuleType) -> None:
    recorded = {name.removesuffix(tool.FAST) for name in tool.NAMES}
    assert recorded | set(tool.NARROW) == set(NAMES) and tuple(tool.NARROW) == NARROW
    assert {name.removesuffix(tool.FAST) for name in tool.NAMES if name.endswith(tool.FAST)} == set(WITH_FAST)
    source = tool.source_of(["ex2.approx.f16", "tanh", "expf", "expf fast"])
    assert [line in source for line in ("ex2.approx.f16x2 %0", "tanh.approx.f32 %0", "y = expf(x)")] == [True] * 3


def test_the_hash_of_a_block_depends_on_each_result(tool: ModuleType) -> None:
    results = np.arange(100, dtype=np.uint32)
    other, moved = results.copy(), results.copy()
    other[7] ^= 1 << 31
    moved[[3, 4]] = moved[[4, 3]]
    assert len({tool.mixed(0, x) for x in (results, other, moved)} | {tool.mixed(100, results)}) == 4
    assert tool.mixed(0, results) == (tool.mixed(0, results[:40]) + tool.mixed(40, results[40:])) % 2**64


def test_samples_are_those_of_the_golden_file(tool: ModuleType) -> None:
    with np.load(GOLDEN) as archive:
        assert np.array_equal(archive["samples"], tool.sample_codes())


def test_a_wrong_result_is_named(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "ProcessPoolExecutor", ThreadPoolExecutor)
    codes = np.arange(2 << 10, dtype=np.uint32)
    results = hwsim.mufu("__expf", codes, fast_math=True)
    hashes = np.array([tool.mixed(0, results[: 1 << 10]), tool.mixed(1 << 10, results[1 << 10 :])], np.uint64)
    path = tmp_path / "results.npz"
    np.savez(path, **{"hash/__expf fast": hashes})
    assert tool.check(path, ["__expf fast"], 2)
    hashes[1] ^= np.uint64(1)
    np.savez(path, **{"hash/__expf fast": hashes})
    assert not tool.check(path, ["__expf fast"], 2)
    assert "differs in codes 0x00000400 to 0x000007ff\n__expf fast: 1 of 2 chunks" in capsys.readouterr().out


def test_a_function_that_was_not_recorded_is_named(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "ProcessPoolExecutor", ThreadPoolExecutor)
    path = tmp_path / "results.npz"
    hashes = [tool.mixed(at, hwsim.mufu("erff", np.arange(at, at + (1 << 10), dtype=np.uint32))) for at in (0, 1 << 10)]
    np.savez(path, **{"hash/erff": np.array(hashes, np.uint64)})
    monkeypatch.setattr(sys, "argv", ["tool", "check", str(path)])
    assert tool.main() == 0 and "erff: 2 of 2" in capsys.readouterr().out  # the one that the file has
    monkeypatch.setattr(sys, "argv", ["tool", "check", str(path), "--names", "erff", "tanhf"])
    assert tool.main() == 2
    assert capsys.readouterr().err == f"{path} has no hashes of tanhf; it has erff\n"
