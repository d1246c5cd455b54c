/* Activations, softmax and the exponential under both, every table against double precision. */
#include <string.h>

#include "tables.h"

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2PI 0.39894228040143267794

typedef struct activation {
    double value, slope;
    double slope_size; /* |the terms of the slope| added up: they may cancel */
    double steep;      /* how much a rounding inside is magnified */
} activation;

static activation reference(double x, int32_t act)
{
    activation a = { 0, 0, 0, 1 };
    if (act == MMI_ACT_RELU) {
        a.value = x <= 0 ? 0 : x;
        a.slope = a.slope_size = x <= 0 ? 0 : 1;
    } else if (act == MMI_ACT_GELU) {
        double below = 0.5 * erfc(-x * SQRT_HALF), density = INV_SQRT_2PI * exp(-0.5 * x * x);
        a.value = x * below;
        a.slope = below + x * density;
        a.slope_size = below + fabs(x) * density;
    } else {
        double u = act == MMI_ACT_SILU ? x : 2 * SQRT_2_OVER_PI * (x + 0.044715 * x * x * x);
        double du = act == MMI_ACT_SILU ? 1 : 2 * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x);
        double s = 1 / (1 + exp(-u)), rest = 1 / (1 + exp(u));
        a.value = x * s;
        a.slope = s + x * s * rest * du;
        a.slope_size = s + fabs(x) * s * rest * du;
        if (act == MMI_ACT_GELU_TANH) /* u is computed in float, and the exponential magnifies its rounding by |u| */
            a.steep = 1 + fabs(u) / 4;
    }
    return a;
}

/* A dozen roundings, and what denormal numbers lack. */
#define ACT_RELATIVE 1e-6
#define ACT_ABSOLUTE 1e-42

static void check_activation(const mmi_kernels *k, int32_t act, const float *x, int64_t n)
{
    static const char *const names[] = { "silu", "gelu", "gelu_tanh", "relu" };
    float *gate = edge_floats(0, n), *up = edge_floats(1, n), *out = edge_floats(2, n), *plain = edge_floats(3, n);
    float *d = edge_floats(4, n), *d_gate = edge_floats(5, n), *d_up = edge_floats(6, n), *again = edge_floats(7, n);
    for (int64_t i = 0; i < n; i++) {
        gate[i] = x[i];
        up[i] = 1.0f + (float)(i % 5) / 4;
        d[i] = 1.5f - (float)(i % 3) / 2;
    }
    k->activate(out, gate, up, act, n);
    k->activate(plain, NULL, gate, act, n);
    k->activate_backward(d_gate, d_up, again, d, gate, up, act, n);
    for (int64_t i = 0; i < n; i++) {
        activation a = reference(x[i], act);
        double error = ACT_RELATIVE * a.steep * fabs(a.value) + ACT_ABSOLUTE;
        double slope_error = ACT_RELATIVE * a.steep * a.slope_size + ACT_ABSOLUTE;
        ck_near(plain[i], a.value, error, k, names[act], (int64_t)(x[i] * 1000));
        ck_near(out[i], a.value * up[i], 2 * error, k, names[act], (int64_t)(x[i] * 1000));
        ck_near(again[i], a.value * up[i], 2 * error, k, "out again", (int64_t)(x[i] * 1000));
        ck_near(d_up[i], a.value * d[i], 2 * error, k, "d_up", (int64_t)(x[i] * 1000));
        ck_near(d_gate[i], a.slope * d[i] * up[i], 4 * slope_error, k, "d_gate", (int64_t)(x[i] * 1000));
    }
    k->activate_backward(NULL, d_up, d, d, NULL, gate, act, n); /* out may be d */
    for (int64_t i = 0; i < n; i++) {
        activation a = reference(x[i], act);
        double gradient = 1.5f - (float)(i % 3) / 2;
        ck_near(d_up[i], a.slope * gradient, 2 * ACT_RELATIVE * a.steep * a.slope_size + ACT_ABSOLUTE, k, "d_up alone",
                i);
        ck_near(d[i], a.value, ACT_RELATIVE * a.steep * fabs(a.value) + ACT_ABSOLUTE, k, "out in d", i);
    }
    edge_check();
}

