/* A checkpoint directory of pretraining. */
#include "fuzz_resume.h"

/* Of an update of three micro-steps the second is the last: so that every file of a checkpoint is there. */
static void make_trainer(mm_trainer **out, const char *output)
{
    static const char rows[] = "{\"text\": \"a\"}\n{\"text\": \"bc\"}\n{\"text\": \"def\"}\n{\"text\": \"g\"}\n";
    mm_config *config = fuzz_config();
    mm_model *model = NULL;
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_loader_options lo = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options to = MM_TRAINER_OPTIONS_INIT;
    lo.batch = 1, lo.max_length = 4, lo.workers = 0;
    to.accumulation_steps = 3, to.epochs = 2, to.threads = 1, to.output = output, to.on_step = fuzz_stop_early;
    MUST(mm_model_create(config, 1, &model) == MM_OK);
    MUST(mm_dataset_open(fuzz_file("train.jsonl", rows, sizeof rows - 1), &dataset) == MM_OK);
    MUST(mm_loader_create(dataset, fuzz_tokenizer(), &lo, &loader) == MM_OK);
    MUST(mm_trainer_create(model, loader, fuzz_tokenizer(), &to, out) == MM_OK);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_model_free(model);
    mm_config_free(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const fuzz_run run = {
        make_trainer, { "optimizer.safetensors", "model.safetensors", "gradients.safetensors", "config.json" }
    };
    return fuzz_resume(&run, data, size);
}
