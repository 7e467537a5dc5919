"""PyTorch's math form as a program: the evaluator's bits, any legal order, kernels and traffic; products whose order is
written out; the order of softmax kernels beside PyTorch's tensors.
"""

from __future__ import annotations

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
from hwsim.devices.special_functions import special_functions
from hwsim.errors import UnsupportedError
from hwsim.evaluate.math_attending import added
from hwsim.formats import codes_of, format_of
from hwsim.gemm.softmax_sums import SoftmaxKernels
from hwsim.libraries.pytorch.routes import pytorch
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
    rule = pytorch().softmax
    kernels = SoftmaxKernels(rule.lanes, rule.most, rule.threads, rule.registers, rule.vector, rule.shared_bytes)
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

    rule = pytorch().softmax
    kernels = SoftmaxKernels(rule.lanes, rule.most, rule.threads, rule.registers, rule.vector, rule.shared_bytes)
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
