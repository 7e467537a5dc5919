"""What cuSPARSELt runs on Hopper for a 2:4 sparse A, as PyTorch calls it, and how its kernels add over K.

The rules were found on an H100 with PyTorch 2.11 (CUDA 13.0, 2026-11-28), from 34 shapes of fp16 and bf16 and 14 of
int8.
The module knows calls and schedules; it knows no array and no program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.gemm_call import GemmCall, OperationCall
from hwsim.libraries.kernel_choice import KernelTimes, LibraryChoice, SummationOrder
from hwsim.libraries.protocol import ChipRules, gemm_of

FAMILIES = ("sm90",)
LONGEST_SEGMENT = 1024  # of K: longer ones are halved
LONGEST_WHOLE = 8192  # of K, of kernels that are not cut below that
MOST_SEGMENTS_IN_PLACE = 8  # that the kernel adds itself; more are added by another kernel
ASKED_SMS = 132  # of the chip that was asked; of others the order is an assumption
CTAS = 120  # of those that share tiles cut along K


@dataclass(frozen=True, slots=True)
class SparseKernel:
    """One kernel: how it spells its operands, its tile (m, n) and K of a stage, CTAs of a cluster in m.

    cuts: whether it cuts K from the first length above a segment on, or only beyond LONGEST_WHOLE.
    """

    spelling: str
    tile: tuple[int, int]
    tile_k: int
    cluster: int
    cuts: Literal["short", "long"]


KERNELS = {
    "fp16": SparseKernel("f16f16_f16f32", (128, 256), 64, 4, "short"),
    "bf16": SparseKernel("bf16bf16_bf16f32", (128, 256), 64, 1, "long"),
    "int8": SparseKernel("i8i8_i8i32", (64, 64), 256, 8, "short"),
}


@dataclass(frozen=True, slots=True)
class CusparseltRules(ChipRules):
    """cuSPARSELt's kernels on one chip of Hopper."""

    @property
    def id(self) -> LibraryId:
        """cuSPARSELt, as PyTorch 2.11 has it."""
        return LibraryId("cusparselt", "0.8")

    def choose(self, call: OperationCall) -> LibraryChoice:
        """The kernel. Raises UnsupportedError for a format whose kernel is not known."""
        gemm = gemm_of(call, self.id)
        kernel = KERNELS.get(gemm.format)
        if kernel is None:
            raise UnsupportedError(
                f"library cusparselt: its kernel for {gemm.format} is not known; allowed: {', '.join(KERNELS)}"
            )
        tile = f"{kernel.tile[0]}x{kernel.tile[1]}x{kernel.tile_k}"
        name = f"sm90_xmma_sparse_gemm_{kernel.spelling}_f32_tn_t_tilesize{tile}"
        order = order_of(gemm, kernel)
        lengths = order.schedule.slice_k
        return LibraryChoice(
            family="sm90_xmma_sparse_gemm",
            kernel=name,
            operand=gemm.format,
            split_k=len(lengths) if isinstance(lengths, tuple) else 1,
            tile=kernel.tile,
            tile_k=kernel.tile_k,
            order=order,
            evidence="fitted" if order.known and self.cores == ASKED_SMS else "assumption",
        )

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of that kernel."""
        return choice.order

    def times(self, call: OperationCall, choice: LibraryChoice) -> KernelTimes | None:
        """None: what the kernel's program takes."""
        return None


def order_of(call: GemmCall, kernel: SparseKernel) -> SummationOrder:
    """Segments of K in order, added in the accumulator's format; one chain where K is not cut.

    Not known where more clusters have tiles than run at once: then some tiles are cut and others are not.
    """
    if call.format == "int8":  # exact sums, whatever their order
        return SummationOrder(Schedule())
    clusters = -(-call.m // (kernel.tile[0] * kernel.cluster)) * -(-call.n // kernel.tile[1])
    at_once = CTAS // kernel.cluster
    least = LONGEST_SEGMENT if kernel.cuts == "short" else LONGEST_WHOLE
    count = 1
    while call.k > least and count * LONGEST_SEGMENT < call.k:
        count *= 2
    count = min(count, max(at_once // clusters, 1))
    is_shared = clusters > at_once and kernel.cuts == "short" and call.k >= LONGEST_SEGMENT
    if count == 1:
        return SummationOrder(Schedule(), known=not is_shared)
    stages = -(-call.k // kernel.tile_k)
    length = stages // count * kernel.tile_k
    lengths = (*(length,) * (count - 1), call.k - length * (count - 1))
    order: Literal["ascending", "descending"] = "descending" if count > MOST_SEGMENTS_IN_PLACE else "ascending"
    return SummationOrder(Schedule(slice_k=lengths, merge_order=order))
