#include "train/rollout.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/target.h"
#include "train/ids.h"
#include "train/objective.h"

static void carve_rollout(mmi_rollout *r, mmi_carve *c)
{
    int64_t R = r->most_rows, n = R * r->most_length;
    r->ids = mmi_carve_take(c, n, sizeof *r->ids);
    r->targets = mmi_carve_take(c, n, sizeof *r->targets);
    r->mask = mmi_carve_take(c, n, sizeof *r->mask);
    r->old_logprobs = mmi_carve_take(c, n, sizeof *r->old_logprobs);
    r->ref_logprobs = mmi_carve_take(c, n, sizeof *r->ref_logprobs);
    r->old_values = mmi_carve_take(c, n, sizeof *r->old_values);
    r->rewards = mmi_carve_take(c, R, sizeof *r->rewards);
    r->prompt_lengths = mmi_carve_take(c, R, sizeof *r->prompt_lengths);
    r->answer_lengths = mmi_carve_take(c, R, sizeof *r->answer_lengths);
    r->finish = mmi_carve_take(c, R, sizeof *r->finish);
    r->kept_ids = mmi_carve_take(c, n, sizeof *r->kept_ids);
    r->kept_targets = mmi_carve_take(c, n, sizeof *r->kept_targets);
    r->kept_finish = mmi_carve_take(c, R, sizeof *r->kept_finish);
    r->prompts = mmi_carve_take(c, R, sizeof *r->prompts);
}

mm_status mmi_rollout_make(mmi_rollout *r, int64_t most_rows, int64_t most_length)
{
    mmi_carve carve = { 0 };
    *r = (mmi_rollout){ .most_rows = most_rows, .most_length = most_length };
    carve_rollout(r, &carve);
    if (carve.overflow)
        return mmi_fail(MM_ERR_ARG, "answers of %lld rows and %lld ids are beyond this machine", (long long)most_rows,
                        (long long)most_length);
    r->block = mmi_calloc(1, carve.used);
    if (!r->block)
        return mmi_fail_memory(carve.used, "answers");
    carve = (mmi_carve){ .base = r->block };
    carve_rollout(r, &carve);
    return MM_OK;
}

void mmi_rollout_free(mmi_rollout *r)
{
    mmi_free(r->text);
    mmi_free(r->block);
    *r = (mmi_rollout){ 0 };
}

/* --- Answers --- */

/* Prompt and answer of row i, which begin at `at`, and what each token's logprob was. */
static void lay_row(mmi_rollout *r, int64_t i, const int32_t *prompt, const mm_generate_result *made)
{
    int64_t at = i * r->length, P = r->prompt_lengths[i], n = made->lengths[i];
    const int32_t *answer = made->ids + i * made->stride;
    const float *logprobs = made->logprobs + i * made->stride;
    memcpy(r->ids + at, prompt, (size_t)P * sizeof *r->ids);
    for (int64_t t = 0; t < r->answer_lengths[i]; t++) {
        int64_t to = at + P - 1 + t;
        r->targets[to] = t < n ? answer[t] : made->stops[i];
        r->old_logprobs[to] = t < n ? logprobs[t] : made->stop_logprobs[i];
        r->mask[to] = 1;
        if (t + 1 < r->answer_lengths[i])
            r->ids[to + 1] = answer[t];
    }
}

static void lay_rows(mmi_rollout *r, const mm_generate_result *made, int32_t pad_id)
{
    r->length = 0;
    for (int64_t i = 0; i < r->rows; i++) {
        r->finish[i] = made->finish[i];
        r->answer_lengths[i] = made->lengths[i] + (made->finish[i] == MM_FINISH_STOP);
        int64_t length = (int64_t)r->prompt_lengths[i] + r->answer_lengths[i] - 1;
        r->length = length > r->length ? length : r->length;
    }
    int64_t n = r->rows * r->length;
    for (int64_t i = 0; i < n; i++) {
        r->ids[i] = pad_id;
        r->targets[i] = MMI_IGNORE;
    }
    memset(r->mask, 0, (size_t)n * sizeof *r->mask);
    memset(r->old_logprobs, 0, (size_t)n * sizeof *r->old_logprobs);
    for (int64_t i = 0; i < r->rows; i++)
        lay_row(r, i, r->prompts[i], made);
}

mm_status mmi_rollout_write(mmi_rollout *r, mm_context *context, const mm_prompts *prompts, int32_t group,
                            const mm_sampling *sampling, int32_t max_new_tokens, int32_t stop_id, int32_t pad_id)
{
    mm_generate_options o = MM_GENERATE_OPTIONS_INIT;
    mm_generate_result made = MM_GENERATE_RESULT_INIT;
    r->rows = (int64_t)prompts->count * group;
    for (int64_t i = 0; i < r->rows; i++) {
        r->prompts[i] = prompts->ids[i / group]; /* equal prompts are read once */
        r->prompt_lengths[i] = prompts->lengths[i / group];
    }
    o.prompts = r->prompts;
    o.prompt_lengths = r->prompt_lengths;
    o.sampling = sampling;
    o.sequences = (int32_t)r->rows;
    o.max_new_tokens = max_new_tokens;
    o.stop_ids = &stop_id;
    o.stop_count = 1;
    mm_status status = mm_generate(context, &o, &made);
    if (status == MM_OK)
        lay_rows(r, &made, pad_id);
    return status;
}

/* --- Rewards --- */

