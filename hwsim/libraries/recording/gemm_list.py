"""Operands and kinds of recorded GEMMs, without PyTorch: for recorders, and for whoever reads what they wrote.

It knows how operands are drawn and kinds are named; it knows no library, and nothing of hwsim, whose tools load it by
its path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 24


def drawn(seed: int, index: int, m: int, n: int, k: int) -> tuple[NDArray[Any], ...]:
    """(rows, columns, A rows, B columns, bias of the columns) in float64, before rounding to the format.

    Normal values times powers of two in 2^-6 .. 1, so that the order of summation shows in the last bits.
    """
    rng = np.random.default_rng([seed, index])
    rows = np.sort(rng.choice(m, min(m, BLOCK), replace=False))
    columns = np.sort(rng.choice(n, min(n, BLOCK), replace=False))

    def values(*shape: int) -> NDArray[np.float64]:
        return rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 1, shape)

    return rows, columns, values(len(rows), k), values(k, len(columns)), values(len(columns))


_POWERS = np.exp2(np.arange(-6, 1), dtype=np.float32)  # exact


def drawn_wide(seed: int, index: int, m: int, n: int, k: int, block: int) -> tuple[NDArray[Any], ...]:
    """(rows, columns, A rows, B columns, bias of the columns, C of the block) of a block of at most `block` rows and
    columns: as `drawn`, in float32, which takes a third of the time.
    """
    rng = np.random.default_rng([seed, index, block])
    rows = np.sort(rng.choice(m, min(m, block), replace=False))
    columns = np.sort(rng.choice(n, min(n, block), replace=False))

    def values(*shape: int) -> NDArray[np.float32]:
        powers = rng.integers(-6, 1, shape, np.int8)
        scaled: NDArray[np.float32] = rng.standard_normal(shape, np.float32) * _POWERS[powers + 6]
        return scaled

    sizes = len(rows), len(columns)
    return rows, columns, values(sizes[0], k), values(k, sizes[1]), values(sizes[1]), values(*sizes)


def parse(kind: str) -> tuple[str, str, bool | None, bool]:
    """Operand format ("e4m3,e5m2": of A and of B), output format, fast accumulation, bias."""
    operand, _, output = kind.partition(">")
    bias, output = output.endswith("+bias"), output.removesuffix("+bias")
    fast = True if output.endswith("fast") else False if output.endswith("slow") else None
    return operand, output.removesuffix("fast").removesuffix("slow"), fast, bias


def pair(operand: str) -> tuple[str, str]:
    """The formats of A and of B in the operand format of a kind."""
    left, _, right = operand.partition(",")
    return left, right or left
