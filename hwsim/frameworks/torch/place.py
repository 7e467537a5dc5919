"""The place of a product in a model: settings, layer, pass and operation. It knows no tensor."""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.frameworks.settings import PassName

CONVOLUTION, GROUPED = "convolution", "_grouped_mm"
SCORES, VALUES, ATTENTION = "attention scores", "attention values", "attention"
SCALED, SCALED_FAST = "_scaled_mm", "_scaled_mm, fast accumulation"
SCALED_GROUPED, SCALED_GROUPED_FAST = "_scaled_grouped_mm", "_scaled_grouped_mm, fast accumulation"
SCALED_OPERATIONS = (SCALED, SCALED_FAST, SCALED_GROUPED, SCALED_GROUPED_FAST)


def fused(kernel: str, operation: str) -> str:
    """The operation of a product that stands for a part of a fused kernel."""
    return f"{operation} of {kernel}"


def part(kernel: str, operation: str) -> str:
    """The operation of a product of a fused kernel whose order is known."""
    return f"{operation} in {kernel}"


def of_gradient(operation: str) -> str:
    """The operation of a gradient of a product: of fused kernels the forward pass alone has a known order."""
    whole, between, kernel = operation.partition(" in ")
    return fused(kernel, whole) if between and operation.startswith(ATTENTION) else operation


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
        return {SCALED_FAST: SCALED, SCALED_GROUPED_FAST: SCALED_GROUPED}.get(self.operation, self.operation)

    @property
    def accumulate(self) -> str | None:
        """How an operator says that 8-bit floats are accumulated: "fast", "promoted"; None: it does not."""
        slow, fast = dict.fromkeys((SCALED, SCALED_GROUPED), "promoted"), (SCALED_FAST, SCALED_GROUPED_FAST)
        return (slow | dict.fromkeys(fast, "fast")).get(self.operation)

    @property
    def kind(self) -> str:
        """The operation without the name of a fused kernel."""
        return self.operation.partition(" of ")[0].partition(" in ")[0] if self._is_of_attention else self.operation

    @property
    def stands_for(self) -> str:
        """The fused kernel for whose part the product stands; "": it is a product."""
        return self.operation.partition(" of ")[2] if self._is_of_attention else ""

    @property
    def part_of(self) -> str:
        """The fused kernel, of known order, whose product it is; "": it is no such part."""
        return self.operation.partition(" in ")[2] if self._is_of_attention else ""

    @property
    def is_timed_whole(self) -> bool:
        """Whether the product's time is in that of its fused kernel."""
        return bool(self.part_of)

    @property
    def _is_of_attention(self) -> bool:
        return self.operation.startswith(ATTENTION)
