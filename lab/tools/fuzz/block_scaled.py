"""Campaign: one block-scaled instruction equals a direct reading of its documented steps in integers.

    python lab/tools/fuzz/block_scaled.py --count 30000 --log block_scaled.jsonl  # all cores; goes on at the log's end

A case is 1,024 results of one kind: random codes of A and B, of scales and of an accumulator C. Some scales are 0 or
NaN, some of C are 0, infinite or NaN. The reading follows OCP MX v1.0 (a scale multiplies each product), PTX ISA
(kinds, block lengths, formats) and docs/numerics.md, section 3 (exponents, places kept). It knows no code of hwsim but
the kernel that it judges.
"""

import itertools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from campaign import main

from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, load
from hwsim.numerics.dot_operands import DotOperands

SIDE = 32  # 32 x 32 results a case
NAN = 0x7FFFFFFF
#: {format: (exponent bits, fraction bits, bias)}
FLOATS = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e3m2": (3, 2, 3), "e2m3": (2, 3, 1), "e2m1": (2, 1, 1)}
MX8 = "tcgen05.mma.m128n32k32.mxf8f6f4.f32"
NV4 = "tcgen05.mma.m128n32k64.mxf4nvf4.f32.e2m1.e2m1"
#: (instruction, format of A, of B)
KINDS = (
    *((f"{MX8}.{a}.{b}", a, b) for a, b in itertools.product(FLOATS, repeat=2)),
    ("tcgen05.mma.m128n32k64.mxf4.f32.e2m1.e2m1", "e2m1", "e2m1"),
    *((f"{NV4}.{end}", "e2m1", "e2m1") for end in ("ue4m3.block16", "ue8m0.block16", "ue8m0.block32")),
)


def parts(codes, exponent_bits, fraction_bits, bias, is_e5m2=False, nan=None):
    """(signed significand as an integer, exponent, whether it is a NaN, whether an infinity) of codes."""
    magnitude = codes.astype(np.int64) & ((1 << exponent_bits + fraction_bits) - 1)
    sign = np.where(codes >> (exponent_bits + fraction_bits) & 1, -1, 1)
    field, fraction = magnitude >> fraction_bits, magnitude & ((1 << fraction_bits) - 1)
    significand = np.where(field > 0, fraction + (1 << fraction_bits), fraction)
    is_top = field == (1 << exponent_bits) - 1
    is_nan = magnitude == nan if nan is not None else is_top & (fraction > 0) & is_e5m2
    is_infinite = is_top & (fraction == 0) & is_e5m2
    return sign * significand, np.maximum(field, 1) - bias, is_nan, is_infinite


def element(codes, fmt):
    """The parts of an element."""
    return parts(codes, *FLOATS[fmt], is_e5m2=fmt == "e5m2", nan=0x7F if fmt == "e4m3" else None)


def scale(codes, fmt):
    """(significand, fraction bits, exponent, whether it is a NaN) of a scale."""
    if fmt == "ue8m0":
        wide = codes.astype(np.int64)
        return np.ones_like(wide), 0, wide - 127, wide == 0xFF
    significand, exponent, is_nan, _ = parts(codes & 0x7F, 4, 3, 7, nan=0x7F)
    return significand, 3, exponent, is_nan


def cut(significand, place, last):
    """Significands of weight 2^place in units of 2^last, truncated toward zero."""
    shift = place - last
    magnitude = np.abs(significand)
    up, down = np.clip(shift, 0, 62), np.clip(-shift, 0, 62)
    return np.sign(significand) * ((magnitude << up) >> down)


def to_fp32(total, place):
    """Codes of total * 2^place, truncated; beyond the range an infinity, and +0 for zero."""
    magnitude = np.abs(total)
    length = np.frexp(magnitude.astype(np.float64))[1]  # exact below 2^53
    last = np.maximum(length - 24 + place, -149)
    kept = cut(magnitude, place, last)
    is_normal = kept >= 1 << 23
    code = np.where(is_normal, ((last + 150) << 23) + (kept - (1 << 23)), kept)
    code = np.where(length - 1 + place > 127, 0x7F800000, code)
    code = np.where(kept == 0, 0, code)
    return np.where((total < 0) & (kept > 0), code | 0x80000000, code).astype(np.uint32)


