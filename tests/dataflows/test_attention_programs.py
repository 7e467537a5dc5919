"""Programs of attention: the evaluator's bits for every kernel, any legal order, every tile once, cycles by hand."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.attending.attention_result import AttentionResult
from hwsim.backend.cpu import CPU
from hwsim.compute.attention_call import BACKENDS, _inputs, call_of
from hwsim.compute.timed_attention import fused_attention
from hwsim.dataflows.attention.query_tiles import distributed, grid_of
from hwsim.devices.numbers import with_numbers
from hwsim.errors import InputError, ProgramError, UnsupportedError
from hwsim.formats import codes_of, format_of
from hwsim.libraries.model import facts
from hwsim.libraries.published.flash_attention import VERSION_2, VERSION_3, VERSION_4
from hwsim.machines import reference, timing
from hwsim.program.builder import StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import CORE, Affine, Instr, Loop, evaluate

FLASH, EFFICIENT, CUDNN, _ = BACKENDS
TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}
#: Device, its cores (few, so that each has several tiles), backend, format, heads, heads of the key, queries, keys,
#: widths of key and value, causal.
CASES = {
    "flash, whole tiles": ("a100", 2, FLASH, "fp16", 7, 7, 128, 128, 16, 16, False),
    "flash, rests of tiles, shared heads": ("a100", 2, FLASH, "bf16", 6, 2, 140, 133, 24, 24, False),
    "flash, causal, rests": ("a100", 3, FLASH, "fp16", 3, 3, 270, 270, 32, 32, True),
    "flash, eight warps": ("a100", 2, FLASH, "bf16", 3, 3, 129, 70, 200, 200, False),
    "flash, small tiles": ("l40s", 2, FLASH, "fp16", 2, 2, 150, 150, 96, 96, True),
    "flash, one key": ("h100", 3, FLASH, "fp16", 5, 5, 200, 1, 64, 64, False),
    "flash, four keys in a chunk": ("h100", 2, FLASH, "bf16", 3, 3, 200, 100, 64, 64, False),
    "flash, parts": ("h100", 132, FLASH, "fp16", 2, 2, 100, 1000, 64, 64, False),
    "flash, parts, causal": ("h100", 20, FLASH, "bf16", 4, 2, 300, 300, 128, 128, True),
    "flash, parts, one query for each group of heads": ("a100", 108, FLASH, "fp16", 24, 8, 1, 777, 128, 128, False),
    "efficient": ("a100", 2, EFFICIENT, "fp16", 3, 3, 100, 150, 64, 64, False),
    "efficient, causal, other width of the value": ("a100", 3, EFFICIENT, "bf16", 2, 2, 100, 300, 40, 72, True),
    "efficient, sums in memory": ("a100", 2, EFFICIENT, "fp16", 3, 3, 70, 300, 136, 136, False),
    "efficient, sums in memory, causal": ("h100", 2, EFFICIENT, "bf16", 2, 2, 200, 200, 256, 256, True),
    "FlashAttention-2 by its authors, causal": ("a100", 2, VERSION_2, "fp16", 3, 1, 200, 200, 64, 64, True),
    "FlashAttention-2 by its authors, parts": ("h100", 132, VERSION_2, "bf16", 2, 2, 100, 1000, 64, 64, False),
    "FlashAttention-3": ("h100", 3, VERSION_3, "bf16", 4, 2, 200, 400, 128, 128, False),
    "FlashAttention-3, causal, three warpgroups": ("h100", 2, VERSION_3, "fp16", 3, 3, 290, 290, 64, 64, True),
    "FlashAttention-3, another width of the value": ("h100", 2, VERSION_3, "bf16", 2, 2, 130, 260, 192, 128, False),
    "FlashAttention-3, e4m3": ("h100", 2, VERSION_3, "e4m3", 3, 3, 200, 333, 64, 64, False),
    "FlashAttention-3, e4m3, causal, a width of its own": ("h100", 2, VERSION_3, "e4m3", 2, 2, 290, 290, 80, 80, True),
    "FlashAttention-3, e4m3, shared heads": ("h100", 3, VERSION_3, "e4m3", 4, 2, 130, 460, 128, 128, False),
    "FlashAttention-3, e4m3, causal, wide, shared": ("h100", 2, VERSION_3, "e4m3", 3, 1, 150, 150, 256, 256, True),
    "FlashAttention-3, e4m3, other width of the value": ("h100", 2, VERSION_3, "e4m3", 2, 2, 9, 67, 192, 128, False),
    "FlashAttention-3, e4m3, three keys": ("h100", 2, VERSION_3, "e4m3", 2, 1, 1, 3, 64, 32, False),
    "FlashAttention-3, e4m3, one key": ("h100", 2, VERSION_3, "e4m3", 2, 1, 5, 1, 16, 16, False),
    "FlashAttention-4, rests of tiles and blocks": ("b200", 2, VERSION_4, "bf16", 3, 3, 300, 300, 72, 40, False),
    "FlashAttention-4, pairs, shared heads": ("b200", 2, VERSION_4, "fp16", 2, 1, 200, 410, 128, 128, False),
    "FlashAttention-4, causal": ("b200", 2, VERSION_4, "bf16", 2, 2, 290, 290, 64, 64, True),
    "FlashAttention-4, wide": ("b200", 2, VERSION_4, "fp16", 2, 2, 130, 200, 192, 128, False),
    "cuDNN": ("h100", 3, CUDNN, "fp16", 4, 2, 200, 300, 64, 64, False),
    "cuDNN, causal, fewer rows than half a tile": ("h100", 2, CUDNN, "bf16", 2, 2, 310, 310, 128, 128, True),
}


def drawn(case, seed=0):
    _, _, _, fmt, heads, key_heads, queries, keys, width, value_width, _ = case
    draw = np.random.default_rng(seed)
    shapes = (heads, queries, width), (key_heads, keys, width), (key_heads, keys, value_width)
    return [draw.standard_normal(shape).astype(TYPES[fmt]) for shape in shapes]


@cache
def chip_of(name, cores):
    return with_numbers(hwsim.device(name), {"cores": cores})


def attended(case, operands, **options) -> AttentionResult:
    device, cores, kernel, *_, is_causal = case
    who = {"backend": kernel} if kernel in BACKENDS else {"library": kernel}
    return hwsim.attention(*operands, device=chip_of(device, cores), is_causal=is_causal, **who, **options)


@pytest.mark.parametrize("name", CASES)
def test_the_program_has_the_evaluator_s_bits(name):
    case = CASES[name]
    operands = drawn(case)
    operands[0] *= operands[0].dtype.type(3)  # so that the largest score lags behind where it may
    by_program = attended(case, operands, functional=True)
    assert by_program.by_program and ("parts" in name) == (by_program.order.parts > 1)
    assert np.array_equal(by_program.codes, attended(case, operands).codes)


@pytest.mark.parametrize("is_causal", [False, True])
def test_factors_of_heads_are_inputs_of_the_program(is_causal):
    case = ("h100", 2, VERSION_3, "e4m3", 4, 2, 230, 230, 64, 64, is_causal)
    operands = drawn(case)
    factors = np.random.default_rng(7).uniform(0.25, 4, (3, 2)).astype(np.float32)
    names = ("query_descale", "key_descale", "value_descale")
    more = dict(zip(names, factors, strict=True))
    by_program, direct = (attended(case, operands, functional=functional, **more) for functional in (True, False))
    assert np.array_equal(by_program.codes, direct.codes) and by_program.out.dtype == ml_dtypes.bfloat16
    plain = attended(case, operands, functional=True)
    assert not np.array_equal(plain.codes, direct.codes) and plain.record.digest != direct.record.digest
    ones = {name: np.ones(2, np.float32) for name in names}
    assert np.array_equal(attended(case, operands, functional=True, **ones).codes, plain.codes)
    assert plain.cycles < direct.cycles < 1.05 * plain.cycles
    for name in names:  # of the second head alone
        only = {**ones, name: np.array([1, 2], np.float32)}
        got = attended(case, operands, functional=True, **only)
        differs = (got.codes != plain.codes).any(axis=(1, 2))
        assert differs.tolist() == [False, False, True, True]
    with pytest.raises(UnsupportedError, match=r"is -0\.125 for a head; programs take a factor of the scores above 0"):
        attended(case, operands, functional=True, key_descale=np.array([1, -1], np.float32))


def test_numbers_at_the_ends_of_e4m3():
    """The largest, subnormals, NaNs and -0, in scores far apart."""
    case = ("h100", 2, VERSION_3, "e4m3", 3, 3, 200, 330, 64, 64, False)
    query, key, value = drawn(case, 2)
    draw = np.random.default_rng(5)
    for array in (query, key, value):
        codes = array.view(np.uint8)
        codes[0, ::7] = draw.integers(0, 8, codes[0, ::7].shape) | 0x80 * draw.integers(0, 2, codes[0, ::7].shape)
        codes[1, 3::11], codes[1, 5::11] = 0x7E, 0xFE  # 448 and -448
    key[2, 100], value[2, 31, 3] = np.nan, np.nan
    first, second = (attended(case, (query, key, value), functional=functional) for functional in (True, False))
    assert np.array_equal(first.codes, second.codes)
    assert np.isnan(second.out[2].astype(float)).any() and np.isfinite(second.out[:2].astype(float)).all()


def test_values_of_8_bits_are_transposed_in_shared_memory():
    """192 queries, 320 keys, heads of 64 on an H100: copies of V, and what each engine is busy, from the rates."""
    zero = np.zeros((), TYPES["e4m3"])
    queries, keys = (np.broadcast_to(zero, (1, rows, 64)) for rows in (192, 320))
    result = hwsim.attention(queries, keys, keys, device="h100", library=VERSION_3, exact=False, clock_mhz=1755)
    assert (result.order.rows, result.order.keys) == (192, 160)
    busy = {name: engine["busy_cycles"] for name, engine in result.engines.items()}
    assert result.traffic_bytes["SMEM_RF"] == result.traffic_bytes["RF_SMEM"] == 320 * 64
    assert busy["LDS"] == busy["STS"] == 320 * 64 / 128
    assert result.traffic_bytes["RF_GM"] == 2 * 192 * 64  # a result of bf16
    assert busy["MUFU"] == (192 * 320 + 192 + 192) / 16  # powers, the change of the largest score, 1 / sum
    assert result.times.timed.macs == 2 * 192 * 320 * 64
    bytes_of_16_bits = hwsim.attention(
        *(x.astype(np.float16) for x in (queries, keys, keys)), device="h100", library=VERSION_3, exact=False
    ).traffic_bytes
    assert "SMEM_RF" not in bytes_of_16_bits


@pytest.mark.parametrize(("backend", "width"), [(EFFICIENT, 64), (EFFICIENT, 136), (CUDNN, 72)])
@pytest.mark.parametrize("heads", [1, 3])
def test_a_mask_of_one_s_own(heads, backend, width):
    query, key, value = drawn(("h100", 2, backend, "bf16", 3, 3, 100, 150, width, width, False))
    mask = np.random.default_rng(4).standard_normal((heads, 100, 150)).astype(TYPES["bf16"])
    mask[:, 7], mask[:, 9, :130] = -np.inf, -np.inf
    more = {"device": chip_of("h100", 2), "mask": mask}
    by_program = hwsim.attention(query, key, value, backend=backend, functional=True, **more)
    first = hwsim.attention(query, key, value, backend=backend, **more)
    assert first.record.mask == ("shared" if heads == 1 else "own") and not first.out[:, 7].any()
    assert np.array_equal(by_program.codes, first.codes)
    without = hwsim.attention(query, key, value, backend=backend, device=more["device"])
    assert without.cycles < first.cycles and "GM_RF" not in without.traffic_bytes
    assert first.traffic_bytes["GM_RF"] == 2 * 3 * 100 * 150


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_infinities_and_nans_are_the_evaluator_s_too(backend, is_causal):
    query, key, value = drawn(("h100", 132, backend, "fp16", 3, 3, 200, 200, 64, 64, is_causal), 3)
    value[0, 150, 3], value[1, 199, 5], query[0, 5, 3], key[1, 170, 2] = np.inf, np.nan, np.nan, np.inf
    query[2, 7] *= 200
    first, second = (
        hwsim.attention(query, key, value, backend=backend, is_causal=is_causal, functional=functional)
        for functional in (True, False)
    )
    assert np.isnan(second.out).any() and np.array_equal(first.codes, second.codes)


def test_powers_below_the_normal_range_count():
    """Scores 88 below a row's largest have a power of 2^-126.96: CUDA's exp2f gives it, where ex2 alone gives 0."""
    query, key, value = (np.zeros((1, 64, 16), ml_dtypes.bfloat16) for _ in range(3))
    query[..., 0], key[0, 5, 0], value[:] = 1, 88, 2.0**100
    value[0, 5] = 0
    first, second = (
        hwsim.attention(query, key, value, backend=FLASH, scale=1.0, functional=functional)
        for functional in (True, False)
    )
    assert np.array_equal(first.codes, second.codes) and (first.out.astype(float) > 2.0**-22).all()


@pytest.mark.parametrize("scale", [0.3, 2.5])
def test_a_scale_of_one_s_own(scale):
    case = CASES["efficient"]
    operands = drawn(case)
    first, second = (attended(case, operands, scale=scale, functional=functional) for functional in (True, False))
    assert np.array_equal(first.codes, second.codes)
    assert not np.array_equal(first.codes, attended(case, operands).codes)


ORDERS = (
    *("flash, parts, causal", "cuDNN, causal, fewer rows than half a tile", "efficient", "FlashAttention-4, causal"),
    "FlashAttention-3, e4m3, causal, a width of its own",
)


@pytest.mark.parametrize("name", ORDERS)
def test_any_legal_order_gives_the_same_bits(name):
    case = CASES[name]
    keys = 260 if case[2] in (FLASH, EFFICIENT) else 130
    width = 32 if case[3] == "e4m3" else 24
    case = (*case[:4], 2, 1, keys, keys, width, width, case[-1]) if case[2] != EFFICIENT else case
    operands = drawn(case)
    who = ("pytorch", case[2]) if case[2] in BACKENDS else (case[2], None)
    arguments = {"library": who[0], "backend": who[1], "is_causal": case[-1], "scale": None}
    call = call_of(*operands, device=chip_of(*case[:2]), **arguments)
    assert ("parts" in name) == (call.record.order.parts > 1)
    stacks = [codes_of(x, format_of(case[3])) for x in operands]
    want = attended(case, operands).codes
    for order in range(2):
        codes = reference.run(call.program, call.device, _inputs(call.record, stacks), order=order, dots=CPU.gemm)
        assert np.array_equal(codes.reshape(want.shape), want)


def record_of(heads, queries, keys, *, is_causal, backend=FLASH, groups=1, device="a100"):
    zero = np.float16(0)
    shapes = (heads, queries, 64), (heads // groups, keys, 64), (heads // groups, keys, 64)
    operands = [np.broadcast_to(zero, shape) for shape in shapes]
    call = call_of(*operands, device=device, library="pytorch", backend=backend, is_causal=is_causal, scale=None)
    return call.record


def tiles_of(record, cores, beside):
    """(head, tile of the head, part) of every tile that some core computes, in any order, and the load of each core."""
    grid, tiles, loads = grid_of(record), [], {}
    for share in distributed(record, grid, cores, beside):
        for core in range(share.first, share.first + share.count):
            assert core not in loads
            loads[core] = 0
            for turn in share.turns:
                loads[core] += turn.shape.blocks * turn.tiles * turn.count
                for index in range(turn.count):
                    s = StreamBuilder("s")
                    for place in turn.places(s, Affine(index)):
                        values = {CORE: core}
                        for one in s.finish().derived:
                            quotient, remainder = divmod(evaluate(one.of, values), one.divisor)
                            values[one.name] = quotient if one.part == "quotient" else remainder
                        tiles.append((evaluate(place.head, values), evaluate(place.tile, values), turn.part))
    return tiles, loads


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("cores", [1, 5, 108])
def test_every_tile_is_computed_once(cores, is_causal):
    for heads, queries, parts, beside in itertools.product((1, 2, 7, 300), (1, 128, 300, 1000), (1, 3), (1, 2)):
        record = record_of(heads, queries, queries, is_causal=is_causal)
        record = replace(record, order=replace(record.order, parts=parts, rows=128, keys=64))
        grid = grid_of(record)
        tiles, _ = tiles_of(record, cores, beside)
        assert sorted(tiles) == sorted(itertools.product(range(heads), range(grid.tiles), range(parts)))


def test_a_causal_mask_s_tiles_are_dealt_evenly():
    _, loads = tiles_of(record_of(32, 4096, 4096, is_causal=True), 108, 2)
    mean = sum(loads.values()) / 108
    assert len(loads) == 108 and max(loads.values()) < 1.15 * mean


def test_cycles_of_one_tile_by_hand():
    """128 queries, 128 keys, heads of 64 on an A100, one tile: what each engine is busy, from the device's rates."""
    record = record_of(1, 128, 128, is_causal=False)
    assert (record.order.rows, record.order.keys, record.order.parts) == (128, 128, 1)
    zero = np.broadcast_to(np.float16(0), (1, 128, 64))
    result = hwsim.attention(zero, zero, zero, device="a100", backend=FLASH, exact=False, clock_mhz=1410)
    busy = {name: engine["busy_cycles"] for name, engine in result.engines.items()}
    scores, columns = 128 * 128 // 64, 128 // 64  # instructions of 64 lanes for all scores, for a column of rows
    largest = scores + 2 * columns + columns + columns  # maxima; without an infinity; the copy; times the factor
    powers = (2 + 2 + 1 + 1) * scores  # times the factor less the maximum; halved; squared; added
    casts = 2 * scores
    first = 128 * 8 // 64 + 4 * 2 * columns  # the first eight columns: a copy; of each lane a multiply-add, and a zero
    begin, sums = columns + 4 * columns + columns, 4 * columns + first
    division = 2 * columns + 4 * columns + 128 * 64 // 64 + 2 * 128 * 64 // 64  # and the result's cast
    assert busy["FMA"] == begin + largest + powers + casts + sums + division
    assert busy["MUFU"] == 128 * 128 / 16
    assert busy["TC"] == 2 * 128 * 128 * 64 / 1024
    fragments = 2 * 128 * (64 + 4 * 64 + 4 * 64)  # Q once; K and V by each of four warps
    assert busy["LDS"] == fragments / 128
    assert result.traffic_bytes["L2 read"] == 3 * 128 * 64 * 2 and result.traffic_bytes["RF_GM"] == 128 * 64 * 2


