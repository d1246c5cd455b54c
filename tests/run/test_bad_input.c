/* Every public function held wrong: its status, a message that names the culprit, and nothing changed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run/models.h"

#define OUTPUTS (MM_OUT_LOSS | MM_OUT_LAST_LOGITS)

/* A model, a context that may train, and what a good pass gives on it. */
typedef struct bench {
    mm_model *model;
    mm_context *context;
    mm_batch good;
    mm_output out;
    double loss;
    float *last, *gradients;
    int64_t n;
} bench;

static bench bench_of(void)
{
    test_rng rng = { 900 };
    bench b = { .model = nth_model(0, 12), .out = MM_OUTPUT_INIT };
    b.context = context_of(b.model, MM_TRAIN, 2, 8, OUTPUTS);
    b.good = random_batch(b.model, 2, 8, MM_TRAIN, &rng);
    ck_ok(mm_forward(b.context, &b.good, &b.out));
    b.loss = b.out.loss;
    b.last = copy_view(&b.out.last_logits);
    ck_ok(mm_backward(b.context, NULL));
    b.gradients = all_gradients(b.context, &b.n);
    return b;
}

static void free_bench(bench *b)
{
    mm_context_free(b->context);
    mm_model_free(b->model);
}

/* The pass before the refused calls can still be gone back over, and a good pass gives the bits it gave. */
static void ck_unchanged(bench *b)
{
    ck_ok(mm_zero_grad(b->context));
    ck_ok(mm_backward(b->context, NULL));
    ck_assert(same_bits(all_gradients(b->context, &b->n), b->gradients, b->n));
    ck_ok(mm_forward(b->context, &b->good, &b->out));
    ck_assert(b->out.loss == b->loss);
    ck_assert(same_bits(b->out.last_logits.data, b->last, 2 * vocab_of(b->model)));
}

/* A batch that differs from the good one by `change` is refused; what stands in `b` is it. */
#define REFUSED(bench, status, word, change)                                                                            \
    do {                                                                                                                \
        mm_batch b = (bench)->good;                                                                                     \
        change;                                                                                                         \
        ck_status(mm_forward((bench)->context, &b, &(bench)->out), status);                                            \
        ck_error_mentions(word);                                                                                        \
    } while (0)

