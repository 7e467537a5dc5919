"""cuBLASLt's kernels for FP8 with scales on Hopper: in which order they multiply, and into how many slices K is cut.

The module knows cuBLASLt's scaling modes by the granularity of A's and B's scales; it knows no heuristic's tables.

Source: an H100 (cuBLASLt 130100, CUDA 13.0, 2026-11-28), with scales that are no powers of two. Products of which
every element was equal:

    scales                    products    equal
    of tensors                     960      960
    of rows                        960      960
    1x128 on both sides             23       22
    128x128 on a side              332      305   (K was cut in the 27 others: the rule had no cut then)

Evidence. Orders of the factors: `microbenchmark`. Where K is cut: `fitted` to 1.7 million answers of
cublasLtMatmulAlgoGetHeuristic; COLUMNS and MOST_CTAS were chosen on the rows that score them. It differs in 41 of
71,384 shapes with a 128x128 side. Slices of multiples of 512 elements of K: `assumption`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from hwsim.datafiles.provenance import LEVELS
from hwsim.errors import UnsupportedError
from hwsim.gemm.schedule import ScaleOrder, Schedule
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.kernel_choice import SummationOrder

BLOCK = 128  # elements of K, and rows, of a block
SLICE_BLOCKS = 20  # a slice has more blocks of K than this
MOST_CTAS = 96  # of all slices
COLUMNS = 32  # the workspace has whole such columns
SUM_BYTES = 4
WORKSPACE_BYTES = 1 << 20  # PyTorch's of cublasLtMatmul
TILE = (128, 128)
OF_ORDERS, OF_CUTS, OF_SLICES = "microbenchmark", "fitted", "assumption"  # evidence


class ScaledKernel(NamedTuple):
    """A kind of kernels. name: as their names end. order: of the factors. is_cut: may K be cut. slice_blocks: slices
    are multiples of so many blocks of K. tile: (m, n); None: that of the kernel without scales.
    """

    name: str
    order: ScaleOrder
    is_cut: bool
    slice_blocks: int = 1
    tile: tuple[int, int] | None = TILE


#: By the granularity of A's and of B's scales. cuBLAS's A is B here, and so is its name in a kernel's.
KERNELS: Mapping[tuple[str, str], ScaledKernel] = {
    ("row", "row"): ScaledKernel("ovscale", "b", is_cut=False),
    ("row", "tensor"): ScaledKernel("Ablk128_Bvec128", "joined", is_cut=False),  # of K = 128 and n <= 128
    ("tensor", "row"): ScaledKernel("Avec128_Bblk128", "joined", is_cut=False),
    ("1x128", "1x128"): ScaledKernel("Avec128_Bvec128", "a", is_cut=True, tile=None),
    ("1x128", "128x128"): ScaledKernel("Ablk128_Bvec128", "joined", is_cut=True, slice_blocks=4),
    ("128x128", "1x128"): ScaledKernel("Avec128_Bblk128", "joined", is_cut=True, slice_blocks=4),
}
TENSORS = ("tensor", "tensor")


def scaled_choice(call: GemmCall, plain: CublasChoice) -> CublasChoice:
    """What cuBLAS runs for a call with scales. plain: for the same call without.

    Raises UnsupportedError for scales that cuBLASLt refuses on Hopper.
    """
    assert call.scales is not None
    if call.scales == TENSORS:
        return plain
    kernel = KERNELS.get(call.scales)
    if kernel is None or ("tensor" in call.scales and call.k > BLOCK):
        allowed = ", ".join(f"{a} and {b}" for a, b in (TENSORS, *KERNELS))
        raise UnsupportedError(f"cuBLAS: scales of {call.scales[0]} and {call.scales[1]} on Hopper; allowed: {allowed}")
    tile = kernel.tile or plain.tile or TILE
    slices = _slices(call, tile) if kernel.is_cut else 1
    schedule = Schedule(scale_order=kernel.order)
    if slices > 1:
        blocks = -(-call.k // BLOCK)
        step = -(-math.ceil(blocks / slices) // kernel.slice_blocks) * kernel.slice_blocks * BLOCK
        schedule = replace(schedule, slice_k=tuple(min(step, call.k - at) for at in range(0, call.k, step)))
    is_of_blocks = call.scales != ("row", "row")
    return replace(
        plain,
        kernel=f"{plain.family} {kernel.name}",
        split_k=slices,
        tile=tile,
        cluster=None,
        accumulate="promoted" if is_of_blocks else plain.accumulate,
        order=SummationOrder(schedule),
        order_by_m=kernel.is_cut,
        evidence=_evidence(kernel, slices, plain.evidence),
    )


def _evidence(kernel: ScaledKernel, slices: int, plain: str) -> str:
    """The weakest evidence of what decides the order of a call's sums. plain: of the call without scales."""
    of_scales = OF_ORDERS
    if kernel.is_cut:
        of_scales = OF_SLICES if slices > 1 and kernel.slice_blocks > 1 else OF_CUTS
    return max(of_scales, plain, key=LEVELS.index)


def _slices(call: GemmCall, tile: tuple[int, int]) -> int:
    """Into how many slices K is cut: as long as they are long, few and small enough."""
    slices = max(-(-(call.k // BLOCK) // SLICE_BLOCKS) - 1, 1)
    ctas = math.ceil(call.m / tile[0]) * math.ceil(call.n / tile[1])
    room = call.lt_workspace_bytes or WORKSPACE_BYTES
    sums = SUM_BYTES * call.m * math.ceil(call.n / COLUMNS) * COLUMNS
    while slices > 1 and (slices * sums > room or slices * ctas > MOST_CTAS):
        slices -= 1
    return slices
