"""What a result says beside the product: times of a program, errors, and what a scheme has to say of the operands."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import UnsupportedError

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.operands import Operand
    from hwsim.program.ir import Program
    from hwsim.result import Result
    from hwsim.schemes import Scheme

Array = NDArray[Any]


def fill_times(result: Result, program: Program, chip: Device, unit: str, products: int, launch_overhead: bool) -> None:
    """Fill in the result's times, at the clock that the chip keeps under this load."""
    from hwsim.devices import find, timing_evidence
    from hwsim.devices.model import Level
    from hwsim.machines import timing
    from hwsim.resolve.predict import under_load

    launch, given_mhz = 0.0, chip.clock_mhz
    if launch_overhead:
        if chip.launch_overhead_us is None:
            raise UnsupportedError(f"device {chip.name}: its file has no launch_overhead_us; leave launch_overhead out")
        launch = chip.launch_overhead_us * 1e-6
    reason = timing.missing(chip, program)
    if reason is not None:
        result.timing_note = reason
        return
    chip, timed = under_load(program, chip, unit)
    if chip.clock_mhz != given_mhz:
        result.options["clock_mhz"] = chip.clock_mhz
    hertz = chip.clock_mhz * 1e6
    result.cycles = timed.cycles
    result.seconds = timed.cycles / hertz + launch * len(timed.kernels)
    result.tflops = 2 * result.m * result.n * result.k / result.seconds / 1e12
    instruction = find(chip, unit)
    if instruction is not None and instruction.timing is not None:
        per_cycle = float(instruction.macs_per_cycle)
        of_mixture = program.facts.get("products", products)
        formed = of_mixture if isinstance(of_mixture, float) else products
        result.peak_fraction = result.tflops / (2 * per_cycle * chip.cores * hertz / 1e12 / formed)
    result.phases = [{"name": x.name, "cycles": x.cycles, "seconds": x.cycles / hertz} for x in timed.kernels]
    result.engines = {
        name: {"busy_cycles": x.busy_cycles, "stall_cycles": dict(x.stall_cycles)} for name, x in timed.engines.items()
    }
    result.macs = {"useful": timed.macs, "padded": timed.padded_macs}
    result.traffic_bytes = dict(timed.traffic_bytes)
    level = timing_evidence(chip, unit)
    if "timing_model" in program.facts:
        level = max(level, Level.MODEL, key=list(Level).index)
    result.evidence["timing"] = str(level)

    def trace() -> Any:
        from hwsim.trace.trace import Trace

        return Trace.of(timing.run(program, chip, trace=Trace.LIMIT), chip)

    def what_if_runs() -> Any:
        from hwsim.analysis.what_if import what_if

        return what_if(program, chip)

    def point() -> Any:
        from hwsim.analysis.roofline import roofline

        return roofline(timed, chip, unit)

    result._trace, result._what_if, result._roofline = trace, what_if_runs, point


def of_a_stack(result: Result, matrices: int, programs: int) -> None:
    """Times of a stack of matrices from those of one of its programs, which run one after the other."""
    if result.cycles is None or result.seconds is None or result.tflops is None:
        return
    result.cycles, result.seconds = result.cycles * programs, result.seconds * programs
    rate = matrices // programs  # matrices in one program
    result.tflops *= rate
    result.peak_fraction = None if result.peak_fraction is None else result.peak_fraction * rate
    for phase in result.phases:
        phase["cycles"], phase["seconds"] = phase["cycles"] * programs, phase["seconds"] * programs
    for engine in result.engines.values():
        engine["busy_cycles"] *= programs
        engine["stall_cycles"] = {cause: cycles * programs for cause, cycles in engine["stall_cycles"].items()}
    result.macs = {name: count * programs for name, count in result.macs.items()}
    result.traffic_bytes = {name: size * programs for name, size in result.traffic_bytes.items()}


def notices_of(
    scheme: Scheme, a: Operand, b: Operand, options: Mapping[str, Any]
) -> Callable[[], list[dict[str, Any]]]:
    """A function that gives what the scheme has to say about the operands."""

    def notices() -> list[dict[str, Any]]:
        found = scheme.inspect(a.values(), b.values(), options)
        return [{"code": x.code, "count": x.count, "message": x.message} for x in found]

    return notices