START_TEST(activations_agree_with_double_precision_all_along_the_line)
{
    static float x[40000];
    int n = sizeof x / sizeof x[0];
    EACH_TABLE (k)
        for (int32_t act = 0; act <= MMI_ACT_RELU; act++) {
            for (int i = 0; i < n; i++)
                x[i] = (float)((i - n / 2) * (110.0 / (n / 2)));
            check_activation(k, act, x, n);
            for (int i = 0; i < n; i++) /* from 1e-44 to 20, both signs */
                x[i] = (float)((i % 2 ? -20 : 20) * pow(10, -45.0 * i / n));
            check_activation(k, act, x, n);
        }
}
END_TEST

START_TEST(activations_of_any_length_touch_nothing_else)
{
    test_rng rng = { 1 };
    float x[512];
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++)
            for (int32_t act = 0; act <= MMI_ACT_RELU; act++) {
                rng_fill(&rng, x, 512, 6);
                check_activation(k, act, x, awkward[at]);
            }
}
END_TEST

START_TEST(activations_at_the_ends_of_the_line)
{
    float x[] = { 1e4f, 1e30f, 3.4e38f, -1e4f, -1e30f, -3.4e38f, 0.0f, -0.0f, INFINITY };
    int n = sizeof x / sizeof x[0];
    EACH_TABLE (k)
        for (int32_t act = 0; act <= MMI_ACT_RELU; act++) {
            float out[16], one[16], slope[16], value[16];
            for (int i = 0; i < n; i++)
                one[i] = 1;
            k->activate(out, x, one, act, n);
            k->activate_backward(slope, value, out, one, x, one, act, n);
            for (int i = 0; i < n; i++) {
                ck_near(value[i], x[i] > 0 ? x[i] : 0, 0, k, "value far out", i);
                if (isfinite(x[i]) && x[i] != 0)
                    ck_near(slope[i], x[i] > 0, 0, k, "slope far out", i);
            }
            ck_near(slope[6], act == MMI_ACT_RELU ? 0 : 0.5, 1e-7, k, "slope at 0", act);
        }
}
END_TEST

START_TEST(a_nan_reaches_its_own_number_and_no_other)
{
    enum { N = 37, GATE = 0, UP, D, INPUTS };
    EACH_TABLE (k)
        for (int32_t act = 0; act <= MMI_ACT_RELU; act++)
            for (int bad = 0; bad < N * INPUTS; bad++) {
                const int in = bad / N, at = bad % N;
                float from[INPUTS][N], out[N], plain[N], d_gate[N], d_up[N], again[N];
                for (int i = 0; i < N * INPUTS; i++)
                    from[i / N][i % N] = i == bad ? NAN : 1 + (float)(i % 5) / 4;
                k->activate(out, from[GATE], from[UP], act, N);
                k->activate(plain, NULL, from[UP], act, N);
                k->activate_backward(d_gate, d_up, again, from[D], from[GATE], from[UP], act, N);
                for (int i = 0; i < N; i++) {
                    const bool here = i == at;
                    /* relu's slope is 0 or 1, at NaN as well */
                    const bool to_gate = here && (in != GATE || act != MMI_ACT_RELU);
                    expect(isnan(out[i]) == (here && in != D) && isnan(again[i]) == (here && in != D) &&
                               isnan(plain[i]) == (here && in == UP) && isnan(d_up[i]) == (here && in != UP) &&
                               isnan(d_gate[i]) == to_gate,
                           "%s: activation %d, NaN in number %d of input %d: [%d] is %g, %g, %g, %g, %g", k->name, act,
                           at, in, i, (double)out[i], (double)again[i], (double)plain[i], (double)d_up[i],
                           (double)d_gate[i]);
                }
            }
}
END_TEST

START_TEST(activate_may_write_over_either_input)
{
    test_rng rng = { 2 };
    float gate[77], up[77], want[77], got[77];
    rng_fill(&rng, gate, 77, 4);
    rng_fill(&rng, up, 77, 4);
    EACH_TABLE (k) {
        k->activate(want, gate, up, MMI_ACT_SILU, 77);
        memcpy(got, gate, sizeof got);
        k->activate(got, got, up, MMI_ACT_SILU, 77);
        ck_assert_mem_eq(got, want, sizeof got);
        memcpy(got, up, sizeof got);
        k->activate(got, gate, got, MMI_ACT_SILU, 77);
        ck_assert_mem_eq(got, want, sizeof got);
    }
}
END_TEST

