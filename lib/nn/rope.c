#include "nn/rope.h"

#include <math.h>

#define PI 3.14159265358979323846
#define ROWS 32 /* tokens per piece at least */

/* The pair from which on a wave is longer than the original context (MiniMind2's form). */
static int64_t first_long_wave(const mmi_arch *a, int64_t half)
{
    for (int64_t j = 0; j < half; j++)
        if (2 * PI / pow(a->theta, -2.0 * (double)j / (double)a->D) > (double)a->yarn_original)
            return j;
    return half;
}

static double stretch_minimind2(const mmi_arch *a, int64_t j, int64_t half, int64_t cut)
{
    double s = a->yarn_factor;
    if (j >= cut)
        return 1 / s;
    double beta =
        a->yarn_beta_slow + (a->yarn_beta_fast - a->yarn_beta_slow) * (double)j / (double)(half - 1 > 1 ? half - 1 : 1);
    return (beta * s - beta + 1) / (beta * s);
}

/* The pair that turns `rotations` times within the original context. */
static double pair_of(const mmi_arch *a, double rotations)
{
    return (double)a->D * log((double)a->yarn_original / (2 * PI * rotations)) / (2 * log(a->theta));
}

static double stretch_standard(const mmi_arch *a, int64_t j, int64_t half)
{
    double low = fmax(floor(pair_of(a, a->yarn_beta_fast)), 0);
    double high = fmin(ceil(pair_of(a, a->yarn_beta_slow)), (double)(half - 1));
    double ramp = fmin(fmax(((double)j - low) / fmax(high - low, 0.001), 0), 1);
    return 1 - ramp + ramp / a->yarn_factor;
}

bool mmi_rope_stretches(const mmi_arch *a)
{
    return a->yarn != MMI_YARN_NONE && a->max_positions > a->yarn_original;
}

void mmi_rope_tables(float *cos_table, float *sin_table, const mmi_arch *a, int64_t P)
{
    int64_t half = a->D / 2;
    bool stretched = mmi_rope_stretches(a);
    int64_t cut = stretched ? first_long_wave(a, half) : half;
    double amplitude = a->yarn == MMI_YARN_STANDARD ? a->yarn_attention_factor : 1;
    for (int64_t j = 0; j < half; j++) {
        double w = pow(a->theta, -2.0 * (double)j / (double)a->D);
        if (stretched)
            w *= a->yarn == MMI_YARN_MINIMIND2 ? stretch_minimind2(a, j, half, cut) : stretch_standard(a, j, half);
        for (int64_t t = 0; t < P; t++) {
            cos_table[t * half + j] = (float)(amplitude * cos((double)t * w));
            sin_table[t * half + j] = (float)(amplitude * sin((double)t * w));
        }
    }
}

typedef struct job {
    const mmi_exec *x;
    float *y;
    const float *cos, *sin;
    const int32_t *positions;
    int64_t ld, N, heads, D, step;
    bool inverse;
} job;

static void turn(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t first, last, half = j->D / 2;
    mmi_piece_rows(piece, j->step, j->N, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t t = j->positions[i];
        j->x->k.rope(j->y + i * j->ld, j->cos + t * half, j->sin + t * half, j->heads, j->D, j->inverse);
    }
}

void mmi_rope_apply(const mmi_exec *x, float *y, int64_t ld, const float *cos_table, const float *sin_table,
                    const int32_t *positions, int64_t N, int64_t heads, int64_t D, bool inverse)
{
    job j = { x, y, cos_table, sin_table, positions, ld, N, heads, D, mmi_rows_worth(ROWS, heads * D), inverse };
    mmi_pool_run(x->pool, mmi_pieces(N, j.step), turn, &j);
}
