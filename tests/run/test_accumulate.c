/* Where gradients start, and how they add up. */
#include <math.h>
#include <string.h>

#include "run/models.h"

#define CLOSE 1e-5
#define OUTPUTS (MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LOGITS | MM_OUT_HIDDEN)

static void ck_same_gradients(mm_context *a, mm_context *b, double scale, const char *what)
{
    int64_t n;
    float *ga = all_gradients(a, &n), *gb = all_gradients(b, &n);
    for (int64_t i = 0; i < n; i++)
        gb[i] *= (float)scale;
    ck_assert_msg(relative_error(ga, gb, (size_t)n) <= CLOSE, "%s: relative error %g", what,
                  relative_error(ga, gb, (size_t)n));
}

/* Two contexts of one model; the second for what the first is compared with. */
typedef struct pair {
    mm_model *model;
    mm_context *a, *b;
    mm_batch batch;
    int64_t count; /* targets counted */
    int32_t V, C;
    float *logits; /* [N, V] */
} pair;

static pair pair_of(int index, unsigned seed)
{
    test_rng rng = { seed };
    pair p = { .model = nth_model(index, seed) };
    mm_output out = MM_OUTPUT_INIT;
    int64_t C = 0;
    p.a = context_of(p.model, MM_TRAIN, 4, 9, OUTPUTS);
    p.b = context_of(p.model, MM_TRAIN, 4, 9, OUTPUTS);
    p.batch = random_batch(p.model, 4, 9, MM_TRAIN, &rng);
    p.V = vocab_of(p.model);
    ck_ok(mm_config_get_int(mm_model_config(p.model), "hidden_size", &C));
    p.C = (int32_t)C;
    ck_ok(mm_forward(p.b, &p.batch, &out));
    p.count = out.loss_count;
    p.logits = copy_view(&out.logits);
    ck_ok(mm_backward(p.b, NULL)); /* b holds the gradients of the loss */
    return p;
}

static void free_pair(pair *p)
{
    mm_context_free(p->a);
    mm_context_free(p->b);
    mm_model_free(p->model);
}

/* (softmax - onehot) / count: the loss's own derivative by the logits. */
static float *loss_by_logits(const pair *p)
{
    int64_t N = p->batch.batch * p->batch.length, V = p->V;
    float *d = take_floats(N * V, 0);
    for (int64_t i = 0; i < N; i++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++)
            sum += exp(p->logits[i * V + v]);
        for (int64_t v = 0; v < V && p->batch.targets[i] >= 0; v++)
            d[i * V + v] = (float)((exp(p->logits[i * V + v]) / sum - (v == p->batch.targets[i])) / (double)p->count);
    }
    return d;
}

START_TEST(two_half_batches_with_the_common_normalizer_add_up_to_the_whole)
{
    pair p = pair_of(_i, 500);
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.normalizer = (double)p.count;
    for (int half = 0; half < 2; half++) {
        mm_batch b = p.batch;
        b.batch = 2;
        b.ids += half * 18;
        b.targets += half * 18;
        forward_backward(p.a, &b, &options);
    }
    ck_same_gradients(p.a, p.b, 1, tiny_models[_i].name);
    free_pair(&p);
}
END_TEST

START_TEST(the_losss_own_derivative_by_the_logits_is_the_same_start)
{
    pair p = pair_of(_i, 501);
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.d_logits = loss_by_logits(&p);
    options.normalizer = 1e9; /* is for the loss alone */
    forward_backward(p.a, &p.batch, &options);
    ck_same_gradients(p.a, p.b, 1, tiny_models[_i].name);
    ck_ok(mm_zero_grad(p.a));
    mm_batch bare = p.batch;
    bare.targets = NULL;
    options.loss_scale = 2.5;
    forward_backward(p.a, &bare, &options);
    ck_same_gradients(p.a, p.b, 2.5, "scaled, without targets");
    free_pair(&p);
}
END_TEST

