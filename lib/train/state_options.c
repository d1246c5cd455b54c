/* The options and the data that decide how a run goes on: kept with a checkpoint, and compared when it is gone on with.
 */
#include <string.h>

#include "base/memory.h"
#include "data/dataset.h"
#include "data/hash.h"
#include "data/loader.h"
#include "model/adapter.h"
#include "model/show.h"
#include "train/stage.h"
#include "train/state.h"

static bool add_trainer_options(mmi_json *to, const mm_trainer_options *o)
{
    return mmi_json_set_int(to, "epochs", o->epochs) && mmi_json_set_int(to, "max_steps", o->max_steps) &&
           mmi_json_set_int(to, "accumulation_steps", o->accumulation_steps) &&
           mmi_json_set_real(to, "learning_rate", o->learning_rate) && mmi_json_set_int(to, "schedule", o->schedule) &&
           mmi_json_set_int(to, "warmup_steps", o->warmup_steps) &&
           mmi_json_set_real(to, "max_grad_norm", o->max_grad_norm) && mmi_json_set_real(to, "beta1", o->beta1) &&
           mmi_json_set_real(to, "beta2", o->beta2) && mmi_json_set_real(to, "eps", o->eps) &&
           mmi_json_set_real(to, "weight_decay", o->weight_decay) &&
           mmi_json_set_text(to, "compute", mm_dtype_name(o->compute)) &&
           mmi_json_set_real(to, "decay_part", o->schedule == MM_SCHEDULE_WSD ? o->decay_part : 0);
}

/* skip_bad_lines is not among them: a run that stopped at a bad line may well go on by passing over it.
 * Nor are rank and world: every number of ranks sees the same rows, as long as their batches together stay as large. */
bool mmi_state_data(mmi_json *to, const mm_loader *loader)
{
    const mm_loader_options *o = mmi_loader_options(loader);
    const mm_dataset *data = mmi_loader_dataset(loader);
    return mmi_json_set_int(to, "batch_size", (int64_t)o->batch * o->world) &&
           mmi_json_set_int(to, "max_length", o->max_length) && mmi_json_set_int(to, "form", o->form) &&
           mmi_json_set_int(to, "trim", o->trim) && mmi_json_set_int(to, "kind", o->kind) &&
           mmi_json_set_int(to, "shuffle", o->shuffle) &&
           mmi_json_set_int(to, "strip_empty_think", o->strip_empty_think) &&
           (o->kind != MM_ROW_PROMPT || mmi_json_set_int(to, "thinking", o->thinking)) &&
           (o->kind != MM_ROW_PREFERENCE || mmi_json_set_int(to, "mixed_prompts", o->mixed_prompts)) &&
           mmi_json_set_text(to, "template_name", o->template_name) && mmi_json_set_int(to, "seed", (int64_t)o->seed) &&
           mmi_json_set_int(to, "bos_id", o->bos_id) && mmi_json_set_int(to, "eos_id", o->eos_id) &&
           mmi_json_set_int(to, "pad_id", o->pad_id) && mmi_json_set_int(to, "data_rows", mm_dataset_rows(data)) &&
           mmi_json_set_int(to, "data_bytes", mmi_dataset_bytes(data)) &&
           mmi_hash_set(to, "data_hash", mmi_dataset_hash(data));
}

/* How the rows of a validation that may end the run become batches. */
static bool add_validation(mmi_json *to, const mm_trainer_options *o)
{
    mmi_json *own = o->patience > 0 ? mmi_json_new_object() : mmi_json_new_null();
    return mmi_json_set(to, "validation", own) && (o->patience == 0 || mmi_state_data(own, o->validation));
}

/* How bad steps and the scale of the loss are dealt with; and, where validations may end the run, what they look at. */
static bool add_health_options(mmi_json *to, const mm_trainer *t)
{
    const mm_trainer_options *o = &t->options;
    bool ends = o->patience > 0;
    return mmi_json_set_int(to, "max_skips", o->max_skips) && mmi_json_set_real(to, "spike_factor", o->spike_factor) &&
           mmi_json_set_real(to, "loss_scale", o->loss_scale) &&
           mmi_json_set_int(to, "loss_scale_interval", o->loss_scale_interval) &&
           mmi_json_set_int(to, "patience", o->patience) && mmi_json_set_real(to, "min_delta", o->min_delta) &&
           mmi_json_set_int(to, "eval_interval", ends ? o->eval_interval : 0) &&
           mmi_json_set_int(to, "eval_batches", ends ? o->eval_batches : 0) &&
           mmi_hash_set(to, "validation_hash", ends ? mmi_dataset_hash(mmi_loader_dataset(o->validation)) : 0);
}

