"""What a dot unit reads, as one record by role. The module knows no format, no unit and no shape."""

from __future__ import annotations

from typing import Any, NamedTuple


class DotOperands(NamedTuple):
    """Codes of what a dot unit reads.

    Of one element: a and b, sequences of K codes; c, a code; scale_a and scale_b, sequences of one code for each block
    of K. Of matrices: arrays a (..., M, K), b (..., K, N), c (..., M, N), scale_a (..., M, blocks), scale_b
    (..., blocks, N). c None: +0. scale_a, scale_b None: the unit has no block scales. scale_d: the accumulator counts
    times 2^-scale_d before the first step (tcgen05's scale-input-d); of matrices for a backend 0, or an array uint8
    (steps,) with an exponent for each step.
    """

    a: Any
    b: Any
    c: Any = None
    scale_a: Any = None
    scale_b: Any = None
    scale_d: Any = 0
