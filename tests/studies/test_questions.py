"""The questions of the command line, asked from Python."""

import json

import numpy as np
import pytest

import hwsim
from hwsim.cli import main

UNIT = "wgmma.m64n8k16.f32.f16.f16"


def test_tune_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    found = hwsim.tune("h200", 256, 128, 512, format="fp16", budget=20)
    words = ["tune", "--device", "h200", "--format", "fp16", "--m", "256", "--n", "128", "--k", "512", "--budget", "20"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["cycles"] == found.best.cycles


def test_diff_takes_devices_and_variants() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 24, 24)).astype(np.float16)
    one = hwsim.diff(a, b, "h200", "v100", element=(1, 2))
    other = hwsim.diff(a, b, hwsim.Variant("h200"), hwsim.device("v100"), element=(1, 2))
    assert one.to_dict() == other.to_dict()
    assert one.differing and one.errors is not None and one.errors.row == 1


def test_explain_takes_typed_arrays_and_codes() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 16)).astype(np.float16)
    c = np.float32(0.5)
    typed = hwsim.explain("h200", UNIT, a, b, c)
    assert typed == hwsim.explain("h200", UNIT, a.view(np.uint16), b.view(np.uint16), 0x3F000000)
    expected = hwsim.device("h200").dot(UNIT, a, b, np.array(c))
    assert int(typed["result"]["code"], 16) == int(np.asarray(expected).view(np.uint32))
    for wrong in (a.astype(np.float32), [-1, 2]):
        with pytest.raises(hwsim.InputError, match="a is fp16; allowed"):
            hwsim.explain("h200", UNIT, wrong, b)
    with pytest.raises(hwsim.InputError, match="one accumulator"):
        hwsim.explain("h200", UNIT, a, b, [0, 1])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(hwsim.UnsupportedError, match="did you mean"):
        hwsim.tune("h2000", 64, 64, 64)


def test_tune_says_what_a_library_runs_beside() -> None:
    call = {"m": 64, "n": 128, "k": 8192, "format": "e4m3"}
    found = hwsim.tune("h200", **call, library="cublas", budget=1)
    same = hwsim.run(device="h200", library="cublas", exact=False, b_layout="columns", **call)
    assert found.library.kernel == same.gemm.decided("kernel").value and found.library.cycles == same.cycles > 0
    assert found.library.split_k == int(same.gemm.decided("split_k").value)
    assert hwsim.tune("h200", **call, budget=1).library is None
