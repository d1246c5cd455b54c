/* What MM_STAGE_POLICY holds: its options, the reference, the value head, the answers, and room to work. */
#ifndef MMI_TRAIN_POLICY_H
#define MMI_TRAIN_POLICY_H

#include "base/json.h"
#include "train/rollout.h"
#include "train/stage.h"
#include "train/value_head.h"

typedef struct mmi_policy {
    mm_policy_training o; /* its reference is `reference` */
    mm_sampling sampling;
    mmi_frozen reference; /* none: beta is 0 */
    mm_value_head *head; /* of PPO */
    mmi_rollout rollout;
    int64_t rows, length;                         /* R, T at most */
    float *d_logprobs, *values, *d_values;        /* [R, T] */
    double *token_rewards, *advantages, *returns; /* [R, T]; of GRPO advantages are [R] */
    double *rewards;                              /* [R] */
    float *d_hidden;                              /* [R, T, C] of PPO */
    void *block;
    int64_t kept_rows; /* answers in the checkpoint that is being written or read: 0 between two sets of them */
    int64_t opened_length, opened_steps; /* of a checkpoint that is being read */
} mmi_policy;

/* Read and check the trainer's options, and take the measure of what they ask for: R and T. */
mm_status mmi_policy_plan(mmi_policy *policy, const mm_trainer *t);

/* Make all of it; mmi_policy_free() after a failure, too. */
mm_status mmi_policy_make(mmi_policy *policy, const mm_trainer *t);
void mmi_policy_free(mmi_policy *policy);

/* What decides how a run goes on. False: no memory. */
bool mmi_policy_options(mmi_json *to, const mmi_policy *policy);

/* Its state in a checkpoint, in the two halves of mmi_stage.open and take; and the tensors there. Answers are one
 * rank's: among several a checkpoint is written where there are none that will be learnt from again. */
bool mmi_policy_save(mmi_json *to, mmi_policy *policy, const mm_trainer *t);
mm_status mmi_policy_open(mmi_policy *policy, const mm_trainer *t, const mmi_json *from, int64_t step,
                          const char *directory);
mm_status mmi_policy_tensors(mmi_tensor_list *list, mmi_policy *policy);
mm_status mmi_policy_check(const mmi_policy *policy, const mm_trainer *t, const mmi_st_file *file, const char *path);
void mmi_policy_take(mmi_policy *policy);

#endif
