/* What a forward pass means: caches, masks, positions, documents, outputs, narrow weights. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run/models.h"

#define CLOSE 5e-6
#define EVERYTHING (MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS | MM_OUT_LOGITS | MM_OUT_HIDDEN)

/* Logits of a batch, in take()'s memory. */
static float *logits_of(mm_context *context, const mm_batch *batch)
{
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, batch, &out));
    return copy_view(&out.logits);
}

static void ck_rows(const float *a, const float *b, int64_t n, const char *what)
{
    ck_assert_msg(relative_error(a, b, (size_t)n) <= CLOSE, "%s: relative error %g", what, relative_error(a, b, (size_t)n));
}

/* Columns [first, first + count) of ids [B, T]. */
static int32_t *columns(const int32_t *ids, int32_t B, int32_t T, int32_t first, int32_t count)
{
    int32_t *part = take(B * count, sizeof *part);
    for (int32_t i = 0; i < B; i++)
        memcpy(part + i * count, ids + i * T + first, (size_t)count * sizeof *part);
    return part;
}

/* Feed a batch through a fresh cache in pieces of these lengths (0 ends; then pieces of the last length), and compare every
 * logit with those of the whole. */
static void feed_in_pieces(mm_context *context, const mm_batch *whole, const float *expected, const int32_t *pieces,
                           const char *what)
{
    mm_cache *cache = NULL;
    int32_t B = whole->batch, T = whole->length, V = vocab_of(mm_context_model(context)), piece = 0;
    ck_ok(mm_cache_create(mm_context_model(context), B, T, MM_F32, &cache));
    for (int32_t at = 0; at < T; at += piece) {
        piece = *pieces ? *pieces++ : piece;
        piece = piece < T - at ? piece : T - at;
        mm_batch b = *whole;
        b.cache = cache;
        b.length = piece;
        b.ids = columns(whole->ids, B, T, at, piece);
        b.attention_mask = whole->attention_mask ? columns(whole->attention_mask, B, T, 0, at + piece) : NULL;
        b.position_ids = whole->position_ids ? columns(whole->position_ids, B, T, at, piece) : NULL;
        float *logits = logits_of(context, &b);
        for (int32_t i = 0; i < B; i++)
            ck_rows(logits + i * piece * V, expected + (i * T + at) * V, piece * V, what);
        for (int32_t i = 0; i < B; i++)
            ck_assert_int_eq(mm_cache_length(cache, i), at + piece);
    }
    mm_cache_free(cache);
}

static mm_batch bare_batch(const mm_model *model, int32_t B, int32_t T, test_rng *rng)
{
    mm_batch b = random_batch(model, B, T, MM_EVAL, rng);
    b.targets = NULL;
    return b;
}

