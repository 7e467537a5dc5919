"""Adopts a library's choice: the request for its kernel's order of summation, from the request for any.

A request is called as PyTorch calls a library. The module knows the protocol of libraries and requests; no library. It
computes no bit and no time, and nothing of it is asked once a request is resolved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from hwsim.dataflows.options import A_LAYOUT, B_LAYOUT
from hwsim.devices.query import native_format
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.convolution import conv_of
from hwsim.gemm.layouts import order_named
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Decision
from hwsim.gemm.schedule import Schedule, schedule_of
from hwsim.host.multiples import round_up
from hwsim.libraries.call import STEP, AlignedCall, LibraryCall
from hwsim.libraries.convolution_call import ConvolutionSizes
from hwsim.libraries.gemm_call import PYTORCH, GemmCall, Reductions
from hwsim.libraries.kernel_choice import ASSUMED, LibraryChoice
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.pytorch.convolutions import convolution_kernel
from hwsim.libraries.scheme_calls import SchemeCalls, calls_of
from hwsim.libraries.sliced_calls import SlicedCalls, is_of_slices
from hwsim.machines.l2_state import DEFAULT
from hwsim.operands.operand import Operand
from hwsim.request.option_records import MachineOptions
from hwsim.request.options import CallOptions
from hwsim.request.request import Request
from hwsim.resolve.library_on_device import library
from hwsim.schemes.native import NativeOptions

ROW_BYTES = 16  # of whole vectors
PLAIN = "native"  # the scheme of one product a call
SPLIT_K = "split_k"
LAYOUTS_OF = (A_LAYOUT.name, B_LAYOUT.name)  # options of a mapping that are the call's


def adopted(request: Request, options: CallOptions, pair: tuple[Operand, Operand] | None) -> Request:
    """The request with the order of summation of `options.library`, in the format in which its kernel computes.

    pair: A and B, for schemes whose plan depends on them. Raises InputError where the options say what the library
    decides, UnsupportedError where it has no such call.
    """
    name = options.library.library
    assert name is not None
    _check_options(name.id.name if isinstance(name, LibraryOnDevice) else str(name), options, request)
    chosen = library(name, device=request.device) if options.problem.conv is None else _of_convolution(request, options)
    is_plain = request.scheme.name == PLAIN or request.scheme.quantizes is not None
    layouts, fmt = options.mapping.layouts, request.format
    operand = request.problem.input_format
    if request.scheme.quantizes is None:
        operand = fmt or native_format(request.device, operand)
    calls = SchemeCalls(dict(request.scheme_options), operand, layouts)
    if not is_plain:
        calls = calls_of(request, layouts, chosen, pair)
    m, n, k = request.problem.sizes
    m, n = options.region.shape or (m, n)
    of_native = NativeOptions.of(options.of_scheme) if is_plain else NativeOptions()
    epilogue = request.schedule.epilogue
    gemm_call = GemmCall(
        m=m,
        n=n,
        k=k,
        format=calls.format,
        format_b=of_native.format_b,
        sparsity=_sparsity(request, chosen),
        output=options.epilogue.output,
        accumulate=of_native.accumulate,
        a_layout=calls.layouts[0],
        b_layout=calls.layouts[1],
        scales=_granularities(request.problem),
        batch=request.problem.matrices,
        bias=options.epilogue.bias is not None,
        has_c=options.epilogue.c is not None or calls.adds,
        is_scaled=epilogue.alpha not in (None, 1.0) or epilogue.beta not in (None, 0.0, 1.0),
        is_c_whole=epilogue.beta in (None, 1.0),
        reductions=cast("Reductions | None", options.library.reductions),
        workspace_bytes=options.library.workspace_bytes,
        lt_workspace_bytes=options.library.lt_workspace_bytes,
        caller=PYTORCH,
    )

    def ask(call: GemmCall) -> LibraryCall:
        return library_call(
            chosen,
            call,
            timed_otherwise=_timed_otherwise(options.machine),
            count=calls.count,
            is_of_a_scheme=not is_plain,
        )

    slices = _slices_of(options)
    call = ask(gemm_call) if slices is None else SlicedCalls(slices).joined(gemm_call, ask)
    mapping = {name: value for name, value in options.mapping.values.items() if name != SPLIT_K}
    if request.timing:
        mapping |= call.mapping
    else:  # layouts are the library's to know, and no program is asked for
        mapping = {name: value for name, value in mapping.items() if name not in LAYOUTS_OF}
    scheme_options = calls.options if call.accumulate is None else calls.options | {"accumulate": call.accumulate}
    return replace(
        request,
        format=calls.format if request.scheme.name == PLAIN else fmt,
        scheme_options=scheme_options,
        problem=request.problem.with_layouts(*call.layouts),
        schedule=replace(
            calls.schedule(call.choice.schedule), epilogue=replace(epilogue, product_format=call.product_format)
        ),
        scheduled=True,
        mapping=mapping,
        library=call,
        planned=calls.planned,
    )


def _slices_of(options: CallOptions) -> Schedule | None:
    """How K is cut into calls, where the options say so. Raises InputError where they do not fit."""
    schedule, count = schedule_of(options.order.schedule), options.mapping.values.get(SPLIT_K)
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InputError(
            f"split_k = {count!r} beside a library, where each slice is a call of its own; allowed: an integer of at "
            "least 1"
        )
    if count is not None and count > 1:
        schedule = replace(schedule, split_k=count)
    return None if schedule.split_k == 1 and schedule.slice_k is None else schedule


def _granularities(problem: Problem) -> tuple[str, str] | None:
    """How A and B are scaled, by the names of a call; None: there are no scales."""
    first, second = (operand.scale for operand in problem.operands)
    if first is None or second is None:
        return None
    names = [f"{scale.rows}x{scale.k}" if scale.kind == "block" else str(scale.kind) for scale in (first, second)]
    return names[0], names[1]


def _sparsity(request: Request, chosen: LibraryOnDevice) -> str | None:
    """The sparsity of A. Raises UnsupportedError where the library has no kernels for it."""
    sparsity = request.problem.sparsity
    if sparsity is not None and not chosen.rules.takes_sparse:
        raise UnsupportedError(f"library {chosen.id.name} has no kernels for sparsity {sparsity}; leave library out")
    return sparsity


def _timed_otherwise(machine: MachineOptions) -> str:
    """The options that time a call otherwise than libraries' fitted times stand for; empty where none does.

    The times that were fitted are of a series, at the clock under the board's load.
    """
    asked = {
        "l2": None if machine.l2 == DEFAULT else machine.l2,
        "clock_mhz": machine.clock_mhz,
        "power_limit_w": machine.power_limit_w,
    }
    return ", ".join(f"{name}={value}" for name, value in asked.items() if value is not None)


def _of_convolution(request: Request, options: CallOptions) -> LibraryOnDevice:
    """The library for the GEMM of a convolution, whose images are stored pixel by pixel."""
    assert options.problem.conv is not None
    form = request.format or native_format(request.device, request.problem.input_format)
    shape, output = conv_of(options.problem.conv), options.epilogue.output
    kernel = convolution_kernel(
        options.library.library,
        request.device,
        ConvolutionSizes.of(shape),
        format=str(form),
        stored=request.problem.input_format,
        output=output,
    )
    assert kernel.library is not None
    return kernel.library


def _check_options(name: str, options: CallOptions, request: Request) -> None:
    """Raise where options say what the library decides, or ask for what is no call of it."""
    scheme, is_quantized = request.scheme.name, request.scheme.quantizes is not None
    callers = (*LAYOUTS_OF, SPLIT_K) if scheme == PLAIN else LAYOUTS_OF  # split_k: slices are calls of their own
    decided = [name for name, value in options.mapping.values.items() if value is not None and name not in callers]
    is_cut = scheme == PLAIN and is_of_slices(schedule_of(options.order.schedule))
    decided += ["schedule"] if options.order.schedule is not None and not is_cut else []
    decided += ["scale_order"] if options.order.scale_order is not None else []
    if scheme == PLAIN:
        of_call = NativeOptions.names()
        decided += [name for name, value in options.of_scheme.items() if name not in of_call and value is not None]
    if decided:
        them = "it" if len(decided) == 1 else "them"
        raise InputError(f"library = {name!r} decides {', '.join(decided)}; leave {them} out")
    epilogue = options.epilogue
    around = {
        "c": epilogue.c,
        "bias": epilogue.bias,
        "alpha": epilogue.alpha,
        "beta": epilogue.beta,
        "output": epilogue.output,
    }
    added = [name for name, value in around.items() if value is not None]
    if added and scheme != PLAIN and not is_quantized:
        raise UnsupportedError(
            f"library = {name!r}: {', '.join(added)} of scheme {scheme}: which of its calls would add it is not known; "
            "leave it out, or add it to the result"
        )


def library_call(
    chosen: LibraryOnDevice,
    call: GemmCall,
    *,
    timed_otherwise: str = "",
    count: int = 1,
    is_of_a_scheme: bool = False,
) -> LibraryCall:
    """The call for one product. timed_otherwise: options with which fitted times do not stand for it. count: of
    such calls.

    Raises UnsupportedError where the library has no such call, or its choice is not known.
    """
    choice = chosen.choose(call)
    times = chosen.times(call, choice)
    is_fitted = times is not None
    times = None if timed_otherwise else times
    decisions = [*_decisions(choice), *_told(call)]
    if times is not None:
        text = "shares of what the chip could do at most"
        decisions.append(Decision("times", text, "library", times.evidence, times.why))
    elif is_fitted:
        why = f"fitted times are of a series at the clock under load, not of {timed_otherwise}: the program's stands"
        decisions.append(Decision("times", "the program's", "user", ASSUMED, why))
    elif not choice.is_estimated:
        why = "no times of such kernels were fitted for such a chip: the kernel's program stands for them"
        decisions.append(Decision("times", "the program's", "default", ASSUMED, why))
    return LibraryCall(
        id=chosen.id,
        gemm=call,
        choice=choice,
        layouts=(order_named(call.a_layout), order_named(call.b_layout)),
        times=times,
        decisions=tuple(decisions),
        aligned=None if times is None else _aligned(chosen, call),
        mapping=_mapping(choice),
        count=count,
        is_of_a_scheme=is_of_a_scheme,
    )


def _aligned(chosen: LibraryOnDevice, call: GemmCall) -> AlignedCall | None:
    """The call with n and k of whole 16 bytes, as its rows then are; None where they are, or it has no times."""
    item = format_of(call.format).bits // 8
    step = max(ROW_BYTES // item, 1)
    m, n, k = (round_up(size, step) for size in call.sizes)
    aligned = replace(call, m=m if call.a_layout == "columns" else call.m, n=n, k=k)
    if aligned == call:
        return None
    try:
        choice = chosen.choose(aligned)
    except UnsupportedError:
        return None
    times = chosen.times(aligned, choice)
    return None if times is None else AlignedCall(aligned, choice.kernel, times)


def _mapping(choice: LibraryChoice) -> dict[str, Any]:
    """What a dataflow is told of the kernel, so that its cycles are the kernel's."""
    if choice.tile is None:
        return {}
    m, n = choice.tile
    return {"tile": {"m": m, "n": n, "k": choice.tile_k or STEP}}


