"""What Triton's compilers join over several calls of the interpreter: a product and a sum, a dot and a sum.

The module knows the interpreter's handles and when a value may be joined; it knows no device. Sources: LLVM's
DAGCombiner, visitFADDForFMACombine and visitFSUBForFMACombine (a fused operation for every product of the same basic
block that is added or subtracted, the left one first; NVPTX is aggressive, products with more uses are fused too);
Triton's Combine.td (a dot from the constant zero that is added).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from triton.runtime.interpreter import TensorHandle

PRODUCT, ZERO = "hwsim.product", "hwsim.zero"
FUSED_TYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


class Blocks:
    """Counts the basic blocks that a program has run through: values of another one are not joined."""

    def __init__(self) -> None:
        self.now = 0

    def begin(self) -> None:
        """A loop's iteration, a condition."""
        self.now += 1


@dataclass(frozen=True, slots=True)
class PendingProduct:
    """The factors of a value, and the block that it is of."""

    left: Any
    right: Any
    block: int


class PendingDot(TensorHandle):
    """The result of a dot from zero, which is computed when it is read: if it is added first, the sum is the dot's
    accumulator. compute(c): its codes from the accumulator c on.
    """

    def __init__(self, compute: Callable[[Any, bool], Any], zero: Any, block: int) -> None:
        self.dtype, self.block = zero.dtype, block
        self.attr: dict[str, Any] = {}
        self._compute, self._zero, self._data = compute, zero, None

    @property
    def data(self) -> Any:
        """The array."""
        if self._data is None:
            self._data = self._compute(self._zero, False)
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value

    def added_to(self, other: Any) -> TensorHandle | None:
        """The dot and a sum, as the compiler joins them; None where the dot has been read."""
        return None if self._data is not None else TensorHandle(self._compute(other, True), self.dtype.scalar)


class JoinedOperations:
    """Joins. builder: the interpreter's, for its plain operations. fuses: whether the target fuses products."""

    def __init__(self, blocks: Blocks, fuses: Callable[[], bool]) -> None:
        self._blocks, self._fuses = blocks, fuses

    def multiplied(self, left: Any, right: Any, result: Any) -> Any:
        """The result of a product, with its factors."""
        if result.data.dtype in FUSED_TYPES:
            result.attr[PRODUCT] = PendingProduct(left, right, self._blocks.now)
        return result

    def moved(self, source: Any, result: Any, move: Callable[[Any], Any]) -> Any:
        """A result that has the elements of `source`, with the factors moved as it is, and its zero."""
        product = self._product(source)
        if product is not None:
            result.attr[PRODUCT] = PendingProduct(move(product.left), move(product.right), product.block)
        if ZERO in source.attr:
            result.attr[ZERO] = source.attr[ZERO]
        return result

    def zero(self, result: Any) -> Any:
        """A constant; remembered where it is zero."""
        if not result.data.any():
            result.attr[ZERO] = self._blocks.now
        return result

    def is_zero(self, handle: Any) -> bool:
        """Whether a value is the constant zero of this block."""
        return bool(handle.attr.get(ZERO) == self._blocks.now)

    def added(self, left: Any, right: Any, fused: Callable[[Any, Any, Any], Any]) -> Any:
        """left + right where something is joined; else None. fused: x y + z."""
        for pending, other in ((left, right), (right, left)):
            if isinstance(pending, PendingDot) and pending.block == self._blocks.now:
                result = pending.added_to(other)
                if result is not None:
                    return result
        if not self._fuses():
            return None
        for value, other in ((left, right), (right, left)):
            product = self._product(value)
            if product is not None:
                return fused(product.left, product.right, other)
        return None

    def subtracted(self, left: Any, right: Any, fused: Callable[[Any, Any, Any], Any]) -> Any:
        """left - right where something is joined; else None."""
        if not self._fuses():
            return None
        if (product := self._product(left)) is not None:
            return fused(product.left, product.right, negative(right))
        if (product := self._product(right)) is not None:
            return fused(negative(product.left), product.right, left)
        return None

    def _product(self, handle: Any) -> PendingProduct | None:
        product = handle.attr.get(PRODUCT)
        return product if product is not None and product.block == self._blocks.now else None


def negative(handle: Any) -> TensorHandle:
    """The value with the other sign."""
    return TensorHandle(np.negative(handle.data), handle.dtype)