START_TEST(a_prompt_in_any_pieces_gives_the_logits_of_the_whole)
{
    static const int32_t pieces[][5] = { { 29 }, { 1 }, { 7 }, { 5, 1, 13, 10 }, { 28, 1 } };
    test_rng rng = { 400 };
    mm_model *model = nth_model(_i, 6);
    for (int32_t p = 0; p < mm_kernels_count(); p++) {
        mm_context *context = context_on(model, MM_EVAL, 3, 29, MM_OUT_LOGITS, 1, mm_kernels_name(p));
        mm_batch b = bare_batch(model, 3, 29, &rng);
        float *expected = logits_of(context, &b);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
            feed_in_pieces(context, &b, expected, pieces[i], tiny_models[_i].name);
        int32_t *mask = take_ints(&rng, 3 * 29, 0, 1);
        mask[0] = mask[29] = mask[58] = 1;
        b.attention_mask = mask;
        b.position_ids = take_ints(&rng, 3 * 29, 0, 40);
        expected = logits_of(context, &b);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
            feed_in_pieces(context, &b, expected, pieces[i], "with mask and positions");
        mm_context_free(context);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(a_cache_cut_back_continues_as_if_the_rest_had_never_been)
{
    test_rng rng = { 401 };
    mm_model *model = nth_model(0, 6);
    mm_context *context = context_of(model, MM_EVAL, 2, 20, MM_OUT_LOGITS);
    mm_batch whole = bare_batch(model, 2, 20, &rng), other = bare_batch(model, 2, 9, &rng), b = whole;
    float *expected = logits_of(context, &whole);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 25, MM_F32, &cache));
    b.cache = other.cache = cache;
    b.length = 11;
    b.ids = columns(whole.ids, 2, 20, 0, 11);
    logits_of(context, &b);
    logits_of(context, &other);
    ck_ok(mm_cache_truncate(cache, 0, 11));
    ck_assert_int_eq(mm_cache_length(cache, 1), 20);
    ck_ok(mm_cache_truncate(cache, -1, 11));
    b.length = 9;
    b.ids = columns(whole.ids, 2, 20, 11, 9);
    float *logits = logits_of(context, &b);
    int32_t V = vocab_of(model);
    for (int32_t i = 0; i < 2; i++)
        ck_rows(logits + i * 9 * V, expected + (i * 20 + 11) * V, 9 * V, "after the cut");
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(cached_sequences_may_have_different_lengths)
{
    test_rng rng = { 402 };
    mm_model *model = nth_model(1, 6);
    mm_context *context = context_of(model, MM_EVAL, 2, 20, MM_OUT_LOGITS);
    mm_batch whole = bare_batch(model, 2, 20, &rng), b = whole;
    float *expected = logits_of(context, &whole);
    int32_t V = vocab_of(model);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 25, MM_F32, &cache));
    b.cache = cache;
    b.length = 15;
    b.ids = columns(whole.ids, 2, 20, 0, 15);
    logits_of(context, &b);
    ck_ok(mm_cache_truncate(cache, 1, 4));
    int32_t next[6] = { whole.ids[15], whole.ids[16], whole.ids[17], whole.ids[24], whole.ids[25], whole.ids[26] };
    b.length = 3;
    b.ids = next;
    float *logits = logits_of(context, &b);
    ck_rows(logits, expected + 15 * V, 3 * V, "the longer");
    ck_rows(logits + 3 * V, expected + (20 + 4) * V, 3 * V, "the shorter");
    ck_assert_int_eq(mm_cache_length(cache, 0), 18);
    ck_assert_int_eq(mm_cache_length(cache, 1), 7);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(right_padding_changes_nothing_for_the_real_tokens)
{
    test_rng rng = { 403 };
    mm_model *model = nth_model(_i, 6);
    mm_context *context = context_of(model, MM_EVAL, 2, 17, MM_OUT_LOGITS);
    mm_batch b = bare_batch(model, 2, 17, &rng), alone = b;
    int32_t *mask = take_ints(&rng, 34, 1, 1), V = vocab_of(model);
    for (int t = 12; t < 17; t++)
        mask[17 + t] = 0;
    b.attention_mask = mask;
    float *padded = logits_of(context, &b);
    alone.batch = 1;
    ck_rows(padded, logits_of(context, &alone), 17 * V, "the row without padding");
    alone.ids = b.ids + 17;
    alone.length = 12;
    ck_rows(padded + 17 * V, logits_of(context, &alone), 12 * V, "the padded row");
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(left_padding_keeps_column_numbers_as_positions)
{
    test_rng rng = { 404 };
    mm_model *model = nth_model(_i, 6);
    mm_context *context = context_of(model, MM_EVAL, 1, 17, MM_OUT_LOGITS);
    mm_batch b = bare_batch(model, 1, 17, &rng), alone = b;
    int32_t *mask = take_ints(&rng, 17, 1, 1), positions[12], V = vocab_of(model);
    memset(mask, 0, 5 * sizeof *mask);
    b.attention_mask = mask;
    float *padded = logits_of(context, &b);
    for (int t = 0; t < 12; t++)
        positions[t] = t + 5;
    alone.ids = b.ids + 5;
    alone.length = 12;
    alone.position_ids = positions;
    ck_rows(padded + 5 * V, logits_of(context, &alone), 12 * V, tiny_models[_i].name);
    ck_assert(all_finite(padded, 17 * V));
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* A row of three documents: 5, 1 and 9 tokens, the last with the first's number again. */
static const int32_t documents[15] = { 4, 4, 4, 4, 4, 9, 4, 4, 4, 4, 4, 4, 4, 4, 4 };
static const int32_t document_lengths[3] = { 5, 1, 9 };

START_TEST(a_packed_row_is_the_token_weighted_mean_of_its_documents)
{
    test_rng rng = { 405 };
    mm_model *model = nth_model(_i, 6);
    mm_context *packed = context_of(model, MM_TRAIN, 1, 15, MM_OUT_LOSS | MM_OUT_LOGITS);
    mm_context *alone = context_of(model, MM_TRAIN, 1, 9, MM_OUT_LOSS | MM_OUT_LOGITS);
    mm_batch b = random_batch(model, 1, 15, MM_TRAIN, &rng), one = b;
    b.document_ids = documents;
    mm_output out = MM_OUTPUT_INIT, each = MM_OUTPUT_INIT;
    ck_ok(mm_forward(packed, &b, &out));
    float *logits = copy_view(&out.logits);
    ck_ok(mm_backward(packed, NULL));
    mm_backward_options options = MM_BACKWARD_OPTIONS_INIT;
    options.normalizer = (double)out.loss_count;
    double sum = 0;
    for (int64_t d = 0, at = 0; d < 3; at += document_lengths[d++]) {
        one.length = document_lengths[d];
        one.ids = b.ids + at;
        one.targets = b.targets + at;
        ck_ok(mm_forward(alone, &one, &each));
        sum += each.loss_sum;
        ck_rows(each.logits.data, logits + at * vocab_of(model), one.length * vocab_of(model), "logits of a document");
        ck_ok(mm_backward(alone, &options));
    }
    ck_assert_double_eq_tol(out.loss, sum / (double)out.loss_count, 1e-6 * out.loss);
    int64_t n;
    float *together = all_gradients(packed, &n);
    ck_rows(all_gradients(alone, &n), together, n, "gradients");
    mm_context_free(packed);
    mm_context_free(alone);
    mm_model_free(model);
}
END_TEST

static bool is_empty(const mm_view *view)
{
    return !view->data && view->rank == 0;
}

START_TEST(only_what_was_asked_for_is_shown)
{
    test_rng rng = { 406 };
    mm_model *model = nth_model(0, 6);
    for (int32_t mode = MM_EVAL; mode <= MM_TRAIN; mode++) {
        mm_context *context = context_of(model, mode, 2, 7, EVERYTHING);
        mm_batch b = random_batch(model, 2, 7, mode, &rng);
        mm_output all = MM_OUTPUT_INIT;
        ck_ok(mm_forward(context, &b, &all)); /* 0: the context's */
        float *logits = copy_view(&all.logits), *last = copy_view(&all.last_logits), *hidden = copy_view(&all.hidden);
        float *logprobs = copy_view(&all.logprobs);
        for (int32_t outputs = 1; outputs <= EVERYTHING; outputs++) {
            mm_output out = MM_OUTPUT_INIT;
            b.outputs = outputs;
            ck_ok(mm_forward(context, &b, &out));
            ck_assert_int_eq(is_empty(&out.logprobs), !(outputs & MM_OUT_LOGPROBS));
            ck_assert_int_eq(is_empty(&out.last_logits), !(outputs & MM_OUT_LAST_LOGITS));
            ck_assert_int_eq(is_empty(&out.logits), !(outputs & MM_OUT_LOGITS));
            ck_assert_int_eq(is_empty(&out.hidden), !(outputs & MM_OUT_HIDDEN));
            if (outputs & MM_OUT_LOSS)
                ck_assert_double_eq_tol(out.loss, all.loss, 1e-6);
            if (outputs & MM_OUT_LOGITS)
                ck_rows(out.logits.data, logits, 14 * vocab_of(model), "logits");
            if (outputs & MM_OUT_LAST_LOGITS)
                ck_rows(out.last_logits.data, last, 2 * vocab_of(model), "last logits");
            if (outputs & MM_OUT_HIDDEN)
                ck_rows(out.hidden.data, hidden, 14 * 24, "hidden states");
            if (outputs & MM_OUT_LOGPROBS)
                ck_rows(out.logprobs.data, logprobs, 14, "log-probabilities");
        }
        ck_assert_int_eq(all.logits.rank, 3);
        ck_assert_int_eq(all.logits.shape[2], vocab_of(model));
        ck_assert_int_eq(all.logits.strides[0], 7 * vocab_of(model));
        ck_assert_int_eq(all.logits.shape[3], 1);
        ck_assert_int_eq(all.last_logits.rank, 2);
        ck_assert_int_eq(all.last_logits.shape[0], 2);
        mm_context_free(context);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(without_targets_a_contexts_own_outputs_leave_the_loss_out)
{
    test_rng rng = { 407 };
    mm_model *model = nth_model(0, 6);
    mm_context *context = context_of(model, MM_EVAL, 1, 7, MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS);
    mm_batch b = bare_batch(model, 1, 7, &rng);
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, &b, &out));
    ck_assert(is_empty(&out.logprobs) && !is_empty(&out.last_logits));
    ck_assert(out.loss == 0 && out.loss_count == 0);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* A loss of 0 over some targets would be a perplexity of 1. */
START_TEST(a_loss_that_was_not_asked_for_counts_no_targets)
{
    test_rng rng = { 408 };
    mm_model *model = nth_model(0, 6);
    mm_context *context = context_of(model, MM_TRAIN, 1, 7, MM_OUT_LOSS | MM_OUT_HIDDEN);
    mm_batch b = random_batch(model, 1, 7, MM_EVAL, &rng);
    mm_output out = MM_OUTPUT_INIT, asked = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, &b, &asked));
    ck_assert(asked.loss > 0 && asked.loss_count > 0);
    b.outputs = MM_OUT_HIDDEN;
    ck_ok(mm_forward(context, &b, &out));
    ck_assert(out.loss == 0 && out.loss_sum == 0 && out.loss_count == 0);
    b.mode = MM_TRAIN; /* computes it in any case */
    ck_ok(mm_forward(context, &b, &out));
    ck_assert_int_eq(out.loss_count, asked.loss_count);
    ck_assert_double_gt(out.loss, 0);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* Everything a pass gives, one after another. */
static float *all_outputs(mm_context *context, const mm_batch *batch, int64_t *n)
{
    mm_output out = MM_OUTPUT_INIT;
    ck_ok(mm_forward(context, batch, &out));
    const mm_view *views[] = { &out.logprobs, &out.last_logits, &out.logits, &out.hidden };
    float *all = take_floats(1 << 16, 0);
    *n = 0;
    for (int i = 0; i < 4; i++) {
        int64_t size = views[i]->shape[0] * views[i]->shape[1] * views[i]->shape[2];
        memcpy(all + *n, views[i]->data, (size_t)size * sizeof *all);
        *n += size;
        ck_assert_int_lt(*n, 1 << 15);
    }
    all[(*n)++] = (float)out.loss;
    all[(*n)++] = (float)out.aux_loss;
    return all;
}

/* In a context planned for exactly this batch no buffer has room to spare: one that is too small would run into the next. */
START_TEST(a_small_batch_in_a_large_context_is_as_in_one_that_just_holds_it)
{
    test_rng rng = { 408 };
    mm_model *model = nth_model(_i, 6);
    for (int32_t mode = MM_EVAL; mode <= MM_TRAIN; mode++) {
        mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
        mm_context *large = context_on(model, mode, 5, 31, EVERYTHING, 2, NULL), *exact = NULL;
        o.mode = mode;
        o.max_batch = 2;
        o.max_length = 8; /* 16 rows: not even rounding leaves room */
        o.outputs = EVERYTHING;
        o.threads = 2;
        ck_ok(mm_context_create(model, &o, &exact));
        mm_batch filler = random_batch(model, 5, 31, mode, &rng), b = random_batch(model, 2, 8, mode, &rng);
        int64_t n, m;
        all_outputs(large, &filler, &n); /* leaves its traces everywhere */
        float *roomy = all_outputs(large, &b, &n), *tight = all_outputs(exact, &b, &m);
        ck_assert(n == m && same_bits(tight, roomy, n));
        if (mode == MM_TRAIN) {
            ck_ok(mm_backward(large, NULL));
            ck_ok(mm_backward(exact, NULL));
            roomy = all_gradients(large, &n);
            ck_assert(same_bits(all_gradients(exact, &n), roomy, n));
        }
        mm_context_free(large);
        mm_context_free(exact);
    }
    mm_model_free(model);
}
END_TEST

/* The float32 model with exactly the values that the narrow one holds. */
static void ck_narrow_runs_as_wide(mm_model *narrow, const char *what)
{
    test_rng rng = { 409 };
    mm_model *wide = NULL;
    ck_ok(mm_model_cast(narrow, MM_F32, &wide));
    for (int32_t p = 0; p < mm_kernels_count(); p++) {
        mm_context *a = context_on(narrow, MM_EVAL, 2, 19, MM_OUT_LOSS | MM_OUT_LOGITS, 2, mm_kernels_name(p));
        mm_context *b = context_on(wide, MM_EVAL, 2, 19, MM_OUT_LOSS | MM_OUT_LOGITS, 2, mm_kernels_name(p));
        for (int32_t T = 1; T <= 19; T += 6) {
            mm_batch batch = random_batch(narrow, 2, T, MM_EVAL, &rng);
            mm_output out_a = MM_OUTPUT_INIT, out_b = MM_OUTPUT_INIT;
            ck_ok(mm_forward(a, &batch, &out_a));
            ck_ok(mm_forward(b, &batch, &out_b));
            ck_rows(out_a.logits.data, out_b.logits.data, 2 * T * vocab_of(narrow), what);
            ck_assert_double_eq_tol(out_a.loss, out_b.loss, 1e-5);
        }
        mm_context_free(a);
        mm_context_free(b);
    }
    mm_model_free(wide);
}

START_TEST(narrow_weights_run_as_the_values_they_hold)
{
    mm_model *model = nth_model(_i, 6);
    for (int32_t dtype = MM_BF16; dtype <= MM_F16; dtype++) {
        mm_model *narrow = NULL;
        ck_ok(mm_model_cast(model, dtype, &narrow));
        ck_narrow_runs_as_wide(narrow, tiny_models[_i].name);
        mm_model_free(narrow);
    }
    mm_model_free(model);
}
END_TEST

START_TEST(a_context_sees_what_was_written_to_narrow_weights)
{
    test_rng rng = { 410 };
    mm_model *model = nth_model(0, 6), *narrow = NULL;
    ck_ok(mm_model_cast(model, MM_BF16, &narrow));
    mm_context *context = context_of(narrow, MM_EVAL, 1, 5, MM_OUT_LOGITS);
    mm_batch b = bare_batch(narrow, 1, 5, &rng);
    float *before = logits_of(context, &b);
    int64_t last = mm_model_tensor_count(narrow) - 1; /* the final norm: a vector that is kept widened */
    mm_view view;
    ck_ok(mm_model_write(narrow, last, &view));
    ck_assert_int_eq(view.rank, 1);
    memset(view.data, 0, (size_t)view.shape[0] * sizeof(uint16_t));
    mm_model_written(narrow);
    float *after = logits_of(context, &b);
    for (int64_t i = 0; i < 5 * vocab_of(narrow); i++)
        ck_assert(after[i] == 0);
    ck_assert(before[0] != 0);
    mm_context_free(context);
    mm_model_free(narrow);
    mm_model_free(model);
}
END_TEST

START_TEST(running_allocates_nothing)
{
    test_rng rng = { 411 };
    mm_model *model = nth_model(_i, 6);
    mm_context *context = context_on(model, MM_TRAIN, 2, 9, MM_OUT_LOSS | MM_OUT_LAST_LOGITS, 2, NULL);
    mm_cache *cache = NULL;
    ck_ok(mm_cache_create(model, 2, 20, MM_F32, &cache));
    mm_batch train = random_batch(model, 2, 9, MM_TRAIN, &rng), decode = bare_batch(model, 2, 1, &rng);
    mm_output out = MM_OUTPUT_INIT;
    double norm = 0;
    decode.cache = cache;
    uint64_t before = allocations();
    for (int i = 0; i < 3; i++) {
        ck_ok(mm_forward(context, &train, &out));
        ck_ok(mm_backward(context, NULL));
        ck_ok(mm_grad_norm(context, &norm));
        ck_ok(mm_zero_grad(context));
        ck_ok(mm_forward(context, &decode, &out));
    }
    ck_assert_uint_eq(allocations(), before);
    mm_cache_free(cache);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/forward", &tests);
    tcase_add_loop_test(tests, a_prompt_in_any_pieces_gives_the_logits_of_the_whole, 0, all_count);
    tcase_add_test(tests, a_cache_cut_back_continues_as_if_the_rest_had_never_been);
    tcase_add_test(tests, cached_sequences_may_have_different_lengths);
    tcase_add_loop_test(tests, right_padding_changes_nothing_for_the_real_tokens, 0, all_count);
    tcase_add_loop_test(tests, left_padding_keeps_column_numbers_as_positions, 0, all_count);
    tcase_add_loop_test(tests, a_packed_row_is_the_token_weighted_mean_of_its_documents, 0, tiny_count);
    tcase_add_test(tests, only_what_was_asked_for_is_shown);
    tcase_add_test(tests, a_loss_that_was_not_asked_for_counts_no_targets);
    tcase_add_test(tests, without_targets_a_contexts_own_outputs_leave_the_loss_out);
    tcase_add_loop_test(tests, a_small_batch_in_a_large_context_is_as_in_one_that_just_holds_it, 0, all_count);
    tcase_add_loop_test(tests, narrow_weights_run_as_the_values_they_hold, 0, all_count);
    tcase_add_test(tests, a_context_sees_what_was_written_to_narrow_weights);
    tcase_add_loop_test(tests, running_allocates_nothing, 0, all_count);
    return run_suite(suite);
}
