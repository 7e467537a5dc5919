/* Faults that the sanitizers must report: compiled by the very command that compiled a kernel, one is called in a process
   of its own. Each reads volatile values, so that no compiler sees the fault coming. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CALLED __attribute__((visibility("default")))

static volatile int32_t one = 1, many = INT32_MAX, places = 40;
static volatile double large = 1e300;
static volatile size_t count = 16;

CALLED int no_fault(void)
{
    return one + 1;
}

/* Hidden where the interpreter's -fwrapv is in force. */
CALLED int signed_overflow(void)
{
    return many + one;
}

CALLED int shift_too_far(void)
{
    return one << places;
}

CALLED int float_out_of_range(void)
{
    return (int)large;
}

CALLED int misaligned_read(void)
{
    char bytes[16] = {0};
    const int32_t *odd = (const int32_t *)(const void *)((uintptr_t)bytes | 1);
    return *(const volatile int32_t *)odd;
}

CALLED int read_past_the_heap(void)
{
    volatile char *bytes = malloc(count);
    int read = bytes[15 + one];
    free((void *)bytes);
    return read;
}

CALLED int read_after_free(void)
{
    volatile char *bytes = malloc(count);
    free((void *)bytes);
    return bytes[one];
}

static __attribute__((noinline)) void write_at(volatile char *bytes, int index)
{
    bytes[index] = 1;
}

CALLED int write_past_the_stack(void)
{
    volatile char bytes[16] = {0};
    write_at(bytes, 15 + one);
    return bytes[one];
}

/* A buffer of NumPy's, whose address the caller gives: the byte behind it. */
CALLED int read_past(const volatile char *bytes, long count)
{
    return bytes[count];
}
