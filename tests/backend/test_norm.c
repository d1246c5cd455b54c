/* Norms and the rotary embedding, every table against double precision. */
#include <string.h>

#include "tables.h"

#define MOST_COLS 520
#define MOST_ROWS 5

/* Rows of random length, ld at least C, the last row ending at the edge. */
typedef struct rows {
    float *p;
    int64_t ld;
} rows;

static rows random_rows(int slot, int64_t N, int64_t C, test_rng *rng, float scale)
{
    rows r = { NULL, C + rng_between(rng, 0, 3) };
    r.p = edge_random(slot, N > 0 ? (N - 1) * r.ld + C : 0, rng, scale);
    return r;
}

/* Shapes with every awkward length and 0 to 4 rows. */
static int next_shape(int *at, int64_t *N, int64_t *C)
{
    if (*at >= awkward_count)
        return 0;
    *C = awkward[*at];
    *N = *at % MOST_ROWS;
    ++*at;
    return 1;
}

/* A sum over C terms rounds up to C times, relative to what it sums up in absolute value; a few roundings follow. */
static double sum_error(int64_t C)
{
    return (double)(C + 8) * ROUNDING;
}

START_TEST(rmsnorm_forward_agrees_with_double_precision)
{
    test_rng rng = { 1 };
    int64_t N, C;
    EACH_TABLE (k)
        for (int at = 0; next_shape(&at, &N, &C);)
            for (int in_place = 0; in_place < 2; in_place++) {
                rows x = random_rows(0, N, C, &rng, 3), y = in_place ? x : random_rows(1, N, C, &rng, 1);
                float *w = edge_random(2, C, &rng, 2), *rstd = edge_floats(3, N), kept[MOST_ROWS][MOST_COLS];
                for (int64_t i = 0; i < N; i++)
                    memcpy(kept[i], x.p + i * x.ld, (size_t)C * sizeof(float));
                k->rmsnorm_forward(y.p, y.ld, at % 2 ? rstd : NULL, x.p, x.ld, w, N, C, 1e-5f);
                for (int64_t i = 0; i < N && C > 0; i++) {
                    double squares = 0;
                    for (int64_t c = 0; c < C; c++)
                        squares += (double)kept[i][c] * kept[i][c];
                    double r = 1 / sqrt(squares / (double)C + 1e-5f);
                    if (at % 2)
                        ck_near(rstd[i], r, r * sum_error(C), k, "rstd", i);
                    for (int64_t c = 0; c < C; c++)
                        ck_near(y.p[i * y.ld + c], w[c] * (kept[i][c] * r), fabs(w[c] * kept[i][c] * r) * sum_error(C),
                                k, "rmsnorm", c);
                }
                edge_check();
            }
}
END_TEST

