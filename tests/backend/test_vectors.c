/* Vector kernels, conversions and the optimizer step, every table against double precision. */
#include <string.h>

#include "tables.h"

START_TEST(add_axpy_and_scale_do_what_they_say)
{
    test_rng rng = { 1 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++) {
            int64_t n = awkward[at];
            float *x = edge_random(0, n, &rng, 2), *y0 = edge_random(1, n, &rng, 2), *y = edge_floats(2, n);
            for (int what = 0; what < 3; what++) {
                memcpy(y, y0, (size_t)n * sizeof *y);
                if (what == 0)
                    k->add(y, x, n);
                else if (what == 1)
                    k->axpy(y, -1.7f, x, n);
                else
                    k->scale(y, -1.7f, n);
                for (int64_t i = 0; i < n; i++) {
                    double want = what == 0 ? y0[i] + (double)x[i] : what == 1 ? y0[i] - 1.7 * x[i] : -1.7 * y0[i];
                    ck_near(y[i], want, 8 * ROUNDING, k, "add, axpy or scale", i); /* |values| < 6: an ulp of 4 */
                }
            }
            edge_check();
        }
}
END_TEST

START_TEST(sums_agree_with_double_precision)
{
    test_rng rng = { 2 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count + 3; at++) {
            int64_t n = at < awkward_count ? awkward[at] : 1000 + 777 * at;
            float *a = edge_random(0, n, &rng, 3), *b = edge_random(1, n, &rng, 3);
            double dot = 0, absolute = 0, squares = 0;
            for (int64_t i = 0; i < n; i++) {
                dot += (double)a[i] * b[i];
                absolute += fabs((double)a[i] * b[i]);
                squares += (double)a[i] * a[i];
            }
            /* each of n additions may round once, relative to a partial sum of at most Σ|ab| */
            ck_near(k->dot(a, b, n), dot, (double)(n + 1) * ROUNDING * absolute, k, "dot", n);
            ck_near(k->sum_squares(a, n), squares, 1e-13 * squares, k, "sum_squares", n);
            if (n > 0) {
                a[n - 1] = NAN;
                ck_assert(isnan(k->dot(a, b, n)) && isnan(k->sum_squares(a, n)));
                a[n - 1] = INFINITY;
                ck_assert(isinf(k->dot(a, b, n)) && isinf(k->sum_squares(a, n)));
            }
            edge_check();
        }
}
END_TEST

START_TEST(squares_beyond_a_float_are_summed)
{
    EACH_TABLE (k) {
        float x[37];
        for (int i = 0; i < 37; i++)
            x[i] = i % 2 ? 1e30f : 1e-30f;
        ck_near(k->sum_squares(x, 37), 18 * (double)1e30f * 1e30f, 1e46, k, "sum_squares", 37);
    }
}
END_TEST

START_TEST(transpose_turns_rows_into_columns)
{
    test_rng rng = { 3 };
    EACH_TABLE (k)
        for (int64_t rows = 0; rows < 36; rows++)
            for (int64_t cols = 0; cols < 36; cols++) {
                int64_t ldx = cols + rng_between(&rng, 0, 3), ldy = rows + rng_between(&rng, 0, 3);
                float *x = edge_random(0, rows > 0 ? (rows - 1) * ldx + cols : 0, &rng, 1);
                float *y = edge_floats(1, cols > 0 ? (cols - 1) * ldy + rows : 0);
                if (cols > 0)
                    memset(y, 0, (size_t)((cols - 1) * ldy + rows) * sizeof *y);
                k->transpose(y, ldy, x, ldx, rows, cols);
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t j = 0; j < cols; j++)
                        expect(y[j * ldy + i] == x[i * ldx + j], "%s: (%d, %d)", k->name, (int)i, (int)j);
                for (int64_t j = 0; j + 1 < cols; j++)
                    for (int64_t i = rows; i < ldy; i++)
                        expect(y[j * ldy + i] == 0, "%s wrote between rows", k->name);
                edge_check();
            }
}
END_TEST

/* What a half means, by the definition of the format. */
static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

