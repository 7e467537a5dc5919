"""From cuBLASLt's answer to the order in which the kernel adds over K: a `Schedule`, and what the kernel computes with.

The rules are those of docs/cublas.md: found on recorded GEMMs of an H200 and an H100 (cuBLAS 13.1), or published by
others and checked there. It knows families of kernels by cuBLASLt's algorithm number; it knows no device and no array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hwsim.errors import UnsupportedError
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction

Sum = Chain | Reduction
LINE_BYTES, VECTOR_BYTES = 128, 16
NARROW_TYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}
REDUCTION_OUTPUT_TYPE, REDUCTION_IN_PLACE = 4, 1


class Call(NamedTuple):
    """A GEMM as the library is asked for it: C[m, n] = A[m, k] B[k, n]."""

    m: int
    n: int
    k: int
    operand: str
    output: str
    a_layout: str
    b_layout: str
    element_bytes: int


class Answer(NamedTuple):
    """What fixes the order of sums: cuBLASLt's algorithm, K of a tile (0: undefined), slices, reduction, custom option.

    slices -1: the kernel cuts K of some tiles by itself.
    """

    id: int
    tile_k: int
    slices: int
    reduction: int
    custom: int


@dataclass(frozen=True, slots=True)
class Order:
    """A kernel's order of summation. computes: "native", the device's matrix instruction; an mma instruction; or
    "lanes", fused multiply-adds of FP32 (FP64) on operands that are not rounded. known: whether the rule is known.
    """

    computes: str
    schedule: Schedule
    known: bool = True


def order_of(call: Call, answer: Answer) -> Order:
    """The order of summation of the kernel that an answer names. Raises UnsupportedError for an unknown algorithm."""
    family = FAMILIES.get(answer.id)
    if family is None:
        raise UnsupportedError(f"cuBLASLt's algorithm {answer.id}: no order of summation is known for it")
    order = family.rule(call, answer)
    return Order(order.computes, _with_shape(order.schedule, call), order.known)


def _with_shape(schedule: Schedule, call: Call) -> Schedule:
    fields = {name: getattr(schedule, name) for name in Schedule.__dataclass_fields__}
    return Schedule(**fields | {"shape": (call.m, call.n)})


def _cut(k: int, length: int) -> list[tuple[int, int]]:
    return [(start, min(start + length, k)) for start in range(0, k, max(length, 1))]


def _lengths(k: int, length: int) -> tuple[int, ...] | None:
    """Slices of a length; None for one."""
    return None if length >= k else tuple(stop - start for start, stop in _cut(k, length))


def _span(start: int, stop: int) -> Chain:
    return Chain((Range(start, stop),))


def _ascending(parts: list[Sum], level: Literal["registers", "workspace"] = "workspace") -> Sum:
    return parts[0] if len(parts) == 1 else Reduction(tuple(parts), level=level)


# --- tensor-core kernels ------------------------------------------------------------------------------------------


def _whole_tiles(call: Call, answer: Answer) -> Order:
    """nvjet: s slices of t ceil(floor(K / s) / t), t 128 bytes of K; what the last one leaves of K is lost."""
    step = LINE_BYTES // call.element_bytes
    length = step * math.ceil(call.k // answer.slices / step) if answer.slices > 1 else call.k
    if length * answer.slices >= call.k:
        return Order("native", Schedule(slice_k=_lengths(call.k, length)))
    parts: list[Sum] = [_span(start, stop) for start, stop in _cut(length * answer.slices, length)]
    return Order("native", Schedule(sum=_ascending(parts)))


def _slice_length(call: Call, slices: int) -> int:
    """CUTLASS: ceil(K / s), rounded up to lines where K is whole lines and an operand is K-major, else to vectors."""
    line = LINE_BYTES // call.element_bytes
    is_k_major = call.a_layout == "rows" or call.b_layout == "columns"
    grain = line if call.k % line == 0 and is_k_major else VECTOR_BYTES // call.element_bytes
    return math.ceil(math.ceil(call.k / slices) / grain) * grain


def _rest_first(call: Call, answer: Answer) -> Order:
    """CUTLASS's tensor-op kernels for Turing and Ampere: the rest of each slice's K before its whole tiles."""
    kind = NARROW_TYPES.get(call.operand)
    if kind is None:  # int8: the same sum in any order
        return Order("native", Schedule())
    tile_k = answer.tile_k or 32
    step = 8 if call.operand == "tf32" or not answer.tile_k else 16
    lengths = _lengths(call.k, _slice_length(call, max(answer.slices, 1)))
    narrow = call.output if lengths and call.output in ("fp16", "bf16") else None
    return Order(
        f"mma.m16n8k{step}.f32.{kind}.{kind}.f32",
        Schedule(
            slice_k=lengths,
            remainder="first",
            tile_k=tile_k,
            partial_format=narrow if answer.reduction == REDUCTION_OUTPUT_TYPE else None,
        ),
        known=narrow is None or answer.reduction != REDUCTION_IN_PLACE,
    )


def _segments(call: Call, answer: Answer) -> Order:
    """xmma for Hopper: one chain; slices -1 lets CTAs share the K of some tiles, in which tiles is not known."""
    return Order("native", Schedule(), known=answer.slices >= 0)


def _interleaved(computes: str) -> Callable[[Call, Answer], Order]:
    """xmma for Ampere: tile z, z + s, ... of K to slice z. Custom option 1: ceil(s / 2) buffers, to which slices are
    added in turn; the last slice takes the buffers' sums. Else ascending."""

    def rule(call: Call, answer: Answer) -> Order:
        slices, step = answer.slices, answer.tile_k or 8
        if slices < 2:
            return Order(computes, Schedule())
        parts: list[Sum] = [
            Chain((Range(z * step, call.k, slices * step, step),) if z * step < call.k else ()) for z in range(slices)
        ]
        if answer.custom != 1:
            return Order(computes, Schedule(sum=_ascending(parts)))
        count = math.ceil(slices / 2)
        buffers = [_ascending(parts[index : slices - 1 : count]) for index in range(min(count, slices - 1))]
        return Order(computes, Schedule(sum=_ascending([parts[-1], *buffers])))

    return rule


