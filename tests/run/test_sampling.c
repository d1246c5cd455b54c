/* Drawing a token, against the slow obvious way. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/arrays.h"
#include "run/sampling.h"

#define DRAWS                                                                                                          \
    2000 /* uniform numbers, evenly spread: each id comes as often as its probability says, give or take one or two */

typedef struct entry {
    double logit, p;
    int id;
} entry;

static int by_logit(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

static void share_out(entry *e, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += e[i].p = exp(e[i].logit - e[0].logit);
    for (int i = 0; i < n; i++)
        e[i].p /= sum;
}

/* p [V]: what each id's probability should be. */
static void expected(double *p, const float *logits, int V, const mm_sampling *s, const unsigned char *seen)
{
    entry *e = take(V, sizeof *e);
    for (int i = 0; i < V; i++) {
        double x = logits[i];
        if (seen[i])
            x = x > 0 ? x / s->repetition_penalty : x * s->repetition_penalty;
        e[i] = (entry){ x / s->temperature, 0, i };
    }
    qsort(e, (size_t)V, sizeof *e, by_logit);
    int n = s->top_k > 0 && s->top_k < V ? (int)s->top_k : V, kept = 0;
    share_out(e, n);
    for (double sum = 0; kept < n && (kept == 0 || sum < s->top_p); kept++)
        sum += e[kept].p;
    n = kept;
    for (kept = 0; kept < n && (kept == 0 || e[kept].p >= s->min_p * e[0].p); kept++) {}
    share_out(e, kept);
    memset(p, 0, (size_t)V * sizeof *p);
    for (int i = 0; i < kept; i++)
        p[e[i].id] = e[i].p;
}

typedef struct drawing {
    mmi_kernels k;
    int V;
    float *logits, *work;
    mmi_candidate *candidates;
    unsigned char *seen;
    mm_sampling s;
} drawing;

static drawing drawing_of(int V, test_rng *rng)
{
    drawing d = { .V = V, .s = MM_SAMPLING_INIT };
    mmi_kernels_init(&d.k, mmi_cpu_flags());
    d.logits = take_random(rng, V, 4);
    d.work = take_floats(2 * V, NAN);
    d.candidates = take(mmi_candidates(V), sizeof *d.candidates);
    d.seen = take(V, 1);
    d.s.temperature = d.s.top_p = 1;
    return d;
}

static int32_t draw(drawing *d, double uniform, float *logprob)
{
    return mmi_sample(&d->k, d->logits, d->V, &d->s, d->seen, uniform, d->work, d->candidates, logprob);
}

static int32_t draw_any(drawing *d)
{
    float logprob;
    return draw(d, 0.5, &logprob);
}

static void ck_distribution(drawing *d, const char *what)
{
    double *p = take(d->V, sizeof *p);
    int *seen = take(d->V, sizeof *seen);
    float logprob;
    expected(p, d->logits, d->V, &d->s, d->seen);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = draw(d, (i + 0.5) / DRAWS, &logprob);
        ck_each(id >= 0 && id < d->V, "id %d of %d", id, d->V);
        seen[id]++;
    }
    for (int i = 0; i < d->V; i++)
        ck_assert_msg((p[i] > 0 || seen[i] == 0) && fabs(seen[i] - p[i] * DRAWS) <= 2,
                      "%s: id %d of %d is drawn %d times in %d, with probability %g", what, i, d->V, seen[i], DRAWS,
                      p[i]);
}

