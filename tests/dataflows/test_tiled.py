"""The GPU dataflows: the direct evaluator's bits for every plan, whatever the tile; programs that keep the rules."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from lowered import facts, lower
from operands import bits

import hwsim
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.tiles import distribute, slices_of, tile_grids
from hwsim.devices import changed, find, instruction, load
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.product import Evaluator
from hwsim.formats import array_of, format_of
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference, timing
from hwsim.operands.operand import Operand
from hwsim.program.check import check
from hwsim.program.ir import Instr, Loop
from hwsim.schemes import scheme_of

DEVICES = ("v100", "t4", "a100", "h100", "b200", "mi210", "mi300x")  # two of sm70 and cdna, one of the others


def plan_of(scheme, sizes, input_format="fp32", **options):
    chosen = scheme_of(scheme)
    return chosen.plan(chosen.complete(options), Problem.of(input_format, *sizes))


def codes(fmt, shape, seed, specials=False):
    """Operands from bit fields."""
    if fmt == "fp32":
        return bits(shape, seed, -8, 8, specials).view(np.uint32)
    if fmt == "fp16":
        with np.errstate(over="ignore"):
            return bits(shape, seed, -6, 6, specials).astype(np.float16).view(np.uint16)
    if fmt == "int8":
        return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    return np.random.default_rng(seed).standard_normal(shape).view(np.uint64)


def both(device, plan, sizes, options, specials=False, machine=functional.run, **given):
    """Codes of the program's C, and of the direct evaluator's."""
    m, n, k = sizes
    chip, fmt = load(device), plan.input_format
    a, b = codes(fmt, (m, k), m + k, specials), codes(fmt, (k, n), n + k, specials)
    program = lower(plan, chip, m, n, k, options)
    check(program, chip)
    got = machine(program, chip, dict(zip(program.inputs, (a, b), strict=True)), **given)
    ready = Evaluator(program.gemm, chip)
    expected = ready.evaluate(*ready.pieces(Operand(a, fmt), Operand(b, fmt)))
    return got, expected, program


def tile(m, n, k):
    return {"tile": {"m": m, "n": n, "k": k}}


@pytest.mark.covering("device", ("sizes", "options"))
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 1, 1), {}),
        ((3, 515, 67), tile(64, 32, 16) | {"swizzle": 4}),
        ((330, 257, 40), tile(64, 64, 16) | {"swizzle": 2}),  # edges on both sides, tiles beyond one round
        ((70, 90, 500), tile(64, 64, 32) | {"split_k": 3}),
        ((70, 90, 500), tile(64, 64, 32) | {"stages": 1}),
        ((70, 90, 500), tile(64, 64, 32) | {"a_layout": "columns", "b_layout": "columns"}),
    ],
)
def test_native_bits_whatever_the_tile(device, sizes, options):
    got, expected, _ = both(device, plan_of("native", sizes, "fp16", format="fp16"), sizes, options, True)
    assert np.array_equal(got, expected)


@pytest.mark.covering(("machine", "device"), ("scheme", "given", "options"))
@pytest.mark.parametrize("machine", [functional.run, reference.run])
@pytest.mark.parametrize("device", ["v100", "a100", "h100", "b200", "mi210"])
@pytest.mark.parametrize(
    ("scheme", "given", "options"),
    [
        ("native", {"format": "fp16"}, {}),
        ("native", {"format": "fp16"}, {"split_k": 3}),
        ("native", {"format": "fp16"}, {"output": "fp16"}),
        ("native", {"format": "fp16"}, {"output": "bf16", "split_k": 2}),
        ("le-gemm", {}, {}),
        ("ootomo-fp16", {}, {"split_k": 2}),
    ],
)
def test_infinities_and_nans_come_out_with_the_evaluators_bits(machine, device, scheme, given, options):
    """Also where lanes add and round them, outside the unit."""
    sizes = (19, 21, 150) if machine is functional.run else (17, 7, 130)  # the reference is slow
    m, n, k = sizes
    chip, plan = load(device), plan_of(scheme, sizes, **given)
    a, b = bits((m, k), 5, -6, 6), bits((k, n), 6, -6, 6)
    a[:5] = bits((5, k), 7, -6, 6, specials=True)
    b[:, :3] = bits((k, 3), 8, -6, 6, specials=True)
    b[k // 2, 3:6] = np.inf  # in one slice alone
    program = lower(plan, chip, m, n, k, options)
    codes_a, codes_b = a.view(np.uint32), b.view(np.uint32)
    got = machine(program, chip, dict(zip(program.inputs, (codes_a, codes_b), strict=True)))
    ready = Evaluator(program.gemm, chip)
    expected = ready.evaluate(*ready.pieces(Operand(codes_a, "fp32"), Operand(codes_b, "fp32")))
    values = array_of(expected, format_of(program.gemm.output)).astype(np.float32)
    assert np.isnan(values).any() and np.isfinite(values).any()
    assert np.isinf(values).any() or plan.products > 1  # pieces of an infinity give NaNs
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("group", [16, 48, 100, 512])
@pytest.mark.parametrize("device", ["v100", "a100", "h100", "b200"])
def test_runs_of_k_are_added_up_outside_the_unit(device, group):
    sizes = (70, 40, 300)
    plan = plan_of("native", sizes, "fp16", format="fp16", k_group=group)
    got, expected, _ = both(device, plan, sizes, {})
    assert np.array_equal(got, expected)


CASES = [
    ("native", {"format": "fp16"}),  # fp32 operands, rounded by a pass
    ("native", {"format": "fp32"}),
    ("sgemm-cube", {}),
    ("sgemm-cube", {"accumulation": "elementwise", "k_group": 32}),
    ("sgemm-cube", {"accumulation": "elementwise", "k_group": 96}),
    ("sgemm-cube", {"k_group": 64}),
    ("ape-fp32-f", {}),
    ("ape-fp32-f", {"interleave": "k"}),
    ("markidis", {}),
    ("le-gemm", {}),
    ("ootomo-fp16", {}),
    ("native", {"format": "tf32"}),
    ("ape-fp32-b", {}),
    ("tf32x3", {}),
    ("ootomo-tf32", {}),
    ("bf16x9", {"accumulation": "termwise"}),
    ("bf16x9", {"accumulation": "bands"}),
    ("bf16x6", {"accumulation": "fastf32"}),
    ("bf16x9", {"accumulation": "fastf32", "promotion_interval": 2}),
]


@pytest.mark.parametrize("blocking", [{}, {"split_k": 2}, {"tile": {"m": 64, "n": 32, "k": 256}, "stages": 1}])
@pytest.mark.parametrize("device", DEVICES)
def test_terms_joined_by_groups_are_joined_once_without_a_length(device, blocking):
    """Without k_group the group is all of a slice, whatever the tile's K."""
    sizes = (33, 21, 150)
    plan = plan_of("sgemm-cube", sizes, accumulation="elementwise")
    if "tile" in blocking and device != "h100":  # only here does a tile hold more than K
        blocking = {}
    got, expected, program = both(device, plan, sizes, blocking)
    assert np.array_equal(got, expected) and got.any()
    assert facts(program, load(device))["k_group"] == (128 if "split_k" in blocking else 150)
    if not blocking:
        longer = plan_of("sgemm-cube", sizes, accumulation="elementwise", k_group=4096)
        other = both(device, longer, sizes, {})[2]
        assert timing.run(program, load(device)).cycles == timing.run(other, load(device)).cycles


