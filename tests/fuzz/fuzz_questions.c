/* A JSON-lines file, read as questions with endings and as prompts with what their answers must hold. */
#include <math.h>

#include "fuzz.h"

static mm_model *model;
static mm_context *context;

static void give_back(void)
{
    mm_context_free(context);
    mm_model_free(model);
}

static void begin(void)
{
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.max_batch = 2, options.max_length = 16, options.max_context = 32, options.threads = 1;
    options.outputs = MM_OUT_LAST_LOGITS | MM_OUT_LOGPROBS;
    model = fuzz_model();
    MUST(mm_context_create(model, &options, &context) == MM_OK);
    MUST(atexit(give_back) == 0);
}

static int32_t on_choice(void *user, const mm_choice *choice)
{
    int64_t *seen = user;
    MUST(choice->row == (*seen)++ && choice->count > 0);
    MUST(choice->answer >= 0 && choice->answer < choice->count);
    MUST(choice->picked >= 0 && choice->picked < choice->count);
    MUST(choice->picked_per_byte >= 0 && choice->picked_per_byte < choice->count);
    for (int32_t i = 0; i < choice->count; i++)
        MUST(choice->sums[i] <= 1e-3 && isfinite(choice->per_byte[i]));
    return 0;
}

static void choose(mm_dataset *dataset)
{
    int64_t seen = 0;
    mm_choices_options options = MM_CHOICES_OPTIONS_INIT;
    mm_choices_result result = MM_CHOICES_RESULT_INIT;
    options.on_row = on_choice, options.user = &seen, options.bos_id = 1, options.max_rows = 8;
    mm_status status = mm_evaluate_choices(context, fuzz_tokenizer(), dataset, &options, &result);
    MUST(status == MM_OK || refused(status));
    if (status != MM_OK)
        return;
    MUST(result.rows == seen && result.correct >= 0 && result.correct <= seen);
    MUST(result.accuracy >= 0 && result.accuracy <= 1 && result.accuracy_per_byte >= 0 &&
         result.accuracy_per_byte <= 1);
}

static int32_t on_answer(void *user, const mm_prompt_answer *answer)
{
    int64_t *seen = user;
    MUST(answer->row == (*seen)++ && answer->prompt && answer->answer && answer->answer[answer->answer_length] == '\0');
    MUST(answer->passed == (answer->missing == NULL));
    return 0;
}

static void ask(mm_dataset *dataset, const char *name)
{
    int64_t seen = 0;
    mm_prompts_options options = MM_PROMPTS_OPTIONS_INIT;
    mm_prompts_result result = MM_PROMPTS_RESULT_INIT;
    options.on_row = on_answer, options.user = &seen, options.template_name = name;
    options.max_new_tokens = 4, options.max_rows = 8;
    mm_status status = mm_evaluate_prompts(context, fuzz_tokenizer(), dataset, &options, &result);
    MUST(status == MM_OK || status == MM_ERR_STATE || refused(status)); /* the tokenizer has no template of its own */
    if (status == MM_OK)
        MUST(result.rows == seen && result.passed >= 0 && result.passed <= seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("questions.jsonl", data, size);
    mm_dataset_options options = MM_DATASET_OPTIONS_INIT;
    mm_dataset *dataset = NULL;
    if (!model)
        begin();
    options.paths = &path, options.count = 1, options.cache_from = -1, options.max_line = 4096;
    mm_status status = mm_dataset_create(&options, &dataset);
    MUST(status == MM_OK || refused(status));
    if (status != MM_OK)
        return 0;
    choose(dataset);
    ask(dataset, NULL);
    ask(dataset, "minimind3");
    mm_dataset_free(dataset);
    return 0;
}
