/* Good steps and bad ones, the scale of the loss, and how the run does on rows that it does not learn from. */
#ifndef MMI_TRAIN_HEALTH_H
#define MMI_TRAIN_HEALTH_H

#include "train/trainer.h"

/* Is a loss, or a norm of the gradients, one to learn from? Not if it isn't finite, or stands out of its window by the
 * rule of mm_trainer_options.spike_factor. */
bool mmi_health_good_loss(const mm_trainer *t, double loss);
bool mmi_health_good_norm(const mm_trainer *t, double norm);

/* Remember a good one. */
void mmi_window_add(mmi_window *window, double value);

/* A bad step, or its update, is passed over: MM_ERR_NUMERIC when it is one too many in a row. */
mm_status mmi_health_skip_loss(mm_trainer *t, int64_t step, double loss);
mm_status mmi_health_skip_norm(mm_trainer *t, int64_t step, double norm);

/* Divide the gradients by the loss scale in force. */
void mmi_health_unscale(mm_trainer *t);

/* The gradients overflowed: true if that is the scale's doing, which is then halved. */
bool mmi_health_overflowed(mm_trainer *t);

/* An update was made with gradients of this norm. */
void mmi_health_updated(mm_trainer *t, double norm);

/* Measure the validation's rows. *better: the loss is the best so far. */
mm_status mmi_health_validate(mm_trainer *t, bool *better);

#endif
