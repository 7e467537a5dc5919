"""The separated DaVinci core: bits as evaluated directly, whatever the blocking; programs that keep its rules."""

from __future__ import annotations

import numpy as np
import pytest
from lowered import facts, lower
from operands import bits
from straight_line import product

import hwsim
from hwsim.api import program
from hwsim.dataflows.davinci.block_grid import BlockGrid
from hwsim.devices import load
from hwsim.devices.variants import changed
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference, timing
from hwsim.program.check import check
from hwsim.schemes import scheme_of

CHIP = load("ascend910b3")
FORMATS = ("fp16", "bf16", "fp32", "hf32", "int8")
SCHEMES = (
    ("sgemm-cube", {}),
    ("sgemm-cube", {"accumulation": "elementwise"}),
    ("sgemm-cube", {"k_group": 16}),
    ("sgemm-cube", {"k_group": 16, "accumulation": "elementwise"}),
    ("sgemm-cube", {"k_group": 40}),
    ("le-gemm", {"k_group": 48}),
    ("ape-fp32-f", {}),
    ("ape-fp32-b", {}),  # several products alternate in one accumulator
    ("markidis", {"k_group": 32}),
    ("ootomo-fp16", {}),  # one term added up after every instruction, the other not
)
SHAPES = [(1, 1, 1), (1, 17, 3), (33, 5, 67), (19, 40, 100)]


def same(x, y):
    x, y = np.asarray(x), np.asarray(y)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def operands(m, n, k, seed, fmt="fp32", specials=True):
    if fmt == "int8":
        rng = np.random.default_rng(seed)
        edges = np.array([-128, -127, -1, 0, 1, 127], np.int8)
        return tuple(
            np.where(rng.random(s) < 0.3, rng.choice(edges, s), rng.integers(-128, 128, s).astype(np.int8))
            for s in ((m, k), (k, n))
        )
    return bits((m, k), seed, -20, 15, specials), bits((k, n), seed + 1, -20, 15, specials)


def both(a, b, **options):
    """The product by the program and directly."""
    program, direct = (hwsim.run(a, b, device="ascend910b3", functional=by, **options) for by in (True, False))
    return program, direct.c


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_native_programs_give_the_bits_of_the_direct_evaluator(fmt, shape):
    m, n, k = shape
    a, b = operands(m, n, k, sum(shape), fmt)
    by_program, direct = both(a, b, scheme="native", format=fmt)
    assert same(by_program.c, direct)
    assert by_program.cycles > 0
    grouped, direct = both(a, b, scheme="native", format=fmt, k_group=32)
    assert same(grouped.c, direct)


@pytest.mark.parametrize("shape", SHAPES[2:])
@pytest.mark.parametrize(("scheme", "options"), SCHEMES)
def test_schemes_give_the_bits_of_the_direct_evaluator(scheme, options, shape):
    m, n, k = shape
    a, b = operands(m, n, k, sum(shape) + 7)
    by_program, direct = both(a, b, scheme=scheme, **options)
    assert same(by_program.c, direct)


def test_native_fp16_against_the_integer_reference():
    a, b = (x.astype(np.float16) for x in (bits((20, 70), 5, -8, 8), bits((70, 18), 6, -8, 8)))
    got = hwsim.run(a, b, device="ascend910b3", functional=True, k_group=32).c
    assert same(got, product(a.view(np.uint16), b.view(np.uint16), 32, "ascend910b3"))


