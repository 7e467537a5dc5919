"""The Python API: run a GEMM scheme on a simulated device.

It joins the layers and holds no fact of its own: scheme -> plan -> program -> bits and cycles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._version import __version__
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.result import Result

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.machine.timing import Timing
    from hwsim.program.ir import Program
    from hwsim.program.plan import Plan
    from hwsim.schemes import Scheme

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
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    device: str | Path | Mapping[str, Any] | Device = "ascend910a",
    scheme: str | Scheme = "native",
    format: str | None = None,
    tile: Mapping[str, int] | tuple[int, ...] | None = None,
    n_fused: int | None = None,
    buffering: str | None = None,
    exact: bool = True,
    timing: bool = True,
    threads: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    **scheme_options: Any,
) -> Result:
    """Compute C[m, n] = A[m, k] B[k, n] by `scheme` on `device`: its bits (exact) and its cycles (timing).

    a, b: real matrices, (m, k) and (k, n), any strides; without them N(0, 1) by `seed`, and with exact=False
    sizes alone will do. fp32 or fp16 arrays are taken as they are, other real ones are rounded to fp32.
    format: operand format of the native scheme. tile: blocks, keyed {"m", "k", "n"} or in the family's order
    (davinci: m, k, n). n_fused, buffering ("single", "double"): davinci. threads: host threads for the bits
    (default: all). progress: called with 0..1. scheme_options: see `hwsim schemes show NAME`.

    Raises InputError for arguments that do not fit, UnsupportedError for what the device cannot do,
    ConfigError for a bad device file.
    """
    from hwsim.devices import load, numerics_evidence

    chip = load(device)
    chosen = _scheme(scheme)
    a, b, m, n, k = _operands(a, b, m, n, k, exact, seed_given := (a is None and b is None), seed)
    input_format = _input_format(a, chosen)
    lowering = {"tile": tile, "n_fused": n_fused, "buffering": buffering}
    complete, plan, program = _lower(chip, chosen, input_format, (m, n, k), format, lowering, scheme_options)
    c = None
    notices: list[dict[str, Any]] = []
    if exact:
        assert a is not None and b is not None
        c = _exact(program, chip, a, b, input_format, (os.cpu_count() or 1) if threads is None else threads, progress)
        notices = [{"code": x.code, "count": x.count, "message": x.message} for x in chosen.inspect(a, b, complete)]
    unit = str(program.facts["unit"])
    evidence = {"numerics": str(numerics_evidence(chip, unit))}
    result = Result(
        device=chip.name,
        scheme=chosen.name,
        options=complete | dict(program.facts),
        m=m,
        n=n,
        k=k,
        seed=seed if seed_given and exact else None,
        c=c,
        cycles=None,
        seconds=None,
        tflops=None,
        peak_fraction=None,
        phases=[],
        engines={},
        macs={},
        traffic_bytes={},
        evidence=evidence,
        warnings=notices,
        device_sha256=chip.sha256,
        kernel=_variant(),
        hwsim_version=__version__,
    )
    if exact and a is not None and b is not None:
        left, right, product = a, b, c
        result._errors = lambda: _errors(left, right, product)
    if timing:
        _time(result, program, chip, unit, plan.products)
    else:
        result.timing_note = "not asked for"
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
    from hwsim.devices import load

    chip, chosen = load(device), _scheme(scheme)
    _, _, m, n, k = _operands(None, None, m, n, k, False, False, 0)
    lowering = {"tile": tile, "n_fused": n_fused, "buffering": buffering}
    return chip, _lower(chip, chosen, _input_format(None, chosen), (m, n, k), format, lowering, scheme_options)[2]


def matmul(a: Array, b: Array, **arguments: Any) -> Array:
    """The product of `a` and `b` on a simulated device, bits only: `run(a, b, timing=False, ...).c`."""
    arguments.setdefault("timing", False)
    product = run(a, b, **arguments).c
    assert product is not None
    return product


def _scheme(scheme: str | Scheme) -> Scheme:
    from hwsim.schemes import scheme_of

    return scheme_of(scheme) if isinstance(scheme, str) else scheme


def _lower(
    chip: Device,
    chosen: Scheme,
    input_format: str,
    sizes: tuple[int, int, int],
    format: str | None,
    lowering: Mapping[str, Any],
    scheme_options: Mapping[str, Any],
) -> tuple[dict[str, Any], Plan, Program]:
    """The scheme's complete options, its plan, and the checked program for `chip` and (m, n, k)."""
    from hwsim.lowering import dataflow
    from hwsim.program.check import check

    options = dict(scheme_options)
    if format is not None:
        options["format"] = format
    if "format" in {option.name for option in chosen.options} and options.get("format") is None:
        options["format"] = input_format if input_format in chip.native else chip.default_format
    complete = chosen.complete(options)
    if chosen.name == "native" and complete["format"] not in chip.native:
        raise UnsupportedError(
            f"device {chip.name} has no native {complete['format']!r} matrix unit; it has {', '.join(chip.native)}"
            f"{nearest(complete['format'], list(chip.native))}"
        )
    plan = chosen.plan(complete, input_format)
    flow = dataflow(chip)
    lowered: Program = flow.lower(plan, chip, *sizes, {**lowering, "tile": _tile(lowering["tile"], flow.TILE_KEYS)})
    check(lowered, chip)
    return complete, plan, lowered


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
    a: Array | None, b: Array | None, m: int | None, n: int | None, k: int | None, exact: bool, _drawn: bool, seed: int
) -> tuple[Array | None, Array | None, int, int, int]:
    if (a is None) != (b is None):
        raise InputError("got one of A and B; give both, or neither for random ones")
    if a is not None and b is not None:
        a, b = _matrix("A", a), _matrix("B", b)
        if a.shape[1] != b.shape[0]:
            raise InputError(
                f"A is {a.shape[0]} x {a.shape[1]} and B {b.shape[0]} x {b.shape[1]}: A's columns must equal B's rows"
            )
        if a.dtype != b.dtype:
            a, b = a.astype(np.float32), b.astype(np.float32)
        sizes = {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]}
        for name, value in (("m", m), ("n", n), ("k", k)):
            if value is not None and value != sizes[name]:
                raise InputError(f"{name} = {value}, but the matrices give {name} = {sizes[name]}; leave it out")
    else:
        sizes = {name: DEFAULT_SIZE if value is None else value for name, value in (("m", m), ("n", n), ("k", k))}
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} = {value!r}; allowed: an integer of at least 1")
    if a is None and exact:
        from hwsim.studies.inputs import normal

        a, b = normal(sizes["m"], sizes["n"], sizes["k"], seed)
    return a, b, int(sizes["m"]), int(sizes["n"]), int(sizes["k"])


