"""fp32 test matrices built from bit fields."""

from __future__ import annotations

import numpy as np

SIGNIFICANDS = np.array([0, 1, 0x7FFFFF, 0x400000, 0x001000, 0x000FFF, 0x001001, 0x2AAAAA, 0x7FF000], np.uint32)


def bits(shape, seed, low=-30, high=20, specials=False):
    """Signs, exponents in low..high, patterned or random significands; optionally zeros, subnormals, specials."""
    rng = np.random.default_rng(seed)
    sign = rng.integers(0, 2, shape).astype(np.uint32)
    exponent = rng.integers(low + 127, high + 128, shape).astype(np.uint32)
    fraction = np.where(
        rng.random(shape) < 0.5, rng.choice(SIGNIFICANDS, shape), rng.integers(0, 1 << 23, shape)
    ).astype(np.uint32)
    codes = sign << 31 | exponent << 23 | fraction
    if specials:
        extra = np.array(
            [0, 1 << 31, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x477FE000, 0x477FF000], np.uint32
        )
        codes = np.where(rng.random(shape) < 0.05, rng.choice(extra, shape), codes).astype(np.uint32)
    return codes.view(np.float32)
