"""What the campaigns of lab/tools/fuzz and earlier trials found, one test each."""

import json
import re
import zipfile

import numpy as np
import pytest

import hwsim
from hwsim import _kernels
from hwsim.arithmetic.lanes import Lanes
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec
from hwsim.devices.loader import expanded
from hwsim.errors import ConfigError, HwsimError, InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.golden.format import GoldenSet, Meta, read_meta, read_sets, write_sets
from hwsim.host import memory
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, FusedUnit, Specials


def changed(name, path, value):
    tree = expanded(hwsim.device(name))
    block = tree
    for part in path[:-1]:
        block = block[part]
    old = block[path[-1]]
    block[path[-1]] = {**old, "value": value} if isinstance(old, dict) and "value" in old else value
    return tree


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("h200", ("l2", "latency_ns"), 2.0**63),
        ("h200", ("clock_mhz",), 1e308),
        ("h200", ("cores",), 10**7),
        ("h200", ("launch_overhead_us",), 1e308),
        ("ascend910a", ("memories", "L1", "capacity_bytes"), 10**15),
        ("ascend910a", ("engines", "M", "issue_cycles"), 1e18),
        ("ascend910a", ("engines", "M", "queue_depth"), 2**63),
    ],
)
def test_a_number_that_no_chip_has_is_refused_where_it_stands(name, path, value):
    with pytest.raises(ConfigError, match="must be at most"):
        hwsim.device(changed(name, path, value))


@pytest.mark.parametrize("key", ["m", "n", "k"])
def test_an_instruction_s_extent_is_bounded(key):
    tree = expanded(hwsim.device("a100"))
    one = next(iter(tree["instructions"].values()))
    one[key] = {**one[key], "value": 2**62} if isinstance(one[key], dict) else 2**62
    with pytest.raises(ConfigError, match=rf"\.{key}: got 4611686018427387904; must be at most 100000"):
        hwsim.device(tree)


@pytest.mark.parametrize("link", [("L0C", "GM"), ("GM", "L1"), ("L1", "L0A"), ("L1", "L0B")])
def test_a_link_that_the_cube_s_dataflow_needs_is_named(link):
    tree = expanded(hwsim.device("ascend910b1"))
    for name in [x for x, entry in tree["links"].items() if (entry["from"], entry["to"]) == link]:
        del tree["links"][name]
    with pytest.raises(UnsupportedError, match=f"no link from {link[0]} to {link[1]}"):
        hwsim.run(device=tree, format="fp16", m=64, n=64, k=64, exact=False)


@pytest.mark.parametrize("link", [("L1", "L0A"), ("L1", "L0B"), ("GM", "L1"), ("UB", "GM"), ("GM", "UB")])
def test_a_link_that_the_coupled_core_s_dataflow_needs_is_named(link):
    tree = expanded(hwsim.device("ascend910a"))
    for name in [x for x, entry in tree["links"].items() if (entry["from"], entry["to"]) == link]:
        del tree["links"][name]
    with pytest.raises(UnsupportedError, match=f"no link from {link[0]} to {link[1]}"):
        hwsim.run(device=tree, format="fp16", m=64, n=64, k=64, exact=False)


def test_a_unit_adds_no_more_than_its_instruction_s_operands():
    with pytest.raises(ConfigError, match=r"k: got 8; must be a multiple of the 40 terms of unit tf32"):
        hwsim.device(changed("a100", ("dot_units", "tf32", "terms"), 40))


def test_n_last_is_no_smaller_than_n():
    tree = expanded(hwsim.device("h200"))
    name = next(x for x, entry in tree["instructions"].items() if "n_last" in entry)
    with pytest.raises(ConfigError, match="n_last is at least n"):
        hwsim.device(changed("h200", ("instructions", name, "n_last"), 2))


