/* Token embeddings, and the table of sinusoidal positions that some families add to them. */
#ifndef MMI_NN_EMBEDDING_H
#define MMI_NN_EMBEDDING_H

#include "backend/exec.h"
#include "model/model.h"

/* y[i] = table[ids[i]], i < N. y [N, C]; table [V, C] of any dtype; ids in range. */
void mmi_embedding_forward(const mmi_exec *x, float *y, mmi_weight table, const int32_t *ids, int64_t N);

/* dtable [V, C] += dy's rows at their ids, in the order of i for any number of threads. */
void mmi_embedding_backward(const mmi_exec *x, float *dtable, const float *dy, const int32_t *ids, int64_t N,
                            int64_t C);

/* table [P, C]: P[t, 2i] = sin(t · 10000^(-2i/C)), P[t, 2i + 1] = cos of the same (Vaswani et al., 2017). */
void mmi_sinusoid_table(float *table, int64_t P, int64_t C);

/* y[i] += table[positions[i]]. */
void mmi_sinusoid_add(const mmi_exec *x, float *y, const float *table, const int32_t *positions, int64_t N, int64_t C);

#endif
