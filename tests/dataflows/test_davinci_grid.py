"""Work dealt over M, N and K on coupled DaVinci cores: no bit depends on the grid, and programs give the bits."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.dataflows.davinci.core_grid import CoreGrid
from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.devices import changed, load, registry
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.machines import functional, reference
from hwsim.program.check import check
from hwsim.resolve.gemm_record import record_of
from hwsim.schemes import scheme_of

CHIP = load("ascend910a")
PLANS = {
    "native": ("native", {"format": "fp16"}),
    "termwise": ("sgemm-cube", {}),
    "elementwise": ("sgemm-cube", {"accumulation": "elementwise"}),
}


def mapped(sizes, how, slices=1, **options):
    name, chosen = PLANS[how]
    own, problem = scheme_of(name), Problem.of("fp32", *sizes)
    gemm = record_of(own.plan(own.complete(chosen), problem), CHIP, problem, Schedule(split_k=slices))
    return COUPLED.map(gemm, CHIP, {"tile": (16, 16, 16), "n_fused": 2} | options)


@pytest.mark.parametrize("grid", [CoreGrid(1, 1), CoreGrid(1, 5), CoreGrid(5, 1), CoreGrid(3, 4), CoreGrid(2, 3, 2)])
@pytest.mark.parametrize("sizes", [(1, 1), (7, 100), (100, 7), (64, 48), (37, 53)])
def test_shares_cover_c_and_k_once(grid, sizes):
    m, n = sizes
    lengths = (32, 32, 10)
    found: Counter[tuple[int, int, int]] = Counter()
    cores: Counter[int] = Counter()
    for share in grid.shares(m, n, (16, 8), lengths):
        for core in range(share.first, share.first + share.count):
            cores[core] += 1
            col, row = divmod(core % (grid.rows * grid.cols), grid.rows)
            spans = []
            for part, place, width, block, extent in (
                (share.rows, row, grid.rows, 16, m),
                (share.cols, col, grid.cols, 8, n),
            ):
                blocks = [turn * width + place for turn in range(part.whole + bool(part.rest))]
                assert part.first <= place < part.first + part.count
                assert [min(block, extent - i * block) for i in blocks][part.whole :] == [part.rest] * bool(part.rest)
                spans.append(blocks)
            found.update((i, j, part.number) for i in spans[0] for j in spans[1] for part in share.slices)
    assert set(cores.values()) == {1}
    assert max(cores) < grid.rows * grid.cols * grid.layers
    every = {(i, j, s) for i in range(-(-m // 16)) for j in range(-(-n // 8)) for s in range(3)}
    assert set(found) == every and set(found.values()) == {1}


@pytest.mark.parametrize("how", PLANS)
@pytest.mark.parametrize("grid", [(1, 3), (2, 2), (3, 1), (4, 8), (1, 32)])
def test_no_bit_depends_on_the_grid(grid, how):
    name, chosen = PLANS[how]
    a, b = bits((50, 70), 1, specials=True), bits((70, 90), 2, specials=True)
    given = {"device": "ascend910a", "scheme": name, "tile": (16, 16, 16), "n_fused": 2, **chosen}
    first = hwsim.run(a, b, grid=(32, 1), **given)
    other = hwsim.run(a, b, grid=grid, functional=True, **given)
    assert other.options["grid"] == list(grid)
    assert np.array_equal(first.c.view(np.uint32), other.c.view(np.uint32))
    assert first.cycles != other.cycles or grid == (3, 1)


@pytest.mark.parametrize("how", PLANS)
@pytest.mark.parametrize(("slices", "grid"), [(2, (2, 2)), (3, (1, 3)), (5, (32, 1)), (5, (8, 4)), (5, (1, 16))])
@pytest.mark.parametrize("specials", [False, True])
def test_slices_of_k_by_program_and_by_evaluator(slices, grid, how, specials):
    name, chosen = PLANS[how]
    a, b = bits((35, 300), 3, -6, 6, specials=specials), bits((300, 40), 4, -6, 6, specials=specials)
    given = {"device": "ascend910a", "scheme": name, "tile": (16, 16, 16), "n_fused": 2, "grid": grid, **chosen}
    by_program, direct = (hwsim.run(a, b, split_k=slices, functional=one, **given) for one in (True, False))
    assert np.array_equal(by_program.c.view(np.uint32), direct.c.view(np.uint32))
    assert specials or not np.array_equal(direct.c, hwsim.matmul(a, b, **given))
    assert direct.gemm.schedule.split_k == slices


@pytest.mark.covering("order", "how", ("slices", "grid"))
@pytest.mark.parametrize("order", range(2))
@pytest.mark.parametrize("how", PLANS)
@pytest.mark.parametrize(("slices", "grid"), [(1, (2, 2)), (1, (1, 3)), (3, (2, 1)), (2, (2, 2))])
def test_every_legal_order_gives_the_same_bits(slices, grid, how, order):
    m, n, k = 34, 33, 50
    a, b = (bits(shape, seed).view(np.uint32) for shape, seed in (((m, k), 5), ((k, n), 6)))
    gemm = mapped((m, n, k), how, slices, grid=grid, buffering="single" if order % 2 else "double")
    program = COUPLED.lower(gemm, CHIP)
    check(program, CHIP)
    inputs = dict(zip(program.inputs, (a, b), strict=True))
    assert np.array_equal(
        functional.run(program, CHIP, inputs), reference.run(program, CHIP, inputs, order=order, dots=CPU.gemm)
    )


@pytest.mark.parametrize("sizes", [(1, 4096, 4096), (256, 4096, 4096), (1024, 1024, 1024), (64, 512, 8192)])
@pytest.mark.parametrize("how", PLANS)
def test_the_default_deals_work_to_most_cores_and_keeps_the_bits(sizes, how):
    """K accumulated from zero is Algorithm 1's, wherever K is longer."""
    chosen, listed = (mapped(sizes, how, tile=None, n_fused=None, grid=grid) for grid in (None, (32, 1)))
    assert chosen.schedule == listed.schedule
    program = COUPLED.lower(chosen, CHIP)
    kernel = next(one for one in program.kernels if one.name == "gemm")
    assert sum(group.count for group in kernel.groups) > CHIP.cores // 2
    check(program, CHIP)


