"""The estimated time of a tile beside its program's: tiles that divide the matrix, tiles that reach beyond it, and what
takes the time of loads, and of the lanes.
"""

from __future__ import annotations

import pytest

from hwsim.dataflows.elementwise import vector_of
from hwsim.dataflows.registry import dataflow
from hwsim.dataflows.tiled import bound
from hwsim.dataflows.tiled.choice import GemmSizes, TileRequest
from hwsim.dataflows.tiled.dataflow import varied
from hwsim.dataflows.tiled.estimate import _lane_cycles, busiest
from hwsim.dataflows.tiled.model import Blocking
from hwsim.dataflows.tiled.parts import designed
from hwsim.dataflows.tiled.program import blocking_of
from hwsim.devices import load
from hwsim.gemm.mapping import Tile
from hwsim.gemm.problem import Problem
from hwsim.machines.load import under_load
from hwsim.resolve.choice.cost import plan_input
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import mapped, program_of
from hwsim.resolve.mapping_search import searched
from hwsim.resolve.planning import plan_for
from hwsim.resolve.record_cost import cost_of
from hwsim.schemes import scheme_of

APART = 1.7  # wide tiles may be estimated so many times better or worse than tight ones; as whole tiles it was 1.9 to 5
WIDE = [  # sizes; a tile that C fills, or fills more of; one that reaches far beyond it
    ("h100", "egemm-tc", None, (687, 16, 2496), (32, 32, 32), (32, 128, 32)),
    ("h100", "egemm-tc", None, (687, 16, 2496), (64, 32, 32), (64, 256, 32)),
    ("h200", "ootomo-tf32", None, (2048, 16, 2048), (64, 32, 16), (64, 192, 16)),
    ("t4", "sgemm-cube", None, (21, 2400, 424), (32, 128, 64), (128, 128, 64)),
    ("v100", "markidis", None, (16, 1024, 1700), (32, 64, 16), (128, 64, 16)),
    ("a100", "native", "bf16", (24, 4096, 4096), (64, 128, 32), (256, 128, 32)),
    ("l40s", "tf32x3", None, (1000, 33, 1024), (64, 64, 16), (64, 128, 16)),
    ("mi210", "le-gemm", None, (40, 4096, 512), (64, 64, 16), (256, 64, 16)),
    ("b200", "bf16x9", None, (130, 2000, 1024), (64, 64, 32), (128, 128, 32)),  # an edge of two rows
]


def record(device, scheme, form, sizes):
    chip = load(device)
    plan = plan_for(chip, scheme_of(scheme), Problem.of("fp32", *sizes), form, {}, None).plan
    return chip, record_of(plan, chip, Problem.of(plan_input(plan), *sizes))


def estimated(chip, gemm, options):
    """Seconds of the kernels with products."""
    flow = dataflow(chip)
    return flow.seconds(flow._stored(gemm, chip, options), (gemm.problem.k,), flow._request(options))


def timed(chip, gemm):
    """The same, of the program."""
    loaded, times = under_load(program_of(gemm, chip), chip, gemm.mapping.kernels[0].instruction)
    names = {kernel.name for kernel in gemm.mapping.kernels}
    return sum(kernel.cycles for kernel in times.kernels if kernel.name in names) / (loaded.clock_mhz * 1e6)


def design_of(gemm, chip):
    """The design of a record with one kernel."""
    writer = dataflow(chip)._writer(gemm, chip)
    [mapping] = gemm.mapping.kernels
    [part] = writer.partition.of([mapping.terms])
    return designed(chip, writer.family, writer.partition.kernel(part), blocking_of(mapping))


@pytest.mark.parametrize(("device", "scheme", "form", "sizes", "tight", "wide"), WIDE)
def test_a_tile_that_reaches_beyond_the_matrix_is_estimated_as_well_as_a_tight_one(
    device, scheme, form, sizes, tight, wide
):
    chip, gemm = record(device, scheme, form, sizes)
    shares = []
    for tile in (tight, wide):
        options = {"tile": Tile(*tile).to_dict()}
        shares.append(estimated(chip, gemm, options) / timed(chip, mapped(gemm, chip, options)))
    assert 1 / APART < shares[1] / shares[0] < APART


