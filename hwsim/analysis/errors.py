"""Errors of a computed product relative to the exact one; a plain fp32 FMA chain is the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.exact_product import MOST_SLICES, reference, two_product, two_sum
from hwsim.analysis.metrics import errors
from hwsim.analysis.run_records import ProductErrors
from hwsim.analysis.worst_element import finite_errors, worst_element
from hwsim.backend.cpu import CPU
from hwsim.host.threads import worker_count
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, FmaChainUnit

AnyArray = NDArray[Any]
METRIC_BYTES = 80  # of an element of C while its error is computed: fp64, ten at once
PAIR_BYTES = 8 * (MOST_SLICES + 4)  # of an element of A or B: its slices, and what is left as they are taken

ALL_ZERO = "the exact product is 0"


def fma_chain(a: AnyArray, b: AnyArray, *, threads: int | None = None) -> NDArray[np.float32]:
    """A plain fp32 product (..., m, n): one fused multiply-add per k, in order of k. a (..., m, k), b (..., k, n), as
    fp32.
    """
    chain = DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    codes = (
        np.broadcast_to(np.ascontiguousarray(x, np.float32).view(np.uint32), (*lead, *x.shape[-2:])) for x in (a, b)
    )
    product = CPU.gemm(chain, DotOperands(*codes), threads=threads or worker_count())
    return product.view(np.float32)


def as_fp64(x: AnyArray) -> AnyArray:
    """The values as fp64."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return x.astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class LinearEpilogue:
    """An epilogue in fp64, for references: alpha times the product, plus factor times array (the result's shape, or one
    row) for each of `added`.
    """

    alpha: float = 1.0
    added: tuple[tuple[float, AnyArray], ...] = ()

    def apply(self, product: AnyArray) -> AnyArray:
        """The epilogue of a product in fp64."""
        total = self.alpha * product
        for factor, array in self.added:
            total = total + factor * array
        return total

    def apply_pair(self, high: AnyArray, low: AnyArray, rows: slice) -> tuple[AnyArray, AnyArray]:
        """The epilogue of a product as a pair of doubles (high, low). rows: the rows of the result that it has."""
        total, cut = two_product(np.full(1, float(self.alpha)), high)
        rest = cut + self.alpha * low
        for factor, array in self.added:
            term, cut = two_product(np.full(1, float(factor)), as_fp64(array if array.ndim == 1 else array[rows]))
            total, lost = two_sum(total, term)
            rest = rest + lost + cut
        return total, np.where(np.isfinite(rest), rest, 0.0)


def errors_of(
    a: AnyArray, b: AnyArray, c: AnyArray, epilogue: LinearEpilogue, rounded: tuple[AnyArray, AnyArray] | None = None
) -> ProductErrors:
    """Error metrics of c and of a plain fp32 FMA chain, relative to the product in fp64; for an fp64 c, relative to the
    exact product.

    a (..., m, k), b (..., k, n), c (..., m, n). `rows`, present where the exact product is too expensive: how many rows
    of every matrix were compared, evenly spaced. rounded: A and B as the unit takes them, where these are others.
    """
    with np.errstate(all="ignore"):
        baseline = epilogue.apply(as_fp64(fma_chain(a, b))).astype(np.float32)
        rounding = arithmetic = None
        low: AnyArray | float = 0.0
        if c.dtype != np.float64 or not c.size:
            high, rows = epilogue.apply(as_fp64(a) @ as_fp64(b)), slice(None)
            if rounded is not None:
                of_rounded = epilogue.apply(as_fp64(rounded[0]) @ as_fp64(rounded[1]))
                rounding, arithmetic = errors(high, of_rounded), errors(of_rounded, c)
        else:
            high, low, rows = exact_pair(a, b, c.shape, epilogue)
        of_c, of_baseline = (errors(high, x[..., rows, :], low) for x in (c, baseline))
        return ProductErrors(
            of_c.relative_frobenius,
            of_c.max_relative,
            of_baseline,
            rows=None if high.shape == c.shape else high.shape[-2],
            input_rounding=rounding,
            arithmetic=arithmetic,
            worst=worst_element(a, b, c, high, low, rows),
            finite=finite_errors(high, c[..., rows, :], low),
            baseline_note=None if math.isfinite(of_baseline.relative_frobenius) else _why_undefined(a, b, high, c),
            norm_note=ALL_ZERO if c.size and not high.any() else None,
        )


def _why_undefined(a: AnyArray, b: AnyArray, exact: AnyArray, c: AnyArray) -> str | None:
    """Why the errors of the FMA chain are not finite."""
    if not c.size or not (as_fp64(exact) != 0).any():
        return None
    if not all(np.isfinite(as_fp64(x)).all() for x in (a, b)):
        return "A or B is not finite"
    if not all(np.isfinite(as_fp64(x).astype(np.float32)).all() for x in (a, b)):
        return "A or B has values beyond fp32"
    return "its sums leave fp32"


def bytes_needed(elements: int, lead: int, results: int, *, is_fp64: bool) -> int:
    """Bytes that `errors_of` and `error_map` take beside their arguments at most.

    elements: of one matrix of A and one of B together; lead: how many matrices; results: elements of C (of all).
    is_fp64: whether C is fp64, which is compared with an exact product in slices.
    """
    metrics = METRIC_BYTES * results
    if not is_fp64:
        # A and B in fp64, as given and as the unit takes them, their products, the baseline
        return max(16 * elements * lead + 36 * results, metrics)
    return PAIR_BYTES * elements + 2 * 16 * results + max(METRIC_BYTES * results // lead, metrics)


def exact_pair(
    a: AnyArray, b: AnyArray, shape: tuple[int, ...], epilogue: LinearEpilogue
) -> tuple[AnyArray, AnyArray, slice]:
    """The exact result as a pair of doubles, and the rows of each matrix that it has, the same for all matrices."""
    lead = shape[:-2]
    left, right = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    added = [(factor, x if x.ndim == 1 else np.broadcast_to(x, shape)) for factor, x in epilogue.added]
    pairs: list[tuple[AnyArray, AnyArray, slice]] = []
    for at in np.ndindex(*lead):
        high, low, rows = reference(left[at], right[at], math.prod(lead))
        matrix_epilogue = LinearEpilogue(
            epilogue.alpha, tuple((factor, x if x.ndim == 1 else x[at]) for factor, x in added)
        )
        pairs.append((*matrix_epilogue.apply_pair(high, low, rows), rows))
    every = math.lcm(*(rows.step or 1 for _, _, rows in pairs))
    sampled = [(high[:: every // (rows.step or 1)], low[:: every // (rows.step or 1)]) for high, low, rows in pairs]
    high, low = (np.stack([pair[i] for pair in sampled]) for i in range(2))
    sizes = (*lead, high.shape[1], shape[-1])
    return high.reshape(sizes), low.reshape(sizes), slice(None, None, every)