def test_blocking_changes_no_bit():
    a, b = operands(50, 70, 130, 3)
    scheme = scheme_of("sgemm-cube")
    plan = scheme.plan(scheme.complete({}), Problem.of("fp32", 50, 70, 130))
    inputs = {"A.in": a.view(np.uint32), "B.in": b.view(np.uint32)}
    found = []
    for options in (
        {},
        {"tile": {"m": 16, "n": 16, "k": 16}},
        {"tile": {"m": 32, "n": 64, "k": 48}, "step_ka": 4, "step_kb": 1},
        {"tile": {"m": 64, "n": 32, "k": 32}, "step_ka": 2, "step_kb": 4, "buffering": "single"},
        {"tile": {"m": 16, "n": 32, "k": 16}, "swizzle": 2},
        {"tile": {"m": 16, "n": 16, "k": 64}, "distribution": "block"},
        {"tile": {"m": 32, "n": 16, "k": 64}, "distribution": "block", "grid": (2, 3)},
        {"tile": {"m": 32, "n": 16, "k": 64}, "a_layout": "columns", "b_layout": "columns"},
    ):
        program = lower(plan, CHIP, 50, 70, 130, options)
        check(program, CHIP)
        found.append(functional.run(program, CHIP, inputs))
        timing.run(program, CHIP)
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("order", range(2))
@pytest.mark.parametrize("scheme", ["sgemm-cube", "ape-fp32-b"])
def test_every_legal_order_gives_the_same_bits(scheme, order):
    """The coalescing machine against one that copies for real and picks the order of engines at random."""
    m, n, k = 17, 18, 35
    a, b = operands(m, n, k, 13)
    own = scheme_of(scheme)
    plan = own.plan(own.complete({}), Problem.of("fp32", m, n, k))
    options = {"tile": {"m": 16, "n": 16, "k": 16}, "buffering": "single" if order == 1 else "double", "step_ka": 2}
    program = lower(plan, CHIP, m, n, k, options)
    inputs = {"A.in": a.view(np.uint32), "B.in": b.view(np.uint32)}
    assert np.array_equal(functional.run(program, CHIP, inputs), reference.run(program, CHIP, inputs, order=order))


def test_cube_and_vector_cores_meet_in_global_memory_alone():
    own = scheme_of("sgemm-cube")
    plan = own.plan(own.complete({"k_group": 64}), Problem.of("fp32", 200, 100, 300))
    program = lower(plan, CHIP, 200, 100, 300, {})
    cube, vector = {"M", "MTE1", "MTE2", "FIX"}, {"V", "VMTE2", "VMTE3"}
    names = [kernel.name for kernel in program.kernels]
    assert names == ["split_a", "split_b", "gemm_1", "gemm_2", "gemm_3", "sum_1", "sum_2", "sum_3", "combine"]
    for kernel in program.kernels:
        engines = {instr.engine for instr in kernel.instrs()}
        assert engines <= (cube if kernel.name.startswith("gemm") else vector)
    assert facts(program)["k_group"] == 64
    ends = {(link.source, link.target) for link in CHIP.links.values()}
    assert ("UB", "L1") not in ends and ("L0C", "UB") not in ends


def test_hf32_is_rounded_on_its_way_and_needs_no_pass():
    result = hwsim.run(m=64, n=64, k=64, device="ascend910b3", format="hf32", exact=False)
    assert [phase["name"] for phase in result.phases] == ["gemm"]


def test_the_fixpipe_rounds_to_half_formats():
    a, b = operands(40, 30, 70, 21)
    for output in ("fp16", "bf16"):
        result = hwsim.run(a, b, device="ascend910b3", format="fp32", output=output)
        assert [phase["name"] for phase in result.phases] == ["gemm"]
        assert result.traffic_bytes["L0C_GM"] == 40 * 30 * 2
        chip, plan = (
            CHIP,
            scheme_of("native").plan(scheme_of("native").complete({"format": "fp32"}), Problem.of("fp32", 40, 30, 70)),
        )
        program = lower(plan, chip, 40, 30, 70, {"output": output})
        codes = functional.run(program, chip, {"A": a.view(np.uint32), "B": b.view(np.uint32)})
        assert np.array_equal(codes, np.asarray(result.c).view(np.uint16))


def test_alpha_and_c_take_a_pass_of_the_vector_cores():
    a, b = operands(40, 30, 70, 31, specials=False)
    c = np.ones((40, 30), np.float32)
    result = hwsim.run(a, b, c, device="ascend910b3", format="fp32", alpha=2.0, beta=0.5)
    assert [phase["name"] for phase in result.phases] == ["gemm", "combine"]
    assert result.traffic_bytes["GM_UB"] == 2 * 40 * 30 * 4


