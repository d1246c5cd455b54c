/* Files that hold one float32 tensor for every parameter, under a prefix and the parameter's name: weights, gradients,
 * moments. */
#ifndef MMI_TRAIN_TENSORS_H
#define MMI_TRAIN_TENSORS_H

#include "model/layout.h"
#include "model/safetensors.h"

typedef struct mmi_tensor_set {
    const char *prefix;                               /* "exp_avg." */
    float *(*get)(void *owner, int64_t index);        /* where tensor `index` lies */
    void *owner;
} mmi_tensor_set;

mm_status mmi_tensors_write(const char *path, const mmi_layout *layout, const mmi_tensor_set *sets, size_t count,
                            const char *const *metadata);

/* Open a file and check that it holds exactly these sets: MM_ERR_FORMAT says what is missing, too many or of another shape.
 * On failure there is nothing to close. */
mm_status mmi_tensors_open(mmi_st_file *out, const char *path, const mmi_layout *layout, const mmi_tensor_set *sets,
                           size_t count);

/* Copy all of them out of an opened file. Can't fail. */
void mmi_tensors_take(const mmi_st_file *file, const mmi_layout *layout, const mmi_tensor_set *sets, size_t count);

/* A member of the file's metadata, copied into `text`: MM_ERR_FORMAT if it is absent or too long. */
mm_status mmi_tensors_metadata(const mmi_st_file *file, const char *path, const char *key, char *text, size_t size);

#endif
