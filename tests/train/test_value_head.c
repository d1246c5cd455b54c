#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "model/model.h"
#include "nn/gradient.h"
#include "ppo64.h"
#include "run/model64.h"

enum { B = 3, T = 11, N = B * T };

/* A policy with a value head, and answers to learn from. */
typedef struct actor {
    mm_model *model;
    mm_value_head *head;
    model64 m;
    mm_batch batch;
    ppo64 loss;
    double *w; /* [C + 1] the head's weight and bias, in double */
} actor;

static float *spread_around(const double *x, test_rng *rng, double width)
{
    float *out = take_floats(N, 0);
    for (int i = 0; i < N; i++)
        out[i] = (float)(x[i] + width * (rng_uniform(rng) - 0.5));
    return out;
}

static double *values_of(const actor *a)
{
    int64_t C = a->m.arch->C;
    double *values = take(N, sizeof *values);
    for (int i = 0; i < N; i++) {
        values[i] = a->w[C];
        for (int64_t c = 0; c < C; c++)
            values[i] += a->w[c] * a->m.hidden[i * C + c];
    }
    return values;
}

static void give_weights(actor *a, test_rng *rng)
{
    mm_view weight, bias;
    ck_ok(mm_value_head_weights(a->head, &weight, &bias));
    rng_fill(rng, weight.data, (size_t)a->m.arch->C, 0.3f);
    rng_fill(rng, bias.data, 1, 0.3f);
    a->w = take(a->m.arch->C + 1, sizeof *a->w);
    for (int64_t c = 0; c < a->m.arch->C; c++)
        a->w[c] = ((float *)weight.data)[c];
    a->w[a->m.arch->C] = *(float *)bias.data;
}

static actor make_actor(int index)
{
    test_rng rng = { 40 + (unsigned)index };
    mm_model *model = nth_model_without_dropout(index, 5);
    actor a = { .model = model, .m = model64_of(model, N), .batch = random_batch(model, B, T, MM_TRAIN, &rng) };
    ck_ok(mm_value_head_create(model, NULL, &a.head));
    give_weights(&a, &rng);
    model64_run(&a.m, &a.batch);
    int32_t *mask = take(N, sizeof *mask);
    double *advantages = take(N, sizeof *advantages), *returns = take(N, sizeof *returns), *values = values_of(&a);
    for (int i = 0; i < N; i++) {
        mask[i] = a.batch.targets[i] >= 0 && i % T > 2;
        advantages[i] = 2 * rng_uniform(&rng) - 1;
        returns[i] = values[i] + rng_uniform(&rng) - 0.5;
    }
    a.loss = (ppo64){ MM_PPO_OPTIONS_INIT,
                      N,
                      spread_around(a.m.logprobs, &rng, 0.6),
                      spread_around(a.m.logprobs, &rng, 0.6),
                      spread_around(values, &rng, 0.6),
                      mask,
                      advantages,
                      returns };
    return a;
}

static void end_actor(actor *a)
{
    mm_value_head_free(a->head);
    mm_model_free(a->model);
}

static double loss_by_network(void *arg)
{
    actor *a = arg;
    model64_run(&a->m, &a->batch);
    return ppo64_loss(&a->loss, a->m.logprobs, values_of(a)) + a->m.aux;
}

/* Forward, loss, and back through head and network. */
static mm_context *go_back(const actor *a, double scale)
{
    mm_context *context = context_of(a->model, MM_TRAIN, B, T, MM_OUT_LOGPROBS | MM_OUT_HIDDEN);
    mm_output out = MM_OUTPUT_INIT;
    float *values = take_floats(N, 0), *d_logprobs = take_floats(N, 0), *d_values = take_floats(N, 0);
    float *d_hidden = take_floats(N * a->m.arch->C, 0);
    mm_ppo_result r = MM_PPO_RESULT_INIT;
    mm_backward_options back = MM_BACKWARD_OPTIONS_INIT;
    ck_ok(mm_forward(context, &a->batch, &out));
    ck_ok(mm_value_head_forward(a->head, &out.hidden, values));
    double *expected = values_of(a);
    ck_close(values, expected, N, 5e-6, "values");
    ck_ok(mm_ppo_loss(&a->loss.options, B, T, out.logprobs.data, a->loss.old_logprobs, a->loss.ref_logprobs, values,
                      a->loss.old_values, a->loss.mask, a->loss.advantages, a->loss.returns, d_logprobs, d_values, &r));
    ck_ok(mm_value_head_backward(a->head, &out.hidden, d_values, scale, d_hidden));
    back.loss_scale = scale;
    back.aux_scale = scale;
    back.d_logprobs = d_logprobs;
    back.d_hidden = d_hidden;
    ck_ok(mm_backward(context, &back));
    return context;
}