START_TEST(rmsnorm_backward_agrees_with_double_precision)
{
    test_rng rng = { 2 };
    int64_t N, C;
    EACH_TABLE (k)
        for (int at = 0; next_shape(&at, &N, &C);)
            for (int which = 0; which < 2; which++) {
                rows x = random_rows(0, N, C, &rng, 2), dy = random_rows(1, N, C, &rng, 2);
                rows dx = random_rows(2, N, C, &rng, 1);
                float *w = edge_random(3, C, &rng, 2), *dw = edge_random(4, C, &rng, 1),
                      *rstd = edge_random(5, N, &rng, 2);
                float dx_before[MOST_ROWS][MOST_COLS];
                double dw_want[MOST_COLS], dw_size[MOST_COLS];
                for (int64_t i = 0; i < N; i++)
                    memcpy(dx_before[i], dx.p + i * dx.ld, (size_t)C * sizeof(float));
                for (int64_t c = 0; c < C; c++) {
                    dw_want[c] = dw[c];
                    dw_size[c] = fabsf(dw[c]);
                    for (int64_t i = 0; i < N; i++) {
                        dw_want[c] += (double)dy.p[i * dy.ld + c] * x.p[i * x.ld + c] * rstd[i];
                        dw_size[c] += fabs((double)dy.p[i * dy.ld + c] * x.p[i * x.ld + c] * rstd[i]);
                    }
                }
                k->rmsnorm_backward(dx.p, dx.ld, which ? dw : NULL, dy.p, dy.ld, x.p, x.ld, w, rstd, N, C);
                for (int64_t i = 0; i < N; i++) {
                    const float *xs = x.p + i * x.ld, *ds = dy.p + i * dy.ld;
                    double r = rstd[i], sum = 0, size = 0;
                    for (int64_t c = 0; c < C; c++) {
                        sum += (double)ds[c] * w[c] * xs[c];
                        size += fabs((double)ds[c] * w[c] * xs[c]);
                    }
                    for (int64_t c = 0; c < C; c++) {
                        double g = ds[c] * (double)w[c], back = xs[c] * sum * r * r / (double)C;
                        double scale = fabs(dx_before[i][c]) + fabs(r * g) + fabs(r * xs[c] * size * r * r / (double)C);
                        ck_near(dx.p[i * dx.ld + c], dx_before[i][c] + r * (g - back), scale * sum_error(C), k, "dx",
                                c);
                    }
                }
                for (int64_t c = 0; c < C && which; c++)
                    ck_near(dw[c], dw_want[c], 10 * ROUNDING * dw_size[c], k, "dw", c);
                edge_check();
            }
}
END_TEST

START_TEST(layernorm_forward_agrees_with_double_precision)
{
    test_rng rng = { 3 };
    int64_t N, C;
    EACH_TABLE (k)
        for (int at = 0; next_shape(&at, &N, &C);)
            for (int in_place = 0; in_place < 2; in_place++) {
                rows x = random_rows(0, N, C, &rng, 2), y = in_place ? x : random_rows(1, N, C, &rng, 1);
                float *w = edge_random(2, C, &rng, 2), *b = edge_random(3, C, &rng, 2);
                float *mean = edge_floats(4, N), *rstd = edge_floats(5, N), kept[MOST_ROWS][MOST_COLS];
                for (int64_t i = 0; i < N; i++)
                    for (int64_t c = 0; c < C; c++)
                        kept[i][c] = x.p[i * x.ld + c] += 5; /* a mean far from 0 */
                k->layernorm_forward(y.p, y.ld, at % 2 ? mean : NULL, at % 3 ? rstd : NULL, x.p, x.ld, w, b, N, C,
                                     1e-5f);
                for (int64_t i = 0; i < N && C > 0; i++) {
                    double sum = 0, squares = 0;
                    for (int64_t c = 0; c < C; c++)
                        sum += kept[i][c];
                    double middle = sum / (double)C, error = 7 * sum_error(C); /* |x| ≤ 7 */
                    for (int64_t c = 0; c < C; c++)
                        squares += (kept[i][c] - middle) * (kept[i][c] - middle);
                    double variance = squares / (double)C + 1e-5f, r = 1 / sqrt(variance);
                    double r_error = r * (sum_error(C) + error * error / variance);
                    if (at % 2)
                        ck_near(mean[i], middle, error, k, "mean", i);
                    if (at % 3)
                        ck_near(rstd[i], r, r_error, k, "rstd", i);
                    for (int64_t c = 0; c < C; c++)
                        ck_near(y.p[i * y.ld + c], w[c] * (kept[i][c] - middle) * r + b[c],
                                fabs(w[c]) * (error * r + fabs(kept[i][c] - middle) * r_error) + 1e-6, k, "layernorm",
                                c);
                }
                edge_check();
            }
}
END_TEST

