#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../data/texts.h"
#include "base/files.h"
#include "base/memory.h"
#include "tiny.h"
#include "train/trainer.h"

static char directory[512];

static void start(void)
{
    snprintf(directory, sizeof directory, "%s", scratch_directory());
}

/* Keeps the first and the last report, and may stop. */
typedef struct watcher {
    int64_t stop_at;
    double first_loss, last_loss, first[2], last[2];
    int64_t calls;
} watcher;

static int32_t watch(void *user, const mm_train_progress *p)
{
    watcher *w = user;
    for (int64_t i = 0; i < p->metric_count && i < 2; i++) {
        w->last[i] = p->metrics[i].value;
        if (w->calls == 0)
            w->first[i] = p->metrics[i].value;
    }
    w->last_loss = p->loss;
    if (w->calls++ == 0)
        w->first_loss = p->loss;
    return p->step == w->stop_at;
}

/* The gradients that the trainer holds, all in a row. */
static float *gradients(const tiny_run *run, size_t *count)
{
    float *all = NULL;
    *count = 0;
    for (int64_t i = 0; i < mm_model_tensor_count(run->model); i++) {
        mm_view view;
        ck_ok(mm_grad(run->trainer->context, i, &view));
        size_t n = (size_t)(view.shape[0] * view.shape[1]);
        all = realloc(all, (*count + n) * sizeof *all);
        memcpy(all + *count, view.data, n * sizeof *all);
        *count += n;
    }
    return all;
}

/* --- Preferences --- */

START_TEST(dpo_begins_at_log_2_and_learns_to_prefer)
{
    tiny_run run;
    watcher w = { 0 };
    tiny_options o = tiny_options_of(TINY_DPO, directory);
    o.trainer.epochs = 12;
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_double_eq_tol(w.first_loss, log(2), 1e-4);
    ck_assert_double_eq_tol(w.first[1], 0, 1e-4);
    ck_assert_double_lt(w.last_loss, 0.5 * log(2));
    ck_assert_double_eq(w.last[0], 1);
    ck_assert_double_gt(w.last[1], 0.5);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.metric_count, 2);
    ck_assert_str_eq(p.metrics[0].name, "accuracy");
    ck_assert_str_eq(p.metrics[1].name, "margin");
    tiny_end(&run);
}
END_TEST

/* The first batch by hand: the same calls as a program would make. */
static void dpo_by_hand(const tiny_run *run, mm_model *reference, const mm_dpo_options *options, float **grads,
                        double *loss)
{
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    mm_context *policy = NULL, *frozen = NULL;
    mm_batch b = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    mm_dpo_result r = MM_DPO_RESULT_INIT;
    double ref[4];
    int32_t mask[4 * 128];
    float d[4 * 128];
    c.max_batch = 4, c.max_length = 128, c.threads = 1, c.outputs = MM_OUT_LOGPROBS;
    ck_ok(mm_context_create(reference, &c, &frozen));
    c.mode = MM_TRAIN;
    ck_ok(mm_context_create(run->model, &c, &policy));
    ck_ok(mm_zero_grad(policy));
    ck_ok(mm_loader_next(run->loader, &b));
    ck_assert_int_eq(b.batch, 4);
    for (int i = 0; i < b.batch * b.length; i++)
        mask[i] = b.targets[i] != -100;
    b.mode = MM_EVAL;
    ck_ok(mm_forward(frozen, &b, &out));
    ck_ok(mm_sequence_scores(ref, out.logprobs.data, mask, 4, b.length, options->reduction));
    b.mode = MM_TRAIN;
    ck_ok(mm_forward(policy, &b, &out));
    ck_ok(mm_dpo(options, 2, b.length, out.logprobs.data, ref, mask, d, &r));
    mm_backward_options back = MM_BACKWARD_OPTIONS_INIT;
    back.d_logprobs = d;
    ck_ok(mm_backward(policy, &back));
    *loss = r.loss;
    size_t count = 0;
    tiny_run view = { .model = run->model };
    mm_trainer shell = { .context = policy };
    view.trainer = &shell;
    *grads = gradients(&view, &count);
    mm_loader_position startover = MM_LOADER_POSITION_INIT;
    ck_ok(mm_loader_seek(run->loader, &startover));
    mm_context_free(policy);
    mm_context_free(frozen);
}

