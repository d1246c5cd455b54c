/* What a teacher said, for a student to learn from. An input is the file itself; or, where its first byte is odd, what
 * lies in the file's tensors, signed as if it had been written so. */
#include <string.h>

#include "data/hash.h"
#include "fuzz.h"
#include "model/safetensors.h"

#define MOST 64 /* rows, positions and tokens that an input may ask for */

static mm_model *model;
static mm_dataset *dataset;
static mm_loader *loader;

static void give_back(void)
{
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_model_free(model);
}

static void begin(void)
{
    static const char rows[] = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n";
    mm_loader_options options = MM_LOADER_OPTIONS_INIT;
    options.batch = 2, options.max_length = 4, options.workers = 0;
    model = fuzz_model();
    MUST(mm_dataset_open(fuzz_file("rows.jsonl", rows, sizeof rows - 1), &dataset) == MM_OK);
    MUST(mm_loader_create(dataset, fuzz_tokenizer(), &options, &loader) == MM_OK);
    MUST(atexit(give_back) == 0);
}

/* `size` bytes of the input, 0 where it ends before them. */
static void take(void *to, size_t size, const uint8_t **data, size_t *left)
{
    size_t there = size < *left ? size : *left;
    memset(to, 0, size);
    memcpy(to, *data, there);
    *data += there;
    *left -= there;
}

static void write_signed(const char *path, const uint8_t *data, size_t size)
{
    static int64_t keys[MOST], starts[MOST + 1];
    static int32_t ids[MOST * MOST];
    static float logits[MOST * MOST];
    uint8_t sizes[3];
    char text[MMI_HASH_TEXT];
    mmi_hash hash;
    take(sizes, sizeof sizes, &data, &size);
    int64_t rows = sizes[0] % MOST, positions = sizes[1] % MOST, k = sizes[2] % MOST;
    size_t count = (size_t)(positions * k);
    take(keys, (size_t)rows * sizeof *keys, &data, &size);
    take(starts, (size_t)(rows + 1) * sizeof *starts, &data, &size);
    take(ids, count * sizeof *ids, &data, &size);
    take(logits, count * sizeof *logits, &data, &size);
    mmi_hash_begin(&hash);
    mmi_hash_add(&hash, keys, (size_t)rows * sizeof *keys);
    mmi_hash_add(&hash, starts, (size_t)(rows + 1) * sizeof *starts);
    mmi_hash_add(&hash, ids, count * sizeof *ids);
    mmi_hash_add(&hash, logits, count * sizeof *logits);
    mmi_hash_text(text, mmi_hash_end(&hash));
    const char *const metadata[] = { "format", "minimind-distill-2", "vocab_size", "259", "hash", text, NULL };
    const mmi_st_entry entries[4] = {
        { .name = (char *)"keys", .dtype = MM_I64, .rank = 1, .shape = { rows, 1, 1, 1 }, .data = keys },
        { .name = (char *)"starts", .dtype = MM_I64, .rank = 1, .shape = { rows + 1, 1, 1, 1 }, .data = starts },
        { .name = (char *)"ids", .dtype = MM_I32, .rank = 2, .shape = { positions, k, 1, 1 }, .data = ids },
        { .name = (char *)"logits", .dtype = MM_F32, .rank = 2, .shape = { positions, k, 1, 1 }, .data = logits },
    };
    MUST(mmi_st_write(path, entries, 4, metadata) == MM_OK);
}

/* A student may find the file to be of other rows when it runs, or logits that no loss can be made of. */
static void learn(const char *path)
{
    mm_trainer *trainer = NULL;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    mm_loader_position start = MM_LOADER_POSITION_INIT;
    options.stage = MM_STAGE_DISTILL, options.teacher_cache = path;
    options.threads = 1, options.max_steps = 1, options.accumulation_steps = 1, options.learning_rate = 0;
    MUST(mm_loader_seek(loader, &start) == MM_OK);
    mm_status status = mm_trainer_create(model, loader, NULL, &options, &trainer);
    MUST(status == MM_OK ? trainer != NULL : refused(status) && trainer == NULL);
    if (status != MM_OK)
        return;
    status = mm_trainer_run(trainer);
    MUST(status == MM_OK || status == MM_ERR_NUMERIC || refused(status));
    mm_trainer_free(trainer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[512];
    if (!model)
        begin();
    if (size < 1)
        return 0;
    snprintf(path, sizeof path, "%s/teacher", fuzz_directory());
    if (data[0] % 2)
        write_signed(path, data + 1, size - 1);
    else
        fuzz_file("teacher", data + 1, size - 1);
    learn(path);
    return 0;
}
