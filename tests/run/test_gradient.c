/* Whole networks against the reference in double precision: losses, logits, hidden states, every gradient. */
#include <math.h>
#include <stdio.h>

#include "backend/kernels.h"
#include "nn/gradient.h"
#include "run/model64.h"

#define OUTPUTS (MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS | MM_OUT_LOGITS | MM_OUT_HIDDEN)

enum { PLAIN, PACKED, RIGHT_PADDED, LEFT_PADDED, PLACED, KINDS };
static const char *const kind_names[] = { "plain", "packed documents", "right padding", "left padding", "own positions" };

typedef struct network {
    model64 m;
    mm_batch batch;
} network;

static double loss(void *arg)
{
    network *n = arg;
    double mean = model64_loss(&n->m, &n->batch);
    return mean + n->m.aux;
}

/* Padded columns are masked, and no target is counted there. */
static void pad(mm_batch *b, bool left, test_rng *rng)
{
    int32_t *mask = take(b->batch * b->length, sizeof *mask), *targets = (int32_t *)b->targets;
    for (int32_t i = 0; i < b->batch; i++) {
        int32_t padded = rng_between(rng, 1, b->length / 2);
        for (int32_t t = 0; t < b->length; t++) {
            bool real = left ? t >= padded : t < b->length - padded;
            mask[i * b->length + t] = real;
            if (!real)
                targets[i * b->length + t] = -100;
        }
    }
    b->attention_mask = mask;
}

static mm_batch batch_of(const mm_model *model, int kind, test_rng *rng)
{
    mm_batch b = random_batch(model, 3, 11, MM_TRAIN, rng);
    int32_t N = b.batch * b.length, *numbers = take(N, sizeof *numbers);
    for (int32_t i = 0; i < N; i++) /* documents go on over the end of a row, and numbers come again: each run is one */
        numbers[i] = kind == PACKED ? i / 4 % 2 : rng_between(rng, 0, 60);
    if (kind == PACKED)
        b.document_ids = numbers;
    if (kind == PLACED)
        b.position_ids = numbers;
    if (kind == RIGHT_PADDED || kind == LEFT_PADDED)
        pad(&b, kind == LEFT_PADDED, rng);
    return b;
}

static bool is_real(const mm_batch *b, int64_t row)
{
    return !b->attention_mask || b->attention_mask[row];
}

/* Compare rows of width C at real positions. */
static void check_rows(const mm_view *view, const double *expected, const mm_batch *b, int64_t C, const char *what)
{
    int64_t n = 0, N = (int64_t)b->batch * b->length;
    float *got = take_floats(N * C, 0);
    double *wanted = take(N * C, sizeof *wanted);
    for (int64_t i = 0; i < N * C; i++)
        if (is_real(b, i / C)) {
            got[n] = ((float *)view->data)[i];
            wanted[n++] = expected[i];
        }
    ck_close(got, wanted, n, 5e-6, what);
}

static void check_outputs(const mm_output *out, const network *n, double expected, const char *what)
{
    const mmi_arch *a = n->m.arch;
    int64_t counted = 0, N = (int64_t)n->batch.batch * n->batch.length;
    for (int64_t i = 0; i < N; i++)
        counted += n->batch.targets[i] >= 0;
    ck_assert_msg(fabs(out->loss - expected) <= 2e-6 * expected, "%s: loss %.9g, not %.9g", what, out->loss, expected);
    ck_assert_int_eq(out->loss_count, counted);
    ck_assert_double_eq_tol(out->loss_sum, expected * (double)counted, 2e-6 * expected * (double)counted);
    ck_assert(fabs(out->aux_loss - n->m.aux) <= 2e-6 * n->m.aux);
    check_rows(&out->logits, n->m.logits, &n->batch, a->V, what);
    check_rows(&out->hidden, n->m.hidden, &n->batch, a->C, what);
    check_rows(&out->logprobs, n->m.logprobs, &n->batch, 1, what);
    for (int32_t i = 0; i < n->batch.batch; i++) {
        int64_t row = (i + 1) * n->batch.length - 1;
        if (is_real(&n->batch, row))
            ck_close((float *)out->last_logits.data + i * a->V, n->m.logits + row * a->V, a->V, 5e-6, what);
    }
}

static void check_gradients(mm_context *context, const network *n, const probes *by_tensor, const char *what)
{
    char label[512];
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    double norm = 0, elements = 0;
    ck_ok(mm_grad_norm(context, &norm));
    for (int64_t i = 0; i < n->m.count; i++)
        elements += (double)n->m.sizes[i];
    for (int64_t i = 0; i < n->m.count; i++) {
        mm_view grad;
        ck_ok(mm_grad(context, i, &grad));
        ck_ok(mm_layout_get(n->m.config, i, &info));
        snprintf(label, sizeof label, "%s, %s", what, info.name);
        probes_check(&by_tensor[i], grad.data, NULL, 1e-2 * norm / sqrt(elements), label);
    }
}

static void check_on_all_kernels(mm_model *model, network *n, const char *name)
{
    char what[256];
    test_rng rng = { 7 };
    probes *by_tensor = take(n->m.count, sizeof *by_tensor);
    for (int64_t i = 0; i < n->m.count; i++)
        by_tensor[i] = probes_take(n->m.w[i], n->m.sizes[i], loss, n, &rng);
    double expected = model64_loss(&n->m, &n->batch);
    for (int32_t p = 0; p < mm_kernels_count(); p++) {
        snprintf(what, sizeof what, "%s, %s", name, mm_kernels_name(p));
        mm_context *context = context_on(model, MM_TRAIN, 3, 11, OUTPUTS, 1, mm_kernels_name(p));
        mm_output out = MM_OUTPUT_INIT;
        ck_ok(mm_forward(context, &n->batch, &out));
        check_outputs(&out, n, expected, what);
        ck_ok(mm_backward(context, NULL));
        check_gradients(context, n, by_tensor, what);
        mm_context_free(context);
    }
}

START_TEST(a_network_and_all_its_gradients_agree_with_the_reference)
{
    int index = _i / 2, kind = _i % 2 ? 1 + index % (KINDS - 1) : PLAIN;
    char name[160];
    snprintf(name, sizeof name, "%s, %s", tiny_models[index].name, kind_names[kind]);
    test_rng rng = { 300 + (unsigned)_i };
    mm_model *model = nth_model_without_dropout(index, 5);
    network n = { .m = model64_of(model, 33), .batch = batch_of(model, kind, &rng) };
    check_on_all_kernels(model, &n, name);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/gradient", &tests);
    tcase_add_loop_test(tests, a_network_and_all_its_gradients_agree_with_the_reference, 0, 2 * all_count);
    return run_suite(suite);
}
