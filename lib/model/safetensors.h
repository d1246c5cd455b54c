/* The safetensors format: 8 bytes little-endian header length, JSON header, data. */
#ifndef MMI_MODEL_SAFETENSORS_H
#define MMI_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <minimind/view.h>

#include "base/files.h"
#include "base/status.h"

/* The longest header that is read, in bytes: the format's own limit. */
#define MMI_ST_HEADER_MAX ((uint64_t)100000000)

/* The longest name of a tensor, in bytes. */
#define MMI_ST_NAME_MAX ((size_t)512)

/* The dtype of an entry that the format knows and this library can't read; dtype_name tells which. */
#define MMI_ST_OTHER ((int32_t)-1)

/* Bytes, "U8": what the format has no dtype for. */
#define MMI_ST_BYTES ((int32_t)-2)

typedef struct mmi_st_entry {
    char *name;
    int32_t dtype;      /* MM_…, MMI_ST_BYTES or MMI_ST_OTHER */
    int32_t rank;
    int64_t shape[4];   /* 1 beyond the rank; a scalar has rank 0 */
    int64_t elements;
    const void *data;   /* into the image, maybe unaligned; NULL in a file that is read rather than mapped */
    size_t bytes;
    size_t offset;      /* of the data, from the file's first byte; not looked at by mmi_st_write */
    const char *dtype_name; /* as in the header, "BF16"; static; not looked at by mmi_st_write */
    int32_t blocks;     /* for mmi_st_write alone: MM_Q8_0 or MM_Q4_0, `data` are strips of it; else 0 */
} mmi_st_entry;

typedef struct mmi_st_file {
    mmi_st_entry *entries; /* [count], sorted by name */
    size_t count;
    const char *what;      /* the path, or what mmi_st_parse was told; for messages */
    mmi_mapping mapping;   /* of mmi_st_open */
    mmi_reader reader;     /* of mmi_st_open_unmapped */
} mmi_st_file;

/* Read the header of an image and check all of it: lengths, dtypes, shapes against byte ranges, ranges in the file and not
 * overlapping, no gap, no name twice. `what` names it in messages. The entries point into `data`.
 * MM_ERR_FORMAT: damaged. MM_ERR_UNSUPPORTED: rank above 4. MM_ERR_MEMORY. On failure *out is untouched. */
mm_status mmi_st_parse(const void *data, size_t size, const char *what, mmi_st_file *out);

/* The same for a file, mapped: entries point into the mapping. Only for files that nobody shortens meanwhile. */
mm_status mmi_st_open(const char *path, mmi_st_file *out);

/* The same for a file whose data mmi_st_read fetches: safe whatever happens to the file, and its pages aren't charged to
 * this process. */
mm_status mmi_st_open_unmapped(const char *path, mmi_st_file *out);

/* Fine on a zeroed or closed one. */
void mmi_st_close(mmi_st_file *file);

/* By name, or NULL. */
const mmi_st_entry *mmi_st_find(const mmi_st_file *file, const char *name);

/* `size` bytes of an entry's data from byte `from` on, however the file was opened. */
mm_status mmi_st_read(void *out, const mmi_st_file *file, const mmi_st_entry *entry, size_t from, size_t size);

/* A member of the file's metadata, copied into `text`: MM_ERR_FORMAT if it is absent or too long. */
mm_status mmi_st_metadata(const mmi_st_file *file, const char *key, char *text, size_t size);

/* The same of one that need not be there: "" if it is absent, cut off if it is too long. */
mm_status mmi_st_hint(const mmi_st_file *file, const char *key, char *text, size_t size);

/* "[10, 20]" */
#define MMI_ST_SHAPE_TEXT 96
void mmi_st_shape_text(char text[MMI_ST_SHAPE_TEXT], const int64_t *shape, int32_t rank);

/* How the format spells a dtype, "BF16"; NULL for a number that is none. Static. */
const char *mmi_st_dtype_name(int32_t dtype);

/* Write a file in one step. `entries` need name, dtype, rank, shape, data and blocks; their order is kept. A matrix in
 * strips is written row by row, as GGUF has it, and described as what it then is: MMI_ST_BYTES, a row's bytes in each row.
 * `metadata` pairs of strings ended by NULL, or NULL. */
mm_status mmi_st_write(const char *path, const mmi_st_entry *entries, size_t count, const char *const *metadata);

#endif
