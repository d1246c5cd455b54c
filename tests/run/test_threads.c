/* Neither the number of threads nor who runs them shows in the bits. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "others.h"
#include "run/models.h"

#define OUTPUTS (MM_OUT_LOSS | MM_OUT_LOGITS | MM_OUT_LAST_LOGITS)

/* Wide enough for more than one slice of a product and one tile of attention. */
static const char medium[] =
    "{\"model_type\":\"minimind\",\"minimind_version\":3,\"hidden_size\":136,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":36,\"vocab_size\":311,\"intermediate_size\":290,\"max_position_embeddings\":512}";

typedef struct bits {
    float *logits, *last, *gradients;
    int64_t n_logits, n_last, n_gradients;
    double loss, norm;
} bits;

static bits run_in(mm_context *context, const mm_batch *batch)
{
    bits b = { 0 };
    mm_model *model = mm_context_model(context);
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, batch, &out));
    b.loss = out.loss;
    b.logits = copy_view(&out.logits);
    b.last = copy_view(&out.last_logits);
    b.n_logits = (int64_t)batch->batch * batch->length * vocab_of(model);
    b.n_last = (int64_t)batch->batch * vocab_of(model);
    ck_ok(mm_backward(context, NULL));
    ck_ok(mm_grad_norm(context, &b.norm));
    b.gradients = all_gradients(context, &b.n_gradients);
    mm_context_free(context);
    return b;
}

static bits run(mm_model *model, const mm_batch *batch, int32_t threads, const char *kernels)
{
    return run_in(context_on(model, MM_TRAIN, batch->batch, batch->length, OUTPUTS, threads, kernels), batch);
}

static void ck_same(const bits *a, const bits *b, int32_t threads, const char *kernels)
{
    ck_assert_msg(a->loss == b->loss && a->norm == b->norm && same_bits(a->logits, b->logits, a->n_logits)
                      && same_bits(a->last, b->last, a->n_last) && same_bits(a->gradients, b->gradients, a->n_gradients),
                  "%s: %d threads give other bits than 1", kernels, threads);
}

static const int32_t counts[] = { 2, 3, 5, 16 };

static void compare(mm_model *model, const mm_batch *batch)
{
    EACH_KERNELS (p) {
        bits one = run(model, batch, 1, mm_kernels_name(p));
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            bits many = run(model, batch, counts[i], mm_kernels_name(p));
            ck_same(&many, &one, counts[i], mm_kernels_name(p));
        }
    }
}

START_TEST(any_number_of_threads_gives_the_same_bits_on_small_models)
{
    test_rng rng = { 600 };
    mm_model *model = nth_model(_i, 7);
    mm_batch batch = random_batch(model, 3, 21, MM_TRAIN, &rng);
    compare(model, &batch);
    mm_model_free(model);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same_bits_on_a_wider_model)
{
    test_rng rng = { 601 };
    mm_model *model = model_of(medium, 7);
    mm_batch batch = random_batch(model, 2, 130, MM_TRAIN, &rng);
    compare(model, &batch);
    mm_model_free(model);
}
END_TEST

/* Rows that are few enough are done in one piece: so are those of a sequence's beginning alone, and not those of all
 * sequences together, in training and behind a cache. */
START_TEST(many_pieces_give_what_one_gives)
{
    enum { SEQUENCES = 4, LONG = 130, SHORT = 60 };
    test_rng rng = { 602 };
    mm_model *model = model_of(medium, 7);
    mm_batch batch = random_batch(model, SEQUENCES, LONG, MM_TRAIN, &rng), part = batch;
    const int64_t V = vocab_of(model);
    part.batch = 1;
    part.length = SHORT;
    EACH_KERNELS (p)
        for (int cached = 0; cached < 2; cached++) {
            mm_context *context = context_on(model, MM_TRAIN, SEQUENCES, LONG, MM_OUT_LOGITS, 2, mm_kernels_name(p));
            mm_cache *cache = NULL;
            mm_output out = MM_OUTPUT_INIT;
            ck_ok(mm_cache_create(model, SEQUENCES, LONG, MM_F32, &cache));
            batch.mode = part.mode = cached ? MM_EVAL : MM_TRAIN;
            batch.cache = cached ? cache : NULL;
            ck_ok(mm_forward(context, &batch, &out));
            const float *all = copy_view(&out.logits);
            for (int64_t i = 0; i < SEQUENCES; i++) {
                part.ids = batch.ids + i * LONG;
                part.targets = batch.targets + i * LONG;
                ck_ok(mm_forward(context, &part, &out));
                double error = relative_error(all + i * LONG * V, out.logits.data, (size_t)(SHORT * V));
                ck_assert_msg(error < 1e-5, "%s, sequence %d, cached %d: %g", mm_kernels_name(p), (int)i, cached,
                              error);
            }
            mm_cache_free(cache);
            mm_context_free(context);
        }
    mm_model_free(model);
}
END_TEST

