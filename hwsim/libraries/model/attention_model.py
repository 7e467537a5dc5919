"""The schema of a file on fused kernels of attention: measured times beside simulated ones, and what goes by the chip.

It knows backends and chips by name; no order of summation.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from hwsim.datafiles.base import Name, StrictRecord
from hwsim.devices.model.chip import Capability

TimesRange = tuple[PositiveFloat, PositiveFloat, PositiveFloat]


class MeasuredCallsModel(StrictRecord):
    """How many times as long as its simulated program a kernel took on a chip, of so many calls with heads of these
    widths: the least, the median and the most, at the clock that the chip had, and at hwsim's under the load.
    """

    backend: Name
    calls: PositiveInt
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    same_clock: TimesRange
    under_load: TimesRange

    def range_at(self, clock: str) -> TimesRange:
        """The least, the median and the most for a time whose clock is from there, as of TimingState."""
        return self.under_load if clock == "under load" else self.same_clock


class MeasuredTimesModel(StrictRecord):
    """The measured calls of a chip that took at least so many microseconds. role: "calibration" where they set a
    number, "seen" where they moved a choice, else "validation". calls: of a backend, the narrowest heads first.
    """

    chip: Name
    role: Literal["calibration", "seen", "validation"]
    least_us: PositiveFloat
    calls: Annotated[dict[Name, MeasuredCallsModel], Field(min_length=1)]


class FlashAttention4Model(StrictRecord):
    """What of FlashAttention-4 goes by the chip. without_polynomial: compute capabilities whose special functions give
    all powers.
    """

    without_polynomial: tuple[Capability, ...]


class AttentionKernels(StrictRecord):
    """Fused kernels of attention on a vendor's chips."""

    schema_version: Literal[1]
    times: MeasuredTimesModel
    flash_attention_4: FlashAttention4Model
