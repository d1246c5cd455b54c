#define _XOPEN_SOURCE 700
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../data/texts.h"
#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/hash.h"
#include "tiny.h"

static char rows[512], output[512];

static void start(void)
{
    snprintf(rows, sizeof rows, "%s", put_rows(scratch_directory(), "rows.jsonl", 23, 12, 1));
    snprintf(output, sizeof output, "%s", scratch_directory());
}

/* A path in the output directory; static until the fourth call after it. */
static const char *in_output(const char *name)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", output, name);
    return path;
}

static bool there(const char *name)
{
    return mmi_file_exists(in_output(name));
}

static void check_latest(const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(in_output("latest"), &text, &size));
    text[strcspn(text, "\n")] = '\0';
    ck_assert_str_eq(text, expected);
    mmi_free(text);
}

static int32_t stop_at_five(void *user, const mm_train_progress *progress)
{
    (void)user;
    return progress->step == 5;
}

/* A tokenizer with all the files it may have. */
static const char *put_tokenizer(void)
{
    static char directory[600];
    static const char text[] = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}{% endfor %}"
                               "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
    snprintf(directory, sizeof directory, "%s", in_output("tokenizer"));
    mm_tokenizer *tokenizer = byte_tokenizer();
    ck_ok(mm_tokenizer_save(tokenizer, directory));
    put_file(directory, "chat_template.jinja", text, strlen(text));
    mm_tokenizer_free(tokenizer);
    return directory;
}

/* A run that stopped in the middle of an accumulation, with its checkpoint step-5. */
static void start_and_stop(tiny_run *run, tiny_options *options)
{
    *options = tiny_defaults(rows);
    options->tokenizer_directory = put_tokenizer();
    options->trainer.output = output;
    options->trainer.on_step = stop_at_five;
    tiny_start(run, options);
    ck_ok(mm_trainer_run(run->trainer));
    ck_assert_int_eq(tiny_steps(run), 5);
    options->trainer.on_step = NULL;
}

START_TEST(a_checkpoint_is_a_model_directory_that_other_functions_read)
{
    tiny_run run;
    tiny_options o;
    start_and_stop(&run, &o);
    static const char *const names[] = { "config.json",           "model.safetensors", "optimizer.safetensors",
                                         "gradients.safetensors", "tokenizer.json",    "chat_template.jinja",
                                             "state.json" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "step-5/%s", names[i]);
        ck_assert_msg(there(name), "%s is missing", name);
    }
    check_latest("step-5");
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    ck_ok(mm_model_load(in_output("step-5"), NULL, &model));
    ck_ok(mm_tokenizer_load(in_output("step-5"), &tokenizer));
    size_t n, m;
    float *a = tiny_weights(run.model, &n), *b = tiny_weights(model, &m);
    ck_assert_uint_eq(n, m);
    ck_assert_mem_eq(a, b, n * sizeof *a);
    ck_assert_int_eq(mm_tokenizer_vocab_size(tokenizer), 259);
    free(a);
    free(b);
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
    tiny_end(&run);
}
END_TEST

