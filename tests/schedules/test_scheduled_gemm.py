"""GEMM bits from a plan and a schedule: captured products, and straight-line versions over the integer reference."""

from __future__ import annotations

import itertools
from pathlib import Path

import gmpy2
import numpy as np
import pytest

import hwsim
from hwsim.devices import dot_spec, load, names
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import FORMATS, array_dtype, code_dtype
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

GOLDEN = Path(__file__).parents[1] / "golden" / "h200" / "gemm.npz"
F32 = np.float32


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as archive:
        return {name: archive[name] for name in archive.files}


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def drawn(rng: np.random.Generator, fmt: str, shape: tuple[int, int], spread: int = 3) -> np.ndarray:
    """Codes from fields: signs, exponents within `spread` binades around 1, significands of which some are extreme."""
    known = FORMATS[fmt]
    u64 = np.uint64
    exponent = rng.integers(known.bias - spread, known.bias + spread + 1, shape).astype(u64)
    fraction = rng.integers(0, 1 << known.fraction_bits, shape).astype(u64)
    extreme = np.array([0, (1 << known.fraction_bits) - 1], u64)
    fraction = np.where(rng.random(shape) < 0.3, rng.choice(extreme, shape), fraction)
    sign = rng.integers(0, 2, shape).astype(u64) << u64(known.magnitude_bits)
    word = sign | (exponent << u64(known.fraction_bits)) | fraction
    word[rng.random(shape) < 0.05] = 1  # the smallest subnormal
    word[(rng.random(shape) < 0.05) & (known.nan != "minus_zero")] = u64(1 << known.magnitude_bits)  # -0
    return (word << u64(known.ignored_bits)).astype(code_dtype(known))


def chain(a: np.ndarray, b: np.ndarray, fmt: str, device: str = "h200", name: str | None = None) -> np.ndarray:
    """Codes of one chain from +0, by the integer reference."""
    chip = load(device)
    spec = dot_spec(chip, name or chip.native[fmt])
    start = np.zeros((a.shape[0], b.shape[1]), code_dtype(FORMATS[spec.c]))
    return reference.gemm(spec, DotOperands(np.ascontiguousarray(a), np.ascontiguousarray(b), start))


def test_every_captured_gemm(golden: dict[str, np.ndarray]) -> None:
    keys = sorted({name.rsplit("/", 1)[0] for name in golden if name.startswith("cublas.")})
    assert len(keys) == 10
    for key in keys:
        fmt = {"f16": "fp16"}.get(key.split(".")[1], key.split(".")[1])
        a, bt, d = (golden[f"{key}/{x}"] for x in ("a", "bt", "d"))
        options = {"accumulate": "fast" if ".fast." in key else "promoted"} if fmt == "e4m3" else {}
        if fmt == "tf32":
            a, bt = a.view(F32), bt.view(F32)
        got = hwsim.matmul(a, bt.T, device="h200", scheme="native", format=fmt, **options)
        assert got.dtype == F32 and np.array_equal(bits(got), d), key


def test_captured_halfhalf_is_sgemm_cube(golden: dict[str, np.ndarray]) -> None:
    a, bt = golden["scheme.tf32x3/a"], golden["scheme.tf32x3/bt"]
    got = hwsim.matmul(a, bt.T, device="h200", scheme="sgemm-cube", scaling_exponent=11)
    assert np.array_equal(bits(got), bits(golden["scheme.halfhalf/d"]))
    other = hwsim.matmul(a, bt.T, device="h200", scheme="sgemm-cube", scaling_exponent=0)
    assert not np.array_equal(bits(got), bits(other))