@pytest.mark.parametrize("mhz", [5e-324, 1e-9, 1e9])
def test_a_clock_is_one(mhz):
    with pytest.raises(InputError, match=r"clock_mhz = .*; allowed: a number of MHz of at least 0.001 and at most"):
        hwsim.run(device="a100", m=16, n=16, k=16, exact=False, clock_mhz=mhz)


def test_a_large_core_memory_gives_an_answer():
    tree = changed("ascend910a", ("memories", "L0A", "capacity_bytes"), 655_360_000)
    assert hwsim.run(device=tree, format="fp16", m=64, n=64, k=64, exact=False).cycles > 0


def test_messages_show_control_characters_as_escapes():
    tree = expanded(hwsim.device("h200")) | {"title": "\x1b[2J"}
    with pytest.raises(ConfigError, match="without control characters") as caught:
        hwsim.device(tree)
    assert "\x1b" not in str(caught.value) and r"\x1b" in str(caught.value)
    with pytest.raises(UnsupportedError) as unknown:
        hwsim.device("h2\x1b00\0")
    assert str(unknown.value).isprintable()


def test_a_file_with_the_key_value_is_no_number():
    with pytest.raises(ConfigError, match="unknown key 'value'"):
        hwsim.device(expanded(hwsim.device("h200")) | {"value": 3})


def test_what_memory_does_not_hold_is_refused_before_it_is_drawn(monkeypatch):
    with pytest.raises(InputError, match="m = 10000000000; allowed"):
        hwsim.run(m=10**10, n=1, k=1)
    with pytest.raises(InputError, match=r"A, B and C of m, n, k = 1000000000, 1000000000, 2 need .* GB of memory"):
        hwsim.run(m=10**9, n=10**9, k=2)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 19)
    monkeypatch.setattr(memory, "ALWAYS_THERE", 0)
    a = np.ones((512, 1), np.float32)
    with pytest.raises(InputError, match=r"^C of m, n, k = 512, 512, 1 need 0\.00 GB"):
        hwsim.matmul(a, a.T, device="h200", format="fp16")
    assert hwsim.matmul(a, a.T, device="h200", format="fp16", rows=[3]).shape == (1, 512)


def small_set(value=3):
    a = np.full((1, 2, 4), value, np.uint16)
    return GoldenSet("mma", "set", a, a, np.zeros((1, 2, 2), np.uint32), np.zeros((1, 2, 2), np.uint32))


def test_a_golden_archive_knows_its_arrays(tmp_path):
    file, other = tmp_path / "x.npz", tmp_path / "y.npz"
    write_sets(file, [small_set()], Meta("self", "a100"))
    write_sets(other, [small_set(4)], Meta("self", "a100"))
    assert read_meta(file) == Meta("self", "a100") and len(list(read_sets(file))) == 1
    with zipfile.ZipFile(file) as one, zipfile.ZipFile(other) as two, zipfile.ZipFile(tmp_path / "z.npz", "w") as both:
        for name in one.namelist():
            both.writestr(name, (two if name.endswith("/a.npy") else one).read(name))
    with pytest.raises(InputError, match="SHA-256"):
        list(read_sets(tmp_path / "z.npz"))


def test_an_archive_with_a_nameless_array_is_damaged(tmp_path):
    file = tmp_path / "x.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("ab", b"x")
    raw = file.read_bytes()
    at = raw.rindex(b"PK\x01\x02")
    name_length = at + 28
    file.write_bytes(raw[:name_length] + b"\0\0" + raw[name_length + 2 : at + 46] + raw[at + 48 :])
    with pytest.raises(HwsimError):
        list(read_sets(file))


def test_a_sum_of_many_slices_has_a_record():
    made = hwsim.run(device="h200", scheme="ozaki-int8", slices=64, m=3, n=2, k=5, timing=False)
    record = made.gemm
    assert type(record).from_dict(json.loads(record.to_json())).digest == record.digest


