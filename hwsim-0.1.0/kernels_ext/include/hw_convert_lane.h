/* Rounding one word of a binary32 or binary64 number to a narrower format; included once per lane width.
 *
 * Set before: LANE (32 or 64). Every function is straight-line code on one element, so that the loops
 * around it become vector code in each build.
 */
#if LANE == 32
#define WORD uint32_t
#define SIGNED int32_t
#define REAL float
#define FRACTION 23
#define INFINITY_WORD 0x7f800000u
#else
#define WORD uint64_t
#define SIGNED int64_t
#define REAL double
#define FRACTION 52
#define INFINITY_WORD 0x7ff0000000000000u
#endif
#define LANE_NAME(name) HW_JOIN(name, LANE)
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    WORD cap;        /* magnitudes are cut to it first; its rounded value is beyond the largest finite one */
    WORD least;      /* exponent field of min_exponent */
    WORD lift;       /* (FRACTION - fraction_bits) in the exponent field */
    WORD half;       /* (fraction_bits + 1) in the exponent field */
    WORD nearest, odd, tie, directed; /* rounding increments where the exponent range is the source's own */
    WORD hidden, largest, sign_bit, keep, nan, zero, zero_flip, small, small_flip;
    WORD overflow, overflow_flip, infinity, infinity_flip, negative_is_nan;
    /* Of the short way, for signed formats and the roundings that are alike for both signs: */
    WORD ceiling;    /* magnitude that gives the overflow code; larger ones are cut to it */
    WORD infinity_fields, nan_from;
    WORD rebias;     /* source's fields less the result's, of a normal number */
    REAL places;     /* 1 / last place of a subnormal */
    REAL normal;     /* least normal number, in such places */
    int shift;       /* FRACTION - fraction_bits */
    int ignored;
    int sign_shift;  /* from the source's sign bit to the code's */
} LANE_NAME(lane);

INLINE REAL LANE_NAME(as_real)(WORD word)
{
    REAL value;
    memcpy(&value, &word, sizeof value);
    return value;
}