START_TEST(the_losss_own_derivative_by_the_logprobs_is_the_same_start)
{
    pair p = pair_of(_i, 502);
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.d_logprobs = take_floats(36, (float)(-1.0 / (double)p.count)); /* what is not counted doesn't count */
    options.loss_scale = 0.5;
    forward_backward(p.a, &p.batch, &options);
    ck_same_gradients(p.a, p.b, 0.5, tiny_models[_i].name);
    free_pair(&p);
}
END_TEST

START_TEST(the_losss_own_derivative_by_the_hidden_states_gives_all_but_the_heads)
{
    pair p = pair_of(2, 503); /* not tied */
    int64_t head = mm_model_tensor_count(p.model) - 1, N = 36;
    mm_view w, grad;
    ck_ok(mm_model_find(p.model, "lm_head.weight", &w));
    float *d_logits = loss_by_logits(&p), *d_hidden = take_floats(N * p.C, 0);
    for (int64_t i = 0; i < N; i++)
        for (int64_t c = 0; c < p.C; c++) {
            double sum = 0;
            for (int64_t v = 0; v < p.V; v++)
                sum += (double)d_logits[i * p.V + v] * ((float *)w.data)[v * p.C + c];
            d_hidden[i * p.C + c] = (float)sum;
        }
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.d_hidden = d_hidden;
    forward_backward(p.a, &p.batch, &options);
    ck_ok(mm_grad(p.a, head, &grad));
    for (int64_t i = 0; i < p.V * p.C; i++)
        ck_assert(((float *)grad.data)[i] == 0);
    ck_ok(mm_grad(p.b, head, &grad));
    memset(grad.data, 0, (size_t)(p.V * p.C) * sizeof(float));
    ck_same_gradients(p.a, p.b, 1, "from the hidden states");

    mm_batch bare = p.batch;
    bare.targets = NULL;
    ck_ok(mm_zero_grad(p.a));
    forward_backward(p.a, &bare, &options);
    ck_same_gradients(p.a, p.b, 1, "from the hidden states, without targets");
    free_pair(&p);
}
END_TEST

START_TEST(a_start_at_the_hidden_states_is_added_to_the_other_start)
{
    pair p = pair_of(0, 504);
    test_rng rng = { 1 };
    float *d_hidden = take_random(&rng, 36 * p.C, 1), *d_logits = take_random(&rng, 36 * p.V, 1);
    float *d_logprobs = take_random(&rng, 36, 1);
    for (int start = 0; start < 2; start++) {
        mm_backward_options hidden = MM_BACKWARD_OPTIONS_INIT, other = hidden, both;
        hidden.d_hidden = d_hidden;
        hidden.loss_scale = other.loss_scale = 0.25;
        other.d_logits = start ? d_logits : NULL;
        other.d_logprobs = start ? NULL : d_logprobs;
        both = other;
        both.d_hidden = d_hidden;
        ck_ok(mm_zero_grad(p.a));
        ck_ok(mm_zero_grad(p.b));
        forward_backward(p.a, &p.batch, &both);
        forward_backward(p.b, &p.batch, &hidden);
        forward_backward(p.b, &p.batch, &other);
        ck_same_gradients(p.a, p.b, 1, start ? "with the logits" : "with the log-probabilities");
    }
    free_pair(&p);
}
END_TEST

START_TEST(the_loss_scale_scales_the_gradients)
{
    pair p = pair_of(1, 505);
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.loss_scale = -1024;
    forward_backward(p.a, &p.batch, &options);
    ck_same_gradients(p.a, p.b, -1024, "scaled");
    ck_ok(mm_zero_grad(p.a));
    options.loss_scale = 1;
    options.aux_scale = 77; /* dense models have no auxiliary loss */
    forward_backward(p.a, &p.batch, &options);
    ck_same_gradients(p.a, p.b, 1, "auxiliary scale");
    free_pair(&p);
}
END_TEST