def test_results_narrower_than_a_byte_are_not_a_program_s():
    given = {"device": "rtx2080ti", "scheme": "le-gemm", "output": "int4", "m": 32, "n": 67, "k": 17}
    assert hwsim.run(**given).c.shape == (32, 67)
    with pytest.raises(UnsupportedError, match="whole bytes"):
        hwsim.run(functional=True, **given)


def doubles(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("scheme", ["ozaki-int8", "ozaki-fp16"])
def test_exact_sums_have_an_epilogue(scheme):
    """alpha, beta C and the bias were left out where the output was the sum's own fp64."""
    a, b, c, bias = doubles(1, 5, 19), doubles(2, 19, 4), doubles(3, 5, 4), doubles(4, 4)
    given = {"device": "a100", "scheme": scheme, "sum": "exact"}
    acc = hwsim.matmul(a, b, **given)
    assert np.array_equal(hwsim.matmul(a, b, alpha=-2.5, **given), -2.5 * acc)
    assert np.array_equal(hwsim.matmul(a, b, bias=bias, **given), acc + bias)
    assert np.array_equal(hwsim.matmul(a, b, c, beta=0.0, **given), acc)
    assert np.array_equal(hwsim.matmul(a, b, c, **given), acc + c)


def test_exact_sums_round_to_formats_without_infinity_or_minus_zero():
    a = np.array([[-1e-30], [2.0**20], [-(2.0**20)], [1.5]])
    given = {"device": "a100", "scheme": "ozaki-int8", "sum": "exact"}
    for output, codes in {
        "e4m3": [0x80, 0x7F, 0x7F, 0x3C],
        "e4m3fnuz": [0x00, 0x80, 0x80, 0x44],
        "e2m1": [0x08, 0x07, 0x0F, 0x03],
    }.items():
        found = hwsim.matmul(a, np.ones((1, 1)), output=output, **given)
        assert (found.view(np.uint8).ravel() & (15 if output == "e2m1" else 255)).tolist() == codes, output
    with pytest.raises(UnsupportedError, match="signed float formats; the output is int8"):
        hwsim.matmul(a, a.T, output="int8", **given)


def test_blocks_of_a_written_out_chain_begin_instructions_under_a_promotion_too():
    """Of each block of one element an instruction: a promotion longer than the chain changes nothing but -0."""
    a, b = (doubles(seed, *shape).astype(np.float32) for seed, shape in ((5, (9, 40)), (6, (40, 9))))
    order = Chain(tuple(Range(at, 40, 4, 1) for at in range(4)))
    given = {"device": "a100", "format": "fp16"}
    plain = hwsim.matmul(a, b, schedule=Schedule(sum=order), **given)
    promoted = hwsim.matmul(a, b, schedule=Schedule(sum=order, promotion_k=48), **given)
    assert np.array_equal(plain, promoted)
    assert not np.array_equal(plain, hwsim.matmul(a, b, **given))
    halves = hwsim.matmul(a, b, schedule=Schedule(sum=order, promotion_k=20), **given)
    parts = [Chain(order.ranges[i : i + 2]) for i in (0, 2)]
    assert np.array_equal(halves, hwsim.matmul(a, b, schedule=Schedule(sum=Reduction(tuple(parts))), **given))


def test_slices_of_sums_that_are_joined_by_groups_go_into_the_output():
    """sgemm-cube, elementwise, with merge_into="output": an IndexError until lab/tools/fuzz/reference.py came by."""
    a, b = (doubles(seed, *shape).astype(np.float32) for seed, shape in ((7, (3, 64)), (8, (64, 5))))
    given = {"device": "a100", "scheme": "sgemm-cube", "accumulation": "elementwise", "k_group": 16}
    schedule = Schedule(slice_k=32, merge_into="output", merge_order="descending")
    found = hwsim.matmul(a, b, schedule=schedule, alpha=3.0, **given)
    first, last = (np.float32(3) * hwsim.matmul(a[:, part], b[part], **given) for part in (slice(32), slice(32, 64)))
    assert np.array_equal(found, last + first)


@pytest.mark.parametrize("low_bits", [0x0FFF, 0x0800, 0x0801])
def test_programs_round_the_words_that_instructions_round(low_bits):
    """hf32 words with low bits: the 910B rounds them, and its program left them to be cut."""
    words = np.array([[0x3F800000 | low_bits, 0x40490FDB], [0xBF8FFFFF, 0x3E000000 | low_bits]], np.uint32)
    given = {"device": "ascend910b3", "format": "hf32", "input_format": "hf32"}
    direct, program = (hwsim.run(words, words.T, functional=functional, **given).c for functional in (False, True))
    assert direct.tobytes() == program.tobytes()
    cut = hwsim.run(words & np.uint32(0xFFFFF000), words.T & np.uint32(0xFFFFF000), **given).c
    assert direct.tobytes() != cut.tobytes()


def test_a_float_c_in_an_integer_accumulator_is_rounded_and_saturates():
    """It was cut, and beyond int32 whatever the host's processor makes of it."""
    a, b = np.zeros((1, 4), np.int8), np.zeros((4, 4), np.int8)
    c = np.array([[1.5, 2.5, -1e20, np.inf]], np.float32)
    given = {"device": "a100", "format": "int8", "output": "fp32", "schedule": Schedule(start="c")}
    assert hwsim.matmul(a, b, c, **given).tolist() == [[2.0, 2.0, -(2.0**31), 2.0**31]]


def test_permuted_blocks_of_a_written_out_chain_begin_anew():
    """Blocks shorter than the permutation were joined, and elements changed their blocks."""
    a, b = (doubles(seed, *shape).astype(np.float32) for seed, shape in ((9, (3, 12)), (10, (12, 3))))
    given = {"device": "v100", "format": "fp32"}
    order, swapped = Chain((Range(0, 12, 4, 1), Range(1, 12, 4, 3))), (1, 0)
    found = hwsim.matmul(a, b, schedule=Schedule(sum=order, k_permutation=swapped), **given)
    index = [p for at in (0, 4, 8) for p in (at,)] + [p for at in (1, 5, 9) for p in (at + 1, at, at + 2)]
    expected = hwsim.matmul(a[:, index], b[index], **given)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("model", [{"model": "exact", "terms": 16}, {"model": "pairwise", "terms": 16}])
def test_only_fused_units_scale_their_accumulator_inside_the_sum(model):
    tree = expanded(hwsim.device("b200"))
    name = next(x for x, entry in tree["instructions"].items() if "scale_input_d" in entry)
    unit = tree["instructions"][name]["unit"]
    unit = unit["value"] if isinstance(unit, dict) else unit
    tree["sources"]["S"] = "a try"
    tree["dot_units"][unit] = {**model, "source": "S", "evidence": "assumption"}
    with pytest.raises(ConfigError, match="scale_input_d_rule exact needs a fused one"):
        hwsim.device(tree)


@pytest.mark.parametrize("device", ["a100", "h200", "mi210", "ascend910a"])
def test_sgemm_cube_elementwise_without_a_group_is_the_product(device):
    """It was zero on GPUs by the program."""
    a, b = (doubles(seed, *shape).astype(np.float32) for seed, shape in ((11, (16, 32)), (12, (32, 16))))
    given = {"device": device, "scheme": "sgemm-cube", "accumulation": "elementwise"}
    direct, program = (hwsim.run(a, b, functional=functional, **given).c for functional in (False, True))
    assert direct.tobytes() == program.tobytes()
    assert np.abs(direct - a.astype(np.float64) @ b).max() < 1e-4


def test_cycles_without_bits_are_those_with_them():
    """Of the same operands: those of fp32 are rounded first, which takes time."""
    given = {"device": "h200", "format": "fp16", "m": 128, "n": 128, "k": 128}
    with_bits = hwsim.run(**given).cycles
    assert hwsim.run(exact=False, input_format="fp32", **given).cycles == with_bits
    assert hwsim.run(exact=False, **given).cycles < with_bits  # operands that are fp16 already


@pytest.mark.parametrize("sign", [0, 1])
def test_an_infinity_saturates_in_the_narrow_result_format(sign):
    """Of a fused unit with result_format and overflow: saturate, which no shipped device has."""
    unit = FusedUnit(4, 25, -133, result_format="e8m13", specials=Specials(overflow="saturate"))
    spec = DotSpec(unit, "fp16", "fp16", "fp32", "fp32")
    a, b = np.full((1, 4), 0x3C00, np.uint16), np.full((4, 1), 0x3C00, np.uint16)
    c = np.array([[0x7F800000 | sign << 31]], np.uint32)
    expected = reference.gemm(spec, DotOperands(a, b, c))
    assert expected[0, 0] == 0x7F7FFC00 | sign << 31
    for variant in (*_kernels.variants, "scalar"):
        assert _kernels.gemm(spec, a, b, c, _variant=variant)[0, 0] == expected[0, 0], variant


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1.5, 2.0**63, -(2.0**64)])
def test_a_bias_that_no_integer_sum_holds_is_refused(bad):
    ones = np.ones((2, 2), np.int8)
    with pytest.raises(InputError, match="whole numbers from"):
        hwsim.run(ones, ones, device="h200", format="int8", bias=np.array([0, bad]), timing=False)
    least = hwsim.run(ones, ones, device="h200", format="int8", bias=np.array([0, -(2.0**31)]), timing=False).c
    assert least.tolist() == [[2, 2 - 2**31]] * 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"operands": "ieee", "overflow": "saturate"}, "vector.specials: the vector unit has one mode"),
        ({"operands": "saturate", "overflow": "infinity"}, "vector.specials: the vector unit has one mode"),
        ({"zero": "positive"}, "vector.specials.zero: got 'positive'; allowed: ieee"),
        ({"flush_operands": True}, "vector.specials.flush_operands: got true; allowed: false"),
        ({"flush_results": True}, "vector.specials.flush_results: got true; allowed: false"),
        ({"nan_code": 0x7FC00001}, "vector.specials.nan_code: unknown key"),
    ],
)
def test_special_values_that_the_lanes_do_not_have_are_refused(said, words):
    """They were read by nothing, or made NaNs zero in sums of a unit that takes NaNs as such."""
    tree = expanded(hwsim.device("ascend910a"))
    tree["vector"]["specials"] = said
    with pytest.raises(ConfigError, match=re.escape(words)):
        hwsim.device(tree)