START_TEST(ppo_s_gradients_through_the_head_and_the_whole_network_are_those_of_central_differences)
{
    actor a = make_actor(3 * _i);
    int64_t C = a.m.arch->C;
    test_rng rng = { 8 };
    double norm = 0, elements = 0;
    probes *by_tensor = take(a.m.count, sizeof *by_tensor);
    for (int64_t i = 0; i < a.m.count; i++) {
        by_tensor[i] = probes_take(a.m.w[i], a.m.sizes[i], loss_by_network, &a, &rng);
        elements += (double)a.m.sizes[i];
    }
    probes of_head = probes_take(a.w, C + 1, loss_by_network, &a, &rng);
    loss_by_network(&a);
    mm_context *context = go_back(&a, 1);
    ck_ok(mm_grad_norm(context, &norm));
    for (int64_t i = 0; i < a.m.count; i++) {
        mm_view grad;
        ck_ok(mm_grad(context, i, &grad));
        probes_check(&by_tensor[i], grad.data, NULL, 1e-2 * norm / sqrt(elements), a.m.names[i]);
    }
    mm_view grad;
    ck_ok(mm_value_head_grads(a.head, &grad, NULL)); /* the bias lies behind the weight */
    probes_check(&of_head, grad.data, NULL, 0, "value_head");
    mm_context_free(context);
    end_actor(&a);
}
END_TEST

START_TEST(the_scale_of_the_loss_scales_the_head_s_gradients_too)
{
    actor a = make_actor(0);
    int64_t C = a.m.arch->C;
    mm_view grad;
    mm_context_free(go_back(&a, 1));
    ck_ok(mm_value_head_grads(a.head, &grad, NULL));
    float *once = take_copy(grad.data, C + 1);
    ck_ok(mm_value_head_zero_grad(a.head));
    mm_context_free(go_back(&a, 0.25));
    for (int64_t c = 0; c <= C; c++)
        ck_assert_float_eq(((float *)grad.data)[c], 0.25f * once[c]);
    end_actor(&a);
}
END_TEST

/* --- Learning --- */

static mm_view some_hidden(float *data, int64_t C)
{
    return (mm_view){ .data = data, .dtype = MM_F32, .rank = 3, .shape = { B, T, C, 1 }, .strides = { T * C, C, 1 } };
}

/* One step towards wanted[i] for every row; the mean square of what it missed before. */
static double learn(mm_value_head *head, const mm_view *hidden, const float *wanted, double rate)
{
    float values[N], d_values[N];
    double miss = 0;
    mm_step step = MM_STEP_INIT;
    step.learning_rate = rate;
    step.max_grad_norm = 1;
    ck_ok(mm_value_head_forward(head, hidden, values));
    for (int i = 0; i < N; i++) {
        d_values[i] = 2 * (values[i] - wanted[i]) / N;
        miss += pow(values[i] - wanted[i], 2) / N;
    }
    ck_ok(mm_value_head_backward(head, hidden, d_values, 1, NULL));
    ck_ok(mm_value_head_step(head, &step));
    ck_assert(step.grad_norm > 0);
    return miss;
}

START_TEST(a_head_learns_what_the_hidden_states_tell_and_goes_on_from_its_file_to_the_same_bits)
{
    char path[512];
    test_rng rng = { 3 };
    mm_model *model = nth_model(0, 5);
    int64_t C = mmi_model_arch(model)->C;
    float *hidden = take_random(&rng, N * C, 1), *wanted = take_floats(N, 0);
    mm_view view = some_hidden(hidden, C), weight, again;
    mm_value_head *head, *other;
    ck_ok(mm_value_head_create(model, NULL, &head));
    ck_ok(mm_value_head_create(model, NULL, &other));
    mm_model_free(model);
    for (int i = 0; i < N; i++)
        wanted[i] = hidden[i * C] - 2 * hidden[i * C + 3] + 0.5f;
    double first = learn(head, &view, wanted, 1e-2), last = first;
    for (int i = 0; i < 40; i++)
        last = learn(head, &view, wanted, 1e-2);
    ck_assert_msg(last < 0.7 * first, "%g after %g", last, first);
    ck_ok(mm_value_head_backward(head, &view, wanted, 1, NULL)); /* gradients at hand are saved as well */
    snprintf(path, sizeof path, "%s/value_head.safetensors", scratch_directory());
    ck_ok(mm_value_head_save(head, path));
    ck_ok(mm_value_head_load(other, path));
    for (int i = 0; i < 3; i++)
        ck_assert(learn(head, &view, wanted, 1e-2) == learn(other, &view, wanted, 1e-2));
    ck_ok(mm_value_head_weights(head, &weight, NULL));
    ck_ok(mm_value_head_weights(other, &again, NULL));
    ck_assert(same_bits(weight.data, again.data, C + 1));
    mm_value_head_free(head);
    mm_value_head_free(other);
}
END_TEST

