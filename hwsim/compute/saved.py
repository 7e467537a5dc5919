"""The call of a saved record: the same GEMM again, on the device that it names.

It knows records and calls; it makes no choice that the record has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from numpy.typing import NDArray

from hwsim.compute.call import DeviceLike, ProductCall, clocked, resolved_call
from hwsim.devices import at_power, load
from hwsim.devices.device import Device
from hwsim.devices.query import dot_spec
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.record import Gemm
from hwsim.libraries.adopt import PLAIN
from hwsim.libraries.scheme_calls import without_decided
from hwsim.operands.operand import common_format, formats_in_memory
from hwsim.request.declarations import DEFAULT_DEVICE, DEFAULT_SCHEME
from hwsim.request.operands import ProductOperands, operands_of
from hwsim.request.option_records import MachineOptions, RegionOptions
from hwsim.request.options import CallOptions, MappingOptions, sort_by_owner
from hwsim.request.request import request_of
from hwsim.resolve import library_on_device
from hwsim.resolve.resolver import rerun
from hwsim.schemes import Scheme, is_scheme_file, scheme_of, schemes
from hwsim.schemes.native import NativeOptions

AnyArray = NDArray[Any]
#: Options beside a record: what is read, which part of the result is wanted, and how the host computes it.
BESIDE_RECORD = (
    *(
        "bias",
        "scale_a",
        "scale_b",
        "tensor_scales",
        "input_format",
        "seed",
        "operand_distribution",
        *(field.name for field in fields(RegionOptions)),
    ),
    *(field.name for field in fields(MachineOptions) if field.name != "clock_mhz"),
)


def saved_call(
    gemm: Gemm | Mapping[str, Any],
    a: AnyArray | None,
    b: AnyArray | None,
    device: DeviceLike,
    named: str | Scheme,
    values: Mapping[str, Any],
) -> ProductCall:
    """The call of a saved record. device, named: as given to `run`. values: options beside the record, C among them.

    Raises InputError for options and operands that are not the record's, UnsupportedError for a record that hwsim does
    not compute.
    """
    record = gemm if isinstance(gemm, Gemm) else Gemm.from_dict(gemm)
    for name in values:
        if name not in (*BESIDE_RECORD, "c"):
            allowed = ", ".join(BESIDE_RECORD)
            raise InputError(f"{name}: the record says it; beside gemm= there may be {allowed}, a, b and c")
    scheme, chip = _scheme(record, named), _chip(record, device)
    problem = record.problem
    if min(problem.sizes) < 1:
        raise InputError(f"gemm record: m, n, k = {problem.sizes}; allowed: integers of at least 1")
    options = sort_by_owner(values, scheme)
    if options.machine.power_limit_w is not None:
        chip = at_power(chip, options.machine.power_limit_w)
    if problem.image is not None and options.machine.exact:
        raise InputError("the record is of a convolution: its cycles alone (exact=False); bits are hwsim.conv2d's")
    options = _with_record(options, record, scheme, has_arrays=a is not None)
    operands = operands_of(a, b, options, scheme)
    if a is None and not options.machine.exact:
        operands = replace(operands, lead=problem.lead)
    _check(record, options, operands, scheme)
    again = None if record.library is None else _as_library_ran(record, chip, options, operands)
    if again is not None:
        return again
    if record.library is not None:  # the program alone tells the time
        record = replace(record, decisions=tuple(decision for decision in record.decisions if decision.name != "times"))
    request = request_of(chip, scheme, options, operands)
    return ProductCall(request, rerun(record, chip, scheme, options.machine.exact, request.backend), operands, options)


def _scheme(record: Gemm, named: str | Scheme) -> Scheme:
    if isinstance(named, str) and is_scheme_file(named):
        named = scheme_of(named)
    name = named if isinstance(named, str) else named.name
    if name not in (DEFAULT_SCHEME, record.scheme):
        raise InputError(f"scheme {name}: the record is of {record.scheme}; leave scheme out beside gemm=")
    if not isinstance(named, str):
        return named.bare
    if record.scheme not in schemes():
        raise InputError(
            f"the record is of scheme {record.scheme}, which is not known here; beside gemm= give the scheme itself: "
            "--scheme FILE.py:NAME, or scheme=, with what the record was made with"
        )
    return scheme_of(record.scheme)


def _chip(record: Gemm, device: DeviceLike) -> Device:
    try:
        chip = load(record.device.name if device == DEFAULT_DEVICE else device)
    except UnsupportedError as error:
        if device != DEFAULT_DEVICE:
            raise
        raise UnsupportedError(
            f"the record is of device {record.device.name}, which no name finds here; give its file beside the record: "
            "--device FILE.yaml (device= in Python)"
        ) from error
    if chip.name != record.device.name:
        raise InputError(f"device {chip.name}: the record is of {record.device.name}; leave device out beside gemm=")
    if chip.sha256 != record.device.sha256:
        raise InputError(
            f"the record is of another {chip.name}: its device file has SHA-256 {record.device.sha256[:12]}..., this "
            f"one {chip.sha256[:12]}...; run the request anew"
        )
    return clocked(chip, record.device.clock_mhz)


def _with_record(options: CallOptions, record: Gemm, scheme: Scheme, *, has_arrays: bool) -> CallOptions:
    """The options with the clock, and without arrays the sizes, of a record, and its format where none is given."""
    problem, machine = options.problem, replace(options.machine, clock_mhz=record.device.clock_mhz)
    if not has_arrays:
        m, n, k = record.problem.sizes
        batch = record.problem.matrices if len(record.problem.lead) == 1 and record.problem.image is None else None
        problem = replace(problem, m=m, n=n, k=k, batch=batch)
        if problem.input_format is None and not (scheme.quantizes and machine.exact):  # which rounds what is drawn
            problem = replace(problem, input_format=record.problem.input_format)
    return replace(options, problem=problem, machine=machine)


def _check(record: Gemm, options: CallOptions, operands: ProductOperands, scheme: Scheme) -> None:
    """Raise InputError for operands that are not the record's. scheme: rounds what is drawn, where it quantises."""
    problem, epilogue, asked = record.problem, options.epilogue, options.problem.input_format
    stored = None if operands.left is None else operands.left.format
    if stored is None and asked is not None and not scheme.quantizes:
        stored = common_format(*formats_in_memory(asked))
    if stored is not None and stored != problem.input_format:
        raise InputError(
            f"A and B are {stored}: the record is of {problem.input_format}; give arrays of that, or say "
            "input_format where they are codes"
        )
    if (operands.sizes, operands.lead) != (problem.sizes, problem.lead):
        raise InputError(f"the record is for m, n, k = {problem.sizes} and a stack of {problem.lead or 'one'}")
    added = (("c", problem.has_c, epilogue.c), ("bias", problem.bias is not None, epilogue.bias))
    for name, has, value in added:
        if has != (value is not None):
            raise InputError(f"the record {'has' if has else 'has no'} {name}; give {'it' if has else 'none'}")


