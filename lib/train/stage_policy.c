/* Learning from rewards: answers to a batch of prompts, what they earned, and a loss that makes the better ones
 * likelier. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/loader.h"
#include "run/context.h"
#include "train/health.h"
#include "train/ids.h"
#include "train/objective.h"
#include "train/parallel.h"
#include "train/policy.h"
#include "train/stage.h"

/* In the order of `metrics`. */
enum { REWARD, DEVIATION, KL, CLIPPED, LENGTH, STOPPED, VALUE_LOSS, STEP_KL };
static const char *const metrics[] = { "reward",  "reward_deviation", "kl",      "clipped", "answer_length",
                                       "stopped", "value_loss",       "step_kl", NULL };
static const int of_tokens[] = { KL, CLIPPED, VALUE_LOSS, STEP_KL }; /* means over tokens; the others over answers */
#define OF_TOKENS (sizeof of_tokens / sizeof *of_tokens)

static mm_status plan(mm_trainer *t, mm_context_options *context)
{
    if (!t->options.policy)
        return mmi_fail(MM_ERR_ARG, "trainer: MM_STAGE_POLICY needs mm_trainer_options.policy");
    mmi_policy *p = mmi_calloc(1, sizeof *p);
    if (!p)
        return mmi_fail_memory(sizeof *p, "a stage");
    t->stage_data = p;
    mm_status status = mmi_policy_plan(p, t);
    t->options.policy = NULL; /* the program's; it has been copied */
    if (status != MM_OK)
        return status;
    context->max_batch = (int32_t)p->rows;
    context->max_length = (int32_t)p->length;
    if (p->o.variant == MM_POLICY_PPO)
        context->outputs |= MM_OUT_HIDDEN;
    return MM_OK;
}

static mm_status create(mm_trainer *t)
{
    return mmi_policy_make(t->stage_data, t);
}

static void free_policy(mm_trainer *t)
{
    mmi_policy_free(t->stage_data);
}

/* --- Answers --- */

static int64_t uses(const mm_trainer *t)
{
    const mmi_policy *p = t->stage_data;
    return p->o.updates;
}

/* Answers depend on the step and the rank, and within a step on their row and position. */
static uint64_t seed_of_answers(const mm_trainer *t)
{
    const mm_loader_options *o = mmi_loader_options(t->loader);
    uint32_t block[4];
    mmi_random_block(block, o->seed, MMI_STREAM(MMI_STREAM_SAMPLE, UINT32_MAX - (uint32_t)o->rank),
                     (uint64_t)t->now.step);
    return (uint64_t)block[1] << 32 | block[0];
}

static mm_batch batch_of(const mmi_rollout *r, int32_t mode, int32_t outputs)
{
    mm_batch b = MM_BATCH_INIT;
    b.ids = r->ids;
    b.targets = r->targets;
    b.batch = (int32_t)r->rows;
    b.length = (int32_t)r->length;
    b.mode = mode;
    b.outputs = outputs;
    return b;
}

static mm_status ask_reference(mmi_policy *p)
{
    mmi_rollout *r = &p->rollout;
    mm_batch batch = batch_of(r, MM_EVAL, MM_OUT_LOGPROBS);
    mm_output out = MM_OUTPUT_INIT;
    mm_status status = mm_forward(p->reference.context, &batch, &out);
    if (status == MM_OK)
        memcpy(r->ref_logprobs, out.logprobs.data, (size_t)(r->rows * r->length) * sizeof *r->ref_logprobs);
    return status;
}

static mm_status answer(mmi_policy *p, mm_trainer *t, mmi_work *work)
{
    mm_dataset *dataset = (mm_dataset *)mmi_loader_dataset(t->loader);
    mmi_rollout *r = &p->rollout;
    p->sampling.seed = seed_of_answers(t);
    mm_status status = mmi_rollout_write(r, t->context, &work->prompts, p->o.group, &p->sampling, p->o.max_new_tokens,
                                         mmi_stop_id(t->context->arch->eos_id, mmi_loader_tokenizer(t->loader)),
                                         mmi_loader_options(t->loader)->pad_id);
    if (status == MM_OK)
        status = mmi_rollout_reward(r, mmi_loader_tokenizer(t->loader), dataset, &work->prompts, p->o.group,
                                    p->o.reward, p->o.user, &work->stop);
    if (status == MM_OK && !work->stop && p->reference.context)
        status = ask_reference(p);
    if (status != MM_OK)
        mmi_fail_within(status, "step %lld", (long long)t->now.step + 1);
    return status;
}