@pytest.mark.parametrize("said", ["e4m3", ["e4m3"], 5])
def test_a_composite_unit_s_operand_format_holds_its_operands(said):
    tree = changed("h100", ("dot_units", "fp8_f32", "operand_format"), said)
    with pytest.raises(ConfigError) as caught:
        hwsim.device(tree)
    if said == "e4m3":
        assert "e5m2 has values that the unit's operand_format e4m3 has not; widen that" in str(caught.value)


def test_conversions_that_make_a_nan_zero_do_so_beside_any_unit():
    """Vector units of hypothetical chips: what a conversion does with a NaN does not follow from the unit's NaN."""
    tree = expanded(hwsim.device("ascend910a"))
    tree["vector"]["specials"] = {"zero": "ieee", "overflow": "saturate", "operands": "saturate"}
    device = hwsim.device(tree)
    lanes = Lanes(device, dot_spec(hwsim.device("h200"), "wgmma.m64n8k16.f32.f16.f16"), CPU)
    assert lanes.all_ones
    assert lanes.store(np.array([np.nan], np.float32), format_of("fp16"), "RNE").tolist() == [0]


@pytest.mark.parametrize(
    ("blocks", "promotion", "groups"),
    [
        (
            ((0, 16), (32, 48), (16, 32), (48, 64)),
            20,
            (((0, 16), (16, 20)), ((20, 32), (32, 40)), ((40, 48), (48, 60)), ((60, 64),)),
        ),
        (((12, 32), (32, 48), (48, 64)), 16, (((0, 16),), ((16, 20), (20, 32)), ((32, 36), (36, 48)), ((48, 52),))),
    ],
)
def test_blocks_of_a_written_out_chain_begin_instructions_within_groups_too(blocks, promotion, groups):
    """Groups that end within an instruction of 16, or begin within a block: the next block begins a new one."""
    shapes = (13, (3, 64)), (14, (64, 3))
    scales = [2.0 ** np.random.default_rng(seed).integers(-6, 6, shape) for seed, shape in shapes]
    a, b = (
        (doubles(seed, *shape) * scale).astype(np.float32) for (seed, shape), scale in zip(shapes, scales, strict=True)
    )
    place = [k for block in blocks for k in range(*block)]
    given = {"device": "a100", "format": "fp16"}
    order = Chain(tuple(Range(start, stop, stop - start, stop - start) for start, stop in blocks))
    found = hwsim.matmul(a, b, schedule=Schedule(sum=order, promotion_k=promotion), **given)
    x, y = a[:, place], b[place]
    apart, joined = np.zeros((2, 3, 3), np.float32)
    for group in groups:
        ranges = tuple(Range(start, stop, stop - start, stop - start) for start, stop in group)
        apart = apart + hwsim.matmul(x, y, schedule=Schedule(sum=Chain(ranges)), **given)
        part = slice(group[0][0], group[-1][1])
        joined = joined + hwsim.matmul(x[:, part], y[part], **given)
    assert np.array_equal(found, apart)
    assert not np.array_equal(found, joined)