START_TEST(dpo_learns_what_its_parts_say_by_hand)
{
    tiny_run run;
    mm_dpo_options dpo = MM_DPO_OPTIONS_INIT;
    mm_model *reference = tiny_model(42);
    tiny_options o = tiny_options_of(TINY_DPO, directory);
    dpo.beta = 0.7;
    dpo.reduction = _i;
    o.trainer.dpo = &dpo;
    o.trainer.reference = reference;
    o.trainer.max_steps = 2; /* the first is not updated yet */
    o.trainer.accumulation_steps = 2;
    watcher w = { .stop_at = 1 };
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    tiny_start(&run, &o);
    float *expected, *found;
    double loss;
    dpo_by_hand(&run, reference, &dpo, &expected, &loss);
    mm_model_free(reference); /* the trainer has its hold */
    ck_ok(mm_trainer_run(run.trainer));
    size_t count;
    found = gradients(&run, &count);
    for (size_t i = 0; i < count; i++)
        found[i] *= 2;
    ck_assert_double_eq_tol(w.last_loss, loss, 1e-5);
    ck_assert_double_lt(relative_error(found, expected, count), 1e-4);
    free(found);
    free(expected);
    tiny_end(&run);
}
END_TEST

/* Spoils the reference after step 2 until step 4, in the first of two epochs of 7 steps, and keeps all losses. */
typedef struct clumsy {
    mm_model *reference;
    float kept;
    double losses[15]; /* by step */
} clumsy;

static int32_t spoil_reference(void *user, const mm_train_progress *p)
{
    clumsy *c = user;
    mm_view view;
    c->losses[p->step] = p->loss;
    if (p->step != 2 && p->step != 4)
        return 0;
    ck_ok(mm_model_write(c->reference, mm_model_tensor_count(c->reference) - 1, &view));
    float *w = view.data;
    if (p->step == 2)
        c->kept = *w;
    *w = p->step == 2 ? NAN : c->kept;
    mm_model_written(c->reference);
    return 0;
}

/* Its scores are kept for the epochs to come, if they are numbers. */
START_TEST(a_pair_that_the_reference_could_not_score_is_passed_over_and_scored_again)
{
    tiny_run run;
    clumsy c = { .reference = tiny_model(42) };
    tiny_options o = tiny_options_of(TINY_DPO, directory);
    o.trainer.reference = c.reference;
    o.trainer.epochs = 2;
    o.trainer.accumulation_steps = 1;
    o.trainer.max_skips = 2;
    o.trainer.on_step = spoil_reference;
    o.trainer.user = &c;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    for (int step = 1; step <= 14; step++)
        ck_assert_msg(isfinite(c.losses[step]) == (step != 3 && step != 4), "step %d: %g", step, c.losses[step]);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.step, 14);
    ck_assert_int_eq(p.updates, 12);
    ck_assert_int_eq(p.skipped_steps, 2);
    tiny_end(&run);
    o.trainer.max_skips = 1;
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_NUMERIC);
    ck_error_mentions("step 4: the loss is nan");
    tiny_end(&run);
    mm_model_free(c.reference);
}
END_TEST

/* After the first validation, at step 4. */
static int32_t spoil_for_good(void *user, const mm_train_progress *p)
{
    mm_view view;
    if (p->step != 4)
        return 0;
    ck_ok(mm_model_write(user, mm_model_tensor_count(user) - 1, &view));
    *(float *)view.data = NAN;
    mm_model_written(user);
    return 0;
}

/* Pairs that are learnt from once take no place of those that are measured again and again. */
START_TEST(the_reference_scores_a_validation_once)
{
    tiny_run run;
    mm_model *reference = tiny_model(42);
    tiny_options o = tiny_options_of(TINY_DPO, directory);
    char measured[600];
    snprintf(measured, sizeof measured, "%s", o.path);
    o.validation = measured;
    o.path = tiny_conversations(directory, "learnt.jsonl", true, 20, 4);
    o.trainer.reference = reference;
    o.trainer.epochs = 1;
    o.trainer.eval_interval = 4;
    o.trainer.max_skips = 10;
    o.trainer.on_step = spoil_for_good;
    o.trainer.user = reference;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(run.trainer, &p));
    ck_assert_int_eq(p.evaluations, 3);
    ck_assert_int_gt(p.skipped_steps, 0);
    ck_assert(isfinite(p.validation_loss));
    tiny_end(&run);
    mm_model_free(reference);
}
END_TEST

