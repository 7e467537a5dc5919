"""The sources of the GPU's kernels, compiled for this machine: every main loop's bits without a GPU.

Not seen here: what a GPU's compiler and its instructions do, races of threads, and whether `.ftz` flushes what rounding
makes normal.
"""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import sys

import numpy as np
import pytest
from gpu_in_place import library_of

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda.records import ProductArguments
from hwsim.backend.cuda.source import FEWER, loop_of, program_text
from hwsim.devices import load
from hwsim.devices.query import dot_spec
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.dot_operands import DotOperands

NVF4 = "mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"
#: A unit of each main loop, with what its edges are: signs of zeros, scales, lines of wide range, subnormal results.
UNITS = (
    *(("h100", "mma.m16n8k16.f16.f16.f16.f16"), ("b200", "tcgen05.mma.m128nNk32.mxf8f6f4.f32.A.B")),
    *(("ascend910b1", "mmad.m16n16k8.f32.f32.f32"), ("mi300x", "v_mfma_f32_32x32x8_bf16")),
    *(("mi300x", "v_mfma_f32_32x32x16_fp8_bf8"), ("h100", "mma.m16n8k32.f32.A.B.f32")),
    *(("b200", f"tcgen05.mma.m128nNk64.{kind}") for kind in ("mxf4.f32.e2m1.e2m1", NVF4)),
    *(("mi210", "v_mfma_f32_32x32x4bf16"), ("a100", "mma.m8n8k4.f64.f64.f64.f64")),
    *(("a100", "mma.m16n8k32.satfinite.s32.A.B.s32"), ("a100", "mma.m16n8k32.satfinite.s32.u8.s8.s32")),
    ("a100", "mma.m16n8k64.s32.s4.s4.s32"),
)
KINDS = ("normal", "specials", "least", "largest", "few")
RUN = """
static const Arguments *given;
extern "C" void run(const Arguments *g, int matrices)
{
    given = g;
    blockDim.x = Tile<Unit>::THREADS;
    for (blockIdx.z = 0; blockIdx.z < matrices; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y * Tile<Unit>::ROWS < g->m; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x * COLUMN_TILE < g->n; blockIdx.x++)
                run_block(Tile<Unit>::THREADS, [] { run_tiles<Unit>(*given); });
    blockIdx = {0, 0, 0}, threadIdx = {0, 0, 0}, blockDim = {1, 1, 1};
    run_scalar(*g, (long long)matrices * g->m * g->n, false);
}
"""
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="the sources are compiled by g++ on Linux"
)


def compiled(spec, folder, divided=False, fewer=1):
    """The program of a unit as a library of this machine."""
    text = re.sub(r'(?m)^extern "C" __global__.*(\n\{(\n.*)*?\n\})?$', "", program_text(spec, divided, fewer))
    return library_of(text + RUN, folder)


def by_host(library, spec, given):
    """What the kernels of a unit write; of stacks with one axis."""
    m, n = given.a.shape[-2], given.b.shape[-1]
    out = np.empty((len(given.a), m, n), code_dtype(format_of(spec.d)))
    marks = np.zeros(1 + math.ceil(out.size / 32), np.uint32)
    g = ProductArguments(out=out.ctypes.data, out_matrix=out.strides[0], marks=marks.ctypes.data)
    g.m, g.n, g.k = m, n, given.a.shape[-1]
    g.divide = 0 if isinstance(given.scale_d, int) else given.scale_d.ctypes.data
    for name, array in zip(("a", "b", "c", "a_scale", "b_scale"), given[:5], strict=True):
        if array is not None:
            setattr(g, name, array.ctypes.data)
            for axis, stride in zip(("matrix", "row", "column"), array.strides, strict=True):
                setattr(g, f"{name}_{axis}", stride)
    library.run(ctypes.byref(g), len(given.a))
    return out


def drawn(rng, name, shape, kind):
    """Random codes of a format: numbers, bit fields with infinities and NaNs, ends of its range, and few values whose
    sums cancel, are halves of a last place, or meet the ends.
    """
    fmt = format_of(name)
    if fmt.is_integer:
        ends = [0, 1, (1 << fmt.bits) - 1, (1 << fmt.bits - 1) - 1, 1 << fmt.bits - 1]
        return (rng.choice(ends, shape) if kind == "few" else rng.integers(0, 1 << fmt.bits, shape)).astype(
            code_dtype(fmt)
        )
    if kind == "normal":
        return CPU.encode(rng.standard_normal(shape), fmt, "RNE", "saturate")
    if kind == "specials":
        return rng.integers(0, 1 << fmt.bits, shape, np.uint64).astype(code_dtype(fmt))
    top, bits = fmt.largest_magnitude >> fmt.fraction_bits, fmt.fraction_bits
    middle = [max(1, fmt.bias - places) for places in (25, 24, 13, 12, 1, 0)]
    exponents = {"least": [0, 1, 2], "largest": [top - 1, top], "few": [*(0,) * 8, 1, *middle, top]}[kind]
    fractions = rng.integers(0, 1 << bits, shape, np.int64)
    if kind == "few":
        fractions = rng.choice([0, 0, 0, 1, (1 << bits) - 1], shape)
    magnitude = np.minimum(rng.choice(exponents, shape) << bits | fractions, fmt.largest_magnitude)
    code = (magnitude | rng.integers(0, 2, shape) << fmt.magnitude_bits) << fmt.ignored_bits
    return code.astype(code_dtype(fmt))


