"""ape, block by block, written down step by step."""

from __future__ import annotations

import numpy as np
from straight_fp16 import ape_fp32_f
from straight_unit import Outside
from straight_wide import ape_fp32_b, native

NARROW = (2.0**-14, 65504.0)  # 6.1e-5
WIDER = (7.7e-34, 3.4e38)


def kind(block: np.ndarray) -> int:
    """0: fp32-f takes it, 1: fp32-b, 2: native. Zeros are in every range."""
    x = np.abs(block[block != 0]).astype(np.float64)
    for number, (least, largest) in enumerate((NARROW, WIDER)):
        if ((x >= least) & (x <= largest)).all():
            return number
    return 2


def ape(a, b, device, block, interleave="instruction"):
    """A block's product takes the wider type; each type's partial sum over K by its own scheme, then added in order."""
    out = Outside(device)
    (m, k), n = a.shape, b.shape[1]
    c = np.zeros((m, n), np.float32)
    starts = range(0, k, block)
    for i in range(0, m, block):
        for j in range(0, n, block):
            rows, columns = a[i : i + block], b[:, j : j + block]
            of = [max(kind(rows[:, p : p + block]), kind(columns[p : p + block])) for p in starts]
            total = None
            for number in range(3):
                where = [q for p, t in zip(starts, of, strict=True) if t == number for q in range(p, min(p + block, k))]
                if not where:
                    continue
                x, y = np.ascontiguousarray(rows[:, where]), np.ascontiguousarray(columns[where])
                if number == 2:
                    part = native(x, y, device, "fp32", lambda v: v)
                else:
                    part = (ape_fp32_f, ape_fp32_b)[number](x, y, device, interleave)
                total = part if total is None else out.add(total, part)
            c[i : i + block, j : j + block] = total
    return c
