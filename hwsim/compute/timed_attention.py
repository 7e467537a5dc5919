"""An attention's program on its device, and its times. It knows records and programs; no operand and no framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from hwsim.analysis.program_times import TimedWork, Times, times_of
from hwsim.analysis.run_records import Macs
from hwsim.dataflows.attention.attention_program import attention_program, refuses
from hwsim.errors import UnsupportedError
from hwsim.machines.l2_state import DEFAULT
from hwsim.machines.timing import missing
from hwsim.program.check import check
from hwsim.program.ir import Program

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.attention_record import AnyAttention, FusedAttention


@dataclass(frozen=True, eq=False)
class TimedAttention:
    """A record on its device. unit: the matrix instruction, whose peak rate is the reference. refusal: why there is no
    program, in words; empty where `written` gives one.
    """

    record: AnyAttention
    device: Device
    unit: str
    refusal: str
    written: Callable[[], Program]

    @cached_property
    def program(self) -> Program:
        """The program, checked. Raises UnsupportedError where there is none."""
        if self.refusal:
            raise UnsupportedError(f"attention: {self.record.order.kernel} has no program: {self.refusal}")
        program = self.written()
        check(program, self.device)
        return program

    @cached_property
    def no_program(self) -> str:
        """Why there is no program with times; empty where there is one."""
        if self.refusal:
            return self.refusal
        try:
            return missing(self.device, self.program) or ""
        except UnsupportedError as error:
            return str(error)

    def times(self, *, launch_overhead: bool = False, l2: str = DEFAULT) -> Times:
        """The times, as of hwsim.analysis.program_times; useful multiply-accumulates are without what a mask hides.

        Raises UnsupportedError where launch_overhead is asked for and the device file gives none.
        """
        if self.no_program:
            return Times(self.no_program)
        work = TimedWork((self.record.useful_macs, 1, 1), 1, self.unit)
        times = times_of(self.program, self.device, work, launch_overhead=launch_overhead, l2=l2)
        return replace(times, macs=Macs(self.record.useful_macs, times.macs["padded"]))


def fused_attention(record: FusedAttention, device: Device, unit: str) -> TimedAttention:
    """A fused kernel's record on its device. unit: as of TimedAttention."""
    return TimedAttention(record, device, unit, refuses(record, device), lambda: attention_program(record, device))