@pytest.mark.parametrize(
    ("device", "scheme", "options"),
    [(device, *case) for device in ("a100", "h100", "b200") for case in CASES]
    + [
        (device, *case) for device in ("v100", "mi300x") for case in (CASES[0], CASES[3], CASES[7], CASES[9], CASES[10])
    ],
)
def test_every_plan_has_the_evaluators_bits(device, scheme, options):
    """Finite operands: the patching of specials in bf16x9 is no part of the program."""
    sizes, cut = ((70, 33, 150), {}) if len(scheme) % 2 else ((33, 21, 150), {"split_k": 2})
    plan = plan_of(scheme, sizes, **options)
    if options.get("accumulation") == "fastf32" and device != "b200":
        with pytest.raises(UnsupportedError, match=r"scale.input.d"):
            both(device, plan, sizes, cut)
        return
    got, expected, program = both(device, plan, sizes, cut)
    assert np.array_equal(got, expected)
    assert timing.run(program, load(device)).cycles > 0


def test_the_first_band_is_read_from_tmem_to_where_the_sum_is():
    """Four additions of five bands and one to the sum of all: nothing is moved or scaled by itself."""
    sizes = (128, 128, 64)
    _, _, program = both("b200", plan_of("bf16x9", sizes, accumulation="bands"), sizes, {})
    [kernel] = program.kernels
    onto = {"join0": [], "sum0": []}
    for instr in kernel.instrs():
        for tile in instr.writes:
            if getattr(tile, "buffer", "") in onto:
                onto[tile.buffer].append((instr.opcode, load("b200").vector.engine == instr.engine))
    assert set(onto["join0"]) == {("copy", False), ("add", True)}
    assert onto["join0"].count(("add", True)) == 4 * onto["join0"].count(("copy", False))
    assert ("add", True) in onto["sum0"] and ("scale", True) not in onto["sum0"]