/* Other ranks have no part in what becomes of this one's answers, but they stop where one wants to, and fail with it:
 * a reward that is no number is one rank's alone, so the run doesn't tell them of it by itself. */
static mm_status agree(mm_trainer *t, mmi_work *work, mm_status status)
{
    double stops = work->stop;
    if (status == MM_ERR_NUMERIC)
        mmi_parallel_abort(t);
    if (status != MM_OK)
        return status;
    if (work->stop)
        mm_trainer_stop(t);
    status = mmi_parallel_sum(t, &stops, 1);
    work->stop = stops > 0;
    return status;
}

static mm_status next(mm_trainer *t, mmi_work *work)
{
    mmi_policy *p = t->stage_data;
    mm_status status = MM_OK;
    if (t->now.step % p->o.updates == 0) {
        p->rollout.rows = 0;
        status = mm_loader_next_prompts(t->loader, &work->prompts);
        work->end = status == MM_OK && work->prompts.at_end;
        if (status == MM_OK && work->prompts.count > 0)
            status = answer(p, t, work);
        if (!work->end)
            status = agree(t, work, status);
        if (status != MM_OK || work->stop)
            mmi_loader_return(t->loader, &t->now.data);
    }
    work->batch = batch_of(&p->rollout, MM_TRAIN, MM_OUT_LOGPROBS | (p->head ? MM_OUT_HIDDEN : 0));
    return status;
}

/* --- Learning --- */

/* Of the answers themselves. */
static void read_answers(const mmi_policy *p, double *m)
{
    const mmi_rollout *r = &p->rollout;
    int32_t G = p->o.group;
    for (int64_t first = 0; first < r->rows; first += G) {
        double mean = 0, variance = 0;
        for (int64_t i = first; i < first + G; i++)
            mean += (double)r->rewards[i] / G;
        for (int64_t i = first; i < first + G; i++)
            variance += pow(r->rewards[i] - mean, 2) / G;
        m[REWARD] += mean * G / (double)r->rows;
        m[DEVIATION] += sqrt(variance) * G / (double)r->rows;
    }
    for (int64_t i = 0; i < r->rows; i++) {
        m[LENGTH] += (double)r->answer_lengths[i] / (double)r->rows;
        m[STOPPED] += (r->finish[i] == MM_FINISH_STOP) / (double)r->rows;
    }
}

static const float *reference_of(const mmi_policy *p)
{
    return p->reference.context ? p->rollout.ref_logprobs : NULL;
}

static mm_status compare_within_groups(mmi_policy *p, const mm_output *out, mmi_reading *reading)
{
    mmi_rollout *r = &p->rollout;
    mm_policy_options o = MM_POLICY_OPTIONS_INIT;
    mm_policy_result result = MM_POLICY_RESULT_INIT;
    o.variant = p->o.variant;
    o.beta = p->o.beta;
    o.epsilon = p->o.epsilon;
    o.epsilon_high = p->o.epsilon_high;
    for (int64_t i = 0; i < r->rows; i++)
        p->rewards[i] = r->rewards[i];
    mm_status status = mm_group_advantages(p->advantages, p->rewards, r->rows, p->o.group);
    if (status == MM_OK)
        status = mm_policy_loss(&o, r->rows, r->length, out->logprobs.data, r->old_logprobs, reference_of(p), r->mask,
                                p->advantages, p->d_logprobs, &result);
    reading->loss = result.loss;
    reading->metrics[KL] = result.mean_kl;
    reading->metrics[CLIPPED] = result.clipped;
    return status;
}

/* An answer's reward stands at its last token. */
static mm_status expect(mmi_policy *p)
{
    mmi_rollout *r = &p->rollout;
    mm_gae_options o = MM_GAE_OPTIONS_INIT;
    o.normalize = 0; /* that is done over the answers of all ranks */
    o.gamma = p->o.gamma;
    o.lambda = p->o.lambda;
    for (int64_t i = 0; i < r->rows; i++) {
        double left = r->rewards[i];
        for (int64_t at = (i + 1) * r->length; at-- > i * r->length;) {
            p->token_rewards[at] = r->mask[at] ? left : 0;
            left = r->mask[at] ? 0 : left;
        }
    }
    return mm_gae(&o, r->rows, r->length, p->token_rewards, r->old_values, r->mask, p->advantages, p->returns);
}