/* --- The host's own loops --- */

typedef struct host {
    mm_piece_fn piece;
    void *job;
    int64_t pieces;
    atomic_int_fast64_t next;
    atomic_int calls;
    int32_t workers;
} host;

static void one_after_another(void *user, int64_t pieces, mm_piece_fn piece, void *job)
{
    atomic_fetch_add(&((host *)user)->calls, 1);
    for (int64_t i = 0; i < pieces; i++)
        piece(job, i, 0);
}

/* From the last to the first, each with another worker's scratch. */
static void backwards(void *user, int64_t pieces, mm_piece_fn piece, void *job)
{
    host *h = user;
    atomic_fetch_add(&h->calls, 1);
    for (int64_t i = pieces; i-- > 0;)
        piece(job, i, (int32_t)(i % h->workers));
}

typedef struct helper {
    host *h;
    int32_t worker;
} helper;

static void *help(void *arg)
{
    helper *me = arg;
    for (int64_t i; (i = atomic_fetch_add(&me->h->next, 1)) < me->h->pieces;)
        me->h->piece(me->h->job, i, me->worker);
    return NULL;
}

/* Threads that live for one call; the caller only waits. */
static void on_fresh_threads(void *user, int64_t pieces, mm_piece_fn piece, void *job)
{
    host *h = user;
    pthread_t threads[8];
    helper helpers[8];
    atomic_fetch_add(&h->calls, 1);
    h->piece = piece;
    h->job = job;
    h->pieces = pieces;
    atomic_store(&h->next, 0);
    for (int32_t i = 0; i < h->workers; i++) {
        helpers[i] = (helper){ h, h->workers - 1 - i };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, help, &helpers[i]), 0);
    }
    for (int32_t i = 0; i < h->workers; i++)
        pthread_join(threads[i], NULL);
}

/* Threads of this process. */
static int threads_now(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; tasks && (e = readdir(tasks)) != NULL;)
        n += e->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

START_TEST(a_hosts_own_parallel_for_gives_the_same_bits_and_no_thread_is_started)
{
    static const mm_parallel_for_fn loops[] = { one_after_another, backwards, on_fresh_threads };
    test_rng rng = { 605 };
    mm_model *model = _i < 3 ? model_of(medium, 7) : nth_model(all_count - 1, 7);
    mm_batch batch = random_batch(model, 2, _i < 3 ? 130 : 9, MM_TRAIN, &rng);
    bits own = run(model, &batch, 3, NULL);
    host h = { .workers = 3 };
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.mode = MM_TRAIN;
    options.max_batch = batch.batch;
    options.max_length = batch.length;
    options.outputs = OUTPUTS;
    options.threads = h.workers;
    options.parallel_for = loops[_i % 3];
    options.parallel_for_user = &h;
    mm_context *context = NULL;
    int before = threads_now();
    ck_ok(mm_context_create(model, &options, &context));
    ck_assert_int_le(threads_now(), before);
    bits hosted = run_in(context, &batch);
    ck_assert_int_gt(atomic_load(&h.calls), 0);
    ck_same(&hosted, &own, h.workers, "the host's own");
    mm_model_free(model);
}
END_TEST

START_TEST(one_thread_is_the_callers_own)
{
    mm_model *model = nth_model(0, 7);
    int before = threads_now();
    mm_context *context = context_on(model, MM_EVAL, 1, 4, MM_OUT_LOGITS, 1, NULL);
    ck_assert_int_le(threads_now(), before);
    mm_context *wider = context_on(model, MM_EVAL, 1, 4, MM_OUT_LOGITS, 4, NULL);
    ck_assert_int_ge(threads_now(), before ? 4 : 0);
    mm_context_free(context);
    mm_context_free(wider);
    mm_model_free(model);
}
END_TEST

