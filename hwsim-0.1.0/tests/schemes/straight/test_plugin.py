"""The example of an own scheme, found through the entry point of a distribution, and equal to the same by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from straight_unit import F32, Outside, Unit, codes, pair, same, to_bf16

import hwsim
from hwsim.cli import main
from hwsim.errors import InputError
from hwsim.schemes import scheme_of, schemes

EXAMPLES = Path(__file__).parents[3] / "examples"


def distribution(folder: Path, name: str, entries: str) -> None:
    """What an installer leaves of a package: its metadata."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[hwsim.schemes]\n{entries}\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "own_scheme", "bf16-pair = own_scheme:SCHEME")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    sys.modules.pop("own_scheme", None)


def by_hand(a, b, device, products, k_group=None):
    unit, out = Unit(device, "bf16"), Outside(device)

    def pieces(x):
        first = to_bf16(x)
        return codes(first, "bf16"), codes(to_bf16((x - first) * F32(256)), "bf16")

    (a1, a2), (b1, b2) = pieces(a), pieces(b)
    large = out.runs(unit, [(a1, b1)], k_group)
    small = out.runs(unit, [(a1, b2), (a2, b1)], k_group)
    if products == 4:
        small = out.add(small, out.times(out.runs(unit, [(a2, b2)], k_group), -8))
    return out.add(large, out.times(small, -8))


def test_unknown_without_its_package() -> None:
    assert "bf16-pair" not in schemes()
    with pytest.raises(InputError, match="no scheme 'bf16-pair'"):
        scheme_of("bf16-pair")


@pytest.mark.parametrize("options", [{"products": 3}, {"products": 4}, {"products": 4, "k_group": 32}], ids=str)
@pytest.mark.parametrize("device", ["a100", "h200", "mi210"])
@pytest.mark.usefixtures("installed")
def test_by_name_and_bit_for_bit(device: str, options: dict) -> None:
    for kind in ("near", "wide"):
        a, b = pair(kind, (3, 5, 67))
        same(hwsim.matmul(a, b, device=device, scheme="bf16-pair", **options), by_hand(a, b, device, **options))


@pytest.mark.usefixtures("installed")
def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schemes", "show", "bf16-pair"]) == 0
    assert "--products" in capsys.readouterr().out
    assert main(["schemes", "--device", "v100", "--json"]) == 0
    listed = {x["name"]: x for x in json.loads(capsys.readouterr().out)["schemes"]}
    assert not listed["bf16-pair"]["runs"] and "bf16" in listed["bf16-pair"]["why_not"]
    sizes = ["--m", "32", "--n", "32", "--k", "32", "--device", "a100"]
    assert main(["run", *sizes, "--scheme", "bf16-pair", "--products", "4", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["scheme"] == "bf16-pair" and printed["options"]["products"] == 4 and printed["cycles"] > 0
    assert printed["error"]["relative_frobenius"] < 1e-4


@pytest.mark.usefixtures("installed")
def test_its_warning() -> None:
    a = np.full((2, 4), 2.0**-119, np.float32)
    result = hwsim.run(a, np.ones((4, 2), np.float32), device="a100", scheme="bf16-pair", timing=False)
    assert [(x["code"], x["count"]) for x in result.warnings] == [("low_piece_subnormal", 8)]


def test_a_broken_one_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "broken", "broken = no_such_module:SCHEME")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match=r"broken.*no_such_module"):
        assert "native" in schemes()


def test_none_takes_the_place_of_hwsims_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import dataclasses\nfrom hwsim.schemes import scheme_of\n"
    text += "SCHEME = dataclasses.replace(scheme_of('native'), title='another')\n"
    (tmp_path / "other_native.py").write_text(text)
    distribution(tmp_path, "other", "native = other_native:SCHEME")
    monkeypatch.syspath_prepend(tmp_path)
    assert schemes()["native"] is scheme_of("native") and "other_native" in sys.modules
    sys.modules.pop("other_native")
