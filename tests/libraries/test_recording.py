"""Recording a library's answers without a GPU: what is asked, the file and who takes it, the comparison."""

import ast
import json
import mmap
import re
import sys
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from fake_gpu import FakeHeuristic, FakeRunner, answer, machine, slices_at

import hwsim
from hwsim.cli.command import main
from hwsim.devices import names
from hwsim.errors import ConfigError, InputError, UnsupportedError
from hwsim.golden.recording import device_name
from hwsim.libraries.cublas.answers.sweeps import read
from hwsim.libraries.recording.answers import ask_all, version_name
from hwsim.libraries.recording.compare import Ran, block_of, sample
from hwsim.libraries.recording.cublaslt import REFUSED, CublasLt, Kind, LtAnswer, find
from hwsim.libraries.recording.machine import gpu_facts, this_machine
from hwsim.libraries.recording.report import recording_dict, recording_text
from hwsim.libraries.recording.rows_asked import grid, runs
from hwsim.libraries.recording.session import record
from hwsim.libraries.recording.shapes import GemmShape, form_of, read_shapes, wanted

MIB = 1 << 20
BF16 = {"format": "bf16", "output": "bf16", "b_layout": "columns"}


def asked(*, gemms=(), weights=(), m="1:300", file=None, **form):
    return wanted(file=file, gemms=gemms, weights=weights, m=m, forms=[{"format": "bf16"} | form])


def made(path, what, *, device="h200", count=8, progress=None, **of_machine):
    """A recording by a made-up machine."""
    return record(
        path, what, device=hwsim.device(device), machine=machine(**of_machine), count=count, seed=1, progress=progress
    )


@pytest.fixture
def file(tmp_path):
    """A file with the weight 256 x 512 over m to 300, and single GEMMs beside it."""
    path = tmp_path / "my.npz"
    made(path, asked(weights=["256x512"], gemms=["7x64x128", "400x256x512", "13x64x128"]))
    return path


# --- what is asked ------------------------------------------------------------------------------------------------


def csv(tmp_path, text):
    path = tmp_path / "shapes.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_shapes_is_read(tmp_path) -> None:
    path = csv(
        tmp_path,
        "m, n,k,format,output,accumulate,bias,a_layout,b_layout\n1,64,128,bf16,,,,,\n\n"
        "2,64,128,e4m3,,promoted,no,rows,columns\n3,64,128,fp16,fp16,,yes,columns,rows\n1,64,128,bf16,bf16,,no,,\n",
    )
    found = read_shapes(path)
    assert [shape.m for shape in found] == [1, 2, 3]  # the last is the first
    assert found[0].form == form_of(1, 64, 128, format="bf16")
    assert (found[0].form.output, found[0].form.b_layout) == ("bf16", "columns")
    assert (found[1].form.accumulate, found[1].form.fast, found[1].form.output) == ("promoted", False, "bf16")
    assert found[2].form.bias and (found[2].form.a_layout, found[2].form.b_layout) == ("columns", "rows")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty; the first line names the columns"),
        ("m,n,k,format\n", "no GEMM below"),
        ("m,n,k\n1,2,3\n", r"shapes.csv:1: no column format; needed"),
        ("m,n,k,format,m\n", "a column stands twice"),
        ("m,n,k,format,outptu\n", r"csv:1: column 'outptu'; allowed: m, n, k.*did you mean 'output'"),
        ("m,n,k,format\n1,64,64,bf16\n0,64,64,bf16\n", r"csv:3: m = 0; allowed: integers from 1"),
        ("m,n,k,format\n1,64,6x,bf16\n", r"csv:2: k = '6x'; allowed: an integer"),
        ("m,n,k,format\n1,64,64,bf17\n", r"csv:2: format = 'bf17'; allowed: fp16.*did you mean 'bf16'"),
        ("m,n,k,format\n1,64,64\n", r"csv:2: 3 cells; allowed: 4"),
        ("m,n,k,format,bias\n1,64,64,bf16,maybe\n", r"csv:2: bias = 'maybe'; allowed: yes, true"),
        ("m,n,k,format,output\n1,64,64,bf16,fp64\n", r"csv:2: bf16 operands give bf16, fp32"),
        ("m,n,k,format,bias\n32,64,64,int8,yes\n", r"csv:2: .*int8 with a bias"),
        (
            "m,n,k,format,output,bias\n1,64,64,bf16,fp32,yes\n",
            r"csv:2: output fp32: with a bias .* bf16 give bf16; take",
        ),
        ("m,n,k,format,output,bias\n1,64,64,e4m3,fp32,yes\n", r"csv:2: output fp32: .* e4m3 give fp16 or bf16; take"),
        ("m,n,k,format\n1,64,63,e4m3\n", r"csv:2: cuBLASLt refuses e4m3"),
        ('m,n,k,format\n1,64,64,"bf16\n', "no CSV file"),
    ],
)
def test_what_is_wrong_in_a_file_of_shapes_is_said(tmp_path, text, said) -> None:
    with pytest.raises((InputError, UnsupportedError), match=said):
        read_shapes(csv(tmp_path, text))