def _as_library_ran(record: Gemm, chip: Device, options: CallOptions, operands: ProductOperands) -> ProductCall | None:
    """The library call that a record is of, resolved anew; None where the library's choice for it is another one
    now.
    """
    assert record.library is not None
    try:
        library = library_on_device.library(record.library.name, device=chip, version=record.library.version)
    except UnsupportedError:
        return None
    epilogue, problem = record.schedule.epilogue, record.problem
    options_of_record = replace(
        options,
        library=replace(options.library, library=library),
        of_scheme=_of_scheme(record),
        mapping=MappingOptions({"a_layout": problem.a_layout, "b_layout": problem.b_layout}),
    )
    formats: list[str | None] = [None]
    if record.scheme == PLAIN:
        of_record = replace(options_of_record.epilogue, alpha=epilogue.alpha, beta=epilogue.beta, output=record.output)
        options_of_record = replace(options_of_record, epilogue=of_record)
        formats = list(dict.fromkeys((dot_spec(chip, record.unit).a, problem.input_format)))
    for fmt in formats:
        of_format = replace(options_of_record, scheme=replace(options_of_record.scheme, format=fmt))
        try:
            call = resolved_call(chip, scheme_of(record.scheme), of_format, operands)
        except (UnsupportedError, InputError):
            continue
        if replace(call.resolved.gemm, mapping=None) == replace(record, mapping=None):
            return replace(call, options=options)
    return None


def _of_scheme(record: Gemm) -> dict[str, Any]:
    """The scheme's options that a request for a record of a library call gave."""
    options = {setting.name: setting.value for setting in record.scheme_options}
    if record.scheme != PLAIN:
        return without_decided(options)
    return {name: value for name, value in options.items() if name in NativeOptions.names()}