def test_groups_of_a_term_go_before_the_promotion_of_a_written_out_chain():
    """Of fp16 operands, whose corrections are zero: the leading term adds each instruction outside, by blocks of 6."""
    shapes = (15, (3, 24)), (16, (24, 3))
    a, b = (doubles(seed, *shape).astype(np.float16).astype(np.float32) for seed, shape in shapes)
    given = {"device": "a100", "scheme": "ootomo-fp16", "leading": "outside"}
    order = Chain((Range(0, 24, 12, 6), Range(6, 24, 12, 6)))
    plain, promoted = (
        hwsim.matmul(a, b, schedule=Schedule(sum=order, promotion_k=promotion), **given) for promotion in (None, 6)
    )
    assert np.array_equal(plain, promoted)
    assert not np.array_equal(plain, hwsim.matmul(a, b, **given))


def test_a_format_before_the_output_rounds_sums_of_every_kind():
    """product_format="bf16" of one chain without C or bias was skipped, and not of two slices."""
    a, b = (doubles(seed, *shape).astype(np.float32) for seed, shape in ((17, (4, 32)), (18, (32, 4))))
    epilogue = Epilogue(product_format="bf16")
    for schedule in (Schedule(epilogue=epilogue), Schedule(epilogue=epilogue, slice_k=16)):
        found = hwsim.matmul(a, b, device="a100", format="fp16", schedule=schedule)
        assert not (found.view(np.uint32) & 0xFFFF).any(), schedule


