"""Stream-K: programs whose CTAs share the K of some tiles have the schedule's bits, and wait for one another."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.dataflows.rectangles import rectangles
from hwsim.dataflows.tiled.shared_tiles import shared_tiles
from hwsim.devices import changed, load
from hwsim.errors import ProgramError, UnsupportedError
from hwsim.evaluate.product import Evaluator
from hwsim.formats import format_of
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.gemm.summation import Chain, Range, Reduction, Region
from hwsim.machines import functional, reference, timing
from hwsim.machines.element_values import ElementValues
from hwsim.operands.operand import Operand
from hwsim.program.check import check
from hwsim.program.ir import CORE, Affine, GlobalTile, Instr, Loop, Sync
from hwsim.report.text.program_text import program_text
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import mapped, program_of
from hwsim.schemes import scheme_of

sys.path.insert(0, str(Path(__file__).parents[2] / "lab" / "tools" / "fuzz"))
import programs as fuzzed

FORMATS = {"h200": "tf32", "a100": "tf32", "v100": "fp16", "mi210": "bf16"}
TILE = {"m": 32, "n": 32, "k": 16}


def tree(k, count, step=16):
    """K in `count` parts of whole steps, the last one first, added as neighbours."""
    cuts = [step * round(k / step * i / count) for i in range(count)] + [k]
    parts = [Chain((Range(cuts[i], cuts[i + 1]),)) for i in reversed(range(count))]
    return Reduction(tuple(parts), "pairwise", level="workspace")


def regions(m, n, tiles, total, side=32):
    """Regions of one tile each, by (row, column) of the tile."""
    return tuple(
        Region(
            Range(row * side, min(m, row * side + side)), Range(col * side, min(n, col * side + side)), total
        )
        for row, col in tiles
    )  # fmt: skip


def record(device, sizes, schedule, tile=TILE, fmt=None):
    chip = load(device) if isinstance(device, str) else device
    scheme = scheme_of("native")
    fmt = fmt or FORMATS[device]
    problem = Problem.of("fp32" if fmt == "tf32" else fmt, *sizes)
    plan = scheme.plan(scheme.complete({"format": fmt}), problem)
    return mapped(record_of(plan, chip, problem, schedule), chip, {"tile": tile}), chip


def made(device, sizes, schedule, **given):
    """The checked program, its operands, and the bits of the direct evaluator."""
    gemm, chip = record(device, sizes, schedule, **given)
    fmt = gemm.problem.input_format
    m, n, k = sizes
    a, b = (operand(fmt, shape, seed) for shape, seed in (((m, k), 1), ((k, n), 2)))
    ready = Evaluator(gemm, chip)
    expected = ready.product(Operand(a, fmt), Operand(b, fmt))
    program = program_of(gemm, chip)
    return program, chip, dict(zip(program.inputs, (a, b), strict=True)), expected


def operand(fmt, shape, seed):
    wide = bits(shape, seed, -12, 12)
    if fmt == "fp32":
        return wide.view(np.uint32)
    return wide.astype(np.float16).view(np.uint16) if fmt == "fp16" else (wide.view(np.uint32) >> 16).astype(np.uint16)


L_SHAPE = [(1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1)]  # of 4 x 3 tiles; row 3 and column 2 are cut


@pytest.mark.parametrize("parts", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("device", FORMATS)
def test_a_program_has_the_schedules_bits(device, parts):
    m, n, k = sizes = 120, 90, 321
    cut = Schedule(regions=regions(m, n, L_SHAPE, tree(k, parts)))
    program, chip, inputs, expected = made(device, sizes, cut)
    (kernel,) = program.kernels
    assert {tile.array for one in kernel.instrs() for tile in one.writes if isinstance(tile, GlobalTile)} == {
        "C",
        "gemm.workspace",
    }
    for threads in (1, 4):
        assert np.array_equal(functional.run(program, chip, inputs, threads=threads), expected)
    whole, *_ = made(device, sizes, Schedule())
    other = functional.run(whole, chip, inputs)
    assert not np.array_equal(other, expected)
    kept = np.ones((4, 3), bool)
    kept[tuple(zip(*L_SHAPE, strict=True))] = False
    same = np.kron(kept, np.ones((32, 32), bool))[:m, :n]
    assert np.array_equal(other[same], expected[same])
    assert timing.run(program, chip).macs == timing.run(whole, chip).macs == m * n * k


def test_every_legal_order_has_these_bits():
    sizes = m, n, k = 64, 40, 100
    program, chip, inputs, expected = made("h200", sizes, Schedule(regions=regions(m, n, [(0, 1), (1, 0)], tree(k, 5))))
    for order in range(6):
        assert np.array_equal(reference.run(program, chip, inputs, order=order, dots=CPU.gemm), expected)


def test_values_of_an_element_whose_sum_cores_share():
    sizes = m, n, k = 64, 40, 100
    program, chip, inputs, expected = made("h200", sizes, Schedule(regions=regions(m, n, [(0, 1), (1, 0)], tree(k, 5))))
    places = [(0, 0), (3, 35), (63, 0), (40, 31), (33, 39)]
    followed = ElementValues(program, chip, places, CPU)
    out = functional.run(program, chip, inputs, before_kernel=followed.before_kernel)
    assert np.array_equal(out, expected)
    cores = [{step.core for step in steps} for steps in followed.checked(out)]
    assert [len(one) > 1 for one in cores] == [False, True, True, True, False]
    rounding = next(one.rounding for one in program.kernels[0].instrs() if one.opcode == "cast")
    a, b = (CPU.encode(x.view(np.float32), format_of("tf32"), rounding) for x in inputs.values())
    for (row, col), steps in zip(places, followed.steps, strict=True):
        of_mma = [step for step in steps if step.opcode == "mma"]
        left = sorted(x.code for step in of_mma for x in step.operands["a"])
        right = sorted(x.code for step in of_mma for x in step.operands["b"])
        assert (left, right) == (sorted(a[row].tolist()), sorted(b[:, col].tolist()))


def test_infinities_and_nans_meet_as_the_evaluator_adds_them():
    sizes = m, n, k = 64, 40, 100
    schedule = Schedule(regions=regions(m, n, [(0, 1), (1, 0)], tree(k, 3)))
    program, chip, inputs, _ = made("h200", sizes, schedule)
    special = {name: bits(codes.shape, 5, -12, 12, specials=True).view(np.uint32) for name, codes in inputs.items()}
    ready = Evaluator(program.gemm, chip)
    expected = ready.product(*(Operand(x, "fp32") for x in special.values()))
    assert np.array_equal(functional.run(program, chip, special), expected)


@pytest.mark.parametrize("epilogue", [Epilogue(alpha=-1.5), Epilogue(output_format="fp16")])
def test_the_epilogue_is_of_the_whole_sum(epilogue):
    sizes = m, n, k = 70, 64, 200
    schedule = Schedule(regions=regions(m, n, [(1, 0), (2, 1)], tree(k, 3)), epilogue=epilogue)
    program, chip, inputs, expected = made("h200", sizes, schedule, fmt="fp16")
    assert np.array_equal(functional.run(program, chip, inputs), expected)


@pytest.mark.parametrize(
    ("alpha", "beta", "output", "has_bias"),
    [(0.75, -1.25, "fp32", False), (1.0, 1.0, "fp32", True), (-1.5, 0.3, "fp16", True), (0.75, 0.0, "fp32", False)],
)
@pytest.mark.parametrize("device", ["h200", "mi210"])
def test_c_and_a_bias_are_added_to_the_whole_sum(device, alpha, beta, output, has_bias):
    """Where K is shared beta * C is contracted with the sum, elsewhere alpha times the sum."""
    m, n, k = 70, 64, 200
    shared = Schedule(regions=regions(m, n, [(1, 0), (2, 1)], tree(k, 3))).to_dict()
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c, bias = rng.standard_normal((m, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    call = {"device": device, "format": "fp16", "schedule": shared, "tile": TILE, "output": output}
    call |= {"alpha": alpha, "beta": beta} | ({"bias": bias} if has_bias else {})
    plain, program = hwsim.run(a, b, c, **call), hwsim.run(a, b, c, functional=True, values=[(40, 3)], **call)
    assert plain.result_sha256 == program.result_sha256 and plain.cycles == program.cycles
    assert float(program.values[40, 3][-1].after) == program.c[40, 3]
    ready = program_of(plain.gemm, load(device))
    inputs = [a.view(np.uint16), b.view(np.uint16), c.astype(plain.c.dtype), bias.reshape(1, n)][: 3 + has_bias]
    codes = {name: x.view(f"u{x.itemsize}") for name, x in zip(ready.inputs, inputs, strict=True)}
    for order in range(2):
        out = reference.run(ready, load(device), codes, order=order, dots=CPU.gemm)
        assert out.tobytes() == plain.c.tobytes()
    if beta not in (0, 1) and output == "fp32":
        whole = hwsim.run(a, b, c, **call | {"schedule": None})
        assert not np.array_equal(whole.c[32:64, :32], plain.c[32:64, :32])


def test_whole_tiles_before_shared_ones_and_fewer_cores():
    """Of cores with unequally many whole tiles; the last parts wrap around to the first cores."""
    chip = changed(load("h200"), {"cores": 10})
    sizes = m, n, k = 160, 130, 96
    tiles = [(row, col) for row in (3, 4) for col in range(2)]
    schedule = Schedule(regions=regions(m, n, tiles, tree(k, 2)))
    program, chip, inputs, expected = made(chip, sizes, schedule, fmt="tf32")
    assert np.array_equal(functional.run(program, chip, inputs), expected)
    groups = program.kernels[-1].groups
    assert sum(group.count for group in groups) == 10
    tiles_of_core = [
        sum(node.count for node in stream.body if isinstance(node, Loop))
        for group in groups
        for stream in group.streams
        if stream.name == "math"
    ]
    assert len(set(tiles_of_core)) == 2
    for order in range(3):
        assert np.array_equal(reference.run(program, chip, inputs, order=order, dots=CPU.gemm), expected)


def test_a_shared_tile_is_faster_than_a_whole_one_and_waits_for_its_parts():
    sizes = m, n, k = 32, 32, 4096
    whole, chip, _, _ = made("h200", sizes, Schedule())
    one_part, _, _, _ = made("h200", (m, n, k // 2), Schedule())
    shared, *_ = made("h200", sizes, Schedule(regions=regions(m, n, [(0, 0)], tree(k, 2))))
    cycles = [timing.run(program, chip).cycles for program in (one_part, shared, whole)]
    assert cycles == sorted(cycles) and cycles[1] > cycles[0] + chip.clock_mhz * 2e-3 * chip.l2.latency_ns
    assert cycles[1] < 0.75 * cycles[2]


def one_tile(total, **given):
    """A schedule of one region, the first tile of C[64, 64]."""
    return Schedule(regions=regions(64, 64, [(0, 0)], total), **given)


@pytest.mark.parametrize(
    ("device", "n", "schedule", "words"),
    [
        ("h200", 64, Schedule(regions=regions(64, 64, [(0, 0)], tree(64, 2), side=20)), "whole tiles"),
        ("h200", 64, one_tile(Chain((Range(16, 64),))), "not of all of K"),
        ("h200", 64, one_tile(replace(tree(64, 4), order="halving")), "halving"),
        ("h200", 64, one_tile(replace(tree(64, 4), stored="fp16")), "a tree of"),
        ("h200", 64, one_tile(Chain((Range(0, 64, 4, 2),))), "no run of neighbours"),
        ("h200", 64, one_tile(tree(64, 2), promotion_k=32), "promotion"),
        ("b200", 64, Schedule(regions=regions(64, 64, [(0, 0)], tree(64, 2), side=128)), "are in TMEM"),
    ],
)
def test_what_no_program_carries_is_refused(device, n, schedule, words):
    tile = {"m": 128, "n": 128, "k": 32} if device == "b200" else TILE
    with pytest.raises(UnsupportedError, match=words):
        program_of(*record(device, (n, n, 64), schedule, tile=tile, fmt="tf32"))


def test_a_listing_names_the_semaphores_of_peers_apart():
    sizes = m, n, k = 64, 64, 64
    program, chip, _, _ = made("h200", sizes, Schedule(regions=regions(m, n, [(0, 0)], tree(k, 2))))
    lines = program_text(program, chip).splitlines()
    assert "  semaphores of peers (at the start): part0.0.1 0" in lines
    assert any(line.startswith("  semaphores (at the start): ") and "own.full 0" in line for line in lines)


def test_a_region_of_all_of_k_is_as_none():
    sizes = m, n, k = 64, 64, 64
    whole = Schedule(regions=regions(m, n, [(0, 0)], Reduction((Chain((Range(0, k),)),), "pairwise")))
    with_regions, chip, inputs, expected = made("h200", sizes, whole)
    without, *_ = made("h200", sizes, Schedule())
    assert with_regions.kernels == without.kernels
    assert np.array_equal(functional.run(with_regions, chip, inputs), expected)


# --- order across cores ----------------------------------------------------------------------------------------


def edited(program, change):
    """The program with each instruction replaced by what `change` gives for it."""

    def body(nodes):
        return tuple(
            replace(x, body=body(x.body)) if isinstance(x, Loop) else change(x) if isinstance(x, Instr) else x
            for x in nodes
        )

    (kernel,) = program.kernels
    groups = tuple(replace(g, streams=tuple(replace(s, body=body(s.body)) for s in g.streams)) for g in kernel.groups)
    return replace(program, kernels=(replace(kernel, groups=groups),))


def without(program, semaphore, *fields):
    def change(instr):
        kept = {name: tuple(x for x in getattr(instr, name) if x.semaphore != semaphore) for name in fields}
        return replace(instr, **kept)

    return edited(program, change)


@pytest.fixture(scope="module")
def shared_program():
    sizes = m, n, k = 64, 64, 200
    return made("h200", sizes, Schedule(regions=regions(m, n, [(0, 1), (1, 1)], tree(k, 4))))


def test_a_wait_for_a_part_left_out_is_refused(shared_program):
    program, chip, _, _ = shared_program
    flags = [one.name for one in program.kernels[0].semaphores if one.peers]
    assert len(flags) == 3
    for flag in flags:
        with pytest.raises(ProgramError, match=rf"'{flag}' of peers leaks: 1 signalled, 0 awaited"):
            check(without(program, flag, "waits"), chip)
        with pytest.raises(ProgramError, match=rf"'{flag}' of peers leaks: 0 signalled, 1 awaited"):
            check(without(program, flag, "signals"), chip)
        with pytest.raises(ProgramError, match=r"writes array 'gemm.workspace'.*no semaphore orders the two"):
            check(without(program, flag, "waits", "signals"), chip)


def test_a_part_that_is_signalled_too_early_is_refused(shared_program):
    """The flag is given once the sum is there, instead of once it is stored."""
    program, chip, _, _ = shared_program
    (kernel,) = program.kernels
    flag = next(one.name for one in kernel.semaphores if one.peers)
    for group in kernel.groups:
        instrs = list(replace(kernel, groups=(group,)).instrs())
        stores = [one for one in instrs if any(x.semaphore == flag for x in one.signals)]
        if stores:
            break
    (summed,) = [one for one in instrs if any(x.semaphore == "own.full" for x in one.signals)]

    def change(instr):
        kept = tuple(x for x in instr.signals if x.semaphore != flag)
        return replace(instr, signals=(*kept, Sync(flag)) if instr is summed else kept)

    with pytest.raises(ProgramError, match="no semaphore orders the two"):
        check(edited(program, change), chip)


@pytest.mark.parametrize("field", ["writes", "reads"])
def test_second_cores_that_take_the_first_ones_part_are_refused(shared_program, field):
    """The addresses of the first core of each group are right, and those of its second one are the same."""
    program, chip, _, _ = shared_program
    (kernel,) = program.kernels
    changed = 0

    def of_group(group):
        def fixed(tile):
            nonlocal changed
            if not isinstance(tile, GlobalTile) or tile.array != "gemm.workspace":
                return tile
            changed += 1
            ((name, factor),) = tile.row.terms
            assert name == CORE
            return replace(tile, row=Affine(tile.row.constant + factor * group.first))

        def change(instr):
            return replace(instr, **{field: tuple(map(fixed, getattr(instr, field)))})

        (one,) = edited(replace(program, kernels=(replace(kernel, groups=(group,)),)), change).kernels
        return one.groups[0]

    damaged = replace(kernel, groups=tuple(map(of_group, kernel.groups)))
    assert changed == 3
    with pytest.raises(
        ProgramError, match=r"array 'gemm.workspace': .* of core \d+ (reads|writes) and .* of core \d+ .*no peers"
    ):
        check(replace(program, kernels=(damaged,)), chip)


def test_cores_that_write_the_same_rows_of_c_are_refused(shared_program):
    program, chip, _, _ = shared_program

    def fixed(tile):
        is_c = isinstance(tile, GlobalTile) and tile.array == program.output
        return replace(tile, row=Affine(0)) if is_c else tile

    damaged = edited(program, lambda instr: replace(instr, writes=tuple(map(fixed, instr.writes))))
    assert damaged != program
    both = rf"array '{program.output}': .* of core \d+ writes and .* of core \d+ writes"
    with pytest.raises(ProgramError, match=both):
        check(damaged, chip)


def test_the_first_and_the_last_cores_are_looked_at(shared_program, monkeypatch):
    program, chip, _, _ = shared_program
    places = []
    monkeypatch.setattr("hwsim.program.check.walk_together", lambda *given: places.append(given[4]))
    check(program, chip)
    assert places == [0, max(group.count for group in program.kernels[0].groups) - 1] and places[1] > 0


def test_groups_that_await_one_another_are_refused(shared_program):
    program, chip, _, _ = shared_program
    (kernel,) = program.kernels
    flag = next(one.name for one in kernel.semaphores if one.peers)
    names = [one.name for one in kernel.semaphores if one.peers]
    swapped = {flag: names[-1], names[-1]: flag}

    def change(instr):
        signals = tuple(replace(x, semaphore=swapped.get(x.semaphore, x.semaphore)) for x in instr.signals)
        return replace(instr, signals=signals)

    with pytest.raises(ProgramError, match=r"no semaphore orders the two|in a circle"):
        check(edited(program, change), chip)


def test_peers_are_equally_many_and_begin_at_zero(shared_program):
    program, chip, _, _ = shared_program
    (kernel,) = program.kernels
    *rest, last = kernel.groups
    fewer = replace(kernel, groups=(*rest, replace(last, count=1)))
    with pytest.raises(ProgramError, match=r"of groups of \[1, 2\] cores; they must be equally large"):
        check(replace(program, kernels=(fewer,)), chip)
    begun = tuple(replace(one, initial=int(one.peers)) if one.peers else one for one in kernel.semaphores)
    with pytest.raises(ProgramError, match="it must begin at 0"):
        check(replace(program, kernels=(replace(kernel, semaphores=begun),)), chip)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_programs_are_refused_or_have_the_same_bits(seed):
    """Waits removed, signals given elsewhere, counts changed, slots and bytes taken: as lab/tools/fuzz/programs.py
    does.
    """
    rng = fuzzed.random.Random(seed)
    sizes = m, n, k = 64, 40, 70
    cut = Schedule(regions=regions(m, n, [(0, 1), (1, 0)], tree(k, 3)))
    program, chip, inputs, expected = made("h200", sizes, cut)
    refused = 0
    for _ in range(12):
        damaged = fuzzed.changed(rng, program)
        if damaged is None:
            continue
        try:
            check(damaged[1], chip)
        except ProgramError:
            refused += 1
            continue
        fuzzed.holds(damaged[1], chip, inputs, expected, range(2))
    assert refused


# --- the library's --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "b_layout", "m", "n", "k", "parts"),
    [
        ("h200", "columns", 256, 512, 4096, 2),
        ("h100", "rows", 320, 1024, 1500, 2),
        ("h200", "rows", 1000, 1024, 1500, 4),
    ],
)
def test_a_library_call_whose_ctas_share_tiles_has_a_program_of_these_bits(device, b_layout, m, n, k, parts):
    call = {"device": device, "library": "cublas", "format": "tf32", "b_layout": b_layout}
    a, b = bits((m, k), 3, -20, 20), bits((k, n), 4, -20, 20)
    direct = hwsim.run(a, b, timing=False, **call)
    program = hwsim.run(a, b, functional=True, **call)
    assert {len(region.sum.parts) for region in direct.gemm.schedule.regions} == {parts}
    assert program.c.tobytes() == direct.c.tobytes() and program.gemm.schedule == direct.gemm.schedule
    _, written = hwsim.api.program(m=m, n=n, k=k, **call)
    assert any(one.peers for one in written.kernels[0].semaphores)


def test_rectangles_cover_the_marked_places_once():
    rng = np.random.default_rng(0)
    for _ in range(200):
        mask = rng.random(rng.integers(1, 7, 2)) < rng.random()
        seen = np.zeros(mask.shape, int)
        for row, rows, col, cols in rectangles(mask):
            seen[row : row + rows, col : col + cols] += 1
        assert np.array_equal(seen, mask)
    stairs = np.tri(1, 4, 2, dtype=bool)
    assert rectangles(stairs) == [(0, 1, 0, 3)]


def test_shared_tiles_of_a_schedule():
    found = shared_tiles(Schedule(regions=regions(70, 64, [(2, 1)], tree(96, 3))), (70, 64, 96), (32, 32))
    assert found.is_shared.tolist() == [[False, False], [False, False], [False, True]]
    assert [total.parts for total in found.sums] == [((64, 32), (32, 32), (0, 32))]


def test_of_regions_that_overlap_the_last_one_holds():
    """Tiles that a later region adds as one chain are shared no more."""
    sizes = (64, 32, 64)
    chain = Region(Range(0, 32), Range(0, 32), Chain((Range(0, 64),)))
    both = Region(Range(0, 64), Range(0, 32), tree(64, 2))
    for given, shared in (((both, chain), [[False], [True]]), ((chain, both), [[True], [True]])):
        schedule = Schedule(regions=given)
        assert shared_tiles(schedule, sizes, (32, 32)).is_shared.tolist() == shared
        program, chip, inputs, expected = made("a100", sizes, schedule)
        assert np.array_equal(functional.run(program, chip, inputs), expected)
    half = Region(Range(0, 16), Range(0, 32), Chain((Range(0, 64),)))
    with pytest.raises(UnsupportedError, match="regions of whole tiles, here of 32 x 32"):
        shared_tiles(Schedule(regions=(both, half)), sizes, (32, 32))
    assert shared_tiles(Schedule(regions=(half,)), sizes, (32, 32)).sums == ()


def test_orders_of_tiles_that_a_later_region_takes_do_not_count():
    sizes, rows, cols = (64, 32, 128), Range(0, 64), Range(0, 32)
    two, four = Region(rows, cols, tree(128, 2)), Region(rows, cols, tree(128, 4))
    for given, parts in (((two, four), 4), ((four, two), 2)):
        schedule = Schedule(regions=given)
        assert [len(total.parts) for total in shared_tiles(schedule, sizes, (32, 32)).sums] == [parts]
        program, chip, inputs, expected = made("a100", sizes, schedule)
        assert np.array_equal(functional.run(program, chip, inputs), expected)
    half = Region(Range(0, 32), cols, tree(128, 4))
    found = shared_tiles(Schedule(regions=(two, half)), sizes, (32, 32))
    assert [len(found.sums[owner].parts) for (owner,) in found.owner] == [4, 2]


def test_sums_of_fp64_are_added_by_programs_and_of_fp16_are_not():
    schedule = Schedule(regions=(Region(Range(0, 64), Range(0, 32), tree(64, 2)),))
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((64, 64)), rng.standard_normal((64, 32))
    given = {"device": "a100", "format": "fp64", "schedule": schedule}
    program = hwsim.run(a, b, functional=True, **given)
    assert program.c.tobytes() == hwsim.run(a, b, **given).c.tobytes() and program.cycles > 0
    narrow = Schedule(instruction="mma.m16n8k16.f16.f16.f16.f16", regions=schedule.regions)
    narrow = {"device": "a100", "format": "fp16", "schedule": narrow}
    assert hwsim.run(a, b, timing=False, **narrow).c.shape == (64, 32)
    with pytest.raises(UnsupportedError, match=r"programs add sums in fp32, fp64, int32, int64, and .* gives fp16"):
        hwsim.run(m=64, n=32, k=64, exact=False, **narrow)
