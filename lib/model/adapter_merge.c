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

/* To odd: towards 0, with the last bit set where anything was lost, so that rounding once more, to fewer bits, comes out
 * as if it had been done at once. */
static float round_to_odd(double x)
{
    float y = (float)x;
    uint32_t bits;
    if ((double)y == x || isnan(x))
        return y;
    if (fabs((double)y) > fabs(x))
        y = nextafterf(y, 0);
    memcpy(&bits, &y, sizeof bits);
    bits |= 1;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* W += Σ weights[i] · alpha/rank · B A, row by row, in the dtype that W has. */
static void merge_tensor(mm_model *model, int64_t base, mm_adapter *const *adapters, const float *weights,
                         int32_t count, row *r)
{
    mmi_tensor t;
    mmi_layout_tensor(&model->layout, base, &t);
    const int32_t dtype = model->dtypes[base];
    const int64_t in = t.shape[1];
    const size_t bytes = mmi_dtype_bytes(dtype, in);
    unsigned char *w = mmi_model_room(model, base);
    for (int64_t o = 0; o < t.shape[0]; o++, w += bytes) {
        mmi_convert(r->single, MM_F32, w, dtype, in);
        for (int64_t j = 0; j < in; j++)
            r->sum[j] = r->single[j];
        for (int32_t i = 0; i < count; i++) {
            const int64_t pair = mmi_adapter_pair(adapters[i], base), rank = adapters[i]->options.rank;
            const double weight = weights ? weights[i] : 1;
            if (pair >= 0)
                add_product(r, mmi_adapter_room(adapters[i], 2 * pair),
                            mmi_adapter_room(adapters[i], 2 * pair + 1) + o * rank, rank, in,
                            weight * adapters[i]->options.alpha / (double)rank);
        }
        for (int64_t j = 0; j < in; j++)
            r->single[j] = dtype == MM_F32 ? (float)r->sum[j] : round_to_odd(r->sum[j]);
        mmi_convert(w, dtype, r->single, MM_F32, in);
    }
}

static bool is_adapted(mm_adapter *const *adapters, int32_t count, int64_t base)
{
    bool found = false;
    for (int32_t i = 0; i < count; i++)
        found |= mmi_adapter_pair(adapters[i], base) >= 0;
    return found;
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
    for (int64_t base = 0; status == MM_OK && base < merged->layout.count; base++)
        if (is_adapted(adapters, count, base))
            merge_tensor(merged, base, adapters, weights, count, &r);
    mmi_free(r.sum);
    mmi_free(r.single);
    if (status == MM_OK)
        *out = merged;
    return status;
}
