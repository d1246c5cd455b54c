/* Rows prepared ahead by threads, and dealt out to ranks: the same batches, whoever makes them. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/loader.h"
#include "texts.h"

enum { WIDEST = 40, MOST_ROWS = 16, BATCHES = 70 };

static mm_tokenizer *tokenizer;
static mm_dataset *dataset;

static void start(void)
{
    tokenizer = byte_tokenizer();
    ck_ok(mm_dataset_open(put_rows(scratch_directory(), "rows.jsonl", 53, 9, 4), &dataset));
}

static void end(void)
{
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
}

static void use_rows(const char *bytes, size_t size)
{
    mm_dataset_free(dataset);
    dataset = NULL;
    ck_ok(mm_dataset_open(put_file(scratch_directory(), "rows.jsonl", bytes, size), &dataset));
}

static mm_loader_options options_of(int32_t form, int32_t workers)
{
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    o.form = form;
    o.batch = 4;
    o.max_length = 24;
    o.seed = 9;
    o.workers = workers;
    return o;
}

static mm_loader *create(const mm_loader_options *o)
{
    mm_loader *loader = NULL;
    ck_ok(mm_loader_create(dataset, tokenizer, o, &loader));
    return loader;
}

typedef struct record {
    mm_loader_position before;
    int32_t batch, length;
    int32_t arrays[3][WIDEST * MOST_ROWS];
} record;

static void take(mm_loader *loader, record *r)
{
    mm_batch b = MM_BATCH_INIT;
    memset(r, 0, sizeof *r);
    mm_loader_position_init(&r->before, sizeof r->before);
    ck_ok(mm_loader_tell(loader, &r->before));
    ck_ok(mm_loader_next(loader, &b));
    size_t size = (size_t)b.batch * (size_t)b.length * sizeof(int32_t);
    ck_assert_uint_le(size, sizeof r->arrays[0]);
    r->batch = b.batch;
    r->length = b.length;
    if (b.batch == 0)
        return;
    memcpy(r->arrays[0], b.ids, size);
    memcpy(r->arrays[1], b.targets, size);
    if (b.document_ids)
        memcpy(r->arrays[2], b.document_ids, size);
}

START_TEST(any_number_of_threads_gives_the_same_batches)
{
    static const int32_t workers[] = { 1, 2, 5 };
    static record expected[BATCHES], found;
    for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++) {
        mm_loader_options o = options_of(form, 0);
        mm_loader *loader = create(&o);
        for (int i = 0; i < BATCHES; i++)
            take(loader, &expected[i]);
        ck_assert_int_ge(expected[BATCHES - 1].before.epoch, 2);
        mm_loader_free(loader);
        for (size_t w = 0; w < sizeof workers / sizeof *workers; w++) {
            o.workers = workers[w];
            loader = create(&o);
            for (int i = 0; i < BATCHES; i++) {
                take(loader, &found);
                ck_assert_mem_eq(&found, &expected[i], sizeof found);
                if (i % 13 == 12) { /* there and back again */
                    ck_ok(mm_loader_seek(loader, &expected[(i * 7) % BATCHES].before));
                    take(loader, &found);
                    ck_assert_mem_eq(&found, &expected[(i * 7) % BATCHES], sizeof found);
                    ck_ok(mm_loader_seek(loader, &expected[i].before));
                    take(loader, &found);
                    ck_assert_mem_eq(&found, &expected[i], sizeof found);
                }
            }
            mm_loader_free(loader);
        }
    }
}
END_TEST

START_TEST(a_loader_may_be_freed_at_any_time)
{
    for (int taken = 0; taken < 20; taken++) {
        mm_loader_options o = options_of(taken % 3, 1 + taken % 4);
        mm_loader *loader = create(&o);
        static record r;
        for (int i = 0; i < taken; i++)
            take(loader, &r);
        mm_loader_free(loader);
    }
}
END_TEST

/* The number that a row of put_rows() starts with. */
static int number_of(const int32_t *ids)
{
    int number = 0;
    while (*ids >= id_of('0') && *ids <= id_of('9'))
        number = 10 * number + *ids++ - id_of('0');
    return number;
}

