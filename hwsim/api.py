"""The Python API: run a GEMM scheme on a simulated device.

A call is resolved into one record (hwsim.resolve). The evaluator, or the program, gives the record's bits; the timing
machine gives the program's cycles. This module only connects these parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import NDArray

from hwsim.analysis.changed_numbers import ChangeableCall
from hwsim.analysis.errors import fma_chain
from hwsim.backend.by_name import backend
from hwsim.backend.environment import in_default_environment
from hwsim.compute.bits import Arrays, Errors, compute
from hwsim.compute.call import DeviceLike, ProductCall, Progress, of_computing, product_call
from hwsim.compute.followed import Followed, followed
from hwsim.compute.notices import Notices
from hwsim.compute.prepared import Prepared
from hwsim.compute.saved import saved_call
from hwsim.compute.times import (
    call_times,
    evidence_of,
    has_output,
    on_matrix_unit,
    times_chosen_anew,
    times_in_mapping,
    times_in_output,
    times_with_numbers,
    times_with_tile,
)
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.record import Gemm
from hwsim.host.arrays import lies_on_gpu
from hwsim.host.threads import worker_count
from hwsim.host.warned import warn_once
from hwsim.program.ir import Program
from hwsim.request.declarations import AUTO, DEFAULT_DEVICE, DEFAULT_SCHEME, describe
from hwsim.request.on_gpu import copied, work_of_host
from hwsim.request.region import places_of
from hwsim.request.run_options import RunOptions
from hwsim.result import Execution, Result
from hwsim.schemes import Scheme, scheme_of

__all__ = ["device", "fma_chain", "matmul", "program", "run"]

AnyArray = NDArray[Any]


def device(name: str | Path | Mapping[str, Any] | Device) -> Device:
    """The device called `name`, in the YAML file `name`, or described by a mapping of that shape.

    Raises ConfigError with all problems of the file at once, UnsupportedError or InputError for an unknown name.
    """
    return load(name)


#: Arrays beside A, B and C, that are read on the host.
SMALL = ("bias", "scale_a", "scale_b")


@in_default_environment
def run(
    a: AnyArray | None = None,
    b: AnyArray | None = None,
    c: AnyArray | None = None,
    *,
    device: DeviceLike = DEFAULT_DEVICE,
    scheme: str | Scheme = DEFAULT_SCHEME,
    gemm: Gemm | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Run one GEMM; replaced by RUN_TEXT and the options of hwsim.request.declarations."""
    values = _with_c(options, c)
    if gemm is not None:
        call = saved_call(gemm, a, b, device, scheme, values)
    else:
        call = product_call(a, b, device, scheme, values, progress)
    return _result(call, of_computing(progress, call), is_saved=gemm is not None)


@in_default_environment
def prepared(
    a: AnyArray,
    b: AnyArray,
    c: AnyArray | None = None,
    *,
    device: DeviceLike = DEFAULT_DEVICE,
    scheme: str | Scheme = DEFAULT_SCHEME,
    **options: Unpack[RunOptions],
) -> tuple[Result, Prepared | None]:
    """The result of `run`, and the product of further operands of the same shapes and dtypes, without asking again.

    a, b, c, device, scheme, options: as of `run`. None where a record is good for one pair of operands: where the
    scheme looks at them, or where a part of the result or the program's own bits are wanted. Raises as `run`.
    """
    call = product_call(a, b, device, scheme, _with_c(options, c))
    result, left = _result(call, None), call.operands.left
    if call.is_for_one_pair or left is None:
        return result, None
    wanted = call.options
    has_quantizer = call.request.scheme.quantizes is not None
    return result, Prepared(
        call.resolved,
        taken=left.format,
        lead=call.operands.lead,
        input_format=wanted.problem.input_format,
        format=wanted.scheme.format,
        threads=worker_count(wanted.machine.threads),
        quantizer=call.request.scheme if has_quantizer else None,
        scheme_options=wanted.of_scheme,
    )


