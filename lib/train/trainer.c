#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/thread.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/parallel.h"
#include "train/stage.h"
#include "train/vocabulary.h"

MMI_OPTIONS_INIT(mm_train_progress, MM_TRAIN_PROGRESS_INIT)
MMI_OPTIONS_INIT(mm_trainer_options, MM_TRAINER_OPTIONS_INIT)

/* What scaling begins with in float16, whose smallest numbers are too large for many gradients. A scale that is too
 * large costs an update each time it is halved. */
#define F16_LOSS_SCALE 65536

mm_adamw_options mmi_trainer_adamw(const mm_trainer_options *o)
{
    mm_adamw_options a = MM_ADAMW_OPTIONS_INIT;
    a.beta1 = o->beta1;
    a.beta2 = o->beta2;
    a.eps = o->eps;
    a.weight_decay = o->weight_decay;
    return a;
}

static mm_muon_options muon_of(const mm_trainer_options *o)
{
    mm_muon_options m = MM_MUON_OPTIONS_INIT;
    m.momentum = o->momentum;
    m.beta1 = o->beta1;
    m.beta2 = o->beta2;
    m.eps = o->eps;
    m.weight_decay = o->weight_decay;
    return m;
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

static mm_status check_switch(const char *name, int32_t value)
{
    if (value == 0 || value == 1)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "trainer: %s is %d, allowed are 0 and 1", name, value);
}

static mm_status check_numbers(const mm_trainer_options *o)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = { { "learning_rate", o->learning_rate }, { "max_grad_norm", o->max_grad_norm },
                    { "max_seconds", o->max_seconds },     { "min_delta", o->min_delta },
                    { "spike_factor", o->spike_factor },   { "loss_scale", o->loss_scale } };
    const struct {
        const char *name;
        int64_t value, lowest;
    } counts[] = { { "epochs", o->epochs, 1 },
                   { "max_steps", o->max_steps, 0 },
                   { "accumulation_steps", o->accumulation_steps, 1 },
                   { "warmup_steps", o->warmup_steps, 0 },
                   { "save_interval", o->save_interval, 0 },
                   { "log_interval", o->log_interval, 1 },
                   { "keep_last", o->keep_last, 0 },
                   { "eval_interval", o->eval_interval, 0 },
                   { "eval_batches", o->eval_batches, 0 },
                   { "patience", o->patience, 0 },
                   { "max_skips", o->max_skips, 0 },
                   { "loss_scale_interval", o->loss_scale_interval, -1 } };
    mm_status status = MM_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == MM_OK; i++)
        status = check_number(numbers[i].name, numbers[i].value);
    for (size_t i = 0; i < sizeof counts / sizeof *counts && status == MM_OK; i++)
        status = check_count(counts[i].name, counts[i].value, counts[i].lowest);
    if (status == MM_OK)
        status = check_switch("keep_best", o->keep_best);
    return status == MM_OK ? check_switch("background_save", o->background_save) : status;
}

/* What goes with what. */
static mm_status check_sense(const mm_trainer_options *o)
{
    if (o->decay_part < 0 || o->decay_part > 1 || !isfinite(o->decay_part))
        return mmi_fail(MM_ERR_ARG, "trainer: decay_part is %g, it must be from 0 to 1", o->decay_part);
    if (o->loss_scale > 0 && (o->loss_scale < 1 || o->loss_scale > MMI_LOSS_SCALE_MAX))
        return mmi_fail(MM_ERR_ARG, "trainer: loss_scale is %g, it must be 0 or from 1 to %g", o->loss_scale,
                        MMI_LOSS_SCALE_MAX);
    if (!o->validation && (o->patience > 0 || o->keep_best || o->eval_interval > 0))
        return mmi_fail(MM_ERR_ARG, "trainer: %s needs a validation",
                        o->patience > 0 ? "patience" : (o->keep_best ? "keep_best" : "eval_interval"));
    if (o->patience > 0 && o->eval_interval == 0)
        return mmi_fail(MM_ERR_ARG, "trainer: patience needs an eval_interval");
    return MM_OK;
}

static mm_status check_optimizer(const mm_trainer_options *o)
{
    mm_adamw_options adamw = mmi_trainer_adamw(o);
    if (o->optimizer != MM_OPTIMIZER_ADAMW && o->optimizer != MM_OPTIMIZER_MUON)
        return mmi_fail(MM_ERR_ARG, "trainer: optimizer is %d, it must be MM_OPTIMIZER_ADAMW or MM_OPTIMIZER_MUON",
                        o->optimizer);
    if (o->optimizer == MM_OPTIMIZER_MUON && o->adapter)
        return mmi_fail(MM_ERR_UNSUPPORTED, "trainer: an adapter is trained by AdamW: Muon is for a model's matrices");
    return mmi_adamw_check(&adamw);
}

