/* Weights that threads read together: all of them are, at the pace that is promised, and only where that can help. What
 * it does for speed shows in examples/bench. */
#include "model/model.h"
#include "run/context.h"
#include "run/models.h"
#include "run/share.h"

#define WIDE                                                                                                           \
    "{\"model_type\":\"minimind\",\"minimind_version\":2,\"hidden_size\":512,\"num_attention_heads\":4,"               \
    "\"num_key_value_heads\":2,\"max_position_embeddings\":128,"
#define SIZES WIDE "\"num_hidden_layers\":2,\"intermediate_size\":96,"
static const char plain[] = SIZES "\"vocab_size\":8000}";
static const char mixed[] = SIZES "\"vocab_size\":8000,\"use_moe\":true,\"n_routed_experts\":4,\"n_shared_experts\":1,"
                                  "\"num_experts_per_tok\":2,\"tie_word_embeddings\":false}";
static const char small[] = /* less than 4 MiB */
    WIDE "\"num_hidden_layers\":1,\"intermediate_size\":64,\"vocab_size\":1}";

#define OUTPUTS MM_OUT_LAST_LOGITS
static const mmi_pass one_row = { .N = 1, .mode = MM_EVAL };

/* Bytes of the matrices a pass reads, told by what they are called, of the first `count` tensors. */
static int64_t expected_bytes(const mm_model *model, int64_t count, bool tied)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(mm_model_config(model), i, &info));
        bool expert = strstr(info.name, ".experts.") != NULL, embedding = strstr(info.name, "embed_tokens") != NULL;
        if (info.rank == 2 && !expert && (tied || !embedding))
            bytes += info.shape[0] * info.shape[1] * (int64_t)sizeof(float);
    }
    return bytes;
}

static mm_context *two_threads(mm_model *model)
{
    return context_on(model, MM_EVAL, 1, 64, OUTPUTS, 2, NULL);
}

/* Bytes that `passes` of them read. */
static int64_t bytes_read(mm_context *context, int passes, int64_t bytes, bool tied)
{
    int64_t all = 0, before = 0;
    for (int pass = 0; pass <= passes; pass++) {
        const mmi_sharing *s = &context->sharing;
        if (pass > 0)
            mmi_share_weights(context, &one_row);
        int64_t at = expected_bytes(mm_context_model(context), s->tensor, tied) + s->at;
        all += (at - before + bytes) % bytes;
        before = at;
    }
    return all;
}

