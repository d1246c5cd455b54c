/* Saving models: whole files or the old ones, whatever happens in between. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "checkpoint.h"
#include "model/model.h"
#include "support.h"

static mm_model *load(const char *directory)
{
    mm_model *model = NULL;
    ck_ok(mm_model_load(directory, NULL, &model));
    return model;
}

static void loads_as(const char *directory, const mm_model *expected)
{
    mm_model *model = load(directory);
    same_weights(model, expected);
    mm_model_free(model);
}

static void same_files(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t size_x = 0, size_y = 0;
    ck_ok(mmi_read_file(a, &x, &size_x));
    ck_ok(mmi_read_file(b, &y, &size_y));
    ck_assert_msg(size_x == size_y && memcmp(x, y, size_x) == 0, "%s and %s differ", a, b);
    mmi_free(x);
    mmi_free(y);
}

START_TEST(what_was_saved_loads_and_saves_to_the_same_bytes)
{
    static const int32_t dtypes[] = { MM_F32, MM_BF16, MM_F16 };
    mm_model *model = sample_model(1), *cast = NULL, *again = NULL;
    mm_load_options keep = MM_LOAD_OPTIONS_INIT;
    keep.keep_dtype = 1;
    ck_ok(mm_model_cast(model, dtypes[_i], &cast));
    const char *root = scratch_directory();
    const char *first = in(root, "a/b/c"), *second = in(root, "second");
    ck_ok(mm_model_save(cast, first));
    ck_ok(mm_model_load(first, &keep, &again));
    same_weights(again, cast);
    ck_ok(mm_model_save(again, second));
    same_files(in(first, "model.safetensors"), in(second, "model.safetensors"));
    same_files(in(first, "config.json"), in(second, "config.json"));
    ck_assert_int_eq(files_in(first), 2);
    mm_model_free(again);
    mm_model_free(cast);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(unknown_keys_of_the_config_are_written_back)
{
    mm_model *model = sample_model(1);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(model, directory));
    char *text = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(in(directory, "config.json"), &text, &size));
    ck_assert_ptr_nonnull(strstr(text, "\"note\""));
    ck_assert_ptr_nonnull(strstr(text, "kept"));
    mmi_free(text);
    mm_model_free(model);
}
END_TEST

static char *text_of(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(path, &text, &size));
    return text;
}

/* Upstream casts to what it reads there: float32 weights beside a bfloat16 config would lose half of themselves. */
START_TEST(the_dtype_of_the_config_is_that_of_the_weights)
{
    static const struct {
        int32_t dtype;
        const char *name;
    } cases[] = { { MM_F32, "float32" }, { MM_BF16, "bfloat16" }, { MM_F16, "float16" } };
    mm_model *model = sample_model(1);
    const char *directory = scratch_directory(), *path = in(directory, "config.json");
    ck_ok(mm_config_save(mm_model_config(model), path));
    char *text = text_of(path);
    text[strlen(text) - 2] = '\0';
    char more[4096];
    snprintf(more, sizeof more, "%s, \"torch_dtype\": \"float16\", \"dtype\": \"bfloat16\", \"other\": \"float64\" }",
             text);
    mmi_free(text);
    mm_model_free(model);
    mm_config *config = NULL;
    ck_ok(mm_config_load_memory(more, strlen(more), &config));
    ck_ok(mm_model_create(config, 1, &model));
    for (size_t i = 0; i < 3; i++) {
        mm_model *cast = NULL;
        char words[3][64];
        ck_ok(mm_model_cast(model, cases[i].dtype, &cast));
        ck_ok(mm_model_save(cast, directory));
        text = text_of(path);
        snprintf(words[0], sizeof words[0], "\"torch_dtype\": \"%s\"", cases[i].name);
        snprintf(words[1], sizeof words[1], "\"dtype\": \"%s\"", cases[i].name);
        snprintf(words[2], sizeof words[2], "\"other\": \"float64\"");
        for (size_t w = 0; w < 3; w++)
            ck_assert_msg(strstr(text, words[w]) != NULL, "%s is not in %s", words[w], text);
        mmi_free(text);
        mm_model_free(cast);
    }
    ck_ok(mm_config_save(config, path)); /* alone, as it is */
    text = text_of(path);
    ck_assert_ptr_nonnull(strstr(text, "\"torch_dtype\": \"float16\""));
    ck_assert_ptr_nonnull(strstr(text, "\"dtype\": \"bfloat16\""));
    mmi_free(text);
    mm_config_free(config);
    mm_model_free(model);
}
END_TEST

