#include "tiny.h"

#include <stdio.h>
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

static mm_model *make_model(uint64_t seed, double dropout, bool moe, int64_t vocab_size, bool endless)
{
    mm_config *config = tiny_config();
    mm_model *model = NULL;
    ck_ok(mm_config_set_float(config, "dropout", dropout));
    if (moe)
        ck_ok(mm_config_set_bool(config, "use_moe", 1));
    if (vocab_size > 0)
        ck_ok(mm_config_set_int(config, "vocab_size", vocab_size));
    if (endless)
        ck_ok(mm_config_set_int(config, "eos_token_id", -1));
    ck_ok(mm_model_create(config, seed, &model));
    mm_config_free(config);
    return model;
}

mm_model *tiny_model(uint64_t seed)
{
    return make_model(seed, 0, false, 0, false);
}

mm_model *tiny_teacher(uint64_t seed)
{
    mm_config *config = tiny_config();
    mm_model *model = NULL;
    ck_ok(mm_config_set_int(config, "num_hidden_layers", 3));
    ck_ok(mm_config_set_int(config, "vocab_size", 264));
    ck_ok(mm_config_set_bool(config, "use_moe", 1));
    ck_ok(mm_model_create(config, seed, &model));
    mm_config_free(config);
    return model;
}

tiny_options tiny_defaults(const char *rows)
{
    tiny_options o = {
        .trainer = MM_TRAINER_OPTIONS_INIT, .loader = MM_LOADER_OPTIONS_INIT, .path = rows, .weights = 1
    };
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
    run->model = make_model(options->weights, options->dropout, options->moe, options->vocab_size, options->endless);
    if (options->tokenizer_directory)
        ck_ok(mm_tokenizer_load(options->tokenizer_directory, &run->tokenizer));
    else
        run->tokenizer = byte_tokenizer();
    mm_dataset_options d = MM_DATASET_OPTIONS_INIT;
    d.paths = &options->path;
    d.count = 1;
    d.weights = options->weight > 0 ? &options->weight : NULL;
    ck_ok(mm_dataset_create(&d, &run->dataset));
    ck_ok(mm_loader_create(run->dataset, run->tokenizer, &options->loader, &run->loader));
    mm_trainer_options o = options->trainer;
    if (options->rank > 0) {
        mm_adapter_options a = MM_ADAPTER_OPTIONS_INIT;
        a.rank = options->rank;
        a.dropout = options->dropout;
        a.seed = options->weights;
        a.targets = options->targets ? options->targets : "all-linear";
        ck_ok(mm_adapter_create(run->model, &a, &run->adapter));
        o.adapter = run->adapter;
    }
    mm_model *teacher = o.teacher = options->teacher ? tiny_teacher(options->teacher) : o.teacher;
    if (options->validation) {
        mm_loader_options l = options->loader;
        l.shuffle = 0;
        if (options->validation_whole) {
            l.rank = 0;
            l.world = 1;
        }
        l.max_length = options->validation_length ? options->validation_length : l.max_length;
        ck_ok(mm_dataset_open(options->validation, &run->validation_rows));
        ck_ok(mm_loader_create(run->validation_rows, run->tokenizer, &l, &run->validation));
        o.validation = run->validation;
    }
    mm_status status = mm_trainer_create(run->model, run->loader, run->tokenizer, &o, &run->trainer);
    if (options->teacher)
        mm_model_free(teacher);
    return status;
}

void tiny_start(tiny_run *run, const tiny_options *options)
{
    ck_ok(tiny_try(run, options));
}

void tiny_end(tiny_run *run)
{
    mm_trainer_free(run->trainer);
    mm_loader_free(run->validation);
    mm_dataset_free(run->validation_rows);
    mm_loader_free(run->loader);
    mm_dataset_free(run->dataset);
    mm_tokenizer_free(run->tokenizer);
    mm_adapter_free(run->adapter);
    mm_model_free(run->model);
    memset(run, 0, sizeof *run);
}

const char *const tiny_kind_names[TINY_KINDS] = {
    "text", "chat", "dpo", "distill", "cached", "muon", "lora", "lora_dpo"
};

const char *tiny_conversations(const char *directory, const char *name, bool pairs, int rows, unsigned seed)
{
    static const char head[] = "[{\"role\": \"user\", \"content\": ";
    char bytes[16384];
    size_t size = 0;
    test_rng rng = { seed };
    for (int i = 0; i < rows; i++) {
        int a = rng_between(&rng, 0, 25), b = rng_between(&rng, 0, 25);
        char turns[256];
        snprintf(turns, sizeof turns, "%s\"%c%c?\"}, {\"role\": \"assistant\", \"content\": ", head, 'a' + a, 'a' + b);
        if (pairs)
            size += (size_t)snprintf(bytes + size, sizeof bytes - size,
                                     "{\"chosen\": %s\"%c%c%c\"}], \"rejected\": %s\"%c%c\"}]}\n", turns, 'A' + b,
                                     'A' + a, 'A' + b, turns, 'a' + a, 'a' + b);
        else
            size += (size_t)snprintf(bytes + size, sizeof bytes - size, "{\"conversations\": %s\"%c%c%c\"}]}\n", turns,
                                     'A' + b, 'A' + a, 'A' + b);
    }
    return put_file(directory, name, bytes, size);
}

