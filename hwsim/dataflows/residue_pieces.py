"""Elementwise instructions of residues: operands to residues, their exponents, and sums known by residues to numbers.

It knows pieces, congruences and tiles; it knows no device, no kernel and no matrix unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.formats import format_of
from hwsim.program.ir import AnyTile, LocalTile

if TYPE_CHECKING:
    from hwsim.dataflows.vector_ops import VectorOps
    from hwsim.gemm.plan import ChineseRemainder, Congruence, Piece, Residue

WORD, LONG_WORD, LANES = "int32", "int64", "fp32"
PASSES = 2  # of sums without an error over the parts of a number
PLACES = 15  # bits of an element of which the sum of squares takes note


def residue_temporaries(pieces: Sequence[Piece], source: str) -> tuple[str, ...]:
    """The formats of the scratch tiles of `split_residues`. source: the format that the lanes split in."""
    is_whole = all(format_of(piece.format).is_integer for piece in pieces)
    return (source,) if is_whole else (source, WORD, LANES, LANES, LANES)


def split_residues(
    ops: VectorOps,
    pieces: Sequence[Piece],
    source: LocalTile,
    exponents: AnyTile,
    targets: Mapping[int, LocalTile],
    temps: Sequence[LocalTile],
) -> None:
    """Emit the split of `source` into residues of the integer that source 2^-exponent is truncated to.

    exponents: of each row or column. targets: where pieces go, by number. temps: as of `residue_temporaries`.
    """
    number = temps[0]
    ops.op("ldexp", number, source, exponents, scalar=-1.0)
    known = 0  # the modulus whose parts the temporaries hold
    for i in sorted(targets):
        residue = pieces[i].residue
        assert residue is not None
        if format_of(pieces[i].format).is_integer:
            ops.op("remainder", targets[i], number, scale_exponent=residue.modulus)
            continue
        if residue.modulus != known:
            _parts(ops, residue, number, temps[1:])
            known = residue.modulus
        high, low, rest = temps[2:5]
        if residue.part == "sum":
            ops.op("add", rest, high, low)
        ops.op("cast", targets[i], {"high": high, "low": low, "sum": rest, "whole": low}[residue.part])


def _parts(ops: VectorOps, residue: Residue, number: LocalTile, temps: Sequence[LocalTile]) -> None:
    """Emit a residue as base * high + low. temps: an integer tile, and tiles for high, low and one step between."""
    whole, high, low, step = temps
    ops.op("remainder", whole, number, scale_exponent=residue.modulus)
    ops.op("cast", low, whole)
    if residue.part == "whole":
        return
    ops.op("scale", step, low, scalar=1.0 / residue.base)
    if residue.is_square:
        ops.op("cast", whole, step)
        ops.op("cast", high, whole)
    else:  # away from zero: up + down - toward zero
        ops.op("cast", whole, step, rounding="RU")
        ops.op("cast", high, whole)
        held = replace(whole, format=LANES)
        ops.op("cast", whole, step, rounding="RD")
        ops.op("cast", held, whole)
        ops.op("add", high, high, held)
        ops.op("cast", whole, step, rounding="RZ")
        ops.op("cast", held, whole)
        ops.op("sub", high, high, held)
    ops.op("fma", low, high, low, scalar=-float(residue.base))


def squares(ops: VectorOps, source: LocalTile, exponents: AnyTile, temps: Sequence[LocalTile]) -> LocalTile:
    """Emit the squares of elements, each rounded up to an integer in units of 2^(2 (exponent - PLACES)).

    temps: one tile in the format of the lanes, an int32 and an int64 tile. Returns the tile of the squares.
    """
    placed, word, wide = temps
    ops.op("ldexp", placed, source, exponents, scalar=-1.0, scale_exponent=-PLACES)
    ops.op("mul", placed, placed, placed)
    ops.op("cast", word, placed, rounding="RU")
    ops.op("cast", wide, word)
    return wide


def magnitudes(
    ops: VectorOps,
    target: LocalTile,
    source: LocalTile,
    exponents: AnyTile,
    places: int,
    temps: Sequence[LocalTile],
) -> None:
    """Emit magnitudes in units of 2^(exponent - places), rounded up to the target's format. temps:
    `magnitude_temporaries`.
    """
    if not format_of(target.format).is_integer:
        _float_magnitudes(ops, target, source, exponents, places, temps)
        return
    placed, positive, negative, whole, other = temps
    ops.op("ldexp", placed, source, exponents, scalar=-1.0, scale_exponent=-places)
    ops.op("cast", positive, placed, rounding="RU", overflow="saturate")  # a negative number becomes 0
    ops.op("scale", placed, placed, scalar=-1.0)
    ops.op("cast", negative, placed, rounding="RU", overflow="saturate")
    ops.op("cast", whole, positive)
    ops.op("cast", other, negative)
    ops.op("add", whole, whole, other)
    ops.op("cast", target, whole)


def _float_magnitudes(
    ops: VectorOps,
    target: LocalTile,
    source: LocalTile,
    exponents: AnyTile,
    places: int,
    temps: Sequence[LocalTile],
) -> None:
    """Emit the same into a narrow float format: of x and -x, each rounded up, the one that is not negative."""
    placed, sign, narrow, single, is_positive, positive, negative = temps
    fmt = format_of(target.format)
    unit = 2.0 ** (fmt.fraction_bits - fmt.min_exponent)  # in which all its numbers are integers
    ops.op("ldexp", placed, source, exponents, scalar=-1.0, scale_exponent=-places)
    ops.op("cast", sign, placed, rounding="RU", overflow="saturate")  # 0 unless positive
    ops.op("cast", is_positive, sign)
    for whole in (positive, negative):
        ops.op("cast", narrow, placed, rounding="RU", overflow="saturate")
        ops.op("cast", single, narrow)
        ops.op("scale", single, single, scalar=unit)
        ops.op("cast", whole, single)
        ops.op("scale", placed, placed, scalar=-1.0)
    ops.op("select", positive, is_positive, positive, negative)
    ops.op("cast", single, positive)
    ops.op("scale", single, single, scalar=1 / unit)
    ops.op("cast", target, single)


def magnitude_temporaries(source: str, target: str) -> tuple[str, ...]:
    """The formats of the scratch tiles of `magnitudes`. source: the format that the lanes split in."""
    if format_of(target).is_integer:
        return source, "uint8", "uint8", LANES, LANES
    return source, "uint8", target, LANES, WORD, WORD, WORD


def bounding_exponent(
    ops: VectorOps,
    target: LocalTile,
    total: LocalTile,
    exponents: AnyTile,
    factor: float,
    places: int,
    temps: Sequence[LocalTile],
) -> None:
    """Emit the exponents that residues take, from totals that bound sums in units of 2^(2 (exponent - places)), and
    the exponents of the largest elements.

    factor: bound_factor of the plan. temps: an fp64 tile and an int32 tile of one element.
    """
    share, constant = temps
    if total.format != share.format:
        ops.op("cast", share, total)
        total = share
    ops.op("scale", share, total, scalar=factor)
    ops.op("exponent", target, share)
    ops.op("fill", constant, scalar=float(1 - 2 * places))
    ops.op("add", target, target, constant)
    ops.op("extract", target, target, scale_exponent=1)
    ops.op("add", target, target, exponents)


def exponent_by_places(
    ops: VectorOps,
    target: LocalTile,
    total: LocalTile,
    exponents: AnyTile,
    factor: float,
    places: int,
    log2_bound: float,
    temps: Sequence[LocalTile],
) -> None:
    """Emit the exponents that residues take by GEMMul8's rules, of which `exponents` are those of the largest elements.

    total: sums of squares, where places is 0; else the largest sums of magnitudes with so many bits, in fp64, which
    count times factor. temps: an fp64 tile, which may hold fp32, and an int32 tile of one element.
    """
    share, constant = temps
    if places:
        if factor != 1:
            ops.op("scale", total, total, scalar=factor)
        share = replace(share, format=LANES)
        ops.op("cast", share, total, rounding="RNE" if factor == 1 else "RU")
        total = share
    ops.op("places", target, total, scalar=log2_bound, scale_exponent=int(places > 0))
    ops.op("sub", target, exponents, target)
    ops.op("fill", constant, scalar=-float(places or 1))
    ops.op("add", target, target, constant)


def remainder_temporaries(node: ChineseRemainder) -> int:
    """The number of fp64 scratch tiles that `join_remainders` needs."""
    is_several = any(len(congruence.terms) > 1 for congruence in node.congruences)
    return 2 + (len(node.product) - 1) + is_several


def join_remainders(
    ops: VectorOps,
    node: ChineseRemainder,
    values: Mapping[int, LocalTile],
    target: LocalTile,
    temps: Sequence[LocalTile],
) -> None:
    """Emit target = the number that satisfies the congruences (see ChineseRemainder). target, temps: in fp64. values:
    of the terms.
    """
    (rest, word), parts = temps[:2], len(node.product)
    sums, others = [target, *temps[2 : parts + 1]], temps[parts + 1 :]
    for i, congruence in enumerate(node.congruences):
        number = _argument(ops, congruence, values, rest, others)
        held = replace(word, format=congruence.format)
        ops.op("remainder", held, number, scale_exponent=congruence.modulus)
        ops.op("cast", rest, held)
        for total, weight in zip(sums, node.weights[i], strict=True):
            if i:
                ops.op("fma", total, rest, total, scalar=weight)
            else:
                ops.op("scale", total, rest, scalar=weight)
    whole = replace(word, format=WORD)
    ops.op("scale", rest, target, scalar=node.inverse)
    ops.op("cast", whole, rest)
    ops.op("cast", rest, whole)
    if node.sum == "exact":
        for factor, total in zip(node.product, sums, strict=True):
            ops.op("fma", total, rest, total, scalar=factor)
        _added_up(ops, sums, (rest, word))
    else:
        ops.op("fma", target, rest, target, scalar=node.product[0])
        for factor, total in zip(node.product[1:], sums[1:], strict=True):
            ops.op("add", target, target, total)
            ops.op("fma", target, rest, target, scalar=factor)
    if node.format != target.format:
        narrow = replace(rest, format=node.format)
        ops.op("cast", narrow, target)
        ops.op("cast", target, narrow)


def _added_up(ops: VectorOps, parts: Sequence[LocalTile], temps: Sequence[LocalTile]) -> None:
    """Emit the sum of parts of a number, the largest first, into the first of them."""
    total, back = temps
    for _ in range(PASSES):
        for larger, smaller in zip(parts[-2::-1], parts[:0:-1], strict=True):
            ops.op("add", total, larger, smaller)
            ops.op("sub", back, total, larger)
            ops.op("sub", smaller, smaller, back)
            ops.op("sub", back, total, back)
            ops.op("sub", larger, larger, back)
            ops.op("add", smaller, larger, smaller)
            ops.op("copy", larger, total)
    for larger, smaller in zip(parts[-2::-1], parts[:0:-1], strict=True):
        ops.op("add", larger, larger, smaller)


def _argument(
    ops: VectorOps,
    congruence: Congruence,
    values: Mapping[int, LocalTile],
    total: LocalTile,
    temps: Sequence[LocalTile],
) -> LocalTile:
    """Emit the sum of which a congruence says the residue: the tile of the only term, or `total`."""
    if congruence.factors == (1,):
        return values[congruence.terms[0]]
    for i, (term, factor) in enumerate(zip(congruence.terms, congruence.factors, strict=True)):
        value = values[term]
        into = temps[0] if i else total
        if value.format != total.format:
            ops.op("cast", into, value)
            value = into
        if i:
            ops.op("fma", total, value, total, scalar=float(factor))
        else:
            ops.op("scale", total, value, scalar=float(factor))
    return total
