/* Running with adapters, and training them: gradients against the reference in double precision, whose matrices are
 * W + weight · alpha/rank · B A. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "nn/gradient.h"
#include "run/model64.h"

#define OUTPUTS (MM_OUT_LOSS | MM_OUT_LOGITS)
#define BATCH 3
#define LENGTH 11

static mm_adapter *adapter_with(mm_model *model, const char *targets, int32_t rank, double dropout, unsigned seed)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    test_rng rng = { seed };
    o.targets = targets;
    o.rank = rank;
    o.alpha = 1.5 * rank;
    o.dropout = dropout;
    o.seed = seed;
    ck_ok(mm_adapter_create(model, &o, &adapter));
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mm_view view;
        ck_ok(mm_adapter_write(adapter, i, &view));
        rng_fill(&rng, view.data, (size_t)(view.shape[0] * view.shape[1]), 0.4f);
    }
    mm_adapter_written(adapter);
    return adapter;
}

static mm_context *context_with(mm_model *model, int32_t mode, mm_adapter *adapter, int32_t threads,
                                const char *kernels)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    o.mode = mode;
    o.max_batch = BATCH;
    o.max_length = LENGTH;
    o.max_context = 64;
    o.outputs = OUTPUTS;
    o.threads = threads;
    o.kernels = kernels;
    o.adapter = adapter;
    ck_ok(mm_context_create(model, &o, &context));
    return context;
}

/* --- The reference --- */

/* A tensor pair of an adapter in double precision. */
typedef struct pair64 {
    int64_t base, in, out, rank;
    double *a, *b, *w; /* w: the matrix before the adapter */
} pair64;

typedef struct network {
    model64 m;
    mm_batch batch;
    pair64 *pairs;
    int64_t count;
} network;

static int64_t base_of(const model64 *m, const mm_adapter *adapter, int64_t index)
{
    char name[256];
    ck_ok(mm_adapter_name(adapter, index, name, sizeof name, NULL));
    strcpy(strstr(name, ".lora_"), ".weight");
    int layer;
    const char *within = model64_name(name, &layer);
    int64_t at = model64_find(m, within, layer);
    ck_assert_msg(at >= 0, "%s is no tensor", name);
    return at;
}

/* m.w[base] = w + scale · B A, over what stands there. */
static void add_pair(double *w, const pair64 *p, double scale)
{
    for (int64_t i = 0; i < p->out; i++)
        for (int64_t j = 0; j < p->in; j++)
            for (int64_t r = 0; r < p->rank; r++)
                w[i * p->in + j] += scale * p->b[i * p->rank + r] * p->a[r * p->in + j];
}

static pair64 *pairs_of(model64 *m, const mm_adapter *adapter, int64_t *count)
{
    *count = mm_adapter_tensor_count(adapter) / 2;
    pair64 *pairs = take(*count, sizeof *pairs);
    for (int64_t i = 0; i < *count; i++) {
        mm_view a, b;
        pair64 *p = &pairs[i];
        ck_ok(mm_adapter_tensor(adapter, 2 * i, &a));
        ck_ok(mm_adapter_tensor(adapter, 2 * i + 1, &b));
        *p = (pair64){ .base = base_of(m, adapter, 2 * i), .in = a.shape[1], .out = b.shape[0], .rank = a.shape[0] };
        ck_assert_int_eq(b.shape[1], p->rank);
        p->a = take_doubles(a.data, p->rank * p->in);
        p->b = take_doubles(b.data, p->out * p->rank);
        p->w = take(p->out * p->in, sizeof *p->w);
        memcpy(p->w, m->w[p->base], (size_t)(p->out * p->in) * sizeof *p->w);
    }
    return pairs;
}

static double loss(void *arg)
{
    network *n = arg;
    for (int64_t i = 0; i < n->count; i++) {
        const pair64 *p = &n->pairs[i];
        memcpy(n->m.w[p->base], p->w, (size_t)(p->out * p->in) * sizeof *p->w);
        add_pair(n->m.w[p->base], p, 1.5);
    }
    double mean = model64_loss(&n->m, &n->batch);
    return mean + n->m.aux;
}

/* --- Gradients --- */