def test_no_file_of_shapes_is_said(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot read the table of shapes"):
        read_shapes(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing to record"),
        ({"gemms": ["64x64"]}, "--gemm 64x64: allowed: MxNxK"),
        ({"gemms": ["0x64x64"]}, "integers of at least 1"),
        ({"weights": ["64x64x64"]}, "--weight 64x64x64: allowed: NxK"),
        ({"weights": ["64x64"], "m": "5:2"}, "--m 5:2: allowed: A:B"),
        ({"weights": ["64x64"], "m": "1:99999999"}, "B <= 1,048,576"),
        ({"gemms": ["8x64x63"], "format": "e4m3"}, "--gemm 8x64x63: cuBLASLt refuses"),
        ({"gemms": ["8x64x64"], "accumulate": "promoted"}, "e4m3 alone"),
    ],
)
def test_words_that_are_not_allowed_are_refused(given, said) -> None:
    with pytest.raises((InputError, UnsupportedError), match=said):
        asked(**given)


@pytest.mark.parametrize(
    ("form", "workspace", "mask", "epilogue"),
    [
        ({"format": "bf16"}, 32 * MIB, 2, False),
        ({"format": "bf16", "output": "fp32"}, 32 * MIB, 7, False),
        ({"format": "bf16", "bias": True}, MIB, 2, True),
        ({"format": "tf32", "bias": True}, MIB, 7, True),
        ({"format": "e4m3"}, MIB, 7, False),
        ({"format": "int8"}, 0, 7, False),
        ({"format": "bf16", "bias": True, "n": 1}, 32 * MIB, 2, False),  # the bias is the C of cublasGemmEx
    ],
)
def test_cublaslt_is_asked_as_by_pytorch(form, workspace, mask, epilogue) -> None:
    n = form.pop("n", 64)
    heuristic = FakeHeuristic()
    ask_all(heuristic, asked(gemms=[f"8x{n}x128"], **form))
    ((kind, m, asked_n, k, a_columns, b_columns, *allowed),) = heuristic.calls
    assert (m, asked_n, k, a_columns, b_columns, allowed) == (8, n, 128, False, True, [workspace, mask])
    assert kind.bias == epilogue and kind.operand == form["format"]


def test_the_grid_holds_small_m_multiples_and_what_comes_after_them() -> None:
    steps = ((64, 1), (1024, 8), (2048, 16), (8192, 64))
    wished, first = {8192}, 1
    for last, step in steps:
        wished.update(m for m in range(first, last + 1) if step == 1 or m % step in (0, 1))
        first = last + 1
    assert grid(1, 8192) == sorted(wished)
    for first, last in ((1, 1), (65, 65), (70, 71), (1000, 1100), (1025, 3000), (5, 20000), (9000, 9100)):
        found = grid(first, last)
        assert (found[0], found[-1]) == (first, last) and len(set(found)) == len(found)
        assert set(found) >= {m for m in wished if first <= m <= last}
        assert max((b - a for a, b in pairwise(found)), default=0) <= 64


def test_changes_along_m_are_found_by_bisection() -> None:
    calls = []

    def ask(m):
        calls.append(m)
        return (m >= 2) + (m >= 777) + 2 * (m >= 5003)

    assert list(runs(ask, grid(1, 8192))) == [(1, 0), (2, 1), (777, 2), (5003, 4)]
    assert len(calls) == len(set(calls)) < 700


def test_overlapping_spans_of_a_weight_are_asked_once() -> None:
    heuristic = FakeHeuristic()
    both = wanted(
        file=None, gemms=["150x64x128", "400x64x128", "401x64x128"], weights=["64x128"], m="1:300",
        forms=[{"format": "bf16"}],
    )  # fmt: skip
    answers = ask_all(heuristic, both)
    sizes = [call[1] for call in heuristic.calls]
    assert len(sizes) == len(set(sizes)) and {150, 400, 401} <= set(sizes)
    assert answers.count == len(answers.by_kind) * 6  # runs with an answer; a refusal is none
    ((weight, found),) = next(iter(answers.by_kind.values())).items()
    assert weight == (64, 128)
    spans = [(first, None if one is None else (one[0], one[2])) for first, one in found]
    assert spans == [
        (1, (66, 2)), (2, (66, 1)), (13, (-1, 0)), (14, (66, 1)), (100, (66, 3)), (301, None), (400, (66, 3)),
        (401, (66, 3)), (402, None),
    ]  # fmt: skip


