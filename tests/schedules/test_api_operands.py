"""What the API takes and gives: operand types, stacks, views, programs against the evaluator, clocks and launches."""

from __future__ import annotations

import dataclasses
import re
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate import product
from hwsim.gemm.plan import Mixed
from hwsim.gemm.problem import Problem
from hwsim.resolve.planning import carries, plan_for
from hwsim.schemes import scheme_of, schemes


def pair(shape_a: tuple, shape_b: tuple, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(sum(shape_a))
    return tuple((rng.standard_normal(s) * 100).astype(dtype) for s in (shape_a, shape_b))  # type: ignore[return-value]


# Signalling NaNs, which a processor reports where it casts them: no warning of NumPy's, and the value of any NaN.


@pytest.mark.parametrize(
    ("dtype", "signalling", "scheme", "options"),
    [
        ("f4", 0x7F800001, "native", {"format": "fp16"}),
        ("f4", 0x7F800001, "native", {"format": "fp32"}),
        ("f4", 0xFF800001, "native", {"format": "fp64"}),
        ("f4", 0x7F800001, "ozaki-int8", {}),
        ("f8", 0x7FF0000000000001, "tf32x3", {}),
        ("f2", 0x7C01, "native", {}),
        (ml_dtypes.bfloat16, 0x7F81, "native", {}),
        (ml_dtypes.float8_e5m2, 0x7D, "native", {}),
    ],
)
def test_signalling_nans_are_nans_without_a_warning(dtype, signalling, scheme, options) -> None:  # type: ignore[no-untyped-def]
    a, b, c = np.ones((4, 64), dtype), np.ones((64, 3), dtype), np.ones((4, 3), np.float32)
    words = a.view(f"u{a.itemsize}")  # no cast
    words[2, 5] = signalling
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hwsim.run(a, b, device="h200", scheme=scheme, timing=False, **options)
        said = {one["code"]: one["count"] for one in found.warnings}
        if scheme == "native" and a.itemsize == c.itemsize:
            with_c = hwsim.run(a, b, c, alpha=1.5, beta=2.0, device="h200", timing=False, **options)
            assert with_c.errors is not None
            assert np.isnan(with_c.c[2].astype(np.float64)).all() and (with_c.c[[0, 1, 3]] == 98).all()
    assert np.isnan(found.c[2].astype(np.float64)).all()
    assert (found.c[[0, 1, 3]] == 64).all() and "operand_overflow" not in said


# Types.


@pytest.mark.parametrize(
    ("device", "scheme", "given", "result"),
    [
        ("a100", "ape-int16", np.int16, np.int64),
        ("a100", "ozaki-int8", np.float64, np.float64),
        ("a100", "ozaki-int8", np.float32, np.float64),
        ("tf64", "tf64x3", np.float64, np.float64),
        ("tf64", "tf64x1", np.float32, np.float64),
        ("h200", "native", np.float16, np.float32),
        ("h200", "native", np.float64, np.float64),
        ("t4", "native", np.int8, np.int32),
        ("t4", "quantensor", np.float32, np.float32),
        ("a100", "tf32x3", np.float64, np.float32),
        ("a100", "tf32x3", np.int16, np.float32),
    ],
)
def test_result_types(device: str, scheme: str, given: type, result: type) -> None:
    a, b = pair((5, 20), (20, 3), given)
    run = hwsim.run(a, b, device=device, scheme=scheme, timing=False)
    assert run.c is not None and run.c.dtype == result and run.codes is not None
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(run.c - exact).max() < 2e-3 * np.abs(exact).max()
    if np.dtype(result).kind == "i":
        assert np.array_equal(run.c, exact)
    assert run.error is not None and run.error["relative_frobenius"] < 1e-3


def test_fp64_operands_are_not_rounded_on_the_way() -> None:
    x = np.array([[1 + 2.0**-40, 1.0]])
    y = np.array([[1.0], [-1.0]])
    assert hwsim.matmul(x, y, device="tf64", scheme="tf64x3")[0, 0] == 2.0**-40
    assert hwsim.matmul(x, y.astype(np.float32), device="a100", scheme="ozaki-fp16")[0, 0] == 2.0**-40
    assert hwsim.matmul(x, y, device="a100", scheme="tf32x3")[0, 0] == 0


def test_floats_for_an_integer_scheme_take_the_nearest() -> None:
    x = np.array([[1.5, 2.5, -70000.0, np.nan]], np.float32)
    got = hwsim.matmul(x, np.eye(4, dtype=np.int16), device="a100", scheme="ape-int16")
    assert np.array_equal(got, [[2, 2, -32768, 0]])


def test_int64_results_take_an_epilogue() -> None:
    a, b = pair((3, 9), (9, 4), np.int16)
    c = np.array([[1 << 40, -5, 0, 7]] * 3)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    given = {"device": "a100", "scheme": "ape-int16"}
    got = hwsim.matmul(a, b, c, alpha=3, beta=-2, bias=np.arange(4), **given)
    assert np.array_equal(got, 3 * exact - 2 * c + np.arange(4))
    assert np.array_equal(hwsim.matmul(a, b, output="fp32", **given), exact.astype(np.float32))
    with pytest.raises(InputError, match="integers that int64 holds"):
        hwsim.matmul(a, b, c.astype(np.float32), **given)


# Stacks.


@pytest.mark.parametrize(
    ("device", "scheme"), [("a100", "sgemm-cube"), ("ascend910a", "sgemm-cube"), ("a100", "ozaki-fp16")]
)
def test_stacks(device: str, scheme: str) -> None:
    a, b = pair((3, 1, 6, 20), (2, 20, 5))
    rng = np.random.default_rng(1)
    c = rng.standard_normal((3, 2, 6, 5)).astype(np.float32)
    given = {"device": device, "scheme": scheme}
    whole = hwsim.matmul(a, b, **given)
    assert whole.shape == (3, 2, 6, 5)
    for i, j in np.ndindex(3, 2):
        assert np.array_equal(whole[i, j], hwsim.matmul(a[i, 0], b[j], **given))
    more = hwsim.run(a, b, c, alpha=2.0, bias=np.arange(5), rows=[4, 1], cols=slice(1, 3), timing=False, **given)
    assert more.c is not None and more.c.shape == (3, 2, 2, 2)
    for i, j in np.ndindex(3, 2):
        one = hwsim.matmul(a[i, 0], b[j], c[i, j], alpha=2.0, bias=np.arange(5), **given)
        assert np.array_equal(more.c[i, j], one[[4, 1], 1:3])
    assert more.error is not None and more.error["relative_frobenius"] < 1e-5
    assert more.options["batch"] == [3, 2]


def test_times_of_a_stack() -> None:
    a, b = pair((4, 33, 20), (20, 17))
    one = hwsim.run(a[0], b, device="ascend910a")
    run = hwsim.run(a, b, device="ascend910a")
    assert one.cycles is not None and one.seconds is not None and run.seconds is not None
    assert run.cycles == 4 * one.cycles and run.seconds == pytest.approx(4 * one.seconds)
    assert run.tflops == pytest.approx(one.tflops) and run.peak_fraction == pytest.approx(one.peak_fraction)
    assert run.macs["useful"] == 4 * one.macs["useful"] and "times" in run.options["batch_cycles"]
    assert "batch" not in one.options and (run.m, run.n, run.k) == (33, 17, 20)


def test_what_does_not_fit_together() -> None:
    ones = np.ones((2, 3, 4), np.float32)
    with pytest.raises(InputError, match="do not fit together"):
        hwsim.matmul(ones, np.ones((3, 4, 2), np.float32), device="a100")
    with pytest.raises(InputError, match=r"shape \(4,\).*a matrix"):
        hwsim.matmul(ones[0], np.ones(4, np.float32), device="a100")
    with pytest.raises(InputError, match=r"C has shape \(3, 5\); allowed: \(2, 3, 5\)"):
        hwsim.matmul(ones, np.ones((4, 5), np.float32), np.ones((3, 5)), device="a100")
    with pytest.raises(InputError, match="the stack of matrices is empty"):
        hwsim.matmul(ones[:0], np.ones((4, 5), np.float32), device="a100")


@pytest.mark.parametrize("scheme", ["native", "sgemm-cube", "ozaki-int8", "ape-int16"])
def test_any_strides(scheme: str) -> None:
    """Transposed, reversed and strided views, read-only ones, and stacks of them, give the bits of copies."""
    a, b = pair((24, 36), (60, 36), np.int16 if scheme == "ape-int16" else np.float32)
    x, y = a[::-2, ::3], b[::-5, 2::3].T
    x.flags.writeable = False
    want = hwsim.matmul(x.copy(), y.copy(), device="a100", scheme=scheme)
    assert np.array_equal(hwsim.matmul(x, y, device="a100", scheme=scheme), want)
    stack = np.broadcast_to(x, (2, *x.shape))
    assert np.array_equal(hwsim.matmul(stack, y, device="a100", scheme=scheme), [want, want])


# Choices of the device, and of the data.


def test_choices_left_to_the_device() -> None:
    a, b = pair((4, 8), (8, 3), np.int16)
    on_npu = hwsim.run(a, b, device="ascend910a", scheme="ape-int16")
    assert on_npu.options["low_byte"] == "biased"
    assert "int8 x uint8" in on_npu.refused["unsigned"] and on_npu.to_dict()["refused"] == on_npu.refused
    on_gpu = hwsim.run(a, b, device="a100", scheme="ape-int16")
    assert on_gpu.options["low_byte"] == "unsigned" and on_gpu.refused == {}
    asked = hwsim.run(a, b, device="a100", scheme="ape-int16", low_byte="biased")
    assert np.array_equal(asked.c, on_gpu.c) and np.array_equal(on_npu.c, on_gpu.c)
    with pytest.raises(UnsupportedError, match="int8 x uint8"):
        hwsim.matmul(a, b, device="ascend910a", scheme="ape-int16", low_byte="unsigned")
    with pytest.raises(UnsupportedError, match="ape-int16 cannot run on device v100"):
        hwsim.matmul(a, b, device="v100", scheme="ape-int16")


def test_bf16x9_takes_what_the_unit_offers() -> None:
    a, b = pair((3, 20), (20, 4))
    assert hwsim.run(a, b, device="b200", scheme="bf16x9", timing=False).options["accumulation"] == "fastf32"
    fallback = hwsim.run(a, b, device="h200", scheme="bf16x9", timing=False)
    assert fallback.options["accumulation"] == "termwise" and "scale_input_d" in fallback.refused["fastf32"]


def test_options_from_the_data() -> None:
    a, b = pair((3, 20), (20, 4), np.float64)
    a[0, 0] = 1e-30
    run = hwsim.run(a, b, device="a100", scheme="ozaki-int8", slices=0, timing=False)
    assert run.options["slices"] > 12


def test_carries_says_why_not() -> None:
    plan = plan_for(hwsim.device("h200"), scheme_of("sgemm-cube"), Problem.of("fp32", 4, 4, 4), None, {}).plan
    assert carries(hwsim.device("h200"), plan) is None
    assert "no matrix instruction for fp16 x fp16" in str(
        carries(hwsim.device("tf64").model_copy(update={"native": {}, "matrix_instructions": {}}), plan)
    )


def test_mixed_plans_go_to_their_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    part = plan_for(hwsim.device("a100"), scheme_of("ape-fp32-f"), Problem.of("fp32", 4, 4, 4), None, {}).plan
    other = plan_for(hwsim.device("a100"), scheme_of("ape-fp32-b"), Problem.of("fp32", 4, 4, 4), None, {}).plan
    mixed = Mixed("both", (part, other), ((1e-4, 6e4),), (16, 16, 16))  # type: ignore[arg-type]
    scheme = dataclasses.replace(scheme_of("ape-fp32-f"), name="both", plan=lambda options, problem: mixed)
    seen = []

    def evaluated(chip, plan, a, b, *, threads, progress, backend):
        seen.append((chip.name, plan.plans, a.format, threads, backend.name))
        return (a.array @ b.array).view(np.uint32)

    monkeypatch.setattr(product, "evaluate_mixed", evaluated)
    a, b = np.ones((4, 3), np.float32), np.ones((3, 4), np.float16)
    got = hwsim.matmul(a, b, np.ones((4, 4)), device="a100", scheme=scheme, alpha=2.0, threads=1)
    assert np.array_equal(got, np.full((4, 4), 7.0)) and seen == [("a100", mixed.plans, "fp32", 1, "cpu")]
    with pytest.raises(UnsupportedError, match="a schedule fits none"):
        hwsim.matmul(a, b, device="a100", scheme=scheme, schedule={"split_k": 2})


# Programs.


@pytest.mark.parametrize(
    ("device", "scheme", "given"),
    [
        ("ascend910a", "sgemm-cube", {"tile": (16, 16, 16), "n_fused": 2}),
        ("ascend910a", "native", {"schedule": {"promotion_k": 32}}),
        ("ascend910b3", "native", {"format": "fp16", "alpha": 2.0}),
        ("v100", "markidis", {"split_k": 2}),
        ("a100", "sgemm-cube", {"accumulation": "elementwise"}),
        ("h200", "native", {"format": "fp16", "schedule": {"split_k": 2}}),
        ("b200", "native", {"format": "bf16", "schedule": {"slice_k": 48}, "output": "fp16"}),
        ("mi210", "le-gemm", {}),
    ],
)
def test_program_and_evaluator_read_one_record(device: str, scheme: str, given: dict[str, Any]) -> None:
    """Two readings of the record, for every family: the same bits and the same cycles."""
    a, b = pair((40, 90), (90, 33))
    direct = hwsim.run(a, b, device=device, scheme=scheme, **given)
    program = hwsim.run(a, b, device=device, scheme=scheme, functional=True, **given)
    assert direct.gemm == program.gemm and direct.gemm.digest == program.gemm.digest
    assert np.array_equal(direct.codes, program.codes) and direct.cycles == program.cycles > 0
    assert direct.schedule is not None and program.schedule is None


def test_the_record_holds_what_the_dataflow_chose_of_the_sum() -> None:
    result = hwsim.run(*pair((40, 90), (90, 33)), device="ascend910a", tile=(16, 16, 16), n_fused=2)
    assert result.options["k_group"] == 32 and result.gemm.schedule.promotion_k == 32


def test_bits_by_the_program_or_directly() -> None:
    a, b = pair((70, 150), (150, 33))
    given = {"device": "a100", "scheme": "ape-fp32-f"}
    direct, run = hwsim.run(a, b, **given), hwsim.run(a, b, functional=True, **given)
    assert direct.schedule is not None and run.schedule is None and np.array_equal(direct.codes, run.codes)
    npu = {"device": "ascend910a", "scheme": "sgemm-cube"}
    assert np.array_equal(hwsim.run(a, b, functional=False, **npu).codes, hwsim.run(a, b, **npu).codes)
    cut = hwsim.run(a, b, split_k=2, **given)
    assert cut.schedule is not None and cut.schedule["split_k"] == 2
    assert np.array_equal(cut.codes, hwsim.run(a, b, split_k=2, functional=True, **given).codes)
    scaled = hwsim.run(a, b, functional=True, alpha=2.0, **given)
    assert np.array_equal(scaled.codes, hwsim.run(a, b, alpha=2.0, **given).codes)
    c = np.ones((70, 33), np.float32)
    assert np.array_equal(hwsim.run(a, b, c, functional=True, **given).codes, hwsim.run(a, b, c, **given).codes)
    assert np.array_equal(hwsim.run(a, b, c, functional=True, **npu).codes, hwsim.run(a, b, c, **npu).codes)
    wide = {"device": "ascend910a", "schedule": {"epilogue": {"product_format": "fp64"}}}
    with pytest.raises(UnsupportedError, match=r"functional=True.*programs of family davinci carry no product_format"):
        hwsim.run(a, b, functional=True, **wide)
    with pytest.raises(InputError, match="split_k = 2: programs of family davinci_separated have tile, buffering"):
        hwsim.run(a, b, split_k=2, **npu | {"device": "ascend910b3"})


def test_an_epilogue_that_the_dataflow_does_not_carry_gives_bits_alone() -> None:
    a, b = pair((8, 9), (9, 8))
    without = hwsim.run(a, b, device="ascend910a", schedule={"epilogue": {"product_format": "fp64"}})
    assert without.cycles is None and "carry no product_format" in without.timing_note
    taken = hwsim.run(a, b, a[:8, :8], device="a100", format="fp16", alpha=2.0, bias=np.ones(8))
    assert taken.cycles is not None and taken.timing_note == ""
    epilogue = taken.gemm.epilogue
    assert (epilogue.alpha, epilogue.beta, taken.gemm.problem.has_c, taken.gemm.problem.bias) == (2, 1, True, "fp32")
    plain = hwsim.run(a, b, a[:8, :8], device="a100", format="fp16", alpha=2.0)
    assert np.array_equal(taken.c, plain.c + np.float32(1))


def test_bits_alone_of_a_gpu_need_no_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair((8, 9), (9, 8))
    assert hwsim.run(a, b, device="a100", timing=False).gemm.mapping is None
    assert hwsim.run(a, b, device="ascend910a", timing=False).gemm.mapping is not None  # k_group follows from it


def test_clock_and_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"m": 64, "n": 64, "k": 64, "exact": False}
    chip = hwsim.device("ascend910a")
    plain = hwsim.run(device=chip, **given)
    slow = hwsim.run(device=chip, clock_mhz=chip.clock_mhz / 2, **given)
    assert plain.seconds is not None and slow.seconds is not None and slow.cycles is not None
    assert slow.seconds == pytest.approx(slow.cycles / (chip.clock_mhz / 2 * 1e6)) and slow.seconds > plain.seconds
    assert slow.options["clock_mhz"] == chip.clock_mhz / 2 and "clock_mhz" not in plain.options
    launched = hwsim.run(device=chip.model_copy(update={"launch_overhead_us": 5.0}), launch_overhead=True, **given)
    assert launched.seconds == pytest.approx(plain.seconds + 5e-6 * len(plain.phases))
    assert launched.cycles == plain.cycles and launched.options["launch_overhead"] is True
    bare = chip.model_copy(update={"launch_overhead_us": None})
    with pytest.raises(UnsupportedError, match="no launch_overhead_us"):
        hwsim.run(device=bare, launch_overhead=True, **given)
    for wrong in (0, -1, float("nan"), True, 100_001, float("inf"), "900"):
        with pytest.raises(
            InputError, match=r"clock_mhz = .*; allowed: a number of MHz of at least 0.001 and at most 100,000"
        ):
            hwsim.run(device=chip, clock_mhz=wrong, **given)
        with pytest.raises(InputError, match="clock_mhz"):
            hwsim.devices.at_clock(chip, wrong)
    fast = hwsim.run(device=chip, clock_mhz=np.float32(100_000), **given)
    assert fast.seconds is not None and fast.seconds < plain.seconds


