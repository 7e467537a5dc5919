"""Elementwise instructions that split operands into integers: bytes, or slices below an exponent per row or column.

It knows a plan's pieces and tiles; it knows no device, no kernel and no matrix unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.formats import format_of
from hwsim.program.ir import AnyTile, LocalTile

if TYPE_CHECKING:
    from hwsim.dataflows.vector_ops import VectorOps
    from hwsim.gemm.plan import Piece, Plan

BYTE, BYTE_BIAS = 8, 128  # bits; what a low byte is held less, where it is an int8
WORD = "int32"
DIGITS_OF_WORD = 3


def byte_temporaries(plan: Plan) -> tuple[str, ...]:
    """The formats of the scratch tiles of `split_bytes`."""
    low = plan.a_pieces[-1]
    return (WORD, WORD) if plan.split == "signed_bytes" or low.format == "int8" else ()


def split_bytes(
    ops: VectorOps, plan: Plan, source: LocalTile, pieces: Mapping[int, LocalTile], temps: Sequence[LocalTile]
) -> None:
    """Emit the split of int16 into (high byte, low byte), as `Plan` says. pieces: by number, both of them."""
    high, low = pieces[0], pieces[1]
    if plan.split == "signed_bytes":
        ops.op("extract", low, source)
        ops.op("cast", temps[0], source)
        ops.op("cast", temps[1], low)
        ops.op("sub", temps[0], temps[0], temps[1])
        ops.op("extract", high, temps[0], scale_exponent=BYTE)
        return
    ops.op("extract", high, source, scale_exponent=BYTE)
    if low.format == "uint8":
        ops.op("extract", low, source)
        return
    bias = replace(temps[1], rows=1, cols=1)
    ops.op("fill", bias, scalar=float(BYTE_BIAS))
    ops.op("cast", temps[0], source)
    ops.op("sub", temps[0], temps[0], bias)
    ops.op("extract", low, temps[0])


def slice_temporaries(plan: Plan, pieces: Sequence[Piece], source: str) -> tuple[str, ...]:
    """The formats of the scratch tiles of `split_slices`. source: the format that the lanes split in."""
    is_whole = format_of(pieces[0].format).is_integer
    return source, source, pieces[0].format if is_whole else WORD


def split_slices(
    ops: VectorOps,
    pieces: Sequence[Piece],
    bits: int,
    source: LocalTile,
    exponents: AnyTile,
    targets: Mapping[int, LocalTile],
    temps: Sequence[LocalTile],
) -> None:
    """Emit the split of `source` into integers of `bits` bits, from the most significant on, as `Plan` says.

    exponents: e of each row or column. targets: where pieces go, by number. temps: two tiles in the format of the lanes
    and one for the digits of a slice. Every step but the last slice's rounding is exact.
    """
    rest, last = source, max(targets)
    if source.format != temps[0].format:
        ops.op("cast", temps[0], source)
        rest = temps[0]
    for i, piece in enumerate(pieces[: last + 1]):
        place = bits * (i + 1)
        ops.op("ldexp", temps[1], rest, exponents, scalar=-1.0, scale_exponent=-place)
        is_whole = format_of(piece.format).is_integer
        digits = targets.get(i, temps[2]) if is_whole else temps[2]
        rounding = "RZ" if i + 1 < len(pieces) else piece.rounding
        ops.op("cast", digits, temps[1], rounding=rounding, overflow="saturate")
        if not is_whole and i in targets:
            ops.op("cast", targets[i], digits)
        if i < last:
            ops.op("ldexp", temps[1], digits, exponents, scalar=1.0, scale_exponent=place)
            ops.op("sub", temps[0], rest, temps[1])
            rest = temps[0]


def signed_temporaries(pieces: Sequence[Piece], source: str) -> tuple[str, ...]:
    """The formats of the scratch tiles of `split_signed_slices`. source: the format that the lanes split in."""
    return source, source, *(WORD,) * (len(_words(pieces)) + 1)


def split_signed_slices(
    ops: VectorOps,
    pieces: Sequence[Piece],
    source: LocalTile,
    exponents: AnyTile,
    targets: Mapping[int, LocalTile],
    temps: Sequence[LocalTile],
) -> None:
    """Emit the split of `source` into digits of 8 bits with signs of their own, as `Plan` says.

    Words of a few digits are cut off toward zero, from the most significant on. From the least significant on, the low
    8 bits of a word are a digit, and what is left above them goes on: as a carry to the next word.
    exponents: e of each row or column. targets: where the digits go, by number. temps: two tiles in the format of the
    lanes, and int32 for each word and one more.
    """
    rest, words, digit = source, temps[2:-1], temps[-1]
    groups = _words(pieces)
    if source.format != temps[0].format:
        ops.op("cast", temps[0], source)
        rest = temps[0]
    for word, numbers in zip(words, groups, strict=True):
        place = BYTE * (numbers[-1] + 1)
        ops.op("ldexp", temps[1], rest, exponents, scalar=-1.0, scale_exponent=-place)
        ops.op("cast", word, temps[1], rounding="RZ", overflow="saturate")
        if numbers is not groups[-1]:
            ops.op("ldexp", temps[1], word, exponents, scalar=1.0, scale_exponent=place)
            ops.op("sub", temps[0], rest, temps[1])
            rest = temps[0]
    carry: LocalTile | None = None
    for word, numbers in reversed(list(zip(words, groups, strict=True))):
        if carry is not None:
            ops.op("add", word, word, carry)
        for number in reversed(numbers):
            ops.op("extract", targets[number], word)
            if number:
                ops.op("cast", digit, targets[number])
                ops.op("sub", word, word, digit)
                ops.op("extract", word, word, scale_exponent=BYTE)
        carry = word


def _words(pieces: Sequence[Piece]) -> list[range]:
    """The numbers of the pieces in each int32 word, which is positive or negative and takes a carry."""
    first = len(pieces) % DIGITS_OF_WORD or DIGITS_OF_WORD
    starts = [0, *range(first, len(pieces), DIGITS_OF_WORD)]
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(pieces)], strict=True)]
