/* Weights that several cores have read at the same time. */
#ifndef MMI_RUN_SHARE_H
#define MMI_RUN_SHARE_H

#include "run/context.h"

/* In a pass of few rows, which each thread reads its part of the weights for: let all threads read some more of the
 * weights together.
 *
 * Decoding reads each weight once a token, and splits matrices among threads so that a line of memory is always read by
 * the same core. Where each core has a second level of cache of its own and the third takes in what leaves it (as in
 * Intel's servers since 2017), such a line moves: out of the third level when it is read, and back into it when it has
 * to make room, unchanged, so that it passes between the two twice. What two cores have held at the same time stays in
 * the third level and is dropped by the second. A core reads it 1.3 to 1.5 times as fast, until something else needs its
 * place. So the threads read all of it twice in a context's first passes, and then a hundredth with each pass of what
 * a thread reads for itself. Nothing is done for weights of less than 4 MiB or more than 128 MiB, on one thread, or with
 * the host's own threads. docs/performance-notes.md has the measurements. */
void mmi_share_weights(mm_context *ctx, const mmi_pass *pass);

/* At the beginning and the end of every pass: what is between two of them, other work has the caches for. */
void mmi_share_begin(mm_context *ctx);
void mmi_share_end(mm_context *ctx);

#endif