@pytest.mark.parametrize(
    ("device", "fmt"),
    [("a100", "fp64"), ("h100", "fp64"), ("mi210", "fp64"), ("t4", "int8"), ("h100", "int8"), ("b200", "int8")],
)
def test_formats_that_fp32_lanes_cannot_join_come_out_of_the_unit_as_they_are(device, fmt):
    sizes = (70, 30, 67)
    got, expected, _ = both(device, plan_of("native", sizes, fmt, format=fmt), sizes, {})
    assert np.array_equal(got, expected)


@pytest.mark.parametrize(
    ("scheme", "input_format", "options"),
    [
        ("ozaki-int8", "fp64", {"slices": 2, "sum": "exact"}),
        ("ozaki-fp16", "fp64", {"slices": 2, "sum": "exact"}),
    ],
)
@pytest.mark.parametrize("cut", [1, 2])
def test_work_whose_values_are_not_formed_is_timed(scheme, input_format, options, cut):
    sizes = (130, 70, 150)
    chip = load("h100")
    program = lower(plan_of(scheme, sizes, input_format, **options), chip, *sizes, {"split_k": cut})
    check(program, chip)
    one = timing.run(program, chip)
    assert one.cycles > 0
    assert one.macs == 130 * 70 * 150 * plan_of(scheme, sizes, input_format, **options).products


@pytest.mark.parametrize("cut", [1, 2])
def test_fp64_sums_are_formed(cut):
    sizes = (130, 70, 150)
    got, expected, _ = both(
        "h100", plan_of("native", sizes, "fp64", format="fp64", k_group=64), sizes, {"split_k": cut}
    )
    assert np.array_equal(got, expected)


def test_a_kernel_of_one_term_does_its_own_part_of_the_sum_alone():
    """Of 16 and of 17 slices: a call converts, scales and adds one product, however many others there are."""
    per_call = set()
    for slices in (16, 17):
        program = lower(plan_of("ozaki-int8", (64, 64, 64), "fp64", slices=slices), load("a100"), 64, 64, 64, {})
        calls = [kernel for kernel in program.kernels if kernel.name.startswith("gemm_")]
        assert len(calls) == slices * (slices + 1) // 2
        for kernel in calls[1:-1]:  # the last also multiplies by the powers of its rows and columns
            used = Counter(instr.opcode for instr in kernel.instrs())
            per_call.add((used["cast"], used["scale"], used["add"]))
    assert per_call == {(1, 1, 1)}


@pytest.mark.parametrize("options", [{"stages": 1}, {"a_layout": "columns", "b_layout": "columns"}])
@pytest.mark.parametrize("device", ["v100", "a100", "h100", "b200", "mi300x"])
@pytest.mark.parametrize("scheme", ["le-gemm", "ootomo-fp16", "sgemm-cube"])
def test_one_stage_and_other_layouts_change_no_bit(device, scheme, options):
    sizes = (70, 33, 150)
    got, expected, program = both(device, plan_of(scheme, sizes), sizes, options)
    assert np.array_equal(got, expected)
    assert timing.run(program, load(device)).cycles > 0