RUN_TEXT = """Compute D[m, n] = alpha A[m, k] B[k, n] + beta C + bias by `scheme` on `device`: bits and cycles.

Arrays of the scheme's own operand formats are taken as they are (`hwsim schemes show NAME` says which: float32,
float16, ml_dtypes', float64, int16, int8). Other real arrays are rounded to the first of them. Unsigned arrays are bit
patterns where `input_format` says whose, or where they are as wide as a `format` of 16 bits or fewer.

The result holds the resolved record (`gemm`), which fixes bits and cycles. Cycles come from the device's program. There
are none for devices without timing data, nor for plans, schedules and epilogues that the family's dataflow does not
support; `timing_note` gives the reason. A stack is one program where the dataflow supports stacks; else its cycles are
one matrix's, times their number.

Args:
    a: real matrix (m, k), any strides, or a stack (..., m, k); None: N(0, 1) by `seed` in fp32 or `input_format`; with
        exact=False sizes alone will do.
    b: real matrix (k, n), or a stack (..., k, n), whose leading dimensions broadcast with `a`'s.
    c: (..., m, n), numbers or bit patterns of the output format; True with exact=False: any.
    device: a name, the path of a YAML file, a mapping of that shape, or a Device.
    scheme: a name, a Scheme, or "auto": the fastest with a predicted error of at most `error_target`.
    gemm: a resolved record (or the mapping of its JSON) to do again, instead of scheme and options. Its device is
        loaded by name; give `device` where that is a file or a Device of one's own. A changed device file is refused.
    progress: called with shares of the work, 0 to 1.

Raises:
    InputError: arguments that do not fit.
    UnsupportedError: what the device cannot do.
    ConfigError: a bad device file.
"""


def program(
    *,
    device: DeviceLike = DEFAULT_DEVICE,
    scheme: str | Scheme = DEFAULT_SCHEME,
    **options: Unpack[RunOptions],
) -> tuple[Device, Program]:
    """The program of one GEMM; replaced by PROGRAM_TEXT and the options."""
    for name in ("shape", "at"):
        if options.get(name) is not None:
            raise InputError(f"{name}: for bits of a part of a product; a program is of a whole one: give m, n and k")
    is_quantised = scheme != AUTO and (scheme_of(scheme) if isinstance(scheme, str) else scheme).quantizes is not None
    stored = options.get("input_format") or (None if is_quantised else "fp32")
    values = {**options, "exact": False, "timing": True, "input_format": stored}
    call = product_call(None, None, device, scheme, values)
    timed = call.resolved.timed
    if timed.program is None:  # of a library's kernel; else it would have been refused
        raise UnsupportedError(call.resolved.no_program)
    return timed.device, timed.program


PROGRAM_TEXT = """The device, and the checked program that `run` times (functional=True: executes) for fp32 operands.

Options and errors as of `run`; UnsupportedError where the device has no program for the plan. `Program.gemm` is
the record that it was made from.
"""


def matmul(
    a: AnyArray,
    b: AnyArray,
    c: AnyArray | None = None,
    *,
    device: DeviceLike = DEFAULT_DEVICE,
    scheme: str | Scheme = DEFAULT_SCHEME,
    gemm: Gemm | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Unpack[RunOptions],
) -> AnyArray:
    """The product of `a` and `b` on a simulated device, bits only: same as `run(a, b, c, timing=False, ...).c`.

    Args:
        a: (..., m, k).
        b: (..., k, n). Leading dimensions broadcast, as in numpy.matmul.
        c: as of `run`, as all further arguments; raises as `run`.

    With engine="cuda" arrays may lie on a GPU (CuPy's, or any that say so by DLPack); then CuPy's array is returned.
    A scheme that quantises, "auto", conv and values read copies of them on the host; a warning says so once.
    """
    options.setdefault("timing", False)
    if not any(map(lies_on_gpu, (a, b, c))):
        product = run(a, b, c, device=device, scheme=scheme, gemm=gemm, progress=progress, **options).c
        assert product is not None
        return product
    gpu = backend(options.get("engine"), on_gpu=True)
    values: dict[str, Any] = {**options}
    values |= {name: gpu.to_host(gpu.from_host(values[name])) for name in SMALL if lies_on_gpu(values.get(name))}
    arrays: list[Any] = [None if x is None else gpu.from_host(x) for x in (a, b, c)]
    record = gemm if gemm is None or isinstance(gemm, Gemm) else Gemm.from_dict(gemm)
    named = scheme if record is None or isinstance(scheme, Scheme) else record.scheme
    if what := work_of_host(named, options):
        warn_once(copied(what))
        arrays = [None if x is None else gpu.to_host(x) for x in arrays]
    of_call: Any = run(*arrays, device=device, scheme=scheme, gemm=gemm, progress=progress, **values).c
    on_gpu: Any = gpu.from_host(of_call)
    return on_gpu.typed  # type: ignore[no-any-return]