static int32_t *with(const int32_t *ints, int64_t n, int64_t at, int32_t value)
{
    int32_t *copy = take(n, sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        copy[i] = ints ? ints[i] : 1;
    copy[at] = value;
    return copy;
}

START_TEST(batches_out_of_range_are_refused)
{
    bench t = bench_of();
    int32_t V = vocab_of(t.model), no_ones[16] = { 1 };
    ck_ok(mm_forward(t.context, &t.good, &t.out));
    REFUSED(&t, MM_ERR_ARG, "batch", b.batch = 0);
    REFUSED(&t, MM_ERR_ARG, "batch", b.batch = -1);
    REFUSED(&t, MM_ERR_ARG, "batch is 3", b.batch = 3);
    REFUSED(&t, MM_ERR_ARG, "batch", b.batch = INT32_MAX);
    REFUSED(&t, MM_ERR_ARG, "length", b.length = 0);
    REFUSED(&t, MM_ERR_ARG, "length", b.length = INT32_MIN);
    REFUSED(&t, MM_ERR_ARG, "length is 9", b.length = 9);
    REFUSED(&t, MM_ERR_ARG, "mode", b.mode = 2);
    REFUSED(&t, MM_ERR_ARG, "mode", b.mode = -1);
    REFUSED(&t, MM_ERR_ARG, "ids", b.ids = NULL);
    REFUSED(&t, MM_ERR_ARG, "ids[0][0] is -1", b.ids = with(b.ids, 16, 0, -1));
    REFUSED(&t, MM_ERR_ARG, "ids[1][7] is 53", b.ids = with(b.ids, 16, 15, V));
    REFUSED(&t, MM_ERR_ARG, "ids[1][0]", b.ids = with(b.ids, 16, 8, INT32_MIN));
    REFUSED(&t, MM_ERR_ARG, "targets[0][2] is 53", b.targets = with(b.targets, 16, 2, V));
    REFUSED(&t, MM_ERR_ARG, "targets[1][1] is -1,", b.targets = with(b.targets, 16, 9, -1));
    REFUSED(&t, MM_ERR_ARG, "targets[1][1] is -101", b.targets = with(b.targets, 16, 9, -101));
    REFUSED(&t, MM_ERR_ARG, "targets", (b.targets = NULL, b.outputs = MM_OUT_LOSS));
    REFUSED(&t, MM_ERR_ARG, "position_ids[0][3] is -1", b.position_ids = with(NULL, 16, 3, -1));
    REFUSED(&t, MM_ERR_ARG, "position_ids[1][3] is 64", b.position_ids = with(NULL, 16, 11, 64));
    REFUSED(&t, MM_ERR_ARG, "attention_mask[0][5] is 2", b.attention_mask = with(NULL, 16, 5, 2));
    REFUSED(&t, MM_ERR_ARG, "attention_mask[0][5] is -1", b.attention_mask = with(NULL, 16, 5, -1));
    REFUSED(&t, MM_ERR_ARG, "attention_mask[1]", b.attention_mask = no_ones);
    REFUSED(&t, MM_ERR_ARG, "document_ids", (b.attention_mask = with(NULL, 16, 0, 1), b.document_ids = b.ids));
    REFUSED(&t, MM_ERR_ARG, "outputs", b.outputs = MM_OUT_LOGITS);
    REFUSED(&t, MM_ERR_ARG, "outputs", b.outputs = OUTPUTS | 32);
    REFUSED(&t, MM_ERR_ARG, "outputs", b.outputs = -1);
    REFUSED(&t, MM_ERR_ARG, "struct_size", b.struct_size = 0);
    REFUSED(&t, MM_ERR_ARG, "struct_size", b.struct_size = SIZE_MAX);
    mm_output broken = MM_OUTPUT_INIT;
    broken.struct_size = 1;
    ck_status(mm_forward(t.context, &t.good, &broken), MM_ERR_ARG);
    ck_status(mm_forward(NULL, &t.good, &t.out), MM_ERR_ARG);
    ck_status(mm_forward(t.context, NULL, &t.out), MM_ERR_ARG);
    ck_status(mm_forward(t.context, &t.good, NULL), MM_ERR_ARG);
    ck_unchanged(&t);
    free_bench(&t);
}
END_TEST

START_TEST(nothing_is_shown_after_any_failure)
{
    bench t = bench_of();
    mm_batch unset = t.good, wrong = t.good;
    unset.struct_size = 0;
    wrong.ids = NULL;
    const struct {
        mm_context *context;
        const mm_batch *batch;
    } calls[] = { { t.context, &unset }, { t.context, &wrong }, { t.context, NULL }, { NULL, &t.good } };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        ck_ok(mm_forward(t.context, &t.good, &t.out));
        ck_assert(t.out.last_logits.data && t.out.loss > 0);
        ck_status(mm_forward(calls[i].context, calls[i].batch, &t.out), MM_ERR_ARG);
        ck_assert_msg(!t.out.last_logits.data && t.out.loss == 0, "call %d", (int)i);
    }
    ck_status(mm_forward(t.context, &t.good, NULL), MM_ERR_ARG);
    ck_unchanged(&t);
    free_bench(&t);
}
END_TEST

