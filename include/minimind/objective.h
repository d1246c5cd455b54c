/**
 * @file objective.h
 * What later stages of training learn from: preferences (DPO), a teacher (distillation), rewards (GRPO, CISPO, PPO).
 *
 * Each function turns what forward passes gave into a loss and its gradient, which goes back through mm_backward() as
 * d_logprobs or d_logits. They hold nothing, allocate nothing, and compute in double precision. After an error the result is as it
 * was, but some of a gradient, or of what mm_gae() gives, may be written.
 *
 * A token's logprob is the log-softmax of the policy's logits at the target: what MM_OUT_LOGPROBS gives. A mask is 1 for a token that
 * counts and 0 for one that does not; the logprobs behind a 0 are not looked at, and their gradient is 0.
 *
 * Threads: any.
 */
#ifndef MINIMIND_OBJECTIVE_H
#define MINIMIND_OBJECTIVE_H

#include <minimind/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a sequence's logprobs become its score. */
enum {
    MM_REDUCE_SUM = 0, /**< Σ mask · logprob, as MiniMind has it */
    MM_REDUCE_MEAN = 1 /**< that divided by max(Σ mask, 1), as Mini-LLM has it */
};

/**
 * Scores of sequences, such as a frozen reference's, which need computing only once.
 *
 * @param scores    [rows], set.
 * @param logprobs  [rows, length].
 * @param mask      [rows, length], each 0 or 1.
 *
 * @return MM_OK; MM_ERR_ARG. Since: 0.1
 */
MM_API mm_status mm_sequence_scores(double *scores, const float *logprobs, const int32_t *mask, int64_t rows,
                                    int64_t length, int32_t reduction);

/** Direct preference optimisation (Rafailov et al., 2023). */
typedef struct mm_dpo_options {
    size_t struct_size;  /**< sizeof(mm_dpo_options) */
    double beta;         /**< ≥ 0 */
    int32_t reduction;   /**< MM_REDUCE_… */
    int32_t reserved;    /**< 0 */
} mm_dpo_options;
#define MM_DPO_OPTIONS_INIT { sizeof(mm_dpo_options), 0.1, MM_REDUCE_SUM, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_dpo_options_init(mm_dpo_options *options, size_t struct_size);

/** What mm_dpo() found. */
typedef struct mm_dpo_result {
    size_t struct_size; /**< sizeof(mm_dpo_result) */
    double loss;        /**< mean over the batch */
    double accuracy;    /**< share of pairs whose margin is above 0, which that of two equal answers is not */
    double margin;      /**< mean of beta · ((policy chosen - rejected) - (reference chosen - rejected)) */
} mm_dpo_result;
#define MM_DPO_RESULT_INIT { sizeof(mm_dpo_result), 0, 0, 0 }

/** Set every field of `result` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_dpo_result_init(mm_dpo_result *result, size_t struct_size);

/**
 * loss = mean over pairs i of -log σ(β · ((π_i - π_{N+i}) - (ref_i - ref_{N+i}))), π and ref being sequence scores.
 *
 * @param options     NULL for the defaults.
 * @param pairs       N. Rows 0 … N - 1 are the chosen answers, N … 2N - 1 the rejected ones, in the same order.
 * @param logprobs    [2N, length] of the policy.
 * @param ref_scores  [2N] of the reference, by mm_sequence_scores() with the same mask and reduction.
 * @param mask        [2N, length].
 * @param d_logprobs  [2N, length], set to the loss's gradient; NULL: not wanted.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_NUMERIC, the loss is not finite. Since: 0.1
 */
MM_API mm_status mm_dpo(const mm_dpo_options *options, int64_t pairs, int64_t length, const float *logprobs,
                        const double *ref_scores, const int32_t *mask, float *d_logprobs, mm_dpo_result *out);

/** Knowledge distillation (Hinton et al., 2015). */
typedef struct mm_distill_options {
    size_t struct_size; /**< sizeof(mm_distill_options) */
    double alpha;       /**< share of the cross-entropy, in [0, 1] */
    double temperature; /**< τ > 0 */
} mm_distill_options;
#define MM_DISTILL_OPTIONS_INIT { sizeof(mm_distill_options), 0.5, 1.0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_distill_options_init(mm_distill_options *options, size_t struct_size);

/** What mm_distill() found. */
typedef struct mm_distill_result {
    size_t struct_size;    /**< sizeof(mm_distill_result) */
    double total;          /**< alpha · cross_entropy + (1 - alpha) · kl */
    double cross_entropy;  /**< mean over the counted targets, at temperature 1 */
    double kl;             /**< τ² · mean of KL(teacher ‖ student) at temperature τ */
    int64_t count;         /**< counted targets */
} mm_distill_result;
#define MM_DISTILL_RESULT_INIT { sizeof(mm_distill_result), 0, 0, 0, 0 }

