"""The library call that a request stands for, and what follows from it: the order of summation, format and decisions.

The module knows the protocol of libraries and requests; no library, and it computes no bit and no time.
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
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.kernel_choice import ASSUMED, KernelTimes, LibraryChoice
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.resolve.library_on_device import library

if TYPE_CHECKING:
    from pathlib import Path

    from hwsim.analysis.times import Times
    from hwsim.devices.device import Device
    from hwsim.resolve.resolver import Resolved

STEP = 32  # of K, where the choice does not say it
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

    asked: the call. choice: with its order of summation. layouts: of A and B. times: what such kernels take, None: what
    their program takes. mapping: options of the dataflow that follow from the kernel. count: of such calls, one for
    each product of a scheme.
    """

    id: LibraryId
    asked: GemmCall
    choice: LibraryChoice
    layouts: tuple[Order, Order]
    times: KernelTimes | None
    decisions: tuple[Decision, ...]
    mapping: dict[str, Any] = field(default_factory=dict, hash=False)
    count: int = 1

    @property
    def format(self) -> str:
        """Of the operands for which the kernel is."""
        return self.choice.operand

    @property
    def product_format(self) -> str | None:
        """To which the sum is rounded before the bias or C is added, None: the sum's own."""
        return self.choice.order.product_format

    @property
    def accumulate(self) -> str | None:
        """Of 8-bit floats, as the kernel does it (None: as asked for)."""
        return self.choice.accumulate

    @property
    def evidence(self) -> str:
        """Of the order of summation."""
        return self.choice.order_evidence

    @property
    def why(self) -> str:
        """By which rules the order of summation is assumed; "": it is not, or no rule is known."""
        return self.choice.order.assumed if self.choice.known else ""


def library_call(
    name: str | Path | LibraryOnDevice, chip: Device, asked: GemmCall, *, is_at_own_clock: bool = True, count: int = 1
) -> LibraryCall:
    """The call for one product. is_at_own_clock: else there are no recorded times. count: of such calls.

    Raises UnsupportedError where the library has no such call, or its choice is not known.
    """
    chosen = library(name, device=chip)
    choice = chosen.choose(asked)
    times = chosen.times(asked, choice) if is_at_own_clock else None
    decisions = _decisions(choice)
    if times is not None:
        text = "the program's, and what else its kernels take"
        decisions.append(Decision("times", text, "library", times.evidence, times.why))
    return LibraryCall(
        id=chosen.id,
        asked=asked,
        choice=choice,
        layouts=(order_named(asked.a_layout), order_named(asked.b_layout)),
        times=times,
        decisions=tuple(decisions),
        mapping=_mapping(choice),
        count=count,
    )


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


def _decisions(choice: LibraryChoice) -> list[Decision]:
    numbers = [f"{name} {number}" for name, number in choice.numbers.items()]
    why = ", ".join([*numbers, choice.why])
    found = [Decision("kernel", choice.kernel, "library", choice.evidence, why)]
    found.append(Decision("split_k", str(choice.split_k), "library", choice.evidence, choice.why))
    if not choice.known:
        stands = "tiles whose K several CTAs share" if choice.schedule.regions else "one chain in order of K"
        why = f"how this kernel adds over K is not known for these sizes; {stands} stands for it"
        found.append(Decision("order of summation", stands, "default", ASSUMED, why))
    return found


def library_times(call: LibraryCall, resolved: Resolved, times: Times, estimate_us: float) -> Times:
    """The times with what such kernels were seen to take beside their program; as they are where none was recorded.

    estimate_us: of the call by the kernel that hwsim would choose; 0 where there is none.
    """
    if call.times is None:
        return times
    problem = resolved.gemm.problem
    program_us = 0.0 if times.seconds is None else times.seconds * 1e6
    seconds = call.times.seconds(program_us, estimate_us)
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
            f"which gives {choice.share_text}; bits and "
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
