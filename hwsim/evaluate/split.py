"""Splits an operand into the pieces of a plan: successive rounding, bytes, or slices with a scale per row or column.

The module knows plans' pieces, formats and a device's conversions; it knows no instruction and no schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.residue_places import places_of_largest, places_of_squares
from hwsim.arithmetic.residues import residues
from hwsim.arithmetic.rounded_up import narrowed_up, squares_added_up
from hwsim.arithmetic.vector import VectorUnit, saturates, widened
from hwsim.backend.arrays import in_c_order
from hwsim.backend.cpu import CPU
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import code_dtype, format_of
from hwsim.gemm import refusals
from hwsim.gemm.plan import RAISED_BY, SLICED, SQUARE_LANES
from hwsim.host.threads import for_elements
from hwsim.operands.operand import Operand
from hwsim.operands.powers import as_they_lie, encoded, power_of_four_beyond, times_power

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Piece, Plan, Residue, Side
    from hwsim.gemm.record import Gemm
    from hwsim.operands.scales import Scales

AnyArray = NDArray[Any]
BYTE_BIAS = 128  # of a low byte that is held as int8
RESIDUE_PLACES = 15  # bits of an element of which the sum of squares takes note
HALF = 0.5
LEADING_ONES = 6  # bits behind the leading one with which a magnitude counts as the next power of two


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The pieces of one operand: an array of codes for each, (rows, columns) or a stack (count, rows, columns), any
    strides.

    exponents: for slices, e of each row of A or column of B. source: the unsplit operand, where something besides the
    products needs it. scales: factors of the operand's elements.
    """

    codes: tuple[AnyArray, ...]
    exponents: AnyArray | None = None
    source: Operand | None = None
    scales: Scales | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (rows, columns)."""
        rows, columns = self.codes[0].shape[-2:]
        return int(rows), int(columns)

    @property
    def lead(self) -> tuple[int, ...]:
        """The number of matrices of a stack, as a shape; () for a matrix."""
        return self.codes[0].shape[:-2]

    def picked(self, side: Side, index: AnyArray | slice) -> Pieces:
        """Some rows of A's pieces, or some columns of B's."""
        at: tuple[slice | AnyArray, ...] = (index,) if side == "a" else (slice(None), index)
        exponents = None if self.exponents is None else self.exponents[index]
        source = None if self.source is None else Operand(self.source.codes[at], self.source.format)
        scales = None if self.scales is None else self.scales.picked(index)
        return Pieces(tuple(codes[at] for codes in self.codes), exponents, source, scales)

    def contiguous(self) -> Pieces:
        """The same pieces with codes in C order."""
        return replace(self, codes=tuple(in_c_order(x) for x in self.codes))


def as_pieces(pieces: Pieces | Sequence[AnyArray]) -> Pieces:
    """Pieces from pieces, or from plain codes."""
    return pieces if isinstance(pieces, Pieces) else Pieces(tuple(pieces))


def pieces_of(
    operand: Operand,
    plan: Plan,
    side: Side,
    device: Device,
    *,
    rounding: str | None = None,
    word_rounding: str | None = None,
    vector: VectorUnit | None = None,
    exponents: AnyArray | None = None,
    is_k_major: bool = True,
    threads: int = 1,
) -> Pieces:
    """The pieces of an operand in the plan's input format, by the device's conversions (saturating where the device's
    are).

    rounding: instead of the piece's, for a split of one piece. word_rounding: of 32-bit words that are the piece
    already, where the instruction rounds them itself (None: it ignores their low bits). vector: the conversions, with
    their backend and the matrix unit's NaNs (None: the device's with the default NaN, by the CPU's backend). exponents:
    of rows or columns, where they depend on both operands (`joint_exponents`). is_k_major: whether K is contiguous in
    memory, which decides the order of sums that some exponents come from.
    Raises InputError for a rounding of several pieces.
    """
    pieces = plan.a_pieces if side == "a" else plan.b_pieces
    if rounding is not None and len(pieces) > 1:
        raise InputError(f"schedule: operand_rounding is for plans with one piece; this one has {len(pieces)}")
    is_needed = plan.specials == "fma_chain" or plan.split != "round"
    source = operand if is_needed else None
    if plan.split in ("bytes", "signed_bytes"):
        return Pieces(_bytes(operand, pieces, plan.split == "signed_bytes"), None, source)
    vector = vector or VectorUnit(device.vector, CPU)
    if plan.split in SLICED:
        if plan.split == "residues":
            lanes = SQUARE_LANES[not is_k_major]
            codes, exponents = _residues(operand, pieces, side, plan, lanes, vector.backend, exponents)
            return Pieces(codes, exponents, source)
        sliced = _signed_slices if plan.split == "signed_slices" else _slices
        codes, exponents = sliced(operand, pieces, side, plan.slice_bits, vector.backend)
        return Pieces(codes, exponents, source)
    return Pieces(_rounded(operand, pieces, plan.clamp, vector, rounding, word_rounding, threads), None, source)


def only_piece(plan: Plan, side: Side) -> Piece | None:
    """The piece of an operand that is the operand rounded and nothing else, or None."""
    piece, *rest = plan.a_pieces if side == "a" else plan.b_pieces
    is_only = not rest and plan.split == "round" and plan.specials != "fma_chain"
    return piece if is_only and not piece.scale_exponent and not plan.clamp else None


def is_piece(operand: Operand, plan: Plan, side: Side) -> bool:
    """Whether an operand is its only piece already, as `scaled` gives it. Others in that format are converted: their
    infinities and NaNs are the conversion's.
    """
    piece = only_piece(plan, side) if operand.is_piece else None
    return piece is not None and piece.format == operand.format


def scaled(
    operand: Operand,
    exponent: int,
    plan: Plan,
    side: Side,
    device: Device,
    *,
    rounding: str | None = None,
    threads: int = 1,
    backend: Backend = CPU,
) -> Operand:
    """A finite fp32 operand times 2^exponent, rounded to fp32: as its only piece, by the device's conversion, where
    there is one of a floating-point format, else in fp32. rounding: instead of the piece's. backend: computes codes.
    """
    piece = only_piece(plan, side)
    if piece is None or not format_of("fp32").holds(format_of(piece.format)):
        values = times_power(operand.array, exponent, threads=threads, backend=backend)
        return Operand(values.view(np.uint32), "fp32")
    overflow = piece.overflow or ("saturate" if saturates(device.vector) else "ieee")
    fmt = format_of(piece.format)
    codes = encoded(
        operand.array, exponent, fmt, rounding or piece.rounding, overflow, threads=threads, backend=backend
    )
    return Operand(codes, piece.format, is_piece=True)


def _rounded(
    operand: Operand,
    pieces: Sequence[Piece],
    clamp: bool,
    vector: VectorUnit,
    rounding: str | None,
    word_rounding: str | None,
    threads: int,
) -> tuple[AnyArray, ...]:
    backend, threads = vector.backend, for_elements(threads, operand.codes.size)
    only = pieces[0]
    fmt = format_of(only.format)
    if len(pieces) == 1 and not only.scale_exponent and not clamp:
        if operand.format == only.format:
            if word_rounding is None:
                return (operand.codes,)
            return (backend.encode(operand.codes.view(np.float32), fmt, word_rounding, threads=threads),)
        values, overflow = _floats(operand, backend), only.overflow or vector.overflow
        if only.format == "fp64":
            return (widened(vector.settled(values)),)
        given_rows, is_by_columns = as_they_lie(values)
        codes = backend.encode(given_rows, fmt, rounding or only.rounding, overflow, nan=vector.nan, threads=threads)
        return (codes.swapaxes(-1, -2) if is_by_columns else codes,)
    steps = [(format_of(x.format), rounding or x.rounding, x.scale_exponent, x.overflow) for x in pieces]
    values = _floats(operand, backend)
    return tuple(backend.split(values, steps, overflow=vector.overflow, nan=vector.nan, clamp=clamp, threads=threads))


def _floats(operand: Operand, backend: Backend) -> AnyArray:
    """The values as fp32, or fp64 for an fp64 operand."""
    return operand.array if operand.format == "fp64" else operand.fp32(backend).array


def _bytes(operand: Operand, pieces: Sequence[Piece], is_signed: bool) -> tuple[AnyArray, ...]:
    """The (high byte, low byte) pieces of int16. is_signed: the low byte is a signed number."""
    if operand.format != "int16" or len(pieces) != 2:
        raise UnsupportedError(f"a split into bytes is for int16 and two pieces; got {operand.format}, {len(pieces)}")
    high, low = operand.codes >> np.uint16(8), operand.codes & np.uint16(0xFF)
    if is_signed:
        code = low.astype(np.uint8)
        return ((operand.codes.astype(np.int32) - code.view(np.int8)) >> 8).astype(np.uint8), code
    if pieces[1].format == "int8":
        low = low - np.uint16(BYTE_BIAS)  # the low 8 bits are those of the difference
    return high.astype(np.uint8), low.astype(np.uint8)


def _slices(
    operand: Operand, pieces: Sequence[Piece], side: Side, bits: int, backend: Backend
) -> tuple[tuple[AnyArray, ...], AnyArray]:
    """Slices of `bits` bits, and the exponent of each row (side a) or column; infinities and NaNs count as 0.

    A last slice beyond an integer format is clamped to its largest value.
    """
    axis, x = _finite(operand, side, backend)
    exponents: AnyArray = np.frexp(np.abs(x).max(axis=axis, initial=0.0))[1].astype(np.int64)
    place, rest = np.expand_dims(exponents, axis), x
    codes: list[AnyArray] = []
    for i, piece in enumerate(pieces):
        place = place - bits  # of the slice's units; every step below is exact
        digit = np.ldexp(rest, -place)
        digit = np.trunc(digit) if i < len(pieces) - 1 else _whole(digit, piece.rounding)
        rest = rest - np.ldexp(digit, place)
        codes.append(backend.encode(backend.from_host(digit + 0.0), format_of(piece.format), "RNE", "saturate"))
    return tuple(codes), backend.from_host(exponents)


def _signed_slices(
    operand: Operand, pieces: Sequence[Piece], side: Side, bits: int, backend: Backend
) -> tuple[tuple[AnyArray, ...], AnyArray]:
    """Slices of `bits` bits with signs of their own, and the exponent of each row (side a) or column.

    The element is truncated to an integer in units of the last slice. From there, digits below -2^(bits - 1) or not
    below 2^(bits - 1) give a carry to the next slice. Source: NVIDIA's cuBLASDx sample of emulated DGEMM.
    """
    axis, x = _finite(operand, side, backend)
    fraction, exponents = np.frexp(np.abs(x).max(axis=axis, initial=0.0))
    is_near_next = (np.floor(np.ldexp(fraction, LEADING_ONES + 1)) + 1) == np.ldexp(1.0, LEADING_ONES + 1)
    exponents = exponents.astype(np.int64) + is_near_next + 1
    base = float(1 << bits)
    rest = np.trunc(np.ldexp(x, bits * len(pieces) - np.expand_dims(exponents, axis)))
    digits: list[AnyArray] = []
    for _ in pieces[1:]:  # every step is exact: rest is a multiple of its own last place
        digit = rest - base * np.floor(rest / base)
        digit = np.where(digit >= base * HALF, digit - base, digit)
        digits.append(digit)
        rest = (rest - digit) / base
    codes = [
        backend.encode(backend.from_host(digit + 0.0), format_of(piece.format), "RNE", "saturate")
        for piece, digit in zip(pieces, [rest, *digits[::-1]], strict=True)
    ]
    return tuple(codes), backend.from_host(exponents)


def _residues(
    operand: Operand,
    pieces: Sequence[Piece],
    side: Side,
    plan: Plan,
    lanes: int,
    backend: Backend,
    joint: AnyArray | None,
) -> tuple[tuple[AnyArray, ...], AnyArray]:
    """Residues of the elements as integers, and the exponent of each row (side a) or column (see Plan). joint: these
    exponents, of the host, where they depend on both operands. lanes: that add squares.
    """
    axis, x = _in_own_type(operand, side, backend)
    top = _top_exponents(x, axis)
    if joint is None and plan.log2_bound:
        squares = squares_added_up(np.moveaxis(x, axis, -1), lanes)
        joint = _single_exponents(x, axis) - 1 - places_of_squares(squares, plan.log2_bound)
    elif joint is None:
        placed = np.ldexp(x, RESIDUE_PLACES - np.expand_dims(top, axis))
        whole: AnyArray = np.ceil(placed * placed).astype(np.int64).sum(axis=axis)
        share = power_of_four_beyond(whole.astype(np.float64) * plan.bound_factor)
        joint = top - RESIDUE_PLACES + share
    scaled_up = np.ldexp(x, -np.expand_dims(joint, axis))
    codes: list[AnyArray] = []
    of_modulus: dict[int, AnyArray] = {}
    for piece in pieces:
        if piece.residue is None:
            raise UnsupportedError("a piece of a split into residues says of which modulus it is")
        modulus = piece.residue.modulus
        if piece.residue.part == "bound":
            codes.append(_bounds(x, top, axis, piece, backend))
            continue
        if modulus not in of_modulus:
            of_modulus[modulus] = residues(scaled_up, modulus)
        part = _part_of(of_modulus[modulus], piece.residue)
        fmt = format_of(piece.format)
        if fmt.is_integer:
            codes.append(backend.from_host(part.astype(fmt.dtype_name).view(code_dtype(fmt))))
        else:
            codes.append(backend.encode(backend.from_host(part.astype(np.float32)), fmt, "RNE", "saturate"))
    return tuple(codes), backend.from_host(joint)


def bounds_of(operand: Operand, plan: Plan, side: Side, backend: Backend) -> AnyArray:
    """Codes of the piece that bounds an operand's elements, of a plan whose last product bounds the others."""
    axis, x = _in_own_type(operand, side, backend)
    return _bounds(x, _top_exponents(x, axis), axis, plan.a_pieces[-1], backend)


