/* Small models and hand-made checkpoints for the tests of this folder. */
#ifndef MM_TESTS_MODEL_CHECKPOINT_H
#define MM_TESTS_MODEL_CHECKPOINT_H

#include <minimind.h>

#include "model/safetensors.h"
#include "support.h"

/* A tiny config of a family ("minimind", "minigpt", …); yours. */
mm_config *family_config(const char *model_type);

/* family_config("minimind") with weights from `seed`; yours. */
mm_model *sample_model(uint64_t seed);

/* The rows of a file with all of a model's tensors, to be changed and written. Data are lent by the model. Blocks are
 * rows of bytes. */
#define ROWS_MAX 64
typedef struct rows {
    mmi_st_entry entries[ROWS_MAX];
    char names[ROWS_MAX][MMI_ST_NAME_MAX];
    size_t count;
} rows;
void rows_of(rows *out, const mm_model *model);
mmi_st_entry *row_named(rows *r, const char *name);
void add_row(rows *r, const char *name, int32_t dtype, int32_t rank, int64_t d0, int64_t d1, const void *data);
void drop_row(rows *r, const char *name);

/* "directory/name"; a few calls may be alive at once. */
const char *in(const char *directory, const char *name);

/* A fresh directory with the model's config.json, and model.safetensors from `r` unless that is NULL. */
const char *directory_of(const mm_model *model, const rows *r);

void write_text(const char *path, const char *text);

/* Replace the first `from` in a file by `to` of the same length. */
void patch_file(const char *path, const char *from, const char *to);

/* Cut a file, or make it longer by zeros. */
void resize_file(const char *path, long size);
long file_size(const char *path);

int files_in(const char *directory);

/* Fail unless all tensors have the same dtypes and bits. */
void same_weights(const mm_model *a, const mm_model *b);
int weights_equal(const mm_model *a, const mm_model *b);

/* Our name as Mini-LLM writes it: the translation backwards. A name that Mini-LLM has too stays as it is. */
void mini_llm_name(char *out, size_t size, const char *name);

/* Change one to three bytes, most of them in the first `header`. */
void mutate(unsigned char *image, size_t size, size_t header, test_rng *rng);

/* Fail unless a file's image, cut short and changed in so many ways, is loaded or refused, each some of the time, and
 * leaves nothing behind. */
void mutated_images_do_no_harm(const mm_config *config, const char *file, uint64_t seed, int rounds);

#endif