/* Where a file of the directory is, which lives as long as the test: one of each kind. */
static const char *keep_path(int kind, const char *path)
{
    static char paths[2 * TINY_KINDS][640];
    snprintf(paths[kind], sizeof paths[0], "%s", path);
    return paths[kind];
}

static void write_cache(const tiny_options *o, const char *path)
{
    tiny_run run;
    mm_model *teacher = tiny_teacher(o->teacher);
    tiny_options plain = *o;
    plain.trainer.stage = MM_STAGE_PLAIN;
    plain.trainer.teacher_cache = NULL;
    plain.teacher = 0;
    tiny_start(&run, &plain);
    ck_ok(mm_distill_cache_write(teacher, run.loader, 20, 1, path));
    tiny_end(&run);
    mm_model_free(teacher);
}

tiny_options tiny_options_of(tiny_kind kind, const char *directory)
{
    bool pairs = kind == TINY_DPO || kind == TINY_LORA_DPO, talks = pairs || kind == TINY_CHAT;
    char name[600];
    snprintf(name, sizeof name, "%s.jsonl", tiny_kind_names[kind]);
    const char *path = talks ? tiny_conversations(directory, name, pairs, 13, 3) : put_rows(directory, name, 23, 12, 1);
    tiny_options o = tiny_defaults(keep_path(kind, path));
    if (talks) {
        o.loader.kind = pairs ? MM_ROW_PREFERENCE : MM_ROW_CHAT;
        o.loader.template_name = "minimind2";
        o.loader.max_length = 96; /* a system message of the template's own, byte by byte */
        o.loader.batch = pairs ? 2 : 3;
        o.trainer.epochs = 4;
    }
    if (kind == TINY_MUON)
        o.trainer.optimizer = MM_OPTIMIZER_MUON;
    if (kind == TINY_LORA || kind == TINY_LORA_DPO)
        o.rank = 3;
    if (pairs)
        o.trainer.stage = MM_STAGE_DPO;
    if (kind != TINY_DISTILL && kind != TINY_CACHED)
        return o;
    o.trainer.stage = MM_STAGE_DISTILL;
    o.teacher = 77;
    if (kind == TINY_CACHED) {
        snprintf(name, sizeof name, "%s/teacher.safetensors", directory);
        o.trainer.teacher_cache = keep_path(TINY_KINDS + kind, name);
        write_cache(&o, o.trainer.teacher_cache);
        o.teacher = 0;
    }
    return o;
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

float *tiny_adapter_weights(const mm_adapter *adapter, size_t *count)
{
    float *all = NULL;
    *count = 0;
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mm_view view;
        ck_ok(mm_adapter_tensor(adapter, i, &view));
        size_t n = (size_t)(view.shape[0] * view.shape[1]);
        all = realloc(all, (*count + n) * sizeof *all);
        memcpy(all + *count, view.data, n * sizeof *all);
        *count += n;
    }
    return all;
}

static void check_same_adapters(const mm_adapter *adapter, const mm_adapter *expected)
{
    size_t n, m;
    float *a = tiny_adapter_weights(adapter, &n), *b = tiny_adapter_weights(expected, &m);
    ck_assert_uint_eq(n, m);
    ck_assert_msg(n == 0 || memcmp(a, b, n * sizeof *a) == 0, "the adapters differ by %g", relative_error(a, b, n));
    free(a);
    free(b);
}

void tiny_check_same(const tiny_run *run, const tiny_run *expected)
{
    size_t n, m;
    float *a = tiny_weights(run->model, &n), *b = tiny_weights(expected->model, &m);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT, q = MM_TRAIN_PROGRESS_INIT;
    ck_assert_uint_eq(n, m);
    check_same_adapters(run->adapter, expected->adapter);
    ck_assert_msg(memcmp(a, b, n * sizeof *a) == 0, "the weights differ by %g", relative_error(a, b, n));
    ck_ok(mm_trainer_progress(run->trainer, &p));
    ck_ok(mm_trainer_progress(expected->trainer, &q));
    ck_assert_int_eq(p.step, q.step);
    ck_assert_int_eq(p.epoch, q.epoch);
    ck_assert_int_eq(p.epoch_step, q.epoch_step);
    ck_assert_int_eq(p.updates, q.updates);
    ck_assert_int_eq(p.tokens, q.tokens);
    ck_assert(p.loss == q.loss);
    ck_assert_int_eq(p.skipped_steps, q.skipped_steps);
    ck_assert_int_eq(p.evaluations, q.evaluations);
    ck_assert_int_eq(p.best_step, q.best_step);
    ck_assert(p.validation_loss == q.validation_loss);
    ck_assert(p.best_loss == q.best_loss);
    ck_assert(p.loss_scale == q.loss_scale);
    ck_assert_int_eq(p.metric_count, q.metric_count);
    for (int64_t i = 0; i < p.metric_count; i++)
        ck_assert(p.metrics[i].value == q.metrics[i].value);
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
