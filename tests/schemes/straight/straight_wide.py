"""native, bf16x9 and its kin, ape-fp32-b and -t, tf32 and tf64 multiword, ootomo-tf32, written down step by step."""

from __future__ import annotations

import numpy as np
from straight_unit import F32, U32, U64, Outside, Unit, codes, to_bf16, to_bf16_held, to_tf32

LARGEST = np.finfo(np.float32).max
BANDS = [[(2, 2)], [(1, 2), (2, 1)], [(0, 2), (1, 1), (2, 0)], [(0, 1), (1, 0)], [(0, 0)]]
KEPT = {"bf16x9": 5, "bf16x6": 3, "bf16x3": 2}
ORDER = [(2, 2), (1, 2), (2, 1), (0, 2), (1, 1), (2, 0), (0, 1), (1, 0), (0, 0)]
STEP = 16


def native(a, b, device, fmt, to, k_group=None):
    """RN(A) RN(B) in one accumulator."""
    unit = Unit(device, fmt)
    return Outside(device, unit.d).runs(unit, [(codes(to(a), fmt), codes(to(b), fmt))], k_group)


def multiword(a, b, device, count, fmt="tf32", k_group=None, accumulation="termwise", interleave="instruction"):
    """One call for each of A1 B1, A1 B2, A2 B1, A2 B2: from zero in the unit, added to C outside; or one chain."""
    unit = Unit(device, fmt)
    out = Outside(device, unit.d)

    def pieces(x):
        if fmt == "tf32":
            first = to_tf32(x)
            return codes(first, fmt), codes(to_tf32(x - first), fmt)
        first = x.astype(F32)
        return codes(first, fmt), codes((x - first).astype(F32), fmt)

    left, right = pieces(a), pieces(b)
    c = None
    if accumulation == "chained":
        pairs = ((0, 0), (0, 1), (1, 0), (1, 1))[:count]
        return out.runs(unit, [(left[i], right[j]) for i, j in pairs], k_group, interleave)
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1))[:count]:
        product = out.runs(unit, [(left[i], right[j])], k_group)
        c = product if c is None else out.add(c, product)
    return c


def ape_fp32_b(a, b, device, interleave="instruction", k_group=None, accumulation="chained"):
    """Three unscaled BF16 pieces; hi.hi, hi.mi, mi.hi, hi.lo, mi.mi, lo.hi in one accumulator, or six calls."""

    def pieces(x):
        hi = to_bf16(x)
        mi = to_bf16(x - hi)
        lo = to_bf16(x - hi - mi)
        return [codes(p, "bf16") for p in (hi, mi, lo)]

    (ah, am, al), (bh, bm, bl) = pieces(a), pieces(b)
    if accumulation == "termwise":
        products = [(ah, bh), (am, bh), (ah, bm), (am, bm), (al, bh), (ah, bl)]
        return Outside(device).calls(Unit(device, "bf16"), products, k_group)
    products = [(ah, bh), (ah, bm), (am, bh), (ah, bl), (am, bm), (al, bh)]
    return Outside(device).runs(Unit(device, "bf16"), products, k_group, interleave)


def ape_fp32_t(a, b, device, interleave="instruction", k_group=None):
    """Two unscaled TF32 pieces; A1 B1, A1 B2, A2 B1 in one accumulator."""
    (a1, a2), (b1, b2) = ([to_tf32(x), to_tf32(x - to_tf32(x))] for x in (a, b))
    products = [(codes(x, "tf32"), codes(y, "tf32")) for x, y in ((a1, b1), (a1, b2), (a2, b1))]
    return Outside(device).runs(Unit(device, "tf32"), products, k_group, interleave)


def ootomo_tf32(a, b, device, leading="outside"):
    """RNA pieces, unscaled; each instruction of A1 B1 from zero, added outside; the corrections chained."""
    unit, out = Unit(device, "tf32"), Outside(device)

    def pieces(x):
        first = to_tf32(x, "away")
        return codes(first, "tf32"), codes(to_tf32(x - first, "away"), "tf32")

    (a1, a2), (b1, b2) = pieces(a), pieces(b)
    acc0 = out.runs(unit, [(a1, b1)], unit.step) if leading == "outside" else unit.chain((a1, b1))
    return out.add(acc0, unit.chain((a1, b2), (a2, b1)))


def bf16x(a, b, device, name, accumulation, promotion_interval=1, k_group=None):
    """Bands from the least significant one; infinities as the largest value, put back at the end."""
    unit, out = Unit(device, "bf16"), Outside(device)
    left, right = (_thirds(x, 1 if accumulation == "termwise" else 256) for x in (a, b))
    bands = BANDS[-KEPT[name] :]
    if accumulation == "termwise":
        total = None
        for i, j in [p for p in ORDER if any(p in band for band in bands)]:
            product = out.runs(unit, [(left[i], right[j])], k_group)
            total = product if total is None else out.add(total, product)
        return patched(total, a, b)
    k, length = a.shape[1], STEP * promotion_interval
    total = unit.zeros(left[0], right[0])
    for at in range(0, k, length):
        steps = range(at, min(at + length, k), STEP)
        band_of = _inside if accumulation == "fastf32" else _outside
        total = out.add(total, band_of(unit, out, left, right, bands, steps, k))
    return patched(total, a, b)


def _inside(unit, out, left, right, bands, steps, k):
    """One accumulator, which the first product of each later band takes times 2^-8."""
    acc = unit.zeros(left[0], right[0])
    for number, band in enumerate(bands):
        scale = 8 if number else 0
        for at in steps:
            span = slice(at, min(at + STEP, k))
            for i, j in band:
                acc = unit.product(left[i][:, span], right[j][span], acc, scale)
                scale = 0
    return acc


def _outside(unit, out, left, right, bands, steps, k):
    """Each band from zero, scaled and added on the fp32 lanes."""
    value = None
    for band in bands:
        acc = unit.zeros(left[0], right[0])
        for at in steps:
            span = slice(at, min(at + STEP, k))
            for i, j in band:
                acc = unit.product(left[i][:, span], right[j][span], acc)
        value = acc if value is None else out.add(out.times(value, -8), acc)
    return value


def _thirds(x, step):
    """Codes of p0, p1, p2, the rest times `step` before each but the first."""
    rest = np.where(np.isinf(x), np.copysign(LARGEST, x), x).astype(F32)
    found = []
    for i in range(3):
        if i and step != 1:
            rest = rest * F32(step)
        piece = to_bf16_held(rest)
        rest = rest - piece
        found.append(codes(piece, "bf16"))
    return found


def patched(c, a, b):
    """Where a row of A or a column of B holds a NaN or an infinity: what an FMA chain in order of K gives."""
    rows, columns = ~np.isfinite(a).all(1), ~np.isfinite(b).all(0)
    where = rows[:, None] | columns
    if not where.any():
        return c
    word = U64 if c.dtype == np.float64 else U32
    nan = np.array((1 << (8 * c.dtype.itemsize - 1)) - 1, word).view(c.dtype)
    total = np.zeros(c.shape, c.dtype)
    for p in range(a.shape[1]):  # only which special value comes out matters: overflow does not, with the values here
        total = total + a[:, p : p + 1].astype(c.dtype) * b[p : p + 1].astype(c.dtype)
    assert not np.isfinite(total[where]).any()
    return np.where(where, np.where(np.isnan(total), nan, total), c)
