/* The layers once more: in double precision, forward only, as plainly as they can be written. */
#ifndef MM_TESTS_NN_REFERENCE64_H
#define MM_TESTS_NN_REFERENCE64_H

#include <stdint.h>

#include "model/arch.h"

/* y [N, C] = table's rows; then += the sinusoidal positions. */
void ref_embedding(double *y, const double *table, const int32_t *ids, int64_t N, int64_t C);
double ref_sinusoid(int64_t position, int64_t column, int64_t C);

/* y [N, out] = in [N, in] · w [out, in]ᵀ + b; b may be NULL. */
void ref_linear(double *y, const double *in, const double *w, const double *b, int64_t N, int64_t out, int64_t width);

/* RMSNorm; with b LayerNorm. */
void ref_norm(double *y, const double *in, const double *w, const double *b, int64_t N, int64_t C, double eps);

/* The frequency of pair j, and the factor on all cosines and sines. */
double ref_rope_frequency(const mmi_arch *a, int64_t j);
double ref_rope_amplitude(const mmi_arch *a);

/* x [N, heads, D] in place. */
void ref_rope(double *x, const mmi_arch *a, const int32_t *positions, int64_t N, int64_t heads);

/* Query rows [row, row + count) against the keys from key_row on: row i sees the first past + i + 1 of them. */
typedef struct ref_segment {
    int64_t row, count, key_row, past;
    const int32_t *key_mask; /* [past + count] or NULL */
} ref_segment;

/* out, q [N, H, D]; k, v [keys, G, D]. A row that sees masked keys only gets 0, as this library has it. */
void ref_attention(double *out, const double *q, const double *k, const double *v, int64_t H, int64_t G, int64_t D,
                   const ref_segment *segments, int64_t count);

double ref_activate(int32_t act, double x);

/* y [N, C] = the network of h; gate NULL: plain; biases may be NULL. */
typedef struct ref_ffn_params {
    const double *gate, *gate_bias, *up, *up_bias, *down, *down_bias;
    int64_t C, F;
    int32_t act;
} ref_ffn_params;
void ref_ffn(double *y, const double *h, const ref_ffn_params *p, int64_t N);

/* out [N]: log-probability of each target ≥ 0 under logits [N, V]; 0 for others. */
void ref_logprobs(double *out, const double *logits, const int32_t *targets, int64_t N, int64_t V);

#endif
