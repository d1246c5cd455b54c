/* Muon against its recipe in double precision, and around it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run/models.h"

#define LENGTH 9
#define MOMENTUM 0.9
#define DECAY 0.1
#define RATE 0.03

static mm_context *context_for(mm_model *model, int32_t threads, const char *kernels)
{
    return context_on(model, MM_TRAIN, 2, LENGTH, 0, threads, kernels);
}

static mm_optimizer *muon_for(mm_model *model)
{
    mm_muon_options o = MM_MUON_OPTIONS_INIT;
    mm_optimizer *optimizer = NULL;
    o.momentum = MOMENTUM;
    o.weight_decay = DECAY;
    ck_ok(mm_muon_create(model, &o, &optimizer));
    return optimizer;
}

static void fill_gradients(mm_context *context, unsigned seed)
{
    test_rng rng = { seed };
    for (int64_t i = 0; i < mm_model_tensor_count(mm_context_model(context)); i++) {
        mm_view view;
        ck_ok(mm_grad(context, i, &view));
        rng_fill(&rng, view.data, (size_t)(view.shape[0] * view.shape[1]), 1);
    }
}

/* --- The recipe --- */

/* out [M, N] = a [M, K] · b [K, N] */
static void multiply(double *out, const double *a, const double *b, int64_t M, int64_t K, int64_t N)
{
    memset(out, 0, (size_t)(M * N) * sizeof *out);
    for (int64_t i = 0; i < M; i++)
        for (int64_t k = 0; k < K; k++)
            for (int64_t j = 0; j < N; j++)
                out[i * N + j] += a[i * K + k] * b[k * N + j];
}

/* Five times X = a X + b (X Xᵀ) X + c (X Xᵀ)² X, from X of norm 1. */
static void orthogonalize(double *X, int64_t R, int64_t C)
{
    double norm = 0, *Xt = take(R * C, sizeof *Xt), *G = take(R * R, sizeof *G), *once = take(R * C, sizeof *once),
           *twice = take(R * C, sizeof *twice);
    for (int64_t i = 0; i < R * C; i++)
        norm += X[i] * X[i];
    for (int64_t i = 0; i < R * C; i++)
        X[i] /= sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; step++) {
        for (int64_t i = 0; i < R * C; i++)
            Xt[i % C * R + i / C] = X[i];
        multiply(G, X, Xt, R, C, R);
        multiply(once, G, X, R, R, C);
        multiply(twice, G, once, R, R, C);
        for (int64_t i = 0; i < R * C; i++)
            X[i] = 3.4445 * X[i] - 4.7750 * once[i] + 2.0315 * twice[i];
    }
}

/* One step of a matrix; scale: of clipping. */
static void muon64(double *w, double *m, const float *g, int64_t R, int64_t C, double scale)
{
    double *X = take(R * C, sizeof *X);
    for (int64_t i = 0; i < R * C; i++) {
        m[i] = MOMENTUM * m[i] + scale * g[i];
        X[i] = MOMENTUM * m[i] + scale * g[i];
    }
    orthogonalize(X, R, C);
    for (int64_t i = 0; i < R * C; i++)
        w[i] = w[i] * (1 - RATE * DECAY) - RATE * 0.2 * sqrt((double)(R > C ? R : C)) * X[i];
}

static bool is_muons(const mm_tensor_info *info)
{
    return info->rank == 2 && info->layer >= 0 && !strstr(info->name, "mlp.gate.weight");
}

/* Its network's matrices are moved in more pieces than one of 2^14 numbers. */
static const char wide[] = "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":96,"
                           "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":67,"
                           "\"intermediate_size\":200,\"max_position_embeddings\":64}";

static mm_model *model_number(int index)
{
    return index < all_count ? nth_model(index, 5) : model_of(wide, 5);
}

