#include "train/policy.h"

#include <math.h>

#include "base/memory.h"
#include "base/options.h"
#include "data/hash.h"
#include "data/loader.h"
#include "model/model.h"
#include "run/sampling.h"
#include "train/objective.h"
#include "train/stage.h"

MMI_OPTIONS_INIT(mm_answer, MM_ANSWER_INIT)
MMI_OPTIONS_INIT(mm_policy_training, MM_POLICY_TRAINING_INIT)

/* --- Options --- */

static mm_status check_counts(const mm_policy_training *o, const mm_trainer *t)
{
    static const char what[] = "mm_policy_training";
    if (!o->reward)
        return mmi_fail(MM_ERR_ARG, "%s: reward is NULL", what);
    if (o->variant < MM_POLICY_GRPO || o->variant > MM_POLICY_PPO)
        return mmi_fail(MM_ERR_ARG, "%s: variant is %d, must be one of MM_POLICY_…, 0 to 2", what, o->variant);
    int32_t fewest = o->variant == MM_POLICY_PPO ? 1 : 2;
    if (o->group < fewest)
        return mmi_fail(MM_ERR_ARG, "%s: group is %d, must be at least %d with this variant", what, o->group, fewest);
    if (o->max_new_tokens < 1 || o->updates < 1)
        return mmi_fail(MM_ERR_ARG, "%s: max_new_tokens is %d and updates %d, both must be at least 1", what,
                        o->max_new_tokens, o->updates);
    if (o->updates > 1 && t->options.accumulation_steps > 1)
        return mmi_fail(MM_ERR_ARG, "%s: updates is %d, so accumulation_steps must be 1; it is %lld", what, o->updates,
                        (long long)t->options.accumulation_steps);
    return MM_OK;
}

static mm_status check_numbers(const mm_policy_training *o)
{
    static const char what[] = "mm_policy_training";
    const struct {
        const char *name;
        double value;
    } weights[] = { { "beta", o->beta },
                    { "value_clip", o->value_clip },
                    { "value_weight", o->value_weight },
                    { "value_rate", o->value_rate } };
    mm_status status = mmi_objective_epsilon(what, o->epsilon);
    for (size_t i = 0; i < sizeof weights / sizeof *weights && status == MM_OK; i++)
        status = mmi_objective_weight(what, weights[i].name, weights[i].value);
    if (status != MM_OK)
        return status;
    if (!(o->epsilon_high > 0) || !isfinite(o->epsilon_high))
        return mmi_fail(MM_ERR_ARG, "%s: epsilon_high is %g, must be finite and above 0", what, o->epsilon_high);
    if (!(o->gamma >= 0 && o->gamma <= 1) || !(o->lambda >= 0 && o->lambda <= 1))
        return mmi_fail(MM_ERR_ARG, "%s: gamma is %g and lambda %g, both must be from 0 to 1", what, o->gamma,
                        o->lambda);
    if (!(o->temperature > 0))
        return mmi_fail(MM_ERR_ARG, "%s: temperature is %g, must be above 0: answers must differ", what,
                        (double)o->temperature);
    return MM_OK;
}

/* R and T at most, from the loader's batches and the answers to them. */
static mm_status plan_size(mmi_policy *p, const mm_trainer *t)
{
    p->rows = (int64_t)mmi_loader_batch_rows(t->loader) * p->o.group;
    p->length = (int64_t)mm_loader_length(t->loader) + p->o.max_new_tokens - 1; /* the last id is never fed */
    if (p->rows > INT32_MAX || p->length > INT32_MAX)
        return mmi_fail(MM_ERR_ARG, "mm_policy_training: %lld answers of %lld ids are beyond this library",
                        (long long)p->rows, (long long)p->length);
    const int64_t most = mmi_model_arch(t->model)->max_positions;
    if (p->length > most)
        return mmi_fail(MM_ERR_ARG,
                        "mm_policy_training: prompts of %lld ids and max_new_tokens %d come to %lld positions, "
                        "max_position_embeddings is %lld",
                        (long long)mm_loader_length(t->loader), p->o.max_new_tokens, (long long)p->length,
                        (long long)most);
    return MM_OK;
}

mm_status mmi_policy_plan(mmi_policy *p, const mm_trainer *t)
{
    p->o = (mm_policy_training)MM_POLICY_TRAINING_INIT;
    mm_status status = mmi_options_read(&p->o, sizeof p->o, t->options.policy, "mm_policy_training");
    if (status == MM_OK)
        status = check_counts(&p->o, t);
    if (status == MM_OK)
        status = check_numbers(&p->o);
    p->sampling = (mm_sampling)MM_SAMPLING_INIT;
    p->sampling.temperature = p->o.temperature;
    p->sampling.top_p = p->o.top_p;
    if (status == MM_OK)
        status = mmi_sampling_check(&p->sampling);
    return status == MM_OK ? plan_size(p, t) : status;
}

/* --- Parts --- */

static void carve_buffers(mmi_policy *p, mmi_carve *c, int64_t C)
{
    int64_t n = p->rows * p->length;
    p->d_logprobs = mmi_carve_take(c, n, sizeof *p->d_logprobs);
    p->advantages = mmi_carve_take(c, n, sizeof *p->advantages);
    p->rewards = mmi_carve_take(c, p->rows, sizeof *p->rewards);
    if (p->o.variant != MM_POLICY_PPO)
        return;
    p->values = mmi_carve_take(c, n, sizeof *p->values);
    p->d_values = mmi_carve_take(c, n, sizeof *p->d_values);
    p->token_rewards = mmi_carve_take(c, n, sizeof *p->token_rewards);
    p->returns = mmi_carve_take(c, n, sizeof *p->returns);
    p->d_hidden = mmi_carve_take(c, n * C, sizeof *p->d_hidden);
}