@pytest.mark.parametrize("device", ["v100", "a100", "mi210", "h100"])
@pytest.mark.parametrize("scheme", ["le-gemm", "native", "ootomo-fp16"])  # the last promotes after every instruction
def test_one_stage_asks_for_a_block_when_the_products_are_done(device, scheme):
    """Rows of the trace: the next block's first load starts where the last block's last product ends."""
    chip, sizes = load(device), (64, 64, 256)
    plan = plan_of(scheme, sizes, **({"format": "fp16"} if scheme == "native" else {}))

    def rows(stages):
        timed = timing.run(lower(plan, chip, *sizes, tile(64, 64, 32) | {"stages": stages}), chip, trace=10**6)
        kernel = timed.trace.kernels.index("gemm")
        found = [row for row in timed.trace.rows if row["kernel"] == kernel]
        label = timed.trace.labels.index("A")
        loads = [row for row in found if row["array"] >= 0 and row["label"] == label]
        return loads, [row for row in found if timed.trace.opcodes[row["opcode"]] == "mma"]

    loads, products = rows(1)
    done = [row["end"] for row in products]
    for before, after in itertools.pairwise(loads):
        assert after["start"] in done and after["start"] > before["end"]
    loads, products = rows(2)
    assert loads[1]["start"] < products[0]["start"]


@pytest.mark.parametrize("device", ["h200", "h100"])
def test_operands_that_wgmma_takes_only_along_k(device):
    """tf32 with B by rows goes through registers: slower where a warp group has a tile to itself; fp16 turns itself."""
    chip, sizes = load(device), (512, 512, 1024)

    def busy(fmt, shape, **layout):
        plan = plan_of("native", sizes, fmt, format=fmt)
        return timing.run(lower(plan, chip, *sizes, tile(*shape) | layout), chip).engines["TC"].busy_cycles

    alone, shared = (128, 128, 32), (256, 128, 32)
    along = busy("tf32", alone, b_layout="columns")
    for layout in ({}, {"a_layout": "columns", "b_layout": "columns"}):
        assert busy("tf32", alone, **layout) / along == pytest.approx(1024 / 847, rel=1e-3)
    assert busy("tf32", shared) == busy("tf32", shared, b_layout="columns")
    assert busy("fp16", (128, 128, 64)) == busy("fp16", (128, 128, 64), b_layout="columns")


def test_the_tiles_of_mn_major_operands_are_their_own():
    """cuBLAS has 128 x 256 for B by columns only, 256 x 128 for both."""
    chip, sizes = load("h200"), (7680, 8192, 1024)
    plan = plan_of("native", sizes, "tf32", format="tf32")
    made = {layout: lower(plan, chip, *sizes, {"b_layout": layout}) for layout in ("rows", "columns")}
    tiles = {layout: facts(program, chip)["tile"] for layout, program in made.items()}
    assert (tiles["rows"]["m"], tiles["rows"]["n"]) == (256, 128)
    few = (256, 256, 4096)  # beyond 640 of K no tile of 64 x 64
    for k, small in ((512, True), (few[2], False)):
        plan = plan_of("native", (*few[:2], k), "tf32", format="tf32")
        made = facts(lower(plan, chip, *few[:2], k, {}), chip)["tile"]
        assert ((made["m"], made["n"]) == (64, 64)) is small


def test_rows_that_are_short_in_memory_take_a_request_each():
    """Blocks of 16 of K, requests of 128 bytes: 128 rows of A of 32 bytes, 16 rows of B of 256; or columns of them."""
    chip, sizes = load("b200"), (128, 128, 512)
    plan = plan_of("native", sizes, "fp16", format="fp16")

    def requests(**layout):
        timed = timing.run(lower(plan, chip, *sizes, tile(128, 128, 16) | layout), chip)
        assert timed.traffic_bytes["HBM read"] == 2 * 128 * 512 * 2
        link = chip.links["GM_SMEM"]
        return timed.engines["TMA"].busy_cycles * link.bytes_per_cycle / link.request_bytes / (512 / 16)

    assert requests() == requests(a_layout="rows", b_layout="rows") == pytest.approx(128 + 32, rel=0.01)
    assert requests(b_layout="columns") == pytest.approx(128 + 128, rel=0.01)
    assert requests(a_layout="columns") == pytest.approx(32 + 32, rel=0.01)
    assert facts(lower(plan, chip, *sizes, {"b_layout": "columns"}), chip)["b_layout"] == "columns"
    assert "b_layout" not in facts(lower(plan, chip, *sizes, {}), chip)
    with pytest.raises(InputError, match="b_layout = 'col'; allowed: rows, columns"):
        requests(b_layout="col")


