"""The engine `cuda`: which products go to the GPU, what a unit's program says, and its bits where there is a GPU."""

from __future__ import annotations

import ctypes
import re
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import hwsim
from hwsim.backend import by_name
from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import backend as cuda_backend
from hwsim.backend.cuda import device, unit_programs
from hwsim.backend.cuda.backend import LEAST_MACS, CudaBackend
from hwsim.backend.cuda.records import ProductArguments
from hwsim.backend.cuda.source import MODEL_STEPS, loop_of, program_text, sources
from hwsim.devices import load
from hwsim.devices.query import dot_spec
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import code_dtype, format_of
from hwsim.frameworks.numpy.emulation import Array
from hwsim.host import warned
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import (
    BlockScaledUnit,
    CompositeUnit,
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    IntegerUnit,
    PairwiseUnit,
    Specials,
    TwoLevelUnit,
)

SIZE = round(LEAST_MACS ** (1 / 3))
#: A unit of each main loop, and one that scalar steps compute.
UNITS = {
    "fused.cuh": ("a100", "mma.m16n8k16.f32.bf16.bf16.f32"),
    "exact.cuh": ("ascend910a", "mmad.m16n16k16.f32.f16.f16"),
    "two_level.cuh": ("mi300x", "v_mfma_f32_32x32x8_f16"),
    "pairwise.cuh": ("mi210", "v_mfma_f32_32x32x8f16"),
    "chain.cuh": ("h100", "mma.m16n8k16.f64.f64.f64.f64"),
    "integer.cuh": ("a100", "mma.m16n8k32.satfinite.s32.A.B.s32"),
    "composite.cuh": ("h100", "mma.m16n8k32.f32.A.B.f32"),
    "block_scaled.cuh": ("b200", "tcgen05.mma.m128nNk64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"),
    "composite.cuh, fp16": ("h100", "mma.m16n8k32.f16.A.B.f16"),
    "scalar": DotSpec(FusedUnit(terms=16, fraction_bits=60, floor_exponent=-133), "fp16", "fp16", "fp32", "fp32"),
}


