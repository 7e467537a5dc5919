"""Speed of hwsim's compiled parts, compared with libraries that do similar work in the same process.

Absolute rates are comparable within one process only, because machines are shared and differ. The two sides of a ratio
run alternately, and the best time of each counts, which reduces the influence of other load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import engine, gemm, variant
from hwsim._kernels.convert import encode
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, load
from hwsim.errors import MismatchError
from hwsim.formats import Format, array_dtype, format_of
from hwsim.machines import timing
from hwsim.schemes import scheme_of
from hwsim_lab.bench.rows import ENGINE_WANTED, ConversionRow, ExecutionRow, Exponents, SchemeRow, UnitRow

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.numerics.units import DotSpec
    from hwsim.program.ir import Program

Array = NDArray[Any]
Work = Callable[[], object]
TORCH_NAMES = {"fp16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
BIAS = 127  # of fp32's exponents, and bf16's and tf32's


@dataclass(frozen=True, slots=True)
class UnitRate:
    """GMAC/s of one dot unit at size^3, and of NumPy at that size and number of threads (float64 for fp64)."""

    device: str
    format: str
    exponents: str
    instruction: str
    model: str
    kernel: str
    threads: int
    size: int
    gmac_per_second: float
    numpy_gmac_per_second: float
    wanted: float | None

    @property
    def ratio(self) -> float:
        """The rate relative to NumPy's."""
        return self.gmac_per_second / self.numpy_gmac_per_second

    def to_dict(self) -> dict[str, Any]:
        """All fields and the ratio, as plain data."""
        return asdict(self) | {"ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class ConversionRate:
    """Elements per second of float32 -> format, and of ml_dtypes (NumPy for fp16) and torch to nearest."""

    format: str
    rounding: str
    kernel: str
    elements: int
    per_second: float
    ml_dtypes_per_second: float
    torch_per_second: float | None
    wanted: float | None

    @property
    def ratio(self) -> float | None:
        """The rate relative to torch's; None without torch."""
        return None if self.torch_per_second is None else self.per_second / self.torch_per_second

    def to_dict(self) -> dict[str, Any]:
        """All fields and the ratio, as plain data."""
        return asdict(self) | {"ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class EngineRate:
    """Speed of the timing machine on one program.

    simulated: instructions that the engine executes one by one, in one core of each group of like cores (none skipped
    or extrapolated; an instruction with repeats counts once); of_program: those of all cores that they stand for.
    seconds: CPU time of the whole run; engine_seconds: of the compiled engine within it.
    """

    device: str
    scheme: str
    m: int
    n: int
    k: int
    simulated: int
    of_program: int
    seconds: float
    engine_seconds: float
    wanted: float = ENGINE_WANTED

    def to_dict(self) -> dict[str, Any]:
        """All fields and the rate: simulated instructions per second of the engine."""
        return asdict(self) | {"per_second": self.simulated / self.engine_seconds}


@dataclass(frozen=True, slots=True)
class SchemeRate:
    """Time of one GEMM by a scheme: total, within the dot kernels, and of NumPy's float32 product of the same size."""

    scheme: str
    device: str
    threads: int
    size: int
    seconds: float
    dot_seconds: float
    numpy_seconds: float
    wanted_outside: float
    wanted_times: float | None

    @property
    def outside(self) -> float:
        """Share of the time spent outside the dot kernels."""
        return 1 - self.dot_seconds / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """All fields, the share outside, and the time in units of NumPy products."""
        return asdict(self) | {"outside": self.outside, "times": self.seconds / self.numpy_seconds}


@dataclass(frozen=True, slots=True)
class ExecutionRate:
    """Time of one GEMM's bits by the evaluator and by the functional machine, at size^3. first_seconds: of the
    first execution of the program, in which what its kernels compute is found.
    """

    scheme: str
    device: str
    threads: int
    size: int
    seconds: float
    first_seconds: float
    evaluator_seconds: float
    wanted: float

    @property
    def ratio(self) -> float:
        """The program's time relative to the evaluator's."""
        return self.seconds / self.evaluator_seconds

    def to_dict(self) -> dict[str, Any]:
        """All fields and the ratio, as plain data."""
        return asdict(self) | {"ratio": self.ratio}


def unit_rates(rows: list[UnitRow], *, size: int = 1024, threads: int = 1, seconds: float = 1.0) -> Iterator[UnitRate]:
    """Time the native unit of each row on size^3, `seconds` for each row and NumPy together."""
    for row in rows:
        instruction, spec = "", row.spec
        if spec is None:
            device = load(row.device)
            instruction = device.native[row.format]
            spec = dot_spec(device, instruction)
        a, b = (operand_codes(size, format_of(name), row.exponents, seed) for seed, name in enumerate((spec.a, spec.b)))
        wide = np.float64 if spec.d == "fp64" else np.float32
        x, y = np.random.default_rng(2).standard_normal((2, size, size)).astype(wide)
        best = race({"unit": _product(spec, a, b, threads), "numpy": _matmul(x, y)}, seconds)
        yield UnitRate(
            row.device,
            row.format,
            row.exponents,
            instruction,
            spec.unit.model,
            variant,
            threads,
            size,
            size**3 / best["unit"] / 1e9,
            size**3 / best["numpy"] / 1e9,
            row.wanted,
        )


def conversion_rates(
    rows: list[ConversionRow], *, elements: int = 1 << 18, seconds: float = 0.5
) -> Iterator[ConversionRate]:
    """Time float32 -> each row's format on N(0, 1) numbers, one thread, beside ml_dtypes and, if installed, torch."""
    x = np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    for row in rows:
        fmt = format_of(row.format)
        work = {"own": _encode(x, fmt, row.rounding), "ml_dtypes": _astype(x, array_dtype(fmt))}
        torch_work = _torch(x, row.format)
        if torch_work is not None:
            work["torch"] = torch_work
        best = race(work, seconds)
        yield ConversionRate(
            row.format,
            row.rounding,
            variant,
            elements,
            elements / best["own"],
            elements / best["ml_dtypes"],
            elements / best["torch"] if "torch" in best else None,
            row.wanted,
        )


def engine_rate(
    device: Device, scheme: str, program: Program, sizes: tuple[int, int, int], *, seconds: float = 1.0
) -> EngineRate:
    """Time the timing machine on a program of these sizes (m, n, k), the best of at least two runs."""
    whole, within, simulated, of_program = float("inf"), float("inf"), 0, 0
    end, turns = time.perf_counter() + seconds, 0
    while turns < 2 or time.perf_counter() < end:
        with engine_clock() as spent:
            start = time.process_time()
            of_program = timing.run(program, device).instructions
            whole = min(whole, time.process_time() - start)
        within, simulated = min(within, spent.seconds), spent.instructions
        turns += 1
    return EngineRate(device.name, scheme, *sizes, simulated, of_program, whole, max(within, 1e-9))


def scheme_rate(
    row: SchemeRow,
    multiply: Callable[[Array, Array], object],
    *,
    size: int = 2048,
    threads: int = 1,
    seconds: float = 1.0,
) -> SchemeRate:
    """Time `multiply`, a GEMM by the row's scheme, and how much of it the dot kernels take (of the best run)."""
    a, b = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
    best, of_dot = float("inf"), 0.0
    multiply(a[:16, :16], b[:16, :16])  # what is imported when first used must be there before the clock looks for it

    def once() -> None:
        nonlocal best, of_dot
        with dot_clock() as spent:
            start = time.perf_counter()
            multiply(a, b)
            taken = time.perf_counter() - start
        if taken < best:
            best, of_dot = taken, spent[0]

    plain = race({"scheme": once, "numpy": _matmul(a, b)}, seconds)["numpy"]
    return SchemeRate(row.scheme, row.device, threads, size, best, of_dot, plain, row.wanted_outside, row.wanted_times)


def execution_rate(
    row: ExecutionRow, multiply: Callable[..., Any], *, size: int = 512, threads: int = 1, seconds: float = 0.5
) -> ExecutionRate:
    """Time `multiply`, which takes A, B and functional=, by the evaluator and by the program: one thread in CPU time,
    more threads in elapsed time. Raises UnsupportedError where there is no program, MismatchError where the two have
    different bits.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    taken = array_dtype(format_of(scheme_of(row.scheme).input_formats[0]))
    is_wide = taken in (np.float64, np.int16)  # others are rounded from float32
    a, b = (np.random.default_rng(0).standard_normal((2, size, size)) * (1000 if taken == np.int16 else 1)).astype(
        taken if is_wide else np.float32
    )
    evaluated = multiply(a, b, functional=False)
    start = clock()
    executed = multiply(a, b, functional=True)
    first = clock() - start
    if executed.result_sha256 != evaluated.result_sha256:
        raise MismatchError(f"bench: the program of {row.scheme} on {row.device} has other bits than the evaluator")
    work = {name: partial(multiply, a, b, functional=name == "program") for name in ("evaluator", "program")}
    best = race(work, seconds, clock)
    return ExecutionRate(row.scheme, row.device, threads, size, best["program"], first, best["evaluator"], row.wanted)


def race(work: Mapping[str, Work], seconds: float, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """The shortest time of each function by `clock`, in seconds; they run alternately for `seconds`, at least twice."""
    best = dict.fromkeys(work, float("inf"))
    end, turns = time.perf_counter() + seconds, 0
    while turns < 2 or time.perf_counter() < end:
        for name, call in work.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
        turns += 1
    return best


@dataclass(slots=True)
class EngineSpeed:
    """CPU seconds within the compiled timing engine, and the instructions that it executed."""

    seconds: float = 0.0
    instructions: int = 0


@contextmanager
def engine_clock() -> Iterator[EngineSpeed]:
    """Context manager that measures the timing machine's engine: CPU seconds and instructions."""
    spent = EngineSpeed()

    class Timed(engine.Machine):
        def run(self, *arguments: Any) -> engine.Outcome:
            start = time.process_time()
            outcome = super().run(*arguments)
            spent.seconds += time.process_time() - start
            spent.instructions += int(outcome["executed"].sum())
            return outcome

    plain = engine.Machine
    engine.Machine = Timed  # type: ignore[misc]
    try:
        yield spent
    finally:
        engine.Machine = plain  # type: ignore[misc]


@contextmanager
def dot_clock() -> Iterator[list[float]]:
    """Context manager that measures seconds spent in the dot kernels, as a list of one number."""
    spent = [0.0]

    def timed(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return kernel(*arguments, **options)
            finally:
                spent[0] += time.perf_counter() - start

        return run

    backend: Any = CPU
    for name in ("gemm", "promote"):
        setattr(backend, name, timed(getattr(backend, name)))
    try:
        yield spent
    finally:
        del backend.gemm, backend.promote  # the class has them


def operand_codes(size: int, fmt: Format, exponents: Exponents, seed: int) -> Array:
    """Random operand codes of a format: N(0, 1), scaled to the range of small integers for integer formats.

    With exponents "full": any fraction and any exponent from the least normal number to 2^58, so that products fall far
    below binary32 and no sum overflows it.
    """
    rng = np.random.default_rng(seed)
    if exponents == "full":
        words = rng.integers(0, 1 << 32, (size, size), np.uint32)
        field = rng.integers(1, BIAS + 59, (size, size), np.uint32) << np.uint32(23)
        return encode((words & np.uint32(0x807FFFFF) | field).view(np.float32), fmt, "RZ", "saturate")
    x: Array = rng.standard_normal((size, size)) * (32 if fmt.is_integer else 1)
    return encode(x if fmt.bits > 32 else x.astype(np.float32), fmt)


def _product(spec: DotSpec, a: Array, b: Array, threads: int) -> Work:
    return lambda: gemm(spec, a, b, threads=threads)


def _matmul(x: Array, y: Array) -> Work:
    return lambda: x @ y


def _encode(x: Array, fmt: Format, rounding: str) -> Work:
    return lambda: encode(x, fmt, rounding)


def _astype(x: Array, dtype: np.dtype[Any]) -> Work:
    return lambda: x.astype(dtype)


def _torch(x: Array, format: str) -> Work | None:
    """A function for torch's conversion to the format, one thread; None where torch is not installed."""
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]  # optional
    except ImportError:
        return None
    torch.set_num_threads(1)
    given, dtype = torch.from_numpy(x), getattr(torch, TORCH_NAMES[format])
    return lambda: given.to(dtype)
