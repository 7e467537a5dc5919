"""The result of one run: arrays, cycles, errors, and the evidence for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim._version import __version__
from hwsim.analysis.changed_numbers import ChangeableCall, ChangedNumbers, call_with_numbers
from hwsim.analysis.error_map import ErrorMap
from hwsim.analysis.file_costs import file_costs
from hwsim.analysis.program_times import Times
from hwsim.analysis.roofline import Roofline, roofline
from hwsim.analysis.run_records import Evidence, ProductErrors, RunWarning
from hwsim.analysis.timed_result import TimedResult
from hwsim.analysis.verdict import Verdict, verdict_of
from hwsim.analysis.what_if import WhatIf, what_if
from hwsim.compute.bits import Errors, ExactValue
from hwsim.compute.notices import product_warnings
from hwsim.gemm.record import Gemm
from hwsim.host.renderers import rendered
from hwsim.machines.element_steps import ElementStep
from hwsim.operands.operand import Operand
from hwsim.program.ir import Program
from hwsim.trace.part_of_run import traced
from hwsim.trace.trace import Trace

SCHEMA = "hwsim.run/1"


@dataclass(frozen=True, slots=True)
class Execution:
    """What the execution of a device's program gave beside C.

    executed: instructions by opcode, for all cores and all matrices of a stack. values: by each place (row, column)
    that was asked for, the instructions that made this element of C, in order; None where none was asked for. The last
    one's `after` is C's element. An instruction of the program over a longer K than the device's instruction has is as
    many entries as the device needs. program: that was executed. places: of these elements of C, their indices in it,
    where all of C was computed.
    """

    executed: Mapping[str, int] | None
    values: Mapping[tuple[int, ...], tuple[ElementStep, ...]] | None
    program: Program | None = field(default=None, repr=False)
    places: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Result(TimedResult):
    """What `hwsim.run` returns: the product, its error, cycles with their breakdown, and the record of the GEMM.

    c: the product, (m, n) or the rows and columns asked for, stacks of them for stacks of operands; None with
    exact=False. codes: its bit patterns. gemm: the resolved record that fixes bits and cycles. m, n, k: of one
    matrix. refused: {choice: reason} for the choices that the scheme left to the device and the device could not
    take. times: see hwsim.analysis.program_times. cycles: core clock cycles over all phases, None without timing
    (`timing_note` says why). seconds = cycles / clock, without kernel launches unless they were asked for; with a
    library, what its kernels were seen to take beyond a launch, also where there are no cycles. phases: name, cycles,
    seconds of each device kernel. engines: {name: {"busy_cycles", "stall_cycles": {cause: cycles}}}, summed over the
    cores that took part. macs: {"useful", "padded"}: multiply-accumulates of the problem, and those including the
    zeros of padded tiles. traffic_bytes: by link and shared memory. evidence: the weakest level behind numerics and
    timing, and (`schedule`) how well it is known that the vendor's library computes the product in this way.
    execution: of a program, where its execution gave the bits. call: what `with_numbers` changes. operands: A and B as
    they lie in memory, before a scheme quantises them.
    """

    device: str
    scheme: str
    options: dict[str, Any]
    m: int
    n: int
    k: int
    seed: int | None
    c: NDArray[Any] | None
    evidence: Evidence
    device_sha256: str
    kernel: str
    gemm: Gemm
    times: Times
    refused: dict[str, str] = field(default_factory=dict)
    hwsim_version: str = __version__
    notices: Callable[[], list[RunWarning]] = field(default=list)
    errors: Errors | None = None
    execution: Execution | None = None
    call: ChangeableCall | None = field(default=None, repr=False)
    operands: tuple[Operand, Operand] | None = field(default=None, repr=False)

    @property
    def by_program(self) -> bool:
        """Whether the device's program computed the bits, not the direct evaluator."""
        return self.execution is not None

    @property
    def executed(self) -> Mapping[str, int] | None:
        """Executed instructions by opcode, for all cores and all matrices of a stack; None without a program."""
        return None if self.execution is None else self.execution.executed

    @property
    def values(self) -> Mapping[tuple[int, ...], tuple[ElementStep, ...]] | None:
        """With values=[(row, column), ...], by each of these places the instructions that made this element of C."""
        return None if self.execution is None else self.execution.values

    @cached_property
    def exact_values(self) -> Mapping[tuple[int, ...], ExactValue]:
        """By each place of `values`, what C's element is without any rounding, of A and B as given and as the unit
        takes them.

        Empty without `values`, and where only rows= or cols= of C were computed.
        """
        if self.execution is None or self.errors is None:
            return {}
        return {name: self.errors.exact_at(*place) for name, place in self.execution.places.items()}

    @cached_property
    def schedule(self) -> dict[str, Any] | None:
        """The order of summation, as `Schedule.to_dict` gives it, where the direct evaluator computed the bits. Written
        when it is asked for: an order of a million terms takes longer than its sum.
        """
        return None if self.by_program else self.gemm.schedule.to_dict()

    def _shown_schedule(self) -> dict[str, Any] | None:
        """`schedule`, with the number of slices where lengths say it, and the instruction that the program executes.

        This instruction has the bits of the record's, and may have fewer columns.
        """
        schedule = self.schedule
        if schedule is None:
            return None
        if self.gemm.schedule.slice_k is not None:
            schedule = schedule | {"split_k": len(self.gemm.schedule.slice_lengths(self.gemm.problem.k))}
        mapping = self.gemm.mapping
        of_kernels = set() if mapping is None else {kernel.instruction for kernel in mapping.kernels}
        if schedule["instruction"] is not None and len(of_kernels) == 1:
            schedule = schedule | {"instruction": of_kernels.pop()}
        return schedule

    def __repr__(self) -> str:
        bits = "no bits" if self.c is None else f"{self.c.dtype} {self.c.shape}"
        time = f"no cycles ({self.timing_note})" if self.cycles is None else f"{self.cycles:,} cycles"
        return f"<Result {self.scheme} on {self.device}, {self.m} x {self.n} x {self.k}: {bits}, {time}>"

    def _repr_html_(self) -> str:
        html: str = rendered("card of a run", self)
        return html

    @cached_property
    def warnings(self) -> list[RunWarning]:
        """Warnings about operands, mapping and product, as {"code", "count", "message"}; collected on first access."""
        return [*self.notices(), *product_warnings(self.c)]

    @cached_property
    def error(self) -> ProductErrors | None:
        """relative_frobenius and max_relative against the exact product; `baseline` has those of a plain fp32 FMA
        chain; `worst` is the element with the largest relative error: `element`, its indices for `values`, `computed`,
        `exact`, `ulps`, `condition`. `finite` has the errors without infinite and NaN elements, where there are some.

        Computed when first asked for; None without exact.
        """
        return None if self.errors is None else self.errors()

    @cached_property
    def error_map(self) -> ErrorMap | None:
        """The error of every element in units in the last place, and block by block; computed on first access.

        None without exact, and for a product whose type has no last place (integers).
        """
        return None if self.errors is None else self.errors.by_place()

    def report(self, path: str | Path) -> None:
        """Write all of it as one HTML page with plots, which loads nothing from anywhere (docs/report.md).

        Raises InputError for a name without .html or a file that cannot be written; UnsupportedError without plotly.
        """
        rendered("page of a run", self).write(path)

    @cached_property
    def trace(self) -> Trace | None:
        """The trace: one row per instruction of one core of each kind (None without timing); made on first access.

        Raises InputError as `traced`.
        """
        return self.traced()

    def traced(self, core: int | None = None, from_cycle: float = 0.0, to_cycle: float | None = None) -> Trace | None:
        """The trace of a part of the run; None without timing.

        core: the rows of this core, or of the one that stands for it (None: of one core of each kind). from_cycle,
        to_cycle: instructions complete at the first or later, and started before the second (None: the end), in
        cycles from the start of the run. Raises InputError for a core that the program does not use, for a time
        below 0 or an empty interval, and where there are more than Trace.LIMIT instructions. From cycle 0 on
        the trace's `elements` has the rows that made each element of `values`.
        """
        is_executed = self.execution is not None and self.execution.program is self.times.program
        return traced(self.times, core, from_cycle, to_cycle, lambda: self.values if is_executed else None)

    @cached_property
    def verdict(self) -> Verdict:
        """What bounds the run and where its time went, in words; `advice` times the program again when asked for."""
        if self.call is None:
            return verdict_of(self.times)
        return verdict_of(self.times, self.call.on_matrix_unit, self.call.in_output)

    @cached_property
    def what_if(self) -> list[WhatIf] | None:
        """Sensitivity by part: cycles if one engine, link, memory or opcode took no time (None without timing).

        Each part needs one more timing run; computed on first access.
        """
        if self.times.program is None or self.times.chip is None:
            return None
        return what_if(self.times.program, self.times.chip, l2=self.times.l2)

    def with_numbers(self, changes: Mapping[str, str | float]) -> ChangedNumbers | None:
        """Cycles before and after a change of the device's numbers, and what then bounds (None without timing).

        changes: {path in the device file, or pattern with *: "2x" for a factor, or a value in the file's unit}. The
        changed device has the faster of two mappings: the one chosen for it, and this run's; `mapping` says which. A
        saved record or a library fixes the kernel: its program is timed again. `beside` names the numbers from which
        bits, energy or area follow. Raises InputError for a path or value that the device cannot have.
        """
        return None if self.call is None else call_with_numbers(self.times, self.call, changes)

    @cached_property
    def roofline(self) -> Roofline | None:
        """Arithmetic intensity with respect to HBM traffic, and the attainable rate (None without timing)."""
        if self.times.timed is None or self.times.chip is None:
            return None
        point = roofline(self.times.timed, self.times.chip, self.times.unit)
        return replace(point, achieved=point.achieved / (1 + self.times.beside_program))

    @property
    def codes(self) -> NDArray[Any] | None:
        """The bit patterns of `c`, unsigned integers of its format's storage width."""
        return None if self.c is None else self.c.view(f"u{self.c.dtype.itemsize}")

    @cached_property
    def result_sha256(self) -> str | None:
        """SHA-256 of C's elements, little-endian, row-major."""
        return None if self.c is None else _sha256(self.c)

    @cached_property
    def operands_sha256(self) -> dict[str, str] | None:
        """SHA-256 of A and of B, as {"a", "b"}: their elements, little-endian, row-major. None without exact."""
        if self.operands is None or self.c is None:
            return None
        return {name: _sha256(side.on_host().codes) for name, side in zip("ab", self.operands, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """The result without the arrays, as plain data ready for JSON."""
        names = (
            "device",
            "scheme",
            "options",
            "m",
            "n",
            "k",
            "seed",
            "schedule",
            "cycles",
            "seconds",
            "tflops",
            "peak_fraction",
            "phases",
            "error",
            "operands_sha256",
            "result_sha256",
            "engines",
            "folds",
            "macs",
            "traffic_bytes",
            "occupancy",
            "evidence",
            "warnings",
            "timing_note",
            "state",
            "refused",
            "hwsim_version",
            "kernel",
            "device_sha256",
        )
        parts = {name: getattr(self, name) for name in names}
        values = (
            None
            if self.values is None
            else [
                {"element": list(place), "steps": [step.to_dict() for step in steps], **self._exact(place)}
                for place, steps in self.values.items()
            ]
        )
        executed = None if self.executed is None else dict(self.executed)
        parts["schedule"] = self._shown_schedule()
        return {
            "schema": SCHEMA,
            **parts,
            **file_costs(self.times, self.gemm),
            "executed": executed,
            "values": values,
            "gemm": self.gemm.to_dict(),
            "verdict": self.verdict.to_dict(),
        }

    def _exact(self, place: tuple[int, ...]) -> dict[str, float | None]:
        """The exact values of an element, of A and B as given and as the unit takes them, as the nearest fp64."""
        exact = self.exact_values.get(place, ExactValue(None))
        values = {"exact": exact.as_stored, "exact_of_rounded": exact.as_multiplied}
        return {name: None if value is None else float(value) for name, value in values.items()}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text; numbers that JSON cannot hold (NaN, infinities) are null."""
        return json.dumps(plain(self.to_dict()), indent=indent, allow_nan=False)


def _sha256(array: NDArray[Any]) -> str:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return hashlib.sha256(little.tobytes()).hexdigest()


def plain(value: Any) -> Any:
    """The value with everything that JSON cannot hold replaced: NaN and infinities by None, keys by text, tuples by
    lists.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
