/* The training loop. At every point a failure leaves a place that training can go on from: before the micro-step that
 * failed, or, once its gradients are in, before the update they belong to. */
#include <math.h>
#include <stdio.h>

#include "base/files.h"
#include "base/random.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/model.h"
#include "train/checkpoint.h"
#include "train/health.h"
#include "train/parallel.h"
#include "train/stage.h"

/* Drop what was accumulated. */
static void drop(mm_trainer *t)
{
    mmi_parallel_settle(t);
    mm_zero_grad(t->context);
    if (t->stage->drop)
        t->stage->drop(t);
}

/* … and stand where the last update left off. */
static void back_to_boundary(mm_trainer *t)
{
    t->now = t->boundary;
    t->last = t->boundary_last;
    t->health = t->boundary_health;
    drop(t);
    mmi_loader_return(t->loader, &t->now.data);
}

/* A bad update: what was accumulated is passed over, and its steps count as done. */
static mm_status pass_over(mm_trainer *t, double norm)
{
    mm_status status = MM_OK;
    if (isfinite(norm) || !mmi_health_overflowed(t))
        status = mmi_health_skip_norm(t, t->now.step, norm);
    if (status != MM_OK) {
        back_to_boundary(t);
        return status;
    }
    mmi_trainer_settle(t);
    drop(t);
    return MM_OK;
}

static mm_status update(mm_trainer *t)
{
    if (mmi_trainer_learnt(t) == 0) { /* all was passed over: momentum and weight decay have nothing to go along with */
        mmi_trainer_settle(t);
        return MM_OK;
    }
    mm_step step = MM_STEP_INIT;
    step.learning_rate = t->last.learning_rate;
    step.max_grad_norm = t->options.max_grad_norm;
    double norm = 0;
    mm_status status = mmi_parallel_reduce(t);
    if (status == MM_OK) {
        mmi_health_unscale(t);
        status = mm_grad_norm(t->context, &norm);
    }
    if (status == MM_OK && !mmi_health_good_norm(t, norm))
        return pass_over(t, norm);
    if (status == MM_OK)
        status = mm_optimizer_step(t->optimizer, t->context, &step);
    if (status != MM_OK) {
        mmi_fail_within(status, "step %lld", (long long)t->now.step);
        back_to_boundary(t);
        return status;
    }
    if (t->stage->update)
        t->stage->update(t, step.learning_rate);
    t->last.grad_norm = step.grad_norm;
    mmi_health_updated(t, norm);
    t->now.updates++;
    mmi_trainer_settle(t);
    return mm_zero_grad(t->context);
}

/* One micro-step's gradients, divided by accumulation_steps, join those at hand. */
static mm_status learn(mm_trainer *t, mmi_work *work, mmi_reading *reading)
{
    double scale = t->health.loss_scale / (double)t->options.accumulation_steps;
    const mmi_health before = t->health;
    mm_status status = t->stage->learn(t, work, scale, reading);
    if (status == MM_OK && !mmi_health_good_loss(t, reading->loss))
        status = mmi_health_skip_loss(t, t->now.step + 1, reading->loss);
    else if (status == MM_OK)
        mmi_window_add(&t->health.losses, reading->loss);
    if (status != MM_OK && work->touched) {
        back_to_boundary(t);
    } else if (status != MM_OK) {
        t->health = before;
        mmi_loader_return(t->loader, &t->now.data);
    }
    return status;
}

static mm_status next_epoch(mm_trainer *t)
{
    if (t->now.epoch_step == 0 && t->now.data.row == 0) { /* else it began at an epoch's end, or among bad lines */
        mmi_loader_return(t->loader, &t->now.data);
        return mmi_loader_fail_unreadable(t->loader);
    }
    mm_status status = mmi_trainer_accumulated(t) > 0 ? update(t) : MM_OK;
    if (status != MM_OK)
        return status;
    mm_loader_tell(t->loader, &t->now.data);
    mmi_trainer_begin_epoch(&t->now, t);
    mmi_trainer_settle(t);
    return MM_OK;
}

/* Dropout's masks depend on the step's number and the rank alone, so a run that was resumed draws the same ones. */
static uint64_t seed_of_step(const mm_trainer *t)
{
    uint32_t block[4];
    mmi_random_block(block, mmi_loader_options(t->loader)->seed, MMI_STREAM(MMI_STREAM_DROPOUT, UINT32_MAX),
                     (uint64_t)t->now.step | (uint64_t)mmi_parallel_rank(t) << 44);
    return (uint64_t)block[1] << 32 | block[0];
}

