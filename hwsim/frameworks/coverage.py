"""The verdict on an emulated model in words: how much of it was simulated, and how well the bits are known.

It knows counts, levels and names of layers; it knows no framework's tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hwsim.report.text.words import percent, plural

MOST_NAMES = 3  # of calls that were not caught
NOT_PREDICTED = "not predicted for this chip's library"


@dataclass(frozen=True, slots=True)
class CoverageVerdict:
    """How far an emulated model can be trusted. str() is the first line of a report.

    computed: the share of the multiply-accumulates that hwsim computed, None where there were none. in_order: the share
    that it computed in the library's own order of summation, None where no library was asked. in_order_weighed: the
    same, each product weighed by the probability that the kernel is the library's. uncounted:
    names of calls whose multiply-accumulates nobody counted. evidence: the weakest level behind the bits, and the layer
    that has it. least_confidence: the least probability that a library's kernel is the one computed, None where no
    library was asked, and its layer. not_caught: {name: calls} that were not simulated. substituted: {name: calls}
    that were simulated in the unit's own order, because the library's kernel is not known. unknown_orders: {name:
    calls} of a library's kernels that add in an order that is not known; the unit's own stands for it. hints: how to
    have calls simulated. left: the share that the settings leave to the framework ("plain").
    """

    computed: float | None
    in_order: float | None
    uncounted: tuple[str, ...]
    evidence: str
    evidence_layer: str
    least_confidence: float | None
    least_confidence_layer: str
    not_caught: Mapping[str, int]
    substituted: Mapping[str, int]
    unknown_orders: Mapping[str, int] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    left: float = 0.0
    in_order_weighed: float | None = None

    def __str__(self) -> str:
        return "; ".join(self._parts())

    def _parts(self) -> list[str]:
        parts = [self._shares()]
        for calls, noun, what in (
            (self.not_caught, "call", "not simulated"),
            (self.substituted, "product", "in another order than there"),
            (self.unknown_orders, "product", "by a kernel whose order is not known"),
        ):
            if calls:
                parts.append(f"{plural(sum(calls.values()), noun)} {what} ({_names(calls)})")
        if self.evidence:
            parts.append(f"weakest evidence of the bits: {self.evidence}{_at(self.evidence_layer)}")
        if self.is_predicted and self.least_confidence is not None and self.least_confidence < 1:
            probability = f"{self.least_confidence:.2f}{_at(self.least_confidence_layer)}"
            parts.append(f"least probability that a kernel is the library's: {probability}")
        return [*parts, *self.hints]

    @property
    def is_predicted(self) -> bool:
        """Whether anything is in the order of the library that was asked; True where none was asked."""
        return self.in_order is None or self.in_order > 0

    def _shares(self) -> str:
        """How much was computed, and in whose order of summation."""
        if self.computed is None:
            return "no product was simulated"
        if self.left and not self.computed:
            return f"no product was simulated: the settings leave {percent(self.left)} of the MACs to the framework"
        counting = f", not counting {', '.join(self.uncounted)}" if self.uncounted else ""
        computed = f"{percent(self.computed)} of this model's MACs were simulated{counting}"
        computed += f', {percent(self.left)} left to the framework ("plain")' if self.left else ""
        if self.in_order is None:
            return f"{computed}, in hwsim's own order (no library asked)"
        orders = f"{percent(self.in_order)} in the library's known order{self._doubt()}, "
        orders += f"{percent(max(self.computed - self.in_order, 0.0))} in an assumed one"
        return f"{computed}: {orders}" + ("" if self.is_predicted else f"; {NOT_PREDICTED}")

    def _doubt(self) -> str:
        """How sure the choice of the library's kernels is, where it is not."""
        if self.in_order_weighed is None or self.in_order is None:
            return ""
        weighed = percent(self.in_order_weighed)
        if weighed == percent(self.in_order):
            return ""
        return f" if each kernel is the one that it takes ({weighed} weighed by that probability)"

    def to_dict(self) -> dict[str, Any]:
        """Plain data: `text` is the sentence."""
        return {"text": str(self)} | asdict(self)


def hints_for(names: Sequence[str], hints: Mapping[str, str]) -> tuple[str, ...]:
    """The hints whose key is part of one of the names, each once."""
    return tuple(dict.fromkeys(hint for key, hint in hints.items() if any(key in name for name in names)))


def _names(calls: Mapping[str, int]) -> str:
    names = sorted(calls, key=lambda name: (-calls[name], name))
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")


def _at(layer: str) -> str:
    return f" (layer {layer})" if layer else ""
