"""hwsim.triton: kernels in Triton's interpreter, tl.dot with a chip's bits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from modern import kernels, operand, picked

import hwsim

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'hwsim[torch]'")
pytest.importorskip("triton", minversion="3.9", reason="needs Triton 3.9: pip install 'hwsim[triton]'")
from triton_kernels import (  # noqa: E402
    added,
    batches,
    brain_floats,
    functions,
    product,
    scaled,
    toward_zero,
)

import hwsim.triton  # noqa: E402
from hwsim.arithmetic.rounded_once import multiply_add  # noqa: E402
from hwsim.formats import format_of  # noqa: E402
from hwsim.frameworks.triton import tile_operations, ttgir  # noqa: E402
from hwsim.frameworks.triton.compiler import lowered  # noqa: E402
from hwsim.frameworks.triton.dot_question import DotQuestion  # noqa: E402
from hwsim.frameworks.triton.dot_steps import _lane_order, _quad_order  # noqa: E402
from hwsim.frameworks.triton.targets import target_of  # noqa: E402

TYPES = {"bf16": (np.int16, torch.bfloat16), "e4m3": (np.uint8, torch.float8_e4m3fn)}


def tensor(x, fmt):
    bits, dtype = TYPES.get(fmt, (x.dtype, None))
    plain = torch.from_numpy(np.ascontiguousarray(x).view(bits))
    return plain if dtype is None else plain.view(dtype)


def run(a, bt, tile, device="h100", precision="tf32", imprecise=-1, **launch):
    """The product of tensors a (m, k), bt (n, k), and the emulation."""
    (m, k), n = a.shape, bt.shape[0]
    bm, bn, bk = tile
    d = torch.full((m, n), float("nan"))
    keywords = {name: launch.pop(name) for name in ("processes", "measure_every") if name in launch}
    with hwsim.triton.emulate(device=device, **keywords) as emulation:
        grid = (-(-m // bm), -(-n // bn))
        product[grid](a, bt, d, m, n, k, k, 1, 1, k, BM=bm, BN=bn, BK=bk, PREC=precision, IMP=imprecise, **launch)
    return d.numpy(), emulation


@pytest.mark.covering(("fmt", "precision", "imprecise"), ("fmt", "tile"))
@pytest.mark.parametrize(
    ("key", "fmt", "precision", "imprecise", "sizes", "tile"),
    [(key, *key.split()[1:]) for key in sorted(kernels("triton"))],
    ids=sorted(kernels("triton")),
)
def test_a_kernel_gives_an_h100s_bits(key, fmt, precision, imprecise, sizes, tile):
    (m, n, k), blocks = (tuple(map(int, x.split("x"))) for x in (sizes, tile))
    rows, columns = picked(m, 8, 1), picked(n, 8, 2)  # other rows change none
    a, bt = tensor(operand(61, m, k, fmt, only=rows), fmt), tensor(operand(62, n, k, fmt, only=columns), fmt)
    d, _ = run(a, bt, blocks, precision=precision, imprecise=int(imprecise))
    np.testing.assert_array_equal(d.view(np.int32), kernels("triton")[key])


def test_a_dot_is_the_units_chain_from_the_accumulator_on():
    rng = np.random.default_rng(0)
    a, bt = (torch.from_numpy(rng.integers(0, 2**16, (64, 67), dtype=np.uint16).view(np.float16)) for _ in range(2))
    d, emulation = run(a, bt, (64, 64, 32))
    expected = hwsim.matmul(a.numpy(), bt.numpy().T, device="h100", scheme="native")
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(d[finite].view(np.int32), expected[finite].view(np.int32))
    assert np.isnan(d[~finite]).all() and emulation.device.name == "h100"


@pytest.mark.parametrize("device, instruction", [
    ("a100", "mma.m16n8k16.f32.f16.f16.f32"),
    ("h200", "wgmma.m64n64k16.f32.f16.f16"),
    ("b200", "tcgen05.mma.m64n64k16.f16.f32.f16.f16"),
    ("mi300x", "v_mfma_f32_32x32x8_f16"),
])  # fmt: skip
def test_the_device_runs_its_own_instruction(device, instruction):
    a, bt = (torch.from_numpy(operand(seed, 64, 128, "fp16")) for seed in (1, 2))
    d, emulation = run(a, bt, (64, 64, 64), device=device)
    (record,) = emulation.dots.values()
    assert (record.instruction, record.dots, record.macs) == (instruction, 2, 64 * 64 * 128)
    expected = hwsim.matmul(a.numpy(), bt.numpy().T, device=device, scheme="native")
    np.testing.assert_array_equal(d.view(np.int32), expected.view(np.int32))
    assert record.cycles and 0 < record.errors.mean < 1e-6
    assert re.search(rf"fp16 x fp16 -> fp32  - +{re.escape(instruction)}", emulation.report())
    assert emulation.to_dict()["dots"][0]["instruction"] == instruction


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_the_report_says_the_precision_of_fp32(precision):
    a, bt = (torch.from_numpy(operand(seed, 64, 64, "fp32")) for seed in (1, 2))
    _, emulation = run(a, bt, (64, 64, 64), precision=precision)
    assert re.search(rf"fp32 x fp32 -> fp32  {precision} ", emulation.report())


def test_fewer_warps_take_another_instruction():
    a, bt = (torch.from_numpy(operand(seed, 64, 64, "fp16")) for seed in (1, 2))
    names = [next(iter(run(a, bt, (64, 64, 64), num_warps=warps)[1].dots.values())).instruction for warps in (2, 4)]
    assert names == ["mma.m16n8k16.f32.f16.f16.f32", "wgmma.m64n64k16.f32.f16.f16"]


def test_processes_give_the_same_bits():
    a, bt = (torch.from_numpy(operand(seed, 96, 64, "fp16")) for seed in (1, 2))
    np.testing.assert_array_equal(run(a, bt, (32, 32, 32))[0], run(a, bt, (32, 32, 32), processes=2)[0])


def test_three_dimensions():
    a, b = (torch.from_numpy(operand(seed, 4 * 32, 32, "fp16").reshape(4, 32, 32)) for seed in (1, 2))
    d = torch.zeros(4, 32, 32)
    with hwsim.triton.emulate(device="a100"):
        batches[(1,)](a, b, d, 4, 32, 32, 32)
    expected = hwsim.matmul(a.numpy(), b.numpy(), device="a100", scheme="native")
    np.testing.assert_array_equal(d.numpy(), expected)


def test_functions_and_joined_operations_have_the_chips_bits():
    rng = np.random.default_rng(3)
    x, y, z = (rng.standard_normal(128, dtype=np.float32) for _ in range(3))
    y, out, scale = np.abs(y), torch.empty(7, 128), 0.1
    with hwsim.triton.emulate(device="h100") as emulation:
        functions[(1,)](*map(torch.from_numpy, (x, y, z)), out, scale, 128, 3)
    exp2, rsqrt, fused, less, loop, shifted, quotient = out.numpy()
    np.testing.assert_array_equal(exp2, hwsim.mufu("ex2", x, device="h100"))
    np.testing.assert_array_equal(rsqrt, hwsim.mufu("rsqrt", y, device="h100"))
    np.testing.assert_array_equal(fused, multiply_add(x, y, z))
    np.testing.assert_array_equal(less, multiply_add(-x, y, z))
    product = x * y
    assert (fused != product + z).any()
    np.testing.assert_array_equal(loop, ((z + product) + product * np.float32(0)) + product * np.float32(1))
    exact = np.float64(np.float32(scale)) * np.float64(np.float32(1.44269504)) + x.astype(np.float64)
    np.testing.assert_array_equal(shifted, exact.astype(np.float32))  # a float is fp32, and the sum is fused
    np.testing.assert_array_equal(quotient, hwsim.mufu("rcp", y, device="h100") * x)
    assert not emulation.not_simulated


def test_brain_floats_are_numbers_and_libdevice_is_there():
    x, y = (torch.from_numpy(operand(seed, 1, 128, "fp32")[0]).bfloat16() for seed in (1, 2))
    out, reciprocal = torch.empty(3, 128).bfloat16(), torch.empty(128)
    with hwsim.triton.emulate(device="h100") as emulation:
        brain_floats[(1,)](x, y, out, reciprocal, 128)
    for got, expected in zip(out, (x + y, torch.maximum(x, y), (x.float() * 1.37).bfloat16()), strict=True):
        np.testing.assert_array_equal(got.view(torch.int16), expected.view(torch.int16))
    np.testing.assert_array_equal(reciprocal, hwsim.mufu("rsqrt", x.float().abs().numpy(), device="h100"))
    assert not emulation.not_simulated


def test_a_functions_bits_are_named_where_hwsim_lacks_them():
    x = torch.ones(128)
    with hwsim.triton.emulate(device="mi300x") as emulation:
        functions[(1,)](x, x, x, torch.empty(7, 128), 1.0, 128, 1)
    assert "exp2 of fp32" in emulation.not_simulated and "not simulated: exp2 of fp32, 1 calls" in emulation.report()


def test_amds_products_and_nans_are_the_interpreters():
    x, out = torch.tensor([torch.nan, *torch.rand(127)]), torch.empty(7, 128)
    with hwsim.triton.emulate(device="mi300x"):
        functions[(1,)](x, x, x, out, 1.0, 128, 1)
    a = x.numpy()
    np.testing.assert_array_equal(out[2].numpy().view(np.int32), (a * a + a).view(np.int32))


def scaled_dot(a, a_scale, b, b_scale, formats, device, block=32, tile=None):
    """The product (m, n) of codes a (m, K), b (K, n) with scales (rows, K / block) or None, and the emulation."""
    k = a_scale.shape[1] * block if a_scale is not None else a.shape[1]
    kinds = {"bf16": (np.int16, torch.bfloat16), "fp16": (np.int16, torch.float16)}
    given = []
    for x, scale, fmt in ((a, a_scale, formats[0]), (b, b_scale, formats[1])):
        bits, dtype = kinds.get(fmt, (np.uint8, torch.uint8))
        given.append(torch.from_numpy(np.ascontiguousarray(x).view(bits)).view(dtype))
        codes = torch.zeros(1, dtype=torch.uint8) if scale is None else torch.from_numpy(np.ascontiguousarray(scale))
        given.append(codes.view(torch.float8_e4m3fn) if block == 16 else codes)
    has_scales = (a_scale is not None, b_scale is not None)
    d = torch.empty(a.shape[0], b.shape[1])
    with hwsim.triton.emulate(device=device) as emulation:
        scaled[(1,)](*given, d, *d.shape, k, tile or k, *formats, *has_scales, block)
    return d.numpy(), emulation


SCALED = np.load(Path(__file__).parents[1] / "golden" / "h200_triton" / "scaled_dots.npz")


@pytest.mark.parametrize("key", [name[:-2] for name in SCALED.files if name.endswith(" d")])
def test_a_scaled_dot_gives_an_h200s_bits(key):
    """Hopper multiplies the scales into bf16 operands. 16 rows and columns of a capture of 128 x 64 x 256."""
    formats = key.split(" x ")
    a, a_scale, b, b_scale, expected = (SCALED[f"{key} {name}"] for name in ("a", "a_scale", "b", "b_scale", "d"))
    left = [np.tile(x, (4, 1)) for x in (a, a_scale)]
    right = [np.tile(b, (1, 4)), np.tile(b_scale, (4, 1))]
    scales = [None if fmt == "bf16" else x for fmt, x in zip(formats, (left[1], right[1]), strict=True)]
    d, emulation = scaled_dot(left[0], scales[0], right[0], scales[1], formats, "h200", tile=64)
    np.testing.assert_array_equal(d[:16, :16].view(np.int32), expected)
    (record,) = emulation.dots.values()
    assert (record.instruction, record.dots, record.macs) == ("wgmma.m64n64k16.f32.bf16.bf16", 4, 64 * 64 * 256)
    assert 0 < record.errors.mean < 1e-6 and not emulation.not_simulated
    assert re.search(rf"64x64x64  {' x '.join(formats)} -> fp32  - +wgmma", emulation.report())


@pytest.mark.parametrize("device, scheme, instruction", [
    ("b200", "mxfp8", "tcgen05.mma.m128n64k32.mxf8f6f4.f32.e4m3.e4m3"),
    ("b200", "mxfp4", "tcgen05.mma.m128n64k64.mxf4.f32.e2m1.e2m1"),
    ("b200", "nvfp4", "tcgen05.mma.m128n64k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"),
    ("rtx5090", "mxfp8", "mma.m16n8k32.mxf8f6f4.f32.e4m3.e4m3.f32"),
])  # fmt: skip
def test_blackwells_instructions_take_the_scales(device, scheme, instruction):
    a, b = operand(1, 128, 128, "fp32"), operand(2, 128, 64, "fp32")
    left, right = hwsim.quantize(a, scheme), hwsim.quantize(b, scheme, axis=-2)
    codes = [np.asarray(x.elements).view(np.uint8) for x in (left, right)]
    if scheme != "mxfp8":
        codes = [codes[0][:, ::2] | codes[0][:, 1::2] << 4, codes[1][::2] | codes[1][1::2] << 4]
    formats, block = (("e4m3",) * 2, 32) if scheme == "mxfp8" else (("e2m1",) * 2, 16 if scheme == "nvfp4" else 32)
    scales = [np.asarray(x.scales).view(np.uint8) for x in (left, right)]
    d, emulation = scaled_dot(codes[0], scales[0], codes[1], scales[1], formats, device, block)
    (record,) = emulation.dots.values()
    assert (record.instruction, record.macs) == (instruction, 128 * 64 * 128)
    assert record.errors.count == 1 and record.errors.mean < 1e-6
    expected = hwsim.matmul(left.elements, right.elements, device=device, scale_a=left.scales, scale_b=right.scales)
    np.testing.assert_array_equal(d.view(np.int32), expected.view(np.int32))


def upcast(codes, fmt, scales, block, target):
    """Numbers of codes (rows, K) times the scales 2^(code - 127) of their blocks, as AMD's kernels make them: in fp32,
    then cut to bf16 or rounded to fp16.
    """
    dtype = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn}[fmt]
    product = codes.view(dtype).astype(np.float32) * np.exp2(np.repeat(scales, block, 1).astype(np.float64) - 127)
    word = product.astype(np.float32)
    assert (word == product).all()
    if target == "fp16":
        return word.astype(np.float16)
    return (word.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)


@pytest.mark.parametrize("left, right", [("e4m3", "e4m3"), ("e5m2", "bf16"), ("e2m1", "e2m1"), ("fp16", "e2m1")])
def test_amds_kernels_multiply_scales_into_operands(left, right):
    """Upcasts at the ends of bf16 and fp16, where a cut is no rounding, and sums that fp32 holds exactly."""
    draw, m, n, k = np.random.default_rng(5), 64, 64, 128
    target = "fp16" if left == "fp16" else "bf16"
    dtype = np.float16 if target == "fp16" else ml_dtypes.bfloat16
    sides = []
    for rows, fmt, low in ((m, left, 1), (n, right, 125)):
        if fmt in ("bf16", "fp16"):
            values = draw.integers(-4, 5, (rows, k)).astype(dtype)
            sides.append((values, values.view(np.uint16), None))
            continue
        codes = draw.integers(0, {"e2m1": 16, "e5m2": 0x7C, "e4m3": 0x7F}[fmt], (rows, k)).astype(np.uint8)
        scales = draw.integers(low, low + 4, (rows, k // 32)).astype(np.uint8)
        if target == "fp16":
            scales = draw.integers(100, 115, scales.shape).astype(np.uint8)  # down to subnormals of fp16
        sides.append((upcast(codes, fmt, scales, 32, target), codes, scales))
    kept = np.zeros((m, k), bool)
    kept[np.arange(m), np.arange(m) * 7 % k] = True  # one product a row: its sum is exact
    a = np.where(kept, sides[0][0], np.zeros((), dtype))
    a_codes = np.where(kept, sides[0][1], np.zeros((), sides[0][1].dtype))
    given = [a_codes, np.ascontiguousarray(sides[1][1].T)]
    if left == "e2m1":
        given[0] = a_codes[:, ::2] | a_codes[:, 1::2] << 4
    if right == "e2m1":
        given[1] = given[1][::2] | given[1][1::2] << 4
    d, emulation = scaled_dot(given[0], sides[0][2], given[1], sides[1][2], (left, right), "mi300x")
    expected = hwsim.matmul(a, sides[1][0].T, device="mi300x", scheme="native")
    np.testing.assert_array_equal(d.view(np.int32), expected.view(np.int32))
    assert (expected != 0).mean() > 0.5 and not emulation.not_simulated


def test_integer_scales_of_amds_instructions_are_refused():
    """Chips whose instructions scale have scales of integers there; what these round to is not known."""
    kinds = [ttgir.TensorType((4, 32), "f8E4M3FN", ""), ttgir.TensorType((4, 32), "i8", "")]
    kinds.append(ttgir.TensorType((4, 32), "bf16", ""))
    operation = ttgir.Operation("amdg.scaled_upcast_fp8", (), (), "", tuple(kinds))
    inputs = [tile_operations.LoweredValue(np.zeros((4, 32), np.uint8), format_of(x)) for x in ("e4m3", "int8")]
    with pytest.raises(hwsim.UnsupportedError, match=r"amdg\.scaled_upcast_fp8 .*; hwsim does not know it"):
        tile_operations.result_of(operation, inputs, {}, None)


def test_a_large_scaled_dot_on_cuda_cores():
    """Turing has no bf16 in its matrix units. Triton's compiler unrolls: its assembly is asked of a smaller dot."""
    draw = np.random.default_rng(6)
    codes = [draw.integers(0, 16, shape).astype(np.uint8) for shape in ((128, 128), (64, 128))]
    scales = [draw.integers(110, 140, (x.shape[0], 4)).astype(np.uint8) for x in codes]
    packed = [codes[0][:, ::2] | codes[0][:, 1::2] << 4, (codes[1][:, ::2] | codes[1][:, 1::2] << 4).T]
    d, emulation = scaled_dot(packed[0], scales[0], packed[1], scales[1], ("e2m1", "e2m1"), "t4")
    a, b = (upcast(x, "e2m1", s, 32, "bf16").astype(np.float32) for x, s in zip(codes, scales, strict=True))
    np.testing.assert_array_equal(d, hwsim.matmul(a, b.T, device="t4", format="fp32"))
    (record,) = emulation.dots.values()
    assert record.instruction == "fma.rn.f32" and record.macs == 128 * 64 * 128