/* The data of the next micro-step. */
static mm_status next_work(mm_trainer *t, mmi_work *work)
{
    *work = (mmi_work){ .batch = MM_BATCH_INIT, .prompts = MM_PROMPTS_INIT };
    mm_status status;
    if (t->stage->next) {
        status = t->stage->next(t, work);
    } else {
        status = mm_loader_next(t->loader, &work->batch);
        work->end = work->batch.batch == 0;
        work->filler = mmi_loader_gave_none(t->loader);
    }
    work->batch.seed = seed_of_step(t);
    return status;
}

bool mmi_trainer_update_follows(const mm_trainer *t)
{
    return mmi_trainer_accumulated(t) + 1 == t->options.accumulation_steps || mmi_loader_at_end(t->loader) ||
           t->now.step + 1 >= t->total_steps;
}

static mm_status rate_of_step(const mm_trainer *t, double *rate)
{
    const mm_trainer_options *o = &t->options;
    /* upstream MiniMind-3 counts its steps from 1, the others from 0 */
    int64_t step = t->now.step + (o->schedule == MM_SCHEDULE_MINIMIND3);
    if (o->schedule == MM_SCHEDULE_WSD)
        return mm_schedule_wsd(step, t->total_steps, o->warmup_steps, o->decay_part, o->learning_rate, rate);
    return mm_schedule_lr(o->schedule, step, t->total_steps, o->warmup_steps, o->learning_rate, rate);
}

/* While the context's last pass is the step's. */
static void read_expert_load(mm_trainer *t)
{
    for (int64_t l = 0; t->experts > 0 && l < mmi_model_arch(t->model)->L; l++)
        mm_expert_load(t->context, l, t->standings.now.expert_load + l * t->experts, (size_t)t->experts, NULL);
    t->standings.loads_of = t->now.step + 1;
}

/* One batch; or, when the epoch has no more, the turn to the next one. */
static mm_status micro_step(mm_trainer *t)
{
    mmi_reading reading = t->last;
    mmi_work work;
    mm_status status = rate_of_step(t, &reading.learning_rate);
    if (status == MM_OK)
        status = next_work(t, &work);
    if (status != MM_OK)
        return status;
    if (work.stop)
        mm_trainer_stop(t);
    if (work.stop && t->parallel && mmi_trainer_accumulated(t) > 0)
        back_to_boundary(t); /* ranks can stop nowhere else, and ask no second time */
    if (work.end || work.stop)
        return work.end ? next_epoch(t) : MM_OK;
    bool updates = mmi_trainer_update_follows(t);
    status = learn(t, &work, &reading);
    if (status != MM_OK)
        return status;
    read_expert_load(t);
    t->last = reading;
    t->now.step++;
    t->now.epoch_step++;
    t->now.tokens += reading.tokens;
    mm_loader_tell(t->loader, &t->now.data);
    if (mmi_parallel_unread(t)) {
        back_to_boundary(t); /* and wait for what is being sent */
        return mmi_loader_fail_unreadable(t->loader);
    }
    return updates ? update(t) : MM_OK;
}

static bool finished(const mm_trainer *t)
{
    int64_t epoch = t->now.data.epoch, patience = t->options.patience;
    return t->now.step >= t->total_steps || epoch >= t->options.epochs ||
           (epoch + 1 == t->options.epochs && mmi_loader_at_end(t->loader) && !mmi_stage_in_midst(t)) ||
           (patience > 0 && t->health.worse >= patience);
}

/* Rates are measured from one report to the next, validations apart. */
static void start_measuring(mm_trainer *t)
{
    t->reported_at = mmi_now();
    t->reported_step = t->now.step;
    t->reported_tokens = t->now.tokens;
}

static void report(mm_trainer *t)
{
    double seconds = mmi_now() - t->reported_at;
    int64_t steps = t->now.step - t->reported_step;
    if (seconds > 0 && steps > 0) {
        t->tokens_per_s = (double)(t->now.tokens - t->reported_tokens) / seconds;
        t->seconds_left = (double)(t->total_steps - t->now.step) * seconds / (double)steps;
    }
    start_measuring(t);
    mm_train_progress p = mmi_standings_show(t);
    if (t->options.on_step && t->options.on_step(t->options.user, &p) != 0)
        mm_trainer_stop(t);
}