def fma_chain(a: Array, b: Array, *, threads: int | None = None) -> NDArray[np.float32]:
    """A plain fp32 product: one fused multiply-add per k, in order of k. a (..., m, k), b (..., k, n), as fp32."""
    from hwsim._kernels import gemm
    from hwsim.numerics.units import DotSpec, FmaChainUnit

    chain = DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    codes = (
        np.broadcast_to(np.ascontiguousarray(x, np.float32).view(np.uint32), (*lead, *x.shape[-2:])) for x in (a, b)
    )
    product: NDArray[np.float32] = gemm(chain, *codes, threads=threads or os.cpu_count() or 1).view(np.float32)
    return product


def wide(x: Array) -> Array:
    """Values as fp64 (float16 among them)."""
    return x.astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class Ending:
    """An epilogue: alpha times the product, and each factor times its array, of the result's shape or one row."""

    alpha: float = 1.0
    added: tuple[tuple[float, Array], ...] = ()

    def of(self, product: Array) -> Array:
        """In fp64."""
        total = self.alpha * product
        for factor, array in self.added:
            total = total + factor * array
        return total

    def of_pair(self, high: Array, low: Array, rows: slice) -> tuple[Array, Array]:
        """The same of a pair of doubles. rows: which of the result's they are."""
        from hwsim.analysis.exact_product import two_product, two_sum

        total, cut = two_product(np.full(1, float(self.alpha)), high)
        rest = cut + self.alpha * low
        for factor, array in self.added:
            term, cut = two_product(np.full(1, float(factor)), wide(array if array.ndim == 1 else array[rows]))
            total, lost = two_sum(total, term)
            rest = rest + lost + cut
        return total, np.where(np.isfinite(rest), rest, 0.0)


def errors_of(a: Array, b: Array, c: Array, ending: Ending) -> dict[str, Any]:
    """Errors of c, and of a plain fp32 chain, beside the product in fp64; of an fp64 c beside the exact product.

    a (..., m, k), b (..., k, n), c (..., m, n). `rows`, where the exact product is too much work: how many rows of
    every matrix were compared, evenly spaced.
    """
    from hwsim.analysis.metrics import errors

    with np.errstate(all="ignore"):
        baseline = ending.of(wide(fma_chain(a, b))).astype(np.float32)
        if c.dtype != np.float64 or not c.size:
            exact = ending.of(wide(a) @ wide(b))
            return errors(exact, c) | {"baseline": errors(exact, baseline)}
        high, low, rows = _exactly(a, b, c.shape, ending)
        found = errors(high, c[..., rows, :], low) | {"baseline": errors(high, baseline[..., rows, :], low)}
    return found if high.shape == c.shape else found | {"rows": high.shape[-2]}


def _exactly(a: Array, b: Array, shape: tuple[int, ...], ending: Ending) -> tuple[Array, Array, slice]:
    """The exact result as a pair of doubles, and which rows of each matrix: the same of all."""
    from hwsim.analysis.exact_product import reference

    lead = shape[:-2]
    left, right = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    added = [(factor, x if x.ndim == 1 else np.broadcast_to(x, shape)) for factor, x in ending.added]
    found: list[tuple[Array, Array, slice]] = []
    for at in np.ndindex(*lead):
        high, low, rows = reference(left[at], right[at], math.prod(lead))
        own = Ending(ending.alpha, tuple((factor, x if x.ndim == 1 else x[at]) for factor, x in added))
        found.append((*own.of_pair(high, low, rows), rows))
    every = math.lcm(*(rows.step or 1 for _, _, rows in found))
    kept = [(high[:: every // (rows.step or 1)], low[:: every // (rows.step or 1)]) for high, low, rows in found]
    high, low = (np.stack([pair[i] for pair in kept]) for i in range(2))
    sizes = (*lead, high.shape[1], shape[-1])
    return high.reshape(sizes), low.reshape(sizes), slice(None, None, every)
