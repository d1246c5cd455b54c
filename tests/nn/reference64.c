#include "nn/reference64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernels.h"

#define PI 3.14159265358979323846

static double *room(int64_t n)
{
    double *x = malloc((size_t)(n > 0 ? n : 1) * sizeof *x);
    if (!x)
        abort();
    return x;
}

void ref_embedding(double *y, const double *table, const int32_t *ids, int64_t N, int64_t C)
{
    for (int64_t i = 0; i < N; i++)
        memcpy(y + i * C, table + ids[i] * C, (size_t)C * sizeof *y);
}

double ref_sinusoid(int64_t position, int64_t column, int64_t C)
{
    double rate = exp(-log(10000.0) * (double)(column / 2 * 2) / (double)C);
    return column % 2 ? cos((double)position * rate) : sin((double)position * rate);
}

/* Σ a b, in four sums that need not wait for each other. */
static double dot(const double *a, const double *b, int64_t n)
{
    double sums[4] = { 0 };
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            sums[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sums[0] += a[i] * b[i];
    return sums[0] + sums[1] + (sums[2] + sums[3]);
}

void ref_linear(double *y, const double *in, const double *w, const double *b, int64_t N, int64_t out, int64_t width)
{
    for (int64_t i = 0; i < N; i++)
        for (int64_t o = 0; o < out; o++)
            y[i * out + o] = (b ? b[o] : 0) + dot(in + i * width, w + o * width, width);
}

void ref_norm(double *y, const double *in, const double *w, const double *b, int64_t N, int64_t C, double eps)
{
    for (int64_t i = 0; i < N; i++, in += C, y += C) {
        double mean = 0, square = 0;
        for (int64_t c = 0; c < C && b; c++)
            mean += in[c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            square += (in[c] - mean) * (in[c] - mean) / (double)C;
        for (int64_t c = 0; c < C; c++)
            y[c] = w[c] * (in[c] - mean) / sqrt(square + eps) + (b ? b[c] : 0);
    }
}

static double minimind2_frequency(const mmi_arch *a, int64_t j, double w)
{
    double half = (double)(a->D / 2), s = a->yarn_factor;
    for (int64_t i = 0; i <= j; i++) /* from the first wave longer than the original context on, all are stretched */
        if (2 * PI * pow(a->theta, 2.0 * (double)i / (double)a->D) > (double)a->yarn_original)
            return w / s;
    double beta = a->yarn_beta_slow + (a->yarn_beta_fast - a->yarn_beta_slow) * (double)j / fmax(half - 1, 1);
    return w * ((beta * s - beta + 1) / (beta * s));
}

static double standard_frequency(const mmi_arch *a, int64_t j, double w)
{
    double turns[2] = { a->yarn_beta_fast, a->yarn_beta_slow }, at[2];
    for (int i = 0; i < 2; i++)
        at[i] = (double)a->D * log((double)a->yarn_original / (2 * PI * turns[i])) / (2 * log(a->theta));
    double low = fmax(floor(at[0]), 0), high = fmin(ceil(at[1]), (double)(a->D / 2 - 1));
    double ramp = ((double)j - low) / fmax(high - low, 0.001);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return w * (1 - ramp + ramp / a->yarn_factor);
}

double ref_rope_frequency(const mmi_arch *a, int64_t j)
{
    double w = 1 / pow(a->theta, 2.0 * (double)j / (double)a->D);
    if (a->yarn == MMI_YARN_NONE || a->max_positions <= a->yarn_original)
        return w;
    return a->yarn == MMI_YARN_MINIMIND2 ? minimind2_frequency(a, j, w) : standard_frequency(a, j, w);
}

double ref_rope_amplitude(const mmi_arch *a)
{
    return a->yarn == MMI_YARN_STANDARD ? a->yarn_attention_factor : 1;
}

void ref_rope(double *x, const mmi_arch *a, const int32_t *positions, int64_t N, int64_t heads)
{
    int64_t half = a->D / 2;
    double amplitude = ref_rope_amplitude(a);
    for (int64_t j = 0; j < half; j++) {
        double w = ref_rope_frequency(a, j);
        for (int64_t i = 0; i < N; i++) {
            double c = amplitude * cos(positions[i] * w), s = amplitude * sin(positions[i] * w);
            for (int64_t h = 0; h < heads; h++) {
                double *first = x + (i * heads + h) * a->D + j, *second = first + half, before = *first;
                *first = before * c - *second * s;
                *second = *second * c + before * s;
            }
        }
    }
}

/* One query head at one row: 0 where it sees masked keys only. */
static void attend(double *out, const double *q, const double *k, const double *v, int64_t stride, int64_t D, int64_t keys,
                   const int32_t *mask, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t t = 0; t < keys; t++) {
        p[t] = mask && !mask[t] ? -INFINITY : dot(q, k + t * stride, D) / sqrt((double)D);
        most = fmax(most, p[t]);
    }
    memset(out, 0, (size_t)D * sizeof *out);
    if (most == -INFINITY)
        return;
    for (int64_t t = 0; t < keys; t++)
        sum += p[t] = exp(p[t] - most);
    for (int64_t t = 0; t < keys; t++) {
        const double share = p[t] / sum;
        for (int64_t d = 0; d < D; d++)
            out[d] += share * v[t * stride + d];
    }
}

void ref_attention(double *out, const double *q, const double *k, const double *v, int64_t H, int64_t G, int64_t D,
                   const ref_segment *segments, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        const ref_segment *s = &segments[n];
        double *p = room(s->past + s->count);
        for (int64_t i = 0; i < s->count; i++)
            for (int64_t h = 0; h < H; h++) {
                int64_t at = ((s->row + i) * H + h) * D, key = (s->key_row * G + h / (H / G)) * D;
                attend(out + at, q + at, k + key, v + key, G * D, D, s->past + i + 1, s->key_mask, p);
            }
        free(p);
    }
}

double ref_activate(int32_t act, double x)
{
    if (act == MMI_ACT_SILU)
        return x / (1 + exp(-x));
    if (act == MMI_ACT_GELU)
        return x / 2 * (1 + erf(x / sqrt(2)));
    if (act == MMI_ACT_GELU_TANH)
        return x / 2 * (1 + tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x)));
    return x > 0 ? x : 0;
}

void ref_ffn(double *y, const double *h, const ref_ffn_params *p, int64_t N)
{
    double *up = room(N * p->F), *gate = room(N * p->F);
    ref_linear(up, h, p->up, p->up_bias, N, p->F, p->C);
    if (p->gate)
        ref_linear(gate, h, p->gate, p->gate_bias, N, p->F, p->C);
    for (int64_t i = 0; i < N * p->F; i++)
        up[i] = p->gate ? ref_activate(p->act, gate[i]) * up[i] : ref_activate(p->act, up[i]);
    ref_linear(y, up, p->down, p->down_bias, N, p->C, p->F);
    free(up);
    free(gate);
}

void ref_logprobs(double *out, const double *logits, const int32_t *targets, int64_t N, int64_t V)
{
    for (int64_t i = 0; i < N; i++, logits += V) {
        double most = logits[0], sum = 0;
        for (int64_t c = 1; c < V; c++)
            most = fmax(most, logits[c]);
        for (int64_t c = 0; c < V; c++)
            sum += exp(logits[c] - most);
        out[i] = targets[i] < 0 ? 0 : logits[targets[i]] - most - log(sum);
    }
}
