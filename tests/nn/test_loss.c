#include <math.h>
#include <string.h>

#include "base/target.h"
#include "nn/arrays.h"
#include "nn/exec.h"
#include "nn/gradient.h"
#include "nn/loss.h"
#include "nn/reference64.h"

typedef struct head {
    int64_t N, C, V, chunk;
    int32_t *targets;
    float *hidden, *w, *weights; /* loss = -Σ weights · logprob */
    float *d_logits, scale;      /* or scale · Σ d_logits · logits */
    double *hidden64, *w64, *logits64, *logprobs64;
    bool by_logits;
    bool at_once; /* forward and back in one go, all weights being 1 */
    probes by_hidden, by_w;
    float *logprobs, *d_hidden, *dw, *d_hidden0, *dw0;
    float *all, *all1;
    int64_t size;
} head;

static double loss(void *arg)
{
    head *h = arg;
    double sum = 0;
    ref_linear(h->logits64, h->hidden64, h->w64, NULL, h->N, h->V, h->C);
    ref_logprobs(h->logprobs64, h->logits64, h->targets, h->N, h->V);
    if (!h->by_logits)
        for (int64_t i = 0; i < h->N; i++)
            sum -= h->weights[i] * h->logprobs64[i];
    else
        for (int64_t i = 0; i < h->N * h->V; i++)
            sum += h->scale * h->d_logits[i] * h->logits64[i];
    return sum;
}

static float *part(head *h, int64_t n)
{
    float *p = h->all ? h->all + h->size : NULL;
    h->size += n;
    return p;
}

static void lay_out(head *h)
{
    h->size = 0;
    h->logprobs = part(h, h->N);
    h->d_hidden = part(h, h->N * h->C);
    h->dw = part(h, h->V * h->C);
}

static head prepare(head h, int counted_percent, test_rng *rng)
{
    h.targets = take_ints(rng, h.N, 0, (int)h.V - 1);
    for (int64_t i = 0; i < h.N; i++)
        if (rng_between(rng, 1, 100) > counted_percent)
            h.targets[i] = MMI_IGNORE;
    h.hidden = take_random(rng, h.N * h.C, 1);
    h.w = take_random(rng, h.V * h.C, 1);
    h.weights = take_random(rng, h.N, 1);
    h.d_logits = take_random(rng, h.N * h.V, 1);
    h.scale = 0.375f;
    h.d_hidden0 = take_random(rng, h.N * h.C, 1);
    h.dw0 = take_random(rng, h.V * h.C, 1);
    if (h.at_once) {
        h.weights = take_floats(h.N, 1);
        h.d_hidden0 = take_floats(h.N * h.C, 0);
    }
    h.hidden64 = take_doubles(h.hidden, h.N * h.C);
    h.w64 = take_doubles(h.w, h.V * h.C);
    h.logits64 = take(h.N * h.V, sizeof(double));
    h.logprobs64 = take(h.N, sizeof(double));
    lay_out(&h);
    h.all = take_floats(h.size, 0);
    lay_out(&h);
    h.by_hidden = probes_take(h.hidden64, h.N * h.C, loss, &h, rng);
    h.by_w = probes_take(h.w64, h.V * h.C, loss, &h, rng);
    loss(&h);
    return h;
}

static void work(void *arg, const mmi_exec *x)
{
    head *h = arg;
    mmi_param w = { { h->w, MM_F32, h->V, h->C }, h->dw, NULL };
    mmi_head_scratch s = { take_floats(h->chunk * h->V, NAN), take_floats(h->chunk * h->C, NAN),
                           take_floats(h->chunk * h->C, NAN), take(h->chunk, sizeof(int32_t)), h->chunk };
    for (int64_t i = 0; i < h->N; i++)
        h->logprobs[i] = NAN;
    memcpy(h->dw, h->dw0, (size_t)(h->V * h->C) * sizeof(float));
    if (h->at_once) {
        for (int64_t i = 0; i < h->N * h->C; i++)
            h->d_hidden[i] = NAN;
        mmi_head_learn(x, h->d_hidden, h->logprobs, h->hidden, h->targets, w, h->N, &s);
        return;
    }
    memcpy(h->d_hidden, h->d_hidden0, (size_t)(h->N * h->C) * sizeof(float));
    mmi_head_logprobs(x, h->logprobs, h->hidden, NULL, h->targets, w, h->N, NULL, &s);
    if (h->by_logits)
        mmi_head_backward_logits(x, h->d_hidden, h->d_logits, h->scale, h->hidden, w, h->N, &s);
    else
        mmi_head_backward(x, h->d_hidden, h->weights, h->hidden, h->targets, w, h->N, &s);
}