/* The distance between floats at `x`. */
static double unit_at(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

START_TEST(exp_is_off_by_at_most_one_unit_in_the_last_place)
{
    static float x[100000];
    int n = sizeof x / sizeof x[0];
    EACH_TABLE (k) {
        double worst = 0;
        for (int part = 0; part < 6; part++) {
            test_rng rng = { (unsigned)part };
            for (int i = 0; i < n; i++)
                x[i] = part < 4 ? (float)(-104.5 + 194.0 * (i + n * part + rng_uniform(&rng)) / (4.0 * n))
                                : (float)((part == 4 ? -1 : 1) * pow(10, -10 * rng_uniform(&rng)));
            static float y[100000];
            memcpy(y, x, sizeof y);
            k->softmax_scaled(y, 0, 1, n);
            for (int i = 0; i < n; i++) {
                double want = exp((double)x[i]), unit = unit_at(want);
                if (want >= 3.4028235677973366e38) { /* would round to infinity */
                    expect(isinf(y[i]), "%s: exp(%.9g) is %g", k->name, x[i], y[i]);
                    continue;
                }
                double off = fabs(y[i] - want) / unit;
                worst = off > worst ? off : worst;
                expect(off <= (want < 1.17549435e-38 ? 1.5 : 1), "%s: exp(%.9g) is %.9g, off by %.2f units", k->name,
                       x[i], y[i], off);
            }
        }
        printf("# %s: exp is off by at most %.2f units\n", k->name, worst);
    }
}
END_TEST

START_TEST(exp_of_the_extremes)
{
    float x[] = { -INFINITY, INFINITY, -1e30f, 1e30f, -104.1f, 88.73f, 88.72283f, 0.0f, -0.0f, 1e-45f, NAN };
    double want[] = { 0, INFINITY, 0, INFINITY, 0, INFINITY, exp(88.72283172607422), 1, 1, 1, NAN };
    EACH_TABLE (k) {
        float y[11];
        memcpy(y, x, sizeof y);
        k->softmax_scaled(y, 0, 1, 11);
        for (int i = 0; i < 11; i++)
            ck_near(y[i], want[i], isfinite(want[i]) ? 1.2e-7 * want[i] : 0, k, "exp", i);
    }
}
END_TEST

START_TEST(softmax_agrees_with_double_precision)
{
    test_rng rng = { 3 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count + 2; at++)
            for (int scale = 1; scale < 1000; scale *= 6) {
                int64_t n = at < awkward_count ? awkward[at] : 6000 + 400 * (at - awkward_count);
                float *x = edge_random(0, n, &rng, (float)scale);
                double largest = -INFINITY, sum = 0;
                for (int64_t i = 0; i < n; i++)
                    largest = x[i] > largest ? x[i] : largest;
                for (int64_t i = 0; i < n; i++)
                    sum += exp(x[i] - largest);
                const float lse = (float)(largest + log(sum));
                float *y = edge_floats(1, n);
                memcpy(y, x, (size_t)n * sizeof *y);
                k->softmax_scaled(y, lse, 0.25f, n);
                for (int64_t i = 0; i < n; i++) { /* x - lse rounds, and exp magnifies that */
                    double p = 0.25 * exp((double)x[i] - lse);
                    ck_near(y[i], p, p * (4 + fabs((double)x[i] - lse)) * 2 * ROUNDING + 1e-44, k, "softmax", i);
                }
                edge_check();
            }
}
END_TEST

START_TEST(softmax_weights_agree_with_double_precision_at_any_temperature)
{
    static const float factors[] = { 1, 0.3f, 7, 1e-30f, FLT_MAX };
    test_rng rng = { 5 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count + 1; at++)
            for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
                int64_t n = at < awkward_count ? awkward[at] : 6401;
                float *x = edge_random(0, n, &rng, 10), *p = edge_floats(1, n), largest = -INFINITY;
                double sum = 0;
                for (int64_t i = 0; i < n; i++) {
                    x[i] = i % 7 == 3 ? -INFINITY : x[i];
                    largest = x[i] > largest ? x[i] : largest;
                }
                const float a = factors[f];
                const double got = k->softmax_weights(p, x, largest, a, n);
                for (int64_t i = 0; i < n; i++) {
                    double power = (double)a * ((double)x[i] - largest), want = exp(power);
                    ck_near(p[i], want, want > 0 ? want * (4 + fabs(power)) * 2 * ROUNDING + 1e-44 : 1e-44, k,
                            "exp(a (x - most))", i);
                    sum += want;
                }
                ck_near(got, sum, sum * 132 * ROUNDING + (double)n * 0x1p-149, k, "sum", n);
                expect(k->softmax_weights(NULL, x, largest, a, n) == got, "%s: another sum alone", k->name);
                expect(k->softmax_weights(x, x, largest, a, n) == got && memcmp(x, p, (size_t)n * sizeof *x) == 0,
                       "%s: other weights in place", k->name);
                edge_check();
            }
}
END_TEST

