/* What generate, chat and evaluate ask of a model that they have loaded takes no memory. The argument is a directory to
 * work in. */
#include "../../examples/load_as.h"

#include "../../examples/options.h"

static const struct {
    const char *dtype;
    int32_t compute;
} loaded[] = { { "f32", MM_F32 }, { "bf16", MM_BF16 }, { "q8_0", MM_F32 }, { "q4_0", MM_F32 }, { NULL, MM_F32 } };
enum { LOADED = sizeof loaded / sizeof *loaded };

static uint64_t held(void)
{
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    check(mm_memory_get_usage(&usage));
    return usage.current;
}

static void save_model(const char *directory)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    check(mm_config_create(NULL, &config));
    check(mm_config_set_int(config, "num_hidden_layers", 1));
    check(mm_model_create(config, 1, &model));
    check(mm_model_save(model, directory));
    mm_model_free(model);
    mm_config_free(config);
}

int main(int argc, char **argv)
{
    int wrong = 0;
    start_as(argv);
    if (argc < 2)
        fail("it takes a directory", "");
    save_model(argv[1]);
    printf("1..%d\n", LOADED);
    for (int i = 0; i < LOADED; i++) {
        mm_model *model = NULL;
        check(load_as(argv[1], loaded[i].dtype, &model));
        uint64_t before = held();
        int right = compute_for(model, loaded[i].dtype) == loaded[i].compute && held() == before;
        printf("%sok %d - weights in %s are met by what fits them, and no copy is made\n", right ? "" : "not ", i + 1,
               loaded[i].dtype ? loaded[i].dtype : "what is stored");
        wrong += !right;
        mm_model_free(model);
    }
    return written(wrong > 0);
}