/* As tiny_model(), with too few positions for the rows. */
static mm_model *short_model(void)
{
    mm_config *config = tiny_config();
    mm_model *model = NULL;
    ck_ok(mm_config_set_int(config, "max_position_embeddings", 16));
    ck_ok(mm_model_create(config, 1, &model));
    mm_config_free(config);
    return model;
}

START_TEST(dpo_refuses_what_it_cannot_learn_from)
{
    tiny_run run;
    mm_dpo_options dpo = MM_DPO_OPTIONS_INIT;
    tiny_options o = tiny_options_of(TINY_DPO, directory), wrong = o;
    mm_model *wide = tiny_teacher(1);
    wrong.trainer.reference = wide;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("the reference's vocab_size is 264, the model's is 260");
    tiny_end(&run);
    mm_model_free(wide);
    wrong.trainer.reference = short_model();
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("the reference: max_length is 95, must be from 1 to 16");
    tiny_end(&run);
    mm_model_free(wrong.trainer.reference);
    dpo.beta = -1;
    wrong = o;
    wrong.trainer.dpo = &dpo;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("beta");
    tiny_end(&run);
    wrong = tiny_options_of(TINY_TEXT, directory);
    wrong.trainer.stage = MM_STAGE_DPO;
    ck_status(tiny_try(&run, &wrong), MM_ERR_UNSUPPORTED);
    ck_error_mentions("text, which the stage dpo");
    tiny_end(&run);
    wrong = o;
    wrong.trainer.stage = 99;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    tiny_end(&run);
}
END_TEST

START_TEST(a_checkpoint_of_another_reference_or_beta_is_refused)
{
    tiny_run run, other;
    watcher w = { .stop_at = 3 };
    tiny_options o = tiny_options_of(TINY_DPO, directory);
    char output[600];
    snprintf(output, sizeof output, "%s/run", directory);
    o.trainer.output = output;
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    tiny_end(&run);
    tiny_options changed = o;
    changed.weights = 2; /* and so the copy of it */
    tiny_start(&other, &changed);
    ck_status(mm_trainer_resume(other.trainer, output), MM_ERR_FORMAT);
    ck_error_mentions("reference_hash");
    tiny_end(&other);
    mm_dpo_options dpo = MM_DPO_OPTIONS_INIT;
    dpo.beta = 0.3;
    changed = o;
    changed.trainer.dpo = &dpo;
    tiny_start(&other, &changed);
    ck_status(mm_trainer_resume(other.trainer, output), MM_ERR_FORMAT);
    ck_error_mentions("dpo_beta");
    tiny_end(&other);
    changed = tiny_options_of(TINY_CHAT, directory);
    tiny_start(&other, &changed);
    ck_status(mm_trainer_resume(other.trainer, output), MM_ERR_FORMAT);
    tiny_end(&other);
    mm_config *config = tiny_config();
    changed = o;
    ck_ok(mm_config_set_float(config, "rope_theta", 500));
    ck_ok(mm_model_create(config, o.weights, &changed.trainer.reference)); /* the same weights */
    tiny_start(&other, &changed);
    ck_status(mm_trainer_resume(other.trainer, output), MM_ERR_FORMAT);
    ck_error_mentions("reference_hash");
    tiny_end(&other);
    mm_model_free(changed.trainer.reference);
    mm_config_free(config);
}
END_TEST

/* --- Teachers --- */

START_TEST(a_student_comes_nearer_to_its_teacher)
{
    tiny_run run;
    watcher w = { 0 };
    mm_distill_options d = MM_DISTILL_OPTIONS_INIT;
    tiny_options o = tiny_options_of(TINY_DISTILL, directory);
    d.alpha = 0;
    d.temperature = 2;
    o.trainer.distill = &d;
    o.trainer.epochs = 12;
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert_double_lt(w.last[1], 0.5 * w.first[1]);
    ck_assert_double_eq_tol(w.last_loss, w.last[1], 1e-9);
    tiny_end(&run);
}
END_TEST

START_TEST(without_the_teacher_s_share_distillation_is_plain_training)
{
    tiny_run plain, distilled;
    mm_distill_options d = MM_DISTILL_OPTIONS_INIT;
    watcher w = { 0 };
    tiny_options o = tiny_options_of(TINY_TEXT, directory), p = tiny_options_of(TINY_DISTILL, directory);
    d.alpha = 1;
    p.trainer.distill = &d;
    p.trainer.on_step = watch;
    p.trainer.user = &w;
    tiny_start(&plain, &o);
    tiny_start(&distilled, &p);
    ck_ok(mm_trainer_run(plain.trainer));
    ck_ok(mm_trainer_run(distilled.trainer));
    mm_train_progress q = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(plain.trainer, &q));
    ck_assert_double_eq_tol(w.last_loss, q.loss, 1e-4);
    ck_assert_double_eq_tol(w.last_loss, w.last[0], 1e-9);
    tiny_end(&plain);
    tiny_end(&distilled);
}
END_TEST