def test_sums_merged_in_fp64_are_rounded_as_the_device_s_lanes_round():
    """Of a saturating device: slices whose sum is beyond fp32's range were an infinity."""
    tree = expanded(hwsim.device("mi210"))
    tree["vector"]["specials"] = {"zero": "ieee", "overflow": "saturate", "operands": "saturate"}
    huge = np.full((1, 32), 2.0**120, np.float32)
    schedule = Schedule(slice_k=16, merge_format="fp64")
    found = hwsim.matmul(huge, np.full((32, 1), 2.0**4, np.float32), device=tree, format="fp32", schedule=schedule)
    assert found[0, 0] == np.finfo(np.float32).max


@pytest.mark.parametrize("functional", [False, True])
def test_a_saturating_unit_widens_a_nan_to_zero(functional):
    """By the evaluator a NaN stayed one, by the program it was zero."""
    tree = expanded(hwsim.device("tf64"))
    tree["vector"]["specials"] = {"zero": "ieee", "overflow": "saturate", "operands": "saturate"}
    a = np.array([[np.nan, 2.0, -np.inf]], np.float32)
    b = np.ones((3, 1), np.float32)
    found = hwsim.run(a, b, device=tree, format="fp64", functional=functional).c
    assert found[0, 0] == 2.0 - float(np.finfo(np.float32).max)


