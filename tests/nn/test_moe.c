/* Experts against a plain reference in double precision: choices, weights, balance, outputs, every gradient. */
#include <string.h>

#include "base/random.h"
#include "nn/arrays.h"
#include "nn/exec.h"
#include "nn/gradient.h"
#include "nn/moe.h"
#include "nn/reference64.h"

#define SEED 77
#define MOST_EXPERTS 8
enum { OUTPUT_STREAM = 5, NOISE_STREAM = 6, INNER_STREAM = 100 };

typedef struct moe {
    int64_t N, C, F, E, k, groups;
    bool renormalize, gated, undecided; /* undecided: float32 may choose otherwise than double precision */
    int32_t act;
    float output_rate, inner_rate, noise;
    double balance;                    /* the loss is Σ weights · out + balance · the balance */
    float *h, *weights, *dh0;          /* [N, C] */
    float *w, *grad0;                  /* [params] router, then each expert's gate, up, down */
    int64_t params;
    double *h64, *w64, *out64, balance64;
    int32_t *chosen, *row_of;          /* [N, k], as the reference has them */
    int64_t first[MOST_EXPERTS + 1];
    float *output_mask, *inner_mask;   /* [N k, C], [N k, F]: 0 or 1 / (1 - rate) */
    float *noises;                     /* [N, E] */
    probes by_h, by_router, by_expert[MOST_EXPERTS][3];
    float *out, *dh, *grad, *all, *all1; /* parts of all */
    int64_t size;
    double balance1;
} moe;

static int64_t matrix(const moe *m)
{
    return m->F * m->C;
}

/* Where matrix i of expert e begins: 0 gate, 1 up, 2 down. */
static int64_t at(const moe *m, int64_t e, int i)
{
    return m->E * m->C + (m->gated ? 3 * e + i : 2 * e + i - 1) * matrix(m);
}

/* --- Reference --- */

static void probabilities(const moe *m, double *p, int64_t n)
{
    double sum = 0, most = -INFINITY;
    ref_linear(p, m->h64 + n * m->C, m->w64, NULL, 1, m->E, m->C);
    for (int64_t e = 0; e < m->E; e++) {
        p[e] += m->noises[n * m->E + e];
        most = p[e] > most ? p[e] : most;
    }
    for (int64_t e = 0; e < m->E; e++)
        sum += p[e] = exp(p[e] - most);
    for (int64_t e = 0; e < m->E; e++)
        p[e] /= sum;
}

/* y [C] = expert e for the token in grouped row `row`. */
static void expert(const moe *m, double *y, int64_t n, int64_t e, int64_t row)
{
    double up[256], gate[256];
    const double *h = m->h64 + n * m->C;
    ck_each(m->F <= 256, "F is %lld", (long long)m->F);
    ref_linear(up, h, m->w64 + at(m, e, 1), NULL, 1, m->F, m->C);
    if (m->gated)
        ref_linear(gate, h, m->w64 + at(m, e, 0), NULL, 1, m->F, m->C);
    for (int64_t f = 0; f < m->F; f++)
        up[f] = (m->gated ? ref_activate(m->act, gate[f]) * up[f] : ref_activate(m->act, up[f])) * m->inner_mask[row * m->F + f];
    ref_linear(y, up, m->w64 + at(m, e, 2), NULL, 1, m->C, m->F);
    for (int64_t c = 0; c < m->C; c++)
        y[c] *= m->output_mask[row * m->C + c];
}

static double add_token(moe *m, int64_t n, const double *p)
{
    double sum = 0, loss = 0, y[256];
    const int32_t *chosen = m->chosen + n * m->k;
    for (int64_t s = 0; s < m->k; s++)
        sum += p[chosen[s]];
    for (int64_t s = 0; s < m->k; s++) {
        expert(m, y, n, chosen[s], m->row_of[n * m->k + s]);
        for (int64_t c = 0; c < m->C; c++)
            m->out64[n * m->C + c] += p[chosen[s]] / (m->renormalize ? sum : 1) * y[c];
    }
    for (int64_t c = 0; c < m->C; c++)
        loss += m->weights[n * m->C + c] * m->out64[n * m->C + c];
    return loss;
}

