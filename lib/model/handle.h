/* The inside of mm_model, for the files that make one. */
#ifndef MMI_MODEL_HANDLE_H
#define MMI_MODEL_HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/files.h"
#include "model/model.h"

/* Three blocks of memory: the handle with its tables, the config, and the arena unless the weights are mapped; and one
 * for each tensor in `shown`. */
struct mm_model {
    atomic_size_t holds; /* handles that live on this model, its owner's included */
    atomic_uint_fast64_t version;
    mm_config *config;
    mmi_arch arch;
    mmi_layout layout;
    const void **data;      /* [layout.count]: into the arena, or into the maps; in blocks, as strips */
    _Atomic(void *) *shown; /* [layout.count]: those in blocks that were asked for, as GGUF has them; else NULL */
    int32_t *dtypes;        /* [layout.count] */
    unsigned char *arena;   /* NULL when mapped */
    mmi_mapping *maps;      /* [map_count] */
    size_t map_count;
    bool trainable; /* in an arena, all of it float32 */
};

/* A model of a copy of `config`, without weights: every dtype is MM_F32, every pointer NULL. Takes room for `maps`
 * mappings, none of them made. mm_model_free() takes it back at any stage. */
mm_status mmi_model_new(mm_model **out, const mm_config *config, size_t maps);

/* Give it an arena for weights of its dtypes, and point every tensor at its place there: at multiples of 64 bytes, in
 * order, as mmi_layout_place() has it. The weights are not set; what lies between them is 0. */
mm_status mmi_model_place(mm_model *model);

/* Where a tensor in the arena is written. */
void *mmi_model_room(const mm_model *model, int64_t index);

#endif
