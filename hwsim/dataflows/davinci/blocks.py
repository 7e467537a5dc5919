"""Blocks of K of a DaVinci kernel: which product starts an accumulator from zero."""

from __future__ import annotations

from hwsim.program.builder import Span


def zero_at(block: Span) -> tuple[str, ...] | None:
    """Loops at 0 for which the first product of these blocks of K starts from zero (`Instr.zero_at`)."""
    if block.loop is not None:
        return (block.loop,)
    return None if block.index.constant else ()
