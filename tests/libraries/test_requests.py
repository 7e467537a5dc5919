"""What a run with library= takes, refuses and says: parts of products, operands of other types, C, records again."""

import itertools
import json
import re
import warnings
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import hwsim
import hwsim.api
from hwsim.cli.command import main
from hwsim.devices import registry
from hwsim.errors import InputError, UnsupportedError
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.notices import warnings_of
from hwsim.request.declarations import declared

RNG = np.random.default_rng(11)


def operands(m, n, k, dtype=np.float32):
    """Full significands, seven binades."""
    a = RNG.standard_normal((m, k)) * 2.0 ** RNG.integers(-6, 1, (m, k))
    b = RNG.standard_normal((k, n)) * 2.0 ** RNG.integers(-6, 1, (k, n))
    return a.astype(np.float32).astype(dtype), b.astype(np.float32).astype(dtype)


def bits(x):
    return np.ascontiguousarray(x).tobytes()


CUBLAS = {"device": "h200", "library": "cublas"}


@pytest.mark.parametrize(
    ("fmt", "dtype", "m", "n", "k", "layout"),
    [
        ("fp16", np.float16, 33, 40, 4104, "columns"),  # nvjet
        ("fp16", np.float16, 101, 77, 1001, "rows"),  # CUTLASS
        ("bf16", ml_dtypes.bfloat16, 3, 5, 7, "rows"),  # gemmSN
        ("tf32", np.float32, 1, 64, 4096, "rows"),
        ("tf32", np.float32, 1862, 208, 968, "rows"),  # CTAs share the K of some tiles
        ("fp32", np.float32, 1, 1, 5000, "rows"),  # dot
        ("fp64", np.float64, 20, 30, 700, "rows"),
    ],
)
def test_the_choices_schedule_gives_the_kernels_bits(fmt, dtype, m, n, k, layout) -> None:
    rows, columns = np.arange(m)[-6:], np.arange(n)[-6:]
    a, b = operands(len(rows), len(columns), k, dtype)
    part = {"shape": (m, n), "at": (rows, columns)}
    output = "fp64" if fmt == "fp64" else "fp32"
    # as cublasGemmEx is asked for wide outputs
    choice = hwsim.library("cublas", device="h200").choose(m=m, n=n, k=k, format=fmt, output=output, b_layout=layout)
    by_hand = hwsim.matmul(a, b, device="h200", format=fmt, output=output, schedule=choice.schedule, **part)
    by_library = hwsim.matmul(a, b, **CUBLAS, format=fmt, output=output, b_layout=layout, **part)
    assert bits(by_hand) == bits(by_library)