# --- the file, and who takes it -----------------------------------------------------------------------------------


def test_the_file_gives_back_what_was_answered(file) -> None:
    found = read(file)
    assert (found.library, found.version, found.cores) == ("cublas", "13.1", {"h200": 132})
    assert "NVIDIA H200, 132 SMs, driver 580.1, CUDA 13.0, cuBLASLt 130100" in found.source
    library = hwsim.library(file, device="h200")
    for m in (1, 2, 7, 99, 100, 300, 400):
        choice = library.choose(m=m, n=256, k=512, **BF16, reductions="compute")
        assert (choice.algorithm, choice.split_k) == (66, slices_at(m)), m
        assert (choice.confidence, choice.evidence, choice.custom) == (1.0, "microbenchmark", answer(1).custom)
        assert choice.tile is not None and choice.cluster is not None


@pytest.mark.parametrize("version", [130100, 120901])
@pytest.mark.parametrize(
    "form",
    [
        {"format": "bf16"},
        {"format": "bf16", "output": "fp32"},
        {"format": "fp16", "bias": True},
        {"format": "e4m3"},
        {"format": "int8"},
    ],
)
def test_choose_takes_the_files_answers_as_they_were_asked(tmp_path, version, form) -> None:
    """Without workspace and reductions the call is PyTorch's, as `run` has it."""
    path = tmp_path / "my.npz"
    made(path, asked(gemms=["100x64x128"], **form), version=version)
    own = form_of(100, 64, 128, **form)
    library = hwsim.library(path, device="h200")
    call = {"m": 100, "n": 64, "k": 128, "bias": own.bias, **own.options}
    choice = library.choose(**call)
    assert (choice.split_k, choice.evidence) == (slices_at(100), "microbenchmark")
    assert library.orders([100], **{name: value for name, value in call.items() if name != "m"}).choices == [choice]


def test_what_a_file_has_for_a_weight_is_said_where_it_lacks_the_call(tmp_path) -> None:
    path = tmp_path / "my.npz"
    made(path, asked(gemms=["100x64x128"]), version=120901)
    library = hwsim.library(path, device="h200", workspace_bytes=MIB)
    call = {"m": 100, "n": 64, "k": 128, **BF16}
    said = r"to bf16, 1,048,576 bytes of workspace, reductions compute .*for bf16 to bf16, 33,554,432 bytes"
    with pytest.raises(UnsupportedError, match=said):
        library.choose(**call)
    with pytest.raises(UnsupportedError, match=r"bf16 to fp32, .*it has this n and k for bf16 to bf16"):
        hwsim.library(path, device="h200").choose(**call | {"output": "fp32"})


def operands(m, n, k):
    rng = np.random.default_rng(3)
    draw = lambda *shape: (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 1, shape)).astype(ml_dtypes.bfloat16)  # noqa: E731
    return draw(m, k), draw(k, n)


@pytest.mark.parametrize("m", [1, 2, 100])
def test_run_and_matmul_take_the_file(file, m) -> None:
    a, b = operands(m, 256, 512)
    call = {"device": "h200", "library": file if m == 1 else str(file), **BF16}
    result = hwsim.run(a, b, **call, timing=False)
    assert result.gemm.decided("split_k").value == str(slices_at(m))
    assert result.gemm.decided("kernel").evidence == "microbenchmark"
    slices = {1: None, 2: [256, 256], 3: [192, 192, 128]}[slices_at(m)]
    by_hand = hwsim.matmul(
        a, b, device="h200", format="bf16", output="bf16", schedule=None if slices is None else {"slice_k": slices}
    )
    assert by_hand.tobytes() == result.c.tobytes() == hwsim.matmul(a, b, **call).tobytes()
    again = hwsim.run(a, b, gemm=json.loads(result.gemm.to_json()), timing=False)
    assert again.c.tobytes() == result.c.tobytes()
    assert hwsim.run(m=m, n=256, k=512, exact=False, **call).seconds > 0


def test_invariance_takes_the_file(file) -> None:
    sizes = [1, 2, 64, 99, 100, 300]
    labels = hwsim.invariance(n=256, k=512, m=sizes, device="h200", library=str(file), **BF16)
    for i, x in enumerate(sizes):
        for j, y in enumerate(sizes):
            assert (labels[i] == labels[j]) == (slices_at(x) == slices_at(y)), (x, y)