IEEE, FLUSHES = Specials(zero="ieee"), Specials(zero="ieee", flush_operands=True, flush_results=True)
INNER = FusedUnit(terms=16, fraction_bits=25, floor_exponent=-133)
COMPOSITE = CompositeUnit(32, INNER, "fp16", 4, ((0, 1), (2, 3)))
BLOCKS = BlockScaledUnit(64, group=16, fraction_bits=35, floor_exponent=-139, zero_exponent=-139)
#: A unit that a loop takes, and what it must not be: each line differs from the first in one thing.
TAKEN = {
    "fused.cuh": (
        DotSpec(FusedUnit(terms=16, fraction_bits=25, floor_exponent=-133), "fp16", "bf16", "fp32", "fp32"),
        ({"terms": 3}, {"terms": 128}, {"fraction_bits": 44}, {"floor_exponent": -1023}, {"floor_exponent": 972}),
        ({"rounding": "RU"}, {"rounding": "RNE", "result_format": "e8m13"}, {"specials": IEEE}),
        ({"specials": Specials(operands="saturate")}, {"specials": Specials(overflow="saturate")}),
        ({"specials": Specials(flush_operands=True)}, {"specials": Specials(flush_results=True)}),
        ({"a": "fp64"}, {"a": "ue8m0"}, {"c": "fp64"}, {"c": "ue8m0"}, {"d": "ue8m0"}, {"d": "e4m3fnuz"}),
        ({"d": "e5m2fnuz"}, {"scale_format": "ue4m3", "scale_block": 16}),
    ),
    "exact.cuh": (
        DotSpec(ExactUnit(terms=16, specials=IEEE), "fp32", "bf16", "fp32", "fp32"),
        ({"terms": 12}, {"rounding": "RZ"}, {"specials": Specials()}, {"specials": FLUSHES}, {"a": "ue8m0"}),
        ({"a": "fp64"}, {"c": "bf16", "d": "bf16"}, {"d": "fp64", "c": "fp64"}),
    ),
    "two_level.cuh": (
        DotSpec(TwoLevelUnit(terms=8, specials=IEEE), "fp16", "tf32", "fp32", "fp32"),
        ({"terms": 32}, {"product_fraction_bits": 45}, {"sum_fraction_bits": 45}, {"accumulator_fraction_bits": 45}),
        ({"final_fraction_bits": 51}, {"terms": 5, "interleaved": True}, {"rounding": "RZ"}),
        ({"specials": Specials()}, {"specials": FLUSHES}, {"specials": replace(IEEE, overflow="saturate")}),
        ({"c": "fp16", "d": "fp16"}, {"a": "fp64"}, {"b": "ue8m0"}),
    ),
    "composite.cuh": (
        DotSpec(COMPOSITE, "e4m3", "e5m2", "fp32", "fp32"),
        ({"inner": replace(INNER, fraction_bits=46)}, {"inner": replace(INNER, rounding="RU")}, {"terms": 16}),
        ({"inner": replace(INNER, specials=FLUSHES)}, {"specials": Specials(overflow="saturate")}),
        ({"selections": ((0, 2), (1, 3))}, {"c": "fp16", "d": "fp16"}, {"c": "fp16"}),
    ),
    "block_scaled.cuh": (
        DotSpec(BLOCKS, "e2m1", "e2m1", "fp32", "fp32", "ue4m3", 16),
        ({"group": 2}, {"group": 32}, {"fraction_bits": 37}, {"zero_exponent": -138}, {"rounding": "RNE"}),
        ({"specials": IEEE}, {"specials": Specials(overflow="saturate")}, {"a": "e2m3", "b": "e3m2"}),
        ({"a": "e3m2", "b": "e3m2"}, {"a": "e4m3", "b": "e4m3"}, {"d": "fp16", "c": "fp16"}),
    ),
    "pairwise.cuh": (
        DotSpec(PairwiseUnit(terms=4, specials=FLUSHES), "bf16", "hf32", "fp32", "fp32"),
        ({"terms": 8}, {"rounding": "RZ"}, {"specials": replace(FLUSHES, flush_results=False)}, {"a": "ue8m0"}),
        ({"specials": replace(FLUSHES, zero="positive")}, {"specials": replace(FLUSHES, operands="saturate")}),
        ({"specials": replace(FLUSHES, nan_code=0)}, {"c": "fp16", "d": "fp16"}, {"a": "fp32"}, {"a": "e8m13"}),
    ),
    "chain.cuh": (
        DotSpec(FmaChainUnit(nan_order="bca"), "e4m3", "fp32", "fp32", "fp32"),
        ({"rounding": "RZ"}, {"specials": Specials()}, {"specials": FLUSHES}, {"a": "fp64"}, {"a": "ue8m0"}),
        ({"specials": replace(IEEE, overflow="saturate")}, {"specials": replace(IEEE, nan_code=0x7F800000)}),
        ({"c": "fp64"}, {"c": "fp16", "d": "fp16"}),
    ),
    "integer.cuh": (
        DotSpec(IntegerUnit(terms=64, overflow="saturate"), "int8", "uint8", "int32", "int32"),
        ({"terms": 128}, {"a": "int32"}, {"a": "int16", "b": "int16"}, {"d": "int16"}, {"c": "int16"}),
    ),
}


def changed(spec, change):
    """A unit that differs: formats of the DotSpec, the rest of its unit."""
    of_spec = {name: value for name, value in change.items() if name in ("a", "b", "c", "d") or "scale" in name}
    of_unit = {name: value for name, value in change.items() if name not in of_spec}
    return replace(spec, unit=replace(spec.unit, **of_unit), **of_spec)


