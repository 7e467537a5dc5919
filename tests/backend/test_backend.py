"""The backend is the only thing that computes bits: whole runs by another one, with the CPU's kernels out of reach."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import FrozenInstanceError, replace

import ml_dtypes
import numpy as np
import pytest
from device_arrays import DeviceBackend
from reference_backend import ReferenceBackend

import hwsim
from hwsim.backend.by_name import NAMES, backend
from hwsim.backend.cpu import CPU
from hwsim.backend.operations import Backend
from hwsim.compute.bits import Arrays, compute
from hwsim.devices import arithmetic, find, load
from hwsim.errors import InputError
from hwsim.evaluate import product_instructions
from hwsim.evaluate.plan_evaluation import plan_evaluation
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction, Region
from hwsim.operands.operand import operand
from hwsim.resolve.resolver import Request, rerun, resolve
from hwsim.schemes import scheme_of

M, N, K = 5, 4, 70
E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
OPERATIONS = [name for name, _ in inspect.getmembers(Backend, inspect.isfunction) if not name.startswith("_")]
COMPUTING = [name for name in OPERATIONS if name not in ("from_host", "to_host", "result", "empty", "zeros")]

HALVES = Reduction((Chain((Range(0, 32),)), Chain((Range(32, K),))), stored="fp16")
REGIONS = Schedule(regions=(Region(Range(1, 3), Range(0, 4, 2), HALVES),), shape=(M, N))

#: Whole runs: options of hwsim.run, and the dtype of A and B.
RUNS = {
    "fp16": ({"device": "h200", "format": "fp16"}, np.float16),
    "bf16": ({"device": "a100", "format": "bf16"}, BF16),
    "bf16 from fp32": ({"device": "mi300x", "format": "bf16"}, np.float32),
    "tf32": ({"device": "h200", "format": "tf32"}, np.float32),
    "hf32, rounded by the instruction": ({"device": "ascend910b3", "format": "hf32"}, np.float32),
    "fp64": ({"device": "a100", "format": "fp64"}, np.float64),
    "int8": ({"device": "h200", "format": "int8"}, np.int8),
    "e4m3": ({"device": "h200", "format": "e4m3"}, E4M3),
    "e4m3 promoted": ({"device": "h200", "format": "e4m3", "k_group": 32}, E4M3),
    "slices of K": ({"device": "h200", "format": "fp16", "schedule": {"split_k": 2, "slice_multiple": 16}}, np.float16),
    "a written-out sum": ({"device": "h200", "format": "fp16", "schedule": Schedule(sum=HALVES)}, np.float16),
    "regions": ({"device": "h200", "format": "fp32", "schedule": REGIONS}, np.float32),
    "K permuted": ({"device": "h200", "format": "fp16", "schedule": Schedule(k_permutation=(1, 0, 3, 2))}, np.float16),
    "sgemm-cube": ({"device": "ascend910a", "scheme": "sgemm-cube"}, np.float32),
    "tf32x3": ({"device": "h200", "scheme": "tf32x3"}, np.float32),
    "bf16x9": ({"device": "h200", "scheme": "bf16x9"}, np.float32),
    "bf16x9, accumulator divided": ({"device": "b200", "scheme": "bf16x9"}, np.float32),
    "ozaki-int8": ({"device": "h200", "scheme": "ozaki-int8"}, np.float64),
    "ape, blocks of unlike plans": ({"device": "h200", "scheme": "ape", "block": 16, "strategy": "hybrid"}, np.float32),
}
#: Runs whose bits a program of the device computes.
BY_PROGRAM = (
    *("fp16", "bf16", "bf16 from fp32", "tf32", "hf32, rounded by the instruction", "int8", "e4m3", "e4m3 promoted"),
    *("slices of K", "sgemm-cube", "tf32x3"),
)
EPILOGUES = {
    "plain": {},
    "alpha, C and beta": {"alpha": -1.25, "beta": 0.3, "c": True},
    "bias and a narrow output": {"bias": True, "output": "bf16"},
}


def drawn(shape, dtype, seed):
    """Values over many binades, with zeros of both signs; of floats of 16 bits or more also infinities and NaNs."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-128, 128, shape).astype(dtype)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 4, shape)
    values[0, 0], values[1, 2] = 0.0, -0.0
    if np.dtype(dtype).itemsize > 1:
        values[-1, -1], values[2, 1] = np.inf, np.nan
    return values.astype(dtype)