START_TEST(older_checkpoints_go_when_the_new_one_is_whole)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.trainer.output = output;
    o.trainer.save_interval = 3;
    o.trainer.keep_last = 2;
    ck_ok(mmi_make_directory(in_output("step-1.tmp/half")));
    ck_ok(mmi_make_directory(in_output("step-99")));
    ck_ok(mmi_make_directory(in_output("step-98.tmp/half")));
    static const char *const files[] = { "latest.123-4.tmp", "best.1-0.tmp",     "latest.123-4.tmpx", "latest.-4.tmp",
                                         "latest.1-.tmp",    "latest-notes.tmp", "notes.1-2.tmp" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        put_file(output, files[i], "x", 1);
    ck_ok(mmi_make_directory(in_output("step-2x")));
    ck_ok(mmi_make_directory(in_output("step-007"))); /* a number, but not as a checkpoint's name has it */
    ck_ok(mmi_make_directory(in_output("step-07.tmp")));
    ck_assert_int_eq(symlink("/nonexistent", in_output("step-2")), 0);
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    check_latest("step-16");
    ck_assert(there("step-16") && there("step-15"));
    ck_assert(!there("step-12") && !there("step-3"));
    ck_assert(!there("step-1.tmp")); /* what killed runs left */
    ck_assert(!there("step-98.tmp"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        ck_assert_msg(there(files[i]) == (i >= 2), "%s", files[i]);
    ck_assert(there("step-99") && there("step-2x")); /* not older, not ours */
    ck_assert(there("step-007") && there("step-07.tmp"));
    char to[16];
    ck_assert_int_eq(readlink(in_output("step-2"), to, sizeof to), -1); /* its turn came, and it is gone */
    tiny_end(&run);
}
END_TEST

START_TEST(all_checkpoints_stay_when_none_may_go)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.trainer.output = output;
    o.trainer.save_interval = 5;
    o.trainer.keep_last = 0;
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    ck_assert(there("step-5") && there("step-10") && there("step-15") && there("step-16"));
    ck_assert(!there("step-5/gradients.safetensors") == (5 % 3 == 0));
    ck_assert(!there("step-16/gradients.safetensors")); /* the run's end is an update */
    tiny_end(&run);
}
END_TEST

START_TEST(a_step_may_be_saved_again)
{
    tiny_run run, again;
    tiny_options o;
    start_and_stop(&run, &o);
    ck_ok(mm_trainer_save(run.trainer));
    check_latest("step-5");
    ck_assert(!there("step-5.old") && !there("step-5.tmp"));
    tiny_start(&again, &o);
    ck_ok(mm_trainer_resume(again.trainer, output));
    tiny_check_same(&again, &run);
    tiny_end(&run);
    tiny_end(&again);
}
END_TEST

static void save(void *trainer)
{
    ck_ok(mm_trainer_save(trainer));
}

START_TEST(one_trainer_at_a_time_writes_in_a_directory)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.trainer.output = output;
    tiny_start(&run, &o);
    int lock = mmi_lock_file(in_output(".lock"), 0); /* as if another process were writing there */
    ck_assert_int_ge(lock, 0);
    mmi_thread *thread = NULL;
    ck_ok(mmi_thread_start(&thread, save, run.trainer));
    nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000 * 1000 }, NULL);
    ck_assert(!there("latest") && !there("step-0.tmp"));
    mmi_unlock_file(lock);
    mmi_thread_join(thread);
    check_latest("step-0");
    ck_assert_int_eq(mmi_lock_file(in_output("latest/.lock"), 0), -1); /* no directory */
    mmi_unlock_file(-1);
    tiny_end(&run);
}
END_TEST

START_TEST(a_save_interrupted_between_its_renames_is_found)
{
    tiny_run run, again;
    tiny_options o;
    start_and_stop(&run, &o);
    ck_assert_int_eq(rename(in_output("step-5"), in_output("step-5.old")), 0);
    ck_ok(mmi_make_directory(in_output("step-5.tmp")));
    tiny_start(&again, &o);
    ck_ok(mm_trainer_resume(again.trainer, output));
    tiny_check_same(&again, &run);
    ck_ok(mm_trainer_save(again.trainer));
    check_latest("step-5");
    ck_assert(there("step-5") && !there("step-5.old") && !there("step-5.tmp"));
    tiny_end(&run);
    tiny_end(&again);
}
END_TEST

START_TEST(without_a_checkpoint_resuming_says_so)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    tiny_start(&run, &o);
    ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_IO);
    ck_error_mentions("there is no checkpoint");
    ck_status(mm_trainer_resume(run.trainer, "/no/such/directory"), MM_ERR_IO);
    put_file(output, "latest", "step-7\n", 7);
    ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_IO);
    ck_error_mentions("step-7");
    static const char *const wrong[] = { "",
                                         "\n",
                                         "step-",
                                         "../step-7",
                                         "step-7/../x",
                                         "step--7",
                                         "step-7 ",
                                         "step-99999999999999999999999",
                                         "step-000000000000000000000000000000000000000000000000000007" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_file(output, "latest", wrong[i], strlen(wrong[i]));
        ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
        ck_error_mentions("latest");
    }
    put_file(output, "latest", "step-7\0x", 8);
    ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
    tiny_end(&run);
}
END_TEST

/* --- Damage --- */

