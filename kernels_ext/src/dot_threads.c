/* Which builds this machine runs, and a product divided over threads: each output belongs to one thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "hw_cpu.h"
#include "hw_dot_promote.h"

hw_gemm hw_gemm_baseline;
#if HWSIM_X86
hw_gemm hw_gemm_avx2, hw_gemm_avx512;
#endif

const hw_variant hw_scalar_variant = {"scalar", hw_scalar_block};

int hw_variants(const hw_variant **table)
{
    static const hw_variant all[] = {
        {"baseline", hw_gemm_baseline},
#if HWSIM_X86
        {"avx2", hw_gemm_avx2},
        {"avx512", hw_gemm_avx512},
#endif
    };
    *table = all;
    return 1 + hw_cpu_level();
}

enum { GRAIN = 8, PART = 128, LIMIT = 256 };

/* What the threads of a product have in common. */
typedef struct work {
    const hw_variant *variant;
    const hw_block *block;
    const ptrdiff_t *a_offset, *b_offset, *out_offset, *a_scale_offset, *b_scale_offset;
    ptrdiff_t lines, all;       /* rows (or columns) of one batch, and of all, one after the other */
    int by_columns, threads;
    atomic_ptrdiff_t next;      /* the first line that nobody has taken */
    atomic_int status;
} work;

/* Lines first .. last of all. */
static int run_lines(const work *w, ptrdiff_t first, ptrdiff_t last)
{
    const hw_block *g = w->block;
    ptrdiff_t lines = w->lines, width = g->spec->d.storage_bits / 8;
    int status = 0;
    for (ptrdiff_t at = first; at < last && !status;) {
        ptrdiff_t batch = at / lines, low = at % lines;
        ptrdiff_t high = last - batch * lines < lines ? last - batch * lines : lines;
        hw_block part = *g;
        part.a += w->a_offset[batch];
        part.b += w->b_offset[batch];
        part.out += w->out_offset[batch];
        if (g->spec->scale_block) {
            part.a_scale += w->a_scale_offset[batch];
            part.b_scale += w->b_scale_offset[batch];
            if (w->by_columns)
                part.b_scale += low * g->b_scale_column;
            else
                part.a_scale += low * g->a_scale_row;
        }
        if (w->by_columns) {
            part.b += low * g->b_column;
            part.out += low * width;
            part.n = high - low;
        } else {
            part.a += low * g->a_row;
            part.out += low * g->out_row;
            part.m = high - low;
        }
        status = part.promotion ? hw_promote(w->variant, &part) : w->variant->gemm(&part);
        at = batch * lines + high;
    }
    return status;
}

/* A thread takes lines until there are none: each time half of an even share of what is left, but at least PART of them,
 * as B is packed for each share. `least` is an even share of all, cut into equal parts of PART to 2 PART lines (or whole,
 * where it is smaller), so that no thread ends with a small rest. So all end together though one processor is slower,
 * or has other work to do.
 */
static void *take_lines(void *argument)
{
    work *w = argument;
    ptrdiff_t even = (w->all + w->threads - 1) / w->threads, parts = even < PART ? 1 : even / PART;
    ptrdiff_t least = (even + parts - 1) / parts;
    for (;;) {
        ptrdiff_t first = atomic_load(&w->next), last;
        do {
            if (first >= w->all || atomic_load(&w->status))
                return 0;
            ptrdiff_t share = (w->all - first) / (2 * w->threads);
            share = w->threads == 1 ? w->all : share > least ? share : least;
            last = first + (share + GRAIN - 1) / GRAIN * GRAIN;
            last = last < w->all ? last : w->all;
        } while (!atomic_compare_exchange_weak(&w->next, &first, last));
        int status = run_lines(w, first, last);
        if (status)
            atomic_store(&w->status, status);
    }
}

int hw_gemm_threads(const hw_variant *variant, const hw_block *block, ptrdiff_t batches, const ptrdiff_t *a_offset,
                    const ptrdiff_t *b_offset, const ptrdiff_t *out_offset, const ptrdiff_t *a_scale_offset,
                    const ptrdiff_t *b_scale_offset, int threads)
{
    if (block->m <= 0 || block->n <= 0 || batches <= 0)
        return 0;
    /* A share of fewer than GRAIN rows wastes the register tiles: divide columns when there are more of them. */
    int by_columns = batches * block->m < (ptrdiff_t)threads * GRAIN && block->n > block->m;
    ptrdiff_t lines = by_columns ? block->n : block->m, shares = batches * lines / GRAIN;
    threads = threads < LIMIT ? threads : LIMIT;
    threads = threads > shares ? (int)shares : threads;
    threads = threads < 1 ? 1 : threads;
    work all = {variant, block, a_offset, b_offset, out_offset, a_scale_offset, b_scale_offset, lines, batches * lines,
                by_columns, threads, 0, 0};
    pthread_t others[LIMIT];
    int started = 0;
    while (started < threads - 1 && !pthread_create(&others[started], 0, take_lines, &all))
        started++;
    take_lines(&all);       /* the caller too; where no thread could be started, it does all */
    for (int t = 0; t < started; t++)
        pthread_join(others[t], 0);
    return atomic_load(&all.status);
}