/** Set every field of `result` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_distill_result_init(mm_distill_result *result, size_t struct_size);

/**
 * Cross-entropy and divergence from a teacher, over the rows that have a target.
 *
 * @param options        NULL for the defaults.
 * @param rows           Tokens.
 * @param vocab          V of the student.
 * @param teacher_vocab  V' ≥ V: the teacher's surplus columns are dropped before its softmax.
 * @param student        [rows, V] logits.
 * @param teacher        [rows, V'] logits.
 * @param targets        [rows], -100 is not counted.
 * @param d_student      [rows, V], set to total's gradient; NULL: not wanted.
 *
 * @return MM_OK (all 0 without a counted target); MM_ERR_ARG; MM_ERR_NUMERIC, the loss is not finite. Since: 0.1
 */
MM_API mm_status mm_distill(const mm_distill_options *options, int64_t rows, int64_t vocab, int64_t teacher_vocab,
                            const float *student, const float *teacher, const int32_t *targets, float *d_student,
                            mm_distill_result *out);

/**
 * Advantages within groups of answers to one prompt: (r - mean) / (standard deviation + 1e-4), of the population.
 *
 * @param advantages  [rows], set.
 * @param rewards     [rows]; consecutive runs of `group` rows belong together.
 *
 * @return MM_OK; MM_ERR_ARG, rows is no multiple of group; MM_ERR_NUMERIC, a reward is not finite (the message says which),
 *         or their variance is not. Since: 0.1
 */
MM_API mm_status mm_group_advantages(double *advantages, const double *rewards, int64_t rows, int64_t group);

enum {
    MM_POLICY_GRPO = 0, /**< min(ρA, clamp(ρ, 1 - ε, 1 + ε)A) (Shao et al., 2024) */
    MM_POLICY_CISPO = 1, /**< stop-gradient of min(ρ, ε_high), times A · logprob (MiniMax, 2025) */
    MM_POLICY_PPO = 2    /**< a trainer's alone (policy.h): advantages come from a value head, the loss is mm_ppo_loss() */
};

/** Learning from rewards by policy gradients. */
typedef struct mm_policy_options {
    size_t struct_size;  /**< sizeof(mm_policy_options) */
    double beta;         /**< weight of the divergence from the reference, ≥ 0 */
    double epsilon;      /**< of GRPO's clamp, in [0, 1) */
    double epsilon_high; /**< of CISPO's bound, > 0 */
    int32_t variant;     /**< MM_POLICY_GRPO or MM_POLICY_CISPO */
    int32_t reserved;    /**< 0 */
} mm_policy_options;
#define MM_POLICY_OPTIONS_INIT { sizeof(mm_policy_options), 0.02, 0.2, 5.0, MM_POLICY_GRPO, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_policy_options_init(mm_policy_options *options, size_t struct_size);

/** What mm_policy_loss() found. */
typedef struct mm_policy_result {
    size_t struct_size;   /**< sizeof(mm_policy_result) */
    double loss;          /**< mean over the batch */
    double mean_kl;       /**< Σ mask · kl / max(Σ mask, 1) over the whole batch */
    double clipped;       /**< share of counted tokens whose ratio was held back */
} mm_policy_result;
#define MM_POLICY_RESULT_INIT { sizeof(mm_policy_result), 0, 0, 0 }

/** Set every field of `result` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_policy_result_init(mm_policy_result *result, size_t struct_size);

/**
 * The loss of a batch of answers: the mean over rows of Σ mask · token / max(Σ mask, 1), where a token's loss is -(gain - β · kl), with
 * ρ = exp(π - old), δ = ref - π, kl = exp(δ) - δ - 1. A row without tokens still counts in the outer mean.
 *
 * @param options       NULL for the defaults.
 * @param logprobs      [rows, length] π, of the policy as it is now.
 * @param old_logprobs  [rows, length], of the policy that wrote the answers.
 * @param ref_logprobs  [rows, length], of the reference; NULL: no divergence (β counts as 0).
 * @param mask          [rows, length].
 * @param advantages    [rows].
 * @param d_logprobs    [rows, length], set to the loss's gradient; NULL: not wanted.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_NUMERIC, the loss is not finite. Since: 0.1
 */
MM_API mm_status mm_policy_loss(const mm_policy_options *options, int64_t rows, int64_t length, const float *logprobs,
                                const float *old_logprobs, const float *ref_logprobs, const int32_t *mask,
                                const double *advantages, float *d_logprobs, mm_policy_result *out);

/** Generalised advantage estimation (Schulman et al., 2016). */
typedef struct mm_gae_options {
    size_t struct_size; /**< sizeof(mm_gae_options) */
    double gamma;       /**< γ, what a token later counts, in [0, 1] */
    double lambda;      /**< λ, in [0, 1]: 0 trusts the values alone, 1 the rewards alone */
    int32_t normalize;  /**< 1: advantages are brought to mean 0 and variance 1 over all that count */
    int32_t reserved;   /**< 0 */
} mm_gae_options;
#define MM_GAE_OPTIONS_INIT { sizeof(mm_gae_options), 1.0, 0.95, 1, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_gae_options_init(mm_gae_options *options, size_t struct_size);