static void check_on(mm_model *model, mm_adapter *adapter, network *n, const probes *by_tensor, const char *what)
{
    char label[768], name[256];
    double expected = loss(n);
    for (int32_t k = 0; k < mm_kernels_count(); k++) {
        mm_context *context = context_with(model, MM_TRAIN, adapter, 1, mm_kernels_name(k));
        mm_output out = MM_OUTPUT_INIT;
        double norm = 0;
        ck_ok(mm_forward(context, &n->batch, &out));
        ck_assert_msg(fabs(out.loss + out.aux_loss - expected) <= 4e-6 * expected, "%s: loss %.9g, not %.9g", what,
                      out.loss + out.aux_loss, expected);
        ck_ok(mm_backward(context, NULL));
        ck_ok(mm_grad_norm(context, &norm));
        for (int64_t i = 0; i < 2 * n->count; i++) {
            mm_view grad;
            ck_ok(mm_grad(context, i, &grad));
            ck_ok(mm_adapter_name(adapter, i, name, sizeof name, NULL));
            snprintf(label, sizeof label, "%s, %s, %s", what, mm_kernels_name(k), name);
            probes_check(&by_tensor[i], grad.data, NULL, 1e-2 * norm / sqrt((double)mm_adapter_count_params(adapter)),
                         label);
        }
        mm_context_free(context);
    }
}

static const char *const choices[] = { NULL, "*", "down_proj,k_proj,model.layers.*.self_attn.q_proj" };
enum { CHOICES = sizeof choices / sizeof *choices };

START_TEST(gradients_of_an_adapter_agree_with_the_reference)
{
    int index = _i / CHOICES;
    const char *targets = choices[_i % CHOICES];
    test_rng rng = { 70 + (unsigned)_i };
    mm_model *model = nth_model_without_dropout(index, 5);
    mm_adapter *adapter = adapter_with(model, targets, 1 + _i % 4, 0, 3);
    network n = { .m = model64_of(model, BATCH * LENGTH), .batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng) };
    n.pairs = pairs_of(&n.m, adapter, &n.count);
    probes *by_tensor = take(2 * n.count, sizeof *by_tensor);
    for (int64_t i = 0; i < n.count; i++) {
        pair64 *p = &n.pairs[i];
        by_tensor[2 * i] = probes_take(p->a, p->rank * p->in, loss, &n, &rng);
        by_tensor[2 * i + 1] = probes_take(p->b, p->out * p->rank, loss, &n, &rng);
    }
    char what[256];
    snprintf(what, sizeof what, "%s, %s", tiny_models[index].name, targets ? targets : "attention");
    check_on(model, adapter, &n, by_tensor, what);
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

/* The gradients of an adapter's tensors, one after another. */
static float *adapter_gradients(mm_context *context, const mm_adapter *adapter, int64_t *count)
{
    *count = mm_adapter_count_params(adapter);
    float *all = take_floats(*count, 0), *next = all;
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mm_view view;
        ck_ok(mm_grad(context, i, &view));
        memcpy(next, view.data, (size_t)(view.shape[0] * view.shape[1]) * sizeof *next);
        next += view.shape[0] * view.shape[1];
    }
    mm_view none;
    ck_status(mm_grad(context, mm_adapter_tensor_count(adapter), &none), MM_ERR_ARG);
    ck_error_mentions("mm_grad: there is no tensor");
    ck_error_mentions("the adapter has");
    return all;
}

START_TEST(one_two_and_three_threads_give_the_same_bits)
{
    test_rng rng = { 9 };
    mm_model *model = nth_model(_i, 5); /* with dropout, where the model has it */
    mm_adapter *adapter = adapter_with(model, "*", 3, 0.25, 3);
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng);
    batch.seed = 11;
    for (int32_t k = 0; k < mm_kernels_count(); k++) {
        float *first = NULL;
        double first_loss = 0;
        int64_t n = 0;
        for (int32_t threads = 1; threads <= 3; threads++) {
            mm_context *context = context_with(model, MM_TRAIN, adapter, threads, mm_kernels_name(k));
            double got = forward_backward(context, &batch, NULL);
            float *gradients = adapter_gradients(context, adapter, &n);
            if (threads == 1) {
                first = gradients;
                first_loss = got;
            }
            ck_assert(got == first_loss);
            ck_assert_int_eq(memcmp(gradients, first, (size_t)n * sizeof *first), 0);
            mm_context_free(context);
        }
    }
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

