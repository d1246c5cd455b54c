/* What evaluations share: the log-probability of stretches of ids, and whether a context can tell it. */
#ifndef MMI_TRAIN_LIKELIHOOD_H
#define MMI_TRAIN_LIKELIHOOD_H

#include <minimind/context.h>

#include "train/ids.h"

/* A stretch of ids whose part from `from` on is scored, given all before it; 1 <= from < count <= max_length + 1. */
typedef struct mmi_stretch {
    size_t start; /* into mmi_ids.data */
    int32_t count, from;
    double sum; /* set: log-probability of ids [from, count), in nats */
} mmi_stretch;

/* Score all items, max_batch at a time, in their order: which of them run together does not depend on threads.
 * MM_ERR_NUMERIC: a sum that is not finite. */
mm_status mmi_likelihood(mm_context *context, const mmi_ids *ids, mmi_stretch *items, size_t count);

/* MM_ERR_ARG where one of them, `data` under its name, is NULL. */
mm_status mmi_likelihood_check_given(const char *who, const mm_context *context, const mm_tokenizer *tokenizer,
                                     const void *data, const char *name, const void *out);

/* MM_ERR_ARG unless the context was planned with `output` (MM_OUT_…), called `name`. */
mm_status mmi_likelihood_check(const char *who, const mm_context *context, int32_t output, const char *name);

/* MM_ERR_ARG unless every id of the tokenizer is one of the model's, and so is `bos_id`, or -1. */
mm_status mmi_likelihood_check_ids(const char *who, const mm_context *context, const mm_tokenizer *tokenizer,
                                   int32_t bos_id);

#endif