/**
 * How much better each token was than the values expected, from the end of a row back: over the tokens that count, in their order,
 *
 *     δ_t = r_t + γ V_{t+1} - V_t          A_t = δ_t + γλ A_{t+1}          R_t = A_t + V_t
 *
 * with V and A 0 behind the last one. Normalised, A becomes (A - mean) / sqrt(variance + 1e-8), the population's; R stays.
 *
 * @param options     NULL for the defaults.
 * @param rewards     [rows, length]. An answer's only reward stands at its last token.
 * @param values      [rows, length] V, expected before each token.
 * @param mask        [rows, length].
 * @param advantages  [rows, length], set; 0 where the mask is.
 * @param returns     [rows, length] R, set: what the values should have been; 0 where the mask is.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_NUMERIC, a reward or a value that counts is not finite (the message says which), or
 *         what they come to is not. Since: 0.1
 */
MM_API mm_status mm_gae(const mm_gae_options *options, int64_t rows, int64_t length, const double *rewards,
                        const float *values, const int32_t *mask, double *advantages, double *returns);

/** Proximal policy optimisation (Schulman et al., 2017), with the divergence from a reference in the loss. */
typedef struct mm_ppo_options {
    size_t struct_size;  /**< sizeof(mm_ppo_options) */
    double epsilon;      /**< of the ratio's clamp, in [0, 1) */
    double value_clip;   /**< a value is learnt no farther than this from the old one; 0: however far */
    double value_weight; /**< of the values' loss, ≥ 0 */
    double beta;         /**< weight of the divergence from the reference, ≥ 0 */
} mm_ppo_options;
#define MM_PPO_OPTIONS_INIT { sizeof(mm_ppo_options), 0.2, 0.2, 0.5, 0.02 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_ppo_options_init(mm_ppo_options *options, size_t struct_size);

/** What mm_ppo_loss() found. */
typedef struct mm_ppo_result {
    size_t struct_size;   /**< sizeof(mm_ppo_result) */
    double loss;          /**< policy_loss + beta · mean_kl + value_weight · value_loss */
    double policy_loss;   /**< of the clipped ratios */
    double value_loss;    /**< of the clipped values */
    double mean_kl;       /**< from the reference */
    double step_kl;       /**< mean of (π - old)² / 2: how far the policy has gone since it wrote the answers. Further updates on the
                               same answers may be left out when it grows large */
    double clipped;       /**< share of counted tokens whose ratio was held back */
    double value_clipped; /**< share of counted tokens whose value was held back */
} mm_ppo_result;
#define MM_PPO_RESULT_INIT { sizeof(mm_ppo_result), 0, 0, 0, 0, 0, 0, 0 }

/** Set every field of `result` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_ppo_result_init(mm_ppo_result *result, size_t struct_size);

/**
 * The loss of a batch of answers and of the values expected of them; each term is a mean over all counted tokens:
 *
 *     policy  -min(ρA, clamp(ρ, 1 - ε, 1 + ε)A),  ρ = exp(π - old)
 *     value   ½ max((V - R)², (clamp(V, old V ± value_clip) - R)²)
 *     kl      exp(δ) - δ - 1,  δ = ref - π
 *
 * @param options       NULL for the defaults.
 * @param logprobs      [rows, length] π, of the policy as it is now.
 * @param old_logprobs  [rows, length], of the policy that wrote the answers.
 * @param ref_logprobs  [rows, length], of the reference; NULL: no divergence.
 * @param values        [rows, length] V, as they are now.
 * @param old_values    [rows, length], when the answers were written.
 * @param mask          [rows, length].
 * @param advantages    [rows, length] A, by mm_gae().
 * @param returns       [rows, length] R, by mm_gae().
 * @param d_logprobs    [rows, length], set to the loss's gradient; NULL: not wanted.
 * @param d_values      [rows, length], set to the loss's gradient; NULL: not wanted.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_NUMERIC, the loss is not finite. Since: 0.1
 */
MM_API mm_status mm_ppo_loss(const mm_ppo_options *options, int64_t rows, int64_t length, const float *logprobs,
                             const float *old_logprobs, const float *ref_logprobs, const float *values,
                             const float *old_values, const int32_t *mask, const double *advantages, const double *returns,
                             float *d_logprobs, float *d_values, mm_ppo_result *out);

/**
 * The share of an answer's n-grams that it has said before: (n-grams - different n-grams) / n-grams, in [0, 1); 0 for an answer without
 * one. MiniMind takes min(0.5, share) of a reward, with n = 3 over words; here the n-grams are of ids.
 *
 * @param share  Set.
 * @param ids    [count]. The time is that of count² comparisons.
 *
 * @return MM_OK; MM_ERR_ARG. Since: 0.1
 */
MM_API mm_status mm_reward_repetition(double *share, const int32_t *ids, int64_t count, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