/* One step of every rank from the same place on; the place after it in `at`. Returns whether the epoch went on. */
static bool step_of_all(mm_loader_position *at, int *seen, int32_t world, mm_loader_options o)
{
    mm_loader_position after[8];
    bool ended[8] = { false };
    for (int32_t rank = 0; rank < world; rank++) {
        static record r;
        o.world = world;
        o.rank = rank;
        mm_loader *loader = create(&o);
        ck_ok(mm_loader_seek(loader, at));
        take(loader, &r);
        mm_loader_position_init(&after[rank], sizeof after[rank]);
        ck_ok(mm_loader_tell(loader, &after[rank]));
        ended[rank] = r.batch == 0;
        for (int i = 0; i < r.batch; i++)
            if (r.arrays[0][i * r.length] != 0) /* a row of padding comes to a rank that is left without one */
                seen[number_of(r.arrays[0] + i * r.length)]++;
        mm_loader_free(loader);
    }
    for (int32_t rank = 1; rank < world; rank++) {
        ck_assert_mem_eq(&after[0], &after[rank], sizeof *after);
        ck_assert_int_eq(ended[0], ended[rank]);
    }
    *at = after[0];
    return !ended[0];
}

START_TEST(every_row_comes_to_one_rank_once_an_epoch_even_if_their_number_changes)
{
    static const int32_t worlds[] = { 1, 2, 3, 7 };
    for (int32_t batch = 1; batch <= 5; batch += 2)
        for (int turn = 0; turn < 5; turn++) {
            mm_loader_position at = MM_LOADER_POSITION_INIT;
            int seen[53] = { 0 };
            mm_loader_options o = options_of(MM_ROWS_PAD, turn == 4 ? 2 : 0);
            o.batch = batch;
            for (int step = 0;; step++) {
                int32_t world = turn < 4 ? worlds[turn] : worlds[step % 4];
                if (!step_of_all(&at, seen, world, o))
                    break;
            }
            for (int row = 0; row < 53; row++)
                ck_assert_int_eq(seen[row], 1);
            ck_assert_int_eq(at.epoch, 1);
            ck_assert_int_eq(at.row, 0);
        }
}
END_TEST

START_TEST(ranks_make_the_same_number_of_steps)
{
    for (int32_t world = 1; world <= 60; world = 2 * world + 1)
        for (int32_t form = MM_ROWS_PAD; form <= MM_ROWS_PACK; form++) {
            int64_t steps = -1;
            for (int32_t rank = 0; rank < world; rank += rank < 2 ? 1 : 11) {
                static record r;
                mm_loader_options o = options_of(form, rank % 2);
                int64_t n = 0, count, both;
                o.world = world;
                o.rank = rank;
                mm_loader *loader = create(&o);
                for (int epoch = 0; epoch < 2; epoch++, n = epoch == 2 ? n : 0)
                    for (take(loader, &r); r.batch > 0; take(loader, &r))
                        n++;
                ck_ok(mmi_loader_count(&count, &both, loader, 2));
                ck_assert_int_eq(n, count);
                ck_assert_int_eq(both, 2 * count);
                ck_assert(steps < 0 || steps == n);
                steps = n;
                mm_loader_free(loader);
            }
        }
}
END_TEST

