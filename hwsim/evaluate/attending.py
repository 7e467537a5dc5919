"""The bits of attention with an online softmax, in the order of a kernel: products of blocks of keys, powers, sums.

It knows orders as data, a device's units and special functions; it knows no kernel by name and no framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.power_polynomial import power_by_polynomial
from hwsim.arithmetic.rounded_once import multiply_add
from hwsim.arithmetic.softmax_lanes import added_by_lanes, added_by_row, met, without_infinity, without_zero
from hwsim.arithmetic.vector import gives_all_ones
from hwsim.devices.query import dot_spec
from hwsim.devices.special_functions import special_functions
from hwsim.formats import Format, format_of
from hwsim.gemm.attention_order import LOG2E, join_lanes, power_factor
from hwsim.numerics.dot_operands import DotOperands
from hwsim.program.ir import LANES

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.gemm.attention_order import AttentionOrder

Codes = NDArray[Any]
Single = NDArray[np.float32]

FORMATS = ("fp16", "bf16")  # of all kernels


class Descale(NamedTuple):
    """What the elements of query, key and value are multiples of: (key heads,), fp32."""

    query: Single
    key: Single
    value: Single

    @property
    def scores(self) -> Single:
        """Factors of the scores: (key heads,), fp32."""
        with np.errstate(over="ignore"):
            return self.query * self.key

    def of_heads(self, factors: Single, heads: int) -> Single:
        """The factors of as many heads of the query: (heads, 1, 1)."""
        return np.repeat(factors, heads // len(factors))[:, None, None]


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Of rows so far: the result before the division (heads, rows, width), the largest score, the sums of powers by
    lane or, where warps or a thread add them, in one column. Where blocks join (AttentionOrder.joins_blocks), the last
    one has not: its product, and what the result is rescaled by for it.
    """

    result: Single
    largest: Single
    powers: Single
    product: Single
    change: Single