START_TEST(layernorm_backward_agrees_with_double_precision)
{
    test_rng rng = { 4 };
    int64_t N, C;
    EACH_TABLE (k)
        for (int at = 0; next_shape(&at, &N, &C);)
            for (int which = 0; which < 4; which++) {
                rows x = random_rows(0, N, C, &rng, 2), dy = random_rows(1, N, C, &rng, 2);
                rows dx = random_rows(2, N, C, &rng, 1);
                float *w = edge_random(3, C, &rng, 2), *dw = edge_random(4, C, &rng, 1),
                      *db = edge_random(5, C, &rng, 1);
                float *mean = edge_random(6, N, &rng, 1), *rstd = edge_random(7, N, &rng, 1);
                float dx_before[MOST_ROWS][MOST_COLS], dw_before[MOST_COLS], db_before[MOST_COLS];
                for (int64_t i = 0; i < N; i++)
                    memcpy(dx_before[i], dx.p + i * dx.ld, (size_t)C * sizeof(float));
                memcpy(dw_before, dw, (size_t)C * sizeof(float));
                memcpy(db_before, db, (size_t)C * sizeof(float));
                k->layernorm_backward(dx.p, dx.ld, which & 1 ? dw : NULL, which & 2 ? db : NULL, dy.p, dy.ld, x.p, x.ld,
                                      w, mean, rstd, N, C);
                for (int64_t i = 0; i < N; i++) {
                    const float *xs = x.p + i * x.ld, *ds = dy.p + i * dy.ld;
                    double r = rstd[i], m = mean[i], sum = 0, product = 0;
                    for (int64_t c = 0; c < C; c++) {
                        sum += (double)ds[c] * w[c];
                        product += (double)ds[c] * w[c] * (xs[c] - m);
                    }
                    for (int64_t c = 0; c < C; c++) {
                        double d = (double)ds[c] * w[c] - sum / (double)C - (xs[c] - m) * product * r * r / (double)C;
                        /* |dy w| ≤ 4, |x - mean| ≤ 3, |rstd| ≤ 1: no sum per C exceeds 4 or 12, so nothing here exceeds
                         * 50 */
                        ck_near(dx.p[i * dx.ld + c], dx_before[i][c] + r * d, 50 * sum_error(C), k, "dx", c);
                    }
                }
                for (int64_t c = 0; c < C; c++) {
                    double dw_want = dw_before[c], db_want = db_before[c];
                    for (int64_t i = 0; i < N; i++) {
                        dw_want += (double)dy.p[i * dy.ld + c] * (x.p[i * x.ld + c] - mean[i]) * rstd[i];
                        db_want += dy.p[i * dy.ld + c];
                    }
                    ck_near(dw[c], which & 1 ? dw_want : dw_before[c], 25 * 8 * ROUNDING, k, "dw", c); /* Σ|…| ≤ 25 */
                    ck_near(db[c], which & 2 ? db_want : db_before[c], 9 * 8 * ROUNDING, k, "db", c);  /* Σ|…| ≤ 9 */
                }
                edge_check();
            }
}
END_TEST

START_TEST(a_nan_reaches_its_own_row_and_no_other)
{
    EACH_TABLE (k) {
        float x[3 * 21], y[3 * 21], w[21], b[21];
        for (int i = 0; i < 63; i++)
            x[i] = (float)(i % 7) - 2;
        for (int c = 0; c < 21; c++)
            w[c] = 1, b[c] = 0;
        x[21 + 20] = NAN;
        for (int layer = 0; layer < 2; layer++) {
            if (layer)
                k->layernorm_forward(y, 21, NULL, NULL, x, 21, w, b, 3, 21, 1e-5f);
            else
                k->rmsnorm_forward(y, 21, NULL, x, 21, w, 3, 21, 1e-5f);
            for (int i = 0; i < 63; i++)
                expect(!isnan(y[i]) == (i / 21 != 1), "%s: y[%d] is %g", k->name, i, y[i]);
        }
    }
}
END_TEST

