"""`hwsim attention`: report, JSON, files, and errors."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import hwsim


def test_the_report_says_kernel_cycles_and_verdict(cli):
    done = cli("attention", "--device", "a100", "--heads", "16", "--queries", "512", "--width", "128", "--no-exact")
    assert done.code == 0 and done.err == ""
    for words in (
        "problem   16 heads of 128 elements, 512 queries, 512 keys; fp16; no operands",
        "kernel    FLASH_ATTENTION: flash_fwd_",
        "verdict   ",
        "cycles    ",
        "where the time went",
        "MUFU",
    ):
        assert words in done.out
    assert "--what-if" not in done.out  # an option that the verb has not


def test_json_is_the_result_of_python(cli):
    words = ("--heads", "2", "--queries", "100", "--format", "bf16", "--causal", "--seed", "4")
    done = cli("attention", *words, "--functional", "--json")
    assert done.code == 0 and done.json["by_program"] and done.json["verdict"]["text"]
    draw = np.random.default_rng(4)
    operands = [draw.standard_normal((1, 2, 100, 64), np.float32).astype(ml_dtypes.bfloat16) for _ in range(3)]
    result = hwsim.attention(*operands, is_causal=True)
    assert done.json["result_sha256"] == result.result_sha256
    assert (done.json["cycles"], done.json["kernel"]) == (result.cycles, result.kernel)
    assert done.json["attention"]["queries"] == 100 and done.json["evidence"]["timing"] == "assumption"


def test_files_in_and_out(cli, tmp_path):
    operands = np.random.default_rng(1).standard_normal((3, 2, 70, 64)).astype(np.float16)
    names = ("query", "key", "value")
    for name, array in zip(names, operands, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    words = [word for name in names for word in (f"--{name}", f"{name}.npy")]
    done = cli("attention", *words, "--out", "out.npy", "--trace", "t.json", "--gantt")
    assert done.code == 0 and "wrote t.json: trace of" in done.err and "whole: cycles" in done.out
    out = np.load(tmp_path / "out.npy")
    assert np.array_equal(out.view(np.uint16), hwsim.attention(*operands).codes)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_mask_from_a_file(cli, tmp_path):
    mask = np.random.default_rng(1).standard_normal((2, 70, 70)) > 0
    np.save(tmp_path / "mask.npy", mask)
    words = ("--heads", "2", "--queries", "70", "--backend", "EFFICIENT_ATTENTION", "--mask", "mask.npy", "--json")
    draw = np.random.default_rng(0)
    operands = [draw.standard_normal((1, 2, 70, 64), np.float32).astype(np.float16) for _ in range(3)]
    want = hwsim.attention(*operands, backend="EFFICIENT_ATTENTION", mask=mask)
    assert cli("attention", *words).json["result_sha256"] == want.result_sha256
    np.save(tmp_path / "mask.npy", np.zeros((70, 70), np.float16))
    assert "the file of --mask has float16" in cli("attention", *words, "--format", "bf16").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "v100"), "family sm70"),
        (("--query", "q.npy"), "give --query, --key and --value, or none"),
        (("--no-exact", "--out", "o.npy"), "--out needs the bits"),
        (("--no-exact", "--functional"), "functional=True computes bits"),
        (("--trace-core", "1"), "there is no trace"),
        (("--scale", "-1", "--trace", "t.json", "--queries", "64"), "there are no cycles: programs take a factor"),
        (("--gantt", "--json"), "--gantt is text"),
        (("--heads", "3", "--key-heads", "2"), "the heads of key and value divide the query's"),
        (("--width", "1001", "--heads", "1", "--queries", "8", "--backend", "flash"), "backend='MATH' is"),
        (("--scale", "3e38", "--queries", "8"), "allowed: a number from -1.7e+38 to 1.7e+38"),
        (("--scale", "nan", "--queries", "8"), "allowed: a number from"),
    ],
)
def test_wrong_calls_are_one_error(cli, words, said):
    done = cli("attention", *words)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1 and done.out == ""


@pytest.mark.parametrize(
    ("dtype", "words", "said"),
    [
        (np.uint16, (), "--query: the file has codes (uint16); say their format: --format fp16 or bf16"),
        (np.float16, ("--format", "bf16"), "--format bf16: the file of --query has float16"),
        (np.float32, ("--format", "fp16"), "--format fp16: the file of --query has float32"),
    ],
)
def test_files_of_another_format_are_refused(cli, tmp_path, dtype, words, said):
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 64), dtype))
    files = [word for name in ("query", "key", "value") for word in (f"--{name}", "x.npy")]
    done = cli("attention", *files, *words)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1


def test_one_row_is_one_row(cli):
    done = cli("attention", "--queries", "1", "--keys", "1", "--width", "1", "--heads", "1", "--no-exact")
    assert "problem   1 head of 1 element, 1 query, 1 key; fp16" in done.out


@pytest.mark.parametrize("name", ["flash", "Flash_Attention", "FLASH_ATTENTION"])
def test_a_backend_is_taken_in_any_case_and_by_its_short_name(cli, name):
    words = ("attention", "--device", "a100", "--queries", "64", "--no-exact", "--json")
    assert cli(*words, "--backend", name).json["backend"] == "FLASH_ATTENTION"
    x = np.broadcast_to(np.float16(0), (1, 1, 16, 64))
    assert hwsim.attention(x, x, x, device="a100", backend=name, exact=False).backend == "FLASH_ATTENTION"


def test_operands_of_8_bits(cli, tmp_path):
    draw = np.random.default_rng(3)
    operands = [draw.standard_normal((2, 70, 32)).astype(ml_dtypes.float8_e4m3fn) for _ in range(3)]
    words = ["--library", "flash-attention-3"]
    for name, array in zip(("query", "key", "value"), operands, strict=True):
        np.save(tmp_path / f"{name}.npy", array.view(np.uint8))
        words += [f"--{name}", f"{name}.npy"]
    done = cli("attention", *words, "--format", "e4m3", "--functional", "--out", "out.npy")
    assert done.code == 0 and "result (2, 70, 32), bf16" in done.err
    assert "the file has codes (uint8); say their format: --format e4m3" in cli("attention", *words).err
    want = hwsim.attention(*operands, library="flash-attention-3")
    assert np.array_equal(np.load(tmp_path / "out.npy"), want.codes)
    drawn = cli("attention", "--library", "flash-attention-3", "--format", "e4m3", "--heads", "2", "--queries", "64")
    assert drawn.code == 0 and "64 queries, 64 keys; e4m3" in drawn.out
