"""Arrays that stay on the GPU: its backend with the GPU in the processor's place, by the kernels' own sources.

Not seen here: CuPy, a GPU's compiler, and what a GPU does with subnormal numbers (hwsim.backend.cuda.gpu_arrays).
"""

from __future__ import annotations

import shutil
import sys
import warnings

import numpy as np
import pytest
from gpu_in_place import ElementKernels, in_memory, put_in_place
from test_backend import EPILOGUES, RUNS, drawn

import hwsim
from hwsim.backend import by_name
from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import backend as cuda_backend
from hwsim.backend.cuda import device, gpu_arrays, on_device
from hwsim.backend.cuda.gpu_arrays import GpuArray, on_gpu
from hwsim.backend.cuda.on_device import DeviceBackend
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import FORMATS, array_dtype, code_dtype
from hwsim.frameworks.product import multiplied
from hwsim.frameworks.settings import settings_of
from hwsim.host import warned
from hwsim.schemes import schemes

M, N, K = 5, 4, 70
TALL, WIDE, LONG = 6, 10, 268  # no tile divides these
FLOATS = (np.float32, np.float64)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    if sys.platform != "linux" or shutil.which("g++") is None:
        pytest.skip("the sources are compiled by g++ on Linux")
    return ElementKernels(tmp_path_factory.mktemp("elements"))


@pytest.fixture(params=["in the processor's place", "a GPU"])
def gpu(request, monkeypatch):
    """The backend, and arrays of the host as another library has them on the GPU."""
    if request.param == "a GPU":
        try:
            backend = DeviceBackend()
        except UnsupportedError as error:
            pytest.skip(str(error))
        backend.moved = device.cupy().asarray
    else:
        backend = put_in_place(monkeypatch, request.getfixturevalue("kernels"))
        backend.moved = in_memory
    monkeypatch.setattr(by_name, "_on_gpu", lambda: backend)
    return backend


def values(dtype, shape=(11, 13)):
    """Bit fields, with ends of the range, ties of narrow formats, zeros, infinities and NaNs."""
    rng, word = np.random.default_rng(3), f"u{np.dtype(dtype).itemsize}"
    fields = rng.integers(0, 1 << 64, shape, np.uint64).astype(word).view(dtype)
    few = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1.0625, 1.1875, -448.0, 464.0, 2.0**-24, -3e38], dtype)
    near = rng.choice(few, shape) * rng.choice(np.array([1.0, 0.5, -2.0], dtype), shape)
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.5, fields, near).astype(dtype)


def same(got, want):
    assert isinstance(got, GpuArray) and got.dtype == want.dtype
    return np.array_equal(got.get().view(f"u{want.itemsize}"), want.view(f"u{want.itemsize}"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS.values() if fmt.name != "int64"], ids=lambda fmt: fmt.name)
