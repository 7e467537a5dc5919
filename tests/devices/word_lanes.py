"""fp64 and int64 arithmetic in instructions on 32-bit words, as a vector unit without either would compute it.

Each method of `WordLanes` is one instruction on uint32 arrays: additions, bitwise operations, shifts by a constant,
minima and maxima of signed words. There is no carry, no shift by a vector, and no comparison of integers. The routines
below are straight lines of these, and give IEEE's bits; NaNs are one code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
QUIET = 0x7FF80000  # the high word of the NaN


class Pair(NamedTuple):
    """The two words of numbers."""

    high: Words
    low: Words


class WordLanes:
    """A vector unit of 32-bit words. count: of the instructions so far."""

    def __init__(self) -> None:
        self.count = 0

    def _next(self, x: NDArray[np.generic]) -> Words:
        self.count += 1
        return np.ascontiguousarray(x).view(np.uint32)

    def add(self, x: Words, y: Words | int) -> Words:
        return self._next(x + np.uint32(y & 0xFFFFFFFF if isinstance(y, int) else 0) if isinstance(y, int) else x + y)

    def sub(self, x: Words, y: Words) -> Words:
        return self._next(x - y)

    def mul(self, x: Words, y: Words) -> Words:
        return self._next(x * y)

    def both(self, x: Words, y: Words | int) -> Words:
        return self._next(x & (np.uint32(y) if isinstance(y, int) else y))

    def either(self, x: Words, y: Words | int) -> Words:
        return self._next(x | (np.uint32(y) if isinstance(y, int) else y))

    def inverse(self, x: Words) -> Words:
        return self._next(~x)

    def left(self, x: Words, by: int) -> Words:
        return self._next(x << np.uint32(by))

    def right(self, x: Words, by: int) -> Words:
        return self._next(x >> np.uint32(by))

    def right_signed(self, x: Words, by: int) -> Words:
        return self._next(x.view(np.int32) >> np.int32(by))

    def least(self, x: Words, y: int) -> Words:
        return self._next(np.minimum(x.view(np.int32), np.int32(y)))

    def most(self, x: Words, y: int) -> Words:
        return self._next(np.maximum(x.view(np.int32), np.int32(y)))

    # --- several instructions

    def chosen(self, mask: Words, no: Words, x: Words, y: Words) -> Words:
        """x where mask is all ones, y elsewhere; no: the inverse of mask."""
        return self.either(self.both(x, mask), self.both(y, no))

    def is_below(self, x: Words, y: Words) -> Words:
        """All ones where x < y, of numbers whose difference is no more than 31 bits."""
        return self.right_signed(self.sub(x, y), 31)

    def carry(self, x: Words, y: Words, total: Words) -> Words:
        """1 where x + y = total left the word."""
        return self.right(self.either(self.both(x, y), self.both(self.either(x, y), self.inverse(total))), 31)

    def wide_add(self, x: Pair, y: Pair) -> Pair:
        low = self.add(x.low, y.low)
        return Pair(self.add(self.add(x.high, y.high), self.carry(x.low, y.low, low)), low)

    def wide_sub(self, x: Pair, y: Pair) -> Pair:
        low, no = self.sub(x.low, y.low), self.inverse(x.low)
        out = self.either(self.both(no, y.low), self.both(self.either(no, y.low), low))
        return Pair(self.sub(self.sub(x.high, y.high), self.right(out, 31)), low)

    def wide_left(self, x: Pair, by: int) -> Pair:
        return Pair(self.either(self.left(x.high, by), self.right(x.low, 32 - by)), self.left(x.low, by))

    def wide_right(self, x: Pair, by: int) -> Pair:
        return Pair(self.right(x.high, by), self.either(self.right(x.low, by), self.left(x.high, 32 - by)))

    def wide_right_signed(self, x: Pair, by: int) -> Pair:
        return Pair(self.right_signed(x.high, by), self.either(self.right(x.low, by), self.left(x.high, 32 - by)))

    def wide_selected(self, condition: Pair, x: Pair, y: Pair) -> Pair:
        """x where the condition is not 0, y elsewhere."""
        word = self.either(condition.high, condition.low)
        return self.wide_chosen(self.right_signed(self.either(word, self.sub(word ^ word, word)), 31), x, y)

    def wide_chosen(self, mask: Words, x: Pair, y: Pair) -> Pair:
        no = self.inverse(mask)
        return Pair(self.chosen(mask, no, x.high, y.high), self.chosen(mask, no, x.low, y.low))

    def sticky(self, x: Words) -> Words:
        """1 where a word is not 0."""
        return self.right(self.either(x, self.sub(x ^ x, x)), 31)


def fp64_add(w: WordLanes, a: Pair, b: Pair) -> Pair:
    """a + b in fp64, to nearest even."""
    # The larger magnitude is x.
    size_a, size_b = (Pair(w.both(one.high, 0x7FFFFFFF), one.low) for one in (a, b))
    swap = w.right_signed(w.wide_sub(size_a, size_b).high, 31)
    x, y = w.wide_chosen(swap, b, a), w.wide_chosen(swap, a, b)
    ex, sx = _exponent(w, x)
    ey, sy = _exponent(w, y)
    # y to x's exponent, with three more places, of which the last is sticky.
    sx, sy = w.wide_left(sx, 3), w.wide_left(sy, 3)
    sy = _aligned(w, sy, w.least(w.sub(ex, ey), 63))
    differ = w.right_signed(w.sub(x.high ^ x.high, _signs_differ(w, x.high, y.high)), 31)
    total = w.wide_chosen(differ, w.wide_sub(sx, sy), w.wide_add(sx, sy))
    result = _rounded(w, x.high, ex, total)
    # x + -x = +0; an infinity or a NaN of x stays, unless they are infinities of both signs.
    signs = w.either(w.both(x.high, y.high), w.both(w.either(x.high, y.high), w.inverse(differ)))
    is_zero = w.right_signed(w.add(w.sticky(w.either(total.high, total.low)), -1), 31)
    result = Pair(w.chosen(is_zero, w.inverse(is_zero), w.both(signs, 0x80000000), result.high), result.low)
    return _special_sum(w, x, y, ex, ey, differ, result)


def _exponent(w: WordLanes, x: Pair) -> tuple[Words, Pair]:
    """The exponent, 1 at least, and the significand with its first bit."""
    field = w.right(w.left(x.high, 1), 21)
    high = w.either(w.both(x.high, 0xFFFFF), w.left(w.least(field, 1), 20))
    return w.most(field, 1), Pair(high, x.low)


def _signs_differ(w: WordLanes, x: Words, y: Words) -> Words:
    """1 where the signs of two words differ."""
    return w.right(w.add(x, w.both(y, 0x80000000)), 31)


def _aligned(w: WordLanes, x: Pair, by: Words) -> Pair:
    """x >> by, below 64; the last bit is 1 where any that left was."""
    lost = x.low ^ x.low
    for step in (5, 4, 3, 2, 1, 0):
        mask = w.right_signed(w.left(by, 31 - step), 31)
        if step == 5:
            out, shifted = x.low, Pair(x.high ^ x.high, x.high)
        else:
            out, shifted = w.left(x.low, 32 - (1 << step)), w.wide_right(x, 1 << step)
        lost = w.either(lost, w.both(out, mask))
        x = w.wide_chosen(mask, shifted, x)
    return Pair(x.high, w.either(x.low, w.sticky(lost)))


def _rounded(w: WordLanes, sign: Words, exponent: Words, total: Pair) -> Pair:
    """The fp64 of a significand with 52 + 3 places, of at most one bit before its first, to nearest even."""
    # One place to the right where a sum has one more bit.
    mask = w.right_signed(w.left(total.high, 7), 31)
    shifted = w.wide_right(total, 1)
    shifted = Pair(shifted.high, w.either(shifted.low, w.both(total.low, 1)))
    total, exponent = w.wide_chosen(mask, shifted, total), w.sub(exponent, mask)
    # To the left where a difference has fewer, while the exponent stays at 1 or above.
    for step in (5, 4, 3, 2, 1, 0):
        by = 1 << step
        if step == 5:
            head = w.either(total.high, w.right(total.low, 24))
        else:
            head = w.right(total.high, 24 - by)
        is_free = w.right_signed(w.sub(w.least(head, 1), np.full_like(head, 1)), 31)
        mask = w.both(is_free, w.right_signed(w.sub(np.full_like(head, by), exponent), 31))
        moved = Pair(total.low, total.low ^ total.low) if step == 5 else w.wide_left(total, by)
        total = w.wide_chosen(mask, moved, total)
        exponent = w.sub(exponent, w.both(mask, by))
    # Half of the last place but one, less its own bit: nearest, ties to even.
    more = w.add(w.both(w.right(total.low, 3), 1), 3)
    low = w.add(total.low, more)
    over = w.right(w.both(total.low, w.inverse(low)), 31)
    total = w.wide_right(Pair(w.add(total.high, over), low), 3)
    # The first bit is added to the exponent less one: a subnormal has none.
    field = w.add(w.left(w.add(exponent, -1), 20), total.high)
    # Beyond the largest exponent: infinity.
    mask = w.right_signed(w.sub(np.full_like(field, 0x7FEFFFFF), field), 31)
    no = w.inverse(mask)
    field = w.either(w.both(np.full_like(field, 0x7FF00000), mask), w.both(field, no))
    return Pair(w.either(field, w.both(sign, 0x80000000)), w.both(total.low, no))


def _special_sum(w: WordLanes, x: Pair, y: Pair, ex: Words, ey: Words, differ: Words, result: Pair) -> Pair:
    """The sum where x, the larger, is an infinity or a NaN."""
    is_special = w.right_signed(w.sub(np.full_like(ex, 0x7FE), ex), 31)
    is_other = w.right_signed(w.sub(np.full_like(ex, 0x7FE), ey), 31)
    fraction = w.sticky(w.either(w.both(x.high, 0xFFFFF), x.low))
    is_nan = w.right_signed(w.sub(x.high ^ x.high, fraction), 31)
    is_nan = w.either(is_nan, w.both(is_other, differ))
    special = Pair(w.either(x.high, x.high ^ x.high), x.low ^ x.low)
    no = w.inverse(is_nan)
    special = Pair(w.either(w.both(special.high, no), w.both(np.full_like(ex, QUIET), is_nan)), special.low)
    return w.wide_chosen(is_special, special, result)


def fp64_scaled(w: WordLanes, x: Pair, by: int) -> Pair:
    """x * 2^by in fp64, to nearest even; by: of magnitude 2200 at most."""
    field, significand = _exponent(w, x)
    total = w.wide_left(significand, 3)
    exponent = w.add(field, by)
    short = w.most(w.sub(np.full_like(exponent, 1), exponent), 0)
    total = _aligned(w, total, w.least(short, 63))
    exponent = w.least(w.most(exponent, 1), 0x7FF)
    is_zero = w.right_signed(w.add(w.sticky(w.either(total.high, total.low)), -1), 31)
    exponent = w.both(exponent, w.inverse(is_zero))
    result = _rounded(w, x.high, w.most(exponent, 1), total)
    is_special = w.right_signed(w.sub(np.full_like(field, 0x7FE), field), 31)
    return w.wide_chosen(is_special, x, result)
