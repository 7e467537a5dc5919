"""Schemes through a library: each product is one call, which adds to the C of those before."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "lab" / "tools" / "library"))
import compare_schemes  # noqa: E402

SCHEMES = ROOT / "tests" / "golden" / "h200_schemes" / "schemes.npz"
CUBLAS = {"device": "h200", "library": "cublas"}
RAGGED = ((100, 77, 1001), (1, 64, 4096), (33, 200, 6000), (24, 160, 512), (130, 1, 100))


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Full significands and many magnitudes."""
    rng = np.random.default_rng([m, n, k])
    a, b = (rng.standard_normal(x) * 2.0 ** rng.integers(-9, 9, x) for x in ((m, k), (k, n)))
    return a.astype(np.float32), b.astype(np.float32)


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


def in_turn(pieces_a: list, pieces_b: list, pairs: tuple[tuple[int, int], ...], **options: object) -> np.ndarray:
    """The products as calls of scheme native, each with the C of the one before."""
    c = None
    for i, j in pairs:
        c = hwsim.matmul(pieces_a[i], pieces_b[j], c, **CUBLAS, **options)
    return c


def tf32(x: np.ndarray) -> np.ndarray:
    word = x.view(np.uint32).astype(np.uint64)
    return ((word + 0xFFF + ((word >> 13) & 1)) & ~np.uint64(0x1FFF)).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("sizes", RAGGED)
def test_tf32x3_is_three_calls(sizes: tuple[int, int, int]) -> None:
    a, b = operands(*sizes)
    left, right = ([tf32(x), tf32(x - tf32(x))] for x in (a, b))
    expected = in_turn(left, right, ((0, 0), (0, 1), (1, 0)), format="tf32")
    assert np.array_equal(bits(hwsim.matmul(a, b, scheme="tf32x3", **CUBLAS)), bits(expected))


@pytest.mark.parametrize("sizes", RAGGED)
def test_bf16x3_is_three_calls(sizes: tuple[int, int, int]) -> None:
    a, b = operands(*sizes)

    def halves(x: np.ndarray) -> list[np.ndarray]:
        high = x.astype(ml_dtypes.bfloat16)
        return [high, (x - high.astype(np.float32)).astype(ml_dtypes.bfloat16)]

    expected = in_turn(halves(a), halves(b), ((0, 1), (1, 0), (0, 0)), format="bf16", output="fp32")
    found = hwsim.run(a, b, scheme="bf16x3", **CUBLAS, timing=False)
    assert np.array_equal(bits(found.c), bits(expected))
    assert found.options["accumulation"] == "termwise" and found.gemm.library.name == "cublas"


def test_slices_that_add_to_d_add_to_the_c_of_the_calls_before() -> None:
    """CUTLASS's serial split-K: every slice of every call is added to C, so the order differs from whole products."""
    m, n, k = 3114, 660, 1001
    choice = hwsim.library("cublas", device="h200").choose(m=m, n=n, k=k, format="bf16", b_layout="columns")
    assert choice.schedule.merge_into == "output" and choice.split_k == 3
    a, b = operands(40, 24, k)
    at = {"shape": (m, n), "at": (np.arange(40), np.arange(24)), "b_layout": "columns"}
    found = hwsim.matmul(a, b, scheme="bf16x3", **CUBLAS, **at)
    high = [x.astype(ml_dtypes.bfloat16) for x in (a, b)]
    low = [(x - y.astype(np.float32)).astype(ml_dtypes.bfloat16) for x, y in zip((a, b), high, strict=True)]
    pairs = ((high[0], low[1]), (low[0], high[1]), (high[0], high[1]))
    call = CUBLAS | at | {"format": "bf16", "output": "fp32"}
    whole = [hwsim.matmul(x, y, **call) for x, y in pairs]
    c = None
    for x, y in pairs:
        c = hwsim.matmul(x, y, c, **call)
    assert np.array_equal(bits(found), bits(c))
    assert not np.array_equal(bits(found), bits((whole[0] + whole[1]) + whole[2]))


def test_products_of_integers_are_those_of_the_scheme() -> None:
    """int8 products are exact in any order; the call asks for A and B along K."""
    a, b = (x.astype(np.float64) for x in operands(40, 24, 128))
    plain = hwsim.matmul(a, b, device="h200", scheme="ozaki-int8")
    found = hwsim.run(a, b, **CUBLAS, scheme="ozaki-int8", timing=False)
    assert np.array_equal(found.c, plain) and found.gemm.problem.b_layout == "columns"