def test_factors_may_be_nan_or_infinite_as_in_blas() -> None:
    a = np.array([[1.0, 0.0], [0.0, -2.0]], np.float32)
    c = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert np.isnan(hwsim.matmul(a, a, device="h200", alpha=float("nan"))).all()
    got = hwsim.matmul(a, a, device="h200", alpha=float("inf"))  # inf * 0 is a NaN
    assert np.array_equal(got, [[np.inf, np.nan], [np.nan, np.inf]], equal_nan=True)
    assert np.isnan(hwsim.matmul(a, a, c, device="h200", beta=float("nan"))).all()
    with pytest.raises(InputError, match="alpha = nan; allowed for integer sums: whole numbers"):
        hwsim.matmul(a.astype(np.int8), a.astype(np.int8), device="h200", format="int8", alpha=float("nan"))


def test_plans_of_very_many_products_have_bits_and_no_cycles() -> None:
    given = {"m": 2, "n": 2, "k": 8, "device": "h200", "scheme": "ozaki-int8", "slices": 45}
    result = hwsim.run(**given)
    assert result.c is not None and result.cycles is None
    assert result.timing_note == "scheme ozaki-int8: 1,035 products; programs are made of at most 1,024: bits only"
    with pytest.raises(UnsupportedError, match=r"1,035 products; programs are made of at most 1,024"):
        hwsim.run(**given, exact=False)


