/* A checkpoint directory of pretraining. */
#include "fuzz_resume.h"

/* Of an update of three micro-steps the second is the last: so that every file of a checkpoint is there. */
static void make_trainer(mm_trainer **out, const char *output)
{
    static const char rows[] = "{\"text\": \"a\"}\n{\"text\": \"bc\"}\n{\"text\": \"def\"}\n{\"text\": \"g\"}\n";
    mm_loader_options lo = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options to = MM_TRAINER_OPTIONS_INIT;
    lo.batch = 1, lo.max_length = 4, lo.workers = 0;
    to.accumulation_steps = 3, to.epochs = 2, to.threads = 1, to.output = output;
    fuzz_trainer(out, rows, &lo, &to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const fuzz_run run = {
        make_trainer, { "optimizer.safetensors", "model.safetensors", "gradients.safetensors", "config.json" }
    };
    return fuzz_resume(&run, data, size);
}