def options_of(name, epilogue):
    """(arguments of hwsim.run, A, B) of a run; of an integer run alpha and beta are whole numbers."""
    given, dtype = RUNS[name]
    given, asked = dict(given), dict(EPILOGUES[epilogue])
    if dtype == np.int8:
        asked |= {"alpha": -3.0, "beta": 2.0} if "alpha" in asked else {}
        asked.pop("output", None)
    if asked.pop("c", False):
        asked["c"] = drawn((M, N), np.float32, 7) if dtype != np.int8 else drawn((M, N), np.int8, 7).astype(np.int32)
    if asked.pop("bias", False):
        asked["bias"] = np.arange(N, dtype=np.float32) - 2
    return given | asked, drawn((M, K), dtype, 1), drawn((K, N), dtype, 2)


class Recorder:
    """The CPU's operations, counted."""

    name, variant, variants, calls_at_once = "recorder", CPU.variant, CPU.variants, 1

    def __init__(self):
        self.calls = Counter()
        for name in OPERATIONS:
            setattr(self, name, self._counted(name, getattr(CPU, name)))

    def _counted(self, name, operation):
        def counted(*args, **given):
            self.calls[name] += 1
            return operation(*args, **given)

        return counted


@pytest.fixture
def cpu_out_of_reach(monkeypatch):
    """A function that makes every computing operation of the CPU's backend fail."""

    def refused(name):
        def fail(*args, **given):
            raise AssertionError(f"the CPU's {name} was called beside the backend")

        return fail

    def remove():
        for name in COMPUTING:
            monkeypatch.setattr(CPU, name, refused(name))

    return remove


def computed_by(given, a, b, other, record, *, by_program=False):
    """The product of a recorded run by another backend."""
    scheme = scheme_of(given.get("scheme", "native"))
    resolved = rerun(record, load(given["device"]), scheme, exact=True, backend=other)
    taken = record.single.input_format
    sides = [operand(name, x, format=given.get("format")) for name, x in (("A", a), ("B", b))]
    left, right = (x.on(other).converted(taken, other) for x in sides)
    arrays = Arrays(left, right, (), given.get("c"), given.get("bias"))
    product, _ = compute(resolved, arrays, by_program=by_program, threads=2, progress=None)
    return product


