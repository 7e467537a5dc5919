"""Where stream-K cuts the K of tiles: equal ranges of blocks of K over consecutive tiles, one for each CTA.

As CUTLASS 3 cuts it with clusters of 1 x 1 and one group of CTAs (NVIDIA/cutlass, include/cutlass/gemm/kernel/
tile_scheduler_params.h and sm90_tile_scheduler_stream_k.hpp). It knows grids of tiles and cores; no instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hwsim.dataflows.tiles import TileGrid, element_of
from hwsim.gemm.summation import Chain, Range, Reduction, Region

LEAST_BLOCKS = 8  # of K that a CTA takes of a tile, as CUTLASS's min_iters_per_sk_unit_


def cut_tiles(grids: Sequence[TileGrid], k: int, tile_k: int, cores: int) -> tuple[Region, ...]:
    """The tiles whose K is cut, each with the sum of its parts in order of K; none where the last wave is full.

    grids: of all tiles, in one layer. The first tiles are cut: all where they are fewer than two waves, else as many as
    leave whole waves to follow.
    """
    places = [(grid, *element_of(grid, number)) for grid in grids for number in range(grid.tiles)]
    regions = []
    for number, cuts in sorted(cuts_of(len(places), -(-k // tile_k), cores).items()):
        grid, row, col = places[number]
        edges = [0, *(cut * tile_k for cut in cuts), k]
        parts = tuple([Chain((Range(a, b),)) for a, b in pairwise(edges)])
        total = Reduction(parts, "ascending", level="workspace")
        regions.append(Region(Range(row, row + grid.m), Range(col, col + grid.n), total))
    return tuple(regions)


def cuts_of(tiles: int, blocks: int, cores: int) -> dict[int, list[int]]:
    """The blocks of K before which tiles are cut, by number of the tile. blocks: of K of a tile.

    A range that would begin or end within LEAST_BLOCKS of a tile's first or last block begins or ends with the tile.
    """
    waves, rest = divmod(tiles, cores)
    if not rest or blocks <= LEAST_BLOCKS:
        return {}
    total = (tiles - max(waves - 1, 0) * cores) * blocks
    ctas = min(cores, total // LEAST_BLOCKS)
    length, longer = divmod(total, ctas)
    cuts: dict[int, list[int]] = {}
    for cta in range(1, ctas):
        tile, block = divmod(cta * length + min(cta, longer), blocks)
        if LEAST_BLOCKS <= block <= blocks - LEAST_BLOCKS:
            cuts.setdefault(tile, []).append(block)
    return cuts
