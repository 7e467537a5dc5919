/* Elementwise work on arrays of any strides: conversions by the C sources' rules, steps on a stack, a search.
 *
 * It knows the records of hw_convert.h and hw_lanes.h; it knows no unit. Results lie in C order.
 */
#pragma once
#include "machine.cuh"
#define HW_JOIN_(a, b) a##_##b
#define HW_JOIN(a, b) HW_JOIN_(a, b)
#define LANE 64
#include "hw_convert.h"
#include "hw_convert_lane.h"
#undef LANE
#include "hw_lanes.h"

enum { AXES = 6, MOST_OPERANDS = 32, MOST_STEPS = 64 };

/* An array by its shape (that of the result) and its strides in bytes; 0 where it is repeated. */
struct Strided {
    char *data;
    long long stride[AXES];
    int type;           /* enum hw_lane_type; of codes and words: their bits */
};

/* axes: how many of the last ones there are; the others have length 1. */
struct Shape {
    long long length[AXES], count;
    int axes;
};

template <class Index> __device__ __forceinline__ char *at_places(const Strided &x, const Shape &shape, Index index)
{
    long long offset = 0;
    for (int axis = AXES - 1; axis > AXES - shape.axes; axis--) {
        const Index length = (Index)shape.length[axis], outer = index / length;
        offset += (long long)(index - outer * length) * x.stride[axis];
        index = outer;
    }
    return x.data + offset + (long long)index * x.stride[AXES - shape.axes];
}

__device__ __forceinline__ char *at(const Strided &x, const Shape &shape, long long index)
{
    return shape.count >> 31 ? at_places<uint64_t>(x, shape, index) : at_places<uint32_t>(x, shape, (uint32_t)index);
}

#define EACH_ELEMENT(i, shape) \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < (shape).count; \
         i += (long long)gridDim.x * blockDim.x)

/* A float's or a double's word as that of a double; NaNs stay NaNs. */
__device__ __forceinline__ uint64_t wide_word(const char *p, int bits)
{
    if (bits == 64)
        return *(const uint64_t *)p;
    const uint32_t word = *(const uint32_t *)p, magnitude = word & 0x7fffffff;
    const uint64_t sign = (uint64_t)(word >> 31) << 63;
    if (magnitude >= 0x7f800000)
        return sign | 0x7ff0000000000000ull | (uint64_t)(magnitude & 0x7fffff) << 29;
    return (uint64_t)__double_as_longlong((double)__uint_as_float(magnitude)) | sign;
}

__device__ __forceinline__ uint64_t code_of(const hw_encoder &e, uint64_t word)
{
    const lane_64 l = lane_of_64(&e);
    const uint64_t negative = 0 - (word >> 63), magnitude = word & ~(1ull << 63);
    if (!e.exponent_bits)
        return finish_integer_64(&l, magnitude, negative, round_narrow_64(&l, magnitude, negative, e.rounding));
    if (!e.sign_bit || e.hidden)
        return finish_any_64(&l, magnitude, negative, round_narrow_64(&l, magnitude, negative, e.rounding));
    if (e.code_bits == 64)
        return finish_64(&l, magnitude, negative, round_same_64(&l, magnitude, negative, e.rounding), e.rounding, 0);
    return finish_64(&l, magnitude, negative, round_narrow_64(&l, magnitude, negative, e.rounding), e.rounding, 0);
}

/* The word of the double that a code stands for; a NaN keeps its sign alone. */
__device__ __forceinline__ uint64_t word_of_code(const hw_decoder &d, uint64_t code)
{
    const int bits = d.exponent_bits + d.fraction_bits;
    const uint64_t word = code >> d.ignored_bits, fields = bits >= 64 ? ~0ull : (1ull << bits) - 1;
    const uint64_t magnitude = word & fields;
    const uint64_t sign = d.is_signed ? word >> bits & 1 : 0;
    if (!d.exponent_bits) {
        const long long whole = sign ? (long long)(magnitude) - (1ll << bits) : (long long)magnitude;
        return (uint64_t)__double_as_longlong((double)whole);
    }
    uint64_t value;
    if ((d.minus_zero_is_nan && sign && !magnitude) || magnitude > d.largest)
        value = d.has_infinity && magnitude == d.largest + 1 && magnitude ? 0x7ff0000000000000ull : 0x7ff8000000000000ull;
    else if (d.exponent_bits == 11)
        value = magnitude;
    else {
        const int biased = (int)(magnitude >> d.fraction_bits);
        const uint64_t fraction = magnitude & ((1ull << d.fraction_bits) - 1);
        const uint64_t hidden = d.subnormals && !biased ? 0 : 1ull << d.fraction_bits;
        const int exponent = hidden ? biased - d.bias : d.min_exponent;
        value = (uint64_t)__double_as_longlong((double)(hidden + fraction) * power_of_two(exponent - d.fraction_bits));
    }
    return value | sign << 63;
}

