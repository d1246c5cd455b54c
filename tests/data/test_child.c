/* A loader with workers in a forked child, which has none of its parent's threads and may start its own. (A program of
 * its own, for emulators and a thread sanitizer start no threads in a child.) */
#define _POSIX_C_SOURCE 200809L
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "texts.h"

/* GCC's address sanitizer leaves its allocator's locks in a child as a worker held them at the fork: with it workers
 * have time to fill their places and sleep. */
static void let_workers_rest(void)
{
#ifdef __SANITIZE_ADDRESS__
    nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 * 1000 }, NULL);
#endif
}

/* In a forked child: everything about a loader that its parent has taken a batch of, or not. */
static void use_in_child(mm_loader *l, bool threads)
{
    mm_batch batch = MM_BATCH_INIT;
    mm_loader_position before = MM_LOADER_POSITION_INIT, after = MM_LOADER_POSITION_INIT;
    ck_ok(mm_loader_tell(l, &before));
    for (int i = 0; i < 40; i++) /* more than can be ready */
        ck_status(mm_loader_next(l, &batch), threads ? MM_ERR_STATE : MM_OK);
    if (threads) {
        ck_error_mentions("mm_loader_next: the loader's workers are threads of another process");
        ck_ok(mm_loader_tell(l, &after));
        ck_assert_int_eq(after.row, before.row);
    }
    before.row = 0;
    ck_ok(mm_loader_seek(l, &before));
    ck_status(mm_loader_next(l, &batch), threads ? MM_ERR_STATE : MM_OK);
    mm_loader_free(l);
}

START_TEST(a_child_is_told_that_its_parent_has_the_threads)
{
    mm_tokenizer *tokenizer = byte_tokenizer();
    mm_dataset *dataset = NULL;
    ck_ok(mm_dataset_open(put_rows(scratch_directory(), "rows.jsonl", 53, 9, 4), &dataset));
    for (int i = 0; i < 4; i++) {
        const bool taken = i / 2 == 1;
        mm_loader_options o = MM_LOADER_OPTIONS_INIT;
        o.batch = 4, o.max_length = 24, o.workers = i % 2 == 1 ? 3 : 0;
        mm_batch batch = MM_BATCH_INIT;
        mm_loader *l = NULL, *own = NULL;
        ck_ok(mm_loader_create(dataset, tokenizer, &o, &l));
        if (taken)
            ck_ok(mm_loader_next(l, &batch));
        let_workers_rest();
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            alarm(20);
            use_in_child(l, taken && o.workers > 0);
            ck_ok(mm_loader_create(dataset, tokenizer, &o, &own));
            ck_ok(mm_loader_next(own, &batch));
            mm_loader_free(own);
            _exit(0);
        }
        int status = 1;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        ck_ok(mm_loader_next(l, &batch)); /* the parent has lost nothing */
        mm_loader_free(l);
    }
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/child");
    TCase *tc = tcase_create("child");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_child_is_told_that_its_parent_has_the_threads);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