/* What the head expects of the answers, and how they did against it. */
static mm_status value(mmi_policy *p, const mm_output *out, bool first)
{
    mmi_rollout *r = &p->rollout;
    mm_status status = mm_value_head_forward(p->head, &out->hidden, p->values);
    if (status == MM_OK && first) /* the policy is still the one that answered */
        memcpy(r->old_values, p->values, (size_t)(r->rows * r->length) * sizeof *p->values);
    return status == MM_OK ? expect(p) : status;
}

/* Collective: the advantages of all ranks' answers together get mean 0 and variance 1. `tokens` of one's own count. */
static mm_status normalize(mmi_policy *p, const mm_trainer *t, int64_t tokens)
{
    const int32_t *mask = p->rollout.mask;
    int64_t n = tokens > 0 ? p->rollout.rows * p->rollout.length : 0;
    double sums[2] = { (double)tokens, mmi_advantages_sum(p->advantages, mask, n) };
    mm_status status = mmi_parallel_sum(t, sums, 2);
    double all = sums[0] > 0 ? sums[0] : 1, mean = sums[1] / all;
    double squares = mmi_advantages_squares(p->advantages, mask, n, mean);
    if (status == MM_OK)
        status = mmi_parallel_sum(t, &squares, 1);
    mmi_advantages_scale(p->advantages, mask, n, mean, squares / all);
    return status;
}

static mm_status compare_with_values(mmi_policy *p, const mm_output *out, mmi_reading *reading)
{
    mmi_rollout *r = &p->rollout;
    mm_ppo_options o = MM_PPO_OPTIONS_INIT;
    mm_ppo_result result = MM_PPO_RESULT_INIT;
    o.beta = p->o.beta;
    o.epsilon = p->o.epsilon;
    o.value_clip = p->o.value_clip;
    o.value_weight = p->o.value_weight;
    mm_status status =
        mm_ppo_loss(&o, r->rows, r->length, out->logprobs.data, r->old_logprobs, reference_of(p), p->values,
                    r->old_values, r->mask, p->advantages, p->returns, p->d_logprobs, p->d_values, &result);
    reading->loss = result.loss;
    reading->metrics[KL] = result.mean_kl;
    reading->metrics[CLIPPED] = result.clipped;
    reading->metrics[VALUE_LOSS] = result.value_loss;
    reading->metrics[STEP_KL] = result.step_kl;
    return status;
}

/* Ranks without answers have nothing to go back over, so gradients are not sent before all are there. */
static mm_status go_back(mmi_policy *p, mm_trainer *t, const mm_output *out, mmi_share share, double scale)
{
    mm_backward_options back = MM_BACKWARD_OPTIONS_INIT;
    back.loss_scale = scale * share.loss;
    back.aux_scale = scale * share.aux;
    back.d_logprobs = p->d_logprobs;
    mm_status status = MM_OK;
    if (p->head) {
        status = mm_value_head_backward(p->head, &out->hidden, p->d_values, scale * share.loss / t->health.loss_scale,
                                        p->d_hidden);
        back.d_hidden = p->d_hidden;
    }
    return status == MM_OK ? mm_backward(t->context, &back) : status;
}

/* What of a step can be said without the other ranks. MM_ERR_NUMERIC: a value is no number. */
static mm_status look(mmi_policy *p, mm_trainer *t, mmi_work *work, mm_output *out, mmi_reading *reading)
{
    mm_status status = mm_forward(t->context, &work->batch, out);
    if (status != MM_OK)
        return status;
    read_answers(p, reading->metrics);
    return p->head ? value(p, out, t->now.step % p->o.updates == 0) : MM_OK;
}

/* Collective, of PPO: the rest, which needs the advantages of all; an `odd` rank has none to tell of. */
static mm_status judge(mmi_policy *p, mm_trainer *t, const mm_output *out, int64_t tokens, bool odd,
                       mmi_reading *reading)
{
    mm_status status = p->head ? normalize(p, t, odd ? 0 : tokens) : MM_OK;
    if (status != MM_OK || odd || p->rollout.rows == 0)
        return status;
    return p->head ? compare_with_values(p, out, reading) : compare_within_groups(p, out, reading);
}