static mm_status make_buffers(mmi_policy *p, const mm_trainer *t)
{
    mmi_carve carve = { 0 };
    int64_t C = mmi_model_arch(t->model)->C;
    carve_buffers(p, &carve, C); /* smaller than the context's, so it can't overflow */
    p->block = mmi_alloc(1, carve.used);
    if (!p->block)
        return mmi_fail_memory(carve.used, "a stage's buffers");
    carve = (mmi_carve){ .base = p->block };
    carve_buffers(p, &carve, C);
    return MM_OK;
}

mm_status mmi_policy_make(mmi_policy *p, const mm_trainer *t)
{
    mm_adamw_options adamw = mmi_trainer_adamw(&t->options);
    mm_status status = mmi_rollout_make(&p->rollout, p->rows, p->length);
    if (status == MM_OK)
        status = make_buffers(p, t);
    if (status == MM_OK && p->o.variant == MM_POLICY_PPO)
        status = mm_value_head_create(t->model, &adamw, &p->head);
    if (status == MM_OK && p->o.beta != 0)
        status = mmi_stage_reference(&p->reference, t, p->o.reference, p->rows, p->length);
    return status;
}

void mmi_policy_free(mmi_policy *p)
{
    if (!p)
        return;
    mm_context_free(p->reference.context);
    mm_value_head_free(p->head);
    mmi_rollout_free(&p->rollout);
    mmi_free(p->block);
    mmi_free(p);
}

/* --- Checkpoints --- */

bool mmi_policy_options(mmi_json *to, const mmi_policy *p)
{
    const mm_policy_training *o = &p->o;
    const struct {
        const char *name;
        double value;
    } numbers[] = { { "beta", o->beta },
                    { "epsilon", o->epsilon },
                    { "epsilon_high", o->epsilon_high },
                    { "gamma", o->gamma },
                    { "lambda", o->lambda },
                    { "value_clip", o->value_clip },
                    { "value_weight", o->value_weight },
                    { "value_rate", o->value_rate },
                    { "temperature", (double)o->temperature },
                    { "top_p", (double)o->top_p } };
    bool ok = mmi_json_set_int(to, "variant", o->variant) && mmi_json_set_int(to, "group", o->group) &&
              mmi_json_set_int(to, "max_new_tokens", o->max_new_tokens) &&
              mmi_json_set_int(to, "updates", o->updates) && mmi_hash_set(to, "reference_hash", p->reference.hash);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && ok; i++)
        ok = mmi_json_set_real(to, numbers[i].name, numbers[i].value);
    return ok;
}

bool mmi_policy_save(mmi_json *to, mmi_policy *p, const mm_trainer *t)
{
    p->kept_rows = mmi_stage_in_midst(t) ? p->rollout.rows : 0;
    return mmi_json_set_int(to, "answers", p->kept_rows) &&
           mmi_json_set_int(to, "answer_width", p->kept_rows > 0 ? p->rollout.length : 0) &&
           mmi_json_set_int(to, "value_steps", p->head ? mmi_value_head_steps(p->head) : 0);
}

mm_status mmi_policy_open(mmi_policy *p, const mm_trainer *t, const mmi_json *from, int64_t step, const char *directory)
{
    const int64_t rows = mmi_json_int(mmi_json_get(from, "answers"), -1);
    const int64_t length = mmi_json_int(mmi_json_get(from, "answer_width"), -1);
    const int64_t steps = mmi_json_int(mmi_json_get(from, "value_steps"), -1);
    if (rows > 0 && mmi_loader_options(t->loader)->world > 1)
        return mmi_fail(MM_ERR_FORMAT,
                        "%s: is a checkpoint of one rank, in the midst of its updates from %lld answers; several ranks "
                        "can go on from one between two sets of answers",
                        directory, (long long)rows);
    const bool some = mmi_stage_in_midst_of(t, step); /* answers that are to be learnt from again */
    if (some && rows == 0)
        return mmi_fail(MM_ERR_FORMAT,
                        "%s: ended between two updates from one set of answers, which no run keeps to its end: it "
                        "can't become longer",
                        directory);
    if (rows < some || rows > (some ? p->rows : 0) || rows % p->o.group != 0 || length < some || length > p->length ||
        steps < 0 || steps > INT64_MAX / 2)
        return mmi_fail(MM_ERR_FORMAT, "%s/state.json: stage does not fit %lld answers of %lld ids in groups of %d",
                        directory, (long long)p->rows, (long long)p->length, p->o.group);
    p->kept_rows = rows;
    p->opened_length = length;
    p->opened_steps = steps;
    return MM_OK;
}

mm_status mmi_policy_tensors(mmi_tensor_list *list, mmi_policy *p)
{
    mm_status status = p->head ? mmi_value_head_tensors(list, p->head) : MM_OK;
    return status == MM_OK && p->kept_rows > 0 ? mmi_rollout_tensors(list, &p->rollout) : status;
}

mm_status mmi_policy_check(const mmi_policy *p, const mm_trainer *t, const mmi_st_file *file, const char *path)
{
    return p->kept_rows > 0 ? mmi_rollout_check(file, path, p->kept_rows, p->kept_rows * p->opened_length,
                                                mmi_model_arch(t->model)->V) :
                              MM_OK;
}

void mmi_policy_take(mmi_policy *p)
{
    mmi_rollout_take(&p->rollout, p->kept_rows, p->opened_length);
    if (p->head)
        mmi_value_head_set_steps(p->head, p->opened_steps);
}
