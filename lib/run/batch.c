/* mm_forward(): from a batch to a pass over rows, and from the pass's buffers to views. */
#include <string.h>

#include "base/options.h"
#include "base/target.h"
#include "run/context.h"

MMI_OPTIONS_INIT(mm_batch, MM_BATCH_INIT)
MMI_OPTIONS_INIT(mm_output, MM_OUTPUT_INIT)

/* --- What a batch says, checked before anything is changed --- */

static mm_status check_ids(const int32_t *ids, int64_t N, int64_t T, int64_t V)
{
    for (int64_t i = 0; i < N; i++)
        if (ids[i] < 0 || ids[i] >= V)
            return mmi_fail(MM_ERR_ARG, "ids[%lld][%lld] is %d, must be from 0 to vocab_size - 1, %lld",
                            (long long)(i / T), (long long)(i % T), ids[i], (long long)(V - 1));
    return MM_OK;
}

static mm_status check_targets(const int32_t *targets, int64_t N, int64_t T, int64_t V)
{
    for (int64_t i = 0; i < N; i++)
        if (targets[i] != MMI_IGNORE && (targets[i] < 0 || targets[i] >= V))
            return mmi_fail(MM_ERR_ARG, "targets[%lld][%lld] is %d, must be -100 or from 0 to vocab_size - 1, %lld",
                            (long long)(i / T), (long long)(i % T), targets[i], (long long)(V - 1));
    return MM_OK;
}

static mm_status check_positions(const int32_t *positions, int64_t N, int64_t T, int64_t max_context)
{
    for (int64_t i = 0; i < N; i++)
        if (positions[i] < 0 || positions[i] >= max_context)
            return mmi_fail(MM_ERR_ARG, "position_ids[%lld][%lld] is %d, must be from 0 to max_context - 1, %lld",
                            (long long)(i / T), (long long)(i % T), positions[i], (long long)(max_context - 1));
    return MM_OK;
}

static mm_status check_cache(const mm_context *ctx, const mm_batch *b)
{
    const mm_cache *cache = b->cache;
    if (b->mode == MM_TRAIN)
        return mmi_fail(MM_ERR_STATE, "a cache can't be used in MM_TRAIN mode");
    if (b->document_ids)
        return mmi_fail(MM_ERR_ARG, "document_ids can't be used with a cache");
    if (cache->model != ctx->model)
        return mmi_fail(MM_ERR_ARG, "the cache was made for another model");
    if (mmi_cache_check_free(cache) != MM_OK)
        return MM_ERR_STATE;
    if (b->batch > cache->sequences)
        return mmi_fail(MM_ERR_ARG, "the batch has %d sequences, the cache %lld", b->batch,
                        (long long)cache->sequences);
    for (int32_t i = 0; i < b->batch; i++) {
        int64_t total = (int64_t)cache->lengths[i] + b->length;
        if (total > cache->capacity)
            return mmi_fail(MM_ERR_ARG, "sequence %d would have %lld tokens, the cache holds %lld", i, (long long)total,
                            (long long)cache->capacity);
        if (total > ctx->limits.max_context)
            return mmi_fail(MM_ERR_ARG, "sequence %d would have %lld tokens, the context was planned for %d", i,
                            (long long)total, ctx->limits.max_context);
        if (b->attention_mask && cache->lengths[i] != cache->lengths[0])
            return mmi_fail(MM_ERR_ARG,
                            "attention_mask needs cached sequences of one length; 0 has %d tokens, %d has %d",
                            cache->lengths[0], i, cache->lengths[i]);
    }
    return MM_OK;
}

static mm_status check_mask(const mm_batch *b)
{
    if (b->document_ids)
        return mmi_fail(MM_ERR_ARG, "attention_mask and document_ids can't be used together");
    int64_t columns = b->length + (b->cache ? b->cache->lengths[0] : 0);
    for (int32_t i = 0; i < b->batch; i++) {
        const int32_t *row = b->attention_mask + i * columns;
        bool any = false;
        for (int64_t t = 0; t < columns; t++) {
            if (row[t] != 0 && row[t] != 1)
                return mmi_fail(MM_ERR_ARG, "attention_mask[%d][%lld] is %d, must be 0 or 1", i, (long long)t, row[t]);
            any |= row[t] == 1;
        }
        if (!any)
            return mmi_fail(MM_ERR_ARG, "attention_mask[%d] has no 1: nothing of that row can be seen", i);
    }
    return MM_OK;
}

