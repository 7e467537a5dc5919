/* What elementwise kernels need of the host: which builds it runs, threads, a known floating-point environment. */
#ifndef HW_HOST_H
#define HW_HOST_H

#include <fenv.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "hw_cpu.h"

/* Whether this processor and system run the build "baseline", "avx2" or "avx512". */
static inline int hw_host_runs(const char *variant)
{
    if (!strcmp(variant, "baseline"))
        return 1;
    if (!strcmp(variant, "avx2"))
        return hw_cpu_level() >= 1;
    if (!strcmp(variant, "avx512"))
        return hw_cpu_level() >= 2;
    return 0;
}

typedef void hw_visit(const void *job, size_t begin, size_t end);

typedef struct {
    hw_visit *visit;
    const void *job;
    size_t begin, end;
} hw_share;

/* A caller's process may round otherwise or flush subnormals; kernels count on neither. */
static inline void *hw_host_work(void *argument)
{
    const hw_share *share = argument;
    fenv_t callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    share->visit(share->job, share->begin, share->end);
    fesetenv(&callers);
    return NULL;
}

/* visit(job, begin, end) over 0..units, in `threads` ranges of at least `least` units; each unit in one of them. */
static inline void hw_host_divide(hw_visit *visit, const void *job, size_t units, size_t least, int threads)
{
    enum { MAX_THREADS = 256 };
    hw_share shares[MAX_THREADS];
    pthread_t handles[MAX_THREADS];
    size_t count = threads < MAX_THREADS ? (size_t)threads : MAX_THREADS;
    int started = 0;

    if (!units)
        return;
    if (count > 1 + units / least)
        count = 1 + units / least;
    if (count > units)
        count = units;
    for (size_t t = 0; t < count; t++)
        shares[t] = (hw_share){visit, job, units / count * t + (t < units % count ? t : units % count), 0};
    for (size_t t = 0; t < count; t++)
        shares[t].end = t + 1 < count ? shares[t + 1].begin : units;
    for (size_t t = 1; t < count; t++) {
        if (pthread_create(&handles[started], NULL, hw_host_work, &shares[t]))
            hw_host_work(&shares[t]); /* no thread to be had: this one does it */
        else
            started++;
    }
    hw_host_work(&shares[0]);
    for (int t = 0; t < started; t++)
        pthread_join(handles[t], NULL);
}

#endif
