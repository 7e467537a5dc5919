"""Operands in global memory: the array that the caller fills, its pieces, and the passes that make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import Pass
from hwsim.dataflows.operand_passes import bounded_passes, operand_passes, operand_vectors
from hwsim.dataflows.reductions import LineReduction
from hwsim.program.ir import GlobalArray

if TYPE_CHECKING:
    from hwsim.gemm.layouts import StorageOrder
    from hwsim.gemm.plan import Plan, Side


@dataclass(frozen=True, slots=True)
class OperandArrays:
    """The arrays of A or B, and the passes between them.

    side: which it is. source: the array that the caller fills. pieces: by number. passes: vector kernels that make the
    pieces. vectors: arrays of one number for each row of A or column of B that these make: the `exponent` of its
    slices, its `sum`.
    """

    side: Side
    source: GlobalArray
    pieces: dict[int, GlobalArray]
    passes: tuple[Pass | LineReduction, ...]
    vectors: Mapping[str, GlobalArray] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, side: Side, rows: int, cols: int, order: StorageOrder = "rows") -> OperandArrays:
        """The arrays of one operand of rows x cols elements, all stored in this order; it is split unless it is its own
        single piece.
        """
        pieces, name = plan.a_pieces if side == "a" else plan.b_pieces, side.upper()
        used = {pair[side == "b"] for term in plan.terms for pair in term.products}
        arrays = {
            i: GlobalArray(name if len(pieces) == 1 else f"{name}{i + 1}", rows, cols, piece.format, order)
            for i, piece in enumerate(pieces)
            if i in used
        }
        if len(pieces) == 1 and pieces[0].format == plan.input_format and not pieces[0].scale_exponent:
            return cls(side, arrays[0], arrays, ())
        source = GlobalArray(f"{name}.in", rows, cols, plan.input_format, order)
        vectors = operand_vectors(plan, side, source)
        return cls(side, source, arrays, tuple(operand_passes(plan, side, source, arrays, vectors)), vectors)

    def bounded_passes(self, plan: Plan, product: GlobalArray) -> list[Pass | LineReduction]:
        """The passes that make the other pieces, once there is the product that bounds them."""
        return bounded_passes(plan, self.side, self.source, self.pieces, self.vectors, product)

    @property
    def arrays(self) -> list[GlobalArray]:
        """The operand's arrays, in the program's order."""
        return [*([self.source] if self.passes else []), *self.pieces.values(), *self.vectors.values()]