def test_cycles_of_one_tile_on_a_b200_by_hand():
    """128 queries, 256 keys, heads of 64: what lanes, special functions, matrix unit and copies are busy."""
    queries, keys = (np.broadcast_to(np.float16(0), (1, rows, 64)) for rows in (128, 256))
    result = hwsim.attention(queries, keys, keys, device="b200", library=VERSION_4, exact=False, clock_mhz=1500)
    busy = {name: engine["busy_cycles"] for name, engine in result.engines.items()}
    scores, result_instrs = 128 * 128 // 128, 128 * 64 // 128  # instructions of 128 lanes; a column of rows is one
    cubics = 4 * 128 * 4 // 128  # two fragments of 32 columns have two runs of four each
    largest = 2 * scores + 4 + 1 + 1  # maxima; without an infinity; times the factor; the copy
    powers = scores + 9 * cubics + scores + 2 * scores + 4 * 8  # arguments, cubics, sums, casts; a wait for each 32
    rescale = 1 + 1 + 3 * 4 + 1 + result_instrs  # the change, times the factor; three choices; the sum; the result
    begin, end = 4, 4 + 1 + result_instrs + 2 * result_instrs
    assert busy["FMA"] == begin + 2 * (largest + powers) + rescale + end
    assert busy["MUFU"] == (2 * 128 * (128 - 16) + 2 * 128) / 16
    assert busy["TC"] == 2 * 2 * 128 * 128 * 64 / 4096
    assert result.times.timed.macs == 2 * 128 * 256 * 64


