"""How cuBLAS's tensor-core kernels add over K: nvjet, CUTLASS's for Turing and Ampere, xmma's for Ampere and Hopper.

It knows slices, tiles and reductions as cuBLASLt answers them; not which algorithm has which rule.
"""

from __future__ import annotations

import math

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range
from hwsim.libraries.cublas.answer import UNKNOWN, Answer
from hwsim.libraries.cublas.calls import LINE_BYTES, REDUCTION_IN_PLACE, REDUCTION_OUTPUT_TYPE, CublasGemm
from hwsim.libraries.cublas.orders.sum_parts import SumTree, ascending, cut, slice_lengths, span
from hwsim.libraries.kernel_choice import SummationOrder

NARROW_TYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}


def whole_tiles(call: CublasGemm, answer: Answer) -> SummationOrder:
    """nvjet: s slices of t ceil(floor(K / s) / t), t 128 bytes of K; what the last one leaves of K is lost."""
    step, slices = LINE_BYTES // call.element_bytes, max(answer.slices, 1)
    length = step * math.ceil(call.k // slices / step) if slices > 1 else call.k
    if length * slices >= call.k:
        return SummationOrder(Schedule(slice_k=slice_lengths(call.k, length)), known=answer.slices >= 0)
    parts: list[SumTree] = [span(start, stop) for start, stop in cut(length * slices, length)]
    return SummationOrder(Schedule(sum=ascending(parts)), lost_k=call.k - length * slices)


def cutlass_slice(call: CublasGemm, slices: int) -> int:
    """CUTLASS: ceil(K / s), rounded up to lines where K is whole lines and an operand is K-major, else to vectors."""
    line = LINE_BYTES // call.element_bytes
    is_k_major = call.a_layout == "rows" or call.b_layout == "columns"
    grain = line if call.k % line == 0 and is_k_major else call.vector_elements
    return math.ceil(math.ceil(call.k / slices) / grain) * grain


def rest_first(call: CublasGemm, answer: Answer) -> SummationOrder:
    """CUTLASS's tensor-op kernels for Turing and Ampere: the rest of each slice's K before its whole tiles."""
    if answer.tile_k is None:
        return UNKNOWN
    kind = NARROW_TYPES[call.operand]
    tile_k = answer.tile_k or 32
    step = 8 if call.operand == "tf32" or not answer.tile_k else 16
    lengths = slice_lengths(call.k, cutlass_slice(call, max(answer.slices, 1)))
    is_whole = all(length % tile_k == 0 for length in lengths or (call.k,))
    narrow = call.output if lengths and call.output in ("fp16", "bf16") else None
    is_serial = lengths is not None and answer.reduction == REDUCTION_IN_PLACE
    return SummationOrder(
        Schedule(
            instruction=f"mma.m16n8k{step}.f32.{kind}.{kind}.f32",
            slice_k=lengths,
            remainder="last" if is_whole else "first",
            tile_k=None if is_whole else tile_k,
            partial_format=narrow if answer.reduction == REDUCTION_OUTPUT_TYPE else None,
            merge_into="output" if is_serial else "sum",
        )
    )


def interleaved(call: CublasGemm, answer: Answer) -> SummationOrder:
    """xmma for Ampere: tile z, z + s, ... of K to slice z. Custom option 1: ceil(s / 2) buffers, to which slices are
    added in turn; the last slice takes the buffers' sums. Else ascending."""
    slices, step = answer.slices, answer.tile_k
    if slices < 2:
        return SummationOrder(Schedule())
    if not step:
        return UNKNOWN
    parts: list[SumTree] = [
        Chain((Range(z * step, call.k, slices * step, step),) if z * step < call.k else ()) for z in range(slices)
    ]
    if answer.custom != 1:
        return SummationOrder(Schedule(sum=ascending(parts)))
    count = math.ceil(slices / 2)
    buffers = [ascending(parts[index : slices - 1 : count]) for index in range(min(count, slices - 1))]
    return SummationOrder(Schedule(sum=ascending([parts[-1], *buffers])))
