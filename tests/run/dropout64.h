/* The whole network once more, in double precision, with every mask and every noise of training: they are asked from the
 * counters, element by element, at the places and rates that the families have. */
#ifndef MM_TESTS_RUN_DROPOUT64_H
#define MM_TESTS_RUN_DROPOUT64_H

#include "run/model64.h"

typedef struct dropout64 {
    model64 m;
    const mm_context *context; /* whose numbering of streams is used */
    mm_batch batch;            /* its mode says whether anything is dropped */
    double noise;              /* deviation on the router's logits */
    int32_t *chosen;           /* [L, N, k] from the first run on: which experts are chosen has no gradient */
    bool settled;              /* chosen is filled in */
    double loss, aux;          /* of the last run */
    double *mid, *y, *sum, *p; /* scratch: [N F], [N C], [N C], [N E] */
} dropout64;

dropout64 dropout64_of(const mm_model *model, const mm_context *context, const mm_batch *batch, double noise);

/* Runs; the loss and the auxiliary loss together. */
double dropout64_total(void *d);

#endif
