/* The entry of one build: the fast path that takes a unit, else the scalar truth. */
#include "hw_dot_variant.h"

int HW_BUILD(hw_gemm)(const hw_block *block)
{
    static hw_path *const paths[HW_MODELS][3] = {
        [HW_EXACT] = {hw_real_double},
        [HW_FUSED] = {hw_fused_bytes, hw_fused_lanes, hw_fused_float},
        [HW_INTEGER_MODEL] = {hw_integer},
        [HW_PAIRWISE] = {hw_pairwise},
        [HW_TWO_LEVEL] = {hw_two_level},
        [HW_COMPOSITE] = {hw_fused_float},
        [HW_FMA_CHAIN] = {hw_real_float, hw_real_double},
    };
    static hw_path *const scaled[HW_MODELS][3] = {
        [HW_FUSED] = {hw_fused_bytes},
        [HW_BLOCK_SCALED] = {hw_block_scaled},
    };
    static hw_path *const divided[HW_MODELS][3] = {[HW_FUSED] = {hw_fused_lanes}};
    hw_path *const *chosen = (block->divide ? divided : block->spec->scale_block ? scaled : paths)[block->spec->model];
    for (int i = 0; i < 3; i++)
        if (chosen[i]) {
            int status = chosen[i](block);
            if (status <= 0)
                return status;
        }
    return hw_scalar_block(block);
}
