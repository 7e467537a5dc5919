"""The tiles of a kernel over areas of C, each with runs of K of its own. It knows areas, grids of tiles and cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from hwsim.dataflows.tiles import CoreWaves, StaticTileScheduler, TileGrid, places, tile_grids_at
from hwsim.program.ir import Affine

if TYPE_CHECKING:
    from hwsim.dataflows.plan_areas import PlanArea
    from hwsim.dataflows.tiles import WorkTile
    from hwsim.program.builder import StreamBuilder


@dataclass(frozen=True)
class AreaScheduler:
    """The tiles of areas, numbered from one area to the next, dealt to cores as by the static scheduler.

    grids: with the area of each.
    """

    grids: tuple[tuple[TileGrid, PlanArea], ...]
    device_cores: int

    @cached_property
    def _static(self) -> StaticTileScheduler:
        return StaticTileScheduler(tuple(grid for grid, _ in self.grids), self.device_cores, 1)

    @property
    def tile_count(self) -> int:
        """Number of tiles of the kernel."""
        return self._static.tile_count

    @property
    def raster_width(self) -> int:
        """Width of a rasterisation band, in tiles."""
        return self._static.raster_width

    @property
    def workspace_rows(self) -> int:
        """Rows of the workspace of shared tiles: 0, as no tile is shared."""
        return 0

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of semaphores of peers: (), as no tile is shared."""
        return ()

    def cores(self) -> list[CoreWaves]:
        """Groups of cores with equal work."""
        return self._static.cores()

    def tiles(self, stream: StreamBuilder, cores: CoreWaves) -> Iterator[WorkTile]:
        """The tiles of a group."""
        for (grid, area), waves in zip(self.grids, cores.waves, strict=True):
            group = CoreWaves(cores.first, cores.count, (waves,))
            for place in places(stream, (grid,), group, self.device_cores, 1):
                yield replace(place, batch=Affine(area.matrix), runs=area.runs, adds=area.adds)


def area_tiles(
    areas: Sequence[PlanArea], grids: Callable[[int, int, int], list[TileGrid]], cores: int
) -> AreaScheduler:
    """The scheduler of areas. grids: of rows x columns of C over a depth of K."""
    placed: list[tuple[TileGrid, PlanArea]] = []
    first = 0
    for area in areas:
        of_area = tile_grids_at(grids(area.rows, area.cols, area.depth), area.row, area.col, first)
        placed += [(grid, area) for grid in of_area]
        first += sum(grid.tiles for grid in of_area)
    return AreaScheduler(tuple(placed), cores)
