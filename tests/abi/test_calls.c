/* The struct_size rule where it counts: in the calls that take options and give results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { BEYOND = 32 };

/* A copy of an options struct as a newer program has it: longer, and with `last` in a field that this library lacks. */
static void *newer(const void *options, size_t size, unsigned char last)
{
    unsigned char *grown = calloc(1, size + BEYOND);
    ck_assert_ptr_nonnull(grown);
    memcpy(grown, options, size);
    size_t struct_size = size + BEYOND;
    memcpy(grown, &struct_size, sizeof struct_size);
    grown[size + BEYOND - 1] = last;
    return grown;
}

static mm_config *config;
static mm_model *model;
static mm_context *context;

static void make_handles(void)
{
    ck_ok(mm_config_create("minimind2-small", &config));
    ck_ok(mm_config_set_int(config, "vocab_size", 40));
    ck_ok(mm_config_set_int(config, "hidden_size", 32));
    ck_ok(mm_config_set_int(config, "num_hidden_layers", 1));
    ck_ok(mm_config_set_int(config, "num_attention_heads", 2));
    ck_ok(mm_config_set_int(config, "num_key_value_heads", 1));
    ck_ok(mm_model_create(config, 1, &model));
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.mode = MM_TRAIN;
    options.max_length = 16;
    options.outputs = MM_OUT_LOSS | MM_OUT_LAST_LOGITS;
    options.threads = 1;
    ck_ok(mm_context_create(model, &options, &context));
}

static void free_handles(void)
{
    mm_context_free(context);
    mm_model_free(model);
    mm_config_free(config);
}

