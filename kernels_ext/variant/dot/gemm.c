/* The entry of one build: the fast path that takes a unit, else the scalar truth. */
#include "hw_dot_variant.h"

int HW_BUILD(hw_gemm)(const hw_block *block)
{
    static hw_path *const paths[HW_MODELS][2] = {
        [HW_EXACT] = {hw_real_double},
        [HW_FUSED] = {hw_fused_float},
        [HW_INTEGER_MODEL] = {hw_integer},
        [HW_PAIRWISE] = {hw_pairwise},
        [HW_TWO_LEVEL] = {hw_two_level},
        [HW_COMPOSITE] = {hw_fused_float},
        [HW_FMA_CHAIN] = {hw_real_float, hw_real_double},
    };
    for (int i = 0; i < 2 && !block->spec->scale_block; i++)
        if (paths[block->spec->model][i]) {
            int status = paths[block->spec->model][i](block);
            if (status <= 0)
                return status;
        }
    return hw_scalar_block(block);
}