/* Overwrite a file, without the care that takes time. */
static void overwrite(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

static const char *const damaged_files[] = { "config.json",           "model.safetensors", "optimizer.safetensors",
                                             "gradients.safetensors", "tokenizer.json",    "state.json" };
#define DAMAGED_COUNT (sizeof damaged_files / sizeof *damaged_files)

/* A trainer that tries to resume must fail, name the file, and be as it was. */
static void check_refused(tiny_run *run, const tiny_run *untouched, const char *file, const char *what)
{
    mm_status status = mm_trainer_resume(run->trainer, output);
    ck_assert_msg(status == MM_ERR_FORMAT, "%s, %s: %s", file, what, mm_status_name(status));
    ck_assert_msg(strstr(mm_last_error(), file) != NULL, "%s, %s: \"%s\"", file, what, mm_last_error());
    tiny_check_same(run, untouched);
}

START_TEST(a_damaged_checkpoint_is_refused_and_changes_nothing)
{
    tiny_run saved, run, untouched;
    tiny_options o;
    start_and_stop(&saved, &o);
    tiny_start(&run, &o);
    o.trainer.output = NULL;
    tiny_start(&untouched, &o);
    test_rng rng = { 4 };
    for (size_t f = 0; f < DAMAGED_COUNT; f++) {
        char name[64], path[1024];
        char *bytes = NULL;
        size_t size = 0;
        snprintf(name, sizeof name, "step-5/%s", damaged_files[f]);
        snprintf(path, sizeof path, "%s", in_output(name));
        ck_ok(mmi_read_file(path, &bytes, &size));
        ck_assert_uint_gt(size, 100);
        for (int cut = 0; cut < 4; cut++) {
            const size_t lengths[] = { 0, 7, size / 2, size - 2 };
            overwrite(path, bytes, lengths[cut]);
            check_refused(&run, &untouched, damaged_files[f], "cut");
        }
        for (int flip = 0; flip < 40; flip++) {
            size_t at = (size_t)(rng_uniform(&rng) * (double)(size - 1));
            char mask = (char)(1 << rng_between(&rng, 0, 7));
            /* e or E of a number's exponent: both say the same */
            if (strcmp(damaged_files[f], "state.json") == 0 && mask == 0x20 && bytes[at] == 'e')
                continue;
            bytes[at] ^= mask;
            overwrite(path, bytes, size);
            check_refused(&run, &untouched, damaged_files[f], "a bit");
            bytes[at] ^= mask;
        }
        ck_assert_int_eq(unlink(path), 0);
        if (strcmp(damaged_files[f], "state.json") != 0) {
            check_refused(&run, &untouched, damaged_files[f], "missing");
        } else {
            ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_IO);
            ck_error_mentions("state.json");
        }
        overwrite(path, bytes, size);
        mmi_free(bytes);
    }
    ck_ok(mm_trainer_resume(run.trainer, output)); /* all is well again */
    tiny_check_same(&run, &saved);
    tiny_end(&run);
    tiny_end(&saved);
    tiny_end(&untouched);
}
END_TEST

START_TEST(state_that_is_whole_but_impossible_is_refused)
{
    static const char *const texts[] = { "{}",
                                         "[]",
                                         "{\"format\": \"minimind-checkpoint\"}",
                                         "{\"format\": \"minimind-checkpoint\", \"version\": 99}",
                                         "{\"format\": \"minimind-checkpoint\", \"version\": 1}",
                                         "{\"format\": \"minimind-checkpoint\", \"version\": 1, \"checksum\": \"x\"}",
                                         "{\"format\": 1, \"format\": 2}" };
    tiny_run run;
    tiny_options o;
    start_and_stop(&run, &o);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        overwrite(in_output("step-5/state.json"), texts[i], strlen(texts[i]));
        ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
        ck_error_mentions("state.json");
    }
    tiny_end(&run);
}
END_TEST

/* Say something else in state.json, with a checksum that is right again. `group` NULL: at the top; `value` NULL:
 * remove. */
static void rewrite_state(const char *group, const char *key, mmi_json *value)
{
    char text[MMI_HASH_TEXT], *whole = NULL;
    size_t length = 0;
    mmi_json *state = NULL;
    mmi_hash hash;
    ck_ok(mmi_json_read_file(in_output("step-5/state.json"), &state));
    mmi_json *object = group ? mmi_json_get(state, group) : state;
    mmi_json_remove(state, "checksum");
    if (value)
        ck_assert(mmi_json_set(object, key, value));
    else
        mmi_json_remove(object, key);
    ck_ok(mmi_json_write(state, 0, &whole, &length));
    mmi_hash_begin(&hash);
    mmi_hash_add(&hash, whole, length);
    mmi_hash_text(text, mmi_hash_end(&hash));
    ck_assert(mmi_json_set(state, "checksum", mmi_json_new_string(text, MMI_HASH_TEXT - 1)));
    ck_ok(mmi_json_write_file(state, 2, in_output("step-5/state.json")));
    mmi_json_free(state);
    mmi_free(whole);
}

