"""Files of a library's own answers: written, read again, taken before fitted choices, refused where they are none."""

import io
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.errors import ConfigError, UnsupportedError
from hwsim.libraries.cublas.answers.lookup import ANSWERED
from hwsim.libraries.cublas.answers.sweeps import DIGEST, CallKind, read, shipped, write
from hwsim.libraries.cublas.versions import versions

sys.path.insert(0, str(Path(__file__).parents[2] / "lab" / "tools" / "library"))
import pack_layers

KIND = CallKind("bf16", "bf16", False, None, "rows", "columns", 32 << 20, 2)
NVJET_3, PLAIN = (66, 35, 3, 2, 0, -1, -1, -1), (66, 35, 1, 0, 0, -1, -1, -1)


def written(path, **changed):
    """A file with one weight, 4096 x 512, asked for m of 2 to 9."""
    runs = {(4096, 512): [(2, NVJET_3), (5, PLAIN), (10, None)], (64, 64): [(1, PLAIN), (2, None)]}
    given = {"library": "cublas", "version": "13.1", "source": "a test", "cores": {"h200": 132}}
    write(path, **{**given, "entries": [(KIND, ("h200",), runs)], **changed})
    return path


def test_runs_of_answers_are_found_again(tmp_path) -> None:
    sweep = read(written(tmp_path / "x.npz")).sweep("h200", KIND)
    assert sweep.at([1, 2, 4, 5, 9, 10], 4096, 512) == [None, NVJET_3, NVJET_3, PLAIN, PLAIN, None]
    assert sweep.at([1, 2], 64, 64) == [PLAIN, None]
    assert sweep.at([1], 4096, 513) == [None]


def test_a_file_stands_before_what_is_shipped(tmp_path) -> None:
    path = str(written(tmp_path / "x.npz"))
    call = {"n": 4096, "k": 512, "format": "bf16", "output": "bf16", "b_layout": "columns"}
    own, usual = (hwsim.library(name, device="h200") for name in (path, "cublas"))
    found = own.choose(m=3, **call)
    assert (found.split_k, found.confidence, found.evidence) == (3, 1.0, ANSWERED)
    assert own.choose(m=11, **call) == usual.choose(m=11, **call, reductions="compute")
    a, b = np.ones((3, 512), np.float32), np.ones((512, 4096), np.float32)
    run = hwsim.run(a, b, device="h200", library=path, format="bf16", output="bf16", b_layout="columns", timing=False)
    assert run.gemm.decided("split_k").value == "3" and "own answer" in run.gemm.decided("split_k").why
    labels = hwsim.invariance(m=[2, 4, 5], device="h200", library=path, **call)
    assert labels[0] == labels[1] != labels[2]


def test_a_file_s_answer_stands_for_a_batch_as_an_assumption(tmp_path) -> None:
    """Where nothing is fitted, as of a version that only the file knows."""
    own = hwsim.library(written(tmp_path / "x.npz", version="14.0"), device="h200")
    call = {"m": 3, "n": 4096, "k": 512, "format": "bf16", "output": "bf16", "b_layout": "columns"}
    one, many = own.choose(**call), own.choose(**call, batch=4)
    assert one.split_k == many.split_k == 3
    assert (one.evidence, one.unasked.parts) == (ANSWERED, ())
    assert (many.evidence, many.unasked.parts) == ("assumption", ("batches",))


def kind(operand, output, workspace=32 << 20, fast=None):
    """B by columns, any reduction."""
    return CallKind(operand, output, False, fast, "rows", "columns", workspace, 7)


FP16, TF32 = kind("fp16", "fp32"), kind("tf32", "fp32")
WITHOUT_RULE = (kind("fp32", "fp32"), kind("fp64", "fp64"), kind("e4m3", "bf16", 1 << 20, True))


@pytest.mark.parametrize(
    ("kind", "answer", "is_known"),
    [
        (FP16, (21, 3, 1, 0, 0, 20, 2, 0), True),
        (FP16, (21, 999, 1, 0, 0, 20, 2, 0), False),
        (FP16, (24, 0, 1, 0, 0, 20, 2, 0), True),
        (TF32, (63, 4, 3, 2, 0, 20, 2, 0), True),
        (TF32, (63, 999, 3, 2, 0, 20, 2, 0), False),
        (TF32, (63, 999, 1, 0, 0, 20, 2, 0), True),  # one chain, whatever its stages
        (TF32, (43, 34, -1, 0, 0, 20, 2, 0), True),
        (TF32, (43, 34, -1, 0, 0, 20, 777, 0), False),
        (TF32, (43, 34, -1, 0, 0, 9999, 2, 0), False),
        (KIND, (66, 35, 0, 0, 0, 20, 2, 0), True),
        (KIND, (66, 35, -1, 0, 0, 20, 2, 0), False),
        *((one, (number, 3, 2, 2, 0, 20, 2, 0), False) for number in (21, 23, 24, 63) for one in WITHOUT_RULE),
    ],
)
def test_numbers_and_operands_without_a_rule_are_not_known(tmp_path, kind, answer, is_known) -> None:
    path = written(tmp_path / "x.npz", entries=[(kind, ("h200",), {(1040, 1040): [(1, answer), (9000, None)]})])
    call = {"n": 1040, "k": 1040, "format": kind.operand, "output": kind.output, "b_layout": "columns"}
    choice = hwsim.library(path, device="h200").choose(m=1000, **call)
    assert (choice.algorithm, choice.evidence, choice.known) == (answer[0], ANSWERED, is_known)
    a, b = np.ones((1, 1040), np.float32), np.ones((1040, 1), np.float32)
    part = {"shape": (1000, 1040), "at": ([0], [0])}
    del call["n"], call["k"]
    found = hwsim.run(a, b, device="h200", library=path, timing=False, **part, **call)
    assert found.c == 1040 and ("library_order_unknown" in {x["code"] for x in found.warnings}) != is_known