START_TEST(every_bf16_and_f16_widens_exactly_and_narrows_back)
{
    EACH_TABLE (k) {
        uint16_t *words = edge_place(0, 2 * 65536), *back = edge_place(1, 2 * 65536);
        float *x = edge_floats(2, 65536);
        for (int i = 0; i < 65536; i++)
            words[i] = (uint16_t)i;
        for (int32_t dtype = MM_BF16; dtype <= MM_F16; dtype++) {
            k->widen(x, words, dtype, 65536);
            k->narrow(back, x, dtype, 65536);
            for (int i = 0; i < 65536; i++) {
                double want = dtype == MM_BF16 ? (double)float_of((uint32_t)i << 16) : half_value((uint16_t)i);
                ck_near(x[i], want, 0, k, mm_dtype_name(dtype), i);
                if (isnan(want))
                    continue;
                expect(back[i] == words[i], "%s %s: %04x came back as %04x", k->name, mm_dtype_name(dtype), i, back[i]);
            }
        }
        edge_check();
    }
}
END_TEST

/* The nearest of all 65536, the even one of two that are as near. */
static void check_nearest(const mmi_kernels *k, int32_t dtype, float x, uint16_t word)
{
    double value = dtype == MM_BF16 ? (double)float_of((uint32_t)word << 16) : half_value(word);
    double largest = dtype == MM_BF16 ? (double)float_of(0x7F7F0000) : 65504;
    double step = dtype == MM_BF16 ? largest - (double)float_of(0x7F7E0000) : 32;
    if (isnan(x)) {
        expect(isnan(value), "%s narrows NaN to %04x", k->name, word);
        return;
    }
    if (fabs((double)x) >= largest + step / 2) {
        expect(isinf(value) && (value > 0) == (x > 0), "%s narrows %g to %04x", k->name, x, word);
        return;
    }
    expect(isfinite(value) && !signbit(value) == !signbit(x), "%s narrows %g to %04x", k->name, x, word);
    for (int side = -1; side <= 1; side += 2) {
        if ((word & 0x7FFF) == 0 && side < 0)
            continue;
        uint16_t other = (uint16_t)(word + side);
        double next = dtype == MM_BF16 ? (double)float_of((uint32_t)other << 16) : half_value(other);
        double here = fabs(x - value), there = fabs(x - next);
        expect(here < there || (here == there && word % 2 == 0), "%s narrows %.9g to %04x, not %04x", k->name, x, word,
                      other);
    }
}

START_TEST(narrowing_takes_the_nearest_and_of_two_the_even_one)
{
    test_rng rng = { 4 };
    EACH_TABLE (k)
        for (int32_t dtype = MM_BF16; dtype <= MM_F16; dtype++) {
            int64_t n = 20011;
            float *x = edge_floats(0, n);
            for (int64_t i = 0; i < n; i++)
                x[i] = float_of(rng_next(&rng));
            for (int64_t i = 0; i < n / 2; i++) { /* half way between two halves or bf16, and beside it */
                double tie = dtype == MM_F16 ? (half_value((uint16_t)(rng_next(&rng) % 31743)) + ldexp(1, -25)) : 0;
                uint32_t bits = dtype == MM_F16 ? bits_of((float)tie) : (rng_next(&rng) & 0x7FFF0000) | 0x8000;
                x[i] = float_of(bits + (uint32_t)rng_between(&rng, -1, 1));
            }
            x[0] = 65519.996f, x[1] = 65520.0f, x[2] = INFINITY, x[3] = -INFINITY, x[4] = NAN, x[5] = -0.0f;
            x[6] = float_of(0x7F800001), x[7] = float_of(0x7FFFFFFF), x[8] = float_of(0x7F7FFFFF), x[9] = 1e-45f;
            uint16_t *words = edge_place(1, 2 * n);
            k->narrow(words, x, dtype, n);
            for (int64_t i = 0; i < n; i++)
                check_nearest(k, dtype, x[i], words[i]);
        }
}
END_TEST

START_TEST(conversions_of_any_length_touch_nothing_else)
{
    test_rng rng = { 5 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++)
            for (int32_t dtype = MM_F32; dtype <= MM_F16; dtype++) {
                int64_t n = awkward[at], size = (int64_t)mm_dtype_size(dtype);
                float *x = edge_random(0, n, &rng, 100), *y = edge_floats(2, n);
                void *words = edge_place(1, n * size);
                k->narrow(words, x, dtype, n);
                k->widen(y, words, dtype, n);
                for (int64_t i = 0; i < n; i++) /* bf16 has 8 bits, f16 11 */
                    ck_near(y[i], x[i], dtype == MM_F32 ? 0 : fabs(x[i]) / (dtype == MM_BF16 ? 256 : 2048), k,
                            "there and back", i);
                edge_check();
            }
}
END_TEST