START_TEST(running_layers_again_gives_the_same_bits)
{
    test_rng rng = { 23 };
    mm_model *model = nth_model(_i, 5);
    mm_adapter *adapter = adapter_with(model, "*", 3, 0.25, 3);
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng);
    float *gradients[2];
    int64_t n = 0;
    for (int32_t checkpointing = 0; checkpointing < 2; checkpointing++) {
        mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
        mm_context *context = NULL;
        o.mode = MM_TRAIN;
        o.max_batch = BATCH;
        o.max_length = LENGTH;
        o.threads = 1;
        o.checkpointing = checkpointing;
        o.adapter = adapter;
        ck_ok(mm_context_create(model, &o, &context));
        forward_backward(context, &batch, NULL);
        gradients[checkpointing] = adapter_gradients(context, adapter, &n);
        mm_context_free(context);
    }
    ck_assert(same_bits(gradients[0], gradients[1], n));
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

/* --- Dropout --- */

START_TEST(dropout_drops_the_same_for_the_same_seed_and_not_in_evaluation)
{
    test_rng rng = { 21 };
    mm_model *model = nth_model(0, 5);
    mm_adapter *with = adapter_with(model, "*", 2, 0.5, 3), *without = adapter_with(model, "*", 2, 0, 3);
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng);
    mm_context *dropping = context_with(model, MM_TRAIN, with, 1, NULL),
               *plain = context_with(model, MM_TRAIN, without, 1, NULL);
    double losses[3];
    for (int i = 0; i < 3; i++) {
        batch.seed = i == 2 ? 8 : 7;
        losses[i] = forward_backward(dropping, &batch, NULL);
    }
    ck_assert(losses[0] == losses[1]);
    ck_assert(losses[0] != losses[2]);
    ck_assert(losses[0] != forward_backward(plain, &batch, NULL));
    mm_output a = MM_OUTPUT_INIT, b = MM_OUTPUT_INIT;
    batch.mode = MM_EVAL;
    ck_ok(mm_forward(dropping, &batch, &a));
    ck_ok(mm_forward(plain, &batch, &b));
    ck_assert(a.loss == b.loss);
    mm_context_free(dropping);
    mm_context_free(plain);
    mm_adapter_free(with);
    mm_adapter_free(without);
    mm_model_free(model);
}
END_TEST

/* In single precision by the library's own forward pass: the step is large, and so is what is allowed. */
START_TEST(gradients_pass_through_the_masks_of_dropout)
{
    test_rng rng = { 22 };
    mm_model *model = nth_model(0, 5);
    mm_adapter *adapter = adapter_with(model, "q_proj,down_proj", 2, 0.5, 3);
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng);
    batch.seed = 5;
    mm_context *context = context_with(model, MM_TRAIN, adapter, 1, NULL);
    forward_backward(context, &batch, NULL);
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mm_view w, grad;
        mm_output up = MM_OUTPUT_INIT, down = MM_OUTPUT_INIT;
        const float step = 4e-3f;
        ck_ok(mm_adapter_write(adapter, i, &w));
        ck_ok(mm_grad(context, i, &grad));
        int64_t n = w.shape[0] * w.shape[1];
        float *before = take_copy(w.data, n), *direction = take_floats(n, 0);
        double along = 0;
        for (int64_t j = 0; j < n; j++) {
            direction[j] = rng_next(&rng) & 1 ? 1.0f : -1.0f;
            along += direction[j] * ((float *)grad.data)[j];
            ((float *)w.data)[j] = before[j] + step * direction[j];
        }
        ck_ok(mm_forward(context, &batch, &up));
        for (int64_t j = 0; j < n; j++)
            ((float *)w.data)[j] = before[j] - step * direction[j];
        ck_ok(mm_forward(context, &batch, &down));
        memcpy(w.data, before, (size_t)n * sizeof *before);
        double difference = (up.loss - down.loss) / (2 * step);
        ck_assert_msg(fabs(difference - along) <= 0.03 * fabs(along) + 2e-3, "tensor %d: %g, not %g", (int)i, along,
                      difference);
    }
    mm_context_free(context);
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

/* --- Choosing adapters --- */

static float *logits_of(mm_context *context, mm_batch batch)
{
    mm_output out = MM_OUTPUT_INIT;
    batch.mode = MM_EVAL;
    ck_ok(mm_forward(context, &batch, &out));
    return copy_view(&out.logits);
}

START_TEST(a_fresh_adapter_changes_nothing)
{
    test_rng rng = { 31 };
    mm_model *model = nth_model(_i, 5);
    mm_adapter *adapter = NULL;
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_EVAL, &rng);
    mm_context *context = context_with(model, MM_EVAL, NULL, 1, NULL);
    int64_t n = (int64_t)BATCH * LENGTH * vocab_of(model);
    float *before = logits_of(context, batch);
    ck_ok(mm_adapter_create(model, NULL, &adapter));
    ck_ok(mm_context_set_adapters(context, &adapter, NULL, 1));
    ck_assert_int_eq(memcmp(before, logits_of(context, batch), (size_t)n * sizeof *before), 0);
    mm_context_free(context);
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