START_TEST(draws_follow_the_filtered_distribution)
{
    char what[128];
    test_rng rng = { 700 + (unsigned)_i };
    for (int round = 0; round < 8; round++) {
        drawing d = drawing_of(rng_between(&rng, 1, 60), &rng);
        mm_sampling *s = &d.s;
        for (int i = 0; i < d.V; i++)
            d.seen[i] = rng_between(&rng, 0, 2) == 0;
        s->temperature = (float)(0.2 + 2 * rng_uniform(&rng));
        if (_i & 1)
            s->top_k = rng_between(&rng, 1, 70);
        if (_i & 2)
            s->top_p = (float)(0.05 + 0.94 * rng_uniform(&rng));
        if (_i & 4)
            s->min_p = (float)(0.9 * rng_uniform(&rng));
        if (_i & 8)
            s->repetition_penalty = (float)(0.5 + 1.5 * rng_uniform(&rng));
        snprintf(what, sizeof what, "round %d: temperature %g, k %d, p %g, min-p %g, penalty %g", round, s->temperature,
                 (int)s->top_k, s->top_p, s->min_p, s->repetition_penalty);
        ck_distribution(&d, what);
    }
}
END_TEST

/* Where the last token that is kept has to be found among many. */
START_TEST(many_tokens_in_any_order_are_drawn_as_often_as_they_are_likely)
{
    enum { V = 600 };
    static const char *orders[] = {
        "random", "equal", "rising", "falling", "up and down", "few different", "few likely"
    };
    static const struct {
        float top_p, min_p;
        int top_k;
    } filters[] = { { 0.85f, 0, 0 }, { 1, 0, 300 }, { 0.5f, 0.3f, 450 }, { 0.999f, 0.1f, 0 } };
    char what[128];
    test_rng rng = { 719 };
    drawing d = drawing_of(V, &rng);
    for (int i = 0; i < V; i++) {
        double rising = 3.0 * i / V;
        double values[] = { 2 * rng_uniform(&rng),
                            -2,
                            rising,
                            -rising,
                            i % 2 ? rising : -rising,
                            rng_between(&rng, 0, 3),
                            (i % 50 ? -9 : 0) + 2 * rng_uniform(&rng) };
        d.logits[i] = (float)values[_i];
    }
    for (size_t f = 0; f < sizeof filters / sizeof *filters; f++) {
        d.s.top_p = filters[f].top_p;
        d.s.min_p = filters[f].min_p;
        d.s.top_k = filters[f].top_k;
        snprintf(what, sizeof what, "%s: k %d, p %g, min-p %g", orders[_i], filters[f].top_k, filters[f].top_p,
                 filters[f].min_p);
        ck_distribution(&d, what);
    }
}
END_TEST

static int kept_of(const drawing *d)
{
    int kept = 0;
    for (int i = 0; i < d->V; i++)
        kept += d->work[d->V + i] > 0;
    return kept;
}

/* Splitting tokens in an order that some rule has left must not come to a step for each pair of them, which would take
 * minutes. */
START_TEST(many_tokens_in_order_are_split_as_fast_as_any)
{
    enum { V = 64000, ROUNDS = 60 };
    static const char *orders[] = { "equal", "up and down again", "down and up again", "rising", "falling" };
    test_rng rng = { 731 };
    drawing d = drawing_of(V, &rng);
    for (int i = 0; i < V; i++) {
        int from_end = i < V / 2 ? i : V - i;
        int values[] = { 0, from_end, -from_end, i, -i };
        d.logits[i] = (float)values[_i] * 1e-5f;
    }
    for (int round = 0; round < ROUNDS; round++) {
        const int32_t id = draw_any(&d);
        ck_assert(id >= 0 && id < V);
        d.s.top_k = V / ROUNDS * (round + 1) - 1;
        d.s.top_p = round % 2 ? 1 : 0.85f;
        ck_assert_int_ge(draw_any(&d), 0);
        const int kept = kept_of(&d);
        ck_assert_msg(round % 2 ? kept == d.s.top_k : kept >= 0.5 * d.s.top_k && kept <= d.s.top_k,
                      "%s: %d of %d are kept", orders[_i], kept, (int)d.s.top_k);
    }
}
END_TEST

