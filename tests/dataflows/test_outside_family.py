"""A family that hwsim does not know: examples/own_family, found through entry points as if it were installed."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim import devices
from hwsim.cli import main
from hwsim.dataflows.protocol import Dataflow
from hwsim.dataflows.registry import dataflow, dataflows
from hwsim.devices import dot_spec
from hwsim.gemm.problem import Problem
from hwsim.machines import timing
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.request.declarations import declared
from hwsim.resolve.mapping_choice import program_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of
from hwsim.studies.tune import tune

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "own_family"
NAME, DEVICE, FAMILY = "hwsim_systolic", "wsa128", "systolic_ws"
LINES = 300


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installation leaves beside the package: its metadata, with the entry points of its pyproject.toml."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path_factory.mktemp("site")
    info = folder / f"{NAME}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""])
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def environment(site: Path) -> dict[str, str]:
    """Of a process in which the package is installed."""
    path = os.pathsep.join(map(str, (ROOT, PACKAGE, site)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def family(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package, in this process."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(PACKAGE))
    dataflows.cache_clear()
    yield importlib.import_module(NAME)
    monkeypatch.undo()
    dataflows.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
        del sys.modules[name]


def run(**options: Any) -> hwsim.Result:
    return hwsim.run(device=DEVICE, **options)


def test_hwsim_does_not_know_of_it() -> None:
    assert FAMILY not in dataflows()
    assert DEVICE not in {name for name, _ in devices.names()}
    texts = {path: path.read_text(encoding="utf-8").lower() for path in (ROOT / "hwsim").rglob("*.py")}
    assert len(texts) > 100 and [str(path) for path, text in texts.items() if FAMILY in text or NAME in text] == []


def test_it_is_small() -> None:
    files = sorted((PACKAGE / NAME).glob("*.py"))
    assert len(files) >= 2 and sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= LINES


def test_the_registries_find_it(family: ModuleType) -> None:
    assert dataflows()[FAMILY] is family.SYSTOLIC is dataflow(hwsim.device(DEVICE))
    assert isinstance(family.SYSTOLIC, Dataflow)
    assert (DEVICE, str(family.DEVICE)) in devices.names()
    assert hwsim.device(DEVICE) == hwsim.device(family.DEVICE)
    found = {entry.option.name: entry for entry in declared()}
    assert found["weight_tiles"].owners == (FAMILY,) and FAMILY in found["tile"].owners


def test_an_option_of_another_family_is_refused(family: ModuleType) -> None:
    with pytest.raises(hwsim.InputError, match="stages = 3: programs of family systolic_ws have tile, weight_tiles"):
        run(m=64, n=64, k=64, stages=3)


@pytest.mark.parametrize("k", [1, 67, 300])
def test_bits_are_the_reference_units(family: ModuleType, k: int) -> None:
    chip, rng = hwsim.device(DEVICE), np.random.default_rng(k)
    # bit patterns of all kinds: subnormals, infinities and NaN among them, and a range in which sums cancel
    a, b = (rng.integers(0, 1 << 16, shape, dtype=np.uint16) for shape in ((6, k), (k, 5)))
    a[3:], b[:, 2:] = (a[3:] & 0x81FF) | 0x3E00, (b[:, 2:] & 0x81FF) | 0x3E00
    a[5] &= 0x807F
    direct, program = (run(a=a, b=b, input_format="bf16", functional=x) for x in (False, True))
    spec, unit = dot_spec(chip, chip.native["bf16"]), chip.native["bf16"]
    depth = devices.instruction(chip, unit).k
    for i, j in np.ndindex(6, 5):
        total = 0
        for start in range(0, k, depth):
            row, col = (x[start : start + depth].tolist() for x in (a[i], b[:, j]))
            rest = [0] * (depth - len(row))
            total = reference.dot(spec, DotOperands(row + rest, col + rest, total))
        assert int(program.c.view(np.uint32)[i, j]) == total
    assert np.array_equal(direct.c.view(np.uint32), program.c.view(np.uint32))
    assert k == 1 or np.isnan(program.c).any()
    assert np.isfinite(program.c[3:5, 2:]).all() and program.c[3:5, 2:].any()


def test_the_record_says_all_of_the_program(family: ModuleType) -> None:
    one = run(m=130, n=140, k=150, format="bf16", exact=False, weight_tiles=2, tile={"m": 64, "n": 128, "k": 128})
    assert one.gemm is not None
    assert one.options["weight_tiles"] == 2 and one.options["tile"] == {"m": 64, "n": 128, "k": 128}
    assert {x.name: x.by for x in one.gemm.decisions}["weight_tiles"] == "user"
    again = type(one.gemm).from_dict(json.loads(one.gemm.to_json()))
    assert again == one.gemm and again.digest == one.gemm.digest
    chip = hwsim.device(DEVICE)
    assert program_of(again, chip) == program_of(one.gemm, chip)
    assert timing.run(program_of(again, chip), chip).cycles == one.cycles


def test_the_trace_has_the_folds(family: ModuleType) -> None:
    trace = run(m=100, n=200, k=300, format="bf16", exact=False).trace
    engines, labels = trace.column("engine"), trace.column("label")
    rows = trace.rows[[e == "array" and label == "stream" for e, label in zip(engines, labels, strict=True)]]
    assert len(rows) == 2 * 3 and set(rows["end"] - rows["start"]) == {100 + 254}


def test_tune_varies_its_tiles_and_options(family: ModuleType) -> None:
    chip, sizes = hwsim.device(DEVICE), (200, 300, 300)
    plan = plan_for(chip, scheme_of("native"), Problem.of("bf16", *sizes), "bf16", {}).plan
    found = tune(chip, plan, sizes)
    assert {name for point in found.points for name in point.options} == {"tile", "weight_tiles"}
    assert found.default.cycles == (382 + 200) * 9 and found.default.facts["weight_tiles"] == 1
    assert found.best.facts["weight_tiles"] == 2 and found.best.cycles == 128 + (254 + 200) * 9
    assert found.best.row()["weight_tiles"] == 2
    tiles = {point.facts["tile"]["m"] for point in found.points if point.cycles is not None}
    assert tiles == {16, 32, 64, 128, 200}


def test_commands_know_it(family: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    assert DEVICE in capsys.readouterr().out
    assert main(["devices", "check", str(family.DEVICE)]) == 0
    assert "is right" in capsys.readouterr().out
    assert main(["tune", "--device", DEVICE, "--m", "64", "--n", "64", "--k", "64", "--format", "bf16", "-q"]) == 0
    assert "weight_tiles 2" in capsys.readouterr().out
    assert main(["program", DEVICE, "native", "--m", "64", "--n", "64", "--k", "64", "--weight-tiles", "2"]) == 0
    assert "array" in capsys.readouterr().out


@pytest.mark.parametrize("device", [DEVICE, str(PACKAGE / NAME / f"{DEVICE}.yaml")])
def test_run_in_a_process_of_its_own(environment: dict[str, str], tmp_path: Path, device: str) -> None:
    command = [
        "-m",
        "hwsim",
        "run",
        "--device",
        device,
        "--format",
        "bf16",
        "--no-exact",
        "--weight-tiles",
        "1",
        "--json",
    ]
    sizes = ["--m", "100", "--n", "200", "--k", "300"]
    found = subprocess.run(
        [sys.executable, *command, *sizes], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout)
    assert result["cycles"] == (382 + 100) * 2 * 3 and result["options"]["weight_tiles"] == 1


def test_its_own_tests_pass(environment: dict[str, str], tmp_path: Path) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(PACKAGE / "tests")]
    found = subprocess.run(
        [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]
