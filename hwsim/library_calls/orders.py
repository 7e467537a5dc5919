"""From cuBLASLt's answer to the order in which the kernel adds over K, and by which instruction: a `Schedule`.

The rules are those of docs/library.md: found on recorded GEMMs of an H200 and an H100 (cuBLAS 13.1), or published by
others and checked there. It knows families of kernels by cuBLASLt's algorithm number; it knows no device and no array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction, Region
from hwsim.library_calls.raster import Grid, block_width, grid_of, last_clusters
from hwsim.library_calls.shared_k import part_count

Sum = Chain | Reduction
FFMA = "fma.rn.f32"
LINE_BYTES, VECTOR_BYTES = 128, 16
ELEMENT_BYTES = {"e4m3": 1, "int8": 1, "fp16": 2, "bf16": 2, "tf32": 4, "fp32": 4, "fp64": 8}
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

    @property
    def element_bytes(self) -> int:
        """Bytes of an operand's element in memory."""
        return ELEMENT_BYTES[self.operand]


class Generation(NamedTuple):
    """How kernels of a generation of chips add over K where it is not as on Hopper; the numbers are cuBLASLt's.

    promotes: without fast accumulation, sums of 8-bit floats are closed every 128 of K. known_options: custom options
    of matrix-vector kernels whose order is known there (None: all that are on Hopper); open_options: those of one lane
    whose sum is not closed. names: (algorithm, name) of kernels with another name. published: what is, and where, in
    words; "": nothing.
    """

    promotes: bool = True
    known_options: frozenset[int] | None = None
    open_options: frozenset[int] = frozenset()
    names: tuple[tuple[int, str], ...] = ()
    published: str = ""


HOPPER = Generation()


class Answer(NamedTuple):
    """What fixes the order of sums: cuBLASLt's algorithm id, K of a tile (0: undefined, None: not known), slices,
    reduction and custom option.

    slices -1: the kernel may cut K of some tiles by itself; then tile and cluster (as cuBLASLt's enums write them;
    None: not known), swizzle and the chip's SMs say of which. generation: of the chip.
    """

    algorithm: int
    tile_k: int | None
    slices: int
    reduction: int
    custom: int
    tile: tuple[int, int] | None = None
    cluster: tuple[int, int] | None = (1, 1)
    swizzle: int = 0
    cores: int = 132
    generation: Generation = HOPPER


@dataclass(frozen=True, slots=True)
class Order:
    """A kernel's order of summation; its `instruction` is None for the device's own. known: whether the rule is.
    lost_k: how many of the last products of K are in no sum."""

    schedule: Schedule
    known: bool = True
    lost_k: int = 0