START_TEST(caches_that_do_not_fit_are_refused)
{
    bench t = bench_of();
    mm_model *stranger = nth_model(0, 12);
    mm_cache *cache = NULL, *narrow = NULL, *foreign = NULL, *large = NULL;
    ck_ok(mm_cache_create(t.model, 2, 12, MM_F32, &cache));
    ck_ok(mm_cache_create(t.model, 1, 12, MM_F32, &narrow));
    ck_ok(mm_cache_create(t.model, 2, 512, MM_F32, &large));
    ck_ok(mm_cache_create(stranger, 2, 12, MM_F32, &foreign));
    t.good.mode = MM_EVAL;
    mm_batch first = t.good;
    first.cache = cache;
    first.length = 5;
    ck_ok(mm_forward(t.context, &first, &t.out));
    t.good.mode = MM_TRAIN;
    ck_ok(mm_forward(t.context, &t.good, &t.out));
    REFUSED(&t, MM_ERR_STATE, "cache", b.cache = cache);
    t.good.mode = MM_EVAL;
    REFUSED(&t, MM_ERR_ARG, "another model", b.cache = foreign);
    REFUSED(&t, MM_ERR_ARG, "2 sequences", b.cache = narrow);
    REFUSED(&t, MM_ERR_ARG, "13 tokens", b.cache = cache);
    REFUSED(&t, MM_ERR_ARG, "document_ids", (b.cache = cache, b.length = 2, b.document_ids = b.ids));
    REFUSED(&t, MM_ERR_ARG, "attention_mask[0][6]", (b.cache = cache, b.length = 2, b.attention_mask = with(NULL, 14, 6, 3)));
    REFUSED(&t, MM_ERR_ARG, "position_ids", (b.cache = cache, b.length = 2, b.position_ids = with(NULL, 4, 3, 64)));
    ck_assert_int_eq(mm_cache_length(cache, 0), 5);
    ck_ok(mm_cache_truncate(cache, 1, 3));
    REFUSED(&t, MM_ERR_ARG, "one length", (b.cache = cache, b.length = 2, b.attention_mask = with(NULL, 14, 6, 1)));
    t.good.mode = MM_TRAIN;
    ck_unchanged(&t);

    mm_batch b = first;
    b.cache = large;
    b.length = 8;
    for (int i = 0; i < 8; i++)
        ck_ok(mm_forward(t.context, &b, &t.out));
    ck_status(mm_forward(t.context, &b, &t.out), MM_ERR_ARG); /* 64 was planned, though the cache has room */
    ck_error_mentions("planned for 64");
    ck_assert_int_eq(mm_cache_length(large, 1), 64);
    mm_cache_free(cache);
    mm_cache_free(narrow);
    mm_cache_free(large);
    mm_cache_free(foreign);
    mm_model_free(stranger);
    free_bench(&t);
}
END_TEST

START_TEST(a_context_for_evaluation_does_not_train)
{
    bench t = bench_of();
    mm_context *eval = context_of(t.model, MM_EVAL, 2, 8, OUTPUTS);
    mm_view view = { 0 };
    double norm = -1;
    ck_status(mm_forward(eval, &t.good, &t.out), MM_ERR_STATE);
    ck_error_mentions("MM_TRAIN");
    ck_status(mm_backward(eval, NULL), MM_ERR_STATE);
    ck_status(mm_zero_grad(eval), MM_ERR_STATE);
    ck_status(mm_grad(eval, 0, &view), MM_ERR_STATE);
    ck_status(mm_grad_norm(eval, &norm), MM_ERR_STATE);
    ck_status(mm_grad_add(t.context, eval, 1), MM_ERR_STATE);
    ck_status(mm_grad_add(eval, t.context, 1), MM_ERR_STATE);
    ck_assert(view.data == NULL && norm == -1);
    mm_context_free(eval);
    free_bench(&t);
}
END_TEST

START_TEST(backward_without_a_pass_to_go_back_over_is_refused)
{
    bench t = bench_of();
    ck_status(mm_backward(t.context, NULL), MM_ERR_STATE); /* a second time */
    ck_error_mentions("forward");
    mm_batch b = t.good;
    b.mode = MM_EVAL;
    ck_ok(mm_forward(t.context, &t.good, &t.out));
    ck_ok(mm_forward(t.context, &b, &t.out));
    ck_status(mm_backward(t.context, NULL), MM_ERR_STATE);
    ck_assert(same_bits(all_gradients(t.context, &t.n), t.gradients, t.n));
    mm_context *fresh = context_of(t.model, MM_TRAIN, 2, 8, OUTPUTS);
    ck_status(mm_backward(fresh, NULL), MM_ERR_STATE);
    ck_status(mm_backward(NULL, NULL), MM_ERR_ARG);
    mm_context_free(fresh);
    free_bench(&t);
}
END_TEST