@pytest.mark.parametrize(("device", "backend"), [("a100", FLASH), ("h100", FLASH), ("h100", CUDNN)])
def test_no_engine_takes_less_than_its_work(device, backend):
    shape = (64, 512, 128)
    zero = np.broadcast_to(np.float16(0), shape)
    result = hwsim.attention(zero, zero, zero, device=device, backend=backend, exact=False, clock_mhz=1400)
    scores, chip = 64 * 512 * 512, hwsim.device(device)
    assert result.engines["MUFU"]["busy_cycles"] >= scores / 16
    assert result.times.timed.macs == 2 * scores * 128
    assert result.cycles * chip.cores > max(engine["busy_cycles"] for engine in result.engines.values())


def test_a_causal_mask_saves_what_it_hides():
    zero = np.broadcast_to(np.float16(0), (108, 2048, 64))
    dense, causal = (
        hwsim.attention(zero, zero, zero, device="a100", exact=False, is_causal=mask) for mask in (False, True)
    )
    assert 0.5 < causal.cycles / dense.cycles < 0.6
    assert causal.times.timed.macs < 0.54 * dense.times.timed.macs


def test_two_tiles_go_in_step_where_nothing_makes_them_alternate():
    """With two tiles of FlashAttention-2 on a core no softmax runs beside products; tiles that alternate are faster."""
    zero = np.broadcast_to(np.float16(0), (216, 128, 1024))[..., :64]
    keys = np.broadcast_to(np.float16(0), (216, 2048, 64))
    arguments = {"library": "pytorch", "backend": FLASH, "is_causal": False, "scale": None, "clock_mhz": 1410}
    both = call_of(zero, keys, keys, device="a100", **arguments)
    half = call_of(zero[:108], keys[:108], keys[:108], device="a100", **arguments)
    assert both.record.order.parts == half.record.order.parts == 1
    in_step, alone = both.timed.times().cycles, half.timed.times().cycles
    assert 1.9 < in_step / alone < 2
    in_turns = replace(both.record, order=replace(both.record.order, in_step=False))
    assert fused_attention(in_turns, both.device, both.kernel.instruction).times().cycles < 1.6 * alone


