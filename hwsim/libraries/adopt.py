"""Adopts a library's choice: the request for its kernel's order of summation, from the request for any.

A request is called as PyTorch calls cuBLAS (`hwsim.libraries.cublas.pytorch`). The module knows libraries and
requests; it computes no bit and no time, and nothing of it is asked once a request is resolved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hwsim.devices.device import Device
from hwsim.devices.query import native_format
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.layouts import Order, order_named
from hwsim.gemm.record import Decision
from hwsim.libraries.call import NO_EPILOGUE, EpilogueUse, LibraryCall
from hwsim.libraries.cublas.calls import Unasked, operand_of, result_format
from hwsim.libraries.cublas.choice import LibraryChoice
from hwsim.libraries.cublas.choose import LibraryOnDevice
from hwsim.libraries.cublas.fitted_times import STEP, forest_of, key_of, row_of
from hwsim.libraries.cublas.lookup import ANSWERED
from hwsim.libraries.cublas.orders import is_rounded_before_bias
from hwsim.libraries.cublas.pytorch import NARROW, PytorchCall, pytorch_call
from hwsim.libraries.cublas.versions import calls_taken, chips_text, rules_text
from hwsim.libraries.scheme_calls import SchemeCalls, calls_of
from hwsim.operands.operand import Operand
from hwsim.request.options import CallOptions
from hwsim.request.request import Request
from hwsim.resolve.library_on_device import library
from hwsim.schemes.native import NativeOptions

PLAIN = "native"  # the scheme of one product a call
LAYOUTS_OF = ("a_layout", "b_layout")  # options of a mapping that are the call's


def adopted(request: Request, options: CallOptions, pair: tuple[Operand, Operand] | None) -> Request:
    """The request with the order of summation of `options.library`, in the format in which its kernel computes.

    pair: A and B, for schemes whose plan depends on them. Raises InputError where the options say what the library
    decides, UnsupportedError where it has no such call.
    """
    name = str(options.library.library)
    _check_options(name, options, request.scheme.name)
    is_plain = request.scheme.name == PLAIN
    layouts, fmt = options.mapping.layouts, request.format
    calls = SchemeCalls(
        dict(request.scheme_options), fmt or native_format(request.device, request.problem.input_format), layouts
    )
    if not is_plain:
        calls = calls_of(request, layouts, name, pair)
    m, n, k = request.problem.sizes
    m, n = options.region.shape or (m, n)
    of_native = NativeOptions.of(options.of_scheme) if is_plain else NativeOptions()
    epilogue = request.schedule.epilogue
    call = library_call(
        name,
        request.device,
        (m, n, k),
        format=calls.format,
        output=options.epilogue.output,
        accumulate=of_native.accumulate,
        layouts=calls.layouts,
        batch=request.problem.matrices,
        epilogue=EpilogueUse(
            options.epilogue.bias is not None,
            options.epilogue.c is not None or calls.adds,
            epilogue.alpha not in (None, 1.0) or epilogue.beta not in (None, 0.0, 1.0),
            epilogue.beta in (None, 1.0),
        ),
        is_at_own_clock=options.machine.clock_mhz is None,
        count=calls.count,
        format_b=of_native.format_b,
        is_of_a_scheme=not is_plain,
    )
    mapping = dict(options.mapping.values)
    if request.timing:
        mapping |= call.mapping
    else:  # layouts are the library's to know, and no program is asked for
        mapping = {name: value for name, value in mapping.items() if name not in LAYOUTS_OF}
    scheme_options = calls.options if call.accumulate is None else calls.options | {"accumulate": call.accumulate}
    return replace(
        request,
        format=calls.format if is_plain else fmt,
        scheme_options=scheme_options,
        problem=replace(request.problem, a_layout=call.layouts[0], b_layout=call.layouts[1]),
        schedule=replace(
            calls.schedule(call.choice.schedule), epilogue=replace(epilogue, product_format=call.product_format)
        ),
        scheduled=True,
        mapping=mapping,
        library=call,
        planned=calls.planned,
    )


def _check_options(name: str, options: CallOptions, scheme: str) -> None:
    """Raise where options say what the library decides, or ask for what is no call of it."""
    decided = [one for one, value in options.mapping.values.items() if value is not None and one not in LAYOUTS_OF]
    decided += ["schedule"] if options.order.schedule is not None else []
    if scheme == PLAIN:
        of_call = NativeOptions.names()
        decided += [one for one, value in options.of_scheme.items() if one not in of_call and value is not None]
    if options.machine.launch_overhead:
        raise InputError("launch_overhead: a library's seconds are what its kernels take beyond a launch; leave it out")
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
    added = [one for one, value in around.items() if value is not None]
    if added and scheme != PLAIN:
        raise UnsupportedError(
            f"library = {name!r}: {', '.join(added)} of scheme {scheme}: which of its calls would add it is not known; "
            "leave it out, or add it to the result"
        )


def library_call(
    name: str,
    chip: Device,
    sizes: tuple[int, int, int],
    *,
    format: str,
    output: str | None,
    accumulate: str | None,
    layouts: tuple[str, str],
    batch: int,
    epilogue: EpilogueUse,
    is_at_own_clock: bool = True,
    count: int = 1,
    format_b: str | None = None,
    is_of_a_scheme: bool = False,
) -> LibraryCall:
    """The call for a product of these sizes. is_at_own_clock: else there are no fitted times. count: of such calls.
    format_b: of B where it is not A's.

    Raises UnsupportedError where the library has no such call, or its choice is not known.
    """
    m, n, k = sizes
    wide, operand = output or result_format(format), operand_of(calls_taken(), format, format_b)
    asked, call = as_pytorch_asks(name, chip, (n, k), format=operand, output=wide, epilogue=epilogue)
    choice = asked.choose(
        m=m, n=n, k=k, format=format, output=wide, accumulate=accumulate, a_layout=layouts[0], b_layout=layouts[1],
        batch=batch, bias=epilogue.has_bias, reductions=call.told.reductions, format_b=format_b,
    )  # fmt: skip
    orders: tuple[Order, Order] = (order_named(layouts[0]), order_named(layouts[1]))
    product = product_format(choice, wide, epilogue, call)
    guessed = choice.unasked
    if not choice.is_estimated:
        guessed = guessed._replace(parts=guessed.parts + _beside(epilogue, wide, format in asked.version.same_with_c))
    evidence = "assumption" if any(guessed) else choice.evidence
    is_timed = is_at_own_clock and not choice.is_estimated  # times are of chips that were asked
    row = row_of(asked.version.times, asked.device, key_of(choice, operand)) if is_timed else None
    asked_on = chips_text(asked.version.devices)
    decisions = _decisions(choice, evidence, guessed, asked_on)
    if row is not None:
        why = f"fitted to {row.gemms} recorded GEMMs of such kernels, mean error {100 * row.mean_error:.0f} %"
        is_fitted = asked.version.is_asked and format_b in (None, format)  # to products of one format
        carried = "fitted" if is_fitted else "assumption"
        decisions.append(Decision("times", "the program's, and what else its kernels take", "library", carried, why))
    why = ""
    if choice.known and not choice.seen:
        why = f"{asked.id.name} {asked.id.version} on {chip.name} by the rules of {rules_text()}"
        why += f"; published is {asked.generation.published}" if asked.generation.published else ""
    return LibraryCall(
        id=asked.id,
        choice=choice,
        layouts=orders,
        format=operand,
        product_format=product,
        evidence="assumption" if any(guessed) else choice.order_evidence,
        why=why,
        times=row,
        factors=forest_of(asked.version.factors, asked.device),
        decisions=tuple(decisions),
        mapping=_mapping(choice),
        count=count,
        accumulate=None if asked.generation.promotes or accumulate is None else "fast",
        is_of_a_scheme=is_of_a_scheme,
        asked_on=asked_on,
    )


def product_format(choice: LibraryChoice, output: str, epilogue: EpilogueUse, call: PytorchCall) -> str | None:
    """To which format the sum is rounded before the bias or C is added; None: its own."""
    is_rounded_twice = (
        (epilogue.has_bias or (epilogue.has_c and epilogue.is_c_whole))
        and output in NARROW
        and is_rounded_before_bias(choice.algorithm, choice.split_k, choice.reduction, call.is_lt)
    )
    return output if is_rounded_twice else None


def _beside(epilogue: EpilogueUse, output: str, is_seen: bool) -> tuple[str, ...]:
    """What beside the product cuBLASLt was not asked about, so that the choice of the product alone stands for it.
    is_seen: a C, alpha and beta change nothing for such operands.
    """
    if is_seen:
        return ()
    found = ["a C"] if epilogue.has_c and output in NARROW else []  # of wide results it was seen to change nothing
    return (*found, *(["alpha and beta"] if epilogue.is_scaled else []))


def _mapping(choice: LibraryChoice) -> dict[str, Any]:
    """What a dataflow is told of the kernel, so that its cycles are the kernel's."""
    if choice.tile is None:
        return {}
    m, n = choice.tile
    return {"tile": {"m": m, "n": n, "k": choice.tile_k or STEP}}


