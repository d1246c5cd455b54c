/* The safetensors format: 8 bytes little-endian header length, JSON header, data. */
#ifndef MMI_MODEL_SAFETENSORS_H
#define MMI_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <minimind/view.h>

#include "base/files.h"
#include "base/status.h"

typedef struct mmi_st_entry {
    char *name;
    int32_t dtype;      /* MM_… */
    int32_t rank;
    int64_t shape[4];   /* 1 beyond the rank; a scalar has rank 0 */
    int64_t elements;
    const void *data;   /* into the image; maybe unaligned */
    size_t bytes;
} mmi_st_entry;

typedef struct mmi_st_file {
    mmi_st_entry *entries;
    size_t count;
    mmi_mapping mapping; /* when read from a file */
} mmi_st_file;

/* Read the header of an image and check all of it: lengths, dtypes, shapes against byte ranges, ranges in the file and not
 * overlapping, no gap, no name twice. `what` names it in messages. The entries point into `data`. */
mm_status mmi_st_parse(const void *data, size_t size, const char *what, mmi_st_file *out);

/* The same for a file, mapped. */
mm_status mmi_st_open(const char *path, mmi_st_file *out);
void mmi_st_close(mmi_st_file *file);

/* By name, or NULL. */
const mmi_st_entry *mmi_st_find(const mmi_st_file *file, const char *name);

/* Write a file in one step. `entries` need name, dtype, rank, shape and data; their order is kept. `metadata` pairs of
 * strings ended by NULL, or NULL. */
mm_status mmi_st_write(const char *path, const mmi_st_entry *entries, size_t count, const char *const *metadata);

#endif
