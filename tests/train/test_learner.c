/* What a trainer trains, and by what: an adapter beside its model, Muon instead of AdamW. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "tiny.h"

static char directory[512];

static void start(void)
{
    snprintf(directory, sizeof directory, "%s", scratch_directory());
}

static uint64_t used(void)
{
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&usage);
    return usage.current;
}

/* What a trainer takes beside model, loader and adapter. */
static int64_t trainer_bytes(const tiny_options *options, mm_model *reference)
{
    tiny_run run;
    tiny_options o = *options;
    mm_trainer *again = NULL;
    tiny_start(&run, &o);
    mm_trainer_free(run.trainer);
    run.trainer = NULL;
    o.trainer.adapter = run.adapter;
    o.trainer.reference = reference;
    uint64_t before = used();
    ck_ok(mm_trainer_create(run.model, run.loader, run.tokenizer, &o.trainer, &again));
    int64_t bytes = (int64_t)(used() - before);
    mm_trainer_free(again);
    ck_assert_uint_eq(used(), before);
    tiny_end(&run);
    return bytes;
}

static mm_memory estimate(const tiny_options *o, const mm_adapter_options *adapter, int32_t optimizer)
{
    mm_config *config = tiny_config();
    mm_workload w = MM_WORKLOAD_INIT;
    mm_memory m = MM_MEMORY_INIT;
    w.mode = MM_TRAIN;
    w.max_batch = o->loader.batch;
    w.max_length = o->loader.max_length;
    w.threads = 1;
    w.optimizer = optimizer;
    w.adapter = adapter;
    ck_ok(mm_estimate_memory(config, &w, &m));
    mm_config_free(config);
    return m;
}

START_TEST(gradients_and_moments_are_the_adapter_s_alone)
{
    tiny_options o = tiny_options_of(TINY_LORA, directory), whole = o;
    mm_adapter_options a = MM_ADAPTER_OPTIONS_INIT;
    whole.rank = 0;
    a.rank = o.rank;
    a.targets = "all-linear";
    mm_memory with = estimate(&o, &a, 1), without = estimate(&o, NULL, 1);
    int64_t bytes = trainer_bytes(&o, NULL), bytes_of_all = trainer_bytes(&whole, NULL);
    ck_assert_int_eq(with.gradients, with.adapter);
    ck_assert_int_eq(with.optimizer, 2 * with.adapter);
    ck_assert_int_lt(4 * with.gradients, without.gradients);
    /* the two trainers differ by what the estimates differ by, but for the adapter itself, which is not theirs, and for
     * handles: that of the adapter, and offsets of moments */
    int64_t expected = (without.total - with.total) + with.adapter;
    ck_assert_int_lt(llabs(bytes_of_all - bytes - expected), 8192);
    ck_assert_int_gt(expected, 2 * without.gradients);
}
END_TEST

START_TEST(an_adapter_s_reference_is_the_model_and_no_copy_of_it)
{
    tiny_options o = tiny_options_of(TINY_LORA_DPO, directory), whole = o;
    mm_model *other = tiny_model(5);
    int64_t weights = estimate(&o, NULL, 1).weights;
    ck_assert_int_eq(trainer_bytes(&o, NULL), trainer_bytes(&o, other));
    whole.rank = 0;
    ck_assert_int_ge(trainer_bytes(&whole, NULL), trainer_bytes(&whole, other) + weights);
    mm_model_free(other);
}
END_TEST

START_TEST(an_adapter_learns_and_every_bit_of_the_model_stays)
{
    tiny_run run, given;
    tiny_options o = tiny_options_of((tiny_kind)_i, directory);
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    size_t count, small;
    o.trainer.learning_rate = 2e-2;
    tiny_start(&run, &o);
    float *before = tiny_weights(run.model, &count), *fresh = tiny_adapter_weights(run.adapter, &small);
    ck_ok(mm_trainer_run(run.trainer));
    float *after = tiny_weights(run.model, &count), *learnt = tiny_adapter_weights(run.adapter, &small);
    ck_assert(memcmp(before, after, count * sizeof *before) == 0);
    ck_assert(memcmp(fresh, learnt, small * sizeof *fresh) != 0);
    ck_ok(mm_trainer_progress(run.trainer, &p));
    if (_i == TINY_LORA_DPO) {
        ck_assert_double_lt(p.loss, 0.6); /* from log 2 */
        o.trainer.reference = NULL;       /* said in so many words it is the same */
        tiny_start(&given, &o);
        mm_trainer_free(given.trainer);
        o.trainer.reference = given.model;
        o.trainer.adapter = given.adapter;
        ck_ok(mm_trainer_create(given.model, given.loader, given.tokenizer, &o.trainer, &given.trainer));
        ck_ok(mm_trainer_run(given.trainer));
        tiny_check_same(&given, &run);
        tiny_end(&given);
    }
    free(before);
    free(after);
    free(fresh);
    free(learnt);
    tiny_end(&run);
}
END_TEST

