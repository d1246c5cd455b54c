/* The one table of kernels. A layer says what; a table says how. Portable C fills every slot and is the specification;
 * each instruction set replaces the slots it does better. Kernels are pure: pointers and sizes; no allocation, no
 * failure, no lock, no thread. Pointers may be unaligned; inputs and outputs don't overlap unless said. A size may be
 * 0.
 *
 * NaN and infinity go through as in IEEE arithmetic (a NaN in gives a NaN out of everything it reaches). */
#ifndef MMI_BACKEND_KERNELS_H
#define MMI_BACKEND_KERNELS_H

#include <stdint.h>

#include <minimind/view.h>

/* What the processor has; MM_CPU caps it, and names another maker. */
enum {
    MMI_CPU_AVX2 = 1,   /* with FMA */
    MMI_CPU_AVX512 = 2, /* F, VL, DQ, BW */
    MMI_CPU_NEON = 4,
    MMI_CPU_VNNI = 8,      /* AVX-512's: four products of bytes added to a sum */
    MMI_CPU_DOT = 16,      /* NEON's of the same */
    MMI_CPU_BF16 = 32,     /* AVX-512's: two products of bf16 numbers added to a sum; comes with VNNI */
    MMI_CPU_AMX = 64,      /* tiles, with products of bf16 and of bytes; comes with BF16 and INTEL */
    MMI_CPU_AVXVNNI = 128, /* VNNI's products on AVX2's vectors; what AVX-512 brings replaces them */
    /* AVX-512 is Intel's: W is to be asked for ahead of time, and BF16's products of many rows take longer than those
     * of the same numbers in float32. */
    MMI_CPU_INTEL = 256
};
unsigned mmi_cpu_flags(void);