START_TEST(backward_adds_to_the_gradients_until_they_are_zeroed)
{
    pair p = pair_of(3, 506);
    for (int i = 0; i < 3; i++)
        forward_backward(p.a, &p.batch, NULL);
    ck_same_gradients(p.a, p.b, 3, "three passes");
    ck_ok(mm_zero_grad(p.a));
    double norm = 1;
    ck_ok(mm_grad_norm(p.a, &norm));
    ck_assert(norm == 0);
    free_pair(&p);
}
END_TEST

/* What a callback saw: each tensor's gradients as they were when they were called final. */
typedef struct seen {
    mm_context *context;
    int64_t firsts[16], calls;
    float *at_the_time[128];
} seen;

static void look(void *user, int64_t first, int64_t count)
{
    seen *s = user;
    ck_assert_int_lt(s->calls, 16);
    s->firsts[s->calls++] = first;
    for (int64_t i = first; i < first + count; i++) {
        mm_view view;
        ck_assert_int_lt(i, 128);
        ck_assert_ptr_null(s->at_the_time[i]); /* each once */
        ck_ok(mm_grad(s->context, i, &view));
        s->at_the_time[i] = copy_view(&view);
    }
    ck_status(mm_backward(s->context, NULL), MM_ERR_STATE);
    ck_error_mentions("mm_backward: the context is in use");
    double norm = 0;
    ck_status(mm_zero_grad(s->context), MM_ERR_STATE);
    ck_status(mm_grad_norm(s->context, &norm), MM_ERR_STATE);
    ck_status(mm_grad_add(s->context, s->context, 1), MM_ERR_STATE);
    ck_status(mm_context_set_adapters(s->context, NULL, NULL, 0), MM_ERR_STATE);
    ck_error_mentions("mm_context_set_adapters: the context is in use");
}

START_TEST(gradients_are_called_final_when_they_are_from_the_last_tensor_to_the_first)
{
    pair p = pair_of(_i, 511);
    seen s = { .context = p.a };
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.on_gradients = look;
    options.user = &s;
    forward_backward(p.a, &p.batch, &options);
    int64_t layers = 0;
    ck_ok(mm_config_get_int(mm_model_config(p.model), "num_hidden_layers", &layers));
    ck_assert_int_eq(s.calls, layers + 2);
    for (int64_t c = 1; c < s.calls; c++)
        ck_assert_int_lt(s.firsts[c], s.firsts[c - 1]);
    ck_assert_int_eq(s.firsts[s.calls - 1], 0);
    for (int64_t i = 0; i < mm_model_tensor_count(p.model); i++) {
        mm_view view;
        ck_ok(mm_grad(p.a, i, &view));
        ck_assert_ptr_nonnull(s.at_the_time[i]);
        ck_assert(same_bits(s.at_the_time[i], view.data, view.shape[0] * view.shape[1]));
    }
    ck_same_gradients(p.a, p.b, 1, "with a callback");
    free_pair(&p);
}
END_TEST

START_TEST(a_batch_without_a_counted_target_has_no_loss_and_no_gradient)
{
    pair p = pair_of(_i, 507);
    int32_t *targets = take(36, sizeof *targets);
    for (int i = 0; i < 36; i++)
        targets[i] = -100;
    p.batch.targets = targets;
    mm_output out = MM_OUTPUT_INIT;
    out.loss = 5;
    ck_ok(mm_forward(p.a, &p.batch, &out));
    ck_assert(out.loss == 0 && out.loss_sum == 0 && out.loss_count == 0);
    for (int i = 0; i < 36; i++)
        ck_assert(((float *)out.logprobs.data)[i] == 0);
    ck_ok(mm_backward(p.a, NULL));
    int64_t n;
    float *gradients = all_gradients(p.a, &n);
    for (int64_t i = 0; i < n; i++)
        ck_each(gradients[i] == 0, "number %lld is %g", (long long)i, (double)gradients[i]);
    free_pair(&p);
}
END_TEST

