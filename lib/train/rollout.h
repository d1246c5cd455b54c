/* Rollouts: a policy's own answers to prompts, with their rewards, laid out as rows to learn from. */
#ifndef MMI_TRAIN_ROLLOUT_H
#define MMI_TRAIN_ROLLOUT_H

#include <minimind/data.h>
#include <minimind/generate.h>
#include <minimind/policy.h>

#include "train/tensors.h"

/* What a token is to learn stands where it is predicted, so the first id of an answer is the target of its prompt's
 * last.
 *
 *     ids      p p p a a a        a row is a prompt and its answer from the left, without the last id;
 *     targets  - - a a a s        s the stop id that ended it, if one did; - is -100
 *     mask     0 0 1 1 1 1 */
typedef struct mmi_rollout {
    int64_t most_rows, most_length; /* there is room for */
    int64_t rows, length;           /* R, T: in use; T is that of the longest row */
    int32_t *ids, *targets, *mask;  /* [R, T] */
    float *old_logprobs;            /* [R, T] of the policy as it answered; 0 where the mask is */
    float *ref_logprobs;            /* [R, T] of the reference, for its maker to fill in */
    float *old_values;              /* [R, T] of the value head, likewise */
    float *rewards;                 /* [R] */
    int32_t *prompt_lengths;        /* [R] */
    int32_t *answer_lengths;        /* [R] the stop id included */
    int32_t *finish;                /* [R] MM_FINISH_… */
    float *kept_ids, *kept_targets; /* [R, T] as a checkpoint has them; and the next [R] */
    float *kept_finish;
    const int32_t **prompts; /* [R] scratch, as are the next two */
    char *text;              /* prompt and answer of one row */
    size_t text_room;
    void *block;
} mmi_rollout;

/* Begins as { 0 }; free it after a failure too. */
mm_status mmi_rollout_make(mmi_rollout *rollout, int64_t most_rows, int64_t most_length);
void mmi_rollout_free(mmi_rollout *rollout);

/* Answer every prompt `group` times, each until `stop_id` is drawn: rows of one prompt follow each other. */
mm_status mmi_rollout_write(mmi_rollout *rollout, mm_context *context, const mm_prompts *prompts, int32_t group,
                            const mm_sampling *sampling, int32_t max_new_tokens, int32_t stop_id, int32_t pad_id);

/* Ask for the rewards. *stop: the callback wants no more, and they are not all there. MM_ERR_NUMERIC: one is not
 * finite; the message names the answer and where its prompt stands in the data. */
mm_status mmi_rollout_reward(mmi_rollout *rollout, const mm_tokenizer *tokenizer, mm_dataset *dataset,
                             const mm_prompts *prompts, int32_t group, mm_reward_fn reward, void *user, bool *stop);

/* Everything of it that later steps on the same answers need, for a checkpoint; whether a file's first R answers, n =
 * R T ids in all, could come from a vocabulary of V; and, after that was read back, what follows from it, with the R
 * and T that were in use. */
mm_status mmi_rollout_tensors(mmi_tensor_list *list, mmi_rollout *rollout);
mm_status mmi_rollout_check(const mmi_st_file *file, const char *path, int64_t R, int64_t n, int64_t V);
void mmi_rollout_take(mmi_rollout *rollout, int64_t rows, int64_t length);

#endif