static mm_status check_sizes(const mm_context *ctx, const mm_batch *b)
{
    const mmi_limits *l = &ctx->limits;
    if (b->batch < 1 || b->batch > l->max_batch)
        return mmi_fail(MM_ERR_ARG, "batch is %d, the context was planned for 1 to %d", b->batch, l->max_batch);
    if (b->length < 1 || b->length > l->max_length)
        return mmi_fail(MM_ERR_ARG, "length is %d, the context was planned for 1 to %d", b->length, l->max_length);
    if (b->mode != MM_EVAL && b->mode != MM_TRAIN)
        return mmi_fail(MM_ERR_ARG, "mode is %d, must be MM_EVAL or MM_TRAIN", b->mode);
    if (b->mode == MM_TRAIN && l->mode != MM_TRAIN)
        return mmi_fail(MM_ERR_STATE, "MM_TRAIN on a context that was planned for MM_EVAL");
    if (b->mode == MM_TRAIN && ctx->adapter && !mmi_adapters_have(&ctx->adapters, ctx->adapter))
        return mmi_fail(MM_ERR_STATE, "MM_TRAIN while the adapter that this context trains is not set: see "
                                      "mm_context_set_adapters()");
    if (!b->ids)
        return mmi_fail(MM_ERR_ARG, "ids is NULL");
    if (b->outputs & ~l->outputs)
        return mmi_fail(MM_ERR_ARG, "outputs is %d, the context was planned for %d", b->outputs, l->outputs);
    if (b->targets == NULL && b->outputs & (MM_OUT_LOSS | MM_OUT_LOGPROBS))
        return mmi_fail(MM_ERR_ARG, "the loss and log-probabilities need targets");
    return MM_OK;
}

static mm_status check_batch(const mm_context *ctx, const mm_batch *b)
{
    int64_t N = (int64_t)b->batch * b->length;
    mm_status status = check_sizes(ctx, b);
    if (status == MM_OK)
        status = check_ids(b->ids, N, b->length, ctx->arch->V);
    if (status == MM_OK && b->targets)
        status = check_targets(b->targets, N, b->length, ctx->arch->V);
    if (status == MM_OK && b->cache)
        status = check_cache(ctx, b);
    if (status == MM_OK && b->position_ids)
        status = check_positions(b->position_ids, N, b->length, ctx->limits.max_context);
    if (status == MM_OK && b->attention_mask)
        status = check_mask(b);
    return status;
}

/* --- From a batch to a pass --- */

/* One segment per row, or per run of equal document ids. Returns their number. */
static int64_t cut_segments(mm_context *ctx, const mm_batch *b)
{
    int64_t n = 0, T = b->length;
    int64_t columns = T + (b->cache ? b->cache->lengths[0] : 0);
    mmi_segment *segments = ctx->plan.segments;
    const int32_t *mask = b->attention_mask;
    if (mask && !b->cache) { /* the backward pass reads it again, when the caller's may be gone */
        memcpy(ctx->plan.key_mask, mask, (size_t)(b->batch * T) * sizeof(int32_t));
        mask = ctx->plan.key_mask;
    }
    for (int64_t i = 0; i < b->batch; i++)
        for (int64_t t = 0; t < T;) {
            int64_t end = T;
            if (b->document_ids)
                for (end = t + 1; end < T && b->document_ids[i * T + end] == b->document_ids[i * T + t]; end++) {}
            segments[n++] = (mmi_segment){ .row = i * T + t,
                                           .count = end - t,
                                           .past = b->cache ? b->cache->lengths[i] : 0,
                                           .sequence = b->cache ? i : 0,
                                           .key_mask = mask ? mask + i * columns : NULL };
            t = end;
        }
    return n;
}

static void number_positions(mm_context *ctx, const mm_batch *b, const mmi_pass *pass)
{
    if (b->position_ids) {
        memcpy(ctx->plan.positions, b->position_ids, (size_t)pass->N * sizeof(int32_t));
        return;
    }
    for (int64_t s = 0; s < pass->segments; s++) {
        const mmi_segment *segment = &ctx->plan.segments[s];
        for (int64_t i = 0; i < segment->count; i++)
            ctx->plan.positions[segment->row + i] = (int32_t)(segment->past + i);
    }
}

