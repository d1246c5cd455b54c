/* The optimizer from the inside. */
#ifndef MMI_TRAIN_OPTIMIZER_H
#define MMI_TRAIN_OPTIMIZER_H

#include <minimind/optim.h>

#include "model/optimizer_layout.h"
#include "train/tensors.h"

struct mmi_exec;

/* MM_ERR_ARG for numbers that AdamW can't work with. */
mm_status mmi_adamw_check(const mm_adamw_options *options);

/* The same for a step; `what` names the function. And what its clipping multiplies gradients of norm s->grad_norm by.
 */
mm_status mmi_step_check(const mm_step *s, const char *what);
double mmi_step_scale(const mm_step *s);

/* What it updates; offsets tell what of it is frozen. */
mmi_trained mmi_optimizer_trained(const mm_optimizer *optimizer);

/* An optimizer for a model from options that were checked: AdamW, or with Muon for the matrices inside layers. */
mm_status mmi_optimizer_create(mm_model *model, const mm_adamw_options *options, bool muon, const char *function,
                               mm_optimizer **out);

/* One step of Muon on a matrix. */
void mmi_muon_update(const mm_optimizer *optimizer, const struct mmi_exec *x, float *w, float *m, const float *g,
                     const mmi_tensor *tensor, double grad_scale, double lr, double decay);

/* The two moments of tensor `index`; NULL: frozen, or the second one of a matrix that is Muon's. */
float *mmi_optimizer_first(const mm_optimizer *optimizer, int64_t index);
float *mmi_optimizer_second(const mm_optimizer *optimizer, int64_t index);

/* All that its file holds. */
mm_status mmi_optimizer_tensors(mmi_tensor_list *list, mm_optimizer *optimizer);

/* The steps made so far, as the metadata "step" of a file; reading them back, and taking them over with its tensors. */
mm_status mmi_optimizer_note_steps(mmi_tensor_list *list, int64_t steps);
mm_status mmi_optimizer_read_steps(int64_t *steps, const mmi_st_file *file, const char *path);
mm_status mmi_optimizer_read_file(const char *path, const mmi_tensor_list *list, int64_t *steps);
void mmi_optimizer_set_steps(mm_optimizer *optimizer, int64_t steps);

#endif