@pytest.mark.covering(("fmt", "dtype"), "sizes")
@pytest.mark.parametrize(("fmt", "dtype"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("sizes", [(3, 5, 7), (1, 1, 512), (64, 96, 80)])
def test_fp32_operands_are_rounded_first_whatever_the_kernel(fmt, dtype, sizes) -> None:
    """Sizes of kernels with and without a matrix instruction: fp32 operands must not reach either unrounded."""
    m, n, k = sizes
    a, b = operands(m, n, k)
    call = {**CUBLAS, "format": fmt, "output": fmt}
    assert bits(hwsim.matmul(a, b, **call)) == bits(hwsim.matmul(a.astype(dtype), b.astype(dtype), **call))


def test_kernels_without_a_matrix_instruction_do_not_round_fp32_to_tf32() -> None:
    a, b = operands(1, 1, 512)
    call = {"device": "h200", "library": "cublas"}
    assert bits(hwsim.matmul(a, b, format="tf32", **call)) == bits(hwsim.matmul(a, b, format="fp32", **call))


REGIONS = {"format": "tf32", "timing": False}


def first_tf32(wanted, k):
    """Sizes and choice of the first tf32 GEMM with this K, B by columns, whose choice is as wanted."""
    choose = hwsim.library("cublas", device="h200").choose
    for m in range(128, 2048, 96):
        for n in range(96, 1024, 104):
            choice = choose(m=m, n=n, k=k, format="tf32", b_layout="columns")
            if wanted(choice):
                return m, n, choice
    raise AssertionError("no such choice")


def test_a_part_of_a_product_with_shared_tiles_runs_again_with_its_places() -> None:
    k = 968
    m, n, choice = first_tf32(lambda x: x.known and x.schedule.regions, k)
    region = choice.schedule.regions[-1]
    a, b = operands(4, 4, k)
    rows, columns = (range(side.stop - 4, side.stop) for side in (region.rows, region.cols))
    places = {"shape": (m, n), "at": (rows, columns)}
    first = hwsim.run(a, b, **CUBLAS, **REGIONS, b_layout="columns", **places)
    assert first.gemm.schedule.regions
    record = json.loads(first.gemm.to_json())
    with pytest.raises(InputError, match="regions are of a product"):
        hwsim.run(a, b, gemm=record, timing=False)
    assert bits(hwsim.run(a, b, gemm=record, timing=False, **places).c) == bits(first.c)
    with pytest.raises(InputError, match="regions are of a product"):
        hwsim.matmul(a, b, device="h200", format="tf32", schedule=first.gemm.schedule)
    with pytest.raises(InputError, match="regions are of a product"):
        places = {"shape": (5000, 5000), "at": (range(4), range(4))}
        hwsim.matmul(a, b, device="h200", format="tf32", schedule=first.gemm.schedule, **places)


def test_parts_of_products_have_bits_and_no_cycles() -> None:
    a, b = operands(4, 4, 64)
    part = hwsim.run(a, b, device="h200", format="fp16", shape=(64, 64), at=(range(4), range(4)))
    assert part.cycles is None and "whole products" in part.timing_note
    with pytest.raises(InputError, match="at is for bits"):
        hwsim.run(m=4, n=4, k=64, device="h200", exact=False, shape=(64, 64), at=(range(4), range(4)))
    with pytest.raises(InputError, match="shape"):
        hwsim.run(m=4, n=4, k=64, device="h200", exact=False, shape=(64, 64))


def test_batch_classes_tell_where_tiles_are_shared() -> None:
    """K of several CTAs: where the first row lies in such a tile its bits are others."""
    n, k, sizes, columns = 4096, 14336, [8, 40, 100, 320], range(0, 4096, 256)
    a, b = operands(1, len(columns), k)
    call = {"format": "tf32", "b_layout": "columns"}
    labels = hwsim.invariance(n=n, k=k, m=sizes, **CUBLAS, **call)
    rows = [bits(hwsim.matmul(a, b, **CUBLAS, **call, shape=(m, n), at=([0], columns))) for m in sizes]
    for i, x in enumerate(rows):
        for j, y in enumerate(rows):
            assert (x == y) == (labels[i] == labels[j]), (sizes[i], sizes[j])
    assert len(set(labels)) > 1


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"k_group": 64}, InputError, "decides k_group; leave it out"),
        ({"stages": 3, "tile": (64, 64, 64)}, InputError, "decides (tile, stages|stages, tile); leave them out"),
        ({"c": np.ones((16, 16)), "bias": np.ones(16)}, UnsupportedError, "a bias and a C"),
        ({"bias": np.ones(16), "format": "int8", "b_layout": "columns"}, UnsupportedError, "_int_mm takes none"),
        ({"format": "e5m2", "b_layout": "columns"}, UnsupportedError, "cuBLAS multiplies no e5m2 by e5m2"),
        ({"format": "fp16", "format_b": "bf16"}, UnsupportedError, "cuBLAS multiplies no fp16 by bf16"),
    ],
)
def test_what_is_no_call_of_the_library_is_refused(given, error, said) -> None:
    a, b = operands(16, 16, 64)
    with pytest.raises(error, match=said):
        hwsim.run(a, b, **CUBLAS, timing=False, **{"format": "fp16"} | given)


