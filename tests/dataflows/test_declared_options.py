"""An option that a dataflow declares is seen in API, command line, documentation and search; nothing else is told."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.dataflows import registry
from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.dataflows.options import BUFFERING, TILE_OPTION
from hwsim.dataflows.protocol import Dataflow, Features, SplitK
from hwsim.devices.device import Device
from hwsim.errors import InputError
from hwsim.gemm.mapping import Tile
from hwsim.gemm.option_types import Option
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.program.ir import Program
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of
from hwsim.studies.tune import tune

ROOT = Path(__file__).parents[2]
FAMILY, DEVICE, SIZES = "with_prefetch", "prefetching", (96, 96, 128)
PREFETCH = Option(
    "prefetch_depth",
    int,
    None,
    "blocks that a prefetcher asks for ahead",
    least=1,
    most=4,
    axis=(1, 3),
    default_text="2",
)


@dataclass(frozen=True)
class WithPrefetch:
    """The coupled dataflow with an option of its own instead of n_fused."""

    given: list[Mapping[str, Any]] = field(default_factory=list)
    name: str = FAMILY
    options: tuple[Option, ...] = (TILE_OPTION, BUFFERING, PREFETCH)
    tile_order: tuple[str, str, str] = COUPLED.tile_order
    features: Features = COUPLED.features

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        self.given.append(dict(options))
        own = dict(options)
        depth = own.pop(PREFETCH.name, 2)
        return COUPLED.map(gemm, device, {"n_fused": depth, **own})

    def lower(self, gemm: Gemm, device: Device) -> Program:
        return COUPLED.lower(gemm, device)

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        return None

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        found = COUPLED.facts(gemm)
        return found | {PREFETCH.name: found["n_fused"]}

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        return list(COUPLED.tiles(gemm, device))[:3]


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> Iterator[WithPrefetch]:
    """The dataflow, as if a package had registered it."""
    made = WithPrefetch()
    assert isinstance(made, Dataflow)
    known = registry.dataflows() | {FAMILY: made}
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [_Point(FAMILY, made)] if group == registry.GROUP else []
    )
    registry.dataflows.cache_clear()
    assert registry.dataflows() == known
    yield made
    registry.dataflows.cache_clear()


@dataclass(frozen=True)
class _Point:
    """An entry point."""

    name: str
    flow: Dataflow
    value: str = "this test"

    def load(self) -> Dataflow:
        return self.flow


@pytest.fixture
def device(tmp_path: Path) -> str:
    path = tmp_path / f"{DEVICE}.yaml"
    text = f"schema_version: 1\nname: {DEVICE}\nextends: ascend910a\nfamily: {FAMILY}\n"
    path.write_text(text, encoding="utf-8")
    return str(path)


def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("site_options", ROOT / "docs" / "site_options.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_unknown_without_the_dataflow(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no option 'prefetch_depth'"):
        hwsim.run(m=64, n=64, k=64, prefetch_depth=3)
    assert "prefetch_depth" not in generator(monkeypatch).option_page()


def test_the_api_checks_it_and_hands_it_to_map(flow: WithPrefetch, device: str) -> None:
    m, n, k = SIZES
    result = hwsim.run(m=m, n=n, k=k, device=device, prefetch_depth=3)
    assert {"prefetch_depth": 3} in flow.given and result.options["prefetch_depth"] == 3
    assert hwsim.run(m=m, n=n, k=k, device=device).options["prefetch_depth"] == 2
    assert np.isfinite(result.c).all() and result.cycles
    with pytest.raises(InputError, match="prefetch_depth = 5; allowed: an integer"):
        hwsim.run(m=m, n=n, k=k, device=device, prefetch_depth=5)
    with pytest.raises(
        InputError, match="prefetch_depth = 3: programs of family davinci have tile, n_fused, buffering"
    ):
        hwsim.run(m=m, n=n, k=k, device="ascend910a", prefetch_depth=3)


def test_the_command_line_has_its_flag(flow: WithPrefetch, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help-all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--prefetch-depth N" in shown and PREFETCH.help in shown and f"default: 2) [{FAMILY}]" in shown
    sizes = [word for name, size in zip("mnk", SIZES, strict=True) for word in (f"--{name}", str(size))]
    assert main(["run", "--device", device, *sizes, "--prefetch-depth", "3", "--no-exact"]) == 0
    assert flow.given[-1] == {"prefetch_depth": 3} and "prefetch_depth 3" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "--device", device, *sizes, "--prefetch-depth", "9"]) == 2
    assert "prefetch_depth = 9; allowed: an integer" in capsys.readouterr().err


def test_the_documentation_lists_it(flow: WithPrefetch, monkeypatch: pytest.MonkeyPatch) -> None:
    page = generator(monkeypatch).option_page()
    row = next(line for line in page.splitlines() if "`prefetch_depth`" in line)
    assert "`--prefetch-depth`" in row and PREFETCH.help in row and FAMILY in row
    assert page.index("## Mapping") < page.index(row)


def test_tune_varies_it(flow: WithPrefetch, device: str) -> None:
    chip = hwsim.device(device)
    plan = plan_for(chip, scheme_of("native"), Problem.of("fp16", *SIZES), "fp16", {}).plan
    found = tune(chip, plan, SIZES, budget=40)
    assert {point.options.get("prefetch_depth") for point in found.points} == {None, 1, 3}
    assert {one["prefetch_depth"] for one in flow.given if "prefetch_depth" in one} == {1, 3}
    assert found.best.row()["prefetch_depth"] == found.best.facts["prefetch_depth"]
    table = [point.row() for point in found.points if point.cycles is not None]
    assert {row["prefetch_depth"] for row in table} == {1, 2, 3}


def test_an_option_without_an_axis_is_not_varied(
    flow: WithPrefetch, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = replace(flow, options=(TILE_OPTION, BUFFERING, replace(PREFETCH, axis=())))
    monkeypatch.setattr(registry, "entry_points", lambda group: [_Point(FAMILY, fixed)])
    registry.dataflows.cache_clear()
    chip = hwsim.device(device)
    plan = plan_for(chip, scheme_of("native"), Problem.of("fp16", *SIZES), "fp16", {}).plan
    found = tune(chip, plan, SIZES, budget=20)
    assert not any("prefetch_depth" in point.options for point in found.points)
