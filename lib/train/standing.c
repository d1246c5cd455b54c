#include "train/standing.h"

#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "model/model.h"
#include "train/stage.h"

static size_t loads(const mm_trainer *t)
{
    return (size_t)(mmi_model_arch(t->model)->L * t->experts);
}

static mm_status make_loads(const mm_trainer *t, mmi_standing *s)
{
    if (t->experts > 0 && !(s->expert_load = mmi_calloc(loads(t), sizeof *s->expert_load)))
        return mmi_fail_memory(loads(t) * sizeof *s->expert_load, "the load of experts");
    return MM_OK;
}

mm_status mmi_standings_create(mm_trainer *t)
{
    mmi_standings *s = &t->standings;
    mm_status status = mmi_monitor_create(&s->door);
    if (status == MM_OK)
        status = make_loads(t, &s->now);
    if (status == MM_OK)
        status = make_loads(t, &s->shown);
    return status == MM_OK ? make_loads(t, &s->lent) : status;
}

void mmi_standings_free(mm_trainer *t)
{
    mmi_standings *s = &t->standings;
    mmi_monitor_free(s->door);
    mmi_free(s->now.expert_load);
    mmi_free(s->shown.expert_load);
    mmi_free(s->lent.expert_load);
}

/* Readings of the stage with their names; returns how many. */
static int64_t name_metrics(mm_train_metric *out, const mmi_stage *stage, const double *values)
{
    int64_t count = 0;
    for (; stage->metrics && stage->metrics[count]; count++)
        out[count] = (mm_train_metric){ stage->metrics[count], values[count] };
    return count;
}

/* Let what is there be lent from this standing's own arrays. */
static void lend(mmi_standing *s)
{
    mm_train_progress *p = &s->progress;
    p->metrics = p->metric_count > 0 ? s->metrics : NULL;
    p->validation_metrics = p->metric_count > 0 && p->evaluations > 0 ? s->validation_metrics : NULL;
    p->expert_load = p->experts > 0 ? s->expert_load : NULL;
}

static void copy(mmi_standing *to, const mmi_standing *from, size_t expert_loads)
{
    to->progress = from->progress;
    memcpy(to->metrics, from->metrics, sizeof to->metrics);
    memcpy(to->validation_metrics, from->validation_metrics, sizeof to->validation_metrics);
    if (expert_loads > 0)
        memcpy(to->expert_load, from->expert_load, expert_loads * sizeof *to->expert_load);
    lend(to);
}

static void describe(mm_trainer *t)
{
    const mmi_health *h = &t->health;
    mmi_standing *s = &t->standings.now;
    s->progress = (mm_train_progress){
        .struct_size = sizeof s->progress,
        .step = t->now.step,
        .total_steps = t->total_steps,
        .epoch = t->now.epoch,
        .epoch_step = t->now.epoch_step,
        .epoch_steps = t->epoch_steps,
        .updates = t->now.updates,
        .tokens = t->now.tokens,
        .skipped_lines = t->now.data.skipped,
        .loss = t->last.loss,
        .learning_rate = t->last.learning_rate,
        .grad_norm = t->last.grad_norm,
        .tokens_per_s = t->tokens_per_s,
        .seconds_left = t->seconds_left,
        .metric_count = name_metrics(s->metrics, t->stage, t->last.metrics),
        .skipped_steps = h->skipped,
        .evaluations = h->evaluations,
        .validation_loss = h->validation_loss,
        .best_loss = h->best_loss,
        .best_step = h->best_step,
        .loss_scale = h->loss_scale,
        .evaluated_step = h->evaluated_step,
    };
    name_metrics(s->validation_metrics, t->stage, h->validation_metrics);
    if (t->experts > 0 && t->now.step > 0 && t->standings.loads_of == t->now.step) {
        s->progress.expert_layers = mmi_model_arch(t->model)->L;
        s->progress.experts = t->experts;
    }
    lend(s);
}

static mm_train_progress as_it_is(mm_trainer *t)
{
    describe(t);
    return t->standings.now.progress;
}

mm_train_progress mmi_standings_show(mm_trainer *t)
{
    mmi_standings *s = &t->standings;
    describe(t);
    mmi_monitor_enter(s->door);
    copy(&s->shown, &s->now, loads(t));
    mmi_monitor_leave(s->door);
    return s->now.progress;
}

static mm_train_progress as_shown(mm_trainer *t)
{
    mmi_standings *s = &t->standings;
    mmi_monitor_enter(s->door);
    copy(&s->lent, &s->shown, loads(t));
    mm_train_progress told = s->lent.progress;
    mmi_monitor_leave(s->door);
    return told;
}

mm_status mm_trainer_progress(const mm_trainer *trainer, mm_train_progress *out)
{
    if (!trainer)
        return mmi_fail(MM_ERR_ARG, "mm_trainer_progress: trainer is NULL");
    mm_trainer *t = (mm_trainer *)trainer; /* for the arrays that it lends */
    mm_train_progress p = mmi_trainer_is_mine(t) ? as_it_is(t) : as_shown(t);
    return mmi_result_write(out, &p, sizeof p, "mm_train_progress");
}