START_TEST(gradients_of_two_contexts_are_added_with_a_scale)
{
    pair p = pair_of(0, 508);
    int64_t n;
    mm_batch half = p.batch;
    half.batch = 2;
    forward_backward(p.a, &half, NULL);
    float *a = all_gradients(p.a, &n), *b = all_gradients(p.b, &n);
    ck_ok(mm_grad_add(p.a, p.b, -0.75));
    float *sum = all_gradients(p.a, &n);
    for (int64_t i = 0; i < n; i++)
        ck_assert_float_eq_tol(sum[i], a[i] - 0.75f * b[i], 1e-6f);
    ck_assert(same_bits(all_gradients(p.b, &n), b, n));
    ck_ok(mm_grad_add(p.b, p.b, 1)); /* also to itself */
    float *twice = all_gradients(p.b, &n);
    for (int64_t i = 0; i < n; i++)
        ck_assert(twice[i] == 2 * b[i]);
    free_pair(&p);
}
END_TEST

START_TEST(contexts_of_different_configs_have_no_sum)
{
    static const char *const json[] = {
        "{\"model_type\":\"llama\",\"hidden_size\":6,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"vocab_size\":5,"
        "\"intermediate_size\":7}",
        "{\"model_type\":\"llama\",\"hidden_size\":6,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"vocab_size\":4,"
        "\"intermediate_size\":7}", /* other shapes in as much memory */
        "{\"model_type\":\"llama\",\"hidden_size\":6,\"num_hidden_layers\":2,\"num_attention_heads\":1,\"vocab_size\":5,"
        "\"intermediate_size\":7}" };
    mm_context *contexts[3];
    for (int i = 0; i < 3; i++) {
        mm_model *model = model_of(json[i], 1);
        contexts[i] = context_of(model, MM_TRAIN, 1, 3, MM_OUT_LOSS);
        mm_model_free(model);
    }
    ck_ok(mm_grad_add(contexts[0], contexts[0], 1));
    for (int i = 1; i < 3; i++) {
        ck_status(mm_grad_add(contexts[0], contexts[i], 1), MM_ERR_ARG);
        ck_error_mentions("config");
    }
    for (int i = 0; i < 3; i++)
        mm_context_free(contexts[i]);
}
END_TEST

/* As many numbers in as many tensors, or fewer: what they are of decides. */
START_TEST(contexts_that_train_different_tensors_have_no_sum)
{
    static const char *const trainable[] = { "q_proj", "o_proj", "layers.0.*", NULL };
    mm_model *model = nth_model(0, 1);
    mm_adapter *adapter = NULL;
    mm_context *contexts[5];
    ck_ok(mm_adapter_create(model, NULL, &adapter));
    for (int i = 0; i < 5; i++) {
        mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
        o.mode = MM_TRAIN;
        o.max_length = 3;
        o.threads = 1;
        o.trainable = i < 4 ? trainable[i] : NULL;
        o.adapter = i < 4 ? NULL : adapter;
        ck_ok(mm_context_create(model, &o, &contexts[i]));
    }
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            mm_status status = mm_grad_add(contexts[i], contexts[j], 1);
            ck_assert_msg(status == (i == j ? MM_OK : MM_ERR_ARG), "%d and %d: %s", i, j, mm_status_name(status));
            if (i != j)
                ck_error_mentions("train different tensors");
        }
    for (int i = 0; i < 5; i++)
        mm_context_free(contexts[i]);
    mm_adapter_free(adapter);
    mm_model_free(model);
}
END_TEST

START_TEST(the_norm_is_that_of_all_gradients_together)
{
    pair p = pair_of(2, 509);
    int64_t n;
    float *gradients = all_gradients(p.b, &n);
    double square = 0, norm = 0;
    for (int64_t i = 0; i < n; i++)
        square += (double)gradients[i] * gradients[i];
    ck_ok(mm_grad_norm(p.b, &norm));
    ck_assert_double_eq_tol(norm, sqrt(square), 1e-12 * norm);
    mm_view view;
    ck_ok(mm_grad(p.a, 0, &view)); /* for writing too */
    ((float *)view.data)[3] = 3e20f;
    ((float *)view.data)[4] = -4e20f;
    ck_ok(mm_grad_norm(p.a, &norm));
    ck_assert_double_eq_tol(norm, 5e20, 1e14);
    free_pair(&p);
}
END_TEST

