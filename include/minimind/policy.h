/**
 * @file policy.h
 * Learning from rewards: what MM_STAGE_POLICY of a trainer does with a loader of prompts (MM_ROW_PROMPT).
 *
 * A batch of prompts is answered by the model itself, each several times; a callback gives every answer a reward; and the model
 * learns from how the rewards differ, kept near a reference by a divergence. The answers' log-probabilities are those of the draw, at
 * temperature 1 whatever they were drawn with, and the stop id that ended an answer is learnt as well: the config's eos_token_id, or
 * <|im_end|> where it has none. Answers depend on the loader's seed, the step and their place alone, so that a resumed run draws the
 * same ones.
 *
 *     mm_policy_training policy = MM_POLICY_TRAINING_INIT;
 *     policy.reward = my_reward;
 *     mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
 *     options.stage = MM_STAGE_POLICY;
 *     options.policy = &policy;
 *     options.accumulation_steps = 1;
 *     mm_trainer_create(model, prompts, tokenizer, &options, &trainer);
 *
 * mm_train_progress then has these metrics, of the last step: "reward", its mean; "reward_deviation" within groups, the mean; "kl" from
 * the reference; "clipped", the share of tokens that were held back; "answer_length" in ids, the mean; "stopped", the share of answers that ended by
 * themselves; "value_loss" and "step_kl" as in mm_ppo_result, 0 but of PPO.
 */
#ifndef MINIMIND_POLICY_H
#define MINIMIND_POLICY_H

#include <minimind/model.h>
#include <minimind/objective.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An answer to be rewarded; all of it is lent for the call. Texts end with a NUL that is not counted. */
typedef struct mm_answer {
    size_t struct_size;       /**< sizeof(mm_answer) */
    const char *prompt;       /**< as the model read it, special tokens included */
    const char *text;         /**< what it answered, without special tokens */
    const char *reference;    /**< the row's reference answer, or NULL */
    const int32_t *ids;       /**< [count] of the answer, a stop id not included */
    size_t prompt_length;     /**< bytes, as are the next two */
    size_t text_length;       /**< bytes of text */
    size_t reference_length;  /**< bytes of reference */
    int64_t count;            /**< ids */
    int64_t row;              /**< of the data set */
    int32_t sample;           /**< which of the answers to this prompt, from 0 */
    int32_t finish;           /**< MM_FINISH_…: did it end by itself, or was it cut? */
} mm_answer;
#define MM_ANSWER_INIT { sizeof(mm_answer), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0 }

/** Set every field of `answer` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_answer_init(mm_answer *answer, size_t struct_size);

/**
 * Give an answer its reward, which is kept as float32. Called on the thread of mm_trainer_run(), one answer at a time.
 *
 * @param reward  Set; 0 before the call.
 *
 * @return 0; anything else stops the run as mm_trainer_stop() does, before the step that asked.
 */
typedef int32_t (*mm_reward_fn)(void *user, const mm_answer *answer, double *reward);

/** How a policy is trained. */
typedef struct mm_policy_training {
    size_t struct_size;     /**< sizeof(mm_policy_training) */
    mm_reward_fn reward;    /**< judges every answer */
    void *user;             /**< handed to `reward` */
    mm_model *reference;    /**< kept alive by the trainer; NULL: a copy of the policy as it is when the trainer is made, so that a
                                 run is resumed from the model it began with; where an adapter is trained no copy, but the model
                                 itself, without it. Not used where beta is 0 */
    double beta;            /**< as in mm_policy_options and mm_ppo_options */
    double epsilon;         /**< as in both, of GRPO and PPO */
    double epsilon_high;    /**< as in mm_policy_options, of CISPO; finite */
    double gamma;           /**< as in mm_gae_options, of PPO, as are the next four */
    double lambda;          /**< as in mm_gae_options */
    double value_clip;      /**< as in mm_ppo_options */
    double value_weight;    /**< as in mm_ppo_options */
    double value_rate;      /**< the value head's learning rate, as a multiple of the policy's: the head begins at 0 and has far to go */
    float temperature;      /**< as in mm_sampling, > 0: answers must differ */
    float top_p;            /**< as in mm_sampling */
    int32_t variant;        /**< MM_POLICY_… */
    int32_t group;          /**< answers to each prompt; of GRPO and CISPO at least 2, for they are compared */
    int32_t max_new_tokens; /**< of an answer; the rest is cut off. Behind a prompt of the loader's max_length it must fit into
                                 max_position_embeddings */
    int32_t updates;        /**< steps that learn from the same answers, each with an update of its own: above 1
                                 accumulation_steps must be 1 */
} mm_policy_training;
#define MM_POLICY_TRAINING_INIT { sizeof(mm_policy_training), NULL, NULL, NULL, 0.02, 0.2, 5.0, 1.0, 0.95, 0.2, 0.5, 10.0, 1.0f, \
                                  1.0f, MM_POLICY_GRPO, 8, 128, 1 }

/** Set every field of `training` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_policy_training_init(mm_policy_training *training, size_t struct_size);

#ifdef __cplusplus
}
#endif

#endif