def test_fp64_with_a_bias_is_a_choice_of_its_own() -> None:
    """cublasLtMatmul with the bias in its epilogue takes CUTLASS's kernel for Ampere, whose slices in place begin with
    the bias."""
    a, b = (x.astype(np.float64) for x in operands(64, 64, 12672))
    bias = np.arange(64) / 3 + 1e3
    call = {**CUBLAS, "format": "fp64", "b_layout": "columns"}
    assert hwsim.run(a, b, bias=bias, **call).gemm.decided("kernel").evidence == "assumption"  # asked on an H100
    found = hwsim.run(a, b, bias=bias, **call | {"device": "h100"})
    assert found.gemm.decided("kernel").value.startswith("cutlass_80_tensorop_d884gemm")
    assert found.gemm.decided("kernel").evidence == "fitted" and found.seconds > 0
    assert found.gemm.schedule.merge_into == "output" and int(found.gemm.decided("split_k").value) > 1
    sizes = {"m": 512, "n": 512, "k": 512, "format": "fp64", "b_layout": "columns"}
    with_bias = hwsim.library("cublas", device="h200", workspace_bytes=1 << 20).choose(**sizes, bias=True)
    assert (with_bias.algorithm, hwsim.library("cublas", device="h200").choose(**sizes).algorithm) == (22, 35)
    assert hwsim.library("cublas", device="h200", workspace_bytes=1 << 20).choose(**sizes).evidence == "assumption"
    total = bias
    starts = np.cumsum([0, *found.gemm.schedule.slice_k])
    for i, j in itertools.pairwise(starts):
        total = total + hwsim.matmul(a[:, i:j], b[i:j], device="h200", format="fp64")
    assert np.array_equal(found.c, total)


def test_fp64_with_one_column_takes_the_bias_as_its_c() -> None:
    """PyTorch's call is cublasGemmEx there, whose choice is that of the product alone."""
    a, b = operands(16, 1, 64)
    bias = np.full(1, 0.25)
    a, b = a.astype(np.float64), b.astype(np.float64)
    call = {**CUBLAS, "timing": False, "format": "fp64"}
    found = hwsim.run(a, b, bias=bias, **call)
    assert np.array_equal(found.c, hwsim.matmul(a, b, **call) + bias)
    assert found.gemm.decided("kernel").value == hwsim.run(a, b, **call).gemm.decided("kernel").value


@pytest.mark.parametrize("timing", [True, False])
def test_the_instruction_is_the_librarys_where_its_kernel_has_another_than_the_device(timing) -> None:
    for (m, n, k), call, by in (
        ((100, 77, 1001), {"format": "fp16"}, "library"),  # CUTLASS
        ((1, 64, 4096), {"format": "tf32"}, "library"),  # dot
        ((64, 64, 64), {"format": "fp32"}, "library"),  # xmma, fused multiply-adds
        ((64, 64, 64), {"format": "fp16"}, "device"),  # nvjet, wgmma
    ):
        a, b = operands(m, n, k)
        made = hwsim.run(a, b, **CUBLAS, **call, timing=timing).gemm.decided("instruction")
        assert made.by == by, (call, made)
    schedule = {"instruction": "mma.m16n8k16.f32.f16.f16.f32"}
    found = hwsim.run(a, b, device="h200", format="fp16", schedule=schedule, timing=False)
    assert found.gemm.decided("instruction").by == "user"
    for library in ({}, {"library": "pytorch", "b_layout": "columns"}):  # nobody names the sparse instruction
        sparse = hwsim.run(m=64, n=64, k=64, device="h100", format="fp16", sparsity="2:4", exact=False, **library)
        assert sparse.gemm.unit.startswith("wgmma.sp") and sparse.gemm.decided("instruction").by != "user"


def test_a_convolution_is_no_call_of_a_gemm_library() -> None:
    x = np.ones((1, 8, 4, 4), np.float16)
    with pytest.raises(UnsupportedError, match="has no convolutions: PyTorch calls cuDNN for them"):
        hwsim.conv2d(x, np.ones((8, 8, 3, 3), np.float16), library="cublas", device="h200")


def test_calls_that_were_not_asked_about_are_assumptions() -> None:
    a, b = operands(16, 16, 64, np.float16)
    run = hwsim.run(a, b, **CUBLAS, timing=False, format="fp16")
    assert run.evidence["schedule"] == "fitted"
    for given in ({"c": np.ones((16, 16), np.float16), "output": "fp16"}, {"alpha": 1.7}, {"alpha": 0.5}):
        found = hwsim.run(a, b, **CUBLAS, timing=False, format="fp16", **given)
        assert found.evidence["schedule"] == "fitted"  # such calls were recorded: tests/libraries/test_added_c.py
    wide = hwsim.run(a.astype(np.float64), b.astype(np.float64), **CUBLAS, timing=False, format="fp64", alpha=1.7)
    assert wide.evidence["schedule"] == "assumption" and "not asked" in wide.gemm.decided("kernel").why
    stack = np.stack([a, a])
    assert hwsim.run(stack, b, **CUBLAS, timing=False, format="fp16").evidence["schedule"] == "fitted"
    assert hwsim.run(a, b, **CUBLAS, timing=False, format="fp16", a_layout="columns").evidence["schedule"] == "fitted"
    both = hwsim.run(stack, b, **CUBLAS, timing=False, format="fp16", a_layout="columns")
    assert both.evidence["schedule"] == "assumption"
    # lda of 202 bytes is none that TMA takes
    choose = hwsim.library("cublas", device="h200").choose
    assert not choose(m=101, n=1024, k=1024, format="bf16", a_layout="columns").kernel.startswith("nvjet")


