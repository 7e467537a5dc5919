"""Stacks of matrices on the command line: `--batch`, files of three dimensions, saved records, sweeps."""

import re

import numpy as np
import pytest

import hwsim
from hwsim.analysis.inputs import drawn

SIZES = ("--m", 24, "--n", 20, "--k", 67)
TALL = ("--m", 1, "--n", 1, "--k", 10**6)
CONV = "channels=4,height=8,width=8,filters=4,r=1,s=1"
CALL = {"device": "h200", "format": "fp16"}
RUN = ("run", "--device", "h200", "--format", "fp16", "-q")


@pytest.fixture
def stacks(tmp_path):
    """Files and arrays of a stack of three A, of three B, and of one B."""
    rng = np.random.default_rng(5)
    shapes = {"a": (3, 24, 67), "b": (3, 67, 20), "one": (67, 20)}
    arrays = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path, arrays


def test_a_batch_is_a_stack_of_random_matrices(cli, tmp_path):
    done = cli(*RUN, *SIZES, "--batch", 3, "--seed", 4, "--out", tmp_path / "c.npy", "--json")
    c = np.load(tmp_path / "c.npy")
    assert done.code == 0 and c.shape == (3, 24, 20)
    a, b = drawn(24, 20, 67, 4, "fp32", lead=(3,))
    assert a.shape == (3, 24, 67) and not np.array_equal(a[0], a[1])
    for one, left, right in zip(c, a, b, strict=True):
        assert np.array_equal(one, hwsim.matmul(left, right, **CALL))
    timed = hwsim.run(m=24, n=20, k=67, batch=3, input_format="fp32", exact=False, **CALL)
    assert done.json["cycles"] == timed.cycles
    assert "in a stack of 3, 96,480 MACs" in cli(*RUN, *SIZES, "--batch", 3, "--no-exact").out


def test_files_may_be_stacks(cli, stacks):
    folder, arrays = stacks
    for right in ("b", "one"):
        files = ("--a", folder / "a.npy", "--b", folder / f"{right}.npy")
        assert cli(*RUN, *files, "--out", folder / "c.npy", "--no-timing").code == 0
        c, b = np.load(folder / "c.npy"), np.broadcast_to(arrays[right], (3, 67, 20))
        for one, left, each in zip(c, arrays["a"], b, strict=True):
            assert np.array_equal(one, hwsim.matmul(left, each, **CALL))
    assert cli(*RUN, *files, "--batch", 3, "--no-timing").code == 0
    words = [word for word in RUN if word != "-q"]
    said = cli(*words, *files, "--no-timing", "--out", folder / "c.npy").err
    assert f"wrote {folder / 'c.npy'}: C, 3 x 24 x 20 float32" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*RUN, "--a", "a.npy", "--b", "b.npy", "--batch", 4), "batch = 4, but the arrays give 3 products; leave"),
        ((*RUN, "--a", "b.npy", "--b", "a.npy"), r"A from .* is 3 x 67 x 20 and B from .* is 3 x 24 x 67: A's columns"),
        ((*RUN, "--a", "flat.npy", "--b", "b.npy"), r"has shape \(5,\); allowed: a matrix .*, or a stack of matrices"),
        ((*RUN, *TALL, "--batch", 10**8), r"A, B and C of m, n, k = 1, 1, 1000000 times 100000000 need 800,000.40 GB"),
        ((*RUN, "--batch", 0), "batch = 0; allowed: an integer of at least 1"),
        ((*RUN, "--no-exact", "--conv", CONV, "--batch", 2), "batch: not"),
        (
            ("diff", "--device", "h200", "--a", "a.npy", "--b", "b.npy"),
            r"has shape \(3, 24, 67\); allowed: a matrix \(two dimensions\)$",
        ),
    ],
)
def test_what_is_no_stack_says_so(refused, stacks, monkeypatch, options, said):
    monkeypatch.chdir(stacks[0])
    np.save("flat.npy", np.zeros(5, np.float16))
    assert re.search(said, refused(*options), re.MULTILINE)


def test_a_saved_stack_runs_again(cli, tmp_path):
    saved = cli(*RUN, *SIZES, "--batch", 6, "--save-gemm", tmp_path / "gemm.json", "--json").json
    again = cli("run", "-q", "--gemm", tmp_path / "gemm.json", "--json").json
    for name in ("cycles", "result_sha256"):
        assert again[name] == saved[name]


def test_a_sweep_varies_the_batch():
    sizes = {"m": 64, "n": 64, "k": 67}
    table = hwsim.sweep({"devices": "h200", **sizes, "options": {"format": "fp16", "batch": [1, 3, 400]}}, cache=False)
    for row, batch in zip(table.rows, (1, 3, 400), strict=True):
        found = hwsim.run(**sizes, **CALL, batch=batch, exact=False)
        assert (row["batch"], row["cycles"]) == (batch, found.cycles)
        assert row["tflops"] == pytest.approx(found.tflops)
    assert table.rows[2]["cycles"] > table.rows[0]["cycles"]