/* Rounded, all of them together may weigh less than that share of what they weigh. */
START_TEST(a_share_just_below_everything_keeps_nearly_everything)
{
    test_rng rng = { 730 };
    for (int round = 0; round < 40; round++) {
        drawing d = drawing_of(rng_between(&rng, 1, 3000), &rng);
        for (int i = 0; i < d.V; i++)
            d.logits[i] *= round % 2 ? 0.01f : 1;
        d.s.top_p = nextafterf(1, 0);
        const int32_t id = draw_any(&d);
        ck_assert(id >= 0 && id < d.V);
        ck_assert_msg(kept_of(&d) >= 0.9 * d.V, "%d of %d", kept_of(&d), d.V);
    }
}
END_TEST

START_TEST(temperature_zero_picks_the_likeliest_and_of_equals_the_lowest_id)
{
    test_rng rng = { 720 };
    for (int round = 0; round < 50; round++) {
        drawing d = drawing_of(rng_between(&rng, 1, 40), &rng);
        d.s.temperature = 0;
        d.s.top_k = rng_between(&rng, 0, 3); /* filters change nothing */
        d.s.top_p = 0.3f;
        int best = 0;
        for (int i = 0; i < d.V; i++) {
            d.logits[i] = (float)rng_between(&rng, -3, 3);
            best = d.logits[i] > d.logits[best] ? i : best;
        }
        ck_assert_int_eq(draw_any(&d), best);
    }
}
END_TEST

START_TEST(the_penalty_makes_seen_tokens_less_likely_before_anything_else)
{
    test_rng rng = { 721 };
    drawing d = drawing_of(4, &rng);
    memcpy(d.logits, (float[]){ 3, 2, -1, -4 }, 4 * sizeof(float));
    d.seen[0] = 1;
    d.s.temperature = 0;
    d.s.repetition_penalty = 1.4f;
    ck_assert_int_eq(draw_any(&d), 0); /* 3 / 1.4 > 2 */
    d.s.repetition_penalty = 1.6f;
    ck_assert_int_eq(draw_any(&d), 1);
    memcpy(d.logits, (float[]){ -1, -2, -3, -4 }, 4 * sizeof(float));
    ck_assert_int_eq(draw_any(&d), 0); /* -1.6 */
    d.s.repetition_penalty = 2.5f;
    ck_assert_int_eq(draw_any(&d), 1);
}
END_TEST

START_TEST(of_equally_likely_tokens_the_lower_ids_are_kept)
{
    test_rng rng = { 722 };
    drawing d = drawing_of(20, &rng);
    for (int i = 0; i < 20; i++)
        d.logits[i] = i % 3 == 0 ? 1.5f : 1; /* 0 3 6 9 12 15 18, then 1 2 4 5 … */
    d.s.top_k = 9;
    ck_distribution(&d, "ties and top-k");
    d.s.top_k = 3;
    ck_distribution(&d, "ties among the likeliest");
    d.s.top_k = 0;
    d.s.top_p = 0.613f;
    ck_distribution(&d, "ties and top-p");
    for (int i = 0; i < 20; i++)
        d.logits[i] = i == 3 ? -0.0f : i == 7 ? 0 : -1; /* -0 is no less than 0 */
    d.s.top_k = 1;
    ck_distribution(&d, "-0 and 0");
}
END_TEST

START_TEST(the_logprob_is_that_of_the_distribution_before_any_filter)
{
    test_rng rng = { 723 };
    drawing d = drawing_of(30, &rng);
    double sum = 0;
    float logprob = 1;
    for (int i = 0; i < 30; i++)
        sum += exp(d.logits[i]);
    memset(d.seen, 1, 30);
    d.s = (mm_sampling){ sizeof d.s, 0, 0.3f, 0.9f, 0.1f, 1.5f, 7 };
    for (int i = 0; i < 20; i++) {
        int32_t id = draw(&d, i / 20.0, &logprob);
        ck_assert_float_eq_tol(logprob, (float)(d.logits[id] - log(sum)), 1e-5f);
    }
}
END_TEST

