"""hwsim.attention: an H100's bits, a straight reading of each order in plain loops, shared heads, batches, errors."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from modern import kernels, operand, picked

import hwsim
from hwsim.arithmetic.power_polynomial import power_by_polynomial
from hwsim.backend.cpu import CPU
from hwsim.compute.attention_call import BACKENDS
from hwsim.errors import InputError
from hwsim.evaluate.attending import Attending
from hwsim.libraries.published import flash_attention
from hwsim.libraries.published.flash_attention import VERSION_2, VERSION_3, VERSION_4

TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
E4M3 = ml_dtypes.float8_e4m3fn
PTX = {np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16", np.dtype(E4M3): "e4m3"}
CAPTURES = {name: value for name, value in kernels("sdpa").items() if name.split()[1] in BACKENDS}
FLASH, EFFICIENT, CUDNN, MATH = BACKENDS
Single = np.float32


def drawn(seed: int, *shape: int, dtype=np.float16):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(x, y) -> bool:
    return x.dtype == y.dtype and np.array_equal(x.view(np.uint16), y.view(np.uint16))


@pytest.mark.parametrize("name", CAPTURES)
def test_an_h100_s_bits(name: str) -> None:
    _, backend, format, sizes, causal = name.split()
    heads, rows, width = map(int, sizes.split("x"))
    query, key, value = (
        (operand(70 + i, heads * rows, width, format).reshape(1, heads, rows, width) / TYPES[format](2)).astype(
            TYPES[format]
        )
        for i in range(3)
    )
    result = hwsim.attention(query, key, value, backend=backend, is_causal=causal == "True")
    part = result.out[0, heads - 1][picked(rows, 256, 3)]
    assert result.out.dtype == TYPES[format] and result.backend == backend
    assert np.array_equal(part.view(np.int16), CAPTURES[name]) and len(CAPTURES) == 16


class Chip:
    """One row's arithmetic on a chip: a dot product by an instruction, fp32 rounded once an operation, MUFU."""

    def __init__(self, instruction: str, dtype, device: str = "h100") -> None:
        self.device, self.dtype, self.codes = hwsim.device(device), dtype, f"u{np.dtype(dtype).itemsize}"
        self.instruction, self.step = (
            instruction.format(PTX[np.dtype(dtype)]),
            int(re.findall(r"k(\d+)", instruction)[0]),
        )

    def dot(self, a, b, c=0):
        """c + a . b, by instruction after instruction."""
        code = np.array(c, np.float32).view(np.uint32)
        for first in range(0, len(a), self.step):
            x, y = (np.array(z[first : first + self.step], self.dtype).view(self.codes) for z in (a, b))
            code = self.device.dot(self.instruction, x[None], y[None], np.atleast_1d(code))[0]
        return np.atleast_1d(np.asarray(code)).view(np.float32)[0]

    def exp2(self, x):
        return hwsim.mufu("exp2f", np.array([x], np.float32))[0]


def fma(x, y, z):
    """x * y + z, rounded once: by exact fractions."""
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    near = Single(float(exact))  # rounded twice at worst; mended by its neighbours
    options = (near, np.nextafter(near, Single(-np.inf)), np.nextafter(near, Single(np.inf)))
    return min(options, key=lambda o: (abs(Fraction(float(o)) - exact), int(o.view(np.uint32)) & 1))


LOG2E = math.log2(math.e)


def in_lanes(powers):
    """Sums of a row's powers by lane: a lane has columns 2 l and 2 l + 1 of each eight."""
    sums = [Single(0)] * 4
    for column, power in enumerate(powers):
        sums[column % 8 // 2] += power
    return sums


def flash(query, keys, values, factor):
    """FlashAttention-2 (PyTorch's build): s f - m f, two roundings; lanes 0, 2 and 1, 3 meet first; IEEE division."""
    chip = Chip("mma.m16n8k16.f32.{0}.{0}.f32", query.dtype)
    scaled = Single(float(factor) * LOG2E)
    scores = [chip.dot(query, key) for key in keys]
    bound = max(scores) * scaled
    powers = [chip.exp2(score * scaled - bound) for score in scores]
    lanes = in_lanes(powers)
    total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    inverse = Single(1) / total
    narrow = [power.astype(query.dtype) for power in powers]
    return np.array([chip.dot(narrow, column) * inverse for column in values.T])


def cudnn(query, keys, values, factor, mask=None):
    """cuDNN on Hopper: s f - m f, two roundings; lanes 0, 1 and 2, 3 meet first; rcp.approx."""
    chip = Chip("wgmma.m64n64k16.f32.{0}.{0}", query.dtype)
    scaled = Single(factor) * Single(LOG2E)
    scores = [chip.dot(query, key) for key in keys]
    if mask is not None:
        hidden = Single(-np.inf)
        scores = [hidden if np.isinf(m) else fma(x, Single(factor), m) for x, m in zip(scores, mask, strict=True)]
        scaled = Single(LOG2E)
    bound = max(scores) * scaled
    powers = [chip.exp2(score * scaled - bound) for score in scores]
    lanes = in_lanes(powers)
    inverse = hwsim.mufu("rcp", np.array([(lanes[0] + lanes[1]) + (lanes[2] + lanes[3])], np.float32))[0]
    narrow = [power.astype(query.dtype) for power in powers]
    return np.array([chip.dot(narrow, column) * inverse for column in values.T])


def efficient(query, keys, values, factor, mask=None):
    """Memory-efficient: each score times the factor, then times log2(e); a warp's 32 keys add in lanes."""
    chip = Chip("mma.m16n8k8.f32.{0}.{0}.f32", query.dtype)
    added = np.zeros(len(keys), np.float32) if mask is None else mask.astype(np.float32)
    scores = [(chip.dot(query, key) * factor + added[i]) * Single(LOG2E) for i, key in enumerate(keys)]
    powers = [chip.exp2(score - max(scores)) for score in scores]
    lanes = in_lanes(powers)
    total = Single(0) + ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))
    inverse = Single(1) / total
    narrow = [power.astype(query.dtype) for power in powers]
    return np.array([chip.dot(narrow, column) * inverse for column in values.T])


