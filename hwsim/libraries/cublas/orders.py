"""From cuBLASLt's answer to the order in which the kernel adds over K, and by which instruction: a `Schedule`.

The rules are those of docs/library.md: found on recorded GEMMs of an H200 and an H100 (cuBLAS 13.1), or published by
others and checked there. It knows families of kernels by cuBLASLt's algorithm number; it knows no device and no array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.libraries.cublas.answer import UNKNOWN, Answer, Generation, Order
from hwsim.libraries.cublas.calls import LINE_BYTES, Call
from hwsim.libraries.cublas.gemv import gemv, lanes_by_m
from hwsim.libraries.cublas.shared_k import shared_order
from hwsim.libraries.cublas.sum_parts import SumTree, ascending, closed_parts, cut, lanes, slice_lengths, span

FFMA = "fma.rn.f32"
NVJET = 66
NARROW_TYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}
REDUCTION_IN_PLACE, REDUCTION_COMPUTE_TYPE, REDUCTION_OUTPUT_TYPE = 1, 2, 4
TENSOR_OPERANDS, MERGED = tuple(NARROW_TYPES), (REDUCTION_COMPUTE_TYPE,)  # of CUTLASS's tensor-op kernels


def order_of(call: Call, answer: Answer) -> Order:
    """The order of summation of the kernel that an answer names; of an unknown algorithm, and of operands that the rule
    is not for, a plain chain, not `known`.
    """
    family = FAMILIES.get(answer.algorithm)
    if call.operand == "int8":  # sums of integers are the same in any order
        order = Order(Schedule())
    elif family is None or (family.operands and call.operand not in family.operands):
        order = UNKNOWN
    else:
        order = family.rule(call, answer)
        if family.instruction is not None and call.operand != "fp64":
            order = replace(order, schedule=replace(order.schedule, instruction=family.instruction))
    return replace(order, schedule=replace(order.schedule, shape=(call.m, call.n)))


# --- tensor-core kernels ------------------------------------------------------------------------------------------


def _whole_tiles(call: Call, answer: Answer) -> Order:
    """nvjet: s slices of t ceil(floor(K / s) / t), t 128 bytes of K; what the last one leaves of K is lost."""
    step, slices = LINE_BYTES // call.element_bytes, max(answer.slices, 1)
    length = step * math.ceil(call.k // slices / step) if slices > 1 else call.k
    if length * slices >= call.k:
        return Order(Schedule(slice_k=slice_lengths(call.k, length)), known=answer.slices >= 0)
    parts: list[SumTree] = [span(start, stop) for start, stop in cut(length * slices, length)]
    return Order(Schedule(sum=ascending(parts)), lost_k=call.k - length * slices)


def _slice_length(call: Call, slices: int) -> int:
    """CUTLASS: ceil(K / s), rounded up to lines where K is whole lines and an operand is K-major, else to vectors."""
    line = LINE_BYTES // call.element_bytes
    is_k_major = call.a_layout == "rows" or call.b_layout == "columns"
    grain = line if call.k % line == 0 and is_k_major else call.vector_elements
    return math.ceil(math.ceil(call.k / slices) / grain) * grain


def _rest_first(call: Call, answer: Answer) -> Order:
    """CUTLASS's tensor-op kernels for Turing and Ampere: the rest of each slice's K before its whole tiles."""
    if answer.tile_k is None:
        return UNKNOWN
    kind = NARROW_TYPES[call.operand]
    tile_k = answer.tile_k or 32
    step = 8 if call.operand == "tf32" or not answer.tile_k else 16
    lengths = slice_lengths(call.k, _slice_length(call, max(answer.slices, 1)))
    is_whole = all(length % tile_k == 0 for length in lengths or (call.k,))
    narrow = call.output if lengths and call.output in ("fp16", "bf16") else None
    is_serial = lengths is not None and answer.reduction == REDUCTION_IN_PLACE and narrow is None
    return Order(
        Schedule(
            instruction=f"mma.m16n8k{step}.f32.{kind}.{kind}.f32",
            slice_k=lengths,
            remainder="last" if is_whole else "first",
            tile_k=None if is_whole else tile_k,
            partial_format=narrow if answer.reduction == REDUCTION_OUTPUT_TYPE else None,
            merge_into="output" if is_serial else "sum",
        ),
        known=narrow is None or answer.reduction != REDUCTION_IN_PLACE,
    )


def _segments(call: Call, answer: Answer) -> Order:
    """xmma for Hopper: one chain; with slices -1 CTAs share the K of the last tiles, where that fills the SMs."""
    if answer.slices > 1:  # cuBLASLt never answers so on Hopper
        return UNKNOWN
    if answer.slices >= 0 or call.operand != "tf32":
        return Order(Schedule())
    # wgmma takes tf32 from shared memory K-major only: a B by rows goes through registers, as the kernel's A.
    return shared_order(call, answer, FAMILIES[answer.algorithm].is_across(call.b_layout))


def _interleaved(call: Call, answer: Answer) -> Order:
    """xmma for Ampere: tile z, z + s, ... of K to slice z. Custom option 1: ceil(s / 2) buffers, to which slices are
    added in turn; the last slice takes the buffers' sums. Else ascending."""
    slices, step = answer.slices, answer.tile_k
    if slices < 2:
        return Order(Schedule())
    if not step:
        return UNKNOWN
    parts: list[SumTree] = [
        Chain((Range(z * step, call.k, slices * step, step),) if z * step < call.k else ()) for z in range(slices)
    ]
    if answer.custom != 1:
        return Order(Schedule(sum=ascending(parts)))
    count = math.ceil(slices / 2)
    buffers = [ascending(parts[index : slices - 1 : count]) for index in range(min(count, slices - 1))]
    return Order(Schedule(sum=ascending([parts[-1], *buffers])))