static mmi_pass fill_pass(mm_context *ctx, const mm_batch *b)
{
    mmi_pass pass = { .N = (int64_t)b->batch * b->length,
                      .B = b->batch,
                      .T = b->length,
                      .mode = b->mode,
                      .outputs = b->outputs,
                      .has_targets = b->targets != NULL,
                      .seed = b->seed,
                      .cache = b->cache };
    memcpy(ctx->plan.ids, b->ids, (size_t)pass.N * sizeof(int32_t));
    if (b->targets)
        memcpy(ctx->plan.targets, b->targets, (size_t)pass.N * sizeof(int32_t));
    pass.segments = cut_segments(ctx, b);
    number_positions(ctx, b, &pass);
    if (b->outputs & MM_OUT_LAST_LOGITS)
        for (; pass.last < b->batch; pass.last++)
            ctx->plan.last_rows[pass.last] = (int32_t)((pass.last + 1) * b->length - 1);
    return pass;
}

/* --- What came out --- */

static mm_view view_floats(float *data, int32_t rank, int64_t a, int64_t b, int64_t c)
{
    mm_view v = { .data = data, .dtype = MM_F32, .rank = rank, .shape = { a, b, c, 1 } };
    for (int64_t i = rank, stride = 1; i-- > 0; stride *= v.shape[i])
        v.strides[i] = stride;
    for (int i = rank; i < 4; i++)
        v.shape[i] = 1;
    return v;
}

static void show(const mm_context *ctx, const mmi_pass *pass, mm_output *out)
{
    const mmi_plan *p = &ctx->plan;
    const mmi_arch *a = ctx->arch;
    if (pass->has_targets && (pass->mode == MM_TRAIN || pass->outputs & (MM_OUT_LOSS | MM_OUT_LOGPROBS))) {
        for (int64_t i = 0; i < pass->N; i++)
            if (p->targets[i] != MMI_IGNORE) {
                out->loss_sum -= p->logprobs[i];
                out->loss_count++;
            }
        out->loss = out->loss_count > 0 ? out->loss_sum / (double)out->loss_count : 0;
    }
    if (!pass->has_targets || out->loss_count > 0) /* a batch that counts nothing has no loss of any kind */
        out->aux_loss = ctx->aux_loss;
    if (pass->outputs & MM_OUT_LOGPROBS)
        out->logprobs = view_floats(p->logprobs, 2, pass->B, pass->T, 1);
    if (pass->outputs & MM_OUT_LAST_LOGITS)
        out->last_logits = view_floats(p->last_logits, 2, pass->B, a->V, 1);
    if (pass->outputs & MM_OUT_LOGITS)
        out->logits = view_floats(p->logits, 3, pass->B, pass->T, a->V);
    if (pass->outputs & MM_OUT_HIDDEN)
        out->hidden = view_floats(p->hidden, 3, pass->B, pass->T, a->C);
}

static mm_status forward(mm_context *ctx, mm_batch *b, mm_output *out)
{
    mm_status status = MM_OK;
    if (b->outputs == 0) {
        b->outputs = ctx->limits.outputs;
        if (!b->targets)
            b->outputs &= ~(MM_OUT_LOSS | MM_OUT_LOGPROBS);
    }
    if ((status = check_batch(ctx, b)) != MM_OK)
        return status;
    mmi_pass pass = fill_pass(ctx, b);
    if ((status = mmi_run_forward(ctx, &pass)) == MM_OK)
        show(ctx, &pass, out);
    return status;
}

mm_status mm_forward(mm_context *ctx, const mm_batch *batch, mm_output *out)
{
    mm_batch b = MM_BATCH_INIT;
    mm_output o = MM_OUTPUT_INIT;
    /* a result that can't be given is found out before the work, and what another pass showed is gone */
    mm_status status = mmi_result_write(out, &o, sizeof o, "mm_output");
    if (status != MM_OK)
        return status;
    if (!ctx || !batch)
        return mmi_fail(MM_ERR_ARG, "mm_forward: context or batch is NULL");
    status = mmi_options_read(&b, sizeof b, batch, "mm_batch");
    if (status == MM_OK)
        status = mmi_context_enter(ctx, "mm_forward");
    if (status != MM_OK)
        return status;
    status = forward(ctx, &b, &o);
    mmi_context_leave(ctx);
    return status == MM_OK ? mmi_result_write(out, &o, sizeof o, "mm_output") : status;
}