START_TEST(backward_options_that_contradict_are_refused)
{
    bench t = bench_of();
    mm_backward_options good = MM_BACKWARD_OPTIONS_INIT, o;
    float *numbers = take_floats(16 * vocab_of(t.model), 0);
    ck_ok(mm_forward(t.context, &t.good, &t.out));
    o = good;
    o.d_logits = o.d_logprobs = numbers;
    ck_status(mm_backward(t.context, &o), MM_ERR_ARG);
    ck_error_mentions("d_logprobs");
    static const double normalizers[] = { -1, -INFINITY, INFINITY, NAN };
    for (int i = 0; i < 4; i++) {
        o = good;
        o.normalizer = normalizers[i];
        ck_status(mm_backward(t.context, &o), MM_ERR_ARG);
        ck_error_mentions("normalizer");
    }
    static const double scales[] = { -INFINITY, INFINITY, NAN };
    for (int i = 0; i < 3; i++) {
        o = good;
        o.loss_scale = scales[i];
        ck_status(mm_backward(t.context, &o), MM_ERR_ARG);
        ck_error_mentions("loss_scale");
        o = good;
        o.aux_scale = scales[i];
        ck_status(mm_backward(t.context, &o), MM_ERR_ARG);
        ck_error_mentions("aux_scale");
    }
    o = good;
    o.struct_size = sizeof(size_t) - 1;
    ck_status(mm_backward(t.context, &o), MM_ERR_ARG);
    ck_unchanged(&t);

    mm_batch bare = t.good;
    bare.targets = NULL;
    bare.outputs = MM_OUT_LAST_LOGITS;
    ck_ok(mm_forward(t.context, &bare, &t.out));
    ck_status(mm_backward(t.context, NULL), MM_ERR_STATE);
    ck_error_mentions("targets");
    o = good;
    o.d_logprobs = numbers;
    ck_status(mm_backward(t.context, &o), MM_ERR_ARG);
    ck_error_mentions("targets");
    o = good;
    o.d_hidden = numbers;
    ck_ok(mm_backward(t.context, &o));
    free_bench(&t);
}
END_TEST

START_TEST(gradient_questions_held_wrong_are_refused)
{
    bench t = bench_of();
    mm_view view = { 0 };
    int64_t count = mm_model_tensor_count(t.model);
    ck_status(mm_zero_grad(NULL), MM_ERR_ARG);
    ck_status(mm_grad(NULL, 0, &view), MM_ERR_ARG);
    ck_status(mm_grad(t.context, 0, NULL), MM_ERR_ARG);
    ck_status(mm_grad(t.context, -1, &view), MM_ERR_ARG);
    ck_error_mentions("mm_grad: there is no tensor -1, the model has ");
    ck_status(mm_grad(t.context, count, &view), MM_ERR_ARG);
    ck_status(mm_grad(t.context, INT64_MIN, &view), MM_ERR_ARG);
    ck_assert_ptr_null(view.data);
    ck_status(mm_grad_norm(NULL, &t.loss), MM_ERR_ARG);
    ck_status(mm_grad_norm(t.context, NULL), MM_ERR_ARG);
    ck_status(mm_grad_add(NULL, t.context, 1), MM_ERR_ARG);
    ck_status(mm_grad_add(t.context, NULL, 1), MM_ERR_ARG);
    ck_assert(same_bits(all_gradients(t.context, &t.n), t.gradients, t.n));
    free_bench(&t);
}
END_TEST

static void no_host(void *user, int64_t pieces, mm_piece_fn piece, void *job)
{
    (void)user;
    for (int64_t i = 0; i < pieces; i++)
        piece(job, i, 0);
}

