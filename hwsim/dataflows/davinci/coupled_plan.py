"""Requirements of a plan on a coupled DaVinci core: operand format, accumulators in L0C, pieces of A in L1, scratch in
UB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiling
from hwsim.dataflows.elementwise import bytes_of
from hwsim.dataflows.expression_ops import depth
from hwsim.dataflows.records import plan_of
from hwsim.devices import dot_spec, instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import WORD_BITS, format_of
from hwsim.gemm.expressions import parts_of
from hwsim.gemm.plan import Expression, OperandSum, Plan, Stage, TermValue
from hwsim.host.multiples import round_up
from hwsim.numerics.units import IntegerUnit

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel
    from hwsim.gemm.record import Gemm

C_BYTES = 4  # of an element of C in L0C
CONVERTED_BYTES = 4  # of an element of A between the steps of its split, fp32


PieceProduct = tuple[int, int, int]  # slot of L0C, piece of A, piece of B


@dataclass(frozen=True, slots=True)
class OperandSweep:
    """One pass over the operands, with the terms that are accumulated at the same time.

    stages: run one after another over a group of blocks of A. alternates: the products of a stage take turns,
    instruction by instruction. leaves_each: the cube's sum is added to C after the K of every instruction. value: of
    the terms, which is added to C.
    """

    terms: tuple[int, ...]
    stages: tuple[tuple[PieceProduct, ...], ...]
    alternates: bool
    leaves_each: bool
    value: Expression

    @property
    def a_pieces(self) -> list[int]:
        """The pieces of A that stay in L1."""
        return sorted({a for stage in self.stages for _, a, _ in stage})

    @property
    def is_in_parts(self) -> bool:
        """Whether a block of K is multiplied in parts of the K of one instruction."""
        return self.alternates or self.leaves_each

    def at_once(self, side: int) -> int:
        """The number of pieces of A (0) or B (1) in L0 at the same time."""
        return max(len({product[1 + side] for product in stage}) for stage in self.stages) if self.alternates else 1


@dataclass(frozen=True, slots=True)
class CoupledPlan:
    """The requirements of one plan on one coupled core.

    operand: format of all pieces. unit: the matrix instruction. sum_format: of its results. depth: K of an instruction.
    total_format: in which these are added up outside the cube. limits: of the device, for `operand`. k_sweeps: passes
    over the operands, in order.
    """

    plan: Plan
    operand: str
    unit: str
    sum_format: str
    total_format: str
    depth: int
    limits: Limits
    k_sweeps: tuple[OperandSweep, ...]

    @classmethod
    def of(cls, gemm: Gemm, unit: str, device: Device) -> CoupledPlan:
        """The requirements of a record's plan with the instruction `unit`. Raises UnsupportedError for a plan that the
        core does not support.
        """
        plan = plan_of(gemm)
        formats = {p.format for p in (*plan.a_pieces, *plan.b_pieces)}
        if len(formats) > 1:
            raise UnsupportedError(f"the davinci dataflow takes one operand format, the plan has {sorted(formats)}")
        model, operand = instruction(device, unit), plan.a_pieces[0].format
        sum_format, sweeps = model.d, _sweeps(plan)
        join = sum_format if plan.arithmetic == "exact" else plan.arithmetic
        if plan.join == "group" and not sum_format == join == "fp32":
            raise UnsupportedError("the davinci dataflow joins terms step by step in fp32 only")
        is_total_exact = gemm.schedule.promotion_k is None and _adds_without_rounding(gemm, model, device)
        at_once = max(sweep.at_once(0) for sweep in sweeps), max(sweep.at_once(1) for sweep in sweeps)
        return cls(
            plan=plan,
            operand=operand,
            unit=unit,
            sum_format=sum_format,
            total_format=sum_format if is_total_exact else join,
            depth=model.k,
            limits=Limits.of(device, bytes_of(operand), at_once),
            k_sweeps=sweeps,
        )

    @property
    def is_single(self) -> bool:
        """Whether C is the value of the plan's only term."""
        return self.plan.is_one_term

    @property
    def join_format(self) -> str:
        """The format in which terms join: where their sum is exact, in which the runs of each are added."""
        return self.sum_format if self.is_exact else self.plan.arithmetic

    @property
    def is_exact(self) -> bool:
        """Whether the sum of the terms is rounded once."""
        return self.plan.arithmetic == "exact"

    @property
    def hides_groups(self) -> bool:
        """Whether no bit says after which K sums leave the cube, though terms join in another format than its own."""
        return self.total_format == self.sum_format != self.join_format

    @property
    def is_joined(self) -> bool:
        """Whether the terms are combined in UB after every `k_group`, instead of by a kernel after all of K."""
        return self.plan.join == "group"

    @property
    def accumulators(self) -> int:
        """Number of blocks of C in L0C."""
        return len(self.plan.terms) if self.is_joined else 1

    def at_once(self, side: int) -> int:
        """The largest number of pieces of A (0) or B (1) in L0 at the same time."""
        return max(sweep.at_once(side) for sweep in self.k_sweeps)

    @property
    def used_pieces(self) -> tuple[int, int]:
        """The number of pieces of A and of B."""
        pairs = [product for term in self.plan.terms for product in term.products]
        return len({a for a, _ in pairs}), len({b for _, b in pairs})

    @property
    def resident(self) -> int:
        """The largest number of pieces of A in L1 at a time."""
        return max(len(sweep.a_pieces) for sweep in self.k_sweeps)

    @property
    def scratch_formats(self) -> tuple[str, ...]:
        """The formats of the scratch blocks in UB besides that of C: for the accumulators read from L0C, and for
        combinations.
        """
        if self.is_joined:
            return (self.sum_format,) * (len(self.plan.terms) + depth(self.plan.combine) + 1)
        return (self.sum_format,) if self.total_format == self.sum_format else (self.sum_format, self.total_format)

    @property
    def total_bytes(self) -> int:
        """Bytes of an element of C in UB."""
        return bytes_of(self.total_format)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all scratch blocks, per element."""
        return sum(map(bytes_of, self.scratch_formats))

    def scratch_rows(self, tiling: Tiling, device: Device, reserved: int = 0) -> int:
        """Rows of a block of C per chunk in UB. reserved: bytes of UB that the conversion of A takes.

        Raises InputError where not even one fractal of rows fits.
        """
        limits = self.limits
        c_bytes = slot_bytes(device, "UB", tiling.b_m * tiling.b_n, self.total_bytes)
        room = (limits.ub_bytes - c_bytes - reserved) // (self.scratch_bytes * tiling.b_n)
        rows = min(tiling.b_m, room // limits.rows * limits.rows)
        if rows < limits.rows:
            converted = f" and the conversion of A ({reserved} bytes)" if reserved else ""
            raise InputError(
                f"tile {tiling.tile}: UB ({limits.ub_bytes} bytes) has no room for {len(self.scratch_formats)} scratch "
                f"blocks of {limits.rows} x {tiling.b_n} "
                f"beside the block of C ({c_bytes} bytes){converted}; take a smaller b_m or b_n"
            )
        return rows

    @property
    def conversion_temporaries(self) -> int:
        """FP32 tiles that the split of a block of A needs: residual, a piece cast back, and a piece not stored."""
        pieces = self.plan.a_pieces
        if len(pieces) == 1 and not pieces[0].scale_exponent:
            return 0
        is_skipped = any(i not in sweep.a_pieces for sweep in self.k_sweeps for i in range(max(sweep.a_pieces)))
        return 3 if is_skipped else 2

    def conversion_bytes(self, tiling: Tiling) -> int:
        """Bytes of UB per element of A under conversion: source and pieces in each buffer, and temporaries."""
        moved = bytes_of(self.plan.input_format) + self.resident * bytes_of(self.operand)
        return tiling.buffers * moved + self.conversion_temporaries * CONVERTED_BYTES

    def conversion_rows(self, tiling: Tiling, device: Device) -> int:
        """Rows of a block of A that are converted at a time: up to half of UB beside the block of C, at least a
        fractal.
        """
        c_bytes = slot_bytes(device, "UB", tiling.b_m * tiling.b_n, self.total_bytes)
        room = (self.limits.ub_bytes - c_bytes) // 2 // (self.conversion_bytes(tiling) * tiling.b_k)
        return max(self.limits.rows, min(tiling.b_m, room // self.limits.rows * self.limits.rows))

    def conversion_room(self, tiling: Tiling, device: Device) -> int:
        """Bytes of UB that the conversion of A takes."""
        return self.conversion_rows(tiling, device) * tiling.b_k * self.conversion_bytes(tiling)

    def check_conversion(self) -> None:
        """Raise InputError where blocks of A cannot be converted in the GEMM kernel."""
        plan = self.plan
        bits, first = format_of(plan.input_format).bits, plan.a_pieces[0]
        is_whole = len(plan.a_pieces) == 1 and first.format == plan.input_format and not first.scale_exponent
        is_summed = any(isinstance(part, OperandSum) and part.side == "a" for part in parts_of(plan.combine))
        if is_whole or is_summed or plan.split != "round" or bits > WORD_BITS:
            why = "A needs no conversion" if is_whole else "A is not split by rounding fp32 alone"
            raise InputError(f"convert_a = kernel: {why}; leave it out")


def slot_bytes(device: Device, memory: str, elements: int, element_bytes: int) -> int:
    """Bytes of a slot for this number of elements, aligned as the memory requires."""
    align = device.memories[memory].align_bytes
    return round_up(elements * element_bytes, align)


def _adds_without_rounding(gemm: Gemm, model: InstructionModel, device: Device) -> bool:
    """Whether the sums that the cube accumulates from zero add up outside it, in their own format, to what it would
    accumulate over all of K: integers that wrap, or slices whose sums all have exact values.
    """
    plan, result = plan_of(gemm), format_of(model.d)
    unit = dot_spec(device, gemm.unit).unit
    if isinstance(unit, IntegerUnit):
        return unit.overflow == "wrap"
    if plan.split != "slices" or result.is_integer:
        return False
    return 2 * plan.slice_bits + (gemm.problem.k - 1).bit_length() <= result.fraction_bits + 1


def _sweeps(plan: Plan) -> tuple[OperandSweep, ...]:
    """The sweeps of a plan, in order: one of all terms where these join after every `k_group`, else one of each term.

    Raises UnsupportedError for what the kernel does not add up.
    """
    if plan.join == "group":
        if any(len(term.products) > 1 or term.k_group is not None for term in plan.terms):
            raise UnsupportedError(
                "the davinci dataflow joins terms after every k_group where each is one product; join them at the end"
            )
        products = [(slot, *product) for slot, term in enumerate(plan.terms) for product in term.products]
        by_b = tuple(sorted(products, key=lambda product: product[2]))  # those that share a piece of B in turn
        return (OperandSweep(tuple(range(len(plan.terms))), (by_b,), False, False, plan.combine),)
    sweeps = []
    for number, term in enumerate(plan.terms):
        if isinstance(term.k_group, int):
            raise UnsupportedError(
                f"the davinci dataflow adds term {number + 1} to C after the plan's k_group, not after {term.k_group}"
            )
        leaves_each = term.k_group == "instruction"
        if leaves_each and len(term.stages) > 1:
            raise UnsupportedError("the davinci dataflow adds terms of one stage to C after every instruction")
        stages = tuple(_products(stage) for stage in term.stages)
        alternates = any(len(stage) > 1 for stage in stages)
        sweeps.append(OperandSweep((number,), stages, alternates, leaves_each, TermValue(0)))
    return tuple(sweeps)


def _products(stage: Stage) -> tuple[PieceProduct, ...]:
    return tuple((0, a, b) for a, b in stage.products)