__device__ __forceinline__ uint64_t load_word(const char *p, int bits)
{
    return bits == 8 ? *(const uint8_t *)p : bits == 16 ? *(const uint16_t *)p : bits == 32 ? *(const uint32_t *)p
        : *(const uint64_t *)p;
}

__device__ __forceinline__ void store_word(char *p, int bits, uint64_t word)
{
    if (bits == 8)
        *(uint8_t *)p = (uint8_t)word;
    else if (bits == 16)
        *(uint16_t *)p = (uint16_t)word;
    else if (bits == 32)
        *(uint32_t *)p = (uint32_t)word;
    else
        *(uint64_t *)p = word;
}

/* A double's word, whose value binary32 has, as binary32's. */
__device__ __forceinline__ uint32_t narrow_word(uint64_t word)
{
    const uint32_t sign = (uint32_t)(word >> 63) << 31;
    const uint64_t magnitude = word & ~(1ull << 63);
    if (magnitude > 0x7ff0000000000000ull)
        return sign | 0x7fc00000;
    return sign | __float_as_uint(__double2float_rn(__longlong_as_double((long long)magnitude)));
}

/* The records of a call lie in the GPU's memory; each thread reads what it needs. */
extern "C" __global__ void encode(const hw_encoder *record, const Strided *source, char *codes, const Shape *result)
{
    const hw_encoder e = *record;
    const Strided x = *source;
    const Shape shape = *result;
    EACH_ELEMENT(i, shape)
        store_word(codes + i * (e.code_bits / 8), e.code_bits, code_of(e, wide_word(at(x, shape, i), e.source_bits)));
}

extern "C" __global__ void decode(const hw_decoder *record, const Strided *source, char *values, const Shape *result)
{
    const hw_decoder d = *record;
    const Strided codes = *source;
    const Shape shape = *result;
    EACH_ELEMENT(i, shape) {
        const uint64_t word = word_of_code(d, load_word(at(codes, shape, i), d.code_bits));
        store_word(values + i * (d.value_bits / 8), d.value_bits, d.value_bits == 64 ? word : narrow_word(word));
    }
}

/* The largest finite value for an infinity, +0 for a NaN, where the step says so. */
template <class Real, class Word> __device__ __forceinline__ Real settled(const hw_step &step, Real x)
{
    const Word infinite = sizeof(Real) == 8 ? (Word)0x7ff0000000000000ull : (Word)0x7f800000u;
    Word word;
    memcpy(&word, &x, sizeof word);
    const Word sign = word & (Word)1 << (8 * sizeof(Word) - 1), magnitude = word ^ sign;
    if (magnitude > infinite ? step.zero_nan : magnitude == infinite && step.saturate) {
        word = magnitude > infinite ? 0 : sign | (infinite - 1);
        memcpy(&x, &word, sizeof word);
    }
    return x;
}

__device__ __forceinline__ float plain(float x, float y, int is_difference) { return is_difference ? __fsub_rn(x, y) : __fmul_rn(x, y); }
__device__ __forceinline__ double plain(double x, double y, int is_difference) { return is_difference ? __dsub_rn(x, y) : __dmul_rn(x, y); }

template <class Real, class Word>
__device__ void split_elements(const hw_piece *pieces, int count, int clamp, const Strided &x, const Shape &shape)
{
    const int bits = 8 * sizeof(Real);
    EACH_ELEMENT(i, shape) {
        Real rest = *(const Real *)at(x, shape, i);
        hw_step of_clamp = {1, clamp, 0};
        rest = settled<Real, Word>(of_clamp, rest);
        for (int p = 0; p < count; p++) {
            const hw_piece &piece = pieces[p];
            rest = settled<Real, Word>(piece.step, plain(rest, (Real)piece.step.scale, 0));
            const uint64_t code = code_of(piece.encoder, wide_word((const char *)&rest, bits));
            store_word((char *)piece.codes + i * (piece.encoder.code_bits / 8), piece.encoder.code_bits, code);
            if (p + 1 == count)
                continue;
            const uint64_t word = word_of_code(piece.decoder, code);
            Real part;
            if (bits == 64)
                memcpy(&part, &word, sizeof part);
            else {
                const uint32_t narrow = narrow_word(word);
                memcpy(&part, &narrow, sizeof part);
            }
            rest = settled<Real, Word>(piece.step, plain(rest, part, 1));
        }
    }
}

extern "C" __global__ void split(const hw_piece *pieces, int count, int clamp, const Strided *source, const Shape *result)
{
    const Strided x = *source;
    const Shape shape = *result;
    if (x.type == 64)
        split_elements<double, uint64_t>(pieces, count, clamp, x, shape);
    else
        split_elements<float, uint32_t>(pieces, count, clamp, x, shape);
}

/* Steps on a stack of binary32 or binary64 numbers; each rounds once. */
struct Lanes {
    hw_lane_step steps[MOST_STEPS];
    Strided operands[MOST_OPERANDS];
    hw_lane_edges edges;
    int step_count;
};