def test_what_has_no_program_says_why():
    zero = np.broadcast_to(np.float16(0), (1, 64, 64))
    for scale, said in ((0.0, "above 0"), (-1.0, "above 0")):
        result = hwsim.attention(zero, zero, zero, scale=scale)
        assert result.cycles is None and said in result.timing_note and result.trace is None
        with pytest.raises(UnsupportedError, match=said):
            hwsim.attention(zero, zero, zero, scale=scale, functional=True)
    small = with_numbers(hwsim.device("a100"), {"memories.SMEM.capacity_bytes": 4096})
    result = hwsim.attention(zero, zero, zero, device=small)
    assert result.cycles is None and "bytes of SMEM, which has 4,096" in result.timing_note
    bare = hwsim.device("a100").model_copy(update={"special": None})
    assert "special-function unit" in hwsim.attention(zero, zero, zero, device=bare).timing_note


def test_too_little_memory_is_one_error():
    zero = np.broadcast_to(np.float16(0), (1 << 16, 4096, 128))
    for functional in (False, True):
        with pytest.raises(InputError, match="GB of memory"):
            hwsim.attention(zero, zero, zero, functional=functional)
    mask = np.broadcast_to(False, (1 << 16, 4096, 4096))
    with pytest.raises(InputError, match=r"a mask of 65536 x 4096 x 4096 elements need .* GB of memory"):
        hwsim.attention(zero, zero, zero, mask=mask, exact=False)