/* With the choices as they are: a choice has no gradient. */
static double loss(void *arg)
{
    moe *m = arg;
    double sum = 0, p[MOST_EXPERTS];
    int64_t T = m->N / m->groups;
    memset(m->out64, 0, (size_t)(m->N * m->C) * sizeof *m->out64);
    m->balance64 = 0;
    for (int64_t g = 0; g < m->groups; g++) {
        double share[MOST_EXPERTS] = { 0 }, mean[MOST_EXPERTS] = { 0 };
        for (int64_t i = g * T * m->k; i < (g + 1) * T * m->k; i++)
            share[m->chosen[i]] += 1 / (double)T;
        for (int64_t n = g * T; n < (g + 1) * T; n++) {
            probabilities(m, p, n);
            sum += add_token(m, n, p);
            for (int64_t e = 0; e < m->E; e++)
                mean[e] += p[e] / (double)T;
        }
        for (int64_t e = 0; e < m->E; e++)
            m->balance64 += share[e] * mean[e] / (double)m->groups;
    }
    return sum + m->balance * m->balance64;
}

static void choose_all(moe *m)
{
    double p[MOST_EXPERTS];
    for (int64_t n = 0; n < m->N; n++) {
        probabilities(m, p, n);
        for (int64_t s = 0; s < m->k; s++) {
            int32_t best = 0;
            for (int32_t e = 1; e < m->E; e++)
                if (p[e] > p[best])
                    best = e;
            m->chosen[n * m->k + s] = best;
            p[best] = -1;
        }
    }
    int64_t row = 0;
    for (int32_t e = 0; e < m->E; e++) {
        m->first[e] = row;
        for (int64_t i = 0; i < m->N * m->k; i++)
            if (m->chosen[i] == e)
                m->row_of[i] = (int32_t)row++;
    }
    m->first[m->E] = row;
}

static mmi_dropout inner_dropout(const moe *m, int64_t e)
{
    return (mmi_dropout){ m->inner_rate, SEED, (uint64_t)(INNER_STREAM + e) };
}

static mmi_dropout output_dropout(const moe *m)
{
    return (mmi_dropout){ m->output_rate, SEED, OUTPUT_STREAM };
}

/* --- One case --- */

static float *part(moe *m, int64_t n)
{
    float *p = m->all ? m->all + m->size : NULL;
    m->size += n;
    return p;
}

static void lay_out(moe *m)
{
    m->size = 0;
    m->grad = part(m, m->params);
    m->out = part(m, m->N * m->C);
    m->dh = part(m, m->N * m->C);
}

static void take_arrays(moe *m, test_rng *rng)
{
    int64_t rows = m->N * m->k;
    ck_assert_int_le(m->E, MOST_EXPERTS);
    m->params = m->E * m->C + m->E * (m->gated ? 3 : 2) * matrix(m);
    m->h = take_random(rng, m->N * m->C, 1);
    m->weights = take_random(rng, m->N * m->C, 1);
    m->dh0 = take_random(rng, m->N * m->C, 1);
    m->w = take_random(rng, m->params, 0.6f);
    m->grad0 = take_random(rng, m->params, 1);
    m->out64 = take(m->N * m->C, sizeof(double));
    m->chosen = take(rows, sizeof(int32_t));
    m->row_of = take(rows, sizeof(int32_t));
    m->output_mask = take_floats(rows * m->C, 1);
    m->inner_mask = take_floats(rows * m->F, 1);
    m->noises = take_floats(m->N * m->E, 0);
    lay_out(m);
    m->all = take_floats(m->size, 0);
    lay_out(m);
}

/* What follows from h and w, which a test may have changed. */
static void finish(moe *m, test_rng *rng)
{
    m->h64 = take_doubles(m->h, m->N * m->C);
    m->w64 = take_doubles(m->w, m->params);
    if (m->noise > 0)
        mmi_random_normal(m->noises, m->N * m->E, m->noise, SEED, NOISE_STREAM, 0);
    choose_all(m);
    mmi_kernels k;
    mmi_kernels_init_c(&k);
    mmi_dropout_row(&k, m->output_mask, m->N * m->k * m->C, 0, output_dropout(m));
    for (int64_t e = 0; e < m->E; e++)
        mmi_dropout_row(&k, m->inner_mask + m->first[e] * m->F, (m->first[e + 1] - m->first[e]) * m->F, 0, inner_dropout(m, e));
    m->by_h = probes_take(m->h64, m->N * m->C, loss, m, rng);
    m->by_router = probes_take(m->w64, m->E * m->C, loss, m, rng);
    for (int64_t e = 0; e < m->E; e++)
        for (int i = m->gated ? 0 : 1; i < 3; i++)
            m->by_expert[e][i] = probes_take(m->w64 + at(m, e, i), matrix(m), loss, m, rng);
    loss(m);
}