@pytest.mark.parametrize("how", ["before", "kernel"])
def test_a_is_split_in_the_kernel_for_any_grid(how):
    a, b = bits((40, 60), 7, -8, 8), bits((60, 50), 8, -8, 8)
    given = {"device": "ascend910a", "scheme": "sgemm-cube", "tile": (16, 16, 16), "convert_a": how}
    first = hwsim.matmul(a, b, grid=(32, 1), **given)
    assert np.array_equal(first, hwsim.matmul(a, b, grid=(2, 3), functional=True, **given))


def test_a_record_without_a_grid_is_algorithm_1():
    gemm = mapped((100, 90, 70), "native", grid=(32, 1))
    kernel = gemm.mapping.kernels[0]
    old = replace(kernel, settings=tuple(one for one in kernel.settings if not one.name.startswith("grid")))
    other = replace(gemm, mapping=replace(gemm.mapping, kernels=(old,)))
    assert repr(COUPLED.lower(other, CHIP)) == repr(COUPLED.lower(gemm, CHIP))
    assert "grid" not in COUPLED.facts(other)


@pytest.mark.parametrize("grid", [(33, 1), (0, 4), (8, 5)])
def test_a_grid_of_too_many_cores_is_refused(grid):
    with pytest.raises(InputError, match=rf"grid = {grid[0]},{grid[1]}.*32 cores"):
        hwsim.run(m=64, n=64, k=64, device="ascend910a", format="fp16", exact=False, grid=grid)


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 4096, 4096),
        (16, 4096, 1024),
        (256, 4096, 4096),
        (64, 1024, 64),
        (16, 1024, 4096),  # narrow B by rows
        (1, 393, 1272),
        (17, 512, 1023),
        (16, 256, 4096),
        (3, 2072, 2072),  # uneven shares
        (87, 2072, 3),  # C alone
    ],
)
def test_a_wide_product_takes_about_the_time_of_its_transpose(sizes):
    m, n, k = sizes
    given = {"device": "ascend910a", "format": "fp16", "input_format": "fp16", "exact": False}
    wide, tall = hwsim.run(m=m, n=n, k=k, **given), hwsim.run(m=n, n=m, k=k, **given)
    assert max(wide.seconds / tall.seconds, tall.seconds / wide.seconds) < 1.5


def test_slices_chosen_by_estimate_are_faster():
    given = {"device": "ascend910a", "format": "fp16", "input_format": "fp16", "exact": False}
    whole, cut = (hwsim.run(m=16, n=64, k=8192, split_k=how, **given) for how in (1, "auto"))
    assert cut.gemm.schedule.split_k > 1 and cut.seconds < whole.seconds / 2
    assert re.match(r"the fastest of 1, \d+, \d+, \d+, by simulated time", cut.gemm.decided("split_k").why)


