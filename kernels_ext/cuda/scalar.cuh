/* Marked elements of C, or all of them, by the scalar steps of the C sources: integers, for every unit. */
#pragma once
#include "tile.cuh"

__device__ __forceinline__ hw_num decoded(const hw_spec *s, const hw_format *f, uint64_t code)
{
    if (f->special == HW_INTEGER) {
        hw_num x = {(uint64_t)hw_decode_integer(f, code), 0, 0, HW_NORMAL, 0};
        return x;
    }
    return s->model == HW_COMPOSITE ? hw_decode(f, code) : hw_read(s, f, code);
}

/* The element of row y, column x of a matrix of the stack, from its first step on. */
__device__ void run_element(const Arguments &g, int y, int x, int matrix)
{
    const hw_spec *s = &SCALAR_SPEC;
    const char *a = g.a + matrix * g.a_matrix + y * g.a_row, *b = g.b + matrix * g.b_matrix + x * g.b_column;
    char *out = g.out + matrix * g.out_matrix + ((long long)y * g.n + x) * (D_FORMAT.storage_bits / 8);
    hw_num left[SPEC.terms], right[SPEC.terms];
    hw_num a_scale[SCALES_PER_STEP], b_scale[SCALES_PER_STEP];
    const hw_num zero = {0, 0, 0, HW_ZERO, 0}, one = {1, 0, 0, HW_NORMAL, 0};
    hw_format c_format = C_FORMAT;
    uint64_t code = 0;
    if (g.c)
        code = load_code<C_FORMAT.storage_bits>(g.c + matrix * g.c_matrix + y * g.c_row + x * g.c_column);
    const int depth = g.k > 0 ? g.k : 1;
    for (int k = 0, step = 0; k < depth; k += SPEC.terms, step++) {
        const int given = g.k - k < SPEC.terms ? g.k - k : SPEC.terms;
        for (int t = 0; t < SPEC.terms; t++) {
            left[t] = t < given ? decoded(s, &A_FORMAT, load_code<A_FORMAT.storage_bits>(a + (k + t) * g.a_column)) : zero;
            right[t] = t < given ? decoded(s, &B_FORMAT, load_code<B_FORMAT.storage_bits>(b + (k + t) * g.b_row)) : zero;
        }
        hw_scales scales = {a_scale, b_scale, given < 0 ? 0 : given};
        for (int block = 0; HAS_SCALES && block < SCALES_PER_STEP; block++) {
            const int first = k + block * SCALE_BLOCK;
            const bool is_there = first < g.k;
            a_scale[block] = is_there ? hw_decode(&SPEC.scale, (uint8_t)g.a_scale[matrix * g.a_scale_matrix
                + y * g.a_scale_row + first / SCALE_BLOCK * g.a_scale_column]) : one;
            b_scale[block] = is_there ? hw_decode(&SPEC.scale, (uint8_t)g.b_scale[matrix * g.b_scale_matrix
                + x * g.b_scale_column + first / SCALE_BLOCK * g.b_scale_row]) : one;
        }
        if (g.divide)
            c_format.bias += g.divide[step];
        code = step_of_unit(s, left, right, &scales, &c_format, code);
        c_format = D_FORMAT;
        if (NAN_STAYS && code == SPEC.nan_code)
            break;
    }
    store_code<D_FORMAT.storage_bits>(out, code);
}

/* One thread for each element; all: whether marks are not asked. */
__device__ void run_scalar(const Arguments &g, long long count, bool all)
{
    if (!all && !g.marks[0])
        return;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (long long)gridDim.x * blockDim.x) {
        if (!all && !(g.marks[1 + at / 32] >> (at % 32) & 1))
            continue;
        const long long per_matrix = (long long)g.m * g.n;
        run_element(g, (int)(at % per_matrix / g.n), (int)(at % g.n), (int)(at / per_matrix));
    }
}
