"""Commands that hwsim prints run as they stand, for a device that only its file's path finds too."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import hwsim
from hwsim.report.page.run_page import run_page

SIZES = ("--m", 16, "--n", 16, "--k", 16)
FILE = "my files/chip.yaml"


def new_file(cli: Any) -> None:
    """Write a device file in a folder whose name a shell splits."""
    Path(FILE).parent.mkdir()
    assert cli("devices", "new", FILE).code == 0


@pytest.fixture(params=[FILE, "h200"])
def device(request: pytest.FixtureRequest, cli: Any) -> str:
    if request.param == FILE:
        new_file(cli)
    return str(request.param)


def commands(text: str) -> list[list[str]]:
    """The commands `hwsim explain` and `hwsim devices show` that a text has, as words."""
    return [shlex.split(found) for found in re.findall(r"hwsim ((?:explain|devices show) .*)", text)]


def test_the_sources_of_a_run(device: str, cli: Any) -> None:
    (show,) = commands(cli("run", "--device", device, "--format", "fp16", *SIZES, "--no-exact").out)
    assert cli(*show).out == cli("devices", "show", device, "--sources").out != ""


def test_the_instructions_of_an_element(device: str, cli: Any) -> None:
    said = cli("run", "--device", device, "--format", "fp16", *SIZES, "--functional", "--values", "0,0").out
    explained = [words for words in commands(said) if words[0] == "explain"]
    assert explained and all(cli(*words).code == 0 for words in explained)


def test_the_instructions_of_a_difference(device: str, cli: Any) -> None:
    said = cli("diff", "--device", device, "--device", "v100", "--format", "fp16", *SIZES).out
    explained = commands(said)
    assert {words[1] for words in explained} == {device, "v100"} and all(cli(*words).code == 0 for words in explained)


def test_an_instruction_that_a_device_has_not(cli: Any) -> None:
    new_file(cli)
    text = Path(FILE).read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "mma.m16n16k16.f32.bf16.bf16: {" in line)
    more = [line.replace("m16n16k16", f"m16n16k{16 * i}").replace("k: 16", f"k: {16 * i}") for i in range(2, 20)]
    Path(FILE).write_text(text.replace(line, "\n".join([line, *more])), encoding="utf-8")
    (show,) = commands(cli("mma", FILE, "wgmma", "--a", 1, "--b", 1).err)
    assert cli(*show).code == 0


def test_the_record_of_a_page(device: str, cli: Any) -> None:
    pytest.importorskip("plotly", reason="the extra report")
    result = hwsim.run(device=device, format="fp16", m=16, n=16, k=16, exact=False)
    Path("gemm.json").write_text(result.gemm.to_json(), encoding="utf-8")
    (command,) = re.findall(r"hwsim (run --gemm gemm\.json[^<]*)<", run_page(result).html())
    again = cli(*shlex.split(command.replace("&#x27;", "'").replace("&#39;", "'")), "--json")
    assert again.json["cycles"] == result.cycles


def test_a_record_of_a_device_that_no_name_finds_says_what_to_give(cli: Any) -> None:
    new_file(cli)
    words = ("--format", "fp16", *SIZES, "--no-exact")
    assert cli("run", "--device", FILE, *words, "--save-gemm", "gemm.json").code == 0
    refused = cli("run", "--gemm", "gemm.json", "--no-exact")
    assert refused.code == 2 and "give its file beside the record: --device FILE.yaml" in refused.err
    assert cli("run", "--gemm", "gemm.json", "--device", FILE, "--no-exact").code == 0
