"""The engine `cuda`: which products go to the GPU, what a unit's program says, and its bits where there is a GPU."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import hwsim
from hwsim.backend import by_name
from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import backend as cuda_backend
from hwsim.backend.cuda import device
from hwsim.backend.cuda.backend import LEAST_MACS, CudaBackend
from hwsim.backend.cuda.records import ProductArguments
from hwsim.backend.cuda.source import MODEL_STEPS, loop_of, program_text, sources
from hwsim.devices import load
from hwsim.devices.query import dot_spec
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.dot_operands import DotOperands

SIZE = round(LEAST_MACS ** (1 / 3))
#: A unit of each main loop, and two that scalar steps compute.
UNITS = {
    "fused.cuh": ("a100", "mma.m16n8k16.f32.bf16.bf16.f32"),
    "exact.cuh": ("ascend910a", "mmad.m16n16k16.f32.f16.f16"),
    "two_level.cuh": ("mi300x", "v_mfma_f32_32x32x8_f16"),
    "pairwise.cuh": ("mi210", "v_mfma_f32_32x32x8f16"),
    "chain.cuh": ("h100", "mma.m16n8k16.f64.f64.f64.f64"),
    "integer.cuh": ("a100", "mma.m16n8k32.satfinite.s32.A.B.s32"),
    "composite": ("h100", "mma.m16n8k32.f32.A.B.f32"),
    "block_scaled": ("b200", "tcgen05.mma.m128nNk64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"),
}


def spec_of(unit):
    name, instruction = UNITS[unit]
    return dot_spec(load(name), instruction)


def without_gpu():
    try:
        device.cupy()
    except UnsupportedError as error:
        return str(error)
    return ""


class Stub(CudaBackend):
    """The backend with the host's arrays and kernels in the place of the GPU's; it counts its products."""

    def __init__(self, monkeypatch, error=None):
        self.variant, self.calls = "sm_90", 0

        class Array(np.ndarray):
            def get(self, out=None):
                if out is None:
                    return np.array(self)
                out[...] = self
                return out

        def product(spec, operands):
            self.calls += 1
            if error is not None:
                raise error
            return CPU.gemm(spec, operands).view(Array)

        def add_chains(spec, operands, total, *, length, saturate, nan_code):
            self.calls += 1
            CPU.promote(spec, operands, total, length=length, saturate=saturate, nan_code=nan_code)

        monkeypatch.setattr(cuda_backend, "product", product)
        monkeypatch.setattr(cuda_backend, "add_chains", add_chains)
        monkeypatch.setattr(cuda_backend, "to_gpu", lambda x: np.array(x).view(Array))
        monkeypatch.setattr(cuda_backend, "failures", lambda: (MemoryError,))
        monkeypatch.setattr(cuda_backend, "is_out_of_memory", lambda error: isinstance(error, MemoryError))


def operands(spec, m=SIZE, n=SIZE, k=SIZE):
    rng = np.random.default_rng(1)
    sides = ((m, k), spec.a), ((k, n), spec.b)
    return DotOperands(*(CPU.encode(rng.standard_normal(shape), format_of(name)) for shape, name in sides))


@pytest.mark.parametrize("is_large", [True, False])
def test_large_products_alone_go_to_the_gpu(monkeypatch, is_large):
    spec, backend = spec_of("fused.cuh"), Stub(monkeypatch)
    given = operands(spec) if is_large else operands(spec, m=SIZE // 2)
    for out in (None, np.empty((given.a.shape[0], SIZE), np.uint32)):
        result = backend.gemm(spec, given, out=out)
        assert np.array_equal(result, CPU.gemm(spec, given)) and (out is None or result is out)
    assert backend.calls == 2 * is_large
    total, want = np.zeros(result.shape, np.float32), np.zeros(result.shape, np.float32)
    backend.promote(spec, given, total, length=SIZE // 2)
    CPU.promote(spec, given, want, length=SIZE // 2)
    assert backend.calls == 3 * is_large and np.array_equal(total, want)


def test_a_gpu_that_fails_leaves_the_product_to_the_cpu(monkeypatch):
    spec, backend = spec_of("fused.cuh"), Stub(monkeypatch, MemoryError())
    given = operands(spec)
    with pytest.warns(UserWarning, match="engine cuda: its memory is too small: the CPU's kernels compute"):
        assert np.array_equal(backend.gemm(spec, given), CPU.gemm(spec, given))


def test_what_does_not_fit_is_refused_before_the_gpu_sees_it(monkeypatch):
    spec, backend = spec_of("fused.cuh"), Stub(monkeypatch)
    given = operands(spec)
    for wrong in (
        given._replace(b=given.b[1:]),
        given._replace(a=given.a.astype(np.uint32)),
        given._replace(c=np.zeros((2, 2), np.uint32)),
        given._replace(scale_a=np.zeros((1, 1), np.uint8)),
        given._replace(scale_d=np.zeros(3, np.uint8)),
    ):
        with pytest.raises(InputError, match="gemm"):
            backend.gemm(spec, wrong)
    with pytest.raises(InputError, match="length"):
        backend.promote(spec, given, np.zeros((SIZE, SIZE), np.float32), length=7)
    assert not backend.calls


@pytest.mark.parametrize("unit", UNITS)
def test_a_program_has_the_unit_and_its_main_loop(unit):
    spec = spec_of(unit)
    text = program_text(spec, divided=False)
    loop = unit if unit.endswith(".cuh") else None
    assert loop_of(spec) == loop and (loop is None or f'#include "{loop}"' in text)
    included, seen = re.findall(r'#include "([^"]+)"', text), set()
    while included:  # every file that a program reads is there
        name = included.pop()
        if name not in seen:
            seen.add(name)
            included += re.findall(r'#include [<"]([^">]+)[">]', sources()[name])
    models = re.search(r"enum hw_model \{(.*?)HW_MODELS", sources()["hw_dot.h"], re.S)
    assert len(MODEL_STEPS) == models[1].count(",")


def test_an_accumulator_that_is_divided_is_for_the_fused_loop_alone():
    assert [loop_of(spec_of(unit), divided=True) for unit in UNITS] == ["fused.cuh", *[None] * (len(UNITS) - 1)]


def test_the_record_has_the_fields_of_the_source():
    declared = re.search(r"struct Arguments \{(.*?)\n\};", sources()["tile.cuh"], re.S)
    lines = re.sub(r"/\*.*?\*/", "", declared[1])
    names = re.findall(r"(\w+)\s*(?:,|;)", lines)
    assert names == [name for name, _ in ProductArguments._fields_]


def test_without_cupy_the_engine_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    device.cupy.cache_clear()
    by_name._cuda.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match=r"CuPy is not installed .*pip install 'hwsim\[cuda\]'"):
            hwsim.run(m=4, n=4, k=4, engine="cuda")
    finally:
        device.cupy.cache_clear()
        by_name._cuda.cache_clear()


def test_the_engine_comes_by_option_or_environment(monkeypatch):
    with pytest.raises(InputError, match="engine = 'gpu'; allowed: cpu, cuda"):
        hwsim.run(m=4, n=4, k=4, engine="gpu")
    monkeypatch.setenv("HWSIM_ENGINE", "cudda")
    with pytest.raises(InputError, match="HWSIM_ENGINE = 'cudda'; allowed: cpu, cuda; did you mean 'cuda'"):
        hwsim.run(m=4, n=4, k=4)
    assert hwsim.run(m=4, n=4, k=4, engine="cpu").c is not None
    monkeypatch.setattr(by_name, "_cuda", lambda: Stub(monkeypatch))
    monkeypatch.setenv("HWSIM_ENGINE", "cuda")
    options = {"m": SIZE, "n": SIZE, "k": SIZE, "device": "a100", "timing": False}
    result = hwsim.run(**options)
    assert result.kernel == "sm_90"
    assert result.result_sha256 == hwsim.run(engine="cpu", **options).result_sha256


@pytest.mark.skipif(bool(without_gpu()), reason=without_gpu() or "there is a GPU")
@pytest.mark.parametrize("unit", UNITS)
def test_bits_of_the_gpu(unit):
    from hwsim.backend.cuda.unit_programs import product

    spec, rng = spec_of(unit), np.random.default_rng(1)
    for m, n, k in ((130, 257, 67), (5, 3, 1), (33, 40, 3)):
        sides = ((m, k), spec.a), ((k, n), spec.b), ((m, n), spec.c)
        codes = [rng.integers(0, 1 << 62, shape).astype(code_dtype(format_of(name))) for shape, name in sides]
        scales = [None, None]
        if spec.scale_format is not None:
            blocks = -(-k // spec.scale_block)
            scales = [rng.integers(0, 127, shape, np.uint8) for shape in ((m, blocks), (blocks, n))]
        given = DotOperands(*codes, *scales)
        on_gpu = DotOperands(*(None if x is None else device.to_gpu(x) for x in given[:-1]))
        assert np.array_equal(product(spec, on_gpu).get(), CPU.gemm(spec, given))
