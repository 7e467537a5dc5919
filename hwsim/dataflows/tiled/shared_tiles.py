"""The tiles of C whose K several CTAs share, read from a schedule: the parts of K, and who adds whose sum.

It knows regions, sums that are written out and the size of a tile; no core and no instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hwsim.errors import UnsupportedError
from hwsim.gemm.summation import Chain, Range, ReduceOrder, Reduction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hwsim.gemm.schedule import Schedule
    from hwsim.gemm.summation import Region

KPart = tuple[int, int]
SumTree = Chain | Reduction
CARRIED: tuple[ReduceOrder, ...] = ("pairwise", "ascending", "descending")  # orders in which CTAs add parts


@dataclass(frozen=True, slots=True)
class SharedSum:
    """The sum of a shared tile: (start, length) of the part of K of each CTA, in order of the reduction.

    is_tree: neighbours add in a binary tree, and CTA 0 has the whole sum. Else each CTA adds its own sum to that of all
    CTAs before it, and the last one has the whole sum.
    """

    parts: tuple[KPart, ...]
    is_tree: bool

    def added(self, part: int) -> list[int]:
        """The parts whose stored sums the CTA of this part adds to its own, in order."""
        if not self.is_tree:
            return [part - 1] if part else []
        step, others = 1, []
        while part % (2 * step) == 0 and step < len(self.parts):
            if part + step < len(self.parts):
                others.append(part + step)
            step *= 2
        return others

    @property
    def last(self) -> int:
        """The part whose CTA has the whole sum."""
        return 0 if self.is_tree else len(self.parts) - 1

    @property
    def by_waiting(self) -> range:
        """The parts in an order in which each one's CTA waits for earlier ones alone; that of `last` is the last."""
        count = len(self.parts)
        return range(count - 1, -1, -1) if self.is_tree else range(count)


@dataclass(frozen=True, slots=True)
class SharedTiles:
    """The shared tiles: of each tile (rows x columns of tiles) the place of its sum in `sums`, -1 of whole ones."""

    owner: NDArray[np.int64]
    sums: tuple[SharedSum, ...]

    @property
    def is_shared(self) -> NDArray[np.bool_]:
        """Which tiles are shared."""
        return self.owner >= 0


def has_shared_tiles(schedule: Schedule) -> bool:
    """Whether the K of any tile is cut in parts."""
    return any(_count(region.sum) > 1 for region in schedule.regions)


def shared_tiles(schedule: Schedule, sizes: tuple[int, int, int], tile: tuple[int, int]) -> SharedTiles:
    """The shared tiles of a schedule's regions; no sums where none is. sizes: m, n, k; tile: its (m, n).

    Raises UnsupportedError for regions that are no tiles, or whose sums are no parts of K that CTAs add.
    """
    m, n, k = sizes
    sums: dict[SumTree, int] = {}
    owner = np.full((-(-m // tile[0]), -(-n // tile[1])), -1)

    def overlapped(region: Region) -> bool:
        """Whether an earlier region shares a tile that this one, which holds instead, has elements of."""
        spans = ((part.start // step, -(-part.stop // step)) for part, step in _along(region, tile))
        (top, bottom), (left, right) = spans
        return bool((owner[top:bottom, left:right] >= 0).any())

    for region in schedule.regions:
        is_shared = _count(region.sum) > 1
        if not is_shared:
            if _parts(region.sum) != ((0, k),):
                raise UnsupportedError("a region whose sum is not of all of K in order: programs carry no such chain")
            if not overlapped(region):
                continue
        (top, bottom), (left, right) = _tiles_of(region, (m, n), tile)
        owner[top:bottom, left:right] = sums.setdefault(region.sum, len(sums)) if is_shared else -1
    held, places = np.unique(owner[owner >= 0], return_inverse=True)  # later regions may have taken back all of a sum's
    owner[owner >= 0] = places
    written = list(sums)
    return SharedTiles(owner, tuple([_shared_sum(written[place]) for place in held]))


def _along(region: Region, tile: KPart) -> Iterator[tuple[Range, int]]:
    """A region's rows with the tile's m, and its columns with the tile's n."""
    return zip((region.rows, region.cols), tile, strict=True)


def _count(total: SumTree) -> int:
    return 1 if isinstance(total, Chain) else len(total.parts)


def _tiles_of(region: Region, sizes: KPart, tile: KPart) -> tuple[KPart, KPart]:
    """The first tile of a region and that after the last, along m and n."""
    spans = []
    for part, size, step in zip((region.rows, region.cols), sizes, tile, strict=True):
        is_whole = part.step == part.block and not part.start % step and (not part.stop % step or part.stop == size)
        if not is_whole or part.stop > size:
            raise UnsupportedError(
                f"a region of {part} of C: programs carry regions of whole tiles, here of {tile[0]} x {tile[1]}"
            )
        spans.append((part.start // step, -(-part.stop // step)))
    return spans[0], spans[1]


def _shared_sum(total: SumTree) -> SharedSum:
    """The sum of several parts of K. Raises UnsupportedError for additions that CTAs do not make."""
    assert isinstance(total, Reduction)
    parts = _parts(total)
    if total.order == "pairwise":
        return SharedSum(parts, is_tree=True)
    order = range(len(parts)) if total.order == "ascending" else range(len(parts) - 1, -1, -1)
    return SharedSum(tuple([parts[place] for place in order]), is_tree=False)


def _parts(total: SumTree) -> tuple[KPart, ...]:
    """(start, length) of the parts of K, in order. Raises UnsupportedError."""
    if isinstance(total, Reduction):
        level = "workspace" if _count(total) > 1 else total.level  # a single part meets none
        order = total.order if total.order in CARRIED else CARRIED[0]
        plain = Reduction(total.parts, order, level=level)
        if total != plain or not all(isinstance(part, Chain) for part in total.parts):
            raise UnsupportedError(
                f"parts of K that are added {total.order} (level {total.level}): programs add a tree of neighbours "
                "(pairwise), or one after the other (ascending, descending), in the unit's format through a workspace"
            )
        return tuple([_parts(part)[0] for part in total.parts])
    if len(total.ranges) != 1 or not _is_run(total.ranges[0]):
        raise UnsupportedError("a part of K that is no run of neighbours: no program carries it")
    return ((total.ranges[0].start, total.ranges[0].stop - total.ranges[0].start),)


def _is_run(part: Range) -> bool:
    return part.step == part.block and part.start < part.stop
