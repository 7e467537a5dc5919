/* Which instruction sets this processor has and the system keeps the registers of. By CPUID itself: not every
   compiler's library fills in what __builtin_cpu_supports reads (zig 0.17 does not). */
#ifndef HW_CPU_H
#define HW_CPU_H

#if HWSIM_X86
#include <cpuid.h>

enum {
    /* leaf 1, ecx */
    HW_CPU_FMA = 1 << 12,
    HW_CPU_POPCNT = 1 << 23,
    HW_CPU_OSXSAVE = 1 << 27,
    HW_CPU_AVX = 1 << 28,
    HW_CPU_F16C = 1 << 29,
    HW_CPU_LEAF1 = HW_CPU_FMA | HW_CPU_POPCNT | HW_CPU_OSXSAVE | HW_CPU_AVX | HW_CPU_F16C,
    /* leaf 7, ebx */
    HW_CPU_LEAF7 = 1 << 3 | 1 << 5 | 1 << 8, /* BMI1, AVX2, BMI2 */
    /* leaf 0x80000001, ecx */
    HW_CPU_LZCNT = 1 << 5,
    /* XCR0: states that the system saves */
    HW_CPU_YMM = 0x06,
    HW_CPU_ZMM = 0xE6
};

/* leaf 7, ebx: AVX512F, DQ, CD, BW, VL */
#define HW_CPU_LEAF7_AVX512 (1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31)

static inline unsigned hw_cpu_saved_states(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* 0: baseline only; 1: all that the build avx2 is compiled for; 2: that of avx512 too. */
static inline int hw_cpu_level(void)
{
    unsigned a, b, c, d, leaf7, saved;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & HW_CPU_LEAF1) != HW_CPU_LEAF1)
        return 0;
    saved = hw_cpu_saved_states();
    if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || !(c & HW_CPU_LZCNT))
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &leaf7, &c, &d) || (leaf7 & HW_CPU_LEAF7) != HW_CPU_LEAF7)
        return 0;
    if ((saved & HW_CPU_YMM) != HW_CPU_YMM)
        return 0;
    return (leaf7 & HW_CPU_LEAF7_AVX512) == HW_CPU_LEAF7_AVX512 && (saved & HW_CPU_ZMM) == HW_CPU_ZMM ? 2 : 1;
}

#else

static inline int hw_cpu_level(void) { return 0; }

#endif
#endif
