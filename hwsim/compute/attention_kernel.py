"""The kernel of attention that a backend or a library runs on a device: its order, evidence and bits of codes. It knows
devices, shapes and codes; no framework's tensor and no option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.compute.timed_attention import TimedAttention, fused_attention
from hwsim.datafiles.provenance import Level
from hwsim.devices import numerics_evidence
from hwsim.devices.special_functions import has_special_functions, tables_evidence
from hwsim.evaluate.attending import FORMATS, Attending, Descale
from hwsim.gemm.attention_record import FusedAttention, Mask, attention_of
from hwsim.libraries.published.attention_kernels import (
    OF_8_BITS,
    OF_ONE_QUERY,
    WITH_MASKS,
    AttentionSizes,
    most_width,
    order_of,
)
from hwsim.libraries.pytorch.attention import has_small_tiles

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.attention_order import AttentionOrder

Codes = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class AttentionKernel:
    """A kernel on a device. format: of the operands. is_descaled: it takes factors of heads."""

    device: Device
    order: AttentionOrder
    format: str
    is_causal: bool
    is_descaled: bool = False

    @property
    def instruction(self) -> str:
        """The matrix instruction, as the order names it."""
        return self.order.instruction_for(self.format)

    def attend(
        self,
        query: Codes,
        key: Codes,
        value: Codes,
        *,
        factor: float,
        threads: int,
        mask: Codes | None = None,
        descale: Descale | None = None,
    ) -> Codes:
        """Codes of the result (heads, queries, width of the value). Codes: query (heads, queries, width), key and value
        (heads, keys, width), mask (heads or 1, queries, keys), which is added to the scores. factor: of the scores.
        descale: of the heads.
        """
        attending = Attending(self.order, self.device, self.format, factor, CPU, threads)
        return attending(query, key, value, is_causal=self.is_causal, mask=mask, descale=descale)

    def timed(
        self, shapes: Sequence[Sequence[int]], *, groups: int, factor: float, mask: Mask = "none"
    ) -> TimedAttention:
        """The attention of operands of these shapes, as of `record`, with its program and times."""
        record = self.record(shapes, groups=groups, factor=factor, mask=mask)
        return fused_attention(record, self.device, self.instruction)

    def record(
        self, shapes: Sequence[Sequence[int]], *, groups: int, factor: float, mask: Mask = "none"
    ) -> FusedAttention:
        """The attention of operands of these shapes, as of `kernel_of`, as data."""
        device = self.device.name, self.device.sha256
        return attention_of(
            self.order,
            device,
            self.format,
            shapes,
            groups=groups,
            factor=factor,
            is_causal=self.is_causal,
            mask=mask,
            is_descaled=self.is_descaled,
        )

    @property
    def evidence(self) -> Level:
        """The weakest level behind the bits: the order's, its instruction's, its special functions'."""
        levels = (
            Level(self.order.evidence),
            numerics_evidence(self.device, self.instruction),
            tables_evidence(self.device, self.order.special_functions),
        )
        return max(levels, key=list(Level).index)


def widest_head(
    device: Device, backend: str, format: str, *, has_mask: bool = False, has_one_query: bool = False
) -> int:
    """The widest head of which the bits of a backend's kernel are known, with a mask of one's own or without, and with
    one query or more; 0: of none.
    """
    if (
        format not in (*FORMATS, *OF_8_BITS.get(backend, ()))
        or not has_special_functions(device)
        or (has_mask and backend not in WITH_MASKS)
    ):
        return 0
    if has_one_query and backend not in OF_ONE_QUERY:
        return 0
    return most_width(backend, device.family)


def kernel_of(
    device: Device,
    backend: str,
    format: str,
    shapes: Sequence[Sequence[int]],
    *,
    groups: int,
    is_causal: bool,
    is_descaled: bool = False,
) -> AttentionKernel:
    """The kernel for operands of these shapes (heads, rows, width): of query, key and value, with as many heads each.

    Heads are at most `widest_head` wide. groups: heads of the query that share a head of the key.
    is_descaled: heads have factors.
    """
    (heads, queries, width), (_, keys, _), (_, _, value_width) = shapes
    sizes = AttentionSizes(heads, heads // groups, queries, keys, width, value_width)
    is_minor = has_small_tiles(device.name)
    order = order_of(
        backend,
        sizes,
        device.family,
        device.cores,
        is_causal=is_causal,
        is_minor=is_minor,
        format=format,
        capability=device.compute_capability,
    )
    assert order is not None  # of widths up to `widest_head`
    return AttentionKernel(device, order, format, is_causal, is_descaled)
