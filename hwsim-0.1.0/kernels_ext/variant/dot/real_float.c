/* fma_chain in binary32 lanes: literally one fused multiply-add per k. */
#define REAL_FLOAT 1
#include "hw_dot_real.h"
