/* The portable kernels, one file per idea. They say what every other table must compute; kernels.h says what each one
 * is for. mmi_kernels_init_c() puts them into a table. */
#ifndef MMI_BACKEND_C_PORTABLE_H
#define MMI_BACKEND_C_PORTABLE_H

#include <stdint.h>

/* vectors.c */
void mmi_c_add(float *y, const float *x, int64_t n);
void mmi_c_axpy(float *y, float a, const float *x, int64_t n);
void mmi_c_scale(float *y, float a, int64_t n);
double mmi_c_sum_squares(const float *x, int64_t n);
float mmi_c_dot(const float *a, const float *b, int64_t n);
void mmi_c_transpose(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols);

/* convert.c */
float mmi_c_from_bf16(uint16_t bits);
float mmi_c_from_f16(uint16_t bits);
uint16_t mmi_c_to_bf16(float x);
uint16_t mmi_c_to_f16(float x);
float mmi_c_round(float x, int32_t dtype);                   /* to dtype's nearest number and back */
float mmi_c_number(const void *w, int32_t dtype, int64_t i); /* number i of float32, bf16, f16 or q8_0 */
void mmi_c_widen(float *y, const void *x, int32_t dtype, int64_t n);
void mmi_c_narrow(void *y, const float *x, int32_t dtype, int64_t n);

/* norm.c */
void mmi_c_rmsnorm_forward(float *y, int64_t ldy, float *rstd, const float *x, int64_t ldx, const float *w, int64_t N,
                           int64_t C, float eps);
void mmi_c_rmsnorm_backward(float *dx, int64_t lddx, float *dw, const float *dy, int64_t lddy, const float *x,
                            int64_t ldx, const float *w, const float *rstd, int64_t N, int64_t C);
void mmi_c_layernorm_forward(float *y, int64_t ldy, float *mean, float *rstd, const float *x, int64_t ldx,
                             const float *w, const float *b, int64_t N, int64_t C, float eps);
void mmi_c_layernorm_backward(float *dx, int64_t lddx, float *dw, float *db, const float *dy, int64_t lddy,
                              const float *x, int64_t ldx, const float *w, const float *mean, const float *rstd,
                              int64_t N, int64_t C);

/* rope.c */
void mmi_c_rope(float *x, const float *cos, const float *sin, int64_t n_heads, int64_t D, int32_t inverse);

/* activate.c */
void mmi_c_activate(float *out, const float *gate, const float *up, int32_t act, int64_t n);
void mmi_c_activate_backward(float *d_gate, float *d_up, float *out, const float *d, const float *gate, const float *up,
                             int32_t act, int64_t n);

/* softmax.c */
void mmi_c_softmax_scaled(float *x, float lse, float a, int64_t n);
double mmi_c_softmax_weights(float *p, const float *x, float most, float a, int64_t n);
float mmi_c_softmax_tile(float *s, float *m, int64_t n);

/* choose.c */
float mmi_c_largest(const float *x, int64_t n);
double mmi_c_weigh_from(const float *p, const float *x, float least, int64_t n, int64_t *count);
double mmi_c_keep_from(float *p, const float *x, float least, float least_p, int64_t n);
int64_t mmi_c_find(int32_t *at, const float *x, float low, float high, int64_t n, int64_t most);

/* dropout.c */
static inline uint32_t mmi_dropout_limit(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}
void mmi_c_dropout(float *y, int64_t n, float p, uint64_t seed, uint64_t stream, uint64_t first);

/* product.c */
void mmi_c_gemm_tile(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t ldb,
                     int64_t M, int64_t N, int64_t K, int32_t accumulate);
void mmi_c_gemv_rows(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int64_t ahead);
void mmi_c_gemm_shape(int64_t *depth, int64_t *a_rows, int64_t *b_cols);
void mmi_c_round_rows(float *to, const float *x, int64_t ldx, int64_t M, int64_t K, int32_t round);
void mmi_c_gemm_rows(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                     int64_t M, int64_t N, int64_t K, int32_t round);
void mmi_c_few_scores(float *s, int64_t lds, const float *q, const void *k, int32_t dtype, int64_t ldk, int64_t M,
                      int64_t N, int64_t D, const void *ahead);
void mmi_c_few_values(float *out, const float *s, int64_t lds, const void *v, int32_t dtype, int64_t ldv, int64_t M,
                      int64_t N, int64_t D, const void *ahead);
int64_t mmi_c_gemm_panel(int64_t count, int64_t K, int32_t round);
void mmi_c_gemm_pack_a(float *to, const float *a, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round);
void mmi_c_gemm_pack_b(float *to, const float *b, int64_t across, int64_t along, int64_t count, int64_t K,
                       int32_t round);
void mmi_c_gemm_pack_bf16(float *to, const void *w, int64_t across, int64_t count, int64_t K, int32_t round);
void mmi_c_gemm_multiply(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t M, int64_t N,
                         int64_t K, const float *from, int32_t round);

/* quantize.c */
void mmi_c_widen_blocks(float *y, const void *x, int32_t dtype, int64_t n);
void mmi_c_narrow_blocks(void *y, const float *x, int32_t dtype, int64_t n);
void mmi_c_quantize(void *row, int64_t K, const float *x, int64_t first, int64_t count);
void mmi_c_gemm_blocks(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                       int64_t K);

/* adamw.c */
void mmi_c_adamw(float *w, float *m, float *v, const float *g, int64_t n, double grad_scale, double lr, double beta1,
                 double beta2, double eps, double decay, double correction1, double correction2);

#endif
