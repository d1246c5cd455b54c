/* Weights of one dtype as another. */
#ifndef MMI_MODEL_CONVERT_H
#define MMI_MODEL_CONVERT_H

#include <stdint.h>

#include "model/safetensors.h"

/* out[i] = in[i] for n elements; dtypes of weights, but those in blocks. Rounded as the kernel `narrow` does. Any
 * alignment. */
void mmi_convert(void *out, int32_t to, const void *in, int32_t from, int64_t n);

/* A matrix of any dtype as a model keeps it: in blocks as strips. */
void mmi_convert_matrix(void *out, int32_t to, const void *in, int32_t from, int64_t rows, int64_t cols);

/* out = all of a file's entry as `dtype`, however the file was opened. MM_ERR_IO. */
mm_status mmi_convert_entry(void *out, int32_t dtype, const mmi_st_file *file, const mmi_st_entry *entry);

/* A matrix as strips of `dtype`, of a file's entry that has its blocks row by row. MM_ERR_IO. */
mm_status mmi_convert_blocks(void *strips, int32_t dtype, int64_t rows, int64_t cols, const mmi_st_file *file,
                             const mmi_st_entry *entry);

#endif