/* What is trained, and by what. The model beside an adapter is part of what decides. */
static bool add_learner(mmi_json *to, const mm_trainer *t)
{
    const mm_trainer_options *o = &t->options;
    bool muon = o->optimizer == MM_OPTIMIZER_MUON;
    mmi_json *adapter = o->adapter ? mmi_json_new_object() : mmi_json_new_null();
    if (!mmi_json_set(to, "adapter", adapter) || !mmi_json_set_text(to, "optimizer", muon ? "muon" : "adamw") ||
        !mmi_json_set_real(to, "momentum", muon ? o->momentum : 0))
        return false;
    if (!o->adapter)
        return true;
    const mm_adapter_options *a = &o->adapter->options;
    return mmi_json_set_int(adapter, "rank", a->rank) && mmi_json_set_real(adapter, "alpha", a->alpha) &&
           mmi_json_set_real(adapter, "dropout", a->dropout) && mmi_hash_set(to, "model_hash", t->beside);
}

static bool add_stage_options(mmi_json *to, const mm_trainer *t)
{
    return mmi_json_set_text(to, "stage", t->stage->name) && (!t->stage->options || t->stage->options(to, t));
}

mmi_json *mmi_state_options(const mm_trainer *t)
{
    mmi_json *options = mmi_json_new_object();
    if (options && add_trainer_options(options, &t->options) && mmi_state_data(options, t->loader) &&
        mmi_hash_set(options, "vocabulary_hash", t->vocabulary) &&
        mmi_hash_set(options, "tokenizer_hash", t->cutting) && add_health_options(options, t) &&
        add_validation(options, &t->options) && add_learner(options, t) && add_stage_options(options, t))
        return options;
    mmi_json_free(options);
    return NULL;
}

/* Older checkpoints say nothing of these. */
static bool is_later(const char *key)
{
    static const char *const later[] = { "tokenizer_hash", "validation" };
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcmp(key, later[i]) == 0)
            return true;
    return false;
}

/* A run may become longer: 0 of max_steps is as many as the epochs have. How many that are is not asked, as packed
 * rows would have to be counted once more. */
static bool is_longer(const char *key, const mmi_json *saved, const mmi_json *here)
{
    const int64_t was = mmi_json_int(saved, -1), is = mmi_json_int(here, -1);
    if (strcmp(key, "max_steps") == 0)
        return was > 0 && (is == 0 || is > was);
    return strcmp(key, "epochs") == 0 && was > 0 && is > was;
}

/* Two values as text, for comparing and for telling. */
static mm_status compare_option(const char *key, mmi_json *saved, mmi_json *here, const char *directory)
{
    char *a = NULL, *b = NULL;
    size_t length;
    if (!saved && is_later(key))
        return MM_OK;
    if (!saved)
        return mmi_fail(MM_ERR_FORMAT, "%s/state.json: options.%s is missing", directory, key);
    if (is_longer(key, saved, here))
        return MM_OK;
    mm_status status = mmi_json_write(saved, 0, &a, &length);
    if (status == MM_OK)
        status = mmi_json_write(here, 0, &b, &length);
    if (status == MM_OK && strcmp(a, b) != 0)
        status = mmi_fail(MM_ERR_FORMAT, "%s: is a checkpoint of another run: its %s is %s, here it is %s", directory,
                          key, mmi_shorten(a), mmi_shorten(b));
    mmi_free(a);
    mmi_free(b);
    return status;
}

mm_status mmi_state_check_options(mmi_json *state, const mm_trainer *t, const char *directory)
{
    mmi_json *saved = mmi_json_get(state, "options");
    mmi_json *here = mmi_state_options(t);
    if (!here)
        return mmi_fail_memory(1024, "the options");
    mm_status status = MM_OK;
    for (void *i = mmi_json_first(here); i && status == MM_OK; i = mmi_json_next(here, i)) {
        const char *key = mmi_json_key(i);
        status = compare_option(key, mmi_json_get(saved, key), mmi_json_value(i), directory);
    }
    mmi_json_free(here);
    return status;
}