def spec_of(unit):
    given = UNITS[unit]
    return given if isinstance(given, DotSpec) else dot_spec(load(given[0]), given[1])


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
        monkeypatch.setattr(cuda_backend, "to_gpu", lambda x: np.array(x).view(Memory))
        monkeypatch.setattr(cuda_backend, "failures", lambda: (MemoryError,))
        monkeypatch.setattr(warned, "SAID", set())
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
    with pytest.warns(UserWarning, match="engine cuda: its memory is too small: the CPU's kernels compute") as told:
        for _ in range(2):
            assert np.array_equal(backend.gemm(spec, given), CPU.gemm(spec, given))
    assert len(told) == 1
    total, want = np.ones((SIZE, SIZE), np.float32), np.ones((SIZE, SIZE), np.float32)
    backend.promote(spec, given, total, length=SIZE // 2)
    CPU.promote(spec, given, want, length=SIZE // 2)
    assert np.array_equal(total, want)


def test_what_the_gpus_memory_does_not_hold_is_computed_in_parts(monkeypatch):
    spec, backend = spec_of("fused.cuh"), Stub(monkeypatch)
    monkeypatch.setattr(cuda_backend, "FEWEST_ROWS", 32)
    whole, rows = cuda_backend.product, []

    def product(spec, given):
        rows.append(given.a.shape[0])
        if rows[-1] > 70:
            raise MemoryError
        return whole(spec, given)

    monkeypatch.setattr(cuda_backend, "product", product)
    given = operands(spec)
    given = given._replace(c=given.a.astype(np.uint32) << 12)
    want = CPU.gemm(spec, given)
    assert np.array_equal(backend.gemm(spec, given), want)
    assert backend.gemm(spec, given, out=given.c) is given.c and np.array_equal(given.c, want)
    assert rows == [256, 128, 64, 64, 128, 64, 64] * 2


def test_a_gpu_that_fails_after_some_parts_leaves_the_accumulator_to_the_cpu(monkeypatch):
    spec, backend = spec_of("fused.cuh"), Stub(monkeypatch)
    whole, rows = cuda_backend.product, []

    def product(spec, given):
        rows.append(given.a.shape[0])
        if len(rows) != 2:
            raise MemoryError
        return whole(spec, given)

    monkeypatch.setattr(cuda_backend, "product", product)
    monkeypatch.setattr(cuda_backend, "FEWEST_ROWS", SIZE // 2)
    given = operands(spec)
    given = given._replace(c=given.a.astype(np.uint32) << 12)
    want = CPU.gemm(spec, given)
    with pytest.warns(UserWarning, match="its memory is too small"):
        assert backend.gemm(spec, given, out=given.c) is given.c
    assert rows == [SIZE, SIZE // 2, SIZE // 2] and np.array_equal(given.c, want)


def test_a_product_of_few_multiply_accumulates_for_its_bytes_stays_on_the_cpu(monkeypatch):
    spec, backend = spec_of("fused.cuh"), Stub(monkeypatch)
    for m, n, k, calls in ((4096, 4096, 1, 0), (1, 8192, 2048, 0), (1024, 1024, 16, 1)):
        given = operands(spec, m, n, k)
        assert np.array_equal(backend.gemm(spec, given), CPU.gemm(spec, given)) and backend.calls == calls


@pytest.mark.parametrize("refused", [True, False])
def test_what_nvrtc_fails_at_is_the_cpus_work(monkeypatch, refused):
    class RefusalError(Exception):
        pass

    def fails(*args):
        raise RefusalError("no such option")

    nvrtc = SimpleNamespace(
        getVersion=lambda: (13, 0),
        createProgram=lambda *args: 1,
        compileProgram=fails,
        getProgramLog=lambda program: "line 1",
        destroyProgram=lambda program: None,
        NVRTCError=RefusalError,
    )
    modules = {"cupy": SimpleNamespace(), "cupy.cuda": SimpleNamespace(nvrtc=nvrtc) if refused else None}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(device, "architecture", lambda: "sm_90")
    with pytest.raises(
        device.CompilationError, match="refuses a kernel .no such option.: line 1" if refused else "does not load"
    ):
        device.compiled("text")


def test_a_program_is_compiled_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path))
    monkeypatch.setattr(device, "architecture", lambda: "sm_90")
    monkeypatch.setattr(device, "_nvrtc", lambda: SimpleNamespace(getVersion=lambda: (13, 0)))
    compilations = []
    monkeypatch.setattr(device, "_compiled_anew", lambda nvrtc, text: compilations.append(text) or text.encode())
    for text in ("one", "two", "one"):
        assert device.compiled(text) == text.encode()
    assert compilations == ["one", "two"]
    monkeypatch.setattr(device, "architecture", lambda: "sm_100")
    device.compiled("one")
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "file" / "folder"))
    (tmp_path / "file").write_text("no folder")
    assert device.compiled("one") == b"one" and compilations == ["one", "two", "one", "one"]