START_TEST(state_that_lies_with_a_right_checksum_is_refused)
{
    static const struct {
        const char *group, *key;
        int64_t value; /* INT64_MIN: none */
        const char *mentioned;
    } lies[] = {
        { "now", "step", -1, "now.step" },
        { "now", "step", 2, "contradict" },
        { "now", "updates", 2, "contradict" },
        { "now", "data_row", 24, "row 24 of 23" },
        { "now", "data_row", INT64_MIN, "now.data_row" },
        { "now", "data_offset", 1, "offset" },
        { "now", "data_epoch", 1LL << 40, "contradict" },
        { "now", "step", INT64_MAX, "now.step" },
        { "now", "tokens", INT64_MAX, "now.tokens" },
        { "now", "epoch_step", INT64_MAX, "now.epoch_step" },
        { "now", "epoch_step", 6, "contradict" },
        { "now", "skipped_lines", INT64_MAX, "now.skipped_lines" },
        { "now", "step", 6, "accumulation_steps" },
        { "last_update", "tokens", INT64_MIN, "last_update.tokens" },
        { "last_update", "data_row", 24, "row 24 of 23" },
        { "last_update", "health", 3, "health.skipped" },
        { NULL, "now", INT64_MIN, "now.step" },
        { NULL, "options", 3, "options.epochs" },
        { "options", "seed", INT64_MIN, "options.seed" },
        { NULL, "files", INT64_MIN, "config.json" },
        { "files", "model.safetensors", INT64_MIN, "model.safetensors" },
        { "files", "model.safetensors", 7, "model.safetensors" },
        { NULL, "version", 2, "version 2" },
    };
    tiny_run run, untouched;
    tiny_options o;
    start_and_stop(&untouched, &o);
    tiny_end(&untouched);
    tiny_start(&run, &o);
    tiny_start(&untouched, &o);
    char *good = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(in_output("step-5/state.json"), &good, &size));
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        mmi_json *value = lies[i].value == INT64_MIN ? NULL : mmi_json_new_int(lies[i].value);
        rewrite_state(lies[i].group, lies[i].key, value);
        ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
        ck_error_mentions(lies[i].mentioned);
        tiny_check_same(&run, &untouched);
        overwrite(in_output("step-5/state.json"), good, size);
    }
    ck_ok(mm_trainer_resume(run.trainer, output));
    mmi_free(good);
    tiny_end(&run);
    tiny_end(&untouched);
}
END_TEST

/* Older ones say of their last update no more than where it was. */
START_TEST(a_checkpoint_goes_on_without_what_the_last_update_was_like)
{
    tiny_run saved, run;
    tiny_options o;
    start_and_stop(&saved, &o);
    rewrite_state("last_update", "health", NULL);
    tiny_start(&run, &o);
    ck_ok(mm_trainer_resume(run.trainer, output));
    ck_ok(mm_trainer_run(run.trainer));
    ck_ok(mm_trainer_run(saved.trainer));
    tiny_check_same(&run, &saved);
    tiny_end(&saved);
    tiny_end(&run);
}
END_TEST