def test_traffic_of_the_gemm_is_what_the_tiles_need():
    m, n, k = 1024, 1024, 512
    result = hwsim.run(m=m, n=n, k=k, device="ascend910b3", format="bf16", exact=False, tile=(128, 256, 64))
    assert [phase["name"] for phase in result.phases] == ["gemm"]  # operands lie there in bf16
    assert result.traffic_bytes["GM_L1"] == 2 * (m * k * (n // 256) + k * n * (m // 128))
    assert result.traffic_bytes["L0C_GM"] == 4 * m * n
    assert result.macs["useful"] == result.macs["padded"] == m * n * k


def test_packets_fill_l1_as_huaweis_do():
    """base 128 x 256 x 64 in FP16 with stepKa, stepKb = 8, 4 fills the 512 KB."""
    _, result = program(m=8192, n=8192, k=8192, device="ascend910b1", format="fp16", tile=(128, 256, 64))
    assert (facts(result)["step_ka"], facts(result)["step_kb"]) == (8, 4)


def test_unit_flag_saves_time_and_changes_no_bit():
    chip, sizes = load("ascend910b3"), (64, 96, 160)
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": "fp16"}), Problem.of("fp16", *sizes))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 0x7C00, shape).astype(np.uint16) for shape in ((64, 160), (160, 96)))
    given = {"tile": {"m": 128, "n": 256, "k": 64}}  # one tile of C in L0C
    plain, flagged = (lower(plan, chip, *sizes, given | {"unit_flag": flag}) for flag in (False, True))
    check(flagged, chip)
    assert facts(flagged)["unit_flag"] and not facts(plain)["unit_flag"]
    assert [s.name for s in flagged.kernels[0].semaphores if s.pieces] == ["C.L0.free", "C.L0.full"]
    results = [functional.run(made, chip, {"A": a, "B": b}) for made in (plain, flagged)]
    assert (results[0] == results[1]).all()
    larger = [lower(plan, chip, 512, 4096, 256, given | {"unit_flag": flag}) for flag in (False, True)]
    slow, fast = (timing.run(made, chip) for made in larger)
    assert fast.cycles < slow.cycles
    assert fast.engines["FIX"].busy_cycles > slow.engines["FIX"].busy_cycles  # its waiting is its own
    assert fast.engines["M"].busy_cycles > slow.engines["M"].busy_cycles  # so is that of products that trail it


def test_unit_flag_is_refused_where_the_device_has_none():
    chip = changed(load("ascend910b3"), {"flags.unit_bytes": None})
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": "fp16"}), Problem.of("fp16", 64, 64, 64))
    with pytest.raises(UnsupportedError, match="no UnitFlag"):
        lower(plan, chip, 64, 64, 64, {"unit_flag": True})
    with pytest.raises(InputError, match="unit_flag = 1; allowed: true, false"):
        lower(plan, load("ascend910b3"), 64, 64, 64, {"unit_flag": 1})


def test_a_grid_covers_c_once():
    for m, n, cores in ((8192, 8192, 24), (100, 3000, 20), (130, 40, 3), (1, 1, 5)):
        for given in (None, (1, cores), (cores, 1)):
            grid = BlockGrid.of(m, n, (128, 256), cores, given)
            groups = grid.groups(m, n)
            assert sum(count * rows * cols for _, count, rows, cols in groups) == m * n
            assert all(first + count <= cores for first, count, _, _ in groups)
    assert [g[1] for g in BlockGrid.of(8192, 8192, (128, 256), 24, (4, 6)).groups(8192, 8192)] == [20, 4]  # tail of 512


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tile": (256, 128, 128)}, "L0A"),
        ({"tile": (16, 512, 128)}, "L0B"),
        ({"tile": (256, 256, 16)}, "L0C"),
        ({"tile": (20, 16, 16)}, "m = 20"),
        ({"tile": (16, 16, 8)}, "k = 8"),
        ({"tile": (16, 16)}, "3"),
        ({"buffering": "triple"}, "single, double"),
        ({"swizzle": 0}, "swizzle = 0"),
        ({"n_fused": 4}, "n_fused = 4"),
        ({"b_layout": "turned"}, "b_layout = 'turned'; allowed: rows, columns"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(InputError, match=words):
        hwsim.run(m=64, n=64, k=64, device="ascend910b3", format="fp16", exact=False, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"distribution": "rows"}, "distribution = .rows.; allowed: cyclic, block"),
        ({"distribution": "block", "grid": (5, 5)}, "25 blocks"),
        ({"step_ka": 0}, "step_ka = 0"),
        ({"tile": {"m": 16, "n": 16, "k": 16}, "step_ka": 3, "step_kb": 2}, "multiple of the other"),
        ({"tile": {"m": 128, "n": 256, "k": 64}, "step_ka": 16}, "L1"),
    ],
)
def test_wrong_options_of_the_dataflow_are_named(options, words):
    own = scheme_of("native")
    plan = own.plan(own.complete({"format": "fp16"}), Problem.of("fp16", 64, 64, 64))
    with pytest.raises(InputError, match=words):
        lower(plan, CHIP, 64, 64, 64, options)


