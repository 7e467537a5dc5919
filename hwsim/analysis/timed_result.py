"""What a result with `times` says of them: cycles, seconds, rates, and what the parts of the device did.

It knows times; it does not know what was computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.fold_parts import fold_parts
from hwsim.analysis.program_times import state_of

if TYPE_CHECKING:
    from hwsim.analysis.fold_parts import FoldParts
    from hwsim.analysis.program_times import Times
    from hwsim.analysis.run_records import EngineUse, Macs, Occupancy, Phase, TimingState


class TimedResult:
    """Properties of a result that has `times` (hwsim.analysis.program_times)."""

    if TYPE_CHECKING:  # a dataclass would take a property for its field's default

        @property
        def times(self) -> Times: ...

    @property
    def cycles(self) -> int | None:
        """Core clock cycles over all phases; None without timing."""
        return self.times.cycles

    @property
    def seconds(self) -> float | None:
        """Cycles divided by the core clock, or with a library by fitted times of its kernels (docs/library.md)."""
        return self.times.seconds

    @property
    def tflops(self) -> float | None:
        """Two operations for each useful multiply-accumulate / seconds / 1e12; None where seconds are none or 0."""
        return self.times.tflops

    @property
    def peak_fraction(self) -> float | None:
        """Achieved rate over the matrix unit's peak for this format, divided by the plan's number of products."""
        return self.times.peak_fraction

    @property
    def phases(self) -> list[Phase]:
        """Name, cycles and seconds of each device kernel."""
        return self.times.phases

    @property
    def engines(self) -> dict[str, EngineUse]:
        """Busy and stalled cycles of each engine."""
        return self.times.engines

    @property
    def folds(self) -> FoldParts | None:
        """Cycles of fill, stream, skew and drain of systolic arrays; None of other devices and without times."""
        return fold_parts(self.times)

    @property
    def macs(self) -> Macs:
        """Multiply-accumulates of the matrix unit: useful ones, and all with padding."""
        return self.times.macs

    @property
    def traffic_bytes(self) -> dict[str, int]:
        """Bytes moved over each link and shared memory."""
        return self.times.traffic_bytes

    @property
    def occupancy(self) -> list[Occupancy]:
        """For each GEMM kernel: tiles (of C, times slices of K), cores, idle cores, waves (of the busiest core)."""
        return self.times.occupancy

    @property
    def state(self) -> TimingState | None:
        """What the time is of: state of L2, clock, power limit, kernels, launches. None without a time."""
        return state_of(self.times)

    @property
    def timing_note(self) -> str:
        """The reason why there are no cycles; else what they assume of data that were not given, or empty."""
        return self.times.note