def _told(call: GemmCall) -> list[Decision]:
    """What the library was told beside the problem, where that was said."""
    values = {name: getattr(call, name) for name in ("reductions", "workspace_bytes", "lt_workspace_bytes")}
    return [Decision(name, str(value), "user") for name, value in values.items() if value is not None]


def _own_number(choice: LibraryChoice) -> str:
    """The library's own number of slices in words, where fewer run."""
    if choice.split_k == choice.slices:
        return ""
    return f"the library says {choice.split_k}, and rounding their length leaves the last ones empty; "


def _decisions(choice: LibraryChoice) -> list[Decision]:
    numbers = [f"{name} {number}" for name, number in choice.numbers.items()]
    decisions = [
        Decision(
            "kernel",
            choice.kernel,
            "library",
            choice.evidence,
            ", ".join([*numbers, choice.why]),
            confidence=choice.confidence,
        ),
        Decision("split_k", str(choice.slices), "library", choice.evidence, f"{_own_number(choice)}{choice.why}"),
    ]
    if not choice.known:
        instead = "tiles whose K several CTAs share" if choice.schedule.regions else "one chain in order of K"
        why = f"how this kernel adds over K is not known for these sizes; {instead} stands for it"
        decisions.append(Decision("order of summation", instead, "default", ASSUMED, why))
    return decisions
