#include "backend/simd/table.h"

#include "backend/simd/simd.h"

/* Large products without OpenBLAS, and dealt out by gemm_own.c: docs/performance-notes.md has what was measured, with
 * AVX2 on Zen 3, with AVX-512 on Granite Rapids and on Zen 5. Not measured elsewhere, so OpenBLAS has the say there. */
#define MEASURED ISA_IS_X86

/* One token's attention over 64 keys took 5 us on Granite Rapids, and a job handed to another thread 0.4. */
#define ATTENTION_WORTH_AVX512 16384

void SIMD(kernels_init)(mmi_kernels *k)
{
    k->add = SIMD(add);
    k->axpy = SIMD(axpy);
    k->scale = SIMD(scale);
    k->sum_squares = SIMD(sum_squares);
    k->dot = SIMD(dot);
    k->transpose = SIMD(transpose);
    k->widen = SIMD(widen);
    k->narrow = SIMD(narrow);
    k->rmsnorm_forward = SIMD(rmsnorm_forward);
    k->rmsnorm_backward = SIMD(rmsnorm_backward);
    k->layernorm_forward = SIMD(layernorm_forward);
    k->layernorm_backward = SIMD(layernorm_backward);
    k->rope = SIMD(rope);
    k->activate = SIMD(activate);
    k->activate_backward = SIMD(activate_backward);
    k->softmax_scaled = SIMD(softmax_scaled);
    k->softmax_weights = SIMD(softmax_weights);
    k->softmax_tile = SIMD(softmax_tile);
    k->largest = SIMD(largest);
    k->weigh_from = SIMD(weigh_from);
    k->keep_from = SIMD(keep_from);
    k->find = SIMD(find);
    k->dropout = SIMD(dropout);
    k->gemm_tile = SIMD(gemm_tile);
    k->gemv_rows = SIMD(gemv_rows);
    k->round_rows = SIMD(round_rows);
    k->gemm_rows = SIMD(gemm_rows);
    k->few_scores = SIMD(few_scores);
    k->few_values = SIMD(few_values);
    SIMD(gemm_shape)(&k->gemm_depth, &k->gemm_a_rows, &k->gemm_b_cols);
    k->gemm_panel = SIMD(gemm_panel);
    k->gemm_pack_a = SIMD(gemm_pack_a);
    k->gemm_pack_b = SIMD(gemm_pack_b);
    k->gemm_pack_bf16 = SIMD(gemm_pack_bf16);
    k->gemm_multiply = SIMD(gemm_multiply);
    k->adamw = SIMD(adamw);
    SIMD(kernels_init_blocks)(k);
    k->beats_blas = MEASURED;
    k->gemm_own_lines = MEASURED;
#if ISA_IS_X86
    k->few_rows = 32; /* measured on Emerald Rapids, held to it */
    k->few_rounded = 32;
#endif
#if ISA_IS_AVX512
    k->attention_worth = ATTENTION_WORTH_AVX512;
    k->few_rows = 64;
#endif
}