def test_drawn_operands_suit_the_scheme() -> None:
    whole = hwsim.run(m=4, n=4, k=4, device="a100", scheme="ape-int16")
    assert whole.c is not None and np.abs(whole.c).max() > 1 << 16 and whole.seed == 0
    wide = hwsim.run(m=4, n=4, k=4, device="a100", scheme="ozaki-fp16", seed=3)
    assert wide.error is not None and wide.error["relative_frobenius"] < 1e-15


# Sizes and counts at their ends.


@pytest.mark.parametrize(
    "scheme", ["native", "egemm-tc", "markidis", "ape-fp32-t", "bf16x9", "tf32x3", "ozaki-fp16", "ape"]
)
def test_no_rows_or_columns_give_an_empty_product(scheme: str) -> None:
    a, b = pair((40, 100), (100, 24))
    whole = hwsim.matmul(a, b, device="h200", scheme=scheme)
    for given, shape in (({"rows": []}, (0, 24)), ({"cols": []}, (40, 0)), ({"rows": [], "cols": []}, (0, 0))):
        for options in ({}, {"k_group": 32}) if scheme in ("native", "egemm-tc") else ({},):
            part = hwsim.matmul(a, b, device="h200", scheme=scheme, **given, **options)
            assert part.shape == shape and part.dtype == whole.dtype