START_TEST(packed_rows_of_all_ranks_are_those_of_one)
{
    enum { WORLD = 3 };
    static record alone, share[WORLD];
    mm_loader_options o = options_of(MM_ROWS_PACK, 1);
    mm_loader *one, *ranks[WORLD];
    o.batch = 2 * WORLD;
    one = create(&o);
    o.batch = 2;
    o.world = WORLD;
    for (o.rank = 0; o.rank < WORLD; o.rank++)
        ranks[o.rank] = create(&o);
    for (int step = 0; step < 40; step++) {
        take(one, &alone);
        for (int32_t rank = 0; rank < WORLD; rank++)
            take(ranks[rank], &share[rank]);
        size_t width = (size_t)alone.length;
        for (int32_t row = 0; row < alone.batch; row++)
            for (int a = 0; a < 3; a++)
                ck_assert_mem_eq(alone.arrays[a] + (size_t)row * width,
                                 share[row % WORLD].arrays[a] + (size_t)(row / WORLD) * width, width * sizeof(int32_t));
        for (int32_t rank = 0; rank < WORLD && alone.batch > 0; rank++) {
            int32_t own = (alone.batch - rank + WORLD - 1) / WORLD;
            ck_assert_int_eq(share[rank].batch, own > 0 ? own : 1);
            ck_assert_mem_eq(&share[rank].before, &alone.before, sizeof alone.before);
        }
    }
    mm_loader_free(one);
    for (int32_t rank = 0; rank < WORLD; rank++)
        mm_loader_free(ranks[rank]);
}
END_TEST

/* 40 rows, of which number `bad` is none. */
static void use_bad_row(int bad)
{
    static char bytes[4096];
    size_t size = 0;
    for (int i = 0; i < 40; i++)
        size += (size_t)sprintf(bytes + size, i == bad ? "{\"text\": %d}\n" : "{\"text\": \"%d\"}\n", i);
    use_rows(bytes, size);
}

START_TEST(a_bad_line_fails_the_batch_it_belongs_to)
{
    for (int bad = 0; bad < 40; bad += 13)
        for (int32_t workers = 0; workers < 4; workers++) {
            static record r;
            mm_loader_options o = options_of(MM_ROWS_PAD, workers);
            mm_batch b = MM_BATCH_INIT;
            char place[32];
            use_bad_row(bad);
            o.shuffle = 0;
            mm_loader *loader = create(&o);
            for (int i = 0; i < bad / 4; i++) {
                take(loader, &r);
                ck_assert_int_eq(number_of(r.arrays[0]), 4 * i);
            }
            snprintf(place, sizeof place, "rows.jsonl:%d: ", bad + 1);
            for (int again = 0; again < 2; again++) {
                ck_status(mm_loader_next(loader, &b), MM_ERR_FORMAT);
                ck_error_mentions(place);
            }
            mm_loader_position p = MM_LOADER_POSITION_INIT;
            ck_ok(mm_loader_tell(loader, &p));
            ck_assert_int_eq(p.row, bad / 4 * 4);
            p.row = bad + 1; /* go on behind it */
            ck_ok(mm_loader_seek(loader, &p));
            if (bad < 39) {
                take(loader, &r);
                ck_assert_int_eq(number_of(r.arrays[0]), bad + 1);
            }
            mm_loader_free(loader);
        }
}
END_TEST

START_TEST(a_rank_passes_over_its_own_bad_lines)
{
    for (int32_t rank = 0; rank < 2; rank++) {
        static record r;
        mm_loader_options o = options_of(MM_ROWS_PAD, 1);
        mm_loader_position p = MM_LOADER_POSITION_INIT;
        int rows = 0, steps = 0;
        use_bad_row(20); /* at an even place: of rank 0 */
        o.shuffle = 0;
        o.skip_bad_lines = 1;
        o.world = 2;
        o.rank = rank;
        mm_loader *loader = create(&o);
        for (take(loader, &r); r.batch > 0; take(loader, &r), steps++)
            rows += r.batch;
        ck_assert_int_eq(steps, 5);
        ck_assert_int_eq(rows, 20 - (rank == 0));
        ck_ok(mm_loader_tell(loader, &p));
        ck_assert_int_eq(p.skipped, rank == 0);
        mm_loader_free(loader);
    }
}
END_TEST

