"""What a library's choice makes of a request: the call, for whoever resolves it, times it or warns of it.

It knows the records of a choice and of its times; it knows no request and no rule of a library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hwsim.gemm.layouts import Order
from hwsim.gemm.record import Decision, LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.cublas.choice import LibraryChoice
from hwsim.libraries.cublas.fitted_times import STEP, TimeRow
from hwsim.libraries.cublas.forest import Forest


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """What a library's choice makes of a request.

    format: of the operands for which the kernels are. product_format: to which the sum is rounded before the bias or C
    is added, None: the sum's own. evidence, why: of the order of summation. times: what such kernels take, None: not
    recorded. factors: what it is multiplied by. mapping: options of the dataflow that follow from the kernel. count: of
    such calls, one for each product of a scheme. accumulate: of 8-bit floats, as the kernel does it (None: as asked
    for). is_of_a_scheme: the scheme adds up several of its results, or one of pieces. asked_on: the chips that the
    library was asked on, in words.
    """

    id: LibraryId
    choice: LibraryChoice
    layouts: tuple[Order, Order]
    format: str
    product_format: str | None
    evidence: str
    why: str
    times: TimeRow | None
    factors: Forest | None
    decisions: tuple[Decision, ...]
    mapping: Mapping[str, Any] = field(default_factory=dict, hash=False)
    count: int = 1
    accumulate: str | None = None
    is_of_a_scheme: bool = False
    asked_on: str = ""

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


@dataclass(frozen=True, slots=True)
class EpilogueUse:
    """What a request adds to the product A B: a bias, a C, factors of other values than 1. is_c_whole: C is taken as it
    is (beta = 1)."""

    has_bias: bool = False
    has_c: bool = False
    is_scaled: bool = False
    is_c_whole: bool = True


NO_EPILOGUE = EpilogueUse()
