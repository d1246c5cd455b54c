/* What the fuzz targets share. Each target is one file; it is linked with libFuzzer, or with corpus.c for the tests. */
#ifndef MM_TESTS_FUZZ_H
#define MM_TESTS_FUZZ_H

#include <minimind.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One input, whatever its bytes. 0; it ends the process when the library breaks a promise. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for every input. Where it does, the message of the call is forgotten, so that the next one needs its own. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s (%s)\n", __FILE__, __LINE__, #condition, mm_last_error());       \
            abort();                                                                                                   \
        }                                                                                                              \
        mm_set_last_error(MM_OK, "");                                                                                  \
    } while (0)

/* A call with bad input fails with one of these and says why; anything else is a bug of the library. */
static inline int refused(mm_status status)
{
    return (status == MM_ERR_FORMAT || status == MM_ERR_UNSUPPORTED || status == MM_ERR_ARG) &&
           mm_last_error()[0] != '\0';
}

/* A directory of this process's own, made on the first call and removed when the process ends. */
const char *fuzz_directory(void);

/* Put `size` bytes into a file of fuzz_directory(); its path, static until the next call. */
const char *fuzz_file(const char *name, const void *data, size_t size);

/* A dense config of some hundred weights, all keys valid. */
mm_config *fuzz_config(void);

/* A model of that config, whose weights are the same on every machine; yours. */
mm_model *fuzz_model(void);

/* The 256 bytes and the three special tokens of MiniMind; made once. */
mm_tokenizer *fuzz_tokenizer(void);

#endif