def test_a_bias_has_answers_of_its_own(tmp_path) -> None:
    path = tmp_path / "bias.npz"
    made(path, asked(gemms=["100x72x520"], bias=True))
    a, b = operands(100, 72, 520)
    call = {"device": "h200", "library": str(path), **BF16, "timing": False}
    with_bias = hwsim.run(a, b, bias=np.ones(72, ml_dtypes.bfloat16), **call)
    assert with_bias.gemm.decided("split_k").value == "3" and with_bias.evidence["schedule"] == "microbenchmark"
    assert hwsim.run(a, b, **call).gemm.decided("kernel").evidence == "fitted"  # the call without one was not asked


def test_invariance_takes_a_bias_of_the_file_and_says_what_the_file_has(tmp_path, capsys) -> None:
    path = tmp_path / "my.npz"
    made(path, asked(weights=["256x512"], bias=True), count=1)
    words = [f"--{name}={value}" for name, value in {"device": "h200", "library": path, "n": 256, "k": 512}.items()]
    words = ["invariance", *words, "--format=bf16", "--m=14:300"]
    for more, is_there in (
        (["--output=bf16", "--b-layout=columns", "--bias"], True),
        (["--output=bf16", "--b-layout=columns"], False),
        (["--b-layout=columns", "--bias"], False),
        ([], False),
    ):
        assert main([*words, *more]) == 0
        note = "Note: .*my.npz has this weight for other calls alone.*"
        note += "--output bf16 --bias --a-layout rows --b-layout columns"
        assert bool(re.search(note, capsys.readouterr().out)) != is_there
        assert main([*words, *more, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert bool(found["note"]) != is_there and found["bias"] == ("--bias" in more)
        assert ([[14, 99]] in [one["m"] for one in found["classes"]]) == is_there
    other = [word.replace("--n=256", "--n=264") for word in words]
    assert main(other) == 0 and "Note" not in capsys.readouterr().out


def test_a_by_columns_is_no_guess_where_it_was_asked(tmp_path) -> None:
    path = tmp_path / "columns.npz"
    made(path, asked(gemms=["128x64x512"], a_layout="columns"))
    a, b = operands(128, 64, 512)
    found = hwsim.run(a, b, device="h200", library=str(path), a_layout="columns", timing=False, **BF16)
    assert found.gemm.decided("split_k").evidence == "microbenchmark"
    other = hwsim.run(a[:64], b, device="h200", library=str(path), a_layout="columns", timing=False, **BF16)
    assert other.gemm.decided("split_k").evidence == "fitted"


def test_what_cublaslt_refused_is_refused(file) -> None:
    a, b = operands(13, 64, 128)
    with pytest.raises(
        UnsupportedError, match=r"cuBLASLt refuses 13 x 64 x 128, bf16 to bf16 \(my.npz\); leave m = 13 out"
    ):
        hwsim.matmul(a, b, device="h200", library=str(file), **BF16)


def test_shapes_that_are_not_in_the_file_have_the_shipped_choice(file) -> None:
    for m, n in ((301, 256), (8, 64), (6, 128)):
        own = hwsim.library(file, device="h200").choose(m=m, n=n, k=512, **BF16, reductions="compute")
        assert own == hwsim.library("cublas", device="h200").choose(m=m, n=n, k=512, **BF16, reductions="compute")


@pytest.mark.parametrize("version", [120901, 130200])
def test_of_another_version_there_is_the_file_alone(tmp_path, version) -> None:
    path = tmp_path / "other.npz"
    found = made(path, asked(gemms=["8x64x128"]), version=version)
    assert any("how its kernels add over K" in note for note in found.notes)
    library = hwsim.library(path, device="h200")
    assert library.id.version == version_name(version)
    a, b = operands(8, 64, 128)
    call = {"device": "h200", "library": str(path), **BF16, "timing": False}
    first = hwsim.run(a, b, **call)
    assert first.gemm.library.version == version_name(version)
    assert hwsim.run(a, b, gemm=json.loads(first.gemm.to_json()), timing=False).c.tobytes() == first.c.tobytes()
    with pytest.raises(UnsupportedError, match=r"other.npz: no answer for 7 x 64 x 128, bf16 to bf16, .*for other m"):
        hwsim.run(a[:7], b, **call)
    with pytest.raises(UnsupportedError, match="record this call"):
        hwsim.invariance(n=64, k=128, m=[8, 9], device="h200", library=str(path), **BF16)


def test_a_device_without_fitted_choices_takes_its_own_file(tmp_path) -> None:
    path = tmp_path / "a100.npz"
    chip = hwsim.device("a100")
    made(path, asked(gemms=["8x64x128"]), device="a100", cores=chip.cores, name="NVIDIA A100-SXM4-80GB")
    a, b = operands(8, 64, 128)
    assert hwsim.run(a, b, device="a100", library=str(path), **BF16, timing=False).gemm.library.name == "cublas"
    with pytest.raises(UnsupportedError, match=r"no answer for 7 x 64 x 128, bf16.*on a100; record this call"):
        hwsim.run(a[:7], b, device="a100", library=str(path), **BF16)
    with pytest.raises(UnsupportedError, match=r"answers for a100 \(108 SMs\); the device is h200 \(132 cores\)"):
        hwsim.run(a, b, device="h200", library=str(path), **BF16)


def test_a_chip_with_other_sms_takes_nothing_that_was_asked_on_its_model(tmp_path) -> None:
    """A device that extends the H100's file and has fewer SMs: its own file alone, and rules that are assumed."""
    chip, path = tmp_path / "pcie.yaml", tmp_path / "pcie.npz"
    text = "schema_version: 1\nextends: h100\nname: pcie\ntitle: a Hopper\n"
    chip.write_text(f"{text}cores: {{value: 114, source: DS, evidence: datasheet}}\n")
    found = made(path, asked(gemms=["8x64x128"]), device=chip, cores=114, name="NVIDIA H100 PCIe")
    assert any("how its kernels add over K" in note for note in found.notes)
    library = hwsim.library(path, device=chip)
    choice = library.choose(m=8, n=64, k=128, **BF16)
    assert (choice.evidence, choice.order_evidence) == ("microbenchmark", "assumption")
    for m, n, k in ((7, 64, 128), (8, 4096, 4096)):  # the latter is one of the weights that ship for the H100
        assert hwsim.library("cublas", device="h100").choose(m=m, n=n, k=k, **BF16).confidence > 0
        with pytest.raises(UnsupportedError, match=r"no fitted choices for cublas 13\.1 on h100; record this call"):
            library.choose(m=m, n=n, k=k, **BF16)


def test_rules_are_assumed_on_another_chip_and_of_another_version(tmp_path) -> None:
    """The kernel is the library's own answer; how it adds is known of cuBLAS 13.1 on an H100 and an H200 alone."""
    a, b = operands(8, 64, 128)
    for device, cores, version, is_seen in (
        ("h200", 132, 130100, True), ("a100", 108, 130100, False), ("h200", 132, 120100, False)
    ):  # fmt: skip
        path = tmp_path / f"{device}-{version}.npz"
        found = made(path, asked(gemms=["8x64x128"]), device=device, cores=cores, version=version, name="GPU")
        said = "how its kernels add over K is taken as of cublas 13.1 on h100, h200"
        assert any(said in note for note in found.notes) != is_seen
        result = hwsim.run(a, b, device=device, library=path, **BF16, timing=False)
        assert result.gemm.decided("kernel").evidence == "microbenchmark"
        assert result.evidence["schedule"] == ("microbenchmark" if is_seen else "assumption")
        assert ("library_order_assumed" in {x["code"] for x in result.warnings}) != is_seen
        assert ("cublas 13.1 on h100, h200" in result.gemm.decided("order of summation").why) != is_seen
        whole = {"m": 8, "n": 64, "k": 128, **BF16}
        choice = hwsim.library(path, device=device).choose(**whole)
        assert (choice.evidence, choice.order_evidence) == ("microbenchmark", result.evidence["schedule"])


def test_sums_of_integers_need_no_rule(tmp_path) -> None:
    path = tmp_path / "a100.npz"
    made(path, asked(gemms=["32x64x128"], format="int8"), device="a100", cores=108)
    call = {"device": "a100", "library": path, "format": "int8", "b_layout": "columns", "timing": False}
    result = hwsim.run(np.ones((32, 128), np.int8), np.ones((128, 64), np.int8), **call)
    assert result.evidence["schedule"] == "microbenchmark" and not result.warnings


def _wrong(path, **changes):
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays.update(changes)
    np.savez(path, **arrays)


@pytest.mark.parametrize("how", ["missing", "text", "empty", "other", "cut", "labels", "schema"])
def test_a_wrong_file_is_said(file, how) -> None:
    if how == "missing":
        file.unlink()
    elif how in ("text", "empty"):
        file.write_bytes(b"no archive" if how == "text" else b"")
    elif how == "other":
        np.savez(file, x=np.arange(3))
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-200])
    elif how == "labels":
        _wrong(file, **{"0.labels": np.array([9999] * 99, np.uint16)})
    else:
        _wrong(file, head=np.frombuffer(b'{"schema": 7}', np.uint8))
    with pytest.raises(ConfigError, match=r"my.npz: no file of a library's answers .*hwsim library record"):
        hwsim.matmul(*operands(1, 256, 512), device="h200", library=str(file), **BF16)