def test_a_scale_of_nan_and_the_smallest_one():
    codes, scales = np.full((64, 64), 0x38, np.uint8), np.full((64, 2), 127, np.uint8)
    large = np.full((64, 2), [254, 0], np.uint8)
    scales[0], scales[1, 0] = 255, 0
    d, _ = scaled_dot(codes, scales, codes, large, ("e4m3", "e4m3"), "h100")
    assert np.isnan(d[0]).all()
    np.testing.assert_array_equal(d[1], 32)  # 2^-127 is a subnormal of bf16, and 2^-127 x 2^127 = 1
    refused = r"f8e4m3nv is only supported on compute capability >= 89"
    with pytest.raises(hwsim.UnsupportedError, match=refused):
        scaled_dot(codes, scales, codes, scales, ("e4m3", "e4m3"), "a100")


def test_other_roundings_of_the_library_are_refused():
    with pytest.raises(hwsim.UnsupportedError, match="__nv_fadd_rz of fp32, fp32: hwsim"), hwsim.triton.emulate():
        toward_zero[(1,)](torch.ones(128), torch.empty(128), 128)


def test_a_dot_that_is_added_begins_at_the_sum():
    a, bt = (torch.from_numpy(operand(seed, 64, 128, "fp16")) for seed in (1, 2))
    d = torch.empty(64, 64)
    with hwsim.triton.emulate(device="h100") as emulation:
        added[(1,)](a, bt.T.contiguous(), d, 64, 64, 128, 32)
    expected = hwsim.matmul(a.numpy(), bt.numpy().T, device="h100", scheme="native")
    np.testing.assert_array_equal(d.numpy(), expected)
    assert [record.dots for record in emulation.dots.values()] == [4]