START_TEST(a_checkpoint_of_another_run_is_refused_by_what_differs)
{
    tiny_run saved, run;
    tiny_options o;
    start_and_stop(&saved, &o);
    static const char *const names[] = {
        "learning_rate", "max_grad_norm", "beta2",      "weight_decay", "epochs", "max_steps", "accumulation_steps",
        "schedule",      "warmup_steps",  "batch_size", "max_length",   "form",   "shuffle",   "seed",
        "eos_id",        "data_rows",     "data_hash",  "trim"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_options other = o;
        char path[512];
        snprintf(path, sizeof path, "%s", rows);
        if (i == 15 || i == 16)
            snprintf(path, sizeof path, "%s", put_rows(scratch_directory(), "rows.jsonl", i == 15 ? 24 : 23, 12, 1));
        if (i == 16) { /* one letter of 23 rows */
            FILE *file = fopen(path, "r+b");
            fseek(file, 12, SEEK_SET);
            fputc('9', file);
            fclose(file);
        }
        other.path = path;
        other.trainer.learning_rate *= i == 0 ? 2 : 1;
        other.trainer.max_grad_norm += i == 1;
        other.trainer.beta2 = i == 2 ? 0.9 : other.trainer.beta2;
        other.trainer.weight_decay += i == 3;
        other.trainer.epochs -= i == 4; /* longer it may become */
        other.trainer.max_steps += i == 5 ? 9 : 0;
        other.trainer.accumulation_steps += i == 6;
        other.trainer.schedule += i == 7;
        other.trainer.warmup_steps += i == 8;
        other.loader.batch += i == 9;
        other.loader.max_length += i == 10;
        other.loader.form = i == 11 ? MM_ROWS_PAD3 : MM_ROWS_PAD;
        other.loader.shuffle = i != 12;
        other.loader.seed += i == 13;
        other.loader.eos_id += i == 14;
        other.loader.trim = i == 17;
        tiny_start(&run, &other);
        ck_status(mm_trainer_resume(run.trainer, output), MM_ERR_FORMAT);
        ck_error_mentions(names[i]);
        if (i == 2) /* in as few digits as tell it from its neighbours */
            ck_assert_str_eq(strrchr(mm_last_error(), ' '), " 0.9");
        ck_assert_int_eq(tiny_steps(&run), 0);
        tiny_end(&run);
    }
    tiny_end(&saved);
}
END_TEST

/* byte_tokenizer() with "aa" and "aaa", of which the second is made of `left` and `right`; token 0 special or not. */
static const char *put_merging_tokenizer(const char *left, const char *right, bool special)
{
    const char *const merges[][2] = { { "a", "a" }, { left, right } };
    const char *directory = put_tokenizer();
    char path[700];
    mmi_json *root = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    ck_ok(mmi_json_read_file(path, &root));
    mmi_json *model = mmi_json_get(root, "model"), *vocab = mmi_json_get(model, "vocab");
    ck_assert(mmi_json_set_int(vocab, "aa", 259) && mmi_json_set_int(vocab, "aaa", 260));
    for (int i = 0; i < 2; i++) {
        mmi_json *pair = mmi_json_new_array();
        for (int k = 0; k < 2; k++)
            ck_assert(mmi_json_append(pair, mmi_json_new_string(merges[i][k], strlen(merges[i][k]))));
        ck_assert(mmi_json_append(mmi_json_get(model, "merges"), pair));
    }
    mmi_json *first = mmi_json_at(mmi_json_get(root, "added_tokens"), 0);
    ck_assert(mmi_json_set(first, "special", mmi_json_new_bool(special)));
    ck_ok(mmi_json_write_file(root, 2, path));
    mmi_json_free(root);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", directory); /* which says the same of token 0 */
    ck_assert_int_eq(remove(path), 0);
    return directory;
}

/* All four have the same tokens. */
START_TEST(a_checkpoint_of_a_tokenizer_that_cuts_otherwise_is_refused)
{
    static const struct {
        const char *left, *right;
        bool special;
        mm_status expected;
    } others[] = { { "a", "aa", true, MM_ERR_FORMAT }, { "aa", "a", false, MM_ERR_FORMAT }, { "aa", "a", true, MM_OK } };
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.vocab_size = 261;
    o.trainer.output = output;
    o.trainer.on_step = stop_at_five;
    o.tokenizer_directory = put_merging_tokenizer("aa", "a", true);
    tiny_start(&run, &o);
    ck_ok(mm_trainer_run(run.trainer));
    tiny_end(&run);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        o.tokenizer_directory = put_merging_tokenizer(others[i].left, others[i].right, others[i].special);
        tiny_start(&run, &o);
        ck_status(mm_trainer_resume(run.trainer, output), others[i].expected);
        if (others[i].expected != MM_OK)
            ck_error_mentions("its tokenizer_hash is");
        tiny_end(&run);
    }
    rewrite_state("options", "tokenizer_hash", NULL); /* as older ones are */
    o.tokenizer_directory = put_merging_tokenizer("a", "aa", true);
    tiny_start(&run, &o);
    ck_ok(mm_trainer_resume(run.trainer, output));
    tiny_end(&run);
}
END_TEST

