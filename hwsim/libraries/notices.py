"""What a user should know before relying on a library's bits: an unsure choice, an order that is not known.

It knows a library's call and its record; it chooses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.run_records import RunWarning
from hwsim.evaluate.explicit import elements
from hwsim.gemm.record import Gemm
from hwsim.libraries.call import LibraryCall
from hwsim.libraries.times import kernel_seconds

if TYPE_CHECKING:
    from hwsim.devices.device import Device

#: Codes of warnings.
ORDER_UNKNOWN, ORDER_ASSUMED = "library_order_unknown", "library_order_assumed"
ESTIMATED, UNSURE = "library_choice_estimated", "library_choice_unsure"
LOSES_K, LEFT_OUT = "library_loses_k", "k_left_out"
SLOW, TIMES_OF_PROGRAM = "library_kernel_slow", "library_times_of_program"
#: What a table of times says beside them.
OF_LIBRARY = (ESTIMATED, UNSURE, SLOW, TIMES_OF_PROGRAM)
TIMES_SLOWER = 3.0  # than the same product with aligned sizes, from which a run warns
LAUNCH_S = 2.1e-6  # in which the differences of short kernels are lost
SURE = 0.9  # the probability of a choice below which a run warns of it


def warnings_of(call: LibraryCall) -> list[RunWarning]:
    """What a user should know before relying on the bits: an unsure choice, an order that is not known."""
    choice, notices = call.choice, list[RunWarning]()
    if not choice.known:
        text = f"{choice.kernel}: how it adds over K is not known for these sizes, so the last bits may differ"
        notices.append({"code": ORDER_UNKNOWN, "count": 1, "message": text})
    if call.why:
        text = f"{choice.kernel} adds over K as assumed: {call.why}; compare a sample (hwsim library record)"
        notices.append({"code": ORDER_ASSUMED, "count": 1, "message": text})
    if choice.lost_k:
        text = (
            f"{choice.kernel} with {choice.slices} slices leaves the last {choice.lost_k} products of K out of every "
            "sum, as this library does for some K; pad K with zeros, or take another one"
        )
        notices.append({"code": LOSES_K, "count": choice.lost_k, "message": text})
    if choice.is_estimated:
        text = (
            f"which kernel the library runs is not known on such a chip: {choice.kernel} is hwsim's estimate, "
            f"which gives {choice.share_text}; bits and cycles "
            "may be others (hwsim library record asks the library on a GPU)"
        )
        notices.append({"code": ESTIMATED, "count": 1, "message": text})
    elif choice.confidence < SURE:
        text = (
            f"the library runs {choice.kernel} with {choice.slices} slices of K with a probability of "
            f"{choice.confidence:.2f}; where it runs another, bits and cycles are other ones"
        )
        notices.append({"code": UNSURE, "count": 1, "message": text})
    return notices


def time_warnings(call: LibraryCall, chip: Device) -> list[RunWarning]:
    """What a user should know of the time: a kernel that is much slower than the library's for aligned sizes, and one
    of which no times were recorded. chip: at the clock of its device file.
    """
    if call.times is None and call.choice.is_estimated:  # which a warning of its own says
        return []
    if call.times is None:
        decided = [decision for decision in call.decisions if decision.name == "times"]
        text = f"{call.choice.kernel}: {decided[0].why}" if decided else ""
        return [{"code": TIMES_OF_PROGRAM, "count": 1, "message": text}] if text else []
    if call.aligned is None:
        return []
    seconds = kernel_seconds(chip, call.gemm, call.times)
    aligned = kernel_seconds(chip, call.aligned.gemm, call.aligned.times)
    if seconds + LAUNCH_S <= TIMES_SLOWER * (aligned + LAUNCH_S):
        return []
    sizes = " x ".join(f"{size:,}" for size in call.aligned.gemm.sizes)
    text = (
        f"{call.choice.kernel} takes {seconds * 1e6:,.0f} us, as rows are not whole 16 bytes; padded with zeros to "
        f"m x n x k = {sizes}, {call.aligned.kernel} takes {aligned * 1e6:,.0f} us"
    )
    return [{"code": SLOW, "count": 1, "message": text}]


def left_out(record: Gemm) -> list[RunWarning]:
    """A warning where the library's kernel does not take all of K."""
    if record.schedule.sum is None:
        return []
    lost = record.problem.k - elements(record.schedule.sum)
    text = f"the library's slices leave out the last {lost} of K: its product is wrong by them, and so is this one"
    return [{"code": LEFT_OUT, "count": lost, "message": text}] if lost > 0 else []