def _with_c(options: RunOptions, c: AnyArray | None) -> dict[str, Any]:
    """All options by name, C among them where there is one."""
    return {**options, **({} if c is None else {"c": c})}


def _result(call: ProductCall, progress: Progress | None, *, is_saved: bool = False) -> Result:
    """The result of a call: its bits, its times, and the evidence for them. is_saved: it is of a saved record."""
    request, resolved, operands, options = call.request, call.resolved, call.operands, call.options
    m, n, k = operands.sizes
    elements = followed(options.machine.values, (*operands.lead, m, n))
    product, errors = _computed(call, progress, elements)
    execution = None
    if options.machine.functional and options.machine.exact:
        values = None if elements is None else elements.result
        places = {} if elements is None or options.is_of_a_part else elements.indices
        execution = Execution(resolved.executed, values, resolved.program, places)
    times, record = call_times(call), resolved.gemm
    program = resolved.timed.program if times.cycles is not None else None
    return Result(
        device=request.device.name,
        scheme=request.scheme.name,
        options=call.shown(times.clock_mhz),
        m=m,
        n=n,
        k=k,
        seed=options.problem.seed if operands.is_drawn else None,
        c=product,
        evidence=evidence_of(record, times),
        device_sha256=request.device.sha256,
        kernel=resolved.backend.variant,
        gemm=record,
        times=times,
        refused=dict(resolved.refused),
        notices=Notices(request, record, operands.pair, dict(resolved.options), program, operands.own_formats),
        errors=errors,
        execution=execution,
        operands=None if product is None else operands.originals or operands.pair,
        call=ChangeableCall(request.device, None)
        if is_saved
        else ChangeableCall(
            request.device if call.device is None else call.device,
            partial(times_with_numbers, call),
            partial(on_matrix_unit, call),
            None if has_output(call) else partial(times_in_output, call),
            in_mapping=partial(times_in_mapping, call),
            chosen_anew=partial(times_chosen_anew, call),
            with_tile=partial(times_with_tile, call),
        ),
    )


def _computed(
    call: ProductCall, progress: Progress | None, elements: Followed | None
) -> tuple[AnyArray | None, Errors | None]:
    """The product and its errors, where bits are wanted."""
    operands, options = call.operands, call.options
    places = places_of(options, operands.sizes, call.resolved.gemm.schedule)
    if not options.machine.exact or operands.left is None or operands.right is None:
        return None, None
    arrays = Arrays(
        operands.left,
        operands.right,
        operands.lead,
        c=options.epilogue.c,
        bias=options.epilogue.bias,
        rows=options.region.rows,
        cols=options.region.cols,
        at=places,
        originals=operands.originals,
    )
    workers = worker_count(options.machine.threads)
    by_program = bool(options.machine.functional)
    return compute(call.resolved, arrays, by_program=by_program, threads=workers, progress=progress, elements=elements)


describe(run, RUN_TEXT)
describe(program, PROGRAM_TEXT)