MMA_F16 = {"instruction": "mma.m16n8k16.f32.f16.f16.f32"}
MMA_TF32 = {"instruction": "mma.m16n8k8.f32.tf32.tf32.f32"}
NEAR = 1.15  # an estimate may be so many times a program's time, or the other way round
LOADS = {  # what takes the time of the loads: device, scheme, format, sizes, tile, options
    "A after B, one row of tiles across all columns": ("a100", "native", "tf32", (48, 3000, 4000), (64, 64, 32), {}),
    "A after B, one column of tiles": ("a100", "native", "tf32", (3000, 48, 4000), (64, 64, 32), {}),
    "a last wave with few tiles": ("a100", "native", "fp16", (100, 8192, 8192), (128, 64, 64), {}),
    "the issue of loads": ("h200", "le-gemm", None, (16, 1024, 4096), (64, 32, 16), MMA_F16),
    "the issue of loads, of two tiles": ("h100", "egemm-tc", None, (16, 2048, 4096), (64, 64, 16), MMA_F16),
    "L2, which holds the operands": ("b200", "ootomo-fp16", None, (24, 512, 3000), (64, 16, 32), MMA_F16),
    "HBM: L2 holds the operands of one kernel, not of all": (
        *("a100", "tf32x3", None, (60, 1060, 8000), (64, 32, 16)),
        {"stages": 3},
    ),
    "L2, with few stages": ("a100", "native", "fp16", (128, 1024, 2048), (64, 32, 32), {"stages": 3}),
    "L2, through registers": ("mi300x", "native", "fp16", (128, 1024, 2048), (32, 32, 32), {}),
}


@pytest.mark.parametrize("what", LOADS)
def test_the_estimate_knows_what_takes_the_time_of_loads(what):
    device, scheme, form, sizes, tile, more = LOADS[what]
    chip, gemm = record(device, scheme, form, sizes)
    options = {"tile": Tile(*tile).to_dict(), **more}
    assert 1 / NEAR < estimated(chip, gemm, options) / timed(chip, mapped(gemm, chip, options)) < NEAR


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("tile", [(128, 128, 32), (64, 64, 64), (128, 64, 32)])
def test_few_blocks_of_k_take_the_first_load_and_their_work_once(tile, blocks):
    m, n, k = tile
    chip, gemm = record("a100", "native", "fp64", (4 * m, 8 * n, blocks * k))  # whose work takes longer than loads
    options = {"tile": Tile(m, n, k).to_dict()}
    assert 1 / NEAR < estimated(chip, gemm, options) / timed(chip, mapped(gemm, chip, options)) < NEAR


def blocking(m, n, k):
    return Blocking(m=m, n=n, k=k, warp=(32, 32), stages=4, accumulators=1)


def test_a_search_looks_at_tiles_of_other_sizes_after_the_likely_ones():
    alike = [blocking(64, 64, 8 * count) for count in range(1, 9)]
    others = [blocking(128, 256, 16), blocking(256, 128, 16), blocking(32, 32, 16)]
    ranked, whole = [*alike, *others], GemmSizes(1024, 1024, 128, 1)
    assert varied(ranked, 6, whole) == [*alike[:5], others[0]]
    assert varied(ranked, 7, whole) == [*alike[:5], others[0], others[2]]  # 256 x 128 is as large as 128 x 256
    assert varied(ranked, 10, whole) == [*alike[:5], others[0], others[2], *alike[5:]]  # then any
    assert varied(ranked, 3, whole) == alike[:3]
    low = GemmSizes(64, 128, 128, 1)  # of 64 rows 128 x 256 and 256 x 128 cover one size: 64 x 128
    assert varied(ranked, 7, low) == [*alike[:5], others[0], others[2]]


@pytest.mark.searches
@pytest.mark.parametrize(
    ("device", "sizes"),
    [("a40", (3184, 568, 32)), ("a40", (840, 2808, 96)), ("mi250", (2720, 1184, 35))],
)
def test_where_writes_of_c_take_the_time_the_search_finds_the_large_tile(device, sizes):
    """L2 writes less of its C back, which no estimate counts."""
    chip, gemm = record(device, "native", "int8", sizes)
    large = cost_of(mapped(gemm, chip, {"tile": Tile(128, 256, 64).to_dict()}), chip).cycles
    assert cost_of(searched(gemm, chip, {}), chip).cycles <= 1.03 * large


SPLIT = [  # kernels that split operands or promote: a conversion takes 1 to 4 times as long as an addition
    ("v100", "ootomo-fp16", {"m": 64, "n": 64, "k": 16}, {}),
    ("t4", "le-gemm", {"m": 128, "n": 64, "k": 16}, {}),
    ("t4", "ootomo-fp16", {"m": 32, "n": 64, "k": 16}, {}),
    ("a100", "ootomo-tf32", {"m": 64, "n": 32, "k": 16}, {}),
    ("l40s", "le-gemm", {"m": 64, "n": 64, "k": 16}, {}),
    ("h100", "ootomo-tf32", {"m": 64, "n": 32, "k": 16}, MMA_TF32),
    ("b200", "ootomo-fp16", {"m": 32, "n": 64, "k": 32}, MMA_F16),
    ("mi300x", "ootomo-tf32", {"m": 64, "n": 32, "k": 32}, {}),
]


@pytest.mark.parametrize(("device", "scheme", "tile", "more"), SPLIT)
def test_the_estimate_knows_what_takes_the_time_of_the_lanes(device, scheme, tile, more):
    """Of one tile: what the lanes do after the last block of K is left out, and is 5 % of 128 blocks at most."""
    k, m, n = 128 * tile["k"], tile["m"], tile["n"]
    chip, gemm = record(device, scheme, None, (m, n, k))
    gemm = mapped(gemm, chip, {"tile": tile, **more})
    design, [mapping] = design_of(gemm, chip), gemm.mapping.kernels
    _, times = under_load(program_of(gemm, chip), chip, mapping.instruction)
    [kernel] = [kernel for kernel in times.kernels if kernel.name == mapping.name]
    busy = kernel.critical[vector_of(chip).engine].busy_cycles
    assert 0.95 < 128 * _lane_cycles(design, m, n) / busy <= 1


