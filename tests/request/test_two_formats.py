"""A and B in two formats: whose codes an unsigned array holds, and what is said of operands that are widened."""

import json

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import InputError
from hwsim.studies.diff_parts import SideAccuracy

A = np.array([[0x38, 0x40, 0x44]], np.uint8)  # e4m3: 1, 2, 3
B = np.array([[0x3C], [0x40], [0xC4]], np.uint8)  # e5m2: 1, 2, -4; as e4m3 1.5, 2, -3
MIXED = {"device": "h200", "format": "e4m3", "format_b": "e5m2"}
WANTED = 1 + 2 * 2 - 3 * 4


@pytest.mark.parametrize("given", [{}, {"input_format": "e4m3,e5m2"}], ids=["formats of the unit", "formats in memory"])
def test_codes_of_b_are_of_the_format_of_b(given):
    assert hwsim.run(A, B, **MIXED, **given).c.tolist() == [[WANTED]]
    assert hwsim.matmul(A, B, **MIXED, **given).tolist() == [[WANTED]]


def test_codes_are_typed_arrays_bits():
    typed = A.view(ml_dtypes.float8_e4m3fn), B.view(ml_dtypes.float8_e5m2)
    assert hwsim.matmul(*typed, **MIXED).tolist() == [[WANTED]]


def test_one_format_in_memory_for_codes_of_two_is_refused():
    with pytest.raises(InputError, match=r"B holds codes.*'e4m3,e5m2'.*'e4m3,e4m3'"):
        hwsim.matmul(A, B, input_format="e4m3", **MIXED)
    assert hwsim.matmul(A, B, input_format="e4m3,e4m3", **MIXED).tolist() == [[1.5 + 4 - 9]]


def test_three_formats_in_memory_are_refused():
    with pytest.raises(InputError, match="A's and B's with a comma"):
        hwsim.matmul(A, B, input_format="e4m3,e5m2,e4m3", **MIXED)


def test_a_difference_reads_codes_of_both_formats():
    options = {"options": {"format_b": "e5m2"}, "format": "e4m3"}
    sides = [hwsim.Variant(device, **options) for device in ("h100", "h200")]
    found = hwsim.diff(A, B, *sides)
    assert found.accuracy[0] == SideAccuracy(0, 0)


def test_operands_that_are_widened_are_named():
    both = np.ones((4, 4), np.float16), np.ones((4, 4), np.float32)
    wanted = "A came in fp16 and B in fp32: both are in memory as fp32, and cycles are of that"
    said = {w["code"]: w["message"] for w in hwsim.run(*both, device="h200").warnings}
    assert said["operands_widened"] == wanted
    alike = hwsim.run(both[0], both[0], device="h200").warnings
    assert "operands_widened" not in {w["code"] for w in alike}


def test_cycles_alone_take_two_formats_as_operands_do():
    exact = hwsim.run(A, B, input_format="e4m3,e5m2", **MIXED)
    alone = hwsim.run(m=1, n=1, k=3, exact=False, input_format="e4m3,e5m2", **MIXED)
    assert (alone.options["input_format"], alone.cycles) == (exact.options["input_format"], exact.cycles)


@pytest.mark.parametrize(("given", "in_memory"), [([], "fp32"), (["--format", "bf16"], "bf16")])
def test_the_format_in_memory_is_one_for_all_verbs(given, in_memory, capsys):
    said = ["--device", "h200", *(word for size in "mnk" for word in (f"--{size}", "128")), *given, "--json"]
    assert main(["run", "--no-exact", *said]) == 0
    of_run = json.loads(capsys.readouterr().out)
    assert main(["sensitivity", "-q", *said]) == 0
    of_sensitivity = json.loads(capsys.readouterr().out)
    options = {"format": given[1]} if given else {}
    row = hwsim.sweep({"devices": "h200", "m": 128, "n": 128, "k": 128, "options": options}, cache=False).rows[0]
    assert of_run["options"]["input_format"] == of_sensitivity["input_format"] == row["memory_format"] == in_memory
    assert of_run["cycles"] == of_sensitivity["cycles"] == row["cycles"]
    assert row["chosen_format"] == of_run["options"]["format"]


def test_a_text_is_no_matrix():
    with pytest.raises(InputError, match=r"A is the text 'h200'.*device="):
        hwsim.run("h200", A, B)