/* Five iterations grow a rounding in single precision by at most 3.4⁵, most of it for singular values next to 0. */
START_TEST(matrices_move_as_the_recipe_says_and_the_rest_as_adamw)
{
    mm_model *model = model_number(_i), *twin = model_number(_i);
    for (int32_t k = 0; k < mm_kernels_count(); k += mm_kernels_count() - 1) {
        mm_context *context = context_for(model, 1, mm_kernels_name(k)),
                   *other = context_for(twin, 1, mm_kernels_name(k));
        mm_optimizer *optimizer = muon_for(model), *adamw = NULL;
        mm_adamw_options a = MM_ADAMW_OPTIONS_INIT;
        int64_t count = mm_model_tensor_count(model);
        double **w = take(count, sizeof *w), **m = take(count, sizeof *m);
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        mm_view view, g;
        a.weight_decay = DECAY;
        ck_ok(mm_adamw_create(twin, &a, &adamw));
        for (int64_t i = 0; i < count; i++) {
            ck_ok(mm_model_tensor(model, i, &view));
            w[i] = take_doubles(view.data, view.shape[0] * view.shape[1]);
            m[i] = take(view.shape[0] * view.shape[1], sizeof **m);
        }
        for (unsigned s = 0; s < 2; s++) {
            mm_step step = MM_STEP_INIT;
            step.learning_rate = RATE;
            step.max_grad_norm = 5;
            fill_gradients(context, s);
            fill_gradients(other, s);
            ck_ok(mm_optimizer_step(optimizer, context, &step));
            for (int64_t i = 0; i < count; i++) {
                ck_ok(mm_layout_get(mm_model_config(model), i, &info));
                ck_ok(mm_grad(context, i, &g));
                if (is_muons(&info))
                    muon64(w[i], m[i], g.data, info.shape[0], info.shape[1], fmin(1, 5 / (step.grad_norm + 1e-6)));
            }
            ck_ok(mm_optimizer_step(adamw, other, &step));
        }
        for (int64_t i = 0; i < count; i++) {
            mm_view same;
            ck_ok(mm_layout_get(mm_model_config(model), i, &info));
            ck_ok(mm_model_tensor(model, i, &view));
            ck_ok(mm_model_tensor(twin, i, &same));
            if (is_muons(&info))
                ck_close(view.data, w[i], info.elements, 2e-4, info.name);
            else
                ck_assert_msg(same_bits(view.data, same.data, info.elements), "%s", info.name);
        }
        mm_optimizer_free(optimizer);
        mm_optimizer_free(adamw);
        mm_context_free(context);
        mm_context_free(other);
        if (mm_kernels_count() == 1)
            break;
    }
    mm_model_free(model);
    mm_model_free(twin);
}
END_TEST

static float *weights_after(int32_t threads, const char *kernels, int64_t *n)
{
    mm_model *model = nth_model(0, 5);
    mm_context *context = context_for(model, threads, kernels);
    mm_optimizer *optimizer = muon_for(model);
    mm_step step = MM_STEP_INIT;
    step.learning_rate = RATE;
    fill_gradients(context, 3);
    ck_ok(mm_optimizer_step(optimizer, context, &step));
    *n = 0;
    float *all = take_floats(1 << 17, 0);
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view;
        ck_ok(mm_model_tensor(model, i, &view));
        int64_t elements = view.shape[0] * view.shape[1];
        ck_assert_int_le(*n + elements, 1 << 17);
        memcpy(all + *n, view.data, (size_t)elements * sizeof *all);
        *n += elements;
    }
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_model_free(model);
    return all;
}

START_TEST(any_number_of_threads_gives_the_same_bits)
{
    for (int32_t k = 0; k < mm_kernels_count(); k++) {
        int64_t n;
        float *one = weights_after(1, mm_kernels_name(k), &n);
        for (int32_t threads = 2; threads <= 3; threads++)
            ck_assert(same_bits(one, weights_after(threads, mm_kernels_name(k), &n), n));
    }
}
END_TEST

START_TEST(saved_momentum_goes_on_to_the_same_bits)
{
    char path[512];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", scratch_directory());
    mm_model *models[2] = { nth_model(8, 5), nth_model(8, 5) };
    mm_optimizer *adamw = NULL;
    for (int i = 0; i < 2; i++) {
        mm_context *context = context_for(models[i], 1, NULL);
        mm_optimizer *optimizer = muon_for(models[i]);
        for (unsigned s = 0; s < 3; s++) {
            mm_step step = MM_STEP_INIT;
            step.learning_rate = RATE;
            fill_gradients(context, s);
            if (i == 1 && s == 2) {
                ck_ok(mm_optimizer_save(optimizer, path));
                mm_optimizer_free(optimizer);
                optimizer = muon_for(models[i]);
                ck_ok(mm_optimizer_load(optimizer, path));
                ck_assert_int_eq(mm_optimizer_steps(optimizer), 2);
            }
            ck_ok(mm_optimizer_step(optimizer, context, &step));
        }
        mm_optimizer_free(optimizer);
        mm_context_free(context);
    }
    for (int64_t i = 0; i < mm_model_tensor_count(models[0]); i++) {
        mm_view a, b;
        ck_ok(mm_model_tensor(models[0], i, &a));
        ck_ok(mm_model_tensor(models[1], i, &b));
        ck_assert(same_bits(a.data, b.data, a.shape[0] * a.shape[1]));
    }
    ck_ok(mm_adamw_create(models[0], NULL, &adamw));
    ck_status(mm_optimizer_load(adamw, path), MM_ERR_FORMAT);
    mm_optimizer_free(adamw);
    mm_model_free(models[0]);
    mm_model_free(models[1]);
}
END_TEST

