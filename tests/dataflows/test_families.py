"""GPU families as files: hwsim's own, one of a user's without any Python, and files with problems."""

from __future__ import annotations

import json
from pathlib import Path

import pydantic
import pytest

import hwsim
from hwsim.dataflows import families
from hwsim.dataflows.protocol import Dataflow
from hwsim.dataflows.registry import dataflow, dataflows
from hwsim.errors import ConfigError, UnsupportedError
from hwsim.request.declarations import declared

ROOT = Path(__file__).parents[2]
SM90 = (ROOT / "configs/families/sm90.yaml").read_text(encoding="utf-8")
SIZES = {"m": 512, "n": 512, "k": 512, "format": "fp16", "exact": False}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's families; beside it a device of the family `mine`, an H200 in all else."""
    monkeypatch.setenv("HWSIM_CONFIG_PATH", str(tmp_path))
    (tmp_path / "mychip.yaml").write_text("schema_version: 1\nname: mychip\nextends: h200\nfamily: mine\n")
    made = tmp_path / "families"
    made.mkdir()
    return made


def write(folder: Path, **changed: str) -> None:
    """The family `mine`: sm90 with other lines for some keys."""
    keys = {"name": "mine", **changed}
    lines = [
        f"{line.partition(':')[0]}: {keys[line.partition(':')[0]]}" if line.partition(":")[0] in keys else line
        for line in SM90.split("\n")
    ]
    (folder / "mine.yaml").write_text("\n".join(lines))


def test_hwsims_own_are_those_of_the_folder() -> None:
    files = {path.stem for path in (ROOT / "configs/families").glob("*.yaml")}
    assert set(families.shipped()) == files == {"cdna", "sm70", "sm80", "sm90", "sm100", "tiled"}
    assert list(families.shipped()) == ["sm70", "sm80", "sm90", "sm100", "cdna", "tiled"]
    for name, family in families.shipped().items():
        flow = dataflows()[name]
        assert isinstance(flow, Dataflow) and flow is dataflows()[name] and flow.name == family.name == name
        assert flow.options == dataflows().options()[name]


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 13),
    reason="the schema's wording is pydantic's, from 2.13 on as in the file",
)
def test_the_schema_file_is_current() -> None:
    text = (ROOT / "configs/schema/family.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == families.json_schema()


def test_a_family_of_ones_own_needs_no_python(folder: Path) -> None:
    write(folder)
    plain, mine = hwsim.run(device="h200", **SIZES), hwsim.run(device="mychip", **SIZES)
    assert mine.cycles == plain.cycles and mine.gemm.mapping.kernels == plain.gemm.mapping.kernels
    assert "mine" in dataflows() and dataflow(hwsim.device("mychip")).name == "mine"
    assert families.known() is families.known()
    assert "mine" in next(entry.owners for entry in declared() if entry.option.name == "stages")


def test_what_a_family_file_says_counts(folder: Path) -> None:
    write(folder, stages="{value: 2, source: NONE, evidence: assumption}", persistent="false")
    plain, mine = hwsim.run(device="h200", **SIZES), hwsim.run(device="mychip", **SIZES)
    assert plain.gemm.mapping.kernels[0].stages > 2 >= mine.gemm.mapping.kernels[0].stages
    assert mine.cycles > plain.cycles


@pytest.mark.parametrize(
    ("key", "line", "text"),
    [
        ("stages", "3", "stages: missing source and evidence"),
        ("stages", "{value: 0, source: NONE, evidence: assumption}", "stages: got 0; must be at least 1"),
        ("library", "cutlas-sm80", "library: no library 'cutlas-sm80'; known: "),
        ("registers", "3", "registers: got 3; needs text"),
        ("store_shared", "maybe", "store_shared: got the text 'maybe'; needs true or false"),
        ("name", "other", "name: got 'other'; the file's name says mine"),
    ],
)
def test_a_file_with_problems_says_where(folder: Path, key: str, line: str, text: str) -> None:
    write(folder, **{key: line})
    with pytest.raises(ConfigError) as refused:
        hwsim.run(device="mychip", **SIZES)
    assert text in str(refused.value) and "mine.yaml:" in str(refused.value)
    with pytest.warns(UserWarning, match="is left out") as warned:
        assert "mine" not in families.known()
    assert len(warned) == 1


def test_hwsims_own_families_keep_their_names(folder: Path) -> None:
    (folder / "sm90.yaml").write_text(SM90.replace("value: 16", "value: 2"))
    assert families.find("sm90") is families.shipped()["sm90"]
    with pytest.warns(UserWarning, match=r"hwsim has a family sm90; give the file"):
        assert families.known()["sm90"].stages == 16


def test_a_family_without_a_file_is_refused(folder: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"no dataflow for family 'mine'; there is one for davinci, .*sm100"):
        hwsim.run(device="mychip", **SIZES)