START_TEST(a_file_that_shrinks_while_it_is_read_ends_in_a_status)
{
    char path[512], *bytes = malloc(1 << 18);
    size_t size = 0;
    for (int i = 0; i < 4000; i++)
        size += (size_t)sprintf(bytes + size, "{\"text\": \"%d and some more words to read\"}\n", i);
    for (int32_t workers = 0; workers < 3; workers++) {
        mm_loader_options o = options_of(MM_ROWS_PACK, workers);
        mm_batch b = MM_BATCH_INIT;
        o.skip_bad_lines = 1; /* it is no bad line */
        snprintf(path, sizeof path, "%s", put_file(scratch_directory(), "rows.jsonl", bytes, size));
        mm_dataset_free(dataset);
        dataset = NULL;
        ck_ok(mm_dataset_open(path, &dataset));
        mm_loader *loader = create(&o);
        ck_ok(mm_loader_next(loader, &b));
        ck_assert_int_eq(truncate(path, (off_t)size / 3), 0);
        mm_status status = MM_OK;
        for (int i = 0; i < 200 && status == MM_OK; i++) /* what was prepared still comes */
            status = mm_loader_next(loader, &b);
        ck_status(status, MM_ERR_IO);
        ck_error_mentions("became shorter");
        ck_status(mm_loader_next(loader, &b), MM_ERR_IO);
        mm_loader_free(loader);
    }
    free(bytes);
}
END_TEST

START_TEST(stats_tell_what_was_given_and_waited_for)
{
    mm_loader_options o = options_of(MM_ROWS_PAD, 1);
    mm_loader *loader = create(&o);
    mm_loader_stats stats = MM_LOADER_STATS_INIT;
    static record r;
    ck_ok(mm_loader_get_stats(loader, &stats));
    ck_assert(stats.elapsed_seconds == 0 && stats.call_seconds == 0 && stats.batches == 0);
    for (take(loader, &r); r.batch > 0;)
        take(loader, &r);
    ck_ok(mm_loader_get_stats(loader, &stats));
    ck_assert_int_eq(stats.batches, (53 + 3) / 4);
    ck_assert_int_eq(stats.rows, 53);
    ck_assert_int_eq(stats.tokens, 53 * 23);
    ck_assert_int_eq(stats.bad_lines, 0);
    ck_assert(stats.wait_seconds >= 0 && stats.wait_seconds <= stats.call_seconds);
    ck_assert(stats.call_seconds > 0 && stats.call_seconds <= stats.elapsed_seconds);
    mm_loader_free(loader);
}
END_TEST

/* With threads it is chance which of them meets the failure: run until none does. */
START_TEST(every_failing_allocation_is_survived)
{
    static record expected[6];
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    mm_loader_options o = options_of(MM_ROWS_PACK, 0);
    mm_loader *loader = create(&o);
    for (int i = 0; i < 6; i++)
        take(loader, &expected[i]);
    mm_loader_free(loader);
    mm_memory_get_usage(&before);
    for (int32_t workers = 0; workers < 3; workers++) {
        o.workers = workers;
        bool done = false;
        for (uint64_t n = 1; !done; n++) {
            ck_assert_uint_lt(n, 3000);
            loader = NULL;
            mmi_memory_fail_at(n, false);
            mm_status status = mm_loader_create(dataset, tokenizer, &o, &loader);
            if (status != MM_OK)
                ck_assert_int_eq(status, MM_ERR_MEMORY);
            for (int i = 0; i < 6 && status == MM_OK; i++) {
                mm_batch b = MM_BATCH_INIT;
                mm_loader_position p = MM_LOADER_POSITION_INIT;
                if (mm_loader_next(loader, &b) != MM_OK) {
                    ck_ok(mm_loader_tell(loader, &p));
                    ck_assert_int_eq(p.row, expected[i].before.row);
                    ck_assert_int_eq(p.offset, expected[i].before.offset);
                    ck_ok(mm_loader_next(loader, &b)); /* it goes on once there is memory again */
                }
                size_t size = (size_t)b.batch * (size_t)b.length * sizeof(int32_t);
                ck_assert_int_eq(b.batch, expected[i].batch);
                ck_assert_mem_eq(b.ids, expected[i].arrays[0], size);
                ck_assert_mem_eq(b.targets, expected[i].arrays[1], size);
            }
            mm_loader_free(loader);
            done = mmi_memory_fail_at(0, false) < n;
            n += n / 16; /* every one at first, then some */
        }
    }
    mm_memory_get_usage(&after);
    ck_assert_uint_eq(before.current, after.current);
}
END_TEST