@pytest.mark.parametrize(
    ("device", "given", "without", "elsewhere"),
    [
        ("h100", {}, "", False),
        ("h100", {"bias": True}, "a bias", False),
        ("h200", {}, "", True),
        ("h200", {"bias": True}, "a bias", True),
        ("h200", {"batch": 1, "bias": True}, "", False),
        ("h200", {"batch": 1, "bias": True, "format": "fp64"}, "", True),
        ("h200", {"batch": 1, "bias": True, "format": "fp64", "a_layout": "columns", "m": 7}, "A by columns", True),
        ("h200", {"m": 7, "n": 101, "a_layout": "columns"}, "", True),
        ("h100", {"m": 7, "n": 96, "a_layout": "columns", "output": "fp16"}, "", False),
    ],
)
def test_the_evidence_says_what_was_not_asked_about(device, given, without, elsewhere) -> None:
    """Matrix-vector products in batches were asked about, on an H100, but none with a bias."""
    call = {"m": 1, "n": 100, "k": 999, "format": "fp16", "batch": 4, "a_layout": "rows"} | given
    m, n, k, batch = (call.pop(name) for name in ("m", "n", "k", "batch"))
    a, b = operands(m, n, k, np.float64 if call["format"] == "fp64" else np.float16)
    if batch > 1:
        a, b = np.stack([a] * batch), np.stack([b] * batch)
    bias = np.ones(n, a.dtype) if call.pop("bias", False) else None
    call["output"] = call.get("output", call["format"])
    found = hwsim.run(a, b, device=device, library="cublas", bias=bias, timing=False, **call).gemm.decided("kernel")
    assert (f"for the call without {without}, which" in found.why) == bool(without), found.why
    assert ("without" in found.why) == bool(without)
    assert ("by answers on h100" in found.why) == elsewhere
    assert (found.evidence == "assumption") == bool(without or elsewhere)


def test_unsure_choices_and_unknown_orders_are_warned_of() -> None:
    choose = hwsim.library("cublas", device="h200").choose
    asked = {"n": 257, "k": 2048, "format": "bf16", "output": "fp32"}
    confidences = {m: choose(m=m, **asked).confidence for m in range(1, 200)}
    for m, is_warned in (
        (next(m for m, sure in confidences.items() if sure < 0.85), True),
        (next(m for m, sure in confidences.items() if sure > 0.95), False),
    ):
        a, b = operands(m, 257, 2048)
        run = hwsim.run(a, b, **CUBLAS, timing=False, format="bf16")
        assert ("library_choice_unsure" in {x["code"] for x in run.warnings}) == is_warned
    m, n, _ = first_tf32(lambda x: not x.known, 600)
    a, b = operands(m, n, 600)
    run = hwsim.run(a, b, **CUBLAS, timing=False, format="tf32", b_layout="columns")
    assert "library_order_unknown" in {x["code"] for x in run.warnings}
    assert "stands for it" in run.gemm.decided("order of summation").why


@pytest.mark.parametrize("sizes", [(16, 24, 32), (1, 1, 64), (40, 24, 32)])
def test_int8_is_exact_with_any_kernel(sizes) -> None:
    m, n, k = sizes
    a, b = (RNG.integers(-128, 128, s, dtype=np.int8) for s in ((m, k), (k, n)))
    got = hwsim.matmul(a, b, **CUBLAS, format="int8", b_layout="columns")
    assert np.array_equal(got, a.astype(np.int32) @ b.astype(np.int32))
    assert len(set(hwsim.invariance(n=24, k=32, m=range(1, 41), **CUBLAS, format="int8", b_layout="columns"))) == 1