def _matrix(name: str, given: Any) -> Array:
    x: Array = np.asarray(given)
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.ndim != 2:
        raise InputError(f"{name} has shape {x.shape}; allowed: a matrix (two dimensions)")
    if x.dtype in (np.float16, np.float32):
        return x
    if x.dtype == np.float64 or x.dtype.kind in "iu":
        with np.errstate(over="ignore"):
            return x.astype(np.float32)
    raise InputError(
        f"{name} has dtype {x.dtype}; allowed: float16, float32, float64 or integers (the last two are rounded to fp32)"
    )


def _input_format(a: Array | None, scheme: Scheme) -> str:
    found = "fp16" if a is not None and a.dtype == np.float16 else "fp32"
    return found if found in scheme.input_formats else scheme.input_formats[0]


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
    a: Array,
    b: Array,
    input_format: str,
    threads: int,
    progress: Callable[[float], None] | None,
) -> Array:
    from hwsim.formats import array_dtype, array_of, codes_of, format_of
    from hwsim.machine import functional

    if threads < 1:
        raise InputError(f"threads = {threads}; allowed: at least 1")
    fmt = format_of(input_format)
    codes = [codes_of(np.ascontiguousarray(x, array_dtype(fmt)), fmt) for x in (a, b)]
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


def _errors(a: Array, b: Array, c: Array | None) -> dict[str, Any]:
    from hwsim.studies.metrics import errors

    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    assert c is not None
    return errors(exact, c) | {"baseline": errors(exact, fma_chain(a, b))}