START_TEST(gradients_that_are_not_finite_change_nothing)
{
    mm_model *model = nth_model(0, 5);
    mm_value_head *head;
    mm_view weight, grad;
    mm_step step = MM_STEP_INIT;
    step.learning_rate = 1;
    ck_ok(mm_value_head_create(model, NULL, &head));
    ck_ok(mm_value_head_weights(head, &weight, NULL));
    ck_ok(mm_value_head_grads(head, &grad, NULL));
    float *before = take_copy(weight.data, weight.shape[1] + 1);
    ((float *)grad.data)[2] = NAN;
    ck_status(mm_value_head_step(head, &step), MM_ERR_NUMERIC);
    ck_assert(same_bits(weight.data, before, weight.shape[1] + 1));
    mm_value_head_free(head);
    mm_model_free(model);
}
END_TEST

/* --- Held wrong --- */

START_TEST(a_head_held_wrong_is_named)
{
    mm_model *model = nth_model(0, 5);
    int64_t C = mmi_model_arch(model)->C;
    mm_value_head *head;
    float *hidden = take_floats(N * C, 0), values[N] = { 0 };
    mm_view view = some_hidden(hidden, C), narrow = some_hidden(hidden, C - 1), empty = { 0 };
    mm_step step = MM_STEP_INIT;
    mm_adamw_options adamw = MM_ADAMW_OPTIONS_INIT;
    adamw.eps = 0;
    ck_status(mm_value_head_create(NULL, NULL, &head), MM_ERR_ARG);
    ck_status(mm_value_head_create(model, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_value_head_create(model, &adamw, &head), MM_ERR_ARG);
    ck_error_mentions("eps");
    mm_adamw_options chosen = MM_ADAMW_OPTIONS_INIT, matrices = MM_ADAMW_OPTIONS_INIT;
    chosen.trainable = "value_head.weight";
    ck_status(mm_value_head_create(model, &chosen, &head), MM_ERR_ARG);
    ck_error_mentions("trainable");
    matrices.decay = MM_DECAY_MATRICES;
    ck_status(mm_value_head_create(model, &matrices, &head), MM_ERR_ARG);
    ck_error_mentions("decay");
    ck_ok(mm_value_head_create(model, NULL, &head));
    ck_status(mm_value_head_forward(NULL, &view, values), MM_ERR_ARG);
    ck_status(mm_value_head_forward(head, &view, NULL), MM_ERR_ARG);
    ck_status(mm_value_head_forward(head, &empty, values), MM_ERR_ARG);
    ck_error_mentions("MM_OUT_HIDDEN");
    ck_status(mm_value_head_forward(head, &narrow, values), MM_ERR_ARG);
    ck_error_mentions("width");
    static const int64_t shapes[][2] = { { 0, 3 }, { 3, 0 }, { -1, 3 }, { 3, -1 }, { -3, -3 }, { INT64_MAX, 2 },
                                         { INT64_MAX / 64, 64 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        mm_view odd = view;
        odd.shape[0] = shapes[i][0];
        odd.shape[1] = shapes[i][1];
        ck_status(mm_value_head_forward(head, &odd, values), MM_ERR_ARG);
        ck_error_mentions("hidden is");
        ck_status(mm_value_head_backward(head, &odd, values, 1, NULL), MM_ERR_ARG);
    }
    mm_view later = view, alone = view;
    later.data = hidden + 2 * C; /* all but the first two tokens of each row */
    later.shape[1] = T - 2;
    ck_status(mm_value_head_forward(head, &later, values), MM_ERR_ARG);
    ck_error_mentions("without gaps");
    ck_status(mm_value_head_backward(head, &later, values, 1, NULL), MM_ERR_ARG);
    for (int axis = 1; axis < 3; axis++) {
        mm_view wide = view;
        wide.strides[axis]++;
        ck_status(mm_value_head_forward(head, &wide, values), MM_ERR_ARG);
        ck_error_mentions("without gaps");
    }
    alone.data = later.data;
    alone.shape[0] = 1; /* of one row they lie together */
    alone.shape[1] = later.shape[1];
    ck_ok(mm_value_head_forward(head, &alone, values));
    ck_status(mm_value_head_backward(head, &view, NULL, 1, NULL), MM_ERR_ARG);
    ck_status(mm_value_head_backward(head, &view, values, NAN, NULL), MM_ERR_ARG);
    ck_status(mm_value_head_step(head, NULL), MM_ERR_ARG);
    step.learning_rate = -1;
    ck_status(mm_value_head_step(head, &step), MM_ERR_ARG);
    ck_error_mentions("learning_rate");
    ck_status(mm_value_head_zero_grad(NULL), MM_ERR_ARG);
    ck_status(mm_value_head_weights(NULL, &view, NULL), MM_ERR_ARG);
    ck_status(mm_value_head_grads(NULL, &view, NULL), MM_ERR_ARG);
    ck_status(mm_value_head_save(head, NULL), MM_ERR_ARG);
    ck_status(mm_value_head_load(NULL, "x"), MM_ERR_ARG);
    mm_value_head_free(NULL);
    mm_value_head_free(head);
    mm_model_free(model);
}
END_TEST

START_TEST(a_file_that_is_no_head_for_this_model_leaves_the_head_as_it_was)
{
    char path[512];
    mm_model *small = model_of(tiny_models[0].json, 5), *other = NULL;
    mm_config *config = nth_config(0);
    ck_ok(mm_config_set_int(config, "hidden_size", mmi_model_arch(small)->C * 2));
    ck_ok(mm_model_create(config, 5, &other));
    mm_value_head *head, *wide;
    mm_view weight;
    ck_ok(mm_value_head_create(small, NULL, &head));
    ck_ok(mm_value_head_create(other, NULL, &wide));
    ck_ok(mm_value_head_weights(head, &weight, NULL));
    ((float *)weight.data)[0] = 3;
    snprintf(path, sizeof path, "%s/head.safetensors", scratch_directory());
    ck_status(mm_value_head_load(head, path), MM_ERR_IO);
    ck_ok(mm_value_head_save(wide, path));
    ck_status(mm_value_head_load(head, path), MM_ERR_FORMAT);
    ck_error_mentions("value_head.weight");
    char *bytes = NULL;
    size_t size = 0;
    ck_ok(mm_value_head_save(head, path));
    ck_ok(mmi_read_file(path, &bytes, &size));
    ((float *)weight.data)[0] = 5;
    for (size_t cut = 0; cut < size; cut += cut < 40 || cut + 5 > size ? 1 : 7) {
        ck_ok(mmi_write_file(path, bytes, cut));
        mm_status status = mm_value_head_load(head, path);
        ck_assert_msg(status == MM_ERR_FORMAT, "%zu of %zu bytes: %s", cut, size, mm_status_name(status));
        ck_assert_float_eq(((float *)weight.data)[0], 5);
    }
    mmi_free(bytes);
    ((float *)weight.data)[0] = 3;
    mm_optimizer *optimizer;
    ck_ok(mm_adamw_create(small, NULL, &optimizer));
    ck_ok(mm_optimizer_save(optimizer, path));
    ck_status(mm_value_head_load(head, path), MM_ERR_FORMAT);
    ck_assert_float_eq(((float *)weight.data)[0], 3);
    mm_optimizer_free(optimizer);
    mm_value_head_free(head);
    mm_value_head_free(wide);
    mm_model_free(small);
    mm_model_free(other);
    mm_config_free(config);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("train/value_head", &tests);
    tcase_add_loop_test(tests, ppo_s_gradients_through_the_head_and_the_whole_network_are_those_of_central_differences,
                        0, (all_count + 2) / 3);
    tcase_add_test(tests, the_scale_of_the_loss_scales_the_head_s_gradients_too);
    tcase_add_test(tests, a_head_learns_what_the_hidden_states_tell_and_goes_on_from_its_file_to_the_same_bits);
    tcase_add_test(tests, gradients_that_are_not_finite_change_nothing);
    tcase_add_test(tests, a_head_held_wrong_is_named);
    tcase_add_test(tests, a_file_that_is_no_head_for_this_model_leaves_the_head_as_it_was);
    return run_suite(suite);
}
