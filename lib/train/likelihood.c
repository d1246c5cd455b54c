#include "train/likelihood.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/target.h"
#include "run/context.h"

/* --- Ids --- */

mm_status mmi_ids_add(mmi_ids *ids, int32_t id)
{
    if (!mmi_grow(&ids->data, &ids->room, ids->count + 1, sizeof *ids->data))
        return mmi_fail_memory((ids->count + 1) * sizeof *ids->data, "ids");
    ids->data[ids->count++] = id;
    return MM_OK;
}

mm_status mmi_ids_add_text(mmi_ids *ids, const mm_tokenizer *tokenizer, const char *text, size_t length)
{
    size_t count = 0;
    if (length == 0)
        return MM_OK;
    mm_status status = mm_encode(tokenizer, text, length, MM_SPLIT_NO_SPECIAL, NULL, 0, &count);
    if (status != MM_OK)
        return status;
    if (!mmi_grow(&ids->data, &ids->room, ids->count + count, sizeof *ids->data))
        return mmi_fail_memory((ids->count + count) * sizeof *ids->data, "ids");
    status = mm_encode(tokenizer, text, length, MM_SPLIT_NO_SPECIAL, ids->data + ids->count, count, &count);
    if (status == MM_OK)
        ids->count += count;
    return status;
}

void mmi_ids_free(mmi_ids *ids)
{
    mmi_free(ids->data);
    *ids = (mmi_ids){ 0 };
}

/* --- Scores --- */

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

/* --- Bytes and rows --- */

mm_status mmi_token_sizes(int32_t **out, const mm_tokenizer *tokenizer)
{
    int32_t count = mm_tokenizer_vocab_size(tokenizer);
    int32_t *sizes = mmi_calloc((size_t)count, sizeof *sizes);
    if (!sizes)
        return mmi_fail_memory((size_t)count * sizeof *sizes, "the sizes of tokens");
    for (int32_t id = 0; id < count; id++) {
        size_t size = 0;
        if (!mm_tokenizer_is_special(tokenizer, id) && mm_decode_bytes(tokenizer, &id, 1, 0, NULL, 0, &size) == MM_OK)
            sizes[id] = (int32_t)size;
    }
    *out = sizes;
    return MM_OK;
}

int64_t mmi_ids_with_text(int32_t *out, const mm_tokenizer *tokenizer, const int32_t *ids, int64_t count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < mm_tokenizer_vocab_size(tokenizer) &&
            mm_decode_bytes(tokenizer, &ids[i], 1, 0, NULL, 0, NULL) == MM_OK)
            out[n++] = ids[i];
    return n;
}

mm_status mmi_decode_grow(char **text, size_t *room, size_t *length, const mm_tokenizer *tokenizer, const int32_t *ids,
                          size_t count)
{
    int32_t *spoken = mmi_alloc(count, sizeof *spoken);
    if (!spoken)
        return mmi_fail_memory(count * sizeof *spoken, "an answer");
    const size_t n = (size_t)mmi_ids_with_text(spoken, tokenizer, ids, (int64_t)count);
    mm_status status = mm_decode(tokenizer, spoken, n, 1, NULL, 0, length);
    if (status == MM_OK && !mmi_grow(text, room, *length + 1, 1))
        status = mmi_fail_memory(*length + 1, "an answer");
    if (status == MM_OK && *length > 0)
        status = mm_decode(tokenizer, spoken, n, 1, *text, *length, length);
    if (status == MM_OK)
        (*text)[*length] = '\0';
    mmi_free(spoken);
    return status;
}

mm_status mmi_row_strings(mmi_json **list, const mmi_json *row, const char *key)
{
    mmi_json *found = mmi_json_get(row, key);
    if (mmi_json_what(found) != MMI_JSON_ARRAY)
        return mmi_fail(MM_ERR_FORMAT, "\"%s\" is %s, it must be an array of strings", key,
                        mmi_json_kind_name(mmi_json_what(found)));
    if (mmi_json_size(found) == 0)
        return mmi_fail(MM_ERR_FORMAT, "\"%s\" is empty", key);
    for (size_t i = 0; i < mmi_json_size(found); i++) {
        size_t length = 0;
        if (!mmi_json_string(mmi_json_at(found, i), &length) || length == 0)
            return mmi_fail(MM_ERR_FORMAT, "\"%s\"[%zu] is %s, it must be a string that is not empty", key, i,
                            length == 0 && mmi_json_string(mmi_json_at(found, i), NULL) ?
                                "empty" :
                                mmi_json_kind_name(mmi_json_what(mmi_json_at(found, i))));
    }
    *list = found;
    return MM_OK;
}
