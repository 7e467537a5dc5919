"""2^x of fp32 arrays by a polynomial on the lanes that multiply and add, as FlashAttention-4 computes it, to the bit.

It knows the polynomial; it knows no table, no kernel and no device. Source: github Dao-AILab/flash-attention 0251105a,
flash_attn/cute/utils.py (ex2_emulation_2, POLY_EX2 of degree 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.rounded_once import multiply_add

Single = NDArray[np.float32]
#: Of the powers 3 to 0 of the fraction.
COEFFICIENTS = tuple(
    np.float32(x) for x in (0.077119089663028717041015625, 0.227564394474029541015625, 0.695146143436431884765625, 1.0)
)
LEAST = np.float32(-127)  # smaller arguments, and NaNs, count as it: their power is 0
FRACTION_BITS = 23


def power_by_polynomial(x: Single) -> Single:
    """2^x for x below 128: the polynomial of x - floor(x), with floor(x) added to its exponent as an integer. Results
    below the normal range are so (x - floor(x)) 2^-126, nearly.
    """
    with np.errstate(invalid="ignore"):
        bounded = np.fmax(x, LEAST)
        whole = np.floor(bounded)
        fraction = bounded - whole
        total = np.full_like(fraction, COEFFICIENTS[0])
        for coefficient in COEFFICIENTS[1:]:
            total = multiply_add(total, fraction, np.full_like(fraction, coefficient))
        exponent = np.where(np.isfinite(whole), whole, np.float32(0)).astype(np.int32)
    raised: Single = (total.view(np.int32) + (exponent << FRACTION_BITS)).view(np.float32)
    return raised