/* Where it may end the run, how it is read counts. */
START_TEST(a_checkpoint_with_another_validation_is_refused_where_patience_counts)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.validation = rows;
    o.trainer.eval_interval = 2;
    o.trainer.output = output;
    o.trainer.on_step = stop_at_five;
    for (o.trainer.patience = 0; o.trainer.patience < 9; o.trainer.patience += 8) {
        o.validation_length = 0;
        tiny_start(&run, &o);
        ck_ok(mm_trainer_run(run.trainer));
        tiny_end(&run);
        o.validation_length = 5;
        tiny_start(&run, &o);
        ck_status(mm_trainer_resume(run.trainer, output), o.trainer.patience > 0 ? MM_ERR_FORMAT : MM_OK);
        if (o.trainer.patience > 0)
            ck_error_mentions("\"max_length\"");
        tiny_end(&run);
    }
}
END_TEST

START_TEST(a_checkpoint_of_another_model_is_refused_by_what_differs)
{
    static const char *const keys[] = { "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size" };
    tiny_run saved, run;
    tiny_options o;
    start_and_stop(&saved, &o);
    tiny_start(&run, &o);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        mm_config *config = tiny_config();
        int64_t value;
        mm_model *model = NULL;
        mm_trainer *trainer = NULL;
        ck_ok(mm_config_get_int(config, keys[i], &value));
        ck_ok(mm_config_set_int(config, keys[i], value + 8));
        ck_ok(mm_model_create(config, 1, &model));
        ck_ok(mm_trainer_create(model, run.loader, NULL, &o.trainer, &trainer));
        ck_status(mm_trainer_resume(trainer, output), MM_ERR_FORMAT);
        ck_error_mentions(keys[i]);
        mm_trainer_free(trainer);
        mm_model_free(model);
        mm_config_free(config);
    }
    tiny_end(&run);
    tiny_end(&saved);
}
END_TEST

/* --- Trouble while saving --- */

START_TEST(a_full_disk_leaves_the_last_checkpoint)
{
    tiny_run run, again;
    tiny_options o;
    start_and_stop(&run, &o);
    tiny_start(&again, &o);
    ck_ok(mm_trainer_resume(again.trainer, output));
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    for (rlim_t room = 100; room < 200000; room = room * 3) { /* each of the files is the one that does not fit */
        small.rlim_cur = room;
        int set = setrlimit(RLIMIT_FSIZE, &small); /* no check meanwhile: libcheck writes to a file of its own */
        mm_status status = mm_trainer_run(again.trainer);
        ck_assert(setrlimit(RLIMIT_FSIZE, &before) == 0 && set == 0);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_IO);
        ck_assert_int_eq(tiny_steps(&again), 16); /* it was trained to the end; only the saving failed */
        check_latest("step-5");
        ck_assert(there("step-5") && !there("step-16") && !there("step-16.tmp"));
    }
    ck_ok(mm_trainer_run(again.trainer)); /* with room again, nothing is lost */
    check_latest("step-16");
    ck_ok(mm_trainer_run(run.trainer));
    tiny_check_same(&again, &run);
    tiny_end(&run);
    tiny_end(&again);
}
END_TEST

/* Once the checkpoint of step 4 is there, let files grow no further. */
static int32_t fill_the_disk(void *user, const mm_train_progress *p)
{
    struct rlimit small = *(const struct rlimit *)user;
    const struct timespec pause = { 0, 1000000 };
    if (p->step != 7)
        return 0;
    while (!there("latest"))
        nanosleep(&pause, NULL);
    small.rlim_cur = 3000;
    return setrlimit(RLIMIT_FSIZE, &small) != 0; /* unchecked: libcheck writes to a file of its own */
}

START_TEST(a_full_disk_is_told_by_the_next_save_when_they_go_on_beside)
{
    tiny_run run, whole;
    struct rlimit before;
    tiny_options o = tiny_defaults(rows);
    o.trainer.output = output;
    o.trainer.save_interval = 4;
    o.trainer.background_save = 1;
    o.trainer.on_step = fill_the_disk;
    o.trainer.user = &before;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    tiny_start(&run, &o);
    mm_status status = mm_trainer_run(run.trainer);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(status, MM_ERR_IO);
    ck_error_mentions("step-8.tmp");
    ck_assert_int_eq(tiny_steps(&run), 12);
    check_latest("step-4");
    ck_assert(there("step-4") && !there("step-8") && !there("step-8.tmp"));
    ck_ok(mm_trainer_run(run.trainer)); /* the failure was told; now it goes on */
    check_latest("step-16");
    o.trainer.output = NULL;
    o.trainer.on_step = NULL;
    tiny_start(&whole, &o);
    ck_ok(mm_trainer_run(whole.trainer));
    tiny_check_same(&run, &whole);
    tiny_end(&run);
    tiny_end(&whole);
}
END_TEST