def test_a_program_takes_instructions_that_round_words_alike():
    """Two instructions of one unit, one of which rounds 32-bit words: the program took the other one's."""
    tree = expanded(hwsim.device("gb200"))
    for name, entry in tree["instructions"].items():
        if name.startswith("tcgen05") and "m64" in name and "tf32" in name:
            entry["operand_rounding"] = "RU"
    words = np.array([[0x3F801FFF, 0x40490FDB], [0xBF8FFFFF, 0x3E000FFF]], np.uint32)
    given = {"device": hwsim.device(tree), "format": "tf32", "input_format": "tf32"}
    direct, program = (hwsim.run(words, words.T, functional=functional, **given).c for functional in (False, True))
    assert direct.tobytes() == program.tobytes()


def test_the_coupled_core_adds_to_zero_in_the_record_too():
    """A cube that gives -0: the program adds it to C, which is +0, and the evaluator left it."""
    tree = expanded(hwsim.device("ascend910a"))
    tree["sources"]["S"] = "a try"
    unit = tree["instructions"]["mmad.m16n16k16.f32.f16.f16"]["unit"]
    unit = unit["value"] if isinstance(unit, dict) else unit
    specials = {"zero": "ieee"}
    tree["dot_units"][unit] = {
        "model": "fused", "terms": 2, "fraction_bits": 25, "floor_exponent": -132, "rounding": "RD",
        "specials": specials, "source": "S", "evidence": "assumption",
    }  # fmt: skip
    device = hwsim.device(tree)
    a, b = np.array([[1, -1]], np.float16), np.array([[1], [1]], np.float16)
    given = {"device": device, "format": "fp16"}
    direct, program = (hwsim.run(a, b, functional=functional, **given) for functional in (False, True))
    assert direct.c.tobytes() == program.c.tobytes()
    assert direct.gemm.schedule.promotion_k is not None
    name = "mmad.m16n16k16.f32.f16.f16"
    padded = [np.zeros((1, 16), np.uint16) for _ in range(2)]
    for x, values in zip(padded, (a, b.T), strict=True):
        x[:, :2] = values.view(np.uint16)
    assert device.dot(name, *padded, np.zeros(1, np.uint32))[0] == 0x80000000
    assert hwsim.run(a, b, device="ascend910a", format="fp16").gemm.schedule.promotion_k is None


@pytest.mark.parametrize("scheme", ["native", "tf32x3"])
def test_nans_of_conversions_are_those_of_the_unit_s_lanes_in_program_and_evaluator(scheme):
    """A unit whose NaN has all bits set and which passes on that of an operand shows what conversions made."""
    tree = expanded(hwsim.device("a100"))
    name = tree["native"]["tf32"]
    unit = tree["instructions"][name]["unit"]
    tree["dot_units"][unit] = {
        "model": "fma_chain",
        "specials": {"nan_code": 0x7FFFFFFF, "zero": "ieee"},
        "nan_order": "abc",
        "source": "NONE",
        "evidence": "assumption",
    }
    a = np.linspace(-2, 3, 64 * 64, dtype=np.float32).reshape(64, 64)
    a[3, 5] = np.float32(np.nan)
    found = [
        hwsim.run(a, a.T, device=hwsim.device(tree), scheme=scheme, format="tf32" if scheme == "native" else None,
                  functional=functional, timing=True).c.view(np.uint32)
        for functional in (True, False)
    ]  # fmt: skip
    assert np.array_equal(*found)
    assert scheme != "native" or found[1][3, 0] == 0x7FFFE000  # of tf32, whose words have 13 bits that are ignored


