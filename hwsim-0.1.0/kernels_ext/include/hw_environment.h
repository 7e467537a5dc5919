/* The floating-point environment that kernels compute in: C's default (round to nearest, subnormals kept), whatever a
 * library has set on the thread. Threads that the kernels start inherit it. */
#ifndef HW_ENVIRONMENT_H
#define HW_ENVIRONMENT_H

#include <stdint.h>

#if defined(__SSE__) || defined(__x86_64__)
#include <xmmintrin.h>

#define HW_DEFAULT_ENVIRONMENT 0x1F80u /* all exceptions masked; no flushing; to nearest */

static inline uint64_t hw_get_environment(void) { return _mm_getcsr(); }
static inline void hw_set_environment(uint64_t value) { _mm_setcsr((unsigned)value); }
#define HW_FLUSHING_ENVIRONMENT (HW_DEFAULT_ENVIRONMENT | 0x8040u) /* results and operands to zero */

#elif defined(__aarch64__)

#define HW_DEFAULT_ENVIRONMENT 0u
#define HW_FLUSHING_ENVIRONMENT (1u << 24)

static inline uint64_t hw_get_environment(void)
{
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
}
static inline void hw_set_environment(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }

#else

#define HW_DEFAULT_ENVIRONMENT 0u
#define HW_FLUSHING_ENVIRONMENT 0u
static inline uint64_t hw_get_environment(void) { return 0; }
static inline void hw_set_environment(uint64_t value) { (void)value; }

#endif

/* The environment until now; from here on the default one. Give it back to hw_leave_environment. */
static inline uint64_t hw_enter_environment(void)
{
    uint64_t before = hw_get_environment();
    hw_set_environment(HW_DEFAULT_ENVIRONMENT);
    return before;
}
static inline void hw_leave_environment(uint64_t before) { hw_set_environment(before); }

#endif
