"""What one run of a model computed, in order: each product and each attention, with its result and its operands' bits.

The module knows a record's observers; it compares nothing and knows no reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hwsim.frameworks.torch.place import SCORES, VALUES

if TYPE_CHECKING:
    from hwsim.frameworks.torch.place import Place
    from hwsim.gemm.record import Gemm

MATH = "MATH"  # PyTorch's name of the formula in products


@dataclass(frozen=True, slots=True, eq=False)
class RunStep:
    """A product, or a whole attention. digests: of each operand's bits. gemm: a product's record; None: an attention,
    whose operands are query, key and value.
    """

    place: Place
    out: torch.Tensor
    digests: tuple[bytes, ...]
    gemm: Gemm | None = None

    @property
    def name(self) -> tuple[str, str, str, tuple[int, ...]]:
        """Equal for steps that belong together in two runs: layer, pass, kind and shape."""
        return self.place.layer, self.place.stage, self.place.kind, tuple(self.out.shape)

    @property
    def kernel(self) -> str:
        """Of an attention: its kernel in words."""
        if self.place.part_of:
            return f"{self.place.part_of} in the kernel's own order"
        return f"{self.place.stands_for} in the unit's own order" if self.place.stands_for else MATH


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of an operator without products: its name, its layer, and its result's bits. is_here: this CPU computed
    it; else it has the bits of PyTorch's kernel on the chip.
    """

    name: str
    layer: str
    is_here: bool
    digest: bytes


def step_of(place: Place, operands: tuple[torch.Tensor, ...], out: torch.Tensor, gemm: Gemm | None = None) -> RunStep:
    """The step that a record's observer saw."""
    return RunStep(place, out.detach().clone(), tuple(map(digest, operands)), gemm)


def is_compared(left: RunStep, right: RunStep) -> bool:
    """Whether two steps that belong together are compared: an attention as a whole, or else its two products.

    As a whole where a side computes its kernel's own order, beside which the products are not what the chip adds, and
    where one side alone takes the formula in products.
    """
    places = left.place, right.place
    is_known = any(place.part_of for place in places)
    is_whole = is_known or bool(places[0].stands_for) != bool(places[1].stands_for)
    if left.gemm is None:
        return is_whole
    return not (is_whole and left.place.kind in (SCORES, VALUES))


def digest(x: torch.Tensor) -> bytes:
    """Equal for tensors of equal bits."""
    plain = x.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(memoryview(plain.numpy()).cast("B") if plain.numel() else b"").digest()