@pytest.mark.parametrize(
    ("device", "scheme", "options"),
    [
        ("v100", "native", {"format": "fp16"}),
        ("a100", "ootomo-fp16", {}),
        ("h100", "le-gemm", {}),
        ("b200", "bf16x3", {"accumulation": "fastf32"}),
        ("b200", "bf16x3", {"accumulation": "bands"}),
    ],
)
def test_every_legal_order_gives_the_same_bits(device, scheme, options):
    """The coalescing machine against one that copies for real and picks the order of engines at random."""
    sizes = (17, 5, 19)
    plan = plan_of(scheme, sizes, **options)
    got, expected, _ = both(device, plan, sizes, {}, machine=reference.run, order=len(scheme))
    assert np.array_equal(got, expected)


def test_two_sided_and_deep_sums_do_not_depend_on_threads():
    sizes = (300, 310, 70)
    plan = plan_of("tf32x3", sizes)
    one, expected, _ = both("h100", plan, sizes, tile(64, 64, 32), threads=1)
    two, _, _ = both("h100", plan, sizes, tile(64, 64, 32), threads=2)
    assert np.array_equal(one, expected)
    assert np.array_equal(two, expected)


def test_each_tile_goes_to_one_core():
    """Every tile of C, of every slice and batch, goes to exactly one core: counted from the grids themselves."""
    for cores, cluster in ((7, 1), (8, 2), (132, 2)):
        for m, n, batch, band in ((640, 500, 1, 3), (65, 1000, 2, 0), (10, 10, 3, 0), (1300, 64, 1, 2)):
            strips = 1 + m % 3 * 2
            found = tile_grids(m, n, slices_of((128, 128, 44)), batch, (64, 32), band, cores, cluster, strips)
            area = sum(f.tiles * f.m * f.n for f in found)
            assert area == m * n * batch * 3
            groups = distribute(found, cores)
            for i, field in enumerate(found):
                assert sum(group.count * group.waves[i] for group in groups) == field.tiles
            assert [g.first for g in groups] == sorted(g.first for g in groups)


def test_rows_of_a_strip_come_before_the_next_strip():
    """Whole rows, the odd row of a cluster and the last row of 8 columns, a wave of 4 x 8 tiles; then the next 8."""
    found = tile_grids(200, 1024, slices_of((64,)), 1, (64, 32), 4, 32, 2, strips=8)
    assert [(f.row, f.rows, f.col, f.cols) for f in found[:4]] == [
        (0, 2, 0, 8), (128, 1, 0, 8), (192, 1, 0, 8), (0, 2, 256, 8)
    ]  # fmt: skip
    assert [f.first for f in found[:4]] == [0, 16, 24, 32]
    assert len(tile_grids(192, 1024, slices_of((64,)), 1, (64, 32), 4, 32, 1, strips=8)) == 1  # one kind of row


def test_tiles_of_an_edge_are_beside_those_of_other_rows_and_columns():
    """What cores are at together is that of whole tiles: a last row and a last column that are no whole tiles too."""

    def beside(m, n, cores=132):
        found = tile_grids(m, n, slices_of((64,)), 1, (64, 80), 0, cores)
        return {(field.across, field.along) for field in found}

    for m, n in ((128, 4000), (192, 800), (64, 800), (640, 8000)):
        assert beside(m, n) == beside(m - 1, n) == beside(m, n - 8) == beside(m - 1, n - 8), (m, n)
    assert beside(128, 4000) == {(8, 2), (2, 2)}  # 2 x 50 tiles in bands of 8, of which 2 columns are left