# --- kernels without a matrix unit --------------------------------------------------------------------------------


def _one_chain(call: Call, answer: Answer) -> Order:
    return Order("lanes", Schedule())


def _vector_slices(computes: str) -> Callable[[Call, Answer], Order]:
    """CUTLASS's SIMT and FP64 kernels: slices as of its tensor-op kernels, each a chain in order of K."""

    def rule(call: Call, answer: Answer) -> Order:
        return Order(computes, Schedule(slice_k=_lengths(call.k, _slice_length(call, max(answer.slices, 1)))))

    return rule


def _small(call: Call, answer: Answer) -> Order:
    """gemmSN. B by rows: 2 (custom option 0) or 4 contiguous parts, closed every 256 or 128 of K. By columns: 16 lanes
    that take elements in turn, closed every 16 tiles; lanes ascending."""
    if call.b_layout == "columns":
        return Order("lanes", Schedule(sum=_ascending(_lanes(0, call.k, 16, 1, 16), "registers")))
    count, block = ((2, 256), (4, 128))[answer.custom == 1]
    parts = [
        _ascending([_span(start + x, start + y) for x, y in _cut(stop - start, block)], "registers")
        for start, stop in _cut(call.k, math.ceil(call.k / count))
    ]
    return Order("lanes", Schedule(sum=_ascending(parts, "registers")), known=answer.slices >= 0)


def _lanes(start: int, stop: int, width: int, vector: int, closed: int | None = None) -> list[Sum]:
    """`width` lanes over elements start to stop, `vector` consecutive ones each; closed: a sum begins every so many."""
    tile = width * vector
    found: list[Sum] = []
    for lane in range(width):
        first = start + lane * vector
        if closed is None:
            found.append(Chain((Range(first, stop, tile, vector),) if first < stop else ()))
            continue
        parts: list[Sum] = [
            Chain((Range(at, min(stop, at + tile * closed), tile, vector),)) for at in range(first, stop, tile * closed)
        ]
        found.append(_ascending(parts, "registers") if parts else Chain(()))
    return found


#: gemv: {custom option: (lanes, elements that a lane takes at once; 0: its share of a slice, at most 256 bytes)}.
_HALVING = {
    **dict.fromkeys((49, 57, 63, 95, 109), (2, 1)),
    **dict.fromkeys((41, 51, 59, 65, 69, 111), (4, 1)),
    **dict.fromkeys((43, 53, 61, 67, 89), (8, 1)),
    **dict.fromkeys((35, 45, 55, 73, 81, 91, 101), (16, 1)),
    **dict.fromkeys((37, 47, 75, 83, 93), (32, 1)),
    **dict.fromkeys((48, 56, 62, 94, 102), (2, 0)),
    **dict.fromkeys((40, 50, 58, 68, 86, 96, 110), (4, 0)),
    **dict.fromkeys((42, 52, 60, 66, 88, 98, 106), (8, 0)),
    **dict.fromkeys((44, 54, 72, 90, 100, 112), (16, 0)),
    **dict.fromkeys((36, 46, 74, 82, 92), (32, 0)),
    10: (32, 4),
}
_CLOSED = {11: 32, 12: 16, 13: 16, 14: 16}  # 16 lanes, ascending: tiles after which a lane's sum is closed
_BLOCKS = {0: 512, 7: 256, 8: 256}  # one lane: elements after which its sum is closed
_ONE_LANE = (6, 84)
MOST_BYTES = 256