START_TEST(adamw_agrees_with_double_precision)
{
    test_rng rng = { 6 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++) {
            int64_t n = awkward[at];
            float *w = edge_random(0, n, &rng, 1), *m = edge_random(1, n, &rng, 0.01f),
                  *v = edge_random(2, n, &rng, 0.01f);
            float *g = edge_random(3, n, &rng, 1), before[3][512];
            for (int64_t i = 0; i < n; i++)
                v[i] = fabsf(v[i]);
            memcpy(before[0], w, (size_t)n * sizeof *w);
            memcpy(before[1], m, (size_t)n * sizeof *m);
            memcpy(before[2], v, (size_t)n * sizeof *v);
            double lr = 5e-4, c1 = 1 - pow(0.9, 3), c2 = 1 - pow(0.999, 3);
            k->adamw(w, m, v, g, n, 0.25, lr, 0.9, 0.999, 1e-8, 0.1, c1, c2);
            for (int64_t i = 0; i < n; i++) {
                double d = 0.25 * g[i], first = 0.9 * before[1][i] + 0.1 * d,
                       second = 0.999 * before[2][i] + 0.001 * d * d;
                double change = lr * (first / c1) / (sqrt(second / c2) + 1e-8);
                ck_near(m[i], first, 3e-7 * (fabs(0.9 * before[1][i]) + fabs(0.1 * d)), k, "m", i);
                ck_near(v[i], second, 4e-7 * second, k, "v", i);
                ck_near(w[i], before[0][i] * (1 - lr * 0.1) - change, ROUNDING + 1e-6 * fabs(change), k, "w", i);
            }
            edge_check();
        }
}
END_TEST

/* What is wrong with a gradient shows in its parameter and its moments. */
START_TEST(a_nan_or_an_infinity_reaches_its_own_parameter_and_no_other)
{
    enum { N = 37 };
    EACH_TABLE (k)
        for (int bad = 0; bad < 2 * N; bad++) {
            float w[N], m[N], v[N], g[N];
            for (int i = 0; i < N; i++) {
                w[i] = m[i] = v[i] = 0.5f;
                g[i] = i != bad / 2 ? 1 : bad % 2 ? INFINITY : NAN;
            }
            k->adamw(w, m, v, g, N, 1, 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001);
            for (int i = 0; i < N; i++)
                expect(i != bad / 2 ? isfinite(w[i]) && isfinite(m[i]) && isfinite(v[i]) :
                                      isnan(w[i]) && !isfinite(m[i]) && !isfinite(v[i]),
                       "%s: parameter %d of a bad %d is %g, %g, %g", k->name, i, bad / 2, (double)w[i], (double)m[i],
                       (double)v[i]);
        }
}
END_TEST

START_TEST(adamw_with_a_zero_gradient_and_rate_leaves_the_weights)
{
    EACH_TABLE (k) {
        float w[19], m[19] = { 0 }, v[19] = { 0 }, g[19] = { 0 };
        for (int i = 0; i < 19; i++)
            w[i] = 0.1f * (float)i;
        k->adamw(w, m, v, g, 19, 1, 0, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001);
        k->adamw(w, m, v, g, 19, 1, 1e-3, 0.9, 0.999, 1e-8, 0, 0.1, 0.001);
        for (int i = 0; i < 19; i++)
            expect(w[i] == 0.1f * (float)i && m[i] == 0 && v[i] == 0, "%s changed parameter %d", k->name, i);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/vectors");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, add_axpy_and_scale_do_what_they_say);
    tcase_add_test(tests, sums_agree_with_double_precision);
    tcase_add_test(tests, squares_beyond_a_float_are_summed);
    tcase_add_test(tests, transpose_turns_rows_into_columns);
    tcase_add_test(tests, every_bf16_and_f16_widens_exactly_and_narrows_back);
    tcase_add_test(tests, narrowing_takes_the_nearest_and_of_two_the_even_one);
    tcase_add_test(tests, conversions_of_any_length_touch_nothing_else);
    tcase_add_test(tests, adamw_agrees_with_double_precision);
    tcase_add_test(tests, a_nan_or_an_infinity_reaches_its_own_parameter_and_no_other);
    tcase_add_test(tests, adamw_with_a_zero_gradient_and_rate_leaves_the_weights);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
