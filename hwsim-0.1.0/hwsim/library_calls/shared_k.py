"""Into how many parts CTAs of an xmma kernel for Hopper cut the K of a tile that they share: a cost found from bits.

Found on 1,224 tf32 GEMMs of an H100 whose number of parts follows from their results (CUDA 13.0, 2026-11-23): the parts
with the least of steps of K, plus what joining costs, which rises with the levels of the tree of sums. The module knows
steps, parts and tiles; not which tiles are shared.
"""

from __future__ import annotations

from typing import NamedTuple

MOST_PARTS = 32


class JoinCost(NamedTuple):
    """What joining parts costs, in steps of K: levels[i] where the tree of sums has i + 1 levels, and per part."""

    levels: tuple[float, float, float, float, float]
    part: float

    def of(self, parts: int) -> float:
        """The cost of joining so many parts."""
        return 0.0 if parts < 2 else self.levels[(parts - 1).bit_length() - 1] + self.part * parts


FREE = JoinCost((0.0,) * 5, 0.0)
#: By the tile's sides, the shorter first: where whole waves of clusters went before, and where none did.
AFTER_WAVES = {
    (64, 64): JoinCost((10, 19, 23.5, 25, 23), 0.5),
    (64, 128): JoinCost((10, 19, 23.5, 25, 23), 0.5),
    (128, 128): JoinCost((11.5, 20, 25, 27.25, 24.75), 0.25),
}
ALONE = {
    (64, 64): JoinCost((13, 38, 54, 60, 60), 5),
    (64, 128): JoinCost((13, 33.5, 52.5, 60, 60), 1.5),
    (64, 256): JoinCost((13, 31, 49, 55, 55), 0.5),
    (128, 128): JoinCost((13, 31, 49, 55, 55), 0.5),
}


def part_count(steps: int, most: int, tile: tuple[int, int], after_waves: bool) -> int:
    """Parts of a K of so many steps, at most `most` (and MOST_PARTS); the least of equally good numbers.

    Larger tiles were seen with K too long for the cost to matter; it is 0 for them.
    """
    short, long = sorted(tile)
    cost = (AFTER_WAVES if after_waves else ALONE).get((short, long), FREE)
    return min(range(1, min(most, MOST_PARTS) + 1), key=lambda parts: -(-steps // parts) + cost.of(parts))