@pytest.mark.parametrize("threads", [0, -1, 1025, 1 << 31, 1 << 64, True, 2.0, "2"])
def test_threads_that_no_host_has(threads: object) -> None:
    a, b = pair((4, 8), (8, 4))
    with pytest.raises(InputError, match=r"threads = .*; allowed: an integer of at least 1 and at most 1024"):
        hwsim.matmul(a, b, device="a100", threads=threads)


def test_threads_of_any_integer_type() -> None:
    a, b = pair((300, 64), (64, 300))
    whole = hwsim.matmul(a, b, device="a100", threads=1)
    for threads in (np.int8(3), np.uint64(2), 1024):
        assert np.array_equal(hwsim.matmul(a, b, device="a100", threads=threads), whole)


HUGE = [
    (scheme.name, option.name, value)
    for scheme in schemes().values()
    for option in scheme.options
    if option.kind is int
    for value in (260, 1 << 31, 1 << 63, 10**30)
]
assert HUGE
LONG = ("ozaki-int8", "slices", 260)  # 33,930 products


@pytest.mark.parametrize(
    ("scheme", "option", "value"),
    [pytest.param(*one, marks=pytest.mark.slow if one == LONG else ()) for one in HUGE],
)
def test_integer_options_of_any_size_run_or_are_refused(scheme: str, option: str, value: int) -> None:
    """No integer option overflows on its way to the kernels; 260 slices do run, more than a byte's."""
    device = "tf64" if scheme.startswith("tf64") else "b200"
    for kind in ({"exact": False}, {"timing": False}):
        try:
            result = hwsim.run(m=16, n=16, k=32, device=device, scheme=scheme, **{option: value}, **kind)
        except (InputError, UnsupportedError):
            continue
        assert result.cycles is not None or result.c is not None or result.timing_note


