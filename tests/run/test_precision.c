/* Forward and backward with products of bf16 and f16 operands: near float32, the same bits for any number of threads, and
 * everything that is not a product as precise as ever. */
#include <math.h>
#include <string.h>

#include "others.h"
#include "run/context.h"
#include "run/models.h"

#define OUTPUTS (MM_OUT_LOSS | MM_OUT_LOGITS)

static const int32_t types[] = { MM_BF16, MM_F16 };
#define TYPES ((int)(sizeof types / sizeof types[0]))

static mm_context *context_in(mm_model *model, const mm_batch *batch, int32_t compute, int32_t threads,
                              const char *kernels)
{
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *context = NULL;
    o.mode = MM_TRAIN;
    o.max_batch = batch->batch;
    o.max_length = batch->length;
    o.outputs = OUTPUTS;
    o.threads = threads;
    o.kernels = kernels;
    o.compute = compute;
    ck_ok(mm_context_create(model, &o, &context));
    return context;
}

typedef struct pass {
    float *logits, *gradients;
    int64_t n_logits, n_gradients;
    double loss;
} pass;

static pass run(mm_model *model, const mm_batch *batch, int32_t compute, int32_t threads, const char *kernels,
                const mm_backward_options *options)
{
    pass p = { 0 };
    mm_context *context = context_in(model, batch, compute, threads, kernels);
    mm_output out = MM_OUTPUT_INIT;
    uint64_t before = allocations();
    ck_ok(mm_forward(context, batch, &out));
    ck_ok(mm_backward(context, options));
    ck_assert_uint_eq(allocations(), before);
    p.loss = out.loss;
    p.logits = copy_view(&out.logits);
    p.n_logits = (int64_t)batch->batch * batch->length * vocab_of(model);
    p.gradients = all_gradients(context, &p.n_gradients);
    mm_context_free(context);
    return p;
}

static double logits_error(const pass *p, const pass *exact)
{
    return relative_error(p->logits, exact->logits, (size_t)p->n_logits);
}

static double gradients_error(const pass *p, const pass *exact)
{
    return relative_error(p->gradients, exact->gradients, (size_t)p->n_gradients);
}

/* Half a unit in the last place of a product's operands is 2^-9 of them in bf16, 2^-12 in float16. The errors of a sum's
 * terms add up like random steps, so a product is off by about as much; a dozen products follow one another here, there
 * and back. */
static double bound_of(int32_t type)
{
    return 12 * (type == MM_BF16 ? 0x1p-9 : 0x1p-12);
}

/* A ReLU's slope jumps: a unit whose input is nearer to 0 than it is off changes sides, and of so few units one alone
 * is some percent of the gradient. */
static double gradient_bound_of(int32_t type, int model)
{
    return strstr(tiny_models[model].json, "relu") ? 0.2 : bound_of(type);
}

START_TEST(logits_and_gradients_stay_near_those_of_float32)
{
    test_rng rng = { 700 };
    mm_model *model = nth_model(_i, 7);
    mm_batch batch = random_batch(model, 3, 21, MM_TRAIN, &rng);
    EACH_KERNELS (k) {
        pass exact = run(model, &batch, MM_F32, 1, mm_kernels_name(k), NULL);
        for (int t = 0; t < TYPES; t++) {
            double bound = bound_of(types[t]);
            pass p = run(model, &batch, types[t], 1, mm_kernels_name(k), NULL);
            double logits = logits_error(&p, &exact), gradients = gradients_error(&p, &exact);
            ck_assert_msg(logits < bound && gradients < gradient_bound_of(types[t], _i) && fabs(p.loss - exact.loss) < bound * exact.loss,
                          "%s, %s, %s: logits are off by %.2e, gradients by %.2e, the loss by %.2e", tiny_models[_i].name,
                          mm_kernels_name(k), mm_dtype_name(types[t]), logits, gradients, p.loss - exact.loss);
            ck_assert_msg(logits > 0x1p-14 && gradients > 0x1p-14, "%s, %s: nothing was rounded (%.2e, %.2e)",
                          mm_kernels_name(k), mm_dtype_name(types[t]), logits, gradients);
        }
        ck_assert(gradients_error(&exact, &exact) == 0);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits)
{
    static const int32_t counts[] = { 2, 3, 8 };
    static const char wide[] =
        "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":136,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":36,\"vocab_size\":311,\"intermediate_size\":290,\"max_position_embeddings\":512}";
    test_rng rng = { 701 };
    mm_model *model = _i < all_count ? nth_model(_i, 7) : model_of(wide, 7);
    mm_batch batch = _i < all_count ? random_batch(model, 2, 9, MM_TRAIN, &rng) :
                                      random_batch(model, 2, 70, MM_TRAIN, &rng);
    EACH_KERNELS (k)
        for (int t = 0; t < TYPES; t++) {
            pass one = run(model, &batch, types[t], 1, mm_kernels_name(k), NULL);
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                pass many = run(model, &batch, types[t], counts[i], mm_kernels_name(k), NULL);
                ck_assert_msg(one.loss == many.loss && same_bits(one.logits, many.logits, one.n_logits) &&
                                  same_bits(one.gradients, many.gradients, one.n_gradients),
                              "%s, %s: %d threads give other bits than 1", mm_kernels_name(k),
                              mm_dtype_name(types[t]), counts[i]);
            }
        }
    mm_model_free(model);
}
END_TEST

