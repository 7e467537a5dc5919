"""The operands that a unit multiplies, where a plan rounds each once. It knows one evaluator, no error metric."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.evaluate.split import only_piece
from hwsim.gemm.plan import SIDES, Mixed
from hwsim.operands.operand import Operand

if TYPE_CHECKING:
    from hwsim.evaluate.product import Evaluator


def multiplied(evaluator: Evaluator, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """A (..., m, k) and B (..., k, n) as the products take them, in the format of the only piece of each.

    Operands of several pieces, which the plan's sum joins again, are in the format that the plan splits. Operands with
    scales stay as they are: their codes are rounded already.
    """
    plan = evaluator.plan
    if a.scales is not None or b.scales is not None:
        return a, b
    only = [None if isinstance(evaluator.gemm.plan, Mixed) else only_piece(plan, side) for side in SIDES]
    if None in only:
        left, right = (side.converted(plan.input_format, evaluator.backend) for side in (a, b))
        return left, right
    flat = [replace(side, codes=side.codes.reshape(-1, side.codes.shape[-1])) for side in (a, b)]
    pieces = evaluator.pieces(flat[0], flat[1])
    left, right = (
        Operand(evaluator.backend.to_host(of_side.codes[0]).reshape(side.codes.shape), piece.format)
        for of_side, piece, side in zip(pieces, only, (a, b), strict=True)
        if piece is not None
    )
    return left, right
