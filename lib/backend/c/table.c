#include "backend/c/portable.h"
#include "backend/kernels.h"

void mmi_kernels_init_c(mmi_kernels *k)
{
    *k = (mmi_kernels){
        .name = "c",
        .add = mmi_c_add,
        .axpy = mmi_c_axpy,
        .scale = mmi_c_scale,
        .sum_squares = mmi_c_sum_squares,
        .dot = mmi_c_dot,
        .transpose = mmi_c_transpose,
        .widen = mmi_c_widen,
        .narrow = mmi_c_narrow,
        .rmsnorm_forward = mmi_c_rmsnorm_forward,
        .rmsnorm_backward = mmi_c_rmsnorm_backward,
        .layernorm_forward = mmi_c_layernorm_forward,
        .layernorm_backward = mmi_c_layernorm_backward,
        .rope = mmi_c_rope,
        .activate = mmi_c_activate,
        .activate_backward = mmi_c_activate_backward,
        .softmax_scaled = mmi_c_softmax_scaled,
        .softmax_weights = mmi_c_softmax_weights,
        .softmax_tile = mmi_c_softmax_tile,
        .largest = mmi_c_largest,
        .weigh_from = mmi_c_weigh_from,
        .keep_from = mmi_c_keep_from,
        .find = mmi_c_find,
        .dropout = mmi_c_dropout,
        .gemm_tile = mmi_c_gemm_tile,
        .gemv_rows = mmi_c_gemv_rows,
        .round_rows = mmi_c_round_rows,
        .gemm_rows = mmi_c_gemm_rows,
        .few_scores = mmi_c_few_scores,
        .few_values = mmi_c_few_values,
        .gemm_panel = mmi_c_gemm_panel,
        .gemm_pack_a = mmi_c_gemm_pack_a,
        .gemm_pack_b = mmi_c_gemm_pack_b,
        .gemm_pack_bf16 = mmi_c_gemm_pack_bf16,
        .gemm_multiply = mmi_c_gemm_multiply,
        .quantize = mmi_c_quantize,
        .gemm_blocks = mmi_c_gemm_blocks,
        .adamw = mmi_c_adamw,
        .gemm_in_place = 1,
    };
    k->few_rows = 8;
    k->few_rounded = 8;
    k->blocks_worth = 1 << 17;
    k->attention_worth = 65536; /* some ten microseconds with AVX2 on Zen 3 */
    mmi_c_gemm_shape(&k->gemm_depth, &k->gemm_a_rows, &k->gemm_b_cols);
}
