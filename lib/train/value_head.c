#include "train/value_head.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/kernels.h"
#include "base/memory.h"
#include "base/options.h"
#include "model/model.h"
#include "train/optimizer.h"

/* What it holds of each number: the number, its gradient, and AdamW's moments. */
enum { WEIGHT, GRAD, FIRST, SECOND, SETS };

struct mm_value_head {
    mm_adamw_options options;
    int64_t C;
    int64_t steps;
    float *sets[SETS]; /* [C + 1] each: the weight, then the bias */
    double *sums;      /* [C + 1] scratch */
    mmi_kernels k;     /* portable C: a few hundred numbers, the same bits on every path */
};

static int64_t numbers(const mm_value_head *head)
{
    return head->C + 1;
}

static size_t carve_head(mm_value_head *head, void *base)
{
    mmi_carve carve = { .base = base };
    mmi_carve_take(&carve, 1, sizeof *head);
    for (int s = 0; s < SETS; s++) {
        float *set = mmi_carve_take(&carve, numbers(head), sizeof *set);
        head->sets[s] = base ? set : NULL;
    }
    head->sums = mmi_carve_take(&carve, numbers(head), sizeof *head->sums);
    return carve.used;
}

mm_status mm_value_head_create(const mm_model *model, const mm_adamw_options *options, mm_value_head **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_value_head_create: %s is NULL", model ? "out" : "model");
    mm_value_head plan = { .options = MM_ADAMW_OPTIONS_INIT, .C = mmi_model_arch(model)->C };
    mm_status status = mmi_options_read(&plan.options, sizeof plan.options, options, "mm_adamw_options");
    if (status == MM_OK)
        status = mmi_adamw_check(&plan.options);
    if (status == MM_OK && (plan.options.trainable || plan.options.decay != MM_DECAY_ALL))
        status = mmi_fail(MM_ERR_ARG, "mm_value_head_create: %s is for models: all of a head is trained, and decays",
                          plan.options.trainable ? "trainable" : "decay");
    if (status != MM_OK)
        return status;
    size_t size = carve_head(&plan, NULL);
    mm_value_head *head = mmi_calloc(1, size);
    if (!head)
        return mmi_fail_memory(size, "a value head");
    *head = plan;
    carve_head(head, head);
    mmi_kernels_init_c(&head->k);
    *out = head;
    return MM_OK;
}

void mm_value_head_free(mm_value_head *head)
{
    mmi_free(head);
}

/* --- Forward and backward --- */

