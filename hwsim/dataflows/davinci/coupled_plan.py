"""Requirements of a plan on a coupled DaVinci core: operand format, accumulators in L0C, pieces of A in L1, scratch in
UB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiling
from hwsim.dataflows.elementwise import bytes_of, depth
from hwsim.dataflows.expressions import has_integer_parts, operations
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import Plan, TermValue

if TYPE_CHECKING:
    from hwsim.devices.device import Device

C_BYTES = 4  # of an element of C in L0C and UB


@dataclass(frozen=True, slots=True)
class CoupledPlan:
    """The requirements of one plan on one coupled core.

    operand: format of all pieces. unit: the matrix instruction. sum_format: of its results. limits: of the device, for
    `operand`. placeholder_ops: vector operations per element that stand for a combination which the vector unit's fp32
    cannot compute; 0 where it can.
    """

    plan: Plan
    operand: str
    unit: str
    sum_format: str
    limits: Limits
    placeholder_ops: int

    @classmethod
    def of(cls, plan: Plan, unit: str, device: Device) -> CoupledPlan:
        """The requirements of a plan with the instruction `unit`. Raises UnsupportedError for a plan that the core does
        not support.
        """
        formats = {p.format for p in (*plan.a_pieces, *plan.b_pieces)}
        if len(formats) > 1:
            raise UnsupportedError(f"the davinci dataflow takes one operand format, the plan has {sorted(formats)}")
        if any(len(term.products) > 1 for term in plan.terms):
            raise UnsupportedError("the davinci dataflow takes one product of pieces per term, not a chain of several")
        if any(term.k_group is not None for term in plan.terms):
            raise UnsupportedError("the davinci dataflow adds all terms up after one length of K, the plan's k_group")
        sum_format, operand = instruction(device, unit).d, plan.a_pieces[0].format
        is_fp32 = sum_format == "fp32" and plan.arithmetic == "fp32" and not has_integer_parts(plan.combine)
        if plan.join == "group" and not is_fp32:
            raise UnsupportedError("the davinci dataflow joins terms step by step in fp32 only")
        is_formed = is_fp32 or _is_single(plan)
        limits = Limits.of(device, bytes_of(operand))
        return cls(plan, operand, unit, sum_format, limits, 0 if is_formed else operations(plan.combine))

    @property
    def is_single(self) -> bool:
        """Whether C is the value of the plan's only term."""
        return _is_single(self.plan)

    @property
    def is_joined(self) -> bool:
        """Whether the terms are combined in UB after every `k_group`, instead of by a kernel after all of K."""
        return self.plan.join == "group"

    @property
    def accumulators(self) -> int:
        """Number of blocks of C in L0C."""
        return len(self.plan.terms) if self.is_joined else 1

    @property
    def k_sweeps(self) -> list[list[int]]:
        """The terms of each sweep over the operands, in order; terms of one sweep are accumulated at the same time."""
        terms = range(len(self.plan.terms))
        return [list(terms)] if self.is_joined else [[term] for term in terms]

    def a_pieces(self, terms: list[int]) -> list[int]:
        """The pieces of A that stay in L1 during a sweep."""
        return sorted({a for term in terms for a, _ in self.plan.terms[term].products})

    @property
    def resident(self) -> int:
        """The largest number of pieces of A in L1 at a time."""
        return max(len(self.a_pieces(terms)) for terms in self.k_sweeps)

    @property
    def scratch_blocks(self) -> int:
        """Scratch blocks in UB besides that of C: for the accumulators read from L0C, and for combinations."""
        return len(self.plan.terms) + depth(self.plan.combine) + 1 if self.is_joined else 1

    def scratch_rows(self, tiling: Tiling, device: Device) -> int:
        """Rows of a block of C per chunk in UB. Raises InputError where not even one fits."""
        limits, needed = self.limits, self.scratch_blocks
        c_bytes = slot_bytes(device, "UB", tiling.b_m * tiling.b_n, C_BYTES)
        room = (limits.ub_bytes - c_bytes) // (needed * tiling.b_n * C_BYTES)
        rows = min(tiling.b_m, room // limits.rows * limits.rows)
        if rows < limits.rows:
            raise InputError(
                f"tile {tiling.tile}: UB ({limits.ub_bytes} bytes) has no room for {needed} scratch blocks "
                f"of {limits.rows} x {tiling.b_n} "
                f"beside the block of C ({c_bytes} bytes); take a smaller b_m or b_n"
            )
        return rows


def slot_bytes(device: Device, memory: str, elements: int, element_bytes: int) -> int:
    """Bytes of a slot for this number of elements, aligned as the memory requires."""
    align = device.memories[memory].align_bytes
    return -(-elements * element_bytes // align) * align


def _is_single(plan: Plan) -> bool:
    return isinstance(plan.combine, TermValue) and len(plan.terms) == 1
