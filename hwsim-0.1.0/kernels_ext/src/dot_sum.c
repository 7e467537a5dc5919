/* The exact sum of terms: in 128 bits when they fit, else in as many words as their exponents span. */
#include "hw_dot_terms.h"

/* Terms lie between 2^-2148 (two fp64 subnormals) and 2^2048; 2^13 of them stay below 2^2061. With a sign
 * bit and the word that the lowest place falls into: (2061 + 2148 + 1) / 64 + 1 < 68 words.
 */
enum { WORDS = 72 };

static uint64_t add_wide(const hw_spec *s, const hw_term *terms, int count, int low, int high)
{
    uint64_t w[WORDS + 3];
    int words = (high - low + 16) / 64 + 2;
    memset(w, 0, sizeof(uint64_t) * (size_t)(words + 3));
    for (int i = 0; i < count; i++) {
        if (terms[i].kind != HW_NORMAL)
            continue;
        int place = terms[i].lsb - low, at = place >> 6, shift = place & 63;
        hw_u128 m = terms[i].sig;
        uint64_t part[3];       /* 106 + 63 bits */
        part[0] = (uint64_t)(m << shift);
        part[1] = (uint64_t)((m << shift) >> 64);
        part[2] = shift ? (uint64_t)(m >> (128 - shift)) : 0;
        uint64_t flip = terms[i].sign ? ~0ull : 0, carry = terms[i].sign;
        for (int j = at; j < words; j++) {     /* minus: add the complement and one */
            hw_u128 t = (hw_u128)w[j] + ((j - at < 3 ? part[j - at] : 0) ^ flip) + carry;
            w[j] = (uint64_t)t;
            carry = (uint64_t)(t >> 64);
            if (!flip && !carry && j - at >= 2)
                break;
        }
    }
    unsigned sign = (unsigned)(w[words - 1] >> 63);
    if (sign) {
        uint64_t carry = 1;
        for (int j = 0; j < words; j++) {
            w[j] = ~w[j] + carry;
            carry = carry && !w[j];
        }
    }
    int lead = words - 1;
    while (lead >= 0 && !w[lead])
        lead--;
    if (lead < 0)
        return hw_zero(s, terms, count);
    if (lead == 0)
        return hw_pack(s, sign, w[0], low, 0);
    int sticky = 0;
    for (int j = 0; j < lead - 1; j++)
        sticky |= w[j] != 0;
    return hw_pack(s, sign, (hw_u128)w[lead] << 64 | w[lead - 1], low + 64 * (lead - 1), sticky);
}

uint64_t hw_add_rounded(const hw_spec *s, const hw_term *terms, int count)
{
    uint64_t special;
    if (hw_special_sum(s, terms, count, &special))
        return special;
    int low = 1 << 20, high = -(1 << 20);
    for (int i = 0; i < count; i++)
        if (terms[i].kind == HW_NORMAL) {
            int top = terms[i].lsb + hw_bits128(terms[i].sig);
            low = terms[i].lsb < low ? terms[i].lsb : low;
            high = top > high ? top : high;
        }
    if (high < low)
        return hw_zero(s, terms, count);
    if (high - low > 113)       /* 113 + 13 (count <= 2^13) + sign < 128 */
        return add_wide(s, terms, count, low, high);
    hw_i128 sum = 0;
    for (int i = 0; i < count; i++)
        if (terms[i].kind == HW_NORMAL) {
            hw_i128 m = (hw_i128)(terms[i].sig << (terms[i].lsb - low));
            sum += terms[i].sign ? -m : m;
        }
    if (!sum)
        return hw_zero(s, terms, count);
    return hw_pack(s, sum < 0, sum < 0 ? -(hw_u128)sum : (hw_u128)sum, low, 0);
}
