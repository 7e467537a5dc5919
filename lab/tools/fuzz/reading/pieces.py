"""Pieces of operands, by the words of `hwsim.gemm.plan.Plan`: rounded one after another, bytes, or slices.

One element at a time (slices: one row of A or column of B); it knows formats and conversions, no unit and no schedule.
"""

from hwsim.formats import Exact, decode, encode, format_of, round_shift, round_to
from reading.numbers import NAN, ZERO, Conversions, finite, is_zero, plus, raised, signed

HOST_TYPES = ("fp16", "fp32", "fp64")  # whose conversions are the host's, by IEEE 754
HOST = Conversions(saturates=False, nan_is_zero=False)


def converted(code, fmt, wanted):
    """A code in another format, rounded to nearest even: what becomes of a caller's operand first."""
    if fmt == wanted:
        return code
    value, known = decode(format_of(fmt), code), format_of(wanted)
    if value.kind == "nan" and fmt in HOST_TYPES and wanted in HOST_TYPES:
        own, places = format_of(fmt), known.fraction_bits - format_of(fmt).fraction_bits
        payload = code & (1 << own.fraction_bits) - 1  # its leading bits are kept, and it becomes quiet
        payload = payload << places if places >= 0 else payload >> -places
        return known.nan_code | payload | value.sign << known.magnitude_bits
    if value.kind == "nan" and not (known.is_integer or known.nan == "none"):
        # The host's types keep a narrow format's sign, as ml_dtypes does; others have one NaN.
        return known.nan_code | (value.sign << known.magnitude_bits if wanted in HOST_TYPES else 0)
    return HOST.code(value, wanted, overflow="saturate" if known.is_integer else "ieee")


def as_float(code, fmt):
    """The value of an operand in the type in which it is split (fp64 for fp64, else fp32), and that type."""
    kind = "fp64" if fmt == "fp64" else "fp32"
    return decode(format_of(kind), converted(code, fmt, kind)), kind


def settled_word(code, conversions):
    """The fp64 code of an fp32 word as the vector unit reads it when it widens it."""
    known, value = format_of("fp32"), decode(format_of("fp32"), code)
    if value.kind == "infinity" and conversions.saturates:
        code = known.largest_code(value.sign)
    elif value.kind == "nan" and conversions.saturates:
        code = 0
    return converted(code, "fp32", "fp64")


def rounded_pieces(code, plan, pieces, conversions, rounding=None, word_rounding=None):
    """The codes of the pieces of one element. rounding: instead of the piece's; word_rounding: the instruction's."""
    fmt, only = plan.input_format, pieces[0]
    if len(pieces) == 1 and not only.scale_exponent and not plan.clamp:
        if fmt == only.format:
            if word_rounding is None:
                return [code]
            return [HOST.code(decode(format_of("fp32"), code), fmt, word_rounding)]
        if only.format == "fp64":
            return [settled_word(converted(code, fmt, "fp32"), conversions)]
        return [conversions.code(as_float(code, fmt)[0], only.format, rounding or only.rounding, only.overflow)]
    rest, kind = as_float(code, fmt)
    known = format_of(kind)
    largest = decode(known, known.largest_code())

    def settled(x):
        if x.kind == "nan" and conversions.nan_is_zero:
            return ZERO
        if x.kind == "infinity" and conversions.saturates:
            return Exact("finite", x.sign, largest.significand, largest.exponent)
        return x

    def once(x):
        if x.kind == "finite":
            x = decode(known, round_to(known, x, "RNE", overflow="ieee"))
        return settled(x)

    if plan.clamp and rest.kind == "infinity":
        rest = Exact("finite", rest.sign, largest.significand, largest.exponent)
    rest, codes = settled(rest), []
    for piece in pieces:
        rest = once(raised(rest, piece.scale_exponent)) if piece.scale_exponent else rest
        codes.append(conversions.code(rest, piece.format, rounding or piece.rounding, piece.overflow))
        taken = decode(format_of(piece.format), codes[-1])
        rest = once(plus(rest, Exact(taken.kind, 1 - taken.sign, taken.significand, taken.exponent)))
        rest = NAN if rest.kind == "nan" else rest
    return codes


def byte_pieces(code, plan, pieces):
    """int16 as (high byte, low byte), as codes of 8 bits."""
    value = code - (1 << 16) if code >> 15 else code
    low = value & 0xFF
    if plan.split == "signed_bytes":
        low = low - 256 if low > 127 else low
        return [(value - low) // 256 & 0xFF, low & 0xFF]
    return [value >> 8 & 0xFF, (low - 128 if pieces[1].format == "int8" else low) & 0xFF]


def slice_pieces(codes, plan, pieces):
    """(exponent, the codes of each element's slices) of one row of A or column of B."""
    values = []
    for code in codes:
        x = decode(format_of(plan.input_format), code)
        if plan.input_format not in ("fp64", "int64", "int32"):
            x = x if x.kind != "finite" else decode(format_of("fp64"), converted(code, plan.input_format, "fp64"))
        values.append(x if x.kind == "finite" else ZERO)
    exponent = max((x.significand.bit_length() + x.exponent for x in values if not is_zero(x)), default=0)
    found = []
    for x in values:
        rest, digits = x, []
        for i, piece in enumerate(pieces):
            place = exponent - plan.slice_bits * (i + 1)
            last = i == len(pieces) - 1
            digit = round_shift(rest.significand, place - rest.exponent, piece.rounding if last else "RZ", rest.sign)
            digit = -digit if rest.sign else digit
            rest = plus(rest, finite((-digit, place)))
            known = format_of(piece.format)
            if known.is_integer:
                top = 1 << known.fraction_bits
                digits.append(min(max(digit, -top), top - 1) % (1 << known.bits))
            else:
                digits.append(encode(known, Exact("finite", int(digit < 0), abs(digit), 0)))
        found.append(digits)
    return exponent, found


def integer(code, fmt):
    """The value of an integer's code."""
    return signed(decode(format_of(fmt), code))
