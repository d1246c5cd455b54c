/* The loss on a loader's rows, and on one text. */
#include <math.h>

#include <minimind/evaluate.h>

#include "base/memory.h"
#include "base/options.h"
#include "data/loader.h"
#include "run/context.h"
#include "train/likelihood.h"

MMI_OPTIONS_INIT(mm_evaluation, MM_EVALUATION_INIT)
MMI_OPTIONS_INIT(mm_evaluate_text_options, MM_EVALUATE_TEXT_OPTIONS_INIT)

/* What follows from the sums. */
static mm_status finish(mm_evaluation *e, mm_evaluation *out)
{
    if (!isfinite(e->loss_sum))
        return mmi_fail(MM_ERR_NUMERIC, "the loss is %g", e->loss_sum);
    e->loss = e->tokens > 0 ? e->loss_sum / (double)e->tokens : 0;
    e->perplexity = exp(e->loss);
    e->bits_per_byte = e->bytes > 0 ? e->loss_sum / log(2) / (double)e->bytes : 0;
    return mmi_result_write(out, e, sizeof *e, "mm_evaluation");
}

/* --- A loader --- */

static mm_status add_batch(mm_evaluation *e, mm_context *context, mm_batch *batch, const int32_t *sizes)
{
    mm_output out = MM_OUTPUT_INIT;
    batch->mode = MM_EVAL;
    batch->outputs = MM_OUT_LOSS;
    mm_status status = mm_forward(context, batch, &out);
    if (status != MM_OK)
        return status;
    e->batches++;
    e->loss_sum += out.loss_sum;
    e->tokens += out.loss_count;
    for (int64_t i = 0; i < (int64_t)batch->batch * batch->length; i++)
        if (batch->targets[i] >= 0)
            e->bytes += sizes[batch->targets[i]];
    return MM_OK;
}

static mm_status add_epoch(mm_evaluation *e, mm_context *context, mm_loader *loader, int64_t max_batches,
                           const int32_t *sizes)
{
    mm_loader_position start = MM_LOADER_POSITION_INIT;
    mm_status status = mm_loader_seek(loader, &start);
    while (status == MM_OK && (max_batches == 0 || e->batches < max_batches)) {
        mm_batch batch = MM_BATCH_INIT;
        status = mm_loader_next(loader, &batch);
        if (status != MM_OK || batch.batch == 0)
            break;
        status = add_batch(e, context, &batch, sizes);
    }
    return status;
}

mm_status mm_evaluate_loss(mm_context *context, mm_loader *loader, int64_t max_batches, mm_evaluation *out)
{
    static const char who[] = "mm_evaluate_loss";
    if (!context || !loader || !out)
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", who, !context ? "context" : !loader ? "loader" : "out");
    if (max_batches < 0)
        return mmi_fail(MM_ERR_ARG, "%s: max_batches is %lld, it must be at least 0", who, (long long)max_batches);
    mm_evaluation e = MM_EVALUATION_INIT;
    mm_loader_position stood = MM_LOADER_POSITION_INIT;
    int32_t *sizes = NULL;
    int32_t kind = mmi_loader_options(loader)->kind;
    if (kind == MM_ROW_PREFERENCE)
        return mmi_fail(MM_ERR_ARG, "%s: the loader gives preferences, whose loss says nothing", who);
    mm_status status = mmi_likelihood_check(who, context, MM_OUT_LOSS, "MM_OUT_LOSS");
    if (status == MM_OK)
        status = mmi_likelihood_check_ids(who, context, mmi_loader_tokenizer(loader), -1);
    if (status == MM_OK)
        status = mmi_token_sizes(&sizes, mmi_loader_tokenizer(loader));
    if (status == MM_OK)
        status = mm_loader_tell(loader, &stood);
    if (status == MM_OK) {
        status = add_epoch(&e, context, loader, max_batches, sizes);
        if (status == MM_OK && e.batches == 0)
            status = mmi_loader_fail_unreadable(loader);
        mmi_loader_return(loader, &stood);
    }
    mmi_free(sizes);
    return status == MM_OK ? finish(&e, out) : status;
}