/* Of more than three pieces of 2^16 numbers, each of which the threads add up by itself. */
START_TEST(the_norm_of_many_gradients_is_that_of_all_of_them_with_any_number_of_threads)
{
    static const char many[] = "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":64,"
                               "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                               "\"vocab_size\":3100,\"intermediate_size\":96,\"max_position_embeddings\":64}";
    mm_model *model = model_of(many, 511);
    double norms[3];
    for (int i = 0; i < 3; i++) {
        mm_context *context = context_on(model, MM_TRAIN, 1, 2, MM_OUT_LOSS, 1 + i, NULL);
        test_rng rng = { 512 };
        double square = 0;
        for (int64_t t = 0; t < mm_model_tensor_count(model); t++) {
            mm_view grad;
            ck_ok(mm_grad(context, t, &grad));
            float *g = grad.data;
            const int64_t count = grad.shape[0] * (grad.rank == 2 ? grad.shape[1] : 1);
            rng_fill(&rng, g, (size_t)count, 1);
            for (int64_t j = 0; j < count; j++)
                square += (double)g[j] * g[j];
        }
        ck_ok(mm_grad_norm(context, &norms[i]));
        ck_assert_double_eq_tol(norms[i], sqrt(square), 1e-12 * norms[i]);
        ck_assert(norms[i] == norms[0]);
        mm_context_free(context);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(gradient_views_have_the_tensors_shapes)
{
    pair p = pair_of(1, 510);
    for (int64_t i = 0; i < mm_model_tensor_count(p.model); i++) {
        mm_view tensor, grad;
        ck_ok(mm_model_tensor(p.model, i, &tensor));
        ck_ok(mm_grad(p.a, i, &grad));
        ck_assert_int_eq(grad.dtype, MM_F32);
        ck_assert_int_eq(grad.rank, tensor.rank);
        ck_assert(memcmp(grad.shape, tensor.shape, sizeof grad.shape) == 0);
        ck_assert(memcmp(grad.strides, tensor.strides, sizeof grad.strides) == 0);
        ck_assert_ptr_ne(grad.data, tensor.data);
    }
    free_pair(&p);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/accumulate", &tests);
    tcase_add_loop_test(tests, two_half_batches_with_the_common_normalizer_add_up_to_the_whole, 0, tiny_count);
    tcase_add_loop_test(tests, the_losss_own_derivative_by_the_logits_is_the_same_start, 0, tiny_count);
    tcase_add_loop_test(tests, the_losss_own_derivative_by_the_logprobs_is_the_same_start, 0, tiny_count);
    tcase_add_test(tests, the_losss_own_derivative_by_the_hidden_states_gives_all_but_the_heads);
    tcase_add_test(tests, a_start_at_the_hidden_states_is_added_to_the_other_start);
    tcase_add_test(tests, the_loss_scale_scales_the_gradients);
    tcase_add_test(tests, backward_adds_to_the_gradients_until_they_are_zeroed);
    tcase_add_loop_test(tests, gradients_are_called_final_when_they_are_from_the_last_tensor_to_the_first, 0, tiny_count);
    tcase_add_loop_test(tests, a_batch_without_a_counted_target_has_no_loss_and_no_gradient, 0, tiny_count);
    tcase_add_test(tests, gradients_of_two_contexts_are_added_with_a_scale);
    tcase_add_test(tests, contexts_of_different_configs_have_no_sum);
    tcase_add_test(tests, contexts_that_train_different_tensors_have_no_sum);
    tcase_add_test(tests, the_norm_is_that_of_all_gradients_together);
    tcase_add_test(tests, the_norm_of_many_gradients_is_that_of_all_of_them_with_any_number_of_threads);
    tcase_add_test(tests, gradient_views_have_the_tensors_shapes);
    return run_suite(suite);
}