# --- kernels without a matrix unit --------------------------------------------------------------------------------


def _one_chain(call: Call, answer: Answer) -> Order:
    return Order(Schedule())


def _sgemm_largek(call: Call, answer: Answer) -> Order:
    """sgemm_largek: slices of whole 8 elements, ascending."""
    length = math.ceil(math.ceil(call.k / max(answer.slices, 1)) / 8) * 8
    return Order(Schedule(slice_k=slice_lengths(call.k, length)))


def _vector_slices(call: Call, answer: Answer) -> Order:
    """CUTLASS's SIMT and FP64 kernels: slices as of its tensor-op kernels, each a chain in order of K."""
    lengths = slice_lengths(call.k, _slice_length(call, max(answer.slices, 1)))
    is_serial = lengths is not None and answer.reduction == REDUCTION_IN_PLACE
    return Order(Schedule(slice_k=lengths, merge_into="output" if is_serial else "sum"))


def _gemm_sn(call: Call, answer: Answer) -> Order:
    """gemmSN. B by rows: 2 (custom option 0) or 4 contiguous parts, closed every 256 or 128 of K. By columns: 16 lanes
    that take elements in turn, closed every 16 tiles; lanes ascending."""
    if call.b_layout == "columns":
        return Order(Schedule(sum=ascending(lanes(0, call.k, 16, 1, 16), "registers")))
    count, block = ((2, 256), (4, 128))[answer.custom == 1]
    return Order(Schedule(sum=closed_parts(0, call.k, count, block)))


def _dot(call: Call, answer: Answer) -> Order:
    """Dot products: blocks of 128 threads take tiles in turn and halve; a second kernel joins the blocks."""
    is_pair = (call.n == 1 or call.b_layout == "columns") and call.a_layout == "rows" and call.operand != "fp64"
    vector, blocks = (2 if is_pair else 1), max(answer.slices, 1)
    tile, found = 128 * vector, []
    for block in range(blocks):
        threads: list[SumTree] = []
        for thread in range(128):
            at = block * tile + thread * vector
            own: list[SumTree] = [
                Chain((Range(at + i, call.k, tile * blocks),) if at + i < call.k else ()) for i in range(vector)
            ]
            threads.append(ascending(own, "registers"))
        found.append(Reduction(tuple(threads), "halving", level="shared"))
    if blocks == 1:
        return Order(Schedule(sum=found[0]))
    quarter: list[SumTree] = [
        ascending(list(found[index::128]), "registers") if index < blocks else Chain(()) for index in range(128)
    ]
    joined = [
        Reduction((Reduction((quarter[i], quarter[i + 64])), Reduction((quarter[i + 32], quarter[i + 96]))))
        for i in range(32)
    ]
    columns: list[SumTree] = [Reduction(tuple(joined[index::4])) for index in range(4)]
    return Order(Schedule(sum=Reduction(tuple(columns), level="kernel")))