/* Each row is longer than those before it, and so needs memory. */
static void use_growing_rows(void)
{
    enum { ROWS = 40, STEP = 100 };
    static char bytes[ROWS * ROWS * STEP];
    size_t size = 0;
    for (int i = 0; i < ROWS; i++)
        size += (size_t)sprintf(bytes + size, "{\"text\": \"%d%0*d\"}\n", i, (i + 1) * STEP, 0);
    use_rows(bytes, size);
}

/* The threads have made what is ready, or failed to, by the end of a pause. */
START_TEST(rows_that_no_memory_was_left_for_are_made_again_when_they_are_asked_for)
{
    const struct timespec pause = { .tv_nsec = 300000000 }; /* for the threads to come as far as they may */
    static record expected[12], found;
    use_growing_rows();
    for (int32_t workers = 0; workers < 3; workers++) {
        mm_loader_options o = options_of(MM_ROWS_PAD, workers);
        o.shuffle = 0;
        mm_loader *loader = create(&o);
        for (int i = 0; i < 12; i++) {
            if (i == 3 || i == 4) {
                nanosleep(&pause, NULL);
                mmi_memory_fail_at(i == 3 && workers > 0, true); /* 0: no more */
            }
            take(loader, workers == 0 ? &expected[i] : &found);
            ck_assert(workers == 0 || memcmp(&found, &expected[i], sizeof found) == 0);
        }
        mm_loader_free(loader);
    }
}
END_TEST

/* Rows of 65000 ids, 256 KiB each; of the 514 slots that could hold one more than may be ready at one time. */
START_TEST(long_rows_leave_no_memory_behind)
{
    enum { IDS = 65000, LINE = IDS + 13 };
    const int rows = _i > 0 ? 300 : 40;
    char *bytes = malloc((size_t)rows * LINE), *to = bytes;
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < rows; i++, to += LINE) {
        memcpy(to, "{\"text\": \"", 10);
        memset(to + 10, 'a', IDS);
        memcpy(to + 10 + IDS, "\"}\n", 3);
    }
    mm_dataset_free(dataset);
    dataset = NULL;
    ck_ok(mm_dataset_open(put_file(scratch_directory(), "rows.jsonl", bytes, (size_t)rows * LINE), &dataset));
    mm_loader_options o = options_of(MM_ROWS_PACK, _i);
    o.batch = 256;
    mm_loader *loader = create(&o);
    mm_memory_get_usage(&before);
    mm_batch b = MM_BATCH_INIT;
    do
        ck_ok(mm_loader_next(loader, &b));
    while (b.batch > 0);
    mm_memory_get_usage(&after);
    /* of the next epoch 64 MiB of ids may be ready, and one row is in the making */
    ck_assert_uint_lt(after.current - before.current, (_i > 0 ? 68 : 2) << 20);
    mm_loader_free(loader);
    free(bytes);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/ahead");
    TCase *tc = tcase_create("ahead");
    tcase_add_checked_fixture(tc, start, end);
    tcase_add_test(tc, any_number_of_threads_gives_the_same_batches);
    tcase_add_test(tc, a_loader_may_be_freed_at_any_time);
    tcase_add_test(tc, every_row_comes_to_one_rank_once_an_epoch_even_if_their_number_changes);
    tcase_add_test(tc, ranks_make_the_same_number_of_steps);
    tcase_add_test(tc, packed_rows_of_all_ranks_are_those_of_one);
    tcase_add_test(tc, a_bad_line_fails_the_batch_it_belongs_to);
    tcase_add_test(tc, a_rank_passes_over_its_own_bad_lines);
    tcase_add_test(tc, a_file_that_shrinks_while_it_is_read_ends_in_a_status);
    tcase_add_test(tc, stats_tell_what_was_given_and_waited_for);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_add_test(tc, rows_that_no_memory_was_left_for_are_made_again_when_they_are_asked_for);
    tcase_add_loop_test(tc, long_rows_leave_no_memory_behind, 0, 2);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