def test_shipped_files_of_the_chips_name_their_answers() -> None:
    for one in versions():
        for name, cores in one.devices.items():
            chip = hwsim.device(name)
            assert (chip.library.observations, chip.cores) == (name, cores)
            text = (registry.package_folder() / f"{name}.yaml").read_text(encoding="utf-8")
            assert set(re.findall(r"^extends: *(\S+)", text, re.MULTILINE)) <= set(one.devices)


@pytest.mark.parametrize("name", ["h200", "h100"])
def test_a_file_of_ones_own_by_the_name_of_a_shipped_one_is_read(tmp_path, monkeypatch, name) -> None:
    text = (registry.package_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    (tmp_path / f"{name}.yaml").write_text(
        text.replace("\ncores: {value: 132,", "\ncores: {value: 78,"), encoding="utf-8"
    )
    assert hwsim.library("cublas", device=name).cores == 132
    monkeypatch.setenv("HWSIM_CONFIG_PATH", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the name stands twice
        other = hwsim.library("cublas", device=name)
    assert other.cores == 78 and other.rules.estimates is not None
    monkeypatch.delenv("HWSIM_CONFIG_PATH")
    assert hwsim.library("cublas", device=name).cores == 132


def test_a_chip_is_known_by_its_file_not_its_name() -> None:
    chip = {"schema_version": 1, "name": "mine", "title": "a copy", "extends": "h200"}
    assert hwsim.library("cublas", device=chip).device == "h200"
    half = {"value": 66, "source": "NONE", "evidence": "assumption"}
    other = hwsim.library("cublas", device={**chip, "cores": half, "sources": {"NONE": "a test"}})
    assert (other.device, other.cores, other.rules.estimates is not None) == ("mine", 66, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"m": 2**31}, "integers from 1 to"),
        ({"format": ["fp16"]}, "not one of"),
        ({"accumulate": 3}, "e4m3 alone"),
        ({"reductions": "some"}, "allowed: any, compute"),
        ({"bias": "no"}, "allowed: True, False"),
        ({"a_layout": None}, "allowed: rows, columns"),
    ],
)
def test_values_that_are_not_allowed_are_said(given, said) -> None:
    with pytest.raises((InputError, UnsupportedError), match=said):
        hwsim.library("cublas", device="h200").choose(**{"m": 64, "n": 64, "k": 64, "format": "fp16"} | given)


@pytest.mark.parametrize("text", ["1:99999999999999999999", "4:1", "4:1:-1", "1:8:0", "0:3", "x"])
def test_ranges_of_m_that_are_not_allowed_are_refused(text, capsys) -> None:
    words = ["invariance", "--device", "h200", "--library", "cublas", "--format", "bf16", "--n", "8", "--k", "8"]
    assert main([*words, "--m", text]) == 2
    assert "1 <= A <= B" in capsys.readouterr().err
    for m in (5, [1.5], ["x"]):
        with pytest.raises(InputError, match="sequence of integers"):
            hwsim.invariance(n=8, k=8, m=m, **CUBLAS, format="bf16")