START_TEST(freeing_a_trainer_waits_for_its_checkpoint)
{
    for (int i = 0; i < 10; i++) {
        tiny_run run;
        tiny_options o = tiny_defaults(rows);
        o.trainer.output = output;
        o.trainer.save_interval = 1;
        o.trainer.background_save = 1;
        o.trainer.on_step = stop_at_five;
        tiny_start(&run, &o);
        ck_ok(mm_trainer_run(run.trainer));
        ck_ok(mm_trainer_save(run.trainer));
        tiny_end(&run);
        check_latest("step-5");
        ck_assert(there("step-5/state.json") && !there("step-5.tmp"));
    }
}
END_TEST

START_TEST(an_output_that_is_no_directory_is_noticed_before_the_first_step)
{
    tiny_run run;
    tiny_options o = tiny_defaults(rows);
    o.trainer.output = rows;
    tiny_start(&run, &o);
    ck_status(mm_trainer_run(run.trainer), MM_ERR_IO);
    ck_assert_int_eq(tiny_steps(&run), 0);
    tiny_end(&run);
}
END_TEST

START_TEST(every_failing_allocation_of_saving_and_resuming_is_survived)
{
    tiny_run run, saved;
    tiny_options o;
    start_and_stop(&saved, &o);
    tiny_start(&run, &o);
    ck_ok(mm_trainer_resume(run.trainer, output));
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_memory_get_usage(&before);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        ck_assert_uint_lt(n, 1000);
        mmi_memory_fail_at(n, false);
        mm_status status = mm_trainer_save(run.trainer);
        done = mmi_memory_fail_at(0, false) < n;
        if (status != MM_OK)
            ck_assert_int_eq(status, MM_ERR_MEMORY);
        check_latest("step-5");
        ck_assert(there("step-5/state.json"));
    }
    done = false;
    for (uint64_t n = 1; !done; n++) {
        ck_assert_uint_lt(n, 2000);
        mmi_memory_fail_at(n, false);
        mm_status status = mm_trainer_resume(run.trainer, output);
        done = mmi_memory_fail_at(0, false) < n;
        ck_assert_int_eq(status, done ? MM_OK : MM_ERR_MEMORY);
        tiny_check_same(&run, &saved);
    }
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
    tiny_end(&run);
    tiny_end(&saved);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/checkpoint");
    TCase *tc = tcase_create("checkpoint");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, a_checkpoint_is_a_model_directory_that_other_functions_read);
    tcase_add_test(tc, older_checkpoints_go_when_the_new_one_is_whole);
    tcase_add_test(tc, all_checkpoints_stay_when_none_may_go);
    tcase_add_test(tc, a_step_may_be_saved_again);
    tcase_add_test(tc, one_trainer_at_a_time_writes_in_a_directory);
    tcase_add_test(tc, a_save_interrupted_between_its_renames_is_found);
    tcase_add_test(tc, without_a_checkpoint_resuming_says_so);
    tcase_add_test(tc, a_damaged_checkpoint_is_refused_and_changes_nothing);
    tcase_add_test(tc, state_that_is_whole_but_impossible_is_refused);
    tcase_add_test(tc, state_that_lies_with_a_right_checksum_is_refused);
    tcase_add_test(tc, a_checkpoint_goes_on_without_what_the_last_update_was_like);
    tcase_add_test(tc, a_checkpoint_of_another_run_is_refused_by_what_differs);
    tcase_add_test(tc, a_checkpoint_of_a_tokenizer_that_cuts_otherwise_is_refused);
    tcase_add_test(tc, a_checkpoint_with_another_validation_is_refused_where_patience_counts);
    tcase_add_test(tc, a_checkpoint_of_another_model_is_refused_by_what_differs);
    tcase_add_test(tc, a_full_disk_leaves_the_last_checkpoint);
    tcase_add_test(tc, a_full_disk_is_told_by_the_next_save_when_they_go_on_beside);
    tcase_add_test(tc, freeing_a_trainer_waits_for_its_checkpoint);
    tcase_add_test(tc, an_output_that_is_no_directory_is_noticed_before_the_first_step);
    tcase_add_test(tc, every_failing_allocation_of_saving_and_resuming_is_survived);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
