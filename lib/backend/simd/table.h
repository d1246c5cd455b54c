/* The kernels of one instruction set, by file. kernels.h says what each one is for. */
#ifndef MMI_BACKEND_SIMD_TABLE_H
#define MMI_BACKEND_SIMD_TABLE_H

#include "backend/kernels.h"
#include "backend/simd/vf.h"

/* vectors.c */
void SIMD(add)(float *y, const float *x, int64_t n);
void SIMD(axpy)(float *y, float a, const float *x, int64_t n);
void SIMD(scale)(float *y, float a, int64_t n);
double SIMD(sum_squares)(const float *x, int64_t n);
float SIMD(dot)(const float *a, const float *b, int64_t n);
void SIMD(transpose)(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols);

/* convert.c */
void SIMD(widen)(float *y, const void *x, int32_t dtype, int64_t n);
void SIMD(narrow)(void *y, const float *x, int32_t dtype, int64_t n);

/* norm.c */
void SIMD(rmsnorm_forward)(float *y, int64_t ldy, float *rstd, const float *x, int64_t ldx, const float *w, int64_t N,
                           int64_t C, float eps);
void SIMD(rmsnorm_backward)(float *dx, int64_t lddx, float *dw, const float *dy, int64_t lddy, const float *x,
                            int64_t ldx, const float *w, const float *rstd, int64_t N, int64_t C);
void SIMD(layernorm_forward)(float *y, int64_t ldy, float *mean, float *rstd, const float *x, int64_t ldx,
                             const float *w, const float *b, int64_t N, int64_t C, float eps);
void SIMD(layernorm_backward)(float *dx, int64_t lddx, float *dw, float *db, const float *dy, int64_t lddy,
                              const float *x, int64_t ldx, const float *w, const float *mean, const float *rstd,
                              int64_t N, int64_t C);

/* dropout.c */
void SIMD(dropout)(float *y, int64_t n, float p, uint64_t seed, uint64_t stream, uint64_t first);

/* rope.c */
void SIMD(rope)(float *x, const float *cos, const float *sin, int64_t n_heads, int64_t D, int32_t inverse);

/* activate.c */
void SIMD(activate)(float *out, const float *gate, const float *up, int32_t act, int64_t n);
void SIMD(activate_backward)(float *d_gate, float *d_up, float *out, const float *d, const float *gate, const float *up,
                             int32_t act, int64_t n);

/* softmax.c */
void SIMD(softmax_scaled)(float *x, float lse, float a, int64_t n);
double SIMD(softmax_weights)(float *p, const float *x, float most, float a, int64_t n);
float SIMD(softmax_tile)(float *s, float *m, int64_t n);

/* choose.c */
float SIMD(largest)(const float *x, int64_t n);
double SIMD(weigh_from)(const float *p, const float *x, float least, int64_t n, int64_t *count);
double SIMD(keep_from)(float *p, const float *x, float least, float least_p, int64_t n);
int64_t SIMD(find)(int32_t *at, const float *x, float low, float high, int64_t n, int64_t most);

/* tile.c */
void SIMD(gemm_tile)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t ldb,
                     int64_t M, int64_t N, int64_t K, int32_t accumulate);

/* attention.c */
void SIMD(few_scores)(float *s, int64_t lds, const float *q, const void *k, int32_t dtype, int64_t ldk, int64_t M,
                      int64_t N, int64_t D, const void *ahead);
void SIMD(few_values)(float *out, const float *s, int64_t lds, const void *v, int32_t dtype, int64_t ldv, int64_t M,
                      int64_t N, int64_t D, const void *ahead);

/* gemv.c */
void SIMD(gemv_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int64_t ahead);

void SIMD_NAME(gemv_row_rounded, bf16)(float *y, const float *x, const void *w, int32_t dtype, int64_t ldw, int64_t N,
                                       int64_t K, int64_t ahead);

/* gemm_rows.c, panels.c: products that may be rounded. bf16 leaves to BASE, the set below it, what it has no words for.
 */
#define ROUNDING_KERNELS(set)                                                                                          \
    void set(round_rows)(float *to, const float *x, int64_t ldx, int64_t M, int64_t K, int32_t round);                 \
    void set(gemm_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw, \
                        int64_t M, int64_t N, int64_t K, int32_t round);                                               \
    int64_t set(gemm_panel)(int64_t count, int64_t K, int32_t round);                                                  \
    void set(gemm_pack_a)(float *to, const float *a, int64_t across, int64_t along, int64_t count, int64_t K,          \
                          int32_t round);                                                                              \
    void set(gemm_pack_b)(float *to, const float *b, int64_t across, int64_t along, int64_t count, int64_t K,          \
                          int32_t round);                                                                              \
    void set(gemm_pack_bf16)(float *to, const void *w, int64_t across, int64_t count, int64_t K, int32_t round);       \
    void set(gemm_multiply)(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t M, int64_t N,  \
                            int64_t K, const float *from, int32_t round)
ROUNDING_KERNELS(SIMD);
ROUNDING_KERNELS(BASE);
void BASE(widen)(float *y, const void *x, int32_t dtype, int64_t n);

#if STEP == 2
#define OTHERWISE(name, ...)                                                                                           \
    if (round != MM_BF16) {                                                                                            \
        BASE(name)(__VA_ARGS__);                                                                                       \
        return;                                                                                                        \
    }
#else
#define OTHERWISE(name, ...) (void)round;
#endif
void SIMD(gemm_shape)(int64_t *depth, int64_t *a_rows, int64_t *b_cols);

/* blocks.c; the latter on x86 */
void SIMD(widen_blocks)(float *y, const void *x, int32_t dtype, int64_t n);
void SIMD(quantize)(void *row, int64_t K, const float *x, int64_t first, int64_t count);

/* table_blocks.c, gemm_blocks.c; the last for Intel's processors: one row reads W as a single stream */
void SIMD(kernels_init_blocks)(mmi_kernels *k);
void SIMD(gemm_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K);
void SIMD_NAME(gemm_blocks_asking, vnni)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M,
                                         int64_t N, int64_t K);

/* row_blocks.c, not with AVX2 */
void SIMD(gemm_blocks_row)(float *y, const void *x, const void *w, int32_t dtype, int64_t N, int64_t K);

/* adamw.c */
void SIMD(adamw)(float *w, float *m, float *v, const float *g, int64_t n, double grad_scale, double lr, double beta1,
                 double beta2, double eps, double decay, double correction1, double correction2);

#endif
