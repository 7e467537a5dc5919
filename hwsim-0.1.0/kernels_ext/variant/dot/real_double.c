/* fma_chain in binary64 lanes, and the exact unit with binary32 results in them. */
#define REAL_FLOAT 0
#include "hw_dot_real.h"