START_TEST(its_memory_is_what_the_estimate_says)
{
    mm_config *config = nth_config(_i);
    mm_model *model = nth_model(_i, 5);
    mm_workload w = MM_WORKLOAD_INIT;
    mm_memory none = MM_MEMORY_INIT, muon = MM_MEMORY_INIT, adamw = MM_MEMORY_INIT;
    mm_optimizer *optimizer = NULL;
    w.mode = MM_TRAIN;
    w.max_length = LENGTH;
    ck_ok(mm_estimate_memory(config, &w, &none));
    w.optimizer = 1;
    ck_ok(mm_estimate_memory(config, &w, &adamw));
    w.optimizer = 2;
    ck_ok(mm_estimate_memory(config, &w, &muon));
    uint64_t start = bytes_held();
    ck_ok(mm_muon_create(model, NULL, &optimizer));
    ck_assert_int_eq((int64_t)(bytes_held() - start), muon.total - none.total);
    w.optimizer = 3;
    ck_status(mm_estimate_memory(config, &w, &muon), MM_ERR_ARG);
    mm_optimizer_free(optimizer);
    mm_model_free(model);
    mm_config_free(config);
}
END_TEST

START_TEST(steps_allocate_nothing_and_zero_gradients_do_no_harm)
{
    mm_model *model = nth_model(0, 5);
    mm_context *context = context_for(model, 1, NULL);
    mm_optimizer *optimizer = muon_for(model);
    mm_step step = MM_STEP_INIT;
    step.learning_rate = RATE;
    uint64_t counted = allocations();
    ck_ok(mm_optimizer_step(optimizer, context, &step));
    ck_assert_uint_eq(allocations(), counted);
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view;
        ck_ok(mm_model_tensor(model, i, &view));
        ck_assert(all_finite(view.data, view.shape[0] * view.shape[1]));
    }
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(options_that_make_no_muon_are_refused)
{
    mm_model *model = nth_model(0, 5), *half = NULL;
    mm_optimizer *optimizer = NULL;
    const double momenta[] = { -0.1, 1, NAN };
    for (int i = 0; i < 3; i++) {
        mm_muon_options o = MM_MUON_OPTIONS_INIT;
        o.momentum = momenta[i];
        ck_status(mm_muon_create(model, &o, &optimizer), MM_ERR_ARG);
        ck_error_mentions("momentum");
    }
    mm_muon_options o = MM_MUON_OPTIONS_INIT;
    o.beta2 = 1;
    ck_status(mm_muon_create(model, &o, &optimizer), MM_ERR_ARG);
    o = (mm_muon_options)MM_MUON_OPTIONS_INIT;
    o.trainable = "nothing";
    ck_status(mm_muon_create(model, &o, &optimizer), MM_ERR_ARG);
    ck_status(mm_muon_create(NULL, NULL, &optimizer), MM_ERR_ARG);
    ck_status(mm_muon_create(model, NULL, NULL), MM_ERR_ARG);
    ck_ok(mm_model_cast(model, MM_BF16, &half));
    ck_status(mm_muon_create(half, NULL, &optimizer), MM_ERR_STATE);
    ck_assert_ptr_null(optimizer);
    mm_model_free(model);
    mm_model_free(half);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("train/muon", &tests);
    tcase_add_loop_test(tests, matrices_move_as_the_recipe_says_and_the_rest_as_adamw, 0, all_count + 1);
    tcase_add_test(tests, any_number_of_threads_gives_the_same_bits);
    tcase_add_test(tests, saved_momentum_goes_on_to_the_same_bits);
    tcase_add_loop_test(tests, its_memory_is_what_the_estimate_says, 0, all_count);
    tcase_add_test(tests, steps_allocate_nothing_and_zero_gradients_do_no_harm);
    tcase_add_test(tests, options_that_make_no_muon_are_refused);
    return run_suite(suite);
}
