#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "data/dataset.h"
#include "data/hash.h"
#include "data/loader.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "train/optimizer.h"
#include "train/parallel.h"
#include "train/stage.h"

MMI_OPTIONS_INIT(mm_train_progress, MM_TRAIN_PROGRESS_INIT)
MMI_OPTIONS_INIT(mm_trainer_options, MM_TRAINER_OPTIONS_INIT)

mm_adamw_options mmi_trainer_adamw(const mm_trainer_options *o)
{
    mm_adamw_options a = MM_ADAMW_OPTIONS_INIT;
    a.beta1 = o->beta1;
    a.beta2 = o->beta2;
    a.eps = o->eps;
    a.weight_decay = o->weight_decay;
    return a;
}

static mm_status check_number(const char *name, double value)
{
    if (value >= 0 && isfinite(value))
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "trainer: %s is %g, it must be a number from 0 up", name, value);
}

static mm_status check_count(const char *name, int64_t value, int64_t lowest)
{
    if (value >= lowest)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "trainer: %s is %lld, it must be at least %lld", name, (long long)value,
                    (long long)lowest);
}

static mm_status check_options(const mm_trainer_options *o)
{
    mm_adamw_options adamw = mmi_trainer_adamw(o);
    mm_status status = mmi_adamw_check(&adamw);
    if (status == MM_OK)
        status = check_number("learning_rate", o->learning_rate);
    if (status == MM_OK)
        status = check_number("max_grad_norm", o->max_grad_norm);
    if (status == MM_OK)
        status = check_number("max_seconds", o->max_seconds);
    if (status == MM_OK)
        status = check_count("epochs", o->epochs, 1);
    if (status == MM_OK)
        status = check_count("max_steps", o->max_steps, 0);
    if (status == MM_OK)
        status = check_count("accumulation_steps", o->accumulation_steps, 1);
    if (status == MM_OK)
        status = check_count("warmup_steps", o->warmup_steps, 0);
    if (status == MM_OK)
        status = check_count("save_interval", o->save_interval, 0);
    if (status == MM_OK)
        status = check_count("log_interval", o->log_interval, 1);
    if (status == MM_OK)
        status = check_count("keep_last", o->keep_last, 0);
    if (status != MM_OK)
        return status;
    if (o->schedule < MM_SCHEDULE_CONSTANT || o->schedule > MM_SCHEDULE_COSINE)
        return mmi_fail(MM_ERR_ARG, "trainer: schedule is %d, it must be one of MM_SCHEDULE_…, 0 to 3", o->schedule);
    if (o->epochs > UINT32_MAX)
        return mmi_fail(MM_ERR_ARG, "trainer: epochs is %lld, that is too many", (long long)o->epochs);
    if (!mmi_stage_of(o->stage))
        return mmi_fail(MM_ERR_ARG, "trainer: stage is %d, it must be one of MM_STAGE_…", o->stage);
    return MM_OK;
}

/* Every id that the loader can give must be one of the model's. */
static mm_status check_vocabulary(const mm_model *model, const mm_loader *loader)
{
    int64_t ids = mm_tokenizer_vocab_size(mmi_loader_tokenizer(loader)), rows = mmi_model_arch(model)->V;
    if (ids <= rows)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "trainer: the tokenizer has %lld ids, the model's vocab_size is %lld", (long long)ids,
                    (long long)rows);
}

/* What tells this vocabulary from another one: every token's bytes, in order. */
static mm_status hash_vocabulary(uint64_t *out, const mm_tokenizer *tokenizer)
{
    char *bytes = NULL;
    size_t room = 0;
    mm_status status = MM_OK;
    mmi_hash hash;
    mmi_hash_begin(&hash);
    for (int32_t id = 0; id < mm_tokenizer_vocab_size(tokenizer) && status == MM_OK; id++) {
        size_t size = 0;
        if (mm_decode_bytes(tokenizer, &id, 1, 0, NULL, 0, &size) != MM_OK)
            continue; /* an id that the vocabulary leaves out */
        if (!mmi_grow(&bytes, &room, size, 1))
            status = mmi_fail_memory(size, "a token");
        else if (size > 0)
            status = mm_decode_bytes(tokenizer, &id, 1, 0, bytes, size, &size);
        uint32_t head[2] = { (uint32_t)id, (uint32_t)size };
        mmi_hash_add(&hash, head, sizeof head);
        if (status == MM_OK)
            mmi_hash_add(&hash, bytes, size);
    }
    mmi_free(bytes);
    *out = mmi_hash_end(&hash);
    return status;
}