START_TEST(a_saved_file_is_marked_and_aligned)
{
    mm_model *model = sample_model(1);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(model, directory));
    char *text = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(in(directory, "model.safetensors"), &text, &size));
    size_t length = (size_t)(unsigned char)text[0] + 256 * (size_t)(unsigned char)text[1];
    ck_assert_uint_eq((8 + length) % 64, 0);
    ck_assert_int_eq(memcmp(text + 8, "{\"__metadata__\":{\"format\":\"pt\"},", 31), 0);
    mmi_free(text);
    mm_model_free(model);
}
END_TEST

START_TEST(a_mapped_model_can_be_saved_over_its_own_file)
{
    mm_model *model = sample_model(1), *map = NULL;
    mm_load_options options = MM_LOAD_OPTIONS_INIT;
    options.map = 1;
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(model, directory));
    ck_ok(mm_model_load(directory, &options, &map));
    ck_ok(mm_model_save(map, directory));
    same_weights(map, model);
    loads_as(directory, model);
    mm_model_free(map);
    mm_model_free(model);
}
END_TEST

START_TEST(saving_replaces_an_older_model)
{
    mm_model *old = sample_model(1), *model = sample_model(2);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(old, directory));
    write_text(in(directory, "tokenizer.json"), "{}");
    ck_ok(mm_model_save(model, directory));
    loads_as(directory, model);
    ck_assert_int_eq(files_in(directory), 3);
    mm_model_free(old);
    mm_model_free(model);
}
END_TEST

START_TEST(arguments_are_checked)
{
    mm_model *model = sample_model(1);
    ck_status(mm_model_save(NULL, "x"), MM_ERR_ARG);
    ck_status(mm_model_save(model, NULL), MM_ERR_ARG);
    ck_status(mm_model_save(model, ""), MM_ERR_ARG);
    mm_model_free(model);
}
END_TEST

START_TEST(a_place_that_cannot_be_a_directory_is_an_io_error)
{
    mm_model *model = sample_model(1);
    const char *root = scratch_directory(), *file = in(root, "file");
    write_text(file, "x");
    ck_status(mm_model_save(model, file), MM_ERR_IO);
    ck_error_mentions("file");
    ck_status(mm_model_save(model, in(file, "below")), MM_ERR_IO);
    ck_assert_int_eq(file_size(file), 1);
    /* A directory lies where a file must go. */
    ck_assert_int_eq(mkdir(in(root, "model.safetensors"), 0777), 0);
    ck_status(mm_model_save(model, root), MM_ERR_IO);
    ck_error_mentions("model.safetensors");
    ck_assert_int_eq(files_in(root), 2);
    /* A pipe does: who reads from it would wait for ever. */
    ck_assert_int_eq(rmdir(in(root, "model.safetensors")), 0);
    ck_assert_int_eq(mkfifo(in(root, "config.json"), 0666), 0);
    ck_status(mm_model_save(model, root), MM_ERR_IO);
    ck_error_mentions("config.json: is not a regular file");
    ck_assert_int_eq(files_in(root), 2);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

/* Files can't grow beyond `bytes`: to write() that is a full disk. No check may run meanwhile: libcheck writes to a file
 * of its own. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0) {
        limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
}

START_TEST(a_full_disk_leaves_the_old_files_and_nothing_else)
{
    static const rlim_t room[] = { 0, 100, 2000, 8192 };
    mm_model *old = sample_model(1), *model = sample_model(2);
    const char *directory = scratch_directory(), *fresh = in(directory, "fresh");
    ck_ok(mm_model_save(old, directory));
    ck_assert_int_gt(file_size(in(directory, "model.safetensors")), 8192);
    limit_files(room[_i]);
    mm_status status = mm_model_save(model, directory), second = mm_model_save(model, fresh);
    limit_files(RLIM_INFINITY);
    ck_assert_int_eq(status, MM_ERR_IO);
    ck_assert_int_eq(second, MM_ERR_IO);
    ck_error_mentions("fresh/model.safetensors: can't write: File too large"); /* not the name that it waits under */
    ck_assert_int_eq(files_in(directory), 2);
    ck_assert(!mmi_file_exists(fresh));
    loads_as(directory, old);
    mm_model_free(old);
    mm_model_free(model);
    ck_assert_uint_eq(bytes_held(), 0);
}
END_TEST

