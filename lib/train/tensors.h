/* Files of float32 tensors: what a checkpoint is made of. A list says which tensors a file holds and where they lie; by
 * it the file is written, checked when it is opened, and copied back. */
#ifndef MMI_TRAIN_TENSORS_H
#define MMI_TRAIN_TENSORS_H

#include "model/safetensors.h"
#include "model/trained.h"

#define MMI_NOTES_MAX 4

/* Begins as { 0 }; mmi_tensors_free() at the end, also after a failure. */
typedef struct mmi_tensor_list {
    mmi_st_entry *entries; /* [count]; data is memory of float32 that is read and, by take, written */
    size_t count, room;
    const char *notes[2 * MMI_NOTES_MAX + 1]; /* the file's metadata: key, value, …, NULL */
} mmi_tensor_list;

void mmi_tensors_free(mmi_tensor_list *list);

/* One more tensor; `name` is copied, `data` is not. */
mm_status mmi_tensors_add(mmi_tensor_list *list, const char *name, int32_t rank, const int64_t *shape, float *data);

/* One for every tensor that is trained, under a prefix ("exp_avg.") and its name; those for which `get` gives NULL are
 * left out. */
mm_status mmi_tensors_add_all(mmi_tensor_list *list, const mmi_trained *trained, const char *prefix,
                              float *(*get)(void *owner, int64_t index), void *owner);

/* A line of the file's metadata; both strings are copied. */
mm_status mmi_tensors_note(mmi_tensor_list *list, const char *key, const char *value);

mm_status mmi_tensors_write(const char *path, const mmi_tensor_list *list);

/* Open a file and check that it holds exactly the list's tensors: MM_ERR_FORMAT says what is missing, too many or of
 * another shape. On failure there is nothing to close. */
mm_status mmi_tensors_open(mmi_st_file *out, const char *path, const mmi_tensor_list *list);

/* Copy all of them out of a file that was opened by this list. Can't fail. */
void mmi_tensors_take(const mmi_st_file *file, const mmi_tensor_list *list);

#endif