START_TEST(small_gradients_are_lost_in_float16_unless_the_loss_is_scaled)
{
    test_rng rng = { 702 };
    mm_model *model = nth_model(0, 7);
    mm_batch batch = random_batch(model, 3, 21, MM_TRAIN, &rng);
    mm_backward_options small = MM_BACKWARD_OPTIONS_INIT;
    small.normalizer = 1e9; /* as if this were a part of so large a batch */
    pass exact = run(model, &batch, MM_F32, 1, NULL, &small), lost = run(model, &batch, MM_F16, 1, NULL, &small);
    pass bf16 = run(model, &batch, MM_BF16, 1, NULL, &small);
    small.loss_scale = 0x1p24;
    pass scaled = run(model, &batch, MM_F16, 1, NULL, &small);
    for (int64_t i = 0; i < scaled.n_gradients; i++)
        scaled.gradients[i] *= 0x1p-24f;
    ck_assert_double_gt(gradients_error(&lost, &exact), 0.5);
    ck_assert_double_lt(gradients_error(&scaled, &exact), bound_of(MM_F16));
    ck_assert_double_lt(gradients_error(&bf16, &exact), bound_of(MM_BF16));
    mm_model_free(model);
}
END_TEST

START_TEST(a_loss_scaled_beyond_float16_shows_in_the_norm)
{
    test_rng rng = { 703 };
    mm_model *model = nth_model(0, 7);
    mm_batch batch = random_batch(model, 3, 21, MM_TRAIN, &rng);
    mm_backward_options large = MM_BACKWARD_OPTIONS_INIT;
    large.loss_scale = 0x1p40;
    for (int32_t compute = MM_F32; compute <= MM_F16; compute++) {
        double norm;
        mm_context *context = context_in(model, &batch, compute, 1, NULL);
        forward_backward(context, &batch, &large);
        ck_ok(mm_grad_norm(context, &norm));
        ck_assert_msg(isfinite(norm) == (compute != MM_F16), "%s: the norm is %g", mm_dtype_name(compute), norm);
        mm_context_free(context);
    }
    mm_model_free(model);
}
END_TEST

/* One step of an optimizer with the gradients of `from`, on a copy of `model` whose context computes in `compute`. */
static float *weights_after(mm_model *model, const mm_batch *batch, mm_context *from, int32_t compute, bool muon)
{
    mm_model *copy = NULL;
    mm_optimizer *optimizer = NULL;
    mm_view view;
    mm_step step = MM_STEP_INIT;
    ck_ok(mm_model_copy(model, &copy));
    ck_ok(muon ? mm_muon_create(copy, NULL, &optimizer) : mm_adamw_create(copy, NULL, &optimizer));
    mm_context *context = context_in(copy, batch, compute, 1, NULL);
    ck_ok(mm_grad_add(context, from, 1));
    ck_ok(mm_optimizer_step(optimizer, context, &step));
    ck_ok(mm_model_find(copy, "model.layers.0.mlp.up_proj.weight", &view));
    float *weights = copy_view(&view);
    mm_context_free(context);
    mm_optimizer_free(optimizer);
    mm_model_free(copy);
    return weights;
}

