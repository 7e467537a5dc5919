"""The design of a kernel, derived from its blocking and the device: memories of operands, promotion, step sizes.

It is computed before any buffer or instruction, so that the parts of a kernel can refuse a blocking without writing a
program. It refuses nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import vector_of
from hwsim.dataflows.expression_ops import depth
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.tiled.family import Family
from hwsim.dataflows.tiled.model import Blocking, GemmKernel
from hwsim.devices import instruction
from hwsim.formats import format_of
from hwsim.gemm.expressions import JoinStep, sequential_form
from hwsim.gemm.layouts import K_MAJOR
from hwsim.gemm.plan import Piece, TermValue

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel

CHUNK_BYTES = 8192  # of C that the epilogue has in hand at a time, in whole rows, at least CHUNK_ROWS
CHUNK_ROWS = 16
PART_ROWS = 64  # rows of C of one short run's accumulator: what one warp group's instruction gives
FRAGMENT_BYTES = 32  # of K per row that a fragment holds, unless an instruction takes more

SHORT_SUMS = 2  # accumulators of runs of K that are added to sums: one fills while one is read


@dataclass(frozen=True, eq=False)
class KernelDesign:
    """One kernel with one blocking on one device; `parts.designed` makes it, where the two fit together."""

    device: Device
    family: Family
    kernel: GemmKernel
    blocking: Blocking

    # --- the matrix instruction --------------------------------------------------------------------------------

    @cached_property
    def instructions(self) -> Instructions:
        """The device's instructions."""
        return Instructions(self.device)

    @cached_property
    def unit_name(self) -> str:
        """The full name of the instruction for whole tiles."""
        b = self.blocking
        sides = (b.m, b.n) if self.family.staged else b.warp
        return self.instructions.fitted(self.kernel.unit, *self.of_unit(*sides), b.cores)

    def of_unit(self, rows: int, cols: int) -> tuple[int, int]:
        """The instruction's rows and columns of a part of C."""
        return (cols, rows) if self.blocking.swapped else (rows, cols)

    @cached_property
    def unit(self) -> InstructionModel:
        """The instruction for whole tiles."""
        return instruction(self.device, self.unit_name)

    @cached_property
    def on_vector(self) -> bool:
        """Whether the instruction runs on the vector engine, so that products share the lanes with elementwise work."""
        return self.unit.engine == self.vector

    @cached_property
    def vector(self) -> str:
        """The name of the vector engine."""
        return vector_of(self.device).engine

    def instruction_of(self, a: str, b: str, rows: int, cols: int) -> str:
        """The instruction for operands of these formats and rows x cols of C."""
        unit_name = self.kernel.unit
        name = unit_name if (a, b) == (self.unit.a, self.unit.b) else self.instructions.of(unit_name, a, b)
        if not self.family.staged:
            rows, cols = min(rows, self.blocking.warp[0]), min(cols, self.blocking.warp[1])
        return self.instructions.fitted(name, *self.of_unit(rows, cols), self.blocking.cores)

    # --- operands ----------------------------------------------------------------------------------------------

    @cached_property
    def places(self) -> tuple[str, str]:
        """The memories from which the unit reads A and B: registers for an A split in the kernel, shared memory where
        possible.
        """
        return self._place(0), self._place(1)

    def _place(self, side: int) -> str:
        family, allowed = self.family, self.unit.places(1 - side if self.blocking.swapped else side)
        if not allowed or not family.staged:
            return family.registers
        if side == 0 and self.kernel.splits_operands and family.registers in allowed:
            return family.registers
        return family.shared if family.shared in allowed else allowed[0]

    @cached_property
    def copies_scales(self) -> bool:
        """Whether the instruction reads scales of vectors from another memory than the stages."""
        has_scales = any(operand.scale is not None for operand in self.kernel.operands)
        return has_scales and self.scale_memory != self.family.shared

    @property
    def scale_memory(self) -> str:
        """The memory from which the instruction reads scales of vectors."""
        return self.unit.scale_memory or self.family.shared

    @cached_property
    def reads_fragments(self) -> bool:
        """Whether operand fragments are copied from shared memory to registers (ldmatrix)."""
        splits_stages = self.kernel.splits_operands and not self.family.through_registers
        return self.places[0] == self.family.registers and not splits_stages and self.family.staged

    def fragment_copies(self, side: int) -> int:
        """How many warps of a CTA hold a fragment of A or B."""
        b = self.blocking
        return -(-b.n // b.warp[1]) if side == 0 else -(-b.m // b.warp[0])

    @cached_property
    def repeats_fragments(self) -> bool:
        """Whether each warp splits its fragments itself, even where warps share them."""
        registers = self.family.registers
        fed = not self.family.through_registers or not self.family.staged
        return self.places == (registers, registers) and fed

    @cached_property
    def step_k(self) -> int:
        """K of one fragment: a multiple of the instruction's K and of promotion intervals; all of a stage where
        operands are not copied.
        """
        block = self.blocking.k
        if self.places[0] != self.family.registers:
            return block
        bits, unit_k = format_of(self.unit.a).bits, self.unit.k
        step = max(unit_k, FRAGMENT_BYTES * 8 // bits // unit_k * unit_k)
        for run, short in zip(self.kernel.promotion_intervals, self.promotes_in_block, strict=True):
            if short and run is not None:
                step = max(step, run) // run * run
        for length in self.kernel.interleaves:
            step = max(step, length) // length * length
        return min(step, block)

    @cached_property
    def rounding_on_load(self) -> tuple[Piece | None, Piece | None]:
        """For A and B, the piece to which the load itself converts the operand; None: a plain copy."""
        rules: list[Piece | None] = []
        for operand in self.kernel.operands:
            rounded = [x for x in operand.pieces if operand.raw is None and x.matrix.format != x.format]
            rules.append(operand.rules[rounded[-1].number] if rounded else None)
        return rules[0], rules[1]

    @cached_property
    def needs_transpose(self) -> bool:
        """Whether the instruction needs K-major operands and A or B is MN-major."""
        return needs_transpose(self.unit, self.kernel)

    @property
    def is_serial(self) -> bool:
        """Whether a block of K is loaded only after the products of the previous one: one stage, no pipeline.

        A kernel's only barrier is then after the products, in program order, and nothing is read ahead into registers.
        """
        return self.blocking.stages == 1

    def extent(self, side: int, k: int) -> int:
        """Number of elements in K = k of the tile's rows of A or columns of B."""
        return k * (self.blocking.m if side == 0 else self.blocking.n)

    def spread(self, side: int) -> int:
        """Number of cores whose shared memories together hold a stage of A or B."""
        return self.blocking.cores if side == 1 else 1

    # --- accumulators and sums ---------------------------------------------------------------------------------

    @property
    def accumulator(self) -> str:
        """The format of accumulators."""
        return self.unit.d

    @cached_property
    def c_memory(self) -> str:
        """The memory of accumulators: registers or TMEM."""
        places = self.unit.places(2)
        return places[0] if places else self.family.registers

    @cached_property
    def in_registers(self) -> bool:
        """Whether accumulators are in registers."""
        return self.c_memory == self.family.registers

    @cached_property
    def promotes_in_block(self) -> tuple[bool, ...]:
        """For each term, whether it is promoted within a block of K (its promotion interval is at most the
        block's K).
        """
        return tuple(run is not None and run <= self.blocking.k for run in self.kernel.promotion_intervals)

    @cached_property
    def promoted(self) -> tuple[bool, ...]:
        """For each term, whether it is promoted at all."""
        return tuple(run is not None for run in self.kernel.promotion_intervals)

    @cached_property
    def chained(self) -> tuple[int, ...]:
        """Terms that accumulate over all of K."""
        return tuple(t for t, promoted in enumerate(self.promoted) if not promoted)

    @cached_property
    def terms_across_blocks(self) -> tuple[int, ...]:
        """The terms whose promotion interval spans several blocks of K."""
        return tuple(
            t
            for t, run in enumerate(self.kernel.promotion_intervals)
            if run is not None and not self.promotes_in_block[t]
        )

    @cached_property
    def run_across_blocks(self) -> int | None:
        """The promotion interval of those terms, or None."""
        return self.kernel.promotion_intervals[self.terms_across_blocks[0]] if self.terms_across_blocks else None

    @cached_property
    def k_sweeps(self) -> int:
        """The number of sweeps over a run of K, for terms with several stages in sequence."""
        terms = zip(self.kernel.terms, self.promotes_in_block, strict=True)
        return max((len(term.stages) for term, short in terms if not short), default=1)

    @cached_property
    def sequential_joins(self) -> tuple[JoinStep, ...]:
        """The steps by which terms are joined one after another through one accumulator, where the plan allows it; else
        empty.
        """
        kernel = self.kernel
        value = kernel.epilogue.value
        if not kernel.joined or not all(self.promotes_in_block) or value is None:
            return ()
        if self.converts:
            return ()
        turns = sequential_form(value)
        if turns is None or not all(x.exponent <= 0 and (i == 0 or not x.term_exponent) for i, x in enumerate(turns)):
            return ()
        return tuple(_scaled_later(turns))

    @cached_property
    def part_rows(self) -> int:
        """Rows of C per accumulator of a term promoted within a block."""
        return min(PART_ROWS, self.blocking.m) if self.in_registers and not self.kernel.joined else self.blocking.m

    # --- the epilogue ------------------------------------------------------------------------------------------

    @cached_property
    def chunk_rows(self) -> int:
        """Rows of C that the epilogue processes at a time."""
        row_bits = self.blocking.n * format_of(self.kernel.epilogue.target.format).bits
        return min(max(CHUNK_BYTES * 8 // row_bits, CHUNK_ROWS), self.blocking.m)

    @cached_property
    def stores_accumulators(self) -> bool:
        """Whether the epilogue is a plain store of accumulators, with nothing elementwise."""
        end = self.kernel.epilogue
        untouched = end.alpha == 1 and not end.addends and not end.bias and not any(self.promoted)
        untouched = untouched and not end.powers and end.factors is None
        return (
            not end.product_format
            and untouched
            and (end.value is None or (isinstance(end.value, TermValue) and end.target.format == self.accumulator))
        )

    @property
    def out_format(self) -> str:
        """The format in which the elementwise lanes write the result."""
        return self.kernel.epilogue.target.format

    @property
    def sum_format(self) -> str:
        """The format of sums outside the unit."""
        return self.kernel.epilogue.join_format

    @property
    def converts(self) -> bool:
        """Whether the lanes convert accumulators before they add them."""
        return self.sum_format != self.accumulator

    @cached_property
    def epilogue_scratch(self) -> tuple[str, ...]:
        """The formats of the epilogue's scratch tiles: two in which alpha, C and the bias are applied, two in which
        terms join where that is another format, those that the sum of the terms takes, one in which alpha times the sum
        is rounded.
        """
        end = self.kernel.epilogue
        converts = self.converts and not all(self.promoted)
        needed = 0 if end.value is None or self.kernel.joined else depth(end.value, converts)
        is_apart = end.value is not None and end.join_format != end.format
        is_changed = end.addends or end.alpha != 1 or end.target.format != end.format or end.product_format
        if is_changed or needed or end.powers or end.factors is not None or is_apart:
            rounded = (end.format,) if end.product_format else ()
            return (end.format,) * 2 + (end.join_format,) * (2 * is_apart + needed) + rounded
        return ()

    @property
    def waits_for_tile(self) -> bool:
        """Whether a CTA begins only when the previous one has stored its tile."""
        return not self.family.persistent and self.blocking.accumulators == 1


def _scaled_later(turns: list[JoinStep]) -> list[JoinStep]:
    """The same sum with the first value scaled within the second addition, which costs nothing there."""
    first, *rest = turns
    if not rest or first.term_exponent > 0 or rest[0].exponent:
        return turns
    return [replace(first, term_exponent=0), replace(rest[0], exponent=first.term_exponent), *rest[1:]]


def needs_transpose(unit: InstructionModel, kernel: GemmKernel) -> bool:
    """Whether the instruction needs K-major operands and A or B of the kernel is MN-major."""
    return unit.k_major_only and not kernel.splits_operands and (kernel.a.order, kernel.b.order) != K_MAJOR