def exponents_from_product(operand: Operand, plan: Plan, side: Side, product: AnyArray, backend: Backend) -> AnyArray:
    """The exponents, of the host, of A's rows or B's columns where the product of bounds gives them (see Plan).
    product: fp64 (m, n) values.
    """
    axis, x = _in_own_type(operand, side, backend)
    piece, top = plan.a_pieces[-1], _top_exponents(x, axis)
    assert piece.residue is not None
    largest = backend.to_host(product).max(axis=axis, initial=0.0)
    if not format_of(piece.format).is_integer:
        largest = largest * (1 + (x.shape[axis] + 1) * RAISED_BY)
    single = narrowed_up(largest) if not format_of(piece.format).is_integer else largest.astype(np.float32)
    exponents: AnyArray = top - _places(piece.residue) - places_of_largest(single, plan.log2_bound)
    return exponents


def _places(residue: Residue) -> int:
    """Bits of an element that its bound keeps."""
    return residue.modulus.bit_length() - 1


def _top_exponents(x: AnyArray, axis: int) -> AnyArray:
    """The least exponent e with all magnitudes of a row or column below 2^e."""
    top: AnyArray = np.frexp(np.abs(x).max(axis=axis, initial=0.0))[1].astype(np.int64)
    return top


def _single_exponents(x: AnyArray, axis: int) -> AnyArray:
    """The same of the largest magnitude as fp32, rounded to nearest, where it is at most fp32's largest number."""
    largest = np.abs(x).max(axis=axis, initial=0.0)
    single = np.minimum(largest, np.finfo(np.float32).max).astype(np.float32)
    exponents: AnyArray = np.frexp(single)[1].astype(np.int64)
    return exponents