START_TEST(optimizers_do_not_round)
{
    test_rng rng = { 704 };
    mm_model *model = nth_model(0, 7);
    mm_batch batch = random_batch(model, 2, 9, MM_TRAIN, &rng);
    mm_context *from = context_in(model, &batch, MM_F32, 1, NULL);
    forward_backward(from, &batch, NULL);
    for (int muon = 0; muon < 2; muon++) {
        float *exact = weights_after(model, &batch, from, MM_F32, muon);
        for (int t = 0; t < TYPES; t++)
            ck_assert(same_bits(weights_after(model, &batch, from, types[t], muon), exact, 24 * 40));
    }
    mm_context_free(from);
    mm_model_free(model);
}
END_TEST

/* Weights that bf16 holds exactly are the same whether they are kept so or rounded on the way. */
START_TEST(weights_of_fewer_bits_are_rounded_no_further)
{
    test_rng rng = { 705 };
    mm_model *model = nth_model(0, 7), *narrow = NULL, *wide = NULL;
    ck_ok(mm_model_cast(model, MM_BF16, &narrow));
    ck_ok(mm_model_cast(narrow, MM_F32, &wide));
    for (int32_t length = 1; length <= 17; length += 16) { /* few rows and many */
        mm_batch batch = random_batch(model, 1, length, MM_EVAL, &rng);
        mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
        mm_output a = MM_OUTPUT_INIT, b = MM_OUTPUT_INIT;
        mm_context *one = NULL, *two = NULL;
        o.max_length = length;
        o.outputs = MM_OUT_LOGITS;
        o.threads = 1;
        o.compute = MM_BF16;
        batch.targets = NULL;
        ck_ok(mm_context_create(narrow, &o, &one));
        ck_ok(mm_context_create(wide, &o, &two));
        ck_ok(mm_forward(one, &batch, &a));
        ck_ok(mm_forward(two, &batch, &b));
        ck_assert(same_bits(a.logits.data, b.logits.data, (int64_t)length * vocab_of(model)));
        mm_context_free(one);
        mm_context_free(two);
    }
    mm_model_free(wide);
    mm_model_free(narrow);
    mm_model_free(model);
}
END_TEST

/* A pass for the loss alone goes back through the head on the way forward. */
START_TEST(gradients_of_the_loss_alone_are_as_near)
{
    test_rng rng = { 707 };
    mm_model *model = nth_model(0, 7);
    mm_batch batch = random_batch(model, 3, 21, MM_TRAIN, &rng);
    batch.outputs = MM_OUT_LOSS;
    for (int t = 0; t < TYPES; t++) {
        float *exact = NULL;
        for (int32_t threads = 0; threads <= 3; threads++) {
            int64_t n;
            mm_context *context = context_in(model, &batch, threads ? types[t] : MM_F32, threads ? threads : 1, NULL);
            forward_backward(context, &batch, NULL);
            float *gradients = all_gradients(context, &n);
            ck_assert_double_le(threads ? relative_error(gradients, exact, (size_t)n) : 0, bound_of(types[t]));
            exact = threads ? exact : gradients;
            mm_context_free(context);
        }
    }
    mm_model_free(model);
}
END_TEST

START_TEST(fewer_bits_take_no_more_memory)
{
    test_rng rng = { 706 };
    mm_model *model = nth_model(0, 7);
    mm_batch batch = random_batch(model, 2, 9, MM_TRAIN, &rng);
    EACH_KERNELS (k) {
        uint64_t start = bytes_held(), held = 0;
        for (int32_t compute = MM_F32; compute <= MM_F16; compute++) {
            mm_context *context = context_in(model, &batch, compute, 2, mm_kernels_name(k));
            ck_assert(compute == MM_F32 || bytes_held() - start == held);
            held = bytes_held() - start;
            mm_context_free(context);
        }
    }
    mm_model_free(model);
}
END_TEST

