"""How much room the codes in a slot take on the host, where a format narrower than a byte has a byte for each code."""

from __future__ import annotations

from collections.abc import Iterable

from hwsim.formats import code_dtype, format_of
from hwsim.program.ir import Instr, LocalTile


def bytes_per_slot_byte(instrs: Iterable[Instr]) -> int:
    """Host bytes for each byte of a slot, so that it holds the codes of any tile of these instructions."""
    names = {tile.format for instr in instrs for tile in (*instr.writes, *instr.reads) if isinstance(tile, LocalTile)}
    formats = [format_of(name) for name in names]
    return max((-(-8 * code_dtype(fmt).itemsize // fmt.bits) for fmt in formats), default=1)
