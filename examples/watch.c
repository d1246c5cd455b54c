#define _POSIX_C_SOURCE 200809L

#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options.h"

#define SECONDS_BETWEEN_PAGES 10

static watch_plan plan;
static char directory[4096]; /* plan.directory, which the caller may take back */
static mm_report *report;
static mm_context *writer; /* goes on with the prompts */
static const mm_tokenizer *words;
static time_t drawn;
static mm_dataset *questions; /* plan.regression */
static int64_t asked = -1;    /* the last step when they were put */
static int64_t sampled = -1;  /* and when samples were written */

#define TOGETHER 8 /* of them at once */

static int told(mm_status status)
{
    if (status == MM_OK)
        return 1;
    fprintf(stderr, "%s: the report ends here: %s\n", plan.program, mm_last_error());
    mm_report_free(report);
    report = NULL;
    return 0;
}

/* Paths are what their bytes are, but a report's words are UTF-8: of others, whatever ASCII can't say is a "?". */
static const char *in_ascii(const char *text)
{
    static char plain[4400];
    snprintf(plain, sizeof plain, "%s", text);
    for (char *c = plain; *c; c++)
        if ((unsigned char)*c > 0x7E)
            *c = '?';
    return plain;
}

void watch_check(const char *where, const char *regression)
{
    mm_dataset *rows = NULL;
    if (regression && where && !where[0])
        fail("--report \"\" is no report, which is where --regression is told: ", regression);
    if (regression)
        check(mm_dataset_open(regression, &rows));
    mm_dataset_free(rows);
    if (where && where[0])
        must_take_files("--report ", where);
}

void watch_open(const mm_trainer *trainer, mm_model *model, const mm_tokenizer *tokenizer, const watch_plan *wanted)
{
    mm_report_options r = MM_REPORT_OPTIONS_INIT;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    mm_param_count count = MM_PARAM_COUNT_INIT;
    char text[64];
    plan = *wanted;
    snprintf(directory, sizeof directory, "%s", plan.directory ? plan.directory : "");
    words = tokenizer;
    if (!directory[0] || !told(mm_trainer_progress(trainer, &p)))
        return;
    r.title = plan.title;
    r.resume_step =
        plan.begun > 0 ? plan.begun : -1; /* what an interrupted run told beyond its checkpoint is dropped */
    r.total_steps = p.total_steps;
    mm_status status = mm_report_create(directory, &r, &report);
    if (status == MM_ERR_ARG) {
        r.title = in_ascii(plan.title);
        status = mm_report_create(directory, &r, &report);
    }
    if (!told(status) || !told(mm_count_params(mm_model_config(model), &count)))
        return;
    snprintf(text, sizeof text, "%.3fM", (double)count.total / 1e6);
    watch_fact("Parameters", text);
    if (plan.regression && !told(mm_dataset_open(plan.regression, &questions)))
        return;
    if (plan.count == 0 && !questions)
        return;
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.max_batch = questions && plan.count < TOGETHER ? TOGETHER : plan.count;
    c.adapter = plan.adapter;
    c.max_length = plan.max_length;
    c.threads = plan.threads;
    c.kernels = plan.kernels;
    told(mm_context_create(model, &c, &writer));
}

void watch_fact(const char *name, const char *text)
{
    if (!report)
        return;
    mm_status status = mm_report_fact(report, name, text);
    told(status == MM_ERR_ARG ? mm_report_fact(report, name, in_ascii(text)) : status);
}

/* Half of a short row is for the prompt, of which the end is kept. */
static int32_t at_most_half(int32_t tokens)
{
    int32_t half = plan.max_length > 1 ? plan.max_length / 2 : 1;
    return tokens < half ? tokens : half;
}

static void write_samples(int64_t step)
{
    mm_samples_options s = MM_SAMPLES_OPTIONS_INIT;
    mm_sampling sampling = MM_SAMPLING_INIT; /* the same seed each time, so that only the model differs */
    sampling.temperature = 0.7f;
    s.sampling = &sampling;
    s.prompts = plan.prompts;
    s.count = plan.count;
    s.chat = plan.chat;
    s.template_name = plan.template_name;
    s.bos_id = plan.bos_id;
    s.max_new_tokens = at_most_half(s.max_new_tokens);
    if (writer && plan.count > 0 && sampled != step && told(mm_report_samples(report, step, writer, words, &s)))
        sampled = step;
}

/* How many prompts are answered as they must be: a line of the log, and a curve with the answers in the report. */
static void ask_again(int64_t step)
{
    mm_prompts_options q = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result r = MM_PROMPTS_RESULT_INIT;
    q.template_name = plan.template_name;
    q.report = report;
    q.step = step;
    q.bos_id = plan.bos_id;
    q.max_new_tokens = at_most_half(q.max_new_tokens);
    if (!report || !questions || asked == step)
        return;
    mm_status status = mm_evaluate_prompts(writer, words, questions, &q, &r);
    if (status == MM_ERR_FORMAT) { /* a prompt that can't be put: all else goes on */
        fprintf(stderr, "%s: nothing of --regression any more: %s\n", plan.program, mm_last_error());
        mm_dataset_free(questions);
        questions = NULL;
    }
    if (!questions || !told(status))
        return;
    asked = step;
    printf("regression after step %lld: %lld of %lld prompts passed\n", (long long)step, (long long)r.passed,
           (long long)r.rows);
    if (r.cut > 0)
        printf("prompts that a row has no room for beside their answers, asked without their beginning: %lld\n",
               (long long)r.cut);
}

void watch_step(const mm_train_progress *p)
{
    int64_t tenth = p->total_steps / 10 > 0 ? p->total_steps / 10 : 1;
    if (!report || !told(mm_report_progress(report, p)))
        return;
    if (p->step % tenth == 0)
        write_samples(p->step);
    if (p->step % (plan.regression_interval > 0 ? plan.regression_interval : tenth) == 0)
        ask_again(p->step);
    time_t now = time(NULL);
    int due = now - drawn >= SECONDS_BETWEEN_PAGES || now < drawn; /* a clock may be set back, even by years */
    if (report && due && told(mm_report_flush(report)))
        drawn = now;
}

void watch_close(const mm_trainer *trainer)
{
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    if (report && told(mm_trainer_progress(trainer, &p))) {
        write_samples(p.step);
        ask_again(p.step);
    }
    if (report && told(mm_report_flush(report)))
        printf("the report is in %s/report.html\n", directory);
    mm_report_free(report);
    mm_context_free(writer);
    mm_dataset_free(questions);
    report = NULL;
    writer = NULL;
    questions = NULL;
}