/* A cache of everything the teacher says. */
static void put_cache(const tiny_options *o, int32_t k, const char *path)
{
    tiny_run run;
    tiny_options plain = *o;
    mm_model *teacher = tiny_teacher(77);
    plain.trainer.stage = MM_STAGE_PLAIN;
    plain.teacher = 0;
    tiny_start(&run, &plain);
    mm_loader_position before = MM_LOADER_POSITION_INIT, after = MM_LOADER_POSITION_INIT;
    mm_batch b = MM_BATCH_INIT;
    ck_ok(mm_loader_next(run.loader, &b));
    ck_ok(mm_loader_tell(run.loader, &before));
    ck_ok(mm_distill_cache_write(teacher, run.loader, k, 1, path));
    ck_ok(mm_loader_tell(run.loader, &after));
    ck_assert_int_eq(before.row, after.row);
    tiny_end(&run);
    mm_model_free(teacher);
}

START_TEST(a_cache_of_all_its_tokens_is_as_good_as_the_teacher)
{
    tiny_run live, cached;
    watcher w = { 0 }, v = { 0 };
    char path[600];
    tiny_options o = tiny_options_of(TINY_DISTILL, directory);
    mm_distill_options d = MM_DISTILL_OPTIONS_INIT;
    d.alpha = 0;
    o.trainer.distill = &d;
    snprintf(path, sizeof path, "%s/all.safetensors", directory);
    put_cache(&o, 259, path);
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    tiny_start(&live, &o);
    o.trainer.teacher_cache = path;
    o.trainer.user = &v;
    o.teacher = 0;
    tiny_start(&cached, &o);
    ck_ok(mm_trainer_run(live.trainer));
    ck_ok(mm_trainer_run(cached.trainer));
    /* the model has one id more than the tokenizer, of which the cache knows nothing: 1/260 of an even distribution */
    ck_assert_double_eq_tol(w.first_loss, v.first_loss, 1e-2);
    ck_assert_double_eq_tol(w.last_loss, v.last_loss, 1e-2);
    tiny_end(&live);
    tiny_end(&cached);
}
END_TEST

START_TEST(a_teacher_that_does_not_fit_is_refused)
{
    tiny_run run;
    tiny_options o = tiny_options_of(TINY_DISTILL, directory), wrong = o;
    mm_config *config = tiny_config();
    mm_model *small = NULL;
    ck_ok(mm_config_set_int(config, "vocab_size", 259));
    ck_ok(mm_model_create(config, 1, &small));
    mm_config_free(config);
    wrong.teacher = 0;
    wrong.trainer.teacher = small;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("the teacher's vocab_size is 259, it must be at least the model's 260");
    tiny_end(&run);
    wrong.trainer.teacher = NULL;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("either a teacher or a teacher_cache");
    tiny_end(&run);
    wrong.trainer.teacher = short_model();
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("the teacher: max_length is 23, must be from 1 to 16");
    tiny_end(&run);
    mm_model_free(wrong.trainer.teacher);
    mm_distill_options d = MM_DISTILL_OPTIONS_INIT;
    d.temperature = 0;
    wrong = o;
    wrong.trainer.distill = &d;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("temperature");
    tiny_end(&run);
    mm_model_free(small);
}
END_TEST