def test_what_is_no_such_file_is_refused(tmp_path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ConfigError, match="hwsim library record"):
        hwsim.library(tmp_path / "text.npz", device="h200")
    path = written(tmp_path / "x.npz")
    with pytest.raises(UnsupportedError, match="132 SMs"):
        hwsim.library(path, device="a100")
    with pytest.raises(UnsupportedError, match="not of version"):
        hwsim.library(path, device="h200", version="12.0")


def test_a_file_whose_arrays_do_not_fit_is_refused(tmp_path) -> None:
    path = written(tmp_path / "x.npz")
    with np.load(path) as file:
        arrays = dict(file)
    runs = len(arrays["0.labels"])
    for number, (name, value, said) in enumerate(
        [
            ("0.counts", [1, 1], "runs are missing"),
            ("0.n", [4096, 64], "ascending order, each once"),
            ("0.labels", [9] * runs, "an answer is missing"),
            ("0.labels", [0] * (runs - 1) + [-1], "an answer is missing"),
            ("0.firsts", [1, 2, 2, 9, 5], "first m .* not in ascending order"),
            ("0.firsts", [0, 2, 2, 5, 10], "from 1 on"),
        ]
    ):
        file = tmp_path / f"{number}.npz"
        np.savez(file, **{**arrays, name: np.array(value)})
        with pytest.raises(ConfigError, match=f"{file.name}: no file of a library's answers .*{said}"):
            hwsim.library(file, device="h200")


def rewritten(path, **changed):
    """The file with other arrays (None: without), in place."""
    with np.load(path) as file:
        arrays = dict(file)
    for name, value in changed.items():
        name = name.replace("_", ".", 1) if name[0].isdigit() else name
        arrays.pop(name) if value is None else arrays.update({name: value})
    np.savez(path, **arrays)
    return path


def test_an_altered_answer_is_refused_by_the_digest(tmp_path) -> None:
    path = written(tmp_path / "x.npz")
    with np.load(path) as file:
        answers = file["answers"].copy()
    answers[0, 2] += 1
    with pytest.raises(ConfigError, match=r"not as they were written: .*arrays_sha256"):
        hwsim.library(rewritten(path, answers=answers), device="h200")
    hwsim.library(rewritten(path, **{DIGEST: None}), device="h200")  # as a file of before had none


HEAD = {"schema": 1, "library": "cublas", "version": "13.1", "source": "", "cores": {"h200": 132}, "entries": []}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"answers": np.zeros((1, 8), complex)}, "array answers is complex128"),
        ({"answers": np.zeros(8, np.int32)}, "1-dimensional; allowed: integers, 2"),
        ({"answers": np.zeros((1, 7), np.int32)}, "answers have 7 numbers"),
        ({"0_k": np.array([512.0, np.nan])}, "array 0.k is float64"),
        ({"0_k": np.array([[64, 512]])}, "array 0.k is int64, 2-dimensional"),
        ({"0_k": np.array([64, 1 << 40])}, "k has numbers beyond"),
        ({"0_n": None}, "there is no array 0.n"),
        ({"head": [1.5]}, "array head is float64"),
        *(
            ({"head": HEAD | {name: value}}, said)
            for name, value, said in (
                ("schema", 2, "schema 2, not 1"),
                ("version", {}, "version of its head; allowed: a text"),
                ("cores", {"h200": -1}, "cores of its head"),
                ("entries", {}, "entries of its head; allowed: a list"),
                ("entries", [{"devices": [[]]}], r"entries\[0\].devices of its head"),
                ("entries", [{"devices": ["h200"], "kind": {"operand": []}}], r"entries\[0\].kind of its head"),
            )
        ),
        ({"head": "[" * 100_000}, "nested too deep"),
    ],
    ids=str,
)
def test_arrays_and_heads_of_other_types_are_refused(tmp_path, changed, said) -> None:
    if isinstance(changed.get("head"), dict | str):
        text = changed["head"] if isinstance(changed["head"], str) else json.dumps(changed["head"])
        changed = {"head": np.frombuffer(text.encode(), np.uint8)}
    path = rewritten(written(tmp_path / "x.npz"), **changed)
    with pytest.raises(ConfigError, match=f"no file of a library's answers .*{said}"):
        hwsim.library(path, device="h200")