START_TEST(a_checkpoint_of_an_adapter_is_one_that_peft_reads)
{
    static const char *const there[] = { "adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors",
                                         "state.json", "tokenizer.json" };
    tiny_run run;
    tiny_options o = tiny_options_of(TINY_LORA, directory);
    mm_adapter *read = NULL;
    char output[600], path[700];
    size_t n, m;
    snprintf(output, sizeof output, "%s/run", directory);
    o.trainer.output = output;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    snprintf(output, sizeof output, "%s/run/step-%d", directory, (int)tiny_steps(&run));
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        snprintf(path, sizeof path, "%s/%s", output, there[i]);
        ck_assert_msg(mmi_file_exists(path), "%s is missing", path);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", output);
    ck_assert(!mmi_file_exists(path));
    ck_ok(mm_adapter_load(run.model, output, &read));
    float *a = tiny_adapter_weights(run.adapter, &n), *b = tiny_adapter_weights(read, &m);
    ck_assert_uint_eq(n, m);
    ck_assert(memcmp(a, b, n * sizeof *a) == 0);
    mm_adapter_options was = MM_ADAPTER_OPTIONS_INIT, is = MM_ADAPTER_OPTIONS_INIT;
    ck_ok(mm_adapter_describe(run.adapter, &was));
    ck_ok(mm_adapter_describe(read, &is));
    ck_assert_double_eq(was.alpha, is.alpha);
    ck_assert_int_eq(was.rank, is.rank);
    free(a);
    free(b);
    mm_adapter_free(read);
    tiny_end(&run);
}
END_TEST

/* Neither of the two goes on from a checkpoint of the other, nor beside other weights or with another rank. */
START_TEST(a_checkpoint_of_another_learner_is_refused)
{
    static const struct {
        int from, to, rank;
        uint64_t weights;
        const char *story;
    } cases[] = { { TINY_LORA, TINY_TEXT, 0, 1, "its adapter is {" },
                  { TINY_TEXT, TINY_LORA, 3, 1, "its adapter is null" },
                  { TINY_LORA, TINY_LORA, 2, 1, "its adapter is {\"rank\":3" },
                  { TINY_LORA, TINY_LORA, 3, 9, "its model_hash is" },
                  { TINY_MUON, TINY_TEXT, 0, 1, "its optimizer is \"muon\", here it is \"adamw\"" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_run run;
        tiny_options o = tiny_options_of((tiny_kind)cases[i].from, directory);
        char output[600];
        snprintf(output, sizeof output, "%s/of-%zu", directory, i);
        o.trainer.output = output;
        o.trainer.max_steps = 2;
        tiny_start(&run, &o);
        ck_ok(mm_trainer_run(run.trainer));
        tiny_end(&run);
        const char *rows = o.path;
        o = tiny_options_of((tiny_kind)cases[i].to, directory);
        o.trainer.max_steps = 2;
        o.path = rows;
        o.rank = cases[i].rank;
        o.weights = cases[i].weights;
        tiny_start(&run, &o);
        ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
        ck_error_mentions(cases[i].story);
        tiny_end(&run);
    }
}
END_TEST

START_TEST(a_damaged_file_of_an_adapter_is_named)
{
    static const char *const damaged[] = { "adapter_config.json", "adapter_model.safetensors" };
    tiny_run run;
    tiny_options o = tiny_options_of(TINY_LORA, directory);
    char output[600], path[700], *bytes = NULL;
    size_t size = 0;
    snprintf(output, sizeof output, "%s/run", directory);
    o.trainer.output = output;
    o.trainer.max_steps = 2;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/step-2/%s", output, damaged[i / 2]);
        ck_ok(mmi_read_file(path, &bytes, &size));
        if (i % 2 == 1) {
            ck_assert_int_eq(remove(path), 0);
        } else {
            bytes[size / 2] ^= 1;
            ck_ok(mmi_write_file(path, bytes, size));
        }
        ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
        ck_error_mentions(damaged[i / 2]);
        ck_error_mentions(i % 2 ? "missing" : "damaged");
        bytes[size / 2] ^= i % 2 == 0;
        ck_ok(mmi_write_file(path, bytes, size));
        mmi_free(bytes);
        ck_ok(mm_trainer_resume(run.trainer, output));
    }
    tiny_end(&run);
}
END_TEST

