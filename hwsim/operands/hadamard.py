"""The random Hadamard transform of 16 elements along an axis. It knows arrays; no format and no scale.

Source: Transformer Engine d0067d0d (common/hadamard_transform): diag(signs) H / 4, H in Sylvester's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError

AnyArray = NDArray[Any]
LENGTH = 16
#: Transformer Engine's signs.
SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)


def matrix(signs: Sequence[int] = SIGNS) -> AnyArray:
    """diag(signs) H / 4 in float32, (16, 16). It is orthogonal. Raises InputError for other signs than 16 of +-1."""
    if len(signs) != LENGTH or any(sign not in (1, -1) for sign in signs):
        raise InputError(f"signs: {list(signs)}; allowed: {LENGTH} numbers, each 1 or -1")
    natural = np.ones((1, 1), np.float32)
    while len(natural) < LENGTH:
        natural = np.block([[natural, natural], [natural, -natural]])
    return np.asarray(signs, np.float32)[:, None] * natural / np.float32(4)


def random_hadamard(x: AnyArray, signs: Sequence[int] = SIGNS, *, axis: int = -1, inverse: bool = False) -> AnyArray:
    """Each 16 elements of x along `axis` times `matrix(signs)`, in float32; the sum of 16 is rounded once.

    inverse: times its transpose. Products A B do not change when both operands are transformed along K, but for
    roundings. Raises InputError where the axis is no multiple of 16 long.
    """
    moved = np.moveaxis(np.asarray(x), axis, -1)
    if moved.shape[-1] % LENGTH:
        raise InputError(f"the axis has {moved.shape[-1]} elements; allowed: a multiple of {LENGTH}")
    of_signs = matrix(signs).astype(np.float64)
    blocks = moved.reshape(*moved.shape[:-1], -1, LENGTH).astype(np.float64)
    result = blocks @ (of_signs.T if inverse else of_signs)
    return np.moveaxis(result.reshape(moved.shape), -1, axis).astype(np.float32)
