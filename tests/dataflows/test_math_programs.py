"""PyTorch's math form as a program: the evaluator's bits, any legal order, kernels and traffic; products whose order is
written out; the order of softmax kernels beside PyTorch's tensors.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.backend.cpu import CPU
from hwsim.compute.attention_call import _inputs, call_of
from hwsim.compute.bits import Arrays, compute
from hwsim.compute.math_kernel import HeadsCall
from hwsim.dataflows.written_sums import refuses, written_sum_program
from hwsim.devices import find
from hwsim.devices.numbers import with_numbers
from hwsim.devices.special_functions import special_functions
from hwsim.errors import UnsupportedError
from hwsim.evaluate.math_attending import added
from hwsim.formats import codes_of, format_of
from hwsim.libraries.pytorch.routes import softmax_kernels
from hwsim.machines import functional, reference
from hwsim.operands.operand import Operand
from hwsim.program.check import check

TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
#: Device, format, heads, heads of the key, queries, keys, widths of key and value, causal.
CASES = {
    "whole": ("h100", "fp16", 3, 3, 64, 64, 64, 64, False),
    "causal, shared heads": ("h200", "bf16", 6, 2, 67, 67, 40, 40, True),
    "causal, more keys": ("h200", "fp16", 2, 2, 5, 67, 32, 32, True),
    "K of 1, 3 keys": ("h200", "fp16", 2, 1, 67, 3, 1, 1, False),
    "K of 3": ("h200", "fp32", 2, 2, 67, 67, 3, 3, False),
    "K of 67": ("h200", "fp32", 2, 2, 67, 67, 67, 3, True),
    "one key": ("h200", "fp16", 4, 4, 3, 1, 64, 64, False),
    "one query: matrix-vector kernels": ("h200", "bf16", 8, 2, 1, 300, 64, 96, False),
    "small: a kernel that cuts K by threads": ("h200", "fp16", 1, 1, 16, 16, 16, 16, False),
    "slices of K": ("h200", "fp16", 1, 1, 512, 512, 64, 64, False),
    "slices through a workspace": ("a100", "fp16", 1, 1, 256, 512, 64, 64, False),
    "rows of a block's registers": ("h200", "fp16", 2, 1, 5, 2051, 8, 8, False),
    "rows in shared memory": ("h200", "fp16", 1, 1, 3, 9220, 8, 8, False),
    "rows that vectors do not divide": ("h200", "fp16", 2, 1, 3, 9999, 8, 8, False),
    "rows that are read three times": ("h100", "fp32", 1, 1, 3, 12300, 8, 8, False),
    "Blackwell": ("b200", "bf16", 2, 2, 67, 130, 64, 64, False),
}


def drawn(case, seed=0):
    _, fmt, heads, key_heads, queries, keys, width, value_width, _ = case
    draw = np.random.default_rng(seed)
    shapes = (heads, queries, width), (key_heads, keys, width), (key_heads, keys, value_width)
    return [draw.standard_normal(shape).astype(TYPES[fmt]) for shape in shapes]


def both(operands, **options):
    """The result by the program, and by the evaluator."""
    return [hwsim.attention(*operands, backend="MATH", functional=way, **options) for way in (True, False)]


@pytest.mark.parametrize("name", CASES)
def test_the_program_has_the_evaluator_s_bits(name):
    case = CASES[name]
    by_program, direct = both(drawn(case), device=case[0], is_causal=case[-1])
    assert by_program.by_program and by_program.backend == "MATH" and by_program.out.dtype == TYPES[case[1]]
    assert np.array_equal(by_program.codes, direct.codes)


@pytest.mark.parametrize("heads", [1, 3])
def test_a_mask_of_one_s_own_is_added_and_hidden_rows_are_zero(heads):
    operands = drawn(("h100", "bf16", 3, 3, 50, 70, 40, 40, False))
    mask = np.random.default_rng(4).standard_normal((heads, 50, 70)).astype(TYPES["bf16"])
    mask[:, 7], mask[:, 9, :60] = -np.inf, -np.inf
    by_program, direct = both(operands, mask=mask)
    assert direct.record.mask == ("shared" if heads == 1 else "own")
    assert not direct.out[:, 7].any() and direct.out[:, 9].any()
    assert np.array_equal(by_program.codes, direct.codes)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("fmt", ["fp16", "fp32"])
def test_infinities_and_nans(fmt, is_causal):
    query, key, value = drawn(("h100", fmt, 3, 3, 40, 40, 16, 16, is_causal), 3)
    value[0, 30, 3], value[1, 39, 5], query[0, 5, 3], key[1, 30, 2] = np.inf, np.nan, np.nan, np.inf
    query[2, 7], query[2, 8], query[2, 9, 0] = -0.0, -np.inf, 2.0**-24
    by_program, direct = both((query, key, value), is_causal=is_causal)
    assert np.isnan(direct.out).any() and np.isfinite(direct.out).any()
    assert np.array_equal(by_program.codes, direct.codes)


@pytest.mark.parametrize("scale", [0.0, -0.7, 2.5])
def test_a_scale_is_taken_by_its_root_and_its_sign_by_the_query(scale):
    operands = drawn(CASES["whole"])
    by_program, direct = both(operands, scale=scale)
    assert np.array_equal(by_program.codes, direct.codes)
    scores = scale * operands[0].astype(float) @ operands[1].astype(float).swapaxes(1, 2)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    exact = powers / powers.sum(-1, keepdims=True) @ operands[2].astype(float)
    assert np.abs(direct.out - exact).max() < 2e-3


@pytest.mark.parametrize("name", ["causal, shared heads", "one query: matrix-vector kernels"])
def test_any_legal_order_gives_the_same_bits(name):
    device, fmt, *_, is_causal = CASES[name]
    case = (device, fmt, 2, 1, 3 if is_causal else 1, 13, 4, 4, is_causal)
    operands = drawn(case)
    call = call_of(*operands, device=device, library="pytorch", backend="MATH", is_causal=is_causal, scale=None)
    stacks, want = [codes_of(x, format_of(fmt)) for x in operands], call.computed(by_program=False, threads=1)
    for order in range(2):
        codes = reference.run(call.program, call.device, _inputs(call.record, stacks), order=order, dots=CPU.gemm)
        assert np.array_equal(codes.reshape(want.shape), codes_of(want, format_of(fmt)))


def test_kernels_and_traffic_are_pytorch_s():
    """Each score is 4 bytes: a product writes them, a mask is added, the softmax reads and writes them."""
    zero = np.float16(0)
    query, key = np.broadcast_to(zero, (8, 256, 64)), np.broadcast_to(zero, (2, 512, 64))
    result = hwsim.attention(query, key, key, device="h200", backend="math", is_causal=True, exact=False)
    names = list(dict.fromkeys(phase["name"].split(".")[0] for phase in result.phases))
    assert names == [
        *("widen_Q", "widen_K", "widen_V", "scale_query", "causal_mask", "repeat_key", "repeat_value", "scale_key"),
        *("scores", "add_mask", "softmax_warp_forward", "is_seen", "any_seen", "hide_rows", "values"),
        *("round", "round_weights"),
    ]
    plain = hwsim.attention(query[:2], key, key, device="h200", backend="math", exact=False)
    fewer = list(dict.fromkeys(phase["name"].split(".")[0] for phase in plain.phases))
    assert fewer == [name for name in names if name not in ("causal_mask", "repeat_key", "repeat_value", "add_mask")]
    scores = 4 * 8 * 256 * 512
    kernels = {kernel.name: kernel for kernel in result.call.program.kernels}
    moved = [instr.reads[0] for instr in kernels["softmax_warp_forward"].instrs() if instr.opcode == "copy"]
    assert len(moved) == 2 and result.traffic_bytes["RF_GM"] > 4 * scores
    assert result.cycles == sum(phase["cycles"] for phase in result.phases) and result.trace is not None


def bytes_of_passes(record):
    """Bytes that each kernel reads and writes at least once, by its name: of arrays alone, without the program."""
    word, narrow = 4, 4 if record.format == "fp32" else 2
    heads, key_heads, rows, keys = record.heads, record.key_heads, record.queries, record.keys
    query, key, value = heads * rows * record.width, keys * record.width, keys * record.value_width
    scores, result = heads * rows * keys, heads * rows * record.value_width
    passes = {
        "scale_query": (word * query, word * query),
        "scale_key": (word * heads * key, word * heads * key),
        "scores": (word * (query + heads * key), word * scores),
        "softmax": (word * scores, word * scores),
        "is_seen": (word * scores, scores),
        "any_seen": (scores, heads * rows),
        "hide_rows": (word * scores, word * scores),
        "values": (word * (scores + heads * value), word * result),
    }
    if narrow < word:
        operands = {"widen_Q": query, "widen_K": key_heads * key, "widen_V": key_heads * value}
        passes |= {name: (narrow * count, word * count) for name, count in operands.items()}
        outputs = {"round": result, "round_weights": scores}
        passes |= {name: (word * count, narrow * count) for name, count in outputs.items()}
    if record.groups > 1:
        passes["repeat_key"] = word * key_heads * key, word * heads * key
        passes["repeat_value"] = word * key_heads * value, word * heads * value
    if record.is_causal:
        passes |= {"causal_mask": (0, word * rows * keys), "add_mask": (word * (scores + rows * keys), word * scores)}
    return passes


def timed(device, fmt, heads, key_heads, queries, keys, width, is_causal, **options):
    """The result of cycles alone, and the seconds of its kernels by name."""
    zero = np.zeros((), TYPES[fmt])
    query, key = (np.broadcast_to(zero, shape) for shape in ((heads, queries, width), (key_heads, keys, width)))
    more = {"device": device, "backend": "math", "is_causal": is_causal, "exact": False, **options}
    result, seconds = hwsim.attention(query, key, key, **more), {}
    for phase in result.phases:
        name = phase["name"].split(".")[0]
        name = "softmax" if "softmax" in name.lower() else name
        seconds[name] = seconds.get(name, 0.0) + phase["seconds"]
    return result, seconds


#: Device, format, heads, heads of the key, queries, keys, width, causal: of 1.07 GB of scores and few bytes.
SIZES = [
    ("h200", "fp16", 64, 64, 2048, 2048, 64, False),
    ("h200", "bf16", 64, 16, 1024, 4096, 128, True),
    ("h200", "fp16", 8, 8, 256, 256, 64, False),
    ("h200", "fp16", 32, 32, 1, 8192, 128, False),
    ("h200", "fp32", 16, 16, 2048, 2048, 64, False),
    ("h200", "fp16", 2, 2, 512, 16384, 64, False),
    ("h200", "fp32", 1, 1, 3, 67, 3, True),
    ("a100", "fp16", 64, 64, 2048, 2048, 64, False),
    ("a100", "bf16", 64, 16, 1024, 4096, 128, True),
    ("b200", "bf16", 64, 16, 1024, 4096, 128, True),
]


@pytest.mark.parametrize("l2", ["series", "cold"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_no_kernel_takes_less_than_its_bytes_and_products(sizes, l2):
    result, seconds = timed(*sizes, l2=l2)
    chip, passes = hwsim.device(sizes[0]), bytes_of_passes(result.record)
    assert set(passes) == set(seconds) and sum(seconds.values()) == pytest.approx(result.seconds)
    held = chip.l2.capacity_bytes
    for name, (read, written) in passes.items():
        of_dram = max(0, read - held) + max(0, written - held)  # what L2 had, and what stays there
        least = max((read + written) / chip.l2.bytes_per_second, of_dram / chip.hbm.bytes_per_second)
        assert seconds[name] >= least, name
        if min(read, written) > 4 * held and name not in ("scores", "values"):
            assert seconds[name] < 1.6 * least, name
    record, clock = result.record, result.state["clock_mhz"] * 1e6
    for name, depth in (("scores", record.width), ("values", record.value_width)):
        macs = record.heads * record.queries * record.keys * depth
        peak = float(find(chip, record.order.instruction).macs_per_cycle) * chip.cores * clock
        assert seconds[name] >= macs / peak, name


def test_time_grows_with_the_work():
    base = ("h200", "fp16", 64, 64, 1024, 1024, 64, False)
    once = timed(*base)[0].seconds
    for place in (2, 4, 5):  # heads, queries, keys
        more = [2 * size if i == place or (place == 2 and i == 3) else size for i, size in enumerate(base)]
        assert 1.9 < timed(*more)[0].seconds / once < 2.2
    last = 0.0
    for keys in (64, 256, 1000, 1024, 2048, 4096):
        seconds = timed("h200", "fp16", 16, 16, 128, keys, 64, False)[0].seconds
        assert seconds > last
        last = seconds
    plain, causal = (timed("h200", "fp16", 64, 64, 1024, 1024, 64, mask)[0] for mask in (False, True))
    assert causal.seconds > plain.seconds  # it computes what the mask hides, and adds the mask


def test_the_verdict_says_what_its_time_rests_on():
    result, _ = timed("h200", "fp16", 8, 8, 256, 256, 64, False)
    said = result.verdict.sentences[1]
    assert "passes are assumed to move their arrays at the rates of L2 and DRAM" in said
    assert "one H200 took 1.1 to 1.5 times as long" in said and "12 calls, heads of 64, 96 and 128" in said
    assert result.measured["calls"] == 12 and result.levels["timing"] == "assumption"


def test_a_row_that_does_not_fit_says_what_there_is():
    chip = with_numbers(hwsim.device("h200"), {"memories.RF.capacity_bytes": 65536})
    result, _ = timed(chip, "fp16", 1, 1, 4, 9000, 64, False)
    needs = re.search(
        r"softmax of rows of 9,000 elements .* take ([\d,]+) bytes of RF, which has 65,536", result.timing_note
    )
    assert needs and int(needs[1].replace(",", "")) > 3 * 4 * 9000


def test_a_long_row_is_read_once_or_three_times():
    zero = np.float32(0)
    bytes_of = {}
    for keys in (12288 - 64, 12288):  # the first waits in shared memory, the second does not fit
        query, key = np.broadcast_to(zero, (1, 264, 8)), np.broadcast_to(zero, (1, keys, 8))
        result = hwsim.attention(query, key, key, device="h200", backend="math", exact=False)
        bytes_of[keys] = result.traffic_bytes["GM_RF"] / keys
    once, thrice = bytes_of.values()
    assert thrice - once == pytest.approx(2 * 4 * 264, rel=0.03)


@pytest.mark.parametrize(
    ("device", "call"),
    [
        ("h200", HeadsCall(3, (1, 67, 64), "columns")),
        ("h200", HeadsCall(2, (1, 64, 67), "rows")),
        ("h200", HeadsCall(2, (3, 1, 67), "rows")),
        ("h200", HeadsCall(40, (1, 40, 3), "rows")),
        ("h200", HeadsCall(1, (16, 16, 16), "rows")),
        ("h200", HeadsCall(2, (1, 30, 8192), "rows")),
        ("a100", HeadsCall(1, (128, 128, 1000), "rows")),
        ("b200", HeadsCall(1, (128, 40, 700), "rows")),
    ],
)
def test_a_written_out_order_is_a_program(device, call):
    resolved = call.resolved(hwsim.device(device))
    (m, n, k), heads = call.sizes, call.heads
    draw = np.random.default_rng(1)
    a = draw.integers(0, 2**32, (heads, m, k), np.uint32)  # bit fields: every exponent, subnormals, NaNs
    b = draw.standard_normal((heads, k, n)).astype(np.float32).view(np.uint32)
    a[0], b[0, :, 0] = draw.standard_normal((m, k)).astype(np.float32).view(np.uint32), 0x80000000
    program = written_sum_program(resolved.gemm, resolved.device)
    check(program, resolved.device)
    inputs = {"A": a.reshape(-1, k), "B": b.reshape(-1, n)}
    codes = functional.run(program, resolved.device, inputs, threads=2, backend=CPU).reshape(heads, m, n)
    arrays = Arrays(Operand(a, "fp32"), Operand(b, "fp32"), (heads,))
    want, _ = compute(resolved, arrays, by_program=False, threads=1, progress=None)
    assert resolved.gemm.schedule.sum is not None and np.isfinite(want[0]).all()
    assert np.array_equal(codes, want.view(np.uint32))


def test_what_has_no_written_out_order_is_refused():
    gemm = HeadsCall(2, (67, 67, 64), "columns").resolved(hwsim.device("h200")).gemm
    assert "not written out" in refuses(gemm)
    with pytest.raises(UnsupportedError, match="not written out"):
        written_sum_program(gemm, hwsim.device("h200"))


@pytest.mark.parametrize("count", [1, 2, 3, 31, 67, 1024, 2048, 2049, 9216, 9220, 9222, 12255, 12257, 14000, 16384])
def test_each_element_of_a_row_is_added_once_and_in_the_order_of_its_thread(count):
    kernels = softmax_kernels()
    for number in range(kernels.kinds(count)):
        order = kernels.row_sum(count, number)
        places, last = [], {}
        for step in order.steps:
            for index in range(step.threads):
                column, thread = step.column + index * step.stride, step.first + index
                assert thread < order.width and last.get(thread, -1) < column
                last[thread] = column
                places.append(column)
        assert sorted(places) == list(range(count))


@pytest.mark.parametrize("count", [5, 67, 2048, 2049, 9220, 9222, 12257, 14000])
def test_sums_are_those_of_pytorch_s_tensors(count):
    torch = pytest.importorskip("torch")
    from hwsim.frameworks.torch.softmax import softmax

    kernels = softmax_kernels()
    x = np.random.default_rng(count).standard_normal((7, count)).astype(np.float32)
    powers = CudaMath(special_functions(hwsim.device("h200"))).expf(x - x.max(-1, keepdims=True))
    want = softmax(torch.from_numpy(x), kernels).numpy()
    assert np.array_equal(powers / added(powers, kernels), want)
    assert np.array_equal((powers / added(powers, kernels))[3:], powers[3:] / added(powers[3:], kernels, 3))


def test_a_device_without_a_special_function_unit_has_bits_and_no_program():
    operands = drawn(("v100", "fp16", 2, 2, 5, 7, 8, 8, False))
    result = hwsim.attention(*operands, device="v100", backend="MATH")
    assert result.cycles is None and "special-function unit" in result.timing_note and result.evidence == "assumption"
    with pytest.raises(UnsupportedError, match=r"math form of .* has no program"):
        hwsim.attention(*operands, device="v100", backend="MATH", functional=True)