typedef struct mmi_kernels {
    const char *name; /* "c", "avx2", "avxvnni", "avx512", "vnni", "bf16", "amx", "neon", "dot" */

    /* --- Vectors of n --- */
    void (*add)(float *y, const float *x, int64_t n);           /* y += x */
    void (*axpy)(float *y, float a, const float *x, int64_t n); /* y += a x */
    void (*scale)(float *y, float a, int64_t n);                /* y *= a */
    double (*sum_squares)(const float *x, int64_t n);           /* Σ x², accumulated in double */
    float (*dot)(const float *a, const float *b, int64_t n);
    /* y [cols, rows] = the transpose of x [rows, cols], their rows ldy and ldx apart */
    void (*transpose)(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols);
    void (*widen)(float *y, const void *x, int32_t dtype, int64_t n); /* y = x as float32 */
    /* To f32, bf16 or f16: to nearest, ties to even; NaN stays NaN. To blocks, q8_0 or q4_0, n a multiple of 32: each
     * number to the nearest multiple of its block's scale, ties away from 0 (q4_0: upwards in q), the scale being the
     * largest magnitude / 127, or the number of largest magnitude / -8. A block that holds a NaN or an infinity turns
     * into NaNs altogether. */
    void (*narrow)(void *y, const float *x, int32_t dtype, int64_t n);

    /* --- Rows: N rows of C, row i at x + i * ld --- */

    /* y = w * x * rstd, rstd = 1 / sqrt(mean(x²) + eps). rstd [N] may be NULL. y may be x. */
    void (*rmsnorm_forward)(float *y, int64_t ldy, float *rstd, const float *x, int64_t ldx, const float *w, int64_t N,
                            int64_t C, float eps);
    /* dx += …, dw [C] += … over all N rows. dw NULL: left out. */
    void (*rmsnorm_backward)(float *dx, int64_t lddx, float *dw, const float *dy, int64_t lddy, const float *x,
                             int64_t ldx, const float *w, const float *rstd, int64_t N, int64_t C);

    /* y = w * (x - mean) * rstd + b (biased variance); mean, rstd [N] may be NULL. y may be x. */
    void (*layernorm_forward)(float *y, int64_t ldy, float *mean, float *rstd, const float *x, int64_t ldx,
                              const float *w, const float *b, int64_t N, int64_t C, float eps);
    /* dx += …, dw [C] += …, db [C] += …; dw and db may be NULL. */
    void (*layernorm_backward)(float *dx, int64_t lddx, float *dw, float *db, const float *dy, int64_t lddy,
                               const float *x, int64_t ldx, const float *w, const float *mean, const float *rstd,
                               int64_t N, int64_t C);

    /* In place, on n_heads heads of D at x: pair (j, j + D/2) turned by the angle whose cos and sin (amplitude
     * included) are cos[j], sin[j], j < D/2. `inverse`: by the opposite angle, which is also the backward pass. */
    void (*rope)(float *x, const float *cos, const float *sin, int64_t n_heads, int64_t D, int32_t inverse);

    /* out = act(gate) * up; act is MMI_ACT_…. gate NULL: out = act(up). out may be gate or up. */
    void (*activate)(float *out, const float *gate, const float *up, int32_t act, int64_t n);
    /* From d = gradient by out: d_gate = d * up * act'(gate), d_up = d * act(gate), and out = act(gate) * up again (for
     * the product that reads it), out may be d. gate and d_gate NULL: d_up = d * act'(up), out = act(up). All are
     * overwritten. */
    void (*activate_backward)(float *d_gate, float *d_up, float *out, const float *d, const float *gate,
                              const float *up, int32_t act, int64_t n);

    /* --- Softmax and loss, one row of n --- */

    /* x = a * exp(x - lse): the softmax, scaled, of x whose log Σ exp is lse. */
    void (*softmax_scaled)(float *x, float lse, float a, int64_t n);
    /* p = exp(a * (x - most)); Σ p, which is NaN if an x is NaN or inf, or all are -inf. So logits, whose largest is
     * `most`, weigh at a temperature of 1 / a. p may be x, or NULL for their sum alone. */
    double (*softmax_weights)(float *p, const float *x, float most, float a, int64_t n);
    /* One tile row of running softmax: s = exp(s - m'), where m' is m unless a score is more than MMI_SOFTMAX_SLACK above
     * it, and then the largest. Returns Σ s and sets *m = m'. With all s and m = -inf: s = 0, returns 0. */
    float (*softmax_tile)(float *s, float *m, int64_t n);

    /* --- Choosing among n, none of them NaN --- */

    float (*largest)(const float *x, int64_t n); /* -inf for n = 0 */
    /* Σ p of those whose x is not below `least`, in double precision, and how many. */
    double (*weigh_from)(const float *p, const float *x, float least, int64_t n, int64_t *count);
    /* p = 0 where x is below `least` or p below `least_p`; Σ p of the rest, in double precision. */
    double (*keep_from)(float *p, const float *x, float least, float least_p, int64_t n);
    /* Which x are in [low, high], in order; how many. Looks no further once there are more than `most`. `at` [n]. */
    int64_t (*find)(int32_t *at, const float *x, float low, float high, int64_t n, int64_t most);

    /* --- Dropout --- */

    /* y[i] = y[i] * (1 / (1 - p)), or 0 where number first + i of a stream of random numbers (base/random.h, four of
     * each block) is below floor(p · 2^32), 0 < p < 1, first + n < 2^64. Every table gives the same bits. */
    void (*dropout)(float *y, int64_t n, float p, uint64_t seed, uint64_t stream, uint64_t first);

    /* --- Products --- */

    /* C[M, N] = or += A[M, K] · B[K, N]. A at (i, p): a + i * ars + p * acs. B's rows contiguous, ldb apart; C's ldc
     * apart. Made for tiles that lie in a cache (M, N, K up to a few hundred). */
    void (*gemm_tile)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs, const float *b, int64_t ldb,
                      int64_t M, int64_t N, int64_t K, int32_t accumulate);
    /* y[M, N] = x[M, K] · W[N, K]ᵀ for few rows (M up to 8 or so), W f32, bf16 or f16, reading W once. A set may ask
     * for what lies `ahead` bytes behind what it reads: gemv_ahead where W comes from memory, else 0. */
    void (*gemv_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                      int64_t M, int64_t N, int64_t K, int64_t ahead);
    /* The same of up to MMI_MOST_ROWS, faster for more than those few, with the same bits.
     *
     * With `round` every number of both operands is rounded first (bf16 or f16: to nearest, ties to even; beyond f16's
     * 65504 to infinity; NaN stays NaN), and x is what round_rows() has made of M rows for that, K floats apart;
     * products of such numbers are exact, sums are float32. What has fewer bits already stays as it is. A processor's
     * own products of bf16 take numbers, and sums, below 2^-126 for 0; on tiles those of float32 are made of them, so
     * that a sum may miss that much of each product. */
    void (*gemm_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, const void *w, int32_t dtype, int64_t ldw,
                      int64_t M, int64_t N, int64_t K, int32_t round);
    void (*round_rows)(float *to, const float *x, int64_t ldx, int64_t M, int64_t K, int32_t round);
    /* y[N] = x[K] · W[N, K]ᵀ of a single row that is rounded to bf16 on the way, as W is, bf16 or f32. NULL where that
     * is no faster than the above. */
    void (*gemv_row_rounded)(float *y, const float *x, const void *w, int32_t dtype, int64_t ldw, int64_t N, int64_t K,
                             int64_t ahead);

    /* Attention of a few rows of queries (M up to 8 or so), keys and values in float32, bf16 or q8_0 as a cache has
     * them, ldk and ldv numbers apart (in q8_0 a multiple of 32), those of q and out D, a multiple of 32 up to
     * MMI_FEW_WIDTH: s[M, N] = q[M, D] · k[N, D]ᵀ, and out[M, D] += s[M, N] · v[N, D]. Fewer bits give the same as
     * what they widen to, but that bf16's scores may be summed in another order. `ahead`, if not NULL, is what is read
     * next, laid out as k or v: it is asked for on the way. */
    void (*few_scores)(float *s, int64_t lds, const float *q, const void *k, int32_t dtype, int64_t ldk, int64_t M,
                       int64_t N, int64_t D, const void *ahead);
    void (*few_values)(float *out, const float *s, int64_t lds, const void *v, int32_t dtype, int64_t ldv, int64_t M,
                       int64_t N, int64_t D, const void *ahead);

    /* Large products, in steps that gemm_panels.c, gemm_own.c or gemm_apart.c deals out. Up to gemm_depth of K's
     * numbers of op(A)'s rows, or op(B)'s columns, are laid out anew in panels of gemm_a_rows rows, or gemm_b_cols
     * columns, as gemm_multiply reads them; rounded as above, or with `round` MM_F32 as they are. One panel lies behind
     * the other, and what is missing of the last is filled up: gemm_panel() says how many floats the panels of `count`
     * rows (or columns) take, a multiple of what one has. Number p of row (or column) i is at from + i * across + p *
     * along. */
    int64_t gemm_depth, gemm_a_rows, gemm_b_cols;
    int64_t (*gemm_panel)(int64_t count, int64_t K, int32_t round);
    void (*gemm_pack_a)(float *to, const float *a, int64_t across, int64_t along, int64_t count, int64_t K,
                        int32_t round);
    void (*gemm_pack_b)(float *to, const float *b, int64_t across, int64_t along, int64_t count, int64_t K,
                        int32_t round);
    /* As gemm_pack_b, of numbers in bf16 that lie one behind the other along K: weights as they are
     * kept. `round` is MM_F32 or MM_BF16. */
    void (*gemm_pack_bf16)(float *to, const void *w, int64_t across, int64_t count, int64_t K, int32_t round);
    /* As gemm_pack_b, rounded to bf16, of weights in strips of `cols` numbers a row: w is the strip that begins with
     * the first row, and number 0 of K is number `first` there; all three are multiples of 32. NULL where round_blocks
     * is 0. */
    void (*gemm_pack_blocks)(float *to, const void *w, int32_t dtype, int64_t cols, int64_t first, int64_t count,
                             int64_t K);
    /* C[M, N] = op(A) · op(B) of such panels, K numbers along, K > 0, or `from` + it: C itself, or rows ldc apart, too.
     * With ars > 0, nothing rounded, and gemm_in_place, A is not packed: its rows of contiguous numbers are ars apart.
     */
    void (*gemm_multiply)(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t M, int64_t N,
                          int64_t K, const float *from, int32_t round);

    /* --- Products with weights in blocks: K a multiple of 32 --- */

    /* Numbers [first, first + count), both multiples of 32, of a row of K numbers for gemm_blocks: K signed bytes q, K /
     * 32 float32 scales, K / 32 int32 -8 · Σ q of a block and K / 32 int32 -128 · Σ q (mmi_quantized_row() bytes, at a
     * multiple of 4): weights of q4_0 and q8_0 that are made unsigned, w + 8 and w + 128, are made good by those. A
     * block's scale is its largest magnitude / 127, q to nearest, ties to even; the scale is NaN and q is 0 where the
     * block holds a NaN or an infinity. */
    void (*quantize)(void *row, int64_t K, const float *x, int64_t first, int64_t count);
    /* y[M, N] = x[M, K] · W[N, K]ᵀ; x by quantize(), row behind row, W q8_0 or q4_0 in strips (strips.h), from the
     * beginning of one. Within a block the sum is exact, in integers; over blocks, in their order, it is float32: sum =
     * fma(scale of W · scale of x, block's sum, sum). So every table gives the same bits, whatever M and N. */
    void (*gemm_blocks)(float *y, int64_t ldy, const void *x, const void *w, int32_t dtype, int64_t M, int64_t N,
                        int64_t K);

    /* --- Optimizer --- */

    /* One AdamW step on n parameters: g is first times grad_scale;
     * w *= 1 - lr·decay; m, v moments; w -= lr · (m / correction1) / (sqrt(v / correction2) + eps). */
    void (*adamw)(float *w, float *m, float *v, const float *g, int64_t n, double grad_scale, double lr, double beta1,
                  double beta2, double eps, double decay, double correction1, double correction2);

    int32_t gemm_in_place;   /* gemm_multiply reads rows of A where they lie */
    int32_t gemm_own_lines;  /* measured: what is not read in place is faster dealt out by gemm_own.c */
    int32_t beats_blas;      /* measured: large products are faster than OpenBLAS's */
    int32_t rounds_to_words; /* rows that round_rows() has made for bf16 gemv_rows() can't read */
    int64_t gemv_ahead;      /* measured: weights come fastest when asked for so many bytes ahead */
    int64_t few_rows;        /* measured: up to so many meet W as it lies, in float32 and in two bytes alike */
    int64_t few_rounded;     /* measured: the same of rows that are rounded; both at most MMI_MOST_ROWS */
    int64_t round_blocks;    /* measured: so many rows meet blocks faster as bf16 numbers; 0: none do */
    int64_t slice_blocks;    /* measured: many rows meet blocks fastest so many bytes of them at a time; 0: any */
    int64_t blocks_worth;    /* more products than that with a small matrix in blocks are worth another thread */
    int32_t round_attention; /* measured: attention's products are faster rounded to bf16 */
    int64_t attention_worth; /* measured: so many products of queries with keys are worth another thread */
} mmi_kernels;

