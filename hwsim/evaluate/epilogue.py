"""Evaluation of the epilogue: D = alpha * acc + beta * C + bias, rounded to the output format.

The module knows epilogues, working types and a device's lanes; it knows no plan and no product.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.exact_sum import ExactSum
from hwsim.arithmetic.lanes import Lanes
from hwsim.errors import InputError
from hwsim.formats import code_dtype, format_of
from hwsim.gemm import refusals
from hwsim.gemm.schedule import epilogue_format

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.evaluate.join import Join
    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import Epilogue
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
AnyArray = NDArray[Any]
INT32_LIMIT, INT64_LIMIT = 1 << 31, 1 << 63


class EpilogueEvaluator:
    """Applies an epilogue to finished sums. has_c: whether a C is given; from_c: the accumulator started from it.

    join: the arithmetic of the sums. output: format of D. Raises InputError for a beta without a C.
    """

    def __init__(
        self, epilogue: Epilogue, join: Join, device: Device, spec: DotSpec, output: str, has_c: bool, from_c: bool
    ) -> None:
        self.epilogue, self.join, self.device, self.spec = epilogue, join, device, spec
        self.output, self.from_c = output, from_c
        narrow = epilogue.product_format
        self.narrows = narrow is not None and format_of(narrow).bits < join.format.bits
        self.is_nearest = epilogue.output_rounding == "RNE" or format_of(output).bits >= join.format.bits
        self.beta = epilogue.beta if epilogue.beta is not None else float(has_c)
        if self.beta and not has_c:
            raise InputError(f"beta = {self.beta:g} needs a C; give c, or beta = 0")

    def is_plain(self, bias: AnyArray | None) -> bool:
        """Whether the epilogue only rounds to the output format, to nearest even: alpha = 1, no C, no bias, no format
        before that.
        """
        is_bare = self.epilogue.alpha == 1 and (self.beta == 0 or self.from_c) and bias is None
        return is_bare and not self.narrows and self.is_nearest

    def apply(self, acc: Any, c: Codes | None, bias: AnyArray | None, slices: int, threads: int) -> Codes:
        """Codes of D. acc: a value of the join's type; an exact sum is rounded once where the epilogue is plain."""
        lanes, fmt = self.join.lanes, format_of(self.output)
        if isinstance(acc, ExactSum):
            if self.is_plain(bias):
                return acc.rounded(fmt, saturate=lanes.saturates)
            acc = lanes.load(acc.rounded(self.join.format, saturate=lanes.saturates))
        if acc.dtype.kind == "i":
            end = epilogue_format(acc.dtype.name, self.output)
            if format_of(end).is_integer:
                return self._whole(acc, c, bias)
            acc = acc.astype(format_of(end).dtype_name)
            lanes = Lanes(self.device, dataclasses.replace(self.spec, d=end), lanes.backend)
        return self.biased_codes(self.scaled_sum(acc, c, slices, lanes), lanes, bias, threads)

    def scaled_sum(self, acc: AnyArray, c: Codes | None, slices: int, lanes: Lanes | None = None) -> AnyArray:
        """The value alpha * acc + beta * C in the working type."""
        lanes, epilogue = lanes or self.join.lanes, self.epilogue
        alpha, beta = epilogue.alpha, self.beta
        if not beta or self.from_c:
            value = lanes.multiply(alpha, acc) if alpha != 1 else acc
            return value if epilogue.product_format is None else narrowed(lanes, value, epilogue.product_format)
        assert c is not None
        source = lanes.values(c, format_of(self.output))
        contraction = epilogue.contraction or ("alpha" if slices == 1 else "beta")
        if epilogue.product_format is None and contraction == "alpha":
            return lanes.fused(alpha, acc, lanes.multiply(beta, source))
        if epilogue.product_format is None and contraction == "beta":
            return lanes.fused(beta, source, lanes.multiply(alpha, acc))
        scaled = lanes.multiply(alpha, acc)
        if epilogue.product_format is not None:
            scaled = narrowed(lanes, scaled, epilogue.product_format)
        return lanes.add(scaled, lanes.multiply(beta, source))

    def biased_codes(self, value: AnyArray, lanes: Lanes, bias: AnyArray | None, threads: int) -> Codes:
        """Codes of value + bias, rounded to the output format."""
        if bias is not None:
            value = lanes.add(value, np.broadcast_to(bias.astype(lanes.dtype), value.shape))
        return lanes.store(value, format_of(self.output), self.epilogue.output_rounding, threads)

    def _whole(self, acc: AnyArray, c: Codes | None, bias: AnyArray | None) -> Codes:
        """Codes of D for integer sums, which wrap at the width of the output format."""
        alpha, beta, fmt = self.epilogue.alpha, self.beta, format_of(self.output)
        check_whole(alpha, beta, bias)
        value = acc.astype(np.int64)
        if alpha != 1:
            value = value * int(alpha)
        if beta and not self.from_c:
            assert c is not None
            value = value + c.view(fmt.dtype_name).astype(np.int64) * int(beta)
        if bias is not None:
            value = value + bias.astype(np.int64)
        return value.astype(fmt.dtype_name, copy=False).view(code_dtype(fmt))


def check_whole(alpha: float, beta: float, bias: AnyArray | None) -> None:
    """Raise InputError for numbers of an epilogue that integer sums do not take."""
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if not math.isfinite(factor) or factor != int(factor) or abs(factor) >= INT32_LIMIT:
            raise InputError(f"{name} = {factor:g}; allowed for integer sums: whole numbers below 2^31")
    if bias is None:
        return
    wrong = ~((bias == np.rint(bias)) & (bias >= -INT64_LIMIT) & (bias < INT64_LIMIT))
    if wrong.any():
        raise InputError(
            f"bias has {bias[wrong].flat[0]}; allowed for integer sums: whole numbers from -2^63 to 2^63 - 1"
        )


def narrowed(lanes: Lanes, values: AnyArray, fmt: str) -> AnyArray:
    """The values rounded to a format where it is narrower than their dtype."""
    if format_of(fmt).bits >= values.dtype.itemsize * 8:
        return values
    return lanes.rounded(values, format_of(fmt))


def refuses(gemm: Gemm) -> str:
    """What of a record the epilogue does not compute: scales of one operand alone, and of slices that are added to the
    output one by one.
    """
    is_into_output = gemm.schedule.merge_into == "output"
    every = refusals.scales(gemm.problem, refusals.SUMS | refusals.ALONG_K) if is_into_output else ""
    return refusals.joined(refusals.one_sided_scales(gemm.problem, refusals.SUMS), every)
