/* Every call to the file system that the library makes fails once, and then from some point on for good; reads and
 * writes come short or are interrupted.
 *
 * What must hold: a status, never a crash; no descriptor, mapping or byte left behind; MM_OK only with the right
 * result; and on disk the old state or the new one, whole. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../data/texts.h"
#include "../train/tiny.h"
#include "base/files.h"
#include "base/memory.h"
#include "files.h"
#include "io_deeds.h"

char io_directory[512], io_rows_directory[512];
mm_model *io_model; /* another than the one in the directory */
mm_tokenizer *io_tokenizer;
static char rows[600], index_path[640];

/* --- What is tried: it frees all it makes, and gives the first status that is not MM_OK, else what came out --- */

void io_digest(uint64_t *out, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        *out = (*out ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

void io_digest_model(uint64_t *out, const mm_model *model)
{
    size_t count = 0;
    float *weights = tiny_weights(model, &count);
    io_digest(out, weights, count * sizeof *weights);
    free(weights);
}

static mm_status load_model(uint64_t *out, int32_t map)
{
    mm_model *model = NULL;
    mm_load_options options = MM_LOAD_OPTIONS_INIT;
    options.map = map;
    mm_status status = mm_model_load(io_directory, &options, &model);
    if (status == MM_OK)
        io_digest_model(out, model);
    mm_model_free(model);
    return status;
}

static mm_status loading_a_model(uint64_t *out)
{
    return load_model(out, 0);
}

static mm_status mapping_a_model(uint64_t *out)
{
    return load_model(out, 1);
}

static mm_status saving_a_model(uint64_t *out)
{
    (void)out;
    return mm_model_save(io_model, io_directory);
}

/* Like io_model, in whole blocks. */
static mm_model *in_blocks(uint64_t seed)
{
    mm_config *config = NULL;
    mm_model *model = NULL, *blocks = NULL;
    ck_ok(mm_config_copy(mm_model_config(io_model), &config));
    ck_ok(mm_config_set_int(config, "intermediate_size", 64));
    ck_ok(mm_model_create(config, seed, &model));
    ck_ok(mm_model_quantize(model, MM_Q8_0, &blocks));
    mm_model_free(model);
    mm_config_free(config);
    return blocks;
}

/* Their values: blocks that are the same have the same. */
static void digest_blocks(uint64_t *out, const mm_model *blocks)
{
    mm_model *values = NULL;
    ck_ok(mm_model_cast(blocks, MM_F32, &values));
    io_digest_model(out, values);
    mm_model_free(values);
}

static mm_status loading_blocks(uint64_t *out)
{
    mm_model *blocks = NULL;
    mm_status status = mm_model_load(io_directory, NULL, &blocks);
    if (status == MM_OK)
        digest_blocks(out, blocks);
    mm_model_free(blocks);
    return status;
}

static mm_status saving_blocks(uint64_t *out)
{
    (void)out;
    mm_model *blocks = in_blocks(2);
    mm_status status = mm_model_save(blocks, io_directory);
    mm_model_free(blocks);
    return status;
}

static mm_status loading_and_saving_a_config(uint64_t *out)
{
    mm_config *config = NULL;
    int64_t size = 0;
    mm_status status = mm_config_load(io_directory, &config);
    if (status == MM_OK)
        status = mm_config_get_int(config, "hidden_size", &size);
    if (status == MM_OK)
        status = mm_config_save(config, io_directory);
    io_digest(out, &size, sizeof size);
    mm_config_free(config);
    return status;
}

static mm_status loading_a_tokenizer(uint64_t *out)
{
    static const char text[] = "to be or not to be";
    mm_tokenizer *loaded = NULL;
    const char *name = NULL;
    int32_t ids[64];
    size_t count = 0;
    mm_status status = mm_tokenizer_load(io_directory, &loaded);
    if (status == MM_OK) {
        mm_status template = mm_chat_template_name(loaded, &name); /* tokenizer_config.json was read */
        io_digest(out, &template, sizeof template);
        status = mm_encode(loaded, text, strlen(text), MM_SPLIT_ALL, ids, 64, &count);
    }
    io_digest(out, ids, count * sizeof *ids);
    mm_tokenizer_free(loaded);
    return status;
}

static mm_status saving_a_tokenizer(uint64_t *out)
{
    (void)out;
    return mm_tokenizer_save(io_tokenizer, io_directory);
}

static mm_status reading_rows(uint64_t *out)
{
    mm_dataset *dataset = NULL;
    mm_dataset_options options = MM_DATASET_OPTIONS_INIT;
    const char *paths[] = { rows };
    options.paths = paths, options.count = 1;
    options.cache_from = 0;
    options.validation = 0.25, options.side = MM_SIDE_TRAIN; /* a block of the index is read again for each row */
    mm_status status = mm_dataset_create(&options, &dataset);
    for (int64_t i = 0; status == MM_OK && i < mm_dataset_rows(dataset); i++) {
        char text[256];
        size_t size = 0;
        status = mm_dataset_text(dataset, i, text, sizeof text, &size);
        io_digest(out, text, size);
    }
    mm_dataset_free(dataset);
    return status;
}

static mm_status keeping_moments(uint64_t *out)
{
    char path[600];
    mm_optimizer *one = NULL, *two = NULL;
    snprintf(path, sizeof path, "%s/moments.safetensors", io_directory);
    mm_status status = mm_adamw_create(io_model, NULL, &one);
    if (status == MM_OK)
        status = mm_adamw_create(io_model, NULL, &two);
    if (status == MM_OK)
        status = mm_optimizer_save(one, path);
    if (status == MM_OK)
        status = mm_optimizer_load(two, path);
    (void)out;
    mm_optimizer_free(two);
    mm_optimizer_free(one);
    return status;
}

static mm_status keeping_a_cache(uint64_t *out)
{
    char path[600];
    mm_cache *cache = NULL, *again = NULL;
    snprintf(path, sizeof path, "%s/prompt.cache", io_directory);
    mm_status status = mm_cache_create(io_model, 1, 16, MM_F32, &cache);
    if (status == MM_OK)
        status = mm_cache_save(cache, path);
    if (status == MM_OK)
        status = mm_cache_load(io_model, path, &again);
    (void)out;
    mm_cache_free(again);
    mm_cache_free(cache);
    return status;
}

static int32_t stop_at_five(void *user, const mm_train_progress *progress)
{
    (void)user;
    return progress->step == 5;
}

/* A run of 8 steps with checkpoints on the way, from the latest one on where there is one. */
static mm_status train(uint64_t *out, bool resumes, mm_train_fn on_step)
{
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_trainer *trainer = NULL;
    mm_model *model = tiny_model(1);
    tiny_options o = tiny_defaults(rows);
    o.loader.workers = 0;
    o.trainer.output = io_directory;
    o.trainer.max_steps = 8;
    o.trainer.save_interval = 7;
    o.trainer.on_step = on_step;
    mm_status status = mm_dataset_open(rows, &dataset);
    if (status == MM_OK)
        status = mm_loader_create(dataset, io_tokenizer, &o.loader, &loader);
    if (status == MM_OK)
        status = mm_trainer_create(model, loader, io_tokenizer, &o.trainer, &trainer);
    if (status == MM_OK && resumes)
        status = mm_trainer_resume(trainer, io_directory);
    if (status == MM_OK)
        status = mm_trainer_run(trainer);
    if (status == MM_OK)
        io_digest_model(out, model);
    mm_trainer_free(trainer);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_model_free(model);
    return status;
}

static mm_status training(uint64_t *out)
{
    return train(out, true, NULL);
}

/* --- What stands before, and what must stand after --- */

static void put_model(void)
{
    mm_model *model = tiny_model(1);
    ck_ok(mm_model_save(model, io_directory));
    mm_model_free(model);
}

static void put_blocks(void)
{
    mm_model *blocks = in_blocks(1);
    ck_ok(mm_model_save(blocks, io_directory));
    mm_model_free(blocks);
}

static void blocks_stand(mm_status status)
{
    uint64_t here = 0, old = 0, new = 0;
    mm_model *a = in_blocks(1), *b = in_blocks(2);
    ck_ok(loading_blocks(&here));
    digest_blocks(&old, a);
    digest_blocks(&new, b);
    ck_assert(old != new && (here == new || (here == old && status != MM_OK)));
    mm_model_free(b);
    mm_model_free(a);
}

/* Either model, and nothing else. */
static void model_stands(mm_status status)
{
    uint64_t here = 0, old = 0, new = 0;
    mm_model *model = tiny_model(1);
    ck_ok(loading_a_model(&here));
    io_digest_model(&old, model);
    io_digest_model(&new, io_model);
    ck_assert(here == new || (here == old && status != MM_OK));
    mm_model_free(model);
}

static void config_stands(mm_status status)
{
    mm_config *config = NULL;
    (void)status;
    ck_ok(mm_config_load(io_directory, &config));
    mm_config_free(config);
}

static void tokenizer_stands(mm_status status)
{
    uint64_t here = 0;
    (void)status;
    ck_ok(loading_a_tokenizer(&here));
}

static void no_index(void)
{
    remove(index_path);
}

static void put_index(void)
{
    uint64_t any = 0;
    ck_ok(reading_rows(&any));
    ck_assert(mmi_file_exists(index_path));
}

/* Of a run that stopped in the middle of an accumulation. */
static void put_checkpoint(void)
{
    uint64_t any = 0;
    ck_ok(mmi_remove_tree(io_directory));
    ck_ok(train(&any, false, stop_at_five));
}

/* `latest` is whole, and the run goes on from there to where it would have come. */
static void checkpoint_stands(mm_status status)
{
    uint64_t resumed = 0;
    static uint64_t whole;
    (void)status;
    ck_ok(training(&resumed));
    if (whole == 0)
        whole = resumed;
    ck_assert_uint_eq(resumed, whole);
}

static const io_deed own_deeds[] = {
    { "loading a model", put_model, loading_a_model, NULL },
    { "mapping a model", put_model, mapping_a_model, NULL },
    { "saving a model", put_model, saving_a_model, model_stands },
    { "loading blocks", put_blocks, loading_blocks, NULL },
    { "saving blocks", put_blocks, saving_blocks, blocks_stand },
    { "loading and saving a config", put_model, loading_and_saving_a_config, config_stands },
    { "loading a tokenizer", NULL, loading_a_tokenizer, tokenizer_stands },
    { "saving a tokenizer", NULL, saving_a_tokenizer, tokenizer_stands },
    { "indexing rows", no_index, reading_rows, NULL },
    { "reading an index", put_index, reading_rows, NULL },
    { "keeping an optimizer's moments", NULL, keeping_moments, NULL },
    { "keeping a cache", NULL, keeping_a_cache, NULL },
    { "training", put_checkpoint, training, checkpoint_stands },
};
#define OWN_DEEDS ((int)(sizeof own_deeds / sizeof *own_deeds))

/* Its own deeds, then the others'. */
static const io_deed *deed_at(int i)
{
    return i < OWN_DEEDS ? &own_deeds[i] : &io_learn_deeds[i - OWN_DEEDS];
}

static void prepare(void)
{
    /* a byte order mark that comes in pieces is still none of the first line */
    static const char head[] = "\xEF\xBB\xBF{\"text\": \"the first\"}\n\n", more[] = "{\"text\": \"and so on\"}\n";
    char file[600];
    snprintf(io_directory, sizeof io_directory, "%s", scratch_directory());
    snprintf(io_rows_directory, sizeof io_rows_directory, "%s", scratch_directory());
    snprintf(rows, sizeof rows, "%s/rows.jsonl", io_rows_directory);
    snprintf(index_path, sizeof index_path, "%s.mmidx", rows);
    FILE *out = fopen(rows, "w");
    ck_assert_ptr_nonnull(out);
    fputs(head, out);
    for (int i = 0; i < 30; i++)
        fputs(more, out);
    ck_assert_int_eq(fclose(out), 0);
    io_model = tiny_model(2);
    io_tokenizer = byte_tokenizer();
    ck_ok(mm_tokenizer_save(io_tokenizer, io_directory));
    snprintf(file, sizeof file, "%s/tokenizer_config.json", io_directory);
    out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    fputs("{\"chat_template\": \"{{ nobody }}\"}", out);
    ck_assert_int_eq(fclose(out), 0);
    io_learn_prepare();
}

static void clear(void)
{
    mm_tokenizer_free(io_tokenizer);
    mm_model_free(io_model);
}

/* No file of a save that did not end. An old checkpoint that could not be removed goes with the next one that is saved.
 */
static void nothing_is_half_written(const char *place, mm_status status, const char *story)
{
    DIR *list = opendir(place);
    ck_assert_ptr_nonnull(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        ck_assert_msg(!strstr(entry->d_name, ".tmp") || (status == MM_OK && strncmp(entry->d_name, "step-", 5) == 0),
                      "%s: %s is left", story, entry->d_name);
    closedir(list);
}

/* Run under the conditions given; how many requests were made. */
static long attempt(const io_deed *deed, files_manner how, long n, int error, uint64_t expected)
{
    char story[256];
    uint64_t result = 0;
    if (deed->prepare)
        deed->prepare();
    uint64_t before = bytes_held();
    files_begin(how, n, error);
    mm_status status = deed->run(&result);
    files_seen seen = files_end();
    snprintf(story, sizeof story, "%s, %s as request %ld%s", deed->name, seen.failed, n,
             how == FILES_FAIL_ON ? " on" : "");
    ck_assert_msg(bytes_held() == before, "%s: memory leaks", story);
    ck_assert_msg(seen.descriptors == 0 && seen.mappings == 0, "%s: %ld descriptors and %ld mappings stay open", story,
                  seen.descriptors, seen.mappings);
    if (how == FILES_FAIL_ONCE || how == FILES_FAIL_ON)
        ck_assert_msg(status == MM_OK || status == MM_ERR_IO, "%s: %s (%s)", story, mm_status_name(status),
                      mm_last_error());
    else
        ck_assert_msg(status == MM_OK, "%s: %s (%s)", story, mm_status_name(status), mm_last_error());
    if (status == MM_OK)
        ck_assert_msg(result == expected, "%s: MM_OK with another result", story);
    bool can_remove = (how != FILES_FAIL_ON || error == ENOSPC) && strcmp(seen.failed, "unlink") != 0;
    if (can_remove) {
        nothing_is_half_written(io_directory, status, story);
        nothing_is_half_written(io_rows_directory, status, story);
    }
    if (deed->check)
        deed->check(status);
    return seen.requests;
}

static uint64_t result_of(const io_deed *deed)
{
    uint64_t result = 0;
    if (deed->prepare)
        deed->prepare();
    ck_ok(deed->run(&result));
    return result;
}

/* Training makes some hundred requests and takes a while: only one in 17 of them, unless the program is called with an
 * argument. */
static long stride;

static void every_request(const io_deed *deed, files_manner how, int error)
{
    prepare();
    uint64_t expected = result_of(deed);
    long step = deed->run == training ? stride : 1;
    for (long n = 1; attempt(deed, how, n, error, expected) >= n; n += step)
        ;
    clear();
}

START_TEST(a_request_that_fails_once_is_survived)
{
    every_request(deed_at(_i), FILES_FAIL_ONCE, EIO);
}
END_TEST

START_TEST(a_file_system_that_is_gone_is_survived)
{
    every_request(deed_at(_i), FILES_FAIL_ON, EIO);
}
END_TEST

START_TEST(a_disk_that_is_full_is_survived)
{
    every_request(deed_at(_i), FILES_FAIL_ON, ENOSPC);
}
END_TEST

START_TEST(reads_and_writes_that_come_short_are_gone_on_with)
{
    prepare();
    attempt(deed_at(_i), FILES_SHORT, 0, 0, result_of(deed_at(_i)));
    clear();
}
END_TEST

START_TEST(what_a_signal_interrupts_is_tried_again)
{
    prepare();
    attempt(deed_at(_i), FILES_INTERRUPT, 0, 0, result_of(deed_at(_i)));
    clear();
}
END_TEST

/* Weights and config are of one saving, whichever request fails. Only where the second of the two renames does they are
 * not, as where a process ends between them. */
START_TEST(a_model_and_its_config_are_replaced_together)
{
    prepare();
    mm_config *config = NULL;
    mm_model *turned = NULL;
    uint64_t wanted = 0;
    ck_ok(mm_config_copy(mm_model_config(io_model), &config));
    ck_ok(mm_config_set_float(config, "rope_theta", 100));
    ck_ok(mm_model_create(config, 2, &turned));
    io_digest_model(&wanted, turned);
    int mixed = 0, replaced_unsynced = 0;
    for (long n = 1, requests = n; requests >= n; n++) {
        put_model();
        files_begin(FILES_FAIL_ONCE, n, EIO);
        mm_status status = mm_model_save(turned, io_directory);
        files_seen seen = files_end();
        requests = seen.requests;
        mm_model *here = NULL;
        double theta = 0;
        uint64_t weights = 0;
        ck_ok(mm_model_load(io_directory, NULL, &here));
        ck_ok(mm_config_get_float(mm_model_config(here), "rope_theta", &theta));
        io_digest_model(&weights, here);
        bool new_config = theta == 100, new_weights = weights == wanted;
        if (new_config != new_weights) {
            ck_assert_msg(strcmp(seen.failed, "rename") == 0, "%s as request %ld leaves a new %s only", seen.failed, n,
                          new_config ? "config" : "model");
            mixed++;
        }
        ck_assert(status != MM_OK || (new_config && new_weights));
        if (new_config && new_weights && strcmp(seen.failed, "fsync") == 0) {
            ck_status(status, MM_ERR_IO);
            replaced_unsynced++;
        }
        mm_model_free(here);
    }
    ck_assert_int_eq(mixed, 1);
    ck_assert_int_eq(replaced_unsynced, 1);
    mm_model_free(turned);
    mm_config_free(config);
    clear();
}
END_TEST

/* What a call that failed left behind is taken back by the next one, where it could not be at once. */
START_TEST(a_line_that_could_not_be_taken_back_goes_with_the_next_one)
{
    prepare();
    char path[600];
    snprintf(path, sizeof path, "%s/metrics.jsonl", io_directory);
    for (long n = 1, requests = n; requests >= n; n++) {
        mm_report *report = NULL;
        mm_report_options options = MM_REPORT_OPTIONS_INIT;
        char *text = NULL;
        size_t size = 0;
        options.resume_step = -1;
        ck_ok(mm_report_create(io_directory, &options, &report));
        ck_ok(mm_report_scalar(report, 1, "loss", 3));
        files_begin(FILES_FAIL_ON, n, EIO);
        mm_status status = mm_report_scalar(report, 2, "loss", 2);
        mm_status again = mm_report_scalar(report, 3, "loss", 2);
        files_seen seen = files_end();
        requests = seen.requests;
        ck_ok(mm_report_scalar(report, 4, "loss", 1));
        mm_report_free(report);
        ck_ok(mmi_read_file(path, &text, &size));
        ck_assert(strstr(text, "{\"step\":1,") && strstr(text, "\n{\"step\":4,"));
        ck_assert_msg(!strstr(text, "\"step\":2,") == (status != MM_OK), "%s as request %ld: %s", seen.failed, n, text);
        ck_assert_msg(!strstr(text, "\"step\":3,") == (again != MM_OK), "%s as request %ld: %s", seen.failed, n, text);
        mmi_free(text);
    }
    clear();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("io");
    TCase *tc = tcase_create("io");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_request_that_fails_once_is_survived, 0, OWN_DEEDS + io_learn_count);
    tcase_add_loop_test(tc, a_file_system_that_is_gone_is_survived, 0, OWN_DEEDS + io_learn_count);
    tcase_add_loop_test(tc, a_disk_that_is_full_is_survived, 0, OWN_DEEDS + io_learn_count);
    tcase_add_loop_test(tc, reads_and_writes_that_come_short_are_gone_on_with, 0, OWN_DEEDS + io_learn_count);
    tcase_add_loop_test(tc, what_a_signal_interrupts_is_tried_again, 0, OWN_DEEDS + io_learn_count);
    tcase_add_test(tc, a_model_and_its_config_are_replaced_together);
    tcase_add_test(tc, a_line_that_could_not_be_taken_back_goes_with_the_next_one);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(int argc, char **argv)
{
    (void)argv;
    stride = argc > 1 ? 1 : 17;
    return run_suite(make_suite());
}
