"""`hwsim which`: instructions by formats and arithmetic, over all devices."""

import json

import pytest

import hwsim
from hwsim.cli import main
from hwsim.devices import dot_spec, instruction, load
from hwsim.errors import InputError


def test_every_condition_holds_for_what_is_found():
    found = hwsim.which(bits="fp16", accumulate="fp32", least_fraction_bits=24, timing=True)
    assert {"a100", "b200", "ascend910a"} <= {one.device for one in found}
    assert not {"v100", "h200"} & {one.device for one in found if one.model == "fused" and one.fraction_bits < 24}
    for one in found:
        model, spec = instruction(load(one.device), one.instruction), dot_spec(load(one.device), one.instruction)
        assert (model.a, model.b, model.c) == ("fp16", "fp16", "fp32") and model.timing is not None
        assert getattr(spec.unit, "fraction_bits", 24) >= 24
    kept = {one.model: one.fraction_bits for one in hwsim.which(accumulate="fp32", result="fp32")}
    assert kept["exact"] is None and kept["two_level"] == 24 and kept["fma_chain"] == kept["pairwise"] == 23
    assert {one.model for one in hwsim.which(least_fraction_bits=60)} <= {"exact", "integer", "block_scaled"}
    devices = {one.device for one in hwsim.which(scale_input_d=True)}
    assert devices == {"b200", "b300", "gb200"}


def test_formats_of_a_pattern_are_each_found():
    mixed = hwsim.which(bits="e5m2", bits_b="e4m3", devices=["h200"])
    assert [one.instruction for one in mixed if one.instruction.startswith("wgmma.m64")] == [
        "wgmma.m64n256k32.f32.e5m2.e4m3",
        "wgmma.m64n256k32.f16.e5m2.e4m3",
    ]
    assert hwsim.which(bits="e4m3", devices=["v100"]) == []
    assert {one.model for one in hwsim.which(model="exact")} == {"exact"}
    assert {one.rounding for one in hwsim.which(rounding="RNE", terms=16)} == {"RNE"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bits": "fp61"}, "did you mean 'fp16'"),
        ({"model": "fusd"}, "did you mean 'fused'"),
        ({"rounding": "RX"}, "allowed"),
    ],
)
def test_misspelt_values_are_refused(options, text):
    with pytest.raises(InputError, match=text):
        hwsim.which(**options)


def test_the_verb(capsys):
    assert main(["which", "--bits", "fp16", "--accumulate", "fp32", "--device", "h200"]) == 0
    shown = capsys.readouterr().out
    assert "wgmma.m64n256k16.f32.f16.f16" in shown and "fp16 x fp16 + fp32 -> fp32" in shown
    assert main(["which", "--bits", "e4m3", "--device", "v100"]) == 0
    assert "no device has such an instruction" in capsys.readouterr().out
    assert main(["which", "--bits", "bf16", "--device", "h200", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["instructions"]
    assert rows and all(row["a"] == "bf16" for row in rows)


def test_the_list_of_devices_shows_chips(capsys, tmp_path, monkeypatch):
    (tmp_path / "broken.yaml").write_text("name: broken\n")
    monkeypatch.setenv("HWSIM_CONFIG_PATH", str(tmp_path))
    assert main(["devices"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "NVIDIA H200" in lines["h200"] and "2,141 TFLOP/s in e4m3" in lines["h200"]
    assert "configs" not in lines["h200"] and "hwsim devices check broken" in lines["broken"]
    assert main(["devices", "--paths"]) == 0
    assert "h200.yaml" in capsys.readouterr().out