START_TEST(the_ends_of_the_range_draw_possible_tokens)
{
    test_rng rng = { 724 };
    for (int filtered = 0; filtered < 2; filtered++) {
        drawing d = drawing_of(50, &rng);
        float logprob;
        d.logits[0] = d.logits[49] = d.logits[25] = -INFINITY;
        d.s.top_k = filtered ? 50 : 0;
        for (double u = 0.5; u > 1e-17; u /= 2) {
            int32_t low = draw(&d, u, &logprob),
                    high = draw(&d, 1 - u > 0.9999999999999999 ? 0.9999999999999999 : 1 - u, &logprob);
            ck_assert(d.logits[low] > -INFINITY && d.logits[high] > -INFINITY);
        }
        ck_assert(d.logits[draw(&d, 0, &logprob)] > -INFINITY);
    }
}
END_TEST

START_TEST(logits_that_are_not_finite_are_told)
{
    test_rng rng = { 725 };
    static const float bad[] = { NAN, INFINITY };
    for (int b = 0; b < 2; b++)
        for (int greedy = 0; greedy < 2; greedy++) {
            drawing d = drawing_of(9, &rng);
            d.s.temperature = greedy ? 0 : 1;
            d.logits[4] = bad[b];
            ck_assert_int_eq(draw_any(&d), -1);
        }
    drawing d = drawing_of(9, &rng);
    for (int i = 0; i < 9; i++)
        d.logits[i] = -INFINITY;
    ck_assert_int_eq(draw_any(&d), -1);
    d.logits[7] = -5;
    ck_assert_int_eq(draw_any(&d), 7);
}
END_TEST

START_TEST(filters_at_the_ends_of_their_ranges_keep_one_equals_or_all)
{
    static const struct {
        float top_p, min_p;
        int64_t top_k;
        int kept;
    } cases[] = { { 1, 1, 0, 3 },       { 1, 1, 2, 2 },         { 0x1p-149f, 0, 0, 1 }, { 0x1p-149f, 1, 2, 1 },
                  { 1, 0, 1, 1 },       { 1, 0, INT64_MAX, 9 }, { 1, 0x1p-149f, 9, 9 }, { 1, 0, 10, 9 },
                  { 1, 0, 20, 9 },      { 0.999f, 0, 20, 9 },   { 0.999f, 0, 0, 9 } };
    test_rng rng = { 728 };
    drawing d = drawing_of(20, &rng);
    for (int i = 0; i < 20; i++) /* three equal ones, six less likely, and eleven that are ruled out */
        d.logits[i] = i % 2 ? (i > 17 ? 2 : 1.5f + 0.01f * (float)i) : i < 16 ? -INFINITY : 2;
    d.logits[1] = d.logits[3] = d.logits[5] = -INFINITY;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[64];
        d.s.top_p = cases[i].top_p;
        d.s.min_p = cases[i].min_p;
        d.s.top_k = cases[i].top_k;
        snprintf(what, sizeof what, "case %d", (int)i);
        ck_distribution(&d, what);
        ck_assert_msg(kept_of(&d) == cases[i].kept, "%s: %d are kept", what, kept_of(&d));
    }
}
END_TEST

START_TEST(extreme_temperatures_come_near_greedy_and_uniform)
{
    static const float cold[] = { 1e-6f, 1e-20f, 1e-37f, 1e-45f };
    test_rng rng = { 726 };
    for (int filtered = 0; filtered < 2; filtered++) {
        drawing d = drawing_of(16, &rng);
        d.logits[11] = 5;
        d.s.top_k = filtered ? 8 : 0;
        for (size_t i = 0; i < sizeof cold / sizeof *cold; i++) {
            d.s.temperature = cold[i];
            for (double u = 0; u < 1; u += 0.24)
                ck_assert_msg(draw(&d, u, &(float){ 0 }) == 11, "temperature %g", (double)cold[i]);
        }
        d.s.temperature = 1e30f;
        ck_distribution(&d, "hot");
    }
}
END_TEST