/* How long the run is. Packed rows are counted by tokenizing everything once, unless max_steps says it all. */
static mm_status count_steps(mm_trainer *t)
{
    const mm_trainer_options *o = &t->options;
    if (o->max_steps > 0 && mmi_loader_options(t->loader)->form == MM_ROWS_PACK) {
        t->total_steps = o->max_steps;
        return MM_OK;
    }
    mm_status status = mmi_loader_count(&t->epoch_steps, t->loader);
    if (status != MM_OK)
        return status;
    if (t->epoch_steps > INT64_MAX / o->epochs / mmi_stage_uses(t))
        return mmi_fail(MM_ERR_ARG, "trainer: %lld epochs are too many", (long long)o->epochs);
    t->epoch_steps *= mmi_stage_uses(t);
    t->total_steps = t->epoch_steps * o->epochs;
    if (o->max_steps > 0 && o->max_steps < t->total_steps)
        t->total_steps = o->max_steps;
    return MM_OK;
}

static mm_status copy_strings(mm_trainer *t)
{
    mm_trainer_options *o = &t->options;
    if (o->output && !(o->output = t->output = mmi_strdup(o->output)))
        return mmi_fail_memory(0, "a path");
    if (o->kernels && !(o->kernels = t->kernels = mmi_strdup(o->kernels)))
        return mmi_fail_memory(0, "a name");
    return MM_OK;
}

static mm_status build(mm_trainer *t)
{
    mm_adamw_options adamw = mmi_trainer_adamw(&t->options);
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.mode = MM_TRAIN;
    c.max_batch = mmi_loader_batch_rows(t->loader);
    c.max_length = mm_loader_length(t->loader);
    c.outputs = t->stage->outputs;
    c.threads = t->options.threads;
    c.kernels = t->options.kernels;
    mm_status status = copy_strings(t);
    if (status == MM_OK && t->stage->plan)
        status = t->stage->plan(t, &c);
    if (status == MM_OK)
        status = mm_context_create(t->model, &c, &t->context);
    if (status == MM_OK && t->stage->create)
        status = t->stage->create(t);
    if (status == MM_OK)
        status = mm_adamw_create(t->model, &adamw, &t->optimizer);
    if (status == MM_OK)
        status = mmi_parallel_create(t);
    if (status == MM_OK)
        status = mm_zero_grad(t->context);
    if (status == MM_OK)
        status = hash_vocabulary(&t->vocabulary, mmi_loader_tokenizer(t->loader));
    if (status == MM_OK)
        status = count_steps(t);
    if (status == MM_OK)
        status = mm_loader_tell(t->loader, &t->now.data);
    t->boundary = t->now;
    return status;
}

mm_status mm_trainer_create(mm_model *model, mm_loader *loader, mm_tokenizer *tokenizer,
                            const mm_trainer_options *options, mm_trainer **out)
{
    if (!model || !loader || !out)
        return mmi_fail(MM_ERR_ARG, "mm_trainer_create: %s is NULL", !model ? "model" : !loader ? "loader" : "out");
    mm_trainer_options o = MM_TRAINER_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_trainer_options");
    if (status == MM_OK)
        status = check_options(&o);
    if (status == MM_OK)
        status = check_vocabulary(model, loader);
    if (status == MM_OK)
        status = mmi_stage_check_rows(mmi_stage_of(o.stage), loader);
    if (status != MM_OK)
        return status;
    mm_trainer *t = mmi_calloc(1, sizeof *t);
    if (!t)
        return mmi_fail_memory(sizeof *t, "a trainer");
    atomic_init(&t->stop, 0);
    t->options = o;
    t->stage = mmi_stage_of(o.stage);
    t->saved_step = -1;
    mm_loader_position_init(&t->now.data, sizeof t->now.data);
    t->model = mmi_model_hold(model);
    t->loader = mmi_loader_hold(loader);
    t->tokenizer = tokenizer ? mmi_tokenizer_hold(tokenizer) : NULL;
    status = build(t);
    if (status != MM_OK) {
        mm_trainer_free(t);
        return status;
    }
    *out = t;
    return MM_OK;
}

void mm_trainer_free(mm_trainer *t)
{
    if (!t)
        return;
    mmi_parallel_free(t);
    if (t->stage->free)
        t->stage->free(t);
    mm_optimizer_free(t->optimizer);
    mm_context_free(t->context);
    mm_loader_free(t->loader);
    mm_tokenizer_free(t->tokenizer);
    mm_model_free(t->model);
    mmi_free(t->output);
    mmi_free(t->kernels);
    mmi_free(t);
}

void mm_trainer_stop(mm_trainer *t)
{
    if (t)
        atomic_store(&t->stop, 1);
}
