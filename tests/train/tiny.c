#include "tiny.h"

#include <stdlib.h>
#include <string.h>

#include "../data/texts.h"

mm_config *tiny_config(void)
{
    mm_config *config = NULL;
    ck_ok(mm_config_create("minimind2-small", &config));
    ck_ok(mm_config_set_int(config, "hidden_size", 32));
    ck_ok(mm_config_set_int(config, "num_hidden_layers", 2));
    ck_ok(mm_config_set_int(config, "num_attention_heads", 4));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 2));
    ck_ok(mm_config_set_int(config, "intermediate_size", 48));
    ck_ok(mm_config_set_int(config, "vocab_size", 260));
    ck_ok(mm_config_set_int(config, "max_position_embeddings", 128));
    return config;
}

static mm_model *make_model(uint64_t seed, double dropout, bool moe)
{
    mm_config *config = tiny_config();
    mm_model *model = NULL;
    ck_ok(mm_config_set_float(config, "dropout", dropout));
    if (moe)
        ck_ok(mm_config_set_bool(config, "use_moe", 1));
    ck_ok(mm_model_create(config, seed, &model));
    mm_config_free(config);
    return model;
}

mm_model *tiny_model(uint64_t seed)
{
    return make_model(seed, 0, false);
}

tiny_options tiny_defaults(const char *rows)
{
    tiny_options o = { MM_TRAINER_OPTIONS_INIT, MM_LOADER_OPTIONS_INIT, rows, 1, 0, false };
    o.loader.batch = 3;
    o.loader.max_length = 24;
    o.loader.seed = 11;
    o.trainer.epochs = 2;
    o.trainer.learning_rate = 3e-3;
    o.trainer.accumulation_steps = 3;
    o.trainer.threads = 1;
    return o;
}

mm_status tiny_try(tiny_run *run, const tiny_options *options)
{
    memset(run, 0, sizeof *run);
    run->model = make_model(options->weights, options->dropout, options->moe);
    run->tokenizer = byte_tokenizer();
    ck_ok(mm_dataset_open(options->path, &run->dataset));
    ck_ok(mm_loader_create(run->dataset, run->tokenizer, &options->loader, &run->loader));
    return mm_trainer_create(run->model, run->loader, run->tokenizer, &options->trainer, &run->trainer);
}

void tiny_start(tiny_run *run, const tiny_options *options)
{
    ck_ok(tiny_try(run, options));
}

void tiny_end(tiny_run *run)
{
    mm_trainer_free(run->trainer);
    mm_loader_free(run->loader);
    mm_dataset_free(run->dataset);
    mm_tokenizer_free(run->tokenizer);
    mm_model_free(run->model);
    memset(run, 0, sizeof *run);
}

float *tiny_weights(const mm_model *model, size_t *count)
{
    float *all = NULL;
    *count = 0;
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view;
        ck_ok(mm_model_tensor(model, i, &view));
        size_t n = (size_t)(view.shape[0] * view.shape[1]);
        all = realloc(all, (*count + n) * sizeof *all);
        memcpy(all + *count, view.data, n * sizeof *all);
        *count += n;
    }
    return all;
}

void tiny_check_same(const tiny_run *run, const tiny_run *expected)
{
    size_t n, m;
    float *a = tiny_weights(run->model, &n), *b = tiny_weights(expected->model, &m);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT, q = MM_TRAIN_PROGRESS_INIT;
    ck_assert_uint_eq(n, m);
    ck_assert_msg(memcmp(a, b, n * sizeof *a) == 0, "the weights differ by %g", relative_error(a, b, n));
    ck_ok(mm_trainer_progress(run->trainer, &p));
    ck_ok(mm_trainer_progress(expected->trainer, &q));
    ck_assert_int_eq(p.step, q.step);
    ck_assert_int_eq(p.epoch, q.epoch);
    ck_assert_int_eq(p.epoch_step, q.epoch_step);
    ck_assert_int_eq(p.updates, q.updates);
    ck_assert_int_eq(p.tokens, q.tokens);
    ck_assert(p.loss == q.loss);
    ck_assert(p.learning_rate == q.learning_rate);
    ck_assert(p.grad_norm == q.grad_norm);
    free(a);
    free(b);
}

int64_t tiny_steps(const tiny_run *run)
{
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run->trainer, &p));
    return p.step;
}