START_TEST(a_cache_that_is_damaged_or_of_other_rows_is_refused)
{
    tiny_run run;
    tiny_options o = tiny_options_of(TINY_CACHED, directory), wrong = o;
    char *bytes = NULL, path[600];
    size_t size = 0;
    ck_ok(mmi_read_file(o.trainer.teacher_cache, &bytes, &size));
    snprintf(path, sizeof path, "%s/damaged.safetensors", directory);
    wrong.trainer.teacher_cache = path;
    test_rng rng = { 9 };
    for (int i = 0; i < 60; i++) {
        size_t at = (size_t)(rng_uniform(&rng) * (double)(i < 20 ? 400 : size));
        char before = bytes[at];
        bytes[at] = (char)(before ^ (1 << rng_between(&rng, 0, 7)));
        put_file(directory, "damaged.safetensors", bytes, i % 5 == 4 ? at : size);
        bytes[at] = before;
        mm_status status = tiny_try(&run, &wrong);
        if (status == MM_OK) { /* only where nobody looks: the header's spaces and unused names */
            ck_assert(i % 5 != 4 && at < 1000);
        } else {
            ck_assert_msg(status == MM_ERR_FORMAT || status == MM_ERR_ARG || status == MM_ERR_UNSUPPORTED,
                          "byte %zu: %s", at, mm_last_error());
            ck_error_mentions("damaged.safetensors");
        }
        tiny_end(&run);
    }
    mmi_free(bytes);
    wrong = o;
    wrong.loader.max_length = 20;
    ck_ok(tiny_try(&run, &wrong));
    ck_status(mm_trainer_run(run.trainer), MM_ERR_FORMAT);
    ck_error_mentions("teacher.safetensors: has no tokens for a row");
    ck_assert_int_eq(tiny_steps(&run), 0);
    tiny_end(&run);
    wrong.trainer.teacher_cache = "/no/such/file";
    ck_status(tiny_try(&run, &wrong), MM_ERR_IO);
    tiny_end(&run);
}
END_TEST

START_TEST(a_cache_needs_sensible_arguments)
{
    tiny_run run;
    tiny_options o = tiny_defaults(put_rows(directory, "rows.jsonl", 5, 4, 1));
    tiny_start(&run, &o);
    char path[600];
    snprintf(path, sizeof path, "%s/x.safetensors", directory);
    ck_status(mm_distill_cache_write(NULL, run.loader, 3, 1, path), MM_ERR_ARG);
    ck_status(mm_distill_cache_write(run.model, NULL, 3, 1, path), MM_ERR_ARG);
    ck_status(mm_distill_cache_write(run.model, run.loader, 3, 1, NULL), MM_ERR_ARG);
    ck_status(mm_distill_cache_write(run.model, run.loader, 0, 1, path), MM_ERR_ARG);
    ck_status(mm_distill_cache_write(run.model, run.loader, 260, 1, path), MM_ERR_ARG);
    ck_error_mentions("1 to 259");
    ck_status(mm_distill_cache_write(run.model, run.loader, 3, 1, "/no/such/directory/x"), MM_ERR_IO);
    ck_assert(!mmi_file_exists(path));
    tiny_end(&run);
    o = tiny_options_of(TINY_DPO, directory);
    tiny_start(&run, &o);
    ck_status(mm_distill_cache_write(run.model, run.loader, 3, 1, path), MM_ERR_UNSUPPORTED);
    tiny_end(&run);
}
END_TEST

/* The head is the embedding: what one of its rows is like shows in that id's logit alone, where no text holds it. */
static mm_status write_cache_of_spoilt(int32_t id, float value, int32_t k, const char *path)
{
    tiny_run run;
    mm_view view;
    tiny_options o = tiny_defaults(put_rows(directory, "rows.jsonl", 5, 4, 1));
    mm_model *teacher = tiny_teacher(77);
    ck_ok(mm_model_write(teacher, 0, &view));
    ck_assert_int_eq(view.shape[0], 264);
    ((float *)view.data)[id * view.shape[1]] = value;
    mm_model_written(teacher);
    tiny_start(&run, &o);
    mm_status status = mm_distill_cache_write(teacher, run.loader, k, 1, path);
    tiny_end(&run);
    mm_model_free(teacher);
    return status;
}

START_TEST(a_teacher_whose_logits_are_not_finite_has_no_cache)
{
    static const int32_t counts[] = { 1, 20, 259 };
    char path[600];
    snprintf(path, sizeof path, "%s/x.safetensors", directory);
    for (int i = 0; i < 3; i++) {
        ck_status(write_cache_of_spoilt(258, NAN, counts[i], path), MM_ERR_NUMERIC);
        ck_error_mentions("not finite");
        ck_status(write_cache_of_spoilt(3, NAN, counts[i], path), MM_ERR_NUMERIC);
        ck_status(write_cache_of_spoilt(258, INFINITY, counts[i], path), MM_ERR_NUMERIC);
    }
    ck_assert(!mmi_file_exists(path));
    ck_ok(write_cache_of_spoilt(259, NAN, 20, path)); /* which the tokenizer lacks */
}
END_TEST

/* --- All of them --- */

