"""One attention on one device as data: sizes, format, factor, and the kernel's order. It stands beside `Gemm`.

It knows no device's numbers, no values and no program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from hwsim.gemm.attention_order import AttentionOrder
from hwsim.gemm.math_form import MathForm

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Mask = Literal["none", "shared", "own"]
Order = TypeVar("Order", AttentionOrder, MathForm)


@dataclass(frozen=True, slots=True)
class Attention(Generic[Order]):
    """device, device_sha256: its name, and the hash of its file. format: of query, key and value, and of the
    result where the order names no other.

    heads, key_heads: of all sequences; so many consecutive heads of the query share one of key and value. queries,
    keys: rows of a head. width, value_width: elements of a row of query and key, and of the value. is_causal: query i
    sees the keys up to i. factor: of the scores. order: of the fused kernel, or PyTorch's math form. mask: what is
    added to the scores: nothing, one matrix (queries x keys) for all heads, or one for each. is_descaled: heads have
    factors of query, key and value.
    """

    device: str
    device_sha256: str
    format: str
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    is_causal: bool
    factor: float
    order: Order
    mask: Mask = "none"
    is_descaled: bool = False

    @property
    def result_format(self) -> str:
        """The result's format."""
        return self.format if isinstance(self.order, MathForm) else self.order.result_format(self.format)

    @property
    def groups(self) -> int:
        """Heads of the query that share a head of key and value."""
        return self.heads // self.key_heads

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, over all heads."""
        if not self.is_causal:
            return self.heads * self.queries * self.keys
        whole = min(self.queries, self.keys)
        return self.heads * (whole * (whole + 1) // 2 + (self.queries - whole) * self.keys)

    @property
    def useful_macs(self) -> int:
        """Multiply-accumulates of both products, without what the mask hides."""
        return self.pairs * (self.width + self.value_width)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"order": self.order.to_dict()}

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def attention_of(
    order: Order,
    device: tuple[str, str],
    format: str,
    shapes: Sequence[Sequence[int]],
    *,
    groups: int,
    factor: float,
    is_causal: bool,
    mask: Mask = "none",
    is_descaled: bool = False,
) -> Attention[Order]:
    """The record of operands of these shapes (heads, rows, width): of query, key and value, with as many heads each.

    device: name and hash. groups: heads of the query that share a head of the key.
    """
    (heads, queries, width), (_, keys, _), (_, _, value_width) = shapes
    return Attention(
        device=device[0],
        device_sha256=device[1],
        format=format,
        heads=heads,
        key_heads=heads // groups,
        queries=queries,
        keys=keys,
        width=width,
        value_width=value_width,
        is_causal=is_causal,
        factor=factor,
        order=order,
        mask=mask,
        is_descaled=is_descaled,
    )


FusedAttention = Attention[AttentionOrder]
MathAttention = Attention[MathForm]
AnyAttention = Attention[AttentionOrder] | Attention[MathForm]


def is_of_math(record: AnyAttention) -> TypeIs[MathAttention]:
    """Whether a record is of PyTorch's math form."""
    return isinstance(record.order, MathForm)