def test_a_file_that_is_written_anew_is_read_anew(file) -> None:
    choose = {"m": 400, "n": 72, "k": 136, **BF16, "reductions": "compute"}
    before = hwsim.library(file, device="h200").choose(**choose)
    made(file, asked(gemms=["400x72x136"]))
    after = hwsim.library(file, device="h200").choose(**choose)
    assert before.evidence == "fitted" and (after.evidence, after.split_k) == ("microbenchmark", 3)


# --- recording ----------------------------------------------------------------------------------------------------


def test_nothing_is_left_where_asking_fails(tmp_path) -> None:
    path = tmp_path / "my.npz"
    with pytest.raises(UnsupportedError, match=r"fell off the bus.*my.npz is not written; run it again"):
        made(path, asked(weights=["64x128"]), fails_after=50)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"mine")
    with pytest.raises(UnsupportedError):
        made(path, asked(weights=["64x128"]), fails_after=50)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("of_machine", "said"),
    [
        ({"cores": 114, "name": "NVIDIA H100 PCIe"}, "NVIDIA H100 PCIe, has 114 SMs; the device file h200 has 132"),
        ({"version": 110903}, "cuBLASLt 110903: its C interface is known here for versions 12 and 13"),
    ],
)
def test_another_gpu_and_unknown_versions_are_refused(tmp_path, of_machine, said) -> None:
    with pytest.raises(UnsupportedError, match=said):
        made(tmp_path / "my.npz", asked(gemms=["8x64x128"]), **of_machine)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "name"), [(130100, "13.1"), (130002, "13.0.2"), (120901, "12.9.1"), (130000, "13.0")]
)
def test_versions_are_named_as_files_have_them(number, name) -> None:
    assert version_name(number) == name