def broken(body, wanted, change):
    return tuple(
        replace(node, body=broken(node.body, wanted, change))
        if isinstance(node, Loop)
        else change(node)
        if isinstance(node, Instr) and wanted(node)
        else node
        for node in body
    )


@pytest.mark.parametrize(
    ("wanted", "change", "said"),
    [
        (
            lambda x: x.opcode == "reduce_largest",
            lambda x: replace(x, waits=()),
            "no semaphore orders the two|leaks",
        ),
        (lambda x: x.opcode == "ex2", lambda x: replace(x, engine="FMA"), "special-function unit"),
        (lambda x: x.opcode == "reduce_meet", lambda x: replace(x, scale_exponent=3), "allowed: 1 and 2"),
        (
            lambda x: x.opcode == "reduce_lanes",
            lambda x: replace(x, writes=(replace(x.writes[0], cols=2),)),
            "reduce_lanes takes",
        ),
    ],
)
def test_the_checker_refuses_a_wrong_softmax(wanted, change, said):
    zero = np.broadcast_to(np.float16(0), (1, 128, 64))
    arguments = {"library": "pytorch", "backend": FLASH, "is_causal": False, "scale": None}
    call = call_of(zero, zero, zero, device="a100", **arguments)
    (kernel,) = call.program.kernels
    groups = tuple(
        replace(group, streams=tuple(replace(s, body=broken(s.body, wanted, change)) for s in group.streams))
        for group in kernel.groups
    )
    with pytest.raises(ProgramError, match=said):
        check(replace(call.program, kernels=(replace(kernel, groups=groups),)), call.device)