def operands(rng, spec, kind, k):
    """A stack of two products with an accumulator, operands with strides of their own, and scales where there are."""
    a = np.swapaxes(drawn(rng, spec.a, (2, k, 19), kind), 1, 2)
    b = drawn(rng, spec.b, (1, k, 23), kind)[:, ::-1]
    c = drawn(rng, spec.c, (2, 19, 46), "few" if kind in ("least", "largest") else kind)[..., ::2]
    scales = [None, None]
    if spec.scale_format is not None:
        blocks = -(-k // spec.scale_block)
        most = 256 if kind == "specials" else 255
        scales = [rng.integers(0, most, shape).astype(np.uint8) for shape in ((2, 19, blocks), (2, blocks, 23))]
    return DotOperands(a, np.broadcast_to(b, (2, k, 23)), c, *scales)


def zeros(rng, spec, k):
    """Operands and accumulators that are zeros; of a row all have one sign."""
    m, n = 19, 23
    a, c = (rng.integers(0, 2, (1, m, 1)) << (format_of(name).bits - 1) for name in (spec.a, spec.c))
    a, b, c = np.broadcast_to(a, (1, m, k)), np.zeros((1, k, n)), np.broadcast_to(c, (1, m, n))
    codes = (side.astype(code_dtype(format_of(name))) for side, name in ((a, spec.a), (b, spec.b), (c, spec.c)))
    if spec.scale_format is None:
        return DotOperands(*codes)
    of_scales, blocks = format_of(spec.scale_format), k // spec.scale_block
    one = np.uint8(of_scales.bias << of_scales.fraction_bits)
    return DotOperands(*codes, np.full((1, m, blocks), one), np.full((1, blocks, n), one))


@pytest.mark.parametrize(("device", "instruction"), UNITS)
def test_bits_of_the_sources(device, instruction, tmp_path):
    spec, rng = dot_spec(load(device), instruction), np.random.default_rng(1)
    assert loop_of(spec) is not None
    library = compiled(spec, tmp_path)
    for kind in KINDS:
        for k in (1, 5, 67):
            given = operands(rng, spec, kind, k)
            assert np.array_equal(by_host(library, spec, given), CPU.gemm(spec, given)), (kind, k)
        given = given._replace(c=None)
        assert np.array_equal(by_host(library, spec, given), CPU.gemm(spec, given)), kind
    if not format_of(spec.a).is_integer:
        given = zeros(rng, spec, 64)
        assert np.array_equal(by_host(library, spec, given), CPU.gemm(spec, given))


def test_exact_sums_see_places_beyond_a_double(tmp_path):
    spec = dot_spec(load("ascend910b1"), "mmad.m16n16k8.f32.f32.f32")
    library, near = compiled(spec, tmp_path), (1 + 2.0**-12) * 2.0**-25
    for c, left, right, want in (
        (1, (2.0**-12, 2.0**-30), (2.0**-12, 2.0**-30), 1 + 2.0**-23),  # a tie, and 2^-60
        (0, (1, 1, near, 2.0**-50), (1, -1, near, 2.0**-53), 2.0**-50 * (1 + 2.0**-11 + 2.0**-23)),  # and 2^-103
    ):
        shapes = (1, 1, len(left)), (1, len(right), 1), (1, 1, 1)
        codes = (
            np.array(x, np.float32).reshape(y).view(np.uint32) for x, y in zip((left, right, c), shapes, strict=True)
        )
        given = DotOperands(*codes)
        assert by_host(library, spec, given).view(np.float32) == want == CPU.gemm(spec, given).view(np.float32)


def test_bits_of_a_divided_accumulator(tmp_path):
    spec, rng = dot_spec(load("b200"), "tcgen05.mma.m64nNk32.f8f6f4.f16.A.B"), np.random.default_rng(1)
    library = compiled(spec, tmp_path, divided=True)
    for kind in KINDS:
        given = operands(rng, spec, kind, 67)
        given = given._replace(scale_d=rng.integers(0, 16, -(-67 // spec.unit.terms)).astype(np.uint8))
        assert np.array_equal(by_host(library, spec, given), CPU.gemm(spec, given)), kind


@pytest.mark.parametrize(("device", "instruction"), (("b200", "mma.m16n8k32.f16.A.B.f16"), UNITS[2]))
def test_bits_of_blocks_with_fewer_rows(device, instruction, tmp_path):
    spec, rng = dot_spec(load(device), instruction), np.random.default_rng(1)
    library = compiled(spec, tmp_path, fewer=FEWER)
    for kind in KINDS:
        given = operands(rng, spec, kind, 67)
        assert np.array_equal(by_host(library, spec, given), CPU.gemm(spec, given)), kind


def test_every_loop_is_asked():
    loops = {loop_of(dot_spec(load(device), instruction)) for device, instruction in UNITS}
    names = ("fused", "exact", "two_level", "pairwise", "chain", "integer", "composite", "block_scaled")
    assert loops == {f"{name}.cuh" for name in names}