READINGS = {FLASH: flash, EFFICIENT: efficient, CUDNN: cudnn}


class Watched:
    """The CPU's operations; `wide` is what was rounded last: the result in fp32, where a changed order shows."""

    def encode(self, values, *rest, **more):
        self.wide = values
        return CPU.encode(values, *rest, **more)

    def gemm(self, *operands, **more):
        return CPU.gemm(*operands, **more)


def in_single(result, operands, scale: float, is_causal: bool):
    """A result again, before it is rounded to the operands' format."""
    format, watched = next(name for name, dtype in TYPES.items() if dtype == result.out.dtype), Watched()
    attending = Attending(result.order, hwsim.device(result.device), format, scale, watched)
    codes = attending(*(np.ascontiguousarray(x).view(np.uint16) for x in operands), is_causal=is_causal)
    assert np.array_equal(codes.reshape(result.out.shape), result.out.view(np.uint16))
    return watched.wide


@pytest.mark.covering("is_causal", "dtype", "backend")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("backend", READINGS)
def test_a_straight_reading_of_one_block(backend: str, dtype, is_causal: bool) -> None:
    """Twenty rows, in plain loops; the module under test vectorises over rows, heads and blocks."""
    operands = [drawn(i, 1, 20, 24, dtype=dtype) for i in range(3)]
    result = hwsim.attention(*operands, backend=backend, scale=0.3, is_causal=is_causal)
    got = in_single(result, operands, 0.3, is_causal)[0]
    query, key, value = (x[0] for x in operands)
    for row in range(20):
        keys = slice(row + 1 if is_causal else None)
        assert READINGS[backend](query[row], key[keys], value[keys], Single(0.3)).tolist() == got[row].tolist()


@pytest.mark.parametrize("backend", [EFFICIENT, CUDNN])
def test_a_mask_of_one_s_own_is_added_to_the_scaled_scores(backend: str) -> None:
    operands, mask = [drawn(i, 1, 20, 24) for i in range(3)], drawn(7, 20, 20)
    mask[3, :9], mask[5] = -np.inf, -np.inf
    result = hwsim.attention(*operands, backend=backend, scale=0.3, mask=mask)
    query, key, value = (x[0] for x in operands)
    for row in range(20):
        if row != 5:
            want = READINGS[backend](query[row], key, value, Single(0.3), mask[row]).astype(np.float16)
            assert want.tolist() == result.out[0, row].tolist()
    assert not result.out[0, 5].any()
    hidden = np.isinf(mask)
    as_bool = hwsim.attention(*operands, backend=backend, scale=0.3, mask=~hidden)
    as_zero = hwsim.attention(*operands, backend=backend, scale=0.3, mask=np.where(hidden, mask, mask.dtype.type(0)))
    assert same(as_bool.out, as_zero.out) and not same(as_bool.out, result.out)