UNKNOWN = Order(Schedule(), known=False)  # one chain stands for it


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
    step, slices = LINE_BYTES // call.element_bytes, max(answer.slices, 1)
    length = step * math.ceil(call.k // slices / step) if slices > 1 else call.k
    if length * slices >= call.k:
        return Order(Schedule(slice_k=_lengths(call.k, length)), known=answer.slices >= 0)
    parts: list[Sum] = [_span(start, stop) for start, stop in _cut(length * slices, length)]
    return Order(Schedule(sum=_ascending(parts)), lost_k=call.k - length * slices)


def _slice_length(call: Call, slices: int) -> int:
    """CUTLASS: ceil(K / s), rounded up to lines where K is whole lines and an operand is K-major, else to vectors."""
    line = LINE_BYTES // call.element_bytes
    is_k_major = call.a_layout == "rows" or call.b_layout == "columns"
    grain = line if call.k % line == 0 and is_k_major else VECTOR_BYTES // call.element_bytes
    return math.ceil(math.ceil(call.k / slices) / grain) * grain


def _rest_first(call: Call, answer: Answer) -> Order:
    """CUTLASS's tensor-op kernels for Turing and Ampere: the rest of each slice's K before its whole tiles."""
    if answer.tile_k is None:
        return UNKNOWN
    kind = NARROW_TYPES[call.operand]
    tile_k = answer.tile_k or 32
    step = 8 if call.operand == "tf32" or not answer.tile_k else 16
    lengths = _lengths(call.k, _slice_length(call, max(answer.slices, 1)))
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
    if answer.tile is None or answer.cluster is None or answer.cores not in CLUSTERS_AT_ONCE:
        return Order(Schedule(), known=False)
    # wgmma takes tf32 from shared memory K-major only: a B by rows goes through registers, as the kernel's A.
    is_transposed = FAMILIES[answer.algorithm].is_across(call.b_layout)
    sizes = (call.n, call.m) if is_transposed else (call.m, call.n)
    grid = grid_of(*sizes, answer.tile, answer.cluster)
    counts = _clusters_at_once(CLUSTERS_AT_ONCE[answer.cores], math.prod(answer.cluster))
    found = {_last_wave(call, grid, answer.swizzle, at_once, is_transposed) for at_once in counts}
    return found.pop() if len(found) == 1 else Order(Schedule(), known=False)


#: Of tf32 kernels with slices -1: K up to which no tiles were shared, and from which all were, where a whole wave went
#: before and where none did (tools/record/shared_tiles.py; between the two none was met).
WHOLE_K, SHARED_K = {True: 560, False: 872}, {True: 648, False: 896}
SEGMENT_STEP = 32  # K of a tile, elements
#: By SMs of a chip: clusters of so many CTAs that run at once (configs/measured/microbenchmarks.csv; of 12: an H200's
#: batch classes rule out what else fits in its 8 GPCs of at most 18 SMs).
CLUSTERS_AT_ONCE = {132: {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15, 12: 7, 14: 7, 16: 7}}
GPCS, GPC_SMS = 8, 18


def _clusters_at_once(measured: Mapping[int, int], ctas: int) -> range:
    """How many clusters of so many CTAs may run at once: one number where it was measured, else what lies between."""
    if ctas in measured:
        return range(measured[ctas], measured[ctas] + 1)
    least = max((count for size, count in measured.items() if size > ctas), default=1)
    most = min(GPCS * (GPC_SMS // ctas), *(count for size, count in measured.items() if size < ctas))
    return range(least, most + 1)


def _last_wave(call: Call, grid: Grid, swizzle: int, at_once: int, is_transposed: bool) -> Order:
    """CTAs share the K of the tiles of the last, partial wave, where two CTAs a tile fit in it. is_transposed: the grid
    is of C transposed."""
    count = grid.rows * grid.columns
    rest = count % at_once if count > at_once else count
    after_waves, most = count > at_once, at_once // rest if rest else 1
    if most < 2 or call.k <= WHOLE_K[after_waves]:
        return Order(Schedule())
    total = segment_sum(call.k, part_count(math.ceil(call.k / SEGMENT_STEP), most, grid.tile, after_waves))
    regions = []
    for place in last_clusters(grid, block_width(grid, at_once, swizzle), rest):
        spans = zip(place, grid.extent, (call.n, call.m) if is_transposed else (call.m, call.n), strict=True)
        across = [Range(min(i * extent, size), min((i + 1) * extent, size)) for i, extent, size in spans]
        rows, columns = reversed(across) if is_transposed else across
        regions.append(Region(rows, columns, total))
    return Order(Schedule(regions=tuple(regions)), known=call.k >= SHARED_K[after_waves])


def segment_sum(k: int, parts: int) -> Sum:
    """K in parts of whole tiles, the longer ones last; neighbours are added from the last part down."""
    tiles, extra = divmod(math.ceil(k / SEGMENT_STEP), parts)
    starts = [(tiles * i + max(0, i - (parts - extra))) * SEGMENT_STEP for i in range(parts)] + [k]
    level: list[Sum] = [_span(starts[i], starts[i + 1]) for i in range(parts - 1, -1, -1)]
    return Reduction(tuple(level), "pairwise", level="workspace")


def _interleaved(call: Call, answer: Answer) -> Order:
    """xmma for Ampere: tile z, z + s, ... of K to slice z. Custom option 1: ceil(s / 2) buffers, to which slices are
    added in turn; the last slice takes the buffers' sums. Else ascending."""
    slices, step = answer.slices, answer.tile_k
    if slices < 2:
        return Order(Schedule())
    if not step:
        return UNKNOWN
    parts: list[Sum] = [
        Chain((Range(z * step, call.k, slices * step, step),) if z * step < call.k else ()) for z in range(slices)
    ]
    if answer.custom != 1:
        return Order(Schedule(sum=_ascending(parts)))
    count = math.ceil(slices / 2)
    buffers = [_ascending(parts[index : slices - 1 : count]) for index in range(min(count, slices - 1))]
    return Order(Schedule(sum=_ascending([parts[-1], *buffers])))


# --- kernels without a matrix unit --------------------------------------------------------------------------------


def _one_chain(call: Call, answer: Answer) -> Order:
    return Order(Schedule())


def _sgemm_largek(call: Call, answer: Answer) -> Order:
    """sgemm_largek: slices of whole 8 elements, ascending."""
    length = math.ceil(math.ceil(call.k / max(answer.slices, 1)) / 8) * 8
    return Order(Schedule(slice_k=_lengths(call.k, length)))


def _vector_slices(call: Call, answer: Answer) -> Order:
    """CUTLASS's SIMT and FP64 kernels: slices as of its tensor-op kernels, each a chain in order of K."""
    lengths = _lengths(call.k, _slice_length(call, max(answer.slices, 1)))
    is_serial = lengths is not None and answer.reduction == REDUCTION_IN_PLACE
    return Order(Schedule(slice_k=lengths, merge_into="output" if is_serial else "sum"))


def _gemm_sn(call: Call, answer: Answer) -> Order:
    """gemmSN. B by rows: 2 (custom option 0) or 4 contiguous parts, closed every 256 or 128 of K. By columns: 16 lanes
    that take elements in turn, closed every 16 tiles; lanes ascending."""
    if call.b_layout == "columns":
        return Order(Schedule(sum=_ascending(_lanes(0, call.k, 16, 1, 16), "registers")))
    count, block = ((2, 256), (4, 128))[answer.custom == 1]
    return Order(Schedule(sum=_closed_parts(0, call.k, count, block)))


def _closed_parts(start: int, stop: int, count: int, block: int) -> Sum:
    """Contiguous parts of K in order; a sum in each begins every `block` elements."""
    parts = [
        _ascending([_span(start + x + p, start + x + q) for p, q in _cut(y - x, block)], "registers")
        for x, y in _cut(stop - start, math.ceil((stop - start) / count))
    ]
    return _ascending(parts, "registers")


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
    **dict.fromkeys((39, 49, 57, 63, 85, 95, 103, 109), (2, 1)),
    **dict.fromkeys((31, 41, 51, 59, 65, 69, 77, 87, 97, 111), (4, 1)),
    **dict.fromkeys((33, 43, 53, 61, 67, 71, 79, 89, 107), (8, 1)),
    **dict.fromkeys((35, 45, 55, 73, 81, 91, 101), (16, 1)),
    **dict.fromkeys((37, 47, 75, 83, 93), (32, 1)),
    **dict.fromkeys((38, 48, 56, 62, 84, 94, 102), (2, 0)),
    **dict.fromkeys((40, 50, 58, 68, 76, 86, 96, 110, 114), (4, 0)),
    **dict.fromkeys((42, 52, 60, 66, 78, 88, 98, 106, 112), (8, 0)),
    **dict.fromkeys((44, 54, 72, 80, 90, 100), (16, 0)),
    **dict.fromkeys((36, 46, 74, 82, 92), (32, 0)),
}
_WARP = 10  # custom option: a warp per result, or three quarters of one, 4 elements at once
_CLOSED = {11: 32, 12: 16, 13: 16, 14: 16}  # 16 lanes, ascending: tiles after which a lane's sum is closed
#: Contiguous parts of K, ascending, and elements after which the sum of one is closed.
_PARTS = {0: (1, 512), 7: (1, 256), 8: (1, 256), 1: (2, 256), 2: (4, 128), 5: (32, 16)}
_ONE_LANE = 6
MOST_BYTES = 256


def _warp_lanes(results: int, element_bytes: int) -> int:
    """Lanes per result of the kernels of custom option 10: 32, or 24 where a block has 32 results. So it has of fp32
    for more than 128 results, of fp64 where they fill an odd number of blocks of 16, from 9 to 33.
    """
    blocks = math.ceil(results / 16)
    is_odd = element_bytes == 8 and blocks % 2 == 1 and blocks <= 33
    return 24 if results > 128 and (element_bytes == 4 or is_odd) else 32


def _gemv_slice(custom: int, length: int, start: int, stop: int, call: Call) -> Sum | None:
    if custom == _WARP:
        lanes = _lanes(start, stop, _warp_lanes(call.m * call.n, call.element_bytes), 4)
        return Reduction((*lanes, *[Chain(())] * (32 - len(lanes))), "halving", level="lanes")
    if custom in _HALVING:
        width, vector = _HALVING[custom]
        most = MOST_BYTES // max(4, call.element_bytes)
        vector = vector or max(1, min(most, math.ceil(length / width)))
        return Reduction(tuple(_lanes(start, stop, width, vector)), "halving", level="lanes")
    if custom in _CLOSED:
        return _ascending(_lanes(start, stop, 16, 1, _CLOSED[custom]), "registers")
    if custom == _ONE_LANE:
        return _span(start, stop)
    if custom in _PARTS:
        count, block = _PARTS[custom]
        return _closed_parts(start, stop, count, block)
    return None


def _gemv(call: Call, answer: Answer) -> Order:
    """Matrix-vector products: slices of ceil(K / s), ascending; within one by lanes, as the custom option says, so far
    as it is known on the generation."""
    generation = answer.generation
    if generation.known_options is not None and answer.custom not in generation.known_options:
        return UNKNOWN
    custom = _ONE_LANE if answer.custom in generation.open_options else answer.custom
    length = math.ceil(call.k / max(answer.slices, 1))
    parts = [_gemv_slice(custom, length, x, y, call) for x, y in _cut(call.k, length)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return UNKNOWN
    return Order(Schedule(sum=_ascending(known)))


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
        return Order(Schedule(sum=found[0]))
    quarter: list[Sum] = [
        _ascending(list(found[index::128]), "registers") if index < blocks else Chain(()) for index in range(128)
    ]
    joined = [
        Reduction((Reduction((quarter[i], quarter[i + 64])), Reduction((quarter[i + 32], quarter[i + 96]))))
        for i in range(32)
    ]
    columns: list[Sum] = [Reduction(tuple(joined[index::4])) for index in range(4)]
    return Order(Schedule(sum=Reduction(tuple(columns), level="kernel")))


def _lanes_by_m(call: Call, slices: int, custom: int) -> int:
    """Of gemv: the lanes per result where their number says how many; 0 where it does not depend on it."""
    return _warp_lanes(call.m * call.n, call.element_bytes) if custom == _WARP and call.element_bytes > 2 else 0


NVJET, GEMV = 66, 13
CUTLASS = (21, 23, 24)
REDUCTION_COMPUTE_TYPE = 2


def is_rounded_before_bias(algorithm: int, slices: int, reduction: int, is_lt: bool) -> bool:
    """Whether a sum of a 16-bit output is rounded to it before the bias is added, and the result again.

    is_lt: the bias is cublasLtMatmul's epilogue; else it is the C of cublasGemmEx. Seen with fp16 and bf16: by
    cublasLtMatmul where slices are merged by a kernel of their own (matrix-vector products, CUTLASS's; not nvjet's); as
    C by nvjet without slices ("badd").
    """
    if is_lt:
        return slices > 1 and (algorithm == GEMV or (algorithm in CUTLASS and reduction == REDUCTION_COMPUTE_TYPE))
    return algorithm == NVJET and slices < 2


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """Kernels of one algorithm number: what profilers call them, and the rule of their sums.

    instruction: by which they add (FP64: the device's own in any case); None: the device's own, or the rule says it.
    operands: formats that the rule is for; none: any.
    order_of_m: where the order depends on m beyond what cuBLASLt answers, a number for (call, slices, custom option)
    that is equal where orders are; 0: it does not. names_m_first: in the kernels' names a tile is (m, n) of the
    row-major product, not cuBLASLt's (n, m). mn_major_b_first: a B by rows is the kernel's own A, and its tile lies
    across.
    """

    name: str
    rule: Callable[[Call, Answer], Order]
    instruction: str | None = None
    operands: tuple[str, ...] = ()
    order_of_m: Callable[[Call, int, int], int] = lambda call, slices, custom: 0
    names_m_first: bool = False
    mn_major_b_first: bool = False

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
    13: KernelFamily("gemv", _gemv, FFMA, order_of_m=_lanes_by_m),
    14: KernelFamily("dot", _dot, FFMA),
    16: KernelFamily("magma_sgemmEx", _one_chain, FFMA),
    20: KernelFamily("cutlass_80_simt_sgemm", _vector_slices, FFMA),
    21: KernelFamily("cutlass_80_tensorop", _rest_first, operands=tuple(NARROW_TYPES)),
    22: KernelFamily("cutlass_80_tensorop_d884gemm", _vector_slices),
    23: KernelFamily("cutlass_80_tensorop", _rest_first, operands=tuple(NARROW_TYPES)),
    24: KernelFamily("cutlass_75_tensorop", _rest_first, operands=tuple(NARROW_TYPES)),
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
    66: KernelFamily("nvjet_sm90", _whole_tiles),
}
