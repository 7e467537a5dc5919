"""Regions against grids of elements."""

import random

import numpy as np
import pytest

from hwsim.machines.matrix_regions import MatrixRegion, union, visible

SIDE = 12


def drawn(rng):
    row, col = rng.randrange(SIDE), rng.randrange(SIDE)
    return MatrixRegion(row, col, rng.randint(1, SIDE - row), rng.randint(1, SIDE - col))


def painted(areas, owners):
    grid = np.full((SIDE, SIDE), -1)
    for area, owner in zip(areas, owners, strict=True):
        grid[area.row : area.row + area.rows, area.col : area.col + area.cols] = owner
    return grid


@pytest.mark.parametrize("seed", range(40))
def test_later_areas_hide_earlier_ones_and_none_overlap(seed):
    rng = random.Random(seed)
    areas = [drawn(rng) for _ in range(rng.randint(1, 12))]
    owners = [rng.randrange(4) for _ in areas]
    found = [(owner, part) for owner, parts in visible(areas, owners).items() for part in parts]
    want = painted(areas, owners)
    assert np.array_equal(painted([part for _, part in found], [owner for owner, _ in found]), want)
    assert sum(part.size for _, part in found) == np.count_nonzero(want >= 0)


def test_tiles_of_a_matrix_are_one_area():
    tiles = [MatrixRegion(row, col, 4, 3) for row in range(0, SIDE, 4) for col in range(0, SIDE, 3)]
    random.Random(0).shuffle(tiles)
    assert union(tiles) == (MatrixRegion(0, 0, SIDE, SIDE),)


@pytest.mark.parametrize("seed", range(10))
def test_two_areas_meet_where_their_elements_do(seed):
    rng = random.Random(seed)
    first, second = drawn(rng), drawn(rng)
    common = (painted([first], [1]) == 1) & (painted([second], [1]) == 1)
    met = first.meet(second)
    assert np.array_equal(common, painted([met], [1]) == 1 if met else np.zeros((SIDE, SIDE), bool))
    assert first.covers(second) == (met == second)


def test_panels_cover_an_area_once():
    area = MatrixRegion(3, 5, 100, 33)
    panels = list(area.panels(16, 20))
    assert union(panels) == (area,) and sum(one.size for one in panels) == area.size
    assert max(one.rows for one in panels) <= 16 and max(one.cols for one in panels) <= 20
