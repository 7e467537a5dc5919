"""Stream-K whose cuts differ by tile: the bits of its programs, which CTA takes which part of K, and its cycles."""

import json
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from operands import bits
from test_stream_k import FORMATS, made, record, regions, tree

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.dataflows.tiled.program import tile_scheduler
from hwsim.dataflows.tiled.stream_k_cuts import cuts_of
from hwsim.dataflows.tiled.stream_k_ranges import RangeScheduler
from hwsim.dataflows.tiles import distribute, element_of, places, tile_grids
from hwsim.devices import changed, load
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.machines import functional, reference, timing
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import CORE, GlobalTile, derive, evaluate
from hwsim.report.text.run_text import run_text
from hwsim.resolve.mapping_choice import mapped, program_of
from hwsim.schemes import scheme_of
from hwsim.studies.tune import tune

sys.path.insert(0, str(Path(__file__).parents[1] / "schemes" / "straight"))
from straight_unit import Outside, Unit, codes, same, to_bf16

ORDERS = ("ascending", "descending", "pairwise")


def fold(k, *cuts, order="ascending"):
    """K cut before these elements, its parts added in this order."""
    parts = tuple(Chain((Range(a, b),)) for a, b in pairwise([0, *cuts, k]))
    return Reduction(parts, order, level="workspace")


def cut(m, n, sums, side=32):
    """A schedule with these sums, by (row, column) of the tile."""
    return Schedule(regions=tuple(one for place, total in sums.items() for one in regions(m, n, [place], total, side)))


def mixed(k):
    """Cuts of tiles, of which no two are alike: in blocks of K and between them, two to four parts, all orders."""
    return {
        (0, 0): fold(k, 100),
        (0, 1): fold(k, 16, 200, order="descending"),
        (1, 2): fold(k, 64, 128, 192, order="pairwise"),
        (2, 0): fold(k, 5, 6, 300),
        (3, 2): fold(k, 160, order="pairwise"),
    }


def few(name, cores):
    """A device with so many cores."""
    return changed(load(name), {"cores": cores})


def scheduler_of(gemm: Gemm, chip):
    return tile_scheduler(gemm, chip, gemm.mapping.kernels[0])


# --- bits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [13, 40])
@pytest.mark.parametrize("device", FORMATS)
def test_a_program_has_the_schedules_bits(device, cores):
    m, n, k = sizes = 120, 90, 321
    program, chip, inputs, expected = made(few(device, cores), sizes, cut(m, n, mixed(k)), fmt=FORMATS[device])
    (kernel,) = program.kernels
    written = {tile.array for one in kernel.instrs() for tile in one.writes if isinstance(tile, GlobalTile)}
    assert written == {"C", "gemm.workspace"} and all(group.count == 1 for group in kernel.groups)
    for threads in (1, 4):
        assert np.array_equal(functional.run(program, chip, inputs, threads=threads), expected)
    assert timing.run(program, chip).macs == m * n * k
    for order in range(3):
        assert np.array_equal(reference.run(program, chip, inputs, order=order, dots=CPU.gemm), expected)


@pytest.mark.parametrize(
    ("device", "fmt", "depth", "slots"), [("a100", "int8", 64, 2), ("h200", "fp64", 16, 2), ("h200", "bf16", 16, 1)]
)
def test_a_core_stores_a_sum_and_then_computes_other_tiles(device, fmt, depth, slots):
    """With two accumulators the next tile begins while the sum of the last one is stored."""
    chip = few(device, 5)
    rng = np.random.default_rng(1)
    a, b = rng.integers(-9, 9, (130, 40 * depth)).astype(float), rng.integers(-9, 9, (40 * depth, 200)).astype(float)
    given = {"device": chip, "format": fmt, "decomposition": "stream-k", "tile": {"m": 64, "n": 32, "k": depth}}
    direct, program = hwsim.run(a, b, **given), hwsim.run(a, b, functional=True, **given)
    scheduler = scheduler_of(program.gemm, chip)
    assert any(len(of_core) > 1 for of_core in scheduler.ranges) and scheduler.first < 21 == 3 * 7
    assert program.c.tobytes() == direct.c.tobytes() and np.array_equal(direct.c, a @ b)
    kernel = next(one for one in program_of(program.gemm, chip).kernels if one.name == "gemm")
    assert next(buffer.slots for buffer in kernel.buffers if buffer.name == "acc0") == slots
    for group in kernel.groups if slots > 1 else ():  # one engine frees accumulators, and so in the order of tiles
        instrs = list(replace(kernel, groups=(group,)).instrs())
        assert len({one.engine for one in instrs if any(x.semaphore == "acc0.free" for x in one.signals)}) == 1


