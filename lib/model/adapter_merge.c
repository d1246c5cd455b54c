/* Models that have taken adapters in. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "model/adapter.h"
#include "model/convert.h"
#include "model/handle.h"
#include "model/trained.h"

mm_status mmi_adapters_check(const char *function, const mm_model *model, mm_adapter *const *adapters,
                             const float *weights, int32_t count)
{
    const mmi_trained own = { .layout = mmi_model_layout(model) };
    if (count < 0 || count > MMI_MOST_ADAPTERS)
        return mmi_fail(MM_ERR_ARG, "%s: count is %d, must be from 0 to %d", function, (int)count, MMI_MOST_ADAPTERS);
    if (count > 0 && !adapters)
        return mmi_fail(MM_ERR_ARG, "%s: adapters is NULL", function);
    for (int32_t i = 0; i < count; i++) {
        if (!adapters[i])
            return mmi_fail(MM_ERR_ARG, "%s: adapter %d is NULL", function, (int)i);
        const mmi_trained theirs = { .layout = adapters[i]->layout };
        if (adapters[i]->model != model && !mmi_trained_alike(&own, &theirs))
            return mmi_fail(MM_ERR_ARG, "%s: adapter %d was made for a model of other shapes", function, (int)i);
        if (weights && !isfinite(weights[i]))
            return mmi_fail(MM_ERR_ARG, "%s: the weight of adapter %d is %g", function, (int)i, weights[i]);
        for (int32_t j = 0; j < i; j++)
            if (adapters[j] == adapters[i])
                return mmi_fail(MM_ERR_ARG, "%s: adapter %d is there twice, also as %d", function, (int)i, (int)j);
    }
    return MM_OK;
}

/* One row of a matrix in double precision, and as float32 on its way in and out. */
typedef struct row {
    double *sum;
    float *single;
} row;

/* row->sum [in] += scale · row o of B A. */
static void add_product(row *r, const float *a, const float *b, int64_t rank, int64_t in, double scale)
{
    for (int64_t i = 0; i < rank; i++) {
        double factor = scale * b[i];
        for (int64_t j = 0; j < in; j++)
            r->sum[j] += factor * a[i * in + j];
    }
}

/* W += scale · B A for one pair, in the dtype that W has. */
static void merge_pair(mm_model *model, const mm_adapter *adapter, int64_t pair, double weight, row *r)
{
    mmi_tensor t;
    int64_t base = adapter->bases[pair], rank = adapter->options.rank;
    mmi_layout_tensor(&model->layout, base, &t);
    int32_t dtype = model->dtypes[base];
    double scale = weight * adapter->options.alpha / adapter->options.rank;
    size_t bytes = mmi_dtype_bytes(dtype, t.shape[1]);
    const float *a = mmi_adapter_room(adapter, 2 * pair), *b = mmi_adapter_room(adapter, 2 * pair + 1);
    unsigned char *w = mmi_model_room(model, base);
    for (int64_t o = 0; o < t.shape[0]; o++, w += bytes, b += rank) {
        mmi_convert(r->single, MM_F32, w, dtype, t.shape[1]);
        for (int64_t j = 0; j < t.shape[1]; j++)
            r->sum[j] = r->single[j];
        add_product(r, a, b, rank, t.shape[1], scale);
        for (int64_t j = 0; j < t.shape[1]; j++)
            r->single[j] = (float)r->sum[j];
        mmi_convert(w, dtype, r->single, MM_F32, t.shape[1]);
    }
}

static mm_status check_dtypes(const mm_model *model)
{
    for (int64_t i = 0; i < model->layout.count; i++)
        if (mmi_block_bytes(model->dtypes[i]) > 0)
            return mmi_fail(MM_ERR_UNSUPPORTED,
                            "mm_adapter_merge: the weights are %s; merge into the model they were made "
                            "from, and quantize that",
                            mm_dtype_name(model->dtypes[i]));
    return MM_OK;
}

mm_status mm_adapter_merge(const mm_model *model, mm_adapter *const *adapters, const float *weights, int32_t count,
                           mm_model **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_merge: %s is NULL", model ? "out" : "model");
    mm_status status = mmi_adapters_check("mm_adapter_merge", model, adapters, weights, count);
    if (status == MM_OK)
        status = check_dtypes(model);
    if (status != MM_OK)
        return status;
    size_t widest = 0;
    for (int32_t i = 0; i < count; i++) {
        size_t width = (size_t)mmi_adapter_cost_of(adapters[i]).widest;
        widest = width > widest ? width : widest;
    }
    mm_model *merged = NULL;
    row r = { mmi_alloc(widest, sizeof *r.sum), mmi_alloc(widest, sizeof *r.single) };
    status = r.sum && r.single ? mm_model_copy(model, &merged) : mmi_fail_memory(widest * sizeof *r.sum, "a row");
    for (int32_t i = 0; status == MM_OK && i < count; i++)
        for (int64_t pair = 0; pair < adapters[i]->pairs; pair++)
            merge_pair(merged, adapters[i], pair, weights ? weights[i] : 1, &r);
    mmi_free(r.sum);
    mmi_free(r.single);
    if (status == MM_OK)
        *out = merged;
    return status;
}