START_TEST(several_adapters_add_up_by_their_weights)
{
    test_rng rng = { 32 };
    mm_model *model = nth_model_without_dropout(_i, 5);
    mm_adapter *both[2] = { adapter_with(model, "q_proj,o_proj,down_proj", 2, 0, 3),
                            adapter_with(model, "*", 5, 0, 4) };
    const float weights[2] = { 0.5f, -0.75f };
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_EVAL, &rng);
    model64 m = model64_of(model, BATCH * LENGTH);
    for (int i = 0; i < 2; i++) {
        int64_t count;
        pair64 *pairs = pairs_of(&m, both[i], &count);
        for (int64_t p = 0; p < count; p++)
            add_pair(m.w[pairs[p].base], &pairs[p], 1.5 * weights[i]);
    }
    model64_run(&m, &batch);
    mm_context *context = context_with(model, MM_EVAL, NULL, 1, NULL);
    float *plain = logits_of(context, batch);
    ck_ok(mm_context_set_adapters(context, both, weights, 2));
    int64_t n = (int64_t)BATCH * LENGTH * vocab_of(model);
    ck_close(logits_of(context, batch), m.logits, n, 2e-5, tiny_models[_i].name);
    ck_ok(mm_context_set_adapters(context, NULL, NULL, 0));
    ck_assert_int_eq(memcmp(plain, logits_of(context, batch), (size_t)n * sizeof *plain), 0);
    mm_context_free(context);
    mm_adapter_free(both[0]);
    mm_adapter_free(both[1]);
    mm_model_free(model);
}
END_TEST

START_TEST(a_trained_context_turns_its_adapter_off_and_on)
{
    test_rng rng = { 33 };
    mm_model *model = nth_model(0, 5);
    mm_adapter *adapter = adapter_with(model, NULL, 2, 0, 3);
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng);
    mm_context *context = context_with(model, MM_TRAIN, adapter, 1, NULL),
               *bare = context_with(model, MM_EVAL, NULL, 1, NULL);
    mm_output out = MM_OUTPUT_INIT;
    int64_t n = (int64_t)BATCH * LENGTH * vocab_of(model);
    ck_ok(mm_forward(context, &batch, &out));
    ck_ok(mm_context_set_adapters(context, NULL, NULL, 0));
    ck_status(mm_backward(context, NULL), MM_ERR_STATE);
    ck_assert_int_eq(memcmp(logits_of(bare, batch), logits_of(context, batch), (size_t)n * sizeof(float)), 0);
    ck_status(mm_forward(context, &batch, &out), MM_ERR_STATE);
    ck_error_mentions("adapter");
    uint64_t counted = allocations();
    ck_ok(mm_context_set_adapters(context, &adapter, NULL, 1));
    ck_assert_uint_eq(allocations(), counted);
    forward_backward(context, &batch, NULL);
    ck_assert_uint_eq(allocations(), counted);
    mm_context_free(context);
    mm_context_free(bare);
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

START_TEST(handles_may_be_freed_in_any_order)
{
    uint64_t start = bytes_held();
    mm_model *model = nth_model(0, 5);
    mm_adapter *adapter = adapter_with(model, NULL, 2, 0, 3);
    mm_context *context = context_with(model, MM_TRAIN, adapter, 1, NULL);
    mm_optimizer *optimizer = NULL;
    ck_ok(mm_adamw_create_adapter(adapter, NULL, &optimizer));
    mm_adapter_free(adapter);
    mm_model_free(model);
    ck_ok(mm_context_set_adapters(context, NULL, NULL, 0));
    mm_context_free(context);
    mm_optimizer_free(optimizer);
    ck_assert_uint_eq(bytes_held(), start);
}
END_TEST