@pytest.mark.parametrize("place", [4, 6, 8, 10])
def test_a_flipped_bit_of_the_zip_directory_is_refused(tmp_path, place) -> None:
    """Versions, flags and compression methods that zipfile does not read, each with an error of its own."""
    path = written(tmp_path / "x.npz")
    for bit in range(8):
        data = bytearray(path.read_bytes())
        data[data.find(b"PK\x01\x02") + place] ^= 1 << bit
        (tmp_path / "bit.npz").write_bytes(data)
        try:
            hwsim.library(tmp_path / "bit.npz", device="h200")
        except ConfigError as error:
            assert "bit.npz: no file of a library's answers" in str(error)


def test_a_header_of_terabytes_is_refused(tmp_path) -> None:
    path = written(tmp_path / "x.npz")
    large, out = io.BytesIO(), io.BytesIO()
    said = {"descr": "<i4", "fortran_order": False, "shape": (1_500_000_000_000, 8)}
    np.lib.format.write_array_header_1_0(large, said)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, large.getvalue() if name == "answers.npy" else old.read(name))
    path.write_bytes(out.getvalue())
    with pytest.raises(ConfigError, match=r"array answers is damaged: its header says \(1500000000000, 8\)"):
        hwsim.library(path, device="h200")


def test_answers_that_stand_twice_are_refused(tmp_path) -> None:
    one, other = {(64, 128): [(1, PLAIN)]}, {(64, 256): [(1, PLAIN)]}
    path = written(tmp_path / "x.npz", entries=[(KIND, ("h200",), one), (KIND, ("h100", "h200"), other)])
    with pytest.raises(ConfigError, match=r"h200, bf16 to bf16, .*answers stand twice"):
        hwsim.library(path, device="h200")


def test_answers_of_a_library_that_is_not_known_are_refused(tmp_path) -> None:
    with pytest.raises(UnsupportedError, match=r"x.npz: answers of library 'foo'; hwsim knows the kernels of cublas"):
        hwsim.library(written(tmp_path / "x.npz", library="foo"), device="h200")


def test_recorded_files_of_one_device_are_joined(tmp_path) -> None:
    """A kind has nvjet in one file and not in the other: one entry, and of the second chip what is the same there."""

    def recorded(name, weight, answer):
        np.savez(
            tmp_path / name, largest=np.int64(8192), kinds=np.array(["bf16>bf16 33554432 2"]),
            weights=np.array([weight]), answers=np.array([answer]), counts=np.array([[1]]), firsts=np.array([1]),
            labels=np.array([0]),
        )  # fmt: skip
        return str(tmp_path / name)

    cutlass = (23, 4, 1, 0, 0, 20, 2, 0)
    files = [
        recorded("a.npz", (64, 128), PLAIN) + "=h200,h100",
        recorded("b.npz", (64, 256), cutlass) + "=h200,h100",
        recorded("c.npz", (64, 256), NVJET_3) + "=h100",
    ]
    write(
        tmp_path / "x.npz", library="cublas", version="13.1", source="a test", cores={"h200": 132, "h100": 132},
        entries=pack_layers.entries_of(files),
    )  # fmt: skip
    found = read(tmp_path / "x.npz")
    at = {
        (device, k): found.sweep(device, KIND).at([1, 8192, 8193], 64, k)
        for device in ("h200", "h100") for k in (128, 256)
    }  # fmt: skip
    assert at == {
        ("h200", 128): [PLAIN, PLAIN, None], ("h200", 256): [cutlass, cutlass, None],
        ("h100", 128): [None] * 3, ("h100", 256): [NVJET_3, NVJET_3, None],
    }  # fmt: skip
    assert [devices for _, devices, _ in pack_layers.entries_of([files[1]])] == [("h200", "h100")]


def test_shipped_answers_are_taken() -> None:
    """A layer of Llama 3.1 8B: cuBLASLt's own answers, on both chips; A by rows of other sizes has fitted ones."""
    for device in ("h100", "h200"):
        library = hwsim.library("cublas", device=device)
        call = {"n": 4096, "k": 14336, "format": "bf16", "output": "bf16", "b_layout": "columns"}
        assert library.choose(m=64, **call, reductions="compute").evidence == ANSWERED
        assert library.choose(m=9000, **call, reductions="compute").evidence == "fitted"
        assert library.choose(m=64, **call | {"k": 14328}, reductions="compute").evidence == "fitted"
    kinds = {kind for _, kind in shipped(versions()[0].layers).by_kind}
    assert {"bf16", "fp16", "e4m3", "tf32", "fp32"} == {kind.operand for kind in kinds}
