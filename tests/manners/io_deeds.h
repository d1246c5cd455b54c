/* What test_io.c tries, apart from its own deeds: each frees all it makes, and gives the first status that is not
 * MM_OK, else what came out as a digest. Before it `prepare` puts things into the directory, behind it `check` looks at
 * them. */
#ifndef MM_TESTS_MANNERS_IO_DEEDS_H
#define MM_TESTS_MANNERS_IO_DEEDS_H

#include "support.h"

typedef struct io_deed {
    const char *name;
    void (*prepare)(void);
    mm_status (*run)(uint64_t *out);
    void (*check)(mm_status status);
} io_deed;

/* Of the test: directories for what is written and for rows, a model and a tokenizer. */
extern char io_directory[512], io_rows_directory[512];
extern mm_model *io_model;
extern mm_tokenizer *io_tokenizer;
void io_digest(uint64_t *out, const void *data, size_t size);
void io_digest_model(uint64_t *out, const mm_model *model);

/* In io_learn.c; io_learn_prepare() once, before any of them. */
void io_learn_prepare(void);
extern const io_deed io_learn_deeds[];
extern const int io_learn_count;

#endif