def test_conversions_have_the_cpus_bits(gpu, fmt, dtype):
    x = values(dtype)
    for rounding, overflow in (
        ("RNE", "ieee"),
        ("RZ", "saturate"),
        ("RU", "infinity"),
        ("RNA", "ieee"),
        ("RD", "ieee"),
    ):
        for nan in ("zero", "quiet") if fmt.nan != "none" or fmt.is_integer else ("zero",):
            want = CPU.encode(x.T, fmt, rounding, overflow, nan=nan)
            assert same(gpu.encode(on_gpu(x).T, fmt, rounding, overflow, nan=nan, threads=2), want), (rounding, nan)
    codes = np.random.default_rng(1).integers(0, 1 << min(fmt.bits, 62), (5, 9), np.uint64).astype(code_dtype(fmt))
    if dtype == np.float64 or fmt.precision <= 24:
        assert same(gpu.decode(on_gpu(codes)[:, ::2], fmt, dtype), CPU.decode(codes[:, ::2], fmt, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_splits_and_steps_have_the_cpus_bits(gpu, dtype):
    x, y = values(dtype), values(dtype, (13,))
    bf16, e4m3 = FORMATS["bf16"], FORMATS["e4m3"]
    pieces = [(bf16, "RNE", 0), (bf16, "RZ", 8, "saturate"), (e4m3, "RNE", 3)]
    for clamp in (False, True):
        want = CPU.split(x, pieces, overflow="saturate" if clamp else "ieee", clamp=clamp)
        got = gpu.split(on_gpu(x), pieces, overflow="saturate" if clamp else "ieee", clamp=clamp)
        assert all(map(same, got, want))
    steps = [("load", 0), ("constant", 0.1), ("times",), ("load", 1), ("fused", -3.0), ("load", 0), ("subtract",)]
    steps += [("load", 0), ("load", 1), ("fma",)]
    for saturate in (False, True):
        want = CPU.combine((x, y), steps, dtype, saturate=saturate, nan_code=0x7FFFFFFF)
        assert same(gpu.combine((on_gpu(x), on_gpu(y)), steps, dtype, saturate=saturate, nan_code=0x7FFFFFFF), want)
        out = on_gpu(np.zeros((13, 11), dtype)).T
        assert gpu.combine((on_gpu(x), on_gpu(y)), steps, dtype, saturate=saturate, nan_code=0x7FFFFFFF, out=out) is out
        assert same(out, want)
    assert same(gpu.scale(on_gpu(x), -7), CPU.scale(x, -7))
    for rows in (slice(0), slice(None), slice(3, 4)):
        found = gpu.largest(on_gpu(x)[rows]), CPU.largest(x[rows])
        assert np.array_equal(*found, equal_nan=True)
    assert all(map(same, gpu.specials(on_gpu(x)), CPU.specials(x)))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("more", EPILOGUES)
def test_whole_products_stay_on_the_gpu(gpu, name, more):
    options, dtype = RUNS[name]
    epilogue = dict(EPILOGUES[more])
    a, b = drawn((M, K), dtype, 1), drawn((K, N), dtype, 2)
    wide = hwsim.matmul(a, b, **options)
    if epilogue.pop("c", False):
        epilogue["c"] = wide * 2
    if epilogue.pop("bias", False):
        epilogue["bias"] = np.arange(N, dtype=np.float32)
    try:
        want = hwsim.matmul(a, b, **options, **epilogue)
    except hwsim.HwsimError as error:
        pytest.skip(str(error))
    on_the_gpu = {key: on_gpu(x) if key == "c" else x for key, x in epilogue.items()}
    got = hwsim.run(on_gpu(a), on_gpu(b), engine="cuda", timing=False, **options, **on_the_gpu).c
    assert same(got, want)


def test_arrays_of_a_gpu_go_in_and_come_out(gpu):
    a, b = (drawn(shape, np.float16, 1) for shape in ((M, K), (K, N)))
    tall, bias = np.stack([a, a + 1]), np.arange(N, dtype=np.float32)
    for left, right in ((a, b), (tall, b)):
        want = hwsim.matmul(left, right, device="a100")
        for sides in ((gpu.moved(left), gpu.moved(right)), (gpu.moved(left), right)):
            product = hwsim.matmul(*sides, device="a100", engine="cuda")
            assert type(product) is type(sides[0])
            assert np.array_equal(product.get().view(np.uint32), want.view(np.uint32))
    some = {"rows": [3, 1], "cols": slice(1, 3)}
    part = hwsim.matmul(gpu.moved(a), gpu.moved(b), device="a100", engine="cuda", bias=gpu.moved(bias), **some)
    assert np.array_equal(part.get(), hwsim.matmul(a, b, device="a100", bias=bias, **some), equal_nan=True)
    with pytest.raises(InputError, match="lie on a GPU, and the engine is cpu; give engine='cuda'"):
        hwsim.matmul(gpu.moved(a), b, device="a100", engine="cpu")
    with pytest.raises(InputError, match=r"A lies on a GPU; hwsim\.matmul takes"):
        hwsim.run(gpu.moved(a), b, device="a100", engine="cuda")
    with pytest.raises(InputError, match="bias lies on a GPU"):
        hwsim.matmul(a, b, device="a100", bias=gpu.moved(bias))


def fields(shape, seed, bits=8, start=0):
    """Codes of elements, or of scales that are no NaN."""
    return (np.random.default_rng(seed).integers(0, 1 << bits, shape) + start).astype(np.uint8)


def factors(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


MX = {"device": "b200", "input_format": "e4m3", "scale_a": fields((TALL, 9), 1, 3, 120), "scale_b": None}
ROWS, BLOCKS = (
    {"device": "h200", "input_format": "e4m3", "scale_a": factors(TALL, long), "scale_b": factors(WIDE, long)}
    for long in (1, 3)
)
#: Operands, options, and how many of A, B and C a call reads on the host.
ASKED = {
    "scales of vectors": ("e4m3", MX | {"scale_b": fields((WIDE, 9), 2, 3, 120)}, 0),
    "scales of vectors and of tensors": (
        "e2m1",
        {"device": "b200", "input_format": "e2m1", "scale_a": fields((TALL, 17), 1, 6), "tensor_scales": (0.5, 0.3)}
        | {"scale_b": fields((WIDE, 17), 2, 6)},
        0,
    ),
    "scales of rows": ("e4m3", ROWS | {"output": "bf16"}, 0),
    "scales of blocks": ("e4m3", BLOCKS, 0),
    "scales of tensors": ("e4m3", {"device": "h200", "input_format": "e4m3", "tensor_scales": (0.3, 0.7)}, 0),
    "sparse fp16": ("sparse", {"device": "h100", "format": "fp16", "sparsity": "2:4"}, 1),
    "sparse bf16, C": ("sparse", {"device": "b200", "format": "bf16", "sparsity": "2:4", "beta": 0.5, "c": True}, 1),
    "library": ("fp16", {"device": "h200", "library": "cublas", "output": "fp16"}, 0),
    "library, slices of K": ("long", {"device": "h200", "library": "cublas", "b_layout": "columns"}, 0),
    "library, matrix and vector": ("row", {"device": "h200", "library": "cublas", "b_layout": "columns"}, 0),
    "program": ("fp16", {"device": "h200", "functional": True}, None),
    "program of a cube": (
        "fp32",
        {"device": "ascend910a", "scheme": "sgemm-cube", "functional": True, "c": True},
        None,
    ),
    "program with scales": ("e4m3", BLOCKS | {"functional": True}, None),
    "program of many pieces": ("fp32", {"device": "b200", "scheme": "bf16x9", "functional": True}, None),
}


def sides(kind):
    """A and B of a case of ASKED."""
    if kind in ("e4m3", "e2m1"):
        bits = 7 if kind == "e4m3" else 4
        return tuple(
            np.minimum(fields(shape, seed, bits), 126) for seed, shape in enumerate(((TALL, LONG), (LONG, WIDE)))
        )
    if kind == "sparse":
        a = hwsim.prune(drawn((TALL, LONG), np.float32, 1))
        return a, drawn((LONG, WIDE), np.float32, 2)
    m, n, k = {"long": (8, 64, 8192), "row": (1, 64, 512)}.get(kind, (TALL, WIDE, LONG))
    dtype, rng = np.float32 if kind == "fp32" else np.float16, np.random.default_rng(1)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))


@pytest.mark.parametrize("name", ASKED)
def test_scales_sparsity_libraries_and_programs_take_arrays_of_a_gpu(gpu, monkeypatch, name):
    kind, options, looks = ASKED[name]
    a, b = sides(kind)
    options = dict(options)
    c = drawn((len(a), b.shape[1]), np.float32, 3) if options.pop("c", False) else None
    want = hwsim.matmul(a, b, c, **options)
    arrays = [None if x is None else gpu.moved(x) for x in (a, b, c)]
    moved = {key: gpu.moved(x) if key in ("scale_a", "scale_b") else x for key, x in options.items()}
    seen, get = [], GpuArray.get
    monkeypatch.setattr(GpuArray, "get", lambda x: seen.append(x.size) or get(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = hwsim.matmul(*arrays, engine="cuda", **moved)
    assert type(got) is type(arrays[0])
    assert looks is None or sum(size >= min(a.size, b.size) for size in seen) == looks
    assert np.array_equal(got.get().view(f"u{want.itemsize}"), want.view(f"u{want.itemsize}"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scheme": "mxfp8"}, "scheme mxfp8"),
        ({"scheme": "auto", "error_target": 1e-3}, "scheme='auto'"),
        ({"values": [(1, 2)]}, "values"),
    ],
)
def test_what_reads_operands_on_the_host_says_so_once(gpu, monkeypatch, options, said):
    monkeypatch.setattr(warned, "SAID", set())
    monkeypatch.setattr(by_name, "_cuda", lambda: CPU)
    a, b = (drawn(shape, np.float32, 1) for shape in ((M, K), (K, N)))
    want = hwsim.matmul(a, b, device="b200", **options)
    with pytest.warns(UserWarning, match=f"engine cuda: {said}: reads operands on the host") as told:
        for _ in range(2):
            got = hwsim.matmul(gpu.moved(a), gpu.moved(b), device="b200", engine="cuda", **options)
            assert np.array_equal(got.get().view(np.uint32), want.view(np.uint32))
    assert len(told) == 1
    if options == {"scheme": "mxfp8"}:
        record = hwsim.run(a, b, device="b200", timing=False, **options).gemm
        for saved in (record, record.to_dict()):
            again = hwsim.matmul(gpu.moved(a), gpu.moved(b), gemm=saved, engine="cuda")
            assert np.array_equal(again.get().view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("name", ["bf16x9, accumulator divided", "ape, blocks of unlike plans"])
def test_arrays_of_the_host_with_several_pieces_move_once(monkeypatch, gpu, name):
    options, dtype = RUNS[name]
    moves, backend = [], cuda_backend.CudaBackend.__new__(cuda_backend.CudaBackend)
    backend.variant = "sm_90"
    monkeypatch.setattr(by_name, "_cuda", lambda: backend)
    monkeypatch.setattr(cuda_backend, "device_backend", lambda: moves.append(1) or gpu)
    a, b, c = (drawn(shape, dtype, 1) for shape in ((2 * M, K), (K, N), (2 * M, N)))
    a, c = a.reshape(2, M, K), c.reshape(2, M, N)
    epilogue = {"c": c, "beta": 0.5, "bias": np.arange(N, dtype=np.float32)}
    want = hwsim.matmul(a, b, **options, **epilogue)
    macs = 2 * M * N * K * 9
    for least in (macs, macs + 1):
        moves.clear()
        monkeypatch.setattr(cuda_backend, "LEAST_WHOLE_MACS", least)
        got = hwsim.matmul(a, b, engine="cuda", **options, **epilogue)
        assert type(got) is np.ndarray and got.tobytes() == want.tobytes()
        assert len(moves) == (least == macs and "ape" not in name)
    monkeypatch.setattr(on_device, "failures", lambda: (MemoryError,))
    monkeypatch.setattr(on_device, "product", lambda *given: exec("raise MemoryError"))
    monkeypatch.setattr(on_device, "add_chains", lambda *given, **more: exec("raise MemoryError"))
    monkeypatch.setattr(cuda_backend, "LEAST_WHOLE_MACS", 1)
    monkeypatch.setattr(warned, "SAID", set())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            assert hwsim.matmul(a, b, engine="cuda", **options, **epilogue).tobytes() == want.tobytes()
    assert sum("each product moves alone" in str(x.message) for x in told) == ("ape" not in name)


@pytest.mark.parametrize("name", ["scales of vectors", "scales of rows", "scales of blocks"])
def test_products_of_a_framework_with_scales_stay_on_the_gpu(gpu, name):
    _, options, _ = ASKED[name]
    scales = {key: options[key] for key in ("scale_a", "scale_b")}
    a, b = (x.view(array_dtype(FORMATS["e4m3"])) for x in sides("e4m3"))
    of_cpu, of_gpu = (
        settings_of({"device": options["device"], "engine": engine}).base["forward"] for engine in ("cpu", "cuda")
    )
    want, _ = multiplied(of_cpu, a, b, timing=False, **scales)
    for _ in range(2):  # the second time it is prepared
        got, _ = multiplied(of_gpu, on_gpu(a), on_gpu(b), timing=False, **scales)
        assert same(got, want)


@pytest.mark.parametrize("scheme", [name for name, scheme in schemes().items() if scheme.quantizes is None])
def test_every_scheme_takes_arrays_of_a_gpu(gpu, scheme):
    words = {"true": True, "false": False}
    listed = [x for x in schemes()[scheme].options if "integer" not in x.allowed and x.allowed != "a name"]
    values = [{x.name: words.get(value, value)} for x in listed for value in x.allowed.split(", ")]
    computed = 0
    for chip, dtype in (("h200", np.float32), ("b200", np.float64), ("ascend910a", np.float32), ("tf64", np.float64)):
        a, b = (np.random.default_rng(1).standard_normal(shape).astype(dtype) for shape in ((M, K), (K, N)))
        for options in ({}, *values):
            try:
                want = hwsim.matmul(a, b, device=chip, scheme=scheme, **options)
            except hwsim.HwsimError:
                continue  # the chip has no such unit, or no such combination
            got = hwsim.matmul(gpu.moved(a), gpu.moved(b), device=chip, scheme=scheme, engine="cuda", **options)
            assert np.array_equal(got.get().view(f"u{want.itemsize}"), want.view(f"u{want.itemsize}")), options
            computed += 1
    assert computed > len(values) // 2


def test_operands_of_two_formats_stay_on_the_gpu(gpu):
    wide, narrow, whole = (
        np.arange(12).reshape(3, 4).astype(dtype) / 8 for dtype in (np.float32, np.float16, np.float64)
    )
    for a, b in ((wide, narrow.T), (narrow, whole.T), ((8 * wide).astype(np.int32), wide.T)):
        want = hwsim.matmul(a, b, device="h200")
        got = hwsim.matmul(gpu.moved(a), gpu.moved(b), device="h200", engine="cuda")
        assert np.array_equal(got.get().view(f"u{want.itemsize}"), want.view(f"u{want.itemsize}"))


@pytest.mark.parametrize("gradient", ["", "b"])
def test_scales_by_powers_of_two_stay_on_the_gpu(gpu, gradient):
    options = {"device": "h200", "format": "e4m3", "gradient_format": "e5m2", "scale": "power-of-two"}
    a, b = (np.random.default_rng(seed).standard_normal((K, K)).astype(np.float32) * 2.0**-9 for seed in (1, 2))
    for dtype, more in ((np.float32, {}), (np.float16, {"alpha": 0.5})):
        left, right = (x.astype(dtype) for x in (a, b))
        of_cpu, of_gpu = (settings_of({**options, "engine": engine}).base["forward"] for engine in ("cpu", "cuda"))
        want, _ = multiplied(of_cpu, left, right, gradient=gradient, timing=False, **more)
        for _ in range(2):  # the second time it is prepared
            got, _ = multiplied(of_gpu, on_gpu(left), on_gpu(right), gradient=gradient, timing=False, **more)
            assert same(got, want)


def test_what_does_not_fit_is_refused(gpu):
    x = on_gpu(np.ones((4, 4), np.float32))
    for wrong in (
        lambda: gpu.encode(x, FORMATS["bf16"], "RN"),
        lambda: gpu.encode(on_gpu(np.full((2, 2), np.nan, np.float32)), FORMATS["e2m1"]),
        lambda: gpu.encode(x, FORMATS["bf16"], out=on_gpu(np.zeros((2, 2), np.uint16))),
        lambda: gpu.decode(x, FORMATS["fp16"]),
        lambda: gpu.split(x, []),
        lambda: gpu.combine((x,), [("load", 1)]),
        lambda: gpu.combine((x,), [("load", 0)], out=on_gpu(np.zeros((2, 2), np.float32))),
        lambda: gpu.scale(x, 5000),
        lambda: gpu.specials(on_gpu(np.ones(3, np.float32))),
    ):
        with pytest.raises(InputError):
            wrong()


def test_memory_that_the_gpu_has_not_is_a_clear_error(monkeypatch, gpu):
    def fails():
        raise MemoryError("no room")

    monkeypatch.setattr(on_device, "failures", lambda: (MemoryError,))
    for module in (on_device, gpu_arrays):
        monkeypatch.setattr(module, "cupy", fails)
    shape = (2, 3), np.float32
    for work in (lambda: gpu.from_host(np.ones(3)), lambda: gpu.empty(*shape), lambda: gpu.zeros(*shape)):
        with pytest.raises(UnsupportedError, match=r"the GPU failed \(no room\); give smaller arrays"):
            work()


def test_elements_move_as_numpys_do(gpu):
    x = values(np.float32)
    y, index = on_gpu(x), np.array([3, 0, 5])
    for change in (
        lambda x: x[1:, ::3],
        lambda x: x[index],
        lambda x: x[:, index],
        lambda x: x[np.ix_(index, index)],
        lambda x: x[..., None, :].reshape(-1),
        lambda x: x.T.copy(),
        lambda x: x.astype(np.float64),
        lambda x: np.where(np.isnan(x), np.float32(2), x),
        lambda x: np.stack([x, x[::-1]]),
        lambda x: np.broadcast_to(x[0], (3, 13)),
        lambda x: np.add(x, x),
        lambda x: np.zeros_like(x, order="C", shape=(2, 3)),
        lambda x: np.isfinite(x).all(axis=0),
        lambda x: np.abs(x).max(axis=1),
    ):
        with np.errstate(all="ignore"):
            assert same(change(y), change(x))
    target, want = on_gpu(np.zeros((11, 13), np.float32)), np.zeros((11, 13), np.float32)
    for array, source in ((target, y), (want, x)):
        array[2:5] = source[1:4]
        array[:, index] = np.float32(7)
        np.copyto(array[8:], source[:3])
        np.add(array[:2], 1, out=array[:2])
    assert same(target, want)
    with pytest.raises(TypeError, match=r"take its \.get\(\)"):
        np.asarray(y)


def test_a_code_wider_than_its_format_is_refused_there_too(gpu):
    a, b = np.full((4, 64), 3, np.uint8), np.full((64, 5), 3, np.uint8)
    call = {"device": "b200", "input_format": "e2m1", "engine": "cuda"}
    assert type(hwsim.matmul(gpu.moved(a), gpu.moved(b), **call)) is type(gpu.moved(a))
    a[1, 2] = 0x13
    with pytest.raises(InputError, match=r"A: 0x13 at \[1, 2\] is no code of e2m1"):
        hwsim.matmul(gpu.moved(a), gpu.moved(b), **call)
