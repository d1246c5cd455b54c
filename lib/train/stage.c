#include "train/stage.h"

#include <string.h>

#include "backend/strips.h"
#include "data/loader.h"
#include "data/rows.h"
#include "model/model.h"
#include "model/show.h"

static const mmi_stage *const stages[] = { [MM_STAGE_PLAIN] = &mmi_stage_plain,
                                           [MM_STAGE_POLICY] = &mmi_stage_policy,
                                           [MM_STAGE_DPO] = &mmi_stage_dpo,
                                           [MM_STAGE_DISTILL] = &mmi_stage_distill };

const mmi_stage *mmi_stage_of(int32_t stage)
{
    return stage >= 0 && stage < (int32_t)(sizeof stages / sizeof *stages) ? stages[stage] : NULL;
}

int64_t mmi_stage_uses(const mm_trainer *t)
{
    return t->stage->uses ? t->stage->uses(t) : 1;
}

bool mmi_stage_in_midst_of(const mm_trainer *t, int64_t step)
{
    return step % mmi_stage_uses(t) != 0 && step < t->total_steps;
}

bool mmi_stage_in_midst(const mm_trainer *t)
{
    return mmi_stage_in_midst_of(t, t->now.step);
}

void mmi_stage_hash_row(mmi_hash *hash, const mm_batch *b, int64_t row)
{
    const int32_t *const arrays[3] = { b->ids, b->targets, b->document_ids };
    size_t start = (size_t)row * (size_t)b->length;
    size_t reach = (size_t)mmi_row_reach(b->targets + start, b->length);
    for (int i = 0; i < 3; i++)
        if (arrays[i])
            mmi_hash_add(hash, arrays[i] + start, reach * sizeof(int32_t));
}

uint64_t mmi_stage_hash_model(const mm_model *model)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mmi_weight w = mmi_model_weight(model, i);
        mmi_hash_add(&hash, w.data, mmi_matrix_bytes(w.dtype, w.rows, w.cols));
    }
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        char value[MMI_SHOWN];
        mmi_config_show(value, mm_model_config(model), i);
        mmi_hash_add(&hash, value, strlen(value) + 1);
    }
    return mmi_hash_end(&hash);
}

mm_status mmi_stage_freeze(mmi_frozen *f, const mm_trainer *t, mm_model *model, const char *role, int32_t outputs,
                           int64_t rows, int64_t length)
{
    if (model == t->model && !t->options.adapter)
        return mmi_fail(MM_ERR_ARG,
                        "trainer: the %s is the model that is trained; only beside an adapter that stays as it is",
                        role);
    mm_context_options c = MM_CONTEXT_OPTIONS_INIT;
    c.max_batch = (int32_t)rows;
    c.max_length = (int32_t)length;
    c.outputs = outputs;
    c.threads = t->options.threads;
    c.kernels = t->options.kernels;
    c.compute = t->options.compute;
    f->hash = mmi_stage_hash_model(model);
    mm_status status = mm_context_create(model, &c, &f->context);
    return status == MM_OK ? MM_OK : mmi_fail_within(status, "trainer: the %s", role); /* not the one that learns */
}

mm_status mmi_stage_reference(mmi_frozen *f, const mm_trainer *t, mm_model *given, int64_t rows, int64_t length)
{
    mm_model *copy = NULL, *model = !given && t->options.adapter ? t->model : given;
    mm_status status = model ? MM_OK : mm_model_copy(t->model, &copy);
    if (status != MM_OK)
        return status;
    model = model ? model : copy;
    int64_t here = mmi_model_arch(t->model)->V, there = mmi_model_arch(model)->V;
    if (here != there)
        status = mmi_fail(MM_ERR_ARG, "trainer: the reference's vocab_size is %lld, the model's is %lld",
                          (long long)there, (long long)here);
    else
        status = mmi_stage_freeze(f, t, model, "reference", MM_OUT_LOGPROBS, rows, length);
    mm_model_free(copy);
    return status;
}

mm_status mmi_stage_check_rows(const mmi_stage *stage, const mm_loader *loader)
{
    static const char *const names[] = { "text", "conversations", "preferences", "prompts" };
    int32_t kind = mmi_loader_options(loader)->kind;
    if (stage->kinds & 1 << kind)
        return MM_OK;
    return mmi_fail(MM_ERR_UNSUPPORTED, "the loader gives %s, which the stage %s does not learn from", names[kind],
                    stage->name);
}
