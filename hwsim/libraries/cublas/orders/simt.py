"""How cuBLAS's kernels without a matrix unit add over K: chains, slices, gemmSN and dot products.

It knows slices and custom options as cuBLASLt answers them. Matrix-vector kernels are in gemv, next to it.
"""

from __future__ import annotations

import math

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.calls import REDUCTION_IN_PLACE, CublasGemm
from hwsim.libraries.cublas.orders.sum_parts import SumTree, ascending, closed_parts, lanes, slice_lengths
from hwsim.libraries.cublas.orders.tensor_core import cutlass_slice
from hwsim.libraries.kernel_choice import SummationOrder


def one_chain(call: CublasGemm, answer: Answer) -> SummationOrder:
    """One chain in order of K."""
    return SummationOrder(Schedule())


def sgemm_largek(call: CublasGemm, answer: Answer) -> SummationOrder:
    """sgemm_largek: slices of whole 8 elements, ascending."""
    length = math.ceil(math.ceil(call.k / max(answer.slices, 1)) / 8) * 8
    return SummationOrder(Schedule(slice_k=slice_lengths(call.k, length)))


def vector_slices(call: CublasGemm, answer: Answer) -> SummationOrder:
    """CUTLASS's SIMT and FP64 kernels: slices as of its tensor-op kernels, each a chain in order of K."""
    lengths = slice_lengths(call.k, cutlass_slice(call, max(answer.slices, 1)))
    is_serial = lengths is not None and answer.reduction == REDUCTION_IN_PLACE
    return SummationOrder(Schedule(slice_k=lengths, merge_into="output" if is_serial else "sum"))


def gemm_sn(call: CublasGemm, answer: Answer) -> SummationOrder:
    """gemmSN. B by rows: 2 (custom option 0) or 4 contiguous parts, closed every 256 or 128 of K. By columns: 16 lanes
    that take elements in turn, closed every 16 tiles; lanes ascending."""
    if call.b_layout == "columns":
        return SummationOrder(Schedule(sum=ascending(lanes(0, call.k, 16, 1, 16), "registers")))
    count, block = ((2, 256), (4, 128))[answer.custom == 1]
    return SummationOrder(Schedule(sum=closed_parts(0, call.k, count, block)))


def dot_product(call: CublasGemm, answer: Answer) -> SummationOrder:
    """Dot products: blocks of 128 threads take tiles in turn and halve; a second kernel joins the blocks."""
    is_pair = (call.n == 1 or call.b_layout == "columns") and call.a_layout == "rows" and call.operand != "fp64"
    vector, blocks = (2 if is_pair else 1), max(answer.slices, 1)
    tile, sums = 128 * vector, []
    for block in range(blocks):
        threads: list[SumTree] = []
        for thread in range(128):
            at = block * tile + thread * vector
            parts: list[SumTree] = [
                Chain((Range(at + i, call.k, tile * blocks),) if at + i < call.k else ()) for i in range(vector)
            ]
            threads.append(ascending(parts, "registers"))
        sums.append(Reduction(tuple(threads), "halving", level="shared"))
    if blocks == 1:
        return SummationOrder(Schedule(sum=sums[0]))
    quarter: list[SumTree] = [
        ascending(list(sums[index::128]), "registers") if index < blocks else Chain(()) for index in range(128)
    ]
    joined = [
        Reduction((Reduction((quarter[i], quarter[i + 64])), Reduction((quarter[i + 32], quarter[i + 96]))))
        for i in range(32)
    ]
    columns: list[SumTree] = [Reduction(tuple(joined[index::4])) for index in range(4)]
    return SummationOrder(Schedule(sum=Reduction(tuple(columns), level="kernel")))
