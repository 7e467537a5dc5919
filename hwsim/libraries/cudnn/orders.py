"""How kernels of forward convolutions add over K: the rule of a kernel as an order of summation.

The rules' names are data (configs/libraries). It knows channels, filters and instructions' lengths; no device, no
array and no name of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsim.gemm.convolution import ConvShape
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.libraries.model.convolution_model import SumRule


def schedule_of(rule: SumRule, shape: ConvShape, step: int, tile_k: int, slices: int) -> Schedule | None:
    """The order in which a kernel adds over K, which runs as its rule says (rsc or crs); None: it is not known.

    step: K of an instruction. tile_k: of a stage. slices: of K.
    """
    channels, taps = shape.channels // shape.groups, shape.r * shape.s
    count = -(-channels // tile_k) if tile_k else 1
    if rule == "in_order":
        return Schedule()
    if rule == "rest_first":
        return Schedule(remainder="first", tile_k=tile_k) if tile_k else Schedule()
    if rule == "interleaved":
        return Schedule(k_permutation=_interleaved(step))
    if rule == "unknown" or not tile_k:
        return None
    if rule == "segments":
        length = -(-count // slices)
        parts = [range(start, min(start + length, count)) for start in range(0, count, length)]
        return _of_slices([_blocks(channels, taps, tile_k, part) for part in parts], is_in_pairs=True)
    parts = [range(start, count, slices) for start in range(min(slices, count))]
    return _of_slices([_blocks(channels, taps, tile_k, part) for part in parts])


def _blocks(channels: int, taps: int, length: int, chosen: Sequence[int]) -> Chain:
    """Blocks of so many channels, in each all taps in turn: each begins with a new instruction."""
    ranges: list[Range] = []
    for block in chosen:
        start, size = block * length, min(length, channels - block * length)
        if size == channels:  # Range joins neighbouring blocks
            ranges += [Range(tap * channels, (tap + 1) * channels) for tap in range(taps)]
        else:
            ranges.append(Range(start, (taps - 1) * channels + start + size, channels, size))
    return Chain(tuple(ranges))


def _of_slices(slices: Sequence[Chain], *, is_in_pairs: bool = False) -> Schedule:
    if len(slices) == 1:
        return Schedule(sum=slices[0])
    return Schedule(sum=Reduction(tuple(slices), "pairwise" if is_in_pairs else "ascending", level="workspace"))


def _interleaved(step: int) -> tuple[int, ...]:
    """Of two instructions' elements of K, read in vectors of half a quarter: which each instruction takes."""
    half = step // 4
    places = range(2 * step)
    return (*(at for at in places if at // half % 2 == 0), *(at for at in places if at // half % 2))