START_TEST(contexts_out_of_range_are_not_made)
{
    mm_model *model = nth_model(0, 12);
    uint64_t held = bytes_held();
    mm_context_options good = MM_CONTEXT_OPTIONS_INIT, o = good;
    mm_context *untouched = (mm_context *)&held, *context = untouched;
    struct {
        int32_t value, *field;
        const char *word;
    } bad[] = { { -1, &o.mode, "mode" },           { 2, &o.mode, "mode" },
                { 0, &o.max_batch, "max_batch" },  { INT32_MIN, &o.max_batch, "max_batch" },
                { INT32_MAX, &o.max_batch, "max_batch" },
                { 0, &o.max_length, "max_length" }, { 513, &o.max_length, "max_length" },
                { -7, &o.max_length, "max_length" },
                { 511, &o.max_context, "max_context" }, { 513, &o.max_context, "max_context" },
                { -1, &o.max_context, "max_context" },
                { 32, &o.outputs, "outputs" },     { -1, &o.outputs, "outputs" },
                { -1, &o.threads, "threads" },     { INT32_MAX, &o.threads, "threads" },
                { 2, &o.checkpointing, "checkpointing" } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o = good;
        *bad[i].field = bad[i].value;
        ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
        ck_error_mentions(bad[i].word);
    }
    o = good;
    o.kernels = "abacus";
    ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
    ck_error_mentions("kernels is \"abacus\", must be ");
    for (int32_t i = 0; i < mm_kernels_count(); i++)
        ck_error_mentions(mm_kernels_name(i));
    o.kernels = ""; /* a name, though of nothing: NULL is the fastest */
    ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
    ck_error_mentions("kernels is \"\"");
    o = good;
    o.parallel_for = no_host; /* threads stays 0: the host could not know what numbers its workers may have */
    ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
    ck_error_mentions("threads is 0");
    o = good;
    static const float noises[] = { NAN, -0.01f, 1.01f, INFINITY };
    for (int i = 0; i < 4; i++) {
        o.router_noise = noises[i];
        ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
        ck_error_mentions("router_noise");
    }
    o = good;
    o.struct_size = sizeof(size_t) - 1;
    ck_status(mm_context_create(model, &o, &context), MM_ERR_ARG);
    ck_error_mentions("struct_size");
    ck_status(mm_context_create(NULL, &good, &context), MM_ERR_ARG);
    ck_status(mm_context_create(model, &good, NULL), MM_ERR_ARG);
    ck_assert_ptr_eq(context, untouched);
    ck_assert_uint_eq(bytes_held(), held);
    mm_context_free(NULL);
    mm_model_free(model);
}
END_TEST

START_TEST(weights_that_cannot_be_trained_are_not_planned_for_training)
{
    mm_model *model = nth_model(0, 12), *narrow = NULL, *mapped = NULL;
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_load_options load = MM_LOAD_OPTIONS_INIT;
    mm_context *context = NULL;
    const char *directory = scratch_directory();
    ck_ok(mm_model_cast(model, MM_BF16, &narrow));
    ck_ok(mm_model_save(model, directory));
    load.map = 1;
    ck_ok(mm_model_load(directory, &load, &mapped));
    o.mode = MM_TRAIN;
    o.max_length = 8;
    ck_status(mm_context_create(narrow, &o, &context), MM_ERR_STATE);
    ck_error_mentions("float32");
    ck_status(mm_context_create(mapped, &o, &context), MM_ERR_STATE);
    ck_error_mentions("mapped");
    o.mode = MM_EVAL;
    test_rng rng = { 901 };
    mm_batch b = random_batch(model, 1, 8, MM_EVAL, &rng);
    mm_context *copied = NULL;
    mm_output out = MM_OUTPUT_INIT, expected = MM_OUTPUT_INIT;
    ck_ok(mm_context_create(mapped, &o, &context));
    ck_ok(mm_context_create(model, &o, &copied));
    ck_ok(mm_forward(context, &b, &out));
    ck_ok(mm_forward(copied, &b, &expected));
    ck_assert(relative_error(out.last_logits.data, expected.last_logits.data, (size_t)vocab_of(model)) < 1e-6);
    mm_context_free(context);
    mm_context_free(copied);
    mm_model_free(mapped);
    mm_model_free(narrow);
    mm_model_free(model);
}
END_TEST