static void check(void *arg, const char *label)
{
    head *h = arg;
    for (int64_t i = 0; i < h->N; i++) {
        ck_assert_msg(fabs(h->logprobs[i] - h->logprobs64[i]) <= 1e-5, "%s: row %lld", label, (long long)i);
        ck_assert_msg(h->targets[i] != MMI_IGNORE || h->logprobs[i] == 0, "%s: row %lld", label, (long long)i);
    }
    probes_check(&h->by_hidden, h->d_hidden, h->d_hidden0, 1e-4, label);
    probes_check(&h->by_w, h->dw, h->dw0, 1e-4, label);
    h->all1 = take_copy(h->all, h->size);
}

static void same(void *arg, const char *label)
{
    head *h = arg;
    ck_assert_msg(same_bits(h->all, h->all1, h->size), "%s: other bits than with one thread", label);
}

/* N, C, V, rows per chunk */
static const int64_t shapes[][4] = { { 1, 6, 1, 1 },      { 1, 10, 17, 4 },   { 23, 24, 101, 7 },
                                     { 64, 13, 130, 64 }, { 41, 36, 67, 10 }, { 30, 10, 300, 300 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(logprobs_of_targets_and_their_gradients_agree_with_the_reference)
{
    test_rng rng = { 110 + (unsigned)_i };
    const int64_t *s = shapes[_i];
    for (int percent = 0; percent <= 100; percent += 50) {
        head h = prepare((head){ .N = s[0], .C = s[1], .V = s[2], .chunk = s[3] }, percent, &rng);
        exec_on_all(&(exec_plan){ &h, FOR_PRODUCTS, work, check, same });
    }
}
END_TEST

START_TEST(the_callers_gradient_by_logits_goes_back_through_the_head)
{
    test_rng rng = { 120 + (unsigned)_i };
    const int64_t *s = shapes[_i];
    head h = prepare((head){ .N = s[0], .C = s[1], .V = s[2], .chunk = s[3], .by_logits = true }, 50, &rng);
    exec_on_all(&(exec_plan){ &h, FOR_PRODUCTS, work, check, same });
}
END_TEST

START_TEST(going_forward_and_back_at_once_gives_the_gradient_of_the_undivided_loss)
{
    test_rng rng = { 125 + (unsigned)_i };
    const int64_t *s = shapes[_i];
    for (int percent = 0; percent <= 100; percent += 50) {
        head h = prepare((head){ .N = s[0], .C = s[1], .V = s[2], .chunk = s[3], .at_once = true }, percent, &rng);
        exec_on_all(&(exec_plan){ &h, FOR_PRODUCTS, work, check, same });
    }
}
END_TEST

/* Relative: eight vectors are added up in float32, then their lanes, and an exponential rounds. */
#define SUM_ERROR (14 * 0x1p-24)

/* Logits that are exact in float32, `offset` + n / 1024: what is lost is lost behind them. The target's is `above`
 * more. */
START_TEST(no_digits_are_lost_to_logits_that_are_all_large_or_to_a_target_that_is_likely)
{
    static const struct {
        float offset, above;
    } cases[] = { { 0, 0 }, { 8191, 0 }, { -8000, 2 }, { 60, 12 }, { 0, 14 } };
    enum { V = 700, C = 2 };
    test_rng rng = { 135 };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        for (int at_once = 0; at_once < 2; at_once++) {
            head h = prepare((head){ .N = 1, .C = C, .V = V, .chunk = 4, .at_once = at_once }, 100, &rng);
            h.hidden64[0] = h.hidden[0] = 1;
            h.hidden64[1] = h.hidden[1] = 1;
            memset(h.dw0, 0, V * C * sizeof(float));
            for (int v = 0; v < V; v++) {
                h.w64[v * C] = h.w[v * C] = cases[at].offset;
                h.w64[v * C + 1] = h.w[v * C + 1] = (float)rng_between(&rng, -1024, 1023) / 1024;
            }
            h.w64[h.targets[0] * C + 1] = h.w[h.targets[0] * C + 1] = cases[at].above;
            loss(&h);
            EACH_PATH_OF_FLOATS (path) {
                mmi_exec x = exec_create(path, 1, FOR_PRODUCTS);
                work(&h, &x);
                const char *name = path->name;
                ck_assert_msg(fabs(h.logprobs[0] - h.logprobs64[0]) <= SUM_ERROR + 3e-7 * fabs(h.logprobs64[0]),
                              "%s, case %d: %.9g, not %.9g", name, (int)at, (double)h.logprobs[0], h.logprobs64[0]);
                double sum = 0;
                for (int v = 0; v < V; v++)
                    sum += exp(h.logits64[v] - h.logits64[h.targets[0]]);
                for (int v = 0; v < V; v++) {
                    bool target = v == h.targets[0];
                    double p = exp(h.logits64[v] - h.logits64[h.targets[0]]) / sum;
                    double want = h.weights[0] * (p - target), got = h.dw[v * C];
                    ck_each(fabs(got - want) <= SUM_ERROR * fabs(h.weights[0]) * p + 1.2e-7 * fabs(want),
                            "%s, case %d: [%d] is %.9g, not %.9g", name, (int)at, v, got, want);
                }
                exec_free(&x);
            }
        }
}
END_TEST

START_TEST(logits_that_exist_already_are_read_instead_of_made)
{
    test_rng rng = { 130 };
    head h = prepare((head){ .N = 29, .C = 12, .V = 31, .chunk = 8 }, 60, &rng);
    float *logits = take_floats(h.N * h.V, 0);
    for (int64_t i = 0; i < h.N * h.V; i++)
        logits[i] = (float)h.logits64[i];
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec x = exec_create(path, 2, FOR_PRODUCTS);
        mmi_param w = { { NULL, MM_F32, h.V, h.C }, NULL, NULL };
        mmi_head_scratch s = { .rows = take(h.chunk, sizeof(int32_t)), .chunk = h.chunk };
        mmi_head_logprobs(&x, h.logprobs, NULL, logits, h.targets, w, h.N, NULL, &s);
        ck_close(h.logprobs, h.logprobs64, h.N, 1e-6, path->name);
        exec_free(&x);
    }
}
END_TEST

/* A NaN that did not reach the loss would be trained on. */
START_TEST(a_row_that_is_not_a_number_has_no_logprob_and_leaves_others_theirs)
{
    enum { BAD = 11, V = 301 };
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    test_rng rng = { 140 };
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
        for (int at_once = 0; at_once < 2; at_once++) {
            head h = prepare((head){ .N = 23, .C = 12, .V = V, .chunk = 8, .at_once = at_once }, 100, &rng);
            h.hidden[BAD * h.C + 7] = bad[b];
            EACH_PATH_OF_FLOATS (path) {
                mmi_exec x = exec_create(path, 2, FOR_PRODUCTS);
                work(&h, &x);
                for (int64_t i = 0; i < h.N; i++) {
                    const float *d = h.d_hidden + i * h.C;
                    ck_assert_msg(i == BAD ? isnan(h.logprobs[i]) : fabs(h.logprobs[i] - h.logprobs64[i]) <= 1e-5,
                                  "%s, %g: row %d has %g", path->name, (double)bad[b], (int)i, (double)h.logprobs[i]);
                    for (int64_t c = 0; c < h.C; c++)
                        ck_each(isnan(d[c]) == (i == BAD), "%s, %g: row %d goes back with %g", path->name,
                                (double)bad[b], (int)i, (double)d[c]);
                }
                for (int64_t i = 0; i < V * h.C; i++)
                    ck_each(isnan(h.dw[i]), "%s, %g: weight %d is told %g", path->name, (double)bad[b], (int)i,
                            (double)h.dw[i]);
                exec_free(&x);
            }
        }
}
END_TEST

START_TEST(chunks_hold_a_few_hundred_rows_of_any_vocabulary)
{
    for (int64_t V = 1; V < (int64_t)1 << 22; V = V * 3 + 1)
        ck_assert_msg(mmi_head_chunk(V) >= 16 && mmi_head_chunk(V) <= 512, "V = %lld", (long long)V);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/loss", &tests);
    tcase_add_loop_test(tests, logprobs_of_targets_and_their_gradients_agree_with_the_reference, 0, SHAPES);
    tcase_add_loop_test(tests, the_callers_gradient_by_logits_goes_back_through_the_head, 0, SHAPES);
    tcase_add_loop_test(tests, going_forward_and_back_at_once_gives_the_gradient_of_the_undivided_loss, 0, SHAPES);
    tcase_add_test(tests, no_digits_are_lost_to_logits_that_are_all_large_or_to_a_target_that_is_likely);
    tcase_add_test(tests, logits_that_exist_already_are_read_instead_of_made);
    tcase_add_test(tests, a_row_that_is_not_a_number_has_no_logprob_and_leaves_others_theirs);
    tcase_add_test(tests, chunks_hold_a_few_hundred_rows_of_any_vocabulary);
    return run_suite(suite);
}