def blocks_by_loops(query, keys, values, factor, order):
    """FlashAttention-2 over blocks of keys, the last first: earlier results times 2^(old - new largest)."""
    chip = Chip(order.instruction, query.dtype)
    scaled, largest = Single(float(factor) * LOG2E), Single(-np.inf)
    sums, result = [Single(0)] * 4, [Single(0)] * values.shape[1]
    for first in reversed(range(0, len(keys), order.keys)):
        scores = [chip.dot(query, key) for key in keys[first : first + order.keys]]
        new = max(largest, *scores)
        change = Single(0) if np.isneginf(largest) else chip.exp2((largest - new) * scaled)
        powers = [chip.exp2(score * scaled - new * scaled) for score in scores]
        sums = [fma(total, change, power) for total, power in zip(sums, powers[:8:2], strict=True)]
        for column, power in enumerate(powers):
            sums[column % 8 // 2] += power if column > 7 or column % 2 else Single(0)
        narrow = [power.astype(query.dtype) for power in powers]
        block = values[first : first + order.keys]
        result = [chip.dot(narrow, block[:, i], result[i] * change) for i in range(len(result))]
        largest = new
    inverse = Single(1) / ((sums[0] + sums[2]) + (sums[1] + sums[3]))
    return np.array([x * inverse for x in result])


def cudnn_by_blocks(query, keys, values, factor, order):
    """cuDNN over blocks of keys, the first first: a block's powers add from zero, then join the rescaled sums."""
    chip = Chip(order.instruction, query.dtype)
    scaled, largest = Single(factor) * Single(LOG2E), Single(-np.inf)
    sums, result = [Single(0)] * 4, [Single(0)] * values.shape[1]
    for first in range(0, len(keys), order.keys):
        scores = [chip.dot(query, key) for key in keys[first : first + order.keys]]
        new = max(largest, *scores)
        change = Single(0) if np.isneginf(largest) else chip.exp2(largest * scaled - new * scaled)
        powers = [chip.exp2(score * scaled - new * scaled) for score in scores]
        sums = [fma(total, change, of_block) for total, of_block in zip(sums, in_lanes(powers), strict=True)]
        narrow = [power.astype(query.dtype) for power in powers]
        block = values[first : first + order.keys]
        result = [chip.dot(narrow, block[:, i], result[i] * change) for i in range(len(result))]
        largest = new
    inverse = hwsim.mufu("rcp", np.array([(sums[0] + sums[1]) + (sums[2] + sums[3])], np.float32))[0]
    return np.array([x * inverse for x in result])


def test_a_straight_reading_of_cudnn_s_blocks() -> None:
    query, key, value = drawn(1, 1, 2, 72), drawn(2, 1, 300, 72), drawn(3, 1, 300, 72)
    result = hwsim.attention(query, key, value, backend=CUDNN)
    assert result.order.keys == 128 and result.evidence == "microbenchmark"
    got, factor = in_single(result, (query, key, value), 72**-0.5, False)[0], Single(72**-0.5)
    for row in range(2):
        assert cudnn_by_blocks(query[0, row], key[0], value[0], factor, result.order).tolist() == got[row].tolist()


def test_a_straight_reading_of_three_blocks() -> None:
    query, key, value = drawn(1, 1, 1, 16), drawn(2, 1, 300, 16), drawn(3, 1, 300, 16)
    many = [np.broadcast_to(x, (300, *x.shape[1:])) for x in (query, key, value)]  # enough heads: no parts of keys
    result = hwsim.attention(*many, backend=FLASH)
    assert result.order.parts == 1 and result.order.keys == 128
    got = in_single(result, many, 0.25, False)[7, 0]
    assert blocks_by_loops(query[0, 0], key[0], value[0], Single(0.25), result.order).tolist() == got.tolist()


def joined_in_memory(query, keys, values, factor, order):
    """Memory-efficient attention of wide heads: each block's product begins at zero and joins the rescaled result."""
    chip = Chip(order.instruction, query.dtype)
    largest, total, result = Single(-np.inf), Single(0), np.zeros(values.shape[1], np.float32)
    product, change = result, Single(0)
    for first in range(0, len(keys), order.keys):
        result = np.array([fma(y, change, x) for x, y in zip(product, result, strict=True)])
        scores = [chip.dot(query, key) * factor * Single(LOG2E) for key in keys[first : first + order.keys]]
        new = max(largest, *scores)
        change = Single(0) if np.isneginf(largest) else chip.exp2(largest - new)
        powers, total = [chip.exp2(score - new) for score in scores], total * change
        for warp in range(0, len(powers), 32):
            lanes = in_lanes(powers[warp : warp + 32])
            total = total + ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))
        narrow = [power.astype(query.dtype) for power in powers]
        product = [chip.dot(narrow, column) for column in values[first : first + order.keys].T]
        largest = new
    inverse = Single(1) / total
    return np.array([fma(x, inverse, y * (inverse * change)) for x, y in zip(product, result, strict=True)])


def test_sums_that_are_kept_in_memory() -> None:
    query, key, value = drawn(1, 1, 1, 136), drawn(2, 1, 300, 136), drawn(3, 1, 300, 136)
    result = hwsim.attention(query, key, value, backend=EFFICIENT)
    assert (result.order.keys, result.order.rows, result.evidence) == (128, 32, "microbenchmark")
    got = in_single(result, (query, key, value), 136**-0.5, False)[0, 0]
    factor = Single(136**-0.5)
    assert joined_in_memory(query[0, 0], key[0], value[0], factor, result.order).tolist() == got.tolist()