static mmi_param param(const moe *m, int64_t offset, int64_t rows, int64_t cols)
{
    return (mmi_param){ { m->w + offset, MM_F32, rows, cols }, m->grad + offset, NULL };
}

static mmi_routing routing_of(const moe *m)
{
    int64_t rows = m->N * m->k;
    return (mmi_routing){ .probs = take_floats(m->N * m->E, NAN),          .weights = take_floats(rows, NAN),
                          .chosen = take(rows, sizeof(int32_t)),           .row_of = take(rows, sizeof(int32_t)),
                          .token_of = take(rows, sizeof(int32_t)),         .first = take(m->E + 1, sizeof(int64_t)) };
}

static void work(void *arg, const mmi_exec *x)
{
    moe *m = arg;
    int64_t N = m->N, C = m->C, F = m->F, R = N * m->k, inner_width = F * (m->gated ? 2 : 1);
    mmi_ffn experts[MOST_EXPERTS];
    for (int64_t e = 0; e < m->E; e++)
        experts[e] = (mmi_ffn){ .gate = m->gated ? param(m, at(m, e, 0), F, C) : (mmi_param){ .grad = NULL },
                                .up = param(m, at(m, e, 1), F, C), .down = param(m, at(m, e, 2), C, F), .act = m->act,
                                .dropout = inner_dropout(m, e) };
    mmi_router router = { .weight = param(m, 0, m->E, C), .E = m->E, .k = m->k, .renormalize = m->renormalize,
                          .noise = m->noise, .seed = SEED, .stream = NOISE_STREAM };
    mmi_routing r = routing_of(m);
    memcpy(m->grad, m->grad0, (size_t)m->params * sizeof(float));
    memcpy(m->dh, m->dh0, (size_t)(N * C) * sizeof(float));
    float *inner = take_floats(R * inner_width, NAN), *y = take_floats(R * C, NAN);
    float *hg = take_floats(R * C, NAN), *mid = take_floats(R * F, NAN);
    mmi_moe_route(x, &r, m->h, &router, N, NULL);
    mmi_moe_forward(x, m->out, inner, y, hg, mid, m->h, experts, &router, &r, output_dropout(m), N, NULL);
    m->balance1 = mmi_moe_balance(&r, N, m->E, m->k, m->groups);
    ck_assert(m->undecided || memcmp(r.chosen, m->chosen, (size_t)R * sizeof *r.chosen) == 0);
    ck_assert(m->undecided || memcmp(r.row_of, m->row_of, (size_t)R * sizeof *r.row_of) == 0);
    ck_assert(m->undecided || memcmp(r.first, m->first, (size_t)(m->E + 1) * sizeof *r.first) == 0);
    for (int64_t i = 0; i < R; i++) /* backward must make again what it needs */
        hg[i * C] = mid[i * F] = NAN;
    float *dy = take_floats(R * C, NAN), *d_inner = take_floats(R * inner_width, NAN), *d_probs = take_floats(N * m->E, NAN);
    mmi_moe_backward(x, m->dh, hg, dy, d_inner, mid, d_probs, m->weights, m->h, inner, y, experts, &router, &r,
                     output_dropout(m), N, m->balance, m->groups);
}

static void check(void *arg, const char *label)
{
    static const char *const names[] = { "gate", "up", "down" };
    moe *m = arg;
    char what[160];
    double typical = 0;
    ck_close(m->out, m->out64, m->N * m->C, 3e-6, label);
    ck_assert_double_eq_tol(m->balance1, m->balance64, 2e-6 * m->balance64);
    probes_check(&m->by_h, m->dh, m->dh0, 0, label);
    for (int64_t i = m->E * m->C; i < m->params; i++)
        typical += pow(m->grad[i] - m->grad0[i], 2) / (double)(m->params - m->E * m->C);
    snprintf(what, sizeof what, "%s: router", label);
    probes_check(&m->by_router, m->grad, m->grad0, 1e-2 * sqrt(typical), what);
    for (int64_t e = 0; e < m->E; e++)
        for (int i = m->gated ? 0 : 1; i < 3; i++) {
            snprintf(what, sizeof what, "%s: %s of expert %d", label, names[i], (int)e);
            probes_check(&m->by_expert[e][i], m->grad + at(m, e, i), m->grad0 + at(m, e, i), 1e-2 * sqrt(typical), what);
            if (m->first[e] == m->first[e + 1])
                ck_assert_msg(same_bits(m->grad + at(m, e, i), m->grad0 + at(m, e, i), matrix(m)),
                              "%s: there is a gradient, but no token", what);
        }
    m->all1 = take_copy(m->all, m->size);
}