START_TEST(every_failing_allocation_leaves_the_old_files)
{
    mm_model *old = sample_model(1), *model = sample_model(2);
    char directory[400];
    snprintf(directory, sizeof directory, "%s", scratch_directory());
    ck_ok(mm_model_save(old, directory));
    uint64_t before = bytes_held(), n = 1;
    for (;; n++) {
        mmi_memory_fail_at(n, false);
        mm_status status = mm_model_save(model, directory);
        mmi_memory_fail_at(0, false);
        if (status == MM_OK)
            break;
        ck_assert_int_eq(status, MM_ERR_MEMORY);
        ck_assert_uint_eq(bytes_held(), before);
        ck_assert_int_eq(files_in(directory), 2);
        loads_as(directory, old);
    }
    ck_assert_uint_gt(n, 8);
    loads_as(directory, model);
    mm_model_free(old);
    mm_model_free(model);
}
END_TEST

/* Saves one and the other for ever. */
static void save_until_killed(const mm_model *a, const mm_model *b, const char *directory)
{
    for (;;)
        if (mm_model_save(a, directory) != MM_OK || mm_model_save(b, directory) != MM_OK)
            _exit(1);
}

START_TEST(a_process_killed_while_saving_leaves_a_whole_model)
{
    mm_model *a = sample_model(1), *b = sample_model(2);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(a, directory));
    test_rng rng = { 3 };
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            save_until_killed(a, b, directory);
        struct timespec wait = { 0, rng_between(&rng, 1, 20) * 1000000L };
        nanosleep(&wait, NULL);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        int status = 0;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        mm_model *model = load(directory);
        ck_assert(weights_equal(model, a) || weights_equal(model, b));
        mm_model_free(model);
    }
    mm_model_free(a);
    mm_model_free(b);
}
END_TEST

/* A temporary file of process `pid`, open. */
static int leave(const char *directory, const char *name, pid_t pid)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%ld-7.tmp", directory, name, (long)pid);
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static int count_temporaries(const char *directory)
{
    int count = 0;
    DIR *list = opendir(directory);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        count += strstr(entry->d_name, ".tmp") != NULL;
    closedir(list);
    return count;
}

/* A process that is gone here may be one that runs elsewhere, which has a lock. */
START_TEST(what_killed_saves_left_goes_with_the_next_one)
{
    mm_model *model = sample_model(1);
    const char *directory = scratch_directory();
    ck_ok(mm_model_save(model, directory));
    pid_t gone = fork();
    ck_assert_int_ge(gone, 0);
    if (gone == 0)
        _exit(0);
    ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
    char within[64];
    snprintf(within, sizeof within, "model.safetensors.%ld-3.tmp", (long)gone);
    close(leave(directory, "model.safetensors", gone));
    close(leave(directory, "config.json", gone));
    close(leave(directory, within, gone));
    close(leave(directory, "model.safetensors", getppid()));
    close(leave(directory, "notes.txt", gone));
    ck_ok(mm_model_save(model, directory));
    ck_assert_int_eq(count_temporaries(directory), 2);
    int written = leave(directory, "config.json", gone);
    ck_assert_int_eq(flock(written, LOCK_EX), 0);
    ck_ok(mm_model_save(model, directory));
    ck_assert_int_eq(count_temporaries(directory), 3);
    close(written);
    ck_ok(mm_model_save(model, directory));
    ck_assert_int_eq(count_temporaries(directory), 2);
    mm_model_free(model);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model/save");
    TCase *c = tcase_create("save");
    tcase_add_loop_test(c, what_was_saved_loads_and_saves_to_the_same_bytes, 0, 3);
    tcase_add_test(c, unknown_keys_of_the_config_are_written_back);
    tcase_add_test(c, the_dtype_of_the_config_is_that_of_the_weights);
    tcase_add_test(c, a_saved_file_is_marked_and_aligned);
    tcase_add_test(c, a_mapped_model_can_be_saved_over_its_own_file);
    tcase_add_test(c, saving_replaces_an_older_model);
    tcase_add_test(c, arguments_are_checked);
    tcase_add_test(c, a_place_that_cannot_be_a_directory_is_an_io_error);
    tcase_add_loop_test(c, a_full_disk_leaves_the_old_files_and_nothing_else, 0, 4);
    tcase_add_test(c, every_failing_allocation_leaves_the_old_files);
    tcase_add_test(c, a_process_killed_while_saving_leaves_a_whole_model);
    tcase_add_test(c, what_killed_saves_left_goes_with_the_next_one);
    tcase_set_timeout(c, 60);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