/* Make the call with the struct as it is grown by zeros, which must work, and by something else, which must not. */
#define GROWN(type, value, call)                                                                                       \
    do {                                                                                                               \
        type *grown = newer(&(value), sizeof(value), 0);                                                               \
        ck_ok(call);                                                                                                   \
        free(grown);                                                                                                   \
        grown = newer(&(value), sizeof(value), 1);                                                                     \
        ck_status(call, MM_ERR_UNSUPPORTED);                                                                           \
        ck_error_mentions(#type);                                                                                      \
        free(grown);                                                                                                   \
    } while (0)

/* The same for a handle's maker: what it made is freed, and on failure there is none. */
#define GROWN_MAKER(type, value, handle, call, release)                                                                \
    do {                                                                                                               \
        handle *made = NULL;                                                                                           \
        type *grown = newer(&(value), sizeof(value), 0);                                                               \
        ck_ok(call);                                                                                                   \
        ck_assert_ptr_nonnull(made);                                                                                   \
        release(made);                                                                                                 \
        made = NULL;                                                                                                   \
        free(grown);                                                                                                   \
        grown = newer(&(value), sizeof(value), 1);                                                                     \
        ck_status(call, MM_ERR_UNSUPPORTED);                                                                           \
        ck_error_mentions(#type);                                                                                      \
        ck_assert_ptr_null(made);                                                                                      \
        free(grown);                                                                                                   \
    } while (0)

static int32_t ids[4] = { 1, 2, 3, 4 }, targets[4] = { 2, 3, 4, 5 };

static mm_batch make_batch(void)
{
    mm_batch batch = MM_BATCH_INIT;
    batch.ids = ids;
    batch.targets = targets;
    batch.batch = 1;
    batch.length = 4;
    batch.mode = MM_TRAIN;
    batch.outputs = MM_OUT_LOSS;
    return batch;
}

START_TEST(makers_refuse_a_field_they_do_not_know)
{
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.threads = 1;
    GROWN_MAKER(mm_context_options, c, mm_context, mm_context_create(model, grown, &made), mm_context_free);
    mm_adamw_options a = MM_ADAMW_OPTIONS_INIT;
    GROWN_MAKER(mm_adamw_options, a, mm_optimizer, mm_adamw_create(model, grown, &made), mm_optimizer_free);
    char path[512];
    snprintf(path, sizeof path, "%s/model", scratch_directory());
    ck_ok(mm_model_save(model, path));
    mm_load_options l = MM_LOAD_OPTIONS_INIT;
    GROWN_MAKER(mm_load_options, l, mm_model, mm_model_load(path, grown, &made), mm_model_free);
}
END_TEST

static int32_t one_text(void *user, const char **text, size_t *length)
{
    int *given = user;
    *text = "to be or not to be";
    *length = strlen(*text);
    return (*given)++ == 0;
}

START_TEST(data_and_training_refuse_a_field_they_do_not_know)
{
    int given = 0;
    mm_tokenizer_train_options t = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    t.next_text = one_text;
    t.user = &given;
    t.vocab_size = 262;
    GROWN_MAKER(mm_tokenizer_train_options, t, mm_tokenizer, mm_tokenizer_train(grown, &made), mm_tokenizer_free);
    given = 0;
    mm_tokenizer *tokenizer = NULL;
    ck_ok(mm_tokenizer_train(&t, &tokenizer));

    char path[512];
    snprintf(path, sizeof path, "%s/rows.jsonl", scratch_directory());
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("{\"text\": \"to be or not to be\"}\n{\"text\": \"that is the question\"}\n", file);
    fclose(file);
    mm_dataset *dataset = NULL;
    ck_ok(mm_dataset_open(path, &dataset));
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    l.batch = 1;
    l.max_length = 8;
    GROWN_MAKER(mm_loader_options, l, mm_loader, mm_loader_create(dataset, tokenizer, grown, &made), mm_loader_free);
    mm_loader *loader = NULL;
    ck_ok(mm_loader_create(dataset, tokenizer, &l, &loader));
    mm_loader_position p = MM_LOADER_POSITION_INIT;
    ck_ok(mm_loader_tell(loader, &p));
    GROWN(mm_loader_position, p, mm_loader_seek(loader, grown));

    mm_config *larger = NULL;
    mm_model *trained = NULL;
    ck_ok(mm_config_copy(config, &larger));
    ck_ok(mm_config_set_int(larger, "vocab_size", 262));
    ck_ok(mm_model_create(larger, 1, &trained));
    mm_report_options w = MM_REPORT_OPTIONS_INIT;
    GROWN_MAKER(mm_report_options, w, mm_report, mm_report_create(scratch_directory(), grown, &made), mm_report_free);
    mm_trainer_options r = MM_TRAINER_OPTIONS_INIT;
    r.threads = 1;
    GROWN_MAKER(mm_trainer_options, r, mm_trainer, mm_trainer_create(trained, loader, tokenizer, grown, &made),
                mm_trainer_free);
    mm_model_free(trained);
    mm_config_free(larger);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
}
END_TEST

START_TEST(running_refuses_a_field_it_does_not_know)
{
    mm_output out = MM_OUTPUT_INIT;
    mm_batch batch = make_batch();
    GROWN(mm_batch, batch, mm_forward(context, grown, &out));
    mm_backward_options b = MM_BACKWARD_OPTIONS_INIT;
    ck_ok(mm_forward(context, &batch, &out));
    mm_backward_options *refused = newer(&b, sizeof b, 1);
    ck_status(mm_backward(context, refused), MM_ERR_UNSUPPORTED);
    free(refused);
    mm_backward_options *taken = newer(&b, sizeof b, 0);
    ck_ok(mm_backward(context, taken));
    free(taken);

    mm_optimizer *optimizer = NULL;
    ck_ok(mm_adamw_create(model, NULL, &optimizer));
    mm_step step = MM_STEP_INIT;
    GROWN(mm_step, step, mm_optimizer_step(optimizer, context, grown));
    mm_optimizer_free(optimizer);

    const int32_t *prompts[] = { ids }, lengths[] = { 2 };
    mm_sampling sampling = MM_SAMPLING_INIT;
    mm_generate_result result = MM_GENERATE_RESULT_INIT;
    mm_generate_options g = MM_GENERATE_OPTIONS_INIT;
    g.prompts = prompts;
    g.prompt_lengths = lengths;
    g.max_new_tokens = 3;
    GROWN(mm_generate_options, g, mm_generate(context, grown, &result));
    g.sampling = newer(&sampling, sizeof sampling, 1);
    ck_status(mm_generate(context, &g, &result), MM_ERR_UNSUPPORTED);
    ck_error_mentions("mm_sampling");
    free((void *)g.sampling);
}
END_TEST

START_TEST(estimates_refuse_a_field_they_do_not_know)
{
    mm_workload w = MM_WORKLOAD_INIT;
    mm_memory memory = MM_MEMORY_INIT;
    mm_flops flops = MM_FLOPS_INIT;
    GROWN(mm_workload, w, mm_estimate_memory(config, grown, &memory));
    GROWN(mm_workload, w, mm_estimate_flops(config, grown, &flops));
}
END_TEST

/* What keeps a struct without padding may get a meaning one day: a program that sets it wants that, and must hear that
 * it isn't there. */
#define RESERVED(type, MACRO, call)                                                                                    \
    do {                                                                                                               \
        type given = MACRO;                                                                                            \
        given.reserved = 1;                                                                                            \
        ck_status(call, MM_ERR_ARG);                                                                                   \
        ck_error_mentions("reserved");                                                                                 \
    } while (0)

START_TEST(makers_refuse_a_reserved_field_that_is_set)
{
    mm_context *made = NULL;
    mm_optimizer *optimizer = NULL;
    mm_adapter *adapter = NULL;
    mm_report *report = NULL;
    RESERVED(mm_context_options, MM_CONTEXT_OPTIONS_INIT, mm_context_create(model, &given, &made));
    RESERVED(mm_adamw_options, MM_ADAMW_OPTIONS_INIT, mm_adamw_create(model, &given, &optimizer));
    RESERVED(mm_muon_options, MM_MUON_OPTIONS_INIT, mm_muon_create(model, &given, &optimizer));
    RESERVED(mm_adapter_options, MM_ADAPTER_OPTIONS_INIT, mm_adapter_create(model, &given, &adapter));
    RESERVED(mm_report_options, MM_REPORT_OPTIONS_INIT, mm_report_create(scratch_directory(), &given, &report));
    ck_assert(!made && !optimizer && !adapter && !report);
}
END_TEST

START_TEST(estimates_and_objectives_refuse_a_reserved_field_that_is_set)
{
    mm_memory memory = MM_MEMORY_INIT;
    mm_flops flops = MM_FLOPS_INIT;
    RESERVED(mm_workload, MM_WORKLOAD_INIT, mm_estimate_memory(config, &given, &memory));
    RESERVED(mm_workload, MM_WORKLOAD_INIT, mm_estimate_flops(config, &given, &flops));
    const float logprobs[2] = { -1, -2 };
    const double numbers[2] = { -1, -2 };
    const int32_t mask[2] = { 1, 1 };
    double advantages[2], returns[2];
    mm_dpo_result d = MM_DPO_RESULT_INIT;
    mm_policy_result p = MM_POLICY_RESULT_INIT;
    RESERVED(mm_dpo_options, MM_DPO_OPTIONS_INIT, mm_dpo(&given, 1, 1, logprobs, numbers, mask, NULL, &d));
    RESERVED(mm_policy_options, MM_POLICY_OPTIONS_INIT,
             mm_policy_loss(&given, 2, 1, logprobs, logprobs, NULL, mask, numbers, NULL, &p));
    RESERVED(mm_gae_options, MM_GAE_OPTIONS_INIT, mm_gae(&given, 2, 1, numbers, logprobs, mask, advantages, returns));
}
END_TEST

START_TEST(a_view_whose_reserved_words_are_set_is_refused)
{
    float numbers[2 * 32] = { 0 }, values[2] = { 0 };
    mm_view hidden = {
        .data = numbers, .dtype = MM_F32, .rank = 3, .shape = { 1, 2, 32, 1 }, .strides = { 64, 32, 1 }
    };
    mm_value_head *head = NULL;
    ck_ok(mm_value_head_create(model, NULL, &head));
    ck_ok(mm_value_head_forward(head, &hidden, values));
    for (int i = 0; i < 2; i++) {
        hidden.reserved[i] = 1;
        ck_status(mm_value_head_forward(head, &hidden, values), MM_ERR_ARG);
        ck_error_mentions("reserved");
        ck_status(mm_value_head_backward(head, &hidden, values, 1, NULL), MM_ERR_ARG);
        hidden.reserved[i] = 0;
    }
    mm_value_head_free(head);
}
END_TEST

/* An older program's result ends early: the fields it has are filled, and nothing behind them. */
#define OLDER(type, MACRO, field, call)                                                                                \
    do {                                                                                                               \
        type whole = MACRO;                                                                                            \
        type *out = &whole;                                                                                            \
        ck_ok(call);                                                                                                   \
        struct {                                                                                                       \
            type value;                                                                                                \
            unsigned char guard[8];                                                                                    \
        } part;                                                                                                        \
        memset(&part, 0xEE, sizeof part);                                                                              \
        size_t size = offsetof(type, field);                                                                           \
        memcpy(&part, &size, sizeof size);                                                                             \
        out = &part.value;                                                                                             \
        ck_ok(call);                                                                                                   \
        ck_assert(memcmp((char *)&part + sizeof size, (char *)&whole + sizeof size, size - sizeof size) == 0);         \
        for (size_t i = size; i < sizeof part; i++)                                                                    \
            ck_assert_uint_eq(((unsigned char *)&part)[i], 0xEE);                                                      \
        size_t none = 0;                                                                                               \
        memcpy(&part, &none, sizeof none);                                                                             \
        ck_status(call, MM_ERR_ARG);                                                                                   \
        out = NULL;                                                                                                    \
        ck_status(call, MM_ERR_ARG);                                                                                   \
    } while (0)

START_TEST(results_fit_an_older_program)
{
    OLDER(mm_param_count, MM_PARAM_COUNT_INIT, layer_norms, mm_count_params(config, out));
    OLDER(mm_tensor_info, MM_TENSOR_INFO_INIT, layer, mm_layout_get(config, 3, out));
    OLDER(mm_config_key, MM_CONFIG_KEY_INIT, maximum, mm_config_key_get(0, out));
    mm_workload w = MM_WORKLOAD_INIT;
    w.threads = 1;
    OLDER(mm_memory, MM_MEMORY_INIT, total, mm_estimate_memory(config, &w, out));
    OLDER(mm_flops, MM_FLOPS_INIT, attention, mm_estimate_flops(config, &w, out));
    mm_batch batch = make_batch();
    OLDER(mm_output, MM_OUTPUT_INIT, logprobs, mm_forward(context, &batch, out));
    OLDER(mm_memory_usage, MM_MEMORY_USAGE_INIT, count, mm_memory_get_usage(out));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("abi/calls");
    TCase *c = tcase_create("calls");
    tcase_add_checked_fixture(c, make_handles, free_handles);
    tcase_add_test(c, makers_refuse_a_field_they_do_not_know);
    tcase_add_test(c, data_and_training_refuse_a_field_they_do_not_know);
    tcase_add_test(c, running_refuses_a_field_it_does_not_know);
    tcase_add_test(c, estimates_refuse_a_field_they_do_not_know);
    tcase_add_test(c, makers_refuse_a_reserved_field_that_is_set);
    tcase_add_test(c, estimates_and_objectives_refuse_a_reserved_field_that_is_set);
    tcase_add_test(c, a_view_whose_reserved_words_are_set_is_refused);
    tcase_add_test(c, results_fit_an_older_program);
    suite_add_tcase(suite, c);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
