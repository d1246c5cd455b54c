/* The whole network once more, in double precision, without dropout. */
#ifndef MM_TESTS_RUN_MODEL64_H
#define MM_TESTS_RUN_MODEL64_H

#include "nn/reference64.h"
#include "run/models.h"

typedef struct model64 {
    const mm_config *config;
    const mmi_arch *arch;
    int64_t count;
    double **w;         /* [count], each tensor's elements */
    int64_t *sizes;     /* [count] */
    char (*names)[128]; /* [count], within its layer */
    int *layers;        /* [count] */
    int64_t most;       /* rows there is room for */
    double *x, *h, *q, *k, *v, *attn, *delta;
    double *probs, *routed, *expert; /* with experts: [N, E], [N, C], [N, C] */
    double aux;         /* of the last run: the auxiliary loss in training */
    double *hidden, *logits, *logprobs; /* what the last run gave: [N, C], [N, V], [N] */
} model64;

/* Of a model with float32 weights, for batches of at most `rows` rows; of take()'s memory. */
model64 model64_of(const mm_model *model, int64_t rows);

/* "model.layers.7.mlp…" is "mlp…" of layer 7; any other name is itself, of layer -1. */
const char *model64_name(const char *full, int *layer);

/* The number of the tensor of that name within `layer`; -1 when this config has none. */
int64_t model64_find(const model64 *m, const char *name, int layer);

/* Fill hidden, logits and, with targets, logprobs. Caches are not known here. */
void model64_run(model64 *m, const mm_batch *batch);

/* Runs, and gives the mean over the counted targets, without the auxiliary loss. */
double model64_loss(model64 *m, const mm_batch *batch);

#endif