@pytest.mark.parametrize("sizes", [(1, 256, 4096), (16, 64, 1024)])
def test_a_narrow_b_by_columns_takes_the_time_of_the_transpose(sizes):
    """By rows, a core reads whole requests for the few columns that it multiplies, with any tile and grid, or B is
    packed first.
    """
    m, n, k = sizes
    given = {"device": "ascend910a", "format": "fp16", "input_format": "fp16", "exact": False}
    by_rows = hwsim.run(m=m, n=n, k=k, pack_b=False, split_k=1, **given)
    by_columns, transpose = hwsim.run(m=m, n=n, k=k, b_layout="columns", **given), hwsim.run(m=n, n=m, k=k, **given)
    assert by_columns.seconds < 1.2 * transpose.seconds
    link = load("ascend910a").links["GM_L1"]
    cycles_of_requests = k * link.request_bytes / link.bytes_per_cycle
    assert by_rows.cycles > cycles_of_requests


def test_a_search_looks_at_each_way_to_cut_a_product_once():
    """Tiles longer than the product's sides cut it alike."""
    problem, native = Problem.of("fp16", 87, 2072, 3), scheme_of("native")
    gemm = record_of(native.plan(native.complete({"format": "fp16"}), problem), CHIP, problem)
    blocks = []
    for candidate in COUPLED.alternatives(gemm, CHIP, {}):
        kernel = candidate.mapping.kernels[0]
        grid = tuple(setting.value for setting in kernel.settings if setting.name.startswith(("grid", "pack")))
        blocks.append((min(kernel.tile.m, 96), min(kernel.tile.n, 2080), min(kernel.tile.k, 16), *grid))
    assert len(blocks) > 4 and len(set(blocks)) == len(blocks)


NARROW = {"device": "ascend910a", "format": "fp16"}


@pytest.mark.parametrize(("sizes", "slices"), [((1, 1024, 1024), 2), ((16, 300, 600), 2), ((17, 300, 1000), 4)])
def test_k_is_cut_where_narrow_operands_leave_no_other_work(sizes, slices):
    m, n, k = sizes
    a, b = bits((m, k), 1, -3, 3), bits((k, n), 2, -3, 3)
    plain, alone, program = (hwsim.run(a, b, **NARROW, **how) for how in ({}, {"timing": False}, {"functional": True}))
    asked, whole = (hwsim.run(a, b, split_k=count, **NARROW) for count in (slices, 1))
    assert plain.gemm.schedule.split_k == slices and plain.gemm.decided("split_k").by == "default"
    assert whole.gemm.schedule.split_k == 1 and not np.array_equal(plain.c, whole.c)
    for other in (alone, program, asked):
        assert np.array_equal(plain.c.view(np.uint32), other.c.view(np.uint32))
    assert plain.cycles == asked.cycles < whole.cycles


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((33, 1024, 1024), {}),  # enough rows
        ((1, 64, 4096), {}),  # whole lines in a request
        ((1, 4096, 4096), {}),  # a request of each line for each core
        ((1, 1024, 448), {}),  # short K
        ((1024, 1, 1024), {}),  # lines along K
        ((1, 1024, 1024), {"b_layout": "columns"}),
        ((1, 1024, 1024), {"k_group": 512}),
        ((1, 1024, 1024), {"schedule": Schedule()}),
        ((1, 1024, 1024), {"scheme": "sgemm-cube", "format": None}),
    ],
)
def test_k_stays_whole_elsewhere(sizes, options):
    m, n, k = sizes
    given = {name: value for name, value in (NARROW | options).items() if value is not None}
    assert hwsim.run(m=m, n=n, k=k, exact=False, **given).gemm.schedule.split_k == 1


def test_where_a_file_lacks_what_cuts_k_the_program_says_so(tmp_path):
    text = (registry.package_folder() / "ascend910a.yaml").read_text()
    start = text.index("\nfractal:")
    (tmp_path / "bare.yaml").write_text(text[:start] + text[text.index("\n\n", start) :])
    with pytest.raises(UnsupportedError, match=r"no fractal\.rows, fractal\.row_bytes"):
        hwsim.run(m=1, n=1024, k=1024, device=tmp_path / "bare.yaml", format="fp16", exact=False)


def test_what_cuts_k_depends_on_no_rate_and_no_tile():
    given = {"m": 16, "n": 1024, "k": 4096, "exact": False, "format": "fp16"}
    slower = changed(CHIP, {"links.GM_L1.bytes_per_cycle": 8})
    runs = [hwsim.run(device=chip, **given) for chip in (CHIP, slower)]
    runs.append(hwsim.run(device=CHIP, tile=(16, 64, 64), grid=(1, 8), **given))
    assert [run.gemm.schedule.split_k for run in runs] == [2, 2, 2]