static mm_status read_answer(mmi_rollout *r, mm_answer *a, int64_t i, const mm_tokenizer *tokenizer,
                             const mm_prompts *prompts, int32_t group)
{
    int64_t prompt = i / group;
    a->ids = r->targets + i * r->length + r->prompt_lengths[i] - 1;
    a->count = r->answer_lengths[i] - (r->finish[i] == MM_FINISH_STOP);
    a->finish = r->finish[i];
    a->sample = (int32_t)(i % group);
    a->row = prompts->rows[prompt];
    a->reference = prompts->answers[prompt];
    a->reference_length = a->reference ? prompts->answer_lengths[prompt] : 0;
    mm_status status = mmi_decode_grow(&r->text, &r->text_room, 0, &a->prompt_length, tokenizer, prompts->ids[prompt],
                                       prompts->lengths[prompt], 0);
    if (status == MM_OK)
        status = mmi_decode_grow(&r->text, &r->text_room, a->prompt_length + 1, &a->text_length, tokenizer, a->ids,
                                 a->count, 1);
    a->prompt = r->text;
    a->text = r->text + a->prompt_length + 1;
    return status;
}

static mm_status check_reward(const mm_answer *a, double reward, mm_dataset *dataset)
{
    if (isfinite((float)reward))
        return MM_OK;
    const char *path = "row";
    int64_t line = a->row;
    mm_dataset_where(dataset, a->row, &path, &line);
    return mmi_fail(MM_ERR_NUMERIC, "%s:%lld: the reward of answer %d to this prompt is %g", path, (long long)line,
                    a->sample, reward);
}

mm_status mmi_rollout_reward(mmi_rollout *r, const mm_tokenizer *tokenizer, mm_dataset *dataset,
                             const mm_prompts *prompts, int32_t group, mm_reward_fn reward, void *user, bool *stop)
{
    mm_status status = MM_OK;
    *stop = false;
    for (int64_t i = 0; i < r->rows && status == MM_OK && !*stop; i++) {
        mm_answer answer = MM_ANSWER_INIT;
        double given = 0;
        status = read_answer(r, &answer, i, tokenizer, prompts, group);
        if (status == MM_OK)
            *stop = reward(user, &answer, &given) != 0;
        if (status == MM_OK && !*stop)
            status = check_reward(&answer, given, dataset);
        r->rewards[i] = (float)given;
    }
    return status;
}

/* --- Checkpoints --- */

mm_status mmi_rollout_tensors(mmi_tensor_list *list, mmi_rollout *r)
{
    const int64_t rows[1] = { r->most_rows }, table[2] = { r->most_rows, r->most_length };
    const struct {
        const char *name;
        float *data;
    } tables[] = { { "rollout.ids", r->kept_ids },
                   { "rollout.targets", r->kept_targets },
                   { "rollout.logprobs", r->old_logprobs },
                   { "rollout.reference_logprobs", r->ref_logprobs },
                   { "rollout.values", r->old_values } };
    for (int64_t i = 0; i < r->rows * r->length; i++) { /* ids are small enough to be exact */
        r->kept_ids[i] = (float)r->ids[i];
        r->kept_targets[i] = (float)r->targets[i];
    }
    for (int64_t i = 0; i < r->rows; i++)
        r->kept_finish[i] = (float)r->finish[i];
    mm_status status = mmi_tensors_add(list, "rollout.rewards", 1, rows, r->rewards);
    if (status == MM_OK)
        status = mmi_tensors_add(list, "rollout.finish", 1, rows, r->kept_finish);
    for (size_t i = 0; i < sizeof tables / sizeof *tables && status == MM_OK; i++)
        status = mmi_tensors_add(list, tables[i].name, 2, table, tables[i].data);
    return status;
}

/* What passes makes of answers may be any number, as training leaves weights; what answers are may not. */
mm_status mmi_rollout_check(const mmi_st_file *file, const char *path, int64_t R, int64_t n, int64_t V)
{
    const struct {
        const char *name;
        int64_t count, below; /* whole numbers from 0; 0: any that is finite */
        float or_this;        /* or this one */
    } tables[] = { { "rollout.ids", n, V, 0 },
                   { "rollout.targets", n, V, MMI_IGNORE },
                   { "rollout.finish", R, MM_FINISH_CALLBACK, 0 },
                   { "rollout.rewards", R, 0, 0 },
                   { "rollout.logprobs", n, 0, 0 } };
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++) {
        const unsigned char *data = mmi_st_find(file, tables[k].name)->data;
        for (int64_t i = 0; i < tables[k].count; i++) {
            float x, below = (float)tables[k].below;
            memcpy(&x, data + (size_t)i * sizeof x, sizeof x);
            if (below > 0 ? x != tables[k].or_this && !(x >= 0 && x < below && x == (float)(int32_t)x) : !isfinite(x))
                return mmi_fail(MM_ERR_FORMAT, "%s: %s has %g at %lld, which no answer from a vocabulary of %lld has",
                                path, tables[k].name, x, (long long)i, (long long)V);
        }
    }
    return MM_OK;
}

void mmi_rollout_take(mmi_rollout *r, int64_t rows, int64_t length)
{
    r->rows = rows;
    r->length = length;
    for (int64_t i = 0; i < rows * length; i++) {
        r->ids[i] = (int32_t)r->kept_ids[i];
        r->targets[i] = (int32_t)r->kept_targets[i];
        r->mask[i] = r->targets[i] != MMI_IGNORE;
    }
    for (int64_t i = 0; i < rows; i++) {
        r->finish[i] = (int32_t)r->kept_finish[i];
        r->answer_lengths[i] = (int32_t)mmi_objective_counted(r->mask + i * length, length);
    }
}
