/* Which builds of the kernels this processor runs and the system saves the registers of. By CPUID itself: not every
   compiler's library fills in what __builtin_cpu_supports reads (zig 0.17's does not). */
#ifndef HW_CPU_H
#define HW_CPU_H

#if HWSIM_X86
#include <cpuid.h>

/* Bits of XCR0 that are set where the system saves xmm and ymm, and those of AVX-512 too. */
enum { HW_CPU_YMM = 0x06, HW_CPU_ZMM = 0xE6 };

static inline unsigned hw_cpu_saved_states(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* 0: baseline alone; 1: the build avx2 too (with FMA, F16C, BMI, BMI2, LZCNT, POPCNT); 2: and avx512. */
static inline int hw_cpu_level(void)
{
    const unsigned leaf1 = bit_FMA | bit_POPCNT | bit_OSXSAVE | bit_AVX | bit_F16C;
    const unsigned leaf7 = bit_AVX2 | bit_BMI | bit_BMI2;
    const unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD;
    unsigned a, b, c, d, saved;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1)
        return 0;
    saved = hw_cpu_saved_states();
    if ((saved & HW_CPU_YMM) != HW_CPU_YMM)
        return 0;
    if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || !(c & bit_LZCNT))
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & leaf7) != leaf7)
        return 0;
    return (b & wide) == wide && (saved & HW_CPU_ZMM) == HW_CPU_ZMM ? 2 : 1;
}

#else

static inline int hw_cpu_level(void) { return 0; }

#endif
#endif