@pytest.mark.parametrize("k", [1, 3, 67, 300])
@pytest.mark.parametrize("fmt", ["fp16", "bf16", "tf32", "e4m3", "e5m2"])
def test_default_is_one_chain(fmt: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = drawn(rng, fmt, (4, k)), drawn(rng, fmt, (k, 5))
    known = {"input_format": fmt} if fmt == "tf32" else {"format": fmt}
    assert np.array_equal(bits(hwsim.matmul(a, b, device="h200", **known)), chain(a, b, fmt))


@pytest.mark.parametrize("device", [name for name, _ in names()])
def test_native_in_every_format_of_every_device(device: str) -> None:
    """The result is the reference's on operands filled up with zeros to whole instructions."""
    chip, rng = load(device), np.random.default_rng(5)
    assert chip.native
    for fmt, unit in chip.native.items():
        k_unit = hwsim.devices.instruction(chip, unit).k
        k = k_unit + 3
        if FORMATS[fmt].is_integer:
            limit = 1 << (FORMATS[fmt].bits - 1)
            typed = [rng.integers(-limit, limit, shape).astype(np.int8) for shape in ((3, k), (k, 2))]
            if fmt == "int4":
                typed = [x.astype(array_dtype(FORMATS["int4"])) for x in typed]
            got = hwsim.matmul(*typed, device=device, format=fmt)
            assert np.array_equal(got, typed[0].astype(np.int64) @ typed[1].astype(np.int64)), fmt
            continue
        a, b = drawn(rng, fmt, (3, k), 1), drawn(rng, fmt, (k, 2), 1)
        full = -(-k // k_unit) * k_unit
        one, other = np.zeros((3, full), a.dtype), np.zeros((full, 2), b.dtype)
        one[:, :k], other[:k] = a, b
        got = hwsim.matmul(a, b, device=device, format=fmt, input_format=fmt, schedule=Schedule())
        assert np.array_equal(bits(got), chain(one, other, fmt, device)), fmt


@pytest.mark.parametrize(
    ("fields", "cuts"),
    [
        ({"split_k": 3}, (128, 128, 44)),
        ({"split_k": 2}, (192, 108)),
        ({"split_k": 4, "slice_multiple": 32}, (96, 96, 96, 12)),
        ({"slice_k": 100}, (100, 100, 100)),
        ({"slice_k": (17, 1, 282)}, (17, 1, 282)),
    ],
)
def test_split_k(fields: dict, cuts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    a, b = drawn(rng, "fp16", (6, 300)), drawn(rng, "fp16", (300, 7))
    schedule = Schedule(**fields)
    assert schedule.slice_lengths(300) == cuts
    edges = np.cumsum([0, *cuts])
    total = None
    for start, stop in itertools.pairwise(edges):
        part = chain(a[:, start:stop], b[start:stop], "fp16").view(F32)
        total = part if total is None else total + part
    assert total is not None
    assert np.array_equal(bits(hwsim.matmul(a, b, device="h200", format="fp16", schedule=schedule)), bits(total))


def test_cublas_slices() -> None:
    """Lengths seen on an H200 (K, slices)."""
    assert Schedule(split_k=3, slice_multiple=64).slice_lengths(4096) == (1408, 1408, 1280)
    assert Schedule(split_k=2).slice_lengths(8192) == (4096, 4096)
    assert Schedule(split_k=12).slice_lengths(16384)[:2] == (1408, 1408)


def test_merge_order_and_formats() -> None:
    rng = np.random.default_rng(2)
    a, b = drawn(rng, "bf16", (5, 320)), drawn(rng, "bf16", (320, 4))
    s = [chain(a[:, i : i + 64], b[i : i + 64], "bf16").view(F32) for i in range(0, 320, 64)]

    def run(**fields: object) -> np.ndarray:
        return hwsim.matmul(a, b, device="h200", format="bf16", schedule={"slice_k": 64, **fields})

    assert np.array_equal(run(), (((s[0] + s[1]) + s[2]) + s[3]) + s[4])
    assert np.array_equal(run(merge_order="descending"), (((s[4] + s[3]) + s[2]) + s[1]) + s[0])
    assert np.array_equal(run(merge_order="pairwise"), ((s[0] + s[1]) + (s[2] + s[3])) + s[4])
    assert np.array_equal(run(merge_order=(2, 0, 4, 1, 3)), (((s[2] + s[0]) + s[4]) + s[1]) + s[3])
    wide = sum(x.astype(np.float64) for x in s)
    assert np.array_equal(run(merge_format="fp64"), wide.astype(F32))
    half = [x.astype(np.float16) for x in s]
    stored = (((half[0].astype(F32) + half[1]) + half[2]) + half[3]) + half[4]
    assert np.array_equal(run(partial_format="fp16"), stored)
    added = (((half[0] + half[1]) + half[2]) + half[3]) + half[4]
    assert np.array_equal(run(merge_format="fp16"), added.astype(F32))
    assert len({run(merge_order=o).tobytes() for o in ("ascending", "descending", "pairwise")}) == 3


@pytest.mark.parametrize("k", [1, 67, 128, 300])
def test_promoted_e4m3(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = drawn(rng, "e4m3", (5, k)), drawn(rng, "e4m3", (k, 6))
    total = np.zeros((5, 6), F32)
    for start in range(0, k, 128):
        total = total + chain(a[:, start : start + 128], b[start : start + 128], "e4m3").view(F32)
    got = hwsim.matmul(a, b, device="h200", format="e4m3", accumulate="promoted")
    assert np.array_equal(bits(got), bits(total))
    by_schedule = hwsim.matmul(a, b, device="h200", format="e4m3", schedule={"promotion_k": 128})
    assert np.array_equal(bits(got), bits(by_schedule))
    fast = hwsim.matmul(a, b, device="h200", format="e4m3")
    assert np.array_equal(bits(fast), chain(a, b, "e4m3"))
    assert k < 300 or not np.array_equal(bits(fast), bits(got))


def test_k_permutation_and_remainder() -> None:
    rng = np.random.default_rng(3)
    a, b = drawn(rng, "fp16", (5, 70)), drawn(rng, "fp16", (70, 4))
    order = tuple(int(i) for i in np.random.default_rng(0).permutation(32))
    one, other = np.zeros((5, 96), a.dtype), np.zeros((96, 4), b.dtype)
    one[:, :70], other[:70] = a, b
    index = np.concatenate([block + np.array(order) for block in (0, 32, 64)])
    got = hwsim.matmul(a, b, device="h200", format="fp16", schedule=Schedule(k_permutation=order))
    assert np.array_equal(bits(got), chain(one[:, index], other[index], "fp16"))
    assert not np.array_equal(bits(got), chain(a, b, "fp16"))

    first = np.zeros((5, 16), a.dtype), np.zeros((16, 4), b.dtype)
    first[0][:, :6], first[1][:6] = a[:, :6], b[:6]
    got = hwsim.matmul(a, b, device="h200", format="fp16", schedule=Schedule(remainder="first", tile_k=32))
    whole = chain(np.hstack([first[0], a[:, 6:]]), np.vstack([first[1], b[6:]]), "fp16")
    assert np.array_equal(bits(got), whole)
    assert not np.array_equal(whole, chain(a, b, "fp16"))


def test_instruction_of_the_schedule() -> None:
    rng = np.random.default_rng(4)
    a, b = drawn(rng, "fp16", (4, 70)), drawn(rng, "fp16", (70, 3))
    for name in ("mma.m16n8k8.f32.f16.f16.f32", "wgmma.m64n8k16.f16.f16.f16"):
        got = hwsim.matmul(a, b, device="h200", format="fp16", schedule=Schedule(instruction=name))
        assert np.array_equal(bits(got), chain(a, b, "fp16", name=name)), name
    assert got.dtype == np.float16
    with pytest.raises(UnsupportedError, match="multiplies bf16 by bf16"):
        hwsim.matmul(a, b, device="h200", format="fp16", schedule=Schedule(instruction="wgmma.m64n8k16.f32.bf16.bf16"))
    with pytest.raises(InputError, match="stands for several"):
        hwsim.matmul(a, b, device="h200", format="fp16", schedule=Schedule(instruction="wgmma.m64nNk16.f32.f16.f16"))


def test_rows_and_columns_have_the_bits_of_the_whole() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((40, 67), F32), rng.standard_normal((67, 50), F32)
    c = rng.standard_normal((40, 50), F32)
    mask = rng.random(50) < 0.4
    for device, scheme in (("h200", "native"), ("h200", "sgemm-cube"), ("ascend910a", "sgemm-cube")):
        whole = hwsim.matmul(a, b, device=device, scheme=scheme)
        for rows, cols in (([3, 0, -1], slice(1, 30, 7)), (np.array([5]), mask), (slice(None, None, -1), [2, 2])):
            part = hwsim.matmul(a, b, device=device, scheme=scheme, rows=rows, cols=cols)
            assert np.array_equal(bits(part), bits(whole[rows][:, cols]))
    whole = hwsim.matmul(a, b, c, device="h200", alpha=1.5, bias=c[0], schedule=Schedule(slice_k=16))
    part = hwsim.matmul(
        a, b, c, device="h200", alpha=1.5, bias=c[0], schedule=Schedule(slice_k=16), rows=[7], cols=mask
    )
    assert np.array_equal(bits(part), bits(whole[[7]][:, mask]))
    with pytest.raises(InputError, match="rows: index 40"):
        hwsim.matmul(a, b, device="h200", rows=[40])
    with pytest.raises(InputError, match="cols: got float64"):
        hwsim.matmul(a, b, device="h200", cols=[0.5])


def test_strides_threads_and_progress() -> None:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((600, 67)).astype(np.float16), rng.standard_normal((67, 90)).astype(np.float16)
    whole = hwsim.matmul(a, b, device="h200", threads=1)
    strided = np.zeros((1200, 201), np.float16)
    strided[::2, ::3] = a
    seen: list[float] = []
    got = hwsim.matmul(strided[::2, ::3], np.asfortranarray(b)[:, ::-1], device="h200", threads=2, progress=seen.append)
    assert np.array_equal(bits(got), bits(np.ascontiguousarray(whole[:, ::-1])))
    assert seen[-1] == 1.0
    split = hwsim.matmul(a, b, device="h200", schedule=Schedule(slice_k=17), threads=1)
    again = hwsim.matmul(a, b, device="h200", schedule=Schedule(slice_k=17), threads=2)
    assert np.array_equal(bits(split), bits(again))


def test_progress_goes_from_product_to_product() -> None:
    rng, seen = np.random.default_rng(7), list[float]()
    a, b = rng.standard_normal((5, 40)), rng.standard_normal((40, 3))
    hwsim.matmul(a, b, device="h200", scheme="ozaki-int8", slices=5, truncate=False, progress=seen.append)
    assert seen == pytest.approx([i / 25 for i in range(1, 26)])


def test_fp64_is_an_fma_chain() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((3, 67)) * 10.0 ** rng.integers(-5, 5, (3, 67)), rng.standard_normal((67, 2))
    with gmpy2.context(gmpy2.ieee(64)):
        want = np.zeros((3, 2))
        for i in range(3):
            for j in range(2):
                acc = gmpy2.mpfr(0)
                for x, y in zip(a[i], b[:, j], strict=True):
                    acc = gmpy2.fma(gmpy2.mpfr(float(x)), gmpy2.mpfr(float(y)), acc)
                want[i, j] = float(acc)
    for given in ({}, {"format": "fp64"}):
        got = hwsim.matmul(a, b, device="h200", **given)
        assert got.dtype == np.float64 and np.array_equal(got, want)
    halves = hwsim.matmul(a, b, device="h200", schedule=Schedule(slice_k=32))
    parts = [hwsim.matmul(a[:, i : i + 32], b[i : i + 32], device="h200") for i in (0, 32, 64)]
    assert np.array_equal(halves, (parts[0] + parts[1]) + parts[2])


def test_int8_wraps_and_takes_an_epilogue() -> None:
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((5, 67), (67, 6)))
    c = rng.integers(-(1 << 31), 1 << 31, (5, 6)).astype(np.int32)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    for device in ("h200", "b200", "mi300x", "ascend910a"):
        assert np.array_equal(hwsim.matmul(a, b, device=device), exact)
        assert np.array_equal(hwsim.matmul(a.view(np.uint8), b.view(np.uint8), device=device, format="int8"), exact)
    got = hwsim.matmul(a, b, c, device="h200", alpha=-3, beta=7)
    want = (-3 * exact + 7 * c.astype(np.int64)) & 0xFFFFFFFF
    assert np.array_equal(got.view(np.uint32), want.astype(np.uint32))
    as_float = hwsim.matmul(a, b, device="h200", output="fp32", alpha=0.1)
    assert np.array_equal(as_float, F32(0.1) * exact.astype(F32))
    with pytest.raises(InputError, match="whole numbers"):
        hwsim.matmul(a, b, device="h200", alpha=0.5)


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Rounded once to fp32."""
    with gmpy2.context(gmpy2.ieee(32)):
        out = [
            float(gmpy2.fma(*(gmpy2.mpfr(float(v)) for v in t)))
            for t in zip(*(v.ravel() for v in np.broadcast_arrays(x, y, z)), strict=True)
        ]
    return np.array(out, F32).reshape(np.broadcast_shapes(x.shape, y.shape, z.shape))


def test_epilogue() -> None:
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((9, 130)).astype(np.float16), rng.standard_normal((130, 8)).astype(np.float16)
    c, bias = rng.standard_normal((9, 8), F32) * 30, rng.standard_normal(8, F32)
    acc = hwsim.matmul(a, b, device="h200")
    al, be = F32(1.7), F32(0.3)

    def run(**given: object) -> np.ndarray:
        return hwsim.matmul(a, b, c, device="h200", **given)

    assert np.array_equal(run(), acc + c)
    assert np.array_equal(run(beta=0), acc)
    assert np.array_equal(run(alpha=1.7, beta=0), al * acc)
    plain = {"epilogue": {"contraction": "none"}}
    assert np.array_equal(run(alpha=1.7, beta=0.3, schedule=plain), al * acc + be * c)
    assert np.array_equal(run(alpha=1.7, beta=0.3), fma(np.full_like(acc, al), acc, be * c))
    at_beta = {"epilogue": {"contraction": "beta"}}
    assert np.array_equal(run(alpha=1.7, beta=0.3, schedule=at_beta), fma(np.full_like(acc, be), c, al * acc))
    split = hwsim.matmul(a, b, device="h200", schedule={"split_k": 2})
    merged = run(alpha=1.7, beta=0.3, schedule={"split_k": 2})
    assert np.array_equal(merged, fma(np.full_like(acc, be), c, al * split))
    assert not np.array_equal(run(alpha=1.7, beta=0.3), al * acc + be * c)
    assert np.array_equal(run(bias=bias), (acc + c) + bias)
    half = c.astype(np.float16)
    got = hwsim.matmul(a, b, half, device="h200", output="fp16")
    assert got.dtype == np.float16 and np.array_equal(got, (acc + half.astype(F32)).astype(np.float16))
    assert np.array_equal(got, hwsim.matmul(a, b, half.view(np.uint16), device="h200", output="fp16"))
    to_bf16 = Epilogue(output_format="bf16", output_rounding="RZ")
    cut = hwsim.matmul(a, b, device="h200", schedule=Schedule(epilogue=to_bf16))
    assert np.array_equal(bits(cut), (bits(acc) >> 16).astype(np.uint16))
    assert np.isinf(hwsim.matmul(a, b, device="h200", output="fp16", alpha=1e6)).any()
    # start="c": C is the first step's accumulator
    spec = dot_spec(load("h200"), load("h200").native["fp16"])
    want = reference.gemm(spec, DotOperands(bits(a), bits(b), bits(c)))
    assert np.array_equal(bits(run(schedule=Schedule(start="c"))), want)
    assert not np.array_equal(want, bits(acc + c))


def test_operand_rounding() -> None:
    rng = np.random.default_rng(11)
    a, b = rng.standard_normal((5, 40), F32), rng.standard_normal((40, 6), F32)
    cut = [(bits(x) & np.uint32(0xFFFFE000)).view(F32) for x in (a, b)]
    by_rz = hwsim.matmul(a, b, device="h200", format="tf32", schedule=Schedule(operand_rounding="RZ"))
    assert np.array_equal(by_rz, hwsim.matmul(*cut, device="h200", format="tf32"))
    raw = hwsim.matmul(a, b, device="h200", input_format="tf32", format="tf32")  # the unit drops the low bits itself
    assert np.array_equal(by_rz, raw)
    nearest = hwsim.matmul(a, b, device="h200", format="tf32")
    rounded = [((bits(x) + np.uint32(0xFFF) + (bits(x) >> 13 & 1)) & np.uint32(0xFFFFE000)).view(F32) for x in (a, b)]
    assert np.array_equal(nearest, hwsim.matmul(*rounded, device="h200", input_format="tf32", format="tf32"))
    assert not np.array_equal(nearest, by_rz)
    with pytest.raises(InputError, match="plans with one piece"):
        hwsim.matmul(a, b, device="h200", scheme="sgemm-cube", schedule=Schedule(operand_rounding="RZ"))


def test_special_values_of_elementwise_steps() -> None:
    a, b = np.ones((1, 256), np.float16), np.ones((256, 1), np.float16)
    a[0, 0], a[0, 200] = np.inf, -np.inf
    for schedule in (None, Schedule(slice_k=128), Schedule(promotion_k=128)):
        got = hwsim.matmul(a, b, device="h200", schedule=schedule)
        assert bits(got)[0, 0] == 0x7FFFFFFF
    half = hwsim.matmul(a, b, device="h200", schedule=Schedule(slice_k=128), output="fp16")
    assert bits(half)[0, 0] == 0x7FFF
    # The 910A saturates: largest + 128 ones - largest - ..., no infinity and no NaN anywhere.
    got = hwsim.matmul(a, b, device="ascend910a", schedule=Schedule(slice_k=128))
    assert np.isfinite(got).all()
    top = hwsim.matmul(np.full((1, 2), 6e4, F32), np.full((2, 1), 6e4, F32), device="ascend910a", output="fp16")
    assert top[0, 0] == np.finfo(np.float16).max
    over = hwsim.matmul(np.full((1, 2), 6e4, F32), np.full((2, 1), 6e4, F32), device="h200", output="fp16")
    assert over[0, 0] == np.inf


@pytest.mark.parametrize("scheme", ["native", "sgemm-cube"])
@pytest.mark.parametrize("options", [{}, {"k_group": 64}])
def test_the_evaluator_gives_the_bits_of_the_program(scheme: str, options: dict) -> None:
    rng = np.random.default_rng(12)
    a, b = rng.standard_normal((33, 300), F32) * 40, rng.standard_normal((300, 21), F32)
    a[0, 0], b[5, 5] = np.inf, np.nan
    program = hwsim.run(a, b, device="ascend910a", scheme=scheme, timing=False, functional=True, **options)
    assert program.schedule is None and "schedule" not in program.evidence
    group = program.options["k_group"]
    direct = hwsim.run(a, b, device="ascend910a", scheme=scheme, schedule=Schedule(promotion_k=group), timing=False)
    assert np.array_equal(program.codes, direct.codes)
    assert direct.schedule is not None and direct.schedule["promotion_k"] == group
    if scheme == "sgemm-cube":
        joined = {"accumulation": "elementwise", **options}
        program = hwsim.run(a, b, device="ascend910a", scheme=scheme, timing=False, functional=True, **joined)
        group = program.options["k_group"]
        joined["k_group"] = group
        direct = hwsim.run(a, b, device="ascend910a", scheme=scheme, schedule={}, timing=False, **joined)
        assert np.array_equal(program.codes, direct.codes)


def test_result_says_what_it_rests_on() -> None:
    r = hwsim.run(m=8, n=8, k=70, device="h200", format="fp16", schedule=Schedule(split_k=2))
    assert r.cycles is not None and [phase["name"] for phase in r.phases][-1] == "merge_gemm"
    assert {name: r.evidence[name] for name in ("numerics", "schedule")} == {
        "numerics": "silicon",
        "schedule": "assumption",  # the caller's own
    }
    assert r.schedule is not None and Schedule.from_dict(r.schedule).split_k == 2
    assert np.array_equal(r.codes, bits(r.c))
    assert hwsim.run(m=8, n=8, k=8, device="a100").evidence["schedule"] == "assumption"
    assert hwsim.run(m=8, n=8, k=8, device="h200", format="int8").evidence["schedule"] == "assumption"
    timed = hwsim.run(m=32, n=32, k=32, device="ascend910a", rows=[1])
    assert timed.cycles is not None and timed.c.shape == (1, 32)
    rounded = Schedule(epilogue=Epilogue(alpha=2, product_format="fp64"))
    untimed = hwsim.run(m=32, n=32, k=32, device="ascend910a", schedule=rounded)
    assert untimed.cycles is None and "product_format" in untimed.timing_note
    other = load("h200").model_copy(update={"family": "another"})
    with pytest.raises(UnsupportedError, match="no dataflow"):
        hwsim.run(m=8, n=8, k=8, device=other, exact=False)


def test_formats_follow_the_input_and_codes_are_codes() -> None:
    rng = np.random.default_rng(13)
    for fmt in ("bf16", "fp16", "e4m3", "e5m2"):
        a, b = drawn(rng, fmt, (4, 40)), drawn(rng, fmt, (40, 3))
        typed = [x.view(array_dtype(FORMATS[fmt])) for x in (a, b)]
        want = chain(a, b, fmt)
        for left, right, given in (
            (*typed, {}),
            (a, b, {"format": fmt}),
            (a, b, {"input_format": fmt, "format": fmt}),
        ):
            assert np.array_equal(bits(hwsim.matmul(left, right, device="h200", **given)), want), fmt
    with pytest.raises(InputError, match="A: an array of bf16"):
        hwsim.matmul(np.zeros((2, 2), F32), np.zeros((2, 2), F32), device="h200", input_format="bf16")
    with pytest.raises(UnsupportedError, match="no native 'e4m3'"):
        hwsim.matmul(np.zeros((2, 2), F32), np.zeros((2, 2), F32), device="a100", format="e4m3")
    with pytest.raises(UnsupportedError, match="no native 'hf32'"):
        hwsim.matmul(np.zeros((2, 2), F32), np.zeros((2, 2), F32), device="h200", format="hf32")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"beta": 1.0}, "needs a C"),
        ({"c": np.zeros((3, 3), F32)}, "C has shape"),
        ({"bias": np.zeros(3, F32)}, "bias has shape"),
        ({"alpha": 2, "schedule": Schedule(epilogue=Epilogue(alpha=3))}, "alpha = 2.0, but the schedule says 3"),
        ({"schedule": {"split": 2}}, "unknown key 'split'.*did you mean 'split_k'"),
        ({"schedule": 3}, "got int"),
        ({"schedule": {"slice_k": (1, 2)}}, "adds up to 3"),
        ({"schedule": {"slice_k": 2, "merge_order": (0,)}}, "names 1 slices, but K = 4"),
        ({"schedule": {"promotion_k": 2}, "k_group": 4}, "promotion_k = 2"),
        ({"schedule": {"instruction": "wgmma.m64n8k17.f32.f16.f16"}}, "has no instruction"),
        ({"tile": (16, 16, 16), "schedule": {"k_permutation": (1, 0)}}, "tile: for a device's program"),
        ({"accumulate": "promoted"}, "8-bit float"),
        ({"output": "fp17"}, "not a format"),
        ({"threads": 0}, "threads = 0"),
    ],
)
def test_what_does_not_fit_is_said(arguments: dict, text: str) -> None:
    a, b = np.ones((2, 4), np.float16), np.ones((4, 2), np.float16)
    with pytest.raises((InputError, UnsupportedError), match=text):
        hwsim.matmul(a, b, device="h200", **arguments)
