#include <math.h>
#include <string.h>

#include "nn/arrays.h"
#include "nn/exec.h"
#include "nn/gradient.h"
#include "nn/reference64.h"
#include "nn/rope.h"

#define UNTOUCHED 12345.0f

/* Plain, MiniMind2's YaRN and the paper's, stretched and not, with few and many long waves. */
static const mmi_arch archs[] = {
    { .D = 10, .theta = 1e6, .max_positions = 32768 },
    { .D = 2, .theta = 1e4, .max_positions = 100 },
    { .D = 24, .theta = 1e6, .max_positions = 8192, .yarn = MMI_YARN_MINIMIND2, .yarn_original = 2048, .yarn_factor = 4,
      .yarn_beta_fast = 4, .yarn_beta_slow = 1 },
    { .D = 36, .theta = 1e2, .max_positions = 4096, .yarn = MMI_YARN_MINIMIND2, .yarn_original = 4000, .yarn_factor = 3.5,
      .yarn_beta_fast = 8, .yarn_beta_slow = 2 },
    { .D = 6, .theta = 1e4, .max_positions = 64, .yarn = MMI_YARN_MINIMIND2, .yarn_original = 64, .yarn_factor = 4,
      .yarn_beta_fast = 4, .yarn_beta_slow = 1 },
    { .D = 2, .theta = 1e4, .max_positions = 64, .yarn = MMI_YARN_MINIMIND2, .yarn_original = 7, .yarn_factor = 4,
      .yarn_beta_fast = 4, .yarn_beta_slow = 1 },
    { .D = 130, .theta = 1e6, .max_positions = 32768, .yarn = MMI_YARN_STANDARD, .yarn_original = 2048, .yarn_factor = 16,
      .yarn_beta_fast = 32, .yarn_beta_slow = 1, .yarn_attention_factor = 1.25 },
    { .D = 12, .theta = 1e4, .max_positions = 512, .yarn = MMI_YARN_STANDARD, .yarn_original = 50, .yarn_factor = 2.5,
      .yarn_beta_fast = 32, .yarn_beta_slow = 1, .yarn_attention_factor = 0.9 },
    { .D = 14, .theta = 1e4, .max_positions = 128, .yarn = MMI_YARN_STANDARD, .yarn_original = 128, .yarn_factor = 16,
      .yarn_beta_fast = 32, .yarn_beta_slow = 1, .yarn_attention_factor = 1.5 },
};
enum { ARCHS = sizeof archs / sizeof *archs, P = 61 };

START_TEST(tables_hold_the_angles_of_the_family)
{
    const mmi_arch *a = &archs[_i];
    int64_t half = a->D / 2;
    float *cosines = take_floats(P * half, NAN), *sines = take_floats(P * half, NAN);
    mmi_rope_tables(cosines, sines, a, P);
    for (int64_t t = 0; t < P; t++)
        for (int64_t j = 0; j < half; j++) {
            double angle = (double)t * ref_rope_frequency(a, j), amplitude = ref_rope_amplitude(a);
            ck_assert_double_eq_tol(cosines[t * half + j], amplitude * cos(angle), 1e-6);
            ck_assert_double_eq_tol(sines[t * half + j], amplitude * sin(angle), 1e-6);
        }
}
END_TEST

typedef struct rope {
    const mmi_arch *arch;
    int64_t N, heads, ld;
    int32_t *positions;
    float *in, *weights; /* [N, ld]; loss = Σ weights · y */
    double *x64, *y64;
    probes by_x;
    float *cos, *sin, *y, *dx, *y1, *dx1;
} rope;

static int64_t at(const rope *r, int64_t i)
{
    int64_t width = r->heads * r->arch->D;
    return i / width * r->ld + i % width;
}

static double loss(void *arg)
{
    rope *r = arg;
    int64_t n = r->N * r->heads * r->arch->D;
    double sum = 0;
    memcpy(r->y64, r->x64, (size_t)n * sizeof(double));
    ref_rope(r->y64, r->arch, r->positions, r->N, r->heads);
    for (int64_t i = 0; i < n; i++)
        sum += r->weights[at(r, i)] * r->y64[i];
    return sum;
}

static void work(void *arg, const mmi_exec *x)
{
    rope *r = arg;
    int64_t width = r->heads * r->arch->D;
    for (int64_t i = 0; i < r->N * r->ld; i++) {
        r->y[i] = i % r->ld < width ? r->in[i] : UNTOUCHED;
        r->dx[i] = i % r->ld < width ? r->weights[i] : UNTOUCHED;
    }
    mmi_rope_apply(x, r->y, r->ld, r->cos, r->sin, r->positions, r->N, r->heads, r->arch->D, false);
    mmi_rope_apply(x, r->dx, r->ld, r->cos, r->sin, r->positions, r->N, r->heads, r->arch->D, true);
}

static float *close_gaps(const rope *r, const float *x, const char *label)
{
    int64_t width = r->heads * r->arch->D;
    float *y = take_floats(r->N * width, 0);
    for (int64_t i = 0; i < r->N * width; i++)
        y[i] = x[at(r, i)];
    for (int64_t i = 0; i < r->N * r->ld; i++)
        ck_each(i % r->ld < width || x[i] == UNTOUCHED, "%s: a gap between rows was written", label);
    return y;
}

static void check(void *arg, const char *label)
{
    rope *r = arg;
    ck_close(close_gaps(r, r->y, label), r->y64, r->N * r->heads * r->arch->D, 1e-6, label);
    probes_check(&r->by_x, close_gaps(r, r->dx, label), NULL, 0, label);
    r->y1 = take_copy(r->y, r->N * r->ld);
    r->dx1 = take_copy(r->dx, r->N * r->ld);
}

static void same(void *arg, const char *label)
{
    rope *r = arg;
    ck_assert_msg(same_bits(r->y, r->y1, r->N * r->ld) && same_bits(r->dx, r->dx1, r->N * r->ld), "%s", label);
}

START_TEST(heads_are_turned_by_their_position_and_gradients_turned_back)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 5, 8 }, { 33, 3 }, { 97, 7 } };
    test_rng rng = { 80 + (unsigned)_i };
    for (size_t s = _i == 0 ? 0 : 3; s < sizeof shapes / sizeof *shapes; s++) {
        rope r = { .arch = &archs[_i], .N = shapes[s][0], .heads = shapes[s][1] };
        int64_t n = r.N * r.heads * r.arch->D, half = r.arch->D / 2;
        r.ld = r.heads * r.arch->D + 3;
        r.positions = take_ints(&rng, r.N, 0, P - 1);
        r.in = take_random(&rng, r.N * r.ld, 1);
        r.weights = take_random(&rng, r.N * r.ld, 1);
        r.x64 = take(n, sizeof(double));
        for (int64_t i = 0; i < n; i++)
            r.x64[i] = r.in[at(&r, i)];
        r.y64 = take(n, sizeof(double));
        r.cos = take_floats(P * half, NAN);
        r.sin = take_floats(P * half, NAN);
        mmi_rope_tables(r.cos, r.sin, r.arch, P);
        r.y = take_floats(r.N * r.ld, 0);
        r.dx = take_floats(r.N * r.ld, 0);
        r.by_x = probes_take(r.x64, n, loss, &r, &rng);
        loss(&r);
        exec_on_all(&(exec_plan){ &r, 1, work, check, same });
    }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/rope", &tests);
    tcase_add_loop_test(tests, tables_hold_the_angles_of_the_family, 0, ARCHS);
    tcase_add_loop_test(tests, heads_are_turned_by_their_position_and_gradients_turned_back, 0, ARCHS);
    return run_suite(suite);
}
