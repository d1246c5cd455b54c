/* A plugin host: the shared library is opened, used and closed, again and again. */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <minimind.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 40

/* Resident pages now; 0 where the system doesn't tell. */
static long resident(void)
{
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%ld %ld", &size, &pages) != 2)
        pages = 0;
    fclose(file);
    return pages;
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        printf("# %s is missing\n", name);
    return symbol;
}

/* A failing call, so that this thread has a message, and a context with threads of its own. */
static int use(void *library)
{
    mm_status (*create)(const char *, mm_config **) = NULL;
    mm_status (*set)(mm_config *, const char *, int64_t) = NULL;
    mm_status (*build)(const mm_config *, uint64_t, mm_model **) = NULL;
    mm_status (*plan)(mm_model *, const mm_context_options *, mm_context **) = NULL;
    void (*free_config)(mm_config *) = NULL, (*free_model)(mm_model *) = NULL, (*free_context)(mm_context *) = NULL;
    *(void **)&create = find(library, "mm_config_create");
    *(void **)&set = find(library, "mm_config_set_int");
    *(void **)&build = find(library, "mm_model_create");
    *(void **)&plan = find(library, "mm_context_create");
    *(void **)&free_config = find(library, "mm_config_free");
    *(void **)&free_model = find(library, "mm_model_free");
    *(void **)&free_context = find(library, "mm_context_free");
    if (!create || !set || !build || !plan || !free_config || !free_model || !free_context)
        return 0;
    mm_config *config = NULL;
    mm_model *model = NULL;
    mm_context *context = NULL;
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.max_length = 16, options.threads = 2;
    int good = create("no such preset", &config) == MM_ERR_ARG && create(NULL, &config) == MM_OK &&
               set(config, "hidden_size", 64) == MM_OK && set(config, "num_hidden_layers", 1) == MM_OK &&
               set(config, "vocab_size", 300) == MM_OK && build(config, 1, &model) == MM_OK &&
               plan(model, &options, &context) == MM_OK;
    free_context(context);
    free_model(model);
    free_config(config);
    return good;
}

int main(int argc, char **argv)
{
    long early = 0, late = 0;
    int good = argc == 2;
    for (int i = 0; i < ROUNDS && good; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            printf("# %s\n", dlerror());
        good = library && use(library) && dlclose(library) == 0;
        if (i == ROUNDS / 4)
            early = resident();
    }
    late = resident();
    printf("1..2\n%sok 1 - the library is opened, used and closed again and again\n", good ? "" : "not ");
    printf("%sok 2 - which takes no more and more memory (%ld pages, then %ld)\n", late - early < 256 ? "" : "not ", early,
           late);
    return !good || late - early >= 256;
}