START_TEST(softmax_weights_of_nothing_or_of_numbers_that_are_none_are_none)
{
    static const float bad[] = { NAN, INFINITY };
    EACH_TABLE (k)
        for (int64_t n = 1; n < 40; n++) {
            float x[40], p[40];
            for (int64_t i = 0; i < n; i++)
                x[i] = -INFINITY;
            expect(isnan(k->softmax_weights(p, x, k->largest(x, n), 1, n)), "%s: all -inf", k->name);
            for (size_t b = 0; b < 2; b++)
                for (int64_t at = 0; at < n; at++) {
                    for (int64_t i = 0; i < n; i++)
                        x[i] = i == at ? bad[b] : -2;
                    expect(isnan(k->softmax_weights(p, x, k->largest(x, n), 1, n)), "%s: %g at %d of %d", k->name,
                           (double)bad[b], (int)at, (int)n);
                }
        }
}
END_TEST

START_TEST(softmax_tile_continues_a_running_softmax)
{
    test_rng rng = { 4 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++)
            for (int first = 0; first < 4; first++) {
                static const float befores[] = { -INFINITY, 100.0f, 3.5f, 25.0f };
                int64_t n = awkward[at];
                float *s = edge_random(0, n, &rng, 30), kept[512];
                float before = befores[first], m = before;
                memcpy(kept, s, (size_t)n * sizeof *s);
                double largest = -INFINITY, sum = 0;
                for (int64_t i = 0; i < n; i++)
                    largest = kept[i] > largest ? kept[i] : largest;
                double base = largest > before + MMI_SOFTMAX_SLACK ? largest : before;
                float got = k->softmax_tile(s, &m, n);
                ck_near(m, base, 0, k, "maximum", n);
                for (int64_t i = 0; i < n; i++) {
                    double p = exp((double)kept[i] - base);
                    ck_near(s[i], p, p * (4 + fabs(kept[i] - base)) * 2 * ROUNDING + 1e-44, k, "exp(s - m)", i);
                    sum += p;
                }
                /* where its terms are subnormal, each is a multiple of the least float */
                ck_near(got, sum, sum * (double)(n + 100) * ROUNDING + (double)n * 0x1p-149, k, "sum", n);
                edge_check();
            }
}
END_TEST

START_TEST(softmax_tile_with_masked_and_broken_scores)
{
    EACH_TABLE (k)
        for (int64_t n = 1; n < 40; n++) {
            float s[40], m = -INFINITY;
            for (int64_t i = 0; i < n; i++)
                s[i] = -INFINITY;
            expect(k->softmax_tile(s, &m, n) == 0 && m == -INFINITY, "%s: all masked, %d", k->name, (int)n);
            for (int64_t i = 0; i < n; i++) {
                expect(s[i] == 0, "%s: a masked score became %g", k->name, s[i]);
                s[i] = -INFINITY;
            }
            s[n - 1] = 2;
            expect(k->softmax_tile(s, &m, n) == 1 && m == 2, "%s: all but one masked, %d", k->name, (int)n);
            s[0] = 2 + MMI_SOFTMAX_SLACK; /* and the others are 0 or 1 now */
            expect(k->softmax_tile(s, &m, n) > 2900 && m == 2, "%s: one within the slack, %d", k->name, (int)n);
            s[0] = NAN;
            expect(isnan(k->softmax_tile(s, &m, n)) && isnan(s[0]), "%s: a NaN among the scores", k->name);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/activate");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, activations_agree_with_double_precision_all_along_the_line);
    tcase_add_test(tests, activations_of_any_length_touch_nothing_else);
    tcase_add_test(tests, activations_at_the_ends_of_the_line);
    tcase_add_test(tests, a_nan_reaches_its_own_number_and_no_other);
    tcase_add_test(tests, activate_may_write_over_either_input);
    tcase_add_test(tests, exp_is_off_by_at_most_one_unit_in_the_last_place);
    tcase_add_test(tests, exp_of_the_extremes);
    tcase_add_test(tests, softmax_agrees_with_double_precision);
    tcase_add_test(tests, softmax_weights_agree_with_double_precision_at_any_temperature);
    tcase_add_test(tests, softmax_weights_of_nothing_or_of_numbers_that_are_none_are_none);
    tcase_add_test(tests, softmax_tile_continues_a_running_softmax);
    tcase_add_test(tests, softmax_tile_with_masked_and_broken_scores);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
