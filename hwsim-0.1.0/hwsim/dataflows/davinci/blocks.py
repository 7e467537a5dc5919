"""Accumulation over blocks of K in a DaVinci kernel: which product initialises an accumulator."""

from __future__ import annotations

from hwsim.program.builder import Span


def zero_at(block: Span) -> tuple[str, ...] | None:
    """The loops at whose first iteration the first product of these blocks of K starts from zero (`Instr.zero_at`)."""
    if block.loop is not None:
        return (block.loop,)
    return None if block.index.constant else ()