@pytest.mark.covering("of_device", "epilogue", "name")
@pytest.mark.parametrize("of_device", [False, True], ids=["integer reference", "arrays of a device"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("name", RUNS)
def test_a_whole_run_by_another_backend_has_the_same_bits(name, epilogue, of_device, cpu_out_of_reach):
    given, a, b = options_of(name, epilogue)
    whole = hwsim.run(a, b, timing=False, **given)
    backend = DeviceBackend(OPERATIONS) if of_device else ReferenceBackend()
    cpu_out_of_reach()
    other = computed_by(given, a, b, backend, whole.gemm)
    assert other.dtype == whole.c.dtype and other.tobytes() == whole.c.tobytes()


@pytest.mark.parametrize("of_device", [False, True], ids=["integer reference", "arrays of a device"])
@pytest.mark.parametrize("name", BY_PROGRAM)
def test_a_whole_run_by_the_program_and_another_backend_has_the_same_bits(name, of_device, cpu_out_of_reach):
    given, a, b = options_of(name, "plain")
    whole = hwsim.run(a, b, functional=True, **given)
    assert whole.by_program
    backend = DeviceBackend(OPERATIONS) if of_device else ReferenceBackend()
    cpu_out_of_reach()
    other = computed_by(given, a, b, backend, whole.gemm, by_program=True)
    assert other.dtype == whole.c.dtype and other.tobytes() == whole.c.tobytes()


@pytest.mark.parametrize(("scheme", "dtype"), [("native", np.float16), ("sgemm-cube", np.float32)])
def test_a_prepared_stack_on_arrays_of_a_device_has_the_same_bits(scheme, dtype, cpu_out_of_reach):
    a, b, c = drawn((3, M, K), dtype, 1), drawn((3, K, N), dtype, 2), drawn((3, M, N), np.float32, 3)
    whole, prepared = hwsim.api.prepared(a, b, device="h200", scheme=scheme, c=c, beta=0.5)
    other = replace(prepared, resolved=replace(prepared.resolved, backend=DeviceBackend(OPERATIONS)))
    cpu_out_of_reach()
    assert other(a, b, c).tobytes() == whole.c.tobytes()


@pytest.mark.parametrize(
    ("name", "by_program", "operations"),
    [
        ("fp16", False, {"gemm"}),
        ("fp16", True, {"gemm", "zeros"}),
        ("e4m3 promoted", False, {"promotes", "promote", "zeros"}),
        ("sgemm-cube", False, {"split", "gemm", "combine", "specials"}),
        ("sgemm-cube", True, {"gemm", "encode", "combine"}),
        ("hf32, rounded by the instruction", True, {"encode", "gemm"}),
        ("ozaki-int8", False, {"encode", "gemm"}),
        ("ape, blocks of unlike plans", False, {"split", "gemm", "combine"}),
    ],
)
def test_operations_of_a_run_are_the_backend_s(name, by_program, operations, cpu_out_of_reach):
    given, a, b = options_of(name, "plain")
    whole = hwsim.run(a, b, functional=by_program, **given)
    recorder = Recorder()
    cpu_out_of_reach()
    other = computed_by(given, a, b, recorder, whole.gemm, by_program=by_program)
    assert other.tobytes() == whole.c.tobytes()
    assert operations <= set(recorder.calls)


@pytest.mark.parametrize("takes", [True, False])
def test_a_unit_that_a_backend_refuses_goes_to_the_integer_reference(takes, cpu_out_of_reach):
    device, name = load("v100"), load("v100").native["fp16"]
    model = find(device, name)
    a, b = drawn((model.m, model.k), np.float16, 1), drawn((model.k, model.n), np.float16, 2)
    c = drawn((model.m, model.n), np.float32, 3)
    expected = arithmetic.mma(device, name, a, b, c)
    other = Recorder()
    other.takes = lambda spec: takes
    cpu_out_of_reach()
    assert arithmetic.mma(device, name, a, b, c, backend=other).tobytes() == expected.tobytes()
    assert bool(other.calls["gemm"]) == takes


def test_another_backend_resolves_anew():
    request = Request(load("h200"), scheme_of("native"), Problem.of("fp16", M, N, K), timing=False)
    recorder = Recorder()
    resolved = resolve(replace(request, backend=recorder))
    assert resolved.backend is recorder and resolved.evaluator.backend is recorder
    assert resolve(request).backend is CPU


def test_backends_by_name():
    assert backend() is CPU and backend("cpu") is CPU and NAMES == ("cpu", "cuda")
    with pytest.raises(InputError, match="engine = 'gpu'; allowed: cpu, cuda"):
        backend("gpu")


def test_operations_of_the_cpu_are_the_compiled_functions():
    """No Python function stands between a caller and a kernel, but those that unpack the operands of products and those
    that answer without computing.
    """
    for name in sorted(set(COMPUTING) - {"takes", "promotes", "for_whole", "gemm", "promote"}):
        assert type(getattr(CPU, name)).__name__ == "cython_function_or_method", name


def test_what_is_remembered_of_units_is_bounded():
    for remembered in (CPU.takes, product_instructions._continued):
        assert remembered.cache_info().maxsize is not None


def test_a_plan_that_is_ready_does_not_change():
    record = hwsim.run(m=M, n=N, k=K, device="b200", scheme="bf16x9", exact=False).gemm
    job = plan_evaluation(record.plan, record.schedule, load("b200"), CPU, has_c=False)
    for one in (job, job.instructions):
        with pytest.raises(FrozenInstanceError):
            one.plan = None