static void same(void *arg, const char *label)
{
    moe *m = arg;
    ck_assert_msg(same_bits(m->all, m->all1, m->size), "%s: other bits than with one thread", label);
}

static void run(moe *m)
{
    exec_on_all(&(exec_plan){ m, FOR_PRODUCTS, work, check, same });
}

/* N, C, F, E, k */
static const int64_t shapes[][5] = { { 1, 6, 10, 3, 2 },   { 9, 10, 24, 1, 1 }, { 12, 24, 17, 4, 1 }, { 34, 9, 36, 5, 2 },
                                     { 40, 17, 21, 6, 3 }, { 35, 8, 40, 4, 4 }, { 70, 13, 9, 8, 7 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

static moe moe_of(int shape, int kind)
{
    static const int32_t acts[] = { MMI_ACT_SILU, MMI_ACT_GELU, MMI_ACT_GELU_TANH, MMI_ACT_RELU };
    const int64_t *s = shapes[shape];
    return (moe){ .N = s[0], .C = s[1], .F = s[2], .E = s[3], .k = s[4], .groups = 1, .renormalize = kind & 1,
                  .gated = kind & 2, .act = acts[(shape + kind) % 4] };
}

/* --- Tests --- */

START_TEST(routers_and_experts_of_every_kind_agree_with_the_reference)
{
    test_rng rng = { 500 + (unsigned)_i };
    for (int shape = 0; shape < SHAPES; shape++) {
        moe m = moe_of(shape, _i);
        take_arrays(&m, &rng);
        finish(&m, &rng);
        run(&m);
    }
}
END_TEST

START_TEST(the_balance_and_its_gradient_agree_with_the_reference)
{
    test_rng rng = { 510 + (unsigned)_i };
    for (int shape = 1; shape < SHAPES; shape++) {
        moe m = moe_of(shape, 3 - _i % 2);
        m.groups = _i < 2 ? 1 : m.N % 5 == 0 ? 5 : m.N % 2 == 0 ? 2 : 3;
        m.balance = 30; /* beside the sum of all outputs it would not show otherwise */
        take_arrays(&m, &rng);
        finish(&m, &rng);
        run(&m);
    }
}
END_TEST

START_TEST(dropped_elements_and_noise_are_those_of_the_counters)
{
    test_rng rng = { 520 + (unsigned)_i };
    for (int shape = _i % 2; shape < SHAPES; shape += 2) {
        moe m = moe_of(shape, _i);
        m.output_rate = shape % 3 != 1 ? 0.3f : 0;
        m.inner_rate = shape % 3 != 2 ? 0.2f : 0;
        m.noise = _i / 2 ? 0.5f : 0;
        take_arrays(&m, &rng);
        finish(&m, &rng);
        run(&m);
    }
}
END_TEST

START_TEST(an_expert_without_tokens_has_no_gradient)
{
    test_rng rng = { 530 + (unsigned)_i };
    for (int shape = 2; shape < 5; shape++) {
        moe m = moe_of(shape, _i);
        take_arrays(&m, &rng);
        int64_t dead = _i % 2 ? 0 : m.E - 1;
        for (int64_t n = 0; n < m.N; n++)
            m.h[n * m.C] = 2;
        for (int64_t e = 0; e < m.E; e++)
            m.w[e * m.C] = e == dead ? -9 : 1;
        finish(&m, &rng);
        ck_assert_int_eq(m.first[dead], m.first[dead + 1]);
        run(&m);
    }
}
END_TEST

/* Small whole numbers, whose products are exact: many logits are equal to the bit. */
START_TEST(equally_likely_experts_are_chosen_lowest_first)
{
    test_rng rng = { 540 + (unsigned)_i };
    for (int shape = 2 + _i % 2; shape < SHAPES; shape += 2) {
        moe m = moe_of(shape, _i % 4);
        take_arrays(&m, &rng);
        for (int64_t i = 0; i < m.N * m.C; i++)
            m.h[i] = (float)rng_between(&rng, -1, 1);
        for (int64_t i = 0; i < m.E * m.C; i++)
            m.w[i] = _i < 4 ? (float)(rng_between(&rng, -2, 2) / 2) : 0;
        finish(&m, &rng);
        run(&m);
    }
}
END_TEST

START_TEST(logits_far_apart_stay_finite_both_ways)
{
    test_rng rng = { 550 };
    for (int kind = 0; kind < 4; kind++) {
        moe m = moe_of(4, kind);
        m.undecided = true; /* between probabilities that are all 0 */
        take_arrays(&m, &rng);
        for (int64_t i = 0; i < m.E * m.C; i++)
            m.w[i] *= 1e4f;
        finish(&m, &rng);
        EACH_PATH_OF_FLOATS (path) {
            mmi_exec x = exec_create(path, 1, FOR_PRODUCTS);
            work(&m, &x);
            ck_assert(all_finite(m.all, m.size));
            exec_free(&x);
        }
    }
}
END_TEST

START_TEST(a_token_that_is_not_a_number_gives_none_and_leaves_others_theirs)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    test_rng rng = { 570 };
    for (int kind = 0; kind < 4; kind++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            moe m = moe_of(4, kind);
            m.undecided = true;
            take_arrays(&m, &rng);
            finish(&m, &rng);
            const int64_t token = m.N / 2;
            m.h[token * m.C + 3] = bad[b];
            EACH_PATH_OF_FLOATS (path) {
                mmi_exec x = exec_create(path, 2, FOR_PRODUCTS);
                work(&m, &x);
                for (int64_t i = 0; i < m.N * m.C; i++)
                    ck_each(i / m.C == token ? isnan(m.out[i]) : fabs(m.out[i] - m.out64[i]) <= 1e-4,
                            "%s, kind %d, %g: [%d] is %g", path->name, kind, (double)bad[b], (int)i, (double)m.out[i]);
                for (int64_t i = 0; i < m.N * m.C; i++)
                    ck_each(isfinite(m.dh[i]) || i / m.C == token, "%s, kind %d, %g: [%d] goes back with %g",
                            path->name, kind, (double)bad[b], (int)i, (double)m.dh[i]);
                exec_free(&x);
            }
        }
}
END_TEST

START_TEST(experts_are_chosen_without_rounding)
{
    static const int32_t types[] = { MM_F32, MM_BF16, MM_F16 };
    test_rng rng = { 560 };
    moe m = moe_of(3, 3);
    take_arrays(&m, &rng);
    finish(&m, &rng);
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec x = exec_create(path, 1, FOR_PRODUCTS);
        float *exact = NULL;
        double balance = 0;
        for (int t = 0; t < 3; t++) {
            x.compute = types[t];
            work(&m, &x);
            ck_assert(t == 0 || m.balance1 == balance); /* of the probabilities and the choices */
            ck_assert(t == 0 || !same_bits(m.out, exact, m.N * m.C));
            ck_close(m.out, m.out64, m.N * m.C, types[t] == MM_F32 ? 3e-6 : 0x1p-6, mm_dtype_name(types[t]));
            balance = m.balance1;
            exact = t == 0 ? take_copy(m.out, m.N * m.C) : exact;
        }
        exec_free(&x);
    }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/moe", &tests);
    tcase_add_loop_test(tests, routers_and_experts_of_every_kind_agree_with_the_reference, 0, 4);
    tcase_add_loop_test(tests, the_balance_and_its_gradient_agree_with_the_reference, 0, 4);
    tcase_add_loop_test(tests, dropped_elements_and_noise_are_those_of_the_counters, 0, 4);
    tcase_add_loop_test(tests, an_expert_without_tokens_has_no_gradient, 0, 4);
    tcase_add_loop_test(tests, equally_likely_experts_are_chosen_lowest_first, 0, 5);
    tcase_add_test(tests, logits_far_apart_stay_finite_both_ways);
    tcase_add_test(tests, a_token_that_is_not_a_number_gives_none_and_leaves_others_theirs);
    tcase_add_test(tests, experts_are_chosen_without_rounding);
    return run_suite(suite);
}