START_TEST(cache_functions_held_wrong_are_refused)
{
    mm_model *model = nth_model(0, 12);
    mm_cache *cache = NULL;
    static const int32_t sizes[][2] = { { 0, 5 }, { -1, 5 }, { INT32_MAX, 5 }, { 2, 0 }, { 2, -5 }, { 2, 513 } };
    for (int i = 0; i < 6; i++)
        ck_status(mm_cache_create(model, sizes[i][0], sizes[i][1], MM_F32, &cache), MM_ERR_ARG);
    ck_status(mm_cache_create(NULL, 1, 5, MM_F32, &cache), MM_ERR_ARG);
    ck_status(mm_cache_create(model, 1, 5, MM_F32, NULL), MM_ERR_ARG);
    ck_assert_ptr_null(cache);
    ck_ok(mm_cache_create(model, 2, 512, MM_F32, &cache));
    ck_assert_int_eq(mm_cache_length(cache, 1), 0);
    ck_assert_int_eq(mm_cache_length(cache, 2), -1);
    ck_assert_int_eq(mm_cache_length(cache, -1), -1);
    ck_assert_int_eq(mm_cache_length(NULL, 0), -1);
    ck_status(mm_cache_truncate(NULL, 0, 0), MM_ERR_ARG);
    ck_status(mm_cache_truncate(cache, 2, 0), MM_ERR_ARG);
    ck_status(mm_cache_truncate(cache, -2, 0), MM_ERR_ARG);
    ck_status(mm_cache_truncate(cache, 0, 1), MM_ERR_ARG);
    ck_status(mm_cache_truncate(cache, -1, 1), MM_ERR_ARG);
    ck_status(mm_cache_truncate(cache, 0, -1), MM_ERR_ARG);
    ck_ok(mm_cache_truncate(cache, -1, 0));
    mm_cache_free(cache);
    mm_cache_free(NULL);
    mm_model_free(model);
}
END_TEST

/* What mm_generate refuses, the good options differing by `change`; what stands in `o` is them. */
#define NOT_GENERATED(status, word, change)                                                                             \
    do {                                                                                                                \
        mm_generate_options o = good;                                                                                   \
        change;                                                                                                         \
        ck_status(mm_generate(context, &o, &r), status);                                                               \
        ck_error_mentions(word);                                                                                        \
        ck_assert_int_eq(mm_cache_length(cache, 0), 3);                                                                 \
    } while (0)

START_TEST(generate_held_wrong_is_refused_and_the_cache_stays)
{
    mm_model *model = nth_model(0, 12), *stranger = nth_model(0, 12);
    mm_context *context = context_of(model, MM_EVAL, 2, 8, MM_OUT_LAST_LOGITS);
    mm_context *without = context_of(model, MM_EVAL, 2, 8, MM_OUT_LOGITS);
    mm_cache *cache = NULL, *foreign = NULL, *narrow = NULL;
    mm_generate_result r = MM_GENERATE_RESULT_INIT, broken = { 2, NULL, NULL, NULL, NULL, 0, NULL, NULL };
    int32_t ids[64] = { 1, 2, 3, 4 }, bad_ids[3] = { 1, 53, 2 }, lengths[2] = { 3, 2 }, none[2] = { 3, 0 }, long_one[2] = { 62, 1 };
    const int32_t *prompts[2] = { ids, ids + 1 }, *bad[2] = { ids, bad_ids }, *missing[2] = { ids, NULL };
    mm_sampling sampling = MM_SAMPLING_INIT, odd = sampling;
    mm_generate_options good = MM_GENERATE_OPTIONS_INIT;
    ck_ok(mm_cache_create(model, 2, 64, MM_F32, &cache));
    ck_ok(mm_cache_create(stranger, 2, 64, MM_F32, &foreign));
    ck_ok(mm_cache_create(model, 1, 64, MM_F32, &narrow));
    sampling.temperature = 0;
    good.prompts = prompts;
    good.prompt_lengths = lengths;
    good.sequences = 2;
    good.sampling = &sampling;
    good.cache = cache;
    good.max_new_tokens = 1;
    good.stop_ids = ids;
    ck_ok(mm_generate(context, &good, &r));
    int32_t expected[2] = { r.ids[0], r.ids[1] };

    NOT_GENERATED(MM_ERR_ARG, "sequences is 0", o.sequences = 0);
    NOT_GENERATED(MM_ERR_ARG, "sequences is -1", o.sequences = -1);
    NOT_GENERATED(MM_ERR_ARG, "sequences is 3", o.sequences = 3);
    NOT_GENERATED(MM_ERR_ARG, "prompts", o.prompts = NULL);
    NOT_GENERATED(MM_ERR_ARG, "prompt_lengths", o.prompt_lengths = NULL);
    NOT_GENERATED(MM_ERR_ARG, "prompt 1", o.prompts = missing);
    NOT_GENERATED(MM_ERR_ARG, "prompt 1", o.prompt_lengths = none);
    NOT_GENERATED(MM_ERR_ARG, "prompts[1][1] is 53", o.prompts = bad);
    NOT_GENERATED(MM_ERR_ARG, "prompt 0", o.prompt_lengths = long_one); /* with the three in the cache: 65 */
    NOT_GENERATED(MM_ERR_ARG, "max_new_tokens", o.max_new_tokens = 0);
    NOT_GENERATED(MM_ERR_ARG, "max_new_tokens", o.max_new_tokens = -3);
    NOT_GENERATED(MM_ERR_ARG, "stop_count", o.stop_count = -1);
    NOT_GENERATED(MM_ERR_ARG, "another model", o.cache = foreign);
    NOT_GENERATED(MM_ERR_ARG, "1 sequence", o.cache = narrow);
    NOT_GENERATED(MM_ERR_ARG, "struct_size", o.struct_size = 2);
    NOT_GENERATED(MM_ERR_ARG, "top_p", (odd.top_p = 0, o.sampling = &odd));
    NOT_GENERATED(MM_ERR_ARG, "mm_sampling", (odd.struct_size = 1, o.sampling = &odd));
    ck_status(mm_generate(NULL, &good, &r), MM_ERR_ARG);
    ck_status(mm_generate(context, NULL, &r), MM_ERR_ARG);
    ck_status(mm_generate(context, &good, NULL), MM_ERR_ARG);
    ck_status(mm_generate(context, &good, &broken), MM_ERR_ARG);
    good.cache = NULL;
    ck_status(mm_generate(without, &good, &r), MM_ERR_STATE);
    ck_error_mentions("MM_OUT_LAST_LOGITS");

    ck_ok(mm_cache_truncate(cache, -1, 0));
    good.cache = cache;
    ck_ok(mm_generate(context, &good, &r));
    ck_assert(r.ids[0] == expected[0] && r.ids[1] == expected[1]);
    mm_cache_free(cache);
    mm_cache_free(foreign);
    mm_cache_free(narrow);
    mm_context_free(context);
    mm_context_free(without);
    mm_model_free(model);
    mm_model_free(stranger);
}
END_TEST