def test_the_command_line_runs_a_librarys_kernel(capsys) -> None:
    words = ["--device", "h200", "--library", "cublas", "--format", "bf16", "--m", "64", "--n", "64", "--k", "64"]
    assert main(["run", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gemm"]["library"]["name"] == "cublas"


def test_every_option_has_a_flag_of_run(capsys) -> None:
    assert main(["run", "--help-all"]) == 0
    text = capsys.readouterr().out
    apart = {"exact": "--no-exact", "timing": "--no-timing"}
    missing = [x.option.name for x in declared() if apart.get(x.option.name, x.option.flag) not in text]
    assert not missing


def test_tune_shows_what_the_library_runs_beside_what_it_finds(capsys) -> None:
    words = ["tune", "--device", "h200", "--format", "fp16", "--m", "512", "--n", "512", "--k", "256", "--budget", "4"]
    assert main([*words, "--library", "cublas", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)["library"]
    assert found["name"] == "cublas" and found["kernel"].startswith("nvjet") and found["cycles"] > 0
    assert main([*words, "--library", "cublas", "-q"]) == 0
    assert "cublas runs nvjet" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options", [{"cta_group": 2}, {"unit_flag": True}, {"step_ka": 3}, {"distribution": "block"}, {"n_fused": 4}]
)
def test_options_of_a_mapping_are_the_librarys(options) -> None:
    a, b = operands(16, 24, 64)
    with pytest.raises(InputError, match=next(iter(options))):
        hwsim.run(a, b, **CUBLAS, format="fp16", **options)


@pytest.mark.parametrize(
    ("sizes", "call"),
    [
        ((30, 33, 1001), {"format": "fp16"}),
        ((129, 257, 2048), {"format": "bf16"}),
        ((40, 48, 512), {"format": "tf32", "b_layout": "columns"}),
        ((16, 24, 67), {"format": "bf16", "output": "bf16"}),
        ((64, 64, 512), {"format": "fp64"}),
    ],
)
def test_a_record_runs_again_as_the_library_ran(sizes, call) -> None:
    """Bits, cycles, seconds, warnings and evidence."""
    a, b = operands(*sizes)
    dtype = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp64": np.float64}.get(call["format"], np.float32)
    a, b = a.astype(dtype), b.astype(dtype)
    first = hwsim.run(a, b, **CUBLAS, **call)
    again = hwsim.run(a, b, gemm=first.gemm)
    assert bits(first.c) == bits(again.c)
    assert (first.cycles, first.seconds, first.evidence) == (again.cycles, again.seconds, again.evidence)
    assert [x["code"] for x in first.warnings] == [x["code"] for x in again.warnings]


def test_a_record_of_another_choice_says_no_fitted_time() -> None:
    a, b = operands(64, 64, 512)
    first = hwsim.run(a.astype(np.float16), b.astype(np.float16), **CUBLAS, format="fp16")
    other = replace(first.gemm, schedule=replace(first.gemm.schedule, slice_k=(256, 256)))
    again = hwsim.run(a.astype(np.float16), b.astype(np.float16), gemm=other)
    assert again.gemm.decided("times") is None and again.evidence.get("timing") != "fitted"


def test_parts_of_products_are_refused_where_a_row_depends_on_others() -> None:
    a, b = operands(64, 40, 64)
    with pytest.raises(UnsupportedError, match="whole matrices"):
        hwsim.matmul(a[40:50], b[:, 3:7], device="h200", scheme="ape", shape=(64, 40), at=(range(40, 50), range(3, 7)))


def test_a_program_is_of_a_whole_product() -> None:
    with pytest.raises(InputError, match="whole"):
        hwsim.api.program(**CUBLAS, format="fp16", m=64, n=64, k=512, shape=(4096, 4096))


def test_no_cycles_say_why() -> None:
    """A dot product of the library runs in a kernel without a program: the note names the reason."""
    for call in ({"timing": True}, {"exact": False}):
        note = hwsim.run(m=1, n=1, k=4096, **CUBLAS, format="fp16", **call).timing_note
        assert note and "not asked" not in note


def test_an_unsure_choice_is_one_warning():
    choice = SimpleNamespace(known=True, kernel="k", split_k=1, slices=1, confidence=0.3, lost_k=0, is_estimated=False)
    [found] = warnings_of(SimpleNamespace(choice=choice, why=""))
    assert (found["code"], found["count"]) == ("library_choice_unsure", 1) and "probability of 0.30" in found["message"]


def test_a_bias_that_pytorch_takes_none_of_was_not_asked_about() -> None:
    library = hwsim.library("cublas", device="h100", workspace_bytes=0)
    call = {"m": 256, "n": 512, "k": 1024, "format": "int8", "b_layout": "columns"}
    one, biased = library.choose(**call), library.choose(**call, bias=True)
    assert (one.evidence, one.unasked.parts) == ("fitted", ())
    assert (biased.evidence, biased.unasked.parts) == ("assumption", ("a bias",))


def test_a_bias_was_not_asked_about_with_operands_of_two_formats() -> None:
    library = hwsim.library("cublas", device="h100", workspace_bytes=1 << 20)
    call = {"m": 256, "n": 512, "k": 1024, "format": "e4m3", "output": "bf16", "b_layout": "columns"}
    found = {
        (other, bias): library.choose(**call, format_b=other, bias=bias)
        for other in ("e4m3", "e5m2")
        for bias in (False, True)
    }
    assert [x.unasked.parts for x in found.values()] == [(), (), (), ("a bias",)]
    assert [x.evidence == "assumption" for x in found.values()] == [False, False, False, True]