def test_a_ragged_product_takes_no_longer_than_a_padded_one():
    """Two rows of tiles read B together, whether the second one is whole or not."""
    call = {"n": 4096, "k": 2048, "device": "h200", "format": "bf16", "exact": False, "tile": (64, 80, 64)}
    seconds = [hwsim.run(m=m, **call).seconds for m in (96, 127, 128)]
    assert seconds[0] <= 1.02 * seconds[1] <= 1.02**2 * seconds[2]


def test_b_is_read_once_where_l2_holds_a_wave_of_it():
    call = {"n": 65536, "k": 1024, "device": "h200", "format": "bf16", "exact": False, "tile": (128, 256, 64)}
    whole, with_last_row = (hwsim.run(m=m, **call).traffic_bytes["HBM read"] for m in (128, 193))
    assert 65536 * 1024 * 2 <= whole <= with_last_row < 1.2 * whole


def test_a_batch_is_that_many_products():
    m, n, k, batch = 40, 50, 70, 3
    chip = load("a100")
    plan = plan_of("native", (m, n, k), "fp16", format="fp16")
    a, b = codes("fp16", (batch * m, k), 1), codes("fp16", (batch * k, n), 2)
    for options in ({}, tile(32, 32, 16) | {"split_k": 2}):
        program = lower(plan, chip, m, n, k, {"batch": batch} | options)
        check(program, chip)
        got = functional.run(program, chip, dict(zip(program.inputs, (a, b), strict=True)))
        ready = Evaluator(replace(program.gemm, problem=replace(program.gemm.problem, lead=())), chip)
        for i in range(batch):
            one = ready.evaluate([a[i * m : (i + 1) * m]], [b[i * k : (i + 1) * k]])
            assert np.array_equal(got[i * m : (i + 1) * m], one)


@pytest.mark.parametrize("device", ["a100", "h100", "b200", "mi210"])
def test_alpha_and_the_output_format(device):
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((50, 70), (70, 40)))
    by_program = hwsim.run(a, b, device=device, format="fp16", alpha=1.5, output="fp16")
    by_evaluator = hwsim.run(a, b, device=device, format="fp16", alpha=1.5, output="fp16", schedule={})
    assert np.array_equal(by_program.c.view(np.uint16), by_evaluator.c.view(np.uint16))
    assert by_program.cycles > 0


@pytest.mark.parametrize("device", DEVICES)
def test_c_and_bias_cost_time(device):
    chip, sizes = load(device), (512, 512, 64)
    plan = plan_of("native", sizes, "fp16", format="fp16")

    def cycles(**options):
        program = lower(plan, chip, *sizes, options)
        check(program, chip)
        return timing.run(program, chip).cycles

    plain, with_c = cycles(), cycles(c=True, beta=0.5)
    assert plain < with_c <= cycles(c=True, beta=0.5, bias=True, output="fp32")
    lower(plan, chip, *sizes, {"c": True})


@pytest.mark.parametrize(
    ("device", "options", "words"),
    [
        ("a100", tile(512, 512, 32), "RF"),
        ("h100", tile(128, 256, 64) | {"stages": 9}, "SMEM"),
        ("b200", tile(256, 512, 32), "TMEM"),
        ("mi210", tile(256, 256, 64), "LDS"),
        ("a100", tile(64, 64, 24), "multiples of 16"),
        ("a100", {"stages": 0}, "stages = 0"),
        ("a100", {"split_k": 0}, "split_k = 0"),
        ("a100", {"split_k": 2}, "split_k = 2: K = 64 has 1 slice of 64; allowed: at most 1"),
        ("a100", {"swizzle": -1}, "swizzle = -1"),
    ],
)
def test_what_does_not_fit_is_named(device, options, words):
    with pytest.raises(InputError, match=words):
        lower(plan_of("native", (64, 64, 64), "fp16", format="fp16"), load(device), 64, 64, 64, options)