START_TEST(extreme_penalties_draw_possible_tokens_or_none)
{
    test_rng rng = { 727 };
    drawing d = drawing_of(16, &rng);
    memset(d.seen, 1, 8);
    d.logits[0] = 1;
    for (int greedy = 0; greedy < 2; greedy++) {
        d.s.temperature = greedy ? 0 : 1;
        d.s.repetition_penalty = 1e38f;
        int32_t id = draw_any(&d);
        ck_assert(id >= 0 && id < 16);
        d.s.repetition_penalty = 1e-45f; /* divides beyond what a float holds */
        ck_assert_int_eq(draw_any(&d), -1);
    }
}
END_TEST

START_TEST(numbers_out_of_range_are_refused_by_name)
{
    struct {
        mm_sampling s;
        const char *word;
    } bad[] = {
        { { sizeof(mm_sampling), 0, -0.1f, 1, 0, 1, 0 }, "temperature" },
        { { sizeof(mm_sampling), 0, NAN, 1, 0, 1, 0 }, "temperature" },
        { { sizeof(mm_sampling), 0, INFINITY, 1, 0, 1, 0 }, "temperature" },
        { { sizeof(mm_sampling), 0, 1, 0, 0, 1, 0 }, "top_p" },
        { { sizeof(mm_sampling), 0, 1, 1.01f, 0, 1, 0 }, "top_p" },
        { { sizeof(mm_sampling), 0, 1, NAN, 0, 1, 0 }, "top_p" },
        { { sizeof(mm_sampling), 0, 1, 1, -0.5f, 1, 0 }, "min_p" },
        { { sizeof(mm_sampling), 0, 1, 1, 1.5f, 1, 0 }, "min_p" },
        { { sizeof(mm_sampling), 0, 1, 1, NAN, 1, 0 }, "min_p" },
        { { sizeof(mm_sampling), 0, 1, 1, 0, 0, 0 }, "repetition_penalty" },
        { { sizeof(mm_sampling), 0, 1, 1, 0, -1, 0 }, "repetition_penalty" },
        { { sizeof(mm_sampling), 0, 1, 1, 0, NAN, 0 }, "repetition_penalty" },
        { { sizeof(mm_sampling), 0, 1, 1, 0, INFINITY, 0 }, "repetition_penalty" },
        { { sizeof(mm_sampling), 0, 1, 1, 0, 1, -1 }, "top_k" },
    };
    mm_sampling good = MM_SAMPLING_INIT;
    ck_ok(mmi_sampling_check(&good));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_status(mmi_sampling_check(&bad[i].s), MM_ERR_ARG);
        ck_error_mentions(bad[i].word);
    }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/sampling", &tests);
    tcase_add_loop_test(tests, draws_follow_the_filtered_distribution, 0, 16);
    tcase_add_loop_test(tests, many_tokens_in_any_order_are_drawn_as_often_as_they_are_likely, 0, 7);
    tcase_add_loop_test(tests, many_tokens_in_order_are_split_as_fast_as_any, 0, 5);
    tcase_add_test(tests, a_share_just_below_everything_keeps_nearly_everything);
    tcase_add_test(tests, temperature_zero_picks_the_likeliest_and_of_equals_the_lowest_id);
    tcase_add_test(tests, the_penalty_makes_seen_tokens_less_likely_before_anything_else);
    tcase_add_test(tests, of_equally_likely_tokens_the_lower_ids_are_kept);
    tcase_add_test(tests, the_logprob_is_that_of_the_distribution_before_any_filter);
    tcase_add_test(tests, the_ends_of_the_range_draw_possible_tokens);
    tcase_add_test(tests, logits_that_are_not_finite_are_told);
    tcase_add_test(tests, filters_at_the_ends_of_their_ranges_keep_one_equals_or_all);
    tcase_add_test(tests, extreme_temperatures_come_near_greedy_and_uniform);
    tcase_add_test(tests, extreme_penalties_draw_possible_tokens_or_none);
    tcase_add_test(tests, numbers_out_of_range_are_refused_by_name);
    return run_suite(suite);
}