INLINE WORD LANE_NAME(as_word)(REAL value)
{
    WORD word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static LANE_NAME(lane) LANE_NAME(lane_of)(const hw_encoder *e)
{
    const int bias = LANE == 32 ? 127 : 1023;
    const int shift = FRACTION - e->fraction_bits;
    const WORD quantum = (WORD)1 << shift;
    /* Where the exponent range is the source's own, cap, least and half are not used (and may wrap). */
    const int top = (int)(e->largest >> e->fraction_bits) + e->min_exponent + 2;
    LANE_NAME(lane) l = {
        .cap = (WORD)(top + bias) << FRACTION,
        .least = (WORD)(e->min_exponent + bias) << FRACTION,
        .lift = (WORD)shift << FRACTION,
        .half = (WORD)(e->fraction_bits + 1) << FRACTION,
        .nearest = shift ? quantum / 2 - 1 : 0,
        .odd = shift ? 1 : 0,
        .tie = quantum / 2,
        .directed = quantum - 1,
        .hidden = (WORD)e->hidden,
        .largest = (WORD)e->largest,
        .sign_bit = (WORD)e->sign_bit,
        .keep = (WORD)e->code_mask,
        .nan = (WORD)e->nan,
        .zero = (WORD)e->zero[0], .zero_flip = (WORD)(e->zero[0] ^ e->zero[1]),
        .small = (WORD)e->small[0], .small_flip = (WORD)(e->small[0] ^ e->small[1]),
        .overflow = (WORD)e->overflow[0], .overflow_flip = (WORD)(e->overflow[0] ^ e->overflow[1]),
        .infinity = (WORD)e->infinity[0], .infinity_flip = (WORD)(e->infinity[0] ^ e->infinity[1]),
        .negative_is_nan = (WORD)e->negative_is_nan,
        .shift = shift,
        .ignored = e->ignored_bits,
    };
    return l;
}

enum LANE_NAME(way) { LANE_NAME(LONG), LANE_NAME(SHORT), LANE_NAME(SHORT_NAN) };

/* Whether the short way gives this policy's codes, with its fields set.
 *
 * SHORT: overflow and infinity are magnitudes that take the sign. SHORT_NAN: both are the NaN code.
 */
__attribute__((unused)) static enum LANE_NAME(way) LANE_NAME(shorten)(LANE_NAME(lane) *l, const hw_encoder *e)
{
    const int bias = LANE == 32 ? 127 : 1023;
    const uint64_t fields = (e->overflow[0] >> e->ignored_bits);
    const uint64_t infinity_fields = (e->infinity[0] >> e->ignored_bits);
    const int signed_overflow = e->overflow[1] == (e->overflow[0] | e->sign_bit) && e->overflow[0] < e->sign_bit;
    const int signed_infinity = e->infinity[1] == (e->infinity[0] | e->sign_bit) && e->infinity[0] < e->sign_bit;
    const int overflow_is_nan = e->overflow[0] == e->nan && e->overflow[1] == e->nan;
    const int infinity_is_nan = e->infinity[0] == e->nan && e->infinity[1] == e->nan;

    if (e->rounding == HW_RU || e->rounding == HW_RD || e->small[0] == e->small[1])
        return LANE_NAME(LONG);
    /* The rounded value of the ceiling is itself: it is a number of the format, or the next one above. */
    l->rebias = (WORD)(bias + e->min_exponent - 1) << FRACTION;
    l->ceiling = ((WORD)fields << l->shift) + l->rebias;
    l->infinity_fields = (WORD)infinity_fields;
    l->nan_from = infinity_is_nan ? INFINITY_WORD - 1 : INFINITY_WORD;
    /* Of use, and within range, only where the format's exponent range is narrower than the source's. */
    l->places = LANE_NAME(as_real)((WORD)(bias + e->fraction_bits - e->min_exponent) << FRACTION);
    l->normal = LANE_NAME(as_real)((WORD)(bias + e->fraction_bits) << FRACTION);
    l->sign_shift = LANE == 32 ? 31 : 63;
    for (uint64_t bit = e->sign_bit; bit > 1; bit >>= 1)
        l->sign_shift--;
    if (signed_overflow && (signed_infinity || infinity_is_nan))
        return LANE_NAME(SHORT);
    return overflow_is_nan && infinity_is_nan ? LANE_NAME(SHORT_NAN) : LANE_NAME(LONG);
}

/* Exponent and fraction fields of |value| rounded, for a format whose least exponent is above the source's.
 *
 * Adding 2^FRACTION last places of the result to the value rounds it to such a place, nearest even, in the
 * adder; the difference of the words counts the places. Width: the value is below 2^(fraction_bits + 1)
 * last places and fraction_bits + 1 <= FRACTION - 2, so that the sum stays in the binade of `magic` and
 * `sum - magic` is exact; the other roundings look at which way the adder went.
 */
INLINE WORD LANE_NAME(round_places)(const LANE_NAME(lane) *l, WORD cut, WORD negative, int rounding)
{
    const SIGNED field = (SIGNED)(cut & INFINITY_WORD);
    const WORD lead = (WORD)(field > (SIGNED)l->least ? field : (SIGNED)l->least);
    const REAL value = LANE_NAME(as_real)(cut);
    const REAL magic = LANE_NAME(as_real)(lead + l->lift);
    const REAL sum = value + magic;
    WORD places = LANE_NAME(as_word)(sum) - (lead + l->lift);
    if (rounding != HW_RNE) {
        const REAL back = sum - magic;
        const WORD above = back > value ? 1 : 0;
        const WORD below = back < value ? 1 : 0;
        if (rounding == HW_RNA)
            places += value - back == LANE_NAME(as_real)(lead - l->half) ? 1 : 0;
        else if (rounding == HW_RZ)
            places -= above;
        else {
            const WORD outward = rounding == HW_RU ? ~negative : negative;
            places += (below & outward) - (above & ~outward);
        }
    }
    return places + ((lead - l->least) >> l->shift);
}

INLINE WORD LANE_NAME(round_narrow)(const LANE_NAME(lane) *l, WORD magnitude, WORD negative, int rounding)
{
    const SIGNED cut = (SIGNED)magnitude < (SIGNED)l->cap ? (SIGNED)magnitude : (SIGNED)l->cap;
    return LANE_NAME(round_places)(l, (WORD)cut, negative, rounding);
}

/* The same for a format with the source's own exponent range: the carry does everything. */
INLINE WORD LANE_NAME(round_same)(const LANE_NAME(lane) *l, WORD magnitude, WORD negative, int rounding)
{
    WORD increment = 0;
    if (rounding == HW_RNE)
        increment = l->nearest + ((magnitude >> l->shift) & l->odd);
    else if (rounding == HW_RNA)
        increment = l->tie;
    else if (rounding != HW_RZ)
        increment = l->directed & (rounding == HW_RU ? ~negative : negative);
    return (magnitude + increment) >> l->shift;
}

/* Code of a signed format with subnormals, given the rounded fields. */
INLINE WORD LANE_NAME(finish)(const LANE_NAME(lane) *l, WORD magnitude, WORD negative, WORD rounded,
                              int rounding, int minus_zero)
{
    WORD code = (rounded << l->ignored) | (negative & l->sign_bit);
    if (!minus_zero)
        code = rounded == 0 ? l->small ^ (negative & l->small_flip) : code;
    code = (SIGNED)rounded > (SIGNED)l->largest ? l->overflow ^ (negative & l->overflow_flip) : code;
    /* To nearest, every overflow policy treats infinities as it treats finite overflow. */
    if (rounding != HW_RNE && rounding != HW_RNA)
        code = magnitude == INFINITY_WORD ? l->infinity ^ (negative & l->infinity_flip) : code;
    return (SIGNED)magnitude > (SIGNED)INFINITY_WORD ? l->nan : code;
}

/* The short way to the fields of |value| rounded, for a magnitude not above the ceiling.
 *
 * Toward zero: a normal number only loses bits. Below, the value in places is exact (a power of two) and
 * cut by the conversion to integer; there it is not less than what cutting the bits of a number with an
 * exponent too small would give, and above it stops at the least normal number, so the larger is right.
 */
INLINE WORD LANE_NAME(round_narrow_short)(const LANE_NAME(lane) *l, WORD cut, int rounding)
{
    if (rounding == HW_RZ) {
        const REAL scaled = LANE_NAME(as_real)(cut) * l->places;
        const SIGNED subnormal = (SIGNED)(scaled < l->normal ? scaled : l->normal);
        const SIGNED normal = (SIGNED)(cut - l->rebias) >> l->shift;
        return (WORD)(normal > subnormal ? normal : subnormal);
    }
    return LANE_NAME(round_places)(l, cut, 0, rounding);
}

INLINE WORD LANE_NAME(round_same_short)(const LANE_NAME(lane) *l, WORD cut, int rounding)
{
    return LANE_NAME(round_same)(l, cut, 0, rounding);
}

INLINE WORD LANE_NAME(cut)(const LANE_NAME(lane) *l, WORD magnitude)
{
    return (WORD)((SIGNED)magnitude < (SIGNED)l->ceiling ? (SIGNED)magnitude : (SIGNED)l->ceiling);
}

/* Code by the short way. A NaN's magnitude was cut to the ceiling as well. */
INLINE WORD LANE_NAME(finish_short)(const LANE_NAME(lane) *l, WORD word, WORD magnitude, WORD rounded,
                                    int rounding, int ignored, int nan_overflow)
{
    if (rounding == HW_RZ && !nan_overflow)
        rounded = magnitude == INFINITY_WORD ? l->infinity_fields : rounded;
    const WORD code = (ignored ? rounded << l->ignored : rounded) | ((word >> l->sign_shift) & l->sign_bit);
    if (nan_overflow)
        return (SIGNED)rounded > (SIGNED)l->largest ? l->nan : code;
    return (SIGNED)magnitude > (SIGNED)l->nan_from ? l->nan : code;
}

/* Code of any other floating format: unsigned, or without zero. */
INLINE WORD LANE_NAME(finish_any)(const LANE_NAME(lane) *l, WORD magnitude, WORD negative, WORD rounded)
{
    const WORD fields = (SIGNED)rounded > (SIGNED)l->hidden ? rounded - l->hidden : 0;
    WORD code = (fields << l->ignored) | (negative & l->sign_bit);
    code = fields == 0 ? l->small ^ (negative & l->small_flip) : code;
    code = (SIGNED)fields > (SIGNED)l->largest ? l->overflow ^ (negative & l->overflow_flip) : code;
    code = magnitude == INFINITY_WORD ? l->infinity ^ (negative & l->infinity_flip) : code;
    code = negative & l->negative_is_nan ? l->nan : code;
    code = magnitude == 0 ? l->zero ^ (negative & l->zero_flip) : code;
    return (SIGNED)magnitude > (SIGNED)INFINITY_WORD ? l->nan : code;
}

/* Code of an integer format: two's complement of the rounded magnitude. */
INLINE WORD LANE_NAME(finish_integer)(const LANE_NAME(lane) *l, WORD magnitude, WORD negative, WORD rounded)
{
    const WORD beyond = l->largest + (negative & 1 & (l->sign_bit ? 1 : 0));
    WORD code = ((rounded ^ negative) - negative) & l->keep;
    code = (SIGNED)rounded > (SIGNED)beyond ? l->overflow ^ (negative & l->overflow_flip) : code;
    code = magnitude == INFINITY_WORD ? l->infinity ^ (negative & l->infinity_flip) : code;
    code = negative & l->negative_is_nan ? 0 : code;
    return (SIGNED)magnitude > (SIGNED)INFINITY_WORD ? l->nan : code;
}
