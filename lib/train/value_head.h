/* A value head from the inside: what it adds to a checkpoint. */
#ifndef MMI_TRAIN_VALUE_HEAD_H
#define MMI_TRAIN_VALUE_HEAD_H

#include <minimind/value_head.h>

#include "train/tensors.h"

/* All that its file holds: numbers, gradients, moments, and the steps as metadata. */
mm_status mmi_value_head_tensors(mmi_tensor_list *list, mm_value_head *head);

/* Its own gradients [count]. */
float *mmi_value_head_gradients(mm_value_head *head, int64_t *count);

int64_t mmi_value_head_steps(const mm_value_head *head);
void mmi_value_head_set_steps(mm_value_head *head, int64_t steps);

#endif
