/* A report beside training, which the training programs share: a page with curves and samples, to be looked at while
 * the run goes on. A run is worth more than its report: whatever goes wrong with that one, the run goes on. */
#ifndef EXAMPLES_WATCH_H
#define EXAMPLES_WATCH_H

#include <minimind.h>

/* `title` is read when the report begins, the rest until it is closed. */
typedef struct watch_plan {
    const char *program, *title;
    const char *directory;      /* of the report, copied; NULL: none */
    int64_t begun;              /* the step that the run began with: 0, or its checkpoint's */
    const char *const *prompts; /* [count] that the model goes on with, ten times in a run */
    int32_t count, chat;        /* chat: prompts are questions */
    int32_t bos_id;             /* that the rows begin with, put before texts; -1: none */
    int32_t max_length, threads;
    mm_adapter *adapter;         /* that the model runs with; NULL: none */
    const char *regression;      /* rows of mm_evaluate_prompts(); NULL: none */
    int64_t regression_interval; /* steps between them; 0: ten times in a run */
    const char *kernels, *template_name;
} watch_plan;

/* What would end a report before it has begun ends the program instead, before hours of work: rows that can't be read, a
 * directory that can't be written to. NULL: none. */
void watch_check(const char *directory, const char *regression);

/* Begin with the first step, or go on after a trainer's resume. `model` and `tokenizer` are the trainer's. */
void watch_open(const mm_trainer *trainer, mm_model *model, const mm_tokenizer *tokenizer, const watch_plan *plan);

/* What stands at the top of the page. */
void watch_fact(const char *name, const char *text);

/* A step: from on_step, which must hear of every one. */
void watch_step(const mm_train_progress *progress);

/* The last samples and regression; says where the page is. */
void watch_close(const mm_trainer *trainer);

#endif