def by_its_authors(query, keys, values, scaled, order, of_value=1):
    """FlashAttention of its authors' build: s f - m f rounded once, ex2.approx.ftz, rcp.approx; last block first. Of 8
    bits powers are times 2^8; of_value: a factor of the result.
    """
    chip = Chip(order.instruction, query.dtype)
    ex2, rcp = (lambda x, name=name: hwsim.mufu(name, np.array([x], np.float32))[0] for name in ("ex2", "rcp"))
    largest, offset = Single(-np.inf), 8 if query.dtype == E4M3 else 0
    sums, result = [Single(0)] * 4, [Single(0)] * values.shape[1]
    for first in reversed(range(0, len(keys), order.keys)):
        scores = [chip.dot(query, key) for key in keys[first : first + order.keys]]
        new = max(largest, *scores)
        change = Single(0) if np.isneginf(largest) else ex2((largest - new) * scaled)
        powers = [ex2(fma(score, scaled, -fma(new, scaled, Single(-offset)))) for score in scores]
        sums = [
            fma(total, change, power) if order.fuses_first else total * change + power
            for total, power in zip(sums, powers[:8:2], strict=True)
        ]
        for column, power in enumerate(powers):
            sums[column % 8 // 2] += power if column > 7 or column % 2 else Single(0)
        narrow = [power.astype(query.dtype) for power in powers]
        block = values[first : first + order.keys]
        result = [chip.dot(narrow, block[:, i], result[i] * change) for i in range(len(result))]
        largest = new
    inverse = rcp((sums[0] + sums[2]) + (sums[1] + sums[3])) * Single(of_value)
    return np.array([x * inverse for x in result])


@pytest.mark.parametrize(("library", "keys"), [(VERSION_2, 128), (VERSION_3, 192)])
def test_the_authors_own_builds(library: str, keys: int) -> None:
    query, key, value = drawn(1, 1, 1, 16), drawn(2, 1, 400, 16), drawn(3, 1, 400, 16)
    many = [np.broadcast_to(x, (300, *x.shape[1:])) for x in (query * 9, key, value)]
    result = hwsim.attention(*many, library=library)
    order = result.order
    assert (order.parts, order.keys, result.backend, result.evidence) == (1, keys, library, "assumption")
    got = in_single(result, many, 0.25, False)[7, 0]
    scaled = Single(0.25 * LOG2E)
    assert by_its_authors(many[0][7, 0], key[0], value[0], scaled, order).tolist() == got.tolist()
    assert got.tolist() != in_single(hwsim.attention(*many, backend=FLASH), many, 0.25, False)[7, 0].tolist()


def by_a_polynomial(x):
    """2^x: the floor goes to the exponent, a cubic gives the rest; smaller than 2^-127 is 0."""
    x = max(x, Single(-127))
    whole = math.floor(x)
    rest, total = x - Single(whole), Single(0.077119089663028717041015625)
    for coefficient in (0.227564394474029541015625, 0.695146143436431884765625, 1.0):
        total = fma(total, rest, Single(coefficient))
    return np.int32(int(total.view(np.int32)) + whole * 2**23).view(np.float32)


def of_version_4(query, keys, values, factor, order, columns):
    """FlashAttention-4: the largest score lags by up to 8, some columns' powers are a polynomial's, one thread adds."""
    chip = Chip(order.instruction, query.dtype, "b200")
    ex2, rcp = (
        lambda x, name=name: hwsim.mufu(name, np.array([x], np.float32), device="b200")[0] for name in ("ex2", "rcp")
    )
    scaled, largest, total, kept = factor * Single(LOG2E), None, Single(0), 0
    for first in reversed(range(0, len(keys), 128)):
        scores = [chip.dot(query, key) for key in keys[first : first + 128]]
        scores += [Single(-np.inf)] * (128 - len(scores))
        if largest is None:
            largest, change, result = max(scores), None, [Single(0)] * values.shape[1]
        else:
            exponent = (largest - max(largest, *scores)) * scaled
            change, kept = (Single(1), kept + 1) if exponent >= -8 else (ex2(exponent), kept)
            largest = largest if exponent >= -8 else max(largest, *scores)
        arguments = [fma(s, scaled, -(largest * scaled)) if np.isfinite(s) else s for s in scores]
        powers = [(by_a_polynomial if i in columns else ex2)(x) for i, x in enumerate(arguments)]
        sums = powers[:8] if change is None else [total * change + powers[0], *powers[1:8]]
        for i, power in enumerate(powers[8:]):
            sums[i % 8] += power
        even, odd = ((sums[i] + sums[i + 2]) + (sums[i + 4] + sums[i + 6]) for i in (0, 1))
        total, block = even + odd, values[first : first + 128]
        narrow = [power.astype(query.dtype) for power in powers[: len(block)]]
        before = [Single(0) if change is None else x * change for x in result]
        result = [chip.dot(narrow, column, x) for column, x in zip(block.T, before, strict=True)]
    return np.array([x * rcp(total) for x in result]), kept


def test_flashattention_4_on_a_b200() -> None:
    draw = (np.random.default_rng(i).standard_normal((1, rows, 16)) for i, rows in ((1, 2), (2, 400), (3, 400)))
    query, key, value = (x.astype(ml_dtypes.bfloat16) for x in draw)
    key[0, 5] = query[0, 1]  # in the last block: the largest score of row 1
    query[0, 1] *= 12
    result = hwsim.attention(query, key, value, library=VERSION_4, device="b200")
    assert (result.evidence, result.order.rows, result.order.keys) == ("assumption", 128, 128)
    columns = {32 * j + k for j in (1, 2) for k in (12, 13, 14, 15, 28, 29, 30, 31)}
    got, kept = in_single(result, (query, key, value), 0.25, False)[0], []
    for row in range(2):
        want, count = of_version_4(query[0, row], key[0], value[0], Single(0.25), result.order, columns)
        assert got[row].tolist() == want.tolist()
        kept.append(count)
    assert kept[0] == 3 and kept[1] < 3  # of three blocks behind the first all leave the sums as they are, or some


SHARES = [  # width of key and value, queries, groups, causal; period of powers by a polynomial, first fragment
    ((64, 64, 1000, 1, False), (16, 1)),
    ((128, 128, 256, 1, False), (16, 1)),
    ((128, 128, 257, 1, False), (10, 1)),
    ((128, 128, 100, 4, False), (10, 1)),
    ((96, 64, 100, 3, False), (10, 1)),
    ((128, 128, 1000, 4, True), (16, 1)),
    ((192, 128, 1000, 1, False), (16, 0)),
    ((192, 128, 200, 1, False), None),
    ((192, 128, 1000, 2, True), (32, 1)),
]


@pytest.mark.parametrize(("sizes", "share"), SHARES, ids=str)
def test_which_powers_a_polynomial_gives(sizes, share) -> None:
    """From flash_attn/cute/flash_fwd_sm100.py and interface.py."""
    *sizes, is_causal = sizes
    order = flash_attention.version_4(*sizes, is_causal=is_causal)
    assert order.rows == (256 if sizes[2] * sizes[3] > 128 else 128)
    assert flash_attention.version_4(*sizes, is_causal=is_causal, capability="10.3").polynomial is None
    assert order.polynomial == (share and flash_attention.PolynomialShare(32, share[1], 3, share[0], 4))


def test_a_key_s_heads_that_are_shared_and_a_causal_mask_on_a_b200() -> None:
    query, key, value = drawn(1, 4, 150, 64), drawn(2, 2, 150, 64), drawn(3, 2, 150, 64)
    result = hwsim.attention(query, key, value, library=VERSION_4, device="b200", is_causal=True)
    scores = np.where(
        np.tri(150) > 0, query.astype(float) @ np.repeat(key, 2, 0).astype(float).swapaxes(1, 2) / 8, -np.inf
    )
    powers = np.exp(scores)
    exact = powers / powers.sum(-1, keepdims=True) @ np.repeat(value, 2, 0).astype(float)
    assert 0 < np.abs(result.out - exact).max() < 3e-3
    orders = [
        hwsim.attention(query, key, value, library=VERSION_4, device=d, exact=False).order for d in ("b200", "b300")
    ]
    assert orders[0].polynomial and orders[1] == replace(orders[0], polynomial=None)
    query[0, 100] = np.nan  # a maximum leaves NaNs out, and so does the polynomial
    assert np.isnan(hwsim.attention(query, key, value, library=VERSION_4, device="b200").out[0, 100]).all()


def test_the_polynomial_is_as_near_as_its_coefficients() -> None:
    x = -np.arange(1, 2**23, 61) / 2**23  # all 2^23 fractions: 8.77e-5 at most
    got = power_by_polynomial(x.astype(np.float32))
    rest = x + 1
    exact = np.polyval([0.077119089663028717041015625, 0.227564394474029541015625, 0.695146143436431884765625, 1], rest)
    error = np.abs(exact / np.exp2(rest) - 1).max()
    assert np.abs(got / np.exp2(x) - 1).max() < error + 2**-22 and np.abs(got * 2 / exact - 1).max() < 2**-22
    for y in (0, -0.3, -1e-9, 3.25, -126.5, -127, -200, -np.inf):
        assert power_by_polynomial(np.array([y], np.float32))[0] == by_a_polynomial(Single(y))
    edges = power_by_polynomial(np.array([np.nan, np.inf], np.float32))
    assert edges[0] == 0 and np.isnan(edges[1])


def test_flashattention_3_with_operands_of_8_bits() -> None:
    """e4m3 on an H100: factors of heads, powers times 2^8, a result of bf16."""
    query, key, value = (
        drawn(1, 4, 2, 32, dtype=E4M3),
        drawn(2, 2, 200, 32, dtype=E4M3),
        drawn(3, 2, 200, 32, dtype=E4M3),
    )
    factors = np.random.default_rng(4).uniform(0.5, 2, (3, 2)).astype(np.float32)
    names = ("query_descale", "key_descale", "value_descale")
    result = hwsim.attention(query, key, value, library=VERSION_3, **dict(zip(names, factors, strict=True)))
    order = result.order
    assert (result.out.dtype, order.keys, order.rows, result.evidence) == (TYPES["bf16"], 160, 192, "assumption")
    for head, row in ((0, 1), (3, 0)):
        q, k, v = factors[:, head // 2]
        scaled = Single(float(Single(32**-0.5)) * LOG2E) * (q * k)
        want = by_its_authors(query[head, row], key[head // 2], value[head // 2], scaled, order, v)
        assert want.astype(TYPES["bf16"]).tolist() == result.out[head, row].tolist()
    plain = hwsim.attention(query, key, value, library=VERSION_3)
    ones = hwsim.attention(query, key, value, library=VERSION_3, value_descale=np.ones(2, np.float32))
    assert np.array_equal(plain.codes, ones.codes) and not np.array_equal(plain.codes, result.codes)
    assert plain.cycles and plain.timing_note == ""


def parts_of_e4m3(code: int) -> tuple[int, int]:
    """A number of e4m3 as an integer of 2^-9 units of its exponent, and that exponent: value = integer * 2^(e - 3)."""
    sign, exponent, fraction = -1 if code & 0x80 else 1, code >> 3 & 15, code & 7
    return sign * (fraction + 8 * (exponent > 0)), max(exponent, 1) - 7


def toward_zero(number: int, shift: int) -> int:
    """number / 2^shift, cut toward zero."""
    if shift <= 0:
        return number << -shift
    return (abs(number) >> shift) * (1 if number >= 0 else -1)


def in_integers(a: list[int], b: list[int], total: Fraction) -> Fraction:
    """total + a . b by Hopper's unit of 8 bits in integers alone: 32 products at a time are aligned with the largest,
    cut to 13 bits behind its point, added, and the sum is cut to 14 digits.
    """
    for first in range(0, len(a), 32):
        terms = []
        for x, y in zip(a[first : first + 32], b[first : first + 32], strict=True):
            (m, e), (n, f) = parts_of_e4m3(x), parts_of_e4m3(y)
            terms.append((m * n, e + f, e + f - 6))
        if total:
            exponent = math.frexp(float(total))[1] - 1
            terms.append((int(total / Fraction(2) ** (exponent - 23)), exponent, exponent - 23))
        place = max((exponent for number, exponent, _ in terms if number), default=0) - 13
        whole = sum(toward_zero(number, place - unit) for number, _, unit in terms)
        more = max(0, abs(whole).bit_length() - 14)
        total = Fraction(toward_zero(whole, more) << more) * Fraction(2) ** place
    return total


@pytest.mark.parametrize(("keys", "width"), [(1, 16), (3, 16), (67, 32), (170, 48)])
def test_operands_of_8_bits_in_integers(keys: int, width: int) -> None:
    """Products, sums and roundings of one row in exact integers and fractions; powers by the chip's table."""
    codes = np.random.default_rng(keys).integers(0, 256, (2 * keys + 1) * width, np.uint8)
    codes[codes & 0x7F == 0x7F] ^= 1  # no NaN
    codes[: 3 * width : 5] &= 0x87  # subnormals and zeros of both signs
    query, rows = codes[:width], codes[width:].reshape(2, keys, width)
    operands = (query[None, None].view(E4M3), rows[:1].view(E4M3), rows[1:].view(E4M3))
    result = hwsim.attention(*operands, library=VERSION_3, scale=1e-4)
    ex2, rcp = (lambda x, name=name: hwsim.mufu(name, np.array([x], np.float32))[0] for name in ("ex2", "rcp"))
    factor = Single(float(Single(1e-4)) * LOG2E)
    scores = [Single(float(in_integers(query.tolist(), key.tolist(), Fraction(0)))) for key in rows[0]]
    largest, sums, sum_of_values = None, [Single(0)] * 4, [Single(0)] * width
    for first in reversed(range(0, keys, 160)):
        block = scores[first : first + 160]
        new = max(block) if largest is None else max(largest, *block)
        change = Single(0) if largest is None else ex2((largest - new) * factor)
        powers = [ex2(fma(x, factor, -fma(new, factor, Single(-8)))) for x in block]
        sums = [x * change for x in sums]
        for column, power in enumerate(powers):
            sums[column % 8 // 2] += power
        narrow = [int(power.astype(E4M3).view(np.uint8)) for power in powers]
        columns = rows[1, first : first + 160].T.tolist()
        before = [Fraction(float(x * change)) for x in sum_of_values]
        sums_now = [in_integers(narrow, column, x) for column, x in zip(columns, before, strict=True)]
        sum_of_values, largest = [Single(float(x)) for x in sums_now], new
    inverse = rcp((sums[0] + sums[2]) + (sums[1] + sums[3]))
    want = np.array([x * inverse for x in sum_of_values]).astype(TYPES["bf16"])
    assert np.array_equal(want.view(np.uint16), result.codes[0, 0]) and len(set(want.tolist())) > 4


TILES = [  # widths of key and value, causal: rows of a tile, keys of a block
    ((64, 64, False), (192, 192)),
    ((64, 64, True), (192, 128)),
    ((80, 80, False), (192, 144)),
    ((128, 128, False), (128, 176)),
    ((128, 128, True), (128, 128)),
    ((64, 32, False), (192, 192)),
    ((64, 128, True), (128, 96)),
    ((64, 256, False), (128, 96)),
    ((192, 128, False), (128, 128)),
    ((192, 192, True), (128, 112)),
    ((256, 256, False), (128, 80)),
]


TILES_OF_8_BITS = {
    (64, 64): (192, 160),
    (96, 96): (192, 128),
    (128, 128): (128, 224),
    (192, 128): (128, 160),
    (256, 256): (128, 128),
}


@pytest.mark.parametrize("widths", TILES_OF_8_BITS, ids=str)
def test_tiles_of_8_bits(widths) -> None:
    """From hopper/tile_size.h."""
    query, value = (np.broadcast_to(E4M3(0), (1, 8, width)) for width in widths)
    order = hwsim.attention(query, query, value, library=VERSION_3, exact=False).order
    assert (order.rows, order.keys) == TILES_OF_8_BITS[widths]


@pytest.mark.parametrize(("sizes", "tile"), TILES, ids=str)
def test_tiles_of_flashattention_3(sizes, tile) -> None:
    """From hopper/tile_size.h."""
    query, value = (np.broadcast_to(np.float16(0), (1, 8, width)) for width in sizes[:2])
    result = hwsim.attention(query, query, value, library=VERSION_3, is_causal=sizes[2], exact=False)
    assert (result.order.rows, result.order.keys) == tile and result.cycles


@pytest.mark.parametrize("backend", [FLASH, CUDNN])
def test_shared_heads_are_repeated_ones_and_leading_dimensions_batches(backend: str) -> None:
    query, key, value = drawn(1, 2, 3, 4, 33, 64), drawn(2, 2, 3, 2, 33, 64), drawn(3, 2, 3, 2, 33, 64)
    shared = hwsim.attention(query, key, value, backend=backend)
    repeated = hwsim.attention(query, np.repeat(key, 2, -3), np.repeat(value, 2, -3), backend=backend)
    alone = hwsim.attention(query[1, 2, 2:3], key[1, 2, 1:], value[1, 2, 1:], backend=backend)
    turned = hwsim.attention(*(np.asfortranarray(x) for x in (query, key, value)), backend=backend)
    assert shared.out.shape == query.shape and same(shared.out, repeated.out) and same(shared.out, turned.out)
    assert same(shared.out[1, 2, 2:3], alone.out)


def test_a_part_for_each_block_where_cores_would_be_idle() -> None:
    query, key, value = drawn(1, 1, 1, 64), drawn(2, 1, 1000, 64), drawn(3, 1, 1000, 64)
    result = hwsim.attention(query, key, value, backend=FLASH)
    assert result.order.parts == 4 and result.evidence == "assumption"  # lg2 of an H100: nobody compared it
    scores = key[0].astype(float) @ query[0, 0].astype(float) / 8
    exact = np.exp(scores) / np.exp(scores).sum() @ value[0].astype(float)
    assert np.abs(result.out[0, 0].astype(float) - exact).max() < 2e-4
    assert "in 4 parts" in str(result)


@pytest.mark.parametrize("keys", [40, 1000])
def test_scores_that_are_all_minus_infinity_give_zeros(keys: int) -> None:
    query, value = np.full((1, 1, 64), np.inf, np.float16), drawn(3, 1, keys, 64)
    result = hwsim.attention(query, np.full((1, keys, 64), -1, np.float16), value, backend=FLASH)
    assert (result.order.parts > 1) == (keys == 1000) and not result.out.view(np.uint16).any()


def test_the_backend_that_pytorch_takes_and_what_the_result_says() -> None:
    x = drawn(1, 1, 8, 64)
    result = hwsim.attention(x, x, x)
    assert (result.backend, result.evidence) == (CUDNN, "microbenchmark")
    assert result.kernel == result.order.kernel and result.kernel in repr(result) and CUDNN in str(result)
    wide = drawn(1, 1, 8, 192)
    assert hwsim.attention(wide, wide, wide).evidence == "microbenchmark"
    levels = [hwsim.attention(y, y, y, backend=b).order.evidence for b in (FLASH, EFFICIENT) for y in (x, wide)]
    seen = "microbenchmark"  # of heads of 192 there is no capture of FlashAttention-2
    assert levels == [seen, "datasheet", seen, seen]
    assert hwsim.attention(x, x, x, device="a100").backend == FLASH
    value = drawn(2, 1, 8, 128)  # the memory-efficient kernel's tile follows the wider of key and value
    assert [hwsim.attention(x, x, v, backend=EFFICIENT).order.keys for v in (x, value)] == [64, 128]
    assert [hwsim.attention(x, x, x, device=d).evidence for d in ("h200", "a100")] == ["microbenchmark", "assumption"]
    assert same(result.out, hwsim.attention(x, x, x, scale=0.125).out)


X, HALF = drawn(1, 2, 8, 64), drawn(1, 4, 8, 64)
INPUT, UNSUPPORTED = hwsim.InputError, hwsim.UnsupportedError
ERRORS = {
    "fp64": ((X.astype(float),) * 3, {}, INPUT, "got query float64.*allowed: float16, or ml_dtypes.bfloat16"),
    "fp32": ((X.astype(np.float32),) * 3, {}, UNSUPPORTED, "the order of EFFICIENT_ATTENTION on h100 is not known"),
    "mixed": ((X, X, X.astype(ml_dtypes.bfloat16)), {}, INPUT, "value bfloat16"),
    "rows alone": ((X[0],) * 3, {}, INPUT, r"each is \(\.\.\., heads, rows, width\)"),
    "no row": ((X[:, :0], X, X), {}, INPUT, "without a dimension of 0"),
    "batches": ((X[None], X, X), {}, INPUT, "the leading dimensions are equal"),
    "keys and values": ((X, X, X[:, :5]), {}, INPUT, "key and value have as many heads and rows"),
    "widths": ((X, X[..., :56], X), {}, INPUT, "query and key are equally wide"),
    "heads": ((X, drawn(1, 3, 8, 64), drawn(1, 3, 8, 64)), {}, INPUT, "divide the query's"),
    "library": ((X, X, X), {"library": "cublas"}, INPUT, "allowed: pytorch, flash-attention-2"),
    "library's backend": ((X, X, X), {"library": VERSION_2, "backend": FLASH}, INPUT, "has one kernel; leave backend"),
    "authors on ampere": (
        (X, X, X),
        {"library": VERSION_3, "device": "a100"},
        UNSUPPORTED,
        "-3 on a100 is not known for",
    ),
    "authors, widths": ((X, X, X[..., :56]), {"library": VERSION_2}, UNSUPPORTED, "a value as wide as the key"),
    "version 4 on hopper": ((X, X, X), {"library": VERSION_4}, UNSUPPORTED, "flash-attention-4 on h100 is not known"),
    "version 4, widths": (
        (drawn(1, 1, 8, 192),) * 3,
        {"library": VERSION_4, "device": "b200"},
        UNSUPPORTED,
        "known of heads of up to 128 elements, and of 192 with a value of 128; got heads of 192",
    ),
    "version 3, widths": (
        (drawn(1, 1, 8, 128), drawn(1, 1, 8, 128), X[:1]),
        {"library": VERSION_3},
        UNSUPPORTED,
        "takes a value as wide as the key, one of up to 256 .*; got heads of 128 and 64",
    ),
    "version 3, widths of 8 bits": (
        (X.astype(E4M3), X.astype(E4M3), drawn(1, 2, 8, 128).astype(E4M3)),
        {"library": VERSION_3},
        UNSUPPORTED,
        "with e4m3 takes a value as wide as the key, one of up to 64 elements",
    ),
    "authors, steps": ((X[..., :60],) * 3, {"library": VERSION_3}, UNSUPPORTED, "in steps of 8; got heads of 60"),
    "8 bits": ((X.astype(E4M3),) * 3, {"library": VERSION_2}, UNSUPPORTED, "-2 on h100 .*operands of e4m3"),
    "8 bits, PyTorch": ((X.astype(E4M3),) * 3, {}, UNSUPPORTED, "PyTorch runs its math form"),
    "8 bits, steps": (
        (X[..., :40].astype(E4M3),) * 3,
        {"library": VERSION_3},
        UNSUPPORTED,
        "of e4m3, in steps of 16; got.*: 48, ",
    ),
    "descale": ((X, X, X), {"key_descale": np.ones(1, np.float32)}, INPUT, "with operands of fp16; allowed: with e4m3"),
    "descale, shape": (
        (X.astype(E4M3),) * 3,
        {"library": VERSION_3, "value_descale": np.ones(3, np.float32)},
        INPUT,
        r"value_descale is float32 \(3,\); allowed: float32 \(2,\), one for each key head",
    ),
    "authors, square": ((X[:, :3], X, X), {"library": VERSION_3, "is_causal": True}, UNSUPPORTED, "as many queries as"),
    "backend": ((X, X, X), {"backend": "FLSH"}, INPUT, "backend = 'FLSH'; allowed: FLASH_ATTENTION"),
    "math": ((X, X, X), {"backend": "MATH", "device": "mi300x"}, UNSUPPORTED, "its math form .*cdna.*hwsim.torch"),
    "scale": ((X, X, X), {"scale": math.inf}, INPUT, "scale = inf; allowed: a number from"),
    "family": ((X, X, X), {"device": "v100"}, UNSUPPORTED, "v100 is of the family sm70.*sm80, sm90.*hwsim.torch"),
    "amd": ((X, X, X), {"device": "mi300x"}, UNSUPPORTED, "family cdna"),
    "square": (
        (X[:, :3], X, X),
        {"backend": FLASH, "is_causal": True},
        UNSUPPORTED,
        "FLASH_ATTENTION is not there for heads of 64 and 64 elements, 3 queries and 8 keys, causal on h100",
    ),
    "other value": ((X, X, X[..., :56]), {"backend": FLASH}, UNSUPPORTED, "is not there for heads of 64 and 56"),
    "cudnn on ampere": (
        (X, X, X),
        {"backend": CUDNN, "device": "a100"},
        UNSUPPORTED,
        "order of CUDNN_ATTENTION on a100 is not known",
    ),
    "groups": (
        (drawn(1, 4, 5, 64), drawn(2, 2, 5, 64), drawn(3, 2, 5, 64)),
        {"backend": EFFICIENT},
        UNSUPPORTED,
        "EFFICIENT_ATTENTION is not there.*shared heads of key and value",
    ),
    "mask, dtype": ((X, X, X), {"mask": np.zeros((8, 8))}, INPUT, "mask is float64; allowed: bool"),
    "mask, shape": (
        (X, X, X),
        {"mask": np.ones((8, 7), bool)},
        INPUT,
        r"mask \(8, 7\); it is broadcast to \(2, 8, 8",
    ),
    "mask, causal": ((X, X, X), {"mask": np.ones((8, 8), bool), "is_causal": True}, INPUT, "a mask and is_causal"),
    "one query": (
        (X[:, :1], X, X),
        {"backend": CUDNN},
        UNSUPPORTED,
        "order of CUDNN.* on h100 is not known with one query",
    ),
    "mask, authors": ((X, X, X), {"mask": np.ones((8, 8), bool), "library": VERSION_2}, UNSUPPORTED, "takes no mask"),
    "mask, flash": ((X, X, X), {"mask": np.ones((8, 8), bool), "backend": FLASH}, UNSUPPORTED, "a mask on h100"),
    "odd": ((drawn(1, 1, 4, 257),) * 3, {"backend": FLASH}, UNSUPPORTED, "FLASH_ATTENTION is not there.*'MATH' is"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_refused(name: str) -> None:
    operands, more, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        hwsim.attention(*operands, **more)


def test_another_option_is_refused_with_the_one_that_is_meant() -> None:
    x = np.zeros((1, 4, 16), np.float16)
    with pytest.raises(
        InputError, match=r"attention: no option 'causal'; allowed: device, .*; did you mean 'is_causal'"
    ):
        hwsim.attention(x, x, x, causal=True)  # type: ignore[arg-type]
