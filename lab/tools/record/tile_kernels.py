"""Triton kernels of hwsim's own: a product, an attention, functions, sums. They run compiled or interpreted."""

import triton
import triton.language as tl


@triton.jit
def product(
    a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr,
    IMP: tl.constexpr, INTEGER: tl.constexpr,
):  # fmt: skip
    """c (M, N) fp32 or int32 = a (M, K) b (K, N). IMP: max_num_imprecise_acc, or -1."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.int32 if INTEGER else tl.float32)
    for i in range(tl.cdiv(K, BK)):
        k = i * BK + steps
        x = tl.load(a + rows[:, None] * sam + k[None] * sak, mask=(rows[:, None] < M) & (k[None] < K), other=0.0)
        y = tl.load(b + k[:, None] * sbk + columns[None] * sbn, mask=(k[:, None] < K) & (columns[None] < N), other=0.0)
        if INTEGER:
            acc = tl.dot(x, y, acc, out_dtype=tl.int32)
        elif IMP == -1:
            acc = tl.dot(x, y, acc, input_precision=PREC)
        else:
            acc = tl.dot(x, y, acc, input_precision=PREC, max_num_imprecise_acc=IMP)
    tl.store(c + rows[:, None] * N + columns[None], acc, mask=(rows[:, None] < M) & (columns[None] < N))


@triton.jit
def attention(
    q, k, v, out, lse, scale, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr
):  # fmt: skip
    """out (heads, N, D), lse (heads, N): softmax(scale q kT) v with an online softmax, keys in blocks of BN."""
    first = tl.program_id(0) * BM
    head = tl.program_id(1) * N * D
    rows, keys, width = first + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    x = tl.load(q + head + rows[:, None] * D + width[None])
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.full((BM,), 1.0, tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    factor = scale * 1.44269504
    end = first + BM if CAUSAL else N
    for begin in range(0, end, BN):
        y = tl.load(k + head + (begin + keys)[None] * D + width[:, None])
        scores = tl.dot(x, y)
        if CAUSAL:
            scores = scores * factor + tl.where(rows[:, None] >= (begin + keys)[None], 0, -1.0e6)
            larger = tl.maximum(most, tl.max(scores, 1))
            scores -= larger[:, None]
        else:
            larger = tl.maximum(most, tl.max(scores, 1) * factor)
            scores = scores * factor - larger[:, None]
        weights = tl.math.exp2(scores)
        shrink = tl.math.exp2(most - larger)
        z = tl.load(v + head + (begin + keys)[:, None] * D + width[None])
        acc = acc * shrink[:, None]
        acc = tl.dot(weights.to(z.dtype), z, acc)
        total = total * shrink + tl.sum(weights, 1)
        most = larger
    tl.store(lse + tl.program_id(1) * N + rows, most + tl.math.log2(total))
    tl.store(out + head + rows[:, None] * D + width[None], (acc / total[:, None]).to(out.type.element_ty))


@triton.jit
def functions(x, y, z, out, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """out (20, COUNT): functions and operations of one, two and three numbers, a row each."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(out + i, tl.exp(a))
    tl.store(out + COUNT + i, tl.math.exp2(a))
    tl.store(out + 2 * COUNT + i, tl.log(a))
    tl.store(out + 3 * COUNT + i, tl.math.log2(a))
    tl.store(out + 4 * COUNT + i, tl.sin(a))
    tl.store(out + 5 * COUNT + i, tl.cos(a))
    tl.store(out + 6 * COUNT + i, tl.sqrt(a))
    tl.store(out + 7 * COUNT + i, tl.math.sqrt_rn(a))
    tl.store(out + 8 * COUNT + i, tl.math.rsqrt(a))
    tl.store(out + 9 * COUNT + i, tl.math.erf(a))
    tl.store(out + 10 * COUNT + i, a / b)
    tl.store(out + 11 * COUNT + i, tl.math.div_rn(a, b))
    tl.store(out + 12 * COUNT + i, tl.sigmoid(a))
    tl.store(out + 13 * COUNT + i, a * b + c)
    tl.store(out + 14 * COUNT + i, a * b - c)
    tl.store(out + 15 * COUNT + i, c - a * b)
    tl.store(out + 16 * COUNT + i, a * b + c * a)
    tl.store(out + 17 * COUNT + i, a + b)
    tl.store(out + 18 * COUNT + i, a * b)
    tl.store(out + 19 * COUNT + i, tl.floor(a) + tl.ceil(b) + tl.abs(c))


@triton.jit
def sums(x, whole, by_row, by_column, running, M: tl.constexpr, N: tl.constexpr):
    """Of x (M, N): the sum of all, of rows, of columns, running sums of rows."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + j[None])
    tl.store(by_row + i, tl.sum(a, 1))
    tl.store(by_column + j, tl.sum(a, 0))
    tl.store(whole, tl.sum(a))
    tl.store(running + i[:, None] * N + j[None], tl.cumsum(a, 1))


@triton.jit
def scaled_product(
    a, a_scale, b, b_scale, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, A: tl.constexpr,
    B: tl.constexpr, HAS_A: tl.constexpr, HAS_B: tl.constexpr,
):  # fmt: skip
    """d (M, N) fp32 = scaled a (M, K) by scaled b (K, N) in one tile; scales of 32 of K, e8m0. A, B: formats."""
    i, j, block = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK // 32)
    a_packed: tl.constexpr = 2 if A == "e2m1" else 1
    b_packed: tl.constexpr = 2 if B == "e2m1" else 1
    k, r = tl.arange(0, BK // a_packed), tl.arange(0, BK // b_packed)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, K, BK):
        x = tl.load(a + i[:, None] * (K // a_packed) + first // a_packed + k[None])
        y = tl.load(b + (first // b_packed + r[:, None]) * N + j[None])
        u = tl.load(a_scale + i[:, None] * (K // 32) + first // 32 + block[None]) if HAS_A else None
        v = tl.load(b_scale + j[:, None] * (K // 32) + first // 32 + block[None]) if HAS_B else None
        acc = tl.dot_scaled(x, u, A, y, v, B, acc)
    tl.store(d + i[:, None] * N + j[None], acc)