/* Collective. Ranks weigh readings by answers; what is a mean over tokens is brought to sums of an answer on the way. */
static mm_status join(mmi_share *share, const mm_trainer *t, mmi_reading *reading, mmi_weights weights,
                      const mmi_work *work)
{
    double *m = reading->metrics;
    for (size_t i = 0; i < OF_TOKENS; i++)
        m[of_tokens[i]] *= m[LENGTH];
    mm_status status = mmi_parallel_join(share, t, reading, weights, work);
    for (size_t i = 0; i < OF_TOKENS; i++)
        m[of_tokens[i]] /= m[LENGTH] > 0 ? m[LENGTH] : 1;
    return status;
}

static mm_status learn(mm_trainer *t, mmi_work *work, double scale, mmi_reading *reading)
{
    mmi_policy *p = t->stage_data;
    mmi_rollout *r = &p->rollout;
    mm_output out = MM_OUTPUT_INIT;
    mmi_share share;
    int64_t answers = r->rows; /* 0: a rank that was left without a prompt */
    int64_t tokens = mmi_objective_counted(r->mask, answers * r->length);
    reading->loss = 0;
    reading->tokens = mmi_work_tokens(work);
    memset(reading->metrics, 0, sizeof reading->metrics);
    mm_status status = answers > 0 ? look(p, t, work, &out, reading) : MM_OK;
    bool odd = status == MM_ERR_NUMERIC; /* kept to itself until all ranks have come as far */
    if (status == MM_OK || odd)
        status = judge(p, t, &out, tokens, odd, reading);
    if (status == MM_ERR_NUMERIC || (status == MM_OK && odd)) {
        reading->loss = NAN;
        for (size_t i = 0; i < OF_TOKENS; i++)
            reading->metrics[of_tokens[i]] = NAN;
    }
    mmi_weights weights = { (double)(p->head ? tokens : answers), (double)answers };
    if (status == MM_OK || status == MM_ERR_NUMERIC)
        status = join(&share, t, reading, weights, work);
    if (status != MM_OK || answers == 0 || !mmi_health_good_loss(t, reading->loss))
        return status;
    work->touched = true;
    return go_back(p, t, &out, share, scale);
}

static float *gradients(const mm_trainer *t, int64_t *count)
{
    mmi_policy *p = t->stage_data;
    return p->head ? mmi_value_head_gradients(p->head, count) : NULL;
}

static void update(mm_trainer *t, double learning_rate)
{
    mmi_policy *p = t->stage_data;
    mm_step step = MM_STEP_INIT;
    step.learning_rate = learning_rate * p->o.value_rate;
    step.max_grad_norm = t->options.max_grad_norm;
    if (p->head && mm_value_head_step(p->head, &step) != MM_OK)
        mm_value_head_zero_grad(p->head); /* beyond a float: the head stays as it is */
}

static void drop(mm_trainer *t)
{
    mmi_policy *p = t->stage_data;
    if (p->head)
        mm_value_head_zero_grad(p->head);
}

/* --- Checkpoints --- */

static bool options(mmi_json *to, const mm_trainer *t)
{
    return mmi_policy_options(to, t->stage_data);
}

static bool save(mmi_json *to, const mm_trainer *t)
{
    return mmi_policy_save(to, t->stage_data, t);
}

static mm_status open(mm_trainer *t, const mmi_json *from, int64_t step, const char *directory)
{
    return mmi_policy_open(t->stage_data, t, from, step, directory);
}

static void take(mm_trainer *t)
{
    mmi_policy_take(t->stage_data);
}

static mm_status tensors(mmi_tensor_list *list, const mm_trainer *t)
{
    return mmi_policy_tensors(list, t->stage_data);
}

static mm_status check(const mm_trainer *t, const mmi_st_file *file, const char *path)
{
    return mmi_policy_check(t->stage_data, t, file, path);
}

const mmi_stage mmi_stage_policy = {
    .name = "policy",
    .kinds = 1 << MM_ROW_PROMPT,
    .outputs = MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS,
    .metrics = metrics,
    .plan = plan,
    .create = create,
    .free = free_policy,
    .uses = uses,
    .next = next,
    .learn = learn,
    .gradients = gradients,
    .update = update,
    .drop = drop,
    .options = options,
    .save = save,
    .open = open,
    .take = take,
    .tensors = tensors,
    .check = check,
};
