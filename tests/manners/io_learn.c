/* What stands round training: adapters, a teacher's file, preferences, evaluations, a value head, reports. */
#include "io_deeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../data/texts.h"
#include "../train/tiny.h"
#include "base/files.h"
#include "base/memory.h"

static tiny_options preferences, cached; /* runs whose files are there */
static char questions[640];

void io_learn_prepare(void)
{
    static const char lines[] = "{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0}\n"
                                "{\"prompt\": \"d\", \"choices\": [\"e\", \"f\"], \"answer\": 1}\n";
    preferences = tiny_options_of(TINY_DPO, io_rows_directory);
    cached = tiny_options_of(TINY_CACHED, io_rows_directory);
    snprintf(questions, sizeof questions, "%s",
             put_file(io_rows_directory, "questions.jsonl", lines, sizeof lines - 1));
}

static const char *place(const char *name)
{
    static char path[640];
    snprintf(path, sizeof path, "%s/%s", io_directory, name);
    return path;
}

static void digest_file(uint64_t *out, const char *name)
{
    char *data = NULL;
    size_t size = 0;
    ck_ok(mmi_read_file(place(name), &data, &size));
    io_digest(out, data, size);
    mmi_free(data);
}

/* --- Adapters --- */

static mm_adapter *adapter_of(uint64_t seed)
{
    mm_adapter *adapter = NULL;
    mm_adapter_options options = MM_ADAPTER_OPTIONS_INIT;
    options.seed = seed;
    ck_ok(mm_adapter_create(io_model, &options, &adapter));
    return adapter;
}

static void digest_adapter(uint64_t *out, const mm_adapter *adapter)
{
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        mm_view view;
        ck_ok(mm_adapter_tensor(adapter, i, &view));
        io_digest(out, view.data, (size_t)(view.shape[0] * view.shape[1]) * sizeof(float));
    }
}

static void put_adapter(void)
{
    mm_adapter *adapter = adapter_of(1);
    ck_ok(mm_adapter_save(adapter, io_directory));
    mm_adapter_free(adapter);
}

static mm_status loading_an_adapter(uint64_t *out)
{
    mm_adapter *adapter = NULL;
    mm_status status = mm_adapter_load(io_model, io_directory, &adapter);
    if (status == MM_OK)
        digest_adapter(out, adapter);
    mm_adapter_free(adapter);
    return status;
}

static mm_status saving_an_adapter(uint64_t *out)
{
    (void)out;
    mm_adapter *adapter = adapter_of(2);
    mm_status status = mm_adapter_save(adapter, io_directory);
    mm_adapter_free(adapter);
    return status;
}

/* Either adapter, whole. */
static void adapter_stands(mm_status status)
{
    uint64_t here = 0, old = 0, new = 0;
    mm_adapter *one = adapter_of(1), *two = adapter_of(2);
    ck_ok(loading_an_adapter(&here));
    digest_adapter(&old, one);
    digest_adapter(&new, two);
    ck_assert(here == new || (here == old && status != MM_OK));
    mm_adapter_free(two);
    mm_adapter_free(one);
}

/* --- Stages of training --- */

