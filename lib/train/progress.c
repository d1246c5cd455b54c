/* A step of training as values of a report. */
#include <minimind/library.h>
#include <minimind/watch.h>

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "train/report.h"

#define VALUES_MAX 64  /* more than any stage has */
#define LAYERS_MAX 512 /* a report has room for more names than these and the others together */

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

/* A vector for each layer with routed experts, "expert_load/layer 0". */
typedef struct loads {
    char *text; /* [layers, NAME_SIZE] */
    const char **names;
    mmi_report_vectors vectors;
} loads;

#define NAME_SIZE ((int64_t)48)

/* A validation is told by the step that it followed, as "validation_loss" and "validation_accuracy"; later ones know of
 * it too. mmi_free() the names, also after a failure. */
static mm_status add_validation(values *v, char **names, const mm_train_progress *p)
{
    if (p->evaluations == 0 || p->evaluated_step != p->step)
        return MM_OK;
    int64_t count = !p->validation_metrics ? 0 : p->metric_count < VALUES_MAX ? p->metric_count : VALUES_MAX;
    size_t size = 1;
    for (int64_t i = 0; i < count; i++) {
        if (!p->validation_metrics[i].name)
            return mmi_fail(MM_ERR_ARG, "mm_report_progress: a validation's metric has no name");
        size += strlen(p->validation_metrics[i].name) + sizeof "validation_";
    }
    char *name = *names = mmi_alloc(size, 1);
    if (!name)
        return mmi_fail_memory(size, "a line of the report");
    add(v, "validation_loss", p->validation_loss);
    for (int64_t i = 0; i < count; i++) {
        add(v, name, p->validation_metrics[i].value);
        name += sprintf(name, "validation_%s", p->validation_metrics[i].name) + 1;
    }
    return MM_OK;
}

static mm_status name_loads(loads *l, const mm_train_progress *p)
{
    bool fits =
        p->expert_layers > 0 && p->expert_layers <= LAYERS_MAX && p->experts > 0 && p->experts <= MMI_VECTOR_SIZE;
    int64_t layers = p->expert_load && fits ? p->expert_layers : 0;
    if (layers == 0)
        return MM_OK;
    l->text = mmi_alloc((size_t)layers, NAME_SIZE);
    l->names = mmi_alloc((size_t)layers, sizeof *l->names);
    if (!l->text || !l->names)
        return mmi_fail_memory((size_t)(layers * NAME_SIZE), "a line of the report");
    for (int64_t i = 0; i < layers; i++) {
        snprintf(l->text + i * NAME_SIZE, NAME_SIZE, "expert_load/layer %lld", (long long)i);
        l->names[i] = l->text + i * NAME_SIZE;
    }
    l->vectors = (mmi_report_vectors){ l->names, p->expert_load, (int32_t)layers, (int32_t)p->experts };
    return MM_OK;
}

mm_status mm_report_progress(mm_report *report, const mm_train_progress *progress)
{
    if (!report || !progress)
        return mmi_fail(MM_ERR_ARG, "mm_report_progress: %s is NULL", report ? "progress" : "report");
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    mm_memory_usage memory = MM_MEMORY_USAGE_INIT;
    mm_status status = mmi_options_read(&p, sizeof p, progress, "mm_train_progress");
    if (status == MM_OK && (p.metric_count < 0 || (p.metric_count > 0 && !p.metrics)))
        status = mmi_fail(MM_ERR_ARG, "mm_report_progress: metric_count is %lld%s", (long long)p.metric_count,
                          p.metrics ? "" : ", metrics is NULL");
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
    loads l = { .text = NULL };
    char *validation = NULL;
    status = add_validation(&v, &validation, &p);
    if (status == MM_OK)
        status = name_loads(&l, &p);
    if (status == MM_OK)
        status = mmi_report_values("mm_report_progress", report, p.step, v.names, v.values, v.count, &l.vectors);
    mmi_free(l.names);
    mmi_free(l.text);
    mmi_free(validation);
    return status;
}
