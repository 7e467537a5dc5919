"""How kernels of convolutions add over K: the rule of a kernel as an order of summation.

The rules' names are data (configs/libraries). It knows channels, elements of a filter and instructions' lengths; no
device, no array and no name of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.libraries.model.convolution_model import KernelSumsModel

LANES = 32  # of a warp


def schedule_of(row: KernelSumsModel, channels: int, taps: int, step: int, tile_k: int, slices: int) -> Schedule | None:
    """The order in which a kernel adds over K, which runs as its row says (rsc or crs); None: it is not known.

    channels: that K runs over. taps: elements of the filter that meet. step: K of an instruction. tile_k: of a stage.
    slices: of K.
    """
    if row.rule == "in_order" or (row.rule == "one_tap" and taps == 1):
        return Schedule()
    if row.rule == "rest_first":
        return Schedule(remainder="first", tile_k=tile_k) if tile_k else Schedule()
    if row.rule == "interleaved":
        return Schedule(k_permutation=_interleaved(step))
    if row.rule == "lanes":
        k = channels * taps
        lanes = tuple(Chain((Range(lane, k, LANES),) if lane < k else ()) for lane in range(LANES))
        return Schedule(sum=Reduction(lanes, "halving", level="lanes"))
    if row.rule in ("one_tap", "unknown") or not tile_k:
        return None
    count = -(-channels // tile_k)
    if row.rule == "segments":
        least, longer = divmod(count * taps, slices)
        starts = [least * at + max(0, at - (slices - longer)) for at in range(slices + 1)]
        stages = [range(*bounds) for bounds in pairwise(starts) if bounds[0] < bounds[1]]
        return _of_slices([_stages(channels, taps, tile_k, part) for part in stages], row)
    parts = [range(start, count, slices) for start in range(min(slices, count))]
    return _of_slices([_of_warps(channels, taps, tile_k, part, row.warps) for part in parts], row)


def order_key(
    row: KernelSumsModel, channels: int, taps: int, step: int, tile_k: int, slices: int
) -> tuple[object, ...] | None:
    """The order of `schedule_of` in one form: equal keys are equal orders. None: the order is not known."""
    schedule = schedule_of(row, channels, taps, step, tile_k, slices)
    if schedule is None:
        return None
    way = (row.k_order if channels > 1 else "rsc", row.backwards) if taps > 1 else ()
    first = channels * taps % schedule.tile_k if schedule.tile_k else 0
    return (_spans(schedule.sum or Chain((Range(0, channels * taps),)), step), schedule.k_permutation, first, *way)


def _spans(part: Chain | Reduction, step: int) -> tuple[object, ...]:
    """Where an order cuts K into chains. Neighbouring blocks of whole instructions are one."""
    if isinstance(part, Reduction):
        return (part.order, *(_spans(inner, step) for inner in part.parts))
    joined: list[tuple[int, ...]] = []
    for blocks in part.ranges:
        if blocks.step > blocks.block == 1:  # of a lane: too many to list
            joined.append((blocks.start, blocks.stop, blocks.step))
            continue
        for start, stop in blocks.spans():
            is_next = bool(joined) and len(joined[-1]) == 2 and joined[-1][1] == start
            first = joined.pop()[0] if is_next and (start - joined[-1][0]) % step == 0 else start
            joined.append((first, stop))
    return tuple(joined)


def _of_warps(channels: int, taps: int, length: int, chosen: range, warps: int) -> Chain | Reduction:
    """The sum of blocks of channels, in each all taps in turn; each warp takes its part of every block."""
    part = length // warps
    sums = [_blocks(channels, taps, chosen, length, at * part, part) for at in range(warps)]
    return sums[0] if warps == 1 else Reduction(tuple(chain for chain in sums if chain.ranges))


def _blocks(channels: int, taps: int, chosen: range, length: int, offset: int, part: int) -> Chain:
    """Of blocks of so many channels, the part from an offset on: all taps in turn, each with a new instruction."""
    if taps == 1:
        start, step = chosen.start * length + offset, chosen.step * length
        return Chain((Range(start, channels, step, part),) if start < channels else ())
    ranges: list[Range] = []
    for block in chosen:
        start = block * length + offset
        size = min(part, channels - start)
        if size == channels:  # Range joins neighbouring blocks
            ranges += [Range(tap * channels, (tap + 1) * channels) for tap in range(taps)]
        elif size > 0:
            ranges.append(Range(start, (taps - 1) * channels + start + size, channels, size))
    return Chain(tuple(ranges))


def _stages(channels: int, taps: int, length: int, stages: range) -> Chain:
    """Neighbouring stages, each a block of channels of one tap: each begins with a new instruction."""
    ranges = []
    for stage in stages:
        block, tap = divmod(stage, taps)
        start = tap * channels + block * length
        ranges.append(Range(start, min(start + length, (tap + 1) * channels), length, length))
    return Chain(tuple(ranges))


def _of_slices(slices: Sequence[Chain | Reduction], row: KernelSumsModel) -> Schedule:
    if len(slices) == 1:
        return Schedule(sum=slices[0])
    if row.slice_order == "last_first":
        return Schedule(sum=Reduction((slices[-1], *slices[:-1]), level="workspace"))
    return Schedule(sum=Reduction(tuple(slices), row.slice_order, level="workspace"))


def _interleaved(step: int) -> tuple[int, ...]:
    """Of two instructions' elements of K, read in vectors of half a quarter: which each instruction takes."""
    half = step // 4
    places = range(2 * step)
    return (*(at for at in places if at // half % 2 == 0), *(at for at in places if at // half % 2))
