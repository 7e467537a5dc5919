"""What a library's choice makes of a request: the call, for whoever resolves it, times it or warns of it.

It knows the records of a choice and of its times; it knows no request and no rule of a library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hwsim.gemm.layouts import StorageOrder
from hwsim.gemm.record import Decision, Gemm, LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.kernel_choice import KernelTimes, LibraryChoice

STEP = 32  # of K, where a choice does not say it


@dataclass(frozen=True, slots=True)
class AlignedCall:
    """A call with sizes of whole 16 bytes, and what the kernel takes that the library runs for it."""

    gemm: GemmCall
    kernel: str
    times: KernelTimes


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """What a library's choice makes of a request.

    gemm: as the library is called. choice: with its order of summation. layouts: of A and B. times: what such kernels
    take, None: what their program takes. aligned: the call with sizes of whole 16 bytes, where its own are others and
    times are known. mapping: options of the dataflow that follow from the kernel. count: of such calls, one for each
    product of a scheme. is_of_a_scheme: the scheme adds up several of its results, or one of pieces.
    """

    id: LibraryId
    gemm: GemmCall
    choice: LibraryChoice
    layouts: tuple[StorageOrder, StorageOrder]
    times: KernelTimes | None
    decisions: tuple[Decision, ...]
    aligned: AlignedCall | None = None
    mapping: Mapping[str, Any] = field(default_factory=dict, hash=False)
    count: int = 1
    is_of_a_scheme: bool = False

    def has_times_of(self, gemm: Gemm) -> bool:
        """Whether fitted times stand for a record: there are some, and each kernel of a scheme is a call."""
        kernels = 0 if gemm.mapping is None else len(gemm.mapping.kernels)
        return self.times is not None and (not self.is_of_a_scheme or kernels == self.count)

    @property
    def format(self) -> str:
        """Of the operands for which the kernel is."""
        return self.choice.operand

    @property
    def product_format(self) -> str | None:
        """To which the sum is rounded before the bias or C is added, None: the sum's own."""
        return self.choice.order.product_format

    @property
    def accumulate(self) -> str | None:
        """Of 8-bit floats, as the kernel does it (None: as asked for)."""
        return self.choice.accumulate

    @property
    def evidence(self) -> str:
        """Of the order of summation."""
        return self.choice.order_evidence

    @property
    def why(self) -> str:
        """By which rules the order of summation is assumed; "": it is not, or no rule is known."""
        return self.choice.order.assumed if self.choice.known else ""

    def in_order(self, k: int) -> Schedule:
        """A schedule with as many slices as the choice's, each in order of K: what a program carries of any order.

        It moves and multiplies as much as the kernel does. Where a kernel begins with the rest of K or deals tiles of K
        out in turn, this is not its order: it is for cycles. So it is where CTAs share the K of tiles and no program
        carries that, as of a tile that the family has not.
        """
        of_kernel = self.choice.schedule
        lengths = of_kernel.slice_k if isinstance(of_kernel.slice_k, tuple) else None
        if lengths is None and self.choice.split_k > 1:
            step = self.choice.tile_k or STEP
            length = -(-k // (self.choice.split_k * step)) * step
            lengths = tuple(min(length, k - start) for start in range(0, k, length))
        is_cut = lengths is not None and len(lengths) > 1
        return Schedule(instruction=of_kernel.instruction, slice_k=lengths if is_cut else None)