def test_of_tiles_that_are_equal_on_a_matrix_one_is_ranked():
    chip, gemm = record("a100", "native", "tf32", (2000, 24, 1000))
    flow = dataflow(chip)
    partition, tiles = flow._stored(gemm, chip, {}), flow.tiles(gemm, chip)
    kernels = partition.kernels(partition.preferred())
    extent = GemmSizes(2000, 24, 1000, 1)
    ranked = flow._chooser.ranked(chip, kernels, extent, tiles, TileRequest())
    of_c = [(b.m, min(b.n, 24), b.k) for b in ranked]
    assert len(set(of_c)) == len(of_c) == len({(tile.m, tile.k) for tile in tiles})
    at_64 = next(b for b in ranked if (b.m, b.k) == (64, 16))
    assert at_64.n == 32 or at_64.warp[0] > 32  # a wider one only where its warps read less


def test_what_a_tile_has_beyond_the_matrix_takes_no_time():
    chip, gemm = record("h100", "egemm-tc", None, (512, 32, 2048))
    of_width = [estimated(chip, gemm, {"tile": {"m": 64, "n": n, "k": 32}}) for n in (32, 64, 128)]
    assert max(of_width) < 1.05 * of_width[0]


def test_the_busiest_core_is_the_one_whose_tiles_take_longest():
    assert busiest([(5, 10.0)], 4) == 20.0
    assert busiest([(5, 10.0), (3, 1.0)], 4) == 20.0  # the edge falls to cores with one whole tile
    assert busiest([(4, 10.0), (3, 1.0)], 4) == 11.0
    assert busiest([(1, 10.0), (9, 3.0)], 4) == 16.0  # the first has two at the edge, too
    for counts in ((7, 3, 2, 1), (1, 6, 0, 1), (13, 13, 13, 13)):
        tiles = [cycles for count, cycles in zip(counts, (9.0, 5.0, 4.0, 2.0), strict=True) for _ in range(count)]
        dealt = max(sum(tiles[core::5]) for core in range(5))
        assert busiest(list(zip(counts, (9.0, 5.0, 4.0, 2.0), strict=True)), 5) == dealt


BOUNDED = [
    ("h100", "egemm-tc", (100, 40, 300), {"tile": {"m": 64, "n": 32, "k": 32}}),
    ("a100", "ootomo-tf32", (67, 130, 67), {"tile": {"m": 64, "n": 64, "k": 16}, "stages": 3}),
    ("l40s", "le-gemm", (336, 56, 1024), {"tile": {"m": 192, "n": 32, "k": 16}}),
    ("v100", "markidis", (200, 96, 512), {"tile": {"m": 64, "n": 64, "k": 16}}),
    ("mi300x", "quantensor", (130, 70, 256), {"tile": {"m": 64, "n": 64, "k": 16}}),
    ("b200", "bf16x9", (256, 512, 512), {"tile": {"m": 128, "n": 64, "k": 32}}),
    ("b200", "native", (512, 512, 4096), {"tile": {"m": 128, "n": 128, "k": 64}, "cta_group": 2}),
    ("h200", "native", (64, 8192, 64), {}),
]


@pytest.mark.parametrize(("device", "scheme", "sizes", "options"), BOUNDED)
def test_no_program_takes_less_than_its_bound(device, scheme, sizes, options):
    chip, gemm = record(device, scheme, "bf16" if scheme == "native" else None, sizes)
    gemm = mapped(gemm, chip, options)
    names = {kernel.name for kernel in gemm.mapping.kernels}
    _, times = under_load(program_of(gemm, chip), chip, gemm.mapping.kernels[0].instruction)
    cycles = sum(kernel.cycles for kernel in times.kernels if kernel.name in names)
    assert 0.15 * cycles < dataflow(chip).least_cycles(gemm, chip) <= cycles


def test_the_bound_of_products_is_what_the_matrix_unit_is_busy():
    """Of one tile at an edge of C, with a rest of K: the bound leaves out the two waits (`sync`), and nothing else."""
    chip, gemm = record("h200", "native", "bf16", (40, 24, 100))
    gemm = mapped(gemm, chip, {"tile": {"m": 64, "n": 256, "k": 64}})
    design, [mapping] = design_of(gemm, chip), gemm.mapping.kernels
    _, times = under_load(program_of(gemm, chip), chip, mapping.instruction)
    busy = next(kernel for kernel in times.kernels if kernel.name == mapping.name).critical["TC"].busy_cycles
    assert float(bound._products(design, 40, 24, 100)) + 2 * chip.engines["TC"].sync_cycles == busy
