"""PyTorch's math form of attention as data: two products with a softmax kernel between. It stands where a fused kernel
has an AttentionOrder.

It knows records of products and orders of sums; it knows no tensor and no program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hwsim.gemm.record import Gemm
from hwsim.gemm.softmax_sums import SoftmaxKernels

SOURCE = "PyTorch's _scaled_dot_product_attention_math and its softmax kernels; the library's orders of both products"


def roots(factor: float) -> tuple[float, float]:
    """What query and key are multiplied by, before it is rounded to their format: the square root of the factor, whose
    sign the query takes.
    """
    root = math.sqrt(abs(factor))
    return (-root if factor < 0 else root), root


@dataclass(frozen=True, slots=True)
class MathForm:
    """scores, values: the products of all heads, in fp32, without decisions. products: the library's kernels of both,
    by name. softmax: how rows are added.

    Query and key are multiplied by the square root of the factor before the product; a row that a mask hides entirely
    is 0. evidence: the weakest level of the products' orders and of the softmax's.
    """

    scores: Gemm
    values: Gemm
    products: tuple[str, ...]
    softmax: SoftmaxKernels
    evidence: str
    source: str = SOURCE

    @property
    def kernel(self) -> str:
        """The names of its main kernels, in order."""
        first, second = self.products
        return f"math form of {first}, {self.softmax.name(self.scores.problem.n)}, {second}"

    @property
    def instruction(self) -> str:
        """The instruction of the products."""
        return self.scores.unit

    @property
    def parts(self) -> int:
        """In how many parts the keys are cut."""
        return 1

    @property
    def summary(self) -> str:
        """What is computed after what, in words."""
        return "both products over whole matrices, softmax of whole rows between"

    @property
    def special_functions(self) -> tuple[str, ...]:
        """The special functions of the chip that its kernels take, by name."""
        return ("ex2",)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "kernel": self.kernel,
            "scores": self.scores.to_dict(),
            "values": self.values.to_dict(),
            "products": list(self.products),
            "softmax": self.softmax._asdict(),
            "evidence": self.evidence,
            "source": self.source,
        }
