"""Notices about spans of exponents: rows of A and columns of B with elements below the last bit that a scheme keeps.

It knows elements and numbers of bits; it knows no scheme.
"""

from __future__ import annotations

import numpy as np

from hwsim.schemes.scheme import AnyArray, Notice

CODE = "small_elements_lost"


def spans(x: AnyArray, axis: int) -> tuple[AnyArray, AnyArray]:
    """For each row (axis -1) or column (-2): the bits from the leading digit of its largest element down to the leading
    digit of its smallest, and the exponent e of the largest, which is below 2^e. Zeros, infinities and NaNs take no
    part; a row of zeros spans no bit.
    """
    finite = np.where(np.isfinite(x), x, 0.0).astype(np.float64)
    exponents = np.frexp(finite)[1].astype(np.int64)
    is_number = finite != 0
    top = np.where(is_number, exponents, np.iinfo(np.int64).min).max(axis=axis, initial=np.iinfo(np.int64).min)
    low = np.where(is_number, exponents, np.iinfo(np.int64).max).min(axis=axis, initial=np.iinfo(np.int64).max)
    some = is_number.any(axis=axis)
    return np.where(some, np.where(some, top, 0) - np.where(some, low, 0) + 1, 0), np.where(some, top, 0)


def lost_elements(
    a: AnyArray, b: AnyArray, kept_bits: tuple[AnyArray | int, AnyArray | int], keeper: str
) -> list[Notice]:
    """A notice for A, and for B, where the smallest elements of rows (columns) are truncated to zero.

    kept_bits: of A's rows and B's columns, below the exponent of the largest element. keeper: what keeps them.
    """
    notices = []
    for name, x, axis, kept in (("rows of A", a, -1, kept_bits[0]), ("columns of B", b, -2, kept_bits[1])):
        bits = spans(x, axis)[0]
        beyond = bits - kept
        count = int((beyond > 0).sum())
        if count:
            worst = int(np.argmax(beyond))
            most, least = int(bits.flat[worst]), int(np.broadcast_to(kept, bits.shape).flat[worst])
            text = f"{count} {name} span up to {most} bits; the {keeper} keep {least}: small elements are lost"
            notices.append(Notice(CODE, count, text))
    return notices
