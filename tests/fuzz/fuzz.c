#define _POSIX_C_SOURCE 200809L

#include "fuzz.h"

#include <string.h>
#include <unistd.h>

#include "base/files.h"

static char directory[256];

/* A thousand saves need not wait for the disk. */
int fsync(int fd)
{
    return fd < 0 ? -1 : 0;
}

static void remove_directory(void)
{
    mmi_remove_tree(directory);
}

const char *fuzz_directory(void)
{
    if (!directory[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/minimind-fuzz-XXXXXX", base && strlen(base) < 200 ? base : "/tmp");
        MUST(mkdtemp(directory) != NULL);
        MUST(atexit(remove_directory) == 0);
    }
    return directory;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    FILE *file = fopen(path, "wb");
    MUST(file != NULL);
    MUST(size == 0 || fwrite(data, 1, size, file) == size);
    MUST(fclose(file) == 0);
    return path;
}

mm_config *fuzz_config(void)
{
    static const struct {
        const char *key;
        int64_t value;
    } sizes[] = { { "hidden_size", 4 },
                  { "num_hidden_layers", 1 },
                  { "num_attention_heads", 2 },
                  { "num_key_value_heads", 1 },
                  { "intermediate_size", 3 },
                  { "vocab_size", 260 },
                  { "max_position_embeddings", 32 } };
    mm_config *config = NULL;
    MUST(mm_config_create("minimind2-small", &config) == MM_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        MUST(mm_config_set_int(config, sizes[i].key, sizes[i].value) == MM_OK);
    return config;
}

mm_model *fuzz_model(void)
{
    mm_config *config = fuzz_config();
    mm_model *model = NULL;
    int64_t n = 0;
    MUST(mm_model_create(config, 1, &model) == MM_OK);
    for (int64_t i = 0; i < mm_model_tensor_count(model); i++) {
        mm_view view;
        MUST(mm_model_write(model, i, &view) == MM_OK);
        int64_t size = view.shape[0] * (view.rank > 1 ? view.shape[1] : 1);
        for (int64_t j = 0; j < size; j++, n++)
            ((float *)view.data)[j] = (float)(n % 31 - 15) / 16;
    }
    mm_model_written(model);
    mm_config_free(config);
    return model;
}

static int32_t no_text(void *user, const char **text, size_t *length)
{
    (void)user, (void)text, (void)length;
    return 0;
}

static mm_tokenizer *tokenizer;

static void free_tokenizer(void)
{
    mm_tokenizer_free(tokenizer);
}

mm_tokenizer *fuzz_tokenizer(void)
{
    if (!tokenizer) {
        mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
        options.next_text = no_text;
        options.vocab_size = 259;
        MUST(mm_tokenizer_train(&options, &tokenizer) == MM_OK);
        MUST(atexit(free_tokenizer) == 0);
    }
    return tokenizer;
}