def test_a_row_of_a_fractal_holds_an_element():
    device = hwsim.device(changed("ascend910a", ("fractal", "row_bytes"), 1))
    with pytest.raises(UnsupportedError, match="row_bytes = 1: a row of a fractal holds no element of 2 bytes"):
        hwsim.run(m=64, n=64, k=64, device=device, scheme="sgemm-cube", exact=False)


@pytest.mark.parametrize("merge_into", ["sum", "output"])
def test_the_nan_of_slices_of_a_narrow_unit_is_the_unit_s(merge_into):
    """Lanes in fp32 beside a unit of fp16 results, which gives 0x7fff."""
    a, b = np.ones((3, 33), np.float16), np.ones((33, 16), np.float16)
    b[9, 15] = np.nan
    schedule = Schedule(instruction="mma.m16n8k16.f16.f16.f16.f16", slice_k=24, merge_into=merge_into)
    found = hwsim.run(a, b, device="l40s", schedule=schedule, timing=False).c
    assert found.dtype == np.float16 and found.view(np.uint16)[2, 15] == 0x7FFF


def test_an_operand_that_becomes_fp64_keeps_the_payload_of_its_nan_in_programs_too():
    a, b = np.ones((16, 16), np.float32), np.ones((16, 8), np.float32)
    b.view(np.uint32)[3, 0] = 0x7FDB3906
    for functional in (True, False):
        found = hwsim.run(a, b, device="h200", format="fp64", functional=functional, timing=True).c
        assert found.view(np.uint64)[2, 0] == 0x7FFB6720C0000000


def test_an_fp16_operand_that_becomes_fp64_keeps_the_payload_of_its_nan_in_programs_too():
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    b.view(np.uint16)[3, 0] = 0x7C45  # signalling
    for functional in (True, False):
        found = hwsim.run(a, b, device="h200", format="fp64", functional=functional).c
        assert found.view(np.uint64)[2, 0] == 0x7FF9140000000000


def test_the_nan_of_an_fp32_sum_keeps_its_payload_in_an_fp64_result_by_program_and_evaluator():
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    a[3, 2] = np.nan
    for functional in (True, False):
        found = hwsim.run(a, b, device="l40s", format="fp16", output="fp64", functional=functional).c
        assert found.view(np.uint64)[3, 5] == 0x7FFFFFFFE0000000


def test_the_nan_of_an_affected_element_is_the_lanes_in_an_fp64_result_too():
    """Elements whose operands hold a NaN are put in as 0x7fffffff (plan.specials); fp64 results have the lanes' NaN."""
    a, b = np.ones((3, 32), np.float32), np.ones((32, 2), np.float32)
    a[1, 4] = np.nan
    found = hwsim.run(a, b, device="rtx2080ti", scheme="quantensor", output="fp64", timing=False).c
    assert found.view(np.uint64)[1, 0] == 0x7FF8000000000000


def test_an_infinite_c_in_fp32_saturates_in_the_fp64_that_it_is_taken_in():
    tree = expanded(hwsim.device("tf64"))
    tree["vector"]["specials"] = {"zero": "ieee", "overflow": "saturate", "operands": "saturate"}
    one, c = np.ones((1, 1), np.float32), np.array([[np.inf]], np.float32)
    found = hwsim.run(one, one, device=tree, format="fp64", c=c, beta=0.5, timing=False).c
    assert found[0, 0] == float(np.finfo(np.float64).max) / 2


def test_errors_are_of_the_c_that_was_added():
    """C is often where the caller puts the result."""
    c = np.ones((4, 4), np.float32)
    one = np.eye(4, dtype=np.float32)
    run = hwsim.run(one, one, device="a100", format="tf32", c=c, beta=1.0)
    c += 1
    assert run.error["relative_frobenius"] == 0
