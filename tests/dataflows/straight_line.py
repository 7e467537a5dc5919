"""SGEMM-cube written down once more, straight from the scheme's definition, over the integer reference."""

from __future__ import annotations

import numpy as np

from hwsim.devices import dot_spec, load
from hwsim.formats import FORMATS, decode, round_to
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

LARGEST = np.finfo(np.float32).max


def settle(x):
    """The 910A only saturates: no infinity and no NaN leaves or enters its vector unit."""
    return np.nan_to_num(np.asarray(x, np.float32), nan=0.0, posinf=LARGEST, neginf=-LARGEST)


def to_fp16(x):
    """fp32 -> fp16 codes, nearest even, saturating, by exact integers."""
    fp16, fp32 = FORMATS["fp16"], FORMATS["fp32"]
    codes = settle(x).view(np.uint32)
    out = [round_to(fp16, decode(fp32, int(c)), "RNE", overflow="saturate") for c in codes.ravel()]
    return np.array(out, np.uint16).reshape(codes.shape)


def split(x, sb):
    """x1 = RN(x), x2 = RN((x - x1) * 2^sb)."""
    with np.errstate(all="ignore"):
        x = settle(x)
        high = to_fp16(x)
        rest = settle(x - high.view(np.float16).astype(np.float32))
        low = to_fp16(settle(rest * np.float32(2.0**sb)))
    return high, low


def product(a, b, k_group, device="ascend910a"):
    """Products accumulated in the cube over each k_group from zero, groups added nearest even in order of K."""
    chip = load(device)
    spec = dot_spec(chip, chip.native["fp16"])
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], k_group):
            part = reference.gemm(
                spec,
                DotOperands(
                    a[:, start : start + k_group], b[start : start + k_group], np.zeros(total.shape, np.uint32)
                ),
            )
            total = settle(total + part.view(np.float32))
    return total


def sgemm_cube(a, b, sb, k_group, accumulation="termwise"):
    """C of SGEMM-cube on a 910A."""
    a1, a2 = split(a, sb)
    b1, b2 = split(b, sb)
    scale = np.float32(2.0**-sb)

    def joined(x1, x2, y1, y2, group):
        with np.errstate(all="ignore"):
            t1, t2, t3 = product(x1, y1, group), product(x1, y2, group), product(x2, y1, group)
            small = settle(t2 + t3)
            return settle(t1 + (settle(small * scale) if sb else small))

    if accumulation == "termwise":
        return joined(a1, a2, b1, b2, k_group)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for start in range(0, a.shape[1], k_group):
        cut = slice(start, start + k_group)
        with np.errstate(all="ignore"):
            total = settle(total + joined(a1[:, cut], a2[:, cut], b1[cut], b2[cut], k_group))
    return total