START_TEST(the_same_call_twice_gives_the_same_bits)
{
    test_rng rng = { 602 };
    mm_model *model = model_of(medium, 8);
    mm_batch batch = random_batch(model, 2, 70, MM_TRAIN, &rng);
    EACH_KERNELS (p) {
        bits first = run(model, &batch, 2, mm_kernels_name(p)), again = run(model, &batch, 2, mm_kernels_name(p));
        ck_same(&again, &first, 2, mm_kernels_name(p));
    }
    mm_model_free(model);
}
END_TEST

START_TEST(running_layers_again_instead_of_keeping_them_gives_the_same_bits)
{
    test_rng rng = { 604 };
    mm_model *model = nth_model(_i, 7);
    mm_batch batch = random_batch(model, 3, 21, MM_TRAIN, &rng);
    batch.seed = 5;
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.mode = MM_TRAIN;
    options.max_batch = 3;
    options.max_length = 21;
    options.outputs = OUTPUTS;
    options.threads = 2;
    options.checkpointing = 1;
    mm_context *context = NULL;
    ck_ok(mm_context_create(model, &options, &context));
    bits kept = run(model, &batch, 2, NULL), again = run_in(context, &batch);
    ck_same(&again, &kept, 2, tiny_models[_i].name);
    mm_model_free(model);
}
END_TEST

START_TEST(kernel_paths_agree_within_rounding)
{
    test_rng rng = { 603 };
    mm_model *model = model_of(medium, 9);
    mm_batch batch = random_batch(model, 2, 70, MM_TRAIN, &rng);
    bits first = run(model, &batch, 1, mm_kernels_name(0));
    for (int32_t p = 1; p < mm_kernels_count(); p++) {
        bits other = run(model, &batch, 1, mm_kernels_name(p));
        ck_assert_double_lt(relative_error(other.logits, first.logits, (size_t)first.n_logits), 5e-6);
        ck_assert_double_lt(relative_error(other.gradients, first.gradients, (size_t)first.n_gradients), 2e-5);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(the_kernels_of_a_context_are_those_it_was_made_for)
{
    mm_model *model = nth_model(0, 1);
    for (int32_t p = 0; p < mm_kernels_count(); p++) {
        mm_context *context = context_on(model, MM_EVAL, 1, 4, MM_OUT_LOGITS, 1, mm_kernels_name(p));
        ck_assert_str_eq(mm_context_kernels(context), mm_kernels_name(p));
        ck_assert_ptr_eq(mm_context_model(context), model);
        mm_context_free(context);
    }
    mm_context *fastest = context_on(model, MM_EVAL, 1, 4, MM_OUT_LOGITS, 0, NULL);
    ck_assert_str_eq(mm_context_kernels(fastest), mm_kernels_name(mm_kernels_count() - 1));
    ck_assert_str_eq(mm_kernels_name(0), "c");
    ck_assert_ptr_null(mm_kernels_name(-1));
    ck_assert_ptr_null(mm_kernels_name(mm_kernels_count()));
    ck_assert_ptr_null(mm_context_kernels(NULL));
    ck_assert_ptr_null(mm_context_model(NULL));
    mm_context_free(fastest);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/threads", &tests);
    tcase_add_loop_test(tests, any_number_of_threads_gives_the_same_bits_on_small_models, 0, all_count);
    tcase_add_test(tests, any_number_of_threads_gives_the_same_bits_on_a_wider_model);
    tcase_add_test(tests, many_pieces_give_what_one_gives);
    tcase_add_loop_test(tests, a_hosts_own_parallel_for_gives_the_same_bits_and_no_thread_is_started, 0, 6);
    tcase_add_test(tests, one_thread_is_the_callers_own);
    tcase_add_test(tests, the_same_call_twice_gives_the_same_bits);
    tcase_add_loop_test(tests, running_layers_again_instead_of_keeping_them_gives_the_same_bits, 0, all_count);
    tcase_add_test(tests, kernel_paths_agree_within_rounding);
    tcase_add_test(tests, the_kernels_of_a_context_are_those_it_was_made_for);
    return run_suite(suite);
}