/* A struct as a newer program would hand it over. */
typedef struct newer_batch {
    mm_batch batch;
    int64_t later;
} newer_batch;

START_TEST(structs_of_other_versions_are_read_as_far_as_they_go)
{
    bench t = bench_of();
    newer_batch newer = { t.good, 0 };
    newer.batch.struct_size = sizeof newer;
    ck_ok(mm_forward(t.context, &newer.batch, &t.out));
    ck_assert(t.out.loss == t.loss);
    newer.later = 1;
    ck_status(mm_forward(t.context, &newer.batch, &t.out), MM_ERR_UNSUPPORTED);
    ck_error_mentions("mm_batch");
    mm_batch older = t.good;
    older.struct_size = offsetof(mm_batch, mode); /* what lies behind is not this program's */
    older.mode = 99;
    older.outputs = 99;
    ck_ok(mm_forward(t.context, &older, &t.out));
    mm_output small = MM_OUTPUT_INIT;
    small.struct_size = offsetof(mm_output, loss_sum);
    small.loss_sum = -1;
    ck_ok(mm_forward(t.context, &t.good, &small));
    ck_assert(small.loss == t.loss && small.loss_sum == -1);
    free_bench(&t);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/bad_input", &tests);
    tcase_add_test(tests, batches_out_of_range_are_refused);
    tcase_add_test(tests, nothing_is_shown_after_any_failure);
    tcase_add_test(tests, caches_that_do_not_fit_are_refused);
    tcase_add_test(tests, a_context_for_evaluation_does_not_train);
    tcase_add_test(tests, backward_without_a_pass_to_go_back_over_is_refused);
    tcase_add_test(tests, backward_options_that_contradict_are_refused);
    tcase_add_test(tests, gradient_questions_held_wrong_are_refused);
    tcase_add_test(tests, contexts_out_of_range_are_not_made);
    tcase_add_test(tests, weights_that_cannot_be_trained_are_not_planned_for_training);
    tcase_add_test(tests, cache_functions_held_wrong_are_refused);
    tcase_add_test(tests, generate_held_wrong_is_refused_and_the_cache_stays);
    tcase_add_test(tests, structs_of_other_versions_are_read_as_far_as_they_go);
    return run_suite(suite);
}
