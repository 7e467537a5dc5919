"""The library call that a request stands for, and what follows from it: the order of summation, format and decisions.

A request is called as PyTorch calls cuBLAS (`hwsim.libraries.cublas.pytorch`). The module knows libraries and
requests; it computes no bit and no time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.layouts import Order, order_named
from hwsim.gemm.record import Decision, LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.cublas.calls import Unasked, operand_of, result_format
from hwsim.libraries.cublas.choice import LibraryChoice
from hwsim.libraries.cublas.choose import LibraryOnDevice
from hwsim.libraries.cublas.fitted_times import STEP, TimeRow, facts, forest_of, key_of, quantities, row_of, with_factor
from hwsim.libraries.cublas.lookup import ANSWERED
from hwsim.libraries.cublas.orders import is_rounded_before_bias
from hwsim.libraries.cublas.pytorch import NARROW, PytorchCall, pytorch_call
from hwsim.libraries.cublas.versions import calls_taken, chips_text, rules_text
from hwsim.resolve.library_on_device import library

if TYPE_CHECKING:
    from hwsim.analysis.times import Times
    from hwsim.devices.device import Device
    from hwsim.libraries.cublas.forest import Forest
    from hwsim.resolve.resolver import Resolved

#: Codes of warnings.
ORDER_UNKNOWN, ORDER_ASSUMED = "library_order_unknown", "library_order_assumed"
ESTIMATED, LOSES_K = "library_choice_estimated", "library_loses_k"
SURE = 0.9  # the probability of a choice below which a run warns of it
#: Options of native schemes that name the call; the others change what the library decides.
OWN_OPTIONS = ("accumulate", "format_b")
PLAIN = "native"  # the scheme of one product a call
AROUND = ("c", "bias", "alpha", "beta", "output")  # what a request may add to a product
LAYOUTS_OF = ("a_layout", "b_layout")  # options of a mapping that are the call's


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """What a library's choice makes of a request.

    format: of the operands for which the kernels are. product_format: to which the sum is rounded before the bias or C
    is added, None: the sum's own. evidence, why: of the order of summation. times: what such kernels take, None: not
    recorded. factors: what it is multiplied by. mapping: options of the dataflow that follow from the kernel. count: of
    such calls, one for each product of a scheme. accumulate: of 8-bit floats, as the kernel does it (None: as asked
    for). asked_on: the chips that the library was asked on, in words.
    """

    id: LibraryId
    choice: LibraryChoice
    layouts: tuple[Order, Order]
    format: str
    product_format: str | None
    evidence: str
    why: str
    times: TimeRow | None
    factors: Forest | None
    decisions: tuple[Decision, ...]
    mapping: dict[str, Any] = field(default_factory=dict, hash=False)
    count: int = 1
    accumulate: str | None = None
    asked_on: str = ""


@dataclass(frozen=True, slots=True)
class EpilogueUse:
    """What a request adds to the product A B: a bias, a C, factors of other values than 1. is_c_whole: C is taken as it
    is (beta = 1)."""

    has_bias: bool = False
    has_c: bool = False
    is_scaled: bool = False
    is_c_whole: bool = True


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


def in_order(choice: LibraryChoice, k: int) -> Schedule:
    """A schedule with as many slices as the choice's, each in order of K: what a program carries of any order.

    It moves and multiplies as much as the kernel does. Where a kernel begins with the rest of K or deals tiles of K out
    in turn, this is not its order: it is for cycles. So it is where CTAs share the K of tiles and no program carries
    that, as of a tile that the family has not.
    """
    own = choice.schedule
    lengths = own.slice_k if isinstance(own.slice_k, tuple) else None
    if lengths is None and choice.split_k > 1:
        step = choice.tile_k or STEP
        length = -(-k // (choice.split_k * step)) * step
        lengths = tuple(min(length, k - start) for start in range(0, k, length))
    return Schedule(instruction=own.instruction, slice_k=lengths if lengths and len(lengths) > 1 else None)


def as_pytorch_asks(
    name: str, chip: Device, sizes: tuple[int, int], *, format: str, output: str, epilogue: EpilogueUse = EpilogueUse()
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


def library_times(call: LibraryCall, resolved: Resolved, times: Times, estimate_us: float) -> Times:
    """The times with what such kernels were seen to take beside their program; as they are where none was recorded.

    estimate_us: of the call by the kernel that hwsim would choose; 0 where there is none.
    """
    row = call.times
    if row is None:
        return times
    problem = resolved.gemm.problem
    program_us = 0.0 if times.seconds is None else times.seconds * 1e6
    output = resolved.gemm.output
    found = quantities(
        call.choice, problem.sizes, call.format, output, resolved.device.cores, program_us, estimate_us,
        problem.matrices,
    )  # fmt: skip
    seconds = row.seconds(found)
    if call.factors is not None and problem.matrices == 1:  # recorded ones were single products
        us = seconds * 1e6
        also = facts(call.choice, problem.sizes, call.format, output, call.layouts[1] == "rows", us)
        seconds = with_factor(call.factors, (*found, *also), us) * 1e-6
    return at_seconds(times, seconds, 2 * problem.matrices * math.prod(problem.sizes))


def at_seconds(times: Times, seconds: float, operations: int) -> Times:
    """The times with a library's seconds. operations: floating-point operations of the user's product."""
    tflops = None if not seconds else operations / seconds / 1e12
    fraction = times.peak_fraction
    if fraction is not None:
        fraction = fraction * tflops / times.tflops if tflops is not None and times.tflops else None
    return replace(times, seconds=seconds, tflops=tflops, peak_fraction=fraction, by_library=True)


def warnings_of(call: LibraryCall) -> list[dict[str, Any]]:
    """What a user should know before relying on the bits: an unsure choice, an order that is not known."""
    choice, found = call.choice, []
    if not choice.known:
        text = f"{choice.kernel}: how it adds over K is not known for these sizes, so the last bits may differ"
        found.append({"code": ORDER_UNKNOWN, "count": 1, "message": text})
    if call.why:
        text = f"{choice.kernel} adds over K as assumed: {call.why}; compare a sample (hwsim library record)"
        found.append({"code": ORDER_ASSUMED, "count": 1, "message": text})
    if choice.lost_k:
        text = (
            f"{choice.kernel} with {choice.split_k} slices leaves the last {choice.lost_k} products of K out of every "
            "sum, as this library does for some K; pad K with zeros, or take another one"
        )
        found.append({"code": LOSES_K, "count": choice.lost_k, "message": text})
    if choice.is_estimated:
        text = (
            f"which kernel the library runs is not known on such a chip: {choice.kernel} is hwsim's estimate, "
            f"which gives {choice.confidence:.0%} of cuBLAS's answers to such GEMMs on {call.asked_on}; bits and "
            "cycles may be others (hwsim library record asks the library on a GPU)"
        )
        found.append({"code": ESTIMATED, "count": 1, "message": text})
    elif choice.confidence < SURE:
        text = (
            f"the library runs {choice.kernel} with {choice.split_k} slices of K with a probability of "
            f"{choice.confidence:.2f}; where it runs another, bits and cycles are other ones"
        )
        found.append({"code": "library_choice_unsure", "count": 1, "message": text})
    return found


def checked_against(
    own: Mapping[str, Any], scheme_options: Mapping[str, Any], mapping: Mapping[str, Any], scheme: str
) -> None:
    """Raise where a request says what the library decides, or asks for what is no call of it."""
    said = [name for name, value in mapping.items() if value is not None and name not in LAYOUTS_OF]
    said += ["schedule"] if own["schedule"] is not None else []
    if scheme == PLAIN:
        said += [name for name, value in scheme_options.items() if name not in OWN_OPTIONS and value is not None]
    if own["launch_overhead"]:
        raise InputError("launch_overhead: a library's seconds are what its kernels take beyond a launch; leave it out")
    if said:
        them = "it" if len(said) == 1 else "them"
        raise InputError(f"library = {own['library']!r} decides {', '.join(said)}; leave {them} out")
    around = [name for name in AROUND if own[name] is not None] if scheme != PLAIN else []
    if around:
        raise UnsupportedError(
            f"library = {own['library']!r}: {', '.join(around)} of scheme {scheme}: which of its calls would add it "
            "is not known; leave it out, or add it to the result"
        )
