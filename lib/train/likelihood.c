#include "train/likelihood.h"

#include <math.h>

#include "base/memory.h"
#include "base/target.h"
#include "run/context.h"

/* Room for one pass. */
typedef struct pass {
    int32_t *ids, *targets; /* [B, T] */
    int32_t length;         /* T of this one: the longest sequence's */
} pass;

/* Sequences side by side, padded behind their ends, where nothing before sees it. */
static void lay(pass *p, const mmi_ids *ids, const mmi_stretch *items, int32_t rows)
{
    p->length = 1;
    for (int32_t b = 0; b < rows; b++)
        p->length = items[b].count - 1 > p->length ? items[b].count - 1 : p->length;
    for (int32_t b = 0; b < rows; b++) {
        const int32_t *from = ids->data + items[b].start;
        for (int32_t t = 0; t < p->length; t++) {
            bool inside = t + 1 < items[b].count;
            p->ids[(int64_t)b * p->length + t] = inside ? from[t] : 0;
            p->targets[(int64_t)b * p->length + t] = inside && t + 1 >= items[b].from ? from[t + 1] : MMI_IGNORE;
        }
    }
}

static mm_status run(mm_context *context, const pass *p, mmi_stretch *items, int32_t rows)
{
    mm_batch batch = MM_BATCH_INIT;
    mm_output out = MM_OUTPUT_INIT;
    batch.ids = p->ids;
    batch.targets = p->targets;
    batch.batch = rows;
    batch.length = p->length;
    batch.outputs = MM_OUT_LOGPROBS;
    mm_status status = mm_forward(context, &batch, &out);
    if (status != MM_OK)
        return status;
    for (int32_t b = 0; b < rows; b++) {
        const float *logprobs = (const float *)out.logprobs.data + (int64_t)b * p->length;
        items[b].sum = 0;
        for (int32_t t = items[b].from; t < items[b].count; t++)
            items[b].sum += logprobs[t - 1];
        if (!isfinite(items[b].sum))
            return mmi_fail(MM_ERR_NUMERIC, "a log-probability is %g", items[b].sum);
    }
    return MM_OK;
}

mm_status mmi_likelihood(mm_context *context, const mmi_ids *ids, mmi_stretch *items, size_t count)
{
    const mmi_limits *limits = &context->limits;
    size_t rows = (size_t)limits->max_batch < count ? (size_t)limits->max_batch : count;
    pass p = { mmi_alloc(rows * (size_t)limits->max_length, 2 * sizeof(int32_t)), NULL, 0 };
    if (!p.ids)
        return mmi_fail_memory(rows * (size_t)limits->max_length * 8, "a batch");
    p.targets = p.ids + rows * (size_t)limits->max_length;
    mm_status status = MM_OK;
    for (size_t done = 0; done < count && status == MM_OK; done += rows) {
        int32_t now = (int32_t)(count - done < rows ? count - done : rows);
        lay(&p, ids, items + done, now);
        status = run(context, &p, items + done, now);
    }
    mmi_free(p.ids);
    return status;
}

mm_status mmi_likelihood_check_given(const char *who, const mm_context *context, const mm_tokenizer *tokenizer,
                                     const void *data, const char *name, const void *out)
{
    if (context && tokenizer && data && out)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", who,
                    !context   ? "context" :
                    !tokenizer ? "tokenizer" :
                    !data      ? name :
                                 "out");
}

mm_status mmi_likelihood_check(const char *who, const mm_context *context, int32_t output, const char *name)
{
    if (context->limits.outputs & output)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "%s: the context was not planned with %s", who, name);
}

mm_status mmi_likelihood_check_ids(const char *who, const mm_context *context, const mm_tokenizer *tokenizer,
                                   int32_t bos_id)
{
    int64_t ids = mm_tokenizer_vocab_size(tokenizer), rows = context->arch->V;
    if (ids > rows)
        return mmi_fail(MM_ERR_ARG, "%s: the tokenizer has %lld ids, the model's vocab_size is %lld", who,
                        (long long)ids, (long long)rows);
    if (bos_id < -1 || bos_id >= rows)
        return mmi_fail(MM_ERR_ARG, "%s: bos_id is %d, it must be -1 or an id below %lld", who, bos_id,
                        (long long)rows);
    return MM_OK;
}