def test_the_interpreter_is_as_before_afterwards():
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    before = (type(builder).create_dot, interpreter.GridExecutor.__call__, builder.options)
    with pytest.raises(ZeroDivisionError), hwsim.triton.emulate():
        assert type(builder).create_dot is not before[0]
        raise ZeroDivisionError
    assert (type(builder).create_dot, interpreter.GridExecutor.__call__, builder.options) == before


def test_what_is_refused():
    with (
        pytest.raises(hwsim.UnsupportedError, match="no target for the device ascend910a"),
        hwsim.triton.emulate("ascend910a"),
    ):
        pass
    unsaid = hwsim.device("h100").model_copy(update={"compute_capability": None})
    with (
        pytest.raises(hwsim.UnsupportedError, match="its compute_capability, which its file"),
        hwsim.triton.emulate(unsaid),
    ):
        pass
    with pytest.raises(hwsim.InputError, match="processes: 0"), hwsim.triton.emulate(processes=0):
        pass
    a = tensor(operand(1, 32, 32, "e4m3"), "e4m3")
    with pytest.raises(hwsim.UnsupportedError, match="no fp8e4nv on cuda:80"):
        run(a, a, (32, 32, 32), device="a100")


def test_without_the_interpreter_the_context_is_refused():
    code = "import hwsim.triton\nwith hwsim.triton.emulate(): pass"
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert result.returncode and "TRITON_INTERPRET=1" in result.stderr


