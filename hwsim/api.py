"""The Python API: run a GEMM scheme on a simulated device.

A request is resolved into one record (hwsim.resolve). The evaluator, or the program, gives the record's bits; the
timing machine gives the program's cycles. This module only connects these parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim._version import __version__
from hwsim.analysis.errors import fma_chain
from hwsim.analysis.inputs import drawn
from hwsim.analysis.times import Times, Work, times_of
from hwsim.backend.environment import in_default_environment
from hwsim.compute.bits import Arrays, compute
from hwsim.compute.prepared import Prepared
from hwsim.devices import at_clock, load
from hwsim.devices.device import Device
from hwsim.devices.query import dot_spec, native_format
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.explicit import elements
from hwsim.formats import code_dtype, format_of
from hwsim.gemm.convolution import ConvShape, conv_of
from hwsim.gemm.plan import Mixed
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Schedule, schedule_of
from hwsim.host.memory import check_memory
from hwsim.host.threads import worker_count
from hwsim.libraries.gemm_call import PYTORCH, GemmCall
from hwsim.operands.operand import Operand, operand, selected_indices, to_common_format
from hwsim.program.ir import Program
from hwsim.request.declarations import (
    AUTO,
    DEFAULT_DEVICE,
    DEFAULT_SCHEME,
    DEFAULT_SIZE,
    GivenOptions,
    describe,
    sort_by_owner,
)
from hwsim.resolve.auto_scheme import SchemeChoice, choose
from hwsim.resolve.library_call import (
    OWN_OPTIONS,
    PLAIN,
    LibraryCall,
    at_seconds,
    checked_against,
    in_order,
    library_call,
    library_times,
    warnings_of,
)
from hwsim.resolve.library_on_device import library
from hwsim.resolve.library_scheme import SchemeCalls, calls_of, without_decided
from hwsim.resolve.planning import with_epilogue
from hwsim.resolve.resolver import NOT_ASKED, Request, Resolved, rerun, resolve
from hwsim.resolve.split_k_advice import advice
from hwsim.result import Result
from hwsim.schemes import Scheme, scheme_of

__all__ = ["device", "fma_chain", "matmul", "program", "run"]

Array = NDArray[Any]
Progress = Callable[[float], None]

#: Options beside a record: what is read, which part of the result is wanted, and how the host computes it.
BESIDE_RECORD = (
    *("bias", "input_format", "seed", "rows", "cols", "shape", "at"),
    *("exact", "timing", "functional", "threads", "launch_overhead"),
)


def device(name: str | Path | Mapping[str, Any] | Device) -> Device:
    """The device called `name`, in the YAML file `name`, or described by a mapping of that shape.

    Raises ConfigError with all problems of the file at once, UnsupportedError or InputError for an unknown name.
    """
    return load(name)


@in_default_environment
def run(
    a: Array | None = None,
    b: Array | None = None,
    c: Array | None = None,
    *,
    device: str | Path | Mapping[str, Any] | Device = DEFAULT_DEVICE,
    scheme: str | Scheme = DEFAULT_SCHEME,
    gemm: Gemm | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Result:
    """Run one GEMM; replaced by RUN_TEXT and the options of hwsim.request.declarations."""
    if gemm is not None:
        return _rerun(gemm, device, scheme, a, b, c, options, progress)
    return _result(*_asked(a, b, c, device, scheme, options, progress))


def _asked(
    a: Array | None,
    b: Array | None,
    c: Array | None,
    device: str | Path | Mapping[str, Any] | Device,
    scheme: str | Scheme,
    options: Mapping[str, Any],
    progress: Progress | None = None,
) -> tuple[Request, Resolved, _Operands, GivenOptions, SchemeChoice | None, Progress | None]:
    """What `run` was asked for, resolved: the arguments of `_result`."""
    chip, named = load(device), scheme_of(scheme) if isinstance(scheme, str) and scheme != AUTO else None
    made = named if named is not None else scheme if isinstance(scheme, Scheme) else None
    given = sort_by_owner({**options, **({} if c is None else {"c": c})}, made)
    chip = _clocked(chip, given.own["clock_mhz"])
    choice: SchemeChoice | None = None
    if made is None or given.own["error_target"] is not None:
        choosing, progress = _halves(progress, given.own["exact"])
        choice = _choice(chip, scheme, a, b, given, choosing)
        chosen = dict(choice.taken.options)
        given = replace(given, own=given.own | {"format": chosen.pop("format", None)}, scheme=chosen)
        made = scheme_of(choice.taken.scheme)
    operands = _operands(a, b, given.own, made)
    request, operands = _rounded_first(_request(chip, made, given, operands, choice), given, operands)
    pair = None if operands.left is None or operands.right is None else (operands.left, operands.right)
    return request, _resolved(request, pair), operands, given, choice, progress


@in_default_environment
def prepared(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    device: str | Path | Mapping[str, Any] | Device = DEFAULT_DEVICE,
    scheme: str | Scheme = DEFAULT_SCHEME,
    **options: Any,
) -> tuple[Result, Prepared | None]:
    """The result of `run`, and the product of further operands of the same shapes and dtypes, without asking again.

    a, b, c, device, scheme, options: as of `run`. None where a record is good for one pair of operands: where the
    scheme looks at them, or where a part of the result or the program's own bits are wanted. Raises as `run`.
    """
    asked = _asked(a, b, c, device, scheme, options)
    request, resolved, operands, given, choice, _ = asked
    result, own = _result(*asked), given.own
    is_part = any(own[name] is not None for name in ("rows", "cols", "shape", "at"))
    if choice is not None or is_part or own["functional"] or not own["exact"] or operands.left is None:
        return result, None
    if request.scheme.survey is not None or isinstance(resolved.gemm.plan, Mixed):
        return result, None
    return result, Prepared(
        resolved,
        operands.left.format,
        operands.lead,
        own["input_format"],
        own["format"],
        worker_count(own["threads"]),
    )


RUN_TEXT = """Compute D[m, n] = alpha A[m, k] B[k, n] + beta C + bias by `scheme` on `device`: bits and cycles.

