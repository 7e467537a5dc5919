"""Partition of a plan into kernels: all terms as accumulators of one kernel, or each a kernel that adds to C.

Independent of tiles: it says what each kernel multiplies, from which matrices, and what its epilogue does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from hwsim.dataflows.operand_passes import operand_vectors
from hwsim.dataflows.tiled.factors import Factors
from hwsim.dataflows.tiled.family import Family
from hwsim.dataflows.tiled.model import SIDES, GemmKernel, KernelOperand, MatrixRef, StoredPiece, TileEpilogue
from hwsim.dataflows.tiled.shared_tiles import has_shared_tiles
from hwsim.devices import instruction
from hwsim.formats import format_of
from hwsim.gemm.expressions import parts_of, scaled, sequential_form
from hwsim.gemm.layouts import K_MAJOR, StorageOrder
from hwsim.gemm.plan import SLICED, Depth, Expression, OperandSum, Piece, Plan, Side, TermValue
from hwsim.gemm.schedule import epilogue_format
from hwsim.numerics.sparsity import stored_bits
from hwsim.program.ir import GlobalArray

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel
    from hwsim.gemm.record import Gemm

WHOLE = 1 << 40  # a run of K that no matrix and no tile is as long as: all of a slice, in one
BIAS = "bias"  # the array of the bias, one row
UNIT_SUMS = {"fp64": "fp64", "int32": "int32"}  # in which a unit's own results are added; others: fp32


@dataclass(frozen=True, slots=True)
class KernelTerms:
    """The part of a plan that one kernel computes: its terms, their combination, and the C of the previous kernel.

    exponent: of C. order: which of value and C is the left operand of their sum. accumulates: C is read. final: alpha,
    beta and bias are applied. target: the matrix that it writes.
    """

    terms: tuple[int, ...]
    value: Expression
    exponent: int = 0
    order: Literal["value", "c"] = "value"
    accumulates: bool = False
    final: bool = True
    target: str = "C"


@dataclass(frozen=True, eq=False)
class Partition:
    """A record's plan as kernels of the matrix instruction `unit`.

    orders: storage of A and B (see hwsim.dataflows.tiled.storage). is_sliced: split-K, so that kernels store partial
    results and merge kernels apply the epilogue. adds_earlier: some tiles add a sum that another plan has left in C.
    is_in_ranges: stream-K will cut tiles, once their size is chosen.
    """

    gemm: Gemm
    device: Device
    family: Family
    unit: str
    orders: tuple[StorageOrder, StorageOrder]
    is_sliced: bool
    adds_earlier: bool = False
    is_in_ranges: bool = False

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        plan = self.gemm.plan
        assert isinstance(plan, Plan)
        return plan

    @cached_property
    def model(self) -> InstructionModel:
        """The matrix instruction."""
        return instruction(self.device, self.unit)

    @cached_property
    def output(self) -> MatrixRef:
        """The matrix of the result."""
        return MatrixRef("C", self.gemm.output)

    @cached_property
    def promotion_intervals(self) -> tuple[int | None, ...]:
        """For each term its promotion interval: None where the unit's chain is the term, WHOLE where terms join after
        all of a slice.
        """
        intervals: list[int | None] = []
        for term in self.plan.terms:
            run = self.gemm.schedule.promotion_k if term.k_group is None else term.k_group
            if run is None and self.plan.join == "group":
                run = WHOLE
            intervals.append(self.model.k if run == "instruction" else run)
        return tuple(intervals)

    def promotion_interval(self, longest: int) -> int:
        """The K that the unit accumulates from zero; longest: K of the longest slice."""
        return next((run for run in self.promotion_intervals if run not in (None, WHOLE)), None) or longest

    @property
    def is_exact(self) -> bool:
        """Whether passes of their own add up the terms and round once."""
        return self.plan.arithmetic == "exact"

    @cached_property
    def sums(self) -> str:
        """The format in which the lanes join terms: the plan's arithmetic, or the format of the unit's only product."""
        plan = self.plan
        if plan.arithmetic == "exact":  # terms are whole, and so their sums over slices of K are exact
            return UNIT_SUMS.get(self.model.d, "fp32")
        is_bare = self.is_single and plan.split == "round" and (plan.arithmetic, plan.output_format) == ("fp32", "fp32")
        return UNIT_SUMS.get(self.model.d, "fp32") if is_bare else plan.arithmetic

    @cached_property
    def end(self) -> str:
        """The format in which the lanes compute alpha, C and the bias."""
        return self.plan.output_format if self.is_exact else epilogue_format(self.sums, self.output.format)

    @cached_property
    def vectors(self) -> tuple[dict[str, GlobalArray], dict[str, GlobalArray]]:
        """For A and B, the arrays of one number for each row or column that the plan needs, by what they are."""
        problem = self.gemm.problem
        sides: tuple[tuple[Side, int, int], ...] = (
            ("a", problem.matrices * problem.m, problem.k),
            ("b", problem.matrices * problem.k, problem.n),
        )
        of_sides = [
            operand_vectors(self.plan, side, GlobalArray("", rows, cols, self.plan.input_format), problem.matrices)
            for side, rows, cols in sides
        ]
        return of_sides[0], of_sides[1]

    @cached_property
    def is_shared(self) -> bool:
        """Whether CTAs share the K of some tiles."""
        return self.is_in_ranges or has_shared_tiles(self.gemm.schedule)

    @cached_property
    def is_single(self) -> bool:
        """Whether the plan is one term."""
        return self.plan.is_one_term

    @property
    def is_plain(self) -> bool:
        """Whether the record's epilogue only rounds the sum to the result's format, to nearest even."""
        end, problem = self.gemm.epilogue, self.gemm.problem
        is_nearest = end.output_rounding == "RNE" or format_of(self.output.format).bits >= format_of(self.end).bits
        is_bare = end.alpha == 1 and not (problem.has_c and end.beta) and problem.bias is None
        return is_bare and is_nearest and not self.product_format

    # --- operands ----------------------------------------------------------------------------------------------

    @cached_property
    def splits(self) -> bool:
        """Whether the operands have to be split or rounded at all."""
        return not all(is_unsplit(self.plan, pieces) for pieces in (self.plan.a_pieces, self.plan.b_pieces))

    @cached_property
    def has_words(self) -> bool:
        """Whether the operands are 32-bit words of which the unit reads fewer bits: rounded in registers, not in a
        pass.
        """
        plan = self.plan
        pieces = (*plan.a_pieces, *plan.b_pieces)
        words = all(format_of(fmt).bits == 32 for fmt in (plan.input_format, *(piece.format for piece in pieces)))
        return words and len(plan.a_pieces) == len(plan.b_pieces) == 1 and not any(p.scale_exponent for p in pieces)

    @cached_property
    def converts_on_load(self) -> bool:
        """Whether the load converts the operands to the unit's format (TMA's TF32 type)."""
        if not self.has_words or self.plan.split != "round" or not self.splits:
            return False
        target = self.family.registers if self.family.through_registers else self.family.shared
        conversions = {f"{self.plan.input_format}.{p.format}" for p in (*self.plan.a_pieces, *self.plan.b_pieces)}
        links = (x for x in self.device.links.values() if (x.source, x.target) == ("GM", target))
        return any(conversions <= set(link.casts) for link in links)

    @cached_property
    def splits_in_kernel(self) -> bool:
        """Whether the GEMM kernel splits its operands itself."""
        in_kernel = self.plan.split == "round" and self.splits and not self.converts_on_load
        return in_kernel and (self.plan.split_in == "kernel" or self.has_words)

    def is_made(self, side: int) -> bool:
        """Whether a pass makes the pieces of A or B, so that their storage order is free."""
        rules = (self.plan.a_pieces, self.plan.b_pieces)[side]
        return not (self.splits_in_kernel or self.converts_on_load or is_unsplit(self.plan, rules))

    def loaded_order(self, side: int) -> StorageOrder:
        """The storage order of what the kernels load of A or B: the operand's own, unless the unit needs pieces
        K-major.
        """
        return K_MAJOR[side] if self.is_made(side) and takes_k_major(self.model) else self.orders[side]

    def used(self, side: int, terms: Sequence[int]) -> list[int]:
        """The pieces of A or B in products of these terms."""
        return sorted({pair[side] for t in terms for pair in self.plan.terms[t].products})

    def _operand(self, side: int, terms: Sequence[int]) -> KernelOperand:
        plan, order = self.plan, self.loaded_order(side)
        rules = (plan.a_pieces, plan.b_pieces)[side]
        raw = MatrixRef(SIDES[side], plan.input_format, order) if self.splits_in_kernel else None
        pieces = []
        for p in self.used(side, terms):
            stored = plan.input_format if self.converts_on_load else rules[p].format
            pieces.append(StoredPiece(p, MatrixRef(piece_name(side, p, rules), stored, order), rules[p].format))
        operand = KernelOperand(order, tuple(pieces), tuple(rules), raw, self.element_bits(side))
        scale = self.gemm.problem.operands[side].scale
        if scale is None or scale.kind != "vector" or scale.k is None:
            return operand
        matrix = MatrixRef(f"{SIDES[side]}.scale", scale.format)
        return replace(operand, scale=matrix, scale_k=scale.k)

    def factors(self, *, of_runs: bool) -> Factors | None:
        """The scales that the lanes multiply by: of runs of K, or of whole sums."""
        a, b = (operand.scale for operand in self.gemm.problem.operands)
        order = self.gemm.schedule.scale_order
        if a is None or b is None:
            return None
        if a.kind == "vector":
            is_asked = not of_runs and (a.is_two_level or b.is_two_level)
            return Factors("A.factor", "B.factor", order, (None, None)) if is_asked else None
        if (a.kind == "block") is not of_runs:
            return None
        return Factors("A.scale", "B.scale", order, (a.rows, b.rows), a.k)

    def element_bits(self, side: int) -> int:
        """Bits that an element of a sparse operand takes in memory; 0 of a dense one."""
        operand = self.gemm.problem.operands[side]
        rules = (self.plan.a_pieces, self.plan.b_pieces)[side]
        return 0 if operand.sparsity is None else stored_bits(rules[0].format)

    # --- kernels -----------------------------------------------------------------------------------------------

    @property
    def everything(self) -> tuple[int, ...]:
        """The part with all terms."""
        return tuple(range(len(self.plan.terms)))

    def preferred(self) -> list[KernelTerms]:
        """The parts by the plan's preference: one kernel of all terms, or one per term where the plan asks for
        calls.
        """
        plan = self.plan
        if not self.is_exact and (plan.join == "group" or len(plan.terms) == 1 or not plan.calls):
            return [KernelTerms(self.everything, plan.combine)]
        return self.apart()

    def apart(self) -> list[KernelTerms]:
        """One part per term: each kernel adds to C where the sum allows it, else writes a matrix of its own."""
        steps = None if self.is_exact else sequential_form(self.plan.combine)
        if steps is None:
            return [KernelTerms((t,), TermValue(0), final=False, target=f"T{t + 1}") for t in self.everything]
        return [
            KernelTerms(
                (step.term,),
                scaled(TermValue(0), step.term_exponent),
                step.exponent,
                "c" if step.order == "c" else "value",
                i > 0,
                i + 1 == len(steps),
            )
            for i, step in enumerate(steps)
        ]

    def of(self, terms: Sequence[Sequence[int]]) -> list[KernelTerms]:
        """The parts that compute these groups of terms, in order."""
        if not self.is_exact and len(terms) == 1 and len(terms[0]) == len(self.plan.terms):
            return [KernelTerms(self.everything, self.plan.combine)]
        return self.apart()

    def kernel(self, part: KernelTerms) -> GemmKernel:
        """The kernel that computes a part of the plan."""
        name = "gemm" if len(part.terms) == len(self.plan.terms) else f"gemm_{part.terms[0] + 1}"
        epilogue = self._partial(part, name) if self.is_sliced else self.epilogue(part)
        return GemmKernel(
            name=name,
            unit=self.unit,
            terms=tuple(self.plan.terms[t] for t in part.terms),
            promotion_intervals=tuple(self.promotion_intervals[t] for t in part.terms),
            a=self._operand(0, part.terms),
            b=self._operand(1, part.terms),
            epilogue=epilogue,
            joined=self.plan.join == "group",
            workspace=MatrixRef(f"{name}.workspace", self.model.d) if self.is_shared else None,
            factors=self.factors(of_runs=True),
            rest_first_of=self.gemm.schedule.tile_k,
        )

    def kernels(self, parts: Sequence[KernelTerms]) -> list[GemmKernel]:
        """The kernels of several parts."""
        return [self.kernel(part) for part in parts]

    def epilogue(self, part: KernelTerms) -> TileEpilogue:
        """The epilogue of a part, in its own kernel or after the merge of its slices."""
        problem, end = self.gemm.problem, self.gemm.epilogue
        target = self.output if part.final else self.sum_between
        if part.target != "C":
            target = MatrixRef(part.target, self._stored(part.terms, is_merged=self.is_sliced))
        c, beta, alpha, bias, row = None, 0.0, 1.0, False, ""
        previous, scale = None, 1.0
        if part.accumulates:
            previous, scale = self.sum_between, 2.0**part.exponent
        if part.final:
            alpha, bias = end.alpha, problem.bias is not None
            row = BIAS if bias else ""
            if problem.has_c and end.beta:
                c, beta = MatrixRef("C.in", self.output.format), end.beta
        return TileEpilogue(
            part.value,
            target,
            alpha=alpha,
            beta=beta,
            c=c,
            bias=bias,
            bias_row=row,
            fused=self._fused(alpha, beta, is_merged=self.is_sliced) if c is not None else "",
            fused_shared=self._fused(alpha, beta, is_merged=True) if c is not None else "",
            product_format=self.product_format if part.final else "",
            rounding=end.output_rounding if part.final else "RNE",
            join_format=self.sums,
            format=self.end if part.final else self.sums,
            previous=previous,
            scale=scale,
            order=part.order,
            earlier=self.output if part.final and self.adds_earlier else None,
            extra=self._extra(part.value),
            powers=self._powers if part.final else None,
            factors=self.factors(of_runs=False) if part.final else None,
        )

    def _stored(self, terms: Sequence[int], *, is_merged: bool) -> str:
        """The format of sums that are stored for another kernel: the unit's own, unless the lanes have added."""
        is_added = is_merged or any(self.promotion_intervals[t] is not None for t in terms)
        return self.sums if is_added else self.model.d

    def _extra(self, value: Expression) -> tuple[tuple[Expression, str | float], ...]:
        """The arrays and numbers in a sum besides its terms."""
        extra: list[tuple[Expression, str | float]] = []
        for part in parts_of(value):
            if isinstance(part, OperandSum):
                extra.append((part, self.vectors[part.side == "b"]["sum"].name))
            elif isinstance(part, Depth):
                extra.append((part, float(part.factor * self.gemm.problem.k)))
        return tuple(extra)

    @property
    def _powers(self) -> tuple[str, str] | None:
        if self.plan.split not in SLICED:
            return None
        a, b = self.vectors
        return a["exponent"].name, b["exponent"].name

    @property
    def sum_between(self) -> MatrixRef:
        """The matrix by which a kernel hands its sum to the next one: C, where it has the sums' format and is free."""
        return (
            self.output if self.output.format == self.sums and not self.adds_earlier else MatrixRef("C.sum", self.sums)
        )

    @property
    def product_format(self) -> str:
        """The format to which alpha times the sum is rounded, where that is narrower than the sums."""
        wanted, end = self.gemm.epilogue.product_format, format_of(self.end)
        return wanted if wanted is not None and not end.is_integer and format_of(wanted).bits < end.bits else ""

    def _fused(self, alpha: float, beta: float, *, is_merged: bool) -> Literal["", "alpha", "beta"]:
        """The multiplication that is one instruction with the addition of C (as gemm.schedule.Epilogue says).

        is_merged: the sum is one of several parts of K.
        """
        end = self.gemm.epilogue
        if end.product_format is not None:
            return ""
        contraction = end.contraction or ("beta" if is_merged else "alpha")
        if contraction == "alpha":
            return "alpha" if alpha != 1 else ""
        return "beta" if contraction == "beta" and beta != 1 else ""

    def _partial(self, part: KernelTerms, name: str) -> TileEpilogue:
        """The matrix of partial results of slices, for a merge kernel."""
        is_joined = self.plan.join == "group"
        count = 1 if is_joined else len(part.terms)
        partial = tuple(
            MatrixRef(f"{name}.partial{i + 1}", self._stored((t,), is_merged=is_joined))
            for i, t in enumerate(part.terms[:count])
        )
        return TileEpilogue(
            part.value if is_joined else None,
            partial[0],
            partial=partial,
            join_format=self.sums,
            format=self.sums,
        )


def takes_k_major(unit: InstructionModel) -> bool:
    """Whether the instruction's operands have to be stored K-major, because no rate is known for another layout."""
    return unit.k_major_only and not (unit.timing is not None and unit.timing.mn_major_macs_per_cycle)


def is_unsplit(plan: Plan, pieces: Sequence[Piece]) -> bool:
    """Whether an operand is its single piece."""
    return len(pieces) == 1 and pieces[0].format == plan.input_format and not pieces[0].scale_exponent


def piece_name(side: int, p: int, pieces: Sequence[Piece]) -> str:
    """The name of the matrix of a piece of A or B."""
    return SIDES[side] if len(pieces) == 1 else f"{SIDES[side]}{p + 1}"