def mte2_busy(k, warm=0, chip=CHIP, **options):
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": "fp16"}), Problem.of("fp16", 128, 256, k))
    given = {"tile": {"m": 128, "n": 256, "k": 64}, "step_ka": 1, "step_kb": 1} | options
    return timing.run(lower(plan, chip, 128, 256, k, given), chip, warm=warm).engines["MTE2"].busy_cycles


def test_a_row_of_a_transfer_has_a_least_time():
    """Of A in packets of one block: 128 rows of 128 bytes, 1.3 cycles each by their bytes; B's 64 rows have 512."""
    link = CHIP.links["GM_L1"]
    a_row = 128 * float(link.conflict_factor) / float(link.bytes_per_cycle)
    assert a_row < link.row_cycles < 4 * a_row
    short = changed(CHIP, {"links.GM_L1.row_cycles": None})
    more = 2 * 128 * (link.row_cycles - a_row)
    assert mte2_busy(128, 1) - mte2_busy(128, 1, short) == pytest.approx(more, abs=0.1)
    assert mte2_busy(256, 1, step_ka=4) == mte2_busy(256, 1, short, step_ka=4)  # rows of 512 bytes


def test_what_comes_from_hbm_takes_the_link_longer():
    wide = changed(CHIP, {"hbm.bytes_per_second": 1e15, "links.GM_L1.row_cycles": None})
    assert mte2_busy(256, 0, wide) == pytest.approx(CHIP.links["GM_L1"].miss_factor * mte2_busy(256, 1, wide), rel=1e-6)


def test_columns_of_b_are_the_rows_of_its_packets_where_it_is_stored_so():
    """A packet of 256 x 64 of B is 64 rows of 512 bytes, or 256 columns of 128."""
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": "fp16"}), Problem.of("fp16", 128, 256, 128))
    assert mte2_busy(128, 1) == mte2_busy(128, 1, b_layout="rows")
    link = CHIP.links["GM_L1"]
    more = 256 * link.row_cycles - 64 * 512 * float(link.conflict_factor) / float(link.bytes_per_cycle)
    assert mte2_busy(128, 1, b_layout="columns") - mte2_busy(128, 1) == pytest.approx(2 * more, abs=0.1)
    assert facts(lower(plan, CHIP, 128, 256, 128, {"b_layout": "columns"}))["b_layout"] == "columns"


def test_a_gemm_of_16384_is_lowered_and_timed():
    result = hwsim.run(m=16384, n=16384, k=16384, device="ascend910b1", format="fp16", exact=False)
    assert result.tflops > 250
