"""Runs of the manifest again: no bit and no cycle differs, but where changed.yaml says why.

A sample of them (sample.py); `pytest -m slow tests/manifest` makes the others.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cases as listed
import pytest
import record
import yaml
from sample import features, sample

import hwsim
from hwsim.devices import names
from hwsim.schemes import schemes

LEAST_RUNS = 500  # that give a result
CASES = listed.cases()
SAMPLE = sample(CASES)
SAMPLED = {_case["id"] for _case in SAMPLE}


def by_group(cases: Iterable[listed.Case]) -> dict[str, list[listed.Case]]:
    groups: dict[str, list[listed.Case]] = defaultdict(list)
    for case in cases:
        groups[listed.group_of(case["id"])].append(case)
    return groups


GROUPS = by_group(SAMPLE)
OTHERS = by_group(case for case in CASES if case["id"] not in SAMPLED)


@pytest.fixture(scope="module")
def manifest() -> dict[str, record.Row]:
    return record.read(record.MANIFEST)


@pytest.fixture(scope="module")
def expected() -> dict[str, record.Row]:
    return record.expected()


@pytest.mark.filterwarnings("ignore:device .* is taken from")
@pytest.mark.parametrize("group", GROUPS)
def test_runs(group: str, expected: dict[str, record.Row]) -> None:
    rows = record.record(GROUPS[group], quiet=True)
    assert record.differences(rows, expected) == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:device .* is taken from")
@pytest.mark.parametrize("group", OTHERS)
def test_other_runs(group: str, expected: dict[str, record.Row]) -> None:
    rows = record.record(OTHERS[group], quiet=True)
    assert record.differences(rows, expected) == {}


def test_the_sample_has_every_feature_and_the_others_are_the_rest() -> None:
    assert {x for case in SAMPLE for x in features(case)} == {x for case in CASES for x in features(case)}
    assert {name for name, _ in names()} <= {case["keywords"]["device"] for case in SAMPLE}
    assert set(schemes()) <= {case["keywords"].get("scheme") for case in SAMPLE}
    made = [case["id"] for groups in (GROUPS, OTHERS) for group in groups.values() for case in group]
    assert sorted(made) == sorted(case["id"] for case in CASES)


def test_the_manifest_is_of_these_cases(manifest: dict[str, record.Row]) -> None:
    assert list(manifest) == [case["id"] for case in CASES]
    assert len(set(manifest)) == len(CASES)
    assert json.loads(json.dumps(CASES)) == CASES


def test_the_manifest_covers_every_device_scheme_and_format(manifest: dict[str, record.Row]) -> None:
    gave = [case for case in CASES if manifest[case["id"]]["error"] is None]
    assert len(gave) >= LEAST_RUNS
    assert sum(manifest[case["id"]]["c"] is not None for case in gave) >= LEAST_RUNS
    assert sum(manifest[case["id"]]["cycles"] is not None for case in gave) >= LEAST_RUNS
    devices = {name for name, _ in names()}
    used = [case["keywords"] for case in gave]
    assert {x["device"] for x in used} >= devices
    assert {x["scheme"] for x in used if "scheme" in x} >= set(schemes())
    assert {(x["device"], x["format"]) for x in used if "format" in x} >= {
        (device, fmt) for device in devices for fmt in hwsim.device(device).native
    }


def test_what_changed_has_a_reason_and_is_in_use(manifest: dict[str, record.Row]) -> None:
    changes, values = record.accepted()
    told: set[tuple[str, str]] = set()
    reasons = [(change["reason"], change["source"]) for change in changes]
    assert len(set(reasons)) == len(reasons), "a change has one entry"
    for change in changes:
        assert set(change) - {"numerics"} == {"reason", "source", "runs"}
        assert str(change["reason"]).strip() and str(change["source"]).strip()
        parts = [(part["ids"], tuple(part["fields"])) for part in change["runs"]]
        assert parts and len(set(parts)) == len(parts), f"twice: {change['reason']}"
    for part in record.parts_of(changes):
        own = record.covered(part, values)
        assert {field for _, field in own} == set(part["fields"]), f"stale: {part['ids']}"
        told |= own
    for name, field in [(name, field) for name, fields in values.items() for field in fields]:
        assert (name, field) in told, f"no entry for {name}, {field}"
        assert values[name][field] != manifest[name][field], f"{name}: {field} is that of the first recording"


CHANGES = Path(__file__).parents[2] / "CHANGELOG.md"


def told_changes(text: str) -> list[str]:
    """The bullets under all *Numerics* headings of a changelog."""
    parts = re.findall(r"^### Numerics\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    return [bullet for part in parts for bullet in re.findall(r"^\* (.*?)(?=^\* |\Z)", part, re.MULTILINE | re.DOTALL)]


def untold(changes: list[dict[str, Any]], text: str) -> list[str]:
    """Reasons of changes of bits that the changelog's *Numerics* do not name."""
    bullets = told_changes(text)
    of_bits = [x for x in changes if any("c" in part["fields"] for part in x["runs"])]
    return [x["reason"] for x in of_bits if not any(y.startswith(x.get("numerics") or "\0") for y in bullets)]


