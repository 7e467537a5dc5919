"""One attention on one device as data: sizes, format, factor, and the kernel's order. It stands beside `Gemm`.

It knows no device's numbers, no values and no program.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hwsim.gemm.attention_order import AttentionOrder

Mask = Literal["none", "shared", "own"]


@dataclass(frozen=True, slots=True)
class Attention:
    """device, device_sha256: its name, and the hash of its file. format: of query, key, value and result.

    heads, key_heads: of all sequences; so many consecutive heads of the query share one of key and value. queries,
    keys: rows of a head. width, value_width: elements of a row of query and key, and of the value. is_causal: query i
    sees the keys up to i. factor: of the scores. order: of the kernel. mask: what is added to the scores: nothing,
    one matrix (queries x keys) for all heads, or one for each.
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
    order: AttentionOrder
    mask: Mask = "none"

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
        return asdict(self)

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