/* --- A text --- */

/* Windows of T inputs each; the first one counts all its targets, the others those behind the overlap. */
static mm_status cut_windows(mmi_stretch **out, size_t *count, size_t ids, size_t T, size_t overlap)
{
    size_t step = T - overlap, n = 1;
    if (ids > T + 1)
        n += (ids - (T + 1) + step - 1) / step;
    mmi_stretch *windows = mmi_alloc(n, sizeof *windows);
    if (!windows)
        return mmi_fail_memory(n * sizeof *windows, "the windows of a text");
    for (size_t i = 0; i < n; i++) {
        size_t start = i * step, left = ids - start;
        windows[i] =
            (mmi_stretch){ start, (int32_t)(left < T + 1 ? left : T + 1), i == 0 ? 1 : (int32_t)overlap + 1, 0 };
    }
    *out = windows;
    *count = n;
    return MM_OK;
}

static mm_status check_text(const char *who, const mm_context *context, const mm_tokenizer *tokenizer,
                            const mm_evaluate_text_options *o)
{
    mm_status status = mmi_likelihood_check(who, context, MM_OUT_LOGPROBS, "MM_OUT_LOGPROBS");
    if (status == MM_OK)
        status = mmi_likelihood_check_ids(who, context, tokenizer, o->bos_id);
    if (status == MM_OK && (o->overlap < 0 || o->overlap >= context->limits.max_length))
        status = mmi_fail(MM_ERR_ARG, "%s: overlap is %d, it must be at least 0 and below the context's max_length, %d",
                          who, o->overlap, context->limits.max_length);
    return status;
}

static mm_status score_text(mm_evaluation *e, mm_context *context, const mm_tokenizer *tokenizer, const mmi_ids *ids,
                            const mm_evaluate_text_options *o)
{
    mmi_stretch *windows = NULL;
    int32_t *sizes = NULL;
    size_t count = 0, B = (size_t)context->limits.max_batch;
    mm_status status =
        cut_windows(&windows, &count, ids->count, (size_t)context->limits.max_length, (size_t)o->overlap);
    if (status == MM_OK)
        status = mmi_token_sizes(&sizes, tokenizer);
    if (status == MM_OK)
        status = mmi_likelihood(context, ids, windows, count);
    for (size_t i = 0; i < count && status == MM_OK; i++) {
        e->loss_sum -= windows[i].sum;
        e->tokens += windows[i].count - windows[i].from;
    }
    for (size_t i = 1; i < ids->count && status == MM_OK; i++)
        e->bytes += sizes[ids->data[i]];
    e->batches = (int64_t)((count + B - 1) / B);
    mmi_free(windows);
    mmi_free(sizes);
    return status;
}

mm_status mm_evaluate_text(mm_context *context, const mm_tokenizer *tokenizer, const char *text, size_t length,
                           const mm_evaluate_text_options *options, mm_evaluation *out)
{
    static const char who[] = "mm_evaluate_text";
    mm_status status = mmi_likelihood_check_given(who, context, tokenizer, text, "text", out);
    if (status != MM_OK)
        return status;
    mm_evaluate_text_options o = MM_EVALUATE_TEXT_OPTIONS_INIT;
    mm_evaluation e = MM_EVALUATION_INIT;
    mmi_ids ids = { 0 };
    status = mmi_options_read(&o, sizeof o, options, "mm_evaluate_text_options");
    if (status == MM_OK)
        status = check_text(who, context, tokenizer, &o);
    if (status == MM_OK && o.bos_id >= 0)
        status = mmi_ids_add(&ids, o.bos_id);
    if (status == MM_OK)
        status = mmi_ids_add_text(&ids, tokenizer, text, length);
    if (status == MM_OK && ids.count < 2)
        status = mmi_fail(MM_ERR_ARG, "%s: the text has %zu tokens, so there is none to foretell", who, ids.count);
    if (status == MM_OK)
        status = score_text(&e, context, tokenizer, &ids, &o);
    mmi_ids_free(&ids);
    return status == MM_OK ? finish(&e, out) : status;
}