/* N rows of C without gaps, or the message that says what was found. */
static mm_status check_hidden(int64_t *rows, const mm_value_head *head, const mm_view *hidden, const char *what)
{
    if (!head || !hidden || !hidden->data)
        return mmi_fail(MM_ERR_ARG, "%s: %s", what,
                        !head ? "head is NULL" : "there are no hidden states: ask mm_forward() for MM_OUT_HIDDEN");
    if (hidden->dtype != MM_F32 || hidden->rank != 3 || hidden->shape[2] != head->C)
        return mmi_fail(MM_ERR_ARG, "%s: hidden is %s of rank %d and width %lld, must be f32 [B, T, %lld]", what,
                        mm_dtype_name(hidden->dtype), hidden->rank, (long long)hidden->shape[2], (long long)head->C);
    if (hidden->reserved[0] != 0 || hidden->reserved[1] != 0)
        return mmi_fail(MM_ERR_ARG, "%s: hidden's reserved words are set, both must be 0", what);
    const int64_t B = hidden->shape[0], T = hidden->shape[1], most = INT64_MAX / (int64_t)sizeof(float) / head->C;
    if (B < 1 || T < 1 || T > most / B)
        return mmi_fail(MM_ERR_ARG, "%s: hidden is [%lld, %lld, %lld], which is empty or more than can be addressed",
                        what, (long long)B, (long long)T, (long long)head->C);
    const int64_t *s = hidden->strides; /* one of an axis of length 1 is never taken */
    if ((B > 1 && s[0] != T * head->C) || (T > 1 && s[1] != head->C) || s[2] != 1)
        return mmi_fail(MM_ERR_ARG, "%s: hidden has strides %lld, %lld, %lld, it must be without gaps", what,
                        (long long)s[0], (long long)s[1], (long long)s[2]);
    *rows = B * T;
    return MM_OK;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

mm_status mm_value_head_forward(mm_value_head *head, const mm_view *hidden, float *values)
{
    int64_t N = 0;
    mm_status status = check_hidden(&N, head, hidden, "mm_value_head_forward");
    if (status == MM_OK && !values)
        status = mmi_fail(MM_ERR_ARG, "mm_value_head_forward: values is NULL");
    if (status != MM_OK)
        return status;
    const float *w = head->sets[WEIGHT], *h = hidden->data;
    for (int64_t i = 0; i < N; i++)
        values[i] = (float)(dot(w, h + i * head->C, head->C) + w[head->C]);
    return MM_OK;
}

mm_status mm_value_head_backward(mm_value_head *head, const mm_view *hidden, const float *d_values, double scale,
                                 float *d_hidden)
{
    int64_t N = 0;
    mm_status status = check_hidden(&N, head, hidden, "mm_value_head_backward");
    if (status == MM_OK && !d_values)
        status = mmi_fail(MM_ERR_ARG, "mm_value_head_backward: d_values is NULL");
    if (status == MM_OK && !isfinite(scale))
        status = mmi_fail(MM_ERR_ARG, "mm_value_head_backward: scale is %g, must be finite", scale);
    if (status != MM_OK)
        return status;
    int64_t C = head->C;
    const float *w = head->sets[WEIGHT];
    double *sums = head->sums;
    memset(sums, 0, (size_t)numbers(head) * sizeof *sums);
    for (int64_t i = 0; i < N; i++) {
        const float *h = (const float *)hidden->data + i * C;
        double d = d_values[i];
        for (int64_t c = 0; c < C; c++)
            sums[c] += d * h[c];
        sums[C] += d;
        for (int64_t c = 0; c < C && d_hidden; c++)
            d_hidden[i * C + c] = (float)(d * w[c]);
    }
    for (int64_t c = 0; c < numbers(head); c++)
        head->sets[GRAD][c] += (float)(scale * sums[c]);
    return MM_OK;
}

mm_status mm_value_head_zero_grad(mm_value_head *head)
{
    if (!head)
        return mmi_fail(MM_ERR_ARG, "mm_value_head_zero_grad: head is NULL");
    memset(head->sets[GRAD], 0, (size_t)numbers(head) * sizeof(float));
    return MM_OK;
}

mm_status mm_value_head_step(mm_value_head *head, mm_step *step)
{
    if (!head || !step)
        return mmi_fail(MM_ERR_ARG, "mm_value_head_step: %s is NULL", head ? "step" : "head");
    mm_step s = MM_STEP_INIT;
    mm_status status = mmi_options_read(&s, sizeof s, step, "mm_step");
    if (status == MM_OK)
        status = mmi_step_check(&s, "mm_value_head_step");
    if (status != MM_OK)
        return status;
    const mm_adamw_options *o = &head->options;
    s.grad_norm = sqrt(dot(head->sets[GRAD], head->sets[GRAD], numbers(head)));
    if (!isfinite(s.grad_norm))
        return mmi_fail(MM_ERR_NUMERIC, "mm_value_head_step: the norm of the gradients is %g", s.grad_norm);
    double t = (double)++head->steps;
    head->k.adamw(head->sets[WEIGHT], head->sets[FIRST], head->sets[SECOND], head->sets[GRAD], numbers(head),
                  mmi_step_scale(&s), s.learning_rate, o->beta1, o->beta2, o->eps, o->weight_decay,
                  1 - pow(o->beta1, t), 1 - pow(o->beta2, t));
    mm_value_head_zero_grad(head);
    return mmi_result_write(step, &s, sizeof s, "mm_step");
}

/* --- Looking in --- */

static mm_status view_set(mm_value_head *head, int set, mm_view *weight, mm_view *bias, const char *what)
{
    if (!head)
        return mmi_fail(MM_ERR_ARG, "%s: head is NULL", what);
    int64_t C = head->C;
    float *data = head->sets[set];
    if (weight)
        *weight = (mm_view){ .data = data, .dtype = MM_F32, .rank = 2, .shape = { 1, C, 1, 1 }, .strides = { C, 1 } };
    if (bias)
        *bias = (mm_view){ .data = data + C, .dtype = MM_F32, .rank = 1, .shape = { 1, 1, 1, 1 }, .strides = { 1 } };
    return MM_OK;
}

mm_status mm_value_head_weights(mm_value_head *head, mm_view *weight, mm_view *bias)
{
    return view_set(head, WEIGHT, weight, bias, "mm_value_head_weights");
}

mm_status mm_value_head_grads(mm_value_head *head, mm_view *weight, mm_view *bias)
{
    return view_set(head, GRAD, weight, bias, "mm_value_head_grads");
}

float *mmi_value_head_gradients(mm_value_head *head, int64_t *count)
{
    *count = numbers(head);
    return head->sets[GRAD];
}

/* --- The file --- */

mm_status mmi_value_head_tensors(mmi_tensor_list *list, mm_value_head *head)
{
    static const char *const prefixes[SETS] = { "", "grad.", "exp_avg.", "exp_avg_sq." };
    mm_status status = mmi_optimizer_note_steps(list, head->steps);
    for (int s = 0; s < SETS && status == MM_OK; s++) {
        char weight[40], bias[40];
        snprintf(weight, sizeof weight, "%svalue_head.weight", prefixes[s]);
        snprintf(bias, sizeof bias, "%svalue_head.bias", prefixes[s]);
        status = mmi_tensors_add(list, weight, 2, (const int64_t[]){ 1, head->C }, head->sets[s]);
        if (status == MM_OK)
            status = mmi_tensors_add(list, bias, 1, (const int64_t[]){ 1 }, head->sets[s] + head->C);
    }
    return status;
}

void mmi_value_head_set_steps(mm_value_head *head, int64_t steps)
{
    head->steps = steps;
}

int64_t mmi_value_head_steps(const mm_value_head *head)
{
    return head->steps;
}

mm_status mm_value_head_save(const mm_value_head *head, const char *path)
{
    if (!head || !path)
        return mmi_fail(MM_ERR_ARG, "mm_value_head_save: %s is NULL", head ? "path" : "head");
    mmi_tensor_list list = { 0 };
    mm_status status = mmi_value_head_tensors(&list, (mm_value_head *)head);
    if (status == MM_OK)
        status = mmi_tensors_write(path, &list);
    mmi_tensors_free(&list);
    return status;
}

mm_status mm_value_head_load(mm_value_head *head, const char *path)
{
    if (!head || !path)
        return mmi_fail(MM_ERR_ARG, "mm_value_head_load: %s is NULL", head ? "path" : "head");
    mmi_tensor_list list = { 0 };
    mm_status status = mmi_value_head_tensors(&list, head);
    if (status == MM_OK)
        status = mmi_optimizer_read_file(path, &list, &head->steps);
    mmi_tensors_free(&list);
    return status;
}
