/* A checkpoint directory of learning from rewards, in the midst of its updates from one set of answers. */
#include "fuzz_resume.h"

static int32_t reward(void *user, const mm_answer *answer, double *out)
{
    (void)user;
    *out = (double)(answer->sample % 2) + (double)answer->count / 8;
    return 0;
}

static void make_trainer(mm_trainer **out, const char *output)
{
    static const char rows[] = "{\"conversations\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
                               "{\"conversations\": [{\"role\": \"user\", \"content\": \"bc\"}]}\n";
    mm_loader_options lo = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options to = MM_TRAINER_OPTIONS_INIT;
    mm_policy_training po = MM_POLICY_TRAINING_INIT;
    po.reward = reward, po.variant = MM_POLICY_PPO, po.group = 2, po.max_new_tokens = 3, po.updates = 3;
    lo.kind = MM_ROW_PROMPT, lo.batch = 1, lo.max_length = 20, lo.workers = 0;
    to.stage = MM_STAGE_POLICY, to.policy = &po;
    to.accumulation_steps = 1, to.epochs = 2, to.threads = 1, to.output = output;
    fuzz_trainer(out, rows, &lo, &to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const fuzz_run run = {
        make_trainer, { "optimizer.safetensors", "model.safetensors", "stage.safetensors", "config.json" }
    };
    return fuzz_resume(&run, data, size);
}