def test_pieces_of_quantensor_end_where_fp32_does() -> None:
    for fmt, most in (("int8", 40), ("int4", 93)):
        with pytest.raises(InputError, match=f"pieces = {most + 1}; allowed: at most {most}"):
            hwsim.run(m=16, n=16, k=16, device="t4", scheme="quantensor", format=fmt, pieces=most + 1, timing=False)
    c = hwsim.run(m=16, n=16, k=16, device="t4", scheme="quantensor", pieces=40, timing=False)
    assert c.error["relative_frobenius"] < 1e-6


def test_a_block_larger_than_the_matrices_is_one_block() -> None:
    a, b = pair((40, 50), (50, 30))
    whole = hwsim.matmul(a, b, device="a100", scheme="ape", block=64)
    assert np.array_equal(hwsim.matmul(a, b, device="a100", scheme="ape", block=(1 << 31) - 1), whole)
    with pytest.raises(
        InputError, match=r"block = 9223372036854775808; allowed: an integer of at least 16 and at most 2147483647"
    ):
        hwsim.matmul(a, b, device="a100", scheme="ape", block=1 << 63)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bias": False}, "bias = False; allowed: an array, or True for cycles alone"),
        ({"c": "C.npy"}, "c = 'C.npy'; allowed: an array"),
        ({"bias": np.zeros(31)}, "bias has shape (31,) of float64; allowed: (32,)"),
        ({"c": np.zeros(32)}, "C has shape (32,); allowed: (16, 32)"),
    ],
)
def test_c_and_bias_are_refused_without_bits_too(given: dict, said: str, exact: bool) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        hwsim.run(m=16, n=32, k=16, device="h200", format="fp16", exact=exact, **given)