@pytest.mark.parametrize(
    ("backend", "shape", "said"),
    [
        (
            FLASH,
            (64, 512, 64),
            "took 0.92 to 1.8 times as long, compared at the .* clock under load .38 calls, heads of 64, 96 and 128",
        ),
        (FLASH, (64, 512, 256), "took 0.89 to 1.2 times as long, .* .12 calls, heads of 256"),
        (CUDNN, (64, 512, 64), "took 0.83 to 1.6 times"),
        (EFFICIENT, (64, 512, 32), "took 1.6 to 2.2 times"),
        (
            FLASH,
            (1, 100, 64),
            "no chip's time was compared with this kernel's; .* up to 2.3 times as long as simulated",
        ),
    ],
)
def test_the_verdict_says_how_far_a_chip_s_time_is(backend, shape, said):
    queries, keys = (np.broadcast_to(np.float16(0), (shape[0], rows, shape[2])) for rows in (shape[1], 1024))
    result = hwsim.attention(queries, keys, keys, device="h100", backend=backend, exact=False)
    assert (result.order.parts > 1) == said.startswith("no chip")
    assert re.search(said, result.verdict.sentences[1])


def test_the_measured_calls_are_the_recorded_ones():
    """Their number is of the recorded times; the calls of lab/docs/attention.md lie in the range."""
    lab = Path(__file__).parents[2] / "lab"
    rows = [
        (row["backend"], int(row["width"]))
        for name in ("attention_times.csv", "attention_other_times.csv", "attention_math_times.csv")
        for row in csv.DictReader((lab / "hwsim_lab" / "configs" / "measured" / name).open())
        if float(row["us"]) >= facts.attention_kernels().times.least_us
    ]
    page = (lab / "docs" / "attention.md").read_text()
    found = re.findall(r"^\| (\w+) \| [^|]*, (\d+) \| \w+ \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    longer = [(name, int(width), float(us) / float(ours)) for name, width, us, ours in found if float(us) > 50]
    assert len(longer) == 68
    measured = facts.attention_kernels().times.calls.values()
    for backend in {one.backend for one in measured}:
        groups = [one for one in measured if one.backend == backend]
        assert sum(calls.calls for calls in groups) == sum(name == backend for name, _ in rows)
        for calls in groups:
            assert calls.calls == sum(name == backend and width in calls.widths for name, width in rows)
            times = [ratio for name, width, ratio in longer if name == backend and width in calls.widths]
            least, median, most = calls.same_clock
            assert all(least - 0.005 <= ratio <= most + 0.005 for ratio in times)
            assert least < median < most and calls.under_load[0] < calls.under_load[1] < calls.under_load[2]


def test_the_range_is_of_the_clock_of_the_time():
    zero = np.broadcast_to(np.float16(0), (64, 512, 64))
    groups = next(one for one in facts.attention_kernels().times.calls.values() if one.backend == FLASH)
    for clock, kept, words in (
        (None, groups.under_load, "clock under load"),
        (1980, groups.same_clock, "one clock"),
    ):
        result = hwsim.attention(zero, zero, zero, device="h200", backend=FLASH, exact=False, clock_mhz=clock)
        assert (result.measured["least"], result.measured["median"], result.measured["most"]) == kept
        assert result.measured["expected_seconds"] == pytest.approx(kept[1] * result.seconds)
        assert result.to_dict()["measured"] == result.measured
        assert f"{kept[0]:.2g} to {kept[2]:.2g} times as long, compared at " in result.verdict.sentences[1]
        assert words in result.verdict.sentences[1]


def test_the_trace_names_the_engines():
    zero = np.broadcast_to(np.float16(0), (2, 256, 64))
    result = hwsim.attention(zero, zero, zero, exact=False)
    trace = result.trace
    assert {"TC", "FMA", "MUFU", "TMA", "STG"} == {trace.names["engine"][i] for i in set(trace.rows["engine"].tolist())}
    assert trace.rows["end"].max() <= result.cycles
    part = result.traced(core=0, from_cycle=0, to_cycle=1000)
    assert 0 < len(part) < len(trace)
    with pytest.raises(InputError, match="from < to"):
        result.traced(from_cycle=5, to_cycle=5)


def test_comparisons_have_a_time_of_their_own():
    chip = hwsim.device("h100")
    assert (chip.vector.time_of("compare"), chip.vector.time_of("add")) == (2, 1)
    assert hwsim.device("a100").vector.time_of("compare") == 1  # as additions
    # 64 a cycle, on every chip with 64 lanes or 128
    for name in ("a100", "a40", "a10", "rtx3090", "l40s", "rtx4090", "h100", "h200", "b200"):
        vector = hwsim.device(name).vector
        assert vector.repeat_bytes / 4 / vector.time_of("compare") == 64
    assert timing.missing(chip) is None
