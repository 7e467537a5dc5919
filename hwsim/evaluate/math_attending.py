"""The bits of attention in PyTorch's math form: scaled operands, a product, the softmax of rows, another product.

It knows the form as data and a device's special functions; it knows no library, no order of a product and no program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.vector import gives_all_ones
from hwsim.devices.query import dot_spec
from hwsim.devices.special_functions import special_functions
from hwsim.formats import format_of
from hwsim.gemm.math_form import roots

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.gemm.math_form import MathForm
    from hwsim.gemm.softmax_sums import SoftmaxKernels

Codes = NDArray[Any]
Single = NDArray[np.float32]
StackProduct = Callable[[Single, Single], Single]


class MathAttending:
    """Attention on a device in the math form. factor: of the scores. products: of stacks (heads, rows, columns), in the
    orders of the form's `scores` and `values`.
    """

    def __init__(
        self,
        form: MathForm,
        device: Device,
        format: str,
        factor: float,
        *,
        products: tuple[StackProduct, StackProduct],
        backend: Backend,
        threads: int = 1,
    ) -> None:
        self.form, self.format, self.backend, self.threads = form, format_of(format), backend, threads
        self.factor, self.products = factor, products
        is_ones = gives_all_ones(dot_spec(device, form.instruction))
        self.nan: Literal["all-ones", "quiet"] = "all-ones" if is_ones else "quiet"
        self.missing = np.array([0x7FFFFFFF if is_ones else 0x7FC00000], np.uint32).view(np.float32)[0]
        self.math = CudaMath(special_functions(device))

    def __call__(self, query: Codes, key: Codes, value: Codes, *, is_causal: bool, mask: Codes | None = None) -> Codes:
        """Codes of the result in the operands' format. query (heads, queries, width), key and value (heads, keys,
        width): codes. is_causal: row i sees the keys up to i. mask: codes that are added to the scores, (heads or 1,
        queries, keys).
        """
        of_query, of_key = (np.float32(root) for root in roots(self.factor))
        with np.errstate(all="ignore"):
            left = self._one_nan(self._decoded(query) * of_query)
            right = self._one_nan(self._decoded(key) * of_key)
            scores = self.products[0](left, np.ascontiguousarray(right.swapaxes(1, 2)))
            if is_causal:
                hides = np.arange(scores.shape[2])[None] > np.arange(scores.shape[1])[:, None]
                scores = self._one_nan(scores + np.where(hides, np.float32(-np.inf), np.float32(0)))
            if mask is not None:
                scores = self._one_nan(scores + self._decoded(mask))
            for number, of_head in enumerate(scores):
                scores[number] = self._softmax(of_head, number * len(of_head))
            result = self.products[1](scores, self._decoded(value))
        return self.backend.encode(result, self.format, "RNE", nan=self.nan, threads=self.threads)

    def _softmax(self, scores: Single, first: int) -> Single:
        """The softmax of rows, of which the first has the number `first`; 0 where all scores are -infinity."""
        largest = np.fmax(np.float32(-np.inf), np.fmax.reduce(scores, -1, keepdims=True))
        powers = self._one_nan(self.math.expf(self._one_nan(scores - largest)))
        weights = self._one_nan(powers / added(powers, self.form.softmax, first))
        return np.where(np.isneginf(scores).all(-1, keepdims=True), np.float32(0), weights)

    def _decoded(self, codes: Codes) -> Single:
        if self.format.name == "fp32":
            return codes.view(np.float32)
        return self.backend.decode(codes, self.format, np.float32)

    def _one_nan(self, x: Single) -> Single:
        """x with the chip's NaN in place of each."""
        is_missing = np.isnan(x)
        return np.where(is_missing, self.missing, x) if is_missing.any() else x


def added(rows: Single, kernels: SoftmaxKernels, first: int = 0) -> Single:
    """Sums of rows (n, count) of numbers that are not negative, or NaN, in the order of the softmax kernels; (n, 1).

    first: the number of the first row.
    """
    count = rows.shape[1]
    kinds = kernels.kinds(count)
    total = np.empty((len(rows), 1), np.float32)
    for begin in range(min(kinds, len(rows))):
        of_kind = rows[begin::kinds]
        order = kernels.row_sum(count, (first + begin) % kinds)
        sums = np.zeros((len(of_kind), order.width), np.float32)
        for step in order.steps:
            some = of_kind[:, step.column : step.last + 1 : step.stride]
            sums[:, step.first : step.first + step.threads] += some
        total[begin::kinds] = _in_halves(_in_halves(sums.reshape(-1, order.lanes)).reshape(len(of_kind), -1))
    return total


def _in_halves(sums: Single) -> Single:
    """(n, 1): each lane adds the partner's sum, half as far away each time."""
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums
