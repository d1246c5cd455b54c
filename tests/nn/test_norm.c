#include <string.h>

#include "nn/arrays.h"
#include "nn/exec.h"
#include "nn/gradient.h"
#include "nn/norm.h"
#include "nn/reference64.h"

#define UNTOUCHED 12345.0f
#define EPS 1e-3f /* large enough to show when it is left out */

/* Rows of `heads` heads of C, ld apart; a plain norm has one head and no gaps. */
typedef struct norm {
    int64_t N, C, heads, ld;
    bool layernorm, per_head, weight_frozen, bias_frozen;
    float *x, *w, *b, *weights; /* loss = Σ weights · y; x and weights [N, ld] */
    double *x64, *w64, *b64, *y64;
    probes by_x, by_w, by_b;
    float *y, *dx, *dw, *db, *mean, *rstd; /* parts of all */
    float *dx0, *dw0, *db0;
    float *all, *all1;
    int64_t size;
} norm;

static int64_t at(const norm *n, int64_t i)
{
    int64_t width = n->heads * n->C;
    return i / width * n->ld + i % width;
}

static double loss(void *arg)
{
    norm *n = arg;
    double sum = 0;
    ref_norm(n->y64, n->x64, n->w64, n->layernorm ? n->b64 : NULL, n->N * n->heads, n->C, EPS);
    for (int64_t i = 0; i < n->N * n->heads * n->C; i++)
        sum += n->weights[at(n, i)] * n->y64[i];
    return sum;
}

static float *part(norm *n, int64_t *next, int64_t count)
{
    float *p = n->all ? n->all + *next : NULL;
    *next += count;
    return p;
}

static void lay_out(norm *n)
{
    n->size = 0;
    n->y = part(n, &n->size, n->N * n->ld);
    n->dx = part(n, &n->size, n->N * n->ld);
    n->dw = part(n, &n->size, n->C);
    n->db = part(n, &n->size, n->C);
    n->mean = part(n, &n->size, n->N * n->heads);
    n->rstd = part(n, &n->size, n->N * n->heads);
}

static norm prepare(norm n, test_rng *rng)
{
    int64_t rows = n.N * n.ld, elements = n.N * n.heads * n.C;
    n.x = take_random(rng, rows, 2);
    n.w = take_random(rng, n.C, 1);
    n.b = take_random(rng, n.C, 1);
    n.weights = take_random(rng, rows, 1);
    n.dx0 = take_random(rng, rows, 1);
    n.dw0 = take_random(rng, n.C, 1);
    n.db0 = take_random(rng, n.C, 1);
    n.x64 = take(elements, sizeof(double));
    for (int64_t i = 0; i < elements; i++)
        n.x64[i] = n.x[at(&n, i)] += n.layernorm ? 0.5f : 0;
    n.w64 = take_doubles(n.w, n.C);
    n.b64 = take_doubles(n.b, n.C);
    n.y64 = take(elements, sizeof(double));
    lay_out(&n);
    n.all = take_floats(n.size, 0);
    lay_out(&n);
    n.by_x = probes_take(n.x64, elements, loss, &n, rng);
    n.by_w = probes_take(n.w64, n.C, loss, &n, rng);
    if (n.layernorm)
        n.by_b = probes_take(n.b64, n.C, loss, &n, rng);
    loss(&n);
    return n;
}

static mmi_norm_params params(const norm *n)
{
    mmi_norm_params p = { .weight = { { n->w, MM_F32, 1, n->C }, n->weight_frozen ? NULL : n->dw, NULL }, .eps = EPS };
    if (n->layernorm)
        p.bias = (mmi_param){ { n->b, MM_F32, 1, n->C }, n->bias_frozen ? NULL : n->db, NULL };
    return p;
}

static void work(void *arg, const mmi_exec *x)
{
    norm *n = arg;
    for (int64_t i = 0; i < n->size; i++)
        n->all[i] = UNTOUCHED;
    memcpy(n->dw, n->dw0, (size_t)n->C * sizeof(float));
    memcpy(n->db, n->db0, (size_t)n->C * sizeof(float));
    float *partials = take_floats(mmi_norm_partials(n->C), NAN);
    if (n->per_head) {
        for (int64_t i = 0; i < n->N * n->heads * n->C; i++)
            n->dx[at(n, i)] = n->weights[at(n, i)]; /* holds dy, then dx */
        mmi_head_norm_forward(x, n->y, n->ld, n->rstd, n->x, n->ld, params(n), n->N, n->heads, n->C);
        mmi_head_norm_backward(x, n->dx, n->ld, n->x, n->ld, n->rstd, params(n), n->N, n->heads, n->C, partials);
        return;
    }
    memcpy(n->dx, n->dx0, (size_t)(n->N * n->C) * sizeof(float));
    mmi_norm_forward(x, n->y, n->mean, n->rstd, n->x, params(n), n->N, n->C, NULL);
    mmi_norm_backward(x, n->dx, n->weights, n->x, n->mean, n->rstd, params(n), n->N, n->C, partials);
}

static float *close_gaps(const norm *n, const float *x, const char *label)
{
    int64_t elements = n->N * n->heads * n->C;
    float *y = take_floats(elements, 0);
    for (int64_t i = 0; i < elements; i++)
        y[i] = x[at(n, i)];
    for (int64_t i = 0; i < n->N * n->ld; i++)
        ck_each(i % n->ld < n->heads * n->C || x[i] == UNTOUCHED, "%s: a gap between rows was written", label);
    return y;
}

static void check(void *arg, const char *label)
{
    norm *n = arg;
    ck_close(close_gaps(n, n->y, label), n->y64, n->N * n->heads * n->C, 1e-6, label);
    probes_check(&n->by_x, close_gaps(n, n->dx, label), n->per_head ? NULL : n->dx0, 0, label);
    probes_check(&n->by_w, n->dw, n->dw0, 0, label);
    if (n->layernorm)
        probes_check(&n->by_b, n->db, n->db0, 0, label);
    else
        ck_assert_msg(same_bits(n->db, n->db0, n->C) && n->mean[0] == UNTOUCHED, "%s: RMSNorm has no bias and no mean",
                      label);
    n->all1 = take_copy(n->all, n->size);
}

static void same(void *arg, const char *label)
{
    norm *n = arg;
    ck_assert_msg(same_bits(n->all, n->all1, n->size), "%s: other bits than with one thread", label);
}

/* N, C: the last two are cut into some pieces, and into as many as there may be. */
static const int64_t shapes[][2] = { { 1, 2 },     { 1, 130 }, { 3, 1 },     { 17, 6 },   { 16, 24 },
                                     { 1100, 10 }, { 7, 515 }, { 300, 150 }, { 1152, 1030 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(rmsnorm_and_its_gradients_agree_with_the_reference)
{
    test_rng rng = { 40 + (unsigned)_i };
    int64_t C = shapes[_i][1];
    norm n = prepare((norm){ .N = shapes[_i][0], .C = C, .heads = 1, .ld = C }, &rng);
    exec_on_all(&(exec_plan){ &n, 1, work, check, same });
}
END_TEST

START_TEST(layernorm_and_its_gradients_agree_with_the_reference)
{
    test_rng rng = { 50 + (unsigned)_i };
    int64_t C = shapes[_i][1];
    norm n = prepare((norm){ .N = shapes[_i][0], .C = C, .heads = 1, .ld = C, .layernorm = true }, &rng);
    exec_on_all(&(exec_plan){ &n, 1, work, check, same });
}
END_TEST

START_TEST(norms_of_heads_and_their_gradients_agree_with_the_reference)
{
    static const int64_t heads[][3] = { { 1, 1, 6 },   { 5, 8, 10 },   { 40, 3, 24 },
                                        { 67, 7, 36 }, { 19, 2, 130 }, { 300, 8, 64 } };
    test_rng rng = { 60 };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        int64_t H = heads[i][1], D = heads[i][2];
        norm n = prepare((norm){ .N = heads[i][0], .C = D, .heads = H, .ld = H * D + 5, .per_head = true }, &rng);
        exec_on_all(&(exec_plan){ &n, H * D, work, check, same });
    }
}
END_TEST

START_TEST(a_norm_may_write_over_its_input_and_keep_nothing)
{
    test_rng rng = { 70 };
    for (int layernorm = 0; layernorm < 2; layernorm++) {
        norm n = prepare((norm){ .N = 37, .C = 29, .heads = 1, .ld = 29, .layernorm = layernorm }, &rng);
        EACH_PATH_OF_FLOATS (path) {
            mmi_exec x = exec_create(path, 2, 1);
            float *y = take_copy(n.x, n.N * n.C);
            mmi_norm_forward(&x, y, NULL, NULL, y, params(&n), n.N, n.C, NULL);
            ck_close(y, n.y64, n.N * n.C, 1e-6, path->name);
            y = take_copy(n.x, n.N * n.C);
            mmi_norm_params own = params(&n);
            if (!layernorm) {
                mmi_head_norm_forward(&x, y, n.C, NULL, y, n.C, own, n.N, 1, n.C);
                ck_close(y, n.y64, n.N * n.C, 1e-6, path->name);
            }
            exec_free(&x);
        }
    }
}
END_TEST

START_TEST(what_is_added_before_and_quantized_behind_a_norm_has_the_bits_of_three_steps)
{
    static const int64_t rows[] = { 1, 7, 42, 130 }; /* 42 are a piece */
    enum { C = 96, MOST = 130 };
    const int64_t bytes = mmi_quantized_row(C);
    test_rng rng = { 72 };
    for (int layernorm = 0; layernorm < 2; layernorm++) {
        norm n = prepare((norm){ .N = MOST, .C = C, .heads = 1, .ld = C, .layernorm = layernorm }, &rng);
        float *delta = take_random(&rng, MOST * C, 1);
        EACH_PATH (path)
            for (int threads = 1; threads <= 3; threads++)
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                    const int64_t N = rows[r];
                    mmi_exec x = exec_create(path, threads, 1);
                    float *sum = take_copy(n.x, N * C), *y = take_floats(N * C, NAN), *want = take_floats(N * C, NAN);
                    unsigned char *quantized = take(2 * N * bytes, 1), *whole = quantized + N * bytes;
                    x.k.add(sum, delta, N * C);
                    mmi_norm_forward(&x, want, NULL, NULL, sum, params(&n), N, C, NULL);
                    for (int64_t i = 0; i < N; i++)
                        x.k.quantize(whole + i * bytes, C, want + i * C, 0, C);
                    float *in = take_copy(n.x, N * C);
                    mmi_norm_beside beside = { .stream = in, .delta = delta, .q = { &x.k, quantized, C } };
                    mmi_norm_forward(&x, y, NULL, NULL, in, params(&n), N, C, &beside);
                    ck_assert_msg(same_bits(y, want, N * C) && same_bits(in, sum, N * C) &&
                                      memcmp(quantized, whole, (size_t)(N * bytes)) == 0,
                                  "%s: %lld rows on %d threads", x.k.name, (long long)N, threads);
                    exec_free(&x);
                }
    }
}
END_TEST

START_TEST(parameters_that_are_not_trained_get_no_gradient_and_change_nothing_else)
{
    static const norm kinds[] = {
        { .N = 5, .C = 12, .heads = 1, .ld = 12, .layernorm = true },
        { .N = 40, .C = 37, .heads = 1, .ld = 37 },
        { .N = 6, .C = 10, .heads = 3, .ld = 33, .per_head = true },
    };
    test_rng rng = { 71 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        norm n = prepare(kinds[i], &rng);
        EACH_PATH_OF_FLOATS (path)
            for (int frozen = 0; frozen < 4; frozen++) {
                mmi_exec x = exec_create(path, 2, n.heads * n.C);
                n.weight_frozen = n.bias_frozen = false;
                work(&n, &x);
                float *want = take_copy(n.all, n.size);
                n.weight_frozen = frozen & 1;
                n.bias_frozen = frozen & 2;
                if (frozen & 1)
                    memcpy(want + (n.dw - n.all), n.dw0, (size_t)n.C * sizeof *want);
                if (frozen & 2)
                    memcpy(want + (n.db - n.all), n.db0, (size_t)n.C * sizeof *want);
                work(&n, &x);
                ck_assert_msg(same_bits(n.all, want, n.size), "%s, %d of kind %d", path->name, frozen, (int)i);
                exec_free(&x);
            }
    }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/norm", &tests);
    tcase_add_loop_test(tests, rmsnorm_and_its_gradients_agree_with_the_reference, 0, SHAPES);
    tcase_add_loop_test(tests, layernorm_and_its_gradients_agree_with_the_reference, 0, SHAPES);
    tcase_add_test(tests, norms_of_heads_and_their_gradients_agree_with_the_reference);
    tcase_add_test(tests, a_norm_may_write_over_its_input_and_keep_nothing);
    tcase_add_test(tests, what_is_added_before_and_quantized_behind_a_norm_has_the_bits_of_three_steps);
    tcase_add_test(tests, parameters_that_are_not_trained_get_no_gradient_and_change_nothing_else);
    return run_suite(suite);
}