def test_what_does_not_fit_is_refused_before_the_gpu_sees_it(monkeypatch):
    spec, backend = spec_of("fused.cuh"), Stub(monkeypatch)
    given = operands(spec)
    for wrong in (
        given._replace(b=given.b[1:]),
        given._replace(a=given.a.astype(np.uint32)),
        given._replace(c=np.zeros((2, 2), np.uint32)),
        given._replace(scale_a=np.zeros((1, 1), np.uint8)),
        given._replace(scale_d=np.zeros(3, np.uint8)),
        given._replace(a=given.a.ravel()),
    ):
        with pytest.raises(InputError, match="gemm"):
            backend.gemm(spec, wrong)
    with pytest.raises(InputError, match="length"):
        backend.promote(spec, given, np.zeros((SIZE, SIZE), np.float32), length=7)
    for total in (np.zeros((SIZE + 1, SIZE), np.float32), np.zeros((SIZE, SIZE), np.float32).T):
        with pytest.raises(InputError, match=r"promote: .*total"):
            backend.promote(spec, given, total, length=16)
    scaled = spec_of("block_scaled.cuh")
    given = operands(scaled)
    blocks = -(-SIZE // scaled.scale_block)
    few = given._replace(scale_a=np.zeros((SIZE - 1, blocks), np.uint8), scale_b=np.zeros((blocks, SIZE), np.uint8))
    with pytest.raises(InputError, match="scale_a"):
        backend.gemm(scaled, few)
    assert not backend.calls


@pytest.mark.parametrize("unit", UNITS)
def test_a_program_has_the_unit_and_its_main_loop(unit):
    spec = spec_of(unit)
    text = program_text(spec, divided=False)
    loop = None if unit == "scalar" else unit.split(",")[0]
    assert loop_of(spec) == loop and (loop is None or f'#include "{loop}"' in text)
    included, seen = re.findall(r'#include "([^"]+)"', text), set()
    while included:  # every file that a program reads is there
        name = included.pop()
        if name not in seen:
            seen.add(name)
            included += re.findall(r'#include [<"]([^">]+)[">]', sources()[name])
    models = re.search(r"enum hw_model \{(.*?)HW_MODELS", sources()["hw_dot.h"], re.S)
    assert len(MODEL_STEPS) == models[1].count(",")


@pytest.mark.parametrize("loop", TAKEN)
def test_a_loop_takes_the_units_for_which_it_was_proved_alone(loop):
    spec, *lines = TAKEN[loop]
    assert loop_of(spec) == loop and CPU.takes(spec)
    for change in (change for line in lines for change in line):
        assert loop_of(changed(spec, change)) is None, change


class Memory(np.ndarray):
    """An array of the host that has of CuPy's what kernels are started with."""

    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data))

    def get(self):
        return np.array(self)


MADE = {"empty": np.empty, "zeros": np.zeros}
ARRAYS = SimpleNamespace(**{name: lambda *given, make=make: make(*given).view(Memory) for name, make in MADE.items()})


