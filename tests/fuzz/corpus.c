/* A fuzz target as a test: every file of the directories named, then cut short and with bits flipped, always the same
 * way. The library must hold no more memory behind an input than before it. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "fuzz.h"

#define CUTS 16
#define FLIPS 48

static int passed, failed;

static uint64_t held(void)
{
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    MUST(mm_memory_get_usage(&usage) == MM_OK);
    return usage.current;
}

/* Bytes that the library holds more than before. The input lies in a block of just its size, so that a sanitizer sees
 * what reads beyond it. */
static uint64_t growth(const char *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    MUST(exact != NULL);
    memcpy(exact, data, size);
    uint64_t before = held();
    LLVMFuzzerTestOneInput(exact, size);
    uint64_t after = held();
    free(exact);
    return after > before ? after - before : 0;
}

/* A buffer that a handle keeps for later grows once; a leak grows each time. */
static int leaks(const char *data, size_t size)
{
    return growth(data, size) > 0 && growth(data, size) > 0;
}

static int mutations_leak(char *data, size_t size)
{
    int leaky = 0;
    uint64_t random = 88172645463325252u + size;
    for (size_t i = 0; i < CUTS && i < size; i++)
        leaky |= leaks(data, size * i / CUTS);
    for (int i = 0; i < FLIPS && size; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        char *at = data + random % size, was = *at;
        *at ^= (char)(1u << (random >> 40) % 8);
        leaky |= leaks(data, size);
        *at = was;
    }
    return leaky;
}

static void try_file(const char *directory, const char *name)
{
    char *path = mmi_path_join(directory, name), *data = NULL;
    size_t size = 0;
    MUST(path && mmi_read_file(path, &data, &size) == MM_OK);
    fuzz_tokenizer(); /* what is made once is not the input's */
    leaks("", 0);
    int leaky = leaks(data, size) | mutations_leak(data, size);
    printf("%sok %d - %s%s\n", leaky ? "not " : "", passed + failed + 1, name, leaky ? ": memory is not given back" : "");
    *(leaky ? &failed : &passed) += 1;
    mmi_free(data);
    mmi_free(path);
}

static int ordinary(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct dirent **names = NULL;
        int count = scandir(argv[i], &names, ordinary, alphasort);
        MUST(count >= 0);
        for (int j = 0; j < count; j++) {
            try_file(argv[i], names[j]->d_name);
            free(names[j]);
        }
        free(names);
    }
    printf("1..%d\n", passed + failed);
    return failed > 0 || passed == 0;
}