@pytest.mark.skipif(not CHANGES.exists(), reason="a source distribution has no CHANGELOG.md")
def test_a_change_of_bits_is_named_in_the_changelog() -> None:
    changes, text = record.accepted()[0], CHANGES.read_text(encoding="utf-8")
    assert untold(changes, text) == []
    own = {"reason": "x", "source": "y", "runs": [{"ids": "scheme/*", "fields": ["c"]}]}
    assert untold([*changes, own], text) == ["x"]
    assert untold([own | {"numerics": "A sentence that is not there"}], text) == ["x"]
    assert untold([own | {"numerics": "Kept"}], "### Added\n\n* Kept\n\n### Numerics\n\n* Other\n") == ["x"]


# --- the command and its comparison --------------------------------------------------------------------------------

ONE = "scheme/h200/tf32x3/*"


@pytest.fixture
def own_files(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is expected now, with one run's cycles and bits changed, and no accepted values, in a folder of its own."""
    rows = record.expected()
    record.write(tmp_path / "now.json", rows)
    name = next(x for x in rows if x.startswith("scheme/h200/tf32x3/"))
    rows[name] = rows[name] | {"cycles": rows[name]["cycles"] + 1, "c": "float32 1x1 0"}
    record.write(tmp_path / "manifest.json", rows)
    (tmp_path / "changed.yaml").write_text("# kept\n[]\n")
    for variable, file in (("MANIFEST", "manifest.json"), ("CHANGED", "changed.yaml"), ("VALUES", "changed.json")):
        monkeypatch.setattr(record, variable, tmp_path / file)
    return tmp_path


def test_a_difference_is_seen_and_named(own_files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    compare = ["-q", "--only", ONE, "--compare", str(own_files / "manifest.json")]
    assert record.main(compare) == 1
    assert ": c, cycles\n1 of 1 runs differ" in capsys.readouterr().out


def test_a_difference_is_accepted_field_by_field(own_files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    compare = ["-q", "--only", ONE, "--compare", str(own_files / "manifest.json")]
    accept = ["-q", "--accept", ONE, "--reason", "a better model", "--source", "measured", "--fields"]
    first = (own_files / "manifest.json").read_text()
    assert record.main([*accept, "cycles"]) == 0
    assert record.main(compare) == 1
    assert ": c\n1 of 1 runs differ" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        record.main([*accept, "c,cycles"])
    assert "needs --numerics" in capsys.readouterr().err
    assert record.main([*accept, "c,cycles", "--numerics", "A better model"]) == 0
    assert yaml.safe_load((own_files / "changed.yaml").read_text())[-1]["numerics"] == "A better model"
    assert record.main(compare) == 0
    assert (own_files / "manifest.json").read_text() == first
    assert (own_files / "changed.yaml").read_text().startswith("# kept\n- reason:")
    values = json.loads((own_files / "changed.json").read_text())
    name = next(iter(values))
    values[name]["cycles"] += 1  # another value than the accepted one
    (own_files / "changed.json").write_text(json.dumps(values))
    assert record.main(compare) == 1
    assert record.main([*accept, "engines"]) == 2


def test_reasons_of_earlier_changes_are_kept(own_files: Any) -> None:
    """Of one run two changes, the second of which is accepted in two parts; then what it moved is as at first."""

    def accepted(reason: str, fields: str) -> list[Any]:
        accept = ["-q", "--accept", ONE, "--reason", reason, "--source", "measured", "--numerics", "A better model"]
        record.main([*accept, "--fields", fields])
        found = yaml.safe_load((own_files / "changed.yaml").read_text())
        return [(x["reason"], [",".join(part["fields"]) for part in x["runs"]]) for x in found]

    assert accepted("first", "c,cycles") == [("first", ["c,cycles"])]
    both = [("first", ["c,cycles"]), ("second", ["cycles"])]
    assert accepted("second", "cycles") == both
    assert accepted("second", "cycles") == both
    assert accepted("second", "c") == [both[0], ("second", ["cycles", "c"])]
    assert accepted("third", "c,cycles") == [both[0], ("second", ["cycles", "c"]), ("third", ["c,cycles"])]
    rows = record.read(own_files / "manifest.json")
    now = record.read(own_files / "now.json")
    record.write(
        own_files / "manifest.json", {name: row | {"cycles": now[name]["cycles"]} for name, row in rows.items()}
    )
    assert accepted("second", "cycles") == [("first", ["c"]), ("second", ["c"]), ("third", ["c"])]


def test_an_accepted_value_that_is_gone_is_a_difference(own_files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    accept = ["-q", "--accept", ONE, "--reason", "a better model", "--source", "measured", "--fields", "c,cycles"]
    accept += ["--numerics", "A better model"]
    assert record.main(accept) == 0
    (own_files / "manifest.json").write_text((own_files / "now.json").read_text())
    assert record.main(["-q", "--only", ONE, "--compare", str(own_files / "manifest.json")]) == 0
    values = json.loads((own_files / "changed.json").read_text())
    (own_files / "changed.json").write_text(json.dumps({name: {"c": "", "cycles": 1} for name in values}))
    assert record.main(["-q", "--only", ONE, "--compare", str(own_files / "manifest.json")]) == 1
    assert ": c, cycles\n1 of 1 runs differ" in capsys.readouterr().out
    assert record.main(accept) == 2
    assert not (own_files / "changed.json").exists()
    assert "ids:" not in (own_files / "changed.yaml").read_text()


def test_the_first_recording_is_not_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        record.main(["--out", str(record.MANIFEST)])
    assert ended.value.code == 2
    assert "first recording" in capsys.readouterr().err