def as_pytorch_asks(
    name: str, chip: Device, sizes: tuple[int, int], *, format: str, output: str, epilogue: EpilogueUse = NO_EPILOGUE
) -> tuple[LibraryOnDevice, PytorchCall]:
    """The library with the workspace of PyTorch's call, and the call.

    sizes: (n, k), which say whether a bias goes through cublasLtMatmul. Raises UnsupportedError for a call that
    PyTorch does not make or that was not asked about.
    """
    chosen = library(name, device=chip)
    if epilogue.has_bias and epilogue.has_c:
        raise UnsupportedError(f"library = {name!r}: PyTorch has no call with a bias and a C; leave one of them out")
    call = pytorch_call(sizes, format=format, output=output, has_bias=epilogue.has_bias)
    return replace(chosen, workspace_bytes=call.told.workspace_bytes), call


def _decisions(choice: LibraryChoice, evidence: str, guessed: Unasked, asked_on: str) -> list[Decision]:
    sure = f"right with a probability of {choice.confidence:.2f}"
    if choice.is_estimated:
        sure = (
            f"by hwsim's estimate of time, as cuBLAS was not asked on such a chip; the same estimate gives "
            f"{choice.confidence:.0%} of cuBLAS's answers to such GEMMs on {asked_on}"
        )
    if choice.evidence == ANSWERED and not any(guessed):
        sure = "the library's own answer for these sizes on such a chip"
    sure += guessed.text
    found = [Decision("kernel", choice.kernel, "library", evidence, f"algorithm {choice.algorithm}, {sure}")]
    found.append(Decision("split_k", str(choice.split_k), "library", evidence, sure))
    if not choice.known:
        stands = "tiles whose K several CTAs share" if choice.schedule.regions else "one chain in order of K"
        why = f"how this kernel adds over K is not known for these sizes; {stands} stands for it"
        found.append(Decision("order of summation", stands, "default", "assumption", why))
    return found