def test_a_gpu_with_another_devices_name_is_noted(tmp_path) -> None:
    found = made(tmp_path / "my.npz", asked(gemms=["8x64x128"]), name="NVIDIA H100 80GB HBM3")
    assert found.notes == ("the GPU is called NVIDIA H100 80GB HBM3, as hwsim's device h100; the file is for h200",)
    assert made(tmp_path / "my.npz", asked(gemms=["8x64x128"])).notes == ()


def test_only_an_npz_is_written(tmp_path) -> None:
    for name in ("my.npy", "no/my.npz"):
        with pytest.raises(InputError, match=r"my\.np"):
            made(tmp_path / name, asked(gemms=["8x64x128"]))


def test_the_sample_takes_kernels_in_turn() -> None:
    what = wanted(
        file=None, gemms=[f"{m}x64x128" for m in range(2, 40)], weights=["256x512"], m="1:300",
        forms=[{"format": "bf16"}, {"format": "fp16"}],
    )  # fmt: skip
    answers = ask_all(FakeHeuristic(), what)
    shapes = sample(what, answers, 10, 1)
    assert len(shapes) == 10 and sum(shape.form.format == "fp16" for shape in shapes) == 5
    assert shapes == sample(what, answers, 10, 1) != sample(what, answers, 10, 2)
    everything = sample(what, answers, 1000, 1)
    assert len(everything) == len(set(everything)) == 2 * (37 + 4) and all(shape.m != 13 for shape in everything)
    assert {shape.m for shape in everything if shape.form.n == 256} == {1, 2, 14, 100}


@pytest.mark.parametrize("format", ["bf16", "fp16", "tf32", "fp32", "fp64", "e4m3", "int8"])
def test_blocks_have_full_significands(format) -> None:
    block = block_of(GemmShape(5, form_of(5, 64, 128, format=format)), 1, 0)
    assert block.a.shape == (5, 128) and block.b.shape == (128, 24) and block.bias is None
    assert len(np.unique(block.a.astype(np.float64))) > (40 if block.a.itemsize == 1 else 500)
    assert not np.array_equal(block.a, block_of(GemmShape(5, form_of(5, 64, 128, format=format)), 1, 1).a)


