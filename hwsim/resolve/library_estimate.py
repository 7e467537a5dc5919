"""hwsim's own estimate of what a library runs: slices of K and tile by the dataflow of the chip's family.

The kernels among which it chooses are those of the library file that the device names. The module knows records,
dataflows and whether a chip has times; no library's rules and no answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.registry import dataflow
from hwsim.errors import UnsupportedError
from hwsim.gemm.layouts import order_named
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.host.multiples import round_up
from hwsim.libraries.gemm_call import result_format
from hwsim.libraries.model import library_of
from hwsim.libraries.protocol import EstimatedTile
from hwsim.machines import timing
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import mapped, program_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.libraries.gemm_call import GemmCall

CACHED = 4096  # estimates


@dataclass(frozen=True, eq=False)
class DataflowEstimator:
    """The estimate of hwsim.libraries.protocol.Estimator on a chip, by the dataflow of its family.

    m is taken as whole tiles of C, of the greatest size that divides all of them: the kernels compute as much.
    """

    chip: Device
    step: int = field(init=False)
    timed: dict[str, str | None] = field(init=False, default_factory=dict)
    _slices: Callable[[GemmCall, str | None], int] = field(init=False)
    _tile: Callable[[GemmCall, int, str | None], EstimatedTile] = field(init=False)

    def __post_init__(self) -> None:
        library = library_of(self.chip)
        groups = () if library is None else library.kernels.values()
        sides = [side for group in groups for row in group.rows.values() for side in row.tile]
        attributes: dict[str, Any] = {"step": math.gcd(*sides) or 1}
        attributes |= {"_slices": lru_cache(CACHED)(self._best_slices), "_tile": lru_cache(CACHED)(self._best_tile)}
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def slices(self, call: GemmCall, instruction: str | None) -> int:
        """The number of slices of K with the least estimated time, among those of the library file."""
        return self._slices(self._rounded(call), instruction)

    def tile(self, call: GemmCall, slices: int, instruction: str | None) -> EstimatedTile:
        """The tile with the least estimated time for these slices."""
        return self._tile(self._rounded(call), slices, instruction)

    def _best_slices(self, call: GemmCall, instruction: str | None) -> int:
        record = self._record(call, instruction)
        self._check(record)
        best = dataflow(self.chip).split_k(record, self.chip, {})
        return 1 if best is None else best.slices

    def _best_tile(self, call: GemmCall, slices: int, instruction: str | None) -> EstimatedTile:
        record = self._record(call, instruction)
        self._check(record)
        record_with_mapping = self._mapped(record, slices)
        assert record_with_mapping.mapping is not None
        kernel = record_with_mapping.mapping.kernels[0]
        return EstimatedTile(kernel.tile.m, kernel.tile.n, kernel.tile.k, kernel.stages)

    def _mapped(self, record: Gemm, slices: int) -> Gemm:
        return mapped(record, self.chip, {"split_k": slices} if slices > 1 else {})

    def _record(self, call: GemmCall, instruction: str | None) -> Gemm:
        a, b = order_named(call.a_layout), order_named(call.b_layout)
        lead = (call.batch,) if call.batch > 1 else ()
        problem = Problem.of(call.format, call.m, call.n, call.k, lead=lead, a_layout=a, b_layout=b)
        options = {} if call.accumulate is None else {"accumulate": call.accumulate}
        planned = plan_for(self.chip, scheme_of("native"), problem, call.format, options)
        output = None if call.result == result_format(call.format) else call.output
        schedule = Schedule(instruction=instruction, epilogue=Epilogue(output_format=output))
        return record_of(planned.plan, self.chip, problem, schedule)

    def _check(self, record: Gemm) -> None:
        """Raise UnsupportedError where the chip has no times for the record's instruction; looked up once for each."""
        if record.unit not in self.timed and (reason := timing.missing(self.chip)):
            self.timed[record.unit] = reason
        elif record.unit not in self.timed:
            small = replace(record.problem, m=self.step, n=self.step, k=self.step, lead=())
            program = program_of(self._mapped(replace(record, problem=small), 1), self.chip)
            self.timed[record.unit] = timing.missing(self.chip, program)
        if reason := self.timed[record.unit]:
            raise UnsupportedError(f"what a library runs cannot be estimated: {reason}; leave library out")

    def _rounded(self, call: GemmCall) -> GemmCall:
        return replace(call, m=round_up(call.m, self.step))