def test_sums_of_a_call_are_rounded_to_its_result_and_products_are_added_wider() -> None:
    """Ozaki's fp16 slices: cuBLAS merges the slices of K of a call in fp32, the scheme adds the calls in fp64."""
    m, n, k = 64, 64, 8192
    assert hwsim.library("cublas", device="h200").choose(m=m, n=n, k=k, format="fp16").split_k > 1
    a, b = (x.astype(np.float64) for x in operands(m, n, k))
    run = hwsim.run(a, b, **CUBLAS, scheme="ozaki-fp16", timing=False)
    assert run.gemm.schedule.merge_format == "fp32"
    assert np.array_equal(run.c, hwsim.matmul(a, b, device="h200", scheme="ozaki-fp16"))  # slices are exact in fp32


def test_recorded_schemes_need_no_hint() -> None:
    """As tests/golden/test_golden_schemes.py, with the library's own choice."""
    with np.load(SCHEMES) as archive:
        entries = [x for x in json.loads(str(archive["meta"]))["entries"] if x["scheme"] != "fp32" and x["k"] < 2000]
        assert len(entries) == 144
        for entry in entries:
            name, _, shift = entry["scheme"].partition(".")
            options = {"scaling_exponent": int(shift)} if shift else {}
            options |= {"rounding": "RNE"} if name == "markidis" else {}
            a, bt, d = (archive[f"{entry['case']}/{key}"] for key in ("a", "bt", f"{entry['scheme']}/d"))
            at = np.arange(len(a)), np.arange(len(bt))
            whole = entry["m"], entry["n"]
            c = hwsim.matmul(a, bt.T, **CUBLAS, scheme=name, b_layout="columns", shape=whole, at=at, **options)
            assert np.array_equal(bits(c), bits(d)), entry


@pytest.mark.parametrize(
    ("name", "device", "expected", "of"),
    [
        ("drawn", "h200", 156, 159),
        ("drawn", "h100", 156, 159),
        ("drawn2", "h200", 312, 312),
        ("drawn2", "h100", 312, 312),
    ],
)
def test_drawn_schemes_equal_the_calls_on_the_chip(name: str, device: str, expected: int, of: int) -> None:
    """Of the smaller shapes; docs/library.md has the whole. More is better, and then the page is behind."""
    equal, count, others = compare_schemes.compared(SCHEMES.parent / f"{name}_{device}.npz", device, 300_000)
    assert (sum(equal.values()), sum(count.values())) == (expected, of), others


def test_its_record_gives_bits_and_times_again() -> None:
    a, b = operands(96, 128, 4099)
    first = hwsim.run(a, b, **CUBLAS, scheme="tf32x3")
    again = hwsim.run(a, b, gemm=json.loads(first.gemm.to_json()))
    assert np.array_equal(bits(again.c), bits(first.c)) and again.seconds == first.seconds


def test_time_is_that_of_the_calls_and_of_the_passes_around_them() -> None:
    sizes = {"m": 2048, "n": 2048, "k": 2048, "exact": False}
    call = hwsim.run(**CUBLAS, format="tf32", **sizes).seconds
    three, four = (hwsim.run(**CUBLAS, scheme=name, **sizes).seconds for name in ("tf32x3", "tf32x4"))
    # all but the first call read C too
    assert 3 * call < three < 3.7 * call and 4 * call < four < 4.7 * call


@pytest.mark.parametrize(
    ("scheme", "options", "error", "message"),
    [
        ("le-gemm", {}, UnsupportedError, "share an accumulator"),
        ("ape", {}, UnsupportedError, "different plans"),
        ("ape-int16", {}, UnsupportedError, "int8 and uint8"),
        ("tf32x3", {"k_group": 64}, InputError, "leave k_group out"),
        ("bf16x9", {"accumulation": "bands"}, InputError, "termwise"),
        ("bf16x9", {"hybrid": True}, InputError, "hybrid"),
        ("tf32x3", {"alpha": 2.0}, UnsupportedError, "alpha of scheme tf32x3"),
        ("tf32x3", {"split_k": 2}, InputError, "decides split_k"),
    ],
)
def test_what_is_no_call_is_refused(scheme: str, options: dict, error: type, message: str) -> None:
    a, b = operands(16, 16, 64)
    if scheme == "ape-int16":
        a, b = (np.ones((16, 16), np.int16) for _ in range(2))
    with pytest.raises(error, match=message):
        hwsim.run(a, b, **CUBLAS, scheme=scheme, **options)


def test_the_tile_is_the_librarys() -> None:
    for more in ({"format": "bf16"}, {"scheme": "bf16x3"}):
        run = hwsim.run(**CUBLAS, **more, m=512, n=512, k=2048, exact=False)
        assert run.gemm.decided("tile").by == "library"
