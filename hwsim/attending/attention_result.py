"""The result of `hwsim.attention`: the array, the kernel, and the times of its program, taken when they are asked for.

It knows calls of attention and programs; it knows no order of summation and no text of a report.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from hwsim._version import __version__
from hwsim.analysis.program_times import Times
from hwsim.analysis.run_records import Evidence
from hwsim.analysis.timed_result import TimedResult
from hwsim.analysis.verdict import Verdict, verdict_of
from hwsim.compute.attention_call import AttentionCall
from hwsim.datafiles.provenance import Level
from hwsim.devices import timing_evidence
from hwsim.gemm.attention_record import is_of_math
from hwsim.libraries.model import facts
from hwsim.libraries.published.attention_kernels import measured_calls
from hwsim.trace.part_of_run import traced
from hwsim.trace.trace import Trace

if TYPE_CHECKING:
    from hwsim.gemm.attention_order import AttentionOrder
    from hwsim.gemm.attention_record import AnyAttention
    from hwsim.gemm.math_form import MathForm


class ChipRange(TypedDict):
    """Times of a chip over simulated ones: the least, the median and the most of so many calls with heads of these
    widths. expected_seconds: of this call by the median, without launches.
    """

    chip: str
    calls: int
    widths: list[int]
    least: float
    median: float
    most: float
    expected_seconds: float


AnyArray = NDArray[Any]
SCHEMA = "hwsim.attention/1"


@dataclass(frozen=True, eq=False, repr=False)
class AttentionResult(TimedResult):
    """out: of the shape (..., heads, queries, width of the value), in the operands' dtype; None with exact=False.
    backend: of PyTorch, whose kernel computed it. device: its name. order: of the kernel. evidence: the weakest level
    behind the bits. record: of the attention, which fixes bits and cycles. by_program: whether the program computed
    the bits.

    Cycles and what follows from them are of the kernel's program, which is written and timed when the first of them is
    asked for: at the clock that the chip keeps under this load, with L2 in the state l2. Where the kernel has no
    program they are None, and `timing_note` says why.
    """

    out: AnyArray | None
    backend: str
    device: str
    order: AttentionOrder | MathForm
    evidence: str
    by_program: bool
    call: AttentionCall = field(repr=False)
    l2: str = field(repr=False)
    launch_overhead: bool = field(repr=False)

    @property
    def record(self) -> AnyAttention:
        """The attention as data."""
        return self.call.record

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.order.kernel

    @property
    def codes(self) -> AnyArray | None:
        """The bit patterns of `out`, unsigned integers of its width."""
        return None if self.out is None else self.out.view(f"u{self.out.itemsize}")

    @cached_property
    def times(self) -> Times:
        """See hwsim.analysis.program_times. macs, tflops: without what the mask hides."""
        return self.call.timed.times(launch_overhead=self.launch_overhead, l2=self.l2)

    @cached_property
    def verdict(self) -> Verdict:
        """What bounds the kernel, where its time went, and how far a chip's time is from it, in words."""
        verdict = verdict_of(self.times, advises=False)
        if self.cycles is None:
            return verdict
        first, *others = verdict.sentences
        return replace(verdict, sentences=(first, self._beside_a_chip, *others))

    @property
    def measured(self) -> ChipRange | None:
        """How many times as long a chip took for such calls, for the clock of `seconds`; None where none was
        measured, and without cycles.
        """
        calls = measured_calls(self.backend, self.record.width, self.order.parts)
        if calls is None or self.state is None or self.cycles is None:
            return None
        least, median, most = calls.range_at(self.state["clock"])
        kernels = sum(phase.seconds for phase in self.phases)
        return {
            "chip": facts.attention_kernels().times.chip,
            "calls": calls.calls,
            "widths": list(calls.widths),
            "least": least,
            "median": median,
            "most": most,
            "expected_seconds": median * kernels,
        }

    @property
    def _beside_a_chip(self) -> str:
        measured = self.measured
        simplified = "begins and ends of tiles overlap more than on a chip"
        if is_of_math(self.record):
            simplified = (
                "passes are assumed to move their arrays at the rates of L2 and DRAM, and products to take the time of "
                "hwsim's own kernels"
            )
        if measured is None:
            times = facts.attention_kernels().times
            most = max(calls.same_clock[-1] for calls in times.calls.values())
            return (
                "no chip's time was compared with this kernel's; other kernels of attention took up to "
                f"{most:.2g} times as long as simulated, on one {times.chip.upper()}"
            )
        *some, last = map(str, measured["widths"])
        widths = f"{', '.join(some)} and {last}" if some else last
        assert self.state is not None
        is_loaded = self.state["clock"] == "under load"
        clock = "the simulated clock under load" if is_loaded else "one clock"
        took = f"{measured['least']:.2g} to {measured['most']:.2g} times as long, compared at {clock}"
        calls = f"{measured['calls']} calls, heads of {widths}"
        return f"{simplified}; one {measured['chip'].upper()} took {took} ({calls})"

    @property
    def levels(self) -> Evidence:
        """The weakest evidence behind the bits and the times. The kernel's schedule in time is at best a model."""
        levels = Evidence(numerics=self.evidence)
        if self.cycles is not None:
            of_chip = timing_evidence(self.call.device, self.times.unit)
            levels["timing"] = max(of_chip, Level.MODEL, key=list(Level).index).value
        return levels

    @cached_property
    def trace(self) -> Trace | None:
        """One row per instruction of one core of each kind; None without cycles. Raises InputError as `traced`."""
        return self.traced()

    def traced(self, core: int | None = None, from_cycle: float = 0.0, to_cycle: float | None = None) -> Trace | None:
        """The trace of a part of the run, as of `hwsim.Result.traced`; None without cycles.

        Raises InputError for an empty interval, and where there are more than Trace.LIMIT instructions.
        """
        return traced(self.times, core, from_cycle, to_cycle)

    @cached_property
    def result_sha256(self) -> str | None:
        """SHA-256 of out's elements, little-endian, row-major."""
        if self.codes is None:
            return None
        return hashlib.sha256(
            np.ascontiguousarray(self.codes).astype(self.codes.dtype.newbyteorder("<"), copy=False).tobytes()
        ).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The result without the arrays, as plain data ready for JSON."""
        names = ("cycles", "seconds", "tflops", "peak_fraction", "phases", "engines", "traffic_bytes", "state")
        return {
            "schema": SCHEMA,
            "device": self.device,
            "backend": self.backend,
            "kernel": self.kernel,
            "attention": self.record.to_dict(),
            "by_program": self.by_program,
            **{name: getattr(self, name) for name in names},
            "macs": self.times.macs,
            "evidence": self.levels,
            "timing_note": self.timing_note,
            "measured": self.measured,
            "verdict": self.verdict.to_dict(),
            "result_sha256": self.result_sha256,
            "hwsim_version": __version__,
        }

    def __str__(self) -> str:
        out = "cycles alone" if self.out is None else f"{self.out.dtype} {self.out.shape}"
        return (
            f"attention on {self.device}: {out}\n"
            f"{self.backend}: {self.order.kernel}\n"
            f"{self.order.summary}\n"
            f"evidence: {self.evidence}; the order is from: {self.order.source}"
        )

    def __repr__(self) -> str:
        out = "None" if self.out is None else f"{self.out.dtype} {self.out.shape}"
        return (
            f"AttentionResult(out={out}, backend={self.backend!r}, "
            f"kernel={self.kernel!r}, device={self.device!r}, evidence={self.evidence!r})"
        )
