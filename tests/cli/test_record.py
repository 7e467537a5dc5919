"""A run's resolved record: written, read, done again; in Python, by JSON and on the command line."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.analysis.inputs import drawn
from hwsim.cli import main
from hwsim.devices import changed
from hwsim.errors import InputError
from hwsim.gemm.record import Gemm

SIZES = {"m": 48, "n": 40, "k": 67}
RUNS: list[dict[str, Any]] = [
    {"device": "ascend910a", "scheme": "sgemm-cube", "accumulation": "elementwise"},
    {"device": "ascend910b3", "format": "fp16", "output": "fp32", "tile": "m=64,n=64,k=64"},
    {"device": "h200", "scheme": "tf32x3", "split_k": 2, "alpha": 0.5},
    {"device": "h200", "format": "fp16", "clock_mhz": 900.0, "b_layout": "columns"},
    {"device": "b200", "scheme": "bf16x9", "promotion_interval": 2},
    {"device": "a100", "scheme": "ape", "block": 32},
    {"device": "mi300x", "scheme": "le-gemm", "schedule": {"split_k": 3}},
    {"device": "v100", "scheme": "markidis"},
]


@pytest.mark.parametrize("asked", RUNS, ids=lambda x: f"{x['device']}-{x.get('scheme', 'native')}")
def test_done_again_from_its_json(asked: dict[str, Any]) -> None:
    one = hwsim.run(**SIZES, **asked)
    text = one.gemm.to_json()
    again = hwsim.run(gemm=json.loads(text))
    assert again.gemm == one.gemm == Gemm.from_dict(json.loads(text))
    assert again.gemm.digest == one.gemm.digest
    assert again.result_sha256 == one.result_sha256
    assert (again.cycles, again.seconds, again.engines) == (one.cycles, one.seconds, one.engines)
    assert again.to_dict() == one.to_dict()
    kept = pickle.loads(pickle.dumps(one))
    assert (kept.gemm, kept.cycles, kept.warnings) == (one.gemm, one.cycles, one.warnings)
    assert np.array_equal(kept.c, one.c, equal_nan=True)


def test_codes_are_said_again() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 120, (16, 67), np.uint8), rng.integers(0, 120, (67, 16), np.uint8)
    one = hwsim.run(a, b, device="h200", input_format="e4m3")
    with pytest.raises(InputError, match="A and B are fp32: the record is of e4m3"):
        hwsim.run(a, b, gemm=one.gemm)
    assert hwsim.run(a, b, gemm=one.gemm, input_format="e4m3").result_sha256 == one.result_sha256
    half = hwsim.run(a.astype(np.float16), b.astype(np.float16), device="h200")
    with pytest.raises(InputError, match="A and B are fp32: the record is of fp16"):
        hwsim.run(a.astype(np.float32), b.astype(np.float32), gemm=half.gemm)


def test_a_stack_is_timed_again_without_its_matrices() -> None:
    a, b = np.ones((2, 3, 48, 67), np.float16), np.ones((67, 40), np.float16)
    for device in ("h200", "ascend910a"):
        one = hwsim.run(a, b, device=device, format="fp16")
        assert hwsim.run(gemm=one.gemm, exact=False).cycles == one.cycles
        with pytest.raises(InputError, match="a stack of"):
            hwsim.run(gemm=one.gemm)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("problem",), 5, r"gemm record\.problem: int 5; allowed: Problem"),
        (("schedule",), None, r"\.schedule: NoneType None"),
        (("problem", "k"), "68", r"\.problem\.k: str '68'; allowed: int"),
        (("problem", "k"), True, r"\.problem\.k: bool True"),
        (("problem", "k"), 0, "at least 1"),
        (("problem", "a_layout"), "diagonal", r"\.problem\.a_layout"),
        (("problem", "input_format"), "zz", "zz"),
        (("problem", "group"), [[1, 2, 3]], r"\.problem: Problem has group = \[\[1, 2, 3\]\], which nothing computes"),
        (("problem", "sparsity"), {"is": "Sparsity", "nonzero": 2, "of": 4}, "Problem has sparsity"),
        (("scheme",), {"is": "Tile", "m": 1, "n": 1, "k": 1}, r"\.scheme: Tile"),
        (("scheme_options",), 3, r"\.scheme_options"),
        (("mapping", "kernels", 0, "tile"), None, r"kernels\[0\]\.tile"),
        (("library",), {"is": "LibraryId", "name": "x", "version": "1"}, "it has library"),
    ],
    ids=str,
)
def test_a_record_edited_by_hand(path: tuple[Any, ...], value: Any, message: str) -> None:
    data = hwsim.run(device="h200", format="fp16", exact=False, **SIZES).gemm.to_dict()
    del data["digest"]
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(hwsim.HwsimError, match=message):
        hwsim.run(gemm=data)


def test_fields_that_nothing_computed_may_stand_in_an_older_record() -> None:
    """At the one value that they could have; the digest never held it."""
    one = hwsim.run(device="h200", format="fp16", exact=False, **SIZES).gemm
    data = one.to_dict()
    data["problem"] |= {"group": [], "scales": [], "sparsity": None}
    assert hwsim.run(gemm=data, exact=False).gemm == one


def test_the_digest_is_of_what_fixes_bits_and_cycles() -> None:
    asked: dict[str, Any] = {"device": "h200", "format": "fp16", "exact": False, **SIZES}
    plain = hwsim.run(**asked).gemm
    others = [
        {"clock_mhz": 900.0},
        {"alpha": 2.0},
        {"split_k": 2},
        {"tile": "m=64,n=64,k=64"},
        {"b_layout": "columns"},
        {"m": 49},
        {"device": changed(hwsim.device("h200"), {"cores": 100})},
    ]
    digests = [hwsim.run(**asked | other).gemm.digest for other in others]
    assert len({plain.digest, *digests}) == 1 + len(others)
    assert hwsim.run(**asked).gemm.digest == plain.digest


def test_a_device_of_ones_own_is_given_beside_the_record() -> None:
    own = changed(hwsim.device("h200"), {"cores": 100})
    one = hwsim.run(device=own, format="fp16", **SIZES)
    assert hwsim.run(gemm=one.gemm, device=own).cycles == one.cycles
    with pytest.raises(InputError, match="another h200"):
        hwsim.run(gemm=one.gemm)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"device": "a100"}, "device a100: the record is of h200"),
        ({"scheme": "bf16x9"}, "scheme bf16x9: the record is of native"),
        ({"tile": "m=64,n=64,k=64"}, "tile: the record says it"),
        ({"clock_mhz": 900.0}, "clock_mhz: the record says it"),
    ],
)
def test_what_the_record_says_is_not_said_again(more: dict[str, Any], message: str) -> None:
    record = hwsim.run(device="h200", format="fp16", exact=False, **SIZES).gemm
    with pytest.raises(InputError, match=message):
        hwsim.run(gemm=record, **more)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "gemm.json"
    shape = ["--m", "48", "--n", "40", "--k", "67"]
    asked = ["--device", "h200", "--format", "fp16", "--alpha", "2", "--clock-mhz", "900", *shape]
    assert main(["run", *asked, "--save-gemm", str(record), "--json"]) == 0
    first = capsys.readouterr().out
    assert main(["run", "--gemm", str(record), "--json"]) == 0
    assert capsys.readouterr().out == first
    assert main(["run", "--gemm", str(record)]) == 0
    assert "h200: NVIDIA H200, 132 cores at 900 MHz" in capsys.readouterr().out
    for more in (["--device", "a100"], ["--scheme", "tf32x3"], ["--clock-mhz", "1000"], ["--tile", "64,64,64"]):
        assert main(["run", "--gemm", str(record), *more]) == 2
        assert more[0].strip("-").partition("-")[0] in capsys.readouterr().err
    data = json.loads(record.read_text())
    data["problem"]["k"] = 68
    record.write_text(json.dumps(data))
    assert main(["run", "--gemm", str(record)]) == 2
    assert "digest" in capsys.readouterr().err


def test_a_colleague_compares_operands_and_bits_with_the_json_of_a_run(tmp_path, capsys):
    rng = np.random.default_rng(1)
    for name, shape in (("a", (8, 67)), ("b", (67, 16))):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape).astype(np.float32))
    arrays = ["--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy")]
    assert main(["run", "--device", "h100", "--format", "bf16", *arrays, "--json", "-q"]) == 0
    file = tmp_path / "run.json"
    file.write_text(capsys.readouterr().out)
    run = json.loads(file.read_text())
    a = np.load(tmp_path / "a.npy")
    assert run["operands_sha256"]["a"] == hashlib.sha256(a.astype("<f4").tobytes()).hexdigest()
    again = ["run", "--gemm", str(file), "--expect"]
    assert main([*again, str(file), *arrays]) == 0
    done = capsys.readouterr()
    assert f"--expect {file}: equal" in done.err and "drawn anew" not in done.err
    assert main([*again, run["result_sha256"].upper(), *arrays, "-q"]) == 0
    assert main([*again, str(file)]) == 1
    said = capsys.readouterr().err
    assert "a record holds no operands: A and B are drawn anew" in said
    assert "differs: A has SHA-256" in said and "; B has" in said and "; result has" in said
    assert main([*again, "0" * 64, *arrays]) == 1
    assert "differs: result has" in capsys.readouterr().err
    a[3, 5] = np.nextafter(a[3, 5], np.float32(9))
    np.save(tmp_path / "a.npy", a)
    assert main([*again, str(file), *arrays]) == 1
    assert "differs: A has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("way", "drawn_in"),
    [
        (["--device", "h100", "--operand-distribution", "log-uniform:-9:9"], "fp32"),
        (["--device", "h100", "--scheme", "bf16x9", "--input-format", "fp64"], "fp64"),
        (["--device", "b200", "--scheme", "mxfp8"], "fp32"),
        (["--device", "b200", "--scheme", "mxfp8", "--input-format", "e4m3"], "e4m3"),
    ],
)
def test_the_warning_of_drawn_operands_names_the_flags_that_draw_them_again(way, drawn_in, tmp_path, capsys):
    file = tmp_path / "run.json"
    assert main(["run", "--m", "8", "--n", "8", "--k", "67", "--seed", "1", *way, "--json", "-q"]) == 0
    file.write_text(capsys.readouterr().out)
    again = ["run", "--gemm", str(file), "--expect", str(file)]
    assert main(again) == 1
    said = capsys.readouterr().err
    flags = said.split("drawn anew; ")[1].split(" draws the ones of that run again")[0].split()
    assert flags[:2] == ["--seed", "1"] and flags[-2:] == ["--input-format", drawn_in]
    assert ("--operand-distribution" in flags) == ("--operand-distribution" in way)
    assert main([*again, *flags]) == 0


def test_a_scheme_that_quantises_says_what_its_operands_were_drawn_in(tmp_path, capsys):
    """The record is of the quantised operands; repeated, it quantises what the run drew."""
    file = tmp_path / "run.json"
    assert main(["run", "--device", "b200", "--scheme", "nvfp4", "--m", "8", "--n", "8", "--k", "64", "--json"]) == 0
    file.write_text(capsys.readouterr().out)
    run = json.loads(file.read_text())
    assert (run["options"]["input_format"], run["gemm"]["problem"]["a"]["format"]) == ("fp32", "e2m1")
    assert main(["run", "--gemm", str(file), "--seed", "0", "--expect", str(file)]) == 0
    sizes = {"device": "b200", "scheme": "nvfp4", "m": 8, "n": 8, "k": 64}
    given = hwsim.run(*(x.astype(np.float64) for x in drawn(8, 8, 64, 0, "fp32")), device="b200", scheme="nvfp4")
    assert given.options["input_format"] == "fp64"
    assert hwsim.run(**sizes, exact=False).options["input_format"] == "e2m1"  # no operands: of those that it times
    rows = hwsim.sweep({"devices": "b200", "schemes": "nvfp4", "shapes": [[8, 8, 64]], "exact": True}, cache=False).rows
    assert [row["memory_format"] for row in rows] == ["fp32"]


def test_operands_of_two_formats_have_no_flags_that_draw_them_again(tmp_path, capsys):
    file = tmp_path / "run.json"
    way = ["--device", "h100", "--format", "e4m3", "--input-format", "e5m2,e4m3"]
    assert main(["run", "--m", "8", "--n", "8", "--k", "67", *way, "--json", "-q"]) == 0
    file.write_text(capsys.readouterr().out)
    assert main(["run", "--gemm", str(file)]) == 0
    assert "drawn anew; give --a and --b, or --seed" in capsys.readouterr().err


def test_what_expect_refuses(tmp_path, capsys):
    other = tmp_path / "other.json"
    other.write_text('{"schema": "hwsim.sweep/1"}')
    for value, said in (("abc", "allowed: the 64 hexadecimal digits"), (str(other), "not the JSON of a run with bits")):
        assert main(["run", "--m", "8", "--n", "8", "--k", "8", "--expect", value]) == 2
        assert said in capsys.readouterr().err
    assert main(["run", "--no-exact", "--expect", "0" * 64]) == 2
    assert "--expect needs the bits" in capsys.readouterr().err


def test_a_record_with_random_operands_that_were_asked_for_has_no_warning(tmp_path, capsys):
    file = tmp_path / "gemm.json"
    sizes = ["--m", "8", "--n", "8", "--k", "8"]
    assert main(["run", "--device", "h100", *sizes, "--save-gemm", str(file)]) == 0
    capsys.readouterr()
    for more in (["--seed", "0"], ["--no-exact"], ["-q"]):
        assert main(["run", "--gemm", str(file), *more]) == 0
        assert "drawn anew" not in capsys.readouterr().err


def test_a_record_of_a_scheme_of_one_s_own_asks_for_the_scheme(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = f"{Path(__file__).parents[2] / 'examples' / 'own_scheme.py'}:SCHEME"
    sizes = ["--m", "16", "--n", "16", "--k", "32", "--no-timing"]
    assert main(["run", "--device", "a100", "--scheme", mine, *sizes, "--json"]) == 0
    file = tmp_path / "run.json"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    again = ["run", "--gemm", str(file), "--expect", str(file)]
    assert main(again) == 2
    assert "which is not known here" in (said := capsys.readouterr().err) and "--scheme FILE.py:NAME" in said
    assert main([*again, "--scheme", mine]) == 0
    assert capsys.readouterr().err.endswith(": equal\n")


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "null",
        '{"schema": "hwsim.run/1", "seed": 0}',
        '{"schema": "hwsim.run/1", "gemm": null}',
        '{"schema": "hwsim.run/1", "gemm": {}}',
    ],
)
def test_what_is_no_record_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "record.json"
    file.write_text(text, encoding="utf-8")
    assert main(["run", "--gemm", str(file)]) == 2
    assert "internal error" not in (said := capsys.readouterr().err) and "record" in said


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("operands_sha256", {"x": 1}, "it has no a"),
        ("operands_sha256", [1], "operands_sha256: got a list; allowed: an object"),
        ("operands_sha256", {"a": 1, "b": "0"}, "a: got an integer; allowed: a string"),
        ("result_sha256", "0" * 63, "the SHA-256 of result is '000"),
        ("options", None, "options: got null; allowed: an object"),
        ("options", {"input_format": ["fp32"]}, "input_format: got a list; allowed: a string"),
        ("seed", "zero", "seed: got a string; allowed: an integer"),
        ("seed", True, "seed: got True; allowed: an integer"),
        ("warnings", [{"code": "x"}, 1], "an entry of warnings: got an integer; allowed: an object"),
        ("gemm", None, "gemm: got null; allowed: an object"),
    ],
)
@pytest.mark.parametrize("option", ["--gemm", "--expect"])
def test_a_malformed_run_is_named_with_its_part(option, part, value, said, tmp_path, capsys):
    sizes = {"m": 2, "n": 2, "k": 2}
    document = json.loads(json.dumps(hwsim.run(**sizes, device="h100", seed=1, timing=False).to_dict()))
    file = tmp_path / "run.json"
    file.write_text(json.dumps(document | {part: value}), encoding="utf-8")
    assert main(["run", option, str(file)]) == 2
    error = capsys.readouterr().err
    assert f"{option} {file}: not" in error and said in error and "internal error" not in error
    document.pop(part)
    file.write_text(json.dumps(document), encoding="utf-8")
    assert main(["run", option, str(file), "-q", "--no-timing"]) != 3
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "code"), [("fp32", 2), ("e4m3", 2), ("bf16,bf16", 0), ("bf16,fp32", 2), ("bf16", 0), (None, 0)]
)
@pytest.mark.parametrize("more", [["--no-exact"], ["--seed", "0", "--no-timing"]])
def test_another_format_than_the_record_s_is_refused_without_bits_too(asked, code, more, tmp_path, capsys):
    file = tmp_path / "gemm.json"
    file.write_text(hwsim.run(m=8, n=8, k=8, device="h100", input_format="bf16").gemm.to_json())
    given = [] if asked is None else ["--input-format", asked]
    assert main(["run", "--gemm", str(file), *given, *more]) == code
    error = capsys.readouterr().err
    assert ("the record is of bf16" in error) == (code == 2)