def test_plans_that_a_family_cannot_carry_are_refused_with_a_reason():
    with pytest.raises(UnsupportedError, match=r"scale.input.d"):
        lower(plan_of("bf16x9", (64, 64, 64), accumulation="fastf32"), load("h100"), 64, 64, 64, {})
    with pytest.raises(UnsupportedError, match="bf16"):
        lower(plan_of("ape-fp32-b", (64, 64, 64)), load("v100"), 64, 64, 64, {})
    with pytest.raises(UnsupportedError, match="no matrix instruction"):
        lower(plan_of("tf32x3", (64, 64, 64)), load("mi210"), 64, 64, 64, {})


def test_variants_of_an_instruction_share_its_arithmetic():
    for device in DEVICES:
        chip = load(device)
        for name in chip.native.values():
            own = find(chip, name)
            program = lower(
                plan_of("native", (48, 40, 64), own.a, format=own.a) if own.a == own.b else None, chip, 48, 40, 64, {}
            )
            unit = find(chip, facts(program, chip)["unit"])
            assert (unit.unit, unit.a, unit.b, unit.c, unit.d, unit.k) == (own.unit, own.a, own.b, own.c, own.d, own.k)
            assert unit.timing is not None


def test_large_sizes_are_loops():
    """16384^3 on every family: a few hundred instructions, seconds to time."""
    for device in ("v100", "a100", "h100", "b200", "mi300x"):
        chip, n = load(device), 16384
        program = lower(plan_of("native", (n, n, n), "fp16", format="fp16"), chip, n, n, n, {})
        assert sum(1 for kernel in program.kernels for _ in kernel.instrs()) < 1000
        assert timing.run(program, chip).macs == n**3


def test_formats_of_results_are_the_units():
    sizes = (40, 40, 40)
    for device, fmt, result in (("h100", "fp64", "fp64"), ("h100", "int8", "int32"), ("a100", "tf32", "fp32")):
        program = lower(plan_of("native", sizes, fmt, format=fmt), load(device), *sizes, {})
        assert {a.name: a.format for a in program.arrays}["C"] == result
        assert array_of(np.zeros((1, 1), np.uint64 if result == "fp64" else np.uint32), format_of(result)).size == 1


def executed(body):
    """Instructions that the timing engine executes for a stream."""
    return sum(node.count * executed(node.body) if isinstance(node, Loop) else isinstance(node, Instr) for node in body)


@pytest.mark.parametrize("device", [*DEVICES, "a2", "rtx2080ti", "rtx6000", "tf64"])
def test_the_largest_programs_are_timed_in_seconds(device):
    """16384^3, the default format: at most 20 s at 5 million instructions a second, one core of each group."""
    chip = load(device)
    for fmt in (chip.default_format, "fp32") if "fp32" in chip.native else (chip.default_format,):
        program = lower(plan_of("native", (16384,) * 3, fmt, format=fmt), chip, 16384, 16384, 16384, {})
        groups = [group for kernel in program.kernels for group in kernel.groups]
        assert sum(executed(stream.body) for group in groups for stream in group.streams) < 100_000_000


def test_the_estimate_counts_whole_requests():
    """Rows of 64 bytes take B200's TMA as long as rows of 128: half the K a stage does not halve its time."""
    chip, sizes = load("b200"), (4096, 4096, 4096)
    plan = plan_of("native", sizes, "bf16", format="bf16")
    by_rows = lower(plan, chip, *sizes, {"output": "fp32"})
    assert facts(by_rows, chip)["tile"]["k"] * 2 >= chip.links["GM_SMEM"].request_bytes
    halves = lower(plan, chip, *sizes, {"output": "fp32", **tile(128, 256, 32)})
    assert timing.run(halves, chip).cycles > 1.15 * timing.run(by_rows, chip).cycles


@pytest.mark.parametrize(("scheme", "fmt"), [("native", "fp16"), ("sgemm-cube", None)])
def test_pairs_of_sms_change_no_bit(scheme, fmt):
    given = {} if fmt is None else {"format": fmt}
    plan = plan_of(scheme, (512, 96, 200), fmt or "fp32", **given)
    got, expected, program = both("b200", plan, (512, 96, 200), {**tile(128, 64, 64), "cta_group": 2})
    shown = facts(program, load("b200"))
    assert shown["cta_group"] == 2 and ".m256n" in shown["unit"]
    np.testing.assert_array_equal(got, expected)