START_TEST(any_number_of_threads_gives_the_same_bits)
{
    tiny_run one, three;
    tiny_options o = tiny_options_of((tiny_kind)_i, directory);
    tiny_start(&one, &o);
    o.trainer.threads = 3;
    tiny_start(&three, &o);
    ck_ok(mm_trainer_run(one.trainer));
    ck_ok(mm_trainer_run(three.trainer));
    tiny_check_same(&three, &one);
    tiny_end(&one);
    tiny_end(&three);
}
END_TEST

/* What is cut off is seen by no target, so only the order of sums differs. A cache that was written of whole rows is
 * as good for trimmed ones. */
START_TEST(trimmed_batches_teach_the_same_with_fewer_tokens)
{
    tiny_run whole, trimmed;
    watcher w = { 0 }, v = { 0 };
    tiny_options o = tiny_options_of((tiny_kind)_i, directory);
    o.validation = o.path;
    o.trainer.on_step = watch;
    o.trainer.user = &w;
    tiny_start(&whole, &o);
    o.loader.trim = 1;
    o.trainer.user = &v;
    tiny_start(&trimmed, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    ck_ok(mm_trainer_run(trimmed.trainer));
    ck_assert_double_eq_tol(v.first_loss, w.first_loss, 1e-5);
    ck_assert_double_eq_tol(v.last_loss, w.last_loss, 1e-4);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT, q = MM_TRAIN_PROGRESS_INIT;
    ck_ok(mm_trainer_progress(whole.trainer, &p));
    ck_ok(mm_trainer_progress(trimmed.trainer, &q));
    ck_assert_double_eq_tol(q.validation_loss, p.validation_loss, 1e-4);
    ck_assert_int_lt(q.tokens, p.tokens);
    tiny_end(&whole);
    tiny_end(&trimmed);
}
END_TEST

START_TEST(every_failing_allocation_of_create_is_survived)
{
    tiny_run run;
    tiny_options o = tiny_options_of((tiny_kind)_i, directory);
    mm_model *teacher = o.teacher ? tiny_teacher(o.teacher) : NULL;
    o.teacher = 0;
    o.trainer.teacher = teacher;
    o.trainer.output = "somewhere";
    o.trainer.background_save = 1;
    tiny_start(&run, &o);
    mm_trainer_free(run.trainer);
    o.trainer.adapter = run.adapter;
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        run.trainer = NULL;
        ck_assert_uint_lt(n, 2000);
        mmi_memory_fail_at(n, false);
        mm_status status = mm_trainer_create(run.model, run.loader, run.tokenizer, &o.trainer, &run.trainer);
        done = mmi_memory_fail_at(0, false) < n;
        ck_assert_int_eq(status, done ? MM_OK : MM_ERR_MEMORY);
        mm_trainer_free(run.trainer);
    }
    run.trainer = NULL;
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
    tiny_end(&run);
    mm_model_free(teacher);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/stages");
    TCase *tc = tcase_create("stages");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, dpo_begins_at_log_2_and_learns_to_prefer);
    tcase_add_loop_test(tc, dpo_learns_what_its_parts_say_by_hand, MM_REDUCE_SUM, MM_REDUCE_MEAN + 1);
    tcase_add_test(tc, a_pair_that_the_reference_could_not_score_is_passed_over_and_scored_again);
    tcase_add_test(tc, the_reference_scores_a_validation_once);
    tcase_add_test(tc, dpo_refuses_what_it_cannot_learn_from);
    tcase_add_test(tc, a_checkpoint_of_another_reference_or_beta_is_refused);
    tcase_add_test(tc, a_student_comes_nearer_to_its_teacher);
    tcase_add_test(tc, without_the_teacher_s_share_distillation_is_plain_training);
    tcase_add_test(tc, a_cache_of_all_its_tokens_is_as_good_as_the_teacher);
    tcase_add_test(tc, a_teacher_that_does_not_fit_is_refused);
    tcase_add_test(tc, a_cache_that_is_damaged_or_of_other_rows_is_refused);
    tcase_add_test(tc, a_cache_needs_sensible_arguments);
    tcase_add_test(tc, a_teacher_whose_logits_are_not_finite_has_no_cache);
    tcase_add_loop_test(tc, any_number_of_threads_gives_the_same_bits, TINY_CHAT, TINY_KINDS);
    tcase_add_loop_test(tc, trimmed_batches_teach_the_same_with_fewer_tokens, TINY_TEXT, TINY_KINDS);
    tcase_add_loop_test(tc, every_failing_allocation_of_create_is_survived, TINY_CHAT, TINY_KINDS);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
