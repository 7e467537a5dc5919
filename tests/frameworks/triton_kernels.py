"""Triton kernels of the tests. The interpreter must be on before they are defined."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def product(
    a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr,
    IMP: tl.constexpr,
):  # fmt: skip
    """c (M, N) fp32 = a (M, K) b (K, N), tile by tile, K in steps of BK. IMP: max_num_imprecise_acc, or -1."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + steps
        x = tl.load(a + rows[:, None] * sam + k[None] * sak, mask=(rows[:, None] < M) & (k[None] < K), other=0.0)
        y = tl.load(b + k[:, None] * sbk + columns[None] * sbn, mask=(k[:, None] < K) & (columns[None] < N), other=0.0)
        if IMP == -1:
            acc = tl.dot(x, y, acc, input_precision=PREC)
        else:
            acc = tl.dot(x, y, acc, input_precision=PREC, max_num_imprecise_acc=IMP)
    tl.store(c + rows[:, None] * N + columns[None], acc, mask=(rows[:, None] < M) & (columns[None] < N))


@triton.jit
def batches(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """c (B, M, N) fp32 = a (B, M, K) b (B, K, N) by one dot of three dimensions."""
    batch, i, j, k = tl.arange(0, B), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + batch[:, None, None] * M * K + i[None, :, None] * K + k[None, None, :])
    y = tl.load(b + batch[:, None, None] * K * N + k[None, :, None] * N + j[None, None, :])
    tl.store(c + batch[:, None, None] * M * N + i[None, :, None] * N + j[None, None, :], tl.dot(x, y))


@triton.jit
def functions(x, y, z, out, scale, COUNT: tl.constexpr, ROUNDS: tl.constexpr):
    """out (7, COUNT) of fp32 x, y, z: functions, a sum of a product, sums over a loop's iterations, a scaled scalar."""
    i = tl.arange(0, COUNT)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(out + i, tl.math.exp2(a))
    tl.store(out + COUNT + i, tl.math.rsqrt(b))
    tl.store(out + 2 * COUNT + i, a * b + c)
    tl.store(out + 3 * COUNT + i, c - a * b)
    last = a * b
    total = c
    for number in range(ROUNDS):
        total = total + last  # of the iteration before: no fused operation
        last = a * b * number.to(tl.float32)
    tl.store(out + 4 * COUNT + i, total)
    tl.store(out + 5 * COUNT + i, a + scale * 1.44269504)
    tl.store(out + 6 * COUNT + i, a / b)


@triton.jit
def added(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr):
    """c (M, N) fp32 = a (M, K) b (K, N): dots from zero that are added."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for first in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + first + k[None])
        y = tl.load(b + (first + k[:, None]) * N + j[None])
        acc += tl.dot(x, y)
    tl.store(c + i[:, None] * N + j[None], acc)


@triton.jit
def brain_floats(x, y, out, reciprocal, COUNT: tl.constexpr):
    """out (3, COUNT) of bf16 x, y: their sum, the larger one, a fp32 product. reciprocal: 1/sqrt(|x|) of libdevice."""
    i = tl.arange(0, COUNT)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + COUNT + i, tl.where(a > b, a, b))
    tl.store(out + 2 * COUNT + i, a.to(tl.float32) * 1.37)
    tl.store(reciprocal + i, libdevice.rsqrt(tl.abs(a.to(tl.float32))))


@triton.jit
def scaled(
    a, a_scale, b, b_scale, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, A: tl.constexpr,
    B: tl.constexpr, HAS_A: tl.constexpr, HAS_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """d (M, N) fp32 = scaled a (M, K) by scaled b (K, N) in one tile; a scale for BLOCK of K. A, B: formats."""
    i, j, block = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK // BLOCK)
    a_packed: tl.constexpr = 2 if A == "e2m1" else 1
    b_packed: tl.constexpr = 2 if B == "e2m1" else 1
    k, r = tl.arange(0, BK // a_packed), tl.arange(0, BK // b_packed)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, K, BK):
        x = tl.load(a + i[:, None] * (K // a_packed) + first // a_packed + k[None])
        y = tl.load(b + (first // b_packed + r[:, None]) * N + j[None])
        u = tl.load(a_scale + i[:, None] * (K // BLOCK) + first // BLOCK + block[None]) if HAS_A else None
        v = tl.load(b_scale + j[:, None] * (K // BLOCK) + first // BLOCK + block[None]) if HAS_B else None
        acc = tl.dot_scaled(x, u, A, y, v, B, acc)
    tl.store(d + i[:, None] * N + j[None], acc)


@triton.jit
def toward_zero(x, out, COUNT: tl.constexpr):
    """out: x + x of libdevice, rounded toward zero."""
    i = tl.arange(0, COUNT)
    a = tl.load(x + i)
    tl.store(out + i, libdevice.add_rz(a, a))
