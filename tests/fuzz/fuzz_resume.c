/* A checkpoint directory, damaged. What was changed is signed again, so that damage comes as far as a forger could
 * bring it. */
#include "fuzz_resume.h"

#include <string.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/hash.h"

static mm_trainer *trainer;
static char checkpoint[512];

static void give_back(void)
{
    mm_trainer_free(trainer);
}

/* One trainer leaves a checkpoint; another, which writes nothing, is to take it. */
static void make_checkpoint(const fuzz_run *run)
{
    mm_trainer *first = NULL;
    snprintf(checkpoint, sizeof checkpoint, "%s/run", fuzz_directory());
    run->make(&first, checkpoint);
    MUST(mm_trainer_run(first) == MM_OK);
    mm_trainer_free(first);
    snprintf(checkpoint, sizeof checkpoint, "%s/run/step-2", fuzz_directory());
    MUST(mmi_is_directory(checkpoint));
    run->make(&trainer, NULL);
    MUST(atexit(give_back) == 0);
}

static int32_t stop_early(void *user, const mm_train_progress *progress)
{
    (void)user;
    return progress->step == 2;
}

void fuzz_trainer(mm_trainer **out, const char *rows, const mm_loader_options *lo, mm_trainer_options *to)
{
    mm_config *config = fuzz_config();
    mm_model *model = NULL;
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    to->on_step = stop_early;
    MUST(mm_model_create(config, 1, &model) == MM_OK);
    MUST(mm_dataset_open(fuzz_file("train.jsonl", rows, strlen(rows)), &dataset) == MM_OK);
    MUST(mm_loader_create(dataset, fuzz_tokenizer(), lo, &loader) == MM_OK);
    MUST(mm_trainer_create(model, loader, fuzz_tokenizer(), to, out) == MM_OK);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_model_free(model);
    mm_config_free(config);
}

static void put(const char *name, const void *data, size_t size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", checkpoint, name);
    FILE *file = fopen(path, "wb");
    MUST(file && (size == 0 || fwrite(data, 1, size, file) == size));
    MUST(fclose(file) == 0);
}

static void hash_text(char text[MMI_HASH_TEXT], const void *data, size_t size)
{
    mmi_hash hash;
    mmi_hash_begin(&hash);
    mmi_hash_add(&hash, data, size);
    mmi_hash_text(text, mmi_hash_end(&hash));
}

static void set_file(mmi_json *state, const char *name, const uint8_t *data, size_t size)
{
    char text[MMI_HASH_TEXT];
    mmi_json *entry = mmi_json_new_object();
    hash_text(text, data, size);
    MUST(mmi_json_set(entry, "bytes", mmi_json_new_int((int64_t)size)));
    MUST(mmi_json_set(entry, "hash", mmi_json_new_string(text, MMI_HASH_TEXT - 1)));
    MUST(mmi_json_set(mmi_json_get(state, "files"), name, entry));
}

/* Write state.json with the checksum that its words have now. */
static void sign(mmi_json *state)
{
    char *text = NULL, hash[MMI_HASH_TEXT];
    size_t length = 0;
    mmi_json_remove(state, "checksum");
    MUST(mmi_json_write(state, 0, &text, &length) == MM_OK);
    hash_text(hash, text, length);
    MUST(mmi_json_set(state, "checksum", mmi_json_new_string(hash, MMI_HASH_TEXT - 1)));
    mmi_free(text);
    MUST(mmi_json_write(state, 0, &text, &length) == MM_OK);
    put("state.json", text, length);
    mmi_free(text);
}

/* The members of `changes` in place of those of state.json. */
static void change(mmi_json *state, const uint8_t *data, size_t size)
{
    mmi_json *changes = NULL;
    if (mmi_json_parse((const char *)data, size, "changes", &changes) != MM_OK)
        return;
    if (mmi_json_what(changes) == MMI_JSON_OBJECT)
        for (void *i = mmi_json_first(changes); i; i = mmi_json_next(changes, i))
            MUST(mmi_json_set(state, mmi_json_key(i), mmi_json_copy(mmi_json_value(i))));
    mmi_json_free(changes);
}

/* Resume; if that is taken, going on must end too, and well. */
static void resume(int goes_on)
{
    mm_train_progress before = MM_TRAIN_PROGRESS_INIT, now = MM_TRAIN_PROGRESS_INIT;
    MUST(mm_trainer_progress(trainer, &before) == MM_OK);
    mm_status status = mm_trainer_resume(trainer, checkpoint);
    MUST(status == MM_OK ||
         (status == MM_ERR_FORMAT && strstr(mm_last_error(), checkpoint))); /* a user is told which file it is */
    MUST(mm_trainer_progress(trainer, &now) == MM_OK);
    MUST(status == MM_OK || (now.step == before.step && now.tokens == before.tokens));
    if (status != MM_OK || !goes_on)
        return;
    status = mm_trainer_run(trainer);
    MUST(status == MM_OK || status == MM_ERR_NUMERIC); /* weights and moments may be any numbers */
    MUST(mm_trainer_progress(trainer, &now) == MM_OK);
    MUST(now.tokens >= 0 && now.epoch_step >= 0 && now.step >= 0 && now.updates >= 0);
}

static void change_file(mmi_json *state, const char *name, const uint8_t *data, size_t size)
{
    char path[600], *kept = NULL;
    size_t kept_size = 0;
    snprintf(path, sizeof path, "%s/%s", checkpoint, name);
    MUST(mmi_read_file(path, &kept, &kept_size) == MM_OK);
    put(name, data, size);
    set_file(state, name, data, size);
    sign(state);
    resume(1);
    put(name, kept, kept_size);
    mmi_free(kept);
}

int fuzz_resume(const fuzz_run *run, const uint8_t *data, size_t size)
{
    char path[600], *whole = NULL;
    size_t whole_size = 0;
    if (!trainer)
        make_checkpoint(run);
    if (size < 1)
        return 0;
    mmi_json *state = NULL;
    int which = data[0] % 8;
    snprintf(path, sizeof path, "%s/state.json", checkpoint);
    MUST(mmi_read_file(path, &whole, &whole_size) == MM_OK);
    MUST(mmi_json_parse(whole, whole_size, "state", &state) == MM_OK);
    if (which < 4) {
        change_file(state, run->files[which], data + 1, size - 1);
    } else if (which < 7) {
        change(state, data + 1, size - 1);
        sign(state);
        resume(1);
    } else {
        put("state.json", data + 1, size - 1);
        resume(1);
    }
    put("state.json", whole, whole_size);
    mmi_json_free(state);
    mmi_free(whole);
    resume(0);
    return 0;
}
