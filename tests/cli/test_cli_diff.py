"""`hwsim diff`: what is given once or twice, schedules in words, exit codes, and the report of a difference."""

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.cli.diff import schedule

SMALL = ["--m", 16, "--n", 16, "--k", 128, "--format", "fp16"]


def test_equal_devices_end_with_0(cli):
    done = cli("diff", "--device", "h100", "--device", "h200", *SMALL, "--json")
    assert (done.code, done.err) == (0, "")
    assert (done.json["schema"], done.json["differing"], done.json["elements"]) == ("hwsim.diff/1", 0, 256)
    assert done.json["step"] is None


def test_devices_that_differ_end_with_1(cli, tmp_path):
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((16, 128)).astype(np.float16), rng.standard_normal((128, 16)).astype(np.float16)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    options = ["--device", "a100", "--device", "h200", "--format", "fp16", "--a", "a.npy", "--b", "b.npy"]
    done = cli("diff", *options, "--json", "--first", 3)
    left, right = (hwsim.matmul(a, b, device=name, format="fp16") for name in ("a100", "h200"))
    assert (done.code, done.json["differing"]) == (1, np.count_nonzero(left != right))
    assert len(done.json["first"]) == 3
    place = done.json["first"][0]
    assert (place["left"], place["right"]) == (
        left[place["row"], place["column"]],
        right[place["row"], place["column"]],
    )
    assert 0 <= done.json["step"]["k_first"] < done.json["step"]["k_end"] <= 128
    text = cli("diff", *options).out
    assert "left   a100" in text and "first differs at k = " in text


def test_two_schedules_on_one_device(cli):
    options = ["--device", "h200", "--schedule", "default", "--schedule", "split_k=2", *SMALL]
    done = cli("diff", *options, "--element", "3,4", "--json")
    assert done.json["schedules"][0]["split_k"] == 1 and done.json["schedules"][1]["split_k"] == 2
    assert done.code == 1 and done.json["differing"] > 0
    if done.json["step"] is not None:
        assert (done.json["step"]["row"], done.json["step"]["column"]) == (3, 4)
        assert done.json["step"]["k_end"] > 64  # the first slice is the whole chain's beginning


def test_schedules_in_words():
    assert schedule(None) is None and schedule("default") is None
    assert schedule("split_k=3, promotion_k=128") == {"split_k": 3, "promotion_k": 128}
    assert schedule("merge_order=pairwise,epilogue.alpha=2.5") == {
        "merge_order": "pairwise",
        "epilogue": {"alpha": 2.5},
    }
    assert schedule('{"slice_k": [64, 32]}') == {"slice_k": [64, 32]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--device is needed"),
        (["--device", "a100", "--device", "h100", "--device", "h200"], "was given 3 times"),
        (["--device", "a1000"], "no device 'a1000'"),
        (["--device", "h200", "--schedule", "split_k"], "KEY=VALUE"),
        (["--device", "h200", "--schedule", "{"], "no JSON"),
        (["--device", "h200", "--schedule", "split=2", *SMALL], "unknown key 'split'"),
        (["--device", "h200", "--element", "3", *SMALL], "ROW,COL"),
        (["--device", "h200", "--element", "16,0", *SMALL], "allowed: 0 to 15"),
        (["--device", "h200", "--a", "a.npy"], "give both"),
        (["--device", "h200", "--m", "0"], "at least 1"),
    ],
)
def test_bad_input(refused, words, said):
    assert said in refused("diff", *words)


def test_a_library_on_one_side(cli):
    sizes = ["--m", 64, "--n", 64, "--k", 4096, "--format", "bf16"]
    done = cli("diff", "--device", "h100", "--library", "none", "--library", "cublas", *sizes, "--json")
    assert done.code == 1 and done.json["confidence"][0] is None and 0 < done.json["confidence"][1] <= 1
    assert "cublas" not in done.json["left"] and "cublas" in done.json["right"]
    assert len(done.json["schedules"][1]["slice_k"]) > 1


def test_sizes_and_errors_are_data(cli):
    done = cli("diff", "--device", "h100", "--device", "b200", "--distribution", "positive", *SMALL[:6], "--json")
    assert (done.code, done.json["sizes"]["counts"]) == (0, [])
    assert done.json["notes"] and done.json["accuracy"][0]["input_rounding"] == 0
    assert "uniform in [0, 1), seed 0, drawn in fp32" in done.json["operands"]


def test_a_saved_array_that_lost_its_format_gets_a_hint(refused, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 4), ml_dtypes.float8_e4m3fn))
    said = refused("diff", "--device", "h100", "--a", "a.npy", "--b", "a.npy")
    assert "save the codes, x.view(np.uint8), and give --input-format FORMAT" in said


def test_a_sparse_a_is_drawn_and_taken_by_both_sides(cli):
    done = cli("diff", "--device", "h100", "--device", "h200", *SMALL, "--sparsity", "2:4", "--json")
    assert done.code == 0 and all(".sp." in name for name in done.json["instructions"])