def compute(g, spec, matrices):
    """What kernels write, by the CPU's: operands without scales, as the record says where they lie."""

    def at(address, shape, strides, name):
        dtype = np.dtype(code_dtype(format_of(name)))
        size = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + dtype.itemsize
        held = np.frombuffer((ctypes.c_char * size).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(held, shape, strides)

    width = np.dtype(code_dtype(format_of(spec.d))).itemsize
    for i in range(matrices):
        a = at(g.a + i * g.a_matrix, (g.m, g.k), (g.a_row, g.a_column), spec.a)
        b = at(g.b + i * g.b_matrix, (g.k, g.n), (g.b_row, g.b_column), spec.b)
        c = at(g.c + i * g.c_matrix, (g.m, g.n), (g.c_row, g.c_column), spec.c)
        out = at(g.out + i * g.out_matrix, (g.m, g.n), (width * g.n, width), spec.d)
        out[...] = CPU.gemm(spec, DotOperands(a, b, c))


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_stacks_and_rows_beyond_a_grid_are_computed_in_parts(monkeypatch, lead):
    spec, starts = spec_of("fused.cuh"), []

    def run(g, matrices):
        starts.append((matrices, g.m))
        compute(g, spec, matrices)

    program = SimpleNamespace(has_loop=True, most_rows=3, most_matrices=4, run=run)
    monkeypatch.setattr(unit_programs, "cupy", lambda: ARRAYS)
    monkeypatch.setattr(unit_programs, "unit_program", lambda spec, divided, gpu: program)
    monkeypatch.setattr(unit_programs, "current", lambda: 0)
    rng = np.random.default_rng(1)
    shapes = ((*lead, 9, 7), np.uint16), ((*lead, 9, 5), np.uint16), ((*lead, 5, 7), np.uint32)
    b, a, c = (rng.integers(0, 1 << 14, shape).astype(dtype).view(Memory) for shape, dtype in shapes)
    given = DotOperands(np.swapaxes(a, -1, -2), b, c)
    assert np.array_equal(unit_programs.product(spec, given), CPU.gemm(spec, DotOperands(*map(np.array, given[:3]))))
    of_stack = {(): [1], (5,): [4, 1], (2, 3): [4, 2]}[lead]
    assert starts == [(matrices, rows) for matrices in of_stack for rows in (3, 2)]


@pytest.mark.parametrize(
    ("most_bytes", "rows"),
    [(2048, {(128, 16384): 128, (130, 300): 32, (32, 300): 128}), (2047, {(9, 9): 32}), (511, {})],
)
def test_blocks_have_the_rows_that_fit_the_memory_and_fill_the_gpu(monkeypatch, most_bytes, rows):
    starts, texts = [], []

    def compiled(text):
        texts.append(text)
        fewer = int(re.search(r"#define FEWER (\d)", text)[1])
        sizes = np.array([2048 // fewer, 512 // fewer, 128 // fewer])

        def start(name, arguments, **more):
            if name == "sizes":
                arguments[0][...] = sizes
            else:
                starts.append((name, more.get("grid"), more.get("threads")))

        return SimpleNamespace(start=start, allow_shared_bytes=lambda *given: None)

    class Sizes(np.ndarray):
        def get(self):
            return self

    monkeypatch.setattr(unit_programs, "CompiledProgram", compiled)
    monkeypatch.setattr(
        unit_programs, "cupy", lambda: SimpleNamespace(zeros=lambda *given: np.zeros(*given).view(Sizes))
    )
    monkeypatch.setattr(unit_programs, "most_shared_bytes", lambda: most_bytes)
    monkeypatch.setattr(unit_programs, "processors", lambda: 100)
    monkeypatch.setattr(unit_programs, "record_on_gpu", lambda record: None)
    monkeypatch.setattr(unit_programs, "grid_for", lambda count: (count,))
    monkeypatch.setattr(unit_programs.UnitProgram, "_has_the_cpus_bits", lambda *given: True)
    made = unit_programs.UnitProgram(spec_of("fused.cuh"), divided=False)
    assert made.has_loop == bool(rows)
    fewest = 8 if most_bytes == 2047 else 32
    assert (made.most_rows, made.most_matrices) == ((65535 * fewest, 65535) if rows else (sys.maxsize,) * 2)
    for (m, n), height in (rows or {(9, 9): 0}).items():
        starts.clear()
        made.run(ProductArguments(m=m, n=n, k=5), 1)
        tiles = [("tiles", (-(-n // 128), -(-m // height), 1), 4 * height)] if height else []
        assert starts == [*tiles, ("scalar", (m * n,), None)]
    others = [unit_programs.UnitProgram(spec_of(unit), divided=False) for unit in ("pairwise.cuh", "exact.cuh")]
    for _ in range(2):  # units in turn compile nothing again
        before = len(texts)
        for unit in (made, *others):
            unit.run(ProductArguments(m=130, n=300, k=5), 1)
    assert len(texts) == before


@pytest.mark.parametrize("faults", [(), ("whole",), ("whole", "fewer"), ("whole", "fewer", "scalar")])
def test_what_a_compiler_breaks_is_not_used(monkeypatch, faults):
    spec = spec_of("fused.cuh")

    class Tiles:
        fits, rows = True, 128

        def __init__(self, spec, divided, fewer):
            self.name = self.program = {1: "whole", 4: "fewer"}[fewer]

    def run(tiles, scalar, g, matrices):
        compute(g, spec, matrices)
        if (tiles.name if tiles else scalar) in faults:  # one sum of a thread takes its neighbour's value
            last = g.out + 4 * (g.m * g.n - 1)
            ctypes.memmove(last, last - 4, 4)

    for name, stub in (
        ("TileProgram", Tiles),
        ("CompiledProgram", lambda text: "scalar"),
        ("_run", run),
        ("cupy", lambda: ARRAYS),
        ("to_gpu", lambda x: np.asarray(x).view(Memory)),
    ):
        monkeypatch.setattr(unit_programs, name, stub)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if "scalar" in faults:
            tried = []
            monkeypatch.setattr(
                unit_programs,
                "UnitProgram",
                lambda *unit, whole=unit_programs.UnitProgram: tried.append(unit) or whole(*unit),
            )
            for _ in range(2):
                with pytest.raises(device.CompilationError, match=r"FusedUnit \(bf16 x bf16 .* have other bits"):
                    unit_programs.unit_program(spec, False, -1)
            assert len(tried) == 1  # a fault is not looked for twice
        else:
            made = unit_programs.UnitProgram(spec, False)
            assert made.scalar == ("whole", "fewer", "scalar")[len(faults)] and made.has_loop == (len(faults) < 2)
    assert len(told) == min(len(faults), 2) and all("the main loop of FusedUnit" in str(x.message) for x in told)


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
        ones = Array(np.ones((4, 4), np.float32), engine="cuda")
        with pytest.raises(UnsupportedError, match="CuPy is not installed"):
            ones @ ones
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
