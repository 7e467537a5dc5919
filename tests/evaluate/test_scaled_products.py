"""Products of operands with scales, beside straight-line readings in exact fractions and plain NumPy."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import hwsim
from hwsim.devices import dot_spec, load
from hwsim.errors import InputError, UnsupportedError
from hwsim.format_arrays import describe
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

F32 = np.float32
E4M3 = ml_dtypes.float8_e4m3fn
M, N, K = 7, 5, 300
ORDERS = ("joined", "a", "b")


def operands(seed: int = 0, m: int = M, n: int = N, k: int = K) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k)).astype(E4M3), rng.standard_normal((k, n)).astype(E4M3)


def scales(seed: int, *shape: int) -> NDArray[np.float32]:
    return (0.01 + np.random.default_rng(seed).random(shape)).astype(F32)


def rounded(value: Fraction) -> np.float32:
    """A fraction rounded once to fp32, to nearest even, by its neighbours."""
    near = F32(float(value))
    around = [np.nextafter(near, F32(side)) for side in (-np.inf, np.inf)]
    distances = [(abs(Fraction(float(x)) - value), int(np.array(x).view(np.uint32)) & 1, x) for x in (near, *around)]
    return min(distances)[2]


def fma(x: Any, y: Any, z: Any) -> np.float32:
    return rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape_b", [(N, 3), (1, 3)])
def test_blocks_along_k_are_multiplied_and_added_in_one_rounding(order: str, shape_b: tuple[int, int]) -> None:
    a, b = operands()
    sa, sb = scales(1, M, 3), scales(2, *shape_b)
    got = hwsim.matmul(a, b, device="h200", format="e4m3", scale_a=sa, scale_b=sb, scale_order=order)
    of_b = np.broadcast_to(sb, (N, 3))
    parts = [
        hwsim.matmul(a[:, at : at + 128], b[at : at + 128], device="h200", format="e4m3") for at in range(0, K, 128)
    ]
    for i in range(M):
        for j in range(N):
            total = F32(0)
            for block, part in enumerate(parts):
                p, x, y = part[i, j], sa[i, block], of_b[j, block]
                total = {
                    "joined": lambda p=p, x=x, y=y, t=total: fma(x * y, p, t),
                    "a": lambda p=p, x=x, y=y, t=total: fma(p * x, y, t),
                    "b": lambda p=p, x=x, y=y, t=total: fma(p * y, x, t),
                }[order]()
            assert got[i, j] == total


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rows", [(M, N), (1, 1), (M, 1)])
def test_factors_of_rows_and_tensors_multiply_the_sum(order: str, rows: tuple[int, int]) -> None:
    a, b = operands(3)
    x, y = scales(4, rows[0], 1), scales(5, rows[1], 1)
    bias = scales(6, N)
    got = hwsim.matmul(a, b, device="h200", format="e4m3", scale_a=x, scale_b=y, scale_order=order, bias=bias)
    total, z = hwsim.matmul(a, b, device="h200", format="e4m3"), y.T
    want = {"joined": (x * z) * total, "a": (total * x) * z, "b": (total * z) * x}[order] + bias
    assert np.array_equal(got, want)
    assert not np.array_equal(got, (total.astype(np.float64) * x * z + bias).astype(F32)) or rows == (1, 1)


VECTORS = [
    ("e4m3", "e4m3", "ue8m0", 32),
    ("e5m2", "e5m2", "ue8m0", 32),
    ("e2m3", "e2m3", "ue8m0", 32),
    ("e2m1", "e2m1", "ue8m0", 32),
    ("e2m1", "e2m1", "ue8m0", 16),
    ("e2m1", "e2m1", "ue4m3", 16),
]


@pytest.mark.parametrize(("first", "second", "scale", "block"), VECTORS)
@pytest.mark.parametrize("k", [64, 40, 200])
def test_vectors_are_scaled_inside_the_instruction(first: str, second: str, scale: str, block: int, k: int) -> None:
    """Against the integer reference, over random codes: NaNs of scales and elements, and the scale 0, included."""
    rng = np.random.default_rng(k)
    width = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e2m1": 4}
    a, b = (rng.integers(0, 1 << width[fmt], shape, np.uint8) for fmt, shape in ((first, (M, k)), (second, (k, N))))
    blocks = -(-k // block)
    sa, sb = (rng.integers(100, 150, (rows, blocks), np.uint8) for rows in (M, N))
    if scale == "ue4m3":
        sa, sb = (rng.integers(0, 128, (rows, blocks), np.uint8) for rows in (M, N))
    if (scale, block) == ("ue8m0", 16):  # codes alone would be ue4m3's
        sa, sb = (x.view(ml_dtypes.float8_e8m0fnu) for x in (sa, sb))
    codes_a, codes_b = sa.view(np.uint8), sb.view(np.uint8)
    codes_a[0, 0], codes_b[1, 0] = 0xFF if scale == "ue8m0" else 0x7F, 0
    result = hwsim.run(a, b, device="b200", input_format=first, scale_a=sa, scale_b=sb, timing=False)
    chip = load("b200")
    spec = dot_spec(chip, result.gemm.unit)
    assert (spec.scale_format, spec.scale_block) == (scale, block)
    long = -(-k // 64) * 64 if first == "e2m1" else -(-k // 32) * 32
    pad = long - k
    more = long // block - blocks
    unit = 0x7F if scale == "ue8m0" else 0x38
    operands = DotOperands(
        np.pad(a, ((0, 0), (0, pad))),
        np.pad(b, ((0, pad), (0, 0))),
        np.zeros((M, N), np.uint32),
        np.pad(codes_a, ((0, 0), (0, more)), constant_values=unit),
        np.pad(codes_b.T, ((0, more), (0, 0)), constant_values=unit),
    )
    assert np.array_equal(result.c.view(np.uint32), reference.gemm(spec, operands))
    assert np.isnan(result.c[0]).all()


def test_factors_of_nvfp4_are_joined_or_applied_in_turn() -> None:
    a, b = np.ones((128, 256), ml_dtypes.float4_e2m1fn), np.ones((256, 128), ml_dtypes.float4_e2m1fn)
    blocks = np.full((128, 16), 0x38, np.uint8)
    options = {"device": "b200", "scale_a": blocks, "scale_b": blocks, "tensor_scales": (1e37, 1e-37)}
    assert (hwsim.matmul(a, b, **options) == 256).all()
    assert np.isinf(hwsim.matmul(a, b, scale_order="a", **options)).all()
    assert np.allclose(hwsim.matmul(a, b, scale_order="b", **options), 256, rtol=1e-6)


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp6", "mxfp4", "nvfp4", "fp8-block", "fp8-row"])
def test_schemes_quantise_what_is_not_quantised(scheme: str) -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((20, 130)).astype(F32), rng.standard_normal((130, 9)).astype(F32)
    device = "h200" if scheme.startswith("fp8") else "b200"
    result = hwsim.run(a, b, device=device, scheme=scheme, timing=False)
    names = ("fp8-1x128", "fp8-128x128") if scheme == "fp8-block" else (scheme, scheme)
    left, right = hwsim.quantize(a, names[0]), hwsim.quantize(b, names[1], axis=-2)
    factors = {} if left.factor is None else {"tensor_scales": (left.factor, right.factor)}
    given = {"scale_a": left.scales, "scale_b": right.scales, **factors}
    again = hwsim.matmul(left.elements, right.elements, device=device, **given)
    assert np.array_equal(result.c, again)
    same = hwsim.matmul(left.elements, right.elements, device=device, scheme=scheme, **given)
    assert np.array_equal(result.c, same)
    exact = hwsim.dequantize(left).astype(np.float64) @ hwsim.dequantize(right)
    assert np.abs(result.c - exact).max() < 2e-3 * np.abs(exact).max()
    assert result.error.arithmetic.relative_frobenius < 1e-3
    part = hwsim.matmul(a, b, device=device, scheme=scheme, rows=slice(3, 17), cols=[8, 0])
    assert np.array_equal(part, result.c[3:17][:, [8, 0]])


def test_a_saved_record_takes_scales_beside_it() -> None:
    a, b = operands(9)
    sa, sb = scales(1, M, 3), scales(2, N, 3)
    result = hwsim.run(a, b, device="h200", scale_a=sa, scale_b=sb, scale_order="a", timing=False)
    written = json.loads(result.gemm.to_json())
    assert written["problem"]["a"]["scale"] == {"is": "OperandScale", "format": "fp32", "rows": 1, "k": 128}
    again = hwsim.run(a, b, gemm=written, scale_a=sa, scale_b=sb, timing=False)
    assert np.array_equal(again.c, result.c) and again.gemm.digest == result.gemm.digest
    with pytest.raises(InputError, match="scale_a"):
        hwsim.run(a, b, gemm=written, timing=False)


@pytest.mark.parametrize("name", ["deepgemm", "cutlass", "cublas"])
def test_libraries_agree_where_scales_are_powers_of_two(name: str) -> None:
    a, b = operands(11, 8, 16, 512)
    sa, sb = np.exp2(np.round(scales(1, 8, 4) * 9)), np.exp2(np.round(scales(2, 16, 4) * 9) - 5)
    plain = hwsim.matmul(a, b, device="h100", scale_a=sa, scale_b=sb)
    options = {"scale_a": sa, "scale_b": sb, "b_layout": "columns"}
    assert np.array_equal(hwsim.matmul(a, b, device="h100", library=name, output="fp32", **options), plain)


def test_libraries_multiply_in_their_own_order() -> None:
    a, b = operands(12, 8, 16, 512)
    sa, sb = scales(1, 8, 4), scales(2, 16, 4)
    orders = {"deepgemm": "joined", "cutlass": "a", "cublas": "a"}
    for name, order in orders.items():
        options = {"scale_a": sa, "scale_b": sb, "output": "fp32", "b_layout": "columns", "timing": False}
        result = hwsim.run(a, b, device="h100", library=name, **options)
        assert result.gemm.schedule.scale_order == order
        want = hwsim.matmul(a, b, device="h100", scale_a=sa, scale_b=sb, scale_order=order)
        assert np.array_equal(result.c, want)
    with pytest.raises(UnsupportedError, match="no scales"):
        hwsim.run(a, b, device="h100", library="deepgemm")
    with pytest.raises(UnsupportedError, match="deepgemm is for chips of sm90; b200 is of sm100"):
        hwsim.run(a, b, device="b200", library="deepgemm", scale_a=sa, scale_b=sb)
    with pytest.raises(InputError, match="scale_order"):
        hwsim.run(a, b, device="h100", library="cublas", scale_a=sa, scale_b=sb, scale_order="b")


@pytest.mark.parametrize("shape_a", [(1, 3), (2, 3), (2, 1)])
@pytest.mark.parametrize("shape_b", [(1, 3), (2, 3), (2, 1)])
def test_scales_of_more_than_128_rows_are_those_of_each_row(shape_a: tuple[int, int], shape_b: tuple[int, int]) -> None:
    """One for 128 rows or for all of them, of each 128 of K or of all of K."""
    a, b = operands(8, 130, 150)
    given = scales(7, *shape_a), scales(9, *shape_b)
    each = [np.repeat(x, 128 if len(x) == 2 else rows, 0)[:rows] for x, rows in zip(given, (130, 150), strict=True)]
    if shape_a[1] != shape_b[1]:
        with pytest.raises(InputError, match="allowed: both of rows"):
            hwsim.matmul(a, b, device="h200", scale_a=given[0], scale_b=given[1])
        return
    got = hwsim.matmul(a, b, device="h200", scale_a=given[0], scale_b=given[1])
    assert np.array_equal(got, hwsim.matmul(a, b, device="h200", scale_a=each[0], scale_b=each[1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale_a": np.ones((M, 1))}, "give both"),
        ({"scale_a": np.ones((M, 2)), "scale_b": np.ones((N, 2))}, r"scale_a has shape \(7, 2\); allowed"),
        ({"scale_a": np.ones((M, 1)), "scale_b": np.ones((N, 3))}, "allowed: both of rows"),
        (
            {"scale_a": np.ones((M, 4), np.uint8), "scale_b": np.ones((N, 4), np.uint8)},
            r"e4m3; allowed: \(7, 10\) of ue8m0 ",
        ),
        ({"scale_a": np.ones((M, 10), np.uint8), "scale_b": np.ones((N, 10), np.uint8)}, "no matrix instruction"),
        ({"tensor_scales": (1, 2, 3)}, "two numbers"),
    ],
)
def test_scales_that_do_not_fit_are_said(options: dict[str, Any], message: str) -> None:
    a, b = operands()
    with pytest.raises((InputError, UnsupportedError), match=message):
        hwsim.run(a, b, device="h200", format="e4m3", **options)


CODES = np.random.default_rng(4).integers(0, 16, (24, 128), dtype=np.uint8)  # of e2m1
NV_SCALES = np.random.default_rng(5).integers(30, 80, (24, 8), dtype=np.uint8)  # of ue4m3


def test_an_error_of_scales_names_the_formats_that_were_given() -> None:
    call = {"input_format": "e2m1", "scale_a": NV_SCALES[:16], "scale_b": NV_SCALES}
    with pytest.raises(UnsupportedError, match=r"for e2m1 x e2m1 with scales of ue4m3 by 16 .*: b200, ") as said:
        hwsim.matmul(CODES[:16], CODES.T, device="h200", **call)
    assert "fp16" not in str(said.value) and "h200" not in str(said.value).rpartition(": ")[2]
    with pytest.raises(UnsupportedError, match=r"for fp32 x fp32 with scales of ue4m3.*: none$"):
        numbers = CODES.astype(np.float32)
        hwsim.matmul(numbers[:16], numbers.T, device="h200", scale_a=NV_SCALES[:16], scale_b=NV_SCALES)


@pytest.mark.parametrize(
    ("scales", "said"),
    [
        (
            NV_SCALES.T,
            r"\(8, 24\) of uint8.*\(24, 8\) of ue4m3.*or \(24, 4\) of ue8m0.*of B; its transpose fits$",
        ),
        (NV_SCALES[:, :4].T, "its transpose fits$"),
        (NV_SCALES[:, :3], "column of B$"),
        (NV_SCALES[:23], r"\(24, 8\) of ue4m3"),
        (NV_SCALES.T.view(ml_dtypes.float8_e8m0fnu), r"allowed: \(24, 4\) of ue8m0 \(32 of K\), a"),
    ],
)
def test_an_error_of_scales_names_the_shapes_of_what_was_given(scales: Any, said: str) -> None:
    call = {"device": "b200", "input_format": "e2m1", "scale_a": NV_SCALES[:16]}
    with pytest.raises(InputError, match=f"^scale_b has shape .*{said}"):
        hwsim.matmul(CODES[:16], CODES.T, scale_b=scales, **call)


def test_the_unused_bit_of_ue4m3_changes_nothing() -> None:
    call = {"device": "b200", "input_format": "e2m1", "scale_b": NV_SCALES}
    plain, marked = (hwsim.matmul(CODES[:16], CODES.T, scale_a=NV_SCALES[:16] | bit, **call) for bit in (0, 0x80))
    assert np.array_equal(plain, marked) and describe("ue4m3")["unused_bits"] == 1


def test_stacks_and_formats_with_scales_are_refused_by_name() -> None:
    a, b = operands()
    with pytest.raises(UnsupportedError, match="stacks of matrices"):
        hwsim.run(np.stack([a, a]), b, device="h200", scale_a=np.ones((M, 1)), scale_b=np.ones((N, 1)))
    with pytest.raises(UnsupportedError, match="scheme='nvfp4'"):
        hwsim.run(m=64, n=64, k=64, device="b200", format="nvfp4")


@pytest.mark.parametrize(("m", "n"), [(1, 6), (6, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["row", "tensor"])
def test_one_row_or_column_with_scales(m: int, n: int, kind: str) -> None:
    """As the same row and column of a larger product: each has its own sum and its own factors."""
    a, b = operands(3, 6, 6)
    sa, sb = (scales(1, 6, 1), scales(2, 6, 1)) if kind == "row" else (scales(1, 1, 1), scales(2, 1, 1))
    whole = hwsim.matmul(a, b, device="h200", format="e4m3", scale_a=sa, scale_b=sb)
    of_a, of_b = (sa[:m], sb[:n]) if kind == "row" else (sa, sb)
    part = hwsim.matmul(a[:m], b[:, :n], device="h200", format="e4m3", scale_a=of_a, scale_b=of_b)
    np.testing.assert_array_equal(part, whole[:m, :n])


def test_one_selected_row_with_scales() -> None:
    a, b = operands(4)
    given = {"device": "h200", "format": "e4m3", "scale_a": scales(1, M, 1), "scale_b": scales(2, N, 1)}
    whole = hwsim.matmul(a, b, **given)
    np.testing.assert_array_equal(hwsim.run(a, b, rows=[3], **given).c, whole[[3]])


@pytest.mark.parametrize(("device", "fmt", "block"), [("h200", "e4m3", 128), ("b200", "mxfp8", 32)])
def test_slices_of_k_begin_where_blocks_of_scales_begin(device: str, fmt: str, block: int) -> None:
    a, b = operands(5, k=448)
    if fmt == "mxfp8":
        given: dict[str, Any] = {"scheme": "mxfp8"}
        a, b = a.astype(F32), b.astype(F32)
        exact = a.astype(float) @ b.astype(float)
    else:
        sa, sb = 2.0 ** np.arange(M * 4).reshape(M, 4).astype(F32) / 2**14, np.ones((N, 4), F32)
        given = {"format": "e4m3", "scale_a": sa, "scale_b": sb}
        exact = (a.astype(float) * np.repeat(sa, 128, 1)[:, :448]) @ b.astype(float)
    size = np.abs(exact).max(1, keepdims=True)
    for count in (2, 3):
        result = hwsim.run(a, b, device=device, split_k=count, **given)
        starts = np.cumsum(result.gemm.schedule.slice_lengths(448))[:-1]
        assert not (starts % block).any()
        assert (np.abs(result.c - exact) <= 0.05 * size).all()  # another block's scale is off by 2 and more
    with pytest.raises(InputError, match=f"inside a block of scales; allowed: multiples of {block}"):
        hwsim.run(
            a,
            b,
            device=device,
            schedule={"slice_k": [48 if block == 32 else 192, 400 if block == 32 else 256]},
            **given,
        )


def test_calls_with_scales_are_not_cut_into_slices_of_calls() -> None:
    a, b = operands(6, k=512)
    with pytest.raises(UnsupportedError, match="calls of operands with scales are not merged"):
        hwsim.run(
            a,
            b,
            device="h100",
            format="e4m3",
            library="cublas",
            split_k=2,
            scale_a=scales(1, M, 1),
            scale_b=scales(2, N, 1),
        )


@pytest.mark.parametrize(("shape_a", "shape_b"), [((300, 1), (1, 1)), ((300, 1), (2, 1)), ((3, 1), (200, 1))])
def test_one_block_along_k_is_read_as_the_other_side_says(shape_a: tuple[int, int], shape_b: tuple[int, int]) -> None:
    """K = 128: by DeepGEMM's kernels, as with the blocks written out."""
    m, n, k = 300, 200 if shape_b != (1, 1) else 100, 128
    a, b = operands(7, m, n, k)
    sa, sb = scales(1, *shape_a), scales(2, *shape_b)
    given = {"device": "h100", "format": "e4m3", "output": "bf16", "library": "deepgemm"}
    if shape_b == (1, 1):
        sb = scales(2, n, 1)
    got = hwsim.run(a, b, scale_a=sa, scale_b=sb, **given) if shape_b == (2, 1) else None
    if got is not None:
        assert [x.scale.rows for x in got.gemm.problem.operands] == [1, 128]
        wide = np.repeat(sb, 128, 0)[:n]
        left, right = a.astype(float) * sa, b.astype(float) * wide[:, 0]
        np.testing.assert_allclose(got.c.astype(float), left @ right, rtol=0.02, atol=1e-3 * np.abs(left @ right).max())
    else:
        from hwsim.operands.scales import joined, scales_of

        first, second = scales_of("a", sa, (m, k), "e4m3"), scales_of("b", sb, (n, k), "e4m3")
        first, second = joined(first, second, m, n, k)
        assert (first.k is None) == (second.k is None)


def test_a_scale_of_one_row_is_a_rows_scale_beside_rows() -> None:
    choose = hwsim.library("cutlass", device="h100")
    a, b = operands(8, 1, 6, 256)
    result = hwsim.run(
        a,
        b,
        device="h100",
        format="e4m3",
        output="bf16",
        library="cutlass",
        scale_a=scales(1, 1, 1),
        scale_b=scales(2, 6, 1),
    )
    assert [x.scale.rows for x in result.gemm.problem.operands] == [1, 1] and choose.id.name == "cutlass"