def test_k_as_threads_hold_it():
    """Threads of a quad hold 2 `width` neighbours; registers of two go to one instruction (PTX, mma.m16n8k16, A)."""
    assert _quad_order(32, 2, 16) is None  # a thread holds what one instruction takes
    order = _quad_order(64, 4, 16)
    assert order[:16].tolist() == [0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29]
    assert sorted(order) == list(range(64))
    order = _lane_order(64, 8, 32, 32, 8)  # two groups of lanes, each with 4 of K an instruction
    assert order[:16].tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]


def test_the_compilers_words_are_told(capfd):
    question = DotQuestion((16, 16), (16, 16), "fp64", "fp16", "fp32", "ieee", 0, 4)
    with pytest.raises(hwsim.UnsupportedError, match=r"cannot lower this kernel for cuda:90"):
        lowered(question, target_of(hwsim.device("h100")))
    assert "tt.func" not in capfd.readouterr().err


@pytest.mark.parametrize("device", ["h100", "a100"])
@pytest.mark.parametrize(("fmt", "tile"), [("bf16", (128, 128, 64)), ("fp16", (128, 256, 64))])
def test_the_batch_invariant_library_gives_the_bits_of_its_kernel(device, fmt, tile):
    (m, n, k), dtype = (3, 140, 200), {"bf16": torch.bfloat16, "fp16": torch.float16}[fmt]
    a, bt = (tensor(operand(seed, rows, k, fmt), fmt) for seed, rows in ((1, m), (2, n)))
    d, _ = run(a, bt, tile, device=device, num_warps=8)
    given = {"device": device, "library": "batch-invariant", "format": fmt, "output": fmt}
    codes = (operand(1, m, k, fmt), operand(2, n, k, fmt).T)
    bits = [hwsim.matmul(x, codes[1], **given).view(np.int16) for x in (codes[0], codes[0][:1])]
    expected = torch.from_numpy(d).to(dtype).view(torch.int16).numpy()
    np.testing.assert_array_equal(bits[0], expected)
    np.testing.assert_array_equal(bits[1], expected[:1])
