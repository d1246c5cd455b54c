/* A step of training as values of a report. */
#include <minimind/library.h>
#include <minimind/watch.h>

#include "base/options.h"

#define VALUES_MAX 64 /* more than any stage has */

typedef struct values {
    const char *names[VALUES_MAX];
    double values[VALUES_MAX];
    int32_t count;
} values;

static void add(values *v, const char *name, double value)
{
    if (v->count == VALUES_MAX)
        return;
    v->names[v->count] = name;
    v->values[v->count++] = value;
}

mm_status mm_report_progress(mm_report *report, const mm_train_progress *progress)
{
    if (!report || !progress)
        return mmi_fail(MM_ERR_ARG, "mm_report_progress: %s is NULL", report ? "progress" : "report");
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    mm_memory_usage memory = MM_MEMORY_USAGE_INIT;
    mm_status status = mmi_options_read(&p, sizeof p, progress, "mm_train_progress");
    if (status == MM_OK)
        status = mm_memory_get_usage(&memory);
    if (status != MM_OK)
        return status;
    values v = { .count = 0 };
    add(&v, "loss", p.loss);
    add(&v, "learning_rate", p.learning_rate);
    if (p.updates > 0) /* before the first there is none */
        add(&v, "grad_norm", p.grad_norm);
    if (p.tokens_per_s > 0)
        add(&v, "tokens_per_s", p.tokens_per_s);
    add(&v, "memory", (double)memory.current);
    for (int64_t i = 0; i < p.metric_count; i++)
        add(&v, p.metrics[i].name, p.metrics[i].value);
    return mm_report_scalars(report, p.step, v.names, v.values, v.count);
}