__device__ __forceinline__ float fused(float f, float x, float y) { return __fmaf_rn(f, x, y); }
__device__ __forceinline__ double fused(double f, double x, double y) { return __fma_rn(f, x, y); }
__device__ __forceinline__ float added(float x, float y) { return __fadd_rn(x, y); }
__device__ __forceinline__ double added(double x, double y) { return __dadd_rn(x, y); }

template <class Real> __device__ __forceinline__ Real loaded(const Strided &x, const char *p)
{
    if (x.type == HW_LANE_DOUBLE)
        return (Real) * (const double *)p;
    if (x.type == HW_LANE_INT32)
        return (Real) * (const int *)p;
    return (Real) * (const float *)p;
}

template <class Real, class Word> __device__ void combine_elements(const Lanes &g, char *out, const Shape &shape)
{
    const hw_step edges = {1, g.edges.saturate, g.edges.saturate};
    const Word infinite = sizeof(Real) == 8 ? (Word)0x7ff0000000000000ull : (Word)0x7f800000u;
    EACH_ELEMENT(i, shape) {
        Real stack[HW_LANE_DEPTH];
        int top = -1;
        for (int s = 0; s < g.step_count; s++) {
            const hw_lane_step &step = g.steps[s];
            const Real f = (Real)step.factor;
            switch (step.op) {
            case HW_LANE_LOAD:
                stack[++top] = loaded<Real>(g.operands[step.index], at(g.operands[step.index], shape, i));
                break;
            case HW_LANE_CONSTANT: stack[++top] = f; break;
            case HW_LANE_ADD: top--; stack[top] = added(stack[top], stack[top + 1]); break;
            case HW_LANE_SUBTRACT: top--; stack[top] = plain(stack[top], stack[top + 1], 1); break;
            case HW_LANE_TIMES: top--; stack[top] = plain(stack[top], stack[top + 1], 0); break;
            case HW_LANE_SCALE: stack[top] = plain(f, stack[top], 0); break;
            case HW_LANE_FUSED: top--; stack[top] = fused(f, stack[top], stack[top + 1]); break;
            case HW_LANE_FMA: top -= 2; stack[top] = fused(stack[top], stack[top + 1], stack[top + 2]); break;
            }
            stack[top] = settled<Real, Word>(edges, stack[top]);
        }
        Word word;
        memcpy(&word, &stack[0], sizeof word);
        const Word magnitude = word & ~((Word)1 << (8 * sizeof(Word) - 1));
        ((Word *)out)[i] = magnitude > infinite ? (Word)g.edges.nan : word;
    }
}

/* wide: whether the working type is binary64. */
extern "C" __global__ void combine(const Lanes *g, int wide, char *out, const Shape *result)
{
    const Shape shape = *result;
    if (wide)
        combine_elements<double, uint64_t>(*g, out, shape);
    else
        combine_elements<float, uint32_t>(*g, out, shape);
}

/* Times a power of two; a NaN becomes quiet and keeps its payload, as on CPUs. */
extern "C" __global__ void scale(double factor, const Strided *source, char *out, const Shape *result)
{
    const Strided x = *source;
    const Shape shape = *result;
    EACH_ELEMENT(i, shape) {
        const char *from = at(x, shape, i);
        if (x.type == 64) {
            const double value = *(const double *)from;
            ((uint64_t *)out)[i] = value != value ? *(const uint64_t *)from | 1ull << 51
                : (uint64_t)__double_as_longlong(__dmul_rn(value, factor));
        } else {
            const float value = *(const float *)from;
            ((uint32_t *)out)[i] = value != value ? *(const uint32_t *)from | 1u << 22
                : __float_as_uint(__fmul_rn(value, (float)factor));
        }
    }
}

/* The largest word without its sign. */
extern "C" __global__ void largest(unsigned long long *found, const Strided *source, const Shape *result)
{
    const Strided x = *source;
    const Shape shape = *result;
    unsigned long long own = 0;
    EACH_ELEMENT(i, shape) {
        const uint64_t word = load_word(at(x, shape, i), x.type) & (x.type == 64 ? ~(1ull << 63) : 0x7fffffffull);
        own = word > own ? word : own;
    }
    atomicMax(found, own);
}

/* Which rows and columns of a matrix hold an infinity or a NaN. */
extern "C" __global__ void specials(uint8_t *rows, uint8_t *columns, long long wide, const Strided *source, const Shape *result)
{
    const Strided x = *source;
    const Shape shape = *result;
    EACH_ELEMENT(i, shape) {
        const uint64_t word = load_word(at(x, shape, i), x.type);
        if (x.type == 64 ? (word & ~(1ull << 63)) >= 0x7ff0000000000000ull : (word & 0x7fffffff) >= 0x7f800000) {
            rows[i / wide] = columns[i % wide] = 1;
        }
    }
}