def _gemv_slice(custom: int, length: int, start: int, stop: int, element_bytes: int) -> Sum | None:
    if custom in _HALVING:
        width, vector = _HALVING[custom]
        most = MOST_BYTES // max(4, element_bytes)
        vector = vector or max(1, min(most, math.ceil(length / width)))
        return Reduction(tuple(_lanes(start, stop, width, vector)), "halving", level="lanes")
    if custom in _CLOSED:
        return _ascending(_lanes(start, stop, 16, 1, _CLOSED[custom]), "registers")
    if custom in _ONE_LANE:
        return _span(start, stop)
    if custom in _BLOCKS:
        return _ascending([_span(start + x, start + y) for x, y in _cut(stop - start, _BLOCKS[custom])], "registers")
    if custom == 1:
        half = math.ceil((stop - start) / 2)
        return _ascending([_span(start + x, start + y) for x, y in _cut(stop - start, half)], "registers")
    if custom == 5:
        own = math.ceil((stop - start) / 32)
        parts = [
            _ascending([_span(start + x + p, start + x + q) for p, q in _cut(y - x, 16)], "registers")
            for x, y in _cut(stop - start, own)
        ]
        return _ascending(parts, "registers")
    return None


def _gemv(call: Call, answer: Answer) -> Order:
    """Matrix-vector products: slices of ceil(K / s), ascending; within one by lanes, as the custom option says."""
    length = math.ceil(call.k / max(answer.slices, 1))
    parts = [_gemv_slice(answer.custom, length, x, y, call.element_bytes) for x, y in _cut(call.k, length)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return Order("lanes", Schedule(), known=False)
    return Order("lanes", Schedule(sum=_ascending(known)))


def _dot(call: Call, answer: Answer) -> Order:
    """Dot products: blocks of 128 threads take tiles in turn and halve; a second kernel joins the blocks."""
    is_pair = (call.n == 1 or call.b_layout == "columns") and call.a_layout == "rows" and call.operand != "fp64"
    vector, blocks = (2 if is_pair else 1), max(answer.slices, 1)
    tile, found = 128 * vector, []
    for block in range(blocks):
        threads: list[Sum] = []
        for thread in range(128):
            at = block * tile + thread * vector
            own: list[Sum] = [
                Chain((Range(at + i, call.k, tile * blocks),) if at + i < call.k else ()) for i in range(vector)
            ]
            threads.append(_ascending(own, "registers"))
        found.append(Reduction(tuple(threads), "halving", level="shared"))
    if blocks == 1:
        return Order("lanes", Schedule(sum=found[0]))
    quarter: list[Sum] = [
        _ascending(list(found[index::128]), "registers") if index < blocks else Chain(()) for index in range(128)
    ]
    joined = [
        Reduction((Reduction((quarter[i], quarter[i + 64])), Reduction((quarter[i + 32], quarter[i + 96]))))
        for i in range(32)
    ]
    columns: list[Sum] = [Reduction(tuple(joined[index::4])) for index in range(4)]
    return Order("lanes", Schedule(sum=Reduction(tuple(columns), level="kernel")))


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels of one algorithm number: what profilers call them, and the rule of their sums."""

    name: str
    rule: Callable[[Call, Answer], Order]


FAMILIES: dict[int, Family] = {
    10: Family("sgemm_largek", lambda call, answer: Order("lanes", Schedule(), known=False)),
    11: Family("gemmSN", _small),
    12: Family("gemmk1", _one_chain),
    13: Family("gemv", _gemv),
    14: Family("dot", _dot),
    16: Family("magma_sgemmEx", _one_chain),
    20: Family("cutlass_80_simt_sgemm", _vector_slices("lanes")),
    21: Family("cutlass_80_tensorop", _rest_first),
    22: Family("cutlass_80_tensorop_d884gemm", _vector_slices("native")),
    23: Family("cutlass_80_tensorop", _rest_first),
    24: Family("cutlass_75_tensorop", _rest_first),
    35: Family("sm90_xmma_gemm_f64f64", _interleaved("native")),
    36: Family("sm90_xmma_gemm_f64f64", _interleaved("native")),
    39: Family("sm90_xmma_gemm_i8i32", _segments),
    41: Family("sm90_xmma_gemm", _segments),
    43: Family("sm90_xmma_gemm_tf32f32", _segments),
    55: Family("sm80_xmma_gemm_ffma", _interleaved("lanes")),
    56: Family("sm80_xmma_gemm_ffma", _interleaved("lanes")),
    62: Family("sm90_xmma_gemm_e4m3", _segments),
    63: Family("sm80_xmma_gemm_tf32f32", _interleaved("native")),
    66: Family("nvjet_sm90", _whole_tiles),
}
