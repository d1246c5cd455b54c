/* Pretraining and fine-tuning: the cross-entropy of the next token, over the targets that count. */
#include "train/health.h"
#include "train/parallel.h"
#include "train/stage.h"

static mm_status learn(mm_trainer *t, mmi_work *work, double scale, mmi_reading *reading)
{
    mm_output out = MM_OUTPUT_INIT;
    mmi_share share;
    mm_status status = mm_forward(t->context, &work->batch, &out);
    reading->loss = out.loss;
    reading->tokens = mmi_work_tokens(work);
    mmi_weights counted = { (double)out.loss_count, 0 };
    if (status == MM_OK)
        status = mmi_parallel_join(&share, t, reading, counted, work);
    if (status != MM_OK)
        return status;
    if (!mmi_health_good_loss(t, reading->loss))
        return MM_OK;
    mm_backward_options back = MM_BACKWARD_OPTIONS_INIT;
    back.loss_scale = scale * share.loss;
    back.aux_scale = scale * share.aux;
    mmi_parallel_overlap(&back, t);
    work->touched = true;
    return mm_backward(t->context, &back);
}

static mm_status measure(mm_trainer *t, mmi_work *work, double *weight, mmi_reading *reading)
{
    mm_output out = MM_OUTPUT_INIT;
    mm_status status = mm_forward(t->context, &work->batch, &out);
    reading->loss = out.loss;
    *weight = (double)out.loss_count;
    return status;
}

const mmi_stage mmi_stage_plain = {
    .name = "plain",
    .kinds = 1 << MM_ROW_TEXT | 1 << MM_ROW_CHAT,
    .outputs = MM_OUT_LOSS,
    .learn = learn,
    .measure = measure,
};
