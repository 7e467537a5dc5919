"""A chain of matrix instructions in one accumulator, as few calls of the backend.

The module knows instructions and where along K each takes its operands; no program, no panels, no arrays' names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.instruction_order import in_instruction_order
from hwsim.arithmetic.scaled import scaled_gemm
from hwsim.numerics.units import FusedUnit

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.model import InstructionModel
    from hwsim.machines.kernel_plan import PanelSource
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
Reader = Callable[["ChainedProduct"], tuple[Codes, Codes]]
ARRANGED_BYTES = 1 << 23  # of operands that are stored one after the other for one call
SHORT = 128  # elements of K, up to which products are


@dataclass(frozen=True, slots=True)
class ChainedProduct:
    """The operands of an instruction. scale: the accumulator counts times 2^-scale before it."""

    a: PanelSource
    b: PanelSource
    scale: int = 0

    @property
    def k(self) -> int:
        """The length along K."""
        return self.a.length

    def follows(self, other: ChainedProduct, depth: int) -> bool:
        """Whether it goes on along K where the other ends, at a multiple of `depth`."""
        return (
            not self.scale
            and other.k % depth == 0
            and (self.a.value, self.a.row, self.a.col) == (other.a.value, other.a.row, other.a.col + other.k)
            and (self.b.value, self.b.row, self.b.col) == (other.b.value, other.b.row + other.k, other.b.col)
        )

    def with_next(self, k: int) -> ChainedProduct:
        """Both together: `k` elements longer."""
        a, b = (replace(source, length=source.length + k) for source in (self.a, self.b))
        return ChainedProduct(a, b, self.scale)


class ChainedProducts:
    """The calls that compute a chain of instructions of one kind."""

    def __init__(self, spec: DotSpec, model: InstructionModel, products: Sequence[ChainedProduct]) -> None:
        self.spec, self.model = spec, model
        joined: list[ChainedProduct] = []
        for product in products:
            if joined and product.follows(joined[-1], model.k):
                joined[-1] = joined[-1].with_next(product.k)
            else:
                joined.append(product)
        self.products = joined
        self.divides = (
            isinstance(spec.unit, FusedUnit)
            and model.scale_input_d_rule == "exact"
            and spec.c == spec.d == "fp32"
            and model.k % spec.unit.terms == 0
        )

    def run(self, read: Reader, start: Codes | None, backend: Backend, threads: int) -> Codes:
        """The accumulator after the chain. read: the codes of a product's operands. start: the accumulator before the
        chain (None: +0).
        """
        value, at, is_own = start, 0, False
        while at < len(self.products):
            pairs = [read(self.products[at])]
            pairs += [read(product) for product in self._beside(at, pairs[0])]
            products = self.products[at : at + len(pairs)]
            at += len(pairs)
            scale = products[0].scale if value is not None else 0
            divide = None
            if len(pairs) > 1:
                depths = [-(-product.k // self.model.k) * self.model.k for product in products]
                parts = [_arranged(pairs, depths)]
                scales = [scale, *(product.scale for product in products[1:])]
                divide, scale = self._divisions(depths, scales), 0
            else:
                parts = self._whole_instructions(*pairs[0])
            for x, y in parts:
                out = value if is_own else None
                if scale and value is not None:
                    rule = self.model.scale_input_d_rule
                    value = scaled_gemm(self.spec, x, y, value, scale, rule, backend=backend, out=out, threads=threads)
                else:
                    value = backend.gemm(self.spec, x, y, value, divide=divide, out=out, threads=threads)
                scale, is_own = 0, True
        assert value is not None
        return value

    def _beside(self, at: int, pair: tuple[Codes, Codes]) -> Sequence[ChainedProduct]:
        """The products after this one that one call takes with it, because each alone is short."""
        (rows, k), cols = pair[0].shape, pair[1].shape[1]
        first, size = self.products[at], (rows + cols) * pair[0].itemsize
        if k > SHORT or (first.scale and not self.divides):
            return ()
        most, end = ARRANGED_BYTES // size, at + 1
        while end < len(self.products):
            product = self.products[end]
            k += product.k
            if product.k > SHORT or k > most or (product.scale and not self.divides):
                break
            end += 1
        return self.products[at + 1 : end]

    def _divisions(self, depths: Sequence[int], scales: Sequence[int]) -> Codes | None:
        """The places by which the accumulator is divided before each step of arranged products."""
        if not any(scales):
            return None
        terms = self.spec.unit.terms
        divide = np.zeros(sum(depths) // terms, np.uint8)
        at = 0
        for depth, scale in zip(depths, scales, strict=True):
            divide[at // terms] = scale
            at += depth
        return divide

    def _whole_instructions(self, a: Codes, b: Codes) -> list[tuple[Codes, Codes]]:
        """The operands of one product, in one or two parts, the last one padded with zeros to a whole instruction."""
        k = a.shape[1]
        # A last instruction of one step is not padded: what misses in a step counts as +0.
        depth = 1 if self.model.k == self.spec.unit.terms else self.model.k
        parts = zip(
            in_instruction_order([a], (0, k), depth, None, 1),
            in_instruction_order([b], (0, k), depth, None, 0),
            strict=True,
        )
        return list(parts)


def _arranged(pairs: Sequence[tuple[Codes, Codes]], depths: Sequence[int]) -> tuple[Codes, Codes]:
    """The operands of several products one after the other along K, each padded with zeros to its depth."""
    a, b = pairs[0]
    k = sum(depths)
    left = np.empty_like(a, order="C", shape=(a.shape[0], k))
    right = np.empty_like(b, order="C", shape=(k, b.shape[1]))
    at = 0
    for (x, y), depth in zip(pairs, depths, strict=True):
        end = at + x.shape[1]
        left[:, at:end] = x
        right[at:end] = y
        at += depth
        left[:, end:at] = 0
        right[end:at] = 0
    return left, right
