"""2:4 sparsity: of how many elements along K how many are stored, and the bits that they take with their positions.

The module knows formats by name; it knows no array, no unit and no device. Source: PTX ISA, sparse matrix storage.
"""

from __future__ import annotations

from hwsim.formats import format_of

WORD_BITS = 32
METADATA_BITS = 4  # of a group: two indices of 2 bits


def group_of(format: str) -> tuple[int, int]:
    """(stored, elements) of a group along K: (2, 4), and (1, 2) for elements in 32-bit words."""
    return (1, 2) if format_of(format).bits == WORD_BITS else (2, 4)


def stored_bits(format: str) -> int:
    """Bits that an element of a sparse operand takes on average, of those that are not stored too, with metadata."""
    stored, elements = group_of(format)
    return (stored * format_of(format).bits + METADATA_BITS) // elements