START_TEST(a_nan_goes_back_to_its_own_row_and_to_the_weight_of_its_column)
{
    enum { N = 3, C = 21 };
    EACH_TABLE (k)
        for (int bad = 0; bad < 4 * C; bad++) {
            const int column = bad / 4, layer = bad % 2, in_x = bad / 2 % 2;
            float x[N * C], dy[N * C], dx[N * C] = { 0 }, w[C], dw[C] = { 0 }, db[C] = { 0 };
            const float mean[N] = { 1, 1, 1 }, rstd[N] = { 1, 1, 1 };
            for (int i = 0; i < N * C; i++)
                x[i] = dy[i] = (float)(i % 7) - 2;
            for (int c = 0; c < C; c++)
                w[c] = 1;
            (in_x ? x : dy)[C + column] = NAN;
            if (layer)
                k->layernorm_backward(dx, C, dw, db, dy, C, x, C, w, mean, rstd, N, C);
            else
                k->rmsnorm_backward(dx, C, dw, dy, C, x, C, w, rstd, N, C);
            for (int i = 0; i < N * C; i++)
                expect(isnan(dx[i]) == (i / C == 1), "%s: dx[%d] is %g", k->name, i, (double)dx[i]);
            for (int c = 0; c < C; c++)
                expect(isnan(dw[c]) == (c == column) && isnan(db[c]) == (c == column && layer && !in_x),
                       "%s: weight %d is told %g, %g", k->name, c, (double)dw[c], (double)db[c]);
        }
}
END_TEST

START_TEST(a_row_of_zeros_is_finite)
{
    EACH_TABLE (k) {
        float x[33] = { 0 }, y[33], w[33], rstd;
        for (int c = 0; c < 33; c++)
            w[c] = 1;
        k->rmsnorm_forward(y, 33, &rstd, x, 33, w, 1, 33, 1e-6f);
        for (int c = 0; c < 33; c++)
            expect(y[c] == 0, "%s: y[%d] is %g", k->name, c, y[c]);
        ck_near(rstd, 1000, 1e-2, k, "rstd", 0);
    }
}
END_TEST

START_TEST(rope_turns_the_pairs_and_back)
{
    test_rng rng = { 5 };
    EACH_TABLE (k)
        for (int64_t D = 0; D <= 140; D += 2)
            for (int64_t heads = 0; heads < 4; heads++) {
                int64_t half = D / 2;
                float *x = edge_random(0, heads * D, &rng, 2), *c = edge_random(1, half, &rng, 1),
                      *s = edge_random(2, half, &rng, 1);
                float kept[3 * 140];
                for (int64_t i = 0; i < heads * D; i++)
                    kept[i] = x[i];
                for (int inverse = 0; inverse < 2; inverse++) {
                    for (int64_t i = 0; i < heads * D; i++)
                        x[i] = kept[i];
                    k->rope(x, c, s, heads, D, inverse);
                    double sign = inverse ? -1 : 1;
                    for (int64_t h = 0; h < heads; h++)
                        for (int64_t j = 0; j < half; j++) {
                            double a = kept[h * D + j], b = kept[h * D + j + half];
                            ck_near(x[h * D + j], a * c[j] - b * sign * s[j], 8 * ROUNDING, k, "low", j);
                            ck_near(x[h * D + j + half], b * c[j] + a * sign * s[j], 8 * ROUNDING, k, "high", j);
                        }
                }
                edge_check();
            }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/norm");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, rmsnorm_forward_agrees_with_double_precision);
    tcase_add_test(tests, rmsnorm_backward_agrees_with_double_precision);
    tcase_add_test(tests, layernorm_forward_agrees_with_double_precision);
    tcase_add_test(tests, layernorm_backward_agrees_with_double_precision);
    tcase_add_test(tests, a_nan_reaches_its_own_row_and_no_other);
    tcase_add_test(tests, a_nan_goes_back_to_its_own_row_and_to_the_weight_of_its_column);
    tcase_add_test(tests, a_row_of_zeros_is_finite);
    tcase_add_test(tests, rope_turns_the_pairs_and_back);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
