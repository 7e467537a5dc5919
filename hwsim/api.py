"""The Python API: run a GEMM scheme on a simulated device.

It joins the layers and holds no fact of its own: scheme -> plan; plan and schedule, or the device's program -> bits;
program -> cycles. Which way a request goes is hwsim.request's to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._version import __version__
from hwsim.errors import InputError
from hwsim.measures import fill_times, fma_chain, notices_of, of_a_stack
from hwsim.request import Request, lower
from hwsim.result import Result
from hwsim.threads import worker_count

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.machine.operands import Operand
    from hwsim.program.ir import Program
    from hwsim.program.schedule import Schedule
    from hwsim.schemes import Scheme
    from hwsim.studies.choice import Choice

__all__ = ["device", "fma_chain", "matmul", "program", "run"]

Array = NDArray[Any]
DeviceLike = "str | Path | Mapping[str, Any] | Device"
DEFAULT_SIZE = 1024
AUTO = "auto"  # a scheme's name: choose


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
    error_target: float | None = None,
    format: str | None = None,
    input_format: str | None = None,
    output: str | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    bias: Array | None = None,
    tile: Mapping[str, int] | tuple[int, ...] | None = None,
    n_fused: int | None = None,
    buffering: str | None = None,
    stages: int | None = None,
    split_k: int | str | None = None,
    swizzle: int | None = None,
    instruction: str | None = None,
    cta_group: int | None = None,
    a_layout: str | None = None,
    b_layout: str | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    rows: Any = None,
    cols: Any = None,
    exact: bool = True,
    functional: bool | None = None,
    timing: bool = True,
    clock_mhz: float | None = None,
    launch_overhead: bool = False,
    threads: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    **scheme_options: Any,
) -> Result:
    """Compute D[m, n] = alpha A[m, k] B[k, n] + beta C + bias by `scheme` on `device`: bits (exact), cycles (timing).

    a, b: real matrices, (m, k) and (k, n), any strides, or stacks of them, (..., m, k) and (..., k, n), whose leading
    dimensions broadcast; without them N(0, 1) by `seed` (int16 schemes: any values), and with exact=False sizes alone
    will do. Arrays of the scheme's own operand formats are taken as they are (`hwsim schemes show NAME` says which;
    float32, float16, ml_dtypes', float64, int16, int8); other real ones are rounded to the first of them. Unsigned
    arrays are codes where `input_format` says whose, or where they are as wide as a `format` of 16 bits or fewer.
    c: (..., m, n), typed or codes of the output format; beta is then 1 unless given. bias: (n,), added to each row.
    scheme: "auto" takes the fastest whose error is predicted to be at most `error_target`, relative to the product in
    the Frobenius norm (hwsim.studies.choice); the result's `scheme` is the one taken, and `choice` among its options
    tells of all candidates. format: operand format of the native scheme.
    output: format of D (default: the scheme's, or what the unit gives), rounded to nearest even at the end.
    tile: blocks, keyed {"m", "k", "n"} or in the family's order (davinci: m, k, n; elsewhere m, n, k).
    n_fused: davinci (910A). buffering ("single", "double"): davinci, davinci_separated (910B). swizzle (tiles in a band
    of columns): davinci_separated, GPUs. stages (of shared memory), split_k (slices of K, merged by a kernel of their
    own; "auto": as many as take the least estimated time; the bits depend on it): GPUs. instruction (the matrix
    instruction by name, one with the bits of the device's own, as mma.sync's for wgmma's; default: that, or what the
    library has where K is cut): GPUs. cta_group (2: pairs of SMs multiply together and share B; `tile` is that of one):
    B200, GB200. a_layout, b_layout ("rows", "columns": what follows one another in memory; the time of transfers
    depends on it, no bit): GPUs, 910B.
    schedule: a Schedule (hwsim.program.schedule) or a mapping with its fields: how a library cuts K and finishes the
    sum. Without it: one chain in order of K, or what the program does (`k_group` in the result's options).
    rows, cols: indices, slices or masks: only those rows and columns of D, with the bits they have in the whole.
    functional: bits by running the device's program (True), or directly from plan and schedule (False); None: by the
    program where the bits depend on what it chose (davinci), else directly, which is faster and gives the same.
    clock_mhz: core clock for the cycles of a single run with nothing in L2, in place of the device file's (memories of
    the whole device keep theirs), at most 100,000. Without it, where the file says how the clock falls under load
    (sustained_clock_mhz, power_limit), times are those of a run in a series, as GEMMs are measured
    (hwsim.studies.predict.under_load).
    launch_overhead: `seconds` takes in the device's launch overhead of every kernel.
    threads: host threads for the bits (default: all). progress: called with 0..1. scheme_options: see
    `hwsim schemes show NAME`.
    Cycles come from the device's program: not for devices without timing data, nor for plans that the family's
    dataflow cannot carry, nor with a schedule, nor with C, alpha, beta, bias or output where the dataflow takes none
    (davinci); the result's `timing_note` says why there are none. Of a stack they are those of one program for all
    matrices on GPUs, else those of one matrix times their number (`batch_cycles` among the options).

    Raises InputError for arguments that do not fit, UnsupportedError for what the device cannot do,
    ConfigError for a bad device file.
    """
    given = {"schedule": schedule, "c": c, "alpha": alpha, "beta": beta, "bias": bias, "output": output}
    blocking = {
        "tile": tile,
        "n_fused": n_fused,
        "buffering": buffering,
        "stages": stages,
        "split_k": split_k,
        "swizzle": swizzle,
        "instruction": instruction,
        "cta_group": cta_group,
        "a_layout": a_layout,
        "b_layout": b_layout,
    }
    chip, choice = _clocked(_loaded(device), clock_mhz), None
    if scheme == AUTO or error_target is not None:
        numbers = (m, n, k, exact, seed, input_format)
        choosing, progress = _halves(progress, exact)
        choice = _choice(chip, scheme, error_target, a, b, numbers, {"format": format, **scheme_options}, choosing)
        scheme, chosen = choice.taken.scheme, dict(choice.taken.options)
        format, scheme_options = chosen.pop("format", None), chosen
    request = Request(
        chip,
        _scheme(scheme),
        format,
        scheme_options,
        blocking,
        {name: value for name, value in given.items() if value is not None},
        rows,
        cols,
        timing,
        functional,
    )
    left, right, sizes, drawn = _operands(a, b, m, n, k, exact, seed, input_format, format, request.scheme)
    workers = worker_count(threads)
    lead = () if left is None or right is None else _common(left, right)
    operands = None if left is None or right is None else (left, right)
    assumed = input_format or ("fp32" if exact or choice is not None else request.operand_format)
    work = request.prepare(assumed, sizes, exact, operands, math.prod(lead))
    product: Array | None = None
    errors: Callable[[], dict[str, Any]] | None = None
    if exact:
        assert left is not None and right is not None
        product, errors = request.compute(work, left, right, lead, workers, progress)
    facts = work.prepared.facts(sizes[2]) if work.program is None else dict(work.program.facts)
    how = "of one program for all" if work.in_one else "of one matrix, times their number"
    batch = {"batch": list(lead), "batch_cycles": how} if lead else {}
    timed: dict[str, Any] = {
        "clock_mhz": None if clock_mhz is None else float(clock_mhz),
        "launch_overhead": launch_overhead or None,
    }
    timed |= {"choice": None if choice is None else choice.to_dict()}
    result = Result(
        device=request.chip.name,
        scheme=request.scheme.name,
        options=work.prepared.options | facts | batch | {name: x for name, x in timed.items() if x is not None},
        m=sizes[0],
        n=sizes[1],
        k=sizes[2],
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
        refused=dict(work.prepared.refused),
    )
    result._errors = errors
    notices: list[Callable[[], list[dict[str, Any]]]] = []
    if left is not None and right is not None:
        notices.append(notices_of(request.scheme, left, right, work.prepared.options))
    notices.append(lambda: [] if result.cycles is None else request.uncut(work, sizes, math.prod(lead)))
    result._warnings = lambda: [notice for found in notices for notice in found()]
    if not timing:
        result.timing_note = "not asked for"
    elif work.program is None or work.no_timing:
        result.timing_note = work.no_timing
    else:
        unit = str(work.program.facts.get("unit", work.prepared.unit))
        matrices = math.prod(lead)
        fill_times(result, work.program, request.chip, unit, work.prepared.plan.products, launch_overhead)
        of_a_stack(result, matrices, 1 if work.in_one else matrices)
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
    stages: int | None = None,
    split_k: int | str | None = None,
    swizzle: int | None = None,
    instruction: str | None = None,
    cta_group: int | None = None,
    a_layout: str | None = None,
    b_layout: str | None = None,
    **scheme_options: Any,
) -> tuple[Device, Program]:
    """The device and the checked program that `run` would time (and, where asked, execute) on it for fp32 operands.

    Arguments and errors as there; UnsupportedError where the device has no program for the plan. `Program.computes`
    says whether running it gives the bits.
    """
    from hwsim.program.plan import Problem
    from hwsim.studies.bits import prepare

    chip, chosen = _loaded(device), _scheme(scheme)
    _, _, sizes, _ = _operands(None, None, m, n, k, False, 0, None, None, chosen)
    lowering = {
        "tile": tile,
        "n_fused": n_fused,
        "buffering": buffering,
        "stages": stages,
        "split_k": split_k,
        "swizzle": swizzle,
        "instruction": instruction,
        "cta_group": cta_group,
        "a_layout": a_layout,
        "b_layout": b_layout,
    }
    ready = prepare(chip, chosen, Problem("fp32", *sizes), format=format, scheme_options=scheme_options)
    return chip, lower(chip, ready, sizes, lowering)


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


def _choice(
    chip: Device,
    scheme: str | Scheme,
    error_target: float | None,
    a: Array | None,
    b: Array | None,
    numbers: tuple[int | None, int | None, int | None, bool, int, str | None],
    options: Mapping[str, Any],
    progress: Callable[[float], None] | None,
) -> Choice:
    """What scheme="auto" takes. numbers: m, n, k, exact, seed, input_format."""
    from hwsim.studies.choice import choose

    if scheme != AUTO:
        raise InputError("error_target is for scheme='auto'; leave it out, or the scheme")
    if error_target is None:
        raise InputError("scheme='auto' needs error_target, as 1e-6: relative to the product, Frobenius norm")
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"scheme='auto' chooses a scheme with its options; leave out {', '.join(given)}")
    m, n, k, exact, seed, input_format = numbers
    left, right, sizes, _ = _operands(a, b, m, n, k, exact, seed, input_format, None, _scheme("native"))
    operands = None if left is None or right is None else (left, right)
    return choose(chip, sizes, error_target, operands, input_format=input_format or "fp32", progress=progress)


def _halves(
    progress: Callable[[float], None] | None, exact: bool
) -> tuple[Callable[[float], None] | None, Callable[[float], None] | None]:
    """Progress of choosing a scheme and of the product after it; without a product choosing is all there is."""
    if progress is None or not exact:
        return progress, None
    return lambda share: progress(share / 2), lambda share: progress((1 + share) / 2)


def _clocked(chip: Device, clock_mhz: float | None) -> Device:
    """The device at another core clock."""
    if clock_mhz is None:
        return chip
    from hwsim.devices.variants import checked_clock

    return chip.model_copy(
        update={"clock_mhz": checked_clock(clock_mhz), "sustained_clock_mhz": {}, "power_limit": None}
    )


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
    scheme: Scheme,
) -> tuple[Operand | None, Operand | None, tuple[int, int, int], bool]:
    """A and B as operands (None: sizes alone), (m, n, k), and whether they were drawn."""
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
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"seed = {seed!r}; allowed: an integer of at least 0")
        from hwsim.studies.inputs import drawn as draw

        pair = draw(sizes["m"], sizes["n"], sizes["k"], seed, scheme.input_formats[0])
        left, right = (operand("A", x) for x in pair)
    return left, right, (int(sizes["m"]), int(sizes["n"]), int(sizes["k"])), drawn


def _common(a: Operand, b: Operand) -> tuple[int, ...]:
    """Leading dimensions of the product. Raises InputError where they do not fit together."""
    try:
        lead: tuple[int, ...] = np.broadcast_shapes(a.lead, b.lead)
    except ValueError:
        raise InputError(f"A's leading dimensions {a.lead} and B's {b.lead} do not fit together") from None
    if 0 in lead:
        raise InputError(f"the stack of matrices is empty: its shape is {lead}")
    return lead
