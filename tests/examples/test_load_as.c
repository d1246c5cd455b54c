/* What generate, chat and evaluate ask of a model that they have loaded takes no memory. The argument is a directory to
 * work in. */
#include "../../examples/load_as.h"

#include "../../examples/options.h"

#include <stdlib.h>

static const struct {
    const char *stored, *dtype; /* NULL: as stored */
    int32_t compute;
} loaded[] = { { "f32", "f32", MM_F32 },   { "f32", "bf16", MM_BF16 }, { "f32", "q8_0", MM_F32 }, { "f32", "q4_0", MM_F32 },
               { "f32", NULL, MM_F32 },    { "bf16", NULL, MM_BF16 },  { "q8_0", NULL, MM_F32 },  { "q4_0", NULL, MM_F32 },
               { "q8_0", "bf16", MM_BF16 }, { "f32", "q8_0", MM_F32 } };
enum { LOADED = sizeof loaded / sizeof *loaded, SHIFTED = LOADED - 1 };

static uint64_t held(void)
{
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    check(mm_memory_get_usage(&usage));
    return usage.current;
}

static void save_model(const char *directory, const char *stored)
{
    mm_config *config = NULL;
    mm_model *model = NULL, *turned = NULL;
    check(mm_config_create(NULL, &config));
    check(mm_config_set_int(config, "num_hidden_layers", 1));
    check(mm_model_create(config, 1, &model));
    check(turn_into(stored, model, &turned));
    check(mm_model_save(turned, directory));
    mm_model_free(turned);
    mm_model_free(model);
    mm_config_free(config);
}

/* One byte more of a header: weights that can be loaded, but not mapped. */
static void shift(const char *directory)
{
    char path[4096];
    size_t length = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    FILE *file = fopen(path, "rb");
    char *data = read_all(file, path, &length);
    size_t header = 8 + (unsigned char)data[0] + 256 * (size_t)(unsigned char)data[1];
    if (!(file = fopen(path, "wb")) || ++data[0] == 0)
        fail("can't shift ", path);
    fwrite(data, 1, header, file);
    fwrite(" ", 1, 1, file);
    fwrite(data + header, 1, length - header, file);
    if (fclose(file) != 0)
        fail("can't shift ", path);
    free(data);
}

int main(int argc, char **argv)
{
    int wrong = 0;
    start_as(argv);
    if (argc < 2)
        fail("it takes a directory", "");
    printf("1..%d\n", LOADED);
    for (int i = 0; i < LOADED; i++) {
        mm_model *model = NULL;
        save_model(argv[1], loaded[i].stored);
        if (i == SHIFTED)
            shift(argv[1]);
        check(load_as(argv[1], loaded[i].dtype, &model));
        uint64_t before = held();
        int right = compute_for(model) == loaded[i].compute && held() == before;
        printf("%sok %d - weights in %s, stored in %s%s, are met by what fits them, and no copy is made\n",
               right ? "" : "not ", i + 1, loaded[i].dtype ? loaded[i].dtype : "the same", loaded[i].stored,
               i == SHIFTED ? " at odd places" : "");
        wrong += !right;
        mm_model_free(model);
    }
    return written(wrong > 0);
}