START_TEST(what_is_trained_can_t_be_its_own_measure)
{
    tiny_run run;
    tiny_options o = tiny_options_of(_i == 0 ? TINY_DPO : TINY_DISTILL, directory);
    mm_trainer *made = NULL;
    tiny_start(&run, &o);
    o.trainer.reference = _i == 0 ? run.model : NULL;
    o.trainer.teacher = _i == 1 ? run.model : NULL;
    ck_status(mm_trainer_create(run.model, run.loader, run.tokenizer, &o.trainer, &made), MM_ERR_ARG);
    ck_error_mentions(_i == 0 ? "the reference is the model that is trained" :
                                "the teacher is the model that is trained");
    tiny_end(&run);
}
END_TEST

START_TEST(learners_that_there_are_not_are_refused)
{
    tiny_run run;
    tiny_options o = tiny_options_of(TINY_LORA, directory), wrong = o;
    wrong.trainer.optimizer = MM_OPTIMIZER_MUON;
    ck_status(tiny_try(&run, &wrong), MM_ERR_UNSUPPORTED);
    ck_error_mentions("an adapter is trained by AdamW");
    tiny_end(&run);
    wrong = o;
    wrong.trainer.optimizer = 2;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("optimizer is 2");
    tiny_end(&run);
    wrong = tiny_options_of(TINY_MUON, directory);
    wrong.trainer.momentum = 1;
    ck_status(tiny_try(&run, &wrong), MM_ERR_ARG);
    ck_error_mentions("momentum is 1");
    tiny_end(&run);

    mm_adapter_options a = MM_ADAPTER_OPTIONS_INIT;
    mm_model *wide = tiny_teacher(3);
    mm_adapter *foreign = NULL;
    mm_trainer *made = NULL;
    a.targets = "model.layers.2.*"; /* a layer that the other model lacks */
    ck_ok(mm_adapter_create(wide, &a, &foreign));
    tiny_start(&run, &o);
    o.trainer.adapter = foreign;
    ck_status(mm_trainer_create(run.model, run.loader, run.tokenizer, &o.trainer, &made), MM_ERR_ARG);
    tiny_end(&run);
    mm_adapter_free(foreign);
    mm_model_free(wide);
}
END_TEST

START_TEST(what_is_wrong_with_a_run_is_said_beside_an_adapter_too)
{
    tiny_options o = tiny_options_of(TINY_LORA, scratch_directory());
    tiny_run run;
    o.trainer.output = scratch_directory();
    mm_set_last_error(MM_ERR_IO, "said before");
    tiny_start(&run, &o);
    ck_error_mentions("said before"); /* success leaves it alone */
    ck_ok(mm_trainer_save(run.trainer));
    ck_ok(mm_trainer_resume(run.trainer, o.trainer.output));
    ck_error_mentions("said before");
    tiny_end(&run);
    o.trainer.kernels = "no such";
    ck_status(tiny_try(&run, &o), MM_ERR_ARG);
    ck_error_mentions("no such");
    tiny_end(&run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train/learner");
    TCase *tc = tcase_create("learner");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, gradients_and_moments_are_the_adapter_s_alone);
    tcase_add_test(tc, an_adapter_s_reference_is_the_model_and_no_copy_of_it);
    tcase_add_loop_test(tc, an_adapter_learns_and_every_bit_of_the_model_stays, TINY_LORA, TINY_LORA_DPO + 1);
    tcase_add_test(tc, a_checkpoint_of_an_adapter_is_one_that_peft_reads);
    tcase_add_test(tc, a_checkpoint_of_another_learner_is_refused);
    tcase_add_test(tc, a_damaged_file_of_an_adapter_is_named);
    tcase_add_loop_test(tc, what_is_trained_can_t_be_its_own_measure, 0, 2);
    tcase_add_test(tc, learners_that_there_are_not_are_refused);
    tcase_add_test(tc, what_is_wrong_with_a_run_is_said_beside_an_adapter_too);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
