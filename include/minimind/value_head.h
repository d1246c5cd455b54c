/**
 * @file value_head.h
 * What a policy expects its answers to earn: one number per token, read from the hidden states.
 *
 * V_t = w · h_t + b, with h [B, T, C] the hidden states that mm_forward() gives for MM_OUT_HIDDEN. Its gradient goes on into the
 * network as mm_backward_options.d_hidden, so that policy and values learn in one backward pass:
 *
 *     mm_forward(context, &batch, &out);                                     with MM_OUT_LOGPROBS and MM_OUT_HIDDEN
 *     mm_value_head_forward(head, &out.hidden, values);
 *     mm_ppo_loss(…, d_logprobs, d_values, &result);
 *     mm_value_head_backward(head, &out.hidden, d_values, 1, d_hidden);      adds to the head's own gradients
 *     mm_backward(context, &back);                                           with both d_logprobs and d_hidden
 *     mm_optimizer_step(optimizer, context, &step);
 *     mm_value_head_step(head, &step);
 *
 * Threads: one call at a time per head.
 */
#ifndef MINIMIND_VALUE_HEAD_H
#define MINIMIND_VALUE_HEAD_H

#include <minimind/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One number per token, read from hidden states. */
typedef struct mm_value_head mm_value_head;

/**
 * A head for a model's hidden states, with an AdamW of its own. Weights, bias and moments are 0: it expects nothing yet, and leaves
 * the network alone until its first step.
 *
 * @param model    Gives hidden_size; not kept.
 * @param options  Copied; NULL for the defaults. All of a head is trained, and decays: trainable and decay stay as they are there.
 * @param out      Yours: pair it with mm_value_head_free().
 *
 * @return MM_OK; MM_ERR_ARG, also for these two; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_value_head_create(const mm_model *model, const mm_adamw_options *options, mm_value_head **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_value_head_free(mm_value_head *head);

/**
 * @param hidden  mm_output.hidden, float32 [B, T, C], or numbers of one's own that lie as those do, without gaps.
 * @param values  [B, T], set.
 *
 * @return MM_OK; MM_ERR_ARG, `hidden` is empty, of another width, or has gaps. It allocates nothing. Since: 0.1
 */
MM_API mm_status mm_value_head_forward(mm_value_head *head, const mm_view *hidden, float *values);

/**
 * @param hidden    What mm_value_head_forward() read, from the same forward pass.
 * @param d_values  [B, T].
 * @param scale     The head's own gradients are those of scale · loss: give the loss_scale that mm_backward() gets, which scales
 *                  d_hidden itself.
 * @param d_hidden  [B, T, C], set; NULL: not wanted.
 *
 * @return MM_OK; MM_ERR_ARG. It allocates nothing. Since: 0.1
 */
MM_API mm_status mm_value_head_backward(mm_value_head *head, const mm_view *hidden, const float *d_values, double scale,
                                        float *d_hidden);

/**
 * One step of AdamW from the gradients added up, which are then 0 again.
 *
 * @param step  As for mm_optimizer_step(); the norm is that of the head's gradients alone.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_NUMERIC, the gradients hold a NaN or an infinity: nothing was changed. Since: 0.1
 */
MM_API mm_status mm_value_head_step(mm_value_head *head, mm_step *step);

/** Set the gradients to 0. @return MM_OK; MM_ERR_ARG. Since: 0.1 */
MM_API mm_status mm_value_head_zero_grad(mm_value_head *head);

/** Views of the weight [1, C] and the bias [1], and of their gradients, lent for writing too. Either may be NULL. Since: 0.1 */
MM_API mm_status mm_value_head_weights(mm_value_head *head, mm_view *weight, mm_view *bias);
MM_API mm_status mm_value_head_grads(mm_value_head *head, mm_view *weight, mm_view *bias);

/**
 * Write it all as safetensors: "value_head.weight" and "value_head.bias", their gradients behind "grad." and their moments behind
 * "exp_avg." and "exp_avg_sq."; and read it back. On failure the head is as before.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_FORMAT; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_value_head_save(const mm_value_head *head, const char *path);
MM_API mm_status mm_value_head_load(mm_value_head *head, const char *path);

#ifdef __cplusplus
}
#endif

#endif