START_TEST(nothing_is_computed_in_a_dtype_that_is_not_meant_for_it)
{
    static const int32_t others[] = { MM_I32, MM_I64, MM_Q8_0, MM_Q4_0, 99, -1 };
    mm_model *model = nth_model(0, 7);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
        mm_context *context = NULL;
        o.compute = others[i];
        ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
        ck_error_mentions("compute");
        ck_error_mentions("f32, bf16 or f16");
        ck_assert_ptr_null(context);
        o.compute = MM_F32;
        o.reserved = 1;
        ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
        ck_error_mentions("reserved");
    }
    mm_model_free(model);
}
END_TEST

/* The logits of so many random ids, in take()'s memory; with attention in float32 when *rounds is false, which comes
 * back as what the kernels' table says. */
static float *logits_of(mm_model *model, int32_t compute, const char *kernels, int32_t length, bool *rounds)
{
    test_rng rng = { 709 };
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_batch batch = random_batch(model, 1, length, MM_EVAL, &rng);
    mm_output out = MM_OUTPUT_INIT;
    mm_context *context = NULL;
    o.max_length = length;
    o.outputs = MM_OUT_LOGITS;
    o.kernels = kernels;
    o.compute = compute;
    ck_ok(mm_context_create(model, &o, &context));
    mmi_kernels *k = &context->exec.k;
    bool faster = k->round_attention && (compute == MM_BF16 || k->round_blocks > 0); /* AVX512-BF16 has no round_blocks */
    if (!*rounds)
        k->round_attention = 0;
    *rounds = faster;
    batch.targets = NULL;
    ck_ok(mm_forward(context, &batch, &out));
    float *logits = copy_view(&out.logits);
    mm_context_free(context);
    return logits;
}

/* Where the kernels' table says that this is faster, and nowhere else. */
START_TEST(attention_is_rounded_where_products_are)
{
    static const char plain[] =
        "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":128,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":101,"
        "\"intermediate_size\":160,\"max_position_embeddings\":128}";
    static const struct {
        int32_t weights, compute, length;
        bool rounds;
    } cases[] = { { MM_F32, MM_F32, 70, false },
                  { MM_F32, MM_F16, 70, false },
                  { MM_F32, MM_BF16, 70, true },
                  { MM_Q8_0, MM_F32, 70, true },
                  { MM_Q8_0, MM_F32, 40, false } };
    mm_model *wide = model_of(plain, 7), *model = wide;
    if (cases[_i].weights != MM_F32)
        ck_ok(mm_model_quantize(wide, cases[_i].weights, &model));
    EACH_KERNELS (p) {
        bool as_is = true, exact = false;
        const char *kernels = mm_kernels_name(p);
        float *a = logits_of(model, cases[_i].compute, kernels, cases[_i].length, &as_is);
        float *b = logits_of(model, cases[_i].compute, kernels, cases[_i].length, &exact);
        bool rounds = cases[_i].rounds && as_is;
        ck_assert_msg(same_bits(a, b, cases[_i].length * vocab_of(model)) != rounds, "%s: attention is %srounded",
                      kernels, rounds ? "not " : "");
    }
    if (model != wide)
        mm_model_free(model);
    mm_model_free(wide);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/precision", &tests);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, logits_and_gradients_stay_near_those_of_float32, 0, tiny_count);
    tcase_add_loop_test(tests, any_number_of_threads_gives_the_same_bits, tiny_count, all_count + 1);
    tcase_add_test(tests, small_gradients_are_lost_in_float16_unless_the_loss_is_scaled);
    tcase_add_test(tests, a_loss_scaled_beyond_float16_shows_in_the_norm);
    tcase_add_test(tests, optimizers_do_not_round);
    tcase_add_test(tests, weights_of_fewer_bits_are_rounded_no_further);
    tcase_add_test(tests, gradients_of_the_loss_alone_are_as_near);
    tcase_add_test(tests, fewer_bits_take_no_more_memory);
    tcase_add_test(tests, nothing_is_computed_in_a_dtype_that_is_not_meant_for_it);
    tcase_add_loop_test(tests, attention_is_rounded_where_products_are, 0, 5);
    return run_suite(suite);
}
