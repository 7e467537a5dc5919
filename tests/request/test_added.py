"""C and the bias of cycles alone: that there is one is enough."""

import json
import re

import numpy as np
import pytest
from command_line import cli  # noqa: F401

import hwsim
from hwsim.errors import InputError

SIZES = {"m": 64, "n": 96, "k": 128}
CALL = {"device": "h100", "format": "fp16", **SIZES}
VALUES = {"bias": np.zeros(96, np.float32), "c": np.zeros((64, 96), np.float32)}


@pytest.mark.parametrize("more", [{}, {"library": "cublas", "output": "fp16"}], ids=["program", "library"])
@pytest.mark.parametrize("name", ["bias", "c"])
def test_true_has_the_cycles_of_any_values(name, more):
    given, there, none = (hwsim.run(**CALL, **more, exact=False, **{name: x}) for x in (VALUES[name], True, None))
    assert there.gemm == given.gemm != none.gemm and (there.cycles, there.seconds) == (given.cycles, given.seconds)


@pytest.mark.parametrize("name", ["bias", "c"])
def test_bits_need_the_values(name):
    with pytest.raises(InputError, match=re.escape(f"{name} = True: without values it is for cycles alone")):
        hwsim.run(**CALL, **{name: True})
    with pytest.raises(InputError, match=f"{name} = False"):
        hwsim.run(**CALL, exact=False, **{name: False})


def test_the_flags_without_a_file_and_a_study_say_that_there_is_one(cli, tmp_path):  # noqa: F811
    np.save(tmp_path / "bias.npy", VALUES["bias"])
    sizes = [text for name, size in SIZES.items() for text in (f"--{name}", size)]
    run = ["run", "--device", "h100", "--format", "fp16", *sizes, "--no-exact", "--json", "-q"]
    answers = [json.loads(cli(*run, *more).out) for more in (["--bias"], ["--bias", tmp_path / "bias.npy"], ["--c"])]
    assert answers[0]["gemm"] == answers[1]["gemm"] and answers[0]["gemm"]["problem"]["bias"] is not None
    assert answers[2]["gemm"]["problem"]["has_c"] is True
    study = {"devices": "h100", "options": {"format": "fp16", "bias": True}, **SIZES}
    (row,) = hwsim.sweep(study, jobs=1, cache=False).rows
    assert row["cycles"] == answers[0]["cycles"] and row["bias"] is True