def blocks_in_turn(tiles, blocks, cores):
    """Of each tile the CTA of each block of K, by laying all blocks of the cut tiles in a line and dealing them out."""
    waves = tiles // cores
    shared = tiles if waves < 2 else tiles - (waves - 1) * cores
    line = [(tile, block) for tile in range(shared) for block in range(blocks)]
    ctas = min(cores, len(line) // 8)
    owner, at = {}, 0
    for cta in range(ctas):
        for place in line[at : at + len(line) // ctas + (cta < len(line) % ctas)]:
            owner[place] = cta
            at += 1
    return [[owner[tile, block] for block in range(blocks)] for tile in range(shared)]


@pytest.mark.parametrize(("cores", "tiles"), [(132, 133), (132, 1), (5, 12), (5, 23), (8, 9), (132, 131), (7, 3)])
@pytest.mark.parametrize("blocks", [9, 16, 17, 33, 64, 200])
def test_cuts_lie_where_ranges_of_equal_length_end(tiles, cores, blocks):
    """A cut within the first or last 8 blocks of K of a tile moves to the tile's edge."""
    wanted = {}
    for tile, owners in enumerate(blocks_in_turn(tiles, blocks, cores)):
        edges = [block for block in range(1, blocks) if owners[block] != owners[block - 1]]
        kept = [block for block in edges if 8 <= block <= blocks - 8]
        if kept:
            wanted[tile] = kept
    assert cuts_of(tiles, blocks, cores) == wanted
    assert wanted or blocks < 200


@pytest.mark.parametrize(("tiles", "blocks", "cores"), [(132, 64, 132), (264, 64, 132), (133, 8, 132), (1, 8, 132)])
def test_full_waves_and_short_k_are_not_cut(tiles, blocks, cores):
    assert cuts_of(tiles, blocks, cores) == {}


def by_hand(a, b, cores, tile):
    """Stream-K of one bf16 product: each part of K of a tile by single instructions, the parts added in order of K."""
    unit, out = Unit("h200", "bf16"), Outside("h200")
    (m, k), n = a.shape, b.shape[1]
    left, right = codes(to_bf16(a), "bf16"), codes(to_bf16(b), "bf16")
    c = np.zeros((m, n), np.float32)
    grids = tile_grids(m, n, hwsim.dataflows.tiles.slices_of([k]), 1, tile[:2], 0, cores, 2)
    places = [(grid, *element_of(grid, number)) for grid in grids for number in range(grid.tiles)]
    cuts = cuts_of(len(places), -(-k // tile[2]), cores)
    for number, (grid, row, col) in enumerate(places):
        total = None
        for start, stop in pairwise([0, *(block * tile[2] for block in cuts.get(number, ())), k]):
            of_rows, of_cols = left[row : row + grid.m, start:stop], right[start:stop, col : col + grid.n]
            part = unit.chain((of_rows, of_cols))
            total = part if total is None else out.add(total, part)
        c[row : row + grid.m, col : col + grid.n] = total
    return c


@pytest.mark.parametrize(
    ("m", "n", "k", "cores"),
    [
        (64, 32, 1, 132),
        (64, 32, 3, 132),
        (100, 70, 67, 132),
        (64, 32, 640, 132),  # one tile, more CTAs than blocks of K
        (70, 90, 600, 132),  # less than a wave
        (190, 90, 600, 5),  # a full wave, and one that is not
        (310, 130, 331, 6),  # whole waves behind the ranges
    ],
)
def test_bits_equal_the_parts_written_down(m, n, k, cores):
    chip, tile = few("h200", cores), (64, 32, 16)
    a, b = bits((m, k), 5, -12, 12), bits((k, n), 6, -12, 12)
    special = [-0.0, 0.0, 2.0**-130, -(2.0**-133), 1.5, -1.5, 2.0**100, -1.0]
    for x in (a, b):  # subnormals, zeros of both signs, cancellation
        places = x.flat[:: max(1, x.size // 7)]
        x.flat[:: max(1, x.size // 7)] = np.resize(special, places.size)
    if k > 200:
        a[3, 100], a[4, 17], b[k - 1, 5] = np.inf, np.nan, -np.inf
    given = {"device": chip, "format": "bf16", "decomposition": "stream-k", "tile": dict(zip("mnk", tile, strict=True))}
    direct, program = hwsim.run(a, b, **given), hwsim.run(a, b, functional=True, **given)
    assert program.c.tobytes() == direct.c.tobytes()
    same(direct.c, by_hand(a, b, cores, tile))
    is_cut = bool(direct.gemm.schedule.regions)
    assert is_cut == (k > 200)
    if is_cut:
        whole = hwsim.run(a, b, **given | {"decomposition": "data-parallel"})
        assert whole.c.tobytes() != direct.c.tobytes()


def test_c_bias_and_some_rows():
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(shape, np.float32) for shape in ((190, 600), (600, 90), (190, 90)))
    given = {
        "device": few("h200", 5),
        "format": "bf16",
        "decomposition": "stream-k",
        "tile": {"m": 64, "n": 32, "k": 16},
    }
    given |= {"c": c, "alpha": 0.5, "beta": 0.25, "bias": c[0], "output": "bf16"}
    direct, program = hwsim.run(a, b, **given), hwsim.run(a, b, functional=True, **given)
    assert direct.gemm.schedule.regions and program.c.tobytes() == direct.c.tobytes()
    some = hwsim.run(a, b, rows=[0, 70, 189], cols=[3, 89], **given)
    assert np.array_equal(some.c, direct.c[np.ix_([0, 70, 189], [3, 89])])


# --- ranges ----------------------------------------------------------------------------------------------------


def shortest(weights, is_cut, cores):
    """The least possible length of the longest of `cores` runs, by trying all places of their edges."""
    least = {0: 0}  # parts that are dealt -> longest run so far
    for _ in range(cores):
        after = dict(least)
        for start, longest in least.items():
            for stop in range(start + 1, len(weights) + 1):
                if any(is_cut[start + 1 : stop]):
                    break
                value = max(longest, sum(weights[start:stop]))
                after[stop] = min(after.get(stop, value), value)
        least = after
    return least[len(weights)]


@pytest.mark.parametrize("cores", [11, 13, 17, 40])
def test_each_part_is_in_one_range_and_waits_for_earlier_cores(cores):
    m, n, k = sizes = 120, 90, 321
    gemm, chip = record(few("h200", cores), sizes, cut(m, n, mixed(k)), fmt="bf16")
    scheduler = scheduler_of(gemm, chip)
    assert isinstance(scheduler, RangeScheduler) and len(scheduler.ranges) <= cores
    parts = [part for of_core in scheduler.ranges for part in of_core]
    lengths = {}
    for part in parts:
        lengths.setdefault(part.number, []).append(part.k)
    assert list(lengths) == list(range(scheduler.first)) and (12 - scheduler.first) % cores == 0
    for spans in lengths.values():
        edges = sorted((start, start + length) for start, length in spans)
        assert edges[0][0] == 0 and edges[-1][1] == k and all(a[1] == b[0] for a, b in pairwise(edges))
    core_of = {}
    for core, of_core in enumerate(scheduler.ranges):
        for part in of_core:
            if part.share is not None:
                assert all(core_of[other.flag.semaphore] < core for other in part.share.added)
                if part.share.stored is not None:
                    core_of[part.share.stored.flag.semaphore] = core
    weights = [-(-part.k[1] // 16) for part in parts]
    is_cut = [False] + [a.number == b.number for a, b in pairwise(parts)]
    longest = max(sum(-(-part.k[1] // 16) for part in of_core) for of_core in scheduler.ranges)
    assert longest == shortest(weights, is_cut, cores)


def test_a_core_takes_the_part_that_waits_last_of_its_range():
    m, n, k = sizes = 120, 90, 321
    gemm, chip = record(few("h200", 11), sizes, cut(m, n, mixed(k)), fmt="bf16")
    scheduler = scheduler_of(gemm, chip)
    for cores in scheduler.cores():
        works = list(scheduler.tiles(StreamBuilder("load"), cores))
        of_core = scheduler.ranges[cores.first] if cores.first < len(scheduler.ranges) else ()
        assert [work.share for work in works[: len(of_core)]] == [part.share for part in of_core[::-1]]
        assert not any(work.share.added for work in works[: max(len(of_core) - 1, 0)] if work.share)
    assert max(map(len, scheduler.ranges)) > 1


def test_places_of_tiles_are_those_of_the_program():
    """element_of in numbers, `places` as expressions of the core and the turn: at each core and in each turn."""
    for sizes, band, cores, cluster in (((640, 352), 0, 10, 2), ((300, 500), 4, 7, 1), ((64, 900), 2, 132, 2)):
        grids = tile_grids(*sizes, hwsim.dataflows.tiles.slices_of([64]), 1, (64, 32), band, cores, cluster)
        seen = np.zeros(sizes, int)
        for group in distribute(grids, cores):
            stream = StreamBuilder("load")
            taken = [(grid, waves) for grid, waves in zip(grids, group.waves, strict=True) if waves]
            tiles = list(places(stream, grids, group, cores, 1))
            derived = stream.finish().derived
            for loop, ((grid, waves), tile) in enumerate(zip(taken, tiles, strict=True)):
                for core, turn in product(range(group.first, group.first + group.count), range(waves)):
                    values = {CORE: core, f"tile#{loop}": turn}
                    derive(derived, values)
                    row, col = evaluate(tile.row, values), evaluate(tile.col, values)
                    assert (row, col) == element_of(grid, turn * cores + (core - grid.first) % cores)
                    seen[row : row + grid.m, col : col + grid.n] += 1
        assert (seen == 1).all()


def test_more_cuts_than_cores_are_refused():
    m = n = 640
    total, places = tree(64, 2), [(row, col) for row in range(20) for col in range(5)]
    many = Schedule(regions=regions(m, n, places, total))
    gemm, chip = record("h200", (m, n, 64), many, fmt="bf16")
    assert 101 <= len(scheduler_of(gemm, chip).ranges) <= 132  # 200 parts, two of different tiles to some cores
    more = Schedule(regions=regions(m, n, places, tree(64, 3)))
    with pytest.raises(UnsupportedError, match=r"cut in 200 places, on 132 cores.*at most 131"):
        record("h200", (m, n, 64), more, fmt="bf16")


# --- cycles ----------------------------------------------------------------------------------------------------

BAD_WAVE = {"device": "h200", "format": "bf16", "m": 19 * 128, "n": 7 * 256, "exact": False}  # 133 tiles, 132 SMs
OF_TILE = {"tile": {"m": 128, "n": 256, "k": 64}}


def test_stream_k_beats_a_bad_last_wave():
    given = BAD_WAVE | OF_TILE | {"k": 8192}
    whole, shared = hwsim.run(**given), hwsim.run(decomposition="stream-k", **given)
    macs = given["m"] * given["n"] * given["k"]
    least = macs / (132 * 4 * 512)  # each of an SM's four tensor cores multiplies 512 pairs a cycle
    assert least < shared.cycles < 0.6 * whole.cycles and shared.cycles < 1.2 * least
    moved = shared.traffic_bytes
    assert sum(moved.values()) > sum(whole.traffic_bytes.values())  # sums go through the workspace
    assert "gemm: 133 tiles of C on 132 cores, 2 waves, none idle" in run_text(whole)
    assert "gemm: 133 tiles of C on 132 cores, which share the K of some, none idle" in run_text(shared)
    sums = [region.sum for region in shared.gemm.schedule.regions]
    assert 1 <= sum(len(total.parts) - 1 for total in sums) < 132 and {total.order for total in sums} == {"ascending"}


def test_a_full_last_wave_is_as_data_parallel():
    given = {"device": "h200", "format": "bf16", "m": 132 * 128, "n": 256, "k": 1024, "exact": False, **OF_TILE}
    whole, asked = hwsim.run(**given), hwsim.run(decomposition="stream-k", **given)
    assert asked.cycles == whole.cycles and not asked.gemm.schedule.regions
    assert "no tile is cut" in asked.gemm.decided("decomposition").why


def test_a_program_in_ranges_takes_no_less_than_its_longest_range():
    """One tile in two ranges: half of K, then the wait for the other half's sum."""
    given = {"device": "h200", "format": "bf16", "m": 128, "n": 256, "exact": False, **OF_TILE}
    sums = {(0, 0): fold(8192, 4096)}
    schedule = Schedule(regions=regions(128, 256, [(0, 0)], sums[0, 0], 256))
    half, whole = hwsim.run(k=4096, **given), hwsim.run(k=8192, **given)
    shared = hwsim.run(k=8192, schedule=schedule, **given)
    assert half.cycles < shared.cycles < 0.75 * whole.cycles


# --- the option ------------------------------------------------------------------------------------------------


@pytest.mark.searches
def test_a_record_repeats_the_cuts(tmp_path):
    given = BAD_WAVE | {"k": 2048, "decomposition": "stream-k"}
    first = hwsim.run(**given)
    assert first.options["decomposition"] == "stream-k" and first.gemm.decided("order of summation").by == "user"
    assert f"{len(first.gemm.schedule.regions)} of " in first.gemm.decided("decomposition").why
    again = Gemm.from_dict(json.loads(json.dumps(first.gemm.to_dict())))
    repeated = hwsim.run(gemm=again, exact=False)
    assert repeated.cycles == first.cycles and repeated.gemm.schedule == first.gemm.schedule


@pytest.mark.searches
def test_cuts_are_of_the_tile_that_the_search_takes():
    found = hwsim.run(device="a100", format="int8", m=300, n=300, k=2048, exact=False, decomposition="stream-k")
    uncut = replace(found.gemm, mapping=None, decisions=(), schedule=replace(found.gemm.schedule, regions=()))
    first = mapped(uncut, load("a100"), {"decomposition": "stream-k"})
    assert first.mapping != found.gemm.mapping and first.schedule != found.gemm.schedule
    cut_tiles, of, count, *_ = found.gemm.decided("decomposition").why.split()
    tile = found.gemm.mapping.kernels[0].tile
    assert (int(cut_tiles), of) == (len(found.gemm.schedule.regions), "of")
    assert int(count) == -(-300 // tile.m) * -(-300 // tile.n)
    starts = {(region.rows.start % tile.m, region.cols.start % tile.n) for region in found.gemm.schedule.regions}
    assert starts == {(0, 0)}


def test_slices_beside_stream_k_are_refused_before_any_choice(monkeypatch):
    """Whatever the sizes: no time of slices says whether there is an error."""
    monkeypatch.setattr("hwsim.resolve.slice_choice.cost_of", lambda *_: pytest.fail("slices were timed"))
    with pytest.raises(InputError, match="split_k = auto cuts K, too"):
        hwsim.run(**BAD_WAVE, k=4096, decomposition="stream-k", split_k="auto")


def test_the_order_of_summation_is_the_users_where_tiles_are_cut():
    given = BAD_WAVE | OF_TILE | {"decomposition": "stream-k"}
    for options, is_cut, by in (
        ({}, True, "user"),
        ({"split_k": 1}, True, "user"),
        ({"m": 2000, "n": 2000}, False, "default"),
    ):
        gemm = hwsim.run(**{**given, "k": 600 if options.get("m") else 4096, **options}).gemm
        assert (bool(gemm.schedule.regions), gemm.decided("order of summation").by) == (is_cut, by)


def test_a_search_of_one_order_keeps_the_tile_of_stream_k():
    """Cuts follow the tile: every configuration that was timed has the default's bits."""
    chip, problem = load("h200"), Problem.of("bf16", 2432, 1792, 2048)
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": "bf16"}), problem)
    fixed = {"decomposition": "stream-k"}
    found = tune(chip, plan, problem.sizes, budget=6, same_bits=True, fixed=fixed)
    timed = [point for point in found.points if point.cycles is not None]
    assert len(timed) > 1 and all(point.has_same_bits for point in timed)
    assert {str(point.facts["tile"]) for point in timed} == {str(found.default.facts["tile"])}
    assert not any("says how K is cut" in point.refused for point in found.points)


def test_tune_varies_slices_of_data_parallel_tiles():
    found = hwsim.tune(device="h200", format="bf16", m=128, n=256, k=8192, decomposition="data-parallel", budget=8)
    assert any(point.facts["split_k"] > 1 for point in found.ranked)


def test_tune_keeps_the_decomposition():
    given = BAD_WAVE | {"k": 1024}
    del given["exact"]
    found = hwsim.tune(decomposition="stream-k", budget=4, **given)
    assert all(point.facts["decomposition"] == "stream-k" and point.facts["split_k"] == 1 for point in found.ranked)
    assert not any("split_k" in point.options for point in found.points)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            {"split_k": 2},
            InputError,
            "decomposition = stream-k: split_k = 2 cuts K, too; leave one",
        ),
        ({"split_k": "auto", "m": 2432, "n": 1792}, InputError, "split_k = auto cuts K, too"),
        ({"split_k": "auto", "format": "fp16", "m": 640, "n": 1664, "k": 1024}, InputError, "split_k = auto cuts K"),
        ({"schedule": {"split_k": 2}}, InputError, "decomposition = stream-k: the schedule says how K is cut"),
        ({"schedule": cut(256, 256, {(0, 0): fold(4096, 64)})}, InputError, "the schedule says how K is cut"),
        (
            {"schedule": cut(256, 256, {(0, 0): fold(4096, 64)}), "decomposition": "data-parallel"},
            InputError,
            "decomposition = data-parallel: the schedule has regions whose K is cut; leave one",
        ),
        ({"library": "cublas"}, InputError, "library = 'cublas' decides decomposition"),
        (
            {"scheme": "bf16x3", "format": None},
            UnsupportedError,
            "decomposition = stream-k: not for several products; leave it out",
        ),
        (
            {"schedule": {"promotion_k": 128}},
            UnsupportedError,
            "decomposition = stream-k: not for promotion; leave it out",
        ),
        (
            {"scheme": "ozaki-int8", "format": None, "k": 64},
            UnsupportedError,
            "decomposition = stream-k: not for several products",
        ),
        ({"scheme": "ape", "format": None}, InputError, "stream-k: not for scheme ape, whose parts are kernels of"),
        (
            {"scheme": "fixedpoint-fp64", "format": None, "k": 100_000},
            InputError,
            "whose parts are kernels of their own",
        ),
        ({"device": "b200"}, UnsupportedError, "decomposition = stream-k: not for accumulators in TMEM"),
        (
            {"device": "a100", "format": "fp16", "schedule": {"instruction": "mma.m16n8k16.f16.f16.f16.f16"}},
            UnsupportedError,
            "decomposition = stream-k: not for sums in fp16; leave it out",
        ),
        (
            {"device": "ascend910a", "format": "fp16"},
            InputError,
            "decomposition = stream-k: programs of family davinci",
        ),
        ({"decomposition": "two-tile"}, InputError, "allowed: data-parallel, stream-k"),
    ],
)
def test_what_stream_k_does_not_go_with(given, error, words):
    call = {"device": "h200", "format": "bf16", "m": 256, "n": 256, "k": 4096, "exact": False}
    with pytest.raises(error, match=words):
        hwsim.run(**{**call, "decomposition": "stream-k", **given})


def test_advice_does_not_name_slices_beside_stream_k():
    short = {"device": "h200", "format": "bf16", "m": 64, "n": 64, "k": 50_000, "exact": False}
    assert any(one["code"] == "k_not_cut" for one in hwsim.run(**short).warnings)
    assert not any(one["code"] == "k_not_cut" for one in hwsim.run(decomposition="stream-k", **short).warnings)