def is_rounded_before_bias(algorithm: int, slices: int, reduction: int, is_lt: bool) -> bool:
    """Whether a sum of a 16-bit output is rounded to it before the bias is added, and the result again.

    is_lt: the bias is cublasLtMatmul's epilogue; else it is the C of cublasGemmEx. Seen with fp16 and bf16.
    """
    family = FAMILIES.get(algorithm)
    if family is None:
        return False
    if is_lt:
        return slices > 1 and (family.merges is None or reduction in family.merges)
    return family.rounded_before_c and slices < 2


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """Kernels of one algorithm number: what profilers call them, and the rule of their sums.

    instruction: by which they add (FP64: the device's own in any case); None: the device's own, or the rule says it.
    operands: formats that the rule is for; none: any.
    order_of_m: where the order depends on m beyond what cuBLASLt answers, a number for (call, slices, custom option)
    that is equal where orders are; 0: it does not. names_m_first: in the kernels' names a tile is (m, n) of the
    row-major product, not cuBLASLt's (n, m). mn_major_b_first: a B by rows is the kernel's own A, and its tile lies
    across. merges: reductions (cuBLASLt's; None: all) with which a kernel of its own merges slices and rounds the sum
    to a 16-bit result before cublasLtMatmul's epilogue adds a bias. rounded_before_c: without slices, the sum is
    so rounded before a C is added ("badd").
    """

    name: str
    rule: Callable[[Call, Answer], Order]
    instruction: str | None = None
    operands: tuple[str, ...] = ()
    order_of_m: Callable[[Call, int, int], int] = lambda call, slices, custom: 0
    names_m_first: bool = False
    mn_major_b_first: bool = False
    merges: tuple[int, ...] | None = ()
    rounded_before_c: bool = False

    def is_across(self, b_layout: str) -> bool:
        """Whether tile and cluster, as cuBLASLt answers them, are (m, n) of the row-major product and not (n, m)."""
        return self.mn_major_b_first and b_layout == "rows"

    def kernel(self, tile: tuple[int, int] | None, name: str) -> str:
        """The family's name on a chip, and the tile as its kernels' names have it. tile: as cuBLASLt answers it."""
        if tile is None:
            return name
        first, second = reversed(tile) if self.names_m_first else tile
        return f"{name} {first}x{second}"


FAMILIES: dict[int, KernelFamily] = {
    10: KernelFamily("sgemm_largek", _sgemm_largek, FFMA),
    11: KernelFamily("gemmSN", _gemm_sn, FFMA),
    12: KernelFamily("gemmk1", _one_chain, FFMA),
    13: KernelFamily("gemv", gemv, FFMA, order_of_m=lanes_by_m, merges=None),
    14: KernelFamily("dot", _dot, FFMA),
    16: KernelFamily("magma_sgemmEx", _one_chain, FFMA),
    20: KernelFamily("cutlass_80_simt_sgemm", _vector_slices, FFMA),
    21: KernelFamily("cutlass_80_tensorop", _rest_first, operands=TENSOR_OPERANDS, merges=MERGED),
    22: KernelFamily("cutlass_80_tensorop_d884gemm", _vector_slices),
    23: KernelFamily("cutlass_80_tensorop", _rest_first, operands=TENSOR_OPERANDS, merges=MERGED),
    24: KernelFamily("cutlass_75_tensorop", _rest_first, operands=TENSOR_OPERANDS, merges=MERGED),
    35: KernelFamily("sm90_xmma_gemm_f64f64", _interleaved, names_m_first=True),
    36: KernelFamily("sm90_xmma_gemm_f64f64", _interleaved, names_m_first=True),
    39: KernelFamily("sm90_xmma_gemm_i8i32", _segments, names_m_first=True),
    41: KernelFamily("sm90_xmma_gemm", _segments, names_m_first=True),
    42: KernelFamily("sm90_xmma_gemm", _segments, names_m_first=True),
    43: KernelFamily(
        "sm90_xmma_gemm_tf32f32",
        _segments,
        order_of_m=lambda call, slices, custom: call.m if slices < 0 else 0,
        names_m_first=True,
        mn_major_b_first=True,
    ),
    55: KernelFamily("sm80_xmma_gemm_ffma", _interleaved, FFMA, names_m_first=True),
    56: KernelFamily("sm80_xmma_gemm_ffma", _interleaved, FFMA, names_m_first=True),
    62: KernelFamily("sm90_xmma_gemm_e4m3", _segments, names_m_first=True),
    63: KernelFamily(
        "sm80_xmma_gemm_tf32f32", _interleaved, "mma.m16n8k8.f32.tf32.tf32.f32", ("tf32",), names_m_first=True
    ),
    NVJET: KernelFamily("nvjet_sm90", _whole_tiles, rounded_before_c=True),
}


def family_name(algorithm: int, generation: Generation) -> str:
    """What the kernels of an algorithm are called on chips of a generation; "" for one that is not known."""
    family = FAMILIES.get(algorithm)
    return dict(generation.names).get(algorithm, "" if family is None else family.name)