/* Validate if it is due: after every eval_interval, and at the end of the run. */
static mm_status evaluate(mm_trainer *t, bool *evaluated, bool *better)
{
    int64_t interval = t->options.eval_interval, last = t->health.evaluated_step;
    bool due = (interval > 0 && t->now.step / interval > last / interval) || finished(t);
    *better = false;
    *evaluated = t->options.validation && due && last != t->now.step && mmi_parallel_can_save(t);
    if (!*evaluated)
        return MM_OK;
    const double began = mmi_now();
    const mm_status status = mmi_health_validate(t, better);
    t->reported_at += mmi_now() - began;
    return status;
}

/* A checkpoint that is due though something failed, of which is told all the same. */
static mm_status save_though(mm_trainer *t, mm_status failed)
{
    char story[1024];
    snprintf(story, sizeof story, "%s", mm_last_error());
    mmi_checkpoint_save(t, false);
    return mmi_fail(failed, "%s", story);
}

/* What falls due after a micro-step: a validation, a report, a checkpoint, which may have to wait for its place. */
static mm_status look_after(mm_trainer *t, bool *due)
{
    const mm_trainer_options *o = &t->options;
    bool evaluated, better;
    mm_status status = evaluate(t, &evaluated, &better);
    if (status == MM_OK && (evaluated || t->now.step % o->log_interval == 0))
        report(t);
    *due = *due || (better && o->keep_best) || (o->save_interval > 0 && t->now.step % o->save_interval == 0) ||
           (status != MM_OK && finished(t));
    if (!t->output || !*due || !mmi_parallel_can_save(t))
        return status;
    *due = false;
    return status == MM_OK ? mmi_checkpoint_save(t, o->background_save != 0) : save_though(t, status);
}

/* Steps until the run ends, is told to stop or fails. */
static mm_status train(mm_trainer *t, double end)
{
    bool due = false;
    mm_status status = MM_OK;
    while (status == MM_OK && !finished(t) && !mmi_parallel_stops(t)) {
        int64_t before = t->now.step;
        status = micro_step(t);
        mmi_standings_show(t);
        if (status == MM_OK && t->now.step > before) /* ranks that stop may go back */
            status = look_after(t, &due);
        if (t->options.max_seconds > 0 && t->now.step != before && mmi_now() >= end)
            mm_trainer_stop(t);
    }
    return status;
}

static mm_status run(mm_trainer *t)
{
    bool evaluated = false, better, writes = t->output && mmi_parallel_rank(t) == 0;
    mm_status status = writes ? mmi_make_directory(t->output) : MM_OK; /* rather now than after hours of work */
    start_measuring(t);
    mmi_loader_return(t->loader, &t->now.data); /* others may have moved it */
    if (status == MM_OK)
        status = mmi_parallel_begin(t);
    if (status == MM_OK)
        status = train(t, mmi_now() + t->options.max_seconds);
    if (status == MM_OK && finished(t)) { /* bad lines may have ended it behind its last step */
        status = evaluate(t, &evaluated, &better);
        if (status != MM_OK && t->output && t->saved_step != t->now.step)
            status = save_though(t, status);
    }
    if (status == MM_OK && (evaluated || t->now.step > t->reported_step))
        report(t);
    if (status == MM_OK)
        status = mmi_checkpoint_wait(t);
    if (status == MM_OK && t->output && (evaluated || t->saved_step != t->now.step))
        status = mm_trainer_save(t);
    double none = 0;
    if (status == MM_OK) /* a rank whose last checkpoint can't be written has not ended well, nor have the others */
        status = mmi_parallel_sum(t, &none, 1);
    if (status != MM_OK && t->parallel) {
        mmi_parallel_give_up(t, status);
        back_to_boundary(t); /* what one rank has of an update is worth nothing */
    }
    atomic_store(&t->stop, 0);
    return status;
}

mm_status mm_trainer_run(mm_trainer *t)
{
    if (!t)
        return mmi_fail(MM_ERR_ARG, "mm_trainer_run: trainer is NULL");
    mm_status status = mmi_trainer_enter(t, "mm_trainer_run");
    if (status != MM_OK)
        return status;
    status = run(t);
    mmi_trainer_leave(t);
    return status;
}
