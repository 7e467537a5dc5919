"""A resolved request: the record that fixes the bits, its evaluator, and the program that gives the cycles.

It knows records, the evaluator and programs; it knows nothing of how a request is resolved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hwsim.backend.cpu import CPU
from hwsim.backend.operations import Backend
from hwsim.dataflows.registry import dataflow
from hwsim.devices import instruction
from hwsim.devices.device import Device
from hwsim.evaluate.product import Evaluator
from hwsim.gemm.record import Gemm
from hwsim.program.executed import by_opcode
from hwsim.program.ir import Program
from hwsim.resolve.mapping_choice import facts_of, has_stack_programs

NOT_ASKED = "not asked for"


@dataclass(frozen=True, eq=False)
class Resolved:
    """A record with its evaluator, made once, and its checked program.

    options: as a result shows them. refused: {choice: reason} for the choices that the scheme left to the device.
    no_program: the reason why there is no program; empty where there is one. in_order: where no program carries the
    record's order of summation, the record with each slice of K in order, whose program gives the cycles. backend:
    computes the bits.
    """

    gemm: Gemm
    device: Device
    options: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    program: Program | None = None
    no_program: str = ""
    in_order: Resolved | None = None
    backend: Backend = CPU

    @cached_property
    def evaluator(self) -> Evaluator:
        """The direct evaluator of the record."""
        return Evaluator(self.gemm, self.device, self.backend)

    @property
    def timed(self) -> Resolved:
        """The record whose program gives the cycles."""
        return self.in_order or self

    @property
    def has_stack_program(self) -> bool:
        """Whether one program computes all matrices of a batch."""
        return (
            bool(self.gemm.problem.lead)
            and not self.no_program
            and has_stack_programs(self.gemm, dataflow(self.device))
        )

    @property
    def executed(self) -> dict[str, int]:
        """How many instructions the program's execution takes, by opcode, for all matrices of a stack."""
        assert self.program is not None
        times = 1 if self.has_stack_program else math.prod(self.gemm.problem.lead)
        return {opcode: times * count for opcode, count in by_opcode(self.program).items()}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The mapping and the order of summation as a result's `options` show them."""
        if self.gemm.mapping is not None:
            return facts_of(self.gemm, self.device)
        return {"k_group": accumulated_k(self.gemm, self.device), "unit": self.gemm.unit}


def accumulated_k(gemm: Gemm, device: Device) -> int:
    """The length of K that the unit accumulates from zero (at most K = k)."""
    groups = {term.k_group for term in gemm.single.terms}
    of_terms = groups.pop() if len(groups) == 1 else None
    if of_terms == "instruction":
        of_terms = instruction(device, gemm.unit).k
    k = gemm.problem.k
    return int(of_terms or gemm.schedule.promotion_k or max(gemm.schedule.slice_lengths(k)))
