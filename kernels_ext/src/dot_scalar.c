/* A block of a matrix product by scalar steps: decodes slices of rows and columns, chains steps over k. */
#include <stdlib.h>
#include "hw_dot_terms.h"

enum { ROWS = 16, COLUMNS = 16, DEPTH = 256 };

static hw_num read_number(const hw_spec *s, const hw_format *f, uint64_t code)
{
    if (f->special == HW_INTEGER) {
        hw_num x = {(uint64_t)hw_decode_integer(f, code), 0, 0, HW_NORMAL, 0};
        return x;
    }
    if (s->model == HW_COMPOSITE) /* the inner unit's rules hold for them, in its format */
        return hw_decode(f, code);
    return hw_read(s, f, code);
}

/* Decoded codes of `lines` rows (or columns), each padded with +0 to `padded` numbers. */
static void read_lines(const hw_spec *s, const hw_format *f, hw_num *to, const char *from, ptrdiff_t line,
                       ptrdiff_t along, ptrdiff_t lines, ptrdiff_t depth, ptrdiff_t padded)
{
    for (ptrdiff_t i = 0; i < lines; i++)
        for (ptrdiff_t k = 0; k < padded; k++) {
            hw_num zero = {0, 0, 0, HW_ZERO, 0};
            to[i * padded + k] = k < depth
                ? read_number(s, f, hw_load_code(from + i * line + k * along, f->storage_bits)) : zero;
        }
}

/* Block scales of `lines` rows (or columns); 1 beyond the last of k. */
static void read_scales(const hw_spec *s, hw_num *to, const char *from, ptrdiff_t line, ptrdiff_t along,
                        ptrdiff_t lines, ptrdiff_t blocks, ptrdiff_t padded)
{
    for (ptrdiff_t i = 0; i < lines; i++)
        for (ptrdiff_t k = 0; k < padded; k++) {
            hw_num one = {1, 0, 0, HW_NORMAL, 0};
            to[i * padded + k] = k < blocks
                ? hw_decode(&s->scale, hw_load_code(from + i * line + k * along, s->scale.storage_bits)) : one;
        }
}

/* Steps over k0 .. k1; c: where the first accumulator stands, in c_format. */
static int run(const hw_block *g, const hw_format *c_format, const char *c, ptrdiff_t c_row, ptrdiff_t c_column,
               ptrdiff_t k1)
{
    const hw_spec *s = g->spec;
    hw_step *step = hw_steps[s->model];
    int terms = s->terms, width = s->d.storage_bits / 8;
    ptrdiff_t chunk = terms >= DEPTH ? terms : DEPTH / terms * terms;
    ptrdiff_t needed = k1 > 0 ? (k1 + terms - 1) / terms * terms : terms;
    chunk = needed < chunk ? needed : chunk;
    ptrdiff_t block = s->scale_block, blocks = block ? chunk / block : 0;
    hw_num *a = malloc(sizeof(hw_num) * (size_t)((ROWS + COLUMNS) * (chunk + blocks)));
    if (!a)
        return -1;
    hw_num *b = a + ROWS * chunk, *a_scale = b + COLUMNS * chunk, *b_scale = a_scale + ROWS * blocks;
    for (ptrdiff_t i = 0; i < g->m; i += ROWS)
        for (ptrdiff_t j = 0; j < g->n; j += COLUMNS) {
            ptrdiff_t rows = g->m - i < ROWS ? g->m - i : ROWS, columns = g->n - j < COLUMNS ? g->n - j : COLUMNS;
            for (ptrdiff_t k = 0; k < needed; k += chunk) {
                ptrdiff_t depth = k1 - k < chunk ? k1 - k : chunk, padded = (depth + terms - 1) / terms * terms;
                if (!padded)
                    padded = terms;     /* K = 0 is one step of zeros */
                if (s->model == HW_EXACT && depth < terms)
                    padded = depth + 1; /* of an exact step's padding one product counts for all */
                read_lines(s, &s->a, a, g->a + i * g->a_row + k * g->a_column, g->a_row, g->a_column, rows, depth,
                           padded);
                read_lines(s, &s->b, b, g->b + j * g->b_column + k * g->b_row, g->b_column, g->b_row, columns,
                           depth, padded);
                if (block) {
                    ptrdiff_t own = (depth + block - 1) / block, at = k / block;
                    read_scales(s, a_scale, g->a_scale + i * g->a_scale_row + at * g->a_scale_column, g->a_scale_row,
                                g->a_scale_column, rows, own, padded / block);
                    read_scales(s, b_scale, g->b_scale + j * g->b_scale_column + at * g->b_scale_row,
                                g->b_scale_column, g->b_scale_row, columns, own, padded / block);
                }
                for (ptrdiff_t x = 0; x < rows; x++)
                    for (ptrdiff_t y = 0; y < columns; y++) {
                        char *out = g->out + (i + x) * g->out_row + (j + y) * width;
                        const hw_format *f = k ? &s->d : c_format;
                        uint64_t code = k ? hw_load_code(out, s->d.storage_bits)
                                          : hw_load_code(c + (i + x) * c_row + (j + y) * c_column, f->storage_bits);
                        for (ptrdiff_t z = 0; z < padded; z += terms) {
                            hw_scales scales = {0, 0, (int)(depth - z < terms ? depth - z : terms)};
                            hw_format divided = *f;
                            if (g->divide) {
                                divided.bias += g->divide[(k + z) / terms];
                                f = &divided;
                            }
                            if (block) {
                                scales.a = a_scale + (x * padded + z) / block;
                                scales.b = b_scale + (y * padded + z) / block;
                            }
                            code = step(s, a + x * padded + z, b + y * padded + z, &scales, f, code);
                            f = &s->d;
                        }
                        hw_store_code(out, s->d.storage_bits, code);
                    }
            }
        }
    free(a);
    return 0;
}

int hw_scalar_block(const hw_block *g)
{
    return run(g, &g->spec->d, g->out, g->out_row, g->spec->d.storage_bits / 8, g->k);
}

int hw_scalar_first_step(const hw_block *g, const char *c, ptrdiff_t c_row, ptrdiff_t c_column)
{
    return run(g, &g->spec->c, c, c_row, c_column, g->k < g->spec->terms ? g->k : g->spec->terms);
}
