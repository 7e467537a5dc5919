"""Results of an H100: instructions with a 2:4 sparse A, PyTorch's products by cuSPARSELt, FP64 that cuBLAS emulates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from modern import operand as drawn
from modern import picked, pruned

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.sparsity import group_of
from hwsim.schemes.fixedpoint import needed_bits, parts_of_k

HERE = Path(__file__).parent
SPARSE = np.load(HERE / "h100_sparse" / "instructions.npz")
CUSPARSELT = np.load(HERE / "h100_sparse" / "cusparselt.npz")
KERNELS = np.load(HERE / "h100_modern" / "kernels.npz")
DGEMM = np.load(HERE / "h100_emulated" / "dgemm.npz")
BITS = json.loads((HERE / "h100_emulated" / "bits.json").read_text())
MOST_ELEMENTS = 300_000  # of an operand, so that a test stays short
INSTRUCTIONS = sorted({key.split()[0] for key in SPARSE.files})
FLAGGED = {"fp16 4096x2048x1024"}  # more tiles than run at once: the order is not known, and the record says so


def dense_name(name: str) -> str:
    """The dense instruction with half the length of K."""
    kind, _, shape, d, a = name.split(".")
    head, k = shape.split("k")
    return ".".join([kind, f"{head}k{int(k) // 2}", d, a, a, *([d] if kind == "mma" else [])])


def stored_places(metadata: np.ndarray, fmt: str, length: int) -> np.ndarray:
    """Places along K of the stored elements, (cases, length); the words' first 16 bits repeat along K."""
    stored, elements = group_of(fmt)
    codes = np.stack([metadata >> (4 * i) & 0xF for i in range(4)], axis=1).astype(np.int64)
    groups = length // stored
    codes = np.tile(codes, (1, -(-groups // 4)))[:, :groups]
    within = (codes == 0b1110)[..., None] if stored == 1 else np.stack((codes & 3, codes >> 2), axis=-1)
    return (np.arange(groups)[:, None] * elements + within).reshape(len(metadata), -1)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_a_sparse_instruction_is_the_dense_one_on_the_stored_elements(name: str) -> None:
    """Steps take stored elements in their order, whatever their places: infinities and NaNs elsewhere have no part."""
    device = hwsim.device("h100")
    spec = dot_spec(device, dense_name(name))
    for kind in sorted({key.split()[1] for key in SPARSE.files if key.startswith(f"{name} ")}):
        a, b, c, d, metadata = (SPARSE[f"{name} {kind} {part}"] for part in ("a", "b", "c", "d", "metadata"))
        places = stored_places(metadata, spec.a, a.shape[-1])
        selected = np.take_along_axis(b, places[:, None, :], axis=2)
        operands = (x.astype(code_dtype(format_of(fmt))) for x, fmt in ((a, spec.a), (selected, spec.b), (c, spec.c)))
        left, right, start = operands
        result = CPU.gemm(spec, DotOperands(left, right.swapaxes(1, 2), start))
        assert np.array_equal(result.astype(d.dtype), d), kind


@pytest.mark.parametrize("name", [name for name in INSTRUCTIONS if "mma.sp.m16n8k64.f32" not in name])
def test_a_sparse_unit_covers_twice_the_length_of_k(name: str) -> None:
    """On the whole matrix, with zeros where nothing is stored, as programs and the evaluator multiply it."""
    device = hwsim.device("h100")
    kind, sp, shape, d_format, a_format = name.split(".")
    full = ".".join([kind, sp, shape, d_format, a_format, a_format, *([d_format] if kind == "mma" else [])])
    spec = dot_spec(device, full)
    for key in ("narrow", "spread", "subnormal", "holes"):
        a, b, c, d, metadata = (SPARSE[f"{name} {key} {part}"] for part in ("a", "b", "c", "d", "metadata"))
        if (
            format_of(spec.a).is_integer is False
            and not np.isfinite(
                CPU.decode(b.astype(code_dtype(format_of(spec.b))), format_of(spec.b), np.float32)
            ).all()
        ):
            continue
        places = stored_places(metadata, spec.a, a.shape[-1])
        whole = np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
        np.put_along_axis(whole, np.broadcast_to(places[:, None, :], a.shape), a, axis=2)
        left, right, start = (
            x.astype(code_dtype(format_of(fmt))) for x, fmt in ((whole, spec.a), (b, spec.b), (c, spec.c))
        )
        result = CPU.gemm(spec, DotOperands(left, right.swapaxes(1, 2), start))
        assert np.array_equal(result.astype(d.dtype), d), key


@pytest.mark.parametrize("key", [key for key in CUSPARSELT.files if not key.startswith("int8")])
def test_pytorchs_product_of_a_sparse_tensor(key: str) -> None:
    """`torch.mm` of what `to_sparse_semi_structured` gives, by cuSPARSELt."""
    fmt, sizes = key.split()
    m, n, k = map(int, sizes.split("x"))
    rows, cols = picked(m, 64, 1)[:16], picked(n, 64, 2)[:16]
    a, b = pruned(21, m, k, fmt, only=rows), drawn(22, n, k, fmt, only=cols).T
    asked = {"library": "pytorch", "sparsity": "2:4", "format": fmt, "output": fmt, "b_layout": "columns"}
    result = hwsim.run(a, b, device="h100", shape=(m, n), at=(rows, cols), timing=False, **asked)
    order = result.gemm.decided("order of summation")
    assert order is not None and (order.evidence == "assumption") == (key in FLAGGED)
    if key not in FLAGGED:
        assert np.array_equal(np.asarray(result.c).view(np.int16), CUSPARSELT[key])


@pytest.mark.parametrize("key", [key for key in KERNELS.files if key.startswith("sparse ")])
def test_pytorchs_whole_product_of_a_sparse_tensor(key: str) -> None:
    """The public captures; int8 saturates."""
    *_, fmt, sizes = key.split()
    m, n, k = map(int, sizes.split("x"))
    a, b = pruned(21, m, k, fmt), drawn(22, n, k, fmt).T
    asked = {"library": "pytorch", "sparsity": "2:4", "format": fmt, "output": fmt, "b_layout": "columns"}
    result = hwsim.matmul(a, b, device="h100", **asked)
    block = np.ascontiguousarray(result[np.ix_(picked(m, 64, 1), picked(n, 64, 2))])
    assert np.array_equal(block.view(KERNELS[key].dtype), KERNELS[key])
    if fmt == "int8":
        whole = hwsim.matmul(a, b, device="h100", **{**asked, "output": "int32"})
        assert np.array_equal(whole, a.astype(np.int32) @ b.astype(np.int32))
        assert (np.abs(whole) > 127).any()


def test_int8_of_pytorch_is_the_exact_sum_at_the_ends_of_its_range() -> None:
    for key in (key for key in CUSPARSELT.files if key.startswith("int8")):
        m, n, k = map(int, key.split()[1].split("x"))
        rows, cols = picked(m, 64, 1)[:16], picked(n, 64, 2)[:16]
        a, b = pruned(21, m, k, "int8", only=rows), drawn(22, n, k, "int8", only=cols).T
        asked = {"library": "pytorch", "sparsity": "2:4", "output": "int8", "b_layout": "columns"}
        result = hwsim.run(a, b, device="h100", shape=(m, n), at=(rows, cols), timing=False, **asked)
        assert np.array_equal(np.asarray(result.c).view(np.uint8), CUSPARSELT[key])


def wide(a: np.ndarray, m: int, k: int, spread: str) -> np.ndarray:
    """A with other exponents."""
    if spread == "0":
        return a
    return a * np.exp2(np.floor(drawn(53, m, k, "fp32") * np.float32(4 if spread == "1" else 60)).astype(np.float64))


PRODUCTS = [
    key
    for key in DGEMM.files
    if key.split()[0] in ("fixed39", "fixed55", "eager", "emulated") and key.split()[1] not in ("addmm", "native")
]


@pytest.mark.covering(("tag", "spread"), "sizes")
@pytest.mark.parametrize(
    ("key", "tag", "sizes", "spread"), [(key, *key.removeprefix("emulated ").split()) for key in PRODUCTS], ids=PRODUCTS
)
def test_fp64_as_cublas_emulates_it(key: str, tag: str, sizes: str, spread: str) -> None:
    m, n, k = map(int, sizes.split("x"))
    expected = DGEMM[key]
    a, b = wide(drawn(51, m, k, "fp64"), m, k, spread), drawn(52, n, k, "fp64").T
    bits = int(tag[5:]) if tag.startswith("fixed") else "dynamic"
    c = hwsim.matmul(a, b, device="h100", scheme="fixedpoint-fp64", bits=bits)
    part = np.ascontiguousarray(c[: expected.shape[0], : expected.shape[1]])
    assert np.array_equal(part.view(np.int64), expected)


@pytest.mark.parametrize("key", [key for key in DGEMM.files if key.split()[1] == "addmm"])
def test_c_beside_emulated_fp64(key: str) -> None:
    """alpha and beta: each part of K is scaled and added alone."""
    tag, _, sizes, alpha, beta = key.split()
    m, n, k = map(int, sizes.split("x"))
    a, b = wide(drawn(51, m, k, "fp64"), m, k, "1"), drawn(52, n, k, "fp64").T
    asked = {"bits": int(tag[5:]) if tag.startswith("fixed") else "dynamic", "alpha": float(alpha), "beta": float(beta)}
    c = hwsim.matmul(a, b, device="h100", scheme="fixedpoint-fp64", c=drawn(54, m, n, "fp64"), **asked)
    assert np.array_equal(np.ascontiguousarray(c[:8, :8]).view(np.int64), DGEMM[key])


@pytest.mark.parametrize("key", [key for key in DGEMM.files if key.startswith("chunks")])
def test_k_is_cut_as_cublas_cuts_it(key: str) -> None:
    """One element of each row was so large that what shares its exponent became zero: the sum counts all the others."""
    m, n, k = map(int, key.split()[1].split("x"))
    stride = 8
    while k // stride > 4 * m:
        stride *= 2
    counted = np.arange(k) % stride != 0  # B is zero where A is large
    ends = np.cumsum(parts_of_k(m, n, k))
    starts = np.concatenate([[0], ends[:-1]])
    parts = np.searchsorted(ends, np.arange(0, k, stride), side="right")
    inside = np.array([counted[start:end].sum() for start, end in zip(starts, ends, strict=True)])
    assert np.array_equal(counted.sum() - inside[parts], DGEMM[key])


@pytest.mark.parametrize("key", [key for key in BITS if int(key.split("x")[2].split()[0]) <= 1024])
def test_bits_that_the_data_need(key: str) -> None:
    sizes, spread = key.split()
    m, n, k = map(int, sizes.split("x"))
    if max(m, n) * k <= MOST_ELEMENTS:
        assert needed_bits(wide(drawn(51, m, k, "fp64"), m, k, spread), drawn(52, n, k, "fp64").T) == BITS[key]
