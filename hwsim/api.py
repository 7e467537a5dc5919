"""The Python API: run a GEMM scheme on a simulated device.

It joins the layers and holds no fact of its own: scheme -> plan -> program, or schedule -> bits and cycles.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._version import __version__
from hwsim.errors import InputError, UnsupportedError
from hwsim.result import Result

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.machine.operands import Operand
    from hwsim.machine.timing import Timing
    from hwsim.program.ir import Program
    from hwsim.program.plan import Plan
    from hwsim.program.schedule import Schedule
    from hwsim.schemes import Scheme
    from hwsim.studies.bits import Prepared

Array = NDArray[Any]
DeviceLike = "str | Path | Mapping[str, Any] | Device"
DEFAULT_SIZE = 1024


def device(name: str | Path | Mapping[str, Any] | Device) -> Device:
    """The device called `name`, in the YAML file `name`, or described by a mapping of that shape.

    Raises ConfigError with all problems of the file at once, UnsupportedError or InputError for an unknown name.
    """
    from hwsim.devices import load

    return load(name)


def run(
    a: Array | None = None,
    b: Array | None = None,
    c: Array | None = None,
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    device: str | Path | Mapping[str, Any] | Device = "ascend910a",
    scheme: str | Scheme = "native",
    format: str | None = None,
    input_format: str | None = None,
    output: str | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    bias: Array | None = None,
    tile: Mapping[str, int] | tuple[int, ...] | None = None,
    n_fused: int | None = None,
    buffering: str | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    rows: Any = None,
    cols: Any = None,
    exact: bool = True,
    timing: bool = True,
    threads: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    **scheme_options: Any,
) -> Result:
    """Compute D[m, n] = alpha A[m, k] B[k, n] + beta C + bias by `scheme` on `device`: bits (exact), cycles (timing).

    a, b: real matrices, (m, k) and (k, n), any strides; without them N(0, 1) by `seed`, and with exact=False
    sizes alone will do. fp32 or fp16 arrays are taken as they are, and arrays of the scheme's own operand format too
    (ml_dtypes', float64, int8); other real ones are rounded to fp32. Unsigned arrays are codes where `input_format`
    says whose, or where they are as wide as a `format` of 16 bits or fewer.
    c: (m, n), typed or codes of the output format; beta is then 1 unless given. bias: (n,), added to each row.
    format: operand format of the native scheme. output: format of D (default: what the unit gives), rounded to
    nearest even at the end. tile: blocks, keyed {"m", "k", "n"} or in the family's order (davinci: m, k, n).
    n_fused, buffering ("single", "double"): davinci.
    schedule: a Schedule (hwsim.program.schedule) or a mapping with its fields: how a library cuts K and finishes the
    sum. Without it: one chain in order of K, or on davinci what the program does (`k_group` in the result's options).
    rows, cols: indices, slices or masks: only those rows and columns of D, with the bits they have in the whole.
    threads: host threads for the bits (default: all). progress: called with 0..1. scheme_options: see
    `hwsim schemes show NAME`.
    Cycles come from the device's program: not for families without a dataflow, nor with a schedule, C, alpha, beta,
    bias or output; the result says why there are none.

    Raises InputError for arguments that do not fit, UnsupportedError for what the device cannot do,
    ConfigError for a bad device file.
    """
    given = {"schedule": schedule, "c": c, "alpha": alpha, "beta": beta, "bias": bias, "output": output}
    request = _Request(
        _loaded(device),
        _scheme(scheme),
        format,
        scheme_options,
        {"tile": tile, "n_fused": n_fused, "buffering": buffering},
        {name: value for name, value in given.items() if value is not None},
        rows,
        cols,
    )
    left, right, m, n, k, drawn = _operands(a, b, m, n, k, exact, seed, input_format, format)
    workers = (os.cpu_count() or 1) if threads is None else threads
    if workers < 1:
        raise InputError(f"threads = {threads}; allowed: at least 1")
    work = request.prepare(left.format if left is not None else input_format or "fp32", (m, n, k), exact)
    product: Array | None = None
    errors: Callable[[], dict[str, Any]] | None = None
    if exact:
        assert left is not None and right is not None
        product, errors = request.compute(work, left, right, workers, progress)
    facts = work.prepared.facts(k) if work.program is None else dict(work.program.facts)
    result = Result(
        device=request.chip.name,
        scheme=request.scheme.name,
        options=work.options | facts,
        m=m,
        n=n,
        k=k,
        seed=seed if drawn else None,
        c=product,
        schedule=work.prepared.schedule.to_dict() if work.direct else None,
        cycles=None,
        seconds=None,
        tflops=None,
        peak_fraction=None,
        phases=[],
        engines={},
        macs={},
        traffic_bytes={},
        evidence=work.evidence(),
        device_sha256=request.chip.sha256,
        kernel=_variant(),
        hwsim_version=__version__,
    )
    result._errors = errors
    if left is not None and right is not None:
        result._warnings = _notices(request.scheme, left, right, work.options)
    if not timing:
        result.timing_note = "not asked for"
    elif work.program is None or work.no_timing:
        result.timing_note = work.no_timing
    else:
        _time(result, work.program, request.chip, str(work.program.facts["unit"]), work.plan.products)
    return result


def program(
    *,
    m: int = DEFAULT_SIZE,
    n: int = DEFAULT_SIZE,
    k: int = DEFAULT_SIZE,
    device: str | Path | Mapping[str, Any] | Device = "ascend910a",
    scheme: str | Scheme = "native",
    format: str | None = None,
    tile: Mapping[str, int] | tuple[int, ...] | None = None,
    n_fused: int | None = None,
    buffering: str | None = None,
    **scheme_options: Any,
) -> tuple[Device, Program]:
    """The device and the checked program that `run` would execute on it for fp32 operands; arguments as there."""
    from hwsim.program.plan import Problem
    from hwsim.studies.bits import plan_for

    chip, chosen = _loaded(device), _scheme(scheme)
    _, _, m, n, k, _ = _operands(None, None, m, n, k, False, 0, None, None)
    lowering = {"tile": tile, "n_fused": n_fused, "buffering": buffering}
    _, plan = plan_for(chip, chosen, Problem("fp32", m, n, k), format, scheme_options)
    return chip, _lower(chip, plan, (m, n, k), lowering)


def matmul(a: Array, b: Array, c: Array | None = None, **arguments: Any) -> Array:
    """The product of `a` and `b` on a simulated device, bits only: `run(a, b, c, timing=False, ...).c`."""
    arguments.setdefault("timing", False)
    product = run(a, b, c, **arguments).c
    assert product is not None
    return product


def _loaded(device: str | Path | Mapping[str, Any] | Device) -> Device:
    from hwsim.devices import load

    return load(device)


def _scheme(scheme: str | Scheme) -> Scheme:
    from hwsim.schemes import scheme_of

    return scheme_of(scheme) if isinstance(scheme, str) else scheme


def _lower(chip: Device, plan: Plan, sizes: tuple[int, int, int], lowering: Mapping[str, Any]) -> Program:
    """The checked program of `plan` for `chip` and (m, n, k)."""
    from hwsim.lowering import dataflow
    from hwsim.program.check import check

    flow = dataflow(chip)
    lowered: Program = flow.lower(plan, chip, *sizes, {**lowering, "tile": _tile(lowering["tile"], flow.TILE_KEYS)})
    check(lowered, chip)
    return lowered


@dataclass(slots=True)
class _Work:
    """How a request is carried out: by a program, or directly (plan and schedule alone fix the bits).

    program: None where the device has none for the plan. direct: bits by the evaluator. no_timing: why there are
    no cycles, empty where there are.
    """

    options: dict[str, Any]
    plan: Plan
    prepared: Prepared
    program: Program | None
    direct: bool
    no_timing: str

    def evidence(self) -> dict[str, str]:
        found = self.prepared.evidence()
        if not self.direct or self.program is not None:
            del found["schedule"]  # the program is the schedule
        return found


@dataclass(slots=True)
class _Request:
    """What `run` was asked for, apart from A and B. extras: schedule, c, alpha, beta, bias, output, where given."""

    chip: Device
    scheme: Scheme
    format: str | None
    scheme_options: Mapping[str, Any]
    lowering: Mapping[str, Any]
    extras: dict[str, Any]
    rows: Any
    cols: Any

    def prepare(self, input_format: str, sizes: tuple[int, int, int], exact: bool) -> _Work:
        """The plan, the schedule, and the program where there is one."""
        from hwsim.lowering import dataflow
        from hwsim.program.plan import Problem
        from hwsim.program.schedule import schedule_of
        from hwsim.studies.bits import plan_for, prepared, with_epilogue

        chip, extras = self.chip, self.extras
        options, plan = plan_for(chip, self.scheme, Problem(input_format, *sizes), self.format, self.scheme_options)
        epilogue = {name: extras.get(name) for name in ("alpha", "beta", "output")}
        schedule = with_epilogue(schedule_of(extras.get("schedule")), **epilogue)
        program, no_timing = None, ""
        if extras:
            no_timing = f"a device's program knows no {', '.join(sorted(extras))}: bits only"
        try:
            dataflow(chip)
            direct = prepared(chip, options, plan, schedule)
            if direct.unit_result == plan.output_format and "schedule" not in extras:
                program = _lower(chip, plan, sizes, self.lowering)
            elif not no_timing:
                no_timing = (
                    f"programs of family {chip.family} give {plan.output_format}, not {direct.unit_result}: bits only"
                )
        except UnsupportedError as error:
            if not exact:
                raise
            no_timing = f"{error}: bits only"
            direct = prepared(chip, options, plan, schedule)
        if program is None and not exact:
            raise UnsupportedError(f"nothing to do: {no_timing}, and bits were not asked for")
        if program is None:
            unused = [name for name, value in self.lowering.items() if value is not None]
            if unused:
                raise InputError(f"{', '.join(unused)}: for a device's program, and there is none here ({no_timing})")
        elif schedule.promotion_k is None:
            group = int(str(program.facts["k_group"]))
            direct = prepared(chip, options, plan, dataclasses.replace(schedule, promotion_k=group))
        is_direct = program is None or bool(extras) or self.rows is not None or self.cols is not None
        return _Work(options, plan, direct, program, is_direct, no_timing)

    def compute(
        self, work: _Work, a: Operand, b: Operand, threads: int, progress: Callable[[float], None] | None
    ) -> tuple[Array, Callable[[], dict[str, Any]]]:
        """The product, and a function that gives its errors."""
        from hwsim.machine.operands import Operand, chosen
        from hwsim.studies.bits import subset

        if not work.direct:
            assert work.program is not None
            product = _exact(work.program, self.chip, a, b, work.plan.input_format, threads, progress)
            return product, lambda: _errors(a.values(), b.values(), product, None)
        shape = (a.shape[0], b.shape[1])
        c, bias = self.extras.get("c"), self._bias(shape[1])
        codes_c = None if c is None else work.prepared.c_codes(c, shape)
        if self.rows is not None:
            a = subset(a, rows=self.rows)
            codes_c = None if codes_c is None else codes_c[chosen("rows", self.rows, shape[0])]
        if self.cols is not None:
            index = chosen("cols", self.cols, shape[1])
            b = subset(b, cols=self.cols)
            codes_c = None if codes_c is None else codes_c[:, index]
            bias = None if bias is None else bias[index]
        prepared = work.prepared
        codes = prepared.evaluate(
            *prepared.pieces(a, b, threads), c=codes_c, bias=bias, threads=threads, progress=progress
        )
        product = prepared.typed(codes)
        epilogue = prepared.schedule.epilogue
        beta = epilogue.beta if epilogue.beta is not None else float(codes_c is not None)

        def finish(acc: Array) -> Array:
            total = epilogue.alpha * acc
            if codes_c is not None and beta:
                total = total + beta * _wide(Operand(codes_c, prepared.output).values())
            return total if bias is None else total + bias

        return product, lambda: _errors(a.values(), b.values(), product, finish)

    def _bias(self, n: int) -> Array | None:
        if "bias" not in self.extras:
            return None
        bias: Array = np.asarray(self.extras["bias"])
        if bias.shape != (n,) or bias.dtype.kind not in "iuf":
            raise InputError(
                f"bias has shape {bias.shape} of {bias.dtype}; allowed: ({n},) real numbers, one per column"
            )
        return bias


def fma_chain(a: Array, b: Array, *, threads: int | None = None) -> NDArray[np.float32]:
    """A plain fp32 product: one fused multiply-add per k, in order of k. a (m, k), b (k, n), rounded to fp32."""
    from hwsim._kernels import gemm
    from hwsim.numerics.units import DotSpec, FmaChainUnit

    chain = DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32")
    codes = (np.ascontiguousarray(x, np.float32).view(np.uint32) for x in (a, b))
    product: NDArray[np.float32] = gemm(chain, *codes, threads=threads or os.cpu_count() or 1).view(np.float32)
    return product


def _variant() -> str:
    from hwsim import _kernels

    return _kernels.variant


def _operands(
    a: Array | None,
    b: Array | None,
    m: int | None,
    n: int | None,
    k: int | None,
    exact: bool,
    seed: int,
    input_format: str | None,
    format: str | None,
) -> tuple[Operand | None, Operand | None, int, int, int, bool]:
    """A and B as operands (None: sizes alone), m, n, k, and whether they were drawn."""
    from hwsim.machine.operands import alike, operand

    if (a is None) != (b is None):
        raise InputError("got one of A and B; give both, or neither for random ones")
    left = right = None
    if a is not None and b is not None:
        left, right = (operand(x, y, input_format=input_format, format=format) for x, y in (("A", a), ("B", b)))
        left, right = alike(left, right)
        if left.shape[1] != right.shape[0]:
            raise InputError(
                f"A is {left.shape[0]} x {left.shape[1]} and B {right.shape[0]} x {right.shape[1]}: "
                "A's columns must equal B's rows"
            )
        sizes = {"m": left.shape[0], "n": right.shape[1], "k": left.shape[1]}
        for name, value in (("m", m), ("n", n), ("k", k)):
            if value is not None and value != sizes[name]:
                raise InputError(f"{name} = {value}, but the matrices give {name} = {sizes[name]}; leave it out")
    else:
        sizes = {name: DEFAULT_SIZE if value is None else value for name, value in (("m", m), ("n", n), ("k", k))}
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} = {value!r}; allowed: an integer of at least 1")
    drawn = left is None and exact
    if drawn:
        from hwsim.studies.inputs import normal

        left, right = (operand("A", x) for x in normal(sizes["m"], sizes["n"], sizes["k"], seed))
    return left, right, int(sizes["m"]), int(sizes["n"]), int(sizes["k"]), drawn


def _tile(tile: Mapping[str, int] | tuple[int, ...] | None, keys: tuple[str, ...]) -> dict[str, int] | None:
    if tile is None:
        return None
    if not isinstance(tile, Mapping):
        if len(tile) != len(keys):
            raise InputError(
                f"tile {tuple(tile)}: {len(tile)} numbers; allowed: {len(keys)}, in the order {', '.join(keys)}"
            )
        tile = dict(zip(keys, tile, strict=True))
    if set(tile) != set(keys):
        raise InputError(f"tile has keys {', '.join(map(str, tile))}; allowed: {', '.join(keys)}")
    for key, value in tile.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"tile {key} = {value!r}; allowed: an integer of at least 1")
    return {key: int(value) for key, value in tile.items()}


def _exact(
    program: Program,
    chip: Device,
    a: Operand,
    b: Operand,
    input_format: str,
    threads: int,
    progress: Callable[[float], None] | None,
) -> Array:
    from hwsim.formats import array_of, format_of
    from hwsim.machine import functional

    codes = [np.ascontiguousarray((x if x.format == input_format else x.fp32()).codes) for x in (a, b)]
    out = functional.run(
        program, chip, dict(zip(program.inputs, codes, strict=True)), threads=threads, progress=progress
    )
    array = next(x for x in program.arrays if x.name == program.output)
    return array_of(out, format_of(array.format))


def _time(result: Result, program: Program, chip: Device, unit: str, products: int) -> None:
    from hwsim.devices import find, timing_evidence
    from hwsim.machine import timing

    reason = timing.missing(chip, program)
    if reason is not None:
        result.timing_note = reason
        return
    timed: Timing = timing.run(program, chip)
    hertz = chip.clock_mhz * 1e6
    result.cycles, result.seconds = timed.cycles, timed.cycles / hertz
    result.tflops = 2 * result.m * result.n * result.k / result.seconds / 1e12
    instruction = find(chip, unit)
    assert instruction is not None and instruction.timing is not None
    per_cycle = instruction.m * instruction.n * instruction.k / instruction.timing.issue_interval_cycles
    result.peak_fraction = result.tflops / (2 * per_cycle * chip.cores * hertz / 1e12 / products)
    result.phases = [{"name": x.name, "cycles": x.cycles, "seconds": x.cycles / hertz} for x in timed.kernels]
    result.engines = {
        name: {"busy_cycles": x.busy_cycles, "stall_cycles": dict(x.stall_cycles)} for name, x in timed.engines.items()
    }
    result.macs = {"useful": timed.macs, "padded": timed.padded_macs}
    result.traffic_bytes = dict(timed.traffic_bytes)
    result.evidence["timing"] = str(timing_evidence(chip, unit))

    def trace() -> Any:
        from hwsim.trace.trace import Trace

        return Trace.of(timing.run(program, chip, trace=Trace.LIMIT), chip)

    result._trace = trace


def _notices(scheme: Scheme, a: Operand, b: Operand, options: Mapping[str, Any]) -> Callable[[], list[dict[str, Any]]]:
    """A function that gives what the scheme has to say about the operands."""

    def notices() -> list[dict[str, Any]]:
        found = scheme.inspect(a.values(), b.values(), options)
        return [{"code": x.code, "count": x.count, "message": x.message} for x in found]

    return notices


def _wide(x: Array) -> Array:
    """Values as fp64 (float16 among them)."""
    return x.astype(np.float64, copy=False)


def _errors(a: Array, b: Array, c: Array, finish: Callable[[Array], Array] | None) -> dict[str, Any]:
    """Errors of c, and of a plain fp32 chain; finish: the epilogue, in fp64."""
    from hwsim.studies.metrics import errors

    with np.errstate(all="ignore"):
        exact, baseline = _wide(a) @ _wide(b), fma_chain(a, b)
        if finish is not None:
            exact, baseline = finish(exact), finish(_wide(baseline)).astype(np.float32)
    return errors(exact, c) | {"baseline": errors(exact, baseline)}
