"""How large the differences of two results are, measured by the RMS of the results. It knows two arrays of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
MOST_ROWS = 12  # of a histogram as text


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeHistogram:
    """Sizes |left - right| / RMS of all elements that are finite on both sides.

    rms: root mean square of both results. equal: elements without a difference (zeros of unlike signs among them).
    exponents: e of the first to the last bin, which holds 2^e <= size < 2^(e + 1); counts: elements of each. median: of
    the elements that differ. largest: of all. rms_difference: root mean square of the differences over `rms`. Sizes are
    0, and bins none, where nothing differs.
    """

    rms: float
    equal: int
    exponents: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    median: float = 0.0
    largest: float = 0.0
    rms_difference: float = 0.0

    def grouped(self, most: int = MOST_ROWS) -> list[tuple[int, int, int]]:
        """(first exponent, exponent after the last, elements) of at most `most` groups of neighbouring bins."""
        if not self.exponents:
            return []
        first, stop = self.exponents[0], self.exponents[-1] + 1
        width = next(width for width in range(1, stop - first + 2) if -(-stop // width) - first // width <= most)
        groups = []
        for at in range(first // width * width, stop, width):
            begin, end = (max(place - first, 0) for place in (at, at + width))
            groups.append((at, at + width, sum(self.counts[begin:end])))
        return groups


def size_histogram(left: AnyArray, right: AnyArray) -> SizeHistogram:
    """The sizes of the differences of two results, as numbers of one shape."""
    x, y = (side.astype(np.float64, copy=False) for side in (left, right))
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    rms = _rms(np.concatenate([x, y]))
    with np.errstate(all="ignore"):
        difference = np.abs(x - y)
    sizes = difference[difference > 0] / rms if rms else difference[:0]
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    equal = int(x.size - sizes.size)
    if not sizes.size:
        return SizeHistogram(rms=rms, equal=equal)
    exponents = np.frexp(sizes)[1] - 1
    first = int(exponents.min())
    counts = np.bincount(exponents - first)
    return SizeHistogram(
        rms=rms,
        equal=equal,
        exponents=tuple(range(first, first + len(counts))),
        counts=tuple(int(count) for count in counts),
        median=float(np.median(sizes)),
        largest=float(sizes.max()),
        rms_difference=_rms(sizes) * float(np.sqrt(sizes.size / x.size)),
    )


def _rms(values: AnyArray) -> float:
    """The root mean square, without overflow."""
    largest = float(np.abs(values).max(initial=0.0))
    return largest * float(np.sqrt(np.mean((values / largest) ** 2))) if largest else 0.0