def test_equal_bits_are_said(tmp_path) -> None:
    shares = []
    found = made(
        tmp_path / "my.npz", asked(weights=["256x512"], gemms=["7x64x128"]), runner=FakeRunner(), progress=shares.append
    )
    assert len(found.rows) == found.equal == 5 and shares == sorted(shares) and shares[-1] == 1
    text = recording_text(found)
    assert "bits: 5 of 5 GEMMs equal in every bit, " in text and "mean absolute error" in text
    row = next(row for row in found.rows if row.shape.m == 100)
    assert (row.split_k, row.measured_us, row.kernels) == (3, 12.5, ("nvjet_made_up",))
    assert row.error == pytest.approx(row.simulated_us / 12.5 - 1)
    assert f"{100 * row.error:+.1f} %" in text and "not known" not in text and row.known


def test_kernels_whose_order_is_not_known_are_said(tmp_path) -> None:
    shares_k = LtAnswer(43, 20, 31, -1, 0, 0, 0, 0, 2)  # tf32; between K that is whole and K that CTAs share
    found = made(tmp_path / "my.npz", asked(gemms=["1862x208x880"], format="tf32"), runner=FakeRunner(), fixed=shares_k)
    assert not found.rows[0].known and "how this kernel adds over K is not known" in recording_text(found)


def test_a_bit_that_differs_is_said(tmp_path) -> None:
    path = tmp_path / "my.npz"
    found = made(path, asked(gemms=["7x64x128"]), runner=FakeRunner(wrong=True))
    (row,) = found.rows
    block = block_of(row.shape, 1, 0)
    i, j, got, own = row.first
    assert (i, j, row.differing) == (block.rows[1], block.columns[2], 1) and int(got, 16) ^ int(own, 16) == 1
    assert f"1 of 168 differ, first ({i}, {j}): GPU {got}, hwsim {own}" in recording_text(found)
    assert recording_dict(found)["totals"] | {"mean_absolute_error": 0, "median_absolute_error": 0} == {
        "run": 1, "equal": 0, "differ": 1, "not_run": 0, "results": 168, "mean_absolute_error": 0,
        "median_absolute_error": 0,
    }  # fmt: skip
    assert read(path)  # the answers stay


@pytest.mark.parametrize("format", ["fp16", "fp64", "int8", "e4m3"])
def test_results_of_every_width_are_compared(tmp_path, format) -> None:
    found = made(tmp_path / "my.npz", asked(gemms=["7x64x128"], format=format), runner=FakeRunner())
    assert found.equal == 1, found.rows
    (row,) = made(tmp_path / "my.npz", asked(gemms=["7x64x128"], format=format), runner=FakeRunner(wrong=True)).rows
    assert row.differing == 1


def test_what_the_gpu_cannot_run_is_no_result(tmp_path) -> None:
    found = made(tmp_path / "my.npz", asked(gemms=["7x64x128"]), runner=FakeRunner(problem="out of memory"))
    assert (found.run, found.equal) == ((), 0) and "not run: out of memory" in recording_text(found)
    assert recording_text(found).count("not run: 1 of 1 GEMMs: out of memory\n") == 1
    assert recording_dict(found)["sample"][0]["problem"] == "out of memory"


class OddRunner(FakeRunner):
    """An L40S: tensor cores without fp64, and bits that do not matter."""

    def run(self, shape, block):
        """Zeros."""
        d = np.zeros((len(block.rows), len(block.columns)), {"fp64": "i8"}.get(shape.form.format, "i2"))
        return Ran(d, 12.5, ("made_up",))


def test_what_hwsim_cannot_run_is_a_row_of_its_own(tmp_path) -> None:
    path = tmp_path / "my.npz"
    what = wanted(
        file=None, gemms=["16x64x128"], weights=[], m="1:8", forms=[{"format": "bf16"}, {"format": "fp64"}]
    )  # fmt: skip
    found = made(path, what, device="l40s", cores=hwsim.device("l40s").cores, name="NVIDIA L40S", runner=OddRunner())
    (bf16,), (fp64,) = ([row for row in found.rows if row.shape.form.format == name] for name in ("bf16", "fp64"))
    assert bf16.results == 16 * 24 and not bf16.problem and found.run == (bf16,)
    assert fp64.problem.startswith("hwsim: device l40s has no native 'fp64'") and fp64.kernels == ("made_up",)
    text = recording_text(found)
    assert "not run: 1 of 2 GEMMs: hwsim: device l40s has no native 'fp64'" in text and "of 1 GEMMs equal" in text
    assert recording_dict(found)["totals"]["not_run"] == 1


def test_no_driver_is_no_gpu() -> None:
    def none(name):
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(UnsupportedError, match=r"no NVIDIA GPU: libcuda.so.1"):
        gpu_facts(none)

    class Failing:
        def cuInit(self, flags):  # noqa: N802
            return 100

    with pytest.raises(UnsupportedError, match="cuInit gives 100"):
        gpu_facts(lambda name: Failing())


