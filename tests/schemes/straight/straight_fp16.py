"""sgemm-cube, le-gemm, ape-fp32-f, markidis, egemm-tc and ootomo-fp16, written down step by step."""

from __future__ import annotations

import numpy as np
from straight_unit import F32, Outside, Unit, codes, to_fp16, to_fp16_cut


def held(x: np.ndarray, device: str) -> np.ndarray:
    """What a saturating chip reads and its conversions give: no infinity, no NaN."""
    return Outside(device).settle(x) if Outside(device).saturates else x


def halves(x: np.ndarray, shift: int, device: str, cut: str = "") -> list[np.ndarray]:
    """Codes of x1 = fp16(x) and x2 = fp16((x - x1) 2^shift). cut: both toward zero; beyond the range as it says."""
    saturates = Outside(device).saturates

    def fp16(y: np.ndarray) -> np.ndarray:
        if cut:
            return to_fp16_cut(y, cut)
        found = to_fp16(y)
        return np.clip(found, F32(-65504), F32(65504)) if saturates else found

    x = held(x, device)
    first = fp16(x)
    rest = held(x - first, device)
    if shift:
        rest = held(rest * F32(2**shift), device)
    return [codes(first, "fp16"), codes(fp16(rest), "fp16")]


def sgemm_cube(a, b, device, k_group, scaling_exponent=12, accumulation="termwise"):
    """T1 = A1 B1, T2 = A1 B2, T3 = A2 B1; T1 + (T2 + T3) 2^-sb, once or after every group of K."""
    unit, out = Unit(device, "fp16"), Outside(device)
    (a1, a2), (b1, b2) = (halves(x, scaling_exponent, device) for x in (a, b))
    k = a.shape[1]
    k_group = min(k_group or k, k)

    def joined(t1, t2, t3):
        return out.add(t1, out.times(out.add(t2, t3), -scaling_exponent) if scaling_exponent else out.add(t2, t3))

    products = ((a1, b1), (a1, b2), (a2, b1))
    if accumulation == "termwise":
        group = None if k_group >= k else k_group
        return joined(*(out.runs(unit, [p], group) for p in products))
    total = unit.zeros(a1, b1)
    for at in range(0, k, k_group):
        span = slice(at, at + k_group)
        total = out.add(total, joined(*(unit.chain((x[:, span], y[span])) for x, y in products)))
    return total


def le_gemm(a, b, device, residual_rounding="RZ", interleave="instruction", k_group=None):
    """acc0 = A1 B1, acc1 = A1 B2 + A2 B1, C = acc0 + acc1 2^-10; pieces cut, saturating."""
    unit, out = Unit(device, "fp16"), Outside(device)

    def pieces(x):
        first = to_fp16_cut(x, "largest")
        rest = (x - first) * F32(2**10)
        if residual_rounding == "RZ":
            second = to_fp16_cut(rest, "largest")
        else:
            second = np.where(np.isnan(rest), rest, np.clip(to_fp16(rest), F32(-65504), F32(65504)))
        return codes(first, "fp16"), codes(second, "fp16")

    (a1, a2), (b1, b2) = pieces(a), pieces(b)
    acc0 = out.runs(unit, [(a1, b1)], k_group)
    acc1 = out.runs(unit, [(a1, b2), (a2, b1)], k_group, interleave)
    return out.add(acc0, out.times(acc1, -10))


def ape_fp32_f(a, b, device, interleave="instruction", k_group=None, accumulation="chained"):
    """x2 scaled by 2^12; acc0 = A1 B1, acc1 = A1 B2 then A2 B1, C = acc0 + acc1 2^-12; or three calls."""
    unit, out = Unit(device, "fp16"), Outside(device)
    (a1, a2), (b1, b2) = (halves(x, 12, device) for x in (a, b))
    acc0 = out.runs(unit, [(a1, b1)], k_group)
    if accumulation == "termwise":
        for left, right in ((a2, b1), (a1, b2)):
            acc0 = out.add(acc0, out.times(out.runs(unit, [(left, right)], k_group), -12))
        return acc0
    acc1 = out.runs(unit, [(a1, b2), (a2, b1)], k_group, interleave)
    return out.add(acc0, out.times(acc1, -12))


def four_products(a, b, device, rounding, interleave="instruction", k_group=None, accumulation="chained"):
    """A2 B2, A1 B2, A2 B1, A1 B1 in one accumulator, or four calls."""
    unit, out = Unit(device, "fp16"), Outside(device)
    cut = "ieee" if rounding == "RZ" else ""
    (a1, a2), (b1, b2) = (halves(x, 0, device, cut) for x in (a, b))
    products = [(a2, b2), (a1, b2), (a2, b1), (a1, b1)]
    if accumulation == "termwise":
        return out.calls(unit, products, k_group)
    return out.runs(unit, products, k_group, interleave)


def ootomo_fp16(a, b, device, leading="outside"):
    """A1 B1 a chain, or each instruction from zero, added outside; the corrections chained; C = acc0 + acc1 2^-11."""
    unit, out = Unit(device, "fp16"), Outside(device)
    (a1, a2), (b1, b2) = (halves(x, 11, device) for x in (a, b))
    acc0 = out.runs(unit, [(a1, b1)], unit.step) if leading == "outside" else unit.chain((a1, b1))
    acc1 = unit.chain((a1, b2), (a2, b1))
    return out.add(acc0, out.times(acc1, -11))