class Attending:
    """Attention on a device in an order. factor: of the scores."""

    def __init__(
        self, order: AttentionOrder, device: Device, format: str, factor: float, backend: Backend, threads: int = 1
    ) -> None:
        self.order, self.format, self.backend, self.threads = order, format_of(format), backend, threads
        self.spec = dot_spec(device, order.instruction_for(format))
        self.nan: Literal["all-ones", "quiet"] = "all-ones" if gives_all_ones(self.spec) else "quiet"
        self.math = CudaMath(special_functions(device))
        self.result_format = format_of(order.result_format(format))
        self.factor = np.float32(factor)
        self.in_powers: np.float32 | Single = power_factor(factor, order)
        self.result_factor: np.float32 | Single = np.float32(1)

    def __call__(
        self,
        query: Codes,
        key: Codes,
        value: Codes,
        *,
        is_causal: bool,
        mask: Codes | None = None,
        descale: Descale | None = None,
    ) -> Codes:
        """Codes of the result in its format. query (heads, queries, width), key and value (heads, keys,
        width): codes. is_causal: row i sees the keys up to i. mask: codes that are added to the scores, (heads or 1,
        queries, keys). descale: factors of heads.
        """
        self.in_powers = power_factor(float(self.factor), self.order, has_mask=mask is not None)
        if descale is not None:
            of_heads = [descale.of_heads(x, len(query)) for x in (descale.scores, descale.value)]
            self.in_powers, self.result_factor = self.in_powers * of_heads[0], of_heads[1]
        blocks = -(-key.shape[1] // self.order.keys)
        length = -(-blocks // self.order.parts)
        with np.errstate(all="ignore"):
            parts = [
                self._part(query, key, value, range(first, min(first + length, blocks)), is_causal, mask)
                for first in range(0, blocks, length)
            ]
            if self.order.parts == 1:
                total = self._total(parts[0])
                result = self._divided(parts[0], total)
            else:
                result = self._joined(parts)
            return self._encoded(result, self.result_format)

    def _encoded(self, values: Single, format: Format) -> Codes:
        return self.backend.encode(values, format, "RNE", nan=self.nan, threads=self.threads)

    def _part(
        self, query: Codes, key: Codes, value: Codes, blocks: range, is_causal: bool, mask: Codes | None
    ) -> _Sums:
        """The sums over some blocks of keys."""
        heads, rows, _ = query.shape
        columns = 1 if self.order.has_one_sum else LANES
        sums = _Sums(
            np.zeros((heads, rows, value.shape[2]), np.float32),
            np.full((heads, rows, 1), -np.inf, np.float32),
            np.zeros((heads, rows, columns), np.float32),
            np.zeros((heads, rows, value.shape[2] if self.order.joins_blocks else 0), np.float32),
            np.zeros((heads, rows, 1), np.float32),
        )
        for block in reversed(blocks) if self.order.descending else blocks:
            first = block * self.order.keys
            start = (
                first // self.order.rows * self.order.rows if is_causal else 0
            )  # tiles before see none of these keys
            if start < rows:
                self._block(sums, query, key, value, first, start, is_causal, mask)
        return sums

    def _block(
        self,
        sums: _Sums,
        query: Codes,
        key: Codes,
        value: Codes,
        first: int,
        start: int,
        is_causal: bool,
        mask: Codes | None,
    ) -> None:
        """Add the block of keys that begins at `first`, for the rows from `start` on."""
        order, rows = self.order, slice(start, None)
        keys, values = (_padded(x, first, order.keys) for x in (key, value))
        scores = self._product(query[:, rows], keys.swapaxes(1, 2))
        columns = np.arange(first, first + order.keys)
        hidden = np.broadcast_to(columns >= key.shape[1], scores.shape[1:])
        if is_causal:
            hidden = hidden | (columns[None, :] > np.arange(start, query.shape[1])[:, None])
        if mask is not None and order.fuses_mask:
            scores = multiply_add(scores, np.full_like(scores, self.factor), self._mask(mask, rows, first, scores))
        elif order.scaling == "scaled":
            scores = scores * self.factor
            if mask is not None:
                scores = scores + self._mask(mask, rows, first, scores)
            scores = scores * np.float32(LOG2E)
        scores = np.where(hidden, np.float32(-np.inf), scores)
        before = sums.largest[:, rows]
        largest = np.fmax(before, np.fmax.reduce(scores, -1, keepdims=True))
        bound = without_infinity(largest)
        if order.scaling == "scaled":
            change = before - bound
        elif order.scales_largest:
            change = before * self.in_powers - bound * self.in_powers
        else:
            change = (before - bound) * self.in_powers
        rescale = np.where(np.isneginf(before), np.float32(0), self._power(change))
        if order.lag:
            stays = change >= -np.float32(order.lag)
            largest, bound = np.where(stays, before, largest), np.where(stays, before, bound)
            rescale = np.where(stays, np.float32(1), rescale)
        powers = self._powers(self._arguments(scores, bound))
        powers = np.where(hidden, np.float32(0), powers)
        sums.powers[:, rows] = self._added(sums.powers[:, rows], rescale, powers)
        codes = self._encoded(powers, self.format)
        if order.joins_blocks:
            so_far, last = sums.result[:, rows], sums.product[:, rows]
            sums.result[:, rows] = multiply_add(so_far, np.broadcast_to(sums.change[:, rows], so_far.shape), last)
            sums.product[:, rows], sums.change[:, rows] = self._product(codes, values), rescale
        else:
            sums.result[:, rows] = self._product(codes, values, sums.result[:, rows] * rescale)
        sums.largest[:, rows] = largest

    def _mask(self, mask: Codes, rows: slice, first: int, scores: Single) -> Single:
        """What a mask adds to the scores of a block of keys."""
        added = self.backend.decode(mask[:, rows, first : first + self.order.keys], self.format, np.float32)
        missing = scores.shape[-1] - added.shape[-1]
        return np.broadcast_to(np.pad(added, ((0, 0), (0, 0), (0, missing))), scores.shape)

    def _power(self, x: Single) -> Single:
        return self.math.exp2f(x) if self.order.is_guarded else self.math.ex2(x)

    def _powers(self, x: Single) -> Single:
        """The powers of a block of keys."""
        if self.order.polynomial is None:
            return self._power(x)
        is_polynomial = self.order.polynomial.of(x.shape[-1])
        powers = np.empty_like(x)
        powers[..., is_polynomial] = power_by_polynomial(x[..., is_polynomial])
        powers[..., ~is_polynomial] = self._power(x[..., ~is_polynomial])
        return powers

    def _product(self, a: Codes, b: Codes, c: Single | None = None) -> Single:
        operands = DotOperands(a, b, None if c is None else np.ascontiguousarray(c).view(np.uint32))
        return self.backend.gemm(self.spec, operands, threads=self.threads).view(np.float32)

    def _arguments(self, scores: Single, largest: Single) -> Single:
        """The arguments of the powers of two."""
        if self.order.scaling == "scaled":
            return scores - largest
        if self.order.scaling == "rounded":
            return scores * self.in_powers - largest * self.in_powers
        below = np.broadcast_to(self.in_powers, largest.shape)
        bound = multiply_add(-largest, below, np.full_like(largest, self.order.offset))
        is_finite = np.isfinite(scores)
        finite = np.where(is_finite, scores, np.float32(0))
        factors = np.broadcast_to(self.in_powers, finite.shape)
        fused = multiply_add(finite, factors, np.broadcast_to(bound, finite.shape))
        return np.where(is_finite, fused, scores)

    def _added(self, total: Single, rescale: Single, powers: Single) -> Single:
        """The sums, rescaled, with a block's powers (heads, rows, keys)."""
        heads, rows, keys = powers.shape
        if self.order.adds_blocks:
            of_block = added_by_lanes(np.zeros_like(total), powers)
            return multiply_add(total, np.broadcast_to(rescale, total.shape), of_block)
        if self.order.fuses_first:
            return added_by_lanes(total, powers, np.broadcast_to(rescale, total.shape))
        total = total * rescale
        if self.order.adds_rows:
            return added_by_row(total, powers)
        if self.order.warp_keys is None:
            return added_by_lanes(total, powers)
        count = keys // self.order.warp_keys
        of_warps = powers.reshape(heads, rows, count, self.order.warp_keys)
        sums = added_by_lanes(np.zeros((heads, rows, count, LANES), np.float32), of_warps)
        of_each = met(sums, self.order.first_partner)
        for warp in range(count):
            total = total + of_each[:, :, warp]
        return total

    def _total(self, sums: _Sums) -> Single:
        """The sum of a row's powers; (heads, rows, 1)."""
        return sums.powers if self.order.has_one_sum else met(sums.powers, self.order.first_partner)

    def _divided(self, sums: _Sums, total: Single) -> Single:
        """The result over the sum of powers; rows without a key are as they are."""
        divisor = without_zero(total)
        inverse = self.math.reciprocal(divisor) if self.order.is_division_fast else np.float32(1) / divisor
        if self.order.joins_blocks:
            last = np.broadcast_to(inverse, sums.product.shape)
            return multiply_add(sums.product, last, sums.result * (inverse * sums.change))
        result: Single = sums.result * (inverse * self.result_factor)
        return result

    def _joined(self, parts: list[_Sums]) -> Single:
        """The results of parts of the keys, each times the share of its sum: the logarithms of the sums say it."""
        logarithms, results = [], []
        for sums in parts:
            total = self._total(sums)
            is_empty = (total == 0) | np.isnan(total)
            some = np.where(is_empty, np.float32(1), total)
            largest = np.where(is_empty, np.float32(0), sums.largest)
            factor = np.full_like(largest, self.factor)
            logarithm = multiply_add(largest, factor, self.math.fast_logf(some))
            logarithms.append(np.where(is_empty, np.float32(-np.inf), logarithm))
            results.append(self._divided(sums, total))
        highest = np.max(logarithms, axis=0)
        highest = np.where(np.isneginf(highest), np.float32(0), highest)
        exponential, natural = self.math.expf, self.math.logf
        if not self.order.is_guarded:  # compiled for fast math
            exponential, natural = self.math.fast_expf, self.math.fast_logf
        shares = self._sum_of_parts([exponential(x - highest) for x in logarithms])
        is_empty = (shares == 0) | np.isnan(shares)  # no part has a key: all shares are 0 then
        whole = np.where(is_empty, np.float32(np.inf), natural(shares) + highest)
        joined = np.zeros_like(results[0])
        for logarithm, result in zip(logarithms, results, strict=True):
            share = np.broadcast_to(exponential(logarithm - whole), result.shape)
            joined = multiply_add(share, result, joined)
        return joined

    def _sum_of_parts(self, shares: list[Single]) -> Single:
        """The sum over parts: lanes add every so many parts, then meet in halves."""
        lanes, padded = join_lanes(self.order)
        zeros = [np.zeros_like(shares[0])] * (padded - len(shares))
        every = [*shares, *zeros]
        sums = every[:lanes]
        for index in range(lanes, padded):
            sums[index % lanes] = sums[index % lanes] + every[index]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [low + high for low, high in zip(sums[:half], sums[half:], strict=True)]
        return sums[0]


def _padded(x: Codes, first: int, count: int) -> Codes:
    """Rows first .. first + count - 1 of each matrix; zeros beyond the last."""
    rows = x[:, first : first + count]
    missing = count - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, missing), (0, 0))) if missing else rows
