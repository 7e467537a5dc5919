"""`format=` of a scheme that has no choice of one: it is the operands', in run, sweep, diff and tune."""

import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import InputError

SCHEME = "ozaki2-int8"
SIZES = ["--m", "32", "--n", "32", "--k", "32"]
CALL = {"device": "h200", "scheme": SCHEME, "m": 32, "n": 32, "k": 32}


def test_a_run_with_it_is_the_run_with_that_input_format():
    by_format, by_input = (
        hwsim.run(**CALL, **{name: "fp64"}, exact=False, timing=False) for name in ("format", "input_format")
    )
    assert by_format.gemm == by_input.gemm and by_format.gemm.output == "fp64"
    assert by_format.gemm != hwsim.run(**CALL, exact=False, timing=False).gemm


def test_sweep_and_diff_take_it():
    study = {"devices": ["h200"], "schemes": [SCHEME], "shapes": [[32, 32, 32]], "seeds": [0]}
    rows = hwsim.sweep(study | {"options": {"format": ["fp64", "fp32"]}, "exact": True}, cache=False).rows
    assert [(row["format"], row["refused"]) for row in rows] == [("fp64", None), ("fp32", None)]
    assert rows[0]["relative_frobenius"] < 1e-12 < rows[1]["relative_frobenius"]
    sizes = {name: CALL[name] for name in "mnk"}
    for form in ("fp64", "fp32"):
        found = hwsim.diff(left="h200", right="b200", **sizes, scheme=SCHEME, format=form)
        assert found.operands.endswith(f"drawn in {form}")


def test_tune_takes_it(capsys):
    assert (
        main(["tune", "--device", "h200", "--scheme", SCHEME, "--format", "fp64", *SIZES, "--budget", "1", "-q"]) == 0
    )
    landscape = hwsim.tune("h200", 32, 32, 32, scheme=SCHEME, format="fp64", budget=1)
    assert f"{landscape.best.cycles:,}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "fp16"}, "of scheme ozaki2-int8 it is the operands'; allowed: fp64, fp32"),
        ({"format": "fp64", "input_format": "fp32"}, "both are the operands' format; leave one out"),
    ],
)
def test_another_format_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        hwsim.run(**CALL, **options, exact=False, timing=False)
