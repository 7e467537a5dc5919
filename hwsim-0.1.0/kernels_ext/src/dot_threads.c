/* Which builds this machine runs, and a product divided over threads: each output belongs to one thread. */
#include <pthread.h>
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

typedef struct job {
    const hw_variant *variant;
    const hw_block *block;
    const ptrdiff_t *a_offset, *b_offset, *out_offset, *a_scale_offset, *b_scale_offset;
    ptrdiff_t first, last;  /* lines: rows (or columns) of all batches, one after the other */
    int by_columns;
    int status;
    pthread_t thread;
    int started;
} job;

static void *work(void *argument)
{
    job *j = argument;
    const hw_block *g = j->block;
    ptrdiff_t lines = j->by_columns ? g->n : g->m, width = g->spec->d.storage_bits / 8;
    for (ptrdiff_t at = j->first; at < j->last && !j->status;) {
        ptrdiff_t batch = at / lines, low = at % lines;
        ptrdiff_t high = j->last - batch * lines < lines ? j->last - batch * lines : lines;
        hw_block part = *g;
        part.a += j->a_offset[batch];
        part.b += j->b_offset[batch];
        part.out += j->out_offset[batch];
        if (g->spec->scale_block) {
            part.a_scale += j->a_scale_offset[batch];
            part.b_scale += j->b_scale_offset[batch];
            if (j->by_columns)
                part.b_scale += low * g->b_scale_column;
            else
                part.a_scale += low * g->a_scale_row;
        }
        if (j->by_columns) {
            part.b += low * g->b_column;
            part.out += low * width;
            part.n = high - low;
        } else {
            part.a += low * g->a_row;
            part.out += low * g->out_row;
            part.m = high - low;
        }
        j->status = part.promotion ? hw_promote(j->variant, &part) : j->variant->gemm(&part);
        at = batch * lines + high;
    }
    return 0;
}

int hw_gemm_threads(const hw_variant *variant, const hw_block *block, ptrdiff_t batches, const ptrdiff_t *a_offset,
                    const ptrdiff_t *b_offset, const ptrdiff_t *out_offset, const ptrdiff_t *a_scale_offset,
                    const ptrdiff_t *b_scale_offset, int threads)
{
    enum { LIMIT = 256, GRAIN = 8 };
    if (block->m <= 0 || block->n <= 0 || batches <= 0)
        return 0;
    /* A share of fewer than GRAIN rows wastes the register tiles: divide columns when there are more of them. */
    int by_columns = batches * block->m < (ptrdiff_t)threads * GRAIN && block->n > block->m;
    ptrdiff_t lines = batches * (by_columns ? block->n : block->m), shares = lines / GRAIN;
    threads = threads < LIMIT ? threads : LIMIT;
    threads = threads > shares ? (int)shares : threads;
    threads = threads < 1 ? 1 : threads;
    job one, *jobs = threads > 1 ? calloc((size_t)threads, sizeof(job)) : &one;
    if (!jobs)
        return -1;
    int status = 0;
    for (int t = 0; t < threads; t++) {
        job *j = &jobs[t];
        memset(j, 0, sizeof *j);
        j->variant = variant;
        j->block = block;
        j->a_offset = a_offset;
        j->b_offset = b_offset;
        j->out_offset = out_offset;
        j->a_scale_offset = a_scale_offset;
        j->b_scale_offset = b_scale_offset;
        j->by_columns = by_columns;
        /* Shares are whole multiples of GRAIN lines, except the last. */
        j->first = lines * t / threads / GRAIN * GRAIN;
        j->last = t + 1 == threads ? lines : lines * (t + 1) / threads / GRAIN * GRAIN;
        if (t)
            j->started = !pthread_create(&j->thread, 0, work, j);
    }
    for (int t = 0; t < threads; t++)
        if (!jobs[t].started)       /* the caller's own share, and those of threads that did not start */
            work(&jobs[t]);
    for (int t = 1; t < threads; t++)
        if (jobs[t].started)
            pthread_join(jobs[t].thread, 0);
    for (int t = 0; t < threads; t++)
        status |= jobs[t].status;
    if (threads > 1)
        free(jobs);
    return status;
}