/* So much larger a score leaves a running maximum as it is: the weights of its row are up to e^8 then, which costs no
 * precision, and what was summed up before seldom has to be scaled. */
#define MMI_SOFTMAX_SLACK 8.0f

#define MMI_MOST_ROWS 64   /* that gemm_rows() takes */
#define MMI_FEW_WIDTH 1024 /* of a head that few_scores() and few_values() take */

static inline int64_t mmi_quantized_row(int64_t K)
{
    return K + K / 32 * (int64_t)(sizeof(float) + 2 * sizeof(int32_t));
}

/* Whether so many rows meet weights in blocks as bf16 numbers. */
static inline int32_t mmi_rounds_blocks(const mmi_kernels *k, int64_t rows)
{
    return k->round_blocks > 0 && rows >= k->round_blocks;
}

/* As mmi_act in model/arch.h, which sits above this folder; a static assertion in run/context.c holds them equal. */
enum { MMI_ACT_SILU = 0, MMI_ACT_GELU = 1, MMI_ACT_GELU_TANH = 2, MMI_ACT_RELU = 3 };

/* The best table for a processor with `cpu` (mmi_cpu_flags(), or fewer in a test). */
void mmi_kernels_init(mmi_kernels *k, unsigned cpu);
void mmi_kernels_init_c(mmi_kernels *k);

/* The paths that mm_kernels_name() lists: one per instruction set with the library's own products, and the best of them
 * with OpenBLAS's ("openblas") where it is built in, for what its table doesn't do faster itself. */
typedef struct mmi_path {
    const char *name;
    unsigned cpu;
    int32_t blas;
} mmi_path;
int32_t mmi_path_count(void);
const mmi_path *mmi_path_get(int32_t index);
/* Those of a processor with `cpu`; NULL past the last. */
const mmi_path *mmi_path_of(unsigned cpu, int32_t index);
/* By name; NULL gives the fastest here. NULL result: no such path. */
const mmi_path *mmi_path_find(const char *name);

/* The name of the path that has the same instructions, and no OpenBLAS. */
const char *mmi_path_processor(const mmi_path *path);

#endif
