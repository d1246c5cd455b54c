/* What of a trainer a checkpoint holds. */
#include "model/adapter.h"
#include "model/model.h"
#include "run/context.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/stage.h"
#include "train/state.h"

const char *mmi_part_name(mmi_part part, const mm_trainer *t)
{
    static const char *const names[MMI_PARTS] = { "model.safetensors", "optimizer.safetensors", "gradients.safetensors",
                                                  "stage.safetensors" };
    return part == MMI_PART_MODEL && t->options.adapter ? MMI_ADAPTER_WEIGHTS : names[part];
}

static float *get_weight(void *model, int64_t index)
{
    return mmi_model_trainable(model, index);
}

static float *get_adapter(void *adapter, int64_t index)
{
    return mmi_adapter_room(adapter, index);
}

static float *get_gradient(void *context, int64_t index)
{
    return mmi_context_grads(context, index);
}

/* What is trained. Other readers ask for the mark before they take a file for PyTorch's. */
static mm_status list_model(mmi_tensor_list *list, const mm_trainer *t)
{
    mm_adapter *adapter = t->options.adapter;
    const mmi_trained all = { .layout = mmi_model_layout(t->model), .adapter = adapter };
    mm_status status = adapter ? mmi_tensors_add_all(list, &all, MMI_ADAPTER_PREFIX, get_adapter, adapter) :
                                 mmi_tensors_add_all(list, &all, "", get_weight, t->model);
    return status == MM_OK ? mmi_tensors_note(list, "format", "pt") : status;
}

mm_status mmi_part_list(mmi_tensor_list *list, mmi_part part, const mm_trainer *t)
{
    const mmi_trained trained = mmi_context_trained(t->context);
    switch (part) {
    case MMI_PART_MODEL:
        return list_model(list, t);
    case MMI_PART_OPTIMIZER:
        return mmi_optimizer_tensors(list, t->optimizer);
    case MMI_PART_GRADIENTS:
        return mmi_tensors_add_all(list, &trained, "grad.", get_gradient, t->context);
    default:
        return t->stage->tensors ? t->stage->tensors(list, t) : MM_OK;
    }
}

mm_status mmi_checkpoint_tensors(mmi_tensor_list *list, const mm_trainer *t)
{
    mm_status status = MM_OK;
    for (int part = 0; part < MMI_PARTS && status == MM_OK; part++)
        if (part != MMI_PART_GRADIENTS)
            status = mmi_part_list(list, (mmi_part)part, t);
    return status;
}

mm_status mmi_checkpoint_gather(mmi_checkpoint *c, const mm_trainer *t)
{
    *c = (mmi_checkpoint){ .step = t->now.step };
    c->best = t->health.evaluations > 0 && t->health.best_step == t->now.step;
    c->named = c->best && t->options.keep_best;
    mm_status status = mmi_state_new(&c->state, t);
    for (int part = 0; part < MMI_PARTS && status == MM_OK; part++)
        if (part != MMI_PART_GRADIENTS || mmi_trainer_accumulated(t) > 0)
            status = mmi_part_list(&c->parts[part], (mmi_part)part, t);
    return status;
}

void mmi_checkpoint_drop(mmi_checkpoint *c)
{
    mmi_json_free(c->state);
    for (int part = 0; part < MMI_PARTS; part++)
        mmi_tensors_free(&c->parts[part]);
    *c = (mmi_checkpoint){ 0 };
}