START_TEST(choosing_adapters_without_memory_changes_nothing)
{
    test_rng rng = { 35 };
    mm_model *model = nth_model(0, 5);
    mm_adapter *both[2] = { adapter_with(model, NULL, 2, 0, 3), adapter_with(model, "*", 5, 0, 4) };
    mm_context *context = context_with(model, MM_TRAIN, both[0], 1, NULL);
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_TRAIN, &rng);
    int64_t n = (int64_t)BATCH * LENGTH * vocab_of(model);
    float *before = logits_of(context, batch);
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, &batch, &out));
    uint64_t held = bytes_held();
    mmi_memory_fail_at(1, true);
    mm_status status = mm_context_set_adapters(context, both, NULL, 2);
    mmi_memory_fail_at(0, false);
    ck_assert_int_eq(status, MM_ERR_MEMORY);
    ck_assert_uint_eq(bytes_held(), held);
    ck_ok(mm_backward(context, NULL)); /* the pass before it, with the adapter that it had */
    ck_assert(same_bits(logits_of(context, batch), before, n));
    ck_ok(mm_context_set_adapters(context, both, NULL, 2));
    ck_assert(!same_bits(logits_of(context, batch), before, n));
    mm_context_free(context);
    mm_adapter_free(both[0]);
    mm_adapter_free(both[1]);
    mm_model_free(model);
}
END_TEST

START_TEST(choosing_adapters_wrongly_is_refused_and_changes_nothing)
{
    test_rng rng = { 34 };
    mm_model *model = nth_model(0, 5), *other = nth_model(1, 5);
    mm_adapter *adapter = adapter_with(model, NULL, 2, 0, 3), *strange = adapter_with(other, NULL, 2, 0, 3);
    mm_context *context = context_with(model, MM_EVAL, adapter, 1, NULL), *none = NULL;
    mm_batch batch = random_batch(model, BATCH, LENGTH, MM_EVAL, &rng);
    float *before = logits_of(context, batch);
    mm_adapter *twice[2] = { adapter, adapter }, *empty[1] = { NULL };
    const float nan_weight = NAN;
    ck_status(mm_context_set_adapters(NULL, &adapter, NULL, 1), MM_ERR_ARG);
    ck_status(mm_context_set_adapters(context, NULL, NULL, 1), MM_ERR_ARG);
    ck_status(mm_context_set_adapters(context, empty, NULL, 1), MM_ERR_ARG);
    ck_status(mm_context_set_adapters(context, &adapter, NULL, -1), MM_ERR_ARG);
    ck_status(mm_context_set_adapters(context, &adapter, NULL, 65), MM_ERR_ARG);
    ck_status(mm_context_set_adapters(context, &adapter, &nan_weight, 1), MM_ERR_ARG);
    ck_status(mm_context_set_adapters(context, twice, NULL, 2), MM_ERR_ARG);
    ck_error_mentions("twice");
    ck_status(mm_context_set_adapters(context, &strange, NULL, 1), MM_ERR_ARG);
    ck_error_mentions("shapes");
    int64_t n = (int64_t)BATCH * LENGTH * vocab_of(model);
    ck_assert_int_eq(memcmp(before, logits_of(context, batch), (size_t)n * sizeof *before), 0);
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    o.mode = MM_TRAIN;
    o.max_length = LENGTH;
    o.adapter = strange;
    ck_status(mm_context_create(model, &o, &none), MM_ERR_ARG);
    o.adapter = adapter;
    o.trainable = "q_proj";
    ck_status(mm_context_create(model, &o, &none), MM_ERR_ARG);
    ck_error_mentions("trainable");
    mm_context_free(context);
    mm_adapter_free(adapter);
    mm_adapter_free(strange);
    mm_model_free(model);
    mm_model_free(other);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/adapter", &tests);
    tcase_add_loop_test(tests, gradients_of_an_adapter_agree_with_the_reference, 0, CHOICES * all_count);
    tcase_add_loop_test(tests, one_two_and_three_threads_give_the_same_bits, 0, all_count);
    tcase_add_loop_test(tests, running_layers_again_gives_the_same_bits, 0, all_count);
    tcase_add_test(tests, dropout_drops_the_same_for_the_same_seed_and_not_in_evaluation);
    tcase_add_test(tests, gradients_pass_through_the_masks_of_dropout);
    tcase_add_loop_test(tests, a_fresh_adapter_changes_nothing, 0, all_count);
    tcase_add_loop_test(tests, several_adapters_add_up_by_their_weights, 0, all_count);
    tcase_add_test(tests, a_trained_context_turns_its_adapter_off_and_on);
    tcase_add_test(tests, handles_may_be_freed_in_any_order);
    tcase_add_test(tests, choosing_adapters_without_memory_changes_nothing);
    tcase_add_test(tests, choosing_adapters_wrongly_is_refused_and_changes_nothing);
    return run_suite(suite);
}