def _bounds(x: AnyArray, top: AnyArray, axis: int, piece: Piece, backend: Backend) -> AnyArray:
    """Codes of magnitudes in units of the piece's share of 2^top, rounded up to its format."""
    assert piece.residue is not None
    placed = np.ldexp(np.abs(x), _places(piece.residue) - np.expand_dims(top, axis))
    return backend.encode(backend.from_host(in_c_order(placed)), format_of(piece.format), "RU", "saturate")


def _part_of(whole: AnyArray, residue: Residue) -> AnyArray:
    """The part of residues that a piece holds, as int64."""
    if residue.part == "whole":
        return whole
    ratio = whole / residue.base
    high = (np.rint(ratio) if residue.is_square else np.copysign(np.ceil(np.abs(ratio)), ratio)).astype(np.int64)
    low: AnyArray = whole - residue.base * high
    return {"high": high, "low": low, "sum": high + low}[residue.part]


def _in_own_type(operand: Operand, side: Side, backend: Backend) -> tuple[int, AnyArray]:
    """The axis of K, and the values as fp64, or fp32 for another operand, with zeros for infinities and NaNs."""
    axis, x = _finite(operand, side, backend)
    return axis, x if operand.format == "fp64" else x.astype(np.float32)


def _finite(operand: Operand, side: Side, backend: Backend) -> tuple[int, AnyArray]:
    """The axis of K, and the values as fp64 with zeros for infinities and NaNs, on the host: NumPy's functions take
    them apart.
    """
    with np.errstate(invalid="ignore"):  # signalling NaNs
        x = backend.to_host(operand.values(backend)).astype(np.float64)
    finite = np.isfinite(x)
    return -1 if side == "a" else -2, x if finite.all() else np.where(finite, x, 0.0)


def _whole(x: AnyArray, rounding: str) -> AnyArray:
    """The values of x rounded to integers."""
    cut: AnyArray = np.trunc(x)
    if rounding == "RNE":
        cut = np.rint(x)
    elif rounding == "RNA":
        cut = cut + np.copysign(np.abs(x - cut) >= HALF, x)
    elif rounding != "RZ":
        cut = np.ceil(x) if rounding == "RU" else np.floor(x)
    return cut


def refuses(gemm: Gemm) -> str:
    """What of a record the split does not compute: pieces of operands of two formats."""
    return refusals.formats(gemm.problem)
