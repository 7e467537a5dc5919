"""`hwsim devices compare`: what the files say of each device, and what differs."""

import json

import pytest

import hwsim
from hwsim.cli import main
from hwsim.devices import names
from hwsim.report.text.compare_text import ABSENT, compare_devices


def rows_of(*wanted: str) -> dict[str, tuple[str, ...]]:
    return dict(compare_devices([hwsim.device(name) for name in wanted]))


def test_values_are_the_files() -> None:
    rows = rows_of("h200", "v100", "ascend910a")
    h200 = hwsim.device("h200")
    assert rows["chip: cores"] == ("132", "80", "32")
    unit = h200.matrix_instructions
    assert rows["fp16: instruction"][0] == h200.native["fp16"] and unit
    peak = float(rows["fp16: peak"][0].split()[0].replace(",", ""))
    assert peak == pytest.approx(2 * 2048 * 132 * 1.98e9 / 1e12, rel=1e-3)
    assert rows["bf16: peak"][1] == ABSENT and "fraction_bits 25" in rows["fp16: adds"][0]


def test_every_device_can_be_compared() -> None:
    found = [name for name, _ in names()]
    rows = rows_of(*found)
    assert all(len(values) == len(found) for values in rows.values())
    assert [name.partition(":")[0] for name in rows][:2] == ["chip", "chip"]


def test_only_what_differs_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "compare", "h100", "h200"]) == 0
    brief = capsys.readouterr().out
    assert "memory: HBM" in brief and "chip: cores" not in brief and "rows are equal" in brief
    assert main(["devices", "compare", "h100", "h200", "--all"]) == 0
    assert "chip: cores" in capsys.readouterr().out
    assert main(["devices", "compare", "h100", "h200", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["devices"] == ["h100", "h200"] and len(said["rows"]) == len(rows_of("h100", "h200"))


def test_one_device_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "compare", "h100"]) == 2
    assert "at least two" in capsys.readouterr().err
