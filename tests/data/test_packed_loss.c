/* The loss of a packed row is that of its documents alone: the token-weighted mean. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "texts.h"

/* float32 sums of about a hundred terms each, in another order */
#define LOSS_TOLERANCE 2e-6

static mm_tokenizer *tokenizer;
static mm_model *model;
static mm_context *context;

static void make(const char *preset)
{
    mm_config *config = NULL;
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    ck_ok(mm_config_create(preset, &config));
    ck_ok(mm_config_set_int(config, "hidden_size", 32));
    ck_ok(mm_config_set_int(config, "num_hidden_layers", 2));
    ck_ok(mm_config_set_int(config, "num_attention_heads", 4));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 2));
    ck_ok(mm_config_set_int(config, "vocab_size", 260));
    ck_ok(mm_config_set_int(config, "max_position_embeddings", 256));
    ck_ok(mm_model_create(config, 3, &model));
    o.max_batch = 4;
    o.max_length = 200;
    o.outputs = MM_OUT_LOSS;
    o.threads = 1;
    ck_ok(mm_context_create(model, &o, &context));
    mm_config_free(config);
}

static void start(void)
{
    tokenizer = byte_tokenizer();
}

static void end(void)
{
    mm_context_free(context);
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
    context = NULL;
    model = NULL;
}

/* Each run of equal document_ids by itself, as a row that begins with it. */
static void add_documents(double *sum, int64_t *count, const int32_t *ids, const int32_t *targets,
                          const int32_t *documents, int32_t length)
{
    for (int32_t start_at = 0, stop; start_at < length; start_at = stop) {
        for (stop = start_at; stop < length && documents[stop] == documents[start_at]; stop++) { }
        mm_batch b = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        b.ids = ids + start_at;
        b.targets = targets + start_at;
        b.batch = 1;
        b.length = stop - start_at;
        b.mode = MM_EVAL;
        ck_ok(mm_forward(context, &b, &out));
        *sum += out.loss * (double)out.loss_count;
        *count += out.loss_count;
    }
}

static void check_packing(const char *preset, int32_t kind, const char *path)
{
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_loader_options o = MM_LOADER_OPTIONS_INIT;
    int batches = 0;
    make(preset);
    o.kind = kind;
    o.form = MM_ROWS_PACK;
    o.batch = 3;
    o.max_length = 180;
    o.template_name = "minillm";
    ck_ok(mm_dataset_open(path, &dataset));
    ck_ok(mm_loader_create(dataset, tokenizer, &o, &loader));
    for (;; batches++) {
        mm_batch b = MM_BATCH_INIT;
        mm_output out = MM_OUTPUT_INIT;
        double sum = 0;
        int64_t count = 0;
        ck_ok(mm_loader_next(loader, &b));
        if (b.batch == 0)
            break;
        b.mode = MM_EVAL;
        ck_ok(mm_forward(context, &b, &out));
        double packed = out.loss;
        int64_t packed_count = out.loss_count;
        for (int32_t row = 0; row < b.batch; row++) {
            size_t at = (size_t)row * (size_t)b.length;
            add_documents(&sum, &count, b.ids + at, b.targets + at, b.document_ids + at, b.length);
        }
        ck_assert_int_eq(count, packed_count);
        ck_assert_int_gt(count, 0);
        ck_assert_double_eq_tol(packed, sum / (double)count, LOSS_TOLERANCE * packed);
    }
    ck_assert_int_gt(batches, 1);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
}

static const char *put_talks(void)
{
    static char bytes[1 << 14];
    size_t size = 0;
    for (int i = 0; i < 25; i++)
        size += (size_t)sprintf(bytes + size,
                                "{\"conversations\": [{\"role\": \"user\", \"content\": \"%.*s?\"}, {\"role\": \"assistant\", "
                                "\"content\": \"%.*s %d\"}]}\n",
                                i % 11, "what is it like", i % 7 + 3, "it is fine", i);
    return put_file(scratch_directory(), "talks.jsonl", bytes, size);
}

START_TEST(a_packed_row_of_texts_has_the_loss_of_its_documents_alone)
{
    check_packing(_i == 0 ? "minimind2-small" : "minimind-3", MM_ROW_TEXT,
                  put_rows(scratch_directory(), "rows.jsonl", 60, 14, 8));
}
END_TEST

START_TEST(a_packed_row_of_conversations_has_the_loss_of_its_documents_alone)
{
    check_packing(_i == 0 ? "minimind2-small" : "minimind-3", MM_ROW_CHAT, put_talks());
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("data/packed_loss");
    TCase *tc = tcase_create("packed_loss");
    tcase_add_checked_fixture(tc, start, end);
    tcase_add_loop_test(tc, a_packed_row_of_texts_has_the_loss_of_its_documents_alone, 0, 2);
    tcase_add_loop_test(tc, a_packed_row_of_conversations_has_the_loss_of_its_documents_alone, 0, 2);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