static mm_status check_options(const mm_trainer_options *o)
{
    mm_status status = check_optimizer(o);
    if (status == MM_OK)
        status = check_numbers(o);
    if (status == MM_OK)
        status = check_sense(o);
    if (status != MM_OK)
        return status;
    if (o->schedule < MM_SCHEDULE_CONSTANT || o->schedule > MM_SCHEDULE_WSD)
        return mmi_fail(MM_ERR_ARG, "trainer: schedule is %d, it must be one of MM_SCHEDULE_…, 0 to 5", o->schedule);
    if (o->epochs > UINT32_MAX)
        return mmi_fail(MM_ERR_ARG, "trainer: epochs is %lld, that is too many", (long long)o->epochs);
    const mmi_stage *stage = mmi_stage_of(o->stage);
    if (!stage)
        return mmi_fail(MM_ERR_ARG, "trainer: stage is %d, it must be one of MM_STAGE_…", o->stage);
    if (o->validation && !stage->measure)
        return mmi_fail(MM_ERR_UNSUPPORTED, "trainer: the stage %s has no validation", stage->name);
    return MM_OK;
}

/* Every id that a loader can give must be one of the model's, and its rows must be of the stage's kinds. */
static mm_status check_loader(const mm_model *model, const mm_loader *loader, const mmi_stage *stage)
{
    int64_t ids = mm_tokenizer_vocab_size(mmi_loader_tokenizer(loader)), rows = mmi_model_arch(model)->V;
    if (ids <= rows)
        return mmi_stage_check_rows(stage, loader);
    return mmi_fail(MM_ERR_ARG, "trainer: the tokenizer has %lld ids, the model's vocab_size is %lld", (long long)ids,
                    (long long)rows);
}

/* How long the run is. Packed rows are counted by tokenizing everything once, unless max_steps says it all. */
static mm_status count_steps(mm_trainer *t)
{
    const mm_trainer_options *o = &t->options;
    if (o->max_steps > 0 && mmi_loader_options(t->loader)->form == MM_ROWS_PACK) {
        t->total_steps = o->max_steps;
        return MM_OK;
    }
    const int64_t uses = mmi_stage_uses(t);
    mm_status status = mmi_loader_count(&t->epoch_steps, &t->total_steps, t->loader, o->epochs);
    if (status == MM_OK && t->total_steps > INT64_MAX / uses)
        status = mmi_fail(MM_ERR_ARG, "trainer: %lld epochs are too many", (long long)o->epochs);
    if (status != MM_OK)
        return status;
    t->epoch_steps *= uses;
    t->total_steps *= uses;
    if (o->max_steps > 0 && o->max_steps < t->total_steps)
        t->total_steps = o->max_steps;
    return MM_OK;
}

/* What a 0 in the options stands for. */
static void fill_in(mm_trainer_options *o)
{
    if (o->compute == MM_F16 && o->loss_scale == 0)
        o->loss_scale = F16_LOSS_SCALE;
    if (o->decay_part == 0)
        o->decay_part = 0.2;
    if (o->loss_scale_interval == 0)
        o->loss_scale_interval = 2000;
}

static mm_status copy_strings(mm_trainer *t)
{
    mm_trainer_options *o = &t->options;
    if (o->output && !(o->output = t->output = mmi_strdup(o->output)))
        return mmi_fail_memory(0, "a path");
    if (o->kernels && !(o->kernels = t->kernels = mmi_strdup(o->kernels)))
        return mmi_fail_memory(0, "a name");
    if (o->teacher_cache && !(o->teacher_cache = t->teacher_cache = mmi_strdup(o->teacher_cache)))
        return mmi_fail_memory(0, "a path");
    return MM_OK;
}

int32_t mmi_trainer_rows(const mm_trainer *t)
{
    int32_t rows = mmi_loader_batch_rows(t->loader);
    int32_t others = t->options.validation ? mmi_loader_batch_rows(t->options.validation) : 0;
    return rows > others ? rows : others;
}

int32_t mmi_trainer_length(const mm_trainer *t)
{
    int32_t length = mm_loader_length(t->loader), other = mm_loader_length(t->options.validation);
    return length > other ? length : other;
}

mm_status mmi_trainer_enter(mm_trainer *t, const char *function)
{
    uintptr_t nobody = 0;
    if (atomic_compare_exchange_strong(&t->busy, &nobody, mmi_this_thread()))
        return MM_OK;
    return mmi_fail(MM_ERR_STATE,
                    "%s: the trainer is running: it takes one call at a time, but mm_trainer_stop(), "
                    "_progress() and, within on_step, _save()",
                    function);
}