def test_recorders_modules_need_nothing_of_hwsim() -> None:
    """lab/tools/record loads them by path, on machines where hwsim is not built."""
    folder = Path(hwsim.__file__).parent / "libraries" / "recording"
    for name in ("cublaslt", "gemm_list", "pytorch_gemms", "rows_asked"):
        assert "hwsim" not in imported(folder / f"{name}.py")
    assert imported(folder / "answers.py") >= {"hwsim", "dataclasses"}


def imported(path):
    """The packages that a module imports anywhere, by their first names; a relative import is hwsim's."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            found.add("hwsim" if node.level else node.module.partition(".")[0])
    return found


class StubLt:
    """cuBLASLt's C functions with the statuses that are given by name, else 0; one algorithm whose attributes are
    their numbers."""

    def __init__(self, count=1, state=0, **statuses):
        self.count, self.state, self.statuses = count, state, statuses

    def __getattr__(self, name):
        def function(*arguments):
            if name == "cublasLtGetVersion":
                return 130100
            if name == "cublasLtMatmulAlgoGetHeuristic":
                arguments[-2]._obj.state, arguments[-1]._obj.value = self.state, self.count
            if name == "cublasLtMatmulAlgoConfigGetAttribute":
                arguments[2]._obj.value = arguments[1]
            return self.statuses.get(name, 0)

        return function


def answered(monkeypatch, **stub):
    monkeypatch.setattr("hwsim.libraries.recording.cublaslt.ctypes.CDLL", lambda path: StubLt(**stub))
    return CublasLt("stub").ask(Kind("bf16", "bf16"), 8, 64, 128, batch=2, b_columns=True)


HEURISTIC = "cublasLtMatmulAlgoGetHeuristic"


@pytest.mark.parametrize("stub", [{HEURISTIC: 15}, {HEURISTIC: 7}, {"count": 0}, {"state": 15}, {"state": 7}])
def test_what_cublaslt_does_not_support_is_refused(monkeypatch, stub) -> None:
    assert answered(monkeypatch, **stub) == REFUSED
    assert answered(monkeypatch) == LtAnswer(0, 1, 6, 2, 3, 4, 5, 7, 8)


@pytest.mark.parametrize(
    "stub",
    [
        *({HEURISTIC: status} for status in (1, 3, 8, 13, 14)),
        {"state": 14},
        *(
            {f"cublasLt{name}": 14}
            for name in (
                "MatmulPreferenceCreate", "MatmulPreferenceSetAttribute", "MatmulDescCreate", "MatmulDescSetAttribute",
                "MatrixLayoutCreate", "MatrixLayoutSetAttribute", "MatmulAlgoConfigGetAttribute",
            )
        ),
    ],
)  # fmt: skip
def test_an_error_of_cublaslt_is_no_answer(monkeypatch, stub) -> None:
    (number,) = stub.values()
    with pytest.raises(RuntimeError, match=rf"^cublasLt\w+: stat(us|e) {number}"):
        answered(monkeypatch, **stub)


def test_cublaslt_is_found_where_it_is_named_loaded_or_installed(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("HWSIM_CUBLASLT", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    read_text = Path.read_text
    monkeypatch.setattr(  # PyTorch's own copy may be loaded: it counts as another file
        Path, "read_text", lambda path, **words: read_text(path, **words).replace("cublasLt.so.13", "another")
    )
    assert find() == "libcublasLt.so"
    own = tmp_path / "nvidia" / "cu13" / "lib" / "libcublasLt.so.13"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"")
    assert find() == str(own)
    loaded = tmp_path / "libcublasLt.so.12"
    loaded.write_bytes(b"loaded")
    with loaded.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert find() == str(loaded)
    monkeypatch.setenv("HWSIM_CUBLASLT", "/there/libcublasLt.so.13")
    assert find() == "/there/libcublasLt.so.13"


def test_this_machines_gpu(tmp_path) -> None:
    """Where there is one: equal bits of plain GEMMs, in every format that its device file has."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    own = this_machine(runs=True)
    device = hwsim.device(device_name(own.gpu.name, [name for name, _ in names()]))
    what = wanted(
        file=None, gemms=["64x256x512", "33x80x1008"], weights=["512x256"], m="1:64",
        forms=[{"format": "bf16"}, {"format": "fp16", "bias": True}, {"format": "fp32"}],
    )  # fmt: skip
    found = record(tmp_path / "my.npz", what, device=device, machine=own, count=12, seed=1)
    assert len(found.run) == 12 and found.equal == 12, recording_text(found)
    assert all(row.measured_us is not None and row.kernels for row in found.run)