def test_a_pair_loads_b_once_and_holds_half_of_it_each():
    chip, sizes = load("b200"), (256, 128, 1024)
    plan = plan_of("native", sizes, "fp16", format="fp16")
    alone, pair = (
        lower(plan, chip, *sizes, {**tile(128, 128, 64), "stages": 4, "cta_group": group}) for group in (1, 2)
    )
    a_bytes, b_bytes = 256 * 1024 * 2, 128 * 1024 * 2
    for program, copies in ((alone, 2), (pair, 1)):
        check(program, chip)
        moved = timing.run(program, chip).traffic_bytes
        assert moved["GM_SMEM"] == moved["L2 read"] == a_bytes + copies * b_bytes
        assert moved["HBM read"] == a_bytes + b_bytes
    buffers = {buffer.name: buffer.own_bytes for buffer in pair.kernels[0].buffers}
    assert buffers["A0"] == 4 * 128 * 64 * 2 == 2 * buffers["B0"]
    assert facts(lower(plan, chip, *sizes, {**tile(128, 128, 64), "cta_group": 2}), chip)["stages"] == 8
    assert facts(alone, chip)["stages"] == 4 and "cta_group" not in facts(alone, chip)


@pytest.mark.parametrize(
    ("device", "sizes", "options", "words"),
    [
        ("b200", (384, 128, 64), {}, "C has 384 rows; allowed: multiples of 256"),
        ("b200", (256, 128, 64), {"cta_group": 3}, "the sm100 dataflow allows 1, 2"),
        ("b200", (256, 128, 64), {"cta_group": True}, "cta_group = True; allowed: an integer of at least 1"),
        ("h100", (256, 128, 64), {}, "cta_group"),
    ],
)
def test_pairs_that_there_are_not_are_refused(device, sizes, options, words):
    plan = plan_of("native", sizes, "fp16", format="fp16")
    with pytest.raises((InputError, UnsupportedError), match=words):
        lower(plan, load(device), *sizes, {**tile(128, 128, 64), "cta_group": 2, **options})


def test_pairs_need_an_instruction_for_operands_in_shared_memory():
    for scheme, fmt, given in (("native", "fp32", {"format": "fp32"}), ("bf16x9", "fp32", {})):
        with pytest.raises(InputError, match="no such instruction"):
            lower(plan_of(scheme, (256, 128, 64), fmt, **given), load("b200"), 256, 128, 64, {"cta_group": 2})
    with pytest.raises(InputError, match="b200 has 1 cores; allowed: a multiple of 2"):
        single = changed(load("b200"), {"cores": 1})
        lower(plan_of("native", (256, 128, 64), "fp16", format="fp16"), single, 256, 128, 64, {"cta_group": 2})


def test_of_equal_estimates_the_largest_tile_is_taken():
    """On A2 all tiles keep the fp32 lanes busy: small ones take no less time, and many more instructions."""
    tiles = {}
    for size in (64, 4096):
        program = lower(plan_of("native", (size,) * 3, "fp32", format="fp32"), load("a2"), size, size, size, {})
        tile = facts(program, load("a2"))["tile"]
        tiles[size] = tile["m"] * tile["n"]
    assert tiles[4096] >= 64 * 64 > tiles[64]


def test_the_instruction_for_a_tile_is_that_of_its_size_whatever_was_asked_before():
    fitted = Instructions(load("h200")).fitted
    name = "wgmma.m64n256k16.f32.f16.f16"
    widths = {n: fitted(name, 128, n) for n in (256, 128, 112, 256, 8, 128)}
    assert widths == {n: f"wgmma.m64n{n}k16.f32.f16.f16" for n in (256, 128, 112, 8)}
    assert Instructions(load("h200")).fitted(name, 128, 128) == widths[128]
    pair = Instructions(load("b200")).fitted
    alone = "tcgen05.mma.m128n256k16.f16.f32.f16.f16"
    assert instruction(load("b200"), pair(alone, 128, 256, 2)).core_count == 2
    assert instruction(load("b200"), pair(alone, 128, 256, 1)).core_count == 1
