"""The place of a product in a model: settings, layer, pass and operation. It knows no tensor."""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.frameworks.settings import PassName

CONVOLUTION, GROUPED = "convolution", "_grouped_mm"
SCORES, VALUES = "attention scores", "attention values"
SCALED, SCALED_FAST = "_scaled_mm", "_scaled_mm, fast accumulation"


def fused(kernel: str, operation: str) -> str:
    """The operation of a product that stands for a part of a fused kernel."""
    return f"{operation} of {kernel}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a product belongs: the settings' key, the layer's name, the pass, the operation (for the record), and which
    operand is a gradient ("a", "b", or "").
    """

    key: str
    layer: str
    stage: PassName
    operation: str
    gradient: str = ""

    @property
    def operator(self) -> str:
        """The operator of PyTorch, by which a route is found."""
        return SCALED if self.operation == SCALED_FAST else self.operation

    @property
    def accumulate(self) -> str | None:
        """How an operator says that 8-bit floats are accumulated: "fast", "promoted"; None: it does not."""
        return {SCALED: "promoted", SCALED_FAST: "fast"}.get(self.operation)

    @property
    def stands_for(self) -> str:
        """The fused kernel for whose part the product stands; "": it is a product."""
        product, _, kernel = self.operation.partition(" of ")
        return kernel if product in (SCORES, VALUES) else ""