a, b: real matrices, (m, k) and (k, n), any strides, or stacks of them, (..., m, k) and (..., k, n), whose leading
dimensions broadcast; without them N(0, 1) by `seed` in fp32, or rounded to `input_format` (int16 schemes: any values),
and with exact=False sizes alone will do. Arrays of the scheme's own operand formats are taken as they are (`hwsim
schemes show NAME` says which; float32, float16, ml_dtypes', float64, int16, int8); other real ones are rounded to the
first of them. Unsigned arrays are codes where `input_format` says whose, or where they are as wide as a `format` of 16
bits or fewer. c: (..., m, n), typed or codes of the output format.
conv: the time of a convolution as an implicit GEMM, instead of m, n and k: sizes by name. Needs exact=False; the bits
are hwsim.conv2d's. m, n and k of the result are those of one group's GEMM.
device: a name, the path of a YAML file, a mapping of that shape, or a Device. scheme: a name, a Scheme, or "auto": the
fastest with a predicted error of at most `error_target`; the result's `scheme` is the one selected.
gemm: a resolved record (or the mapping of its JSON) to do again, instead of scheme and options. Its device is loaded by
name; give `device` where that is a file or a Device of one's own. A device file that has changed since is refused.
progress: called with shares of the work, 0 to 1.

The result holds the resolved record (`gemm`), which fixes bits and cycles. Cycles come from the device's
program. There are none for devices without timing data, nor for plans, schedules and epilogues that the family's
dataflow does not support; `timing_note` gives the reason. Cycles of a stack are those of one program for all matrices
where the dataflow supports stacks, else those of one matrix times their number.

Raises InputError for arguments that do not fit, UnsupportedError for what the device cannot do, ConfigError for a bad
device file.
"""


def program(
    *,
    device: str | Path | Mapping[str, Any] | Device = DEFAULT_DEVICE,
    scheme: str | Scheme = DEFAULT_SCHEME,
    **options: Any,
) -> tuple[Device, Program]:
    """The program of one GEMM; replaced by PROGRAM_TEXT and the options."""
    chip, chosen = load(device), scheme_of(scheme) if isinstance(scheme, str) else scheme
    given = sort_by_owner(options, chosen)
    for name in ("shape", "at"):
        if given.own[name] is not None:
            raise InputError(f"{name}: for bits of a part of a product; a program is of a whole one: give m, n and k")
    own = given.own | {"exact": False, "timing": True, "input_format": given.own["input_format"] or "fp32"}
    operands = _operands(None, None, own, chosen)
    request = _request(chip, chosen, replace(given, own=own), operands, None)
    resolved = _resolved(request)
    if resolved.program is None:  # of a library's kernel; else it would have been refused
        resolved = _with_program(request, resolved)
    if resolved.program is None:
        raise UnsupportedError(resolved.no_program)
    return chip, resolved.program


PROGRAM_TEXT = """The device, and the checked program that `run` times (functional=True: executes) for fp32 operands.

Options and errors as of `run`; UnsupportedError where the device has no program for the plan. `Program.computes` says
whether its execution gives the bits; `Program.gemm` is the record that it was made from.
"""


def matmul(a: Array, b: Array, c: Array | None = None, **arguments: Any) -> Array:
    """The product of `a` and `b` on a simulated device, bits only: same as `run(a, b, c, timing=False, ...).c`.

    a: (..., m, k). b: (..., k, n). Leading dimensions broadcast, as in numpy.matmul. Raises as `run`.
    """
    arguments.setdefault("timing", False)
    product = run(a, b, c, **arguments).c
    assert product is not None
    return product


# --- from arguments to a request -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Operands:
    """A and B (None when only sizes were given), (m, n, k), leading dimensions, whether A and B were drawn at random,
    and the convolution whose GEMM it is.
    """

    left: Operand | None
    right: Operand | None
    sizes: tuple[int, int, int]
    lead: tuple[int, ...]
    drawn: bool
    conv: ConvShape | None = None


def _request(
    chip: Device, scheme: Scheme, given: GivenOptions, operands: _Operands, choice: SchemeChoice | None
) -> Request:
    own = given.own
    named = own["format"] or given.scheme.get("format")
    assumed = own["input_format"] or ("fp32" if own["exact"] or choice is not None or named is None else str(named))
    schedule = schedule_of(own["schedule"])
    schedule = with_epilogue(schedule, alpha=own["alpha"], beta=own["beta"], output=own["output"])
    problem = Problem(
        assumed if operands.left is None else operands.left.format,
        *operands.sizes,
        lead=operands.lead,
        has_c=own["c"] is not None,
        bias=None if own["bias"] is None else "fp32",
        image=None if operands.conv is None else operands.conv.image,
    )
    request = Request(
        chip,
        scheme,
        problem,
        own["format"],
        given.scheme,
        given.mapping,
        schedule,
        own["schedule"] is not None,
        own["exact"],
        own["timing"],
        bool(own["functional"]),
    )
    return _by_instruction(request if own["library"] is None else _by_library(request, given, operands))


def _by_instruction(request: Request) -> Request:
    """The request in the format of its schedule's instruction, where that multiplies wider operands than asked for.

    So kernels without a matrix instruction take fp16 and bf16: each product is an FP32 one.
    """
    wanted = request.schedule.instruction
    if wanted is None or request.scheme.name != DEFAULT_SCHEME:
        return request
    fmt = str(request.format or native_format(request.device, request.problem.input_format))
    spec = dot_spec(request.device, wanted)
    if fmt == spec.a or spec.a != spec.b or not format_of(spec.a).holds(format_of(fmt)):
        return request
    return replace(request, format=spec.a)


def _rounded_first(request: Request, given: GivenOptions, operands: _Operands) -> tuple[Request, _Operands]:
    """Operands in the format asked for, where the kernel multiplies wider ones and would not round them.

    Not tf32, which kernels of FP32 take as it is in memory: FP32.
    """
    asked, (left, right) = given.own["format"], (operands.left, operands.right)
    if asked in (None, request.format, "tf32") or request.scheme.name != DEFAULT_SCHEME:
        return request, operands
    if left is None or right is None or left.format == asked:
        return request, operands
    operands = replace(operands, left=left.converted(asked), right=right.converted(asked))
    return replace(request, problem=replace(request.problem, input_format=asked)), operands


def _by_library(request: Request, given: GivenOptions, operands: _Operands) -> Request:
    """The request with the library's order of summation, in the format in which its kernel computes."""
    own, mapping = given.own, dict(given.mapping)
    checked_against(own, given.scheme, mapping, request.scheme.name)
    layouts = str(mapping.get("a_layout") or "rows"), str(mapping.get("b_layout") or "rows")
    is_plain = request.scheme.name == PLAIN
    fmt = own["format"] or native_format(request.device, request.problem.input_format)
    calls = SchemeCalls(dict(request.scheme_options), str(fmt), layouts)
    if not is_plain:
        calls = calls_of(request, layouts, library(own["library"], device=request.device))
    m, n, k = operands.sizes
    m, n = own["shape"] or (m, n)
    accumulate, format_b = (given.scheme.get(x) if is_plain else None for x in ("accumulate", "format_b"))
    epilogue = request.schedule.epilogue
    call = library_call(
        own["library"],
        request.device,
        GemmCall(
            m=m,
            n=n,
            k=k,
            format=calls.format,
            format_b=None if format_b is None else str(format_b),
            output=own["output"],
            accumulate=None if accumulate is None else str(accumulate),
            a_layout=calls.layouts[0],
            b_layout=calls.layouts[1],
            batch=request.problem.matrices,
            bias=own["bias"] is not None,
            has_c=own["c"] is not None or calls.adds,
            is_scaled=epilogue.alpha not in (None, 1.0) or epilogue.beta not in (None, 0.0, 1.0),
            is_c_whole=epilogue.beta in (None, 1.0),
            caller=PYTORCH,
        ),
        is_at_own_clock=own["clock_mhz"] is None,
        count=calls.count,
    )
    if not own["timing"]:  # layouts are the library's to know, and no program is asked for
        mapping = {name: value for name, value in mapping.items() if name not in ("a_layout", "b_layout")}
    else:
        mapping |= call.mapping
    options = calls.options if call.accumulate is None else calls.options | {"accumulate": call.accumulate}
    problem = replace(request.problem, a_layout=call.layouts[0], b_layout=call.layouts[1])
    epilogue = replace(epilogue, product_format=call.product_format)
    return replace(
        request,
        format=calls.format if is_plain else request.format,
        scheme_options=options,
        problem=problem,
        schedule=replace(calls.schedule(call.choice.schedule), epilogue=epilogue),
        scheduled=True,
        mapping=mapping,
        library=call,
    )


def _places(own: Mapping[str, Any], sizes: tuple[int, int, int], schedule: Schedule) -> tuple[Array, Array] | None:
    """The rows and columns of the whole product that A's rows and B's columns are; None: all of it.

    Raises InputError where shape, at and the matrices do not fit together, or the schedule is of another product.
    """
    shape, at = own["shape"], own["at"]
    if at is not None and shape is None:
        raise InputError("at is for shape: (m, n) of the whole product; give both or neither")
    if at is None and shape is not None and tuple(shape) != sizes[:2]:
        raise InputError(f"shape = {shape}, but the matrices give {sizes[:2]}; say at=(rows, columns), or leave it out")
    whole = sizes[:2] if shape is None else (int(shape[0]), int(shape[1]))
    if schedule.regions and schedule.shape not in (None, whole):
        raise InputError(
            f"the schedule's regions are of a product of {schedule.shape}, this one is of {whole}; for a part of it "
            "give shape=(m, n) and at=(rows, columns)"
        )
    if at is None:
        return None
    if not own["exact"]:
        raise InputError("at is for bits, and exact is false; for cycles give m, n and k of the whole product")
    found = []
    for name, index, size, extent in zip(("rows", "columns"), at, whole, sizes, strict=False):
        places = np.arange(size)[selected_indices(f"at: {name}", index, size)]
        if len(places) != extent:
            raise InputError(f"at: {len(places)} {name}, but the matrices have {extent}")
        found.append(places)
    return found[0], found[1]


def _operands(a: Array | None, b: Array | None, own: Mapping[str, Any], scheme: Scheme) -> _Operands:
    """A and B as `Operand`s, and the problem sizes. Raises InputError where arrays and sizes disagree."""
    exact, input_format = own["exact"], own["input_format"]
    if input_format is not None:
        format_of(input_format)
    if (a is None) != (b is None):
        raise InputError("got one of A and B; give both, or neither for random ones")
    if own["conv"] is not None:
        return _of_convolution(own["conv"], a, own)
    left = right = None
    lead: tuple[int, ...] = ()
    if a is not None and b is not None:
        left, right = (operand(x, y, input_format=input_format, format=own["format"]) for x, y in (("A", a), ("B", b)))
        left, right = to_common_format(left, right)
        if left.shape[1] != right.shape[0]:
            raise InputError(
                f"A is {left.shape[0]} x {left.shape[1]} and B {right.shape[0]} x {right.shape[1]}: "
                "A's columns must equal B's rows"
            )
        sizes = {"m": left.shape[0], "n": right.shape[1], "k": left.shape[1]}
        for name, size in sizes.items():
            if own[name] is not None and own[name] != size:
                raise InputError(f"{name} = {own[name]}, but the matrices give {name} = {size}; leave it out")
        if min(sizes.values()) < 1:
            empty = min(sizes, key=lambda name: sizes[name])
            raise InputError(f"{empty} = 0; allowed: an integer of at least 1")
        lead = _common(left, right)
    else:
        sizes = {name: DEFAULT_SIZE if own[name] is None else own[name] for name in ("m", "n", "k")}
    is_drawn = left is None and exact
    if exact:
        _check_memory(sizes, math.prod(lead), own, is_drawn)
    if is_drawn:
        pair = drawn(sizes["m"], sizes["n"], sizes["k"], own["seed"], scheme.input_formats[0])
        left, right = (operand("A", x) for x in pair)
        if input_format is not None:
            left, right = left.converted(input_format), right.converted(input_format)
    return _Operands(left, right, (sizes["m"], sizes["n"], sizes["k"]), lead, is_drawn)


def _check_memory(sizes: Mapping[str, int], matrices: int, own: Mapping[str, Any], is_drawn: bool) -> None:
    """Raise InputError where the operands to be drawn and the result do not fit in this machine's memory.

    The result counts in its own format where that is said, else as FP32. What is beside it: hwsim.compute.bits.
    """
    m, n, k = (int(sizes[name]) for name in "mnk")
    needed = 4 * (m * k + k * n) if is_drawn else 0
    if own["rows"] is None and own["cols"] is None:
        needed += m * n * matrices * code_dtype(format_of(own["output"] or "fp32")).itemsize
    check_memory(
        needed,
        f"{'A, B and C' if is_drawn else 'C'} of m, n, k = {m}, {n}, {k}{f' times {matrices}' * (matrices > 1)}",
        "compute a part of the result (rows=, cols=), or cycles alone (exact=False)",
    )


def _of_convolution(sizes: Mapping[str, Any], a: Array | None, own: Mapping[str, Any]) -> _Operands:
    """The GEMM of a convolution, without operands: one for all groups."""
    if a is not None or own["exact"]:
        raise InputError("conv: for cycles alone: leave out A and B and give exact=False; bits are hwsim.conv2d's")
    others = [name for name in ("m", "n", "k", "c", "shape", "library") if own[name] is not None]
    if others:
        raise InputError(f"{', '.join(others)}: not beside conv")
    shape = conv_of(sizes)
    lead = (shape.groups,) if shape.groups > 1 else ()
    return _Operands(None, None, shape.gemm, lead, drawn=False, conv=shape)


def _common(a: Operand, b: Operand) -> tuple[int, ...]:
    """The broadcast leading dimensions of A and B. Raises InputError where they do not broadcast."""
    try:
        lead: tuple[int, ...] = np.broadcast_shapes(a.lead, b.lead)
    except ValueError:
        raise InputError(f"A's leading dimensions {a.lead} and B's {b.lead} do not fit together") from None
    if 0 in lead:
        raise InputError(f"the stack of matrices is empty: its shape is {lead}")
    return lead


def _clocked(chip: Device, clock_mhz: float | None) -> Device:
    """The device with its core clock set to `clock_mhz` (None: unchanged)."""
    return chip if clock_mhz is None else at_clock(chip, clock_mhz)


def _choice(
    chip: Device, scheme: str | Scheme, a: Array | None, b: Array | None, given: GivenOptions, progress: Progress | None
) -> SchemeChoice:
    """The scheme that scheme="auto" selects."""
    own = given.own
    if scheme != AUTO:
        raise InputError("error_target is for scheme='auto'; leave it out, or the scheme")
    if own["conv"] is not None:
        raise InputError("scheme='auto' chooses for a matrix product; name a scheme beside conv")
    if own["error_target"] is None:
        raise InputError("scheme='auto' needs error_target, as 1e-6: relative to the product, Frobenius norm")
    named = {"format": own["format"], **given.scheme}
    said = [name for name, value in named.items() if value is not None]
    if said:
        raise InputError(f"scheme='auto' chooses a scheme with its options; leave out {', '.join(said)}")
    found = _operands(a, b, own, scheme_of(DEFAULT_SCHEME))
    pair = None if found.left is None or found.right is None else (found.left, found.right)
    target, wanted = own["error_target"], own["input_format"] or "fp32"
    return choose(chip, found.sizes, target, pair, input_format=wanted, progress=progress)


def _resolved(request: Request, pair: tuple[Operand, Operand] | None = None) -> Resolved:
    """The resolved request. Of a library's kernel bits and cycles may need records of their own: see _with_program."""
    try:
        return resolve(request, pair)
    except (UnsupportedError, InputError) as error:
        if request.library is None:
            raise
        reason = str(error)
    return replace(resolve(replace(request, exact=True, timing=False, mapping={}), pair), no_program=reason)


def _with_program(request: Request, resolved: Resolved) -> Resolved:
    """The record of which the cycles are: of a library's kernel whose order of summation no program carries, the same
    kernel with each slice of K in order.
    """
    call = request.library
    if resolved.program is not None or call is None or not call.mapping:
        return resolved
    schedule = in_order(call.choice, request.problem.k)
    own = replace(request.schedule.epilogue, product_format=None)
    alone = replace(request, schedule=replace(schedule, epilogue=own), exact=False, timing=True, functional=False)
    for mapping in (request.mapping, {name: x for name, x in request.mapping.items() if name not in call.mapping}):
        try:
            return resolve(replace(alone, mapping=mapping))
        except (UnsupportedError, InputError) as error:
            resolved = replace(resolved, no_program=str(error))
    return resolved


def _halves(progress: Progress | None, exact: bool) -> tuple[Progress | None, Progress | None]:
    """Progress callbacks for selecting a scheme and for the product after it (without a product, selection is all)."""
    if progress is None or not exact:
        return progress, None
    return lambda share: progress(share / 2), lambda share: progress((1 + share) / 2)


# --- from a record to a result ---------------------------------------------------------------------------------------


def _rerun(
    gemm: Gemm | Mapping[str, Any],
    device: str | Path | Mapping[str, Any] | Device,
    named: str | Scheme,
    a: Array | None,
    b: Array | None,
    c: Array | None,
    options: Mapping[str, Any],
    progress: Progress | None,
) -> Result:
    """Run a saved record again on the device that it names. device, named: as given to `run`."""
    record = gemm if isinstance(gemm, Gemm) else Gemm.from_dict(gemm)
    for name in options:
        if name not in BESIDE_RECORD:
            allowed = ", ".join(BESIDE_RECORD)
            raise InputError(f"{name}: the record says it; beside gemm= there may be {allowed}, a, b and c")
    name = named if isinstance(named, str) else named.name
    if name not in (DEFAULT_SCHEME, record.scheme):
        raise InputError(f"scheme {name}: the record is of {record.scheme}; leave scheme out beside gemm=")
    scheme = scheme_of(record.scheme) if isinstance(named, str) else named
    chip = load(record.device.name if device == DEFAULT_DEVICE else device)
    if chip.name != record.device.name:
        raise InputError(f"device {chip.name}: the record is of {record.device.name}; leave device out beside gemm=")
    if chip.sha256 != record.device.sha256:
        raise InputError(
            f"the record is of another {chip.name}: its device file has SHA-256 {record.device.sha256[:12]}..., this "
            f"one {chip.sha256[:12]}...; run the request anew"
        )
    chip, problem = _clocked(chip, record.device.clock_mhz), record.problem
    if min(problem.sizes) < 1:
        raise InputError(f"gemm record: m, n, k = {problem.sizes}; allowed: integers of at least 1")
    given = sort_by_owner({**options, **({} if c is None else {"c": c})}, scheme)
    if problem.image is not None and given.own["exact"]:
        raise InputError("the record is of a convolution: its cycles alone (exact=False); bits are hwsim.conv2d's")
    sizes = {} if a is not None else dict(zip("mnk", problem.sizes, strict=True))
    own = given.own | sizes | {"clock_mhz": record.device.clock_mhz}
    if a is None:
        own["input_format"] = problem.input_format
    operands = _operands(a, b, own, scheme)
    if a is None and not own["exact"]:
        operands = replace(operands, lead=problem.lead)
    if operands.left is not None and operands.left.format != problem.input_format:
        raise InputError(
            f"A and B are {operands.left.format}: the record is of {problem.input_format}; give arrays of that, or say "
            "input_format where they are codes"
        )
    if (operands.sizes, operands.lead) != (problem.sizes, problem.lead):
        raise InputError(f"the record is for m, n, k = {problem.sizes} and a stack of {problem.lead or 'one'}")
    for name, has in (("c", problem.has_c), ("bias", problem.bias is not None)):
        if has != (own[name] is not None):
            raise InputError(f"the record {'has' if has else 'has no'} {name}; give {'it' if has else 'none'}")
    given = replace(given, own=own)
    found = _as_library_ran(record, chip, given, operands)
    if found is None and record.library is not None:  # the program alone tells the time
        record = replace(record, decisions=tuple(one for one in record.decisions if one.name != "times"))
    request = _request(chip, scheme, given, operands, None)
    request, resolved, operands = found or (request, rerun(record, chip, scheme, own["exact"]), operands)
    return _result(request, resolved, operands, given, None, progress)


def _as_library_ran(
    record: Gemm, chip: Device, given: GivenOptions, operands: _Operands
) -> tuple[Request, Resolved, _Operands] | None:
    """The library call that a record is of, resolved anew; None where it is of none, or the library's choice for it is
    another one now.
    """
    if record.library is None:
        return None
    epilogue, layouts = record.schedule.epilogue, record.problem
    said: dict[str, Any] = {"library": record.library.name}
    formats: list[str | None] = [None]
    if record.scheme == PLAIN:
        said |= {"alpha": epilogue.alpha, "beta": epilogue.beta, "output": record.output}
        formats = list(dict.fromkeys((dot_spec(chip, record.unit).a, record.problem.input_format)))
    for fmt in formats:
        asked = replace(
            given,
            own=given.own | said | {"format": fmt},
            scheme=_said(record),
            mapping={"a_layout": layouts.a_layout, "b_layout": layouts.b_layout},
        )
        try:
            request = _request(chip, scheme_of(record.scheme), asked, operands, None)
            request, own = _rounded_first(request, asked, operands)
            resolved = _resolved(request)
        except (UnsupportedError, InputError):
            continue
        if replace(resolved.gemm, mapping=None) == replace(record, mapping=None):
            return request, resolved, own
    return None


def _said(record: Gemm) -> dict[str, Any]:
    """The scheme's options that a request for a record of a library call gave."""
    options = {one.name: one.value for one in record.scheme_options}
    if record.scheme != PLAIN:
        return without_decided(options)
    return {name: value for name, value in options.items() if name in OWN_OPTIONS}


def _result(
    request: Request,
    resolved: Resolved,
    operands: _Operands,
    given: GivenOptions,
    choice: SchemeChoice | None,
    progress: Progress | None,
) -> Result:
    own, record, chip = given.own, resolved.gemm, request.device
    left, right = operands.left, operands.right
    product = errors = None
    by_program = bool(own["functional"]) and own["exact"]
    places = _places(own, operands.sizes, record.schedule)
    if own["exact"]:
        assert left is not None and right is not None
        arrays = Arrays(left, right, operands.lead, own["c"], own["bias"], own["rows"], own["cols"], places)
        workers = worker_count(own["threads"])
        product, errors = compute(resolved, arrays, by_program=by_program, threads=workers, progress=progress)
    times = _times(request, resolved, own)
    how = "of one program for all" if resolved.has_stack_program else "of one matrix, times their number"
    more = {
        "clock_mhz": own["clock_mhz"] if times.clock_mhz is None else times.clock_mhz,
        "launch_overhead": own["launch_overhead"] or None,
        "choice": None if choice is None else choice.to_dict(),
    }
    options = {**resolved.options, "input_format": record.single.input_format, **resolved.facts}
    options |= {"batch": list(operands.lead), "batch_cycles": how} if operands.lead else {}
    options |= {name: value for name, value in more.items() if value is not None}
    options |= {} if own["conv"] is None else {"conv": dict(own["conv"])}
    inspected = None if left is None or right is None else (left, right)
    return Result(
        device=chip.name,
        scheme=request.scheme.name,
        options=options,
        m=operands.sizes[0],
        n=operands.sizes[1],
        k=operands.sizes[2],
        seed=own["seed"] if operands.drawn else None,
        c=product,
        by_program=by_program,
        evidence=_evidence(record, times),
        device_sha256=chip.sha256,
        kernel=resolved.backend.variant,
        hwsim_version=__version__,
        gemm=record,
        times=times,
        refused=dict(resolved.refused),
        notices=_Notices(request, record, inspected, dict(resolved.options), times.cycles is not None),
        errors=errors,
    )


def _times(request: Request, resolved: Resolved, own: Mapping[str, Any]) -> Times:
    if not own["timing"]:
        return Times(NOT_ASKED)
    if own["at"] is not None:
        return Times("cycles are of whole products, and A and B are parts of one (at=)")
    resolved = _with_program(request, resolved)
    times = Times(resolved.no_program) if resolved.program is None else _program_times(resolved, own)
    call = request.library
    if call is None or call.times is None:
        return times
    if request.scheme.name == PLAIN:
        return library_times(call, resolved, times, _estimate_us(call, resolved))
    product, of_program = _product_seconds(request, call)
    if times.seconds is None or product is None:
        return times
    operations = 2 * request.problem.matrices * math.prod(request.problem.sizes)
    return at_seconds(times, times.seconds + call.count * (product - (of_program or 0.0)), operations)


def _product_seconds(request: Request, call: LibraryCall) -> tuple[float | None, float | None]:
    """Seconds of one product of a scheme as the library runs it, and by its program alone."""
    problem, native = request.problem, scheme_of(PLAIN)
    own = dict(zip("mnk", problem.sizes, strict=True)) | {"format": call.format, "library": call.id.name}
    given = sort_by_owner({**own, "exact": False, "a_layout": call.layouts[0], "b_layout": call.layouts[1]}, native)
    operands = _Operands(None, None, problem.sizes, problem.lead, drawn=False)
    alone = _request(request.device, native, given, operands, None)
    resolved = _with_program(alone, _resolved(alone))
    times = Times(resolved.no_program) if resolved.program is None else _program_times(resolved, given.own)
    assert alone.library is not None
    found = library_times(alone.library, resolved, times, _estimate_us(alone.library, resolved))
    return found.seconds, times.seconds


def _estimate_us(call: LibraryCall, resolved: Resolved) -> float:
    """Microseconds that the products of a call take by the kernel and slices that the device's dataflow would choose; 0
    where it has none.
    """
    problem = resolved.gemm.problem
    options: dict[str, Any] = dict(zip("mnk", problem.sizes, strict=True))
    options |= {"a_layout": problem.a_layout, "b_layout": problem.b_layout, "split_k": "auto"}
    try:
        found = run(device=resolved.device, exact=False, format=call.format, output=resolved.gemm.output, **options)
    except (InputError, UnsupportedError):
        return 0.0
    return 0.0 if found.seconds is None else found.seconds * 1e6 * problem.matrices


def _program_times(resolved: Resolved, own: Mapping[str, Any]) -> Times:
    assert resolved.program is not None
    record = resolved.gemm
    matrices = record.problem.matrices
    products = resolved.facts.get("products", record.single.products)
    if not isinstance(record.plan, Mixed):
        products = record.plan.products
    work = Work(
        record.problem.sizes,
        products,
        str(resolved.facts["unit"]),
        matrices,
        1 if resolved.has_stack_program else matrices,
    )
    return times_of(resolved.program, resolved.device, work, launch_overhead=own["launch_overhead"])


def _evidence(record: Gemm, times: Times) -> dict[str, str]:
    """Evidence levels of numerics, timing and schedule, from the record's decisions."""
    found = {}
    for name, decision in (("numerics", "instruction"), ("schedule", "order of summation"), ("timing", "times")):
        made = record.decided(decision)
        if made is not None and made.evidence and (name != "timing" or times.seconds is not None):
            found[name] = made.evidence
    return found


@dataclass(frozen=True, slots=True)
class _Notices:
    """The warnings about operands and mapping, collected when called."""

    request: Request
    record: Gemm
    operands: tuple[Operand, Operand] | None
    options: Mapping[str, Any]
    timed: bool

    def __call__(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self.operands is not None:
            a, b = self.operands
            seen = self.request.scheme.inspect(a.values(), b.values(), self.options)
            found += [{"code": x.code, "count": x.count, "message": x.message} for x in seen]
        if self.record.library is not None and self.record.schedule.sum is not None:
            found += _left_out(self.record)
        if self.request.library is not None:
            found += warnings_of(self.request.library)
        if self.timed and self.record.mapping is not None:
            found += advice(self.record, self.request.device, self.request.mapping)
        return found


def _left_out(record: Gemm) -> list[dict[str, Any]]:
    """A warning where the library's kernel does not take all of K."""
    assert record.schedule.sum is not None
    lost = record.problem.k - elements(record.schedule.sum)
    text = f"the library's slices leave out the last {lost} of K: its product is wrong by them, and so is this one"
    return [{"code": "k_left_out", "count": lost, "message": text}] if lost > 0 else []


describe(run, RUN_TEXT)
describe(program, PROGRAM_TEXT)