/* One step, without checkpoints. */
static mm_status train(uint64_t *out, const tiny_options *options)
{
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_trainer *trainer = NULL;
    mm_model *model = tiny_model(1);
    mm_trainer_options o = options->trainer;
    mm_loader_options l = options->loader;
    l.workers = 0;
    o.max_steps = o.accumulation_steps = 1;
    mm_status status = mm_dataset_open(options->path, &dataset);
    if (status == MM_OK)
        status = mm_loader_create(dataset, io_tokenizer, &l, &loader);
    if (status == MM_OK)
        status = mm_trainer_create(model, loader, io_tokenizer, &o, &trainer);
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

static mm_status learning_from_preferences(uint64_t *out)
{
    return train(out, &preferences);
}

static mm_status learning_from_a_file(uint64_t *out)
{
    return train(out, &cached);
}

static mm_status write_teacher(int32_t k)
{
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_loader_options options = cached.loader;
    options.workers = 0;
    mm_status status = mm_dataset_open(cached.path, &dataset);
    if (status == MM_OK)
        status = mm_loader_create(dataset, io_tokenizer, &options, &loader);
    if (status == MM_OK)
        status = mm_distill_cache_write(io_model, loader, k, 1, place("teacher"));
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    return status;
}

static uint64_t old_teacher;

static void put_teacher(void)
{
    old_teacher = 0;
    ck_ok(write_teacher(3));
    digest_file(&old_teacher, "teacher");
}

static mm_status writing_what_a_teacher_says(uint64_t *out)
{
    mm_status status = write_teacher(2);
    (void)out;
    return status;
}

static void teacher_stands(mm_status status)
{
    uint64_t here = 0, new = 0;
    digest_file(&here, "teacher");
    ck_ok(write_teacher(2));
    digest_file(&new, "teacher");
    ck_assert(here == new || (here == old_teacher && status != MM_OK));
}

static mm_status keeping_a_value_head(uint64_t *out)
{
    mm_value_head *head = NULL;
    mm_view weight;
    mm_status status = mm_value_head_create(io_model, NULL, &head);
    if (status == MM_OK)
        status = mm_value_head_save(head, place("head"));
    if (status == MM_OK)
        status = mm_value_head_load(head, place("head"));
    if (status == MM_OK)
        status = mm_value_head_weights(head, &weight, NULL);
    if (status == MM_OK)
        io_digest(out, weight.data, (size_t)weight.shape[1] * sizeof(float));
    mm_value_head_free(head);
    return status;
}

/* --- Asking and telling --- */

static mm_status evaluating(uint64_t *out)
{
    mm_dataset *dataset = NULL;
    mm_context *context = NULL;
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    mm_choices_result result = MM_CHOICES_RESULT_INIT;
    options.max_length = 8, options.threads = 1, options.outputs = MM_OUT_LOGPROBS;
    mm_status status = mm_context_create(io_model, &options, &context);
    if (status == MM_OK)
        status = mm_dataset_open(questions, &dataset);
    if (status == MM_OK)
        status = mm_evaluate_choices(context, io_tokenizer, dataset, NULL, &result);
    io_digest(out, &result.correct, sizeof result.correct);
    mm_dataset_free(dataset);
    mm_context_free(context);
    return status;
}

/* One step more in the directory's report. */
static mm_status report_step(int64_t step)
{
    mm_report *report = NULL;
    mm_report_options options = MM_REPORT_OPTIONS_INIT;
    options.outputs = MM_REPORT_METRICS | MM_REPORT_PAGE;
    mm_status status = mm_report_create(io_directory, &options, &report);
    if (status == MM_OK)
        status = mm_report_scalar(report, step, "loss", 1.0 / (double)step);
    if (status == MM_OK)
        status = mm_report_text(report, step, "a", "b", 1);
    if (status == MM_OK)
        status = mm_report_flush(report);
    mm_report_free(report);
    return status;
}

static void put_report(void)
{
    ck_ok(mmi_remove_tree(io_directory));
    ck_ok(report_step(1));
    ck_ok(report_step(2));
}

static mm_status going_on_with_a_report(uint64_t *out)
{
    (void)out;
    return report_step(3);
}

/* What was told before is there, every line is whole, and the page is one or the other. */
static void report_stands(mm_status status)
{
    char *text = NULL;
    size_t size = 0, lines = 0;
    ck_ok(mmi_read_file(place("metrics.jsonl"), &text, &size));
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    ck_assert(size > 0 && text[size - 1] == '\n');
    ck_assert_msg(lines == 6 || (status != MM_OK && lines >= 4 && lines < 6), "%zu lines", lines);
    mmi_free(text);
    ck_ok(mmi_read_file(place("report.html"), &text, &size));
    ck_assert(size > 8 && strstr(text, "</html>"));
    mmi_free(text);
    ck_ok(report_step(4));
}

const io_deed io_learn_deeds[] = {
    { "loading an adapter", put_adapter, loading_an_adapter, NULL },
    { "saving an adapter", put_adapter, saving_an_adapter, adapter_stands },
    { "learning from preferences", NULL, learning_from_preferences, NULL },
    { "learning from a teacher's file", NULL, learning_from_a_file, NULL },
    { "writing what a teacher says", put_teacher, writing_what_a_teacher_says, teacher_stands },
    { "keeping a value head", NULL, keeping_a_value_head, NULL },
    { "evaluating", NULL, evaluating, NULL },
    { "going on with a report", put_report, going_on_with_a_report, report_stands },
};
const int io_learn_count = (int)(sizeof io_learn_deeds / sizeof *io_learn_deeds);