void mmi_trainer_leave(mm_trainer *t)
{
    mmi_standings_show(t);
    atomic_store(&t->busy, 0);
}

bool mmi_trainer_is_mine(mm_trainer *t)
{
    return atomic_load(&t->busy) == mmi_this_thread();
}

void mmi_trainer_begin_epoch(mmi_place *at, const mm_trainer *t)
{
    if (at->data.epoch == at->epoch || at->data.epoch >= t->options.epochs)
        return;
    at->epoch = at->data.epoch;
    at->epoch_step = 0;
}

void mmi_trainer_settle(mm_trainer *t)
{
    t->boundary = t->now;
    t->boundary_last = t->last;
    t->boundary_health = t->health;
}

void mmi_trainer_written(mm_trainer *t)
{
    if (t->options.adapter)
        mm_adapter_written(t->options.adapter);
    else
        mm_model_written(t->model);
}

static mm_status make_optimizer(mm_trainer *t)
{
    mm_adamw_options adamw = mmi_trainer_adamw(&t->options);
    mm_muon_options muon = muon_of(&t->options);
    if (t->options.adapter)
        return mm_adamw_create_adapter(t->options.adapter, &adamw, &t->optimizer);
    return t->options.optimizer == MM_OPTIMIZER_MUON ? mm_muon_create(t->model, &muon, &t->optimizer) :
                                                       mm_adamw_create(t->model, &adamw, &t->optimizer);
}

static mm_status build(mm_trainer *t)
{
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.mode = MM_TRAIN;
    c.max_batch = mmi_trainer_rows(t);
    c.max_length = mmi_trainer_length(t);
    c.outputs = t->stage->outputs;
    c.threads = t->options.threads;
    c.kernels = t->options.kernels;
    c.compute = t->options.compute;
    c.adapter = t->options.adapter;
    const mmi_arch *a = mmi_model_arch(t->model);
    t->experts = a->moe ? a->E : 0;
    mm_status status = copy_strings(t);
    if (status == MM_OK && t->stage->plan)
        status = t->stage->plan(t, &c);
    if (status == MM_OK)
        status = mm_context_create(t->model, &c, &t->context);
    if (status == MM_OK && t->stage->create)
        status = t->stage->create(t);
    if (status == MM_OK)
        status = make_optimizer(t);
    if (status == MM_OK)
        status = mmi_standings_create(t);
    if (status == MM_OK)
        status = mmi_parallel_create(t);
    if (status == MM_OK)
        status = mm_zero_grad(t->context);
    if (status == MM_OK)
        status = mmi_vocabulary_hash(&t->vocabulary, mmi_loader_tokenizer(t->loader));
    if (status == MM_OK)
        t->cutting = mmi_cutting_hash(mmi_loader_tokenizer(t->loader));
    if (status == MM_OK)
        status = count_steps(t);
    if (status == MM_OK && t->output && t->options.background_save && mmi_parallel_rank(t) == 0)
        status = mmi_saver_create(&t->saver, t);
    if (status == MM_OK && t->options.adapter)
        t->beside = mmi_stage_hash_model(t->model);
    mmi_trainer_settle(t);
    if (status == MM_OK)
        mmi_standings_show(t);
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
        status = check_loader(model, loader, mmi_stage_of(o.stage));
    if (status == MM_OK && o.validation)
        status = check_loader(model, o.validation, mmi_stage_of(o.stage));
    if (status == MM_OK && o.validation == loader)
        status = mmi_fail(MM_ERR_ARG, "mm_trainer_create: the validation needs a loader of its own");
    if (status != MM_OK)
        return status;
    mm_trainer *t = mmi_calloc(1, sizeof *t);
    if (!t)
        return mmi_fail_memory(sizeof *t, "a trainer");
    atomic_init(&t->stop, 0);
    fill_in(&o);
    t->options = o;
    t->stage = mmi_stage_of(o.stage);
    t->saved_step = -1;
    t->health.loss_scale = o.loss_scale > 0 ? o.loss_scale : 1;
    if (o.validation)
        mmi_loader_hold(o.validation);
    t->now.data = (mm_loader_position)MM_LOADER_POSITION_INIT; /* wherever the loader stands */
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
    mmi_saver_free(t->saver);
    if (t->stage->free)
        t->stage->free(t);
    mm_optimizer_free(t->optimizer);
    mm_context_free(t->context);
    mm_loader_free(t->options.validation);
    mm_loader_free(t->loader);
    mm_tokenizer_free(t->tokenizer);
    mm_model_free(t->model);
    mmi_standings_free(t);
    mmi_free(t->output);
    mmi_free(t->kernels);
    mmi_free(t->teacher_cache);
    mmi_free(t);
}

void mm_trainer_stop(mm_trainer *t)
{
    if (t)
        atomic_store(&t->stop, 1);
}