START_TEST(each_pass_reads_its_share)
{
    const bool tied = _i == 0;
    mm_model *model = model_of(tied ? plain : mixed, 1);
    mm_context *context = two_threads(model);
    const int64_t bytes = expected_bytes(model, mm_model_tensor_count(model), tied);
    int64_t first = bytes_read(context, 16, bytes, tied), later;
    ck_assert_int_eq(context->sharing.bytes, bytes);
    ck_assert_int_eq(context->sharing.passes, 16);
    ck_assert_int_ge(first, 2 * bytes); /* all of it, twice */
    ck_assert_int_lt(first, 2 * bytes + 16);
    context->sharing.tensor = context->sharing.at = 0;
    later = bytes_read(context, 256, bytes, tied);
    ck_assert_int_ge(later, bytes); /* and then once in so many */
    ck_assert_int_lt(later, bytes + 256);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(begins_anew_when_caches_may_hold_something_else)
{
    mm_model *model = model_of(plain, 1);
    mm_context *context = two_threads(model);
    mmi_sharing *s = &context->sharing;
    for (int pass = 0; pass < 20; pass++) {
        s->paused = true; /* but not so soon */
        mmi_share_weights(context, &one_row);
    }
    ck_assert_int_eq(s->passes, 20);
    s->passes = 128;
    mmi_share_weights(context, &one_row);
    ck_assert_int_eq(s->passes, 129);
    s->paused = true;
    mmi_share_weights(context, &one_row);
    ck_assert_int_eq(s->passes, 1);
    for (int pass = 0; pass < 20; pass++)
        mmi_share_weights(context, &one_row);
    mm_model_written(model);
    mmi_share_weights(context, &one_row);
    ck_assert_int_eq(s->passes, 1);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

START_TEST(pauses_are_those_between_passes)
{
    mm_model *model = model_of(small, 1);
    mm_context *context = two_threads(model);
    mmi_share_end(context);
    context->sharing.pass_ended += 3600; /* however long it takes from here to the next line */
    mmi_share_begin(context);
    ck_assert(!context->sharing.paused);
    context->sharing.pass_ended -= 2 * 3600;
    mmi_share_begin(context);
    ck_assert(context->sharing.paused);
    mm_context_free(context);
    mm_model_free(model);
}
END_TEST

/* A host's loop on one thread. */
static void loop(void *user, int64_t pieces, mm_piece_fn piece, void *arg)
{
    (void)user;
    for (int64_t i = 0; i < pieces; i++)
        piece(arg, i, 0);
}

static void ck_reads_nothing(mm_context *context, const mmi_pass *pass)
{
    mmi_share_weights(context, pass);
    ck_assert_int_eq(context->sharing.met, 0);
    mm_context_free(context);
}

START_TEST(nothing_is_read_where_that_can_not_help)
{
    mm_model *model = model_of(plain, 1), *little = model_of(small, 1);
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    mm_context *hosted = NULL, *context = two_threads(model);
    o.threads = 2;
    o.max_length = 1;
    o.parallel_for = loop;
    ck_ok(mm_context_create(model, &o, &hosted));
    ck_reads_nothing(hosted, &one_row);
    ck_reads_nothing(context_on(model, MM_EVAL, 1, 64, OUTPUTS, 1, NULL), &one_row);
    ck_reads_nothing(two_threads(model), &(mmi_pass){ .N = 64, .mode = MM_EVAL });
    ck_reads_nothing(two_threads(model), &(mmi_pass){ .N = 1, .mode = MM_TRAIN });
    ck_reads_nothing(two_threads(little), &one_row);
    /* Threads meet in most passes, but not where one of them is held up: each loop ends with the first, or never. */
    while (context->sharing.met == 0)
        mmi_share_weights(context, &(mmi_pass){ .N = 63, .mode = MM_EVAL });
    const int64_t met = context->sharing.met;
    ck_assert_int_gt(context->sharing.all, context->sharing.bytes);
    context->sharing.all = 1 << 27;
    while (context->sharing.met == met)
        mmi_share_weights(context, &one_row);
    context->sharing.all++;
    context->sharing.met = 0;
    ck_reads_nothing(context, &one_row);
    mm_model_free(little);
    mm_model_free(model);
}
END_TEST

/* A pass does it by itself, in every form that weights have. */
START_TEST(passes_of_few_rows_do_it)
{
    static const int32_t dtypes[] = { MM_F32, MM_BF16, MM_Q8_0 };
    mm_model *wide = model_of(plain, 1), *model = wide;
    if (dtypes[_i] == MM_BF16)
        ck_ok(mm_model_cast(wide, MM_BF16, &model));
    else if (dtypes[_i] != MM_F32)
        ck_ok(mm_model_quantize(wide, dtypes[_i], &model));
    mm_context *context = two_threads(model);
    int32_t ids[64] = { 1, 2, 3 };
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    batch.ids = ids;
    batch.batch = 1;
    batch.length = 64;
    ck_ok(mm_forward(context, &batch, &out));
    ck_assert_int_eq(context->sharing.met, 0);
    batch.length = 3;
    *mmi_trial_of(context->trials, 3) = (mmi_trial){ .rows = 3, .left = INT32_MAX }; /* none of them alone */
    for (int pass = 1; pass <= 40; pass++) {
        const mmi_sharing before = context->sharing;
        ck_ok(mm_forward(context, &batch, &out));
        ck_assert_int_eq(context->sharing.passes, pass); /* however slow the machine is */
        ck_assert(context->sharing.tensor != before.tensor || context->sharing.at != before.at);
    }
    while (context->sharing.met == 0)
        ck_ok(mm_forward(context, &batch, &out));
    mm_context_free(context);
    if (model != wide)
        mm_model_free(model);
    mm_model_free(wide);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("run/share", &tests);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, each_pass_reads_its_share, 0, 2);
    tcase_add_test(tests, begins_anew_when_caches_may_hold_something_else);
    tcase_add_test(tests, pauses_are_those_between_passes);
    tcase_add_test(tests, nothing_is_read_where_that_can_not_help);
    tcase_add_loop_test(tests, passes_of_few_rows_do_it, 0, 3);
    return run_suite(suite);
}
