#include "backend/simd/table.h"

#include "backend/simd/simd.h"

/* AVX2 against OpenBLAS 0.3.21 (its Haswell kernels) on Zen 3, products of 4096 × 128…6400 × 512…1408 in the slices of
 * gemm.c: 1.00 to 1.15 times its speed when A is read in place, which OpenBLAS always copies first; 0.82 to 0.97 when A
 * has to be copied here too. AVX-512 against its SkylakeX kernels on an Intel server: 0.93 of what OpenBLAS does with
 * two threads of its own, where slices on one thread each come to 0.80. Not measured elsewhere, so OpenBLAS has the say
 * there. */
#if ISA_IS(avx2)
#define BEATS_BLAS MMI_BEATS_BLAS_IN_PLACE
#elif ISA_IS(avx512)
#define BEATS_BLAS MMI_BEATS_BLAS_ALWAYS
#else
#define BEATS_BLAS MMI_BEATS_BLAS_NEVER
#endif

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
    k->logsumexp = SIMD(logsumexp);
    k->softmax_scaled = SIMD(softmax_scaled);
    k->softmax_tile = SIMD(softmax_tile);
    k->largest = SIMD(largest);
    k->weigh_from = SIMD(weigh_from);
    k->keep_from = SIMD(keep_from);
    k->find = SIMD(find);
    k->dropout = SIMD(dropout);
    k->gemm_tile = SIMD(gemm_tile);
    k->gemv_rows = SIMD(gemv_rows);
    k->gemv_rows_rounded = SIMD(gemv_rows_rounded);
    k->few_scores = SIMD(few_scores);
    k->few_values = SIMD(few_values);
    SIMD(gemm_shape)(&k->gemm_depth, &k->gemm_a_rows, &k->gemm_b_cols);
    k->gemm_pack_a = SIMD(gemm_pack_a);
    k->gemm_pack_b = SIMD(gemm_pack_b);
    k->gemm_pack_bf16 = SIMD(gemm_pack_bf16);
    k->gemm_multiply = SIMD(gemm_multiply);
    k->adamw = SIMD(adamw);
    SIMD(kernels_init_blocks)(k);
    k->beats_blas = BEATS_BLAS;
#if ISA_IS_AVX512
    k->attention_worth = ATTENTION_WORTH_AVX512;
#endif
}
