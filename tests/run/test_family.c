/* Every family in training, with all its masks, noise and auxiliary losses, against the reference in double precision. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn/gradient.h"
#include "run/context.h"
#include "run/dropout64.h"

#define B 2
#define T 7
#define OUTPUTS (MM_OUT_LOSS | MM_OUT_LOGITS)
#define SHAPE "\"hidden_size\":12,\"num_hidden_layers\":2,\"vocab_size\":23,\"max_position_embeddings\":512,"
#define MINIMIND2 "{\"model_type\":\"minimind\",\"minimind_version\":2," SHAPE "\"num_attention_heads\":2,"
#define MINIMIND3 "{\"model_type\":\"minimind\",\"minimind_version\":3," SHAPE "\"num_attention_heads\":3,\"head_dim\":6,"
#define MINIGPT "{\"model_type\":\"minigpt\"," SHAPE "\"num_attention_heads\":2,\"intermediate_size\":10,"
#define DROP "\"dropout\":0.2,\"attention_dropout\":0.3"

typedef struct family {
    const char *name, *json;
    float noise;
    bool packed;
} family;

static const family families[] = {
    { "minimind2, dense", MINIMIND2 "\"num_key_value_heads\":1,\"intermediate_size\":16," DROP "}", 0, true },
    { "minimind2, one shared expert, balance per sequence",
      MINIMIND2 "\"intermediate_size\":9,\"use_moe\":true,\"n_routed_experts\":4,\"aux_loss_alpha\":0.7,\"seq_aux\":true," DROP "}",
      0, false },
    { "minimind2, two shared experts, balance over the batch, weights as they are",
      MINIMIND2 "\"intermediate_size\":9,\"use_moe\":true,\"n_routed_experts\":5,\"n_shared_experts\":2,\"aux_loss_alpha\":0.7,"
                "\"num_experts_per_tok\":3,\"seq_aux\":false,\"norm_topk_prob\":false," DROP "}",
      0.3f, true },
    { "minimind2, one of three experts, none shared",
      MINIMIND2 "\"intermediate_size\":9,\"use_moe\":true,\"n_routed_experts\":3,\"n_shared_experts\":0,\"aux_loss_alpha\":0.7,"
                "\"num_experts_per_tok\":1," DROP "}",
      0, false },
    { "minimind3, dense", MINIMIND3 "\"num_key_value_heads\":1,\"intermediate_size\":16," DROP "}", 0, true },
    { "minimind3, one of four experts",
      MINIMIND3 "\"num_key_value_heads\":3,\"use_moe\":true,\"moe_intermediate_size\":9,\"router_aux_loss_coef\":0.4," DROP "}", 0,
      false },
    { "minimind3, two of three experts, weights as they are",
      MINIMIND3 "\"num_key_value_heads\":3,\"use_moe\":true,\"num_experts\":3,\"num_experts_per_tok\":2,\"norm_topk_prob\":false,"
                "\"moe_intermediate_size\":9,\"router_aux_loss_coef\":0.4," DROP "}",
      0.2f, true },
    { "qwen3_moe",
      "{\"model_type\":\"qwen3_moe\"," SHAPE "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":4,"
      "\"intermediate_size\":16,\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":9,"
      "\"norm_topk_prob\":true,\"router_aux_loss_coef\":0.4,\"attention_dropout\":0.3}",
      0, true },
    { "minigpt, dense, sinusoidal", MINIGPT "\"use_rope\":false," DROP "}", 0, false },
    { "minigpt, shared and routed experts",
      MINIGPT "\"use_moe\":true,\"n_routed_experts\":6,\"n_shared_experts\":2,\"aux_loss_alpha\":0.7," DROP "}", 0.1f, false },
    { "minigpt, plain experts, none shared, all chosen",
      MINIGPT "\"use_moe\":true,\"n_routed_experts\":3,\"n_shared_experts\":0,\"num_experts_per_tok\":3,\"hidden_act\":\"gelu\","
              "\"aux_loss_alpha\":0.7," DROP "}",
      0, true },
    { "llama, LayerNorm, biases, plain network",
      "{\"model_type\":\"llama\"," SHAPE "\"num_attention_heads\":2,\"intermediate_size\":16,\"norm_type\":\"layernorm\","
      "\"attention_bias\":true,\"mlp_bias\":true,\"mlp_type\":\"plain\",\"hidden_act\":\"gelu_new\",\"attention_dropout\":0.3}",
      0, true },
    { "qwen3",
      "{\"model_type\":\"qwen3\"," SHAPE "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":4,"
      "\"intermediate_size\":16,\"attention_dropout\":0.3}",
      0, false },
};
enum { FAMILIES = sizeof families / sizeof *families };

static mm_context *context_with(mm_model *model, const family *f, int32_t threads, int32_t checkpointing, const char *kernels)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    o.mode = MM_TRAIN;
    o.max_batch = B;
    o.max_length = T;
    o.outputs = OUTPUTS;
    o.threads = threads;
    o.checkpointing = checkpointing;
    o.router_noise = f->noise;
    o.kernels = kernels;
    ck_ok(mm_context_create(model, &o, &context));
    return context;
}

static mm_batch batch_for(const mm_model *model, const family *f, uint64_t seed)
{
    test_rng rng = { 1200 };
    mm_batch b = random_batch(model, B, T, MM_TRAIN, &rng);
    int32_t *documents = take((int64_t)B * T, sizeof *documents);
    for (int32_t i = 0; i < B * T; i++)
        documents[i] = i % T / 4;
    b.document_ids = f->packed ? documents : NULL;
    b.seed = seed;
    return b;
}

static void check_gradients(mm_context *context, const dropout64 *d, const probes *by_tensor, const char *what)
{
    double norm = 0, elements = 0;
    ck_ok(mm_grad_norm(context, &norm));
    for (int64_t i = 0; i < d->m.count; i++)
        elements += (double)d->m.sizes[i];
    for (int64_t i = 0; i < d->m.count; i++) {
        char label[512];
        mm_view grad;
        ck_ok(mm_grad(context, i, &grad));
        snprintf(label, sizeof label, "%s, %s", what, d->m.names[i]);
        probes_check(&by_tensor[i], grad.data, NULL, 1e-2 * norm / sqrt(elements), label);
    }
}

START_TEST(losses_and_gradients_with_all_masks_agree_with_the_reference)
{
    const family *f = &families[_i];
    mm_model *model = model_of(f->json, 21);
    mm_batch batch = batch_for(model, f, 0x123456789ull + (unsigned)_i);
    mm_context *first = context_with(model, f, 1, 0, NULL);
    dropout64 d = dropout64_of(model, first, &batch, f->noise);
    test_rng rng = { 1201 };
    dropout64_total(&d);
    probes *by_tensor = take(d.m.count, sizeof *by_tensor);
    for (int64_t i = 0; i < d.m.count; i++)
        by_tensor[i] = probes_take(d.m.w[i], d.m.sizes[i], dropout64_total, &d, &rng);
    dropout64_total(&d);
    for (int32_t p = 0; p < mm_kernels_count(); p++) {
        char what[256];
        snprintf(what, sizeof what, "%s, %s", f->name, mm_kernels_name(p));
        mm_context *context = context_with(model, f, 1, 0, mm_kernels_name(p));
        mm_output out = MM_OUTPUT_INIT;
        ck_ok(mm_forward(context, &batch, &out));
        ck_assert_msg(fabs(out.loss - d.loss) <= 3e-6 * d.loss, "%s: loss %.9g, not %.9g", what, out.loss, d.loss);
        ck_assert_msg(fabs(out.aux_loss - d.aux) <= 3e-6 * d.aux, "%s: auxiliary loss %.9g, not %.9g", what, out.aux_loss, d.aux);
        ck_close(out.logits.data, d.m.logits, (int64_t)B * T * d.m.arch->V, 1e-5, what);
        ck_ok(mm_backward(context, NULL));
        check_gradients(context, &d, by_tensor, what);
        mm_context_free(context);
    }
    mm_context_free(first);
    mm_model_free(model);
}
END_TEST

START_TEST(evaluation_drops_nothing_and_adds_neither_noise_nor_auxiliary_loss)
{
    const family *f = &families[_i];
    mm_model *model = model_of(f->json, 22);
    mm_batch batch = batch_for(model, f, 5);
    mm_context *context = context_with(model, f, 1, 0, NULL);
    dropout64 d = dropout64_of(model, context, &batch, f->noise);
    mm_output out = MM_OUTPUT_INIT;
    d.batch.mode = batch.mode = MM_EVAL;
    dropout64_total(&d);
    ck_ok(mm_forward(context, &batch, &out));
    ck_assert_double_eq_tol(out.loss, d.loss, 3e-6 * d.loss);
    ck_assert(out.aux_loss == 0 && d.aux == 0);
    ck_close(out.logits.data, d.m.logits, (int64_t)B * T * d.m.arch->V, 5e-6, f->name);
    float *first = copy_view(&out.logits);
    batch.seed = 6;
    ck_ok(mm_forward(context, &batch, &out));
    ck_assert(same_bits(out.logits.data, first, (int64_t)B * T * d.m.arch->V));
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

typedef struct result {
    double loss, aux;
    float *logits, *gradients;
    int64_t n_logits, n_gradients;
} result;

static result run(mm_context *context, const mm_batch *batch)
{
    result r = { 0 };
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_zero_grad(context));
    ck_ok(mm_forward(context, batch, &out));
    r.loss = out.loss;
    r.aux = out.aux_loss;
    r.n_logits = out.logits.shape[0] * out.logits.shape[1] * out.logits.shape[2];
    r.logits = copy_view(&out.logits);
    ck_ok(mm_backward(context, NULL));
    r.gradients = all_gradients(context, &r.n_gradients);
    return r;
}

static bool same(const result *a, const result *b)
{
    return a->loss == b->loss && a->aux == b->aux && same_bits(a->logits, b->logits, a->n_logits)
        && same_bits(a->gradients, b->gradients, a->n_gradients);
}

START_TEST(threads_and_checkpointing_change_no_bit_on_any_kernel_path)
{
    static const int32_t threads[] = { 1, 2, 3, 8 };
    const family *f = &families[_i];
    mm_model *model = model_of(f->json, 23);
    mm_batch batch = batch_for(model, f, 77);
    for (int32_t p = 0; p < mm_kernels_count(); p++) {
        result first = { 0 };
        for (int i = 0; i < 8; i++) {
            mm_context *context = context_with(model, f, threads[i / 2], i % 2, mm_kernels_name(p));
            result r = run(context, &batch);
            if (i == 0)
                first = r;
            ck_assert_msg(same(&r, &first), "%s, %s: %d threads, checkpointing %d give other bits", f->name, mm_kernels_name(p),
                          threads[i / 2], i % 2);
            mm_context_free(context);
        }
    }
    mm_model_free(model);
}
END_TEST

START_TEST(the_seed_says_which_masks_and_which_noise)
{
    const family *f = &families[_i];
    mm_model *model = model_of(f->json, 24);
    mm_batch batch = batch_for(model, f, 1), other = batch_for(model, f, 1ull << 63);
    mm_context *context = context_with(model, f, 2, 0, NULL), *fresh = context_with(model, f, 1, 1, NULL);
    result one = run(context, &batch), two = run(context, &other), again = run(context, &batch), new = run(fresh, &batch);
    ck_assert(!same(&one, &two));
    ck_assert(same(&one, &again) && same(&one, &new));
    mm_context_free(context);
    mm_context_free(fresh);
    mm_model_free(model);
}
END_TEST

START_TEST(router_noise_alone_is_reproducible_and_off_by_default)
{
    family quiet = { "", MINIMIND2 "\"intermediate_size\":9,\"use_moe\":true}", 0, false }, noisy = quiet;
    noisy.noise = 0.5f;
    mm_model *model = model_of(quiet.json, 25);
    mm_batch a = batch_for(model, &quiet, 1), b = batch_for(model, &quiet, 2);
    mm_context *without = context_with(model, &quiet, 1, 0, NULL), *with = context_with(model, &noisy, 1, 0, NULL);
    mm_context *again = context_with(model, &noisy, 3, 1, NULL);
    result plain_a = run(without, &a), plain_b = run(without, &b);
    result noisy_a = run(with, &a), noisy_b = run(with, &b), again_a = run(again, &a);
    ck_assert(same(&plain_a, &plain_b));
    ck_assert(!same(&plain_a, &noisy_a) && !same(&noisy_a, &noisy_b) && same(&noisy_a, &again_a));
    mm_context_options defaults = MM_CONTEXT_OPTIONS_INIT;
    ck_assert(defaults.router_noise == 0);
    mm_context_free(without);
    mm_context_free(with);
    mm_context_free(again);
    mm_model_free(model);
}
END_TEST

START_TEST(no_two_places_share_a_stream)
{
    enum { LAYERS = 5, NETWORKS = 9, SITES = MMI_SITE_MLP + 1, ALL = LAYERS * NETWORKS * SITES };
    uint64_t streams[ALL];
    mm_model *model = model_of(families[9].json, 26);
    mm_context *context = context_with(model, &families[9], 1, 0, NULL);
    mmi_pass pass = { .mode = MM_TRAIN, .seed = 3 };
    for (int i = 0; i < ALL; i++) {
        streams[i] = mmi_context_dropout(context, &pass, (mmi_site)(i % SITES), i / SITES % LAYERS, i / SITES / LAYERS).stream;
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(streams[i], streams[j]);
    }
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(a_batch_that_counts_no_target_has_no_auxiliary_loss_and_no_gradient)
{
    const family *f = &families[1];
    mm_model *model = model_of(f->json, 27);
    mm_batch batch = batch_for(model, f, 1);
    int32_t none[B * T];
    for (int i = 0; i < B * T; i++)
        none[i] = -100;
    batch.targets = none;
    mm_context *context = context_with(model, f, 1, 0, NULL);
    result r = run(context, &batch);
    ck_assert(r.loss == 0 && r.aux == 0);
    for (int64_t i = 0; i < r.n_gradients; i++)
        ck_assert(r.gradients[i] == 0);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(without_the_loss_experts_balance_whatever_counts)
{
    const family *f = &families[1];
    mm_model *model = model_of(f->json, 29);
    mm_batch batch = batch_for(model, f, 1);
    mm_context *context = context_with(model, f, 1, 0, NULL);
    mm_backward_options back = MM_BACKWARD_OPTIONS_INIT;
    int32_t none[B * T];
    float *gradients[2];
    int64_t n;
    double norm;
    back.loss_scale = 0;
    for (int i = 0; i < B * T; i++)
        none[i] = -100;
    for (int i = 0; i < 2; i++) {
        ck_ok(mm_zero_grad(context));
        forward_backward(context, &batch, &back);
        gradients[i] = all_gradients(context, &n);
        batch.targets = none;
    }
    ck_ok(mm_grad_norm(context, &norm));
    ck_assert(norm > 0);
    ck_assert(same_bits(gradients[0], gradients[1], n));
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(an_expert_without_tokens_has_gradient_zero)
{
    const family *f = &families[5];
    mm_model *model = model_of(f->json, 28);
    mm_batch batch = batch_for(model, f, 1);
    mm_context *context = context_with(model, f, 1, 0, NULL);
    mm_tensor_info info = MM_TENSOR_INFO_INIT;
    int64_t zero = 0;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        if (info.module == MM_MODULE_MOE_ROUTER) { /* all logits equal: the first expert is everybody's */
            ck_ok(mm_model_write(model, i, &view));
            memset(view.data, 0, (size_t)info.elements * sizeof(float));
            mm_model_written(model);
        }
    }
    run(context, &batch);
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view grad;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        ck_ok(mm_grad(context, i, &grad));
        double size = 0;
        for (int64_t j = 0; j < info.elements; j++)
            size += fabs(((float *)grad.data)[j]);
        if (info.module == MM_MODULE_MOE_EXPERTS) {
            ck_assert_msg((size == 0) == (info.expert > 0), "%s: gradient of size %g", info.name, size);
            zero += size == 0;
        }
    }
    ck_assert_int_eq(zero, 2 * 3 * 3);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/family", &tests);
    tcase_add_loop_test(tests, losses_and_gradients_with_all_masks_agree_with_the_reference, 0, FAMILIES);
    tcase_add_loop_test(tests, evaluation_drops_nothing_and_adds_neither_noise_nor_auxiliary_loss, 0, FAMILIES);
    tcase_add_loop_test(tests, threads_and_checkpointing_change_no_bit_on_any_kernel_path, 0, FAMILIES);
    tcase_add_loop_test(tests, the_seed_says_which_masks_and_which_noise, 0, FAMILIES);
    tcase_add_test(tests, router_noise_alone_is_reproducible_and_off_by_default);
    tcase_add_test(tests, no_two_places_share_a_stream);
    tcase_add_test(tests, a_batch_that_counts_no_target_has_no_auxiliary_loss_and_no_gradient);
    tcase_add_test(tests, without_the_loss_experts_balance_whatever_counts);
    tcase_add_test(tests, an_expert_without_tokens_has_gradient_zero);
    return run_suite(suite);
}