def reading(name, a, b, scale_a, scale_b, c):
    """Codes (m, n) of one step of an instruction."""
    spec = dot_spec(load("b200"), name)
    is_grouped = spec.a == "e2m1" and a.shape[1] == 64
    kept, floor = (35, -139) if is_grouped else (25, -133)
    (sa, ea, na, ia), (sb, eb, nb, ib) = element(a, spec.a), element(b, spec.b)
    fraction = FLOATS[spec.a][1] + FLOATS[spec.b][1]
    product = sa[:, None, :] * sb.T[None, :, :]
    exponent = ea[:, None, :] + eb.T[None, :, :]
    (ta, fa, xa, za), (tb, fb, xb, zb) = scale(scale_a, spec.scale_format), scale(scale_b, spec.scale_format)
    spread = lambda x, axis: np.repeat(x, spec.scale_block, axis)[:, : a.shape[1]] if axis else x  # noqa: E731
    of_a, of_b = (spread(x, 1) for x in (ta, xa)), (spread(x.T, 1) for x in (tb, xb))
    (ta, xa), (tb, xb) = of_a, of_b
    factor, more = ta[:, None, :] * tb[None, :, :], xa[:, None, :] + xb[None, :, :]
    is_nan = (na.any(1)[:, None] | nb.any(0)[None, :]) | (za.any(1)[:, None] | zb.any(0)[None, :])
    infinite = ia[:, None, :] | ib.T[None, :, :]
    is_nan |= (infinite & ((sa == 0)[:, None, :] | (sb.T == 0)[None, :, :])).any(2)
    signs = np.sign(product)
    plus, minus = (infinite & (signs > 0)).any(2), (infinite & (signs < 0)).any(2)
    if is_grouped:
        groups = (4, 16)
        place = -fraction + exponent  # e2m1: multiples of 1/4
        quarters = np.where(product == 0, 0, np.sign(product) * (np.abs(product) << (place + 2)))
        term = quarters.reshape(*quarters.shape[:2], *groups).sum(3) * factor[:, :, :: groups[1]]
        top_of = more[:, :, :: groups[1]]
        is_zero = (product == 0).reshape(*product.shape[:2], *groups).all(3) | (factor[:, :, :: groups[1]] == 0)
        at = top_of - 2 - fa - fb
    else:
        term, top_of = product * factor, exponent + more
        is_zero, at = product == 0, top_of - fraction
    bits = c.astype(np.int64)
    field, low = bits >> 23 & 0xFF, bits & 0x7FFFFF
    start = np.where(field > 0, low + (1 << 23), low) * np.where(bits >> 31, -1, 1)
    from_c = np.maximum(field, 1) - 127
    is_nan |= (field == 0xFF) & (low > 0)
    plus |= (field == 0xFF) & (low == 0) & (bits >> 31 == 0)
    minus |= (field == 0xFF) & (low == 0) & (bits >> 31 == 1)
    top = np.where(is_zero, floor, top_of).max(2)
    top = np.maximum(np.maximum(top, floor), np.where(start == 0, floor, from_c))
    last = top - kept
    total = cut(np.where(is_zero, 0, term), at, last[:, :, None]).sum(2) + cut(start, from_c - 23, last)
    code = to_fp32(total, last)
    code = np.where(plus, 0x7F800000, np.where(minus, 0xFF800000, code))
    return np.where(is_nan | (plus & minus), NAN, code).astype(np.uint32)


def drawn(number):
    """The instruction and operands of a case."""
    rng = np.random.default_rng(number)
    name, first, second = KINDS[number % len(KINDS)]
    spec = dot_spec(load("b200"), name)
    k = 64 if ".k64" in name or "k64" in name else 32
    a, b = (
        rng.integers(0, 1 << sum(FLOATS[fmt][:2]) + 1, shape, np.uint8)
        for fmt, shape in ((first, (SIDE, k)), (second, (k, SIDE)))
    )
    if number % 3:  # few NaNs and infinities
        for x, fmt in ((a, first), (b, second)):
            special = (x & 0x7F) >= {"e4m3": 0x7F, "e5m2": 0x7C}.get(fmt, 0x80)
            x[special & (rng.random(x.shape) < 0.999)] = 0
    blocks = k // spec.scale_block
    middle, width = int(rng.integers(0, 255)), int(rng.integers(1, 40))
    scales = []
    for shape in ((SIDE, blocks), (blocks, SIDE)):
        codes = (
            rng.integers(0, 0x7F, shape)
            if spec.scale_format == "ue4m3"
            else middle + rng.integers(-width, width, shape)
        )
        codes = np.clip(codes, 0, 254).astype(np.uint8)
        codes[rng.random(shape) < 0.01] = 0
        codes[rng.random(shape) < 0.003] = 0x7F if spec.scale_format == "ue4m3" else 0xFF
        scales.append(codes)
    c = rng.integers(0, 1 << 32, (SIDE, SIDE), np.uint32)
    if number % 2:  # near the products
        near = np.clip(2 * middle - 127 + rng.integers(-30, 30, c.shape), 0, 254).astype(np.uint32)
        c = c & np.uint32(0x807FFFFF) | near << np.uint32(23)
    c[rng.random(c.shape) < 0.05] = 0
    return name, a, b, *scales, c


def case(number):
    """1,024 results of one kind."""
    name, a, b, scale_a, scale_b, c = drawn(number)
    got = CPU.gemm(dot_spec(load("b200"), name), DotOperands(a, b, c, scale_a, scale_b))
    want = reading(name, a, b, scale_a, scale_b, c)
    differ = got != want
    if differ.any():
        i, j = np.argwhere(differ)[0]
        raise ArithmeticError(f"{name}: {differ.sum()} differ; ({i}, {j}): {got[i, j]:#x}, read {want[i, j]:#x}")
    return "equal", [("kind", name, got.size)]


if __name__ == "__main__":
    main("block_scaled", case, __doc__.partition("\n")[0])
