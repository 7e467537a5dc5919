"""A chain of matrix instructions in one accumulator, as few calls of the backend.

The module knows instructions and where along K each takes its operands; no program, no panels, no arrays' names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.host.multiples import round_up
from hwsim.machines.kernel_values import ROWS_FIXED
from hwsim.machines.mma_product import RoleCodes, in_steps, product
from hwsim.numerics.units import FusedUnit

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.model import InstructionModel
    from hwsim.machines.kernel_plan import PanelSource
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
Reader = Callable[["ChainedProduct"], RoleCodes]
CONCATENATED_BYTES = 1 << 23  # of operands that are stored one after the other for one call
SHORT = 128  # elements of K, up to which products are


@dataclass(frozen=True, slots=True)
class ChainedProduct:
    """The operands of an instruction by role. scale: the accumulator counts times 2^-scale before it."""

    operands: Mapping[str, PanelSource]
    scale: int = 0

    @property
    def k(self) -> int:
        """The length along K."""
        return self.operands["b"].length

    def follows(self, other: ChainedProduct, depth: int) -> bool:
        """Whether it goes on along K where the other ends, at a multiple of `depth`."""
        return (
            not self.scale
            and other.k % depth == 0
            and self.operands.keys() == other.operands.keys()
            and all(_goes_on(source, other.operands[role]) for role, source in self.operands.items())
        )

    def with_next(self, other: ChainedProduct) -> ChainedProduct:
        """Both together."""
        longer = {
            role: replace(source, length=source.length + other.operands[role].length)
            for role, source in self.operands.items()
        }
        return ChainedProduct(longer, self.scale)


def _goes_on(source: PanelSource, before: PanelSource) -> bool:
    """Whether an operand begins along K where another ends."""
    along = (before.length, 0) if before.axes & ROWS_FIXED else (0, before.length)
    place = before.row + along[0], before.col + along[1]
    return (source.value, source.axes, source.row, source.col) == (before.value, before.axes, *place)


class ChainedProducts:
    """The calls that compute a chain of instructions of one kind."""

    def __init__(self, spec: DotSpec, model: InstructionModel, products: Sequence[ChainedProduct]) -> None:
        self.spec, self.model = spec, model
        joined: list[ChainedProduct] = []
        for member in products:
            if joined and member.follows(joined[-1], model.k):
                joined[-1] = joined[-1].with_next(member)
            else:
                joined.append(member)
        self.products = joined
        self.divides = (
            isinstance(spec.unit, FusedUnit)
            and model.scale_input_d_rule == "exact"
            and spec.c == spec.d == "fp32"
            and model.k % spec.unit.terms == 0
        )

    def run(self, read: Reader, start: Codes | None, backend: Backend, threads: int) -> Codes:
        """The accumulator after the chain. read: the codes of a product's operands by role. start: the accumulator
        before the chain (None: +0).
        """
        value, at, is_own = start, 0, False
        while at < len(self.products):
            operands = [read(self.products[at])]
            operands += [read(member) for member in self._beside(at, operands[0])]
            products = self.products[at : at + len(operands)]
            at += len(operands)
            scale: int | Codes = products[0].scale if value is not None else 0
            if len(operands) > 1:
                depths = [round_up(member.k, self.model.k) for member in products]
                parts: list[RoleCodes] = [_concatenated(operands, depths)]
                scale = self._scales(depths, [int(scale), *(member.scale for member in products[1:])])
            else:
                parts = in_steps(operands[0], self.model.k, self.spec.scale_block)
            for part in parts:
                value = product(
                    self.spec,
                    part,
                    value,
                    scale_d=scale,
                    rule=self.model.scale_input_d_rule,
                    backend=backend,
                    out=value if is_own else None,
                    threads=threads,
                )
                scale, is_own = 0, True
        assert value is not None
        return value

    def _beside(self, at: int, operands: RoleCodes) -> Sequence[ChainedProduct]:
        """The products after this one that one call takes with it, because each alone is short."""
        a, b = operands["a"], operands["b"]
        first, k = self.products[at], a.shape[1]
        if k > SHORT or operands.keys() != {"a", "b"} or (first.scale and not self.divides):
            return ()
        most, end = CONCATENATED_BYTES // ((len(a) + b.shape[1]) * a.itemsize), at + 1
        while end < len(self.products):
            following = self.products[end]
            k += following.k
            if following.k > SHORT or k > most or (following.scale and not self.divides):
                break
            end += 1
        return self.products[at + 1 : end]

    def _scales(self, depths: Sequence[int], scales: Sequence[int]) -> int | Codes:
        """scale_d of concatenated products: the exponent for each step; 0 where all are."""
        if not any(scales):
            return 0
        terms = self.spec.unit.terms
        by_step = np.zeros(sum(depths) // terms, np.uint8)
        at = 0
        for depth, scale in zip(depths, scales, strict=True):
            by_step[at // terms] = scale
            at += depth
        return by_step


def _concatenated(operands: Sequence[RoleCodes], depths: Sequence[int]) -> RoleCodes:
    """A and B of several products one after the other along K, each padded with zeros to its depth."""
    a, b = operands[0]["a"], operands[0]["b"]
    k = sum(depths)
    left = np.empty_like(a, order="C", shape=(a.shape[0], k))
    right = np.empty_like(b, order="C", shape=(k, b.shape[1]))
    at = 0
    for operand, depth in zip(operands, depths, strict=True):
        end = at + operand["a"].shape[1]
        left[:, at:end] = operand["a"]
        right[at:end] = operand["b"]
        at += depth
        left[:, end:at] = 0
        right[end:at] = 0
    return {"a": left, "b": right}
